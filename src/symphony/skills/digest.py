"""Digests of SKILL.md files, which record the versions of the skills that a run could read."""

import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Final

from symphony.problem import Problem
from symphony.skills import loader
from symphony.skills.loader import resolve_anchor
from symphony.skills.model import Skill, SkillOptions

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
_CHUNK: Final = 65_536


def file_digests(workspace: Path, paths: Iterable[str]) -> dict[str, str]:
    """The SHA-256, in hex, of each file; files that cannot be read are missing. Never raises.

    Args:
        workspace: nothing outside of it is opened, not even through links.
        paths: relative to the workspace, with `/`, as in `Skill.path` and `Problem.path`.

    Only regular files are read, of at most 4 MiB each and 32 MiB in total.
    """
    found: dict[str, str] = {}
    room = MAX_TOTAL_BYTES
    with closing(_Opener(workspace.absolute())) as opener:
        for path in dict.fromkeys(paths):
            try:
                read, digest = _digest(opener, path, min(room, MAX_FILE_BYTES))
            except (OSError, ValueError, loader.OutsideWorkspaceError):
                continue
            room -= read
            if digest is not None:
                found[path] = digest
    return found


def skill_digests(workspace: Path, files: Iterable[Skill | Problem], options: SkillOptions) -> dict[str, str]:
    """As `file_digests`, for files of any scope; the limits apply to each root separately.

    `workspace` and `options` are the arguments with which the files were loaded.
    """
    anchors: dict[Path, dict[str, str]] = {}
    for one in files:
        anchor, path = resolve_anchor(one.scope, one.path, workspace, options)
        anchors.setdefault(anchor, {})[path] = one.path
    return {
        paths[path]: digest
        for anchor, paths in anchors.items()
        for path, digest in file_digests(anchor, paths).items()
    }


class _Opener:
    """Opens files below an anchor and keeps the last root of skills open for the next file."""

    __slots__ = ("_anchor", "_descriptor", "_parts")

    def __init__(self, anchor: Path) -> None:
        self._anchor = anchor
        self._parts: tuple[str, ...] | None = None
        self._descriptor = -1

    def open(self, parts: tuple[str, ...]) -> int:
        """A descriptor, as `loader.open_file`."""
        root = self._root(parts[:-2])
        if len(parts) == 1:
            return loader.open_file(self._anchor, root, parts)
        directory = loader.open_child(self._anchor, root, parts[:-1])
        try:
            return loader.open_file(self._anchor, directory, parts)
        finally:
            os.close(directory)

    def _root(self, parts: tuple[str, ...]) -> int:
        if parts != self._parts:
            self.close()
            self._descriptor = loader.open_directory(self._anchor, parts)
            self._parts = parts
        return self._descriptor

    def close(self) -> None:
        """Close the directory."""
        if self._parts is not None:
            os.close(self._descriptor)
            self._parts = None


def _digest(opener: _Opener, path: str, limit: int) -> tuple[int, str | None]:
    """The number of bytes read, and the digest if they were a complete regular file."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or not parts:
        return 0, None
    descriptor = opener.open(parts)
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
        size += len(data)
        digest.update(data)
        if not data or size == status.st_size:
            return size, digest.hexdigest()
    return size, None
