"""The source revision of this program, for `--version`, the API and reports.

A wheel has it in a file that the build adds. In a source tree git is asked, but only when the revision is
shown, so that no start waits for it.
"""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import UnsetType

from symphony import __version__

FILE_NAME: Final = "COMMIT"
_PACKAGE: Final = Path(__file__).parent
_ABBREVIATED: Final = 7


@cache
def commit(package: Path = _PACKAGE) -> str | None:
    """The commit, seven digits; `None` if neither the build nor git knows it.

    May start git and wait for it.
    """
    try:
        told = (package / FILE_NAME).read_text(encoding="ascii")
    except (OSError, ValueError):
        told = _git_revision(package.parents[1]) if package.parent.name == "src" else ""
    found = told.strip()
    return found[:_ABBREVIATED] if found.isalnum() else None


def version_text(package: Path = _PACKAGE) -> str:
    """`0.1.0 (commit abc1234)`, or the version alone."""
    known = commit(package)
    return __version__ if known is None else f"{__version__} (commit {known})"


def _git_revision(tree: Path) -> str:
    """The revision of a source tree that is a repository itself and not part of another one."""
    if not (tree / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), "rev-parse", "--verify", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},  # without the GIT_DIR of a calling hook
        )
    except (OSError, ValueError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def other_version(version: str | UnsetType, commit_: str | UnsetType | None) -> str | None:
    """The version of a running daemon if it differs from the installed package; else, or if unknown, `None`.

    Args:
        version: the version of the daemon.
        commit_: its commit, seven digits; `None` if the daemon does not know it.
    """
    own = commit()
    if isinstance(version, UnsetType):
        return None
    if version == __version__ and (not isinstance(commit_, str) or own is None or commit_ == own):
        return None
    return f"{version} (commit {commit_})" if isinstance(commit_, str) else version
