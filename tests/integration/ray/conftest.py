"""The real Ray cluster that these tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.on_ray import no_actor_is_left
from harness.project import Project
from harness.real import require_program, require_ray
from kit.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="package")
def started() -> Iterator[RayCluster]:
    """It starts within 20 s, and is shared."""
    require_program("ip", "Debian: iproute2")
    with ray_cluster(require_ray()) as cluster:
        yield cluster


@pytest.fixture
def ray(started: RayCluster) -> RayCluster:
    """A real Ray cluster: the machine of the daemon, and the nodes `one` and `two` with two slots each.

    What the test before took away is there again, and none of its actors is.
    """
    started.restore()
    no_actor_is_left(started)
    return started


@pytest.fixture
def project(reachable: Path) -> Project:
    """A repository with one commit, below a path that `worker.ray.remote_root` may be."""
    return Project(root=reachable).create()
