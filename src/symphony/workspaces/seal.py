"""What in a `.git` could make git run something or look elsewhere, and whether it is still as it was made.

Nothing here is ever executed or obeyed by the daemon, changed or not; a change is worth telling people about.
"""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from symphony.workspaces.files import entries_below, read_regular

__all__ = ["ALTERNATES", "changed", "seal"]

ALTERNATES = "objects/info/alternates"

_WATCHED = ("config", "config.worktree", "commondir", "info/attributes", ALTERNATES)
_MAX_BYTES = 1024 * 1024
_MAX_HOOKS = 200


def seal(git_dir: Path) -> dict[str, str]:
    """A hash for each watched file and hook that exists, by its name below the git directory."""
    return {name: _digest(git_dir / name) for name in _names(git_dir)}


def changed(git_dir: Path, sealed: Mapping[str, str]) -> tuple[str, ...]:
    """The watched files that were changed, added or removed since they were sealed, sorted."""
    now = seal(git_dir)
    return tuple(sorted(name for name in {*now, *sealed} if now.get(name) != sealed.get(name)))


def _names(git_dir: Path) -> Iterator[str]:
    for name in _WATCHED:
        if _exists(git_dir / name):
            yield name
    try:
        hooks = sorted(name for _, name in islice(entries_below(git_dir / "hooks", into=""), _MAX_HOOKS))
    except OSError:
        yield "hooks"  # nobody sees what is in it
    else:
        yield from (f"hooks/{name}" for name in hooks if not name.endswith(".sample"))
        if (git_dir / "hooks").is_symlink():
            yield "hooks"


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except OSError:
        return False
    return True


def _digest(path: Path) -> str:
    content = read_regular(path, _MAX_BYTES)
    return "not a regular file" if content is None else hashlib.sha256(content).hexdigest()
