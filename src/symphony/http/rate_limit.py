"""Keeps requests within the rate limits of a credential.

There is one limiter per host and credential, shared by polls, refreshes, tools and comments of all trackers
and forges in the process. It learns the limits from answers. It never waits: it refuses a request and says
when to try again.

- The less of a limit is left, the more urgent a request must be (`Purpose`): comments stop first.
- A throttled answer stops all requests for the time that it names, or else for a minute, doubled each time.
- A rejected credential is not tried again at once: 30 seconds, doubled each time up to ten minutes.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from weakref import WeakValueDictionary

from msgspec import Struct

from symphony.domain import Category, ServiceError
from symphony.http.exchange import HttpResponse, Purpose, origin_of
from symphony.http.service import ServiceProfile

SHORTEST_WAIT_MS = 1_000
LONGEST_WAIT_MS = 3_600_000
FIRST_PAUSE_MS = 60_000
FIRST_TRIP_MS = 30_000
LONGEST_TRIP_MS = 600_000
LONGEST_GAP_MS = 900_000
_RESERVE: Mapping[Purpose, float] = {
    Purpose.REFRESH: 0.0,
    Purpose.POLL: 0.02,
    Purpose.TOOL: 0.05,
    Purpose.COMMENT: 0.1,
}
"""The share of a limit that must be left for a request of that purpose."""
_POLL_SHARE = 0.5

_NUMBER = re.compile(r"\d{1,16}(\.\d{1,9})?")
_LONGEST_DELAY_S = 10_000_000  # 115 days: a larger number is a point in time
_FIRST_MOMENT_MS = 100_000_000_000  # a Unix time in seconds is smaller until the year 5138


def server_time_s(headers: Mapping[str, str], now_s: float) -> float:
    """Unix time by the server's `Date` header, else `now_s`: the server's times follow its clock."""
    moment_s = _moment_s(headers.get("date", ""))
    return now_s if moment_s is None else moment_s


def wait_ms(value: str | None, *, now_s: float) -> int | None:
    """How long a header asks to wait, between a second and an hour; `None` without a time in the future.

    Understands seconds, Unix time in seconds or milliseconds, HTTP dates and ISO 8601.
    """
    value = (value or "").strip()
    if _NUMBER.fullmatch(value):
        number = float(value)
        if number <= _LONGEST_DELAY_S:
            delay_s = number
        else:
            delay_s = (number / 1000 if number >= _FIRST_MOMENT_MS else number) - now_s
    elif (moment_s := _moment_s(value)) is not None:
        delay_s = moment_s - now_s
    else:
        return None
    if delay_s <= 0:
        return None
    return min(max(math.ceil(delay_s * 1000), SHORTEST_WAIT_MS), LONGEST_WAIT_MS)


def _moment_s(value: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(value)
        except (ValueError, TypeError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


class QuotaRemaining(Struct, frozen=True, kw_only=True):
    """What is left of one limit, in requests or points, until `reset_ms` (Unix time)."""

    name: str
    limit: int
    remaining: int
    reset_ms: int


class RateLimiter:
    """Allows or refuses requests. `now_ms` returns Unix time."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._quota: dict[str, QuotaRemaining] = {}
        self._paused_until_ms = 0
        self._reason = ""
        self._throttled_in_a_row = 0
        self._tripped: tuple[int, ServiceError] | None = None
        self._trips = 0

    def quota(self) -> tuple[QuotaRemaining, ...]:
        """What is left of the limits, without those that have been reset since."""
        now_ms = self.now_ms()
        return tuple(quota for quota in self._quota.values() if quota.reset_ms > now_ms)

    def paused_ms(self) -> int:
        """How long all requests are paused; 0 if they are not."""
        return max(0, self._paused_until_ms - self.now_ms())

    def check(self, service: ServiceProfile, purpose: Purpose) -> None:
        """Raise `ServiceError` if a request for this purpose must not be made now."""
        if self._tripped is not None and self.now_ms() < self._tripped[0]:
            failure = self._tripped[1].failure  # maybe by another user of the credential
            raise ServiceError(replace(failure, category=service.category or Category.TRACKER_STATUS))
        if paused_ms := self.paused_ms():
            raise service.rate_limited(wait_ms=max(1_000, paused_ms), reason=self._reason)
        for quota in self.quota():
            if quota.remaining <= quota.limit * _RESERVE[purpose]:
                raise service.rate_limited(
                    wait_ms=max(1_000, quota.reset_ms - self.now_ms()),
                    reason=f"{quota.remaining} of {quota.limit} {quota.name} are left",
                    for_all=quota.remaining <= 0,
                )

    def learn(self, service: ServiceProfile, answer: HttpResponse) -> None:
        """Record what an answer reports about the limits."""
        now_ms = self.now_ms()
        now_s = server_time_s(answer.headers, now_ms / 1000)
        for bucket in service.buckets:
            limit = _whole(answer.headers.get(bucket.limit))
            remaining = _whole(answer.headers.get(bucket.remaining))
            reset_ms = wait_ms(answer.headers.get(bucket.reset), now_s=now_s)
            if limit and remaining is not None and reset_ms is not None:
                resource = answer.headers.get(service.resource_header or "")
                name = f"{resource} {bucket.name}" if resource else bucket.name
                self._quota[name] = QuotaRemaining(
                    name=name, limit=limit, remaining=remaining, reset_ms=now_ms + reset_ms
                )

    def throttle(self, service: ServiceProfile, answer: HttpResponse) -> ServiceError:
        """Pause all requests because the service asks for it. Returns the failure to raise."""
        now_s = server_time_s(answer.headers, self.now_ms() / 1000)
        pause_ms = wait_ms(answer.headers.get("retry-after"), now_s=now_s)
        if pause_ms is None:  # the latest reset among used-up limits
            used_up = [b for b in service.buckets if answer.headers.get(b.remaining) in (None, "0")]
            resets = [wait_ms(answer.headers.get(bucket.reset), now_s=now_s) for bucket in used_up]
            pause_ms = max((reset for reset in resets if reset is not None), default=None)
        if pause_ms is None:
            pause_ms = min(FIRST_PAUSE_MS * 2 ** min(self._throttled_in_a_row, 10), LONGEST_WAIT_MS)
        self._throttled_in_a_row += 1
        self._paused_until_ms = max(self._paused_until_ms, self.now_ms() + pause_ms)
        self._reason = service.message(answer.body) or "it asks for a pause"
        return service.rate_limited(wait_ms=pause_ms, reason=self._reason)

    def trip(self, error: ServiceError) -> None:
        """Refuse all requests with this error for a while, because only a person can fix the cause."""
        wait_ms = min(FIRST_TRIP_MS * 2 ** min(self._trips, 10), LONGEST_TRIP_MS)
        self._trips += 1
        self._tripped = (self.now_ms() + wait_ms, error)

    def reset(self) -> None:
        """Forget earlier refusals, after an answer that was successful."""
        self._throttled_in_a_row = self._trips = 0
        self._tripped = None

    def poll_gap_ms(self, spent: Mapping[str, int]) -> int:
        """The minimum time between two polls that each spend this much of these limits.

        Polls get half of what is left beyond the reserve, spread evenly until the reset.
        """
        gap_ms = 0
        for quota in self.quota():
            usable = (quota.remaining - quota.limit * _RESERVE[Purpose.COMMENT]) * _POLL_SHARE
            until_reset_ms = quota.reset_ms - self.now_ms()
            cost = spent.get(quota.name, 0)
            if cost > 0:
                gap_ms = max(
                    gap_ms, until_reset_ms if usable <= cost else int(until_reset_ms * cost / usable)
                )
        return min(gap_ms, LONGEST_GAP_MS)


class RateLimiters:
    """The limiters of a process, each kept while it is in use."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, RateLimiter] = WeakValueDictionary()

    def get(self, base: str, credential: str, *, now_ms: Callable[[], int]) -> RateLimiter:
        """The limiter of a host and a credential."""
        scheme, host, port = origin_of(base)
        digest = hashlib.sha256(credential.encode("utf-8", "surrogatepass")).hexdigest()
        key = f"{scheme}://{host}:{port} {digest}"
        limiter = self._known.get(key)
        if limiter is None:
            limiter = self._known[key] = RateLimiter(now_ms=now_ms)
        return limiter


SHARED = RateLimiters()
"""The limiters of this process."""


def _whole(value: str | None) -> int | None:
    try:
        return None if value is None else int(float(value))
    except (ValueError, OverflowError):
        return None
