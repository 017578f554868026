"""Refs of a git directory, read as files: no git runs, so nothing in that directory can make it do anything.

A directory written by an agent may hold anything; whatever is not exactly a ref reads as null.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from symphony.workspace.files import is_directory, read_regular

__all__ = ["all_refs", "branch_of_head", "read_ref"]

_COMMIT = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_NAME = re.compile(r"refs/(?!.*(?:\.\.|//|\\|@\{))[^\x00-\x20\x7f~^:?*\[]+")
_MAX_REF_BYTES = 4_096
_MAX_PACKED_BYTES = 64 * 1024 * 1024
_MAX_DEPTH = 5
_MAX_LOOSE = 100_000


def read_ref(git_dir: Path, name: str) -> str | None:
    """The object a ref (or `HEAD`) leads to, symbolic refs followed; null where there is none."""
    for _ in range(_MAX_DEPTH):
        content = _loose(git_dir, name)
        target = _symbolic(content)
        if target is None:
            return _commit(content) or _packed(git_dir).get(name)
        name = target
    return None


def branch_of_head(git_dir: Path) -> str | None:
    """The short name of the branch that `HEAD` stands on; null when it is detached or unreadable."""
    target = _symbolic(_loose(git_dir, "HEAD"))
    return target.removeprefix("refs/heads/") if target and target.startswith("refs/heads/") else None


def all_refs(git_dir: Path, prefix: str) -> dict[str, str]:
    """Every ref below a prefix such as `refs/heads/`, with the object it leads to; symbolic ones left out."""
    found = {name: commit for name, commit in _packed(git_dir).items() if name.startswith(prefix)}
    for name in _loose_names(git_dir, prefix):
        commit = _commit(_loose(git_dir, name))
        if commit is not None:
            found[name] = commit
    return found


def _loose(git_dir: Path, name: str) -> bytes:
    return (read_regular(git_dir / name, _MAX_REF_BYTES) or b"").strip()


def _symbolic(content: bytes) -> str | None:
    if not content.startswith(b"ref: "):
        return None
    name = content.removeprefix(b"ref: ").decode("utf-8", "surrogateescape").strip()
    return name if _NAME.fullmatch(name) else None


def _commit(content: bytes) -> str | None:
    return content.decode() if _COMMIT.fullmatch(content) else None


def _packed(git_dir: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (read_regular(git_dir / "packed-refs", _MAX_PACKED_BYTES) or b"").splitlines():
        object_id, _, name = line.partition(b" ")
        text = name.decode("utf-8", "surrogateescape")
        if _COMMIT.fullmatch(object_id) and _NAME.fullmatch(text):
            found[text] = object_id.decode()
    return found


def _loose_names(git_dir: Path, prefix: str) -> Iterator[str]:
    """Names of the files below a prefix; links to directories are not followed."""
    pending, seen = [git_dir / prefix], 0
    while pending:
        directory = pending.pop()
        for entry in sorted(directory.iterdir()) if is_directory(directory) else []:
            seen += 1
            if seen > _MAX_LOOSE:
                return
            if is_directory(entry):
                pending.append(entry)
            elif _NAME.fullmatch(name := str(entry.relative_to(git_dir))):
                yield name
