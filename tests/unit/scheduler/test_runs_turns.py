from typing import Any

import pytest

from harness.scheduling import Story, make_issue, make_settings
from symphony.domain import Category
from symphony.scheduler import (
    CleanWorkspace,
    ContinueRun,
    DrainAsked,
    FinishReason,
    FinishRun,
    OutcomeKind,
    RefreshIssues,
    SettingsChanged,
    StartRun,
    StopReason,
    StopRun,
    TurnEnded,
    WakeAsked,
)


def _running(*others: Any, **settings: Any) -> Story:
    """Issue 1 has an agent in its first turn."""
    return Story(make_issue(), *others, **settings).begin().streams().forget()


def _finished(story: Story) -> list[FinishReason]:
    return [command.reason for command in story.said(FinishRun)]


def _stopped(story: Story) -> list[StopReason]:
    return [command.reason for command in story.said(StopRun)]


# --- start -----------------------------------------------------------------------------------------------


def test_a_first_run_has_no_attempt_number_and_a_unique_id() -> None:
    story = Story(make_issue()).begin()
    (start,) = story.said(StartRun)
    assert start.attempt is None
    assert start.run_id == story.run_id()
    assert start.run_id.startswith("e-")
    assert story.notices("run_started")[0].issue_identifier == "SYM-1"


def test_run_ids_are_never_reused() -> None:
    story = Story(make_issue()).begin()
    first = story.run_id()
    story.fails().advance(10_000)
    assert story.run_id() != first


# --- turns -----------------------------------------------------------------------------------------------


def test_after_a_turn_the_issue_is_refreshed_and_gets_another_if_active() -> None:
    story = _running()
    story.put("1", title="Reworded")
    story.turn_ends()
    assert [ask.ids for ask in story.said(RefreshIssues)] == [frozenset({"1"})]
    (go_on,) = story.said(ContinueRun)
    assert (go_on.turn, go_on.issue.title) == (2, "Reworded")
    assert story.state.running["1"].turn == 2


@pytest.mark.parametrize(
    "changes", [{"state": "Done"}, {"state": "Backlog"}, {"dispatchable": False}], ids=str
)
def test_an_issue_that_left_its_active_states_gets_no_further_turn(changes: dict[str, Any]) -> None:
    story = _running()
    story.put("1", **changes)
    story.turn_ends()
    assert _finished(story) == [FinishReason.INACTIVE]
    assert not _stopped(story)


def test_an_issue_that_is_gone_gets_no_further_turn() -> None:
    story = _running()
    del story.board["1"]
    story.turn_ends()
    assert _finished(story) == [FinishReason.INACTIVE]


@pytest.mark.conformance("A-16")
def test_the_last_allowed_turn_is_the_last() -> None:
    story = _running(max_turns=2)
    story.turn_ends().turn_ends()
    assert [command.turn for command in story.said(ContinueRun)] == [2]
    assert _finished(story) == [FinishReason.MAX_TURNS]


def test_a_run_is_told_to_finish_once() -> None:
    story = _running(max_turns=1)
    story.turn_ends()
    story.slow = True
    story.tell(WakeAsked(reason="t"))
    story.fail_refresh()
    assert _finished(story) == [FinishReason.MAX_TURNS]


def test_a_run_keeps_the_number_of_turns_it_started_with() -> None:
    story = _running(max_turns=2)
    story.tell(SettingsChanged(settings=make_settings(max_turns=9)))
    story.turn_ends().turn_ends()
    assert _finished(story) == [FinishReason.MAX_TURNS]


# --- turns that leave nothing ----------------------------------------------------------------------------


def test_two_turns_in_a_row_without_a_trace_end_the_run() -> None:
    story = _running().turn_ends(trace=False)
    assert [command.turn for command in story.said(ContinueRun)] == [2]
    story.turn_ends(trace=False)
    assert _finished(story) == [FinishReason.NO_PROGRESS]


def test_a_turn_that_leaves_a_trace_resets_the_count() -> None:
    story = _running()
    for trace in (False, True, False):
        story.turn_ends(trace=trace)
    assert not _finished(story)
    story.turn_ends(trace=False)
    assert _finished(story) == [FinishReason.NO_PROGRESS]


