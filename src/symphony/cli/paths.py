"""Where things of a workflow live by default."""

import os
from pathlib import Path

from symphony.runtime.state_dir import locate

__all__ = ["workspace_root_for"]


def workspace_root_for(workflow: Path) -> str:
    """The `workspace.root` that `init` writes: below the state directory, with `~` where it is below home.

    Outside the temp directory on purpose: agent sandboxes leave that one writable, so an agent could write
    into its neighbours' workspaces.
    """
    root = locate(workflow, os.environ) / "workspaces"
    try:
        return f"~/{root.relative_to(Path.home())}"
    except ValueError:
        return str(root)
