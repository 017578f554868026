"""Reaches the nodes of a Ray cluster, through a bridge process that has Ray (`ray_bridge`).

A run has an actor of its own, which holds one slot of its node. Ray chooses the node. What has to be done on
a node apart from a run is done in an actor without a slot.
"""

import hashlib
import re
import shlex
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import structs

import symphony
from symphony import to_thread
from symphony.config import RaySettings, WorkerSettings
from symphony.daemon.hosts import ray_relay
from symphony.daemon.hosts.ray_messages import (
    INSTALL_HINT,
    Answer,
    BridgeSettings,
    Ended,
    EndPlace,
    ListNodes,
    Nodes,
    Place,
    Placed,
    Ready,
    Refused,
    Request,
    Visit,
    Waiting,
)
from symphony.daemon.hosts.remote_host import (
    COMMAND_TIMEOUT_MS,
    MAX_SAID_CHARS,
    RemoteHost,
    RemoteRun,
    Wanted,
    host_failure,
    run_client,
    said,
)
from symphony.daemon.hosts.socket_directory import SocketDirectory
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Category, Failure, SymphonyError, one_line
from symphony.processes.base import Completed, Host, HostProcess

RAY: Final = "ray"
"""What messages about the cluster as a whole begin with."""
CONNECT_S: Final = 120.0
"""A wrong token is known after 20 s, a Ray that is too old for this machine after 80 s."""
NODE_TIMEOUT_S: Final = 600.0
"""How long a run waits for a node that does not exist yet; a cluster that starts or grows needs a while."""
_ANSWER_S: Final = 30.0
_VISIT_S: Final = 60.0
_RELEASE_S: Final = 10.0
_REFUSED_S: Final = 1.0
_SILENCE_EXTRA_MS: Final = 30_000
_MAX_LINE_BYTES: Final = 1_048_576
_BRIDGE_ENDED: Final = host_failure(RAY, "the bridge ended", hint="see logs/ray.log")
_INHERITED: Final = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_ALL|TMPDIR|PYTHONPATH|LD_LIBRARY_PATH|RAY_\w+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayHost:
    """A place on a node: one actor (`RemoteHost`)."""

    name: str
    node_id: str
    place: str
    remote_python: str
    remote_root: str
    local: Host
    env: Mapping[str, str]
    socket: Path

    install_hint: str = INSTALL_HINT

    @property
    def _client(self) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", ray_relay.__file__, str(self.socket))

    def argv(self, command: str) -> tuple[str, ...]:
        """The command line that runs a shell command there."""
        return (*self._client, self.place, command)

    @property
    def git_ssh_command(self) -> str:
        """`GIT_SSH_COMMAND` for `git_address`."""
        return shlex.join(self._client)

    def git_address(self, path: str) -> str:
        """The address of a repository there, for git with `git_ssh_command`."""
        return f"{self.place}:{path}"

    async def connect(self) -> None:
        """The bridge is connected."""

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_ms: int = COMMAND_TIMEOUT_MS
    ) -> Completed:
        """Run a shell command there; the caller judges its exit code, except that of a lost actor.

        Raises:
            SymphonyError: `host_unavailable`.
        """
        done = await run_client(self, command, stdin=stdin, timeout_ms=timeout_ms)
        if done.exit_code == ray_relay.FAILED:
            raise SymphonyError(host_failure(self.name, said(done), hint="see `ray status`"))
        return done


