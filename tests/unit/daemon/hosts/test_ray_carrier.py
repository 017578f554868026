"""How the daemon starts its bridge to Ray and ends it; without Ray."""

import json
import os
import sys
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from harness.project import until
from harness.shell import word
from symphony import __version__
from symphony.config import RaySettings
from symphony.daemon.carriers import CarrierContext, PlaceRequest
from symphony.daemon.hosts.ray_carrier import RayCarrier
from symphony.domain import Category, SymphonyError
from symphony.processes.local import LocalHost

WANTED = PlaceRequest(issue_id="1", host="ray")


def settings(folder: Path, script: str) -> RaySettings:
    """The bridge is this shell script."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return RaySettings(address="127.0.0.1:1", python=str(python))


def carrier(made: RaySettings, state_dir: Path) -> AbstractAsyncContextManager[RayCarrier]:
    context = CarrierContext(
        local=LocalHost(),
        environment={"PATH": os.defpath},
        state_dir=state_dir,
        log=state_dir / "logs" / "ray.log",
    )
    return aclosing(RayCarrier(made, (), context))


async def place(cluster: RayCarrier) -> None:
    async with cluster.place(WANTED, lambda _: None):
        raise AssertionError("there is a place")


@pytest.mark.asyncio
async def test_a_bridge_that_cannot_connect_ends_with_the_run_that_waits_for_it(tmp_path: Path) -> None:
    pid, state_dir = tmp_path / "pid", tmp_path / "state" / "w"
    made = settings(tmp_path, f"echo $$ > {word(pid)}.new; mv {word(pid)}.new {word(pid)}; exec sleep 600")
    async with (
        carrier(made, state_dir) as cluster,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(place, cluster)
        await to_thread.run_sync(until, lambda: pid.exists() or None, lambda: "no bridge was started")
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert state_dir.stat().st_mode & 0o777 == 0o700


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo No module named ray >&2", "No module named ray"),
        ("""echo '{"message": "Refused", "reason": "no way"}'""", "no way"),
        ("""echo '{"message": "Ready", "symphony": "0.0.1", "ray": "2", "python": "3"}'""", "0.0.1"),
        ("echo nonsense", "no answer"),
    ],
)
async def test_what_is_no_bridge_is_a_host_that_is_not_available(
    script: str, reason: str, tmp_path: Path
) -> None:
    async with carrier(settings(tmp_path, script), tmp_path) as cluster:
        with pytest.raises(SymphonyError) as refused:
            await place(cluster)
    assert refused.value.failure.category is Category.HOST_UNAVAILABLE
    assert reason in refused.value.failure.message


BRIDGE = """
import json, os, signal, socket, sys, threading
release, log, fate = sys.argv[1:]
asked = json.loads(sys.stdin.readline())
server = socket.create_server(asked["socket"], family=socket.AF_UNIX)
print(json.dumps({"message": "Ready", "symphony": release, "ray": "2", "python": "3"}), flush=True)
threading.Thread(target=lambda: os._exit(len(sys.stdin.read())), daemon=True).start()
connections = []
while True:
    connections.append(server.accept()[0])
    line = connections[-1].makefile("rb").readline()
    with open(log, "ab") as file:
        file.write(line)
    answers, is_place = connections[-1].makefile("wb", 0), b'"PlaceActor"' in line
    if is_place:
        placed = {"message": "Placed", "place": "p", "node": str(os.getpid()), "node_id": "1", "python": "/p"}
        answer = {"message": "ActorWaiting", "reason": "full", "slots": 1} if fate == "killed" else placed
        answers.write(json.dumps(answer).encode() + b"\\n")
    if is_place and fate != "silent":
        connections[-1].recv(1)  # until the daemon gives it up
    if is_place and fate == "killed":  # the kernel closes its sockets, and then it is gone
        server.close()
        connections[-1].shutdown(socket.SHUT_RDWR)
        signal.pause()
    if fate != "silent":
        answers.write(b'{"message": "ActorEnded"}\\n')
        connections[-1].shutdown(socket.SHUT_RDWR)
"""
"""It serves one connection after the other, and the name of its node is its process id."""


def bridge(folder: Path, fate: str) -> RaySettings:
    """Settings with that bridge; its log has what it was asked for."""
    program = folder / "bridge.py"
    program.write_text(BRIDGE)
    script = f"exec {word(sys.executable)} {word(program)} {__version__} {word(folder / 'log')} {fate}"
    return settings(folder, script)


@pytest.mark.asyncio
async def test_a_bridge_that_does_not_say_that_it_ended_an_actor_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the cluster is stuck: it does so when it can, and a daemon that stops cannot wait."""
    monkeypatch.setattr("symphony.daemon.hosts.ray_carrier._RELEASE_S", 0.2)
    async with (
        carrier(bridge(tmp_path, "silent"), tmp_path) as cluster,
        cluster.place(WANTED, lambda _: None),
    ):
        pass
    (asked,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(asked)["message"] == "PlaceActor"


@pytest.mark.asyncio
async def test_a_killed_bridge_leaves_no_actor_that_waits_for_a_run_that_was_stopped(tmp_path: Path) -> None:
    waits = anyio.Event()
    async with carrier(bridge(tmp_path, "killed"), tmp_path) as cluster:

        async def wait_for_a_slot() -> None:
            async with cluster.place(WANTED, lambda _: waits.set()):
                raise AssertionError("there is a place")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_a_slot)
            await waits.wait()
            tasks.cancel_scope.cancel()
    asked = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [one["message"] for one in asked] == ["PlaceActor", "EndPlace"]
    assert asked[0]["name"] == asked[1]["name"]


@pytest.mark.asyncio
async def test_a_bridge_serves_one_run_after_the_other_and_ends_with_its_carrier(tmp_path: Path) -> None:
    async with carrier(bridge(tmp_path, "ends"), tmp_path) as cluster:
        async with cluster.place(WANTED, lambda _: None) as host:
            first = int(host.name)
        async with cluster.place(WANTED, lambda _: None) as host:
            assert int(host.name) == first
        os.kill(first, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
