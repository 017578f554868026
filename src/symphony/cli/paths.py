"""Where things live: what `init` writes for a workflow, and the program itself."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from symphony.runtime.state_place import locate

__all__ = ["program", "workspace_root_for"]


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


def program() -> str:
    """How a person calls this program again: by its name, or by its path where PATH does not lead there."""
    called = Path(sys.argv[0])
    if shutil.which("symphony") is not None or called.name != "symphony":
        return "symphony"
    return shlex.quote(str(called.absolute()))
