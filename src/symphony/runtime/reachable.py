"""The daemon can be reached from its first moment on; what answers is loaded while it starts to work.

The doors are open before anything is dispatched, so that a port in use is told in time. Loading the web
server takes longer than the check of the agent and would slow the first dispatch down: it begins half a
second later, or when somebody knocks, who waits a moment then.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from socket import socket

import anyio
import structlog
from anyio import to_thread

from symphony.domain.failures import SymphonyError
from symphony.runtime.listening import Doors, open_doors
from symphony.runtime.state_dir import StateDirectory
from symphony.runtime.token import operator_token
from symphony.web.port import Operator

__all__ = ["reachable"]

_HEAD_START_S = 0.5
_log = structlog.get_logger(__name__)


@asynccontextmanager
async def reachable(
    operator: Operator,
    state_dir: StateDirectory,
    *,
    host: str,
    port: int | None,
    environment: Mapping[str, str],
    workflow: Path | None = None,
) -> AsyncIterator[Doors]:
    """Open the doors and answer on them while the body runs. Called under the instance lock.

    Raises:
        SymphonyError: `http_server`: the port or the token cannot be used; or what the body raised.
    """
    token, public = "", False
    if port is not None:
        token = await to_thread.run_sync(operator_token, state_dir, environment)
        public = await to_thread.run_sync(_is_public, host)
    opened = open_doors(state_dir, host=host, port=port, environment=environment, workflow=workflow)
    doors = await to_thread.run_sync(opened.__enter__)
    refused: SymphonyError | None = None
    try:
        if doors.port is not None:
            _log.info("http_serving", host=host, port=doors.port, token_needed=public)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_answer, doors, operator, host, token)
            try:
                yield doors
            except SymphonyError as error:
                refused = error  # raised below, where no task group wraps it
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(opened.__exit__, None, None, None)
    if refused is not None:
        raise refused


async def _answer(doors: Doors, operator: Operator, host: str, token: str) -> None:
    await _knock(doors)
    answering = await to_thread.run_sync(_load)
    async with answering(doors, operator, host, token):
        await anyio.sleep_forever()


async def _knock(doors: Doors) -> None:
    """Return when somebody is at one of the doors, or when the daemon has had its head start."""

    async def listen(door: socket) -> None:
        await anyio.wait_readable(door)
        knocks.cancel_scope.cancel()

    with anyio.move_on_after(_HEAD_START_S):
        async with anyio.create_task_group() as knocks:
            for door in (doors.control, doors.tcp):
                if door is not None:
                    knocks.start_soon(listen, door)
            await anyio.sleep_forever()


Answering = Callable[[Doors, Operator, str, str], AbstractAsyncContextManager[None]]


def _load() -> Answering:
    from symphony.runtime.serving import serving  # noqa: PLC0415 - loads the web server, in a thread
    from symphony.web.access import Access  # noqa: PLC0415 - as above

    return lambda doors, operator, host, token: serving(doors, operator, Access.tcp(host, token))


def _is_public(host: str) -> bool:
    from symphony.web.access import is_loopback  # noqa: PLC0415 - as above

    return not is_loopback(host)
