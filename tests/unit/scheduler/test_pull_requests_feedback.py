"""Feedback on finished work: one more run in the same conversation, although the issue was handed off."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from harness.scheduling import Story, handed_off, make_failure, make_issue
from symphony.domain import Category, Tokens
from symphony.scheduler import (
    ClaimKind,
    CleanWorkspace,
    ContinueRun,
    DrainAsked,
    FeedbackGiven,
    FinishReason,
    FinishRun,
    MoveIssue,
    MoveReason,
    OperatorAction,
    OperatorAsked,
    OutcomeKind,
    Recovered,
    ResultStatus,
    Resume,
    ResumeReason,
    StartRun,
    StopAsked,
    StopReason,
    StopRun,
    StoredClaim,
    Thread,
    resumable_threads,
    threads_in_use,
)

NEWS = FeedbackGiven(issue_id="1", key="ci abc id-1", summary="ci at abc", text="The check test failed.")
THREAD = Thread(thread_id="t-1", tokens=Tokens(total_tokens=70))


def _told(**settings: Any) -> Story:
    """A run about the news is in its turn."""
    story = handed_off(**settings)
    story.tell(NEWS)
    story.advance(0)
    story.streams(thread_id="t-1", turn_count=1)
    return story


def test_the_agent_gets_feedback_in_the_same_conversation_and_workspace() -> None:
    story = _told()
    (start,) = story.said(StartRun)
    assert start.issue.state == "Human Review"
    assert start.resume == Resume(
        reason=ResumeReason.FEEDBACK, thread=THREAD, answer=NEWS.text, after_handoff=True
    )
    assert story.state.running["1"].report.facts.workspace_path == "/ws/1"
    assert len(story.notices("feedback_taken")) == 1


def test_the_turn_goes_on_although_the_issue_is_not_active_and_is_the_only_one() -> None:
    story = _told()
    story.look()
    assert not story.said(StopRun)
    story.turn_ends()
    assert [finish.reason for finish in story.said(FinishRun)] == [FinishReason.INACTIVE]
    story.delivers()
    story.advance(100_000)
    assert len(story.said(StartRun)) == 1
    assert story.state.entry("1") is None
    assert story.state.results["1"].status is ResultStatus.READY


def test_waiting_for_feedback_holds_no_slot() -> None:
    story = handed_off(max_concurrent_agents=1)
    story.board["2"] = make_issue("2")
    story.look()
    assert story.started() == ["SYM-2"]
    story.tell(NEWS)
    story.advance(200)
    assert story.started() == ["SYM-2"]
    assert not story.state.retrying["1"].refreshing


def test_the_same_feedback_is_taken_once() -> None:
    story = _told()
    story.turn_ends()
    story.delivers()
    story.advance(2_000)
    story.tell(NEWS)
    story.advance(2_000)
    assert len(story.said(StartRun)) == 1
    story.tell(structs.replace(NEWS, key="ci def id-1"))
    story.advance(2_000)
    assert len(story.said(StartRun)) == 2


def test_feedback_waits_until_the_issue_is_free() -> None:
    story = _told()
    later = structs.replace(NEWS, key="review def c1")
    story.tell(later)
    assert story.notices("feedback_deferred")
    assert story.state.results["1"].feedback == NEWS.key
    story.turn_ends()
    story.delivers()
    story.advance(2_000)
    story.tell(later)
    assert story.state.results["1"].feedback == later.key


def test_feedback_is_not_taken_during_a_shutdown_nor_for_unknown_or_ended_work() -> None:
    story = handed_off()
    story.tell(structs.replace(NEWS, issue_id="9"))
    assert story.state.entry("9") is None
    story.put("1", state="Done")
    story.look().advance(700_000)
    story.tell(NEWS)
    assert story.state.entry("1") is None
    draining = handed_off()
    draining.board["2"] = make_issue("2")
    draining.look()
    draining.tell(DrainAsked())
    draining.tell(NEWS)
    assert draining.state.results["1"].feedback is None


def test_an_issue_that_ended_meanwhile_is_cleaned_up() -> None:
    story = handed_off()
    story.put("1", state="Done")
    story.tell(NEWS)
    story.advance(200)
    assert not story.said(StartRun)
    assert len(story.said(CleanWorkspace)) == 1


@pytest.mark.parametrize("changes", [None, {"dispatchable": False}], ids=["gone", "taken away"])
def test_an_issue_that_is_taken_away_gets_no_feedback(changes: dict[str, Any] | None) -> None:
    story = handed_off()
    if changes is None:
        del story.board["1"]
    else:
        story.put("1", **changes)
    story.tell(NEWS)
    story.advance(200)
    assert not story.said(StartRun)
    assert story.state.entry("1") is None


def test_a_person_who_ends_or_unlabels_it_stops_the_turn() -> None:
    story = _told()
    story.put("1", state="Done")
    story.look()
    assert [stop.reason for stop in story.said(StopRun)] == [StopReason.TERMINAL]


def test_feedback_moves_the_issue_where_the_settings_say_and_then_turns_go_on() -> None:
    story = _told(on_start="In Progress", on_feedback="In Progress")
    (move,) = story.said(MoveIssue)
    assert (move.state, move.reason, move.only_from) == (
        "In Progress",
        MoveReason.START,
        frozenset({"human review"}),
    )
    story.put("1", state="In Progress")
    story.turn_ends()
    assert len(story.said(ContinueRun)) == 1


def test_without_that_setting_it_is_not_moved_to_the_state_of_a_start() -> None:
    assert not _told(on_start="In Progress").said(MoveIssue)


def test_feedback_is_repeated_after_a_failure_and_after_an_interruption() -> None:
    failed = _told()
    failed.fails(progress=False)
    failed.advance(20_000)
    first, again = failed.said(StartRun)
    assert again.resume == replace(first.resume or Resume(reason=ResumeReason.FEEDBACK), thread=None)

    drained = _told()
    drained.tell(StopAsked())
    drained.ends(kind=OutcomeKind.CANCELED)
    drained.advance(100_000)
    left = drained.state.retrying["1"].resume
    assert left is not None
    assert (left.reason, left.answer, left.after_handoff) == (ResumeReason.FEEDBACK, NEWS.text, True)


def test_failures_end_in_a_block_that_the_state_of_the_issue_does_not_lift() -> None:
    story = _told()
    for _ in range(3):
        story.fails(progress=False)
        story.advance(400_000)
    assert story.state.blocked["1"].failure.category is Category.NO_PROGRESS
    story.look().advance(100_000)
    assert "1" in story.state.blocked
    story.tell(OperatorAsked(action=OperatorAction.RETRY, issue_id="1"))
    story.advance(1_000)
    assert story.state.running["1"].resume is not None


def test_a_question_in_a_feedback_turn_is_answered_after_the_handoff_too() -> None:
    story = _told()
    failure = make_failure("which?", category=Category.TURN_INPUT_REQUIRED)
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, question="which?")
    story.look()
    story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="blue"))
    story.advance(1_000)
    start = story.said(StartRun)[-1]
    assert start.resume is not None
    assert (start.resume.reason, start.resume.answer) == (ResumeReason.ANSWERED, "blue")
    assert start.resume.after_handoff
    story.streams(thread_id="t-1", turn_count=1)
    story.tell(StopAsked())
    story.ends(kind=OutcomeKind.CANCELED)
    left = story.state.retrying["1"].resume
    assert left == Resume(reason=ResumeReason.INTERRUPTED, thread=THREAD, after_handoff=True)


def test_a_person_who_changes_a_blocked_issue_frees_it_for_the_next_feedback() -> None:
    story = _told()
    story.fails(failure=make_failure(category=Category.ISSUE_TOO_LONG))
    story.look()
    story.put("1", labels=("seen",))
    story.look()
    assert story.state.entry("1") is None
    assert story.notices("issue_unblocked")


def test_conversations_of_work_in_review_are_kept() -> None:
    story = handed_off()
    assert threads_in_use(story.state) == frozenset()
    assert resumable_threads(story.state) == {"t-1"}
    story.put("1", state="Done")
    story.look().advance(700_000)
    assert resumable_threads(story.state) == frozenset()


def test_a_run_that_was_cut_off_leaves_its_totals_to_feedback() -> None:
    story = handed_off()
    used = structs.replace(THREAD, tokens=Tokens(total_tokens=170))
    claim = StoredClaim(
        issue=story.board["1"],
        kind=ClaimKind.RETRYING,
        resume=Resume(reason=ResumeReason.INTERRUPTED, thread=used),
    )
    later = Story(story.board["1"])
    later.tell(Recovered(claims=(claim,), results=(story.state.results["1"],)))
    later.advance(2_000)
    assert later.state.entry("1") is None, "it is in no active state"
    later.tell(NEWS)
    later.advance(2_000)
    (start,) = later.said(StartRun)
    assert start.resume is not None
    assert start.resume.thread == used


def test_a_later_daemon_knows_what_was_taken() -> None:
    story = _told()
    story.turn_ends()
    story.delivers()
    story.advance(2_000)
    result = story.state.results["1"]
    later = Story(make_issue(state="Human Review"))
    later.tell(Recovered(results=(result,)))
    later.tell(NEWS)
    later.advance(2_000)
    assert not later.said(StartRun)
    later.tell(structs.replace(NEWS, key="new"))
    later.advance(2_000)
    (start,) = later.said(StartRun)
    assert start.resume is not None
    assert start.resume.thread is not None
    assert start.resume.thread.thread_id == "t-1"
