"""Clocks, and the scheduler's timers."""

import heapq
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import anyio

from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.scheduler import SetTimer, Timer, TimerFired

_EARLIEST_MS: Final = 1_704_067_200_000  # 2024-01-01, before the first release
_MAX_DISARMED: Final = 64


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes back and ignores changes of the wall clock."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970 by the wall clock."""
    return time.time_ns() // 1_000_000


def utc_day(wall_ms: int) -> str:
    """The UTC date of a time, `YYYY-MM-DD`."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).date().isoformat()


def check_wall_clock(wall_ms: int) -> None:
    """Check that the wall clock is set. A machine without a battery may not know the time after a boot.

    Certificates and the dates of commits and records depend on it.

    Raises:
        SymphonyError: `clock_not_set`.
    """
    if wall_ms < _EARLIEST_MS:
        raise SymphonyError(
            Failure(
                category=Category.CLOCK_NOT_SET,
                blame=Blame.HOST,
                message=f"the clock of this machine is not set: it says {utc_day(max(wall_ms, 0))}",
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

    @property
    def pending(self) -> int:
        """How many timers are stored, including replaced and disarmed ones."""
        return len(self._heap)

    def keep(self, armed: Mapping[Timer, SetTimer]) -> None:
        """Forget timers that are no longer armed, such as those of ended runs.

        They cost only memory, so some of them may stay: as many as are armed, plus 64.
        """
        if len(self._heap) > 2 * len(armed) + _MAX_DISARMED:
            self._tokens = {timer: command.token for timer, command in armed.items()}
            self._heap = [(command.due_ms, command.token, timer) for timer, command in armed.items()]
            heapq.heapify(self._heap)

    async def run(self) -> None:
        """Fire timers when they are due, until cancelled."""
        while True:
            self._changed = anyio.Event()
            while self._heap and self._heap[0][0] <= self._now_ms():
                _, token, timer = heapq.heappop(self._heap)
                if self._tokens.get(timer) == token:
                    del self._tokens[timer]
                    self._fire(TimerFired(timer=timer, token=token))
            wait_s = max(self._heap[0][0] - self._now_ms(), 0) / 1000 if self._heap else math.inf
            with anyio.move_on_after(wait_s):
                await self._changed.wait()
