from collections.abc import Callable
from dataclasses import dataclass

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
from symphony.domain.redaction import MASK, Redaction
from symphony.runtime.pulse import INTERVAL_MS, MOMENT_MS, SIGN_MS, Pulse
from symphony.scheduler.inputs import AgentReported, Input, RunReport, RunStage

STARTED = SessionStarted(session_id="t-1", thread_id="t", turn_id="1")
TOOL = ToolCalled(name="board_move", success=True)
MILESTONES: list[AgentEvent] = [
    ItemStarted(kind="commandExecution", summary="make"),
    TurnEnded(status=TurnStatus.COMPLETED),
    InputRequired(reason="which one?"),
]


@dataclass
class Call:
    """Something that will be called at a moment of the test's clock."""

    due_ms: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Patient:
    """A pulse on a clock of the test, which begins long after the last report."""

    def __init__(self, *secrets: str) -> None:
        self.now = 1_000_000
        self.facts: list[Input] = []
        self.calls: list[Call] = []
        self.pulse = Pulse(
            "e-1", self.facts.append, lambda: self.now, Redaction(secrets), later=self._call_later
        )

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> Call:
        self.calls.append(Call(self.now + delay_s * 1000, call))
        return self.calls[-1]

    def wait(self, duration_ms: int) -> None:
        """Let time pass in silence."""
        self.now += duration_ms
        for due in [one for one in self.calls if one.due_ms <= self.now and not one.cancelled]:
            self.calls.remove(due)
            due.call()

    @property
    def reports(self) -> list[RunReport]:
        found = [fact for fact in self.facts if isinstance(fact, AgentReported)]
        assert all(fact.run_id == "e-1" for fact in found)
        return [fact.report for fact in found]

    @property
    def last(self) -> RunReport:
        return self.reports[-1]


@pytest.fixture
def patient() -> Patient:
    return Patient()


def test_a_flood_is_reported_a_few_times_a_second_and_loses_no_count(patient: Patient) -> None:
    for number in range(1_000):
        patient.wait(1)
        patient.pulse.feel(Text(message=f"x {number}"))
    assert 1_000 // INTERVAL_MS <= len(patient.reports) <= 1_000 // INTERVAL_MS + 1
    patient.pulse.beat()
    assert patient.last.signs == 1_000


@pytest.mark.parametrize("event", MILESTONES, ids=lambda event: type(event).__name__)
def test_a_milestone_is_reported_at_once(patient: Patient, event: AgentEvent) -> None:
    patient.pulse.beat()
    patient.pulse.feel(Text(message="not now"))
    assert len(patient.reports) == 1
    patient.pulse.feel(event)
    assert len(patient.reports) == 2
    assert patient.last.signs == 2


@pytest.mark.parametrize("event", [STARTED, TOOL], ids=lambda event: type(event).__name__)
def test_a_step_that_others_follow_is_told_with_them_in_a_moment(patient: Patient, event: AgentEvent) -> None:
    patient.pulse.tool_begins()
    patient.pulse.feel(event)
    patient.pulse.feel(Text(message="goes on"))
    assert len(patient.reports) == 1
    patient.wait(MOMENT_MS)
    assert [(one.signs, one.last_message) for one in patient.reports] == [(0, None), (2, "goes on")]


def test_that_a_run_is_finishing_is_no_news_at_its_end(patient: Patient) -> None:
    patient.pulse.feel(TurnEnded(status=TurnStatus.COMPLETED))
    patient.pulse.stage(RunStage.FINISHING)
    patient.pulse.end()
    patient.wait(60_000)
    assert len(patient.reports) == 1


