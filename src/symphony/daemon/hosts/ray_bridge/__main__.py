"""`python -m symphony.daemon.hosts.ray_bridge`: the daemon's only process that talks to Ray.

Ray's threads, memory and output stay out of the daemon. The bridge reads a line with its settings, answers
`Ready` or `Refused`, and serves a socket until its stdin ends; `ray_messages` has the messages. It runs with
the Python of `worker.ray.python`.
"""

import asyncio
import os
import platform
import secrets
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, AuthenticationError, RayError

import symphony
from symphony.daemon.hosts.ray_actor import ActorFacts, RunActor
from symphony.daemon.hosts.ray_messages import (
    INSTALL_HINT,
    ActorEnded,
    ActorWaiting,
    Answer,
    BridgeSettings,
    EndPlace,
    ListNodes,
    Node,
    Nodes,
    PlaceActor,
    Placed,
    Ready,
    Refused,
    Request,
    RunCommand,
    Visit,
)
from symphony.daemon.hosts.ray_relay import CHUNK_BYTES, ERRORS, EXIT, FAILED, INPUT, OUTPUT, head
from symphony.domain import Category, one_line

_CONNECT_S: Final = 5.0
_PROBE_S: Final = 30.0
_FIRST_NEWS_S: Final = 2.0
_NEWS_S: Final = 5.0
_NAME_FREE_S: Final = 0.3
_TRIES: Final = 5
_LAST_ANSWERS_S: Final = 5.0
_MAX_REASON_CHARS: Final = 300
_NODES_TOLD: Final = 8
_NODE_LABEL: Final = "ray.io/node-id"
_LOGIN_HINT: Final = "give the daemon the token of the cluster in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
_UNKNOWN: Final = Refused(reason="Ray cannot connect to the cluster", hint="see logs/ray.log")
_LOST: Final = (ActorDiedError, ActorUnavailableError)


# --- connecting ------------------------------------------------------------------------------------------


def connect(settings: BridgeSettings) -> Refused | None:
    """Connect to the cluster, which must require a token; return why it cannot be used, or `None`."""
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token")
    if mode.lower() != "token":
        return Refused(
            reason=f"RAY_AUTH_MODE is {mode}", hint="unset it: clusters without tokens are not used"
        )
    host, _, port = settings.address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        return _refused(f"nothing answers at {settings.address}", error, hint="see `ray status` there")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # detects a wrong token sooner
    without_token = _check_health(settings.address)
    refused = _join(settings)
    wants_token = _is_refused(without_token)
    if refused is None and wants_token is None:
        return Refused(
            reason=f"no answer at {settings.address} within {_PROBE_S:g} s", hint="see `ray status`"
        )
    if refused is None and not wants_token:
        hint = "start each node with RAY_AUTH_MODE=token and the token: everybody could run programs on it"
        return Refused(reason="the cluster asks for no token", hint=hint)
    if refused is _UNKNOWN and wants_token:
        return Refused(reason="the cluster refuses the token", hint=_LOGIN_HINT)
    return refused


def _join(settings: BridgeSettings) -> Refused | None:
    try:
        ray.init(
            address=settings.address,
            namespace=settings.namespace,
            log_to_driver=False,
            configure_logging=False,
            logging_level="ERROR",
        )
    except AuthenticationError:
        return Refused(reason="there is no token", hint=_LOGIN_HINT)
    except ConnectionError:  # for a wrong token too
        return _UNKNOWN
    except (OSError, RayError, RuntimeError, ValueError, AssertionError, SystemExit) as error:
        if "ersion mismatch" in str(error):
            hint = "install the cluster's versions of Ray and Python, and name them in worker.ray.python"
            return _refused("its versions differ", error, hint=hint)
        hint = f"a node has to run here: `ray start --address={settings.address} --num-cpus=0`"
        return _refused("this machine cannot join the cluster", error, hint=hint)
    return None


