"""Bounded reads and atomic writes of small files in a folder that people and git share with us.

Reads open what is there now, never follow a link out of the folder, and never block on a pipe.

Writes go to a dot-named temporary file in the same folder, are synced, and take the place of the target in
one step: `rename` to replace, `link` (which fails if the name exists) to create. Right before a replacement
the target is read again and must still hold the bytes the change was made from. Between that look and the
rename are a few microseconds in which an editor's save could be lost; our own processes close even that
window by an advisory lock on the folder itself (`locked`), which leaves no lock file behind. Where the file
system has no locks, or somebody sits on the lock, we go on without it: the comparison guards the data.
A crash leaves at most a temporary file, which nobody reads and a later write removes (`sweep`).
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
_TEMPORARY = re.compile(r"\.symphony-[0-9a-f]{16}\.tmp")
_LOCK_WAIT_S = 2.0
_LOCK_PAUSE_S = 0.005
_STALE_AFTER_S = 60.0
# Threads of ours wait here, where the next one goes on at once; the lock of the folder has to be asked for
# again and again.
_OURS = threading.Lock()
# How a file system says that it has no hard links; there the name is claimed by an empty file first.
_IS_LINK = frozenset({errno.ELOOP, errno.EMLINK})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class RefusedFileError(Exception):
    """A file that we will not read or replace, whatever it holds; the text says why."""


def is_temporary(name: str) -> bool:
    """Whether a file of this name is one of our unfinished writes."""
    return _TEMPORARY.fullmatch(name) is not None


def read(path: Path, *, root: Path) -> bytes:
    """The content of a regular file of at most 1 MB whose real place is below the folder `root`.

    Raises:
        RefusedFileError: a link out of the folder, not a regular file, or too large.
        OSError: the file cannot be read.
    """
    descriptor = _open(path, root)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise RefusedFileError("not a regular file")
        data = _all(descriptor, info.st_size)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise RefusedFileError("larger than 1 MB")
    return data


def create(path: Path, data: bytes) -> bool:
    """Make a new file with this content; false, with nothing done, where the name is taken.

    Raises:
        OSError: the file could not be written.
    """
    temporary = _write_temporary(path.parent, data, mode=None)
    try:
        _claim(path, temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def replace(path: Path, data: bytes, *, expected: bytes, root: Path) -> bool:
    """Put `data` in the place of `expected`; false, with nothing done, where something else stands by now.

    Raises:
        RefusedFileError: the file is a link, which a rename would turn into a file.
        OSError: the file is gone, or could not be written.
    """
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        raise RefusedFileError("a link is not written to")
    temporary = _write_temporary(path.parent, data, mode=stat.S_IMODE(mode))
    replaced = False
    try:
        if read(path, root=root) == expected:
            temporary.replace(path)
            replaced = True
    finally:
        if not replaced:
            temporary.unlink(missing_ok=True)
    if replaced:
        _sync_folder(path.parent)
    return replaced


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's advisory lock while writing; after two seconds of waiting go on without it."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    first = _OURS.acquire(timeout=_LOCK_WAIT_S)
    try:
        _acquire(descriptor, deadline)
        yield
    finally:
        os.close(descriptor)
        if first:
            _OURS.release()


def sweep(folder: Path) -> None:
    """Remove temporary files that a crash left behind more than a minute ago."""
    now = time.time()
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if is_temporary(entry.name)]
    for name in names:
        with suppress(OSError):
            if now - (folder / name).lstat().st_mtime > _STALE_AFTER_S:
                (folder / name).unlink()


def _open(path: Path, root: Path) -> int:
    """Open what is there; of a link what it leads to, if that is below the folder."""
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


def _all(descriptor: int, size: int) -> bytes:
    """At most one byte more than we take; a file may grow while it is read."""
    data = os.read(descriptor, min(size, MAX_FILE_BYTES) + 1)
    if len(data) == size:  # and not the one byte more that was asked for: this was the end
        return data
    while data and len(data) <= MAX_FILE_BYTES and (more := os.read(descriptor, MAX_FILE_BYTES + 1)):
        data += more
    return data


def _claim(path: Path, temporary: Path) -> None:
    """Give the temporary file its name if that name is free."""
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        temporary.replace(path)


def _acquire(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return
            time.sleep(_LOCK_PAUSE_S)
        except OSError:
            return
        else:
            return


def _write_temporary(folder: Path, data: bytes, *, mode: int | None) -> Path:
    temporary = folder / f".symphony-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
    )
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
    """Make the new name durable; some file systems cannot, and then the content still is."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
