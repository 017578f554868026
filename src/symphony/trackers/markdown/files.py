"""Bounded reads and atomic writes of small files, in a folder that people and git use too.

Reads never follow a link out of the folder and never block on a pipe.

Writes go to a temporary dot file in the same folder, are synced, and take the place of the target in one
step: by `rename` to replace, by `link` (which fails if the name exists) to create. Right before a replacement
the target is read again and must still have the bytes on which the change is based. In the microseconds
between that read and the rename an editor's save could be lost. Symphony's own processes prevent that with an
advisory lock on the folder itself (`locked`), which leaves no lock file behind. If the file system has no
locks, or another process keeps the lock, the write goes on, because the comparison protects the data. A crash
leaves at most a temporary file, which is ignored by reads and removed by a later write (`sweep`).
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from symphony.files import draft, is_draft, sync_directory, try_lock, write_atomic

MAX_FILE_BYTES = 1_048_576
LOCK_WAIT_S = 2.0
_LOCK_PAUSE_S = 0.005
_STALE_AFTER_S = 60.0
_IS_LINK = frozenset({errno.ELOOP, errno.EMLINK})
_THREADS = threading.Lock()
"""Threads of this process wait here without polling; waiting for a folder's lock needs polling."""


class RefusedFileError(Exception):
    """A file that may not be read or replaced; the text says why."""


def read(path: Path, *, root: Path) -> bytes:
    """The content of a regular file of at most 1 MB that is really below the folder `root`.

    Raises:
        RefusedFileError: a link out of the folder, not a regular file, or too large.
        OSError: the file cannot be read.
    """
    descriptor = _open(path, root)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise RefusedFileError("not a regular file")
        data = os.read(descriptor, min(info.st_size, MAX_FILE_BYTES) + 1)
        if len(data) != info.st_size:  # otherwise the extra byte is missing, so this was the end
            while len(data) <= MAX_FILE_BYTES and (more := os.read(descriptor, MAX_FILE_BYTES + 1)):
                data += more
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise RefusedFileError("larger than 1 MB")
    return data


def _open(path: Path, root: Path) -> int:
    """Open a file, or the target of a link if that is below the folder."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno not in _IS_LINK:
            raise
    target = os.path.realpath(path)
    if not Path(target).is_relative_to(os.path.realpath(root)):
        raise RefusedFileError("a link that leaves the folder")
    return os.open(target, flags)


def create(path: Path, data: bytes) -> bool:
    """Create a file with this content. Returns false and does nothing if the name is taken.

    Raises:
        OSError: the file could not be written.
    """
    try:
        write_atomic(path, data, durable=True, new=True)
    except FileExistsError:
        return False
    return True


def replace(path: Path, data: bytes, *, expected: bytes, root: Path) -> bool:
    """Replace `expected` by `data`. Returns false and does nothing if the file has other content.

    Raises:
        RefusedFileError: the file is a link, which a rename would turn into a file.
        OSError: the file is deleted, or could not be written.
    """
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        raise RefusedFileError("a link is not written to")
    with draft(path, data, mode=stat.S_IMODE(mode), exactly=True, durable=True) as made:
        if read(path, root=root) != expected:
            return False
        made.replace(path)
    sync_directory(path.parent)
    return True


@contextmanager
def locked(folder: Path, *, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the folder's advisory lock while writing; after `wait_s` seconds go on without it."""
    deadline = time.monotonic() + wait_s
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    acquired = _THREADS.acquire(timeout=wait_s)
    try:
        with suppress(OSError):  # a file system without locks
            while not try_lock(descriptor) and time.monotonic() < deadline:
                time.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)
        if acquired:
            _THREADS.release()


def sweep(folder: Path) -> None:
    """Remove temporary files that a crash left behind more than a minute ago."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if is_draft(entry.name)]
    for name in names:
        with suppress(OSError):
            if time.time() - (folder / name).lstat().st_mtime > _STALE_AFTER_S:
                (folder / name).unlink()