def test_the_last_word_before_a_silence_is_told_when_its_time_has_come(patient: Patient) -> None:
    patient.pulse.feel(STARTED)
    patient.wait(INTERVAL_MS // 2)
    patient.pulse.feel(Text(message="first"))
    patient.pulse.feel(Text(message="last"))
    assert len(patient.calls) == 1, "one is owed, however many came"
    assert patient.last.last_message != "last"
    patient.wait(INTERVAL_MS // 2)
    assert (len(patient.reports), patient.last.last_message) == (2, "last")
    patient.wait(60_000)
    assert len(patient.reports) == 2


def test_what_is_owed_is_paid_once(patient: Patient) -> None:
    patient.pulse.feel(STARTED)
    patient.pulse.feel(Text(message="soon"))
    patient.pulse.feel(TOOL)
    patient.pulse.feel(Text(message="over"))
    patient.pulse.end()
    patient.wait(60_000)
    assert len(patient.reports) == 2
    assert all(call.cancelled for call in patient.calls)


def test_streamed_text_without_words_is_a_sign_of_life_and_told_once_a_second(patient: Patient) -> None:
    patient.pulse.feel(Activity(count=7))
    assert patient.last.signs == 7
    for _ in range(2 * SIGN_MS // INTERVAL_MS):
        patient.wait(INTERVAL_MS)
        patient.pulse.feel(Activity(count=1))
    assert [one.signs for one in patient.reports] == [7, 10, 14]
    assert patient.last.last_message is None


def test_the_last_sign_of_life_before_a_silence_is_told_within_a_second(patient: Patient) -> None:
    patient.pulse.feel(Activity(count=7))
    patient.wait(INTERVAL_MS)
    patient.pulse.feel(Activity(count=1))
    assert patient.last.signs == 7
    patient.wait(SIGN_MS - INTERVAL_MS)
    assert patient.last.signs == 8
    patient.wait(60_000)
    assert len(patient.reports) == 2


def test_a_milestone_takes_signs_of_life_along_that_wait(patient: Patient) -> None:
    patient.pulse.feel(Activity(count=7))
    patient.wait(INTERVAL_MS)
    patient.pulse.feel(Activity(count=1))
    patient.pulse.feel(TurnEnded(status=TurnStatus.COMPLETED))
    assert [one.signs for one in patient.reports] == [7, 9]
    patient.wait(60_000)
    assert len(patient.reports) == 2


def test_the_interval_counts_from_the_last_report_of_any_cause(patient: Patient) -> None:
    patient.pulse.launched(42)
    patient.wait(MOMENT_MS)
    patient.now += INTERVAL_MS - 1
    patient.pulse.feel(Text(message="early"))
    assert len(patient.reports) == 1
    patient.now += 1
    patient.pulse.feel(Text(message="due"))
    assert patient.last.last_message == "due"


def test_a_stage_is_reported_once_when_it_is_entered(patient: Patient) -> None:
    patient.pulse.stage(RunStage.PREPARING_WORKSPACE)
    patient.wait(MOMENT_MS)
    assert patient.reports == []
    patient.pulse.stage(RunStage.BUILDING_PROMPT)
    patient.pulse.stage(RunStage.BUILDING_PROMPT)
    patient.wait(MOMENT_MS)
    patient.pulse.stage(RunStage.BUILDING_PROMPT)
    patient.wait(MOMENT_MS)
    assert [report.stage for report in patient.reports] == [RunStage.BUILDING_PROMPT]


def test_the_steps_of_a_start_that_follow_each_other_closely_make_one_report(patient: Patient) -> None:
    patient.pulse.place("/w/SYM-1", None)
    patient.pulse.stage(RunStage.BUILDING_PROMPT)
    patient.wait(MOMENT_MS - 1)
    patient.pulse.stage(RunStage.LAUNCHING_AGENT)
    patient.pulse.launched(42)
    patient.wait(MOMENT_MS - 1)
    assert patient.reports == []
    patient.wait(1)
    assert [(one.stage, one.pid) for one in patient.reports] == [(RunStage.LAUNCHING_AGENT, 42)]
    patient.wait(60_000)
    assert len(patient.reports) == 1


def test_a_milestone_takes_the_steps_before_it_along(patient: Patient) -> None:
    patient.pulse.stage(RunStage.LAUNCHING_AGENT)
    patient.pulse.feel(STARTED)
    patient.wait(60_000)
    assert [(one.stage, one.session_id) for one in patient.reports] == [(RunStage.LAUNCHING_AGENT, "t-1")]


def test_that_a_turn_begins_is_told_at_once(patient: Patient) -> None:
    """A drain that comes then stops what has not begun to work, and lets what has come to its end."""
    patient.pulse.stage(RunStage.LAUNCHING_AGENT)
    patient.pulse.stage(RunStage.STREAMING_TURN)
    assert [one.stage for one in patient.reports] == [RunStage.STREAMING_TURN]


def test_a_run_that_ends_at_once_has_told_where_its_workspace_is(patient: Patient) -> None:
    patient.pulse.place("/w/SYM-1", None)
    patient.pulse.end()
    patient.wait(60_000)
    assert [one.workspace_path for one in patient.reports] == ["/w/SYM-1"]


def test_entering_a_stage_brings_along_what_was_felt_a_moment_before(patient: Patient) -> None:
    patient.pulse.beat()
    usage = Usage(absolute=True, input_tokens=10, output_tokens=5, total_tokens=15)
    patient.pulse.feel(usage)
    assert patient.last.total_tokens == 0
    patient.pulse.stage(RunStage.FINISHING)
    patient.wait(MOMENT_MS)
    report = patient.last
    assert (report.input_tokens, report.output_tokens, report.total_tokens) == (10, 5, 15)


def test_place_process_and_session_stay_known(patient: Patient) -> None:
    patient.pulse.place("/w/SYM-1", "symphony/SYM-1")
    patient.pulse.launched(42)
    patient.pulse.feel(STARTED)
    report = patient.last
    assert (report.workspace_path, report.branch, report.pid) == ("/w/SYM-1", "symphony/SYM-1", 42)
    assert (report.session_id, report.thread_id, report.turn_count) == ("t-1", "t", 1)


def test_a_tool_call_is_told_when_it_begins_and_counted_per_turn(patient: Patient) -> None:
    patient.pulse.tool_begins()
    assert patient.last.tool_calls == 1
    patient.pulse.feel(TOOL)
    patient.wait(MOMENT_MS)
    assert patient.last.tool_calls == 1, "its end is no second call"
    patient.pulse.tool_begins()
    assert patient.last.tool_calls == 2
    patient.pulse.new_turn()
    patient.pulse.beat()
    assert patient.last.tool_calls == 0


def test_rate_limits_travel_once_each(patient: Patient) -> None:
    first, second = {"primary": {"used_percent": 1}}, {"primary": {"used_percent": 2}}
    patient.pulse.feel(RateLimits(payload=first))
    patient.pulse.beat()
    patient.pulse.feel(RateLimits(payload=second))
    patient.pulse.beat()
    patient.pulse.beat()
    assert [report.rate_limits for report in patient.reports] == [first, None, second, None]


def test_what_the_agent_says_is_masked() -> None:
    patient = Patient("correct-horse-battery")
    patient.pulse.feel(Text(message="the password is correct-horse-battery, key sk-abcdef123456"))
    assert patient.last.last_message is not None
    assert "correct-horse" not in patient.last.last_message
    assert "sk-abc" not in patient.last.last_message
    assert MASK in patient.last.last_message


def test_the_milestones_of_one_read_make_one_report() -> None:
    facts: list[Input] = []
    later: list[Callable[[], object]] = []
    pulse = Pulse("e-1", facts.append, lambda: 0, Redaction(), soon=later.append)
    for event in MILESTONES:
        pulse.feel(event)
    assert facts == []
    assert len(later) == 1
    later[0]()
    later[0]()
    [told] = facts
    assert isinstance(told, AgentReported)
    assert told.report.signs == len(MILESTONES)


def test_a_report_in_between_takes_the_place_of_the_one_that_was_due() -> None:
    facts: list[Input] = []
    later: list[Callable[[], object]] = []
    pulse = Pulse("e-1", facts.append, lambda: 0, Redaction(), soon=later.append)
    pulse.feel(STARTED)
    pulse.beat()
    later[0]()
    assert len(facts) == 1
