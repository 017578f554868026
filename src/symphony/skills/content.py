"""Reads the body of one skill and lists the files that come with it, when a session asks for the skill.

The same care as at loading: nothing outside the anchor is opened, only regular files are read, and every
amount is bounded. Bundled files are listed and never read; links among them are left out.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from symphony.frontmatter import FrontMatterError
from symphony.skills import beneath
from symphony.skills.sheet import split

__all__ = ["MAX_BODY_BYTES", "MAX_FILES", "Content", "ContentError", "read_content"]

MAX_BODY_BYTES: Final = 512 * 1024
MAX_FILES: Final = 100
_MAX_DEPTH: Final = 4
_MAX_ENTRIES: Final = 2_000
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 65_536


class ContentError(Exception):
    """The skill cannot be read now; the text is one sentence without anything of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a skill says, whole.

    Attributes:
        directory: absolute path of the skill's directory.
        body: everything behind the front matter; bytes that are not UTF-8 are replaced.
        cut: the body was longer than 512 KiB and ends early.
        files: bundled regular files, relative to the directory, with `/`, sorted; at most 100.
        more_files: how many more there are, as far as they were counted.
    """

    directory: Path
    body: str
    cut: bool = False
    files: tuple[str, ...] = ()
    more_files: int = 0


def read_content(anchor: Path, path: str) -> Content:
    """The content of the skill whose SKILL.md is at `path`.

    Args:
        anchor: the workspace, or another root that no link may lead out of.
        path: of the SKILL.md, relative to the anchor, with `/`.

    Raises:
        ContentError: the file is gone, unreadable, not a regular file or outside the anchor.
    """
    base, pure = anchor.absolute(), PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ContentError("The skill's path is not inside the workspace.")
    try:
        with _opened(beneath.open_directory(base, pure.parts[:-1])) as directory:
            with _opened(beneath.open_file(base, directory, pure.parts)) as file:
                data, cut = _read(file)
            files, more = _bundled(directory, pure.name)
    except beneath.OutsideWorkspaceError:
        raise ContentError("The skill is a link that leads out of the workspace.") from None
    except (OSError, ValueError):
        raise ContentError("The skill's SKILL.md cannot be read.") from None
    return Content(
        directory=base.joinpath(*pure.parts[:-1]), body=_body(data), cut=cut, files=files, more_files=more
    )


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> tuple[bytes, bool]:
    """The beginning of a regular file, and whether there is more."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ContentError("The skill's SKILL.md is not a regular file.")
    data = bytearray()
    while len(data) <= MAX_BODY_BYTES:
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return bytes(data), False
        data += chunk
    return bytes(data[:MAX_BODY_BYTES]), True


def _body(data: bytes) -> str:
    try:
        found = split(data)
    except FrontMatterError:
        found = None
    rest = data if found is None else data[found.fences.body_offset :]
    return rest.decode(errors="replace").replace("\r\n", "\n").strip("\n")


def _bundled(directory: int, own_name: str) -> tuple[tuple[str, ...], int]:
    """The files of a skill's directory without its SKILL.md: so many are named, and so many more exist."""
    found = sorted(name for name in _walk(directory, _Budget(), 0, "") if name != own_name)
    return tuple(found[:MAX_FILES]), max(len(found) - MAX_FILES, 0)


@dataclass(slots=True)
class _Budget:
    """How many directory entries may still be looked at."""

    entries: int = _MAX_ENTRIES


def _walk(directory: int, budget: _Budget, depth: int, above: str) -> Iterator[str]:
    for name, kind in _entries(directory, budget):
        if kind == stat.S_IFREG:
            yield f"{above}{name}"
        elif kind == stat.S_IFDIR and depth < _MAX_DEPTH:
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=directory)
            except OSError:
                continue
            with _opened(inner):
                yield from _walk(inner, budget, depth + 1, f"{above}{name}/")


def _entries(directory: int, budget: _Budget) -> list[tuple[str, int]]:
    """Names and kinds, links as links; hidden ones and names that cannot be shown are left out."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if budget.entries <= 0:
                break
            budget.entries -= 1
            if not entry.name.startswith(".") and entry.name.isprintable():
                found.append((entry.name, _kind(entry)))
    return sorted(found)


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    return stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else 0
