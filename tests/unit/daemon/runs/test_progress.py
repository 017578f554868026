from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from symphony.agents.events import (
    Activity,
    AgentEvent,
    InputRequired,
    ItemStarted,
    RateLimits,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.daemon.runs.progress import ProgressReporter
from symphony.domain import MASK, Cost, FileChange, Redaction, Tokens, WorkSize
from symphony.scheduler import RunReport, RunStage
from symphony.workspaces import Delivery

pytestmark = pytest.mark.asyncio

NEVER_S = 3_600.0
STARTED = SessionStarted(session_id="t-1", thread_id="t", turn_id="1")
TOOL = ToolCalled(name="board_move", success=True)
MILESTONES: list[AgentEvent] = [
    ItemStarted(kind="commandExecution", summary="make"),
    TurnEnd(status=TurnStatus.COMPLETED),
    InputRequired(reason="which one?"),
]


class Desk:
    """A reporter and what it reported."""

    def __init__(self, *secrets: str, interval_s: float = NEVER_S) -> None:
        self.reports: list[RunReport] = []
        self._more = anyio.Event()
        self.reporter = ProgressReporter(self._on_report, Redaction(secrets), interval_s=interval_s)

    def _on_report(self, report: RunReport) -> None:
        self.reports.append(report)
        self._more.set()
        self._more = anyio.Event()

    async def until(self, count: int) -> None:
        with anyio.fail_after(60):
            while len(self.reports) < count:
                await self._more.wait()

    @property
    def last(self) -> RunReport:
        return self.reports[-1]


@asynccontextmanager
async def reporting(*secrets: str, interval_s: float = NEVER_S) -> AsyncIterator[Desk]:
    """A running reporter; by default only milestones end an interval."""
    desk = Desk(*secrets, interval_s=interval_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.reporter.run)
        await anyio.wait_all_tasks_blocked()
        yield desk
        tasks.cancel_scope.cancel()


async def test_a_flood_is_one_report_in_each_interval_and_loses_no_count() -> None:
    async with reporting() as desk:
        for number in range(1_000):
            desk.reporter.on_event(Text(message=f"x {number}"))
            await anyio.lowlevel.checkpoint()
        assert len(desk.reports) == 1
        desk.reporter.flush()
    assert (len(desk.reports), desk.last.event_count) == (2, 1_000)


@pytest.mark.parametrize("event", MILESTONES, ids=lambda event: type(event).__name__)
async def test_a_milestone_ends_the_interval_and_takes_along_what_came_before(event: AgentEvent) -> None:
    async with reporting() as desk:
        desk.reporter.on_event(Text(message="first"))
        await anyio.wait_all_tasks_blocked()
        desk.reporter.on_event(Text(message="not now"))
        await anyio.wait_all_tasks_blocked()
        assert len(desk.reports) == 1
        desk.reporter.on_event(event)
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in desk.reports] == [1, 3]


@pytest.mark.parametrize("event", [STARTED, TOOL, Activity(count=1)], ids=lambda event: type(event).__name__)
async def test_other_events_wait_for_the_end_of_the_interval(event: AgentEvent) -> None:
    async with reporting() as desk:
        desk.reporter.on_event(Activity(count=1))
        await anyio.wait_all_tasks_blocked()
        desk.reporter.on_event(event)
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in desk.reports] == [1]


async def test_the_last_event_before_a_silence_is_reported_when_it_is_due() -> None:
    async with reporting(interval_s=0.01) as desk:
        desk.reporter.on_event(STARTED)
        await desk.until(1)
        desk.reporter.on_event(Text(message="first"))
        desk.reporter.on_event(Text(message="last"))
        await desk.until(2)
        assert desk.last.last_message == "last"
        desk.reporter.flush()
        assert len(desk.reports) == 2


async def test_the_milestones_of_one_read_make_one_report() -> None:
    async with reporting() as desk:
        for event in MILESTONES:
            desk.reporter.on_event(event)
        assert desk.reports == []
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in desk.reports] == [len(MILESTONES)]


async def test_a_report_in_between_replaces_the_one_that_was_due() -> None:
    async with reporting() as desk:
        desk.reporter.on_event(STARTED)
        desk.reporter.report_now()
        await anyio.wait_all_tasks_blocked()
        assert len(desk.reports) == 1


async def test_an_interval_begins_with_any_report() -> None:
    async with reporting() as desk:
        desk.reporter.on_stage(RunStage.STREAMING_TURN)
        desk.reporter.on_event(Text(message="not now"))
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in desk.reports] == [0]
        desk.reporter.on_event(MILESTONES[0])
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in desk.reports] == [0, 2]


async def test_a_stage_is_reported_once_when_it_is_entered() -> None:
    desk = Desk()
    desk.reporter.on_stage(RunStage.PREPARING_WORKSPACE)
    desk.reporter.flush()
    assert desk.reports == []
    for _ in range(2):
        desk.reporter.on_stage(RunStage.BUILDING_PROMPT)
        desk.reporter.flush()
    assert [report.stage for report in desk.reports] == [RunStage.BUILDING_PROMPT]


