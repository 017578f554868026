"""The threads for short work on files: a bounded number of them, started before the work and not during it.

The library starts a thread when none is idle, and ends those that were idle for a while: their number then
follows chance and not the sessions. Started all at once, they are what the daemon holds at most, from its
first moment on.
"""

import threading
from contextlib import suppress
from typing import Final

import anyio
from anyio import CapacityLimiter, to_thread

__all__ = ["start_threads"]

THREADS: Final = 12
"""For work of every kind. More of them only fight for the interpreter."""
_OTHERS: Final = 10  # that others have for themselves: readers of skills and of the board, and its writers
_WAIT_S: Final = 5.0


async def start_threads() -> None:
    """Bound the threads of this event loop, and start as many as there may ever be."""
    to_thread.current_default_thread_limiter().total_tokens = THREADS
    together = threading.Barrier(THREADS + _OTHERS)
    limiter = CapacityLimiter(together.parties)

    async def one() -> None:
        await to_thread.run_sync(_meet, together, limiter=limiter)

    async with anyio.create_task_group() as tasks:
        for _ in range(together.parties):
            tasks.start_soon(one)


def _meet(together: threading.Barrier) -> None:
    with suppress(threading.BrokenBarrierError):  # a machine that has no thread left: then there are fewer
        together.wait(_WAIT_S)
