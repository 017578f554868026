"""The rules of a claim, one row each: given, when, then (specification 7.1-7.3, 8.2-8.5).

Read a row as: an issue whose claim is `given`; then `when` happens; afterwards its claim is `claim`, the
scheduler has said `says` (log lines left out) and `waits` for these timers of the issue, with their wait in
ms. A question to the tracker is answered from the board at once, unless `when` says otherwise.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Category
from symphony.scheduler import (
    Claim,
    ClaimKind,
    CleanWorkspace,
    Command,
    ContinueRun,
    DayBegan,
    DrainAsked,
    Exit,
    FetchCandidates,
    FinishRun,
    IssueComment,
    MoveIssue,
    Notify,
    OperatorAction,
    OperatorAsked,
    OutcomeKind,
    PostComment,
    PushBranch,
    ReadAnswers,
    Recovered,
    RefreshIssues,
    RunStage,
    SetTimer,
    SettingsChanged,
    StartRun,
    StopAsked,
    StopRun,
    StoredClaim,
    TimerKind,
    WakeAsked,
    WorkflowRejected,
    claim_of,
)

Given = Callable[[], Story]
When = Callable[[Story], object]
ERROR = "turn_failed: it broke"


# --- given -----------------------------------------------------------------------------------------------


def a_new_issue() -> Story:
    """The daemon has polled an empty board, and then somebody makes issue 1."""
    story = Story(poll_interval_ms=30_000).begin()
    story.board["1"] = make_issue()
    return story


def a_run(**settings: object) -> Story:
    """Issue 1 has an agent in its first turn; nothing else is due for a long time."""
    return Story(make_issue(), **{"poll_interval_ms": 10_000_000} | settings).begin().streams()


def a_run_in_a_hook() -> Story:
    return Story(make_issue(), poll_interval_ms=10_000_000, stall_timeout_ms=1_000).begin()


def a_run_that_used_a_tool() -> Story:
    return a_run().streams(tool_calls=1)


def a_run_with_short_patience() -> Story:
    return a_run(stall_timeout_ms=1_000)


def a_run_without_patience() -> Story:
    return a_run(stall_timeout_ms=0)


def a_last_turn() -> Story:
    return a_run(max_turns=1)


def a_run_between_turns() -> Story:
    """The turn ended, and the tracker has not answered yet."""
    story = a_run()
    story.slow = True
    return story.turn_ends()


def a_stop(state: str | None) -> Given:
    """A run that is being stopped because its issue is in this state, or gone."""

    def given() -> Story:
        story = a_run()
        on_the_board(state)(story)
        return story

    return given


def a_stall() -> Story:
    return a_run_with_short_patience().advance(1_001)


def a_continuation_run() -> Story:
    return a_run().ends().advance(1_000).streams()


def a_continuation() -> Story:
    """The last attempt ended well; in a second the tracker is asked whether there is more to do."""
    return a_run().ends()


def a_retry() -> Story:
    """Attempt 1 is due in ten seconds."""
    return a_run().fails()


def a_block() -> Story:
    """A person is waited for, and the board was read once since."""
    failure = make_failure("which colour?", category=Category.TURN_INPUT_REQUIRED)
    story = a_run().ends(kind=OutcomeKind.INPUT_REQUIRED, failure=failure)
    wake(story)
    return story


def a_paused_retry() -> Story:
    story = a_retry()
    asked(OperatorAction.PAUSE)(story)
    return story


def a_run_that_the_daemon_leaves() -> Story:
    """The daemon was asked to end, and the run to stop."""
    story = a_run()
    told(DrainAsked(), StopAsked())(story)
    return story


def a_run_that_an_operator_stops() -> Story:
    story = a_run()
    asked(OperatorAction.STOP)(story)
    return story


def a_run_over_its_tokens() -> Story:
    return a_run(max_tokens_per_issue=100).streams(total_tokens=100)


def a_run_over_its_turns() -> Story:
    return a_run(max_turns_per_issue=1).streams(turn_count=1)


def a_run_over_the_day() -> Story:
    return a_run(max_tokens_per_day=100).streams(total_tokens=100)


def a_retry_over_its_tokens() -> Story:
    return a_run(max_tokens_per_issue=100).report(stage=RunStage.FINISHING, total_tokens=100).fails()


def a_budget_block() -> Story:
    story = a_run_over_its_tokens().ends(kind=OutcomeKind.CANCELED)
    wake(story)
    return story


def a_day_block() -> Story:
    story = a_run_over_the_day()
    story.tell(DayBegan(day="2025-01-01"))
    return story.turn_ends().ends()


def an_open_circuit() -> Story:
    """The tracker failed twice in a row while issue 1 has an agent in its first turn."""
    story = a_run()
    story.slow = True
    wake(story)
    story.fail_refresh()
    story.fail_poll()
    story.advance(2_000)
    wake(story)
    story.fail_refresh()
    return story


# --- when ------------------------------------------------------------------------------------------------


def wake(story: Story) -> None:
    story.tell(WakeAsked(reason="test"))


def on_the_board(state: str | None, **changes: object) -> When:
    """Somebody changes the issue, or removes it with null, and a tick sees it."""

    def when(story: Story) -> None:
        _edit(story, state, **changes)
        wake(story)

    return when


def _edit(story: Story, state: str | None, **changes: object) -> None:
    if state is None:
        del story.board["1"]
    else:
        story.put("1", state=state, **changes)


def comes_due(state: str | None = "Todo", **changes: object) -> When:
    """The retry timer fires when the issue is in this state, or gone."""

    def when(story: Story) -> None:
        _edit(story, state, **changes)
        story.advance(story.state.retrying["1"].due_ms - story.now)

    return when


def comes_due_without_a_slot(story: Story) -> None:
    limits = {"todo": 0}
    story.tell(SettingsChanged(settings=make_settings(max_concurrent_by_state=limits)))
    comes_due()(story)


def comes_due_in_vain(story: Story) -> None:
    """The timer fires and the tracker does not answer."""
    story.slow = True
    comes_due()(story)
    story.fail_refresh()


def comes_due_under_a_broken_workflow(story: Story) -> None:
    story.tell(WorkflowRejected(failure=make_failure()))
    comes_due()(story)


def comes_due_and_changes_meanwhile(story: Story) -> None:
    """The issue is over by the time the question that the timer asked is answered."""
    story.slow = True
    comes_due()(story)
    story.put("1", state="Done")
    story.answer()


def polled_and_changed(state: str | None) -> When:
    """A poll finds the issue; before the question that guards the start is answered, it changes."""

    def when(story: Story) -> None:
        story.slow = True
        wake(story)
        story.answer_poll()
        _edit(story, state)
        story.answer()

    return when


def polled_and_not_answered(story: Story) -> None:
    story.slow = True
    wake(story)
    story.answer_poll()
    story.fail_refresh()


def a_tick_in_vain(story: Story) -> None:
    """Neither the refresh of a tick nor its poll is answered."""
    story.slow = True
    wake(story)
    story.fail_refresh()
    story.fail_poll()


def turn_ends(state: str | None = "Todo", **changes: object) -> When:
    def when(story: Story) -> None:
        _edit(story, state, **changes)
        story.turn_ends()

    return when


def answers(state: str | None) -> When:
    """The question of the end of the turn is answered: the issue is in this state, or gone."""

    def when(story: Story) -> None:
        _edit(story, state)
        story.answer()

    return when


def gets_no_answer(story: Story) -> None:
    story.fail_refresh()


def ends(kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> When:
    failure = None if kind is OutcomeKind.SUCCEEDED else make_failure()
    return lambda story: story.ends(kind=kind, failure=failure)


def silence(duration_ms: int) -> When:
    return lambda story: story.advance(duration_ms)


def recovered(kind: ClaimKind, **fields: Any) -> When:
    """A successor is told of this claim, and its timers that are due fire."""

    def when(story: Story) -> None:
        claim = StoredClaim(issue=story.board["1"], kind=kind, **fields)
        story.tell(Recovered(claims=(claim,)))
        story.advance(0)

    return when


def asked(verb: OperatorAction, text: str | None = None) -> When:
    """An operator asks, and what comes due by that comes due."""

    def when(story: Story) -> None:
        story.tell(OperatorAsked(action=verb, issue_id="1", text=text))
        story.advance(0)

    return when


def limits(**limits: int) -> When:
    def when(story: Story) -> None:
        story.tell(SettingsChanged(settings=make_settings(**limits)))
        story.advance(0)

    return when


def a_day_begins(story: Story) -> None:
    story.tell(DayBegan(day="2025-01-02"))
    story.advance(0)


def reports(**changes: Any) -> When:
    return lambda story: story.streams(**changes)


def a_comment(*, stranger: bool = False) -> When:
    """Somebody comments on the issue, and the daemon is woken."""

    def when(story: Story) -> None:
        written = {"1": (IssueComment(id="c1", author="ann", text="blue"),)}
        (story.others if stranger else story.answers).update(written)
        wake(story)
        story.advance(0)

    return when


def told(*facts: DrainAsked | StopAsked) -> When:
    def when(story: Story) -> None:
        for fact in facts:
            story.tell(fact)

    return when


# --- the rules -------------------------------------------------------------------------------------------

R, S, T, B, U = Claim.RUNNING, Claim.STOPPING, Claim.RETRYING, Claim.BLOCKED, Claim.UNCLAIMED
OVER = OutcomeKind.CANCELED
ASKS = OutcomeKind.INPUT_REQUIRED
SECOND, TEN, TWENTY = "retry in 1000", "retry in 10000", "retry in 20000"
NO_ANSWER = "retry refresh failed: no answer"
NO_SLOT = "no available orchestrator slots"
STALLED = "stalled: the agent gave no sign of life within codex.stall_timeout_ms"
LEFT = "finish refresh_failed: issue state refresh error: no answer"


def row(
    conformance: str,
    rule: str,
    given: Given,
    when: When,
    claim: Claim,
    says: str = "",
    waits: str = "",
    error: str | None = None,
) -> ParameterSet:
    """One rule; `error` is the reason that a waiting claim shows."""
    marks = [pytest.mark.conformance(conformance)] if conformance else []
    return pytest.param(given, when, claim, says, waits, error, id=rule, marks=marks)


# A table is read by line: rule; given, when, claim; what is said; what is waited for; the reason shown.
# fmt: off
ROWS = [
    # a tick and its poll
    row("S-20", "an issue that a poll finds is asked for once more, and starts",
        a_new_issue, wake, R, "poll | refresh | start"),
    row("S-20", "SC9: ended meanwhile, it does not start",
        a_new_issue, polled_and_changed("Done"), U, "poll | refresh"),
    row("S-20", "SC9: gone meanwhile, it does not start",
        a_new_issue, polled_and_changed(None), U, "poll | refresh"),
    row("S-20", "SC9: without an answer it waits for the next tick",
        a_new_issue, polled_and_not_answered, U, "poll | refresh"),
    row("S-7", "a tick without answers keeps the worker",
        a_run, a_tick_in_vain, R, "refresh | poll"),
    row("", "a tick leaves a waiting retry alone",
        a_retry, wake, T, "poll", "", ERROR),
    row("S-18", "a tick without answers keeps the block",
        a_block, a_tick_in_vain, B, "answers | refresh | poll"),

    # the end of a worker
    row("S-8", "a good end is looked at again after a second, as attempt 1",
        a_run, ends(), T, "", SECOND),
    row("S-9", "a first failure waits ten seconds",
        a_run, ends(OutcomeKind.FAILED), T, "", TEN, ERROR),
    row("S-9", "a timeout is a failure",
        a_run, ends(OutcomeKind.TIMED_OUT), T, "", TEN, ERROR),
    row("S-9", "RT4: the failure of a continuation is attempt 2",
        a_continuation_run, ends(OutcomeKind.FAILED), T, "", TWENTY, ERROR),
    row("S-8", "RT5: a good end starts the count anew",
        a_continuation_run, ends(), T, "", SECOND),
    row("S-18", "SM7: who asks for a person is blocked",
        a_run, ends(ASKS), B, "note | refresh"),
    row("S-18", "SM7: a stalled worker that asks for a person is blocked",
        a_stall, ends(ASKS), B, "note | refresh"),
    row("S-11", "a stalled worker is retried",
        a_stall, ends(OVER), T, "", TEN, STALLED),
    row("S-6", "SC13: the workspace goes when the worker is gone",
        a_stop("Done"), ends(OVER), U, "clean /ws/1"),
    row("S-6", "SC13: an ended issue is released however its worker ends",
        a_stop("Done"), ends(OutcomeKind.FAILED), U, "clean /ws/1"),
    row("S-5", "an inactive issue keeps its workspace",
        a_stop("Backlog"), ends(OVER), U),
    row("S-5", "a missing issue keeps its workspace",
        a_stop(None), ends(OVER), U),

    # a fresh snapshot of what runs
    row("S-6", "SC12: terminal, stop; cleaned later",
        a_run, on_the_board("Done"), S, "refresh | stop terminal | poll"),
    row("S-6", "SC12: terminal is asked before routable",
        a_run, on_the_board("Done", dispatchable=False), S, "refresh | stop terminal | poll"),
    row("S-5", "SC12: not routable, stop",
        a_run, on_the_board("Todo", dispatchable=False), S, "refresh | stop unroutable | poll"),
    row("S-5", "SC12: routable is asked before active",
        a_run, on_the_board("Backlog", dispatchable=False), S, "refresh | stop unroutable | poll"),
    row("S-5", "SC12: neither active nor terminal, stop",
        a_run, on_the_board("Backlog"), S, "refresh | stop inactive | poll"),
    row("S-5", "SC12: gone, stop",
        a_run, on_the_board(None), S, "refresh | stop missing | poll"),
    row("S-4", "SC12: active, go on with the new snapshot",
        a_run, on_the_board("In Progress"), R, "refresh | poll"),
    row("S-6", "SC13: a run is stopped once",
        a_stop("Done"), on_the_board("Backlog"), S, "poll"),
    row("", "a session that moved its own issue may end its turn",
        a_run_that_used_a_tool, on_the_board("Done"), R, "refresh | poll", "grace in 30000"),

    # between two turns
    row("A-16", "AG8: still active, one more turn on the same thread",
        a_run, turn_ends(), R, "refresh | turn 2"),
    row("", "AG8: ended, no further turn",
        a_run, turn_ends("Done"), R, "refresh | finish inactive"),
    row("", "AG8: not routable, no further turn",
        a_run, turn_ends(dispatchable=False), R, "refresh | finish inactive"),
    row("", "AG8: gone, no further turn",
        a_run_between_turns, answers(None), R, "finish inactive"),
    row("A-16", "AG8: the last turn that is allowed",
        a_last_turn, turn_ends(), R, "refresh | finish max_turns"),
    row("", "AG8: no answer, the worker fails",
        a_run_between_turns, gets_no_answer, R, LEFT),

    # a retry comes due
    row("S-13", "RT6: active, dispatch with the attempt of the entry",
        a_retry, comes_due(), R, "refresh | start attempt 1"),
    row("S-13", "RT6: a continuation is attempt 1 too",
        a_continuation, comes_due(), R, "refresh | start attempt 1"),
    row("S-13", "RT6: terminal, clean and release",
        a_retry, comes_due("Done"), U, "refresh | clean /ws/1"),
    row("S-13", "RT6: missing, release",
        a_retry, comes_due(None), U, "refresh"),
    row("S-13", "RT6: not active, release",
        a_retry, comes_due("Backlog"), U, "refresh"),
    row("S-13", "RT6: not routable, release",
        a_retry, comes_due(dispatchable=False), U, "refresh"),
    row("S-13", "RT6: no answer, the next attempt waits longer",
        a_retry, comes_due_in_vain, T, "refresh", TWENTY, NO_ANSWER),
    row("S-12", "RT6: no slot, the next attempt waits longer",
        a_retry, comes_due_without_a_slot, T, "refresh", TWENTY, NO_SLOT),
    row("S-12", "RT6: a continuation without a slot waits by the failure formula",
        a_continuation, comes_due_without_a_slot, T, "refresh", TWENTY, NO_SLOT),
    row("S-20", "RT7: changed meanwhile, RT6 on the new snapshot",
        a_retry, comes_due_and_changes_meanwhile, U, "refresh | clean /ws/1"),
    row("S-15", "CF7: a broken workflow keeps it waiting, with its number",
        a_retry, comes_due_under_a_broken_workflow, T, "refresh", "retry in 10000000", ERROR),

    # silence
    row("S-11", "SC11: silence of exactly the limit",
        a_run_with_short_patience, silence(1000), R),
    row("S-11", "SC11: silence beyond the limit",
        a_run_with_short_patience, silence(1001), S, "stop stalled"),
    row("S-11", "SC11: no limit",
        a_run_without_patience, silence(9000000), R),
    row("S-11", "SC11: hooks are not silence",
        a_run_in_a_hook, silence(9000000), R),

    # recovery
    row("", "RT9: what ran goes on at once as the same attempt",
        a_new_issue, recovered(ClaimKind.RUNNING, attempt=3), R, "poll | refresh | start attempt 3"),
    row("", "RT9: a retry keeps its number and its time",
        a_new_issue, recovered(ClaimKind.RETRYING, attempt=3, due_ms=7_000, error=ERROR), T,
        "poll", "retry in 7000", ERROR),
    row("", "SM7: a block stays, and is told in the same words",
        a_new_issue, recovered(ClaimKind.BLOCKED, failure=make_failure()), B, "note | refresh | poll"),
    row("", "SM7: a block whose reason is lost says nothing over what was said",
        a_new_issue, recovered(ClaimKind.BLOCKED), B, "refresh | poll"),
    row("", "SM3: what is claimed already stays as it is",
        a_run, recovered(ClaimKind.RETRYING, attempt=3), R, "refresh | poll"),

    # budgets
    row("", "used-up tokens stop a turn",
        partial(a_run, max_tokens_per_issue=100), reports(total_tokens=100), S, "stop budget"),
    row("", "a run that its budget stopped blocks its issue",
        a_run_over_its_tokens, ends(OVER), B, "note | refresh"),
    row("", "used-up turns end a run between turns",
        a_run_over_its_turns, turn_ends(), R, "refresh | finish budget"),
    row("", "a used-up day lets the turn go on",
        partial(a_run, max_tokens_per_day=100), reports(total_tokens=100), R),
    row("", "a used-up day ends a run between turns",
        a_run_over_the_day, turn_ends(), R, "refresh | finish budget"),
    row("", "a retry whose budget is used up is blocked",
        a_retry_over_its_tokens, comes_due(), B, "refresh | note | refresh"),
    row("", "a new day lets go on",
        a_day_block, a_day_begins, R, "refresh | start attempt 1"),
    row("", "a new day is nothing to a budget of the issue",
        a_budget_block, a_day_begins, B),
    row("", "a raised limit lets go on",
        a_budget_block, limits(max_tokens_per_issue=101), R, "refresh | start attempt 1"),
    row("", "a limit that is raised too little does not",
        a_budget_block, limits(max_tokens_per_issue=100), B),
    row("", "a change of the issue counts its budget anew",
        a_budget_block, on_the_board("Todo", title="Again"), R, "refresh | poll | refresh | start"),

    # an operator
    row("", "stop: a run ends in mid-turn",
        a_run, asked(OperatorAction.STOP), S, "stop operator"),
    row("", "stop: then a person is waited for",
        a_run_that_an_operator_stops, ends(OVER), B, "note | refresh"),
    row("", "stop: a waiting retry is given up",
        a_retry, asked(OperatorAction.STOP), B, "note | refresh"),
    row("", "retry: a waiting retry comes due",
        a_retry, asked(OperatorAction.RETRY), R, "refresh | start attempt 1"),
    row("", "retry: a blocked issue goes on",
        a_block, asked(OperatorAction.RETRY), R, "refresh | start attempt 1"),
    row("", "retry: a used-up budget is in the way",
        a_budget_block, asked(OperatorAction.RETRY), B),
    row("", "unblock: a blocked issue goes on with a new budget",
        a_budget_block, asked(OperatorAction.UNBLOCK), R, "refresh | start attempt 1"),
    row("", "unblock: what is not blocked stays as it is",
        a_retry, asked(OperatorAction.UNBLOCK), T, "", "", ERROR),
    row("S-18", "answer: a question is answered",
        a_block, asked(OperatorAction.ANSWER, "blue"), R, "refresh | start attempt 1"),
    row("S-18", "answer: nothing is no answer",
        a_block, asked(OperatorAction.ANSWER, " "), B),
    row("S-18", "answer: a comment of a person answers the question",
        a_block, a_comment(), R, "answers | refresh | poll | refresh | start attempt 1"),
    row("S-18", "answer: a comment of a stranger does not",
        a_block, a_comment(stranger=True), B, "answers | refresh | poll"),
    row("", "pause: what runs goes on",
        a_run, asked(OperatorAction.PAUSE), R),
    row("", "pause: a due retry waits with its number",
        a_paused_retry, comes_due(), T, "refresh", "retry in 10000000", ERROR),
    row("", "drain: a turn may end however long it takes",
        a_run, asked(OperatorAction.DRAIN), R),

    # circuit breaker
    row("S-7", "an open circuit keeps the worker and asks nothing",
        an_open_circuit, wake, R),
    row("", "AG8: a turn that ends during a pause waits for its end",
        an_open_circuit, turn_ends(), R),

    # waiting for a person
    row("S-18", "SM7: terminal, clean and release",
        a_block, on_the_board("Done"), U, "answers | refresh | clean /ws/1 | poll"),
    row("S-18", "SM7: not active, release",
        a_block, on_the_board("Backlog"), U, "answers | refresh | poll"),
    row("S-18", "SM7: not routable, release",
        a_block, on_the_board("Todo", dispatchable=False), U, "answers | refresh | poll"),
    row("S-18", "SM7: missing, release",
        a_block, on_the_board(None), U, "answers | refresh | poll"),
    row("S-18", "RT5: a changed label, release and start anew",
        a_block, on_the_board("Todo", labels=("go",)), R, "answers | refresh | poll | refresh | start"),
    row("S-18", "RT5: another state that is active, release and start anew",
        a_block, on_the_board("In Progress"), R, "answers | refresh | poll | refresh | start"),
    row("S-18", "RT5: nothing that matters changed",
        a_block, on_the_board("Todo", priority=1), B, "answers | refresh | poll"),

    # the way out
    row("S-21", "SC16: a drain lets a turn end",
        a_run, told(DrainAsked()), R),
    row("S-21", "SC16: a drain stops what has no turn yet",
        a_run_in_a_hook, told(DrainAsked()), S, "stop draining"),
    row("S-21", "SC16: a drain gives no further turn",
        a_run_between_turns, told(DrainAsked()), R, "finish draining"),
    row("S-21", "CL6: a second signal stops at once",
        a_run, told(DrainAsked(), StopAsked()), S, "stop draining"),
    row("S-21", "SC16: a run that was stopped for it is left to the successor",
        a_run_that_the_daemon_leaves, ends(OVER), T, "exit"),
    row("S-21", "SC16: who asks a person is blocked on the way out too",
        a_run_that_the_daemon_leaves, ends(ASKS), B, "note | exit"),
    row("S-21", "SC16: a retry does not start on the way out",
        a_retry, told(DrainAsked()), T, "exit", "", ERROR),
]
# fmt: on


def _words(command: Command) -> str:  # noqa: C901, PLR0911, PLR0912 - one line per kind of command
    match command:
        case FetchCandidates():
            return "poll"
        case RefreshIssues():
            return "refresh"
        case StartRun(attempt=attempt):
            return "start" if attempt is None else f"start attempt {attempt}"
        case ContinueRun(turn=turn):
            return f"turn {turn}"
        case FinishRun(reason=reason, failure=failure):
            return f"finish {reason}" if failure is None else f"finish {reason}: {failure.message}"
        case StopRun(reason=reason):
            return f"stop {reason}"
        case CleanWorkspace(path=path):
            return f"clean {path}"
        case PostComment():
            return "note"
        case PushBranch(branch=branch):
            return f"push {branch}"
        case ReadAnswers():
            return "answers"
        case MoveIssue(state=state, reason=reason):
            return f"move to {state}: {reason}"
        case Exit():
            return "exit"
        case SetTimer() | Notify():
            return ""


def _waits(story: Story) -> str:
    """The timers that were set since `when`, are still live and concern the issue or its run."""
    kinds = {TimerKind.RETRY, TimerKind.GRACE}
    live = [one for one in story.said(SetTimer) if story.state.timers.get(one.timer) == one]
    return " | ".join(
        f"{one.timer.kind} in {one.due_ms - story.now}" for one in live if one.timer.kind in kinds
    )


@pytest.mark.parametrize(("given", "when", "claim", "says", "waits", "error"), ROWS)
def test_rule(given: Given, when: When, claim: Claim, says: str, waits: str, error: str | None) -> None:
    story = given().forget()
    when(story)
    assert claim_of(story.state, "1") is claim
    assert " | ".join(filter(None, map(_words, story.told))) == says
    assert _waits(story) == waits
    retry = story.state.retrying.get("1")
    assert (retry.error if retry else None) == error
