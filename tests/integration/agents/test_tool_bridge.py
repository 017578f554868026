"""The tools of a session over MCP: real sockets, real processes, and another project's client."""

import asyncio
import json
import os
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from anyio.abc import SocketStream
from msgspec import structs

from harness.real import require_bubblewrap
from harness.sessions import briefed
from symphony.agents.base import AgentError, BackendContext, Briefing, SessionRequest
from symphony.agents.events import ToolCalled
from symphony.agents.isolation import Isolation
from symphony.agents.mcp import relay
from symphony.agents.mcp.server import ToolServer, peer_pid, tool_server
from symphony.domain import Category, ToolResult, ToolSpec
from symphony.processes.base import HostProcess, Identity
from symphony.processes.local import LocalHost

pytestmark = pytest.mark.asyncio

ECHO = ToolSpec(
    name="echo",
    description="Say it again.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)
CLIENT = Path(__file__).with_name("mcp_client_program.py")
Params = Mapping[str, Any]


@dataclass
class Desk:
    """A session's side of the bridge: what tools were called, and what the session was told."""

    directory: Path
    host: LocalHost = field(default_factory=LocalHost)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    told: list[ToolCalled] = field(default_factory=list)
    spawned: list[Identity] = field(default_factory=list)
    began: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)
    run_id: str = field(default_factory=lambda: f"test-{uuid4().hex}")

    async def run_tool(self, name: str, arguments: Params) -> ToolResult:
        self.calls.append((name, dict(arguments)))
        if arguments.get("text") == "wait":
            self.began.set()
            await self.release.wait()
        if arguments.get("text") == "fail":
            raise RuntimeError("broken")
        return ToolResult.of({"echo": arguments.get("text")})

    @asynccontextmanager
    async def open(self, environ: Mapping[str, str] | None = None) -> AsyncIterator[ToolServer]:
        request = SessionRequest(
            run_id=self.run_id,
            cwd=self.directory,
            briefing=briefed(Briefing(tools=(ECHO,))),
            run_tool=self.run_tool,
            stderr_path=self.directory / "stderr.log",
            on_spawned=self.spawned.append,
        )
        context = BackendContext(
            host=self.host,
            environ=environ or {},
            secret_names=frozenset(),
            homes=self.directory / "homes",
        )
        async with tool_server(request, (ECHO,), context, on_called=self.told.append) as bridge:
            yield bridge

    async def spawn(self, *argv: str) -> HostProcess:
        return await self.host.spawn(
            argv,
            cwd=self.directory,
            env={**os.environ, "SYMPHONY_RUN_ID": self.run_id},
            stderr_path=self.directory / "stderr.log",
        )

    async def output(self, process: HostProcess) -> str:
        """All that a process writes until it ends."""
        pieces = [await process.receive()]
        while pieces[-1]:
            pieces.append(await process.receive())
        await process.wait()
        return b"".join(pieces).decode()


class Client:
    """A bare client in this process."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._left = b""

    async def send(self, *messages: Params | bytes) -> None:
        for message in messages:
            line = (
                message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            )
            await self.stream.send(line + b"\n")

    async def hear(self) -> dict[str, Any]:
        while b"\n" not in self._left:
            self._left += await self.stream.receive()
        line, _, self._left = self._left.partition(b"\n")
        heard: dict[str, Any] = json.loads(line)
        return heard


def call(number: int, text: str) -> Params:
    params = {"name": "echo", "arguments": {"text": text}}
    return {"id": number, "method": "tools/call", "params": params}


def text_of(message: Params) -> str:
    return str(message["result"]["content"][0]["text"])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(directory=tmp_path)


@asynccontextmanager
async def connected(desk: Desk, bridge: ToolServer) -> AsyncIterator[Client]:
    """A client in this process, which is taken for the agent."""
    me = desk.host.identify(os.getpid())
    assert me is not None
    bridge.on_spawned(me)
    async with await anyio.connect_unix(bridge.argv[-1]) as stream:
        yield Client(stream)


@pytest.mark.slow
async def test_another_projects_client_lists_and_calls_the_tools_through_the_relay(desk: Desk) -> None:
    async with desk.open() as bridge:
        agent = await desk.spawn(sys.executable, str(CLIENT), *bridge.argv)
        bridge.on_spawned(agent.identity)
        said = json.loads(await desk.output(agent))
    assert desk.spawned == [agent.identity]
    assert said["server"] == "symphony"
    assert said["tools"] == [{"name": "echo", "schema": ECHO.input_schema}]
    assert said["good"] == {"error": False, "text": '{"echo": "grüße \U0001f600"}'}
    assert said["bad"]["error"] is True
    assert "tool echo failed: broken" in said["bad"]["text"]
    assert "unsupported tool nothing" in said["unknown"]["text"]
    assert said["pinged"] is True
    assert said["resources"] == "unsupported method resources/list"
    assert desk.calls == [("echo", {"text": "grüße \U0001f600"}), ("echo", {"text": "fail"})]
    assert [(event.name, event.success) for event in desk.told] == [
        ("echo", True),
        ("echo", False),
        ("nothing", False),
    ]


async def test_a_process_of_another_session_is_refused_although_it_bears_the_mark(desk: Desk) -> None:
    """The mark in its environment is the session's own, and it knows the socket: neither is enough."""
    async with desk.open() as bridge:
        agent = await desk.spawn("cat")
        bridge.on_spawned(agent.identity)
        stranger = await desk.spawn(*bridge.argv)
        await stranger.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
        await stranger.send(json.dumps({"jsonrpc": "2.0", **call(2, "mine")}).encode() + b"\n")
        assert await desk.output(stranger) == ""
        await agent.close_stdin()
        await agent.wait()
    assert desk.calls == []


