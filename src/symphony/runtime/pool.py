"""The threads for short work on files: a bounded number of them, started at once and not when chance asks.

The library starts a thread when none is idle, and ends those that were idle for a while: their number then
follows chance and not the sessions. Started all at once, soon after the daemon, they are what it holds at
most.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

__all__ = ["HEAD_START_S", "Ahead", "bound_threads", "start_threads"]

T = TypeVar("T")

HEAD_START_S: Final = 0.2
"""What waits on the board goes first; what is only there for later begins so long after it."""
THREADS: Final = 12
"""For work of every kind. More of them only fight for the interpreter."""
_OTHERS: Final = 10  # that others have for themselves: readers of skills and of the board, and its writers
_WAIT_S: Final = 5.0
_SWITCH_S: Final = 0.02
"""How long a thread computes before another may ask for the interpreter. Ours work on files and give it away
by themselves; asking sooner only makes them hand it back and forth with the event loop. Answers have 50 ms.
"""


def bound_threads() -> None:
    """Let this event loop have no more threads than there shall be, and let them share calmly."""
    sys.setswitchinterval(_SWITCH_S)
    to_thread.current_default_thread_limiter().total_tokens = THREADS


async def start_threads(*, head_start_s: float = 0.0) -> None:
    """Start as many threads as there may ever be, after a pause."""
    await anyio.sleep(head_start_s)
    with anyio.CancelScope(shield=True):  # those that wait for each other wait for all
        await _start_all()


async def _start_all() -> None:
    together = threading.Barrier(THREADS + _OTHERS)
    limiter = CapacityLimiter(together.parties)

    async def one() -> None:
        try:
            await to_thread.run_sync(_meet, together, limiter=limiter)
        except RuntimeError:  # a machine that has no thread left: then there are fewer
            together.abort()

    async with anyio.create_task_group() as tasks:
        for _ in range(together.parties):
            tasks.start_soon(one)


class Ahead(Generic[T]):
    """Work that may begin before anybody waits for it, and is done once."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Begin, unless that was done."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def result(self) -> T:
        """Wait for its end; gives or raises what it did. Who is cancelled while waiting cancels it."""
        self.begin()
        assert self._task is not None  # noqa: S101 - made by the line above
        return await self._task

    async def drop(self) -> None:
        """Nobody will wait for it: cancel what is not done; its end is heard by nobody."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()


def _meet(together: threading.Barrier) -> None:
    with suppress(threading.BrokenBarrierError):  # somebody is missing
        together.wait(_WAIT_S)
