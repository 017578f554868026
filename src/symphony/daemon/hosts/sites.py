"""The settings of a worker in another process: those with the mark `ForWorkers`, and no credential."""

from collections.abc import Mapping

import msgspec

from symphony.config import AGENT_SECTIONS, Workflow
from symphony.daemon.frames import Site
from symphony.daemon.hosts.places import HostPlace
from symphony.workspaces import split_login


def site_of(workflow: Workflow, *, lease_ms: int, workspace: Mapping[str, str | None] | None = None) -> Site:
    """The parts of a workflow that a worker needs, without those of one run.

    `workspace` has further settings of the section, which replace those of the file.
    """
    settings = workflow.settings
    front = settings.for_workers()
    passed = {*settings.hooks.env, *settings.worker.env} - workflow.secret_names
    if passed:
        front["hooks"] = {**front.get("hooks", {}), "env": sorted(passed)}
    if settings.workspace.repo:
        front["workspace"]["repo"] = split_login(settings.workspace.repo)[0]
    front["workspace"] |= workspace or {}
    for name, agent in workflow.agents.items():
        if agent.kind not in AGENT_SECTIONS:  # its section is not part of `Settings`
            own = agent.settings.model_dump(mode="json", exclude_unset=True)
            if name == agent.kind:
                front[name] = own
            else:
                front["agents"][name] = {"kind": agent.kind, **own}
    front["tracker"] = {**front.get("tracker", {}), "kind": "memory"}
    text = b"---\n" + msgspec.json.encode(front) + b"\n---\n" + workflow.template.source.encode()
    return Site(workflow=str(workflow.path), text=text, lease_ms=lease_ms)


def site_at(workflow: Workflow, place: HostPlace, *, lease_ms: int, base_branch: str | None = None) -> Site:
    """The settings of a worker on a host: as `site_of`, with the paths of the host."""
    workspace: dict[str, str | None] = {"root": f"{place.root}/workspaces", "push": "never"}
    if workflow.settings.workspace.repo is not None:
        workspace |= {"repo": place.repository, "base_branch": base_branch}
    return site_of(workflow, lease_ms=lease_ms, workspace=workspace)
