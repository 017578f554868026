"""Any sequence of puts and damage to the file: the next start recovers the newest records."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from harness.journalling import (
    NOW,
    claim,
    comment,
    event,
    job,
    opened,
    pull_request,
    run,
    skills,
    skills_note,
)
from harness.nightly import NIGHTLY
from symphony.domain import Spent
from symphony.journal.jobs import Job, JobDone
from symphony.journal.model import (
    ClaimRecord,
    ClaimReleased,
    DayRecord,
    EventRecord,
    HealthState,
    IssueSpent,
    PullRequestRecord,
    Record,
    RecoveredState,
    RunRecord,
    SettingRecord,
    SkillsComment,
)
from symphony.journal.store import Backlog, Journal, record_key

_T = TypeVar("_T")
FEW = st.integers(1, 3)
COUNTS = st.integers(0, 9)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(lambda number, attempt: claim(number, attempt=attempt), FEW, COUNTS),
    st.builds(lambda number: ClaimReleased(issue_id=f"id-{number}"), FEW),
    st.builds(run, FEW),
    st.builds(lambda number, end: run(number, ended_wall_ms=NOW + end, outcome="failed"), FEW, COUNTS),
    st.builds(event, COUNTS),
    st.builds(
        lambda number, tokens: IssueSpent(issue_id=f"id-{number}", spent=Spent(tokens=tokens)), FEW, COUNTS
    ),
    st.builds(lambda number, tokens: DayRecord(day=f"2026-01-0{number}", tokens=tokens), FEW, COUNTS),
    st.builds(lambda value: SettingRecord(name="paused", value=value), st.sampled_from([None, "true", "x"])),
    st.builds(lambda number, print_: comment(number, fingerprint=str(print_)), FEW, COUNTS),
    st.builds(lambda number, body: skills_note(number, body=str(body)), FEW, COUNTS),
    st.builds(lambda number, attempts: job(number, attempts=attempts), FEW, COUNTS),
    st.builds(lambda number: JobDone(key=job(number).key), FEW),
    st.builds(lambda number, code: pull_request(number, code=str(code)), FEW, COUNTS),
    st.builds(skills, FEW),
)
PUTS = st.lists(RECORDS, max_size=4).map(tuple)
DISTURBANCES = st.sampled_from(["flush", "restart", "lock", "unlock"])


def truth_of(puts: Sequence[Record]) -> RecoveredState:
    """What a start must recover after these records, by the simplest implementation."""
    newest = {record_key(record): record for record in puts if not isinstance(record, EventRecord)}

    def held(kind: type[_T]) -> list[_T]:
        return [record for record in newest.values() if isinstance(record, kind)]

    live = [found for found in held(RunRecord) if found.ended_wall_ms is None]
    return RecoveredState(
        claims=tuple(sorted(held(ClaimRecord), key=lambda found: found.claim.issue.id)),
        live_runs=tuple(sorted(live, key=lambda found: found.run_id)),
        spent={found.issue_id: found.spent for found in held(IssueSpent) if found.spent != Spent()},
        days={found.day: found.tokens for found in held(DayRecord)},
        settings={found.name: found.value for found in held(SettingRecord) if found.value is not None},
        skills_comments=tuple(sorted(held(SkillsComment), key=lambda found: found.at_wall_ms, reverse=True)),
        pull_requests=tuple(sorted(held(PullRequestRecord), key=lambda found: found.issue.id)),
        jobs=tuple(sorted(held(Job), key=lambda found: found.created_wall_ms)),
    )


def present(puts: Sequence[Record]) -> list[Record]:
    """What a daemon that put these would tell a file that is begun anew."""
    truth = truth_of(puts)
    return [
        *truth.claims,
        *truth.live_runs,
        *truth.skills_comments,
        *truth.pull_requests,
        *truth.jobs,
        *(IssueSpent(issue_id=issue_id, spent=spent) for issue_id, spent in truth.spent.items()),
        *(DayRecord(day=day, tokens=tokens) for day, tokens in truth.days.items()),
        *(SettingRecord(name=name, value=value) for name, value in truth.settings.items()),
    ]


async def known(journal: Journal) -> RecoveredState:
    """What a start recovers, without the comments, which only save requests, and the issues of ended runs."""
    return structs.replace(journal.recovered_state, comments=(), worked_on=frozenset())


async def driven(place: Path, steps: Sequence[Any]) -> None:
    path = place / "journal.db"
    holder: sqlite3.Connection | None = None
    told: list[Record] = []

    async def begun() -> Journal:
        journal = await opened(path)
        journal.snapshot_from(lambda: present(told))
        return journal

    journal = await begun()
    for step in (*steps, "unlock", "flush"):
        match step:
            case "flush":
                await journal.flush()
            case "restart" if holder is None:
                await journal.close()
                journal = await begun()
                assert await known(journal) == truth_of(told)
            case "lock" if holder is None and path.exists():
                holder = sqlite3.connect(path, isolation_level=None)
                holder.execute("PRAGMA busy_timeout = 5000")
                holder.execute("BEGIN IMMEDIATE")
            case "unlock" if holder is not None:
                holder.close()
                holder = None
            case tuple():
                journal.put(*step)
                told += step
            case _:
                pass
    assert journal.health.state is HealthState.OK
    await journal.close()
    journal = await opened(path)
    assert await known(journal) == truth_of(told)
    await journal.close()


@settings(max_examples=40 if NIGHTLY else 15)
@given(st.lists(PUTS | PUTS | DISTURBANCES, max_size=12))
def test_the_next_start_recovers_the_newest_records(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(driven(Path(place), steps))


@given(st.lists(PUTS, max_size=8), st.integers(0, 8))
def test_records_that_could_not_be_written_come_before_newer_ones(
    puts: list[tuple[Record, ...]], cut: int
) -> None:
    straight, bent = Backlog(), Backlog()
    for records in puts:
        straight.add(records)
    for records in puts[:cut]:
        bent.add(records)
    failed = bent.take()
    for records in puts[cut:]:
        bent.add(records)
    bent.give_back(failed)
    expected, found = straight.take(), bent.take()
    assert {record_key(one): one for one in found.records} == {
        record_key(one): one for one in expected.records
    }
    assert found.events == expected.events
    assert not straight
