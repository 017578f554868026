"""What history is too much, and its removal in small steps: puts are written between two of them."""

import sqlite3
from collections.abc import Generator
from datetime import UTC, datetime

from symphony.journal.model import Retention, Trimmed

__all__ = ["overdue", "trim", "used_bytes"]

_RUNS_PER_STEP = 20
_EVENTS_PER_STEP = 1_000
_PAGES_PER_STEP = 256

_OVERDUE = """
SELECT run_id FROM runs WHERE ended_wall_ms IS NOT NULL AND (
    ended_wall_ms < ?1 OR run_id NOT IN (
        SELECT run_id FROM runs WHERE ended_wall_ms IS NOT NULL ORDER BY ended_wall_ms DESC, run_id LIMIT ?2
    )
) ORDER BY ended_wall_ms, run_id
"""
_OLDEST = """
SELECT run_id FROM runs WHERE ended_wall_ms IS NOT NULL ORDER BY ended_wall_ms, run_id LIMIT ?
"""
_LOOSE = """
DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE at_wall_ms < ?
    AND (run_id IS NULL OR run_id NOT IN (SELECT run_id FROM runs)) LIMIT ?
)
"""
_OLDEST_LOOSE = """
DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE run_id IS NULL OR run_id NOT IN (SELECT run_id FROM runs) ORDER BY id LIMIT ?
)
"""
_AGED = (
    "DELETE FROM comments WHERE at_wall_ms < ? AND issue_id NOT IN (SELECT issue_id FROM claims)",
    "DELETE FROM spent WHERE at_wall_ms < ? AND issue_id NOT IN (SELECT issue_id FROM claims)",
    "DELETE FROM skill_runs WHERE at_wall_ms < ? AND run_id NOT IN (SELECT run_id FROM runs)",
)
_OF_RUN = ("events", "skill_runs", "runs")


def overdue(connection: sqlite3.Connection, policy: Retention, *, now_wall_ms: int) -> tuple[str, ...]:
    """The ended runs that are too old or too many, the oldest first."""
    bounds = (now_wall_ms - policy.max_age_ms, policy.max_runs)
    return tuple(str(run_id) for (run_id,) in connection.execute(_OVERDUE, bounds))


def used_bytes(connection: sqlite3.Connection) -> int:
    """What the file holds, without the pages that are free."""
    pages, free, size = (_number(connection, name) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def trim(
    connection: sqlite3.Connection, policy: Retention, *, now_wall_ms: int
) -> Generator[None, None, Trimmed]:
    """Drop what is too much; each step is a transaction of a few milliseconds.

    Raises:
        sqlite3.Error: a step could not be written; those before it are.
    """
    before = _number(connection, "page_count")
    oldest = now_wall_ms - policy.max_age_ms
    runs = events = 0
    names = overdue(connection, policy, now_wall_ms=now_wall_ms)
    for place in range(0, len(names), _RUNS_PER_STEP):
        chosen = names[place : place + _RUNS_PER_STEP]
        events += _drop(connection, chosen)
        runs += len(chosen)
        yield
    while dropped := connection.execute(_LOOSE, (oldest, _EVENTS_PER_STEP)).rowcount:
        events += dropped
        yield
    for sql in _AGED:
        connection.execute(sql, (oldest,))
        yield
    connection.execute("DELETE FROM days WHERE day < ?", (_day(oldest),))
    shrunk = yield from _shrink(connection, policy.max_bytes)
    yield from _give_back(connection)
    freed = (before - _number(connection, "page_count")) * _number(connection, "page_size")
    return Trimmed(runs=runs + shrunk.runs, events=events + shrunk.events, bytes=max(freed, 0))


def _drop(connection: sqlite3.Connection, run_ids: tuple[str, ...]) -> int:
    """Forget runs with all that belongs to them; the number of their events."""
    rows = [(run_id,) for run_id in run_ids]
    connection.execute("BEGIN IMMEDIATE")
    try:
        dropped = [
            connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", rows).rowcount  # noqa: S608 - names of ours
            for table in _OF_RUN
        ]
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return dropped[0]


def _shrink(connection: sqlite3.Connection, max_bytes: int) -> Generator[None, None, Trimmed]:
    """Drop the oldest runs, then the oldest loose events, until the file holds no more than that."""
    runs = events = 0
    while used_bytes(connection) > max_bytes:
        found = tuple(str(run_id) for (run_id,) in connection.execute(_OLDEST, (_RUNS_PER_STEP,)))
        if found:
            dropped = _drop(connection, found)
        else:
            dropped = connection.execute(_OLDEST_LOOSE, (_EVENTS_PER_STEP,)).rowcount
        runs, events = runs + len(found), events + dropped
        if not found and not dropped:
            break
        yield
    return Trimmed(runs=runs, events=events)


def _give_back(connection: sqlite3.Connection) -> Generator[None, None, None]:
    """Return free pages to the disk, a megabyte at a time."""
    free = _number(connection, "freelist_count")
    while free:
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_PER_STEP})").fetchall()
        left = _number(connection, "freelist_count")
        if left >= free:
            break
        free = left
        yield
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _day(wall_ms: int) -> str:
    return datetime.fromtimestamp(max(wall_ms, 0) / 1000, UTC).date().isoformat()
