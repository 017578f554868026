"""Serves the web application on the daemon's own event loop; no client can harm or hold up the daemon.

One uvicorn server per way in, each with its own bounds: a crowd on the port cannot lock the operator out of
the control socket. Servers have no signal handlers, no access log, and end when their task is cancelled.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import structlog
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from symphony.domain.failures import SymphonyError
from symphony.runtime.listening import Doors
from symphony.web.access import CONTROL, Access
from symphony.web.app import create_app
from symphony.web.port import Hooks, Operator

__all__ = ["serving"]

MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 32_768
IDLE_S = 5
EXCHANGE_S = 75.0
GOODBYE_S = 0.5
_log = structlog.get_logger(__name__)


@asynccontextmanager
async def serving(
    doors: Doors, operator: Operator, access: Access, hooks: Hooks | None = None
) -> AsyncIterator[None]:
    """Answer on the doors while the body runs; `access` is the rule of the TCP one, and `hooks` are its own.

    Raises:
        SymphonyError: of the body, as it was raised.
    """
    refused: SymphonyError | None = None
    with _logs():
        async with anyio.create_task_group() as tasks:
            if doors.control is not None:
                await tasks.start(_serve, doors.control, create_app(operator, CONTROL))
            if doors.tcp is not None:
                await tasks.start(_serve, doors.tcp, create_app(operator, access, hooks))
            try:
                yield
            except SymphonyError as error:
                refused = error  # raised below, where no task group wraps it
            tasks.cancel_scope.cancel()
    if refused is not None:
        raise refused


async def _serve(
    door: socket.socket, app: ASGIApp, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    server = _Server(_config(app), task_status)
    try:
        await server.serve(sockets=[door])
    finally:
        with anyio.CancelScope(shield=True):
            await server.end()


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Exchange,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=IDLE_S,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon and goes when it is told to, not when its clients do."""

    def __init__(self, config: uvicorn.Config, status: TaskStatus[None]) -> None:
        super().__init__(config)
        self._status = status

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._status.started()

    async def end(self) -> None:
        """Take nothing new, let answers that are under way go out for a moment, then hang up."""
        for listener in getattr(self, "servers", ()):
            listener.close()
        await asyncio.sleep(0)  # whoever is being taken in right now becomes a connection that can be ended
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=GOODBYE_S)
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class _Exchange(H11Protocol):
    """A connection on which a request and its answer take at most `EXCHANGE_S`, whoever is slow.

    The time counts from the connection or the last answer, and covers an answer that nobody reads.
    """

    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._count()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._count()

    def _count(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(EXCHANGE_S, self.transport.abort)


# --- logs ------------------------------------------------------------------------------------------------


class _Forward(logging.Handler):
    """uvicorn's own words, in our log: what a client did wrong is of interest to nobody else."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.levelno >= logging.ERROR:
            _log.error("http_failed", reason=record.getMessage(), exc_info=record.exc_info)
        else:
            _log.debug("http_notice", reason=record.getMessage())


@contextmanager
def _logs() -> Iterator[None]:
    logger = logging.getLogger("uvicorn.error")
    forward = _Forward()
    before = logger.propagate
    logger.addHandler(forward)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(forward)
        logger.propagate = before
