"""Issues whose pull request was closed or needs a person: no run starts until somebody lifts that."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from harness.scheduling import Story, handed_off, make_failure, make_issue
from symphony.domain import Category
from symphony.scheduler import (
    Blocked,
    ClaimKind,
    CleanWorkspace,
    FeedbackGiven,
    IssueResult,
    MoveIssue,
    MoveReason,
    OperatorAction,
    OperatorAsked,
    OutcomeKind,
    PostComment,
    PullBlock,
    PullRequestJudged,
    Recovered,
    ResultStatus,
    ResumeReason,
    StartRun,
    StopRun,
    StoredClaim,
    has_new_work,
    is_worked_on,
)

NEWS = FeedbackGiven(issue_id="1", key="ci abc id-1", summary="ci at abc", text="The check test failed.")


def _judged(key: str = "closed 12", category: Category = Category.PULL_REQUEST_CLOSED) -> PullRequestJudged:
    return PullRequestJudged(
        issue_id="1", block=PullBlock(key=key, failure=make_failure(key, category=category))
    )


CLOSED = _judged()
NEEDS_NOBODY = PullRequestJudged(issue_id="1")


def _asks(story: Story, action: OperatorAction) -> Story:
    story.tell(OperatorAsked(action=action, issue_id="1"))
    return story.advance(2_000)


def _blocked(story: Story) -> Blocked:
    return story.state.blocked["1"]


def _closed(**settings: Any) -> Story:
    """The pull request of an issue in Human Review was closed."""
    story = handed_off(**settings)
    story.tell(CLOSED)
    return story.look().advance(60_000)


def _active_again(**settings: Any) -> Story:
    """As `_closed`, but somebody moved the issue back to an active state before, and its run is over."""
    story = handed_off(**settings)
    story.put("1", state="Todo")
    story.look()
    story.tell(CLOSED)
    return story.delivers(head="def").advance(2_000)


def _result(story: Story) -> IssueResult:
    return story.state.results["1"]


# --- blocking --------------------------------------------------------------------------------------------


def test_a_closed_pull_request_blocks_its_issue_where_it_is() -> None:
    story = _closed()
    assert _blocked(story).failure.category is Category.PULL_REQUEST_CLOSED
    assert _blocked(story).workspace_path == "/ws/1"
    assert [comment.kind for comment in story.said(PostComment)] == ["blocked"]
    assert not is_worked_on(story.state, "1")
    assert is_worked_on(handed_off_and_told().state, "1")
    assert not is_worked_on(handed_off().state, "1")


def handed_off_and_told() -> Story:
    story = handed_off()
    story.tell(NEWS)
    return story.advance(0)


def test_a_run_in_progress_ends_and_no_other_one_starts() -> None:
    story = _active_again()
    assert not story.said(StopRun)
    assert story.started() == ["SYM-1"]
    assert _blocked(story).failure.category is Category.PULL_REQUEST_CLOSED
    story.look().advance(500_000)
    assert story.started() == ["SYM-1"]


def test_a_retry_is_blocked_at_once_and_what_was_to_be_told_is_told_later() -> None:
    story = handed_off_and_told()
    story.fails(progress=False)
    story.tell(CLOSED)
    assert isinstance(story.state.entry("1"), Blocked)
    story.forget()
    story.tell(NEEDS_NOBODY)
    story.advance(1_000)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert (start.resume.reason, start.resume.answer) == (ResumeReason.FEEDBACK, NEWS.text)


def test_a_question_comes_first() -> None:
    story = handed_off_and_told()
    failure = make_failure("which?", category=Category.TURN_INPUT_REQUIRED)
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, question="which?")
    story.tell(CLOSED)
    assert _blocked(story).failure == failure
    assert is_worked_on(story.state, "1")
    story.tell(NEEDS_NOBODY)
    assert _blocked(story).failure == failure
    story.tell(CLOSED)
    story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="blue"))
    story.advance(1_000)
    assert _blocked(story).failure.category is Category.PULL_REQUEST_CLOSED


def test_a_candidate_that_is_about_to_start_is_blocked_instead() -> None:
    story = handed_off()
    story.put("1", state="Todo")
    story.slow = True
    story.look()
    story.answer_refresh()
    story.answer_poll()
    story.advance(200)
    assert story.state.pending_candidates == {"1"}
    story.tell(CLOSED)
    story.slow = False
    story.answer()
    assert not story.started()
    assert "1" in story.state.blocked


def test_an_issue_without_a_claim_is_blocked_instead_of_started() -> None:
    """A claim that was lost leaves the result."""
    result = replace(_result(_active_again()), status=ResultStatus.READY)
    story = Story(make_issue())
    story.tell(Recovered(results=(result,)))
    story.advance(60_000)
    assert not story.started()
    assert "1" in story.state.blocked


def test_the_reason_follows_the_pull_request() -> None:
    story = handed_off()
    story.tell(_judged("turns_used 12 abc", Category.PULL_REQUEST_NEEDS_YOU))
    story.tell(CLOSED)
    assert _blocked(story).failure.category is Category.PULL_REQUEST_CLOSED
    assert len(story.said(PostComment)) == 2


@pytest.mark.parametrize("event", [CLOSED, NEEDS_NOBODY])
def test_nothing_is_blocked_without_work_or_after_its_end(event: PullRequestJudged) -> None:
    story = handed_off()
    story.put("1", state="Done")
    story.look().advance(700_000)
    story.tell(event)
    story.tell(structs.replace(event, issue_id="9"))
    assert not story.state.blocked


# --- lifting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [OperatorAction.UNBLOCK, OperatorAction.RETRY])
def test_an_operator_lifts_it_until_there_is_another_occasion(action: OperatorAction) -> None:
    story = _asks(_closed(), action)
    assert story.state.entry("1") is None
    assert _result(story).status is ResultStatus.READY
    assert not story.started(), "it is in no active state"
    story.tell(CLOSED)
    assert story.state.entry("1") is None
    story.tell(_judged("closed 13"))
    assert "1" in story.state.blocked


def test_an_operator_has_an_active_issue_go_on_at_once() -> None:
    story = _asks(_active_again().forget(), OperatorAction.UNBLOCK)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert not start.resume.after_handoff
    story.tell(CLOSED)
    story.delivers(head="0ff").advance(2_000)
    assert story.started() == ["SYM-1", "SYM-1"]


def test_a_block_that_moved_its_issue_moves_it_back() -> None:
    story = _active_again(on_block="Blocked", on_return="Todo")
    assert [move.state for move in story.said(MoveIssue)] == ["Blocked"]
    story.put("1", state="Blocked")
    story.look().forget()
    _asks(story, OperatorAction.UNBLOCK)
    assert [move.reason for move in story.said(MoveIssue)] == [MoveReason.BACK]
    story.put("1", state="Todo")
    story.look().advance(1_000)
    assert story.started() == ["SYM-1"]


def test_a_pull_request_that_needs_nobody_lifts_it_and_may_need_somebody_again() -> None:
    story = _closed()
    story.tell(NEEDS_NOBODY)
    assert story.state.entry("1") is None
    assert story.notices("issue_unblocked")
    story.tell(CLOSED)
    assert "1" in story.state.blocked


def test_feedback_lifts_it_as_only_a_person_makes_the_pull_request_go_on() -> None:
    story = handed_off()
    story.tell(_judged("turns_used 12 abc", Category.PULL_REQUEST_NEEDS_YOU))
    story.tell(NEWS)
    story.advance(1_000)
    assert story.started() == ["SYM-1"]
    assert _result(story).pull_block is None


def test_a_move_lifts_it_and_a_label_or_an_edit_does_not() -> None:
    story = _closed()
    story.put("1", labels=("stale",), title="Title 1 (stale)", description="edited")
    story.look()
    assert "1" in story.state.blocked
    story.put("1", state="Todo")
    story.look().advance(1_000)
    assert story.started() == ["SYM-1"]
    story.tell(CLOSED)
    story.delivers(head="def").advance(2_000)
    assert story.started() == ["SYM-1", "SYM-1"], "it was lifted by the move"


def test_an_issue_that_ends_is_released_and_cleaned() -> None:
    story = _closed()
    story.put("1", state="Done")
    story.look()
    assert story.state.entry("1") is None
    assert len(story.said(CleanWorkspace)) == 1
    assert _result(story).status is ResultStatus.ENDED


def test_an_answer_is_refused() -> None:
    story = _closed()
    story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="why"))
    assert "1" in story.state.blocked


# --- restarts --------------------------------------------------------------------------------------------


def test_a_later_daemon_keeps_the_block_and_what_was_lifted() -> None:
    before = _closed()
    blocked = _blocked(before)
    claim = StoredClaim(
        issue=blocked.issue,
        kind=ClaimKind.BLOCKED,
        failure=blocked.failure,
        resume=blocked.resume,
        has_baseline=True,
    )
    later = Story(before.board["1"])
    later.tell(Recovered(claims=(claim,), results=(_result(before),)))
    later.look().advance(60_000)
    assert _blocked(later).failure == blocked.failure
    _asks(later, OperatorAction.UNBLOCK)
    last = Story(before.board["1"])
    last.tell(Recovered(results=(_result(later),)))
    last.tell(CLOSED)
    assert not last.state.blocked


def test_a_run_that_was_killed_is_blocked_when_it_is_retried() -> None:
    running = handed_off_and_told()
    running.tell(CLOSED)
    claim = StoredClaim(issue=running.board["1"], kind=ClaimKind.RUNNING)
    later = Story(running.board["1"])
    later.tell(Recovered(claims=(claim,), results=(_result(running),)))
    later.advance(1_000)
    assert not later.started()
    assert "1" in later.state.blocked


def test_work_that_begins_without_feedback_is_counted_and_retries_and_feedback_are_not() -> None:
    story = handed_off_and_told()
    story.delivers(head="def").advance(2_000)
    assert _result(story).restarts == 0
    for times in (1, 2):
        story.put("1", state="Todo")
        story.look()
        story.fails().advance(60_000)
        story.put("1", state="Human Review")
        story.delivers(head=f"head-{times}").advance(2_000)
        assert _result(story).restarts == times
        assert story.state.entry("1") is None


# --- new work --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "on_feedback", "expected"),
    [
        ("Human Review", None, False),
        ("Done", None, False),
        ("Todo", None, True),  # although no poll has seen it yet
        ("In Progress", "In Progress", True),
    ],
)
def test_an_issue_that_rests_has_new_work_once_it_is_in_an_active_state(
    state: str, on_feedback: str | None, *, expected: bool
) -> None:
    story = handed_off(on_feedback=on_feedback)
    assert has_new_work(story.state, replace(story.board["1"], state=state)) is expected


@pytest.mark.parametrize("made", ["told", "closed"])
@pytest.mark.parametrize(
    ("state", "expected"), [("Human Review", False), ("In Progress", False), ("Todo", True)]
)
def test_what_a_pull_request_itself_asks_for_or_holds_up_is_no_new_work(
    made: str, state: str, *, expected: bool
) -> None:
    story = handed_off(on_feedback="In Progress")
    story.tell(NEWS if made == "told" else CLOSED)
    story.advance(2_000)
    assert has_new_work(story.state, replace(story.board["1"], state=state)) is expected


def test_an_issue_has_new_work_until_the_run_that_hands_it_off_has_ended() -> None:
    story = handed_off()
    story.put("1", state="Todo")
    story.look()
    assert story.started() == ["SYM-1"]
    assert has_new_work(story.state, replace(story.board["1"], state="Human Review"))
