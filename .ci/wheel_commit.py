"""Puts the commit into what is built, so that `symphony --version` can tell it where there is no git.

The commit is that of the source tree; `SYMPHONY_COMMIT` tells it where the tree comes without its `.git`, as
in a container build. A wheel made of our source archive has it already. Without any the version stands alone.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PLACES = {"wheel": "symphony/COMMIT", "sdist": "src/symphony/COMMIT"}


class CommitHook(BuildHookInterface):
    """Called by hatchling for each archive, before and after it is made."""

    _made = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, unless the tree itself will be asked or has it."""
        root = Path(self.root)
        if version == "editable" or (root / _PLACES["sdist"]).exists():
            return
        commit = os.environ.get("SYMPHONY_COMMIT", "").strip() or _asked(root)
        if not commit.isalnum():
            return
        handle, self._made = tempfile.mkstemp(prefix="symphony-commit-")
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{commit}\n")
        Path(self._made).chmod(0o644)
        build_data["force_include"][self._made] = _PLACES[self.target_name]

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the archive."""
        del version, build_data, artifact_path
        if self._made:
            Path(self._made).unlink(missing_ok=True)


def _asked(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    asked = ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
