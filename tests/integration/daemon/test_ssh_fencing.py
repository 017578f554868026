"""No two live agents of one issue: whatever dies or freezes between the daemon and its worker on a host."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from harness.hosts import HOST, STUBBORN, fenced_by, live_run, lose_its_worker, until_gone, worker_of
from harness.project import Project
from harness.serving import serving
from harness.ssh import SshServer, namespace, processes, ssh_server
from symphony.daemon.hosts.host_runs import HostRuns, own_identity
from symphony.scheduler import RunEnded, StartRun

pytestmark = pytest.mark.slow


def stubborn(project: Project, *servers: SshServer, lease_ms: int = 600_000) -> None:
    """An agent that ignores everything, in the middle of a long turn, on one of these servers."""
    worker: dict[str, Any] = {
        "ssh_hosts": [server.name for server in servers],
        "ssh": servers[0].section(sys.executable, lease_ms=lease_ms),
    }
    project.workflow(command=STUBBORN, worker=worker)
    project.issue("SYM-1", [{"sleep_ms": 600_000}])


@pytest.mark.asyncio
async def test_an_agent_is_gone_before_the_run_counts_as_ended_when_ssh_is_killed(
    project: Project, server: SshServer
) -> None:
    stubborn(project, server)

    def kill(_: str) -> None:
        for client in processes("ssh", str(server.port), "--stdio"):
            client.kill()

    await lose_its_worker(project, kill)


@pytest.mark.asyncio
async def test_an_agent_is_gone_before_the_run_counts_as_ended_when_its_worker_is_killed(
    project: Project, server: SshServer
) -> None:
    stubborn(project, server)
    await lose_its_worker(project, lambda run_id: worker_of(run_id).kill())


def test_the_next_daemon_ends_what_a_killed_one_left_on_a_host(project: Project, server: SshServer) -> None:
    """The worker is frozen, so that it cannot end its agent itself."""
    stubborn(project, server)
    with project.daemon() as daemon:
        first = daemon.wait_for("turn_started", issue_identifier="SYM-1")["run_id"]
        worker_of(first).suspend()
        daemon.signal(signal.SIGKILL)
        daemon.end()
    assert HOST.find_marked([first]), "the positive control: nothing ended the agent"
    with project.daemon() as daemon:
        second = fenced_by(daemon, first)
    until_gone(second)


@pytest.mark.asyncio
async def test_an_issue_waits_for_the_lease_when_the_link_is_cut(
    project: Project, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symphony.daemon.hosts.hosts.FENCE_EXTRA_MS", 12_000)
    name = f"sy{os.getpid()}"
    with (
        namespace(name) as address,
        ssh_server(tmp_path / "build-2", address, inside=("ip", "netns", "exec", name), like=server) as cut,
    ):
        stubborn(project, cut)
        project.workflow(
            command=STUBBORN,
            worker={
                "ssh_hosts": [cut.name, server.name],
                "ssh": server.section(sys.executable, lease_ms=6_000),
            },
        )
        set_link = partial(subprocess.run, check=True)
        async with serving(project) as served:
            first = (await live_run(served.watcher)).run_id
            await to_thread.run_sync(set_link, ["ip", "link", "set", name, "down"])
            await served.watcher.until_seen(RunEnded)
            assert not HOST.find_marked([first]), "before the scheduler knows that the run is over"
            await to_thread.run_sync(set_link, ["ip", "link", "set", name, "up"])
            await served.watcher.until_seen(StartRun, 2)
            await live_run(served.watcher)
            assert not HOST.find_marked([first]), "the link is healed, and nothing came back"
        assert [start.host for start in served.watcher.all(StartRun)] == [cut.name, server.name]


@pytest.mark.asyncio
async def test_a_run_that_was_given_up_does_not_begin_any_more(tmp_path: Path) -> None:
    """The program that ends a run may come before the worker of the run."""
    environment = {**os.environ, "SYMPHONY_STATE_DIR": str(tmp_path)}
    end = [sys.executable, "-m", "symphony", "worker", "--end", "r-1"]
    await to_thread.run_sync(partial(subprocess.run, end, env=environment, check=True))

    def begin() -> None:
        HostRuns(tmp_path).begin("r-1", own_identity(HOST))

    with pytest.raises(Exception, match="given up"):
        await to_thread.run_sync(begin)
