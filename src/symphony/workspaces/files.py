"""File operations that are safe on trees an agent may have written.

Reading follows no link at the end of a path, does not wait on named pipes, and is limited in size. Deleting
follows no link at all. Everything blocks, so callers use a thread, except for `temporary_directory`.
"""

import errno
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from heapq import nsmallest
from io import BufferedReader
from itertools import islice
from pathlib import Path

import anyio

from symphony import to_thread
from symphony.files import NO_FILE, open_regular

MAX_ENTRIES = 200_000

_MAX_DEPTH = 64
_MAX_LINE_BYTES = 8_192
_NAMES_AT_ONCE = 10_000
_OWNER_ONLY = 0o700
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRUSTED_PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


# --- Reading ---


def lines_of(path: Path, limit: int) -> Iterator[bytes]:
    """The lines of a regular file; none if there is no such file.

    Raises `OSError` if it is unreadable or larger than `limit` bytes.
    """
    file = _open_limited(path, limit)
    if file is not None:
        with file:
            while line := file.readline(_MAX_LINE_BYTES):
                yield line


def copy_regular(source: Path, target: Path, limit: int) -> bool:
    """Copy a regular file with its modification time; false if there is no such file.

    Git compares the time of an index with the times of the files in it, so a fresh time would hide edits.
    Raises `OSError` if the file is unreadable or larger than `limit` bytes.
    """
    file = _open_limited(source, limit)
    if file is None:
        return False
    with file:
        info = os.fstat(file.fileno())
        with target.open("wb") as copy:
            left = info.st_size
            while left and (count := os.sendfile(copy.fileno(), file.fileno(), None, left)):
                left -= count
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
    return True


def _open_limited(path: Path, limit: int) -> BufferedReader | None:
    try:
        file = open_regular(path)
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise
    if file is not None and os.fstat(file.fileno()).st_size > limit:
        file.close()
        raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
    return file


# --- Examining ---


def is_directory(path: Path) -> bool:
    """Whether the path is a directory and not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def is_missing(path: Path) -> bool:
    """Whether the path certainly does not exist; false if it cannot be examined."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def is_empty(path: Path) -> bool:
    """Whether a directory has no entry."""
    with os.scandir(path) as entries:
        return next(entries, None) is None


def entries_below(top: Path, *, into: str | None = None) -> Iterator[tuple[int, str]]:
    """Every entry below a directory: a descriptor of its parent directory, and its path below `top`.

    No link is followed, even if one replaces a directory during the walk. A directory that is removed
    meanwhile has no entries. With `into`, only that directory of `top` is entered. Yields nothing if `top` is
    not a real directory.

    Raises:
        OSError: a directory is unreadable or nested deeper than 64 levels, or there are too many entries.
    """
    try:
        directory = os.open(top, _DIRECTORY_FLAGS)
    except OSError as error:
        if error.errno in NO_FILE:
            return
        raise
    for number, found in enumerate(_entries(directory, "", into, _MAX_DEPTH)):
        if number >= MAX_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {MAX_ENTRIES} entries", str(top))
        yield found


def _entries(directory: int, prefix: str, into: str | None, levels: int) -> Iterator[tuple[int, str]]:
    """Walk an open directory and close it."""
    try:
        if levels == 0:
            raise OSError(errno.ELOOP, f"nested deeper than {_MAX_DEPTH} levels", prefix)
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                yield directory, path
                if entry.is_dir(follow_symlinks=False) and into in {None, entry.name}:
                    try:
                        inner = os.open(entry.name, _DIRECTORY_FLAGS, dir_fd=directory)
                    except FileNotFoundError:
                        continue  # git removes the directory of the last ref in it
                    except OSError as error:
                        raise OSError(error.errno, error.strerror, path) from error
                    yield from _entries(inner, f"{path}/", None, levels - 1)
    finally:
        os.close(directory)


def fingerprint(root: Path, *, max_entries: int) -> str:
    """A hash of the names, kinds, sizes and modification times below a directory, without `.git`."""
    digest, prefix = hashlib.sha256(), len(os.fspath(root)) + 1
    for entry in islice(_walk(root, max_entries), max_entries):
        digest.update(stat_line(entry.path, entry.path[prefix:].encode("utf-8", "surrogateescape")))
    return digest.hexdigest()


def stat_line(path: str | Path, name: bytes) -> bytes:
    """A line that stands for the content of a file: name, kind, size and modification time in ns."""
    try:
        info = os.lstat(path)
    except OSError:
        return name + b"\0gone\n"
    kind = stat.S_IFMT(info.st_mode)
    if stat.S_ISDIR(info.st_mode):
        return b"%b\0%o\n" % (name, kind)
    return b"%b\0%o %d %d\n" % (name, kind, info.st_size, info.st_mtime_ns)


def _walk(root: Path, most: int) -> Iterator[os.DirEntry[str]]:
    """Everything below a directory except `.git`, in an order that depends on names alone.

    At most `most` entries of each directory. Uses no recursion, because an agent's tree may be deep.
    """
    pending = [os.fspath(root)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                found = nsmallest(most, entries, key=lambda entry: entry.name)
            directories = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        yield from (entry for entry in found if entry.name != ".git" or entry not in directories)
        pending += [entry.path for entry in directories if entry.name != ".git"]


# --- Writing ---


def make_directory(path: Path) -> None:
    """Create a directory with all its parents, for this user only, unless it exists."""
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)


