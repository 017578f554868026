"""The only module that opens, creates, copies and checks SQLite files. Everything here blocks.

POSIX locks belong to a process, not to a descriptor. When a process closes any descriptor of a file, the
kernel drops all its locks on that file (fcntl(2)). Another process may then remove the write-ahead log under
a running transaction (https://www.sqlite.org/howtocorrupt.html, section 2.2). So only SQLite opens, reads,
copies or closes a file that may be in use. Checks before that use stat(2).
"""

import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from symphony.domain import is_disk_full

Mode = Literal["rw", "ro", "frozen"]
"""How to open a file. `frozen` reads the main file alone, without locks, while no process writes it."""

ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions of a query. `UnicodeDecodeError` comes from error messages with bytes of a damaged file."""

_MODES: Final = {"rw": "mode=rw", "ro": "mode=ro", "frozen": "mode=ro&immutable=1"}
_LEAST_BYTES: Final = 512  # one page of the smallest size (https://www.sqlite.org/fileformat2.html, 1.3.2)
_PRIMARY_CODE: Final = 0xFF
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TEMPORARY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL})
_LOCKED: Final = ("another process keeps it locked", "end the program that has the file open")
_FULL: Final = ("the disk is full", "make room on the disk")
_NOT_WRITABLE: Final = (
    "it cannot be written",
    "make the file, those beside it that begin with its name, and their directory writable for this user",
)
_EXPLANATIONS: Final = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _NOT_WRITABLE,
    sqlite3.SQLITE_PERM: _NOT_WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _NOT_WRITABLE,
}
_OTHER_HINT: Final = "look at the permissions and the disk of its directory"


class DamagedError(Exception):
    """The content of the file is not sound; the message says what is wrong with it."""


def companions(path: Path) -> tuple[Path, Path]:
    """The files that SQLite keeps beside the main one: the write-ahead log and its index."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def create(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a file of mode 0600 that is complete before it gets its name.

    Raises:
        FileExistsError: the file exists; another process may have just created it.
        DamagedError: only a write-ahead log is there, which SQLite would apply to a new file.
        OSError: it cannot be made. sqlite3.Error: it cannot be made.
    """
    draft = path.with_name(f".{path.name}.new")
    parts = (draft, *companions(draft), draft.with_name(f"{draft.name}-journal"))
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # one process creates the file; the others find it
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        wal, _ = companions(path)
        if wal.exists() and wal.stat().st_size:
            raise DamagedError("its main file is gone")
        for leftover in (*parts, *companions(path)):
            leftover.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                fill(connection)
            draft.rename(path)
            os.fsync(directory)
        except BaseException:
            for part in parts:
                part.unlink(missing_ok=True)
            raise
    finally:
        os.close(directory)


def connect(path: Path, mode: Mode, *, busy_s: float = 0.0) -> sqlite3.Connection:
    """Open a file that exists, without implicit transactions. One thread at a time may use the connection.

    Args:
        path: the file.
        mode: what may be done with it.
        busy_s: how long a statement waits for the locks of others.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{_MODES[mode]}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def identity(path: Path) -> tuple[int, int]:
    """`PRAGMA application_id` and `PRAGMA user_version` of a main file that no process writes.

    The file and its companions stay unchanged, even if they belong to another program.

    Raises:
        DamagedError: the file is not a database.
        sqlite3.Error: it cannot be read.
    """
    if path.stat().st_size < _LEAST_BYTES:
        raise DamagedError("it is too short for a database")
    with closing(connect(path, "frozen")) as connection:
        try:
            return number(connection, "application_id"), number(connection, "user_version")
        except sqlite3.Error as error:
            if is_damage(error):
                raise DamagedError(str(error)) from error
            raise


def is_regular(path: Path) -> bool:
    """Whether the path names a file itself: no link, directory, FIFO or device."""
    return stat.S_ISREG(path.lstat().st_mode)


def number(connection: sqlite3.Connection, pragma: str) -> int:
    """The value of a pragma that is a number."""
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Mapping[int, Sequence[str]], version: int) -> bool:
    """Bring the tables to a version in the open transaction; return whether they had an older one.

    Args:
        connection: the file; `PRAGMA user_version` is the version of its tables.
        migrations: by version, the statements that lead to the next one.
        version: the version to reach.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    steps = range(number(connection, "user_version"), version)
    for step in steps:
        for statement in migrations[step]:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
    return bool(steps)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the statements inside together, or roll all of them back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # an error such as a full disk has ended it already
            with suppress(sqlite3.Error):  # the first error tells the cause
                connection.execute("ROLLBACK")
        raise


def damage(connection: sqlite3.Connection) -> str | None:
    """What is damaged in the file, or `None`. Reads about a gigabyte per second."""
    verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return None if verdict == "ok" else verdict.splitlines()[-1]


def is_damage(error: BaseException) -> bool:
    """Whether the error means that the content of the file is damaged."""
    return isinstance(error, UnicodeDecodeError | DamagedError) or _code(error) in _DAMAGE


def is_temporary(error: BaseException) -> bool:
    """Whether the same statement may succeed later: a lock of another process, or a full disk."""
    return _code(error) in _TEMPORARY


def explain(error: BaseException) -> tuple[str, str]:
    """Why the file cannot be used and what to do, for an error of SQLite or the file system."""
    if is_disk_full(error):
        return _FULL
    if isinstance(error, OSError):
        return error.strerror or str(error), _OTHER_HINT
    return _EXPLANATIONS.get(_code(error), (str(error) or type(error).__name__, _OTHER_HINT))


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY_CODE
