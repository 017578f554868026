"""Whose skills a run is told of: those of the issue's own branch, or those of the base branch (`source`).

One place for the run and for the preview, so that both name the same files.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from symphony.agents.base import OwnSkillRoots
from symphony.daemon.bound import Bound
from symphony.daemon.catalog import RunCatalog, Scanned, load_catalog, read_catalog
from symphony.daemon.session_tools import missing_tools, session_options
from symphony.domain.issue import Issue
from symphony.skills import SkillOptions
from symphony.workspaces.forecast import Foresight
from symphony.workspaces.model import Workspace

__all__ = ["skills_foreseen", "skills_of_run"]

_log = structlog.get_logger(__name__)


async def skills_of_run(bound: Bound, workspace: Workspace, agent: str) -> RunCatalog:
    """The catalog for a session of an agent in a workspace that is ready for it; what is wrong is logged.

    Where the base branch is to be the source and cannot be read, there is no catalog: the branch's own files
    are no replacement for it.
    """
    options = session_options(bound, agent)
    if not options.enabled:
        return RunCatalog()
    for name, reason in missing_tools(bound, agent).items():
        _log.warning("skill_tool_left_out", tool=name, reason=reason)
    scanned = _scanned(bound, workspace.path, agent)
    if not _of_base(bound):
        head = partial(bound.workspaces.head, workspace)
        return await load_catalog(workspace.path, options, scanned=scanned, head=head)
    try:
        pinned = await bound.workspaces.pin(_paths(options))
    except Exception as error:  # noqa: BLE001 - skills are never worth a run
        _log.warning("skills_failed", reason=bound.redaction.text(str(error)) or type(error).__name__)
        return RunCatalog()
    return replace(await load_catalog(pinned.root, options, scanned=scanned), commit=pinned.commit)


async def skills_foreseen(bound: Bound, issue: Issue, agent: str) -> tuple[RunCatalog, str | None]:
    """The catalog that a session would get now, and why skills are missing that it might get.

    Raises:
        SymphonyError: what would fail the attempt as well.
    """
    options = session_options(bound, agent)
    if not options.enabled:
        return RunCatalog(), None
    async with _foreseen(bound, issue, options, agent) as (seen, workspace):
        if seen.tree is None:
            return RunCatalog(), seen.note
        tree = None if seen.exists else seen.tree
        scanned = None if workspace is None else _scanned(bound, workspace, agent)
        catalog = await read_catalog(seen.path, options, tree=tree, scanned=scanned)
        return replace(catalog, commit=seen.commit), seen.note


@asynccontextmanager
async def _foreseen(
    bound: Bound, issue: Issue, options: SkillOptions, agent: str
) -> AsyncIterator[tuple[Foresight, Path | None]]:
    """The skills that a run would load, and where what it would have in its workspace can be seen."""
    foresee, paths = bound.workspaces.foresee, _paths(options)
    both = (*paths, *_own_roots(bound, agent).workspace)
    if not _of_base(bound):
        async with foresee(issue.identifier, both) as seen:
            yield seen, seen.tree
        return
    async with (
        foresee(issue.identifier, paths, base=True) as seen,
        foresee(issue.identifier, both) as workspace,
    ):
        yield seen, workspace.tree


def _of_base(bound: Bound) -> bool:
    return bound.settings.agent.skills.source == "base_branch"


def _own_roots(bound: Bound, agent: str) -> OwnSkillRoots:
    """Where the agent finds skills by itself, as far as `native` makes that our concern."""
    left_alone = bound.settings.agent.skills.native == "always"
    return OwnSkillRoots() if left_alone else bound.agent(agent).own_skill_roots


def _scanned(bound: Bound, workspace: Path, agent: str) -> Scanned:
    roots = _own_roots(bound, agent)
    below = tuple(workspace / one for one in roots.workspace)
    return Scanned(workspace=workspace, roots=(*below, *roots.host), copies=_of_base(bound))


def _paths(options: SkillOptions) -> tuple[str, ...]:
    return options.path, *options.extra_paths
