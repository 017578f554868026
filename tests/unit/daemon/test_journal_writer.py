"""The daemon's memory over its lives, on a real journal: what went in comes out, trouble is told."""

import json
import sqlite3
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.scheduling import make_issue, make_settings
from symphony.api.models import ListedSkill, Skills
from symphony.daemon.clock import wall_ms
from symphony.daemon.journal_writer import JournalWriter, open_journal_writer
from symphony.daemon.state_dir import JOURNAL_FILE
from symphony.domain import DeliveredBranch, FaultPoint, WorkSize
from symphony.journal.model import HealthState, SkillsComment
from symphony.journal.reader import open_reader
from symphony.journal.skill_outcomes import VersionOutcomes
from symphony.processes.base import Identity
from symphony.scheduler import (
    ClaimKind,
    Outcome,
    OutcomeKind,
    Recovered,
    Retry,
    RunEnded,
    Running,
    initial_state,
)

pytestmark = pytest.mark.asyncio

AGENT = Identity(boot_id="b", pid=8, started=2.5)
SETTINGS = make_settings()
NOON_MS = 1_767_268_800_000  # 2026-01-01, 12:00 UTC
EMPTY = initial_state(SETTINGS, epoch="e")
RUN = Running(
    run_id="e-1",
    issue=make_issue("1"),
    attempt=2,
    started_ms=0,
    max_turns=3,
    attempts_without_progress=0,
    failures=1,
)
AT_WORK = EMPTY.changed(running={"1": RUN}, day="2026-01-01", day_tokens=7)


def _life(path: Path, now_ms: int = NOON_MS) -> AbstractAsyncContextManager[JournalWriter]:
    return open_journal_writer(path, owner=None, mask=str, now_ms=lambda: 5, wall_ms=lambda: now_ms)


async def test_what_one_life_knew_the_next_one_is_told(tmp_path: Path) -> None:
    async with _life(tmp_path) as first:
        assert first.recovery_event(SETTINGS, ()) == Recovered(day="2026-01-01")
        first(EMPTY, Recovered(), AT_WORK, ())
        first(AT_WORK, Recovered(), AT_WORK, ())
        first.agent_spawned("e-1", AGENT)
        first.agent_spawned("preflight", AGENT)
        first.comment_written("1", "blocked", "c-1", "f")
        listed = (ListedSkill(name="s", path="p", sha256="0" * 64, seen=True),)
        first.skills_loaded("1", "e-1", Skills(commit="abc", listed=listed))
        assert first.health.state is HealthState.OK
    async with _life(tmp_path) as second:
        told = second.recovery_event(SETTINGS, ())
        assert second.live_agents == (AGENT,)
        assert [(one.kind, one.comment_id) for one in second.previous.comments] == [("blocked", "c-1")]
    (claim,) = told.claims
    assert (claim.kind, claim.attempt, claim.failures) == (ClaimKind.RUNNING, 2, 1)
    assert (told.day, told.day_tokens) == ("2026-01-01", 7)
    assert await to_thread.run_sync(_skills, tmp_path) == [("s", 1)]


def _skills(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path / JOURNAL_FILE)) as journal:
        return journal.execute("SELECT name, seen FROM skill_uses").fetchall()


async def test_what_a_run_had_of_the_library_outlives_a_restart_and_so_does_what_became_of_it(
    tmp_path: Path,
) -> None:
    skills = Skills(
        listed=(ListedSkill(name="s", path="p", sha256="0" * 64),),
        native=(ListedSkill(name="n", path="q", sha256="1" * 64, seen=True, library_version=3),),
    )
    delivered = DeliveredBranch(work=WorkSize(commits=1), branch="b", head="abc")
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, progress=True, delivered=delivered)
    async with _life(tmp_path) as first:
        first(EMPTY, Recovered(), AT_WORK, ())
        first.skills_loaded("1", "e-1", skills)
        first(AT_WORK, RunEnded(run_id="e-1", outcome=outcome), EMPTY, ())
    async with _life(tmp_path) as second:
        second.work_merged(RUN.issue)
    found = await to_thread.run_sync(_outcomes, tmp_path)
    counted = [
        (one.name, one.library_version, one.counts.opened, one.counts.delivered, one.counts.merged)
        for one in found
    ]
    assert counted == [
        ("n", 3, 1, 1, 1),
        ("s", None, 0, 1, 1),
    ]


def _outcomes(path: Path) -> tuple[VersionOutcomes, ...]:
    with open_reader(path / JOURNAL_FILE) as reader:
        return reader.version_outcomes()


async def test_a_conversation_is_on_the_disk_when_the_agent_may_be_told_its_task(tmp_path: Path) -> None:
    async with _life(tmp_path) as memory:
        memory(EMPTY, Recovered(), AT_WORK, ())
        await memory.conversation_opened("e-1", "t-1")
        assert await to_thread.run_sync(_threads, tmp_path) == ["t-1"]


