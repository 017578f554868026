"""From the journal to the first event: the next daemon recovers the claims of the previous one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from harness.journalling import with_claim
from harness.ledger import Ledger
from harness.scheduling import make_issue, make_settings
from kit.facts import changed
from kit.simulator import run_schedule
from symphony.domain import Cost, RunFacts, Spent, Tokens, Usage
from symphony.journal.model import ClaimRecord, RecoveredState, ResultRecord, RunRecord
from symphony.journal.recorder import (
    BUDGET_WAIVERS,
    PAUSED,
    USAGE,
    DaemonStart,
    StepRecorder,
    recovered_event,
)
from symphony.processes.base import Identity
from symphony.scheduler import (
    Blocked,
    ClaimEntry,
    ClaimKind,
    IssueResult,
    Resume,
    ResumeReason,
    Retry,
    Running,
    State,
    StopReason,
    StoredClaim,
    Thread,
    WorkspaceRef,
    initial_state,
    step,
)

US = Identity(boot_id="b", pid=7, started=1.5)
WALL_MS = 1_700_000_000_000
START = DaemonStart(now_ms=500, wall_ms=WALL_MS, today="2026-01-02", max_wait_ms=300_000)
CLAIM = ClaimRecord(
    claim=StoredClaim(issue=make_issue("1"), kind=ClaimKind.RUNNING, run_id="r"), owner=US, since_wall_ms=0
)
RUN = RunRecord(
    run_id="r",
    issue_id="1",
    issue_identifier="SYM-1",
    started_wall_ms=0,
    facts=RunFacts(thread_id="t", turn_count=1, tokens=Tokens(8, 2, 10), workspace_path="/ws/1"),
)


def _claim(claim: ClaimRecord = CLAIM, *runs: RunRecord, start: DaemonStart = START) -> StoredClaim:
    (found,) = recovered_event(RecoveredState(claims=(claim,), live_runs=runs), start).claims
    return found


def test_an_empty_journal_recovers_nothing() -> None:
    place = WorkspaceRef(issue_id="1", identifier="SYM-1", path="/ws/1")
    found = recovered_event(RecoveredState(), START, workspaces=(place,))
    assert (found.claims, found.workspaces, found.day, found.paused) == ((), (place,), "2026-01-02", False)


def test_results_come_back_oldest_first_and_never_later_than_now() -> None:
    def record(issue_id: str, ended_wall_ms: int) -> ResultRecord:
        return ResultRecord(result=IssueResult(issue=make_issue(issue_id)), ended_wall_ms=ended_wall_ms)

    remembered = RecoveredState(results=(record("1", WALL_MS + 9_000), record("2", WALL_MS - 2_000)))
    found = recovered_event(remembered, START).results
    assert [(result.issue.id, result.ended_ms) for result in found] == [("2", -1_500), ("1", 500)]


@pytest.mark.parametrize("text", ["", "{", "7", '{"totals": {"sessions": "many"}}'])
def test_sums_that_cannot_be_read_begin_at_zero_with_the_runs_that_were_cut_off(text: str) -> None:
    run = changed(RUN, session_id="s", cost_usd=0.5)
    found = recovered_event(RecoveredState(settings={USAGE: text}, live_runs=(run,)), START)
    assert found.totals.usage == Usage(tokens=Tokens(8, 2, 10), cost_usd=0.5)
    assert (found.totals.sessions, found.totals.issues, found.known_issues) == (1, 1, frozenset("1"))
    assert found.day_cost == Cost()


# --- threads ---------------------------------------------------------------------------------------------


def test_a_live_run_continues_its_thread() -> None:
    thread = Thread(thread_id="t", tokens=Tokens(8, 2, 10))
    found = _claim(CLAIM, RUN)
    assert found.resume == Resume(reason=ResumeReason.INTERRUPTED, thread=thread)
    assert found.workspace_path == "/ws/1"


def test_tokens_of_the_thread_before_the_run_are_counted() -> None:
    had = Thread(thread_id="t", tokens=Tokens(100, 10, 110))
    given_answer = Resume(reason=ResumeReason.ANSWERED, thread=had, question="?", answer="!")
    thread = Thread(thread_id="t", tokens=Tokens(108, 12, 120))
    found = _claim(with_claim(CLAIM, resume=given_answer), RUN)
    assert found.resume == Resume(reason=ResumeReason.INTERRUPTED, thread=thread)
    other = Resume(reason=ResumeReason.INTERRUPTED, thread=structs.replace(had, thread_id="older"))
    found = _claim(with_claim(CLAIM, resume=other), RUN)
    assert found.resume is not None
    assert found.resume.thread == Thread(thread_id="t", tokens=Tokens(8, 2, 10))


@pytest.mark.parametrize("runs", [(), (changed(RUN, thread_id=None),), (changed(RUN, turn_count=0),)])
def test_an_answer_that_no_turn_received_is_not_lost(runs: tuple[RunRecord, ...]) -> None:
    answered = Resume(reason=ResumeReason.ANSWERED, question="?", answer="!")
    found = _claim(with_claim(CLAIM, resume=answered), *runs).resume
    assert found is not None
    assert (found.reason, found.question, found.answer) == (ResumeReason.ANSWERED, "?", "!")


def test_a_run_without_a_thread_starts_cold() -> None:
    found = _claim(CLAIM, changed(RUN, thread_id=None, turn_count=0))
    assert found.resume == Resume(reason=ResumeReason.INTERRUPTED)


# --- clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("due_in_ms", "whole_ms", "waits_ms"),
    [
        (7_000, 10_000, 7_000),
        (-1_000, 10_000, 0),  # it came due meanwhile, or the clock was set forward
        (86_400_000, 10_000, 10_000),  # the clock was set back
        (86_400_000, 86_400_000, 300_000),  # no retry waits that long
        (7_000, -5, 0),
    ],
)
def test_a_retry_keeps_its_time_within_reason(due_in_ms: int, whole_ms: int, waits_ms: int) -> None:
    due_wall_ms = WALL_MS + due_in_ms
    claim = structs.replace(
        with_claim(CLAIM, kind=ClaimKind.RETRYING, run_id=None, attempt=3),
        due_wall_ms=due_wall_ms,
        since_wall_ms=due_wall_ms - whole_ms,
    )
    found = _claim(claim)
    assert (found.kind, found.attempt, found.due_ms) == (ClaimKind.RETRYING, 3, 500 + waits_ms)


@pytest.mark.parametrize(("ago_ms", "since_ms"), [(0, 500), (400, 100), (90_000, -89_500), (-1, 500)])
def test_a_block_keeps_its_age_and_is_never_in_the_future(ago_ms: int, since_ms: int) -> None:
    claim = structs.replace(
        with_claim(CLAIM, kind=ClaimKind.BLOCKED, run_id=None), since_wall_ms=WALL_MS - ago_ms
    )
    assert _claim(claim).since_ms == since_ms


def test_a_block_keeps_its_start_over_two_restarts() -> None:
    record = structs.replace(
        with_claim(CLAIM, kind=ClaimKind.BLOCKED, run_id=None), since_wall_ms=WALL_MS - 90_000
    )
    ledger = Ledger()
    ledger.take([record])
    for now_ms, wall_ms in ((500, WALL_MS), (70, WALL_MS + 7_000)):
        start = structs.replace(START, now_ms=now_ms, wall_ms=wall_ms)
        before, fact = (
            initial_state(make_settings(), epoch="e"),
            recovered_event(ledger.remembered(), start),
        )
        state, said = step(before, fact, now_ms)
        ledger.take(StepRecorder(US).step(before, fact, state, said, now_ms=now_ms, wall_ms=wall_ms))
        (kept,) = ledger.remembered().claims
        assert kept.since_wall_ms == record.since_wall_ms


# --- budgets and settings --------------------------------------------------------------------------------


def test_budgets_are_those_of_today() -> None:
    held = RecoveredState(
        spent={"1": Spent(tokens=5)},
        days={"2026-01-01": 7, "2026-01-02": 9},
        settings={PAUSED: "true", BUDGET_WAIVERS: '{"day": "2026-01-02", "issues": ["1"]}'},
    )
    found = recovered_event(held, START)
    assert (found.spent, found.day_tokens) == ({"1": Spent(tokens=5)}, 9)
    assert (found.paused, found.budget_waivers) == (True, frozenset({"1"}))
    assert recovered_event(held, structs.replace(START, today="2026-01-03")).budget_waivers == frozenset()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"day": "2026-01-02"}', '{"day": "2026-01-02", "issues": 1}']
)
def test_budget_waivers_that_cannot_be_read_are_ignored(text: str) -> None:
    assert (
        recovered_event(RecoveredState(settings={BUDGET_WAIVERS: text}), START).budget_waivers == frozenset()
    )


# --- whole lives -----------------------------------------------------------------------------------------


def _same(entry: ClaimEntry, claim: StoredClaim) -> bool:
    """Whether a recovered claim equals the claim of the previous daemon."""
    known = (claim.issue, claim.attempt, claim.workspace_path)
    match entry:
        case Running():
            path, stopped = entry.report.facts.workspace_path, entry.stopping is StopReason.OPERATOR
            kind = ClaimKind.BLOCKED if stopped else ClaimKind.RUNNING
            return claim.kind is kind and known == (entry.issue, entry.attempt, path)
        case Retry():
            facts = (
                claim.due_ms,
                claim.error,
                claim.attempts_without_progress,
                claim.failures,
                claim.non_retryable,
            )
            was = (
                entry.due_ms,
                entry.error,
                entry.attempts_without_progress,
                entry.failures,
                entry.non_retryable,
            )
            mine = (entry.issue, entry.attempt, entry.workspace_path)
            return claim.kind is ClaimKind.RETRYING and known == mine and facts == was
        case Blocked():
            facts_of_it = (claim.since_ms, claim.failure, claim.question, claim.has_baseline)
            return claim.kind is ClaimKind.BLOCKED and facts_of_it == (
                entry.blocked_ms,
                entry.failure,
                entry.question,
                entry.has_baseline,
            )


def _entries(state: State) -> dict[str, ClaimEntry]:
    return {**state.running, **state.retrying, **state.blocked}


@given(seed=st.integers(min_value=0, max_value=10**9), cut=st.floats(min_value=0, max_value=1))
@settings(max_examples=60, deadline=None)
def test_after_any_step_a_new_daemon_recovers_the_same_claims(seed: int, cut: float) -> None:
    for life in run_schedule(seed).check().lives:
        ledger, recorder, state, now_ms = Ledger(), StepRecorder(US), life.first, 0
        for now_ms, fact, _ in life.steps[: round(cut * len(life.steps))]:
            before = state
            state, said = step(before, fact, now_ms)
            wall_ms = WALL_MS + now_ms
            ledger.take(recorder.step(before, fact, state, said, now_ms=now_ms, wall_ms=wall_ms))
        anew = Ledger()
        anew.take(recorder.snapshot(now_ms=now_ms, wall_ms=WALL_MS + now_ms) or ())
        start = DaemonStart(now_ms=now_ms, wall_ms=WALL_MS + now_ms, today="2026-01-02", max_wait_ms=10**9)
        entries = _entries(state)
        overdue = {
            key: replace(entry, due_ms=now_ms)
            for key, entry in state.retrying.items()
            if entry.due_ms < now_ms
        }
        for known in (ledger, anew):
            recovered = {claim.issue.id: claim for claim in recovered_event(known.remembered(), start).claims}
            assert recovered.keys() == entries.keys()
            assert all(_same(overdue.get(key, entry), recovered[key]) for key, entry in entries.items())
            assert {run.run_id for run in known.live} == {run.run_id for run in state.running.values()}
