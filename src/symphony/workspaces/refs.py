"""Refs of a git directory, read as files: no git runs, so nothing in that directory can make it do anything.

A directory written by an agent may hold anything; whatever is not exactly a ref reads as null. What cannot be
read, or is too much, raises `OSError`: there may be work behind it that nobody would know of.
"""

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

from symphony.workspaces.files import (
    MOST_ENTRIES,
    entries_below,
    lines_of,
    read_if_there,
    read_regular,
)

__all__ = ["all_refs", "branch_of_head", "common_dir", "packed_refs", "read_ref"]

_COMMIT = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_NAME = re.compile(r"refs/(?!.*(?:\.\.|//|\\|@\{))[^\x00-\x20\x7f~^:?*\[]+")
_MAX_REF_BYTES = 4_096
_MAX_PACKED_BYTES = 16 * 1024 * 1024
_MAX_DEPTH = 5


def common_dir(repository: Path) -> Path | None:
    """The git directory with the branches of an operator's own repository, or None where there is none.

    It is resolved. Linked worktrees share it with their repository; that of a submodule lies in its parent.
    """
    own = repository / ".git"
    if not own.is_dir():
        pointer = (read_regular(own, _MAX_REF_BYTES) or b"").decode("utf-8", "surrogateescape")
        target = pointer.removeprefix("gitdir:").strip()
        own = repository / target if pointer.startswith("gitdir:") else repository
    shared = (read_regular(own / "commondir", _MAX_REF_BYTES) or b"").decode("utf-8", "surrogateescape")
    real = Path(os.path.realpath(own / shared.strip()))
    return real if (real / "objects").is_dir() else None


def packed_refs(git_dir: Path) -> dict[str, str]:
    """The refs of `packed-refs`, for who asks for several: a file of refs of their own hides one of them."""
    found: dict[str, str] = {}
    for line in lines_of(git_dir / "packed-refs", _MAX_PACKED_BYTES):
        object_id, _, name = line.rstrip(b"\r\n").partition(b" ")
        text = name.decode("utf-8", "surrogateescape")
        if _COMMIT.fullmatch(object_id) and _NAME.fullmatch(text):
            found[text] = object_id.decode()
        if len(found) > MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {MOST_ENTRIES} refs", str(git_dir / "packed-refs"))
    return found


def read_ref(git_dir: Path, name: str, packed: Mapping[str, str] | None = None) -> str | None:
    """The object a ref (or `HEAD`) leads to, symbolic refs followed; null where there is none."""
    for _ in range(_MAX_DEPTH):
        content = _loose(git_dir, name)
        target = _symbolic(content)
        if target is None:
            return _commit(content) or (packed_refs(git_dir) if packed is None else packed).get(name)
        name = target
    return None


def branch_of_head(git_dir: Path) -> str | None:
    """The short name of the branch that `HEAD` stands on; null when it is detached or unreadable."""
    target = _symbolic(_loose(git_dir, "HEAD"))
    return target.removeprefix("refs/heads/") if target and target.startswith("refs/heads/") else None


def all_refs(git_dir: Path, prefix: str, packed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every ref below a prefix such as `refs/heads/`, with the object it leads to; symbolic ones left out."""
    known = packed_refs(git_dir) if packed is None else packed
    found = {name: commit for name, commit in known.items() if name.startswith(prefix)}
    for _, path in entries_below(git_dir / prefix):
        name = f"{prefix}{path}"
        commit = _commit(_loose(git_dir, name)) if _NAME.fullmatch(name) else None
        if commit is not None:
            found[name] = commit
    return dict(sorted(found.items()))


def _loose(git_dir: Path, name: str) -> bytes:
    return (read_if_there(git_dir / name, _MAX_REF_BYTES) or b"").strip()


def _symbolic(content: bytes) -> str | None:
    if not content.startswith(b"ref: "):
        return None
    name = content.removeprefix(b"ref: ").decode("utf-8", "surrogateescape").strip()
    return name if _NAME.fullmatch(name) else None


def _commit(content: bytes) -> str | None:
    return content.decode() if _COMMIT.fullmatch(content) else None
