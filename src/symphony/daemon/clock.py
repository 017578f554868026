"""Time for the shell: the monotonic clock in milliseconds, and the scheduler's timers on it."""

import heapq
import time
from collections.abc import Callable

import anyio

from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.scheduler import SetTimer, Timer, TimerFired

_FOREVER_S = 86_400.0
_EARLIEST_MS = 1_704_067_200_000  # 2024-01-01: nobody ran this program before


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes back and ignores changes of the wall clock."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970 by the wall clock, which people may set."""
    return time.time_ns() // 1_000_000


def check_wall_clock(wall_ms: int) -> None:
    """See that the clock on the wall is set, which it is not where a machine has no battery and just booted.

    Nothing of a daemon's timing depends on it, but certificates do, and the dates of commits and of all that
    is remembered.

    Raises:
        SymphonyError: `clock_not_set`.
    """
    if wall_ms < _EARLIEST_MS:
        day = time.strftime("%Y-%m-%d", time.gmtime(max(wall_ms, 0) // 1000))
        raise SymphonyError(
            Failure(
                category=Category.CLOCK_NOT_SET,
                blame=Blame.HOST,
                message=f"the clock of this machine is not set: it says {day}",
                hint="set it (timedatectl set-ntp true), or start after time-sync.target; then start again",
            )
        )


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
