"""How a person looks at delivered work: the same commands in the API and on the terminal."""

import shlex

from symphony.config.settings import WorkspaceSettings
from symphony.workspaces.delivery import whereabouts

__all__ = ["ways_to_look"]


def ways_to_look(
    identifier: str, branch: str, workspace: WorkspaceSettings | None, *, pushed: bool
) -> tuple[str, ...]:
    """Commands, the simplest first: ours, and git's own, or the one that brings the branch into a clone.

    `workspace` is where workspaces come from, `None` where that is not known. `pushed` says whether `origin`
    has the branch.
    """
    ours = f"symphony diff {shlex.quote(identifier)}"
    where = None if workspace is None else whereabouts(workspace, branch, pushed=pushed)
    if workspace is None or where is None:
        return (ours,)
    base = workspace.base_branch or "HEAD"
    return (ours, where.fetch or f"git diff {shlex.quote(f'{base}...{branch}')}")
