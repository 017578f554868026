"""Which records each step of the scheduler leaves: claims, runs at their milestones, and events."""

from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from harness.ledger import Ledger, check_present
from harness.scheduling import Story, make_failure, make_issue
from kit.facts import changed
from symphony.domain import Cost, DeliveredBranch, Spent, Tokens, Usage, WorkSize
from symphony.journal.model import (
    ClaimRecord,
    ClaimReleased,
    DayRecord,
    EventRecord,
    IssueSpent,
    Milestone,
    MilestoneRecord,
    Record,
    RecoveredState,
    ResultRecord,
    ResultReleased,
    RunRecord,
    SettingRecord,
)
from symphony.journal.recorder import (
    BUDGET_WAIVERS,
    INTERRUPTED,
    PAUSED,
    REMOTE_WORKSPACES,
    DaemonStart,
    StepRecorder,
    recovered_event,
)
from symphony.processes.base import Identity
from symphony.scheduler import (
    AgentReported,
    ClaimKind,
    Command,
    Event,
    Notify,
    Outcome,
    OutcomeKind,
    Recovered,
    RemoteWorkspace,
    ResultStatus,
    RunEnded,
    RunReport,
    RunStage,
    State,
    StoredClaim,
    WakeAsked,
)

US = Identity(boot_id="b", pid=7, started=1.5)
AGENT = Identity(boot_id="b", pid=8, started=2.5)
WALL_MS = 1_700_000_000_000
ASLEEP = WakeAsked(reason="nothing happened")


class RecordedStory(Story):
    """A story whose steps are recorded: `records` holds all records so far."""

    recorder = StepRecorder(US)

    def __init__(self, *, recorder: StepRecorder | None = None) -> None:
        super().__init__(make_issue("1"))
        self.recorder = recorder or StepRecorder(US)
        self.records: list[Record] = []
        self.ledger = Ledger()

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self.record(
            self.recorder.step(before, fact, self.state, commands, now_ms=self.now, wall_ms=self.wall)
        )
        return commands

    def record(self, records: tuple[Record, ...]) -> None:
        self.records.extend(records)
        self.ledger.take(records)
        check_present(self.recorder, self.ledger, now_ms=self.now, wall_ms=self.wall)

    @property
    def wall(self) -> int:
        return WALL_MS + self.now

    def of(self, kind: type) -> list[Record]:
        found = [record for record in self.records if isinstance(record, kind)]
        self.records.clear()
        return found


def test_results_are_recorded_and_released() -> None:
    story = RecordedStory()
    story.begin()
    story.streams()
    delivered = DeliveredBranch(work=WorkSize(commits=1), branch="symphony/SYM-1", head="abc")
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, progress=True, delivered=delivered)
    story.put("1", state="Human Review")
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    story.advance(2_000)
    (held,) = story.ledger.results.values()
    assert (held.result.status, held.result.delivered) == (ResultStatus.READY, delivered)
    assert held.ended_wall_ms == WALL_MS
    assert story.ledger.milestones == {("1", Milestone.READY)}
    story.of(ResultRecord)

    before = story.state
    pushing = before.changed(results={"1": replace(before.results["1"], pushing_since_ms=5)})
    assert _steps(before, pushing) == (), "that a push is under way is nothing to remember"
    assert _steps(before, before.changed(results={})) == (ResultReleased(issue_id="1"),)


def _steps(before: State, after: State, event: Event = ASLEEP, *commands: Command) -> tuple[Record, ...]:
    return StepRecorder(US).step(before, event, after, commands, now_ms=0, wall_ms=WALL_MS)


def _at_work() -> RecordedStory:
    story = RecordedStory()
    story.begin()
    story.streams(turn_count=1, thread_id="t", session_id="t-1")
    return story


# --- claims ----------------------------------------------------------------------------------------------


