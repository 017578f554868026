"""The Ray cluster of the tests is a real one, and its machines can fail as real ones do."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kit.ray_cluster import RayCluster

pytestmark = pytest.mark.slow

DRIVER = """
import json, sys, time, ray
address, *expected = sys.argv[1:]
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
while True:
    alive = {node["NodeName"]: node for node in ray.nodes() if node["Alive"]}
    if sorted(alive) == expected:
        break
    time.sleep(0.1)
print(json.dumps(alive))
"""


def alive(cluster: RayCluster, *expected: str, **environment: str) -> dict[str, dict[str, Any]]:
    """The nodes that a driver sees, once they are those. Its output begins with what Ray says."""
    told = cluster.run(cluster.python, "-c", DRIVER, cluster.address, *expected, environment=environment)
    nodes: dict[str, dict[str, Any]] = json.loads(told.splitlines()[-1])
    return nodes


def test_two_nodes_have_slots_and_a_token_is_asked_for(ray: RayCluster, tmp_path: Path) -> None:
    nodes = alive(ray, "daemon", "one", "two")
    slots = {name: node["Resources"].get("agent_slot") for name, node in nodes.items()}
    assert slots == {"daemon": None, "one": 2, "two": 2}
    assert nodes["two"]["Labels"]["machine"] == "two"
    (tmp_path / "wrong").write_text("f" * 64)
    for wrong in ({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "wrong")}, {"RAY_AUTH_MODE": "disabled"}):
        with pytest.raises(subprocess.CalledProcessError) as refused:
            alive(ray, "daemon", "one", "two", RAY_NUM_REDIS_GET_RETRIES="1", **wrong)
        assert "AuthenticationError" in refused.value.stderr


def test_nothing_of_it_listens_outside(ray: RayCluster) -> None:
    port = ":18EB "  # 6379
    assert port in ray.run("cat", "/proc/net/tcp", "/proc/net/tcp6"), "there it does"
    assert port not in Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()


def test_lost_nodes_are_seen_and_others_take_their_places(ray: RayCluster) -> None:
    one = ray.nodes["one"]
    assert len(one.processes()) > 1
    ray.kill("one")
    ray.freeze("two")
    assert not one.processes()
    alive(ray, "daemon")
    ray.start("one", "two")
    alive(ray, "daemon", "one", "two")
    ray.cut("two")
    alive(ray, "daemon", "one")
