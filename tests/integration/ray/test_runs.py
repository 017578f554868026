"""Runs on the nodes of a real Ray cluster, which all tests share."""

import json
import os
import signal
import sys
from contextlib import suppress

import psutil
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.hosts import DONE, HOST, STUBBORN, fenced_by, host_unavailable, lose_its_worker
from harness.on_ray import actors, no_actor_is_left, on_ray, ray_python
from harness.project import Project, until
from harness.real import require_program, require_ray
from harness.serving import move, serving
from kit.ray_cluster import RayCluster, ray_cluster
from symphony.domain import Blame, Category, Failure
from symphony.scheduler import WAITING_FOR_SLOT, OutcomeKind, RunEnded

pytestmark = pytest.mark.slow


def bridge_of(daemon: int) -> psutil.Process:
    """The process of a daemon that speaks with Ray."""
    found = []
    for child in psutil.Process(daemon).children(recursive=True):
        with suppress(psutil.Error):  # it ended meanwhile
            if child.cmdline()[1:3] == ["-m", "symphony.daemon.hosts.ray_bridge"]:
                found.append(child)
    (bridge,) = found
    return bridge


@pytest.mark.asyncio
async def test_a_run_on_a_node_delivers_its_branch_here_and_sees_no_token(
    project: Project, ray: RayCluster
) -> None:
    hooks = {"before_run": "env > ../env; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' > ../cmdlines"}
    on_ray(project, ray, hooks=hooks, verify={"commands": [{"name": "tests", "run": "ls *.txt"}]})
    steps = [{"write": f"{n}.txt", "text": "a\n"} for n in range(3)]
    commits = [{"commit": f"{n}"} for n in range(3)]
    project.issue("SYM-1", [one for pair in zip(steps, commits, strict=True) for one in pair] + [DONE])
    with capture_logs() as logs:
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
            await to_thread.run_sync(no_actor_is_left, ray)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, "\n".join(map(str, [ended.outcome.failure, *logs]))
    assert ended.outcome.verification is not None
    assert ended.outcome.verification.passed
    assert ended.outcome.verification.checks[0].output_tail == "0.txt\n1.txt\n2.txt\n", "it ran on the node"
    assert project.branch_log("SYM-1") == ["2", "1", "0"]
    assert project.written_state("SYM-1") == "Done", "the tool ran in the daemon"
    (machine,) = {run.machine for state in served.watcher.states for run in state.running.values()} - {"ray"}
    assert machine in ray.nodes
    assert {log.get("host") for log in logs if log["event"] == "run_ended"} == {machine}
    (written,) = project.root.glob("nodes/*/workspaces/env")
    assert "SYMPHONY_RUN_ID=" in written.read_text(), "the positive control"
    assert "RAY_" not in written.read_text()
    token = (ray.folder / "token").read_text()
    assert "worker --stdio" in written.with_name("cmdlines").read_text(errors="replace"), "another one"
    assert token not in written.with_name("cmdlines").read_text(errors="replace")
    assert token not in str(logs)


@pytest.mark.asyncio
async def test_a_run_waits_for_a_slot_and_can_be_stopped_meanwhile(project: Project, ray: RayCluster) -> None:
    """Two slots carry the label, and a third run wants one."""
    on_ray(project, ray, ray={"labels": {"machine": "one"}})
    files = {f"SYM-{n}": project.issue(f"SYM-{n}", [{"sleep_ms": 600_000}]) for n in (1, 2, 3)}
    full = "no slot of Ray is free with the labels machine=one: 2 of 2 in use"
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(lambda: sum(run.report.pid is not None for run in watcher.running) == 2)
        await watcher.until(lambda: any(run.report.last_message == full for run in watcher.running))
        (run,) = [run for run in watcher.running if run.report.last_event == WAITING_FOR_SLOT]
        assert {each.machine for each in watcher.running if each is not run} == {"one"}
        await move(files[run.issue.identifier], "Backlog")
        ended = await watcher.until_seen(RunEnded)
        assert (ended.run_id, ended.outcome.kind) == (run.run_id, OutcomeKind.CANCELED)
    await to_thread.run_sync(no_actor_is_left, ray)


@pytest.mark.asyncio
async def test_a_killed_bridge_leaves_no_agent_and_no_actor(project: Project, ray: RayCluster) -> None:
    on_ray(project, ray, command=STUBBORN)
    project.issue("SYM-1", [{"sleep_ms": 600_000}])
    await lose_its_worker(project, lambda _: bridge_of(os.getpid()).kill())
    await to_thread.run_sync(no_actor_is_left, ray)


