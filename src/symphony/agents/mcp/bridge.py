"""Our tools as an MCP server of one session: the daemon runs them, a relay carries the bytes.

The agent starts `Bridge.argv`, a program that knows nothing, and that connects to a socket of this session
alone. Who may use the socket is decided by the kernel's word and by no secret: the process that connected
must be the session's agent or one below it. A token would not do. All sessions run as one user, and a process
may read the arguments, the environment and the files of every other process of its user, so the agent of one
session could read the token of another; the mark `SYMPHONY_RUN_ID` it could set for itself. Which process
connected (`SO_PEERCRED`), and who its ancestors are, it cannot choose. What runs in a sandbox with a process
table of its own is seen from here with its numbers outside of it. A relay whose ancestors ended before it
connected is nobody's, and refused.

Calls of one session run one after the other, as they do for an agent that asks us directly; meanwhile pings
are answered and calls may be taken back. Several connections are served at once: some agents start a server
for each part of themselves.
"""

import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from symphony.agents.base import AgentError, SessionRequest, Surroundings
from symphony.agents.events import ToolCalled
from symphony.agents.mcp import relay
from symphony.agents.mcp.connection import Caller, ClientConnection
from symphony.agents.mcp.protocol import SERVER_NAME
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.tools import ToolSpec
from symphony.processes.base import Host, Identity

__all__ = ["Bridge", "peer_pid", "tool_bridge"]

_MAX_PATH_BYTES = 107
_MAX_CONNECTIONS = 32
_BREATH_S = 0.1
_SOCKET_NAME = "tools"
_DARWIN_PEER_PID = 2  # LOCAL_PEERPID at level 0
_log = structlog.get_logger(__name__)


class Bridge:
    """What a backend needs to know of the bridge of its session.

    Attributes:
        name: what the server is called in an agent's settings, and in the names that it gives our tools.
        argv: the command of the server, in absolute paths; it needs no variables.
        paths: what must be reachable inside an isolation, and may be written to there.
    """

    def __init__(self, socket_path: Path, caller: Caller, told: Callable[[Identity], None] | None) -> None:
        self.name = SERVER_NAME
        self.argv = (sys.executable, "-I", "-S", str(Path(relay.__file__).absolute()), str(socket_path))
        self.paths = (socket_path.parent,)
        self._caller = caller
        self._told = told
        self._agent: Identity | None = None
        self._known = anyio.Event()

    def on_spawned(self, agent: Identity) -> None:
        """Take the place of the request's own `on_spawned`: nobody is served before the agent is known."""
        if self._told is not None:
            self._told(agent)
        self._agent = agent
        self._known.set()

    def end(self) -> None:
        """The session is being stopped: what runs is cancelled, and every call from now on refused."""
        self._caller.end()

    async def admits(self, host: Host, pid: int | None) -> bool:
        """Whether a process belongs to the session's agent; waits until there is one."""
        await self._known.wait()
        return pid is not None and self._agent in host.lineage(pid)


@asynccontextmanager
async def tool_bridge(
    request: SessionRequest,
    tools: tuple[ToolSpec, ...],
    around: Surroundings,
    *,
    on_called: Callable[[ToolCalled], None] | None = None,
) -> AsyncIterator[Bridge]:
    """Serve these tools to a session while the context lasts; enter and leave it in one task.

    `on_called` is told of each call when it has been answered: `EventQueue.emit` of the session.

    Raises:
        AgentError: `state_directory`: no socket can be made.
    """
    listener, path = await to_thread.run_sync(_listen, around.environ)
    try:
        caller = Caller(tools, request.run_tool, on_called)
        bridge = Bridge(path, caller, request.on_spawned)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, listener, around.host, bridge, caller)
            try:
                yield bridge
            except Exception as error:  # noqa: BLE001 - it must not leave the group as a group of exceptions
                failure = error
            finally:
                caller.end()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        listener.close()
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(lambda: shutil.rmtree(path.parent, ignore_errors=True))


def peer_pid(connected: socket.socket) -> int | None:
    """The process at the other end of a Unix socket as it connected; null where the system does not tell."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = struct.Struct("3i")
        found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
        pid = int(credentials.unpack(found)[0])
    elif sys.platform == "darwin":
        pid = connected.getsockopt(0, _DARWIN_PEER_PID)
    else:
        return None
    return pid or None


async def _accept(listener: socket.socket, host: Host, bridge: Bridge, caller: Caller) -> None:
    """Take connections until cancelled; one too many waits, and so does a system without file descriptors."""
    room = anyio.Semaphore(_MAX_CONNECTIONS)
    async with anyio.create_task_group() as served:
        while True:
            await room.acquire()
            await anyio.wait_readable(listener)
            try:
                connected, _ = listener.accept()
            except OSError as error:  # the client is gone again, or there are no more file descriptors
                room.release()
                _log.debug("tool_connection_lost", reason=str(error))
                await anyio.sleep(_BREATH_S)
            else:
                served.start_soon(_serve, connected, host, bridge, caller, room)


async def _serve(
    connected: socket.socket, host: Host, bridge: Bridge, caller: Caller, room: anyio.Semaphore
) -> None:
    try:
        with connected:
            pid = peer_pid(connected)
            if await bridge.admits(host, pid):
                await ClientConnection(connected, caller).serve()
            else:
                _log.warning("tool_connection_refused", pid=pid)
    except Exception:  # noqa: BLE001 - a bug costs one connection, never the session
        _log.exception("tool_connection_crashed")
    finally:
        room.release()


def _listen(environ: Mapping[str, str]) -> tuple[socket.socket, Path]:
    """A socket in a directory of its own; blocking. Raises `AgentError`."""
    reason = "no directory has a path that is short enough"
    for parent in (environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - the last resort
        longest = len(os.fsencode(parent)) + len("/symphony-12345678/") + len(_SOCKET_NAME)
        if parent.startswith("/") and longest <= _MAX_PATH_BYTES:
            try:
                return _bind(Path(parent))
            except OSError as error:
                reason = error.strerror or str(error)
    raise AgentError(
        Failure(
            category=Category.STATE_DIRECTORY,
            blame=Blame.HOST,
            message=f"the socket for the agent's tools could not be made: {reason}",
            hint="see that XDG_RUNTIME_DIR or TMPDIR names a directory that the daemon may write to",
        )
    )


def _bind(parent: Path) -> tuple[socket.socket, Path]:
    """Listen in a new private directory, which the system tidies away should we not. Raises `OSError`."""
    path = Path(tempfile.mkdtemp(prefix="symphony-", dir=parent)) / _SOCKET_NAME
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(_MAX_CONNECTIONS)
        listener.settimeout(0)
    except OSError:
        listener.close()
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    return listener, path