def test_a_start_records_a_claim_and_a_live_run_in_one_step() -> None:
    story = RecordedStory()
    story.advance(5)
    story.begin()
    run_id = story.run_id()
    assert story.ledger.claims["1"] == ClaimRecord(
        claim=StoredClaim(issue=make_issue("1"), kind=ClaimKind.RUNNING, run_id=run_id),
        owner=US,
        since_wall_ms=WALL_MS + 5,
    )
    assert story.ledger.live == (
        RunRecord(
            run_id=run_id,
            issue_id="1",
            issue_identifier="SYM-1",
            started_wall_ms=WALL_MS + 5,
            issue_state="Todo",
            issue_title="Title 1",
            agent_name="codex",
            agent_reason="the default (agent.kind)",
            attempt_number=1,
            attempt_limit=3,
        ),
    )


def test_a_retry_is_due_by_the_wall_clock() -> None:
    story = _at_work()
    story.advance(1_000).fails(failure=make_failure("first"))
    record = story.ledger.claims["1"]
    claim = record.claim
    assert (claim.kind, claim.attempt, record.due_wall_ms) == (
        ClaimKind.RETRYING,
        1,
        WALL_MS + 1_000 + 10_000,
    )
    assert claim.error is not None
    assert claim.workspace_path == "/ws/1"


def test_a_block_keeps_its_reason_and_baseline() -> None:
    story = _at_work()
    story.advance(3).ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure("which colour?"))
    record = story.ledger.claims["1"]
    claim = record.claim
    assert claim.kind is ClaimKind.BLOCKED
    assert record.since_wall_ms == WALL_MS + 3
    assert claim.failure is not None
    story.advance(60_000)
    assert story.state.blocked["1"].has_baseline
    assert story.ledger.claims["1"].claim.has_baseline


def test_a_released_claim_is_deleted() -> None:
    story = _at_work()
    story.put("1", state="Done")
    story.turn_ends().ends().advance(60_000)
    assert "1" not in story.ledger.claims
    assert ClaimReleased(issue_id="1") in story.of(ClaimReleased)


def test_the_claim_of_an_issue_that_changes_during_its_run_is_updated() -> None:
    story = _at_work()
    story.put("1", title="Another title")
    story.turn_ends()
    assert story.ledger.claims["1"].claim.issue.title == "Another title"


# --- runs ------------------------------------------------------------------------------------------------


def test_reports_without_a_milestone_are_not_recorded() -> None:
    story = _at_work()
    story.records.clear()
    story.streams()
    story.streams()
    assert story.records == []


@pytest.mark.parametrize(
    "milestone",
    [
        {"turn_count": 2},
        {"thread_id": "other"},
        {"session_id": "t-2"},
        {"total_tokens": 9, "input_tokens": 8, "output_tokens": 1},
        {"branch": "symphony/SYM-1"},
    ],
)
def test_a_milestone_is_recorded(milestone: dict[str, Any]) -> None:
    story = _at_work()
    story.records.clear()
    story.streams(**milestone)
    (row,) = story.of(RunRecord)
    assert isinstance(row, RunRecord)
    assert changed(row, **milestone) == row


@pytest.mark.parametrize(
    ("state", "milestones"),
    [
        ("Merged", {Milestone.READY, Milestone.MERGED}),
        ("Done", {Milestone.READY}),
        ("Cancelled", set[Milestone]()),
        ("Rejected", set[Milestone]()),
    ],
)
def test_what_becomes_of_delivered_work_is_a_milestone_of_its_issue(
    state: str, milestones: set[Milestone]
) -> None:
    story = _at_work()
    story.put("1", state=state)
    before = story.state
    delivered = DeliveredBranch(work=WorkSize(commits=1), branch="symphony/SYM-1", head="abc")
    story.tell(
        RunEnded(
            run_id=story.run_id(),
            outcome=Outcome(kind=OutcomeKind.SUCCEEDED, progress=True, delivered=delivered),
        )
    )
    issue = replace(before.running["1"].issue, state=state)
    ready = replace(story.state.results["1"], issue=issue, status=ResultStatus.ENDED)
    records = _steps(story.state, story.state.changed(results={"1": ready}))
    assert {one.milestone for one in records if isinstance(one, MilestoneRecord)} == milestones
    (run,) = story.ledger.runs.values()
    assert (run.delivered, run.blocked) == (True, False)


