"""Signals: SIGTERM drains, a second SIGTERM or SIGINT stops at once, SIGHUP reloads.

They are handled from before the start to the end of the service, without a gap in which a signal would kill
the process. Handlers of asyncio or anyio leave such a gap, because removing one restores the default action.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Final

import anyio
import structlog

from symphony.daemon.service import Service
from symphony.domain import SymphonyError

_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_log = structlog.get_logger(__name__)


async def serve_until_signalled(
    service: Service,
    last: bool = False,  # noqa: FBT001, FBT002 - for `anyio.run`
    beside: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run the service; signals, and the end of `beside`, shut it down gracefully.

    With `last` the process ends afterwards: further signals are then ignored, so that they do not interrupt
    the end of the process.

    Raises:
        SymphonyError: as `Service.run`.
    """
    signals = _Signals(service)
    loop = asyncio.get_running_loop()

    def on_signal(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(signals.handle, signal.Signals(number))

    before = {number: signal.signal(number, on_signal) for number in (*_END_SIGNALS, signal.SIGHUP)}
    error: SymphonyError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signals.reload)
            if beside is not None:
                tasks.start_soon(_shut_down_after, beside, service)
            try:
                await service.run()
            except SymphonyError as raised:
                error = raised  # raised below, where no task group wraps it
            tasks.cancel_scope.cancel()
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if last else handler)
    if error is not None:
        raise error


async def _shut_down_after(beside: Callable[[], Awaitable[None]], service: Service) -> None:
    await beside()
    service.request_shutdown()


class _Signals:
    """Passes signals on to the service; a repeated signal does nothing new."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._drain_requested = self._stop_requested = False
        self._hangup = anyio.Event()

    def handle(self, number: signal.Signals) -> None:
        """Act on a signal; called on the event loop."""
        if number not in _END_SIGNALS:
            self._hangup.set()
            return
        now = self._drain_requested or number == signal.SIGINT
        if not self._stop_requested:
            _log.warning("signal_received", signal=number.name, now=now)
            self._service.request_shutdown(now=now)
        self._drain_requested, self._stop_requested = True, now

    async def reload(self) -> None:
        """Reload after each SIGHUP, until cancelled."""
        while True:
            await self._hangup.wait()
            self._hangup = anyio.Event()
            _log.info("reload_asked", signal="SIGHUP")
            await self._service.reload_now()
