"""The circuit breaker: pauses requests to the tracker while it fails.

Ignores a single failed request. After two consecutive failures, pauses requests for 2 s, doubling up to 25 s,
each pause shifted by up to a fifth so that daemons of one tracker do not return together. Failures within 2 s
of each other count as one. After the pause one request decides: success closes the circuit, failure doubles
the pause.

A pause that the tracker itself asks for (Retry-After) applies as well. An operator's refresh ends the
breaker's pause, but not the tracker's. Runs continue during both pauses.
"""

from dataclasses import replace
from enum import StrEnum
from typing import Final
from zlib import crc32

from symphony.domain import Failure
from symphony.scheduler.messages import Timer, TimerKind
from symphony.scheduler.state import CircuitBreaker, State, Step

MAX_THROTTLE_MS: Final = 3_600_000
"""The longest pause that a tracker may ask for."""

MAX_PAUSE_MS: Final = 30_000
"""The longest pause of the breaker, with its jitter."""

TRACKER_PAUSE: Final = Timer(TimerKind.TRACKER_PAUSE)
"""Fires when requests may be sent again."""

_FIRST_PAUSE_MS = 2_000
_MAX_PAUSE_BEFORE_JITTER_MS = MAX_PAUSE_MS * 5 // 6
_BURST_MS = 2_000
_TOLERATED_FAILURES = 1
_MAX_EXPONENT = 10


class CircuitState(StrEnum):
    """Whether requests are sent: all, none, or one to test the tracker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def requests_paused_until(state: State, now_ms: int) -> int | None:
    """When the next request may be sent, or `None` if it may be sent now."""
    until_ms = max(state.throttled_until_ms or 0, state.breaker.until_ms or 0)
    return until_ms if until_ms > now_ms else None


def circuit_state(state: State, now_ms: int) -> CircuitState:
    """The state of the circuit, for people."""
    if requests_paused_until(state, now_ms) is not None:
        return CircuitState.OPEN
    return CircuitState.HALF_OPEN if state.breaker.failures > _TOLERATED_FAILURES else CircuitState.CLOSED


def breaker_wait_ms(failures: int, seed: str) -> int:
    """The pause after consecutive failures, with jitter of up to a fifth that depends on `seed`."""
    if failures <= _TOLERATED_FAILURES:
        return 0
    exponent = min(failures - _TOLERATED_FAILURES - 1, _MAX_EXPONENT)
    permille = 800 + crc32(seed.encode()) % 401
    return int(min(_FIRST_PAUSE_MS * 2**exponent, _MAX_PAUSE_BEFORE_JITTER_MS)) * permille // 1000


def on_failure(step: Step, failure: Failure) -> None:
    """Count a failed request and pause."""
    before, state = step.state.breaker, step.state
    counts = before.counted_ms is None or step.now_ms - before.counted_ms >= _BURST_MS
    failures = before.failures + int(counts)
    throttle_ms = min(failure.retry_after_ms or 0, MAX_THROTTLE_MS)
    pause_ms = throttle_ms + (breaker_wait_ms(failures, f"{state.epoch}-{state.serial}") if counts else 0)
    if failure.retry_after_ms is not None:
        step.update(throttled_until_ms=max(step.now_ms + throttle_ms, state.throttled_until_ms or 0))
    step.update(
        breaker=CircuitBreaker(
            failures=failures,
            since_ms=step.now_ms if before.since_ms is None else before.since_ms,
            counted_ms=step.now_ms if counts else before.counted_ms,
            until_ms=max(step.now_ms + pause_ms, before.until_ms or 0) if pause_ms else before.until_ms,
            failure=failure,
        )
    )
    if counts and failures == _TOLERATED_FAILURES + 1:
        step.notify("warning", "circuit_opened", reason=failure.line, delay_ms=pause_ms)


def on_success(step: Step) -> None:
    """Close the circuit; a pause that the tracker asked for stays."""
    failures = step.state.breaker.failures
    if failures == 0:
        return
    step.update(breaker=CircuitBreaker())
    _clear_timer_of_ended_pause(step)
    if failures > _TOLERATED_FAILURES:
        step.notify("info", "circuit_closed", failures=failures)


def end_pause(step: Step) -> None:
    """End the breaker's pause; one that the tracker asked for stays."""
    step.update(breaker=replace(step.state.breaker, until_ms=None))
    _clear_timer_of_ended_pause(step)


def reset(step: Step) -> None:
    """Forget all failures and pauses, because the settings may name another tracker or credential."""
    step.update(breaker=CircuitBreaker(), throttled_until_ms=None)
    step.clear_timer(TRACKER_PAUSE)


def _clear_timer_of_ended_pause(step: Step) -> None:
    if requests_paused_until(step.state, step.now_ms) is None:
        step.clear_timer(TRACKER_PAUSE)