def test_a_turn_with_unknown_progress_does_not_change_the_count() -> None:
    story = _running()
    for trace in (None, None, None, False, None):
        story.turn_ends(trace=trace)
    assert not _finished(story)
    story.turn_ends(trace=False)
    assert _finished(story) == [FinishReason.NO_PROGRESS]


def test_turns_without_a_trace_may_be_allowed_forever() -> None:
    story = _running(max_turns_without_progress=None, max_turns=9)
    for _ in range(9):
        story.turn_ends(trace=False)
    assert _finished(story) == [FinishReason.MAX_TURNS]


def test_an_issue_that_was_moved_meanwhile_finishes_as_inactive() -> None:
    story = _running().turn_ends(trace=False)
    story.put("1", state="Human Review")
    story.turn_ends(trace=False)
    assert _finished(story) == [FinishReason.INACTIVE]


def test_by_default_an_agent_that_does_nothing_gets_six_turns_and_then_a_person_is_asked() -> None:
    story, turns = _running(), 0
    while "1" in story.state.running:
        turns += 1
        story.turn_ends(trace=False)
        if story.state.running["1"].finishing:
            story.ends(kind=OutcomeKind.NO_PROGRESS, progress=False).advance(1_000)
        assert turns < 99
    assert turns == 6
    assert story.state.blocked["1"].failure.category is Category.NO_PROGRESS
    assert not story.state.completed


def test_a_run_without_progress_is_left_to_the_next_daemon_during_a_drain() -> None:
    story = _running()
    story.slow = True
    story.turn_ends(trace=False).tell(DrainAsked())
    story.ends(kind=OutcomeKind.NO_PROGRESS, progress=False)
    assert story.state.retrying["1"].attempt == 1
    assert story.notices("run_interrupted")


def test_a_refresh_that_fails_between_turns_fails_the_run() -> None:
    story = _running()
    story.slow = True
    story.turn_ends()
    story.fail_refresh()
    (finish,) = story.said(FinishRun)
    assert finish.reason is FinishReason.REFRESH_FAILED
    assert finish.failure is not None
    assert finish.failure.message == "issue state refresh error: no answer"


def test_an_old_or_repeated_end_of_a_turn_is_ignored() -> None:
    story = _running()
    first = TurnEnded(run_id=story.run_id(), turn=1)
    story.tell(first)
    story.forget()
    before = story.state
    story.tell(first)
    story.tell(TurnEnded(run_id=story.run_id(), turn=7))
    assert story.state == before
    assert not story.said(ContinueRun)


def test_a_repeated_end_of_a_turn_is_refreshed_once() -> None:
    story = _running()
    story.slow = True
    story.turn_ends().turn_ends()
    story.answer_refresh()
    assert not story.refreshes
    assert len(story.said(ContinueRun)) == 1


def test_the_end_of_a_turn_after_a_stop_or_a_finish_changes_nothing() -> None:
    story = _running(max_turns=1)
    story.turn_ends().forget()
    story.turn_ends()
    assert not story.said(RefreshIssues)
    stopping = _running()
    stopping.put("1", state="Done")
    stopping.tell(WakeAsked(reason="t"))
    stopping.forget().turn_ends()
    assert not stopping.said(RefreshIssues)


def test_a_snapshot_from_before_the_end_of_a_turn_does_not_decide_on_the_next() -> None:
    """The session may have moved its issue in between: only a question asked after the turn counts."""
    story = _running()
    story.slow = True
    story.tell(WakeAsked(reason="t"))
    story.turn_ends()
    story.answer_refresh()
    assert not story.said(ContinueRun)
    story.put("1", state="Done")
    story.answer()
    assert _finished(story) == [FinishReason.INACTIVE]
    assert not story.said(ContinueRun)


def test_a_failed_refresh_from_before_the_end_of_a_turn_does_not_fail_the_run() -> None:
    story = _running()
    story.slow = True
    story.tell(WakeAsked(reason="t"))
    story.turn_ends()
    story.fail_refresh()
    assert not story.said(FinishRun)
    story.answer()
    assert len(story.said(ContinueRun)) == 1


# --- a fresh snapshot of what runs -----------------------------------------------------------------------