def test_a_run_remembers_that_it_blocked_its_issue_and_what_it_had_of_the_library() -> None:
    story = _at_work()
    run_id = story.run_id()
    story.record(story.recorder.library_used(run_id, {"a": 2}))
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure("which colour?"))
    run = story.ledger.runs[run_id]
    assert (run.delivered, run.blocked) == (False, True)
    assert run.library_versions == {"a": 2}


def test_the_agent_process_stays_recorded_until_the_end_of_the_run() -> None:
    story = _at_work()
    run_id = story.run_id()
    story.record(story.recorder.agent_started(run_id, AGENT))
    assert story.ledger.runs[run_id].agent == AGENT
    story.streams(total_tokens=5)
    assert story.ledger.runs[run_id].agent == AGENT
    assert story.ledger.runs[run_id].facts.tokens.total_tokens == 5


def test_the_conversation_of_a_run_is_recorded_before_any_report() -> None:
    story = _at_work()
    run_id = story.run_id()
    story.streams(thread_id=None)
    story.record(story.recorder.thread_opened(run_id, "t-1"))
    assert story.ledger.runs[run_id].facts.thread_id == "t-1"
    story.streams(total_tokens=5)
    assert (
        story.ledger.runs[run_id].facts.thread_id,
        story.ledger.runs[run_id].facts.tokens.total_tokens,
    ) == ("t-1", 5)
    story.streams(thread_id="t-2")
    assert story.ledger.runs[run_id].facts.thread_id == "t-2"
    assert StepRecorder(US).thread_opened("preflight", "t-1") == ()


def test_the_agent_of_an_unknown_run_is_not_recorded() -> None:
    assert StepRecorder(US).agent_started("preflight", AGENT) == ()


def test_the_end_of_a_run_is_recorded_with_outcome_and_reason() -> None:
    story = _at_work()
    run_id = story.run_id()
    failure = make_failure("it broke")
    outcome = Outcome(kind=OutcomeKind.FAILED, failure=failure, progress=True)
    story.report(commits=2)
    story.advance(50).tell(RunEnded(run_id=run_id, outcome=outcome))
    row = story.ledger.runs[run_id]
    assert (row.ended_wall_ms, row.outcome, row.reason) == (WALL_MS + 50, "failed", failure.line)
    assert (row.progress, row.facts.work.commits, row.facts.turn_count, row.facts.thread_id) == (
        True,
        2,
        1,
        "t",
    )
    assert story.ledger.live == ()


def test_the_reason_says_whether_a_run_was_stopped_or_finished() -> None:
    stopped = _at_work()
    run_id = stopped.run_id()
    stopped.put("1", state="Backlog")
    stopped.advance(40_000).ends(kind=OutcomeKind.CANCELED)
    assert stopped.ledger.runs[run_id].reason == "stopped: the issue has left the active states"
    finished = _at_work()
    run_id = finished.run_id()
    finished.put("1", state="Backlog")
    finished.turn_ends().ends()
    assert finished.ledger.runs[run_id].reason == "finished: the issue has left the active states"


def test_events_of_an_unknown_run_are_not_recorded() -> None:
    state = RecordedStory().state
    reported = AgentReported(run_id="another", report=RunReport(stage=RunStage.STREAMING_TURN))
    assert _steps(state, state, reported) == ()
    ended = RunEnded(run_id="another", outcome=Outcome(kind=OutcomeKind.SUCCEEDED))
    assert _steps(state, state, ended) == ()


def test_a_report_of_a_run_that_is_gone_is_not_recorded() -> None:
    story = _at_work()
    before, after = story.state, story.state.changed(running={})
    reported = AgentReported(run_id=before.running["1"].run_id, report=before.running["1"].report)
    for recorder in (story.recorder, StepRecorder(US)):
        records = recorder.step(before, reported, after, (), now_ms=0, wall_ms=WALL_MS)
        assert records == (ClaimReleased(issue_id="1"),)


