"""Reaches the nodes of a Ray cluster through a bridge process that has Ray (`ray_bridge`).

Each run has its own actor, which holds one slot of its node. Ray chooses the node. Work on a node outside of
runs uses an actor without a slot.
"""

import hashlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from typing_extensions import override

import symphony
from symphony import to_thread
from symphony.config import RaySettings
from symphony.daemon.carriers import (
    MAX_SAID_CHARS,
    Carrier,
    CarrierContext,
    HostFacts,
    PlaceRequest,
    RemoteHost,
    RemoteRun,
    Survey,
    host_failure,
    stderr_line,
)
from symphony.daemon.hosts import ray_messages, ray_relay
from symphony.daemon.hosts.socket_directory import SocketDirectory
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Category, Failure, SymphonyError, one_line
from symphony.processes.base import Completed, HostProcess

RAY: Final = "ray"
"""The beginning of messages about the cluster as a whole."""
CONNECT_S: Final = 120.0
"""The limit for connecting. A wrong token is detected after 20 s, a too old Ray after 80 s."""
NODE_TIMEOUT_S: Final = 600.0
"""How long a run waits for a node that does not exist yet; starting and growing clusters need a while."""
_ANSWER_S: Final = 30.0
_VISIT_S: Final = 60.0
_RELEASE_S: Final = 10.0
_REFUSED_S: Final = 1.0
_SILENCE_EXTRA_MS: Final = 30_000
_MAX_LINE_BYTES: Final = 1_048_576
_BRIDGE_ENDED: Final = host_failure(RAY, "the bridge ended", hint="see logs/ray.log")


class RayHost(RemoteHost):
    """A place on a node: one actor."""

    @override
    def lost(self, done: Completed) -> Failure:
        return host_failure(self.name, stderr_line(done), hint="see `ray status`")


