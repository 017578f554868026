"""A tracker that says "come back later" is left alone until then, whoever asks."""

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Category, Failure
from symphony.scheduler import (
    MAX_THROTTLE_MS,
    ContinueRun,
    DrainAsked,
    FetchCandidates,
    FinishRun,
    Outcome,
    OutcomeKind,
    RefreshIssues,
    RunEnded,
    SettingsChanged,
    StopRun,
    Timer,
    TimerFired,
    TimerKind,
    WakeAsked,
    is_idle,
    would_coalesce,
)

_QUIET = Timer(TimerKind.TRACKER_PAUSE)


def _later(after_ms: int | None) -> Failure:
    return make_failure(
        "too many requests",
        category=Category.TRACKER_RATE_LIMITED,
        blame=Blame.TRACKER,
        retry_after_ms=after_ms,
    )


def _wake(story: Story) -> None:
    story.tell(WakeAsked(reason="test"))


def _asked(story: Story) -> int:
    return len(story.said(FetchCandidates)) + len(story.said(RefreshIssues))


def _refused_poll(after_ms: int | None = 60_000, **settings: int) -> Story:
    story = Story(make_issue(), **{"poll_interval_ms": 1_000} | settings)
    story.slow = True
    story.begin()
    story.fail_poll(_later(after_ms))
    story.slow = False
    return story.forget()


def test_the_next_poll_waits_as_long_as_the_tracker_asked() -> None:
    story = _refused_poll()
    story.advance(59_999)
    assert _asked(story) == 0
    story.advance(1)
    assert story.started() == ["SYM-1"]


def test_a_wake_does_not_bypass_the_pause() -> None:
    story = _refused_poll()
    for _ in range(10):
        _wake(story)
        story.advance(1_000)
    assert _asked(story) == 0
    assert would_coalesce(story.state), "a wake shares the poll that waits"
    story.advance(50_000)
    assert len(story.said(FetchCandidates)) == 1


def test_a_wake_in_the_pause_brings_the_poll_at_its_end_and_not_an_interval_later() -> None:
    story = _refused_poll(poll_interval_ms=600_000)
    _wake(story)
    assert not is_idle(story.state), "the poll that the wake brought is still to come"
    story.advance(60_000)
    assert story.started() == ["SYM-1"]


def test_a_pause_shorter_than_the_interval_makes_no_poll_earlier() -> None:
    story = _refused_poll(5_000, poll_interval_ms=30_000)
    story.advance(29_999)
    assert _asked(story) == 0
    story.advance(1)
    assert story.started() == ["SYM-1"]


def test_a_failure_without_a_wish_keeps_the_interval() -> None:
    story = _refused_poll(None)
    story.advance(1_000)
    assert story.started() == ["SYM-1"]


def test_a_wild_wish_is_cut() -> None:
    story = _refused_poll(10**12)
    assert story.state.next_poll_ms == MAX_THROTTLE_MS


def test_the_longer_of_two_wishes_counts() -> None:
    story = Story(make_issue("1"), poll_interval_ms=1_000).begin().streams("1")
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(60_000))
    assert story.state.throttled_until_ms == 60_000
    assert not story.polls, "a refused refresh is not followed by a poll at once"
    story.advance(60_000)
    story.fail_refresh(failure=_later(30_000))
    assert story.state.throttled_until_ms == 90_000


def test_a_cycle_that_a_pause_cut_short_is_made_up_for_when_it_is_over() -> None:
    story = Story(make_issue("1"), poll_interval_ms=600_000).begin().streams("1")
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(60_000))
    assert story.state.next_poll_ms == 60_000, "the wake is not lost until the next regular poll"


def test_a_turn_that_ends_in_a_pause_waits_for_its_end_and_goes_on() -> None:
    story = Story(make_issue(), poll_interval_ms=600_000).begin().streams()
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(60_000))
    story.slow = False
    story.forget().turn_ends()
    story.advance(59_999)
    assert not story.told or not story.said(RefreshIssues)
    assert not story.said(StopRun), "waiting for the tracker is not silence"
    story.advance(1)
    assert len(story.said(RefreshIssues)) == 1
    assert len(story.said(ContinueRun)) == 1
    assert not story.said(FinishRun)


def test_all_that_waits_in_a_pause_is_asked_in_one_request_at_its_end() -> None:
    issues = [make_issue(str(number)) for number in range(5)]
    story = Story(*issues, poll_interval_ms=600_000).begin()
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(60_000))
    story.slow = False
    story.forget()
    for number in range(4):
        story.streams(str(number)).turn_ends(str(number))
    story.ends("4").advance(60_000)
    assert [sorted(ask.ids) for ask in story.said(RefreshIssues)] == [["0", "1", "2", "3", "4"]]


def test_a_cycle_that_a_pause_overtakes_goes_on_after_it() -> None:
    """The reconciliation waits behind another question, and that one is refused."""
    story = Story(make_issue("1"), make_issue("2"), poll_interval_ms=10_000).begin().streams("1")
    story.slow = True
    story.turn_ends("1")
    _wake(story)
    story.fail_refresh(failure=_later(20_000))
    assert story.refreshes == []
    story.slow = False
    story.forget().advance(20_000)
    assert len(story.said(RefreshIssues)) == 1
    assert len(story.said(FetchCandidates)) == 1


def test_new_settings_end_the_pause_as_they_may_name_another_tracker() -> None:
    story = _refused_poll()
    story.tell(SettingsChanged(settings=make_settings(poll_interval_ms=1_000)))
    assert story.state.next_poll_ms == 1_000
    story.advance(1_000)
    assert story.started() == ["SYM-1"]


def test_a_pause_is_no_obstacle_on_the_way_out() -> None:
    story = Story(make_issue()).begin().streams()
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(3_000_000))
    story.turn_ends()
    story.tell(DrainAsked())
    story.ends()
    assert story.exits() == 1


def test_the_end_of_a_pause_that_nobody_waits_for_says_nothing() -> None:
    story = Story(make_issue()).begin().streams()
    story.slow = True
    story.turn_ends()
    story.fail_refresh(failure=_later(60_000))
    story.ends()
    story.advance(1_000)
    quiet = story.timers[_QUIET]
    story.tell(SettingsChanged(settings=make_settings()))
    assert len(story.refreshes) == 1, "the retry that came due is asked for"
    story.forget().tell(TimerFired(timer=_QUIET, token=quiet.token))
    assert not story.told


def test_a_fact_that_means_nothing_does_not_end_a_pause_before_its_timer() -> None:
    story = _refused_poll()
    story.slow = True
    _wake(story)
    story.now = 60_000
    before = story.state
    story.tell(RunEnded(run_id="unknown", outcome=Outcome(kind=OutcomeKind.SUCCEEDED)))
    assert story.state == before
