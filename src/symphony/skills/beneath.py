"""Opens files and directories so that no link, however placed or swapped, leads out of the workspace."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["OutsideWorkspaceError", "open_child", "open_directory", "open_file"]

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DIRECTORY: Final = _FLAGS | os.O_DIRECTORY
_BASE: Final = _DIRECTORY & ~os.O_NOFOLLOW
_MAYBE_LINK: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


class OutsideWorkspaceError(Exception):
    """A link leads out of the workspace; nothing was opened."""


def open_directory(workspace: Path, parts: Sequence[str]) -> int:
    """A descriptor of a directory below the workspace; the workspace itself for no parts.

    Raises:
        OutsideWorkspaceError: a link on the way leads out.
        OSError: it is missing, not a directory, or cannot be read.
    """
    try:
        return _walk(workspace, parts, _DIRECTORY)
    except OSError as error:
        if error.errno not in _MAYBE_LINK:
            raise
    return _open_real(workspace, parts, _DIRECTORY)


def open_child(workspace: Path, parent: int, parts: Sequence[str]) -> int:
    """A descriptor of a directory in the directory `parent`; `parts` is its full path below the workspace.

    Raises:
        OutsideWorkspaceError, OSError: as `open_directory`.
    """
    return _open_at(workspace, parent, parts, _DIRECTORY)


def open_file(workspace: Path, parent: int, parts: Sequence[str]) -> int:
    """A descriptor of whatever stands at that name, never blocking; the caller checks that it is a file.

    Raises:
        OutsideWorkspaceError, OSError: as `open_directory`.
    """
    return _open_at(workspace, parent, parts, _FLAGS)


def _open_at(workspace: Path, parent: int, parts: Sequence[str], flags: int) -> int:
    try:
        return os.open(parts[-1], flags, dir_fd=parent)
    except OSError as error:
        if error.errno not in _MAYBE_LINK:
            raise
    return _open_real(workspace, parts, flags)


def _open_real(workspace: Path, parts: Sequence[str], flags: int) -> int:
    """Follow the links, look where they end, and open that path without following any."""
    base = Path(os.path.realpath(workspace))
    real = Path(os.path.realpath(base.joinpath(*parts), strict=True))
    if not real.is_relative_to(base):
        raise OutsideWorkspaceError
    return _walk(base, real.relative_to(base).parts, flags)


def _walk(base: Path, parts: Sequence[str], flags: int) -> int:
    """Step by step, no step through a link; the base itself may be reached through some."""
    if not parts:
        return os.open(base, _BASE)
    descriptor = os.open(f"{base}/{parts[0]}", flags if len(parts) == 1 else _DIRECTORY)
    for index, part in enumerate(parts[1:], start=2):
        parent = descriptor
        try:
            descriptor = os.open(part, flags if index == len(parts) else _DIRECTORY, dir_fd=parent)
        finally:
            os.close(parent)
    return descriptor
