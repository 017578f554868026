"""Tools of the daemon as an MCP server of one session: the daemon runs them, a relay carries the bytes.

The agent starts `ToolServer.argv`, a program that connects to a Unix socket of this session alone. The kernel
decides who may use the socket: the process that connected (`SO_PEERCRED`) must be the session's agent or one
of its descendants. A token would not suffice. All sessions run as one user, and a process can read the
arguments, environment and files of every other process of its user, so the agent of one session could read
the token of another; and it could set `SYMPHONY_RUN_ID` by itself. It cannot choose its pid or its ancestors.
Processes in a sandbox with a process table of its own appear here with their pids outside. A relay whose
ancestors ended before it connected is refused.

The calls of a session run one after the other, as for an agent that calls the daemon directly. Meanwhile
pings are answered and calls can be cancelled. Several connections are served at once, because some agents
start a server for each of their parts.
"""

import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from symphony import __version__, to_thread
from symphony.agents import wire
from symphony.agents.base import AgentError, BackendContext, SessionRequest, ToolRunner
from symphony.agents.events import ToolCalled, redact
from symphony.agents.json_fields import decode_object
from symphony.agents.mcp import relay
from symphony.agents.session import RefusedCall, ToolCall, check_tool_call, run_tool
from symphony.domain import Blame, Category, Failure, ToolResult, ToolSpec
from symphony.processes.base import Host, Identity

SERVER_NAME: Final = "symphony"
PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of the protocol, the newest first. They do not differ in the part that is used."""

_MAX_CONNECTIONS: Final = 32
_MAX_OPEN_CALLS: Final = 64
_CHUNK_BYTES: Final = 65_536
_ACCEPT_PAUSE_S: Final = 0.1
_MAX_PATH_BYTES: Final = 107
_SOCKET_NAME: Final = "tools"
_STOPPED: Final = ToolResult.error("the session is being stopped")
_log = structlog.get_logger(__name__)


# --- the protocol: tools and nothing else; no state, no I/O ------------------------------------------------


def respond(
    request: wire.ServerRequest, tools: Sequence[ToolSpec]
) -> wire.RequestAnswer | ToolCall | RefusedCall:
    """Return the answer to a request, or the call that has to be run for it; never raises.

    Each request is answered regardless of earlier ones: a client that skips `initialize` gets its tools too.
    An unknown method gets an error, because silence hangs a client.
    """
    try:
        params = decode_object(request.params)
    except ValueError as error:
        return wire.RequestAnswer(error=(wire.INVALID_PARAMS, redact(str(error))))
    match request.method:
        case "initialize":
            version = params.get("protocolVersion")
            return wire.RequestAnswer(
                result={
                    "protocolVersion": version if version in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": SERVER_NAME, "version": __version__},
                }
            )
        case "ping":
            return wire.RequestAnswer(result={})
        case "tools/list":
            listed = [
                {"name": spec.name, "description": spec.description, "inputSchema": spec.input_schema}
                for spec in tools
            ]
            return wire.RequestAnswer(result={"tools": listed})
        case "tools/call":
            return check_tool_call(params.get("name"), params.get("arguments"), [spec.name for spec in tools])
        case method:
            return wire.RequestAnswer(
                error=(wire.METHOD_NOT_FOUND, redact(f"unsupported method {method}", 200))
            )


def tool_answer(result: ToolResult) -> wire.RequestAnswer:
    """Return the answer to a tool call. A failure is a result too: the model reads it."""
    content = [{"type": "text", "text": result.text}]
    return wire.RequestAnswer(result={"content": content, "isError": not result.success})


def cancelled_request(message: wire.ServerNotification) -> wire.RequestId | None:
    """Return the id of the request that a notification cancels; `None` for other notifications."""
    if message.method != "notifications/cancelled":
        return None
    try:
        found = decode_object(message.params).get("requestId")
    except ValueError:
        return None
    return found if isinstance(found, int | str) else None


# --- calls and connections ---------------------------------------------------------------------------------


class CallRunner:
    """Runs the calls of one session, one after the other, from all its connections."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        run: ToolRunner,
        on_called: Callable[[ToolCalled], None] | None = None,
    ) -> None:
        self.tools = tuple(tools)
        self._run_tool = run
        self._on_called = on_called
        self._lock = anyio.Lock()
        self._stopped = False
        self._running: set[anyio.CancelScope] = set()

    def stop(self) -> None:
        """Cancel running calls, and refuse all further ones."""
        self._stopped = True
        for scope in self._running:
            scope.cancel()

    async def run(self, call: ToolCall | RefusedCall) -> ToolResult:
        """Run a call when its turn has come, and report it; never raises."""
        result = call.result if isinstance(call, RefusedCall) else await self._run(call)
        if self._on_called is not None:
            self._on_called(ToolCalled(name=call.name, success=result.success))
        return result

    async def _run(self, call: ToolCall) -> ToolResult:
        scope = anyio.CancelScope()
        self._running.add(scope)
        try:
            with scope:
                async with self._lock:
                    if not self._stopped:
                        return await run_tool(call, self._run_tool)
        finally:
            self._running.discard(scope)
        return _STOPPED


