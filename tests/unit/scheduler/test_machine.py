import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Tokens
from symphony.scheduler import (
    CleanWorkspace,
    ContinueRun,
    Drain,
    DrainAsked,
    FinishReason,
    FinishRun,
    OutcomeKind,
    PostComment,
    RefreshIssues,
    Resume,
    ResumeReason,
    RunStage,
    SettingsChanged,
    StartRun,
    StopAsked,
    StopReason,
    StopRun,
    Thread,
    Timer,
    TimerKind,
    WakeAsked,
)


def _streaming(
    *, thread_id: str | None = None, total_tokens: int = 0, drain_timeout_ms: int = 30_000
) -> Story:
    story = Story(make_issue(), drain_timeout_ms=drain_timeout_ms).begin()
    return story.streams(thread_id=thread_id, total_tokens=total_tokens, turn_count=1).forget()


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
def test_a_drain_starts_and_retries_nothing() -> None:
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"), max_concurrent_agents=2).begin()
    story.streams("1").streams("2").fails("1").forget()
    story.tell(DrainAsked())
    story.tell(SettingsChanged(settings=make_settings(max_concurrent_agents=9)))
    story.tell(WakeAsked(reason="t"))
    story.advance(29_000)
    assert not story.said(StartRun)
    assert not story.said(RefreshIssues)


def test_a_due_retry_does_not_start_during_a_drain() -> None:
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


def test_a_pending_candidate_does_not_start_during_a_drain() -> None:
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


def test_a_run_that_ends_during_a_drain_is_left_to_the_next_daemon() -> None:
    story = _streaming(thread_id="t-1", total_tokens=70)
    story.tell(DrainAsked())
    story.turn_ends().ends()
    (retry,) = story.state.retrying.values()
    assert (retry.attempt, retry.due_ms, retry.error, retry.workspace_path) == (1, story.now, None, "/ws/1")
    assert retry.resume == Resume(
        reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t-1", tokens=Tokens(total_tokens=70))
    )
    assert Timer(TimerKind.RETRY, "1") not in story.timers, "the retry is left to the next daemon"
    assert not story.said(CleanWorkspace)
    assert story.notices("run_interrupted")
    assert not story.notices("claim_released")


def test_a_run_that_fails_on_its_own_during_a_drain_is_retried_as_usual() -> None:
    story = _streaming()
    story.tell(DrainAsked())
    story.fails()
    (retry,) = story.state.retrying.values()
    assert (retry.attempt, retry.due_ms, retry.failures) == (1, story.now + 10_000, 1)
    assert retry.resume is None


def test_a_delivery_that_fails_during_a_drain_is_a_failure() -> None:
    story = _streaming()
    story.tell(DrainAsked())
    story.turn_ends().fails()
    assert story.state.retrying["1"].error == "turn_failed: it broke"


def test_a_question_during_a_drain_blocks_the_issue_without_a_refresh() -> None:
    story = _streaming()
    story.tell(DrainAsked())
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    assert story.state.blocked.keys() == {"1"}
    assert not story.said(RefreshIssues)
    assert len(story.said(PostComment)) == 1
    assert story.exits() == 1


def test_ended_issues_are_cleaned_up_during_a_drain_too() -> None:
    story = _streaming()
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    story.tell(DrainAsked())
    story.ends(kind=OutcomeKind.CANCELED)
    assert len(story.said(CleanWorkspace)) == 1
    assert not story.state.retrying


def test_issues_that_left_are_released_during_a_drain_too() -> None:
    story = _streaming()
    story.put("1", state="Backlog")
    story.tell(WakeAsked(reason="t"))
    story.tell(DrainAsked())
    story.ends(kind=OutcomeKind.CANCELED)
    assert not story.state.retrying
    assert story.state.idle_workspaces.keys() == {"1"}


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


def test_a_stop_starts_no_pending_candidate() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    story.tell(StopAsked())
    story.answer()
    assert not story.said(StartRun)
    assert story.exits() == 1


def test_a_failed_refresh_does_not_finish_a_stopped_run() -> None:
    """Its worker has gone deaf: it waits between turns, and was cancelled there."""
    story = _streaming()
    story.slow = True
    story.turn_ends()
    story.tell(StopAsked())
    story.fail_refresh()
    assert not story.said(FinishRun)


def test_after_the_exit_nothing_is_requested_and_no_second_exit_follows() -> None:
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
