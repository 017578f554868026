"""Workflows whose runs go to the Ray cluster of the tests."""

import shlex
from pathlib import Path
from typing import Any

import psutil

from harness.project import Project, scripted, until
from kit.ray_cluster import RayCluster

__all__ = ["actors", "no_actor_is_left", "on_ray", "ray_python"]


def ray_python(cluster: RayCluster, folder: Path, **environment: str) -> Path:
    """`worker.ray.python`: starts the Python that has Ray on the machine of the head, with the token."""
    variables = {**cluster.environment, **environment}
    del variables["HOME"]
    path = folder / "python"
    words = [*cluster.inside, "env", *(f"{name}={value}" for name, value in variables.items())]
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*words, str(cluster.python)])} "$@"\n')
    path.chmod(0o755)
    return path


def on_ray(
    project: Project, cluster: RayCluster, *, ray: dict[str, Any] | None = None, **changes: Any
) -> None:
    """A workflow whose runs go to the cluster; the nodes share one `remote_root`, which is `nodes`."""
    settings = {
        "address": cluster.address,
        "python": str(ray_python(cluster, project.root)),
        "remote_root": str(project.root / "nodes"),
        **(ray or {}),
    }
    worker = {"ray": settings, **changes.pop("worker", {})}
    project.workflow(command=changes.pop("command", scripted()), worker=worker, **changes)


def actors(cluster: RayCluster) -> list[int]:
    """The processes of our actors on all nodes."""
    found = []
    for pid in [pid for node in cluster.nodes.values() for pid in node.processes()]:
        try:
            if "NodeActor" in " ".join(psutil.Process(pid).cmdline()):
                found.append(pid)
        except psutil.Error:
            continue
    return found


def no_actor_is_left(cluster: RayCluster) -> None:
    """Wait until there are none; blocking."""
    until(lambda: None if actors(cluster) else True, lambda: "an actor outlives its run")
