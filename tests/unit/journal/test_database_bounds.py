"""How many events of a run are kept, and what a trim deletes."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from harness.journalling import NOW, claim, comment, event, opened, pull_request, run, skills, written
from harness.rings import mostly_slow
from symphony.domain import Spent
from symphony.journal.database import RUNS_PER_STEP
from symphony.journal.model import (
    DayRecord,
    HealthState,
    IssueSpent,
    Record,
    RecoveredState,
    Retention,
    RunRecord,
    SkillUse,
    TrimResult,
)
from symphony.journal.reader import open_reader

DAY_MS = 24 * 3_600_000
USE = SkillUse(name="a", path="/a", sha256=None, listed=True)


def messages(path: Path, run_id: str | None = None) -> list[str]:
    with open_reader(path) as reader:
        return [found.event.message for found in reader.events("SYM-1", run_id=run_id)]


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - names of ours


def trimmed(path: Path, policy: Retention) -> tuple[TrimResult, RecoveredState]:
    async def go() -> tuple[TrimResult, RecoveredState]:
        journal = await opened(path)
        done = await journal.trim(policy)
        await journal.close()
        again = await opened(path)
        remembered = again.recovered_state
        await again.close()
        return done, remembered

    return asyncio.run(go())


@pytest.mark.parametrize("run_id", mostly_slow(["r-1", None]))
@pytest.mark.parametrize("at_once", mostly_slow([70, 1, 5_000]))
def test_the_first_and_the_latest_events_of_a_run_are_kept(
    tmp_path: Path, run_id: str | None, at_once: int
) -> None:
    path = tmp_path / "journal.db"

    async def write() -> None:
        journal = await opened(path)
        for begin in range(0, 1_200, at_once):
            journal.put(*(event(n, run_id=run_id) for n in range(begin, min(begin + at_once, 1_200))))
            await journal.flush()
            assert count(path, "events") <= 500
        journal.put(event(7_777, run_id="another"))
        await journal.close()

    asyncio.run(write())
    found = messages(path)
    assert found[:50] == [f"message {number}" for number in range(50)]
    assert found[-400:-1] == [f"message {number}" for number in range(801, 1_200)]
    assert found[-1] == "message 7777"


def test_counting_continues_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for begin in range(0, 900, 300):
        written(path, *(event(number) for number in range(begin, begin + 300)))
    assert count(path, "events") <= 500


def test_counts_that_were_evicted_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symphony.journal.database._MAX_COUNTED", 2)
    path = tmp_path / "journal.db"

    async def write() -> None:
        journal = await opened(path)
        for begin in range(0, 800, 100):
            journal.put(*(event(number) for number in range(begin, begin + 100)))
            journal.put(event(1, run_id="a"), event(1, run_id="b"), event(1, run_id="c"))
            await journal.flush()
        await journal.close()

    asyncio.run(write())
    assert len(messages(path, "r-1")) <= 500


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.db", event(1, message="x" * 5_000), event(2, message="y" * 2_000))
    assert messages(path) == ["x" * 1_999 + "…", "y" * 2_000]


def ended(number: int, *, ago_ms: int) -> RunRecord:
    return run(number, ended_wall_ms=NOW - ago_ms, outcome="succeeded")


def history(number: int, *, ago_ms: int, events: int = 10) -> tuple[Record, ...]:
    events_of_run = (event(n, run_id=f"r-{number}", issue=number, message="m" * 1_000) for n in range(events))
    return ended(number, ago_ms=ago_ms), *events_of_run, skills(number, USE)


def test_an_old_run_is_deleted_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    path = written(
        tmp_path / "journal.db",
        *(record for number in range(2, 50) for record in history(number, ago_ms=31 * DAY_MS)),
        *history(50, ago_ms=29 * DAY_MS),
        run(1),
        claim(1),
        event(-40 * DAY_MS, run_id="r-1"),
        event(-40 * DAY_MS, run_id=None),
        event(-40 * DAY_MS, run_id="nobody knows it"),
        DayRecord(day="2023-09-01", tokens=1),
        DayRecord(day="2023-11-14", tokens=2),
        *(IssueSpent(issue_id=f"id-{number}", spent=Spent(tokens=1)) for number in (1, 2)),
        comment(1),
        comment(2),
        pull_request(1, at_wall_ms=NOW - 40 * DAY_MS),
        pull_request(2, at_wall_ms=NOW - 40 * DAY_MS, number=7),
        now_wall_ms=NOW - 40 * DAY_MS,
    )
    done, remembered = trimmed(path, Retention())
    assert (done.runs, done.events) == (48, 482)
    assert done.bytes > 0
    assert remembered == RecoveredState(
        claims=(claim(1),),
        live_runs=(run(1),),
        spent={"id-1": Spent(tokens=1)},
        days={"2023-11-14": 2},
        worked_on=frozenset({"id-50"}),
        comments=remembered.comments,
        pull_requests=(pull_request(2, at_wall_ms=NOW - 40 * DAY_MS, number=7),),
    )
    with open_reader(path) as reader:
        assert [found.run_id for found in reader.runs()] == ["r-50", "r-1"]
        assert messages(path) == [f"message {-40 * DAY_MS}"]
        assert {found.issue_id for found in reader.comments()} == {"id-1"}
    assert count(path, "skill_uses") == 1
    assert trimmed(path, Retention())[0] == TrimResult()


def test_of_too_many_runs_those_that_ended_first_are_deleted(tmp_path: Path) -> None:
    path = written(
        tmp_path / "journal.db",
        *(record for number in range(1, 31) for record in history(number, ago_ms=number * 1_000)),
        run(99),
    )
    done, _ = trimmed(path, Retention(max_runs=3))
    assert done.runs == 27
    with open_reader(path) as reader:
        assert {found.run_id for found in reader.runs()} == {"r-1", "r-2", "r-3", "r-99"}


def test_a_file_that_is_too_large_shrinks_to_its_limit(tmp_path: Path) -> None:
    path = written(
        tmp_path / "journal.db",
        *(record for number in range(1, 101) for record in history(number, ago_ms=number, events=50)),
        *(event(n, run_id=None, issue=1_000 + n % 40, message="m" * 1_000) for n in range(4_000)),
        run(101),
        claim(101),
    )
    before = path.stat().st_size
    done, remembered = trimmed(path, Retention(max_bytes=4_000_000))
    assert done.runs == 100
    assert 0 < path.stat().st_size < 4_100_000
    assert done.bytes >= before - path.stat().st_size - 100_000
    assert remembered == RecoveredState(claims=(claim(101),), live_runs=(run(101),))
    done, remembered = trimmed(path, Retention(max_bytes=0))
    assert done.events > 0
    assert remembered == RecoveredState(claims=(claim(101),), live_runs=(run(101),))


def test_puts_are_written_between_two_steps_of_a_trim(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    written(path, *(record for number in range(1, 100) for record in history(number, ago_ms=40 * DAY_MS)))

    async def go() -> None:
        journal = await opened(path)
        trimming = asyncio.create_task(journal.trim(Retention()))
        await asyncio.sleep(0)
        journal.put(claim(1))
        assert (await trimming).runs == 99
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM claims").fetchone() == (1,)
        await journal.close()

    asyncio.run(go())


def test_a_trim_that_fails_ends_and_is_rolled_back(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.db", *history(1, ago_ms=40 * DAY_MS))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER stays BEFORE DELETE ON runs BEGIN SELECT RAISE(FAIL, 'disk I/O error'); END"
        )
    done, remembered = trimmed(path, Retention())
    assert (done, structs.replace(remembered, worked_on=frozenset())) == (TrimResult(), RecoveredState())
    assert (count(path, "events"), count(path, "runs")) == (10, 1)


def test_runs_that_end_push_out_the_oldest_ones(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    async def go() -> list[tuple[int, int]]:
        journal = await opened(path)
        await journal.trim(Retention(max_runs=100))
        sizes = []
        for number in range(1, 601):
            journal.put(*history(number, ago_ms=1_000_000 - number, events=20))
            journal.put(event(1, run_id=None, issue=number), comment(number))
            await journal.flush()
            assert count(path, "runs") <= 100 + 2 * RUNS_PER_STEP
            if number in {200, 600}:
                sizes.append((count(path, "events"), path.stat().st_size))
        await journal.close()
        return sizes

    (events, size), (later_events, later_size) = asyncio.run(go())
    assert later_events <= events * 1.2
    assert later_size <= size * 1.05, "pages are used again"
    with open_reader(path) as reader:
        assert "r-600" in {found.run_id for found in reader.runs(limit=1_000)}


def test_what_is_kept_of_an_issue_goes_with_its_last_run(tmp_path: Path) -> None:
    path = written(
        tmp_path / "journal.db",
        *(record for number in range(1, 6) for record in history(number, ago_ms=number * 1_000)),
        replace(run(6, ended_wall_ms=NOW), issue_id="id-5", issue_identifier="SYM-5"),
        claim(4),
        *(event(number, run_id=None, issue=number) for number in range(1, 6)),
        *(comment(number) for number in range(1, 6)),
        *(pull_request(number, number=7) for number in range(1, 6)),
        pull_request(3, code="gone", number=7),
        IssueSpent(issue_id="id-3", spent=Spent(tokens=1)),
    )
    done, remembered = trimmed(path, Retention(max_runs=2))
    assert done.runs == 4
    with open_reader(path) as reader:
        assert {found.run_id for found in reader.runs()} == {"r-1", "r-6"}
        assert {found.issue_id for found in reader.comments()} == {"id-1", "id-4", "id-5"}
    with closing(sqlite3.connect(path)) as connection:
        loose = connection.execute("SELECT issue_id FROM events WHERE run_id IS NULL ORDER BY issue_id")
        assert [issue_id for (issue_id,) in loose] == ["id-1", "id-4", "id-5"], "a claim needs them"
    assert {one.issue.id for one in remembered.pull_requests} == {"id-1", "id-2", "id-4", "id-5"}


def test_without_limits_and_below_them_nothing_is_pushed_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    async def go() -> None:
        journal = await opened(path)
        for number in range(1, 61):
            if number == 31:
                assert count(path, "runs") == 60, "the limits are not known yet"
                await journal.trim(Retention(max_runs=100))
            journal.put(*history(number, ago_ms=1_000 - number), run(1_000 + number))
            await journal.flush()
        await journal.close()

    asyncio.run(go())
    assert count(path, "runs") == 120, "those that are alive are not counted"


def test_an_error_while_runs_are_pushed_out_loses_no_record(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER stays BEFORE DELETE ON runs BEGIN SELECT RAISE(FAIL, 'disk I/O error'); END"
        )

    async def go() -> None:
        journal = await opened(path)
        await journal.trim(Retention(max_runs=1))
        for number in range(1, RUNS_PER_STEP + 1):
            journal.put(*history(number, ago_ms=1_000 - number, events=1))
        await journal.flush()
        assert journal.health.state is HealthState.MEMORY
        journal.put(claim(1))
        await journal.close()

    asyncio.run(go())
    assert (count(path, "claims"), count(path, "runs")) == (1, RUNS_PER_STEP)
    assert count(path, "events") == RUNS_PER_STEP
