"""Finds the processes of this machine in `/proc`, and ends them by identity instead of by pid.

Every method reads the current process table. A process that cannot be read, because it has ended or belongs
to another user, is left out.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import anyio
from msgspec import Struct

from symphony.domain import Blame, Category, Failure
from symphony.processes.base import HostError, Identity
from symphony.processes.cgroups import RunGroups
from symphony.processes.supervisor_program import served_by

RUN_ID_VARIABLE = "SYMPHONY_RUN_ID"
INSTANCE_VARIABLE = "SYMPHONY_INSTANCE"

_KILL_WAIT_MS = 2_000
_FIRST_POLL_MS = 2
_SLOWEST_POLL_MS = 50
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x00200000
_ENDED_STATES = frozenset({b"Z", b"X", b"x"})
_READ_BYTES = 1024 * 1024


class ProcessTable:
    """The process table of this machine, with the members of `groups`.

    Raises:
        HostError: the file system at `proc` does not show this process under its own pid.
    """

    def __init__(self, *, proc: Path = Path("/proc"), groups: RunGroups | None = None) -> None:
        self._groups = groups
        self._fs = ProcFs(proc)
        try:
            self._boot_id = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            own = os.readlink(proc / "self")  # noqa: PTH115 - a pid
        except OSError as error:
            raise _no_proc(proc, f"cannot be read: {error.strerror}") from error
        if own != str(os.getpid()):
            raise _no_proc(proc, "is that of another PID namespace")

    def identify(self, pid: int) -> Identity | None:
        """Return the process that has this pid now, or None."""
        stat = self._fs.stat(pid)
        return None if stat is None else self._identity(pid, stat)

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs. A zombie has ended and only waits to be reaped."""
        stat = self._fs.stat(identity.pid)
        return stat is not None and not stat.ended and self._identity(identity.pid, stat) == identity

    def started_at(self, pid: int) -> datetime | None:
        """Return when a live process started, by the present wall clock; None for an unused pid."""
        stat, boot = self._fs.stat(pid), self._fs.boot_time()
        if stat is None or stat.ended or boot is None:
            return None
        return datetime.fromtimestamp(boot + stat.started_ticks / _TICKS_PER_S, UTC)

    def working_in(self, directory: Path) -> int | None:
        """Return the pid of a process whose current directory is this one or below it, or None."""
        for pid in self._fs.pids():
            cwd = self._fs.cwd(pid)
            if cwd is not None and cwd.is_relative_to(directory):
                return pid
        return None

    def serving(self, instance: str) -> Iterator[tuple[int, int]]:
        """Yield each subreaper of an instance, with the pid of its daemon.

        A subreaper differs from a supervisor in its session: it is in the session of the supervisor.
        """
        for pid in self._fs.pids():
            served = served_by(self._fs.command(pid))
            stat = None if served is None or served[1] != instance else self._fs.stat(pid)
            if served is not None and stat is not None and stat.session != pid:
                yield pid, served[0]

    def family(self, root: Identity, run_id: str | None = None) -> tuple[Identity, ...]:
        """Return the process, all processes of the run, and all descendants of both; the process first."""
        marked = () if run_id is None else self._marked_pids(RUN_ID_VARIABLE, [run_id])
        own = [root.pid] if self.identify(root.pid) == root else []
        return self._living(self._fs.with_descendants([*own, *marked]))

    def lineage(self, pid: int) -> tuple[Identity, ...]:
        """Return a live process and its ancestors, nearest first. A child cannot choose its ancestors."""
        return self._living([pid, *self._fs.ancestors(pid)])

    def marked(self, run_ids: Iterable[str]) -> tuple[Identity, ...]:
        """Return all live processes of this user in one of the runs, and all their descendants.

        A process is in a run if it carries the run id or is in the control group of the run.
        """
        return self._living(self._fs.with_descendants(self._marked_pids(RUN_ID_VARIABLE, run_ids)))

    def left_by(self, instance: str) -> tuple[Identity, ...]:
        """Return all live processes of this user that carry the mark of an instance, and their descendants.

        Subreapers and members of the instance's control groups count as marked. This process
        and its ancestors are left out: a daemon may be started from a session of its own predecessor.
        """
        spared = {os.getpid(), *self._fs.ancestors(os.getpid())}
        marked = self._marked_pids(INSTANCE_VARIABLE, [instance])
        grouped = () if self._groups is None else self._groups.members()
        serving = (pid for pid, _ in self.serving(instance))
        found = self._fs.with_descendants(pid for pid in (*marked, *grouped, *serving) if pid not in spared)
        return self._living(pid for pid in found if pid not in spared and self._is_own(pid))

    def adopted(self) -> tuple[int, ...]:
        """Return the pids of this process's children that are in another session: started ones and orphans.

        A process cannot return from its own session to this one, so other children are not among them.
        """
        found = []
        for pid in self._fs.adopted():
            with suppress(ProcessLookupError):
                if os.getsid(pid) != os.getsid(0):  # `/proc` may hide it
                    found.append(pid)
        return tuple(found)

    def families(self, pids: Iterable[int]) -> tuple[Identity, ...]:
        """Return these processes and their descendants, as far as this user may end them."""
        root = os.getuid() == 0
        return self._living(pid for pid in self._fs.with_descendants(pids) if root or self._is_own(pid))

    def group(self, group_id: int) -> tuple[Identity, ...]:
        """Return the live members of a process group."""
        members = []
        for pid in self._fs.pids():
            with suppress(OSError):
                if os.getpgid(pid) == group_id:
                    members.append(pid)
        return self._living(members)

    def send(self, number: int, targets: Iterable[Identity]) -> None:
        """Send a signal to those targets whose identity still matches; skip the others.

        Opens a pidfd first and compares identities then, so a pid that is reused in between is safe.
        """
        for target in targets:
            with suppress(OSError):
                pidfd = os.pidfd_open(target.pid)
                try:
                    if self.is_alive(target):
                        signal.pidfd_send_signal(pidfd, number)
                finally:
                    os.close(pidfd)

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        """Send SIGTERM, then SIGKILL after the grace, also to their control groups; return survivors."""
        self.send(signal.SIGTERM, targets)
        left = await self._wait_until_ended(targets, grace_ms)
        if left and self._groups is not None:
            self._groups.kill({one.pid for one in left})
        self.send(signal.SIGKILL, left)
        return await self._wait_until_ended(left, _KILL_WAIT_MS)

    async def _wait_until_ended(self, targets: Sequence[Identity], wait_ms: int) -> tuple[Identity, ...]:
        """Wait for the targets to end, at most `wait_ms`; return those still alive.

        Polls at growing intervals, because most targets are not children of this process.
        """
        pause_ms, waited_ms = _FIRST_POLL_MS, 0
        left = tuple(target for target in targets if self.is_alive(target))
        while left and waited_ms < wait_ms:
            await anyio.sleep(pause_ms / 1000)
            waited_ms += pause_ms
            pause_ms = min(pause_ms * 2, _SLOWEST_POLL_MS)
            left = tuple(target for target in left if self.is_alive(target))
        return left

    def _marked_pids(self, variable: str, values: Iterable[str]) -> list[int]:
        wanted = frozenset(values)
        if not wanted:
            return []
        marked = self._fs.marked(variable, wanted)
        grouped = self._groups.members(wanted) if self._groups and variable == RUN_ID_VARIABLE else ()
        own = os.getpid()
        return [pid for pid in (*marked, *grouped) if pid != own and self._is_own(pid)]

    def _living(self, pids: Iterable[int]) -> tuple[Identity, ...]:
        stats = ((pid, self._fs.stat(pid)) for pid in pids)
        return tuple(self._identity(pid, stat) for pid, stat in stats if stat is not None and not stat.ended)

    def _identity(self, pid: int, stat: "Stat") -> Identity:
        return Identity(boot_id=self._boot_id, pid=pid, started=stat.started_ticks / _TICKS_PER_S)

    def _is_own(self, pid: int) -> bool:
        return self._fs.real_user(pid) == os.getuid()


