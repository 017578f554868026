"""Signals: the first asks to drain, the second to stop at once (CL6, SC16)."""

import signal

import anyio
import structlog

from symphony.domain.failures import SymphonyError
from symphony.runtime.service import Service

__all__ = ["serve_until_signalled"]

_log = structlog.get_logger(__name__)


async def serve_until_signalled(service: Service) -> None:
    """Run the service; SIGINT and SIGTERM end it in order.

    Raises:
        SymphonyError: as `Service.run`.
    """
    refused: SymphonyError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, service)
        try:
            await service.run()
        except SymphonyError as error:
            refused = error  # raised below, where no task group wraps it
        tasks.cancel_scope.cancel()
    if refused is not None:
        raise refused


async def _listen(service: Service) -> None:
    asked = False
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            _log.warning("signal_received", signal=signal.Signals(number).name, now=asked)
            service.ask_to_end(now=asked)
            asked = True
