"""Opening the file of the journal: ours and sound, begun anew, or refused without touching it.

What is looked at, in this order: whose file it is, whose format, which version, whether it is whole, whether
it can be written. A damaged file is moved aside and never deleted by us, but for the oldest of many. A new
one is made under another name and then renamed, so that no half-made one ever has the name.
"""

import os
import sqlite3
import stat
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from symphony.domain.failures import Failure
from symphony.journal.faults import (
    FAULTS,
    DamagedError,
    UnusableError,
    failure_of,
    is_damage,
    notice,
    unusable,
)
from symphony.journal.model import Remembered
from symphony.journal.rows import load
from symphony.journal.schema import APPLICATION_ID, VERSION, difference, migrate

__all__ = ["Opened", "as_text", "companions", "identity", "open_database"]

_KEPT_ASIDE = 5
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"
_ASIDE = ".damaged-"
_PAGE_BYTES = 4_096
_WAL_FORMAT = 2
_MAX_WAL_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A connection to a sound file of the newest version, what it remembers, and what is to be told of it.

    `inode` is device and number of the file: when the name means another one, the file was taken away.
    """

    connection: sqlite3.Connection
    inode: tuple[int, int]
    remembered: Remembered
    notices: tuple[Failure, ...] = ()


def companions(path: Path) -> tuple[Path, Path]:
    """The files that SQLite keeps beside the main one: the log of what is not in it yet, and its index."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _header(path: Path) -> bytes:
    """The first bytes of the file; empty where there is none or an empty one.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def identity(path: Path) -> tuple[int, int] | None:
    """Which file the name means; null for none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def open_database(path: Path, *, now_wall_ms: int, busy_ms: int) -> Opened:
    """The journal at the path, whatever is there. Blocks for as long as another process holds it, `busy_ms`.

    Raises:
        UnusableError: it cannot be used; the file is as it was.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return _open(path, now_wall_ms=now_wall_ms, busy_ms=busy_ms)
        except DamagedError as damage:
            aside = _set_aside(path, now_wall_ms)
            opened = _open(path, now_wall_ms=now_wall_ms, busy_ms=busy_ms)
            told = notice(
                f"the journal {path} was damaged ({damage}); a new one was begun without the history",
                hint=f"the damaged one is kept as {aside.name}; delete it when you do not need it",
            )
            return replace(opened, notices=(told, *opened.notices))
    except (OSError, *FAULTS, DamagedError) as error:
        raise UnusableError(failure_of(path, error)) from error


def _open(path: Path, *, now_wall_ms: int, busy_ms: int) -> Opened:
    if not _exists(path):
        _create(path, now_wall_ms)
    connection = _connect(path, busy_ms)
    try:
        return _checked(connection, path)
    except BaseException as error:
        with suppress(sqlite3.Error):
            connection.close()
        if is_damage(error):
            raise DamagedError(str(error)) from error
        raise


def _exists(path: Path) -> bool:
    """Whether there is a file of ours to open; false means that one may be made."""
    _refuse_what_is_not_ours(path)
    first = _header(path)
    if not first:
        wal, shm = companions(path)
        if wal.exists() and wal.stat().st_size:
            raise DamagedError("its main file is gone")
        for leftover in (wal, shm):
            leftover.unlink(missing_ok=True)
        return False
    if len(first) < _HEADER_BYTES or not first.startswith(_MAGIC):
        raise DamagedError("it does not begin as a database does")
    _refuse_foreign(path, first)
    if max(first[18:20]) > _WAL_FORMAT:  # SQLite would read such a file and never write it
        raise DamagedError("its format is not known")
    return True


def _refuse_what_is_not_ours(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(facts.st_mode):
        raise UnusableError(unusable(path, "it is not a regular file", hint=f"move {path} away"))
    if facts.st_uid != os.geteuid():
        why = f"it belongs to another user (uid {facts.st_uid})"
        raise UnusableError(
            unusable(
                path,
                why,
                hint=f"run symphony as that user, or give the file back: chown {os.geteuid()} {path}",
            )
        )
    if facts.st_mode & 0o077:
        path.chmod(0o600)


def _refuse_foreign(path: Path, first: bytes) -> None:
    version, application = int.from_bytes(first[60:64], "big"), int.from_bytes(first[68:72], "big")
    if application != APPLICATION_ID:
        raise UnusableError(unusable(path, "it is the database of another program", hint=f"move {path} away"))
    _refuse_newer(path, version)


def _refuse_newer(path: Path, version: int) -> None:
    if version > VERSION:
        why = f"a newer symphony wrote it (schema {version}, this one knows {VERSION})"
        raise UnusableError(unusable(path, why, hint=f"upgrade symphony, or move {path} away"))


def _create(path: Path, now_wall_ms: int) -> None:
    """Make an empty journal under another name, whole, then give it its own.

    Event ids begin at the time of the making, so that a reader's place in a former file is behind them.
    """
    draft = path.with_name(f"{path.name}.new")
    for leftover in (draft, *companions(draft), draft.with_name(f"{draft.name}-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrate(connection)
        connection.execute("INSERT INTO sqlite_sequence VALUES ('events', ?)", (now_wall_ms,))
        connection.execute("PRAGMA journal_mode = WAL")
    draft.rename(path)


def _connect(path: Path, busy_ms: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=busy_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = as_text
    return connection


def as_text(raw: bytes) -> str:
    """Text of the file, which need not be UTF-8 where the file is damaged."""
    return raw.decode("utf-8", "replace")


def _checked(connection: sqlite3.Connection, path: Path) -> Opened:
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    _refuse_newer(path, int(connection.execute("PRAGMA user_version").fetchone()[0]))
    verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if verdict != "ok":
        raise DamagedError(verdict.splitlines()[-1])
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
    connection.execute("BEGIN IMMEDIATE")  # a disk that cannot be written says so here
    connection.execute("ROLLBACK")
    before = migrate(connection)
    if before != VERSION:  # the version has to be in the header, where it is looked for first
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if (wrong := difference(connection)) is not None:
        raise DamagedError(f"{wrong} is missing or is not as it should be")
    remembered, notices = load(connection, drop=True)
    found = identity(path)
    if found is None:
        raise DamagedError("it was taken away")
    return Opened(connection=connection, inode=found, remembered=remembered, notices=notices)


def _set_aside(path: Path, now_wall_ms: int) -> Path:
    """Move the file and what belongs to it out of the way; keep the newest few of those."""
    moment = datetime.fromtimestamp(now_wall_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}{_ASIDE}{moment}")
    number = 1
    while any(taken.exists() for taken in (aside, *companions(aside))):
        number += 1
        aside = path.with_name(f"{path.name}{_ASIDE}{moment}.{number}")
    for ours, theirs in zip((path, *companions(path)), (aside, *companions(aside)), strict=True):
        with suppress(FileNotFoundError):
            ours.rename(theirs)
    _drop_oldest(path, keep=aside)
    return aside


def _drop_oldest(path: Path, *, keep: Path) -> None:
    kept = [found for found in path.parent.glob(f"{path.name}{_ASIDE}*") if found != keep]
    mains = sorted({found.name.removesuffix("-wal").removesuffix("-shm") for found in kept} - {keep.name})
    for name in mains[: max(len(mains) - _KEPT_ASIDE + 1, 0)]:
        old = path.with_name(name)
        for part in (old, *companions(old)):
            with suppress(OSError):
                part.unlink()
