"""Virtual time for programs on anyio: an event loop whose clock moves only when nothing is left to do now.

    run(main)  # `anyio.sleep(86_400)` within returns at once, and a day has passed

The loop is asyncio's own with its two public seams: the selector that it is made with, and `time()`. While
a worker thread of anyio's default limiter is busy the clock stands still.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import anyio
from anyio import to_thread
from typing_extensions import override

__all__ = ["NothingWillHappenError", "VirtualTimeLoop", "in_virtual_time", "run"]

P = ParamSpec("P")
T = TypeVar("T")
_LOOK_S = 0.05


class NothingWillHappenError(RuntimeError):
    """Every task waits for another one: no timer is set and no thread is busy."""


class _Selector(selectors.DefaultSelector):
    """Moves its clock on instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.is_waited_for: Callable[[], bool] = lambda: False

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.is_waited_for():
            return super().select(_LOOK_S)
        if timeout is None:
            raise NothingWillHappenError
        self.now_s += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that begins at 0 s and never waits for a clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    @override
    def time(self) -> float:
        return self._virtual.now_s

    def stand_still_while(self, busy: Callable[[], bool]) -> None:
        """Let no time pass while `busy()` says so; what it waits for has to wake the loop."""
        self._virtual.is_waited_for = busy

    def skip(self, seconds: float) -> None:
        """Let time pass in which nothing runs, as while the machine sleeps."""
        self._virtual.now_s += seconds


def sleep_as_a_machine(seconds: float) -> None:
    """Let virtual time pass in which no task runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.skip(seconds)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """What `main` comes to in virtual time, which begins at 0 s."""

    async def begun() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        threads = to_thread.current_default_thread_limiter()
        loop.stand_still_while(lambda: threads.borrowed_tokens > 0)
        return await main()

    return anyio.run(begun, backend_options={"loop_factory": VirtualTimeLoop})


def in_virtual_time(test: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """An asynchronous test that waits for no clock; it runs in a thread, beside the loop of pytest."""

    @wraps(test)
    async def within(*args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread.run_sync(run, partial(test, *args, **kwargs))

    return within
