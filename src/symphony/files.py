"""Small files that survive crashes, agents and other processes: bounded reads, atomic writes, locks.

Reads follow no link at the end of a path, do not wait on named pipes, and are limited in size. A write goes
to a draft beside its target, which takes the name of the target in one step, so a reader sees the old content
or the new one. A crash leaves at most a draft, which `is_draft` recognises. Everything here blocks.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from operator import attrgetter
from pathlib import Path
from typing import Final

DRAFT_PREFIX: Final = ".symphony-"
"""The prefix of the names of all drafts."""

NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""What open(2) reports for a missing file, a link, and a socket."""

_DRAFT: Final = re.compile(r"\.symphony-[0-9a-f]{16}\.tmp")
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


# --- reading ---------------------------------------------------------------------------------------------


def open_regular(path: str | Path, directory: int | None = None) -> BufferedReader | None:
    """Open a regular file, relative to an open directory if one is given; `None` for anything else.

    Raises `OSError` if the path cannot be opened.
    """
    fd = os.open(path, _READ_FLAGS, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return os.fdopen(fd, "rb")


def read_present(path: Path, limit: int) -> bytes | None:
    """The content of a regular file of at most `limit` bytes; `None` for anything else that exists.

    Raises `OSError` if the path cannot be opened.
    """
    fd = os.open(path, _READ_FLAGS)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > limit:
            return None
        return os.read(fd, info.st_size)  # all of it, as the kernel gives up to 2 GB of a file at once
    finally:
        os.close(fd)


def read_if_there(path: Path, limit: int) -> bytes | None:
    """As `read_present`, but a missing file is `None` too; raises `OSError` for an unreadable one."""
    try:
        return read_present(path, limit)
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise


def read_regular(path: Path, limit: int) -> bytes | None:
    """As `read_present`, but a file that is missing or unreadable is `None` too."""
    try:
        return read_present(path, limit)
    except OSError:
        return None


# --- what has changed ------------------------------------------------------------------------------------

signature: Final = attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
"""The parts of an `os.stat_result` that differ after a change, if the file `has_settled` before it."""

_SECOND_NS: Final = 1_000_000_000
_FINE_GRAIN_NS: Final = _SECOND_NS // 5
_COARSE_GRAIN_NS: Final = 2 * _SECOND_NS


def has_settled(info: os.stat_result, now_ns: int) -> bool:
    """Whether any further change of a file will show in its metadata. No program can set the change time.

    A second change in the same clock tick would leave the metadata unchanged, so a file that changed a moment
    ago has not settled. It settles after a fifth of a second if the file system stores fractions of seconds
    (its ticks are 10 ms at most), else after two seconds.
    """
    grain_ns = _FINE_GRAIN_NS if info.st_ctime_ns % _SECOND_NS else _COARSE_GRAIN_NS
    return max(info.st_mtime_ns, info.st_ctime_ns) < now_ns - grain_ns


# --- writing ---------------------------------------------------------------------------------------------


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Create a file with this content, not atomically; the umask limits `mode`.

    Raises `OSError` if the file exists or cannot be written; an incomplete file is removed.
    """
    fd = os.open(path, _NEW_FLAGS, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_atomic(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o666,
    durable: bool = False,
    new: bool = False,
) -> None:
    """Write a file so that a reader sees the old content or the new one; a link is replaced, not followed.

    Args:
        path: the file; its directory must exist.
        data: its content.
        mode: its permissions, limited by the umask.
        durable: the guarantee also holds after a crash of the machine.
        new: keep an existing file and raise `FileExistsError`.

    Raises:
        OSError: it cannot be written; the old content remains, and no draft.
    """
    with draft(path, data, mode=mode, durable=durable) as made:
        if new:
            claim_name(path, made)
        else:
            made.replace(path)
    if durable:
        sync_directory(path.parent)


@contextmanager
def draft(
    path: Path, data: bytes, *, mode: int = 0o666, exactly: bool = False, durable: bool = False
) -> Iterator[Path]:
    """A file beside `path` with this content; it is removed at the end unless it was renamed.

    The arguments are those of `write_atomic`; with `exactly`, the umask does not limit `mode`. Raises
    `OSError` if it cannot be written.
    """
    made = path.with_name(f"{DRAFT_PREFIX}{secrets.token_hex(8)}.tmp")
    fd = os.open(made, _NEW_FLAGS, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            if exactly:
                os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(fd)
        yield made
    finally:
        made.unlink(missing_ok=True)


def claim_name(path: Path, made: Path) -> None:
    """Give a draft a free name. On file systems without hard links, an empty file claims the name first.

    Raises:
        FileExistsError: the name is taken.
        OSError: the directory cannot be written.
    """
    try:
        path.hardlink_to(made)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        os.close(os.open(path, _NEW_FLAGS, 0o600))
        made.replace(path)


def is_draft(name: str) -> bool:
    """Whether a file of this name is an unfinished write."""
    return name.startswith(DRAFT_PREFIX) and _DRAFT.fullmatch(name) is not None


def sync_directory(directory: Path) -> None:
    """Make a new name durable, if the file system supports it."""
    with suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# --- locks -----------------------------------------------------------------------------------------------


def try_lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file or directory until it is closed; false if another process holds it.

    Raises `OSError` on a file system without locks.
    """
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
