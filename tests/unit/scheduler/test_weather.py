"""A tracker that fails again and again is asked less and less; nobody who works is disturbed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Category
from symphony.scheduler import (
    CircuitBreaker,
    CircuitState,
    FetchCandidates,
    RefreshIssues,
    Resume,
    ResumeReason,
    RunStage,
    SettingsChanged,
    StartRun,
    StopRun,
    Thread,
    Timer,
    TimerKind,
    WakeAsked,
    breaker_wait_ms,
    circuit_state,
)

_BAD = CircuitBreaker(failures=9, since_ms=0, until_ms=200_000)
_QUIET = Timer(TimerKind.TRACKER_PAUSE)
_LIMITED = make_failure(
    "too many requests", category=Category.TRACKER_RATE_LIMITED, blame=Blame.TRACKER, retry_after_ms=60_000
)


def _asked(story: Story) -> int:
    return len(story.said(FetchCandidates)) + len(story.said(RefreshIssues))


def _failing(times: int, *, poll_interval_ms: int = 2_000) -> Story:
    """The tracker answers no poll, so many times in a row; nothing runs."""
    story = Story(poll_interval_ms=poll_interval_ms)
    story.slow = True
    story.begin()
    for number in range(times):
        story.fail_poll()
        if number + 1 < times:
            story.advance((story.state.next_poll_ms or 0) - story.now)
    return story.forget()


def _circuit(story: Story) -> CircuitState:
    return circuit_state(story.state, story.now)


def test_one_failure_is_no_weather() -> None:
    story = _failing(1)
    assert _circuit(story) is CircuitState.CLOSED
    assert story.state.breaker.failures == 1
    story.advance(2_000)
    assert _asked(story) == 1


def test_the_second_failure_opens_the_circuit() -> None:
    story = _failing(2)
    assert _circuit(story) is CircuitState.OPEN
    until_ms = story.state.breaker.until_ms
    assert until_ms is not None
    assert 1_600 <= until_ms - story.now <= 2_400
    assert story.state.breaker.since_ms == 0
    assert story.state.next_poll_ms == until_ms


def test_it_is_told_once() -> None:
    story = Story(poll_interval_ms=2_000)
    story.slow = True
    story.begin()
    for _ in range(4):
        story.fail_poll()
        story.advance((story.state.next_poll_ms or 0) - story.now)
    assert len(story.notices("circuit_opened")) == 1


def test_no_news_bypasses_an_open_circuit() -> None:
    story = _failing(8)
    story.tell(WakeAsked(reason="webhook"))
    story.advance(15_000)
    story.tell(WakeAsked(reason="tracker_changed"))
    assert _asked(story) == 0


def test_an_operator_has_the_tracker_asked_at_once() -> None:
    story = _failing(8)
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert (_asked(story), _circuit(story)) == (1, CircuitState.HALF_OPEN)
    story.fail_poll()
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert _asked(story) == 2
    story.answer()
    assert _circuit(story) is CircuitState.CLOSED


def test_an_operator_has_those_asked_about_who_wait() -> None:
    story = Story(make_issue("1"), poll_interval_ms=600_000).begin().streams()
    story.slow = True
    story.state = replace(story.state, breaker=_BAD)
    story.turn_ends()
    assert not story.refreshes
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert len(story.refreshes) == 1
    assert _QUIET not in story.state.timers


def test_an_operator_does_not_bypass_what_the_tracker_asked_for() -> None:
    story = Story(poll_interval_ms=1_000)
    story.slow = True
    story.begin()
    story.fail_poll(_LIMITED)
    story.forget().advance(30_000)
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert _asked(story) == 0
    story.advance(30_000)
    assert _asked(story) == 1


def test_failures_of_one_moment_count_once() -> None:
    """A tick asks twice, and the end of a turn may ask in between."""
    story = Story(make_issue("1"), poll_interval_ms=30_000).begin().streams()
    story.slow = True
    story.advance(30_000)
    story.fail_refresh()
    story.fail_poll()
    assert (story.state.breaker.failures, _circuit(story)) == (1, CircuitState.CLOSED)
    story.advance(30_000)
    story.fail_refresh()
    assert (story.state.breaker.failures, _circuit(story)) == (2, CircuitState.OPEN)


@pytest.mark.parametrize("poll_interval_ms", [1_000, 30_000, 3_600_000])
@pytest.mark.parametrize("outage_ms", [10_000, 600_000])
def test_that_the_tracker_is_back_is_noticed_within_a_minute(poll_interval_ms: int, outage_ms: int) -> None:
    story = Story(make_issue("1"), poll_interval_ms=poll_interval_ms).begin().streams()
    story.slow = True
    story.tell(WakeAsked(reason="test"))
    began_ms = story.now
    while story.now - began_ms < outage_ms:
        while story.refreshes:
            story.fail_refresh()
        while story.polls:
            story.fail_poll()
        story.streams().advance(500)
    story.slow = False
    story.forget().answer()
    if not story.said(FetchCandidates):
        story.streams().advance(60_000)
    assert story.state.last_poll_failure is None
    assert _circuit(story) is CircuitState.CLOSED


def test_after_the_wait_one_answer_decides() -> None:
    story = _failing(3)
    before_ms = (story.state.breaker.until_ms or 0) - story.now
    story.advance(before_ms)
    assert _circuit(story) is CircuitState.HALF_OPEN
    assert _asked(story) == 1
    story.fail_poll()
    assert _circuit(story) is CircuitState.OPEN
    assert (story.state.breaker.until_ms or 0) - story.now > before_ms
    story.advance((story.state.next_poll_ms or 0) - story.now)
    story.answer()
    assert _circuit(story) is CircuitState.CLOSED
    assert story.state.breaker.failures == 0
    assert [notice.fields for notice in story.notices("circuit_closed")] == [{"failures": 4}]


def test_a_poll_that_failed_is_asked_again_soon_however_long_the_interval() -> None:
    story = _failing(1, poll_interval_ms=600_000)
    assert story.state.next_poll_ms == story.now + 30_000
    story.slow = False
    story.advance(30_000)
    assert story.state.next_poll_ms == story.now + 600_000


@pytest.mark.parametrize("failures", [0, 1])
def test_without_weather_nothing_waits(failures: int) -> None:
    assert breaker_wait_ms(failures, "e-1") == 0


@given(st.integers(min_value=2, max_value=10**6), st.text(max_size=20))
def test_a_wait_doubles_up_to_half_a_minute_give_or_take_a_fifth(failures: int, seed: str) -> None:
    exact = min(2_000 * 2 ** min(failures - 2, 20), 25_000)
    assert exact * 8 // 10 <= breaker_wait_ms(failures, seed) <= exact * 12 // 10
    assert breaker_wait_ms(failures, seed) == breaker_wait_ms(failures, seed)


def test_daemons_of_one_tracker_do_not_come_back_together() -> None:
    assert len({breaker_wait_ms(9, f"epoch-{number}") for number in range(50)}) > 25


def test_a_wish_of_the_tracker_comes_on_top() -> None:
    story = Story(poll_interval_ms=1_000)
    story.slow = True
    story.begin()
    story.fail_poll(_LIMITED)
    assert (_circuit(story), story.state.breaker.until_ms) == (CircuitState.OPEN, 60_000)
    story.advance(60_000)
    assert _circuit(story) is CircuitState.CLOSED, "one failure is no weather, whatever it asked for"
    story.fail_poll(_LIMITED)
    assert (story.state.breaker.until_ms or 0) - story.now >= 61_600


def test_an_answer_that_was_under_way_closes_the_circuit_and_ends_the_wait() -> None:
    """A poll is under way; meanwhile three refreshes fail. Then the poll is answered."""
    story = Story(make_issue("1"), poll_interval_ms=1_000, max_turns=99).begin().streams()
    story.slow = True
    story.tell(WakeAsked(reason="test"))
    story.answer_refresh()
    story.state = replace(story.state, breaker=_BAD)
    story.turn_ends()
    assert not story.refreshes
    assert _QUIET in story.state.timers
    story.answer_poll()
    assert _QUIET not in story.state.timers
    assert len(story.refreshes) == 1, "who waited is asked for at once"


def test_an_answer_does_not_end_a_wait_that_the_tracker_asked_for() -> None:
    """A poll and a refresh are under way; the refresh is told to come back later, the poll goes well."""
    story = Story(make_issue("1"), poll_interval_ms=1_000).begin().streams()
    story.slow = True
    story.tell(WakeAsked(reason="test"))
    story.answer_refresh()
    story.turn_ends()
    story.fail_refresh(failure=_LIMITED)
    story.answer_poll()
    assert story.state.breaker.failures == 0
    assert _circuit(story) is CircuitState.OPEN


def test_a_refresh_that_goes_well_brings_the_next_poll_forward() -> None:
    story = Story(make_issue("1"), poll_interval_ms=1_000).begin().streams()
    story.slow = True
    story.turn_ends()
    story.state = replace(story.state, breaker=_BAD, next_poll_ms=200_000)
    story.answer_refresh()
    assert story.state.next_poll_ms == story.now + 1_000


def test_a_refresh_that_names_its_culprits_was_answered() -> None:
    story = Story(make_issue("1"), make_issue("2"), poll_interval_ms=1_000_000).begin()
    story.streams("1").streams("2")
    story.slow = True
    for _ in range(3):
        story.tell(WakeAsked(reason="test"))
        story.fail_refresh("1")
        story.slow = False
        story.answer()
        story.slow = True
    assert story.state.breaker.failures == 0


def test_new_settings_forget_the_weather() -> None:
    story = _failing(9)
    story.tell(SettingsChanged(settings=make_settings(poll_interval_ms=1_000)))
    assert _circuit(story) is CircuitState.CLOSED
    story.advance(1_000)
    assert _asked(story) == 1


@pytest.mark.conformance("S-7")
def test_bad_weather_stops_no_worker_and_releases_no_issue() -> None:
    story = Story(make_issue("1"), make_issue("2"), poll_interval_ms=5_000).begin()
    story.streams("1").fails("2").forget()
    story.slow = True
    for _ in range(40):
        story.advance(5_000)
        story.streams("1")
        while story.refreshes:
            story.fail_refresh()
        while story.polls:
            story.fail_poll()
    assert not story.said(StopRun)
    assert not story.notices("claim_released")
    assert story.state.running.keys() | story.state.retrying.keys() == {"1", "2"}
    assert _asked(story) < 30


@pytest.mark.parametrize("seen", [(), ("2",)])
def test_an_issue_that_a_poll_does_not_list_stays_claimed(seen: tuple[str, ...]) -> None:
    """A page may be missing: only the question by id decides (SC12)."""
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"), poll_interval_ms=5_000).begin()
    story.streams("1").fails("2").report("3", stage=RunStage.STREAMING_TURN).forget()
    whole = dict(story.board)
    story.slow = True
    for _ in range(3):
        story.tell(WakeAsked(reason="test"))
        while story.refreshes:
            story.answer_refresh()
        story.board = {key: whole[key] for key in seen}
        while story.polls:
            story.answer_poll()
        story.board = dict(whole)
        while story.refreshes:
            story.answer_refresh()
        story.advance(5_000)
    assert not story.said(StopRun)
    assert not story.notices("claim_released")


def test_a_run_that_only_the_tracker_failed_goes_on_with_its_conversation() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000).begin()
    story.streams(thread_id="t-1", total_tokens=70, turn_count=1)
    story.slow = True
    story.turn_ends()
    story.fail_refresh()
    story.slow = False
    story.fails(failure=make_failure(blame=Blame.TRACKER)).forget().advance(10_000)
    (start,) = story.said(StartRun)
    assert start.attempt == 1
    assert start.resume == Resume(
        reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t-1", total_tokens=70)
    )
