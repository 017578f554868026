from typing import Any

import pytest

from harness.scheduling import Story, make_issue, make_settings
from symphony.domain import Tokens
from symphony.scheduler import (
    CleanWorkspace,
    FetchCandidates,
    OutcomeKind,
    RefreshIssues,
    RunStage,
    SettingsChanged,
    StartRun,
    StopReason,
    StopRun,
    Timer,
    TimerFired,
    TimerKind,
    WakeAsked,
)


def _running(*others: Any, **settings: Any) -> Story:
    """Issue 1 has an agent in its first turn."""
    return Story(make_issue(), *others, **settings).begin().streams().forget()


def _stopped(story: Story) -> list[StopReason]:
    return [command.reason for command in story.said(StopRun)]


def _retry(story: Story, issue_id: str = "1") -> tuple[int, int, str | None]:
    """Attempt, wait in ms and error of the waiting claim."""
    retry = story.state.retrying[issue_id]
    return retry.attempt, retry.due_ms - story.now, retry.error


# --- signs of life ---------------------------------------------------------------------------------------


@pytest.mark.conformance("S-11")
def test_an_agent_silent_for_longer_than_the_limit_is_stopped() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.advance(1_000)
    assert not _stopped(story)
    story.advance(1)
    assert _stopped(story) == [StopReason.STALLED]


@pytest.mark.conformance("S-11")
def test_silence_of_exactly_the_limit_is_allowed() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.now = 1_000
    story.tell(WakeAsked(reason="t"))
    assert not _stopped(story)
    story.now = 1_001
    story.tell(WakeAsked(reason="t"))
    assert _stopped(story) == [StopReason.STALLED]


def test_each_agent_event_restarts_the_clock() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.advance(900).streams().advance(1_000)
    assert not _stopped(story)
    story.advance(1)
    assert _stopped(story) == [StopReason.STALLED]


def test_a_report_without_a_new_event_does_not_restart_the_clock() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.advance(900).report(total_tokens=7).advance(101)
    assert _stopped(story) == [StopReason.STALLED]


def test_a_new_stage_restarts_the_clock() -> None:
    story = Story(make_issue(), stall_timeout_ms=1_000).begin()
    story.report(stage=RunStage.LAUNCHING_AGENT).advance(900).report(stage=RunStage.STREAMING_TURN)
    story.advance(1_000)
    assert not _stopped(story)


def test_time_before_the_agent_is_launched_is_not_silence() -> None:
    story = Story(make_issue(), stall_timeout_ms=1_000, poll_interval_ms=700).begin()
    story.advance(5_000).report(stage=RunStage.BUILDING_PROMPT).advance(5_000)
    story.report(stage=RunStage.LAUNCHING_AGENT).advance(1_000)
    assert not _stopped(story)
    story.advance(1)
    assert _stopped(story) == [StopReason.STALLED]


def test_time_between_turns_is_not_silence() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.slow = True
    story.turn_ends().advance(60_000)
    assert not _stopped(story)
    story.answer()
    story.slow = False
    story.advance(1_000)
    assert not _stopped(story)
    story.advance(1)
    assert _stopped(story) == [StopReason.STALLED]


def test_time_for_hooks_and_delivery_is_not_silence() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.report(stage=RunStage.FINISHING).advance(60_000)
    assert not _stopped(story)


def test_an_agent_that_works_on_after_it_seemed_to_finish_is_checked_again() -> None:
    story = _running(stall_timeout_ms=1_000, poll_interval_ms=10_000_000)
    story.report(stage=RunStage.FINISHING).advance(60_000)
    story.streams().advance(1_001)
    assert _stopped(story) == [StopReason.STALLED]


def test_a_run_that_was_told_to_finish_is_not_stalled() -> None:
    story = _running(stall_timeout_ms=1_000, max_turns=1)
    story.turn_ends().advance(60_000)
    assert not _stopped(story)


@pytest.mark.conformance("S-11")
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_zero_or_less_disables_the_check(limit: int) -> None:
    story = _running(stall_timeout_ms=limit)
    story.advance(10_000_000)
    assert not _stopped(story)


def test_a_disabled_check_sets_no_timer() -> None:
    story = _running(stall_timeout_ms=0)
    assert not [timer for timer in story.timers if timer.kind is TimerKind.STALL]


def test_a_run_leaves_no_timer_behind() -> None:
    story = _running(max_concurrent_agents=1)
    run_id = story.run_id()
    story.streams(tool_calls=1)
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    assert {timer.kind for timer in story.state.timers if timer.id == run_id} == {
        TimerKind.STALL,
        TimerKind.GRACE,
    }
    story.ends()
    assert not [timer for timer in story.state.timers if timer.id == run_id]


def test_a_shorter_limit_holds_at_once_for_what_runs() -> None:
    story = _running(stall_timeout_ms=100_000)
    story.advance(5_000)
    story.tell(SettingsChanged(settings=make_settings(stall_timeout_ms=4_000)))
    assert _stopped(story) == [StopReason.STALLED]


