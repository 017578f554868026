"""Spends what a credential is allowed to ask, and stops asking when that is used up.

One governor per host and credential, shared by polls, refreshes, tools and comments, and by every tracker of
the process that has the same credential. It learns limits from answers and believes in none beforehand. It
never waits: it refuses, with the time after which to ask again.

- What is left of a limit is given out by urgency (`Purpose`): notes stop first, a refresh of what runs last.
- A throttled answer stops everything until its time, or for a minute, doubled each time, where it names none.
- A credential that is not taken is not tried again at once: the answer would be the same.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from weakref import WeakValueDictionary

from symphony.trackers.base import TrackerError
from symphony.trackers.http.exchange import Answer, Purpose, ServiceProfile, limited, origin_of

# When a server wants to be asked again, in each of the forms in which servers say it (TR7).
#
# Seconds, an HTTP date, Unix time in seconds or milliseconds, ISO 8601. Moments are counted from the
# server's own `Date`, so that a clock that is off, here or there, does not matter.


SHORTEST_MS = 1_000
LONGEST_MS = 3_600_000
_NUMBER = re.compile(r"\d{1,16}(\.\d{1,9})?")
_LONGEST_DELAY_S = 10_000_000  # 115 days: what is larger is a moment and no delay
_MILLISECONDS = 100_000_000_000  # a moment in seconds is smaller until the year 5138


def server_now_s(headers: Mapping[str, str], now_s: float) -> float:
    """The server's clock by its `Date` header, else ours; Unix seconds."""
    moment = _moment_s(headers.get("date", ""))
    return now_s if moment is None else moment


def wait_ms(value: str | None, *, now_s: float) -> int | None:
    """How long `value` asks to wait, within a second and an hour; null where it says nothing or is past."""
    text = (value or "").strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        number = float(text)
        delay_s = number if number <= _LONGEST_DELAY_S else _seconds(number) - now_s
    else:
        moment = _moment_s(text)
        if moment is None:
            return None
        delay_s = moment - now_s
    if delay_s <= 0:
        return None
    return min(max(math.ceil(delay_s * 1000), SHORTEST_MS), LONGEST_MS)


def _seconds(moment: float) -> float:
    return moment / 1000 if moment >= _MILLISECONDS else moment