def test_runs_that_a_previous_daemon_left_are_ended_with_the_first_step() -> None:
    left = RunRecord(run_id="old-1", issue_id="1", issue_identifier="SYM-1", started_wall_ms=WALL_MS - 5)
    ahead = replace(left, run_id="old-2", started_wall_ms=WALL_MS + 99)
    story = RecordedStory(recorder=StepRecorder(US, left=[left, ahead]))
    story.begin()
    ends = {run.run_id: (run.ended_wall_ms, run.outcome) for run in story.ledger.runs.values()}
    assert ends["old-1"] == (WALL_MS, INTERRUPTED)
    assert ends["old-2"] == (WALL_MS + 99, INTERRUPTED)
    assert StepRecorder(US).step(story.state, Recovered(), story.state, (), now_ms=0, wall_ms=0) == ()


# --- events ----------------------------------------------------------------------------------------------


def test_a_message_of_the_agent_is_recorded_once() -> None:
    story = _at_work()
    story.records.clear()
    story.streams(last_event="notification", last_message="I look around")
    story.streams(last_event="notification", last_message="I look around")
    assert story.of(EventRecord) == [
        EventRecord(
            issue_id="1",
            issue_identifier="SYM-1",
            run_id=story.run_id(),
            at_wall_ms=story.wall,
            event="notification",
            message="I look around",
        )
    ]


def test_words_of_the_agent_are_recorded_although_something_else_came_since() -> None:
    story = _at_work()
    story.records.clear()
    story.streams(last_event="turn_completed", last_message="turn completed", last_words="I am done")
    story.streams(last_event="turn_completed", last_message="turn completed", last_words="I am done")
    told = [(one.event, one.message) for one in story.records if isinstance(one, EventRecord)]
    assert told == [("notification", "I am done"), ("turn_completed", "turn completed")]


def test_log_lines_about_an_issue_are_recorded_masked_with_its_run() -> None:
    story = RecordedStory(recorder=StepRecorder(US, mask=lambda text: text.replace("hunter2", "***")))
    story.begin()
    run_id = story.run_id()
    story.fails(failure=make_failure("hunter2 is wrong"))
    recorded = {(event.event, event.run_id) for event in story.ledger.events}
    assert ("run_started", run_id) in recorded
    assert not any("hunter2" in event.message for event in story.ledger.events)


def test_log_lines_about_the_daemon_are_not_recorded() -> None:
    state = RecordedStory().state
    said = [
        Notify(level="info", event="paused"),
        Notify(level="debug", event="dispatch_skipped", issue_id="1", issue_identifier="SYM-1"),
    ]
    assert _steps(state, state, ASLEEP, *said) == ()


def test_an_event_names_its_run() -> None:
    state = RecordedStory().state
    (event,) = _steps(state, state, ASLEEP, Notify(level="info", event="issue_released", issue_id="1"))
    assert isinstance(event, EventRecord)
    assert (event.run_id, event.issue_identifier, event.message) == (None, "1", "")


# --- budgets and settings --------------------------------------------------------------------------------


def test_usage_is_recorded_and_reset() -> None:
    state = RecordedStory().state
    spent = state.changed(spent={"1": Spent(tokens=5, turns=1)})
    assert _steps(state, spent) == (IssueSpent(issue_id="1", spent=Spent(tokens=5, turns=1)),)
    assert _steps(spent, spent.changed(spent={})) == (IssueSpent(issue_id="1", spent=Spent()),)
    assert _steps(spent, spent.changed(spent=dict(spent.spent))) == ()


def _next_life(story: RecordedStory) -> RecordedStory:
    """A daemon that starts after the one of the story was killed."""
    remembered = story.ledger.remembered()
    anew = RecordedStory(recorder=StepRecorder(US, left=remembered.live_runs))
    anew.ledger = story.ledger
    start = DaemonStart(now_ms=anew.now, wall_ms=anew.wall, today="2026-01-01", max_wait_ms=10**9)
    anew.tell(recovered_event(remembered, start))
    return anew


