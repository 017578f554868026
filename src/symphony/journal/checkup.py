"""How a journal is, for `symphony doctor` and for whoever wants to know how large it grew."""

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from symphony.domain.failures import Failure
from symphony.journal.faults import ANEW, UnusableError, unreadable
from symphony.journal.opening import companions
from symphony.journal.reader import JournalReader, open_reader
from symphony.journal.schema import VERSION, difference

__all__ = ["Checkup", "checkup"]

_NEWEST = """
SELECT max(
    coalesce((SELECT max(at_wall_ms) FROM events), 0), coalesce((SELECT max(started_wall_ms) FROM runs), 0)
)
"""
_COUNTS = "SELECT (SELECT count(*) FROM claims), (SELECT count(*) FROM runs), (SELECT count(*) FROM events)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What there is at the path; `failure` is null for a sound journal, and for none at all.

    `bytes` is the size on disk with what is not in the main file yet, `newest_wall_ms` the time of the latest
    run or event. `aside` are damaged ones that were moved out of the way.
    """

    path: Path
    present: bool
    bytes: int = 0
    version: int | None = None
    newest_wall_ms: int | None = None
    claims: int = 0
    runs: int = 0
    events: int = 0
    aside: tuple[Path, ...] = ()
    failure: Failure | None = None


def checkup(path: Path) -> Checkup:
    """Look the file through, without changing it; takes about a second per gigabyte. Never raises."""
    size, aside = _size(path), _aside(path)
    if not path.exists():
        return Checkup(path=path, present=False, aside=aside)
    try:
        with open_reader(path) as reader, reader.told():
            return _looked_through(reader, path, size, aside)
    except UnusableError as error:
        return Checkup(path=path, present=True, bytes=size, aside=aside, failure=error.failure)


def _looked_through(reader: JournalReader, path: Path, size: int, aside: tuple[Path, ...]) -> Checkup:
    connection = reader.connection
    if (damage := _damage(connection)) is not None:
        failure = unreadable(path, f"it is damaged ({damage})", hint=ANEW)
        return Checkup(path=path, present=True, bytes=size, version=VERSION, aside=aside, failure=failure)
    claims, runs, events = connection.execute(_COUNTS).fetchone()
    return Checkup(
        path=path,
        present=True,
        bytes=size,
        version=VERSION,
        newest_wall_ms=connection.execute(_NEWEST).fetchone()[0] or None,
        claims=claims,
        runs=runs,
        events=events,
        aside=aside,
    )


def _damage(connection: sqlite3.Connection) -> str | None:
    verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if verdict != "ok":
        return verdict.splitlines()[-1]
    wrong = difference(connection)
    return None if wrong is None else f"{wrong} is missing or is not as it should be"


def _size(path: Path) -> int:
    total = 0
    for part in (path, *companions(path)):
        with suppress(OSError):
            total += part.stat().st_size
    return total


def _aside(path: Path) -> tuple[Path, ...]:
    found = sorted(path.parent.glob(f"{path.name}.damaged-*"))
    return tuple(part for part in found if not part.name.endswith(("-wal", "-shm")))
