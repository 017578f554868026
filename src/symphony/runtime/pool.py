"""The threads for short work on files: a bounded number of them, started before the work and not during it.

The library starts a thread when none is idle, and ends those that were idle for a while: their number then
follows chance and not the sessions. Started all at once, they are what the daemon holds at most, from its
first moment on.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar, cast

import anyio
from anyio import CapacityLimiter, to_thread

__all__ = ["begin", "start_threads"]

T = TypeVar("T")

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
        try:
            await to_thread.run_sync(_meet, together, limiter=limiter)
        except RuntimeError:  # a machine that has no thread left: then there are fewer
            together.abort()

    async with anyio.create_task_group() as tasks:
        for _ in range(together.parties):
            tasks.start_soon(one)


def begin(work: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    """Begin blocking work in a thread; what is returned waits for its end, and gives or raises what it did.

    Nobody has to wait: then the work ends unheard.
    """
    task = asyncio.get_running_loop().create_task(_outcome(work))

    async def end() -> T:
        value, error = await task
        if error is not None:
            raise error
        return cast("T", value)

    return end


async def _outcome(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return await to_thread.run_sync(work), None
    except Exception as error:  # noqa: BLE001 - raised again where somebody waits for it
        return None, error


def _meet(together: threading.Barrier) -> None:
    with suppress(threading.BrokenBarrierError):  # somebody is missing
        together.wait(_WAIT_S)
