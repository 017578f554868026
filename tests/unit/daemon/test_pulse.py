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
    TurnEnded,
    TurnStatus,
    Usage,
)
from symphony.daemon.progress import ProgressReporter
from symphony.domain import MASK, Redaction
from symphony.scheduler import AgentReported, Event, RunReport, RunStage

pytestmark = pytest.mark.asyncio

NEVER_S = 3_600.0
STARTED = SessionStarted(session_id="t-1", thread_id="t", turn_id="1")
TOOL = ToolCalled(name="board_move", success=True)
MILESTONES: list[AgentEvent] = [
    ItemStarted(kind="commandExecution", summary="make"),
    TurnEnded(status=TurnStatus.COMPLETED),
    InputRequired(reason="which one?"),
]


class Heard:
    """A pulse and what it reported."""

    def __init__(self, *secrets: str, interval_s: float = NEVER_S) -> None:
        self.facts: list[Event] = []
        self._more = anyio.Event()
        self.pulse = ProgressReporter("e-1", self._post, Redaction(secrets), interval_s=interval_s)

    def _post(self, fact: Event) -> None:
        self.facts.append(fact)
        self._more.set()
        self._more = anyio.Event()

    async def until(self, count: int) -> None:
        with anyio.fail_after(10):
            while len(self.facts) < count:
                await self._more.wait()

    @property
    def reports(self) -> list[RunReport]:
        found = [fact for fact in self.facts if isinstance(fact, AgentReported)]
        assert all(fact.run_id == "e-1" for fact in found)
        return [fact.report for fact in found]

    @property
    def last(self) -> RunReport:
        return self.reports[-1]


@asynccontextmanager
async def beating(*secrets: str, interval_s: float = NEVER_S) -> AsyncIterator[Heard]:
    """A pulse that runs; by default nothing but milestones ends an interval."""
    heard = Heard(*secrets, interval_s=interval_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heard.pulse.run)
        await anyio.wait_all_tasks_blocked()
        yield heard
        tasks.cancel_scope.cancel()


async def test_a_flood_is_one_report_in_each_interval_and_loses_no_count() -> None:
    async with beating() as heard:
        for number in range(1_000):
            heard.pulse.feel(Text(message=f"x {number}"))
            await anyio.lowlevel.checkpoint()
        assert len(heard.reports) == 1
        heard.pulse.end()
    assert (len(heard.reports), heard.last.event_count) == (2, 1_000)


@pytest.mark.parametrize("event", MILESTONES, ids=lambda event: type(event).__name__)
async def test_a_milestone_ends_the_interval_and_takes_along_what_came_before(event: AgentEvent) -> None:
    async with beating() as heard:
        heard.pulse.feel(Text(message="first"))
        await anyio.wait_all_tasks_blocked()
        heard.pulse.feel(Text(message="not now"))
        await anyio.wait_all_tasks_blocked()
        assert len(heard.reports) == 1
        heard.pulse.feel(event)
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in heard.reports] == [1, 3]


@pytest.mark.parametrize("event", [STARTED, TOOL, Activity(count=1)], ids=lambda event: type(event).__name__)
async def test_other_events_wait_for_the_end_of_the_interval(event: AgentEvent) -> None:
    async with beating() as heard:
        heard.pulse.feel(Activity(count=1))
        await anyio.wait_all_tasks_blocked()
        heard.pulse.feel(event)
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in heard.reports] == [1]


async def test_the_last_word_before_a_silence_is_told_when_its_time_has_come() -> None:
    async with beating(interval_s=0.01) as heard:
        heard.pulse.feel(STARTED)
        await heard.until(1)
        heard.pulse.feel(Text(message="first"))
        heard.pulse.feel(Text(message="last"))
        await heard.until(2)
        assert heard.last.last_message == "last"
        heard.pulse.end()
        assert len(heard.reports) == 2


async def test_the_milestones_of_one_read_make_one_report() -> None:
    async with beating() as heard:
        for event in MILESTONES:
            heard.pulse.feel(event)
        assert heard.facts == []
        await anyio.wait_all_tasks_blocked()
        assert [one.event_count for one in heard.reports] == [len(MILESTONES)]


