"""What it costs to remember: an event put into the journal, beside rows written by SQLite alone.

Both write the same rows to the same table with the same indexes, in WAL mode. The floor knows all rows
beforehand and writes a hundred of them at a time; ours are put one by one, as they happen.
"""

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.kit import Kind, median
from symphony.domain import Issue
from symphony.journal.database import INSERT_EVENT, create_tables, event_row
from symphony.journal.model import ClaimRecord, EventRecord, HealthState
from symphony.journal.store import open_journal
from symphony.processes.base import Identity
from symphony.scheduler import ClaimKind, StoredClaim

__all__ = ["Remembering", "remembering", "write_claims"]


_KINDS: tuple[Kind, Kind] = ("floor", "symphony")
_AT_ONCE = 100
_EVENTS_OF_A_RUN = 400  # below the bound, which the floor does not have
_NOW = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembering:
    """Medians of processor time per event, all threads included, in microseconds."""

    cpu_us: dict[Kind, float]


def _events(count: int) -> list[EventRecord]:
    return [
        EventRecord(
            issue_id=f"id-{number // _EVENTS_OF_A_RUN}",
            issue_identifier=f"BENCH-{number // _EVENTS_OF_A_RUN}",
            run_id=f"run-{number // _EVENTS_OF_A_RUN}",
            at_wall_ms=_NOW + number,
            event="notification",
            message=f"{number}: " + "words of an agent " * 10,
        )
        for number in range(count)
    ]


def remembering(place: Path, *, events: int, rounds: int) -> Remembering:
    """The two take turns, each round with a file of its own."""
    told = _events(events)
    used: dict[Kind, list[float]] = {"floor": [], "symphony": []}
    for number in range(rounds):
        for kind, write in zip(_KINDS, (_bare, _ours), strict=True):
            path = place / f"{kind}-{number}" / "journal.db"
            path.parent.mkdir(parents=True)
            used[kind].append(write(path, told) * 1e6 / events)
    return Remembering(cpu_us={kind: median(found) for kind, found in used.items()})


def _bare(path: Path, events: list[EventRecord]) -> float:
    rows = [event_row(event) for event in events]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        create_tables(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        begun = time.process_time()
        for place in range(0, len(rows), _AT_ONCE):
            connection.execute("BEGIN")
            connection.executemany(INSERT_EVENT, rows[place : place + _AT_ONCE])
            connection.execute("COMMIT")
        return time.process_time() - begun


def _ours(path: Path, events: list[EventRecord]) -> float:
    async def write() -> float:
        journal = await open_journal(path, now_wall_ms=lambda: _NOW)
        begun = time.process_time()
        for event in events:
            journal.put(event)
        await journal.flush()
        used = time.process_time() - begun
        assert journal.health.state is HealthState.OK
        assert not journal.take_notices()
        await journal.close()
        return used

    return asyncio.run(write())


def write_claims(path: Path, count: int) -> None:
    """A journal as a daemon leaves it that held so many claims, all of them retries that are due."""
    owner = Identity(boot_id="bench", pid=1, started=1.0)
    claims = (
        ClaimRecord(
            claim=StoredClaim(
                issue=Issue(
                    id=f"id-{number}",
                    identifier=f"BENCH-{number}",
                    title="A title",
                    state="Todo",
                    dispatchable=True,
                ),
                kind=ClaimKind.RETRYING,
                attempt=1,
            ),
            owner=owner,
            since_wall_ms=_NOW,
            due_wall_ms=_NOW,
        )
        for number in range(count)
    )

    async def write() -> None:
        journal = await open_journal(path, now_wall_ms=lambda: _NOW)
        journal.put(*claims)
        await journal.close()

    asyncio.run(write())