def _check_health(address: str) -> "subprocess.Popen[str]":
    """Ask for the health of the cluster without a token."""
    return subprocess.Popen(
        [sys.executable, Path(sysconfig.get_path("scripts"), "ray"), "health-check", "--address", address],
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _is_refused(without_token: "subprocess.Popen[str]") -> bool | None:
    """Whether the cluster requires a token; `None` if it did not answer in time."""
    with without_token:
        try:
            text, _ = without_token.communicate(timeout=_PROBE_S)
        except subprocess.TimeoutExpired:
            without_token.kill()
            return None
    return without_token.returncode != 0 and "AuthToken" in text


def _refused(reason: str, error: object, *, hint: str | None = None) -> Refused:
    return Refused(reason=f"{reason}: {one_line(str(error), _MAX_REASON_CHARS)}", hint=hint)


# --- the cluster -----------------------------------------------------------------------------------------


def list_nodes(slots_resource: str) -> tuple[Node, ...]:
    """All nodes by name, which is unique among those that are alive; blocking."""
    rows: list[Mapping[str, Any]] = ray.nodes()
    alive = [row["NodeName"] for row in rows if row["Alive"]]

    def name_of(row: Mapping[str, Any]) -> str:
        name = str(row["NodeName"])
        return f"{name}-{row['NodeID'][:8]}" if alive.count(name) > 1 else name

    return tuple(
        Node(
            name=name_of(row),
            node_id=row["NodeID"],
            address=row["NodeManagerAddress"],
            alive=row["Alive"],
            slots=int(row.get("Resources", {}).get(slots_resource, 0)),
            labels={key: value for key, value in row.get("Labels", {}).items() if key != _NODE_LABEL},
        )
        for row in sorted(rows, key=name_of)
    )


def may_have(node: Node, labels: Mapping[str, str]) -> bool:
    """Whether a node may have an actor with this selector. A value with an operator of Ray is not judged."""
    plain = {key: value for key, value in labels.items() if value[:1] != "!" and "(" not in value}
    return node.alive and node.slots > 0 and plain.items() <= node.labels.items()


def without_labels(nodes: tuple[Node, ...], labels: Mapping[str, str]) -> Refused | None:
    """Why no node with slots may have an actor; `None` if one may, or if there is no node at all."""
    offering = [node for node in nodes if node.alive and node.slots]
    if not offering or any(may_have(node, labels) for node in offering):
        return None
    told = [f"{node.name} has {_shown(node.labels) or 'none'}" for node in offering[:_NODES_TOLD]]
    more = f"; and {len(offering) - _NODES_TOLD} more" if len(offering) > _NODES_TOLD else ""
    return Refused(
        category=Category.INVALID_WORKFLOW_CONFIG,
        reason=f"no node has the labels {_shown(labels)} of worker.ray.labels and ray_labels",
        hint=f"{'; '.join(told)}{more}; where an autoscaler starts nodes, set worker.ray.autoscaler",
    )


class NodeActor(RunActor):
    """An actor that reports its node."""

    def node_id(self) -> str:
        """As in `ray.nodes()`."""
        return str(ray.get_runtime_context().get_node_id())


class Bridge:
    """Serves the daemon in one event loop."""

    def __init__(self, settings: BridgeSettings) -> None:
        self._settings = settings
        self._actor_class: Any = ray.remote(NodeActor)
        self._actors: dict[str, tuple[Any, Placed]] = {}
        environment = msgspec.json.encode(settings.runtime_env).decode()
        # An actor of another maker is not taken over.
        self._made_by = f"{symphony.__version__} {settings.slots_resource} {environment}"
        self._open: set[asyncio.Task[Any]] = set()
        # One thread: an actor is made before it is ended, even if no request waits for it any more.
        self._making = ThreadPoolExecutor(max_workers=1)

    async def serve(self, ended: asyncio.Event, on_ready: Callable[[], None]) -> None:
        """Answer until the daemon has ended."""
        server = await asyncio.start_unix_server(self._answer, self._settings.socket, limit=CHUNK_BYTES)
        on_ready()
        pinging = asyncio.create_task(self._ping())
        await ended.wait()
        pinging.cancel()
        server.close()
        if self._open:
            await asyncio.wait(self._open, timeout=_LAST_ANSWERS_S)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._settings.silence_ms / 4_000)
            for actor, _ in self._actors.values():
                with suppress(RayError):  # it has ended, and its run will know
                    actor.ping.remote()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this function is one
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        try:
            match msgspec.json.decode(await reader.readline(), type=Request):
                case ListNodes():
                    await self._nodes(writer)
                case RunCommand() as asked:
                    await self._run(asked, reader, writer)
                case EndPlace() as asked:
                    await self._kill(f"{self._settings.prefix}-{asked.name}")
                    await _send(writer, ActorEnded())
                case PlaceActor() as asked:
                    await self._place(asked, reader, writer)
                case Visit() as asked:
                    await self._visit(asked, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the daemon withdrew its request
        except (RayError, OSError, RuntimeError, ValueError) as error:
            with suppress(ConnectionError):
                await _send(writer, _refused("the cluster does not answer", error))
        finally:
            writer.close()

    # --- nodes -------------------------------------------------------------------------------------------

    async def _nodes(self, writer: asyncio.StreamWriter) -> None:
        nodes = await self._list_nodes()
        free = await asyncio.to_thread(ray.available_resources)
        slots = int(free.get(self._settings.slots_resource, 0))
        release = f"Ray {ray.__version__}, Python {platform.python_version()}"
        await _send(writer, Nodes(release=release, nodes=nodes, free_slots=slots))

    async def _list_nodes(self) -> tuple[Node, ...]:
        return await asyncio.to_thread(list_nodes, self._settings.slots_resource)

    # --- actors ------------------------------------------------------------------------------------------

    async def _place(
        self, asked: PlaceActor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nodes = await self._list_nodes()
        refused = None if asked.autoscaler else without_labels(nodes, asked.labels)
        if refused is not None:
            await _send(writer, refused)
            return
        wanted = [{"label_selector": dict(asked.labels)}]
        last = next((node for node in nodes if node.alive and node.name == asked.node), None)
        if last is not None and may_have(last, asked.labels):
            wanted.insert(0, {"label_selector": {**asked.labels, _NODE_LABEL: last.node_id}})
        options = {
            "lifetime": "detached",
            "resources": {self._settings.slots_resource: 1},
            **wanted[0],
            **({"fallback_strategy": wanted[1:]} if wanted[1:] else {}),
        }
        await self._hold(f"{self._settings.prefix}-{asked.name}", options, asked.labels, reader, writer)

    async def _visit(self, asked: Visit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node = next((one for one in await self._list_nodes() if one.alive and one.name == asked.node), None)
        if node is None:
            await _send(writer, Refused(reason=f"the cluster has no node {asked.node}"))
            return
        options = {"label_selector": {_NODE_LABEL: node.node_id}}
        name = f"{self._settings.prefix}-visit-{secrets.token_hex(8)}"
        await self._hold(name, options, {}, reader, writer)

    async def _hold(
        self,
        name: str,
        options: Mapping[str, Any],
        labels: Mapping[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Hold an actor until the connection ends."""
        making = asyncio.create_task(self._make(name, options))
        closed = asyncio.create_task(reader.read())
        try:
            wait_s = _FIRST_NEWS_S
            while not making.done() and not closed.done():
                await asyncio.wait({making, closed}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if not making.done() and not closed.done():
                    await _send(writer, await self._waiting(labels))
                wait_s = _NEWS_S
            if making.done():
                await _send(writer, making.result())
                await closed
        finally:
            making.cancel()
            closed.cancel()
            self._actors.pop(name, None)
            await asyncio.shield(self._kill(name))
            with suppress(ConnectionError):
                await _send(writer, ActorEnded())

    async def _make(self, name: str, options: Mapping[str, Any]) -> Placed | Refused:
        """An actor with this name, once there is a slot; an actor of an earlier bridge is taken over."""
        made = self._actor_class.options(
            name=name,
            namespace=self._settings.namespace,
            get_if_exists=True,
            max_restarts=0,
            num_cpus=0,
            **({"runtime_env": dict(self._settings.runtime_env)} if self._settings.runtime_env else {}),
            **options,
        )
        make = partial(made.remote, self._made_by, self._settings.silence_ms / 1_000)
        refused = Refused(reason="the actor of the run cannot be made")
        for _ in range(_TRIES):
            try:
                actor = await asyncio.get_running_loop().run_in_executor(self._making, make)
                facts: ActorFacts | None = await actor.begin.remote(self._made_by)
            except (RayError, OSError, ValueError) as error:
                hint = INSTALL_HINT if "No module named" in str(error) else None
                refused = _refused("the actor of the run cannot be made", _reason(error), hint=hint)
                if hint or not isinstance(error, _LOST):
                    return refused
                # Otherwise it may be an ending actor with this name.
            else:
                if facts is not None:
                    return await self._placed(name, actor, facts, await actor.node_id.remote())
                await self._kill(name)
            await asyncio.sleep(_NAME_FREE_S)
        return refused

    async def _placed(self, name: str, actor: Any, facts: ActorFacts, node_id: str) -> Placed | Refused:
        node = next((one for one in await self._list_nodes() if one.node_id == node_id), None)
        if node is None:  # the actor reports its node
            return Refused(reason="an actor is on no node that the cluster lists")
        if facts.auth_mode.lower() != "token":
            hint = "start it with RAY_AUTH_MODE=token and the token of the cluster"
            return Refused(reason=f"the node {node.name} asks for no token", hint=hint)
        placed = Placed(place=name, node=node.name, node_id=node_id, python=facts.python)
        self._actors[name] = actor, placed
        return placed

    async def _kill(self, name: str) -> None:
        def kill() -> None:
            with suppress(ValueError, RayError):  # there is none
                ray.kill(ray.get_actor(name, namespace=self._settings.namespace), no_restart=True)

        await asyncio.get_running_loop().run_in_executor(self._making, kill)

    async def _waiting(self, labels: Mapping[str, str]) -> ActorWaiting:
        resource = self._settings.slots_resource
        fitting = {node.node_id: node.slots for node in await self._list_nodes() if may_have(node, labels)}
        slots, which = sum(fitting.values()), f" with the labels {_shown(labels)}" if labels else ""
        if not slots:
            return ActorWaiting(reason=f"no node of the Ray cluster offers {resource}{which}", slots=0)
        free = int((await asyncio.to_thread(ray.available_resources)).get(resource, 0))
        own = sum(placed.node_id in fitting for _, placed in self._actors.values())
        if free and own < slots:
            return ActorWaiting(reason="Ray starts the actor of the run", slots=slots)
        return ActorWaiting(reason=f"no slot of Ray is free{which}: {slots} of {slots} in use", slots=slots)

    # --- commands ----------------------------------------------------------------------------------------

    async def _run(
        self, asked: RunCommand, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        actor, _ = self._actors.get(asked.place, (None, None))
        key = secrets.token_hex(8)
        if actor is None:
            await _send_end(writer, "its actor has ended")
            return
        tasks: set[asyncio.Task[None]] = set()
        try:
            await actor.start.remote(key, asked.command)
            feeding = asyncio.create_task(self._feed(actor, key, reader))
            draining = asyncio.create_task(self._drain(actor, key, writer))
            tasks = {feeding, draining}
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except (RayError, RuntimeError) as error:
            await _send_end(writer, _reason(error))
        finally:
            for task in tasks:
                task.cancel()
            actor.end.remote(key)

    @staticmethod
    async def _feed(actor: Any, key: str, reader: asyncio.StreamReader) -> None:
        """Forward input from the relay; return when the relay is gone."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                prefix = await reader.readexactly(5)
                data = await reader.readexactly(int.from_bytes(prefix[1:], "big"))
                if prefix[:1] == INPUT:
                    await actor.write.remote(key, data)

    @staticmethod
    async def _drain(actor: Any, key: str, writer: asyncio.StreamWriter) -> None:
        """Forward the output of the command, and its exit code."""
        code: int | None = None
        while code is None:
            stdout, stderr, code = await actor.read.remote(key)
            for kind, data in ((OUTPUT, stdout), (ERRORS, stderr)):
                if data:
                    writer.write(head(kind, len(data)) + data)
            await writer.drain()
        writer.write(_piece(EXIT, str(code)))
        await writer.drain()


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(msgspec.json.encode(answer) + b"\n")
    await writer.drain()


async def _send_end(writer: asyncio.StreamWriter, reason: str) -> None:
    writer.write(_piece(ERRORS, f"{reason}\n") + _piece(EXIT, str(FAILED)))
    await writer.drain()


def _piece(kind: bytes, text: str) -> bytes:
    data = text.encode()
    return head(kind, len(data)) + data


def _reason(error: Exception) -> str:
    """Ray's message on one line; the last line of a traceback is the most informative."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return one_line(lines[-1] if lines and "Traceback" in str(error) else " ".join(lines), _MAX_REASON_CHARS)


def _shown(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


# --- the process -----------------------------------------------------------------------------------------


async def _serve(settings: BridgeSettings, output: BinaryIO) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), partial(_on_stdin, ended))
    ready = Ready(symphony=symphony.__version__, ray=ray.__version__, python=platform.python_version())
    await Bridge(settings).serve(ended, partial(_say, output, ready))


def _on_stdin(ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), CHUNK_BYTES):
        ended.set()


def _say(output: BinaryIO, answer: Ready | Refused) -> None:
    output.write(msgspec.json.encode(answer) + b"\n")
    output.flush()


def main() -> None:
    """Serve one daemon."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=BridgeSettings)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what Ray prints
    if refused := connect(settings):
        _say(output, refused)
        return
    asyncio.run(_serve(settings, output))
    ray.shutdown()


if __name__ == "__main__":
    main()
