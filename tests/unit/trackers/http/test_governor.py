import gc

import pytest

from symphony.domain import Category
from symphony.trackers.base import TrackerError
from symphony.trackers.http import Answer, Purpose, RateLimiter, RateLimiters, ServiceProfile
from symphony.trackers.http.rate_limit import LONGEST_GAP_MS

SERVICE = ServiceProfile(service="Service", secret="s", scope="p", resource="x-ratelimit-resource")
HOUR_MS = 3_600_000


class Time:
    def __init__(self) -> None:
        self.now = 1_795_800_000_000

    def __call__(self) -> int:
        return self.now


def told(remaining: int, *, limit: int = 1_000, reset_s: int = 1_800, resource: str = "core") -> Answer:
    headers = {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-reset": str(reset_s),
        "x-ratelimit-resource": resource,
    }
    return Answer(status=200, address="https://x/", headers=headers)


def refused(governor: RateLimiter) -> set[Purpose]:
    found = set()
    for purpose in Purpose:
        try:
            governor.check(SERVICE, purpose)
        except TrackerError:
            found.add(purpose)
    return found


def test_what_is_left_is_given_out_by_urgency() -> None:
    governor = RateLimiter(now_ms=Time())
    everything = set(Purpose)
    for remaining, expected in (
        (1_000, set()),
        (100, {Purpose.NOTE}),
        (50, {Purpose.NOTE, Purpose.TOOL}),
        (20, everything - {Purpose.REFRESH}),
        (1, everything - {Purpose.REFRESH}),
        (0, everything),
    ):
        governor.learn(SERVICE, told(remaining))
        assert refused(governor) == expected, remaining


def test_our_own_reserve_asks_nobody_else_to_wait() -> None:
    governor = RateLimiter(now_ms=Time())
    governor.learn(SERVICE, told(5))
    with pytest.raises(TrackerError) as caught:
        governor.check(SERVICE, Purpose.POLL)
    assert caught.value.failure.category is Category.TRACKER_RATE_LIMITED
    assert caught.value.failure.retry_after_ms is None, "or the scheduler would not refresh what runs"
    governor.learn(SERVICE, told(0))
    with pytest.raises(TrackerError) as caught:
        governor.check(SERVICE, Purpose.POLL)
    assert caught.value.failure.retry_after_ms == 1_800_000


def test_a_limit_is_forgotten_when_it_begins_anew() -> None:
    time = Time()
    governor = RateLimiter(now_ms=time)
    governor.learn(SERVICE, told(0, reset_s=60))
    time.now += 60_000
    assert refused(governor) == set()
    assert governor.left() == ()


def test_limits_of_one_name_are_kept_apart() -> None:
    governor = RateLimiter(now_ms=Time())
    governor.learn(SERVICE, told(900))
    governor.learn(SERVICE, told(4_000, limit=5_000, resource="graphql"))
    assert {left.name: left.remaining for left in governor.left()} == {
        "core requests": 900,
        "graphql requests": 4_000,
    }


@pytest.mark.parametrize("odd", [{"x-ratelimit-limit": "many"}, {"x-ratelimit-remaining": "inf"}, {}])
def test_headers_that_say_nothing_are_ignored(odd: dict[str, str]) -> None:
    governor = RateLimiter(now_ms=Time())
    base = {"x-ratelimit-limit": "9", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}
    headers = {**base, **odd} if odd else {}
    governor.learn(SERVICE, Answer(status=200, address="https://x/", headers=headers))
    assert governor.left() == ()


def test_pauses_without_a_time_grow_until_an_answer_is_sound() -> None:
    time = Time()
    governor = RateLimiter(now_ms=time)
    bare = Answer(status=429, address="https://x/")

    def pause() -> int:
        failure = governor.throttled(SERVICE, bare).failure
        time.now += failure.retry_after_ms or 0
        return failure.retry_after_ms or 0

    assert [pause() for _ in range(8)] == [60_000 * 2**n for n in range(6)] + [HOUR_MS, HOUR_MS]
    governor.settled()
    assert pause() == 60_000


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    governor = RateLimiter(now_ms=Time())
    for seconds in ("600", "5"):
        governor.throttled(SERVICE, Answer(status=429, address="x", headers={"retry-after": seconds}))
    assert governor.quiet_ms() == 600_000


def test_polls_are_spread_over_what_is_left() -> None:
    time = Time()
    governor = RateLimiter(now_ms=time)
    assert governor.poll_gap_ms({"core requests": 10}) == 0, "nothing is known yet"
    governor.learn(SERVICE, told(1_000, reset_s=3_600))
    assert governor.poll_gap_ms({}) == 0, "a poll that costs nothing may be made at any time"
    assert governor.poll_gap_ms({"core requests": 1}) == 3_600_000 // 450
    assert governor.poll_gap_ms({"core requests": 45}) == 360_000
    governor.learn(SERVICE, told(110, reset_s=3_600))
    assert governor.poll_gap_ms({"core requests": 10}) == LONGEST_GAP_MS


def test_a_credential_is_tried_less_and_less_often() -> None:
    time = Time()
    governor = RateLimiter(now_ms=time)
    error = governor.throttled(SERVICE, Answer(status=429, address="x"))
    time.now += HOUR_MS
    waits = []
    for _ in range(8):
        governor.latch(error)
        start = time.now
        while refused(governor):
            time.now += 30_000
        waits.append((time.now - start) // 1_000)
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


def test_one_governor_for_a_host_and_a_credential() -> None:
    governors, time = RateLimiters(), Time()
    one = governors.of("https://a.example.test/v3", "s", now_ms=time)
    assert governors.of("https://A.example.test:443/other", "s", now_ms=time) is one
    assert governors.of("https://a.example.test", "t", now_ms=time) is not one
    assert governors.of("https://b.example.test", "s", now_ms=time) is not one
    name = id(one)
    del one
    gc.collect()
    assert name
