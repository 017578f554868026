"""Digests of SKILL.md files, so that people can tell later which text of a skill a run could have read."""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from symphony.skills import beneath
from symphony.skills.model import Problem, Skill, SkillOptions
from symphony.skills.sources import anchored

__all__ = ["MAX_FILE_BYTES", "MAX_TOTAL_BYTES", "digests", "digests_of"]

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
_CHUNK: Final = 65_536


def digests(workspace: Path, paths: Iterable[str]) -> dict[str, str]:
    """The SHA-256, in hex, of each whole file; those that cannot be digested are absent. Raises nothing.

    Args:
        workspace: nothing outside of it is opened, whatever links there are.
        paths: relative to the workspace, with `/`, as `Skill.path` and `Problem.path` tell them.

    Only regular files count, of at most 4 MiB each and 32 MiB together: a digest is no reason to read a disk.
    """
    found: dict[str, str] = {}
    room = MAX_TOTAL_BYTES
    for path in dict.fromkeys(paths):
        try:
            read, digest = _digest(workspace.absolute(), path, min(room, MAX_FILE_BYTES))
        except (OSError, ValueError, beneath.OutsideWorkspaceError):
            continue
        room -= read
        if digest is not None:
            found[path] = digest
    return found


def digests_of(workspace: Path, files: Iterable[Skill | Problem], options: SkillOptions) -> dict[str, str]:
    """As `digests`, by `path`, for the files of any scope; each anchor has a limit of its own.

    `workspace` and `options` are those that they were loaded from and with.
    """
    anchors: dict[Path, dict[str, str]] = {}
    for one in files:
        anchor, path = anchored(one.scope, one.path, workspace, options)
        anchors.setdefault(anchor, {})[path] = one.path
    return {
        paths[path]: digest
        for anchor, paths in anchors.items()
        for path, digest in digests(anchor, paths).items()
    }


def _digest(workspace: Path, path: str, limit: int) -> tuple[int, str | None]:
    """How many bytes were read, and the digest if that was the whole of a regular file."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        return 0, None
    directory = beneath.open_directory(workspace, pure.parts[:-1])
    try:
        descriptor = beneath.open_file(workspace, directory, pure.parts)
    finally:
        os.close(directory)
    try:
        return _read(descriptor, limit)
    finally:
        os.close(descriptor)


def _read(descriptor: int, limit: int) -> tuple[int, str | None]:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
        return 0, None
    digest, size = hashlib.sha256(), 0
    while size <= limit:
        data = os.read(descriptor, _CHUNK)
        if not data:
            return size, digest.hexdigest()
        size += len(data)
        digest.update(data)
    return size, None