async def test_a_report_in_between_takes_the_place_of_the_one_that_was_due() -> None:
    async with beating() as heard:
        heard.pulse.feel(STARTED)
        heard.pulse.beat()
        await anyio.wait_all_tasks_blocked()
        assert len(heard.reports) == 1
        heard.pulse.feel(Text(message="next"))
        await anyio.wait_all_tasks_blocked()
        assert heard.last.last_message == "next", "it is not waited for a report that was not made"


async def test_a_stage_is_reported_once_when_it_is_entered() -> None:
    heard = Heard()
    heard.pulse.stage(RunStage.PREPARING_WORKSPACE)
    heard.pulse.end()
    assert heard.reports == []
    for _ in range(2):
        heard.pulse.stage(RunStage.BUILDING_PROMPT)
        heard.pulse.end()
    assert [report.stage for report in heard.reports] == [RunStage.BUILDING_PROMPT]


async def test_the_steps_of_a_start_that_follow_each_other_closely_make_one_report() -> None:
    async with beating() as heard:
        heard.pulse.place("/w/SYM-1", None)
        heard.pulse.stage(RunStage.LAUNCHING_AGENT)
        heard.pulse.launched(42)
        await anyio.wait_all_tasks_blocked()
        (told,) = heard.reports
        assert (told.workspace_path, told.stage, told.pid) == ("/w/SYM-1", RunStage.LAUNCHING_AGENT, 42)


@pytest.mark.parametrize("stage", [RunStage.STREAMING_TURN, RunStage.FINISHING])
async def test_that_a_turn_begins_and_that_the_run_is_finishing_is_told_before_it_does(
    stage: RunStage,
) -> None:
    """A drain that comes then stops what has not begun to work, and lets what has come to its end."""
    heard = Heard()
    heard.pulse.feel(Usage(absolute=True, input_tokens=10, output_tokens=5, total_tokens=15))
    heard.pulse.stage(stage)
    assert [(one.stage, one.total_tokens) for one in heard.reports] == [(stage, 15)]
    heard.pulse.end()
    assert len(heard.reports) == 1


async def test_a_run_that_ends_at_once_has_told_where_its_workspace_is() -> None:
    heard = Heard()
    heard.pulse.place("/w/SYM-1", None)
    heard.pulse.end()
    assert [one.workspace_path for one in heard.reports] == ["/w/SYM-1"]


async def test_place_process_and_session_stay_known() -> None:
    heard = Heard()
    heard.pulse.place("/w/SYM-1", "symphony/SYM-1")
    heard.pulse.launched(42)
    heard.pulse.feel(STARTED)
    heard.pulse.beat()
    report = heard.last
    assert (report.workspace_path, report.branch, report.pid) == ("/w/SYM-1", "symphony/SYM-1", 42)
    assert (report.session_id, report.thread_id, report.turn_count) == ("t-1", "t", 1)


async def test_a_tool_call_is_told_when_it_begins_and_counted_per_turn() -> None:
    heard = Heard()
    heard.pulse.tool_begins()
    assert heard.last.tool_calls == 1
    heard.pulse.feel(TOOL)
    heard.pulse.beat()
    assert heard.last.tool_calls == 1, "its end is no second call"
    heard.pulse.tool_begins()
    assert heard.last.tool_calls == 2
    heard.pulse.new_turn()
    heard.pulse.beat()
    assert heard.last.tool_calls == 0


async def test_rate_limits_travel_once_each() -> None:
    heard = Heard()
    first, second = {"primary": {"used_percent": 1}}, {"primary": {"used_percent": 2}}
    heard.pulse.feel(RateLimits(payload=first))
    heard.pulse.beat()
    heard.pulse.feel(RateLimits(payload=second))
    heard.pulse.beat()
    heard.pulse.beat()
    assert [report.rate_limits for report in heard.reports] == [first, second, None]


async def test_what_the_agent_says_is_masked() -> None:
    heard = Heard("correct-horse-battery")
    heard.pulse.feel(Text(message="the password is correct-horse-battery, key sk-abcdef123456"))
    heard.pulse.beat()
    assert heard.last.last_message is not None
    assert "correct-horse" not in heard.last.last_message
    assert "sk-abc" not in heard.last.last_message
    assert MASK in heard.last.last_message
