"""Finds the SKILL.md files of a workspace and reads their beginnings; nothing in here raises.

One directory level, 2,000 entries, 64 KiB per file; special files never block, and hidden directories as well
as whatever vanishes between listing and opening are skipped.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from symphony.skills import beneath
from symphony.skills.codes import problem
from symphony.skills.model import DEFAULT_PATH, FILE_NAME, Code, Problem

__all__ = ["Found", "Listing", "discover"]

_FIRST_READ: Final = 4_096
_MAX_READ: Final = 65_536
_MAX_ENTRIES: Final = 2_000
_MAX_NAMES: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The beginning of one SKILL.md.

    Attributes:
        path: relative to the workspace, with `/`, fit for showing.
        directory: its directory's name, fit for showing.
        data: whole lines only, unless `whole`.
        whole: `data` is the complete file.
    """

    path: str
    directory: str
    data: bytes
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one root holds: `root` is the absolute directory of the skill directories."""

    root: Path
    items: tuple[Found | Problem, ...] = ()


def discover(workspace: Path, path: str, enough: Callable[[bytes], bool]) -> Listing:
    """List the root and read each skill; `enough` says whether some first lines settle the front matter."""
    parts = _parts(path)
    base = workspace.absolute()
    if parts is None:
        message = "`agent.skills.path` is not a relative path inside the workspace."
        return Listing(root=base, items=(problem(Code.OUTSIDE_WORKSPACE, ".", message=message),))
    root = base.joinpath(*parts)
    try:
        descriptor = beneath.open_directory(base, parts)
    except (OSError, beneath.OutsideWorkspaceError) as error:
        return Listing(root=root, items=_root_problem(error, _shown(parts)))
    with _closing(descriptor):
        return _Scan(base, parts, enough).run(root, descriptor)


def _parts(path: str) -> tuple[str, ...] | None:
    """The steps of a relative path, or None where it is empty, unfit or leaves the workspace."""
    pure = PurePosixPath(path)
    bad = not path.strip() or pure.is_absolute() or ".." in pure.parts or not path.isprintable()
    return None if bad else pure.parts


def _shown(parts: Sequence[str]) -> str:
    """A path as text that can be encoded, whatever bytes the names are made of."""
    return os.fsencode("/".join(parts)).decode(errors="replace") or "."


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _root_problem(error: Exception, path: str) -> tuple[Problem, ...]:
    """A missing default path is silent; a configured one deserves a word."""
    number = _errno(error)
    if number == errno.ENOENT:
        return () if path == DEFAULT_PATH else (problem(Code.MISSING_DIRECTORY, path),)
    return (problem(Code.NOT_A_DIRECTORY if number == errno.ENOTDIR else _code(error), path),)


def _errno(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _code(error: Exception) -> Code:
    match _errno(error):
        case None:
            return Code.OUTSIDE_WORKSPACE
        case errno.ENXIO:  # a socket
            return Code.NOT_REGULAR_FILE
        case _:
            return Code.UNREADABLE


class _Scan:
    """One walk over one root; every name is opened relative to the directory it was listed in."""

    __slots__ = ("_base", "_enough", "_parts")

    def __init__(self, base: Path, parts: tuple[str, ...], enough: Callable[[bytes], bool]) -> None:
        self._base = base
        self._parts = parts
        self._enough = enough

    def run(self, root: Path, descriptor: int) -> Listing:
        """The root's skills; if it holds a SKILL.md itself, it is one skill and its parent is the root."""
        try:
            names = sorted(_names(descriptor))
        except OSError as error:
            return Listing(root=root, items=(problem(_code(error), _shown(self._parts)),))
        if FILE_NAME in names:
            item = self._file(descriptor, self._parts, root.name)
            return Listing(root=root.parent, items=() if item is None else (item,))
        items = [item for name in names[:_MAX_ENTRIES] if (item := self._directory(descriptor, name))]
        if len(names) > _MAX_ENTRIES:
            items.insert(0, problem(Code.LIMIT_EXCEEDED, _shown(self._parts)))
        return Listing(root=root, items=tuple(items))

    def _directory(self, root: int, name: str) -> Found | Problem | None:
        parts = (*self._parts, name)
        try:
            descriptor = beneath.open_child(self._base, root, parts)
        except (OSError, beneath.OutsideWorkspaceError) as error:
            return self._failed(error, (*parts, FILE_NAME))
        with _closing(descriptor):
            return self._file(descriptor, parts, name)

    def _file(self, directory: int, parts: tuple[str, ...], name: str) -> Found | Problem | None:
        parts = (*parts, FILE_NAME)
        try:
            descriptor = beneath.open_file(self._base, directory, parts)
        except (OSError, beneath.OutsideWorkspaceError) as error:
            return self._failed(error, parts) or _lower_case(directory, parts)
        with _closing(descriptor):
            return self._read(descriptor, _shown(parts), _shown((name,)))

    def _failed(self, error: Exception, parts: tuple[str, ...]) -> Problem | None:
        """A plain file in the root, a dangling link and what has just vanished are nobody's problem."""
        gone = _errno(error) in {errno.ENOENT, errno.ENOTDIR}
        return None if gone else problem(_code(error), _shown(parts))

    def _read(self, descriptor: int, path: str, directory: str) -> Found | Problem:
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return problem(Code.NOT_REGULAR_FILE, path)
            data = self._beginning(descriptor, status.st_size)
        except OSError as error:
            return problem(_code(error), path)
        whole = len(data) >= status.st_size
        return Found(path=path, directory=directory, data=data if whole else _lines(data), whole=whole)

    def _beginning(self, descriptor: int, size: int) -> bytes:
        """One read of 4 KiB; more, up to 64 KiB, only while the front matter goes on."""
        data = os.read(descriptor, _FIRST_READ)
        while len(data) < min(size, _MAX_READ) and not self._enough(_lines(data)):
            more = os.read(descriptor, _MAX_READ - len(data))
            if not more:
                break
            data += more
        return data


def _names(descriptor: int) -> list[str]:
    """What may be a skill directory, and a SKILL.md if there is one; sorted later, so all are listed."""
    with os.scandir(descriptor) as entries:
        return [
            entry.name
            for entry in islice(entries, _MAX_NAMES)
            if entry.name == FILE_NAME
            or not (entry.name.startswith(".") or entry.is_file(follow_symlinks=False))
        ]


def _lower_case(directory: int, parts: tuple[str, ...]) -> Problem | None:
    name = FILE_NAME.replace("SKILL", "skill")
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return problem(Code.LOWERCASE_FILENAME, _shown((*parts[:-1], name)))


def _lines(data: bytes) -> bytes:
    """Without the last line, which may be cut: half a line must not be taken for a fence."""
    return data[: data.rfind(b"\n") + 1]