def _no_proc(proc: Path, problem: str) -> HostError:
    return HostError(
        Failure(
            category=Category.COMMAND,
            blame=Blame.HOST,
            message=f"{proc} {problem}",
            retryable=False,
            hint=f"Symphony needs Linux with a proc file system of its own PID namespace mounted at {proc}",
        )
    )


class Stat(Struct, frozen=True):
    """The fields of `/proc/<pid>/stat` that are used; `started_ticks` counts from the boot."""

    parent: int
    session: int
    started_ticks: int
    ended: bool
    kernel: bool


class ProcFs:
    """One mounted `proc` file system. Whatever cannot be read counts as absent.

    `marked` remembers the environment variables that it has read. Reading the environment of every process
    each time took most of the daemon's processor time when sessions were short. A process keeps the mark it
    was started with; a reused pid has a directory with another inode.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._marks: dict[str, dict[int, tuple[int, str | None]]] = {}
        # Some kernels lack CONFIG_PROC_CHILDREN.
        self._lists_children = os.path.exists(f"{self._root}/thread-self/children")  # noqa: PTH110 - as below

    def pids(self) -> list[int]:
        """Return all pids in use."""
        return [pid for pid, _ in self._listing()]

    def stat(self, pid: int) -> Stat | None:
        """Return the state of a process, or None."""
        try:
            text = _read(f"{self._root}/{pid}/stat")
        except OSError:
            return None
        fields = text[text.rindex(b")") + 2 :].split()  # the name before it may contain brackets and blanks
        return Stat(
            parent=int(fields[1]),
            session=int(fields[3]),
            started_ticks=int(fields[19]),
            ended=fields[0] in _ENDED_STATES,
            kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        )

    def boot_time(self) -> int | None:
        """Return the time of the boot in Unix seconds, or None."""
        try:
            return int(_read(f"{self._root}/stat").partition(b"\nbtime ")[2].split(maxsplit=1)[0])
        except (OSError, IndexError, ValueError):
            return None

    def real_user(self, pid: int) -> int | None:
        """Return the id of the user who started a process, or None."""
        try:
            status = _read(f"{self._root}/{pid}/status")
        except OSError:
            return None
        return int(status.partition(b"\nUid:\t")[2].split(maxsplit=1)[0])

    def command(self, pid: int) -> tuple[str, ...]:
        """Return the words of the command line; empty if they cannot be read."""
        try:
            return tuple(map(os.fsdecode, _read(f"{self._root}/{pid}/cmdline").split(b"\0")[:-1]))
        except OSError:
            return ()

    def cwd(self, pid: int) -> Path | None:
        """Return the current directory of a process, or None."""
        try:
            return Path(os.readlink(f"{self._root}/{pid}/cwd"))  # noqa: PTH115 - asked for every process
        except OSError:
            return None

    def ancestors(self, pid: int) -> list[int]:
        """Return the ancestors of a process, nearest first."""
        found: list[int] = []
        while (stat := self.stat(found[-1] if found else pid)) is not None and stat.parent > 0:
            found.append(stat.parent)
        return found

    def children(self, pid: int) -> list[int]:
        """Return the children of a process, including those that have ended and were not reaped."""
        return self._children_lookup()(pid)

    def adopted(self) -> list[int]:
        """Return the children of this process's first thread: the kernel gives orphans to that one."""
        pid = os.getpid()
        return self._thread_children(pid, pid) if self._lists_children else self.children(pid)

    def with_descendants(self, pids: Iterable[int]) -> list[int]:
        """Return these processes and all their descendants, each once, the given ones first."""
        children = self._children_lookup()
        found = dict.fromkeys(pids)
        pending = list(found)
        while pending:
            new = [child for child in children(pending.pop()) if child not in found]
            found.update(dict.fromkeys(new))
            pending += new
        return list(found)

    def marked(self, variable: str, values: Collection[str]) -> list[int]:
        """Return the pids of processes that were started with the variable at one of these values."""
        known, current = self._marks.get(variable, {}), {}
        for pid, inode in self._listing():
            entry = known.get(pid)
            if entry is None or entry[0] != inode:
                entry = self._read_mark(pid, inode, variable)
            if entry is not None:
                current[pid] = entry
        self._marks[variable] = current
        return [pid for pid, (_, value) in current.items() if value in values]

    def _read_mark(self, pid: int, inode: int, variable: str) -> tuple[int, str | None] | None:
        """Return the entry to remember; None for a process whose environment may still change.

        The environment is empty in the middle of an `exec`. It also changes for a child of this process or of
        a subreaper between `fork` and `exec`. Kernel threads have no environment; subreapers, whose parent
        leads their session, never execute anything.
        """
        supervising = served_by(self.command(pid)) is not None  # read first: it may execute at any moment
        try:
            environ = _read(f"{self._root}/{pid}/environ")
        except OSError:
            environ = b""
        _, found, rest = (b"\0" + environ).partition(b"\0" + os.fsencode(variable) + b"=")
        if found:
            return inode, os.fsdecode(rest.partition(b"\0")[0])
        stat = self.stat(pid)
        if stat is None:
            return None
        if supervising:
            settled = stat.parent == stat.session
        else:
            settled = stat.parent != os.getpid() if environ else stat.kernel
        return (inode, None) if settled else None

    def _children_lookup(self) -> Callable[[int], list[int]]:
        if self._lists_children:
            return self._listed_children
        by_parent: defaultdict[int, list[int]] = defaultdict(list)
        for pid in self.pids():
            if (stat := self.stat(pid)) is not None:
                by_parent[stat.parent].append(pid)
        return lambda pid: by_parent[pid]

    def _listed_children(self, pid: int) -> list[int]:
        """Return the children of all threads of a process."""
        found: list[int] = []
        with suppress(OSError):
            for thread in os.listdir(f"{self._root}/{pid}/task"):  # noqa: PTH208 - asked for every process
                found += self._thread_children(pid, thread)
        return found

    def _thread_children(self, pid: int, thread: int | str) -> list[int]:
        try:
            return list(map(int, _read(f"{self._root}/{pid}/task/{thread}/children").split()))
        except OSError:
            return []

    def _listing(self) -> list[tuple[int, int]]:
        """Return pid and inode of every process."""
        with os.scandir(self._root) as entries:
            return [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdecimal()]


def _read(path: str) -> bytes:
    """Return the content of a file in `/proc`. The kernel limits what a process can put there.

    Raises `OSError`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(fd, _READ_BYTES)]
        while pieces[-1]:
            pieces.append(os.read(fd, _READ_BYTES))
    finally:
        os.close(fd)
    return b"".join(pieces)
