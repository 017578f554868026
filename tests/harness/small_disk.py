"""A process for which a directory is a disk of one megabyte that nobody else sees."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.real import require_own_disk

__all__ = ["on_a_small_disk", "told_by"]


def on_a_small_disk(place: Path, module: str, *arguments: str) -> list[dict[str, Any]]:
    """What a module says that runs there, one JSON object a line; skips where no disk can be mounted."""
    require_own_disk()
    script = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
    python = [sys.executable, "-m", module, *arguments]
    return told_by(["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(place), *python])


def told_by(command: list[str]) -> list[dict[str, Any]]:
    """The JSON objects that a command says, one a line; it has to succeed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