class RayHosts:
    """The nodes of clusters. Call `aclose` when it is no longer used.

    Args:
        host: where bridges run: this machine.
        environment: variables of the daemon; Ray takes the token of the cluster from them.
        state_dir: names this daemon, and has the log of the bridge.
        log: its name below `logs`.
    """

    def __init__(
        self, host: Host, environment: Mapping[str, str], state_dir: Path, *, log: str = "ray.log"
    ) -> None:
        self._host = host
        self._environment = {name: value for name, value in environment.items() if _INHERITED.fullmatch(name)}
        self._state_dir = state_dir
        self._log = state_dir / "logs" / log
        self._bridges: dict[str, HostProcess] = {}
        self._uses: Counter[str] = Counter()
        self._kept: str | None = None
        self._refused: dict[str, tuple[float, SymphonyError]] = {}
        self._lock = anyio.Lock()
        self._directory = SocketDirectory()

    async def aclose(self) -> None:
        """End the bridges."""
        with anyio.CancelScope(shield=True):
            for bridge in self._bridges.values():
                await _end(bridge)
            await to_thread.run_sync(self._directory.remove)

    async def keep(self, settings: WorkerSettings) -> None:
        """End the bridges of all other settings, each with its last use."""
        self._kept = "" if settings.ray.address is None else self._asked(settings.ray)[0]
        for key in tuple(self._bridges):
            await self._release(key)

    @asynccontextmanager
    async def place(
        self, settings: WorkerSettings, wanted: Wanted, on_wait: Callable[[str], None]
    ) -> AsyncIterator[RemoteHost]:
        """A place with a slot, once there is one.

        Raises:
            SymphonyError: `host_unavailable`, with a hint.
        """
        name = hashlib.sha256(wanted.issue_id.encode()).hexdigest()[:16]
        asked = Place(
            name=name,
            labels={**settings.ray.labels, **wanted.labels},
            node=wanted.last_host,
            autoscaler=settings.ray.autoscaler,
        )
        answers: _Answers | None = None
        try:
            async with self._asking(settings.ray, asked) as answers:
                yield self._host_at(settings.ray, await _wait_for_place(answers, on_wait))
        finally:
            if answers is not None and answers.cut:  # one that is silent ends the actor when it can
                await self._end_place(settings, name)

    @asynccontextmanager
    async def visit(self, settings: WorkerSettings, name: str) -> AsyncIterator[RemoteHost]:
        """A place without a slot on a node.

        Raises:
            SymphonyError: `host_unavailable`, with a hint.
        """
        async with self._asking(settings.ray, Visit(node=name)) as answers:
            placed: Placed | None = None
            with anyio.move_on_after(_VISIT_S):
                placed = await _wait_for_place(answers, lambda _: None)
            if placed is None:
                raise SymphonyError(host_failure(name, f"no answer within {_VISIT_S:g} s"))
            if placed.node != name:
                raise SymphonyError(host_failure(name, "the cluster gave a place on another node"))
            yield self._host_at(settings.ray, placed)

    async def _end_place(self, settings: WorkerSettings, name: str) -> None:
        """End the actor that a bridge left which ended; one that cannot be reached ends by itself."""
        with anyio.move_on_after(_ANSWER_S, shield=True), suppress(SymphonyError):
            async with self._asking(settings.ray, EndPlace(name=name)) as answers:
                await answers.receive()

    async def list_nodes(self, settings: WorkerSettings) -> Nodes:
        """The nodes of the cluster.

        Raises:
            SymphonyError: `host_unavailable`, with a hint.
        """
        async with self._asking(settings.ray, ListNodes()) as answers:
            with anyio.move_on_after(_ANSWER_S):
                found = await answers.receive()
                if isinstance(found, Nodes):
                    return found
        raise SymphonyError(host_failure(RAY, "the cluster does not answer", hint="see `ray status`"))

    async def names(self, settings: WorkerSettings) -> tuple[str, ...]:
        """The nodes that are alive and offer slots."""
        found = await self.list_nodes(settings)
        return tuple(sorted(node.name for node in found.nodes if node.alive and node.slots))

    async def is_gone(self, settings: WorkerSettings, run: RemoteRun) -> bool:
        """Whether Ray took the node of a run for dead, or cannot be asked."""
        try:
            found = await self.list_nodes(settings)
        except SymphonyError:
            return True
        return not any(node.alive and node.node_id == run.node_id for node in found.nodes)

    def _host_at(self, settings: RaySettings, placed: Placed) -> RayHost:
        return RayHost(
            name=placed.node,
            node_id=placed.node_id,
            place=placed.place,
            remote_python=placed.python,
            remote_root=settings.remote_root,
            local=self._host,
            env={name: value for name, value in self._environment.items() if not name.startswith("RAY_")},
            socket=Path(self._asked(settings)[1].socket),
        )

    # --- the bridge --------------------------------------------------------------------------------------

    def _asked(self, settings: RaySettings) -> tuple[str, BridgeSettings]:
        """What a bridge by these settings is told, and a key of them."""
        assert settings.address is not None  # noqa: S101 - there is a cluster
        own = hashlib.sha256(str(self._state_dir).encode()).hexdigest()[:12]
        asked = BridgeSettings(
            socket="",
            address=settings.address,
            namespace=settings.namespace,
            slots_resource=settings.slots_resource,
            runtime_env=settings.runtime_env,
            prefix=f"symphony-{own}",
            silence_ms=settings.lease_ms + _SILENCE_EXTRA_MS,
        )
        key = hashlib.sha256(f"{settings.python} {asked}".encode()).hexdigest()[:8]
        return key, structs.replace(asked, socket=str(self._directory.path / key))

    @asynccontextmanager
    async def _asking(self, settings: RaySettings, request: Request) -> AsyncIterator["_Answers"]:
        """Ask a bridge, which is started if there is none. Raises `SymphonyError`."""
        key, asked = self._asked(settings)
        self._uses[key] += 1
        try:
            async with await self._connect(key, settings.python or sys.executable, asked) as stream:
                answers = _Answers(stream)
                try:
                    await answers.ask(request)
                    yield answers
                finally:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(_RELEASE_S):
                        await answers.end()
        finally:
            self._uses[key] -= 1
            await self._release(key)

    async def _release(self, key: str) -> None:
        if not self._uses[key] and self._kept not in {None, key} and key in self._bridges:
            await _end(self._bridges.pop(key))

    async def _connect(self, key: str, python: str, asked: BridgeSettings) -> SocketStream:
        async with self._lock:
            bridge = self._bridges.get(key)
            if bridge is not None and bridge.exit_code is None:
                try:
                    return await anyio.connect_unix(asked.socket)
                except (ConnectionRefusedError, FileNotFoundError):
                    await _end(bridge, grace_s=0)  # it was killed, and is about to be gone
            until_s, refused = self._refused.get(key, (0.0, None))
            if refused is not None and anyio.current_time() < until_s:
                raise refused
            try:
                self._bridges[key] = await self._start(python, asked)
                return await anyio.connect_unix(asked.socket)
            except OSError as error:
                raise SymphonyError(_BRIDGE_ENDED) from error
            except SymphonyError as error:
                # Runs that wait for this connection need not try it one after the other.
                self._refused[key] = anyio.current_time() + _REFUSED_S, error
                raise

    async def _start(self, python: str, asked: BridgeSettings) -> HostProcess:
        log = self._log

        def clear() -> None:
            self._directory.create()
            Path(asked.socket).unlink(missing_ok=True)
            StateDirectory(self._state_dir).create()
            log.unlink(missing_ok=True)

        argv = (python, "-m", "symphony.daemon.hosts.ray_bridge")
        try:
            await to_thread.run_sync(clear)
            bridge = await self._host.spawn(argv, cwd=Path("/"), env=self._environment, stderr_path=log)
        except OSError as error:
            hint = "see worker.ray.python, and the space in /tmp"
            raise SymphonyError(
                host_failure(RAY, f"{python} cannot be started: {error}", hint=hint)
            ) from error
        data, answer = b"", None
        try:
            with anyio.move_on_after(CONNECT_S):
                with suppress(BrokenPipeError):  # what it said or logged tells why
                    await bridge.send(msgspec.json.encode(asked) + b"\n")
                while not data.endswith(b"\n") and (piece := await bridge.receive()):
                    data += piece
            with suppress(msgspec.MsgspecError):
                answer = msgspec.json.decode(data, type=Ready | Refused)
        finally:
            if not isinstance(answer, Ready):
                await _end(bridge, grace_s=0)  # it has done nothing yet
        match answer:
            case Ready(symphony=symphony.__version__):
                return bridge
            case Ready():
                await _end(bridge)
                message = f"{python} has symphony {answer.symphony}, and this is {symphony.__version__}"
                failure = host_failure(RAY, message, hint="install the same release there")
            case Refused():
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


