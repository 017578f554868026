"""Which revision of the source this program is made of, for `--version`, the API and reports.

A wheel carries it in a file that the build puts in. A source tree asks git, and only when
the revision is shown: no start waits for it.
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
    """The commit, seven digits; None where neither the build nor git can tell. May start git, so it waits."""
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
    """What git says of a source tree that is a repository itself, not a part of another one."""
    if not (tree / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), "rev-parse", "--verify", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},  # no GIT_DIR of a hook that called us
        )
    except (OSError, ValueError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def other_version(version: str | UnsetType, commit_: str | UnsetType | None) -> str | None:
    """What a running daemon is, if it is not the installed package; `None` if it is, or does not say.

    Args:
        version: of the daemon.
        commit_: seven digits; `None` if it does not know.
    """
    own = commit()
    if isinstance(version, UnsetType):
        return None
    if version == __version__ and (not isinstance(commit_, str) or own is None or commit_ == own):
        return None
    return f"{version} (commit {commit_})" if isinstance(commit_, str) else version
