import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.scheduler.commands import (
    CleanWorkspace,
    ContinueRun,
    FinishReason,
    FinishRun,
    RefreshIssues,
    StartRun,
    StopReason,
    StopRun,
)
from symphony.scheduler.inputs import (
    DrainAsked,
    OutcomeKind,
    RunStage,
    SettingsChanged,
    StopAsked,
    WakeAsked,
)
from symphony.scheduler.state import Drain


def _streaming(**settings: int) -> Story:
    return Story(make_issue(), **settings).begin().streams().forget()


# --- drain -----------------------------------------------------------------------------------------------


def test_a_drain_with_nothing_running_exits_at_once() -> None:
    story = Story().begin()
    story.tell(DrainAsked())
    assert story.exits() == 1
    assert story.state.drain is Drain.EXITED


@pytest.mark.conformance("S-21")
def test_a_drain_lets_a_turn_come_to_its_end() -> None:
    story = _streaming()
    story.tell(DrainAsked())
    assert not story.said(StopRun)
    assert story.notices("draining")[0].fields == {"running": 1}
    story.turn_ends()
    assert [command.reason for command in story.said(FinishRun)] == [FinishReason.DRAINING]
    assert not story.said(RefreshIssues)
    assert not story.exits()
    story.ends()
    assert story.exits() == 1
    assert not story.state.retrying


def test_a_drain_reaches_a_run_between_two_turns() -> None:
    story = _streaming()
    story.slow = True
    story.turn_ends()
    story.tell(DrainAsked())
    assert [command.reason for command in story.said(FinishRun)] == [FinishReason.DRAINING]
    story.answer()
    assert not story.said(ContinueRun)
    assert len(story.said(FinishRun)) == 1


def test_a_drain_stops_a_run_that_is_not_yet_in_a_turn() -> None:
    story = Story(make_issue("1"), make_issue("2")).begin()
    story.report("1", stage=RunStage.LAUNCHING_AGENT).report("2", stage=RunStage.FINISHING).forget()
    story.tell(DrainAsked())
    stops = story.said(StopRun)
    assert [(stop.run_id, stop.reason) for stop in stops] == [(story.run_id("1"), StopReason.DRAINING)]


@pytest.mark.conformance("S-21")
def test_a_drain_does_not_wait_longer_than_its_limit() -> None:
    story = _streaming(drain_timeout_ms=5_000)
    story.tell(DrainAsked())
    story.advance(4_999)
    assert not story.said(StopRun)
    story.advance(1)
    assert [stop.reason for stop in story.said(StopRun)] == [StopReason.DRAINING]
    assert not story.exits(), "processes may still be alive"
    story.ends(kind=OutcomeKind.CANCELED)
    assert story.exits() == 1


@pytest.mark.conformance("S-21")
def test_a_drain_starts_nobody_and_retries_nobody() -> None:
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"), max_concurrent_agents=2).begin()
    story.streams("1").streams("2").fails("1").forget()
    story.tell(DrainAsked())
    story.tell(SettingsChanged(settings=make_settings(max_concurrent_agents=9)))
    story.tell(WakeAsked(reason="t"))
    story.advance(29_000)
    assert not story.said(StartRun)
    assert not story.said(RefreshIssues)


def test_a_due_retry_under_way_does_not_start_into_a_drain() -> None:
    story = _streaming()
    story.board["2"] = make_issue("2")
    story.tell(WakeAsked(reason="t"))
    story.streams("2").fails("1")
    story.slow = True
    story.advance(10_000).forget()
    assert story.refreshes
    story.tell(DrainAsked())
    story.answer()
    assert not story.said(StartRun)


def test_a_pick_under_way_does_not_start_into_a_drain() -> None:
    story = _streaming()
    story.board["2"] = make_issue("2")
    story.slow = True
    story.tell(WakeAsked(reason="t"))
    story.answer_refresh()
    story.answer_poll()
    story.tell(DrainAsked())
    story.forget().answer()
    assert not story.said(StartRun)


def test_a_second_drain_changes_nothing() -> None:
    story = _streaming(drain_timeout_ms=5_000)
    story.tell(DrainAsked())
    before = story.state
    story.tell(DrainAsked())
    assert story.state == before


def test_a_run_that_ends_in_a_drain_keeps_its_workspace() -> None:
    story = _streaming()
    story.tell(DrainAsked())
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    assert not story.said(CleanWorkspace)
    assert not story.state.blocked
    assert story.state.parked.keys() == {"1"}


# --- stop ------------------------------------------------------------------------------------------------


def test_a_stop_ends_everything_now() -> None:
    story = Story(make_issue("1"), make_issue("2")).begin().streams("1").forget()
    story.tell(StopAsked())
    assert [stop.reason for stop in story.said(StopRun)] == [StopReason.DRAINING] * 2
    story.ends("1", OutcomeKind.CANCELED)
    assert not story.exits()
    story.ends("2", OutcomeKind.CANCELED)
    assert story.exits() == 1


def test_a_stop_during_a_drain_does_not_wait() -> None:
    story = _streaming()
    story.tell(DrainAsked())
    story.tell(StopAsked())
    assert len(story.said(StopRun)) == 1
    story.advance(60_000)
    assert len(story.said(StopRun)) == 1, "a run is stopped once"


def test_a_stop_under_way_starts_no_pick() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    story.tell(StopAsked())
    story.answer()
    assert not story.said(StartRun)
    assert story.exits() == 1


def test_a_failed_refresh_tells_nothing_to_a_run_that_was_stopped() -> None:
    """Its worker has gone deaf: it waits between turns, and was cancelled there."""
    story = _streaming()
    story.slow = True
    story.turn_ends()
    story.tell(StopAsked())
    story.fail_refresh()
    assert not story.said(FinishRun)


def test_after_the_exit_nothing_is_asked_and_no_second_exit_is_said() -> None:
    story = Story(make_issue("1")).begin().streams()
    story.tell(DrainAsked())
    story.turn_ends().ends().forget()
    story.tell(WakeAsked(reason="t"))
    story.tell(DrainAsked())
    story.tell(StopAsked())
    story.tell(SettingsChanged(settings=make_settings()))
    story.advance(1_000_000)
    assert story.exits() == 1
    assert not [command for command in story.told if isinstance(command, StartRun | RefreshIssues)]
