"""Tracker weather: how long the next question waits when questions go wrong in a row.

One failure is no weather. From the second on nothing is asked for 2 s, doubling up to 25 s, each wait
shifted by up to a fifth so that daemons of one tracker do not come back together. Failures within 2 s of
each other count as one: both questions of a tick, or a burst. A wait that the tracker asked for comes on
top. Then the next answer decides: a good one closes the circuit, a bad one doubles the wait. A wake does not
bypass it; an operator who asks for a refresh bypasses our own wait, and not the tracker's. What runs goes on.
"""

from dataclasses import replace
from enum import StrEnum
from zlib import crc32

from symphony.domain.failures import Failure
from symphony.scheduler.inputs import Timer, TimerKind
from symphony.scheduler.state import State, Weather
from symphony.scheduler.work import Work

__all__ = [
    "LONGEST_QUIET_MS",
    "LONGEST_WAIT_MS",
    "Circuit",
    "circuit",
    "lift",
    "on_failure",
    "on_success",
    "quiet_until",
]

LONGEST_QUIET_MS = 3_600_000
LONGEST_WAIT_MS = 30_000
_FIRST_WAIT_MS = 2_000
_BURST_MS = 2_000
_LONGEST_EXACT_MS = LONGEST_WAIT_MS * 5 // 6
_MAX_EXPONENT = 10
_HARMLESS = 1
_QUIET = Timer(TimerKind.QUIET)


class Circuit(StrEnum):
    """Whether the tracker is asked: as always, not now, or once to see whether it is back."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def quiet_until(state: State, now_ms: int) -> int | None:
    """When the tracker may be asked again, or null for now."""
    until_ms = max(state.quiet_until_ms or 0, state.weather.until_ms or 0)
    return until_ms if until_ms > now_ms else None


def circuit(state: State, now_ms: int) -> Circuit:
    """The state of the circuit, for people."""
    if quiet_until(state, now_ms) is not None:
        return Circuit.OPEN
    return Circuit.HALF_OPEN if state.weather.failures > _HARMLESS else Circuit.CLOSED


def wait_ms(failures: int, seed: str) -> int:
    """How long the next question waits after so many failures in a row; the same seed gives the same wait."""
    if failures <= _HARMLESS:
        return 0
    exponent = min(failures - _HARMLESS - 1, _MAX_EXPONENT)
    permille = 800 + crc32(seed.encode()) % 401
    return int(min(_FIRST_WAIT_MS * 2**exponent, _LONGEST_EXACT_MS)) * permille // 1000


def on_failure(work: Work, failure: Failure) -> None:
    """A question went wrong as a whole.

    What the tracker asked for is heeded up to an hour: our own limit keeps a wild answer from ending the
    work for days.
    """
    before, state = work.state.weather, work.state
    counts = before.counted_ms is None or work.now_ms - before.counted_ms >= _BURST_MS
    failures = before.failures + int(counts)
    asked_ms = min(failure.retry_after_ms or 0, LONGEST_QUIET_MS)
    delay_ms = asked_ms + (wait_ms(failures, f"{state.epoch}-{state.serial}") if counts else 0)
    if failure.retry_after_ms is not None:
        work.update(quiet_until_ms=max(work.now_ms + asked_ms, state.quiet_until_ms or 0))
    work.update(
        weather=Weather(
            failures=failures,
            since_ms=work.now_ms if before.since_ms is None else before.since_ms,
            counted_ms=work.now_ms if counts else before.counted_ms,
            until_ms=max(work.now_ms + delay_ms, before.until_ms or 0) if delay_ms else before.until_ms,
            failure=failure,
        )
    )
    if counts and failures == _HARMLESS + 1:
        work.notify("warning", "circuit_opened", reason=failure.line, delay_ms=delay_ms)


def lift(work: Work) -> None:
    """End our own wait; one that the tracker asked for stays."""
    work.update(weather=replace(work.state.weather, until_ms=None))
    if quiet_until(work.state, work.now_ms) is None:
        work.clear_timer(_QUIET)


def on_success(work: Work) -> None:
    """A question was answered: the next one need not wait, but for a time that the tracker named."""
    before = work.state.weather
    if before.failures == 0:
        return
    work.update(weather=Weather())
    if quiet_until(work.state, work.now_ms) is None:
        work.clear_timer(_QUIET)
    if before.failures > _HARMLESS:
        work.notify("info", "circuit_closed", failures=before.failures)