async def test_the_steps_of_a_start_that_follow_each_other_closely_make_one_report() -> None:
    async with reporting() as desk:
        desk.reporter.on_workspace("/w/SYM-1", None)
        desk.reporter.on_stage(RunStage.LAUNCHING_AGENT)
        desk.reporter.on_launched(42)
        await anyio.wait_all_tasks_blocked()
        (told,) = desk.reports
        assert (told.facts.workspace_path, told.stage, told.pid) == ("/w/SYM-1", RunStage.LAUNCHING_AGENT, 42)


@pytest.mark.parametrize("stage", [RunStage.STREAMING_TURN, RunStage.FINISHING])
async def test_a_turn_and_the_end_of_a_run_are_reported_before_they_start(
    stage: RunStage,
) -> None:
    """A drain that comes then stops what has not begun to work, and lets what has come to its end."""
    desk = Desk()
    desk.reporter.on_event(UsageUpdate(absolute=True, tokens=Tokens(10, 5, 15)))
    desk.reporter.on_stage(stage)
    assert [(one.stage, one.facts.tokens.total_tokens) for one in desk.reports] == [(stage, 15)]
    desk.reporter.flush()
    assert len(desk.reports) == 1


async def test_a_run_that_ends_at_once_has_reported_its_workspace() -> None:
    desk = Desk()
    desk.reporter.on_workspace("/w/SYM-1", None)
    desk.reporter.flush()
    assert [one.facts.workspace_path for one in desk.reports] == ["/w/SYM-1"]


async def test_workspace_process_and_session_stay_known() -> None:
    desk = Desk()
    desk.reporter.on_workspace("/w/SYM-1", "symphony/SYM-1")
    desk.reporter.on_launched(42)
    desk.reporter.on_event(STARTED)
    desk.reporter.report_now()
    report = desk.last
    assert (report.facts.workspace_path, report.facts.branch, report.pid) == (
        "/w/SYM-1",
        "symphony/SYM-1",
        42,
    )
    assert (report.facts.session_id, report.facts.thread_id, report.facts.turn_count) == ("t-1", "t", 1)


async def test_a_tool_call_is_reported_when_it_starts_and_counted_per_turn() -> None:
    desk = Desk()
    desk.reporter.on_tool_call()
    assert desk.last.tool_calls == 1
    desk.reporter.on_event(TOOL)
    desk.reporter.report_now()
    assert desk.last.tool_calls == 1, "its end is no second call"
    desk.reporter.on_tool_call()
    assert desk.last.tool_calls == 2
    desk.reporter.on_next_turn()
    desk.reporter.report_now()
    assert desk.last.tool_calls == 0


async def test_each_rate_limit_is_reported_once() -> None:
    desk = Desk()
    first, second = {"primary": {"used_percent": 1}}, {"primary": {"used_percent": 2}}
    desk.reporter.on_event(RateLimits(payload=first))
    desk.reporter.report_now()
    desk.reporter.on_event(RateLimits(payload=second))
    desk.reporter.report_now()
    desk.reporter.report_now()
    assert [report.rate_limits for report in desk.reports] == [first, second, None]


async def test_what_the_agent_says_is_masked() -> None:
    desk = Desk("correct-horse-battery")
    desk.reporter.on_event(Text(message="the password is correct-horse-battery, key sk-abcdef123456"))
    desk.reporter.report_now()
    assert desk.last.last_message is not None
    assert "correct-horse" not in desk.last.last_message
    assert "sk-abc" not in desk.last.last_message
    assert MASK in desk.last.last_message


async def test_the_work_on_the_branch_is_reported_when_it_was_counted() -> None:
    desk = Desk()
    files = (FileChange(path="a", insertions=1, deletions=0), FileChange(path="b", insertions=0, deletions=2))
    desk.reporter.on_delivered(Delivery(head="h", work=WorkSize.of(3, files)))
    desk.reporter.flush()
    assert desk.last.facts.work == WorkSize(commits=3, files_changed=2, insertions=1, deletions=2)


async def test_what_a_reviewer_uses_counts_and_its_conversation_is_none_of_the_run() -> None:
    desk = Desk()
    desk.reporter.on_event(STARTED)
    desk.reporter.on_event(UsageUpdate(absolute=False, tokens=Tokens(total_tokens=100)))
    desk.reporter.on_reviewer(lambda _, tokens: Cost(cost_usd=tokens.total_tokens / 100))
    desk.reporter.on_reviewer_event(SessionStarted(session_id="r-1", thread_id="r", turn_id="1"))
    desk.reporter.on_reviewer_event(UsageUpdate(absolute=False, tokens=Tokens(total_tokens=7)))
    desk.reporter.report_now()
    facts = desk.last.facts
    assert (facts.thread_id, facts.session_id, facts.turn_count) == ("t", "t-1", 1)
    assert (facts.tokens.total_tokens, facts.reviewer_tokens.total_tokens) == (107, 7)
    assert facts.thread_tokens.total_tokens == 100
    assert (facts.cost_usd, facts.unpriced_tokens) == (0.07, 100)
    assert desk.last.event_count == 4
    assert desk.reporter.facts.tokens.total_tokens == 107
