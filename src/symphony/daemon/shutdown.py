"""Signals: SIGTERM asks to drain, the second one and SIGINT to stop at once, SIGHUP to reload (CL6, SC16).

They are heard from before the start to the end of the service, without a gap in which one would end the
process half-way. asyncio's own handlers would leave such a gap: removing one brings the default action back.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import anyio
import structlog

from symphony.daemon.service import Service
from symphony.domain import SymphonyError

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_log = structlog.get_logger(__name__)


async def serve_until_signalled(service: Service, last: bool = False) -> None:  # noqa: FBT001, FBT002 - for `anyio.run`
    """Run the service; signals end it in order.

    With `last` the process has nothing to do behind it: then further signals to end are ignored instead of
    doing what they did before, so that the way out cannot be interrupted either.

    Raises:
        SymphonyError: as `Service.run`.
    """
    refused: SymphonyError | None = None
    ears = _SignalHandlers(service)
    with _heard(ears, last=last):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ears.reload)
            try:
                await service.run()
            except SymphonyError as error:
                refused = error  # raised below, where no task group wraps it
            tasks.cancel_scope.cancel()
    if refused is not None:
        raise refused


class _SignalHandlers:
    """What each signal asks of the service. However many come, what was asked once is not asked again."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._asked = self._now = False
        self._hangup = anyio.Event()

    def hear(self, number: signal.Signals) -> None:
        if number not in _ENDING:
            self._hangup.set()
            return
        now = self._asked or number == signal.SIGINT
        if not self._now:
            _log.warning("signal_received", signal=number.name, now=now)
            self._service.request_shutdown(now=now)
        self._asked, self._now = True, now

    async def reload(self) -> None:
        while True:
            await self._hangup.wait()
            self._hangup = anyio.Event()
            _log.info("reload_asked", signal="SIGHUP")
            await self._service.reload_now()


@contextmanager
def _heard(ears: _SignalHandlers, *, last: bool) -> Iterator[None]:
    # asyncio itself: a signal handler is called outside of any task, and anyio's receiver leaves the gap.
    loop = asyncio.get_running_loop()
    before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        loop.call_soon_threadsafe(ears.hear, signal.Signals(number))

    for one in (*_ENDING, signal.SIGHUP):
        before[one] = signal.signal(one, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if last else handler)
