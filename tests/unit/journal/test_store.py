import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from harness.journalling import (
    NOW,
    claim,
    comment,
    event,
    full_claim,
    full_pull_request,
    job,
    opened,
    pull_request,
    run,
    skills,
    skills_note,
)
from symphony.domain import Category, Spent
from symphony.journal.jobs import JobDone
from symphony.journal.model import (
    ClaimReleased,
    DayRecord,
    HealthState,
    IssueSpent,
    JournalStatus,
    Record,
    RecoveredState,
    SettingRecord,
    SkillUse,
)
from symphony.journal.store import Backlog, open_journal, record_key
from symphony.scheduler import ClaimKind


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def contents(place: Path) -> list[bytes]:
    return [file.read_bytes() for file in place.iterdir()]


def take_away(place: Path) -> None:
    for file in place.iterdir():
        file.unlink()


@pytest.mark.asyncio
async def test_records_are_recovered_by_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    first = await opened(path)
    assert first.recovered_state == RecoveredState()
    first.put(full_claim(), run(9), event(1, run_id="r-9", issue=9))
    first.put(claim(1), claim(2), IssueSpent(issue_id="id-1", spent=Spent(tokens=5, turns=2)))
    first.put(ClaimReleased(issue_id="id-2"), run(2, ended_wall_ms=NOW, outcome="succeeded"))
    first.put(DayRecord(day="2026-11-21", tokens=7), SettingRecord(name="paused", value="yes"))
    first.put(skills_note(1, body="old"), skills_note(2), skills_note(1))
    first.put(job(2), job(3), job(1, attempts=1), job(1, attempts=2), JobDone(key=job(3).key))
    first.put(comment(), skills(9, SkillUse(name="s", path="p", sha256=None, listed=True)))
    first.put(pull_request(7), pull_request(8), full_pull_request(8))
    await first.close()
    assert first.health == JournalStatus(state=HealthState.OK)

    second = await opened(path)
    assert second.recovered_state == RecoveredState(
        claims=(claim(1), full_claim()),
        live_runs=(run(9),),
        spent={"id-1": Spent(tokens=5, turns=2)},
        days={"2026-11-21": 7},
        settings={"paused": "yes"},
        worked_on=frozenset({"id-2"}),
        comments=(comment(),),
        skills_comments=(skills_note(2), skills_note(1)),
        pull_requests=(pull_request(7), full_pull_request(8)),
        jobs=(job(1, attempts=2), job(2)),
    )
    assert second.take_notices() == ()
    await second.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in path.parent.iterdir()] == ["journal.db"]


@pytest.mark.asyncio
async def test_the_newest_record_of_a_key_wins_and_writing_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    for _ in range(2):
        journal.put(claim(1), run(1), comment(1, fingerprint="old"), SettingRecord(name="a", value="1"))
        await journal.flush()
        journal.put(claim(1, kind=ClaimKind.RETRYING, attempt=2), run(1), comment(1, fingerprint="new"))
        journal.put(SettingRecord(name="a", value=None), skills(1), skills(1))
        await journal.flush()
    await journal.close()
    again = await opened(path)
    remembered = again.recovered_state
    assert remembered.claims == (claim(1, kind=ClaimKind.RETRYING, attempt=2),)
    assert remembered.live_runs == (run(1),)
    assert remembered.settings == {}
    await again.close()
    assert rows(path, "SELECT fingerprint FROM comments") == [("new",)]


@pytest.mark.asyncio
async def test_puts_after_the_end_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    await journal.close()
    journal.put(claim(1))
    await journal.flush()
    await journal.close()
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]


@pytest.mark.asyncio
async def test_puts_are_written_without_a_flush(tmp_path: Path) -> None:
    written: asyncio.Queue[Record] = asyncio.Queue()

    def seen(records: Iterable[Record]) -> None:
        for record in records:
            written.put_nowait(record)

    journal = await open_journal(tmp_path / "journal.db", now_wall_ms=lambda: NOW, on_written=seen)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.run)
        for number in range(5):
            journal.put(claim(number))
            journal.put(run(number))
            assert [await written.get(), await written.get()] == [claim(number), run(number)]
            await journal.flush()
        tasks.cancel_scope.cancel()
    await journal.close()


@pytest.mark.asyncio
async def test_one_write_serves_all_who_wait_for_theirs(tmp_path: Path) -> None:
    writes: list[tuple[Record, ...]] = []
    journal = await open_journal(
        tmp_path / "journal.db",
        now_wall_ms=lambda: NOW,
        on_written=lambda records: writes.append(tuple(records)),
    )

    async def put(number: int, after_s: float) -> None:
        await anyio.sleep(after_s)
        journal.put(claim(number))
        await journal.written()
        assert claim(number) in {record for write in writes for record in write}

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(put, number, 0)
    assert len(writes) == 1
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(put, number, number / 1_000)
    shared = len(writes)
    assert shared < 50
    await journal.written()
    assert len(writes) == shared, "there was nothing to write"
    await journal.close()


@pytest.mark.asyncio
async def test_who_stops_waiting_leaves_the_write_to_the_next(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "journal.db")
    journal.put(claim(1))
    with anyio.move_on_after(0.001) as scope:
        await journal.written()
    assert scope.cancelled_caught
    await journal.written()
    assert rows(tmp_path / "journal.db", "SELECT count(*) FROM claims") == [(1,)]
    await journal.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_taken_away_ends_all_writing_and_is_not_made_again(
    tmp_path: Path, *, replaced: bool
) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    journal.put(claim(1), run(1))
    await journal.flush()
    take_away(tmp_path)
    if replaced:
        path.write_bytes(b"another file")
    journal.put(claim(2))
    await journal.flush()
    error = await journal.until_taken_away()
    assert error.failure.category is Category.JOURNAL
    assert journal.health.failure == error.failure
    journal.put(claim(3))
    await journal.flush()
    await journal.close()
    assert contents(tmp_path) == ([b"another file"] if replaced else [])


# --- the backlog -----------------------------------------------------------------------------------------


def test_the_newest_record_of_a_key_replaces_the_older_one() -> None:
    backlog = Backlog()
    backlog.add([claim(1), run(1)])
    backlog.add([claim(1, attempt=2), run(1, ended_wall_ms=NOW)])
    assert backlog.take().records == (claim(1, attempt=2), run(1, ended_wall_ms=NOW))
    assert not backlog


def test_a_live_run_is_not_history() -> None:
    backlog = Backlog(max_history=0)
    backlog.add([run(1, ended_wall_ms=NOW), run(1)])
    backlog.add([run(1)])
    assert backlog.take().records == (run(1),)


def test_only_history_is_dropped() -> None:
    backlog = Backlog(max_history=2)
    backlog.add(claim(number) for number in range(5))
    backlog.add(run(number, ended_wall_ms=NOW) for number in range(5))
    backlog.add([skills(9)])
    records = backlog.take().records
    assert records[:5] == tuple(claim(number) for number in range(5))
    assert records[5:] == (run(4, ended_wall_ms=NOW), skills(9))
    assert backlog.lost == 4


def test_events_are_dropped_by_size() -> None:
    backlog = Backlog(max_event_chars=1_000)
    backlog.add(event(number, message="m" * 200) for number in range(4))
    assert backlog.lost == 2
    assert backlog.take().events == (event(2, message="m" * 200), event(3, message="m" * 200))
    backlog.add([event(1, message="m" * 600)])
    assert backlog.lost == 2, "what was taken makes room"


def test_every_event_has_its_own_key() -> None:
    assert record_key(event(1)) != record_key(event(2))
