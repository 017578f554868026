"""`run_sync` as in `anyio.to_thread`, with reused threads; it waits while no thread can be started."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary, finalize

import anyio
import structlog
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import checkpoint_if_cancelled

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")
_AGAIN_S: Final = 0.1
_log = structlog.get_logger(__name__)

_Call = Callable[[], None]


class _Threads:
    """The threads of one event loop.

    The C library keeps memory for each thread, so threads are reused. They end after their loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.calls: Final[SimpleQueue[_Call | None]] = SimpleQueue()
        self.idle: Final[SimpleQueue[None]] = SimpleQueue()
        self.limiter: Final = to_thread.current_default_thread_limiter()
        finalize(loop, self.calls.put, None)

    async def reserve(self) -> None:
        """Wait until there is a thread for one more call: an idle one, or else a new one."""
        waits = False
        while True:
            with suppress(Empty):
                return self.idle.get_nowait()
            try:
                return Thread(target=_work, args=(self.calls,), name="symphony", daemon=True).start()
            except RuntimeError as error:
                if not waits:
                    _log.warning("thread_awaited", reason=str(error))
                waits = True
                await anyio.sleep(_AGAIN_S)


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # the thread keeps the loop alive
    calls.put(None)  # for the next thread


_threads_by_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Threads]] = WeakKeyDictionary()


def _threads_of(loop: asyncio.AbstractEventLoop) -> _Threads:
    if (threads := _threads_by_loop.get(loop)) is None:
        _threads_by_loop[loop] = threads = _Threads(loop)
    return threads


def share(threads: int) -> None:
    """Allow at most `threads` calls of this loop in threads at a time; further calls wait."""
    _threads_of(asyncio.get_running_loop()).limiter.total_tokens = threads


def require() -> None:
    """Raise `RuntimeError` if no thread can be started, because watchfiles would then abort the process."""
    thread = Thread(target=int)
    thread.start()
    thread.join()


async def run_sync(
    function: Callable[[*_Arguments], _Result],
    *arguments: *_Arguments,
    abandon_on_cancel: bool = False,
    limiter: CapacityLimiter | None = None,
) -> _Result:
    """Call a blocking function in a thread; raises what it raises.

    Limits on processes (`ulimit -u`, `TasksMax=`) also limit threads. The call waits until a thread can
    start.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[_Result] = loop.create_future()
    threads = _threads_of(loop)
    limiter = limiter or threads.limiter

    def finish(result: _Result | None, error: BaseException | None) -> None:
        limiter.release_on_behalf_of(done)
        if done.done():
            return  # abandoned
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]  # what the function returned
        else:
            done.set_exception(error)

    def call() -> None:
        result: _Result | None = None
        error: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except StopIteration as raised:  # asyncio does not let a future raise StopIteration
            error = RuntimeError(f"{function} raised StopIteration")
            error.__cause__ = raised
        except BaseException as raised:  # noqa: BLE001 - it is raised where the call was made
            error = raised
        threads.idle.put(None)  # immediately, so that the loop finds this thread and starts no other one
        with suppress(RuntimeError):  # the loop was closed: the call was abandoned
            loop.call_soon_threadsafe(finish, result, error)

    await checkpoint_if_cancelled()
    try:
        limiter.acquire_on_behalf_of_nowait(done)
    except anyio.WouldBlock:
        await limiter.acquire_on_behalf_of(done)
    try:
        await threads.reserve()
    except BaseException:
        limiter.release_on_behalf_of(done)
        raise
    threads.calls.put(call)
    with anyio.CancelScope(shield=not abandon_on_cancel):
        await done
    return done.result()
