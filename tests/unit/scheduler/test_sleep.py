"""A machine that was suspended, or a daemon that was stopped and went on: all timers are late at once."""

import pytest

from harness.scheduling import Story, make_issue
from symphony.scheduler import (
    FetchCandidates,
    RefreshIssues,
    StartRun,
    StopReason,
    StopRun,
    Timer,
    TimerFired,
    TimerKind,
    WakeAsked,
)

HOURS = 8 * 3_600_000


def _sleeps(story: Story, duration_ms: int = HOURS) -> None:
    """Time passes and nobody is there; then everything that is due fires at once, in its order."""
    story.now += duration_ms
    due = sorted(story.timers.values(), key=lambda one: (one.due_ms, one.token))
    for one in due:
        if one.due_ms <= story.now:
            del story.timers[one.timer]
    for one in due:
        if one.due_ms <= story.now:
            story.tell(TimerFired(timer=one.timer, token=one.token))


def _stopped(story: Story) -> list[StopReason]:
    return [command.reason for command in story.said(StopRun)]


def test_agents_that_slept_with_the_machine_are_not_called_silent() -> None:
    story = Story(make_issue("1"), make_issue("2"), stall_timeout_ms=300_000).begin()
    story.streams("1").streams("2").advance(20_000).forget()
    _sleeps(story)
    assert not _stopped(story)
    assert [told.fields["late_ms"] > 0 for told in story.notices("overslept")] == [True], "told once"


def test_after_the_sleep_the_whole_limit_counts_again() -> None:
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().streams()
    _sleeps(story)
    story.forget().advance(300_000)
    assert not _stopped(story)
    story.advance(1)
    assert _stopped(story) == [StopReason.STALLED]


def test_whoever_comes_first_after_the_sleep_it_is_noticed() -> None:
    """A wake may be taken before the timers that are late."""
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().streams().forget()
    story.now += HOURS
    story.tell(WakeAsked(reason="test"))
    assert not _stopped(story)
    assert story.notices("overslept")


def test_a_sleep_during_a_question_to_the_tracker_is_noticed_too() -> None:
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().streams().forget()
    story.slow = True
    story.tell(WakeAsked(reason="test"))
    _sleeps(story)
    assert not _stopped(story)


@pytest.mark.parametrize("late_ms", [0, 10_000])
def test_a_timer_that_is_a_little_late_is_a_busy_machine_and_no_sleep(late_ms: int) -> None:
    story = (
        Story(make_issue(), stall_timeout_ms=1_000, poll_interval_ms=10_000_000).begin().streams().forget()
    )
    stall = Timer(TimerKind.STALL, story.run_id())
    story.now = 1_001 + late_ms
    story.tell(TimerFired(timer=stall, token=story.timers[stall].token))
    assert _stopped(story) == [StopReason.STALLED]


def test_a_run_that_still_prepares_has_no_silence_to_forgive() -> None:
    story = Story(make_issue(), stall_timeout_ms=300_000).begin().forget()
    _sleeps(story)
    assert story.state.running["1"].last_activity_ms is None
    assert not story.notices("overslept")


def test_the_grace_of_a_session_that_moved_its_own_issue_counts_anew() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000).begin().streams(tool_calls=1)
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="test"))
    _sleeps(story, 60_000)
    assert not _stopped(story)
    story.advance(30_000)
    assert _stopped(story) == [StopReason.TERMINAL]


def test_overdue_retries_start_once_each_and_one_request_asks_for_them() -> None:
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


def test_hours_of_missed_ticks_are_one_tick() -> None:
    story = Story(poll_interval_ms=1_000).begin().forget()
    _sleeps(story)
    assert len(story.said(FetchCandidates)) == 1