async def test_the_relay_works_inside_an_isolation(desk: Desk) -> None:
    """In a process table of its own, where neither side knows the other's numbers, and without a network."""
    bubblewrap = await anyio.to_thread.run_sync(require_bubblewrap)
    async with desk.open() as bridge:
        isolation = Isolation(program=bubblewrap, network=False, writable=bridge.paths)
        argv = await anyio.to_thread.run_sync(partial(isolation.wrap, bridge.argv, cwd=desk.directory))
        agent = await desk.spawn(*argv)
        bridge.on_spawned(agent.identity)
        await agent.send(json.dumps({"jsonrpc": "2.0", **call(1, "inside")}).encode() + b"\n")
        await agent.close_stdin()
        said = await desk.output(agent)
    assert text_of(json.loads(said)) == '{"echo": "inside"}'


async def test_an_agent_that_has_ended_lends_its_number_to_nobody(desk: Desk) -> None:
    async with desk.open() as bridge:
        me = desk.host.identify(os.getpid())
        assert me is not None
        bridge.on_spawned(structs.replace(me, started=me.started - 1))
        async with await anyio.connect_unix(bridge.argv[-1]) as stream:
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()


async def test_nobody_is_served_before_the_agent_is_known(desk: Desk) -> None:
    async with desk.open() as bridge, await anyio.connect_unix(bridge.argv[-1]) as stream:
        client = Client(stream)
        await client.send({"id": 1, "method": "ping"})
        me = desk.host.identify(os.getpid())
        assert me is not None
        bridge.on_spawned(me)
        assert (await client.hear())["id"] == 1


async def test_a_ping_is_answered_while_a_call_runs_and_the_next_call_waits(desk: Desk) -> None:
    async with desk.open() as bridge, connected(desk, bridge) as client:
        await client.send(call(1, "wait"), call("two", "next"), {"id": 3, "method": "ping"})  # type: ignore[arg-type]
        await desk.began.wait()
        assert (await client.hear())["id"] == 3
        assert len(desk.calls) == 1
        desk.release.set()
        assert [(await client.hear())["id"], (await client.hear())["id"]] == [1, "two"]
    assert len(desk.told) == 2


async def test_a_call_taken_back_is_cancelled_and_not_answered(desk: Desk) -> None:
    async with desk.open() as bridge, connected(desk, bridge) as client:
        await client.send(call(1, "wait"))
        await desk.began.wait()
        await client.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        await client.send({"method": "notifications/cancelled", "params": {"requestId": 99}})
        await client.send({"method": "notifications/initialized"})
        await client.send(call(2, "next"))
        heard = await client.hear()
        assert heard["id"] == 2
        assert text_of(heard) == '{"echo": "next"}'
    assert len(desk.told) == 1


async def test_garbage_is_passed_over(desk: Desk) -> None:
    async with desk.open() as bridge, connected(desk, bridge) as client:
        await client.send(
            b"hello", b"{broken", b"[]", b'{"jsonrpc":"2.0","id":null,"result":{}}', b"\xff\xfe"
        )
        await client.send({"id": 1, "method": "ping"})
        assert await client.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_several_connections_are_served_at_once(desk: Desk) -> None:
    async with desk.open() as bridge, connected(desk, bridge) as first, connected(desk, bridge) as second:
        await first.send(call(1, "wait"))
        await desk.began.wait()
        await second.send({"id": 1, "method": "tools/list"})
        assert (await second.hear())["result"]["tools"][0]["name"] == "echo"
        desk.release.set()
        assert (await first.hear())["id"] == 1


async def test_a_stopped_session_runs_no_call_and_says_so(desk: Desk) -> None:
    async with desk.open() as bridge, connected(desk, bridge) as client:
        await client.send(call(1, "wait"))
        await desk.began.wait()
        bridge.stop()
        assert "is being stopped" in text_of(await client.hear())
        await client.send(call(2, "late"))
        assert "is being stopped" in text_of(await client.hear())
    assert len(desk.calls) == 1


async def test_a_client_that_hangs_up_in_the_middle_harms_nobody(desk: Desk) -> None:
    async with desk.open() as bridge:
        async with connected(desk, bridge) as client:
            await client.send(call(1, "wait"))
            await desk.began.wait()
        desk.release.set()
        async with connected(desk, bridge) as client:
            await client.send(call(1, "again"))
            assert text_of(await client.hear()) == '{"echo": "again"}'