def make_read_only(root: Path) -> None:
    """Remove write permission from a tree; executable files stay executable. Raises `OSError`."""
    for path in (*(Path(entry.path) for entry in _walk(root, MAX_ENTRIES)), root):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            path.chmod(0o555)
        elif stat.S_ISREG(mode):
            path.chmod(0o555 if mode & 0o100 else 0o444)


@asynccontextmanager
async def temporary_directory(parent: Path | None, prefix: str) -> AsyncIterator[Path]:
    """A private directory below `parent`, by default the system's; deleted at the end of the context."""
    path = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=parent, prefix=prefix)))
    try:
        yield path
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(delete_quietly, path)


# --- Deleting ---


def move_aside(path: Path, trash: Path) -> Path:
    """Move something into a new directory of `trash` in one step; returns its new path. Raises `OSError`."""
    make_directory(trash)
    moved = Path(tempfile.mkdtemp(dir=trash), "tree")
    source, target = os.open(path.parent, _TRUSTED_PATH_FLAGS), os.open(moved.parent, _TRUSTED_PATH_FLAGS)
    try:
        _rename(path.name, source, moved.name, target)
    finally:
        os.close(source)
        os.close(target)
    return moved


def delete_quietly(path: Path) -> None:
    """Delete a tree as far as possible; what remains is cleared at the next start."""
    with suppress(OSError):
        delete_tree(path)


def delete_old_entries(directory: Path, *, older_than_s: float, prefix: str = "") -> None:
    """Delete the entries of a directory that were not modified lately, as far as possible."""
    limit = time.time() - older_than_s
    for entry in list(directory.glob(f"{prefix}*")) if directory.is_dir() else []:
        with suppress(OSError):
            if entry.lstat().st_mtime <= limit:
                delete_tree(entry)


def tree_size(path: Path) -> int:
    """Total size in bytes of the files in a tree, without following links; unreadable ones count as 0."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += Path(folder, name).lstat().st_size
    return total


def last_touched(workspace: Path) -> float:
    """When the top of a workspace or its `.git` was last changed, in seconds; 0 if that is unknown."""
    newest = 0.0
    for place in (workspace, workspace / ".git"):
        with suppress(OSError):
            newest = max(newest, place.lstat().st_mtime)
    return newest


def delete_tree(path: Path) -> None:
    """Delete a tree with any content, even while a process of the agent works in it. Raises `OSError`.

    Each directory is opened without following a link and emptied through its descriptor, so that nothing
    outside the tree is touched, whatever is renamed or linked. Links are deleted, not their targets.
    Directories are first renamed into the parent of the tree. An agent that can write only in the tree cannot
    reach them there, and trees of any depth need few descriptors. A mount point in the tree cannot be renamed
    and is not entered: it ends the deletion with an error.
    """
    parent = os.open(path.parent, _TRUSTED_PATH_FLAGS)
    pending = [path.name]
    try:
        while pending:
            pending += _delete_entry(pending.pop(), parent)
    finally:
        os.close(parent)


def _delete_entry(name: str, parent: int) -> list[str]:
    """Delete one entry of a directory. Returns the new names of its subdirectories, now in `parent` too."""
    try:
        directory = _enter(name, parent)
    except NotADirectoryError:
        os.unlink(name, dir_fd=parent)
        return []
    moved = []
    try:
        while names := _some_names(directory):
            for each in names:
                try:
                    with suppress(FileNotFoundError):  # the agent's process deleted it first
                        os.unlink(each, dir_fd=directory)
                except IsADirectoryError:
                    moved.append(f".deleting-{secrets.token_hex(16)}")
                    _rename(each, directory, moved[-1], parent)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)
    return moved


def _some_names(directory: int) -> list[str]:
    """Some names in an open directory; an agent may create more than fit into memory."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _NAMES_AT_ONCE)]


def _enter(name: str, parent: int) -> int:
    """Open a directory with full permissions. Raises `NotADirectoryError` for a link or anything else."""
    path = os.open(name, _PATH_FLAGS, dir_fd=parent)
    try:
        if os.fstat(path).st_mode & _OWNER_ONLY != _OWNER_ONLY:
            _take_permissions(path)
        return os.open(".", _DIRECTORY_FLAGS, dir_fd=path)
    finally:
        os.close(path)


def _rename(name: str, source: int, new_name: str, target: int) -> None:
    """Move an entry of one open directory into another."""
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:  # a directory can be moved only with write permission for it
        path = os.open(name, _PATH_FLAGS, dir_fd=source)
        try:
            _take_permissions(path)
        finally:
            os.close(path)
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def _take_permissions(path: int) -> None:
    """Give this user all permissions for an `O_PATH` descriptor, which fchmod(2) does not accept."""
    os.chmod(f"/proc/self/fd/{path}", _OWNER_ONLY)  # noqa: PTH101 - the link leads to what is open
