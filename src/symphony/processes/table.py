"""Facts about the processes of this machine, and ending them by identity instead of by number or name.

Every question is answered from the process table at that moment. A process that cannot be read (gone, or
another user's) is left out: it is none of ours.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import anyio

from symphony.processes.base import Identity
from symphony.processes.cgroups import RunGroups

# The process table as Linux shows it in `/proc`, read with as few system calls as will do.
#
# Ending a session asks twice who belongs to it. Reading every process's environment each time took most of
# the daemon's processor time when many sessions were short, so what cannot change is remembered: a process
# that has been seen with a mark keeps it, and one without keeps being without: but for our own children,
# which have our environment between `fork` and `exec`, and the mark only then. A number that is used again
# is another process, and its directory has another inode, which listing `/proc` tells for nothing.


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


RUN_ID_VARIABLE = "SYMPHONY_RUN_ID"
INSTANCE_VARIABLE = "SYMPHONY_INSTANCE"

_PROC = Path("/proc")
_KILL_WAIT_MS = 2_000
_FIRST_LOOK_MS = 2
_SLOWEST_LOOK_MS = 50
_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessTable:
    """The process table of this machine, read on demand; by psutil where there is no `/proc`."""

    def __init__(self, *, proc: Path = _PROC, groups: RunGroups | None = None) -> None:
        self._proc = proc
        self._groups = groups
        self._fs = ProcFs(proc)
        self._boot_id = self._read_boot_id()

    def identify(self, pid: int) -> Identity | None:
        """Who has this number now; null when nobody has."""
        found = self._look(pid)
        return None if found is None else found[0]

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs. A zombie has ended and only waits to be reaped."""
        found = self._look(identity.pid)
        return found is not None and found[0] == identity and not found[1]

    def family(self, pid: int, run_id: str | None = None) -> tuple[Identity, ...]:
        """The process, all below it, and all of the run with all below them; the process first."""
        marked = self._with_all_below(self._marked_pids([] if run_id is None else [run_id]))
        return self._living(dict.fromkeys([pid, *self._below(pid), *marked]))

    def lineage(self, pid: int) -> tuple[Identity, ...]:
        """Who lives of a process and those above it, nearest first: a child cannot choose its parents."""
        return self._living([pid, *self._above(pid)])

    def marked(self, run_ids: Iterable[str]) -> tuple[Identity, ...]:
        """Every live process of this user that carries one of the run ids or is in the group of one.

        With them all that is below each, whatever it carries.
        """
        return self._living(self._with_all_below(self._marked_pids(run_ids)))

    def left_by(self, instance: str) -> tuple[Identity, ...]:
        """Every live process of this user that carries the mark of an instance, and all below each.

        What is in the control group of a run counts as marked.
        Never this process nor one above it: a daemon may be started from a session of its own predecessor.
        """
        spared = {os.getpid(), *self._above(os.getpid())}
        grouped = () if self._groups is None else self._groups.members()
        marked = (*self._marked_pids([instance], INSTANCE_VARIABLE), *grouped)
        pids = self._with_all_below(pid for pid in marked if pid not in spared)
        return self._living(pid for pid in pids if pid not in spared and self._is_ours(pid))

    def adopted(self) -> tuple[int, ...]:
        """Our children that are in another session than we are: those of `child.start`, and orphans.

        Nobody who is in a session of its own comes back to ours, so what others start here is not among them.
        """
        session, found = os.getsid(0), []
        for pid in self._fs.children(os.getpid()):
            with suppress(OSError):
                stat = self._fs.stat(pid)
                if stat is not None and stat.session != session:
                    found.append(pid)
        return tuple(found)

    def command(self, pid: int) -> tuple[str, ...]:
        """The command line of a process; empty where it cannot be read."""
        return self._fs.command(pid)

    def families(self, pids: Iterable[int]) -> tuple[Identity, ...]:
        """Who lives of these processes of ours and of all below them; for root everybody's are its own."""
        everybody = os.getuid() == 0
        found = self._with_all_below(pids)
        return self._living(pid for pid in found if everybody or self._is_ours(pid))

    def group(self, group_id: int) -> tuple[Identity, ...]:
        """The live members of a process group."""
        return self._living(pid for pid in self._pids() if _group_of(pid) == group_id)

    def send(self, number: int, targets: Iterable[Identity]) -> None:
        """Send a signal to those that still are who they were; the others are skipped silently.

        Where there are pidfds the process is held first and then looked at, so that a number that passes to
        somebody else in between is no danger.
        """
        for target in targets:
            with suppress(OSError), _held(target.pid) as deliver:
                if self.is_alive(target):
                    deliver(number)

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        """SIGTERM, then SIGKILL after the grace, to their control groups too; returns those that survived."""
        self.send(signal.SIGTERM, targets)
        left = await self._outlasted(targets, grace_ms)
        if left and self._groups is not None:
            self._groups.kill({one.pid for one in left})
        self.send(signal.SIGKILL, left)
        return await self._outlasted(left, _KILL_WAIT_MS)

    async def _outlasted(self, targets: Sequence[Identity], wait_ms: int) -> tuple[Identity, ...]:
        """Those still alive after the wait; returns as soon as none is.

        Looking again and again, at growing distance, because most of them are not our children.
        """
        pause_ms, waited_ms = _FIRST_LOOK_MS, 0
        left = tuple(target for target in targets if self.is_alive(target))
        while left and waited_ms < wait_ms:
            await anyio.sleep(pause_ms / 1000)
            waited_ms += pause_ms
            pause_ms = min(pause_ms * 2, _SLOWEST_LOOK_MS)
            left = tuple(target for target in left if self.is_alive(target))
        return left

    def _marked_pids(self, values: Iterable[str], name: str = RUN_ID_VARIABLE) -> Iterator[int]:
        wanted = frozenset(values)
        if not wanted:
            return
        if self._fs.mounted():
            pids = self._fs.marked(name, wanted)
        else:
            table = _portable()
            pids = (pid for pid in table.pids() if table.variable(pid, name) in wanted)
        grouped = self._groups.members(wanted) if self._groups and name == RUN_ID_VARIABLE else ()
        own = os.getpid()
        yield from (pid for pid in (*pids, *grouped) if pid != own and self._is_ours(pid))

    def _living(self, pids: Iterable[int]) -> tuple[Identity, ...]:
        found = (self._look(pid) for pid in pids)
        return tuple(one[0] for one in found if one is not None and not one[1])

    def _with_all_below(self, pids: Iterable[int]) -> dict[int, None]:
        """These and all below each, without repetition."""
        return dict.fromkeys(found for pid in pids for found in (pid, *self._below(pid)))

    def _below(self, pid: int) -> list[int]:
        below = self._fs.below(pid) if self._fs.mounted() else None
        found: list[int] = _portable().children(pid) if below is None else below
        return found

    def _above(self, pid: int) -> list[int]:
        """The ancestors of a process, nearest first."""
        if not self._fs.mounted():
            above: list[int] = _portable().parents(pid)
            return above
        found: list[int] = []
        with suppress(OSError):
            while (stat := self._fs.stat(found[-1] if found else pid)) is not None and stat.parent > 0:
                found.append(stat.parent)
        return found

    def _look(self, pid: int) -> tuple[Identity, bool] | None:
        """Who has this number, and whether it has ended; null when nobody has it."""
        try:
            stat = self._fs.stat(pid)
        except OSError:
            return None
        if stat is not None:
            # Not psutil's time of creation: that one adds the wall-clock time of the boot, which moves when
            # the clock is set, and then a process that was never restarted would look like another one.
            started, ended = stat.started_ticks / _TICKS, stat.ended
        elif not self._fs.mounted() and (found := _portable().look(pid)) is not None:
            started, ended = found
        else:
            return None
        return Identity(boot_id=self._boot_id, pid=pid, started=started), ended

    def _read_boot_id(self) -> str:
        try:
            return (self._proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return str(_portable().boot_time())

    def _pids(self) -> list[int]:
        found: list[int] = self._fs.pids() if self._fs.mounted() else _portable().pids()
        return found

    def _is_ours(self, pid: int) -> bool:
        user = self._fs.real_user(pid) if self._fs.mounted() else _portable().real_user(pid)
        return user == os.getuid()


def _portable() -> ModuleType:
    from symphony.processes import portable  # noqa: PLC0415 - psutil is not loaded where there is `/proc`

    return portable


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


@contextmanager
def _held(pid: int) -> Iterator[Callable[[int], None]]:
    """A way to signal whoever has this number now, and nobody who gets it later. Raises `OSError`."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        yield lambda number: os.kill(pid, number)
        return
    fd = os.pidfd_open(pid)
    try:
        yield lambda number: signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)
