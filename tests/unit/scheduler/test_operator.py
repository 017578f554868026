"""What an operator asks for: judged in advance, judged again on arrival, carried out once."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Category, Spent, Tokens
from symphony.scheduler import (
    ClaimKind,
    CleanWorkspace,
    ContinueRun,
    DayBegan,
    DrainAsked,
    FetchCandidates,
    FinishReason,
    FinishRun,
    Ineligible,
    OperatorAction,
    OperatorAsked,
    Outcome,
    OutcomeKind,
    PostComment,
    ReasonCode,
    Recovered,
    Resume,
    ResumeReason,
    RunEnded,
    RunStage,
    SettingsChanged,
    StartRun,
    StopReason,
    StopRun,
    StoredClaim,
    Thread,
    WakeAsked,
    already_done,
    eligibility,
    refusal,
)
from symphony.scheduler.runs import no_progress, stopped_by_operator

FAR = 10_000_000
THREAD = Thread(thread_id="t-1", tokens=Tokens(total_tokens=70))


def _running(**settings: Any) -> Story:
    story = Story(make_issue(), **{"poll_interval_ms": FAR} | settings).begin()
    return story.streams(thread_id="t-1", total_tokens=70, turn_count=1).forget()


def _retrying() -> Story:
    return _running().fails().forget()


def _asking(question: str | None = "Red or ```blue```?") -> Story:
    story = _running()
    failure = make_failure("the agent asks a person", category=Category.TURN_INPUT_REQUIRED)
    outcome = Outcome(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, question=question)
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    return story


def _stopped() -> Story:
    story = _running()
    _ask(story, OperatorAction.STOP)
    return story.ends(kind=OutcomeKind.CANCELED)


def _over_budget() -> Story:
    return _running(max_tokens_per_issue=70).ends(kind=OutcomeKind.CANCELED)


def _idle() -> Story:
    return _running(max_attempts_without_progress=1).fails(progress=False)


def _ask(story: Story, verb: OperatorAction, issue_id: str | None = "1", text: str | None = None) -> None:
    story.tell(OperatorAsked(action=verb, issue_id=issue_id, text=text))


def _code(
    story: Story, verb: OperatorAction, issue_id: str | None = "1", text: str | None = None
) -> str | None:
    refused = refusal(story.state, verb, issue_id, text)
    return refused.code if refused else None


def _draining() -> Story:
    story = _running()
    story.tell(DrainAsked())
    return story


def _paused() -> Story:
    story = _running()
    _ask(story, OperatorAction.PAUSE, None)
    return story


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "verb", "issue_id", "text", "code"),
    [
        (_running, OperatorAction.STOP, "1", None, None),
        (_retrying, OperatorAction.STOP, "1", None, None),
        (_stopped, OperatorAction.STOP, "1", None, "not_running"),
        (_running, OperatorAction.STOP, "2", None, "not_running"),
        (_running, OperatorAction.STOP, None, None, "not_running"),
        (_retrying, OperatorAction.RETRY, "1", None, None),
        (_stopped, OperatorAction.RETRY, "1", None, None),
        (_running, OperatorAction.RETRY, "1", None, "running"),
        (_running, OperatorAction.RETRY, "2", None, "not_waiting"),
        (_over_budget, OperatorAction.RETRY, "1", None, "budget_used"),
        (_over_budget, OperatorAction.UNBLOCK, "1", None, None),
        (_retrying, OperatorAction.UNBLOCK, "1", None, "not_blocked"),
        (_asking, OperatorAction.ANSWER, "1", "blue", None),
        (_asking, OperatorAction.ANSWER, "1", " \n", "empty_answer"),
        (_asking, OperatorAction.ANSWER, "1", None, "empty_answer"),
        (_stopped, OperatorAction.ANSWER, "1", "blue", "no_question"),
        (_running, OperatorAction.ANSWER, "1", "blue", "no_question"),
        (_running, OperatorAction.PAUSE, None, None, None),
        (_paused, OperatorAction.RESUME, None, None, None),
        (_running, OperatorAction.DRAIN, None, None, None),
    ],
)
def test_an_action_is_checked_in_advance_and_again_on_arrival(
    given: Any, verb: OperatorAction, issue_id: str | None, text: str | None, code: str | None
) -> None:
    story = given().forget()
    assert _code(story, verb, issue_id, text) == code
    before = story.state
    _ask(story, verb, issue_id, text)
    refused = story.notices("operator_refused")
    assert bool(refused) is (code is not None)
    if code is None:
        assert [notice.fields for notice in story.notices("operator_asked")] == [{"verb": verb.value}]
        assert story.state != before
    else:
        assert story.state == before
        assert story.told == refused


@pytest.mark.parametrize(
    ("given", "verb", "so"),
    [
        (_running, OperatorAction.PAUSE, False),
        (_paused, OperatorAction.PAUSE, True),
        (_paused, OperatorAction.RESUME, False),
        (_running, OperatorAction.RESUME, True),
        (_running, OperatorAction.DRAIN, False),
        (_draining, OperatorAction.DRAIN, True),
        (_running, OperatorAction.STOP, False),
    ],
)
def test_an_action_on_the_daemon_may_be_repeated(given: Any, verb: OperatorAction, *, so: bool) -> None:
    story = given().forget()
    before = story.state
    assert already_done(before, verb) is so
    _ask(story, verb, "1" if verb is OperatorAction.STOP else None)
    assert not story.notices("operator_refused")
    assert (story.state == before) is so


def test_a_run_that_is_being_stopped_is_not_stopped_again() -> None:
    story = _running()
    _ask(story, OperatorAction.STOP)
    refused = refusal(story.state, OperatorAction.STOP, "1")
    assert refused is not None
    assert refused.message == "the run is being stopped already: a person stopped it"


def test_a_refusal_says_what_to_do_instead() -> None:
    refused = refusal(_over_budget().state, OperatorAction.RETRY, "1")
    assert refused is not None
    assert "max_tokens_per_issue" in refused.message
    assert "symphony unblock SYM-1" in (refused.hint or "")


# --- stop ------------------------------------------------------------------------------------------------


def test_stop_ends_the_run_and_blocks_the_issue_until_a_person_acts() -> None:
    story = _running()
    _ask(story, OperatorAction.STOP)
    assert [stop.reason for stop in story.said(StopRun)] == [StopReason.OPERATOR]
    assert story.state.running, "its processes may still be alive"
    story.ends(kind=OutcomeKind.CANCELED)
    failure = story.state.blocked["1"].failure
    assert failure.category is Category.STOPPED_BY_OPERATOR
    assert failure.hint == "run `symphony retry SYM-1` or `symphony unblock SYM-1`"
    (note,) = story.said(PostComment)
    assert note.body == (
        "Symphony stopped working on this issue:\n\n```text\nan operator stopped it\n```\n\n"
        "To continue:\n\n```text\nrun `symphony retry SYM-1` or `symphony unblock SYM-1`\n```"
    )
    story.advance(FAR)
    assert not story.said(StartRun)


def test_stop_gives_up_a_retry() -> None:
    story = _retrying()
    _ask(story, OperatorAction.STOP)
    assert story.state.blocked["1"].attempt == 1
    assert not story.state.retrying
    story.advance(FAR)
    assert not story.said(StartRun)


def test_a_stop_is_not_undone_by_the_sessions_own_changes_of_the_issue() -> None:
    story = _running()
    story.put("1", state="In Progress")
    _ask(story, OperatorAction.STOP)
    story.ends(kind=OutcomeKind.CANCELED).advance(FAR)
    assert story.state.blocked.keys() == {"1"}


def _stopped_run(**settings: Any) -> Story:
    story = _running(**settings)
    _ask(story, OperatorAction.STOP)
    story.ends(kind=OutcomeKind.CANCELED).advance(0)
    return story.forget()


def _reload(story: Story, **settings: Any) -> None:
    story.tell(SettingsChanged(settings=make_settings(**{"poll_interval_ms": FAR} | settings)))
    story.tell(WakeAsked(reason="t"))
    story.advance(1_000)


@pytest.mark.parametrize(
    "change",
    [
        {"active_states": frozenset({"in progress"})},
        {"terminal_states": frozenset({"todo", "done"})},
        {"active_states": frozenset(), "terminal_states": frozenset({"todo"})},
        {"required_labels": ("x",)},
        {"on_block": "Todo"},
        {"on_block": "Blocked"},
        {"on_start": "In Progress"},
        {"agent": "claude"},
    ],
    ids=["inactive", "terminal", "no-state", "labels", "block-here", "block-there", "start", "agent"],
)
@pytest.mark.parametrize("settled", [False, True])
def test_a_stop_outlasts_a_change_of_the_settings_and_its_reversal(
    change: dict[str, Any], *, settled: bool
) -> None:
    story = _running()
    story.slow = not settled
    _ask(story, OperatorAction.STOP)
    story.ends(kind=OutcomeKind.CANCELED).forget()
    story.slow = False
    for settings in (change, {}):
        _reload(story, **settings)
        assert story.state.blocked.keys() == {"1"}
        assert not story.said(StartRun)
        assert not story.said(CleanWorkspace)


@pytest.mark.parametrize(
    "change",
    [{"title": "Another"}, {"description": "More"}, {"labels": ("x",)}, {"dispatchable": False}, None],
    ids=["title", "description", "labels", "not-dispatchable", "lost"],
)
def test_a_stop_outlasts_edits_of_the_issue_and_a_tracker_that_loses_it_for_a_while(
    change: dict[str, Any] | None,
) -> None:
    story = _stopped_run()
    issue = story.board["1"]
    if change is None:
        del story.board["1"]
    else:
        story.put("1", **change)
    _reload(story)
    story.board["1"] = issue
    _reload(story)
    assert story.state.blocked.keys() == {"1"}
    assert not story.said(StartRun)


@pytest.mark.parametrize(
    ("state", "started", "cleaned"),
    [("In Progress", 1, 0), ("Human Review", 0, 0), ("Done", 0, 1)],
)
def test_a_person_who_moves_a_stopped_issue_ends_the_stop(state: str, started: int, cleaned: int) -> None:
    story = _stopped_run()
    story.put("1", state=state)
    _reload(story)
    assert not story.state.blocked
    assert (len(story.said(StartRun)), len(story.said(CleanWorkspace))) == (started, cleaned)


@pytest.mark.parametrize("action", [OperatorAction.RETRY, OperatorAction.UNBLOCK])
def test_an_operator_who_continues_a_stopped_issue_ends_the_stop(action: OperatorAction) -> None:
    story = _stopped_run()
    _reload(story, required_labels=("x",))
    _reload(story)
    _ask(story, action)
    story.advance(0)
    assert len(story.said(StartRun)) == 1


def test_a_stop_wins_over_a_question_that_crosses_it() -> None:
    story = _running()
    _ask(story, OperatorAction.STOP)
    failure = make_failure("the agent asks", category=Category.TURN_INPUT_REQUIRED)
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, question="Which?")
    assert story.state.blocked["1"].failure.category is Category.STOPPED_BY_OPERATOR


@pytest.mark.parametrize(("has_baseline", "expected"), [(False, {"1"}), (True, set())])
def test_only_a_move_after_the_stop_ends_it_over_a_restart(expected: set[str], *, has_baseline: bool) -> None:
    story = Story(make_issue(state="In Progress"), poll_interval_ms=FAR)
    issue = make_issue(state="Todo")
    claim = StoredClaim(
        issue=issue,
        kind=ClaimKind.BLOCKED,
        failure=stopped_by_operator(issue),
        has_baseline=has_baseline,
    )
    story.tell(Recovered(claims=(claim,)))
    assert set(story.state.blocked) == expected


def test_a_stop_that_crosses_the_end_of_the_run_changes_nothing() -> None:
    story = _running()
    story.put("1", state="Done")
    story.ends().advance(1_000)
    _ask(story, OperatorAction.STOP)
    assert story.notices("operator_refused")


# --- retry -----------------------------------------------------------------------------------------------


def test_retry_makes_a_retry_due() -> None:
    story = _retrying()
    _ask(story, OperatorAction.RETRY)
    story.advance(0)
    assert [start.attempt for start in story.said(StartRun)] == [1]


def test_retry_does_not_disturb_a_due_retry() -> None:
    story = _retrying()
    story.slow = True
    story.advance(10_000)
    before = story.state
    _ask(story, OperatorAction.RETRY)
    assert story.state == before
    story.answer()
    assert story.started() == ["SYM-1"]


def test_retry_continues_the_conversation_of_a_blocked_issue() -> None:
    story = _stopped_run().forget()
    _ask(story, OperatorAction.RETRY)
    story.advance(0)
    (start,) = story.said(StartRun)
    assert start.resume == Resume(reason=ResumeReason.INTERRUPTED, thread=THREAD)
    assert story.notices("issue_unblocked")
    assert story.state.spent["1"] == Spent(tokens=70, turns=1)


def test_retry_resets_attempts_without_progress() -> None:
    story = _idle()
    assert story.state.blocked["1"].failure.category is Category.NO_PROGRESS
    assert "symphony unblock SYM-1" in (story.state.blocked["1"].failure.hint or "")
    _ask(story, OperatorAction.RETRY)
    story.advance(0)
    assert story.state.running["1"].attempts_without_progress == 0


# --- unblock ---------------------------------------------------------------------------------------------


def test_unblock_resets_the_budget_and_continues() -> None:
    story = _over_budget().forget()
    _ask(story, OperatorAction.UNBLOCK)
    assert "1" not in story.state.spent
    story.advance(0)
    (start,) = story.said(StartRun)
    assert start.resume == Resume(reason=ResumeReason.INTERRUPTED, thread=THREAD)


def test_unblock_starts_a_new_conversation_after_a_failure() -> None:
    story = _idle().forget()
    _ask(story, OperatorAction.UNBLOCK)
    story.advance(0)
    (start,) = story.said(StartRun)
    assert start.resume == Resume(reason=ResumeReason.INTERRUPTED)


def test_unblock_exempts_an_issue_from_the_budget_of_the_day() -> None:
    story = _running(max_tokens_per_day=70)
    story.tell(DayBegan(day="2025-01-01"))
    story.turn_ends().ends()
    assert story.state.blocked["1"].failure.category is Category.BUDGET_DAY
    _ask(story, OperatorAction.UNBLOCK)
    story.forget().advance(0)
    assert story.started() == ["SYM-1"]


# --- answer ----------------------------------------------------------------------------------------------


@pytest.mark.conformance("S-18")
def test_the_question_is_shown_as_it_is_and_how_to_answer_it() -> None:
    story = _asking()
    assert story.state.blocked["1"].question == "Red or ```blue```?"
    (note,) = story.said(PostComment)
    assert note.body == (
        "Symphony stopped working on this issue:\n\n```text\nthe agent asks a person\n```\n\n"
        "The agent asks:\n\n````text\nRed or ```blue```?\n````\n\n"
        "To answer, write a comment on this issue: the agent continues with it. "
        "On the daemon's machine, this command does the same:\n\n"
        '```text\nsymphony answer SYM-1 "…"\n```'
    )


def test_a_question_is_bounded() -> None:
    story = _asking("?" * 100_000)
    assert len(story.state.blocked["1"].question or "") == 4_000


def test_an_answer_goes_into_the_same_conversation() -> None:
    story = _asking("which?").forget()
    _ask(story, OperatorAction.ANSWER, "1", "blue")
    story.advance(0)
    (start,) = story.said(StartRun)
    assert start.resume == Resume(
        reason=ResumeReason.ANSWERED,
        thread=THREAD,
        question="which?",
        answer="blue",
        answered_by="an operator",
    )


def _asking_for_approval(request: str | None = "k") -> Story:
    story = _running()
    failure = make_failure("approval required: make", category=Category.APPROVAL_REQUIRED)
    outcome = Outcome(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, question="make?", request=request)
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    return story


def _resume(story: Story) -> Resume:
    resume = story.state.retrying["1"].resume
    assert resume is not None
    return resume


@pytest.mark.parametrize(
    ("action", "text", "approves"),
    [
        (OperatorAction.APPROVE, None, True),
        (OperatorAction.DENY, None, False),
        (OperatorAction.ANSWER, "Yes.", True),
        (OperatorAction.ANSWER, " APPROVE ", True),
        (OperatorAction.ANSWER, "allow", True),
        (OperatorAction.ANSWER, "ok!", True),
        (OperatorAction.ANSWER, "no", False),
        (OperatorAction.ANSWER, "Reject.", False),
        (OperatorAction.ANSWER, "yes, but only once", None),
        (OperatorAction.ANSWER, "yes\nno", None),
        (OperatorAction.ANSWER, "yesterday", None),
        (OperatorAction.ANSWER, ".", None),
    ],
)
def test_a_word_decides_the_request_that_is_open_and_anything_else_is_text(
    action: OperatorAction, text: str | None, *, approves: bool | None
) -> None:
    story = _asking_for_approval()
    _ask(story, action, "1", text)
    resume = _resume(story)
    assert resume.approves is approves
    assert resume.decisions == ({} if approves is None else {"k": approves})
    assert resume.answer == (action.value if text is None else text)
    assert resume.request is None


def test_decisions_last_as_long_as_the_conversation() -> None:
    story = _asking_for_approval("one")
    _ask(story, OperatorAction.APPROVE)
    story.advance(0).streams(thread_id="t-1", turn_count=1)
    failure = make_failure("approval required", category=Category.APPROVAL_REQUIRED)
    outcome = Outcome(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, request="two")
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    _ask(story, OperatorAction.DENY)
    assert _resume(story).decisions == {"one": True, "two": False}
    story.advance(0).streams(thread_id="t-1", turn_count=1)
    story.tell(RunEnded(run_id=story.run_id(), outcome=replace(outcome, request="three")))
    _ask(story, OperatorAction.UNBLOCK)
    assert _resume(story).thread is None
    assert _resume(story).decisions == {}


def test_an_outage_after_an_approval_keeps_conversation_and_decision() -> None:
    story = _asking_for_approval()
    _ask(story, OperatorAction.APPROVE)
    story.advance(0).streams(thread_id="t-1", turn_count=1)
    story.fails(failure=make_failure("500", category=Category.AGENT_UNAVAILABLE), progress=False)
    assert _resume(story).thread is not None
    assert _resume(story).decisions == {"k": True}


def test_a_question_is_not_approved_and_an_approval_not_given_twice() -> None:
    story = _asking()
    assert _code(story, OperatorAction.APPROVE) == "no_approval"
    _ask(story, OperatorAction.ANSWER, "1", "yes")
    assert _resume(story).approves is None
    story = _asking_for_approval()
    story.state = story.state.changed(settings=make_settings(on_block="Human Review"))
    _ask(story, OperatorAction.DENY)
    for action in (OperatorAction.APPROVE, OperatorAction.ANSWER):
        assert _code(story, action, "1", "yes") == "no_question"


def test_an_unexplained_need_for_input_can_be_answered() -> None:
    story = _asking(None).forget()
    assert not story.state.blocked["1"].question
    _ask(story, OperatorAction.ANSWER, "1", "blue")
    retry = story.state.retrying["1"]
    assert retry.resume is not None
    assert retry.resume.question == "the agent asks a person"


def test_an_answer_survives_a_used_up_budget() -> None:
    story = _asking("which?")
    story.tell(SettingsChanged(settings=make_settings(max_tokens_per_issue=1)))
    _ask(story, OperatorAction.ANSWER, "1", "blue")
    story.advance(0)
    blocked = story.state.blocked["1"]
    assert blocked.failure.category is Category.BUDGET_ISSUE
    _ask(story, OperatorAction.UNBLOCK)
    story.forget().advance(0)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert start.resume.answer == "blue"


# --- pause and resume ------------------------------------------------------------------------------------


def test_a_pause_starts_nothing_and_what_runs_continues() -> None:
    story = _paused()
    story.board["2"] = make_issue("2")
    story.tell(WakeAsked(reason="t"))
    story.turn_ends()
    assert len(story.said(ContinueRun)) == 1
    assert not story.said(StartRun)
    verdict = eligibility(story.board["2"], story.state)
    assert verdict == Ineligible(ReasonCode.PAUSED, "an operator paused the daemon")
    _ask(story, OperatorAction.RESUME, None)
    assert story.started() == ["SYM-2"]
    assert story.said(FetchCandidates)


def test_a_pending_candidate_does_not_start_during_a_pause() -> None:
    story = Story(make_issue())
    story.slow = True
    story.begin()
    story.answer_poll()
    _ask(story, OperatorAction.PAUSE, None)
    story.answer()
    assert not story.said(StartRun)


def test_a_due_retry_waits_for_the_end_of_a_pause_with_its_number() -> None:
    story = _retrying()
    _ask(story, OperatorAction.PAUSE, None)
    story.advance(10_000)
    retry = story.state.retrying["1"]
    assert (retry.attempt, retry.due_ms, retry.refreshing) == (1, story.now, False)
    story.advance(1_000)
    _ask(story, OperatorAction.RESUME, None)
    story.advance(0)
    assert [start.attempt for start in story.said(StartRun)] == [1]


def test_a_retry_that_is_not_due_waits_on_after_a_pause() -> None:
    story = _paused().fails()
    _ask(story, OperatorAction.RESUME, None)
    story.advance(9_999)
    assert not story.said(StartRun)


def test_a_paused_retry_of_an_ended_issue_is_cleaned_up() -> None:
    story = _retrying()
    _ask(story, OperatorAction.PAUSE, None)
    story.put("1", state="Done")
    story.advance(10_000)
    assert not story.state.retrying


# --- drain -----------------------------------------------------------------------------------------------


def test_an_operators_drain_waits_for_turns_however_long_they_take() -> None:
    story = _running(stall_timeout_ms=0)
    _ask(story, OperatorAction.DRAIN, None)
    story.advance(FAR)
    assert not story.said(StopRun)
    story.turn_ends()
    assert [finish.reason for finish in story.said(FinishRun)] == [FinishReason.DRAINING]
    story.ends()
    assert story.exits() == 1
    assert story.state.retrying.keys() == {"1"}


def test_a_signal_adds_the_timeout_to_an_operators_drain() -> None:
    story = _running(drain_timeout_ms=5_000)
    _ask(story, OperatorAction.DRAIN, None)
    story.advance(60_000)
    story.tell(DrainAsked())
    story.advance(5_000)
    assert [stop.reason for stop in story.said(StopRun)] == [StopReason.DRAINING]


def test_an_operators_drain_stops_runs_without_a_turn() -> None:
    story = Story(make_issue()).begin().report(stage=RunStage.LAUNCHING_AGENT)
    _ask(story, OperatorAction.DRAIN, None)
    assert [stop.reason for stop in story.said(StopRun)] == [StopReason.DRAINING]


def test_an_identifier_that_a_shell_would_split_is_quoted_in_every_hint() -> None:
    issue = make_issue(identifier="it's one")
    for failure in (stopped_by_operator(issue), no_progress(issue, 3)):
        commands = [shlex.split(command) for command in (failure.hint or "").split("`")[1::2]]
        assert commands
        assert {command[-1] for command in commands} == {"it's one"}
