import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.journalling import NOW, claim, event, written
from symphony import sqlite
from symphony.journal.database import open_database
from symphony.journal.reader import checkup, open_reader
from symphony.library.model import Authorship, LibraryError, SkillText
from symphony.library.store import Library, check

ADA = Authorship(author="ada")
STYLE = SkillText(name="style", description="Style.", when_to_use="", content="Be brief.\n")
# PENDING_BYTE + 2 and SHARED_SIZE (https://www.sqlite.org/fileformat2.html, 1.6, and SQLite's os.h)
LOCK_BYTES = (0x40000002, 510)


def fill(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE numbers (number UNIQUE)")


def names(place: Path) -> list[str]:
    return sorted(found.name for found in place.iterdir())


# --- locks ---


def is_locked(path: Path) -> bool:
    """Whether another process sees a lock of this one on the main file."""
    start, size = LOCK_BYTES
    probe = (
        f"import fcntl; file = open({str(path)!r}, 'r+b')\n"
        f"fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, {size}, {start})"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "BlockingIOError" in done.stderr, done.stderr
    return done.returncode != 0


def read_all(path: Path) -> None:
    with open_reader(path) as reader:
        assert reader.claims()


def refuse_a_backup_to(path: Path) -> None:
    with pytest.raises(LibraryError):
        Library(path.with_name("other.db")).backup(path)


def refuse_a_copy_to(path: Path) -> None:
    with pytest.raises(FileExistsError):
        sqlite.create(path, fill)


LIBRARY: tuple[Callable[[Path], object], ...] = (
    lambda path: Library(path).skills(),
    lambda path: Library(path).edit(STYLE, ADA, base_version=1),
    lambda path: Library(path).backup(path.with_name("copy.db")),
    check,
    refuse_a_backup_to,
    refuse_a_copy_to,
)
JOURNAL: tuple[Callable[[Path], object], ...] = (
    read_all,
    checkup,
    lambda path: open_database(path, now_wall_ms=NOW, busy_ms=0).close(),
    refuse_a_backup_to,
)


def keeps_the_locks(path: Path, use: Callable[[Path], object]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM sqlite_schema").fetchall()
        assert is_locked(path)
        use(path)
        assert is_locked(path), "the other connection of this process has its lock"
    assert not is_locked(path)


@pytest.mark.parametrize("use", LIBRARY)
def test_no_use_of_a_library_drops_a_lock_of_the_process(
    tmp_path: Path, use: Callable[[Path], object]
) -> None:
    Library(tmp_path / "library.db").add(STYLE, ADA)
    keeps_the_locks(tmp_path / "library.db", use)


@pytest.mark.parametrize("use", JOURNAL)
def test_no_use_of_a_journal_drops_a_lock_of_the_process(
    tmp_path: Path, use: Callable[[Path], object]
) -> None:
    keeps_the_locks(written(tmp_path / "journal.db", claim(1), event(1)), use)


def test_a_descriptor_that_is_closed_beside_sqlite_drops_the_locks(tmp_path: Path) -> None:
    """What the tests above would find."""
    path = tmp_path / "numbers.db"
    sqlite.create(path, fill)
    with pytest.raises(AssertionError, match="has its lock"):
        keeps_the_locks(path, lambda path: os.close(os.open(path, os.O_RDONLY)))


# --- creation ---


def test_a_file_is_whole_and_private_before_it_has_its_name(tmp_path: Path) -> None:
    path = tmp_path / "numbers.db"

    def look(connection: sqlite3.Connection) -> None:
        fill(connection)
        assert not path.exists()

    sqlite.create(path, look)
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(sqlite.connect(path, "ro")) as connection:
        assert connection.execute("SELECT * FROM numbers").fetchall() == []


@pytest.mark.parametrize("leftover", [".numbers.db.new", ".numbers.db.new-journal", "numbers.db-wal"])
def test_leftovers_of_a_killed_process_do_not_matter(tmp_path: Path, leftover: str) -> None:
    (tmp_path / leftover).touch()
    sqlite.create(tmp_path / "numbers.db", fill)
    assert names(tmp_path) == ["numbers.db"]


def test_what_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        fill(connection)
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(sqlite3.OperationalError):
        sqlite.create(tmp_path / "numbers.db", fail)
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
def test_what_is_there_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "numbers.db"
    match kind:
        case "file":
            path.touch()
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case _:
            os.mkfifo(path)
    before = path.lstat()
    with pytest.raises(FileExistsError):
        sqlite.create(path, fill)
    assert path.lstat().st_ino == before.st_ino
    assert names(tmp_path) == ["numbers.db"]


def test_a_log_without_its_file_is_not_applied_to_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "numbers.db-wal").write_bytes(b"left")
    with pytest.raises(sqlite.DamagedError):
        sqlite.create(tmp_path / "numbers.db", fill)
    assert names(tmp_path) == ["numbers.db-wal"]


def test_the_directory_is_free_after_a_creation(tmp_path: Path) -> None:
    sqlite.create(tmp_path / "numbers.db", fill)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(directory)


# --- transactions ---


def test_the_first_error_of_a_transaction_is_told(tmp_path: Path) -> None:
    """A full disk ends a transaction by itself, so that there is nothing to roll back."""
    path = tmp_path / "numbers.db"
    sqlite.create(path, fill)
    with closing(sqlite.connect(path, "rw")) as connection:
        connection.execute(f"PRAGMA max_page_count = {sqlite.number(connection, 'page_count')}")
        with (
            pytest.raises(sqlite3.OperationalError) as full,
            sqlite.transaction(connection),
        ):
            connection.execute("INSERT INTO numbers VALUES (randomblob(100000))")
        assert full.value.sqlite_errorcode == sqlite3.SQLITE_FULL
        assert sqlite.is_temporary(full.value)
        assert not connection.in_transaction
        assert connection.execute("SELECT * FROM numbers").fetchall() == []


def test_an_error_in_the_middle_rolls_all_back(tmp_path: Path) -> None:
    path = tmp_path / "numbers.db"
    sqlite.create(path, fill)
    with closing(sqlite.connect(path, "rw")) as connection:
        with pytest.raises(sqlite3.IntegrityError), sqlite.transaction(connection):
            connection.executemany("INSERT INTO numbers VALUES (?)", [(1,), (1,)])
        with sqlite.transaction(connection):
            connection.execute("INSERT INTO numbers VALUES (2)")
        assert connection.execute("SELECT * FROM numbers").fetchall() == [(2,)]


@pytest.mark.parametrize(("version", "added"), [(0, ["a", "b"]), (1, ["b"]), (2, [])])
def test_tables_of_an_older_version_are_migrated(version: int, added: list[str]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        steps = {0: ("CREATE TABLE a (x)",), 1: ("CREATE TABLE b (x)",)}
        assert sqlite.migrate(connection, steps, 2) is bool(added)
        assert [name for (name,) in connection.execute("SELECT name FROM sqlite_schema")] == added
        assert sqlite.number(connection, "user_version") == 2
