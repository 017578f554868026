"""A real Ray cluster whose nodes fail, are cut off or frozen, one that vanishes, one of another version."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from anyio import to_thread

from harness.hosts import DONE, HOST, STUBBORN, host_unavailable, live_run, until_gone
from harness.on_ray import on_ray, ray_python
from harness.project import Project
from harness.serving import serving
from kit.ray_cluster import RayCluster
from symphony.domain import Category
from symphony.scheduler import OutcomeKind, RunEnded, StartRun

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@pytest.mark.parametrize("fate", [RayCluster.kill, RayCluster.cut, RayCluster.freeze])
async def test_a_lost_node_costs_one_attempt_and_never_has_a_second_agent_beside_it(
    fate: Callable[[RayCluster, str], None],
    project: Project,
    ray: RayCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that is cut off ends its agent itself; a frozen one does as soon as it goes on."""
    monkeypatch.setattr("symphony.daemon.hosts.hosts.FENCE_EXTRA_MS", 8_000)
    on_ray(project, ray, command=STUBBORN, ray={"lease_ms": 5_000})
    project.issue("SYM-1", [{"sleep_ms": 600_000}])
    async with serving(project) as served:
        watcher = served.watcher
        run = await live_run(watcher)
        assert run.machine is not None
        await to_thread.run_sync(fate, ray, run.machine)
        if fate is not RayCluster.kill:
            assert HOST.find_marked([run.run_id]), "nothing there knows yet"
        ended = await watcher.until_seen(RunEnded)
        if fate is not RayCluster.freeze:
            assert not HOST.find_marked([run.run_id]), "it ended before another one may begin"
        second = await live_run(watcher)
        await to_thread.run_sync(ray.nodes[run.machine].thaw)
        await to_thread.run_sync(until_gone, run.run_id)
        assert HOST.find_marked([second.run_id])
    assert ended.outcome.failure is not None
    assert ended.outcome.failure.category is Category.WORKER_LOST
    assert {run.machine, second.machine} == set(ray.nodes)
    assert watcher.all(StartRun)[-1].last_host == run.machine


async def test_a_cluster_that_vanishes_leaves_no_agent_and_another_one_goes_on(
    project: Project, ray: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symphony.daemon.hosts.hosts.FENCE_EXTRA_MS", 8_000)
    slow = {"max_retry_backoff_ms": 15_000}  # not so many tries that the cluster rests as a host for long
    on_ray(project, ray, command=STUBBORN, ray={"lease_ms": 5_000}, agent=slow)
    flag = project.root / "flag"
    project.issue(
        "SYM-1", [{"wait_for": str(flag)}, {"write": "a.txt", "text": "a\n"}, {"commit": "One"}, DONE]
    )
    async with serving(project) as served:
        watcher = served.watcher
        run = await live_run(watcher)
        await to_thread.run_sync(ray.vanish)
        lost = await watcher.until_seen(RunEnded)
        assert not HOST.find_marked([run.run_id])
        flag.touch()
        await to_thread.run_sync(ray.appear)
        for _ in range(3):
            with suppress(TimeoutError):
                await watcher.until(lambda: watcher.all(RunEnded)[-1].outcome.kind is OutcomeKind.SUCCEEDED)
    assert lost.outcome.failure is not None
    assert lost.outcome.failure.category in {Category.WORKER_LOST, Category.HOST_UNAVAILABLE}
    assert project.branch_log("SYM-1") == ["One"]


async def test_another_version_of_ray_is_refused_with_a_hint(
    project: Project, ray: RayCluster, tmp_path: Path
) -> None:
    """The real Ray, which takes itself for another one when it compares."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("import ray\nray.__version__ = '2.99.0'\n")
    on_ray(project, ray)
    ray_python(ray, project.root, PYTHONPATH=f"{tmp_path / 'other'}:{ray.environment['PYTHONPATH']}")
    project.issue("SYM-1", [DONE])
    async with serving(project) as served:
        ended = await served.watcher.until_seen(RunEnded)
    assert "versions differ" in host_unavailable(ended.outcome).message
