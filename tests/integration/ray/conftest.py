"""The real Ray cluster that these tests share."""

from collections.abc import Iterator

import pytest

from harness.real import require_ray
from kit.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="package")
def ray() -> Iterator[RayCluster]:
    """A real Ray cluster: the machine of the daemon, and the nodes `one` and `two` with two slots each.

    It starts within 20 s and is shared: a test that takes a node away starts another one of its name.
    """
    with ray_cluster(require_ray()) as cluster:
        yield cluster