class RayCarrier(Carrier[RaySettings]):
    """The nodes of a cluster."""

    settings_type = RaySettings
    is_cluster = True
    inherits = r"PYTHONPATH|LD_LIBRARY_PATH|RAY_\w+"

    def __init__(self, settings: RaySettings, names: tuple[str, ...], context: CarrierContext) -> None:
        super().__init__(settings, names, context)
        self._bridge: HostProcess | None = None
        self._refused: tuple[float, SymphonyError] | None = None
        self._lock = anyio.Lock()
        self._directory = SocketDirectory()
        self._socket = self._directory.path / "ray"

    @classmethod
    @override
    def unprepared(cls, settings: RaySettings) -> tuple[str, str] | None:
        return "nodes of a Ray cluster are not prepared from here", ray_messages.INSTALL_HINT

    @override
    async def aclose(self) -> None:
        if self._bridge is not None:
            await _end(self._bridge)
        await to_thread.run_sync(self._directory.remove)

    @override
    @asynccontextmanager
    async def place(self, request: PlaceRequest, on_wait: Callable[[str], None]) -> AsyncIterator[RemoteHost]:
        """A place with a slot, once there is one."""
        name = hashlib.sha256(request.issue_id.encode()).hexdigest()[:16]
        asked = ray_messages.PlaceActor(
            name=name,
            labels={**self.settings.labels, **request.labels},
            node=request.last_host,
            autoscaler=self.settings.autoscaler,
        )
        answers: _Answers | None = None
        try:
            async with self._asking(asked) as answers:
                yield self._host_at(await _wait_for_place(answers, on_wait))
        finally:
            if answers is not None and answers.cut:  # a silent bridge ends the actor when it can
                await self._end_place(name)

    @override
    @asynccontextmanager
    async def visit(self, name: str) -> AsyncIterator[RemoteHost]:
        """A place without a slot on a node that the cluster lists."""
        async with self._asking(ray_messages.Visit(node=name)) as answers:
            placed: ray_messages.Placed | None = None
            with anyio.move_on_after(_VISIT_S):
                placed = await _wait_for_place(answers, lambda _: None)
            if placed is None:
                raise SymphonyError(host_failure(name, f"no answer within {_VISIT_S:g} s"))
            if placed.node != name:
                raise SymphonyError(host_failure(name, "the cluster gave a place on another node"))
            yield self._host_at(placed)

    async def _end_place(self, name: str) -> None:
        """End an actor that an ended bridge left; an unreachable one ends by itself."""
        with anyio.move_on_after(_ANSWER_S, shield=True), suppress(SymphonyError):
            async with self._asking(ray_messages.EndPlace(name=name)) as answers:
                await answers.receive()

    async def _list_nodes(self) -> ray_messages.Nodes:
        async with self._asking(ray_messages.ListNodes()) as answers:
            with anyio.move_on_after(_ANSWER_S):
                found = await answers.receive()
                if isinstance(found, ray_messages.Nodes):
                    return found
        raise SymphonyError(host_failure(RAY, "the cluster does not answer", hint="see `ray status`"))

    @override
    async def survey(self) -> Survey:
        """The nodes that are alive and offer slots."""
        found, resource = await self._list_nodes(), self.settings.slots_resource
        hosts = {
            node.name: HostFacts(slots=node.slots, labels=node.labels)
            for node in sorted(found.nodes, key=lambda node: node.name)
            if node.alive and node.slots
        }
        slots = sum(facts.slots or 0 for facts in hosts.values())
        cluster = HostFacts(
            release=found.release,
            slots=slots,
            problem=None if slots else f"no node of the cluster offers {resource}",
            hint=None if slots else f"start nodes with `--resources='{{\"{resource}\": 4}}'`",
        )
        return Survey(hosts, cluster)

    @override
    async def is_gone(self, run: RemoteRun) -> bool:
        """Whether Ray considers the node of a run dead, or cannot be asked."""
        try:
            found = await self._list_nodes()
        except SymphonyError:
            return True
        return not any(node.alive and node.node_id == run.node_id for node in found.nodes)

    def _host_at(self, placed: ray_messages.Placed) -> RayHost:
        return RayHost(
            name=placed.node,
            node_id=placed.node_id,
            client=(sys.executable, "-I", "-S", ray_relay.__file__, str(self._socket)),
            address=placed.place,
            remote_python=placed.python,
            remote_root=self.settings.remote_root,
            install_hint=ray_messages.INSTALL_HINT,
            local=self.context.local,
            env={name: value for name, value in self.env.items() if not name.startswith("RAY_")},
        )

    # --- the bridge --------------------------------------------------------------------------------------

    def _bridge_settings(self) -> ray_messages.BridgeSettings:
        """The request to the bridge."""
        settings = self.settings
        if settings.address is None:
            raise SymphonyError(host_failure(RAY, "worker.ray names no cluster", hint="set its address"))
        own = hashlib.sha256(str(self.context.state_dir).encode()).hexdigest()[:12]
        return ray_messages.BridgeSettings(
            socket=str(self._socket),
            address=settings.address,
            namespace=settings.namespace,
            slots_resource=settings.slots_resource,
            runtime_env=settings.runtime_env,
            prefix=f"symphony-{own}",
            silence_ms=settings.lease_ms + _SILENCE_EXTRA_MS,
        )

    @asynccontextmanager
    async def _asking(self, request: ray_messages.Request) -> AsyncIterator["_Answers"]:
        """Ask the bridge; start it if there is none. Raises `SymphonyError`."""
        async with await self._connect() as stream:
            answers = _Answers(stream)
            try:
                await answers.ask(request)
                yield answers
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(_RELEASE_S):
                    await answers.end()

    async def _connect(self) -> SocketStream:
        async with self._lock:
            bridge = self._bridge
            if bridge is not None and bridge.exit_code is None:
                try:
                    return await anyio.connect_unix(self._socket)
                except (ConnectionRefusedError, FileNotFoundError):
                    await _end(bridge, grace_s=0)  # it was killed and is about to end
            if self._refused is not None and anyio.current_time() < self._refused[0]:
                raise self._refused[1]
            try:
                python = self.settings.python or sys.executable
                self._bridge = await self._start(python, self._bridge_settings())
                return await anyio.connect_unix(self._socket)
            except OSError as error:
                raise SymphonyError(_BRIDGE_ENDED) from error
            except SymphonyError as error:
                # Runs that wait for this connection share its result.
                self._refused = anyio.current_time() + _REFUSED_S, error
                raise

    async def _start(self, python: str, asked: ray_messages.BridgeSettings) -> HostProcess:
        log = self.context.log

        def clear() -> None:
            self._directory.create()
            self._socket.unlink(missing_ok=True)
            StateDirectory(self.context.state_dir).create()
            log.unlink(missing_ok=True)

        argv = (python, "-m", "symphony.daemon.hosts.ray_bridge")
        try:
            await to_thread.run_sync(clear)
            bridge = await self.context.local.spawn(argv, cwd=Path("/"), env=self.env, stderr_path=log)
        except OSError as error:
            hint = "see worker.ray.python, and the space in /tmp"
            raise SymphonyError(
                host_failure(RAY, f"{python} cannot be started: {error}", hint=hint)
            ) from error
        data, answer = b"", None
        try:
            with anyio.move_on_after(CONNECT_S):
                with suppress(BrokenPipeError):  # its answer or log says why
                    await bridge.send(msgspec.json.encode(asked) + b"\n")
                while not data.endswith(b"\n") and (piece := await bridge.receive()):
                    data += piece
            with suppress(msgspec.MsgspecError):
                answer = msgspec.json.decode(data, type=ray_messages.Ready | ray_messages.Refused)
        finally:
            if not isinstance(answer, ray_messages.Ready):
                await _end(bridge, grace_s=0)  # it has done nothing yet
        match answer:
            case ray_messages.Ready(symphony=symphony.__version__):
                return bridge
            case ray_messages.Ready():
                await _end(bridge)
                message = f"{python} has symphony {answer.symphony}, and this is {symphony.__version__}"
                failure = host_failure(RAY, message, hint="install the same release there")
            case ray_messages.Refused():
                failure = _failure_of(answer)
            case _:
                text = await to_thread.run_sync(partial(log.read_text, errors="replace"))
                lines = [line for line in text.splitlines() if line.strip()]
                reason, hint = (lines or ["no answer"])[-1], f"see {log}"
                if "No module named 'ray" in reason:
                    hint = "`pip install '/path/to/symphony[ray]'`, or set worker.ray.python"
                reason = one_line(reason, MAX_SAID_CHARS)
                failure = host_failure(RAY, f"the bridge cannot be started: {reason}", hint=hint)
        raise SymphonyError(failure)