def test_the_next_daemon_takes_over_the_actor_that_a_killed_one_left(
    project: Project, ray: RayCluster
) -> None:
    on_ray(project, ray, command=STUBBORN, ray={"lease_ms": 600_000}, agent={"drain_timeout_ms": 100})
    project.issue("SYM-1", [{"sleep_ms": 600_000}])
    with project.daemon() as daemon:
        first = daemon.wait_for("turn_started", issue_identifier="SYM-1")["run_id"]
        left = actors(ray)
        daemon.signal(signal.SIGSTOP)
        bridge_of(daemon.process.pid).kill()  # it would end the actor
        daemon.signal(signal.SIGKILL)
        daemon.end()
    assert HOST.find_marked([first]), "the positive control: nothing ended the agent"
    assert len(left) == 1
    with project.daemon() as daemon:
        fenced_by(daemon, first)
        until(lambda: actors(ray) == left or None, lambda: f"{actors(ray)} in place of {left}")
        daemon.signal(signal.SIGTERM)
        daemon.end()
    no_actor_is_left(ray)


async def _refusal(project: Project) -> Failure:
    project.issue("SYM-1", [DONE])
    async with serving(project) as served:
        return host_unavailable((await served.watcher.until_seen(RunEnded)).outcome)


WRONG = {
    "wrong token": ({"RAY_AUTH_TOKEN": "f" * 64}, "refuses the token"),
    "no token": ({"RAY_AUTH_TOKEN_PATH": "/nonexistent"}, "no token"),
    "no authentication": ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE is disabled"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", WRONG)
async def test_a_cluster_that_cannot_be_used_is_one_line_with_a_hint(
    case: str, project: Project, ray: RayCluster
) -> None:
    environment, reason = WRONG[case]
    on_ray(project, ray)
    ray_python(ray, project.root, **environment)
    assert reason in (await _refusal(project)).message
    assert project.written_state("SYM-1") == "Todo", "nothing was begun"


@pytest.mark.asyncio
async def test_labels_that_no_node_has_are_told_at_once_and_the_cluster_does_not_rest(
    project: Project, ray: RayCluster
) -> None:
    on_ray(project, ray, ray={"labels": {"machine": "nowhere"}})
    project.issue("SYM-1", [DONE])
    async with serving(project) as served:
        failure = (await served.watcher.until_seen(RunEnded)).outcome.failure
        await served.watcher.until(lambda: not served.watcher.running)
        assert not served.watcher.states[-1].troubled_hosts
        assert WAITING_FOR_SLOT not in {
            run.report.last_event for state in served.watcher.states for run in state.running.values()
        }
    assert failure is not None
    assert (failure.category, failure.blame, failure.retryable) == (
        Category.INVALID_WORKFLOW_CONFIG,
        Blame.HOST,
        False,
    )
    assert "machine=nowhere" in failure.message
    assert "one has machine=one; two has machine=two" in (failure.hint or "")
    assert not await to_thread.run_sync(actors, ray)
    on_ray(project, ray, ray={"labels": {"machine": "nowhere"}, "autoscaler": True})
    project.issue("SYM-2", [DONE])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(lambda: any(run.report.last_event == WAITING_FOR_SLOT for run in watcher.running))
        told = [run.report.last_message for run in watcher.running]
    assert "no node of the Ray cluster offers agent_slot with the labels machine=nowhere" in told


@pytest.mark.asyncio
async def test_a_cluster_that_asks_for_no_token_is_refused(project: Project) -> None:
    require_program("ip", "Debian: iproute2")
    with ray_cluster(require_ray(), names=(), auth_mode="disabled") as cluster:
        on_ray(project, cluster)
        ray_python(cluster, project.root, RAY_AUTH_MODE="token")
        failure = await _refusal(project)
    assert "asks for no token" in failure.message
    assert "RAY_AUTH_MODE=token" in (failure.hint or "")


@pytest.mark.asyncio
async def test_without_ray_or_a_cluster_it_is_one_line_with_a_hint(project: Project, ray: RayCluster) -> None:
    on_ray(project, ray, ray={"python": sys.executable})
    failure = await _refusal(project)
    assert "No module named 'ray'" in failure.message
    assert "[ray]" in (failure.hint or "")
    on_ray(project, ray, ray={"address": "10.9.0.1:1"})
    failure = await _refusal(project)
    assert "nothing answers at 10.9.0.1:1" in failure.message


def test_hosts_and_doctor_tell_of_the_nodes(project: Project, ray: RayCluster) -> None:
    on_ray(project, ray)
    done = project.symphony("hosts", "check", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {host["name"]: host for host in json.loads(done.stdout)["hosts"]}
    assert {name: (host["ok"], host["slots"]) for name, host in found.items()} == {
        "ray": (True, 4),
        "one": (True, 2),
        "two": (True, 2),
    }
    assert found["one"]["labels"] == {"machine": "one"}
    assert project.symphony("hosts", "check", "nobody").returncode == 3
    checks = json.loads(project.symphony("doctor", "--json").stdout)["checks"]
    assert [check["status"] for check in checks if check["name"] == "hosts"] == ["ok", "ok", "ok"]
    no_actor_is_left(ray)
