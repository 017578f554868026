"""The process table as Linux shows it in `/proc`, read with as few system calls as will do.

Ending a session asks twice who belongs to it. Reading every process's environment each time took most of the
daemon's processor time when many sessions were short, so what cannot change is remembered: a process that has
been seen with a mark keeps it, and one without keeps being without: but for our own children, which have our
environment between `fork` and `exec`, and the mark only then. A number that is used again is another
process, and its directory has another inode, which listing `/proc` tells for nothing.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcFs", "Stat"]

_KERNEL_THREAD = 0x00200000
_MAX_BYTES = 1024 * 1024
_ENDED = frozenset({b"Z", b"X", b"x"})


@dataclass(frozen=True, slots=True)
class Stat:
    """What `/proc/<pid>/stat` tells; `started_ticks` are those from the boot to the start."""

    parent: int
    session: int
    started_ticks: int
    ended: bool
    kernel: bool


class ProcFs:
    """One mounted `proc` file system. Whatever cannot be read is as if it were not there."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._known: dict[bytes, dict[int, tuple[int, bytes | None]]] = {}

    def mounted(self) -> bool:
        """Whether there is one at all."""
        return os.path.exists(f"{self._root}/self/stat")  # noqa: PTH110 - asked for every process

    def stat(self, pid: int) -> Stat | None:
        """The state of a process; null when there is none of this number.

        Raises:
            OSError: it cannot be read.
        """
        try:
            text = _read(f"{self._root}/{pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = text[text.rindex(b")") + 2 :].split()
        return Stat(
            parent=int(fields[1]),
            session=int(fields[3]),
            started_ticks=int(fields[19]),
            ended=fields[0] in _ENDED,
            kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        )

    def pids(self) -> list[int]:
        """Every number that somebody has."""
        return [pid for pid, _ in self._listing()]

    def real_user(self, pid: int) -> int | None:
        """The number of the user who started a process; null when that cannot be read."""
        try:
            status = _read(f"{self._root}/{pid}/status")
        except OSError:
            return None
        return int(status.partition(b"\nUid:\t")[2].split(maxsplit=1)[0])

    def command(self, pid: int) -> tuple[str, ...]:
        """The words of its command line; none where they cannot be read."""
        try:
            return tuple(map(os.fsdecode, _read(f"{self._root}/{pid}/cmdline").split(b"\0")[:-1]))
        except OSError:
            return ()

    def children(self, pid: int) -> list[int]:
        """The children of a process, those that have ended and were not reaped included."""
        found = self._children(pid)
        return [child for child in self.pids() if self._parent(child) == pid] if found is None else found

    def _parent(self, pid: int) -> int | None:
        try:
            stat = self.stat(pid)
        except OSError:
            return None
        return None if stat is None else stat.parent

    def below(self, pid: int) -> list[int] | None:
        """Every descendant of a process, parents first; null where this kernel does not list children."""
        found: list[int] = []
        pending = [pid]
        while pending:
            children = self._children(pending.pop())
            if children is None:
                return None
            found += children
            pending += children
        return found

    def marked(self, name: str, values: Collection[str]) -> Iterator[int]:
        """Processes that were started with the variable `name` at one of these values."""
        wanted = {os.fsencode(value) for value in values}
        key = os.fsencode(name) + b"="
        seen: dict[int, tuple[int, bytes | None]] = {}
        before = self._known.get(key, {})
        for pid, inode in self._listing():
            known = before.get(pid)
            if known is None or known[0] != inode:
                known = self._mark(pid, inode, key)
            if known is not None:
                seen[pid] = known
                if known[1] in wanted:
                    yield pid
        self._known[key] = seen

    def _listing(self) -> list[tuple[int, int]]:
        with os.scandir(self._root) as entries:
            return [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdecimal()]

    def _mark(self, pid: int, inode: int, key: bytes) -> tuple[int, bytes | None] | None:
        """The mark of a process; null where it is not settled: unreadable, or in the middle of an `exec`."""
        try:
            block = _read(f"{self._root}/{pid}/environ")
        except OSError:  # some kernels say of their own threads that there is no such process
            block = b""
        _, found, rest = (b"\0" + block).partition(b"\0" + key)
        if found:
            return inode, rest.partition(b"\0")[0]
        return (inode, None) if self._stays_unmarked(pid, empty=not block) else None

    def _stays_unmarked(self, pid: int, *, empty: bool) -> bool:
        try:
            stat = self.stat(pid)
        except OSError:
            return False
        return stat is not None and (stat.kernel if empty else stat.parent != os.getpid())

    def _children(self, pid: int) -> list[int] | None:
        """Children of all threads of a process; null where the kernel does not tell."""
        found: list[int] = []
        try:
            threads = os.listdir(f"{self._root}/{pid}/task")  # noqa: PTH208 - names are all that is needed
        except OSError:
            return []
        for thread in threads:
            try:
                found += map(int, _read(f"{self._root}/{pid}/task/{thread}/children").split())
            except (FileNotFoundError, ProcessLookupError):
                if os.path.exists(f"{self._root}/{pid}/task/{thread}"):  # noqa: PTH110 - as above
                    return None
        return found


def _read(path: str) -> bytes:
    """All of a file of `/proc`: what a single process can put there is bounded. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(fd, _MAX_BYTES)]
        while pieces[-1]:
            pieces.append(os.read(fd, _MAX_BYTES))
    finally:
        os.close(fd)
    return b"".join(pieces)