def _failure_of(refused: ray_messages.Refused) -> Failure:
    """The failure of a refusal.

    A wrong label says nothing about the cluster, which must not rest because of it.
    """
    failure = host_failure(RAY, refused.reason, hint=refused.hint)
    passes = refused.category is Category.HOST_UNAVAILABLE
    return replace(failure, category=refused.category, retryable=passes)


class _Answers:
    """The answers of a bridge on one connection."""

    def __init__(self, stream: SocketStream) -> None:
        self.cut = False
        """The bridge ended or closed the connection without confirming that the actor is gone."""
        self._stream = stream
        self._lines = BufferedByteReceiveStream(stream)

    async def ask(self, request: ray_messages.Request) -> None:
        """Send a request. Raises `SymphonyError`."""
        try:
            await self._stream.send(msgspec.json.encode(request) + b"\n")
        except anyio.BrokenResourceError as error:
            raise SymphonyError(_BRIDGE_ENDED) from error

    async def receive(self) -> ray_messages.Answer:
        """The next answer. Raises `SymphonyError` if there is none, or if it is a refusal."""
        try:
            line = await self._lines.receive_until(b"\n", _MAX_LINE_BYTES)
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError) as error:
            raise SymphonyError(_BRIDGE_ENDED) from error
        answer: ray_messages.Answer = msgspec.json.decode(line, type=ray_messages.Answer)
        if isinstance(answer, ray_messages.Refused):
            raise SymphonyError(_failure_of(answer))
        return answer

    async def end(self) -> None:
        """Withdraw the request, and wait until that is done."""
        try:
            await self._stream.send_eof()
            while not isinstance(await self.receive(), ray_messages.ActorEnded):
                pass
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, SymphonyError):
            self.cut = True


async def _wait_for_place(answers: _Answers, on_wait: Callable[[str], None]) -> ray_messages.Placed:
    deadline_s = anyio.current_time() + NODE_TIMEOUT_S
    while True:
        match await answers.receive():
            case ray_messages.Placed() as placed:
                return placed
            case ray_messages.ActorWaiting() as waiting:
                on_wait(waiting.reason)
                if waiting.slots:
                    deadline_s = anyio.current_time() + NODE_TIMEOUT_S
                elif anyio.current_time() > deadline_s:
                    hint = "see worker.ray.slots_resource, the labels, and `symphony hosts check`"
                    raise SymphonyError(host_failure(RAY, waiting.reason, hint=hint))
            case _:
                raise SymphonyError(host_failure(RAY, "the bridge gave another answer"))


async def _end(bridge: HostProcess, *, grace_s: float = _RELEASE_S) -> None:
    with anyio.CancelScope(shield=True):
        await bridge.close_stdin()
        with anyio.move_on_after(grace_s):
            await bridge.wait()
        if bridge.exit_code is None:
            bridge.signal(signal.SIGKILL, bridge.descendants())
            await bridge.wait()
