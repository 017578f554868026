"""`tracker.on_start` and `tracker.on_block`: moves without an answer, and issues that rest."""

from typing import Any

import pytest

from harness.scheduling import ACTIVE, TERMINAL, Story, make_failure, make_issue, make_settings
from symphony.domain import Category, normalise_state
from symphony.scheduler import (
    ClaimKind,
    CleanWorkspace,
    MoveIssue,
    MoveReason,
    OperatorAction,
    OperatorAsked,
    OutcomeKind,
    Recovered,
    ResumeReason,
    SettingsChanged,
    StartRun,
    StoredClaim,
    WakeAsked,
)


def _running(**settings: Any) -> Story:
    return Story(make_issue(), poll_interval_ms=60_000, **settings).begin().streams()


def _blocked(on_block: str | None = "Human Review", **settings: Any) -> Story:
    """Issue 1 asks a person, and was moved where the settings say."""
    story = _running(on_block=on_block, on_return="Todo", **settings)
    failure = make_failure("which colour?", category=Category.TURN_INPUT_REQUIRED)
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=failure)
    for move in story.said(MoveIssue):
        story.put("1", state=move.state)
    return _look(story).forget()


def _look(story: Story) -> Story:
    story.tell(WakeAsked(reason="t"))
    return story.advance(200)


# --- at the start ---


def test_an_issue_is_moved_when_its_run_starts() -> None:
    story = _running(on_start="In Progress")
    (move,) = story.said(MoveIssue)
    assert (move.state, move.reason, move.issue.id) == ("In Progress", MoveReason.START, "1")
    assert move.only_from == {"todo"}, "an agent that was faster is not set back"


def test_the_run_starts_even_if_the_move_fails() -> None:
    story = _running(on_start="In Progress")
    kinds = [type(command) for command in story.told if isinstance(command, StartRun | MoveIssue)]
    assert kinds == [StartRun, MoveIssue]


def test_an_issue_that_is_there_already_is_not_moved() -> None:
    assert not _running(on_start=" todo ").said(MoveIssue)


@pytest.mark.parametrize("settings", [{}, {"on_block": "Human Review"}], ids=str)
def test_without_on_start_no_issue_is_moved(settings: dict[str, Any]) -> None:
    assert not _running(**settings).said(MoveIssue)


# --- at a block ---


def test_a_blocked_issue_is_moved_from_any_active_state_and_no_other() -> None:
    story = _running(on_block="Human Review")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    (move,) = story.said(MoveIssue)
    assert (move.state, move.reason) == ("Human Review", MoveReason.BLOCK)
    assert move.only_from == ACTIVE - TERMINAL


def test_a_resting_issue_stays_blocked_and_is_refreshed() -> None:
    story = _blocked()
    story.advance(1_000_000)
    assert story.state.blocked["1"].issue.state == "Human Review"
    assert not story.said(StartRun)
    assert not story.notices("claim_released")


def test_without_on_block_an_issue_that_leaves_the_active_states_is_released() -> None:
    story = _blocked(on_block=None)
    story.put("1", state="Human Review")
    _look(story)
    assert not story.state.blocked


@pytest.mark.parametrize("changes", [{"labels": ("x",)}, {"title": "New"}, {"description": "blue"}], ids=str)
def test_a_resting_issue_is_not_unblocked_by_an_edit(changes: dict[str, Any]) -> None:
    story = _blocked()
    story.put("1", **changes)
    _look(story).advance(200_000)
    assert story.state.blocked.keys() == {"1"}


@pytest.mark.parametrize("state", ["Todo", "In Progress"])
def test_a_person_who_moves_it_back_unblocks_it(state: str) -> None:
    story = _blocked()
    story.put("1", state=state)
    _look(story)
    assert story.notices("issue_unblocked")
    assert [start.resume for start in story.said(StartRun)] == [None]


@pytest.mark.parametrize(("state", "cleaned"), [("Backlog", 0), ("Done", 1)])
def test_a_person_who_takes_it_away_ends_the_block(state: str, cleaned: int) -> None:
    story = _blocked()
    story.put("1", state=state)
    _look(story)
    assert not story.state.blocked
    assert len(story.said(CleanWorkspace)) == cleaned


