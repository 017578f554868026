"""Where the state directory of a workflow file is (DESIGN 10).

Apart from the directory itself, because a command that only asks a daemon needs the place and nothing else.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["HOST_PLACES", "instance_of", "locate", "state_home"]

HOST_PLACES = (Path("/var/lib/symphony"), Path("/var/lib/private/symphony"))
"""Where a service manager makes the state directories of services, one below the other."""

_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def locate(workflow_path: Path, environment: Mapping[str, str]) -> Path:
    """The state directory of a workflow file; nothing is created.

    A service manager may name several directories, separated by colons: ours is the first.
    """
    managed = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if given := environment.get("SYMPHONY_STATE_DIR") or managed:
        return Path(given).expanduser().absolute()
    real = os.path.realpath(workflow_path)
    name = _UNSAFE_NAME.sub("-", Path(real).parent.name).strip("-.") or "workflow"
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    return state_home(environment) / f"{name}-{digest}"


def state_home(environment: Mapping[str, str]) -> Path:
    """Where the state directories of this user are made that nobody gave a place of their own."""
    home = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser().absolute() / "symphony"


def instance_of(state_dir: Path) -> str:
    """The name under which the daemons of a state directory, one after the other, mark their children.

    It is made of the path and not kept in the directory, so that children are found although everything in
    it was deleted. The root of the file system is in it too: two containers may see one process table, and
    each have a directory of this path.
    """
    root = Path("/").stat()
    seen_from = f"{root.st_dev}:{root.st_ino}:"
    digest = hashlib.sha256(seen_from.encode() + os.fsencode(os.path.realpath(state_dir)))
    return digest.hexdigest()[:24]
