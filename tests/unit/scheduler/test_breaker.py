import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Category, Failure, Tokens
from symphony.scheduler import (
    MAX_THROTTLE_MS,
    CircuitBreaker,
    CircuitState,
    ContinueRun,
    DrainAsked,
    FetchCandidates,
    FinishRun,
    Outcome,
    OutcomeKind,
    RefreshIssues,
    Resume,
    ResumeReason,
    RunEnded,
    RunStage,
    SettingsChanged,
    StartRun,
    StopRun,
    Thread,
    Timer,
    TimerFired,
    TimerKind,
    WakeAsked,
    breaker_wait_ms,
    circuit_state,
    run_once_finished,
    would_coalesce,
)

_BAD = CircuitBreaker(failures=9, since_ms=0, until_ms=200_000)
_PAUSE_TIMER = Timer(TimerKind.TRACKER_PAUSE)
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


def test_one_failure_is_ignored() -> None:
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


def test_opening_and_closing_are_logged_once() -> None:
    story = Story(poll_interval_ms=2_000)
    story.slow = True
    story.begin()
    for _ in range(4):
        story.fail_poll()
        story.advance((story.state.next_poll_ms or 0) - story.now)
    assert len(story.notices("circuit_opened")) == 1


def test_no_wake_bypasses_an_open_circuit() -> None:
    story = _failing(8)
    story.tell(WakeAsked(reason="webhook"))
    story.advance(15_000)
    story.tell(WakeAsked(reason="tracker_changed"))
    assert _asked(story) == 0


def test_an_operator_ends_the_pause_of_the_breaker() -> None:
    story = _failing(8)
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert (_asked(story), _circuit(story)) == (1, CircuitState.HALF_OPEN)
    story.fail_poll()
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert _asked(story) == 2
    story.answer()
    assert _circuit(story) is CircuitState.CLOSED


def test_an_operator_sends_the_waiting_refreshes() -> None:
    story = Story(make_issue("1"), poll_interval_ms=600_000).begin().streams()
    story.slow = True
    story.state = story.state.changed(breaker=_BAD)
    story.turn_ends()
    assert not story.refreshes
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert len(story.refreshes) == 1
    assert _PAUSE_TIMER not in story.state.timers


def test_an_operator_does_not_end_a_pause_of_the_tracker() -> None:
    story = Story(poll_interval_ms=1_000)
    story.slow = True
    story.begin()
    story.fail_poll(_LIMITED)
    story.forget().advance(30_000)
    story.tell(WakeAsked(reason="operator", by_operator=True))
    assert _asked(story) == 0
    story.advance(30_000)
    assert _asked(story) == 1


def test_failures_of_one_burst_count_once() -> None:
    """A tick asks twice, and the end of a turn may ask in between."""
    story = Story(make_issue("1"), poll_interval_ms=30_000).begin().streams()
    story.slow = True
    story.advance(30_000)
    story.fail_refresh()
    story.fail_poll()
    assert (story.state.breaker.failures, _circuit(story)) == (1, CircuitState.CLOSED)
    assert not story.notices("circuit_opened")
    story.advance(30_000)
    story.fail_refresh()
    assert (story.state.breaker.failures, _circuit(story)) == (2, CircuitState.OPEN)
    assert len(story.notices("circuit_opened")) == 1


@pytest.mark.parametrize("poll_interval_ms", [1_000, 30_000, 3_600_000])
@pytest.mark.parametrize("outage_ms", [10_000, 600_000])
def test_the_return_of_the_tracker_is_noticed_within_a_minute(poll_interval_ms: int, outage_ms: int) -> None:
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


def test_after_the_pause_one_answer_decides() -> None:
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


def test_a_failed_poll_is_repeated_soon_however_long_the_interval() -> None:
    story = _failing(1, poll_interval_ms=600_000)
    assert story.state.next_poll_ms == story.now + 30_000
    story.slow = False
    story.advance(30_000)
    assert story.state.next_poll_ms == story.now + 600_000


@pytest.mark.parametrize("failures", [0, 1])
def test_without_repeated_failures_there_is_no_pause(failures: int) -> None:
    assert breaker_wait_ms(failures, "e-1") == 0


@given(st.integers(min_value=2, max_value=10**6), st.text(max_size=20))
def test_the_pause_doubles_up_to_half_a_minute_with_jitter(failures: int, seed: str) -> None:
    exact = min(2_000 * 2 ** min(failures - 2, 20), 25_000)
    assert exact * 8 // 10 <= breaker_wait_ms(failures, seed) <= exact * 12 // 10
    assert breaker_wait_ms(failures, seed) == breaker_wait_ms(failures, seed)


def test_daemons_of_one_tracker_do_not_return_together() -> None:
    assert len({breaker_wait_ms(9, f"epoch-{number}") for number in range(50)}) > 25


def test_a_pause_of_the_tracker_comes_on_top() -> None:
    story = Story(poll_interval_ms=1_000)
    story.slow = True
    story.begin()
    story.fail_poll(_LIMITED)
    assert (_circuit(story), story.state.breaker.until_ms) == (CircuitState.OPEN, 60_000)
    story.advance(60_000)
    assert _circuit(story) is CircuitState.CLOSED, "a single failure does not open it, whatever it asked for"
    story.fail_poll(_LIMITED)
    assert (story.state.breaker.until_ms or 0) - story.now >= 61_600


