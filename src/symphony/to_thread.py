"""`run_sync` of `anyio.to_thread`, which waits while the machine cannot start one more thread."""

from collections.abc import Callable
from threading import Thread
from typing import Final, TypeVar, TypeVarTuple

import anyio
import structlog
from anyio import CapacityLimiter, to_thread

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")
_AGAIN_S: Final = 0.1
_log = structlog.get_logger(__name__)


def share(threads: int) -> None:
    """Let at most so many threads of this loop run `run_sync` at a time; further calls wait for their turn.

    The C library keeps memory for each thread, and anyio's forty are more than a daemon needs.
    """
    to_thread.current_default_thread_limiter().total_tokens = threads


def require() -> None:
    """Raise `RuntimeError` if no thread can be made: watchfiles, which makes one, would abort the process."""
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

    Where processes are limited (`ulimit -u`, `TasksMax=`), threads are too. The daemon goes on when there is
    room again.
    """
    begun = waits = False

    def begin() -> _Result:
        nonlocal begun
        begun = True
        return function(*arguments)

    while True:
        try:
            return await to_thread.run_sync(begin, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
        except RuntimeError as error:
            if begun:
                raise
            if not waits:
                _log.warning("thread_awaited", reason=str(error))
            waits = True
        await anyio.sleep(_AGAIN_S)