class ClientConnection:
    """Serves one client until it disconnects; its open requests are still answered."""

    def __init__(self, connected: socket.socket, calls: CallRunner) -> None:
        connected.settimeout(0)
        self._socket = connected
        self._calls = calls
        self._codec = wire.JsonRpcCodec(versioned=True)
        self._send_lock = anyio.Lock()
        self._open_calls: dict[wire.RequestId, anyio.CancelScope] = {}
        self._call_slots = anyio.Semaphore(_MAX_OPEN_CALLS)

    async def serve(self) -> None:
        """Read and answer. Lines that are not messages are skipped: the protocol knows no answer to them.

        Reading pauses while the client does not take its answers or has too many open calls.
        """
        async with anyio.create_task_group() as tasks:
            while data := await self._receive():
                for message in self._codec.receive(data):
                    await self._handle(message, tasks)

    async def _handle(self, message: wire.Message, tasks: TaskGroup) -> None:
        if isinstance(message, wire.ServerRequest):
            answer = respond(message, self._calls.tools)
            if isinstance(answer, wire.RequestAnswer):
                await self._send(message, answer)
            else:
                await self._call_slots.acquire()
                self._open_calls[message.id] = scope = anyio.CancelScope()
                tasks.start_soon(self._run_call, message, answer, scope)
        elif isinstance(message, wire.ServerNotification):
            cancelled = cancelled_request(message)
            if cancelled is not None and cancelled in self._open_calls:
                self._open_calls[cancelled].cancel()

    async def _run_call(
        self, request: wire.ServerRequest, call: ToolCall | RefusedCall, scope: anyio.CancelScope
    ) -> None:
        """Run a call and answer it, unless the client cancels it."""
        result: ToolResult | None = None
        try:
            with scope:
                result = await self._calls.run(call)
            if result is not None:
                await self._send(request, tool_answer(result))
        finally:
            self._call_slots.release()
            if self._open_calls.get(request.id) is scope:
                del self._open_calls[request.id]

    async def _receive(self) -> bytes:
        """Return the next bytes; `b""` when the client has disconnected in any way."""
        await checkpoint()
        while True:
            try:
                return self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError:
                return b""

    async def _send(self, request: wire.ServerRequest, answer: wire.RequestAnswer) -> None:
        """Write an answer as a whole; a client that has disconnected is ignored."""
        async with self._send_lock:
            rest = memoryview(self._codec.answer(request.id, answer))
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._socket)
                except OSError:
                    return


# --- the server of a session -------------------------------------------------------------------------------


