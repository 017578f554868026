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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from symphony import __version__
from symphony.agents.base import AgentError, BackendContext, SessionRequest, ToolRunner
from symphony.agents.events import ToolCalled, parse, redact
from symphony.agents.mcp import relay
from symphony.agents.session import RefusedCall, ToolCall, judge, run_tool
from symphony.agents.wire import Codec, Message, Notification, RequestId, ServerRequest
from symphony.domain import Blame, Category, Failure, ToolResult, ToolSpec
from symphony.processes.base import Host, Identity

# What an MCP client may ask of us, and the answer: tools, and nothing else. Pure, and without memory.
#
# Every request is answered for itself, whatever came before it: a client that skips `initialize` gets its
# tools all the same. What is none of ours is refused by the words of JSON-RPC, because silence hangs a
# client.


SERVER_NAME: Final = "symphony"
VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of the protocol, the newest first; in what we use of it they are alike."""

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What goes back: a result, or `error` as (code, message)."""

    result: Mapping[str, Any] | None = None
    error: tuple[int, str] | None = None


def respond(request: ServerRequest, tools: Sequence[ToolSpec]) -> Reply | ToolCall | RefusedCall:
    """The answer to a request, or the call that has to be run for it; never raises."""
    try:
        params = parse(request.params)
    except ValueError as error:
        return Reply(error=(_INVALID_PARAMS, redact(str(error))))
    match request.method:
        case "initialize":
            return Reply(result=_welcome(params))
        case "ping":
            return Reply(result={})
        case "tools/list":
            return Reply(result={"tools": [_listed(spec) for spec in tools]})
        case "tools/call":
            return judge(params.get("name"), params.get("arguments"), [spec.name for spec in tools])
        case method:
            return Reply(error=(_METHOD_NOT_FOUND, redact(f"unsupported method {method}", 200)))


def tool_reply(result: ToolResult) -> Reply:
    """A tool's result on the wire: a failure too is something for the model to read."""
    content = [{"type": "text", "text": result.text}]
    return Reply(result={"content": content, "isError": not result.success})


def cancelled(message: Notification) -> RequestId | None:
    """The request that a client no longer waits for; null for every other notification."""
    if message.method != "notifications/cancelled":
        return None
    try:
        found = parse(message.params).get("requestId")
    except ValueError:
        return None
    return found if isinstance(found, int | str) else None


def _welcome(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """A client that speaks a version we do not know is offered our newest one."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER_NAME, "version": __version__},
    }


def _listed(spec: ToolSpec) -> Mapping[str, Any]:
    return {"name": spec.name, "description": spec.description, "inputSchema": spec.input_schema}


# One connection of an MCP client: requests are read and answered, calls run beside the reading.


_MAX_OPEN_CALLS = 64
_CHUNK_BYTES = 65_536
_ENDED = ToolResult.error("the session is being stopped")


class Caller:
    """Runs the calls of one session, one after the other, from however many connections they come."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        runner: ToolRunner,
        on_called: Callable[[ToolCalled], None] | None = None,
    ) -> None:
        self.tools = tuple(tools)
        self._runner = runner
        self._on_called = on_called
        self._one = anyio.Lock()
        self._ended = False
        self._running: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """Cancel what runs, and refuse what comes."""
        self._ended = True
        for scope in self._running:
            scope.cancel()

    async def run(self, call: ToolCall | RefusedCall) -> ToolResult:
        """The result of a call, sooner or later; never raises."""
        if isinstance(call, RefusedCall):
            result = call.result
        else:
            result = await self._in_turn(call)
        if self._on_called is not None:
            self._on_called(ToolCalled(name=call.name, success=result.success))
        return result

    async def _in_turn(self, call: ToolCall) -> ToolResult:
        scope = anyio.CancelScope()
        self._running.add(scope)
        try:
            with scope:
                async with self._one:
                    if not self._ended:
                        return await run_tool(call, self._runner)
        finally:
            self._running.discard(scope)
        return _ENDED


class ClientConnection:
    """Serves one client until it hangs up; what it asked before that is still answered."""

    def __init__(self, connected: socket.socket, caller: Caller) -> None:
        connected.settimeout(0)
        self._socket = connected
        self._caller = caller
        self._codec = Codec(versioned=True)
        self._sending = anyio.Lock()
        self._calls: dict[RequestId, anyio.CancelScope] = {}
        self._room = anyio.Semaphore(_MAX_OPEN_CALLS)

    async def serve(self) -> None:
        """Read and answer. What is no message is passed over: the protocol knows no answer to it.

        Reading stops while the client does not take its answers, or has too many calls open.
        """
        async with anyio.create_task_group() as calls:
            while data := await self._receive():
                for message in self._codec.receive(data):
                    await self._take(message, calls)

    async def _take(self, message: Message, calls: TaskGroup) -> None:
        if isinstance(message, ServerRequest):
            answer = respond(message, self._caller.tools)
            if isinstance(answer, Reply):
                await self._send(message, answer)
            else:
                await self._room.acquire()
                self._calls[message.id] = scope = anyio.CancelScope()
                calls.start_soon(self._call, message, answer, scope)
        elif isinstance(message, Notification):
            taken_back = cancelled(message)
            if taken_back is not None and taken_back in self._calls:
                self._calls[taken_back].cancel()

    async def _call(
        self, request: ServerRequest, call: ToolCall | RefusedCall, scope: anyio.CancelScope
    ) -> None:
        """Run a call and answer it, unless the client takes it back: then nobody wants an answer."""
        result: ToolResult | None = None
        try:
            with scope:
                result = await self._caller.run(call)
            if result is not None:
                await self._send(request, tool_reply(result))
        finally:
            self._room.release()
            if self._calls.get(request.id) is scope:
                del self._calls[request.id]

    async def _receive(self) -> bytes:
        """Next bytes; `b""` when the client has hung up, however it did."""
        await checkpoint()
        while True:
            try:
                return self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError:
                return b""

    async def _send(self, request: ServerRequest, reply: Reply) -> None:
        """Write an answer as a whole; a client that is gone needs none."""
        wire = (
            self._codec.answer(request.id, reply.result or {})
            if reply.error is None
            else self._codec.refuse(request.id, *reply.error)
        )
        async with self._sending:
            rest = memoryview(wire)
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._socket)
                except OSError:
                    return


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
    context: BackendContext,
    *,
    on_called: Callable[[ToolCalled], None] | None = None,
) -> AsyncIterator[Bridge]:
    """Serve these tools to a session while the context lasts; enter and leave it in one task.

    `on_called` is told of each call when it has been answered: `EventQueue.emit` of the session.

    Raises:
        AgentError: `state_directory`: no socket can be made.
    """
    listener, path = await to_thread.run_sync(_listen, context.environ)
    try:
        caller = Caller(tools, request.run_tool, on_called)
        bridge = Bridge(path, caller, request.on_spawned)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, listener, context.host, bridge, caller)
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
