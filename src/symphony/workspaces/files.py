"""Plain file operations on this machine, all in one place and all blocking; callers run them in a thread.

What an agent may have written is read without following a link at its end, without waiting on a named pipe,
and only up to a limit.
"""

import errno
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import BinaryIO

_OWNER_ONLY = 0o700
MOST_ENTRIES = 200_000
_DEEPEST = 64
_AT_ONCE = 10_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DRAFT = ".new-"
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""What opening says of nothing, of a link, and of a socket."""
_LONGEST_LINE = 8_192
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def read_regular(path: Path, limit: int) -> bytes | None:
    """The content of a regular file of at most `limit` bytes; null for anything else."""
    found = _read(path, limit)
    return None if found is None else found[0]


def read_if_there(path: Path, limit: int) -> bytes | None:
    """`read_regular`, but raises `OSError` where something is there and cannot be read."""
    try:
        return read_present(path, limit)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise


def read_present(path: Path, limit: int) -> bytes | None:
    """`read_regular` of what has to be there: raises `OSError` where nothing can be opened."""
    found = _content(_open(path), limit)
    return None if found is None else found[0]


def copy_regular(source: Path, target: Path, limit: int) -> bool:
    """Copy a regular file with its modification time, in pieces; false where there is none.

    git compares the time of an index with those of the files in it, so a fresh time would hide edits.
    Raises `OSError`: it cannot be read, or is larger than `limit` bytes.
    """
    opened = _open_regular(source, limit)
    if opened is None:
        return False
    with opened as content:
        info = os.fstat(content.fileno())
        with target.open("wb") as copy:
            left = info.st_size
            while left and (count := os.sendfile(copy.fileno(), content.fileno(), None, left)):
                left -= count
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
    return True


def lines_of(path: Path, limit: int) -> Iterator[bytes]:
    """The lines of a regular file, each as it is read; none where there is none.

    Raises `OSError`: it cannot be read, or is larger than `limit` bytes.
    """
    opened = _open_regular(path, limit)
    if opened is None:
        return
    with opened as content:
        while line := content.readline(_LONGEST_LINE):
            yield line


def create(path: Path, data: bytes) -> bool:
    """As `write_atomic`, but False, with nothing done, where the name is taken."""
    try:
        write_atomic(path, data, new=True)
    except FileExistsError:
        return False
    return True


def write_atomic(path: Path, data: bytes, *, new: bool = False) -> None:
    """Replace a file as a whole: a reader sees the old content or the new one, also after a crash.

    With `new` it is made and replaces nothing: raises `FileExistsError`.
    """
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=_DRAFT)
    try:
        try:
            _write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        if new:
            _take_name(path, Path(name))
        else:
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


def is_missing(path: Path) -> bool:
    """Whether there is surely nothing; of a place that cannot be looked at nobody knows."""
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


def move_aside(path: Path, trash: Path) -> Path:
    """Take something out of its place in one step; where it is then, in a directory of its own.

    Raises `OSError`.
    """
    make_directory(trash)
    moved = Path(tempfile.mkdtemp(dir=trash), "tree")
    source, target = os.open(path.parent, _OURS), os.open(moved.parent, _OURS)
    try:
        _move(path.name, source, moved.name, target)
    finally:
        os.close(source)
        os.close(target)
    return moved


def delete_tree(path: Path) -> None:
    """Delete a tree, whatever is in it, also while an agent's process goes on in it. Raises `OSError`.

    Every directory is opened without following a link and is emptied by its descriptor, so nothing outside
    is touched, whatever is renamed or linked meanwhile; of a link only the link itself goes. The directories
    in it are first renamed to stand beside the tree, where an agent that can write in the tree only reaches
    no name, and where any depth is as good as none. What is mounted in the tree cannot be renamed and is not
    entered: it ends the deletion with an error.
    """
    beside = os.open(path.parent, _OURS)
    pending = [path.name]
    try:
        while pending:
            pending += _unpack(pending.pop(), beside)
    finally:
        os.close(beside)


def _unpack(name: str, beside: int) -> list[str]:
    """Delete one entry of a directory; the names of the directories that were in it and now stand beside."""
    try:
        directory = _enter(name, beside)
    except NotADirectoryError:
        os.unlink(name, dir_fd=beside)
        return []
    lifted = []
    try:
        while names := _some_names(directory):
            for each in names:
                try:
                    with suppress(FileNotFoundError):  # an agent's process was faster
                        os.unlink(each, dir_fd=directory)
                except IsADirectoryError:
                    lifted.append(f".deleting-{secrets.token_hex(16)}")
                    _move(each, directory, lifted[-1], beside)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=beside)
    return lifted


def _enter(name: str, parent: int) -> int:
    """Open a real directory, with all rights to it. Raises `NotADirectoryError` for anything else."""
    place = os.open(name, _PLACE, dir_fd=parent)
    try:
        if os.fstat(place).st_mode & _OWNER_ONLY != _OWNER_ONLY:
            _own(place)
        return os.open(".", _DIRECTORY, dir_fd=place)
    finally:
        os.close(place)


def _move(name: str, source: int, new: str, target: int) -> None:
    """Rename what is in one open directory into another."""
    try:
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:  # nobody moves a directory in which they may not write
        place = os.open(name, _PLACE, dir_fd=source)
        try:
            _own(place)
        finally:
            os.close(place)
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)


def _own(place: int) -> None:
    """Take all rights to an open directory; one that could not be opened to be read can be changed too."""
    os.chmod(f"/proc/self/fd/{place}", _OWNER_ONLY)  # noqa: PTH101 - the link leads to what is open


def _some_names(directory: int) -> list[str]:
    """Some names in an open directory, none where it is empty: an agent makes more than memory holds."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _AT_ONCE)]