def _threads(path: Path) -> list[str]:
    with closing(sqlite3.connect(path / JOURNAL_FILE)) as journal:
        records = [json.loads(text) for (text,) in journal.execute("SELECT record FROM runs")]
    return [record["facts"]["thread_id"] for record in records]


async def test_what_is_put_and_what_is_written_of_a_run_and_of_its_retry_can_be_told(tmp_path: Path) -> None:
    reached: list[FaultPoint] = []
    retry = Retry(issue=RUN.issue, attempt=3, due_ms=9, error="no", attempts_without_progress=0, failures=2)
    retrying = EMPTY.changed(retrying={"1": retry})
    ended = RunEnded(run_id="e-1", outcome=Outcome(kind=OutcomeKind.FAILED))
    opened = open_journal_writer(tmp_path, owner=None, mask=str, now_ms=lambda: 5, fault=reached.append)
    async with opened as memory:
        memory(EMPTY, Recovered(), AT_WORK, ())
        assert reached == [FaultPoint.CLAIM_PUT]
        await memory.flush()
        assert reached == [FaultPoint.CLAIM_PUT, FaultPoint.CLAIM_WRITTEN]
        reached.clear()
        memory(AT_WORK, ended, retrying, ())
        assert {*reached} == {FaultPoint.RETRY_PUT, FaultPoint.END_PUT}
        await memory.flush()
        assert {*reached} > {FaultPoint.RETRY_WRITTEN, FaultPoint.END_WRITTEN}


async def test_the_budget_of_yesterday_is_not_that_of_today(tmp_path: Path) -> None:
    async with _life(tmp_path) as first:
        first(EMPTY, Recovered(), AT_WORK, ())
    async with _life(tmp_path, NOON_MS + 86_400_000) as second:
        told = second.recovery_event(SETTINGS, ())
    assert (told.day, told.day_tokens) == ("2026-01-02", 0)


async def test_a_damaged_journal_is_told_once_and_a_new_one_begun(tmp_path: Path) -> None:
    await to_thread.run_sync((tmp_path / JOURNAL_FILE).write_bytes, b"\0\xff{" * 500)
    with capture_logs() as logs:
        async with _life(tmp_path) as memory:
            assert memory.health.state is HealthState.OK
    assert [line["event"] for line in logs] == ["journal_notice"]
    assert "journal" in logs[0]["reason"]


async def test_a_journal_that_is_taken_away_is_said_and_ends_the_daemon(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with _life(tmp_path) as memory:
            await to_thread.run_sync((tmp_path / JOURNAL_FILE).unlink)
            memory.comment_written("1", "blocked", "c-1", "f")
            await memory.flush()
            error = await memory.until_taken_away()
    (line,) = logs
    assert (line["event"], line["reason"]) == ("journal_degraded", error.failure.message)
    assert "journal.db was removed" in line["reason"]


async def test_a_journal_that_is_begun_anew_in_mid_life_holds_what_the_daemon_holds(tmp_path: Path) -> None:
    note = SkillsComment(issue_id="1", issue_identifier="SYM-1", tracker="t", body="b")
    async with _life(tmp_path) as first:
        first.include_pending(lambda: [note])
        first(EMPTY, Recovered(), AT_WORK, ())
        first.agent_spawned("e-1", AGENT)
        await first.flush()
        for file in await to_thread.run_sync(lambda: [*tmp_path.iterdir()]):
            await to_thread.run_sync(file.write_bytes, b"\xff" * 50_000)
        for fingerprint in "fg":
            first.comment_written("1", "blocked", "c-1", fingerprint)
            await first.flush()
        assert first.health.state is HealthState.OK
    async with _life(tmp_path) as second:
        (claim,) = second.recovery_event(SETTINGS, ()).claims
        assert (claim.kind, claim.attempt, claim.failures) == (ClaimKind.RUNNING, 2, 1)
        assert second.live_agents == (AGENT,)
        assert second.previous.skills_comments == (note,)
        assert second.recovery_event(SETTINGS, ()).day_tokens == 7


async def test_a_journal_that_cannot_be_used_costs_a_warning_and_nothing_else(tmp_path: Path) -> None:
    await to_thread.run_sync((tmp_path / JOURNAL_FILE).mkdir)
    with capture_logs() as logs:
        async with _life(tmp_path) as memory:
            assert memory.health.state is HealthState.MEMORY
            memory(EMPTY, Recovered(), AT_WORK, ())
            assert memory.recovery_event(SETTINGS, ()).claims == ()
    assert [line["event"] for line in logs][:1] == ["journal_degraded"]
    assert logs[0]["hint"]


async def test_the_wall_clock_is_the_one_that_people_see() -> None:
    assert wall_ms() > NOON_MS - 10 * 365 * 86_400_000
