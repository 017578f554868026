"""What history is too much, and its removal in small steps, between which other things are written."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime

from symphony.journal.model import Retention, Trimmed

__all__ = ["overdue", "trim_steps"]

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
    "DELETE FROM skills_notes WHERE at_wall_ms < ? AND issue_id NOT IN (SELECT issue_id FROM claims)",
    "DELETE FROM spent WHERE at_wall_ms < ? AND issue_id NOT IN (SELECT issue_id FROM claims)",
    "DELETE FROM skill_runs WHERE at_wall_ms < ? AND run_id NOT IN (SELECT run_id FROM runs)",
)
_OF_RUN = ("events", "skill_runs", "runs")


def overdue(connection: sqlite3.Connection, policy: Retention, *, now_wall_ms: int) -> tuple[str, ...]:
    """The ended runs that are too old or too many, the oldest first."""
    bounds = (now_wall_ms - policy.max_age_ms, policy.max_runs)
    return tuple(str(run_id) for (run_id,) in connection.execute(_OVERDUE, bounds))


def _used_bytes(connection: sqlite3.Connection) -> int:
    """What the file holds, without the pages that are free."""
    pages, free, size = (_number(connection, name) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def trim_steps(connection: sqlite3.Connection, policy: Retention, *, now_wall_ms: int) -> Iterator[Trimmed]:
    """Drop what is too much; each step is a transaction of a few milliseconds, and tells what it dropped.

    Raises:
        sqlite3.Error: a step could not be written; those before it are.
    """
    before = _number(connection, "page_count")
    oldest = now_wall_ms - policy.max_age_ms
    names = overdue(connection, policy, now_wall_ms=now_wall_ms)
    for place in range(0, len(names), _RUNS_PER_STEP):
        chosen = names[place : place + _RUNS_PER_STEP]
        yield Trimmed(runs=len(chosen), events=_drop(connection, chosen))
    while dropped := connection.execute(_LOOSE, (oldest, _EVENTS_PER_STEP)).rowcount:
        yield Trimmed(events=dropped)
    for sql in _AGED:
        connection.execute(sql, (oldest,))
        yield Trimmed()
    day = datetime.fromtimestamp(max(oldest, 0) / 1000, UTC).date().isoformat()
    connection.execute("DELETE FROM days WHERE day < ?", (day,))
    while _used_bytes(connection) > policy.max_bytes:  # the oldest runs, then the oldest loose events
        chosen = tuple(str(run_id) for (run_id,) in connection.execute(_OLDEST, (_RUNS_PER_STEP,)))
        if chosen:
            yield Trimmed(runs=len(chosen), events=_drop(connection, chosen))
        elif dropped := connection.execute(_OLDEST_LOOSE, (_EVENTS_PER_STEP,)).rowcount:
            yield Trimmed(events=dropped)
        else:
            break
    free = _number(connection, "freelist_count")
    while free:  # return free pages to the disk, a megabyte at a time
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_PER_STEP})").fetchall()
        left = _number(connection, "freelist_count")
        if left >= free:
            break
        free = left
        yield Trimmed()
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    freed = (before - _number(connection, "page_count")) * _number(connection, "page_size")
    yield Trimmed(bytes=max(freed, 0))


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
