"""Plain file operations on this machine, all in one place and all blocking; callers run them in a thread.

What an agent may have written is read without following a link at its end, without waiting on a named pipe,
and only up to a limit.
"""

import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

__all__ = [
    "clear_drafts",
    "copy_regular",
    "delete_tree",
    "drop",
    "empty_directory",
    "fingerprint",
    "is_directory",
    "is_empty",
    "make_directory",
    "make_read_only",
    "move_aside",
    "read_present",
    "read_regular",
    "stat_line",
    "sync",
    "write_atomic",
]

_OWNER_ONLY = 0o700
_DRAFT = ".new-"


def read_regular(path: Path, limit: int) -> bytes | None:
    """The content of a regular file of at most `limit` bytes; null for anything else."""
    found = _read(path, limit)
    return None if found is None else found[0]


def read_present(path: Path, limit: int) -> bytes | None:
    """`read_regular` of what has to be there: raises `OSError` where nothing can be opened."""
    found = _content(_open(path), limit)
    return None if found is None else found[0]


def copy_regular(source: Path, target: Path, limit: int) -> bool:
    """Copy a regular file with its modification time; false when `read_regular` would give null.

    git compares the time of an index with those of the files in it, so a fresh time would hide edits.
    """
    found = _read(source, limit)
    if found is None:
        return False
    data, info = found
    target.write_bytes(data)
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
    return True


def write_atomic(path: Path, data: bytes, *, synced: bool = True) -> None:
    """Replace a file as a whole: a reader sees the old content or the new one, also after a crash.

    One that is not `synced` may be empty after the machine lost its power, until `sync`.
    """
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=_DRAFT)
    try:
        try:
            _write(fd, data)
            if synced:
                os.fsync(fd)
        finally:
            os.close(fd)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def make_directory(path: Path) -> None:
    """A directory of our own with all its parents; no error where there is one."""
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)


def is_directory(path: Path) -> bool:
    """Whether there is a real directory, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def sync(path: Path) -> None:
    """Wait until a file is on the disk. Raises `OSError`."""
    fd = _open(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_empty(path: Path) -> bool:
    """Whether a directory has no entry."""
    with os.scandir(path) as entries:
        return next(entries, None) is None


def move_aside(path: Path, trash: Path) -> Path:
    """Take something out of its place in one step; where it is then, in a directory of its own.

    Raises `OSError`.
    """
    make_directory(trash)
    return path.rename(Path(tempfile.mkdtemp(dir=trash), "tree"))


def delete_tree(path: Path) -> None:
    """Delete a tree, also one with read-only directories or nested without end. Raises `OSError`.

    Agents can nest deeper than Python recurses and than a path is long. So every directory is first moved to
    the top of the tree and is then as shallow as any other. Of a link only the link itself goes.
    """
    with suppress(OSError):  # many are empty, and then this is all
        path.rmdir()
        return
    if not is_directory(path):
        path.unlink()
        return
    path.chmod(_OWNER_ONLY)
    lifted = f".{secrets.token_hex(8)}-"
    pending, number = [path], 0
    while pending:
        directory = pending.pop()
        with os.scandir(directory) as found:
            entries = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in found]
        for entry, is_tree in entries:
            if not is_tree:
                entry.unlink()
            else:
                entry.chmod(_OWNER_ONLY)  # one that cannot be written can be neither moved nor emptied
                number += 1
                pending.append(entry.rename(path / f"{lifted}{number}"))
        if directory != path:
            directory.rmdir()
    path.rmdir()


def make_read_only(root: Path) -> None:
    """Take the right to write from a tree of our own; what could be executed still can. Raises `OSError`."""
    for path in (*(Path(entry.path) for entry in _walk(root)), root):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            path.chmod(0o555)
        elif stat.S_ISREG(mode):
            path.chmod(0o444 | mode & 0o111)


def drop(path: Path) -> None:
    """Delete a temporary tree of our own as far as possible; a rest is cleared at the next start."""
    with suppress(OSError):
        delete_tree(path)


def empty_directory(path: Path, *, older_than_s: float) -> None:
    """Delete what a directory holds and nobody changed lately, as far as possible."""
    limit = time.time() - older_than_s
    for entry in list(path.iterdir()) if path.is_dir() else []:
        try:
            if entry.lstat().st_mtime <= limit:
                delete_tree(entry) if is_directory(entry) else entry.unlink()
        except OSError:
            continue


def clear_drafts(directory: Path, *, older_than_s: float) -> None:
    """Delete what `write_atomic` left there when its process was killed in the middle."""
    limit = time.time() - older_than_s
    for draft in list(directory.glob(f"{_DRAFT}*")):
        with suppress(OSError):
            if draft.lstat().st_mtime <= limit:
                draft.unlink()


def fingerprint(root: Path, *, max_entries: int) -> str:
    """A hash over name, kind, size and modification time of what lies below, `.git` directories left out."""
    digest, above = hashlib.sha256(), len(os.fspath(root)) + 1
    for entry in islice(_walk(root), max_entries):
        digest.update(stat_line(entry.path, entry.path[above:].encode("utf-8", "surrogateescape")))
    return digest.hexdigest()


def stat_line(path: str | Path, name: bytes) -> bytes:
    """What stands for the content of a file: name, kind, size and modification time in ns."""
    try:
        info = os.lstat(path)
    except OSError:
        return name + b"\0gone\n"
    kind = stat.S_IFMT(info.st_mode)
    if stat.S_ISDIR(info.st_mode):
        return b"%b\0%o\n" % (name, kind)
    return b"%b\0%o %d %d\n" % (name, kind, info.st_size, info.st_mtime_ns)


def _read(path: Path, limit: int) -> tuple[bytes, os.stat_result] | None:
    try:
        fd = _open(path)
    except OSError:
        return None
    return _content(fd, limit)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _content(fd: int, limit: int) -> tuple[bytes, os.stat_result] | None:
    """What an open file holds, which is closed then. A buffered file would ask the system twice as much."""
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > limit:
            return None
        data = b""
        while len(data) < info.st_size and (part := os.read(fd, info.st_size - len(data))):
            data += part
        return data, info
    finally:
        os.close(fd)


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _walk(root: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below, in an order that depends on names alone; without recursion, as trees may be deep.

    Of what kind an entry is was told with its name: nothing is asked of the disk for each.
    """
    pending = [os.fspath(root)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            trees = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        yield from (entry for entry in found if entry.name != ".git" or entry not in trees)
        pending += [entry.path for entry in trees if entry.name != ".git"]