def test_an_answer_in_flight_closes_the_circuit_and_ends_the_pause() -> None:
    """A poll is under way; meanwhile three refreshes fail. Then the poll is answered."""
    story = Story(make_issue("1"), poll_interval_ms=1_000, max_turns=99).begin().streams()
    story.slow = True
    story.tell(WakeAsked(reason="test"))
    story.answer_refresh()
    story.state = story.state.changed(breaker=_BAD)
    story.turn_ends()
    assert not story.refreshes
    assert _PAUSE_TIMER in story.state.timers
    story.answer_poll()
    assert _PAUSE_TIMER not in story.state.timers
    assert len(story.refreshes) == 1, "who waited is asked for at once"


def test_an_answer_does_not_end_a_pause_of_the_tracker() -> None:
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


def test_a_successful_refresh_brings_the_next_poll_forward() -> None:
    story = Story(make_issue("1"), poll_interval_ms=1_000).begin().streams()
    story.slow = True
    story.turn_ends()
    story.state = story.state.changed(breaker=_BAD, next_poll_ms=200_000)
    story.answer_refresh()
    assert story.state.next_poll_ms == story.now + 1_000


def test_a_refresh_that_names_its_culprits_is_not_a_failure() -> None:
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


def test_new_settings_reset_the_breaker() -> None:
    story = _failing(9)
    story.tell(SettingsChanged(settings=make_settings(poll_interval_ms=1_000)))
    assert _circuit(story) is CircuitState.CLOSED
    story.advance(1_000)
    assert _asked(story) == 1


@pytest.mark.conformance("S-7")
def test_an_open_circuit_stops_no_run_and_releases_no_issue() -> None:
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


def test_a_run_that_only_the_tracker_failed_continues_its_conversation() -> None:
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
        reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t-1", tokens=Tokens(total_tokens=70))
    )


def _later(after_ms: int | None) -> Failure:
    return make_failure(
        "too many requests",
        category=Category.TRACKER_RATE_LIMITED,
        blame=Blame.TRACKER,
        retry_after_ms=after_ms,
    )


def _wake(story: Story) -> None:
    story.tell(WakeAsked(reason="test"))


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


def test_a_wake_during_the_pause_polls_at_its_end_and_not_an_interval_later() -> None:
    story = _refused_poll(poll_interval_ms=600_000)
    _wake(story)
    assert not run_once_finished(story.state, story.now), "the poll that the wake brought is still to come"
    story.advance(60_000)
    assert story.started() == ["SYM-1"]


def test_a_pause_shorter_than_the_interval_makes_no_poll_earlier() -> None:
    story = _refused_poll(5_000, poll_interval_ms=30_000)
    story.advance(29_999)
    assert _asked(story) == 0
    story.advance(1)
    assert story.started() == ["SYM-1"]


def test_a_failure_without_retry_after_keeps_the_interval() -> None:
    story = _refused_poll(None)
    story.advance(1_000)
    assert story.started() == ["SYM-1"]


def test_an_excessive_pause_is_cut() -> None:
    story = _refused_poll(10**12)
    assert story.state.next_poll_ms == MAX_THROTTLE_MS


def test_the_longer_of_two_pauses_counts() -> None:
    story = Story(make_issue("1"), poll_interval_ms=1_000).begin().streams("1")
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(60_000))
    assert story.state.throttled_until_ms == 60_000
    assert not story.polls, "a refused refresh is not followed by a poll at once"
    story.advance(60_000)
    story.fail_refresh(failure=_later(30_000))
    assert story.state.throttled_until_ms == 90_000


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    story = Story(make_issue("1"), poll_interval_ms=600_000).begin().streams("1")
    story.slow = True
    _wake(story)
    story.answer_refresh()
    story.turn_ends("1")
    story.fail_poll(_later(60_000))
    story.fail_refresh(failure=_later(30_000))
    assert story.state.throttled_until_ms == 60_000


def test_a_cycle_that_a_pause_cut_short_is_repeated_after_it() -> None:
    story = Story(make_issue("1"), poll_interval_ms=600_000).begin().streams("1")
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(60_000))
    assert story.state.next_poll_ms == 60_000, "the wake is not lost until the next regular poll"


def test_a_turn_that_ends_during_a_pause_continues_after_it() -> None:
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


def test_refreshes_that_wait_for_the_end_of_a_pause_share_one_request() -> None:
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


def test_a_cycle_that_a_pause_interrupts_continues_after_it() -> None:
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


def test_a_pause_does_not_delay_a_shutdown() -> None:
    story = Story(make_issue()).begin().streams()
    story.slow = True
    _wake(story)
    story.fail_refresh(failure=_later(3_000_000))
    story.turn_ends()
    story.tell(DrainAsked())
    story.ends()
    assert story.exits() == 1


def test_the_end_of_a_pause_without_waiting_requests_does_nothing() -> None:
    story = Story(make_issue()).begin().streams()
    story.slow = True
    story.turn_ends()
    story.fail_refresh(failure=_later(60_000))
    story.ends()
    story.advance(1_000)
    quiet = story.timers[_PAUSE_TIMER]
    story.tell(SettingsChanged(settings=make_settings()))
    assert len(story.refreshes) == 1, "the retry that came due is asked for"
    story.forget().tell(TimerFired(timer=_PAUSE_TIMER, token=quiet.token))
    assert not story.told


def test_a_meaningless_event_does_not_end_a_pause_before_its_timer() -> None:
    story = _refused_poll()
    story.slow = True
    _wake(story)
    story.now = 60_000
    before = story.state
    story.tell(RunEnded(run_id="unknown", outcome=Outcome(kind=OutcomeKind.SUCCEEDED)))
    assert story.state == before