@pytest.mark.conformance("S-4")
def test_an_active_snapshot_replaces_the_old_one() -> None:
    story = _running()
    story.put("1", state="In Progress", title="New")
    story.tell(WakeAsked(reason="t"))
    assert story.state.running["1"].issue == story.board["1"]
    assert not _stopped(story)


@pytest.mark.conformance("S-5", "S-6")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": "Done"}, StopReason.TERMINAL),
        ({"state": "Backlog"}, StopReason.INACTIVE),
        ({"dispatchable": False}, StopReason.UNROUTABLE),
    ],
)
def test_an_issue_that_left_is_stopped_in_mid_turn(changes: dict[str, Any], reason: StopReason) -> None:
    story = _running()
    story.put("1", **changes)
    story.tell(WakeAsked(reason="t"))
    assert _stopped(story) == [reason]
    story.tell(WakeAsked(reason="t"))
    story.advance(90_000)
    assert _stopped(story) == [reason], "a run is stopped once"


@pytest.mark.conformance("S-5")
def test_an_issue_that_is_gone_is_stopped_in_mid_turn() -> None:
    story = _running()
    del story.board["1"]
    story.tell(WakeAsked(reason="t"))
    assert _stopped(story) == [StopReason.MISSING]


@pytest.mark.conformance("S-6")
def test_the_workspace_of_an_ended_issue_is_removed_once_its_run_is_gone() -> None:
    story = _running()
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    assert not story.said(CleanWorkspace)
    story.ends(kind=OutcomeKind.CANCELED)
    assert story.said(CleanWorkspace) == [CleanWorkspace(issue_id="1", identifier="SYM-1", path="/ws/1")]
    assert not story.state.running
    assert not story.state.retrying


@pytest.mark.conformance("S-5")
@pytest.mark.parametrize("changes", [{"state": "Backlog"}, {"dispatchable": False}], ids=str)
def test_the_workspace_of_an_issue_that_only_left_is_kept(changes: dict[str, Any]) -> None:
    story = _running()
    story.put("1", **changes)
    story.tell(WakeAsked(reason="t"))
    story.ends(kind=OutcomeKind.CANCELED)
    assert not story.said(CleanWorkspace)
    assert not story.state.running
    assert not story.state.retrying
    assert story.state.idle_workspaces["1"].path == "/ws/1"


def test_a_session_that_moved_its_own_issue_may_end_its_turn() -> None:
    story = _running()
    story.streams(tool_calls=1)
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="board_changed"))
    story.advance(29_999)
    assert not _stopped(story)
    story.turn_ends()
    assert _finished(story) == [FinishReason.INACTIVE]
    story.advance(60_000)
    assert not _stopped(story)


def test_the_grace_period_ends() -> None:
    story = _running()
    story.streams(tool_calls=1)
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="board_changed"))
    story.advance(20_000)
    story.tell(WakeAsked(reason="board_changed"))
    story.advance(10_000)
    assert _stopped(story) == [StopReason.TERMINAL]


def test_the_end_of_the_grace_period_uses_the_latest_snapshot() -> None:
    story = _running()
    story.streams(tool_calls=1)
    story.put("1", state="Backlog")
    story.tell(WakeAsked(reason="t"))
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    story.advance(30_000)
    assert _stopped(story) == [StopReason.TERMINAL]


def test_a_session_whose_issue_vanished_after_a_tool_call_is_stopped_after_the_grace_period() -> None:
    story = _running()
    story.streams(tool_calls=1)
    del story.board["1"]
    story.tell(WakeAsked(reason="t"))
    story.advance(30_000)
    assert _stopped(story) == [StopReason.MISSING]


def test_an_issue_that_comes_back_within_the_grace_period_continues() -> None:
    story = _running()
    story.streams(tool_calls=1)
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    story.put("1", state="Todo")
    story.tell(WakeAsked(reason="t"))
    story.advance(60_000)
    assert not _stopped(story)
    assert not story.state.running["1"].in_grace_period


def test_the_grace_period_does_not_stop_a_run_between_turns() -> None:
    story = _running()
    story.streams(tool_calls=1)
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    story.slow = True
    story.turn_ends().advance(31_000)
    assert not _stopped(story)


def test_tool_calls_of_an_earlier_turn_give_no_grace_period() -> None:
    story = _running()
    story.streams(tool_calls=1).turn_ends()
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    assert _stopped(story) == [StopReason.TERMINAL]