def test_a_limit_that_is_enabled_later_counts_from_the_last_event() -> None:
    story = _running(stall_timeout_ms=0)
    story.advance(5_000)
    story.tell(SettingsChanged(settings=make_settings(stall_timeout_ms=6_000)))
    story.advance(1_000)
    assert not _stopped(story)
    story.advance(1)
    assert _stopped(story) == [StopReason.STALLED]


@pytest.mark.conformance("S-11")
def test_a_stalled_run_is_retried_and_its_workspace_kept() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.advance(1_001)
    assert "1" in story.state.running, "a stop frees neither slot nor claim"
    story.ends(kind=OutcomeKind.CANCELED)
    assert _retry(story)[:2] == (1, 10_000)
    assert str(_retry(story)[2]).startswith("stalled: the agent gave no sign of life")
    assert not story.said(CleanWorkspace)


# --- reports ---------------------------------------------------------------------------------------------


@pytest.mark.conformance("O-6")
def test_tokens_and_time_of_a_run_are_added_once_at_its_end() -> None:
    story = Story(make_issue()).begin()
    story.advance(5_000).streams(input_tokens=3, output_tokens=4, total_tokens=7).advance(2_000)
    assert story.state.totals.usage.tokens == Tokens()
    story.ends()
    totals = story.state.totals
    assert totals.usage.tokens == Tokens(3, 4, 7)
    assert totals.running_ms == 2_000, "hooks and clones are not agent time"


def test_the_newest_rate_limits_win_and_reports_without_them_keep_them() -> None:
    story = _running()
    story.streams(rate_limits={"limitId": "a"}).streams(rate_limits={"limitId": "b"})
    story.streams(rate_limits=None)
    assert story.state.rate_limits == {"limitId": "b"}


HOURS = 8 * 3_600_000


def _sleeps(story: Story, duration_ms: int = HOURS) -> None:
    """Time passes without any timer; then everything that is due fires at once, in order."""
    story.now += duration_ms
    due = sorted(story.timers.values(), key=lambda one: (one.due_ms, one.token))
    for one in due:
        if one.due_ms <= story.now:
            del story.timers[one.timer]
    for one in due:
        if one.due_ms <= story.now:
            story.tell(TimerFired(timer=one.timer, token=one.token))


def test_agents_of_a_suspended_machine_are_not_stalled() -> None:
    story = Story(make_issue("1"), make_issue("2"), stall_timeout_ms=300_000).begin()
    story.streams("1").streams("2").advance(20_000).forget()
    _sleeps(story)
    assert not _stopped(story)
    assert [told.fields["late_ms"] > 0 for told in story.notices("overslept")] == [True], "told once"


def test_after_a_suspension_the_whole_limit_counts_again() -> None:
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().streams()
    _sleeps(story)
    story.forget().advance(300_000)
    assert not _stopped(story)
    story.advance(1)
    assert _stopped(story) == [StopReason.STALLED]


def test_a_suspension_is_noticed_whichever_timer_fires_first() -> None:
    """A wake may be taken before the timers that are late."""
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().streams().forget()
    story.now += HOURS
    story.tell(WakeAsked(reason="test"))
    assert not _stopped(story)
    assert story.notices("overslept")


def test_a_suspension_during_a_request_is_noticed_too() -> None:
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().streams().forget()
    story.slow = True
    story.tell(WakeAsked(reason="test"))
    _sleeps(story)
    assert not _stopped(story)


@pytest.mark.parametrize("late_ms", [0, 10_000])
def test_a_timer_that_is_a_little_late_is_not_a_suspension(late_ms: int) -> None:
    story = (
        Story(make_issue(), stall_timeout_ms=1_000, poll_interval_ms=10_000_000).begin().streams().forget()
    )
    stall = Timer(TimerKind.STALL, story.run_id())
    story.now = 1_001 + late_ms
    story.tell(TimerFired(timer=stall, token=story.timers[stall].token))
    assert _stopped(story) == [StopReason.STALLED]


def test_a_run_without_an_agent_is_not_affected_by_a_suspension() -> None:
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().forget()
    _sleeps(story)
    assert story.state.running["1"].last_activity_ms is None
    assert not story.notices("overslept")


def test_the_grace_period_starts_again_after_a_suspension() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000).begin().streams(tool_calls=1)
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="test"))
    _sleeps(story, 60_000)
    assert not _stopped(story)
    story.advance(30_000)
    assert _stopped(story) == [StopReason.TERMINAL]


def test_overdue_retries_start_once_each_after_one_request() -> None:
    issues = [make_issue(str(number)) for number in range(4)]
    story = Story(*issues, poll_interval_ms=10_000_000).begin()
    for number in range(4):
        story.fails(str(number))
    story.slow = True
    story.forget()
    _sleeps(story, 9_000_000)
    story.answer()
    assert [start.issue.id for start in story.said(StartRun)] == ["0", "1", "2", "3"]
    assert len(story.said(RefreshIssues)) <= 2
    story.forget().advance(600_000)
    assert not story.said(StartRun)


def test_hours_of_missed_polls_are_one_poll() -> None:
    story = Story(poll_interval_ms=1_000).begin().forget()
    _sleeps(story)
    assert len(story.said(FetchCandidates)) == 1
