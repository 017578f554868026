"""Why a workspace would have to stay, asked without removing or delivering anything."""

from collections.abc import Mapping
from pathlib import Path

from anyio import to_thread

from symphony.config.settings import WorkspaceSettings
from symphony.processes.base import Host
from symphony.workspaces.git import Git
from symphony.workspaces.guard import Guard
from symphony.workspaces.mirror import Mirror
from symphony.workspaces.places import examined

__all__ = ["reason_to_stay"]


async def reason_to_stay(
    path: Path,
    *,
    host: Host,
    settings: WorkspaceSettings,
    environment: Mapping[str, str],
    secret_names: frozenset[str],
) -> str | None:
    """The line that `WorkspaceManager.remove` would give for keeping it; null when nothing would be lost.

    A removal delivers committed work first, so what is kept here for that may go then.

    Raises:
        WorkspaceError: the path fails containment.
    """
    layout, path, entry, existed, foreign = await to_thread.run_sync(examined, path)
    if foreign:
        return foreign
    if not existed or (entry is not None and not entry.ready):
        return None
    git = Git(host, environment, secret_names)
    repo = None if entry is None else entry.repo
    guard = Guard(
        git=git,
        layout=layout,
        mirror=None if repo is None else Mirror(git, layout, repo),
        keep_dirty=settings.keep_dirty,
    )
    return await guard.reason_to_keep(path, None if entry is None else entry.sealed)