async def test_the_socket_is_private_and_gone_at_the_end(desk: Desk) -> None:
    async with desk.open() as bridge:
        path = Path(bridge.argv[-1])
        assert bridge.paths == (path.parent,)
        modes = [stat.S_IMODE(os.stat(one).st_mode) for one in (path.parent, path)]  # noqa: PTH116
        assert modes == [0o700, 0o600]
        assert all(Path(word).is_absolute() or word.startswith("-") for word in bridge.argv)
    assert not path.parent.exists()


async def test_what_the_body_raises_comes_out_as_it_is(desk: Desk) -> None:
    with pytest.raises(KeyError):
        async with desk.open():
            raise KeyError("mine")


async def test_a_session_that_is_cancelled_leaves_nothing(desk: Desk) -> None:
    path = Path()
    with anyio.CancelScope() as scope:
        async with desk.open() as bridge:
            path = bridge.paths[0]
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert not path.exists()


async def test_a_runtime_directory_is_used_unless_its_path_is_too_long(desk: Desk, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        async with desk.open({"XDG_RUNTIME_DIR": short}) as bridge:
            assert bridge.paths[0].parent == Path(short)
    long = tmp_path / ("x" * 100)
    long.mkdir()
    async with desk.open({"XDG_RUNTIME_DIR": str(long)}) as bridge:
        assert bridge.paths[0].parent != long


async def test_without_any_place_for_a_socket_the_session_does_not_start(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(AgentError) as caught:
        async with desk.open():
            pass
    assert caught.value.failure.category is Category.STATE_DIRECTORY
    assert "Permission denied" in caught.value.failure.message


async def test_a_socket_that_cannot_be_bound_leaves_no_directory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "chmod", refuse)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "nowhere")
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        with pytest.raises(AgentError) as caught:
            async with desk.open({"XDG_RUNTIME_DIR": short}):
                pass
        left = await anyio.to_thread.run_sync(os.listdir, short)
    assert left == []
    assert "No space left" in caught.value.failure.message
    assert caught.value.failure.hint is not None


async def test_the_kernel_reports_the_process_at_the_other_end_of_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_pid(ours) == os.getpid()


async def test_a_process_that_the_kernel_cannot_name_is_not_admitted(desk: Desk) -> None:
    """A process of another process table has the pid 0 here."""
    me = desk.host.identify(os.getpid())
    assert me is not None
    async with desk.open() as server:
        server.on_spawned(me)
        assert await server.admits(desk.host, os.getpid())
        assert not await server.admits(desk.host, 0)


async def test_a_relay_without_a_daemon_says_so_in_one_line(desk: Desk) -> None:
    async with desk.open() as bridge:
        argv = bridge.argv
    process = await desk.spawn(*argv)
    assert await process.wait() == 1
    said = (desk.directory / "stderr.log").read_text()
    assert said.startswith("symphony: the tools of this session cannot be reached: ")
    assert said.count("\n") == 1


async def test_a_relay_knows_one_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert relay.main([]) == 2
    assert "usage:" in capsys.readouterr().err


async def test_a_relay_carries_both_ways_and_passes_the_end_on() -> None:
    """In this process, as its own starts without what measures coverage."""

    def serve() -> bytes:
        connected, _ = listener.accept()
        with connected:
            asked = b"".join(iter(lambda: connected.recv(16), b""))
            connected.sendall(asked.upper())
        return asked

    path = f"/tmp/symphony-test-{uuid4().hex}"
    source, asker = os.pipe()
    reader, target = os.pipe()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        listener.bind(path)
        listener.listen(1)
        server = asyncio.create_task(asyncio.to_thread(serve))
        carrying = asyncio.create_task(asyncio.to_thread(relay.main, [path], source=source, target=target))
        os.write(asker, b"a question that is longer than sixteen bytes")
        os.close(asker)
        assert await server == b"a question that is longer than sixteen bytes"
        assert await carrying == 0
    os.unlink(path)  # noqa: PTH108
    os.close(source)
    os.close(target)
    assert os.read(reader, 100) == b"A QUESTION THAT IS LONGER THAN SIXTEEN BYTES"
    os.close(reader)


async def test_a_relay_ends_when_its_agent_does() -> None:
    def serve() -> None:
        connected, _ = listener.accept()
        with connected:
            connected.sendall(b"nobody hears this")

    path = f"/tmp/symphony-test-{uuid4().hex}"
    source, asker = os.pipe()
    reader, target = os.pipe()
    os.close(reader)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        listener.bind(path)
        listener.listen(1)
        server = asyncio.create_task(asyncio.to_thread(serve))
        assert await asyncio.to_thread(relay.main, [path], source=source, target=target) == 0
        await server
    os.unlink(path)  # noqa: PTH108
    for end in (source, asker, target):
        os.close(end)
