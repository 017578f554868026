"""Whose skills a run is told of: those of the issue's own branch, or those of the base branch (`source`).

One place for the run and for the preview, so that both name the same files.
"""

from dataclasses import replace

import structlog

from symphony.domain.issue import Issue
from symphony.runtime.bound import Bound, skill_options
from symphony.runtime.catalog import RunCatalog, load_catalog, read_catalog
from symphony.skills import SkillOptions
from symphony.workspace.model import Workspace

__all__ = ["skills_foreseen", "skills_of_run"]

_log = structlog.get_logger(__name__)


async def skills_of_run(bound: Bound, workspace: Workspace) -> RunCatalog:
    """The catalog for a session in a workspace that is ready for it; what is wrong is logged.

    Where the base branch is to be the source and cannot be read, there is no catalog: the branch's own files
    are no replacement for it.
    """
    options = skill_options(bound.settings)
    if not options.enabled:
        return RunCatalog()
    if not _of_base(bound):
        commit = await bound.workspaces.head(workspace)
        return replace(await load_catalog(workspace.path, options), commit=commit)
    try:
        pinned = await bound.workspaces.pin(_paths(options))
    except Exception as error:  # noqa: BLE001 - skills are never worth a run
        _log.warning("skills_failed", reason=bound.redaction.text(str(error)) or type(error).__name__)
        return RunCatalog()
    return replace(await load_catalog(pinned.root, options), commit=pinned.commit)


async def skills_foreseen(bound: Bound, issue: Issue) -> tuple[RunCatalog, str | None]:
    """The catalog that a session would get now, and why skills are missing that it might get.

    Raises:
        SymphonyError: what would fail the attempt as well.
    """
    options = skill_options(bound.settings)
    if not options.enabled:
        return RunCatalog(), None
    async with bound.workspaces.foresee(issue.identifier, _paths(options), base=_of_base(bound)) as seen:
        if seen.tree is None:
            return RunCatalog(), seen.note
        tree = None if seen.exists else seen.tree
        return replace(await read_catalog(seen.path, options, tree=tree), commit=seen.commit), seen.note


def _of_base(bound: Bound) -> bool:
    return bound.settings.agent.skills.source == "base_branch"


def _paths(options: SkillOptions) -> tuple[str, ...]:
    return options.path, *options.extra_paths
