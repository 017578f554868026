"""How the daemon starts its bridge to Ray and ends it; without Ray."""

import os
import sys
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from harness.project import until
from symphony import __version__
from symphony.config import RaySettings, WorkerSettings
from symphony.daemon.hosts.ray_hosts import RayHosts
from symphony.daemon.hosts.remote_host import Wanted
from symphony.domain import Category, SymphonyError
from symphony.processes.local import LocalHost

WANTED = Wanted(issue_id="1", host="ray")


def settings(folder: Path, script: str) -> WorkerSettings:
    """The bridge is this shell script."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return WorkerSettings(ray=RaySettings(address="127.0.0.1:1", python=str(python)))


async def place(hosts: RayHosts, worker: WorkerSettings) -> None:
    async with hosts.place(worker, WANTED, lambda _: None):
        raise AssertionError("there is a place")


@pytest.mark.asyncio
async def test_a_bridge_that_cannot_connect_ends_with_the_run_that_waits_for_it(tmp_path: Path) -> None:
    pid, state_dir = tmp_path / "pid", tmp_path / "state" / "w"
    worker = settings(tmp_path, f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600")
    async with (
        aclosing(RayHosts(LocalHost(), {"PATH": os.defpath}, state_dir)) as hosts,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(place, hosts, worker)
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
    async with aclosing(RayHosts(LocalHost(), {"PATH": os.defpath}, tmp_path)) as hosts:
        with pytest.raises(SymphonyError) as refused:
            await place(hosts, settings(tmp_path, script))
    assert refused.value.failure.category is Category.HOST_UNAVAILABLE
    assert reason in refused.value.failure.message


SILENT_BRIDGE = """
import json, os, socket, sys, threading
asked = json.loads(sys.stdin.readline())
server = socket.create_server(asked["socket"], family=socket.AF_UNIX)
ready = {"message": "Ready", "symphony": sys.argv[1], "ray": "2", "python": "3"}
print(json.dumps(ready), flush=True)
threading.Thread(target=lambda: os._exit(len(sys.stdin.read())), daemon=True).start()
placed = {"message": "Placed", "place": "p", "node": "n", "node_id": "1", "python": "/p"}
connections = []
while True:
    connections.append(server.accept()[0])
    with open(sys.argv[2], "ab") as log:
        log.write(connections[-1].recv(100_000))
    connections[-1].sendall(json.dumps(placed).encode() + b"\\n")
"""


@pytest.mark.asyncio
async def test_a_bridge_that_does_not_say_that_it_ended_an_actor_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the cluster is stuck: it does so when it can, and a daemon that stops cannot wait."""
    monkeypatch.setattr("symphony.daemon.hosts.ray_hosts._RELEASE_S", 0.2)
    log, program = tmp_path / "log", tmp_path / "bridge.py"
    program.write_text(SILENT_BRIDGE)
    worker = settings(tmp_path, f"exec {sys.executable} {program} {__version__} {log}")
    async with aclosing(RayHosts(LocalHost(), {"PATH": os.defpath}, tmp_path)) as hosts:
        async with hosts.place(worker, WANTED, lambda _: None) as host:
            assert host.name == "n"
        assert log.read_bytes().count(b"\n") == 1
    assert b'"Place"' in log.read_bytes()