class ToolServer:
    """The MCP server of a session, as its backend sees it.

    Attributes:
        name: the name of the server in an agent's settings, and in the names that it gives the tools.
        argv: the command of the server, in absolute paths; it needs no variables.
        paths: directories that must be reachable and writable inside an isolation.
    """

    def __init__(
        self, socket_path: Path, calls: CallRunner, on_spawned: Callable[[Identity], None] | None
    ) -> None:
        self.name = SERVER_NAME
        self.argv = (sys.executable, "-I", "-S", str(Path(relay.__file__).absolute()), str(socket_path))
        self.paths = (socket_path.parent,)
        self._calls = calls
        self._on_spawned = on_spawned
        self._agent: Identity | None = None
        self._agent_known = anyio.Event()

    def on_spawned(self, agent: Identity) -> None:
        """Replace the request's own `on_spawned`: no connection is served before the agent is known."""
        if self._on_spawned is not None:
            self._on_spawned(agent)
        self._agent = agent
        self._agent_known.set()

    def stop(self) -> None:
        """Cancel running calls and refuse all further ones: the session is being stopped."""
        self._calls.stop()

    async def admits(self, host: Host, pid: int) -> bool:
        """Whether a process is the session's agent or one of its descendants; waits for the agent."""
        await self._agent_known.wait()
        return self._agent in host.lineage(pid)


@asynccontextmanager
async def tool_server(
    request: SessionRequest,
    tools: tuple[ToolSpec, ...],
    context: BackendContext,
    *,
    on_called: Callable[[ToolCalled], None] | None = None,
) -> AsyncIterator[ToolServer]:
    """Serve these tools to a session while the context lasts; enter and leave it in one task.

    `on_called` is called when a call has been answered.

    Raises:
        AgentError: `state_directory`: no socket can be made.
    """
    listener, path = await to_thread.run_sync(_listen, context.environ)
    try:
        calls = CallRunner(tools, request.run_tool, on_called)
        server = ToolServer(path, calls, request.on_spawned)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, listener, context.host, server, calls)
            try:
                yield server
            except Exception as error:  # noqa: BLE001 - it must not leave the task group as an exception group
                failure = error
            finally:
                calls.stop()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        listener.close()
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(lambda: shutil.rmtree(path.parent, ignore_errors=True))


async def _accept(listener: socket.socket, host: Host, server: ToolServer, calls: CallRunner) -> None:
    """Accept connections until cancelled; further ones wait while too many are open."""
    slots = anyio.Semaphore(_MAX_CONNECTIONS)
    async with anyio.create_task_group() as tasks:
        while True:
            await slots.acquire()
            await anyio.wait_readable(listener)
            try:
                connected, _ = listener.accept()
            except OSError as error:  # the client has disconnected, or there are no more file descriptors
                slots.release()
                _log.debug("tool_connection_lost", reason=str(error))
                await anyio.sleep(_ACCEPT_PAUSE_S)
            else:
                tasks.start_soon(_serve, connected, host, server, calls, slots)


async def _serve(
    connected: socket.socket, host: Host, server: ToolServer, calls: CallRunner, slots: anyio.Semaphore
) -> None:
    try:
        with connected:
            pid = peer_pid(connected)
            if await server.admits(host, pid):
                await ClientConnection(connected, calls).serve()
            else:
                _log.warning("tool_connection_refused", pid=pid)
    except Exception:  # noqa: BLE001 - a bug costs one connection, never the session
        _log.exception("tool_connection_crashed")
    finally:
        slots.release()


def peer_pid(connected: socket.socket) -> int:
    """Return the pid of the process that connected to a Unix socket, as the kernel reports it."""
    credentials = struct.Struct("3i")
    pid: int = credentials.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    )[0]
    return pid


def _listen(environ: Mapping[str, str]) -> tuple[socket.socket, Path]:
    """Return a listening socket in a new private directory, and its path; blocking.

    Raises:
        AgentError: `state_directory`.
    """
    reason = "no directory has a path that is short enough"
    for parent in (environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - the last resort
        longest = len(os.fsencode(parent)) + len("/symphony-12345678/") + len(_SOCKET_NAME)
        if not parent.startswith("/") or longest > _MAX_PATH_BYTES:
            continue
        try:
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
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return listener, path
    failure = Failure(
        category=Category.STATE_DIRECTORY,
        blame=Blame.HOST,
        message=f"the socket for the agent's tools could not be made: {reason}",
        hint="see that XDG_RUNTIME_DIR or TMPDIR names a directory that the daemon may write to",
    )
    raise AgentError(failure)
