"""The `Host` protocol: run a command, spawn a process, find and end processes by identity.

A host is a machine (this one; later others over SSH). What needs the file system of a workspace goes through
commands or the few file operations here, so that a workspace may live on another machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a process is: a pid alone may be reused, a pid with its start time and boot may not.

    `started` is the process start time in seconds as the host reports it; only equality counts.
    """

    boot_id: str
    pid: int
    started: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended. `timed_out` means that its whole process group was ended at the deadline.

    `stdout` and `stderr` are cut at the output limit; `exit_code` is negative for a signal.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


class HostProcess(Protocol):
    """A running child with pipes for stdin and stdout, stderr in a file, in a session of its own."""

    @property
    def identity(self) -> Identity:
        """Who the child is."""
        ...

    @property
    def exit_code(self) -> int | None:
        """The exit code once the child has been reaped, else null."""
        ...

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Next bytes of stdout; `b""` at its end. Safe to cancel: no byte is lost."""
        ...

    async def send(self, data: bytes) -> None:
        """Write to stdin. Raises `BrokenPipeError` when the child has closed it or is gone."""
        ...

    async def close_stdin(self) -> None:
        """Close stdin; harmless when it is closed."""
        ...

    async def wait(self) -> int:
        """Wait for the child to end and return its exit code."""
        ...

    def descendants(self) -> tuple[Identity, ...]:
        """Every process below the child or marked with its run id, the child first.

        Record them before any signal: tool shells leave the process group, and a dead parent hides them.
        """
        ...

    def offspring(self) -> tuple[Identity, ...]:
        """The child and every process below it, which costs far less to find than those that left it."""
        ...

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        """Send a signal to those of `targets` that still are who they were."""
        ...


class Host(Protocol):
    """One machine on which commands, hooks and agents run."""

    @property
    def name(self) -> str:
        """How the host is called in logs and the API; `local` for this machine."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str],
        timeout_ms: int,
        stdin: bytes = b"",
        max_output_bytes: int = 1_048_576,
        supervised: bool = True,
    ) -> Completed:
        """Run a command in its own process group and wait; nothing of the group outlives this call.

        Output past the limit is read and dropped. On cancellation the group is ended too.
        Where the host has a subreaper, a `supervised` command and everything it started end with this
        process. Pass False for a short command that leaves nothing behind: the subreaper costs some 20 ms.

        Raises:
            FileNotFoundError: the program or `cwd` does not exist.
            OSError: the process could not be started.
        """
        ...

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stderr_path: Path,
    ) -> HostProcess:
        """Start a long-lived child in a session of its own. Raises as `run` does.

        Where the host can see to that, it is killed when we die, and nothing that it started outlives it.
        """
        ...

    def find_marked(self, run_ids: Sequence[str]) -> tuple[Identity, ...]:
        """Every live process of this user whose environment carries `SYMPHONY_RUN_ID` of one of the runs.

        With them all that is below each, whatever their environment.
        """
        ...

    def find_survivors(self) -> tuple[Identity, ...]:
        """What an earlier daemon of our instance left running, with everything below it.

        Only processes of this user, and never this process or one above it. Our own children carry the same
        mark: ask before the first one is started.
        """
        ...

    def find_running_daemon(self) -> Identity | None:
        """Another living daemon of our instance: the parent of a subreaper that carries our mark."""
        ...

    def identify(self, pid: int) -> Identity | None:
        """Who has this process number now; null when nobody has."""
        ...

    def lineage(self, pid: int) -> tuple[Identity, ...]:
        """A process and those above it, nearest first; empty when nobody has this number."""
        ...

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        ...

    async def end_orphans(self) -> int:
        """End and reap what lost all that stood between it and us; returns how many were found alive.

        That is nobody of a session that lives: see `hosts.subreaper`.
        """
        ...

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        """SIGTERM, then SIGKILL after the grace; returns those that survived even that."""
        ...
