"""Time for the shell: the monotonic clock in milliseconds, and the scheduler's timers on it."""

import heapq
import time
from collections.abc import Callable

import anyio

from symphony.scheduler.commands import SetTimer
from symphony.scheduler.inputs import Timer, TimerFired

__all__ = ["Timers", "monotonic_ms"]

_FOREVER_S = 86_400.0


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes back and ignores changes of the wall clock."""
    return time.monotonic_ns() // 1_000_000


class Timers:
    """One task serves all timers; setting a timer again replaces it."""

    def __init__(self, fire: Callable[[TimerFired], None], now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._fire = fire
        self._now_ms = now_ms
        self._heap: list[tuple[int, int, Timer]] = []
        self._tokens: dict[Timer, int] = {}
        self._changed = anyio.Event()

    def set(self, command: SetTimer) -> None:
        """Arm a timer."""
        self._tokens[command.timer] = command.token
        heapq.heappush(self._heap, (command.due_ms, command.token, command.timer))
        self._changed.set()

    async def run(self) -> None:
        """Fire what comes due, until cancelled."""
        while True:
            self._changed = anyio.Event()
            self._fire_due()
            with anyio.move_on_after(self._wait_s()):
                await self._changed.wait()

    def _fire_due(self) -> None:
        while self._heap and self._heap[0][0] <= self._now_ms():
            _, token, timer = heapq.heappop(self._heap)
            if self._tokens.get(timer) == token:
                del self._tokens[timer]
                self._fire(TimerFired(timer=timer, token=token))

    def _wait_s(self) -> float:
        return max(self._heap[0][0] - self._now_ms(), 0) / 1000 if self._heap else _FOREVER_S