def test_a_move_to_an_active_on_block_is_not_a_change() -> None:
    story = _blocked(on_block="In Progress")
    assert story.state.blocked["1"].issue.state == "In Progress"
    story.advance(1_000_000)
    assert story.state.blocked.keys() == {"1"}
    story.put("1", state="Todo")
    _look(story)
    assert story.said(StartRun)


def test_a_late_move_to_on_block_does_not_unblock() -> None:
    story = _running(on_block="In Progress")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    _look(story).forget()
    story.put("1", state="In Progress")
    _look(story).advance(200_000)
    assert story.state.blocked["1"].issue.state == "In Progress"
    story.put("1", title="Clearer")
    _look(story)
    assert story.said(StartRun), "what a person changes there unblocks as ever"


# --- and back ---


def test_an_answer_moves_the_issue_back_and_waits_for_it() -> None:
    story = _blocked()
    story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="blue"))
    (move,) = story.said(MoveIssue)
    assert (move.state, move.reason) == ("Todo", MoveReason.BACK)
    assert move.only_from == {"human review"}
    _look(story)
    assert story.state.blocked.keys() == {"1"}, "it is not there yet"
    story.put("1", state="Todo")
    _look(story)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert (start.resume.reason, start.resume.answer) == (ResumeReason.ANSWERED, "blue")


def test_an_answer_is_kept_when_a_person_moves_the_issue() -> None:
    story = _blocked()
    story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="blue"))
    story.put("1", state="In Progress", title="Clearer")
    _look(story)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert start.resume.answer == "blue"


def test_an_answer_before_the_issue_was_seen_resting_is_not_lost() -> None:
    story = _running(on_block="Human Review", on_return="Todo")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure(category=Category.TURN_INPUT_REQUIRED))
    story.put("1", state="Human Review")
    story.forget().tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="blue"))
    assert [move.reason for move in story.said(MoveIssue)] == [MoveReason.BACK]
    story.put("1", state="Todo")
    _look(story)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert start.resume.answer == "blue"


def test_an_answer_before_the_move_continues_at_once() -> None:
    story = _running(on_block="Human Review", on_return="Todo")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure(category=Category.TURN_INPUT_REQUIRED))
    story.forget().tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="blue"))
    story.advance(200)
    assert len(story.said(StartRun)) == 1


@pytest.mark.parametrize("verb", [OperatorAction.RETRY, OperatorAction.UNBLOCK])
def test_other_actions_move_the_issue_back_too(verb: OperatorAction) -> None:
    story = _blocked()
    story.tell(OperatorAsked(action=verb, issue_id="1"))
    (move,) = story.said(MoveIssue)
    story.put("1", state=move.state)
    _look(story)
    assert story.said(StartRun)
    assert not story.state.blocked


def test_a_failed_move_back_is_repeated() -> None:
    story = _blocked()
    for _ in range(2):
        story.tell(OperatorAsked(action=OperatorAction.RETRY, issue_id="1"))
    assert len(story.said(MoveIssue)) == 2


def test_an_available_budget_moves_the_issue_back_too() -> None:
    story = _running(on_block="Human Review", on_return="Todo", max_tokens_per_issue=10)
    story.streams(total_tokens=20)
    story.ends(kind=OutcomeKind.CANCELED)
    story.put("1", state="Human Review")
    _look(story).forget()
    settings = make_settings(on_block="Human Review", on_return="Todo", max_tokens_per_issue=100)
    story.tell(SettingsChanged(settings=settings))
    assert [move.state for move in story.said(MoveIssue)] == ["Todo"]


def test_a_resting_issue_stays_blocked_over_a_restart() -> None:
    """Also when the daemon ended after the move and before the refresh."""
    story = Story(make_issue(state="Human Review"), on_block="Human Review", on_return="Todo")
    claim = StoredClaim(
        issue=make_issue(state="In Progress"),
        kind=ClaimKind.BLOCKED,
        failure=make_failure(),
        has_baseline=True,
    )
    story.tell(Recovered(claims=(claim,)))
    assert normalise_state(story.state.blocked["1"].issue.state) == "human review"
