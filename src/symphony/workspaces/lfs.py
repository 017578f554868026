"""Git LFS objects that an agent committed: a fetch brings their pointers out of a workspace, and not them.

They are copied from the store of the workspace to that of the local repository, or of the mirror, from which
later workspaces are filled without a download. An object is called by the SHA-256 of its content, which is
looked at: the store is the agent's. All of it blocks; callers run it in a thread.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from symphony.workspaces.files import entries_below, is_directory

__all__ = ["MAX_POINTER_BYTES", "carry_objects", "is_content_of"]

MAX_POINTER_BYTES: Final = 1_024
"""A blob that is larger is no pointer."""

_OBJECTS: Final = "lfs/objects"
_POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
_OBJECT: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}")


def carry_objects(own: Path, git_dir: Path) -> str | None:
    """Copy what another git directory does not have yet from a workspace's own.

    Returns:
        why some of them may be in the workspace only, one line; None where all were copied.
    """
    left = 0
    try:
        for directory, path in _objects(own / _OBJECTS):
            target = git_dir / _OBJECTS / path
            if not target.exists():
                left += not _copied(directory, target)
    except OSError as error:
        return f"Git LFS objects could not be copied to {git_dir / _OBJECTS}: {error.strerror or error}"
    return f"{left} Git LFS objects are not what they are called" if left else None


def is_content_of(pointer: bytes, path: Path) -> bool:
    """Whether a file holds what a pointer stands for. Raises `OSError`."""
    found = _POINTER.fullmatch(pointer)
    if found is None:
        return False
    with os.fdopen(_open(path), "rb") as opened:
        info = os.fstat(opened.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size != int(found[2]):
            return False
        return hashlib.file_digest(opened, "sha256").hexdigest() == found[1].decode()


def _open(path: str | Path, directory: int | None = None) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)


def _objects(store: Path) -> Iterator[tuple[int, str]]:
    """The objects, `ab/cd/abcd...`, as `entries_below` tells them, and raising as it does."""
    for directory, path in entries_below(store) if is_directory(store.parent) else ():
        if _OBJECT.fullmatch(path):
            found = os.stat(path.rpartition("/")[2], dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                yield directory, path


def _copied(directory: int, target: Path) -> bool:
    """Whether the object of that name was what it is called, and was copied. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=target.parent)
    draft = Path(name)
    try:
        with os.fdopen(fd, "w+b") as copy, os.fdopen(_open(target.name, directory), "rb") as opened:
            shutil.copyfileobj(opened, copy)
            copy.flush()
            os.fsync(copy.fileno())
            copy.seek(0)
            if hashlib.file_digest(copy, "sha256").hexdigest() != target.name:
                return False
        draft.chmod(0o644)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return True