def entries_below(top: Path, *, into: str | None = None) -> Iterator[tuple[int, str]]:
    """Every entry below a directory: a descriptor of the directory that it is in, and its path below `top`.

    No link is followed, whatever is put in its place meanwhile. Of the directories in `top` only `into` is
    entered, if that is given. Nothing where there is no real directory. Raises `OSError`: one cannot be read,
    is nested deeper than 64 levels, or there are more than 200,000 entries.
    """
    try:
        directory = os.open(top, _DIRECTORY)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return
        raise
    for number, found in enumerate(_entries(directory, "", into, _DEEPEST)):
        if number >= MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {MOST_ENTRIES} entries", str(top))
        yield found


def _entries(directory: int, above: str, into: str | None, levels: int) -> Iterator[tuple[int, str]]:
    """As `entries_below`, of an open directory, which is closed in the end."""
    try:
        if levels == 0:
            raise OSError(errno.ELOOP, f"nested deeper than {_DEEPEST} levels", above)
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{above}{entry.name}"
                yield directory, path
                if entry.is_dir(follow_symlinks=False) and into in {None, entry.name}:
                    inner = _inner(entry.name, directory, path)
                    yield from _entries(inner, f"{path}/", None, levels - 1)
    finally:
        os.close(directory)


def _inner(name: str, directory: int, path: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def make_read_only(root: Path) -> None:
    """Take the right to write from a tree of our own; what could be executed still can. Raises `OSError`."""
    for path in (*(Path(entry.path) for entry in _walk(root, MOST_ENTRIES)), root):
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
                delete_tree(entry)
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
    for entry in islice(_walk(root, max_entries), max_entries):
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


def _open_regular(path: Path, limit: int) -> BinaryIO | None:
    """A regular file, to be read in pieces; null where there is none. Raises `OSError`, also if too large."""
    try:
        fd = _open(path)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_size <= limit:
        return os.fdopen(fd, "rb")
    os.close(fd)
    if stat.S_ISREG(info.st_mode):
        raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
    return None


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


def _take_name(path: Path, draft: Path) -> None:
    """Give a draft its name if that is free; without hard links an empty file claims it first."""
    try:
        path.hardlink_to(draft)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        draft.replace(path)
    else:
        draft.unlink()


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _walk(root: Path, most: int) -> Iterator[os.DirEntry[str]]:
    """Everything below, in an order that depends on names alone; without recursion, as trees may be deep.

    Of one directory at most `most` entries. Of what kind an entry is was told with its name: nothing is asked
    of the disk for each.
    """
    pending = [os.fspath(root)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                found = nsmallest(most, entries, key=lambda entry: entry.name)
            trees = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        yield from (entry for entry in found if entry.name != ".git" or entry not in trees)
        pending += [entry.path for entry in trees if entry.name != ".git"]