def test_sums_survive_kills_and_each_run_counts_once() -> None:
    used: dict[str, Any] = {"session_id": "s", "input_tokens": 6, "total_tokens": 10, "cache_read_tokens": 4}
    story = RecordedStory()
    story.tell(Recovered(day="2026-01-01"))
    story.begin()
    story.streams(**used, turn_count=1, cost_usd=0.5, model="opus")
    for _ in range(2):  # killed in the middle of the run, and again before anything else happens
        story = _next_life(story)
    (run,) = story.ledger.runs.values()
    assert (run.outcome, run.facts.model, run.issue_state) == (INTERRUPTED, "opus", "Todo")
    assert (run.facts.tokens.total_tokens, run.facts.tokens.cache_read_tokens, run.facts.cost_usd) == (
        10,
        4,
        0.5,
    )
    story.begin().advance(2_000)
    story.streams(**used, turn_count=1, unpriced_tokens=10).ends()
    story = _next_life(story)
    totals = story.state.totals
    assert totals.usage == Usage(tokens=Tokens(12, 0, 20, 8), cost_usd=0.5, unpriced_tokens=10)
    assert (totals.sessions, totals.issues) == (2, 1)
    assert (story.state.day_tokens, story.state.day_cost) == (20, Cost(cost_usd=0.5, unpriced_tokens=10))
    (result,) = story.state.results.values()
    assert (result.turns, result.usage) == (2, totals.usage)
    assert sum(run.facts.tokens.total_tokens for run in story.ledger.runs.values()) == 20


def test_a_report_records_the_usage_of_its_own_issue() -> None:
    story = _at_work()
    before = story.state
    after = before.changed(spent={"1": Spent(tokens=5)}, day="2026-01-01", day_tokens=5)
    event = AgentReported(run_id=before.running["1"].run_id, report=before.running["1"].report)
    assert story.recorder.step(before, event, after, (), now_ms=0, wall_ms=0) == (
        IssueSpent(issue_id="1", spent=Spent(tokens=5)),
        DayRecord(day="2026-01-01", tokens=5),
    )


def test_what_came_from_the_journal_is_not_written_back() -> None:
    state = RecordedStory().state
    assert _steps(state, state.changed(spent={"1": Spent(tokens=5)}), Recovered()) == ()


def test_where_workspaces_are_is_recorded_and_survives_a_restart() -> None:
    state = RecordedStory().state
    there = {"1": RemoteWorkspace(identifier="SYM-1", host="build-1")}
    moved = state.changed(remote_workspaces=there)
    (record,) = _steps(state, moved)
    assert isinstance(record, SettingRecord)
    assert record.name == REMOTE_WORKSPACES
    assert _steps(moved, state) == (SettingRecord(name=REMOTE_WORKSPACES, value=None),)
    start = DaemonStart(now_ms=0, wall_ms=WALL_MS, today="2026-01-01", max_wait_ms=1)
    left = RecoveredState(settings={REMOTE_WORKSPACES: record.value or ""})
    assert recovered_event(left, start).remote_workspaces == there
    unreadable = RecoveredState(settings={REMOTE_WORKSPACES: "[]"})
    assert recovered_event(unreadable, start).remote_workspaces == {}


def test_pause_and_budget_waivers_are_recorded() -> None:
    state = RecordedStory().state
    paused = state.changed(paused=True)
    assert _steps(state, paused) == (SettingRecord(name=PAUSED, value="true"),)
    assert _steps(paused, state) == (SettingRecord(name=PAUSED, value=None),)
    exempt = state.changed(budget_waivers=frozenset({"b", "a"}), day="2026-01-01")
    text = '{"day": "2026-01-01", "issues": ["a", "b"]}'
    assert SettingRecord(name=BUDGET_WAIVERS, value=text) in _steps(state, exempt)
    assert SettingRecord(name=BUDGET_WAIVERS, value=None) in _steps(exempt, state)


def test_budget_waivers_are_recorded_again_when_the_day_changes() -> None:
    state = RecordedStory().state.changed(budget_waivers=frozenset({"a"}), day="2026-01-02")
    text = '{"day": "2026-01-01", "issues": ["a"]}'
    assert SettingRecord(name=BUDGET_WAIVERS, value=text) in _steps(state, state.changed(day="2026-01-01"))
