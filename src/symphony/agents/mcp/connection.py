"""One connection of an MCP client: requests are read and answered, calls run beside the reading."""

import socket
from collections.abc import Callable, Sequence

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from symphony.agents.base import ToolRunner
from symphony.agents.events import ToolCalled
from symphony.agents.mcp.protocol import Reply, cancelled, respond, tool_reply
from symphony.agents.toolcalls import RefusedCall, ToolCall, run_tool
from symphony.agents.wire.jsonrpc import Codec, Message, Notification, RequestId, ServerRequest
from symphony.domain.tools import ToolResult, ToolSpec

__all__ = ["Caller", "ClientConnection"]

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