def _moment_s(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, TypeError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


FIRST_WAIT_MS = 60_000
FIRST_LATCH_MS = 30_000
LONGEST_LATCH_MS = 600_000
LONGEST_GAP_MS = 900_000
_RESERVE: Mapping[Purpose, float] = {
    Purpose.REFRESH: 0.0,
    Purpose.POLL: 0.02,
    Purpose.TOOL: 0.05,
    Purpose.NOTE: 0.1,
}
"""The share of a limit that must be left for a request of a purpose to be made."""
_SPENT_ON_POLLS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRemaining:
    """What is left of one limit: requests or points, until `reset_ms` of the clock of our own."""

    name: str
    limit: int
    remaining: int
    reset_ms: int


class RateLimiter:
    """Allows and refuses requests. `now_ms` is Unix time."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._left: dict[str, QuotaRemaining] = {}
        self._quiet_until_ms = 0
        self._reason = ""
        self._strikes = 0
        self._latched: tuple[int, TrackerError] | None = None
        self._latches = 0

    def left(self) -> tuple[QuotaRemaining, ...]:
        """What the answers told of the limits, those that have begun anew since left out."""
        now_ms = self.now_ms()
        return tuple(left for left in self._left.values() if left.reset_ms > now_ms)

    def quiet_ms(self) -> int:
        """How long nothing may be asked; 0 where it may."""
        return max(0, self._quiet_until_ms - self.now_ms())

    def check(self, dialect: ServiceProfile, purpose: Purpose) -> None:
        """Raise `TrackerError` where a request for this purpose must not be made now."""
        if self._latched is not None and self.now_ms() < self._latched[0]:
            raise TrackerError(self._latched[1].failure)
        if quiet_ms := self.quiet_ms():
            raise limited(dialect, wait_ms=max(1_000, quiet_ms), reason=self._reason)
        for left in self.left():
            if left.remaining <= left.limit * _RESERVE[purpose]:
                reason = f"{left.remaining} of {left.limit} {left.name} are left"
                rest_ms = max(1_000, left.reset_ms - self.now_ms())
                raise limited(dialect, wait_ms=rest_ms, reason=reason, for_all=left.remaining <= 0)

    def learn(self, dialect: ServiceProfile, answer: Answer) -> None:
        """Take note of what an answer tells of the limits."""
        now_ms = self.now_ms()
        now_s = server_now_s(answer.headers, now_ms / 1000)
        for bucket in dialect.buckets:
            limit = _whole(answer.headers.get(bucket.limit))
            remaining = _whole(answer.headers.get(bucket.remaining))
            reset_ms = wait_ms(answer.headers.get(bucket.reset), now_s=now_s)
            if limit and remaining is not None and reset_ms is not None:
                name = " ".join(filter(None, (answer.headers.get(dialect.resource or ""), bucket.name)))
                self._left[name] = QuotaRemaining(
                    name=name, limit=limit, remaining=remaining, reset_ms=now_ms + reset_ms
                )

    def throttled(self, dialect: ServiceProfile, answer: Answer) -> TrackerError:
        """The tracker asks for a pause: nothing is asked before its end. Returns the failure to raise."""
        named_ms = self._named_ms(dialect, answer)
        self._strikes += 1
        pause_ms = named_ms or min(FIRST_WAIT_MS * 2 ** min(self._strikes - 1, 10), LONGEST_MS)
        self._quiet_until_ms = max(self._quiet_until_ms, self.now_ms() + pause_ms)
        self._reason = dialect.message(answer.body) or "it asks for a pause"
        return limited(dialect, wait_ms=pause_ms, reason=self._reason)

    def _named_ms(self, dialect: ServiceProfile, answer: Answer) -> int | None:
        """`Retry-After`, else the latest reset of a limit that is used up."""
        now_s = server_now_s(answer.headers, self.now_ms() / 1000)
        asked_ms = wait_ms(answer.headers.get("retry-after"), now_s=now_s)
        if asked_ms is not None:
            return asked_ms
        spent = [bucket for bucket in dialect.buckets if answer.headers.get(bucket.remaining) in (None, "0")]
        waits = [wait_ms(answer.headers.get(bucket.reset), now_s=now_s) for bucket in spent]
        return max((wait for wait in waits if wait is not None), default=None)

    def settled(self) -> None:
        """An answer was as it should be: earlier refusals are forgiven."""
        self._strikes = self._latches = 0
        self._latched = None

    def latch(self, error: TrackerError) -> None:
        """Give this answer to everybody for a while, because only a person can change it."""
        self._latches += 1
        wait = min(FIRST_LATCH_MS * 2 ** min(self._latches - 1, 10), LONGEST_LATCH_MS)
        self._latched = (self.now_ms() + wait, error)

    def poll_gap_ms(self, spent: Mapping[str, int]) -> int:
        """The least time between two polls that each spend this much of the named limits.

        Polls get half of what is left beyond the reserve, spread evenly up to the reset.
        """
        gap_ms = 0
        for left in self.left():
            usable = (left.remaining - left.limit * _RESERVE[Purpose.NOTE]) * _SPENT_ON_POLLS
            rest_ms = left.reset_ms - self.now_ms()
            cost = spent.get(left.name, 0)
            if cost > 0:
                gap_ms = max(gap_ms, rest_ms if usable <= cost else int(rest_ms * cost / usable))
        return min(gap_ms, LONGEST_GAP_MS)


class RateLimiters:
    """The governors of a process, each for as long as anybody uses it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, RateLimiter] = WeakValueDictionary()

    def of(self, base: str, credential: str, *, now_ms: Callable[[], int]) -> RateLimiter:
        """The governor of a host and a credential."""
        scheme, host, port = origin_of(base)
        digest = hashlib.sha256(credential.encode("utf-8", "surrogatepass")).hexdigest()
        key = f"{scheme}://{host}:{port} {digest}"
        governor = self._known.get(key)
        if governor is None:
            governor = self._known[key] = RateLimiter(now_ms=now_ms)
        return governor


SHARED = RateLimiters()
"""Those of this process: several projects with one credential spend from one limit."""


def _whole(value: str | None) -> int | None:
    try:
        return None if value is None else int(float(value))
    except (ValueError, OverflowError):
        return None
