"""Facts about the processes of this machine, and ending them by identity instead of by number or name.

Every question is answered from the process table at that moment. A process that cannot be read (gone, or
another user's) is left out: it is none of ours.
"""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import anyio
import psutil

from symphony.hosts.base import Identity

__all__ = ["RUN_ID_VARIABLE", "ProcessTable"]

RUN_ID_VARIABLE = "SYMPHONY_RUN_ID"

_PROC = Path("/proc")
_KILL_WAIT_MS = 2_000
_FIRST_LOOK_MS = 2
_SLOWEST_LOOK_MS = 50
_UNREADABLE = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, OSError)


class ProcessTable:
    """The process table of this machine, read on demand."""

    def __init__(self, *, proc: Path = _PROC) -> None:
        self._proc = proc
        self._boot_id = self._read_boot_id()

    def identify(self, pid: int) -> Identity | None:
        """Who has this number now; null when nobody has."""
        try:
            return Identity(boot_id=self._boot_id, pid=pid, started=self._started(pid))
        except _UNREADABLE:
            return None

    def alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs. A zombie has ended and only waits to be reaped."""
        if self.identify(identity.pid) != identity:
            return False
        try:
            return psutil.Process(identity.pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        except _UNREADABLE:
            return False

    def family(self, pid: int, run_id: str | None = None) -> tuple[Identity, ...]:
        """The process, all below it, and all that carry the run id with all below them; the process first."""
        pids = dict.fromkeys([pid, *_below(pid)])
        for marked in self._marked_pids([] if run_id is None else [run_id]):
            pids.update(dict.fromkeys([marked, *_below(marked)]))
        return self._living(pids)

    def marked(self, run_ids: Iterable[str]) -> tuple[Identity, ...]:
        """Every live process of this user whose environment carries one of the run ids."""
        return self._living(self._marked_pids(run_ids))

    def group(self, group_id: int) -> tuple[Identity, ...]:
        """The live members of a process group."""
        return self._living(pid for pid in psutil.pids() if _group_of(pid) == group_id)

    def send(self, number: int, targets: Iterable[Identity]) -> None:
        """Send a signal to those that still are who they were; the others are skipped silently."""
        for target in targets:
            if self.alive(target):
                _send(number, target.pid)

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        """SIGTERM, then SIGKILL after the grace; returns those that survived even that."""
        self.send(signal.SIGTERM, targets)
        left = await self._outlasted(targets, grace_ms)
        self.send(signal.SIGKILL, left)
        return await self._outlasted(left, _KILL_WAIT_MS)

    async def _outlasted(self, targets: Sequence[Identity], wait_ms: int) -> tuple[Identity, ...]:
        """Those still alive after the wait; returns as soon as none is.

        Looking again and again, at growing distance, because most of them are not our children.
        """
        pause_ms, waited_ms = _FIRST_LOOK_MS, 0
        left = tuple(target for target in targets if self.alive(target))
        while left and waited_ms < wait_ms:
            await anyio.sleep(pause_ms / 1000)
            waited_ms += pause_ms
            pause_ms = min(pause_ms * 2, _SLOWEST_LOOK_MS)
            left = tuple(target for target in left if self.alive(target))
        return left

    def _marked_pids(self, run_ids: Iterable[str]) -> Iterator[int]:
        wanted = frozenset(run_ids)
        own = os.getpid()
        for pid in psutil.pids() if wanted else ():
            if pid != own and _run_id(pid) in wanted:
                yield pid

    def _living(self, pids: Iterable[int]) -> tuple[Identity, ...]:
        found = (self.identify(pid) for pid in pids)
        return tuple(identity for identity in found if identity is not None and self.alive(identity))

    def _started(self, pid: int) -> float:
        """Seconds from boot to the start of the process.

        Not `psutil.create_time`: that one adds the wall-clock time of the boot, which moves when the clock is
        set, and then a process that was never restarted would look like another one.
        """
        try:
            stat = (self._proc / str(pid) / "stat").read_bytes()
        except FileNotFoundError:
            return psutil.Process(pid).create_time()
        fields_after_name = stat[stat.rindex(b")") + 2 :].split()
        return int(fields_after_name[19]) / os.sysconf("SC_CLK_TCK")

    def _read_boot_id(self) -> str:
        try:
            return (self._proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return str(psutil.boot_time())


def _below(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except _UNREADABLE:
        return []


def _run_id(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        return process.environ().get(RUN_ID_VARIABLE) if process.uids().real == os.getuid() else None
    except _UNREADABLE:
        return None


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _send(number: int, pid: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
