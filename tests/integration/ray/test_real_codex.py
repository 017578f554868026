"""A real Codex on a node of a real Ray cluster. Its model is served on the machine of the head."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.on_ray import on_ray
from harness.project import Project
from harness.real import require_codex
from harness.serving import serving
from kit.codex_home import codex_home
from kit.ray_cluster import RayCluster
from symphony.scheduler import OutcomeKind, RunEnded

pytestmark = pytest.mark.real_codex

SERVE = """
import sys
from kit import model_server as models
last = (models.tool("board_move", {"state": "Done"}), models.say("Committed and moved."))
edit = models.edit_and_commit("hello.txt", "hello from codex\\n", "Say hello", last=last)
with models.ModelServer({"work": edit}, address=sys.argv[1]) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def model(ray: RayCluster) -> Iterator[str]:
    """The address of a model server that the nodes reach."""
    command = [*ray.inside, sys.executable, "-c", SERVE, ray.address.partition(":")[0]]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()


@pytest.mark.asyncio
async def test_a_real_codex_does_the_whole_job_on_a_node(
    project: Project, ray: RayCluster, model: str
) -> None:
    on_ray(
        project,
        ray,
        command=f"{shlex.quote(str(require_codex()))} app-server",
        codex={"read_timeout_ms": 30_000},
        worker={"env": ["CODEX_HOME", "LOCAL_KEY"]},
    )
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    with codex_home(model) as home:
        project.environment.update(home.env)
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
    assert {run.machine for state in served.watcher.states for run in state.running.values()} & set(ray.nodes)
    assert project.branch_log("SYM-1") == ["Say hello"]
    assert project.git("show", "symphony/SYM-1:hello.txt") == "hello from codex"
    assert project.written_state("SYM-1") == "Done", "the tool ran in the daemon"
