import gc
from dataclasses import replace

import pytest

from symphony.domain import Category, ServiceError
from symphony.http import HttpResponse, Purpose, RateLimiter, RateLimiters, Request, ServiceProfile
from symphony.http.rate_limit import LONGEST_GAP_MS, LONGEST_WAIT_MS, server_time_s, wait_ms
from symphony.trackers.base import TrackerError

SERVICE = ServiceProfile(
    name="Service", credential_key="s", scope_key="p", resource_header="x-ratelimit-resource"
)
HOUR_MS = 3_600_000


class Time:
    def __init__(self) -> None:
        self.now = 1_795_800_000_000

    def __call__(self) -> int:
        return self.now


def told(remaining: int, *, limit: int = 1_000, reset_s: int = 1_800, resource: str = "core") -> HttpResponse:
    headers = {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-reset": str(reset_s),
        "x-ratelimit-resource": resource,
    }
    return HttpResponse(status=200, address="https://x/", headers=headers)


def refused(limiter: RateLimiter) -> set[Purpose]:
    found = set()
    for purpose in Purpose:
        try:
            limiter.check(SERVICE, purpose)
        except TrackerError:
            found.add(purpose)
    return found


def test_what_is_left_is_given_out_by_urgency() -> None:
    limiter = RateLimiter(now_ms=Time())
    everything = set(Purpose)
    for remaining, expected in (
        (1_000, set()),
        (100, {Purpose.COMMENT}),
        (50, {Purpose.COMMENT, Purpose.TOOL}),
        (20, everything - {Purpose.REFRESH}),
        (1, everything - {Purpose.REFRESH}),
        (0, everything),
    ):
        limiter.learn(SERVICE, told(remaining))
        assert refused(limiter) == expected, remaining


def test_our_own_reserve_asks_nobody_else_to_wait() -> None:
    limiter = RateLimiter(now_ms=Time())
    limiter.learn(SERVICE, told(5))
    with pytest.raises(TrackerError) as caught:
        limiter.check(SERVICE, Purpose.POLL)
    assert caught.value.failure.category is Category.TRACKER_RATE_LIMITED
    assert caught.value.failure.retry_after_ms is None, "or the scheduler would not refresh what runs"
    limiter.learn(SERVICE, told(0))
    with pytest.raises(TrackerError) as caught:
        limiter.check(SERVICE, Purpose.POLL)
    assert caught.value.failure.retry_after_ms == 1_800_000


def test_a_limit_is_forgotten_when_it_begins_anew() -> None:
    time = Time()
    limiter = RateLimiter(now_ms=time)
    limiter.learn(SERVICE, told(0, reset_s=60))
    time.now += 60_000
    assert refused(limiter) == set()
    assert limiter.quota() == ()


def test_limits_of_one_name_are_kept_apart() -> None:
    limiter = RateLimiter(now_ms=Time())
    limiter.learn(SERVICE, told(900))
    limiter.learn(SERVICE, told(4_000, limit=5_000, resource="graphql"))
    assert {quota.name: quota.remaining for quota in limiter.quota()} == {
        "core requests": 900,
        "graphql requests": 4_000,
    }


@pytest.mark.parametrize("odd", [{"x-ratelimit-limit": "many"}, {"x-ratelimit-remaining": "inf"}, {}])
def test_headers_that_say_nothing_are_ignored(odd: dict[str, str]) -> None:
    limiter = RateLimiter(now_ms=Time())
    base = {"x-ratelimit-limit": "9", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}
    headers = {**base, **odd} if odd else {}
    limiter.learn(SERVICE, HttpResponse(status=200, address="https://x/", headers=headers))
    assert limiter.quota() == ()