def _failure_of(refused: Refused) -> Failure:
    """A wrong label says nothing about the cluster, which must not rest because of it."""
    failure = host_failure(RAY, refused.reason, hint=refused.hint)
    passes = refused.category is Category.HOST_UNAVAILABLE
    return replace(failure, category=refused.category, retryable=passes)


class _Answers:
    """The answers of a bridge on one connection."""

    def __init__(self, stream: SocketStream) -> None:
        self.cut = False
        """The bridge ended, or closed the connection, and did not say that the actor is gone."""
        self._stream = stream
        self._lines = BufferedByteReceiveStream(stream)

    async def ask(self, request: Request) -> None:
        """Send what is asked for. Raises `SymphonyError`."""
        try:
            await self._stream.send(msgspec.json.encode(request) + b"\n")
        except anyio.BrokenResourceError as error:
            raise SymphonyError(_BRIDGE_ENDED) from error

    async def receive(self) -> Answer:
        """The next answer. Raises `SymphonyError` if there is none, or if it is a refusal."""
        try:
            line = await self._lines.receive_until(b"\n", _MAX_LINE_BYTES)
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError) as error:
            raise SymphonyError(_BRIDGE_ENDED) from error
        answer: Answer = msgspec.json.decode(line, type=Answer)
        if isinstance(answer, Refused):
            raise SymphonyError(_failure_of(answer))
        return answer

    async def end(self) -> None:
        """Give up what was asked for, and wait until that is done."""
        try:
            await self._stream.send_eof()
            while not isinstance(await self.receive(), Ended):
                pass
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, SymphonyError):
            self.cut = True


async def _wait_for_place(answers: _Answers, on_wait: Callable[[str], None]) -> Placed:
    deadline_s = anyio.current_time() + NODE_TIMEOUT_S
    while True:
        match await answers.receive():
            case Placed() as placed:
                return placed
            case Waiting() as waiting:
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
