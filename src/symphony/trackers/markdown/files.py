"""Bounded reads and atomic writes of small files, in a folder that people and git use too.

Reads open what is there now, never follow a link out of the folder, and never block on a pipe.

Writes go to a temporary dot file in the same folder, are synced, and take the place of the target in one
step: by `rename` to replace, by `link` (which fails if the name exists) to create. Right before a replacement
the target is read again and must still hold the bytes from which the change was made. In the microseconds
between that read and the rename an editor's save could be lost. Our own processes close that window by an
advisory lock on the folder itself (`locked`), which leaves no lock file behind. Without locks in the file
system, or when another process keeps the lock, the write goes on: the comparison protects the data. A crash
leaves at most a temporary file, which is ignored by reads and removed by a later write (`sweep`).
"""

import errno
import fcntl
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_FILE_BYTES = 1_048_576
LOCK_WAIT_S = 2.0
_LOCK_PAUSE_S = 0.005
_STALE_AFTER_S = 60.0
_TEMPORARY = re.compile(r"\.symphony-[0-9a-f]{16}\.tmp")
_IS_LINK = frozenset({errno.ELOOP, errno.EMLINK})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_THREADS = threading.Lock()
"""Threads of this process wait here without polling, which the lock of a folder needs."""


class RefusedFileError(Exception):
    """A file that may not be read or replaced; the text says why."""


def is_temporary(name: str) -> bool:
    """Whether a file of this name is an unfinished write."""
    return _TEMPORARY.fullmatch(name) is not None


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
        if len(data) != info.st_size:  # else the extra byte was not there: this was the end
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
    """Create a file with this content. Returns false, with nothing done, if the name is taken.

    Raises:
        OSError: the file could not be written.
    """
    temporary = _write_temporary(path.parent, data, mode=None)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        try:  # claim the name by an empty file first
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            return False
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def replace(path: Path, data: bytes, *, expected: bytes, root: Path) -> bool:
    """Replace `expected` by `data`. Returns false, with nothing done, if the file holds something else.

    Raises:
        RefusedFileError: the file is a link, which a rename would turn into a file.
        OSError: the file is deleted, or could not be written.
    """
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        raise RefusedFileError("a link is not written to")
    temporary = _write_temporary(path.parent, data, mode=stat.S_IMODE(mode))
    try:
        if read(path, root=root) != expected:
            return False
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _write_temporary(folder: Path, data: bytes, *, mode: int | None) -> Path:
    temporary = folder / f".symphony-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o666)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _sync_folder(folder: Path) -> None:
    """Make a new name durable, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: Path, *, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the folder's advisory lock while writing; after `wait_s` seconds go on without it."""
    deadline = time.monotonic() + wait_s
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    acquired = _THREADS.acquire(timeout=wait_s)
    try:
        with suppress(OSError):  # a file system without locks
            while not _try_lock(descriptor) and time.monotonic() < deadline:
                time.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)
        if acquired:
            _THREADS.release()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sweep(folder: Path) -> None:
    """Remove temporary files that a crash left behind more than a minute ago."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if is_temporary(entry.name)]
    for name in names:
        with suppress(OSError):
            if time.time() - (folder / name).lstat().st_mtime > _STALE_AFTER_S:
                (folder / name).unlink()