def test_pauses_without_a_time_grow_until_an_answer_is_sound() -> None:
    time = Time()
    limiter = RateLimiter(now_ms=time)
    bare = HttpResponse(status=429, address="https://x/")

    def pause() -> int:
        failure = limiter.throttle(SERVICE, bare).failure
        time.now += failure.retry_after_ms or 0
        return failure.retry_after_ms or 0

    assert [pause() for _ in range(8)] == [60_000 * 2**n for n in range(6)] + [HOUR_MS, HOUR_MS]
    limiter.reset()
    assert pause() == 60_000


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    limiter = RateLimiter(now_ms=Time())
    for seconds in ("600", "5"):
        limiter.throttle(SERVICE, HttpResponse(status=429, address="x", headers={"retry-after": seconds}))
    assert limiter.paused_ms() == 600_000


def test_polls_are_spread_over_what_is_left() -> None:
    time = Time()
    limiter = RateLimiter(now_ms=time)
    assert limiter.poll_gap_ms({"core requests": 10}) == 0, "nothing is known yet"
    limiter.learn(SERVICE, told(1_000, reset_s=3_600))
    assert limiter.poll_gap_ms({}) == 0, "a poll that costs nothing may be made at any time"
    assert limiter.poll_gap_ms({"core requests": 1}) == 3_600_000 // 450
    assert limiter.poll_gap_ms({"core requests": 45}) == 360_000
    limiter.learn(SERVICE, told(110, reset_s=3_600))
    assert limiter.poll_gap_ms({"core requests": 10}) == LONGEST_GAP_MS


def test_a_credential_is_tried_less_and_less_often() -> None:
    time = Time()
    limiter = RateLimiter(now_ms=time)
    error = limiter.throttle(SERVICE, HttpResponse(status=429, address="x"))
    time.now += HOUR_MS
    waits = []
    for _ in range(8):
        limiter.trip(error)
        start = time.now
        while refused(limiter):
            time.now += 30_000
        waits.append((time.now - start) // 1_000)
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


def test_a_rejected_credential_is_a_failure_of_the_one_that_asks() -> None:
    forge = replace(SERVICE, category=Category.FORGE)
    for asked, told_by in ((SERVICE, forge), (forge, SERVICE)):
        limiter = RateLimiter(now_ms=Time())
        limiter.trip(told_by.refused(Request(endpoint="/user"), HttpResponse(status=401, address="x"), 401))
        with pytest.raises(ServiceError) as caught:
            limiter.check(asked, Purpose.POLL)
        assert caught.value.failure.category is (asked.category or Category.TRACKER_STATUS)
        assert caught.value.failure.status == 401


def test_one_limiter_for_a_host_and_a_credential() -> None:
    limiters, time = RateLimiters(), Time()
    one = limiters.get("https://a.example.test/v3", "s", now_ms=time)
    assert limiters.get("https://A.example.test:443/other", "s", now_ms=time) is one
    assert limiters.get("https://a.example.test", "t", now_ms=time) is not one
    assert limiters.get("https://b.example.test", "s", now_ms=time) is not one
    name = id(one)
    del one
    gc.collect()
    assert name


# --- the forms of a reset ---

NOW_S = 1_795_800_000.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("30", 30_000),
        ("0.5", 1_000),
        (str(int(NOW_S) + 90), 90_000),
        (str((int(NOW_S) + 90) * 1000), 90_000),
        ("Fri, 27 Nov 2026 17:20:30 GMT", 30_000),
        ("2026-11-27T17:20:30Z", 30_000),
        ("2026-11-27T17:20:30", 30_000),
        ("2026-11-27T18:20:30+01:00", 30_000),
        ("999999", LONGEST_WAIT_MS),
        ("99999999999999999999999", None),
        ("0", None),
        ("-5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("2020-01-01T00:00:00Z", None),
        ("1500000000", None),
    ],
)
def test_every_form_of_a_reset_is_a_wait(value: str | None, expected: int | None) -> None:
    assert wait_ms(value, now_s=NOW_S) == expected


def test_the_servers_own_clock_counts() -> None:
    hours_off = NOW_S + 7_200
    now_s = server_time_s({"date": "Fri, 27 Nov 2026 17:20:00 GMT"}, hours_off)
    assert now_s == NOW_S
    assert wait_ms(str(int(NOW_S) + 60), now_s=now_s) == 60_000
    assert server_time_s({"date": "yesterday"}, 5.0) == 5.0
