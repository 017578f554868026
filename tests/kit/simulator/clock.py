"""Virtual time: a heap of things that will happen. Nothing sleeps; the next thing is simply now."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

__all__ = ["Clock"]


class Clock:
    """Monotonic virtual milliseconds since the simulation began.

    Things that are due in the same millisecond happen in the order in which they were asked for.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0

    def after(self, delay_ms: int, act: Callable[..., None], *arguments: Any) -> None:
        """Let `act(*arguments)` happen after a delay; one that is not positive means as soon as possible."""
        self.at(self.now_ms + delay_ms, act, *arguments)

    def at(self, due_ms: int, act: Callable[..., None], *arguments: Any) -> None:
        """Let `act(*arguments)` happen at a moment; one that has passed means as soon as possible."""
        self._serial += 1
        heappush(self._heap, (due_ms, self._serial, act, arguments))

    def suspend(self, duration_ms: int) -> None:
        """The machine sleeps: what was due meanwhile happens late, all of it at once, in order."""
        self.now_ms += duration_ms

    def run(self, until_ms: int, *, over: Callable[[], bool] | None = None) -> None:
        """Let everything happen that is due until then, or until `over` says so."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms and not (over and over()):
            due_ms, _, act, arguments = heappop(heap)
            self.now_ms = max(self.now_ms, due_ms)
            act(*arguments)
        if not (over and over()):
            self.now_ms = max(self.now_ms, until_ms)
