"""The `Host` protocol: run a command, spawn a process, find and end processes by identity.

Workspaces and agents use nothing else to start processes. On another machine a worker program starts them
with its own `Host` (`symphony.daemon.hosts`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from symphony.domain import SymphonyError

MAX_OUTPUT_BYTES: Final = 1_048_576
"""How many bytes of each output of a command are kept by default."""


class HostError(SymphonyError):
    """This machine lacks something that every process needs."""


class Identity(Struct, frozen=True, kw_only=True):
    """Identifies a process: a pid may be reused, but a pid with its start time and boot may not.

    `started` is the start time in seconds since the boot. Compare it for equality only.
    """

    boot_id: str
    pid: int
    started: float


class Completed(Struct, frozen=True, kw_only=True):
    """The result of a command.

    Attributes:
        exit_code: negative for a signal.
        stdout: cut at the output limit.
        stderr: cut at the output limit.
        timed_out: the whole process group was ended at the deadline, or because it was silent.
        silent: it was ended because it wrote nothing for `silence_ms`.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    silent: bool = False


class HostProcess(Protocol):
    """A running child in a session of its own: stdin and stdout are pipes, stderr is a file."""

    @property
    def identity(self) -> Identity:
        """The identity of the child."""
        ...

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the child runs."""
        ...

    @property
    def stderr_start(self) -> int:
        """Where its stderr begins in the file, in bytes."""
        ...

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Return the next bytes of stdout, `b""` at its end. No byte is lost on cancellation."""
        ...

    async def send(self, data: bytes) -> None:
        """Write to stdin. Raises `BrokenPipeError` when the child has closed it or has ended."""
        ...

    async def close_stdin(self) -> None:
        """Close stdin. Closing it twice is allowed."""
        ...

    async def wait(self) -> int:
        """Wait for the child to end, even while other processes hold its stdout; return its exit code."""
        ...

    def descendants(self) -> tuple[Identity, ...]:
        """Return the child, its descendants, and all processes with its run id; the child first.

        Call this before sending a signal: tool shells leave the process group, and once their parent is dead
        they cannot be found by their ancestors.
        """
        ...

    def left_only_orphans(self) -> bool:
        """Return whether everything that an ended child left is a child of this process (`end_orphans`)."""
        ...

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        """Send a signal to those `targets` whose identity still matches."""
        ...


class Host(Protocol):
    """One machine on which commands, hooks and agents run."""

    @property
    def name(self) -> str:
        """The name of the host in logs and the API; `local` for this machine."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str],
        timeout_ms: int,
        stdin: bytes = b"",
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        supervised: bool = True,
        silence_ms: int | None = None,
        keep_end: bool = False,
    ) -> Completed:
        """Run a command in its own process group and wait for it; the group ends with this call.

        A command that writes nothing for `silence_ms` is ended as at its deadline.

        Output beyond the limit is read and dropped; with `keep_end` the last bytes are kept instead of the
        first. Cancellation ends the group. If the host has a subreaper, a `supervised` command and everything
        it started end with this process. Pass false for a short command that leaves nothing behind, because
        the subreaper costs about 3 ms.

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
        supervised: bool = True,
    ) -> HostProcess:
        """Start a long-lived child in a session of its own. Raises as `run` does.

        If the host has a subreaper, a `supervised` child and everything it started are killed when this
        process dies. Pass false for a child that ends with its stdin, because the subreaper takes 1 MB.
        """
        ...

    def find_marked(self, run_ids: Sequence[str]) -> tuple[Identity, ...]:
        """Return all live processes of this user with one of these run ids, and their descendants.

        The run id is the variable `SYMPHONY_RUN_ID` in the environment of the process.
        """
        ...

    def find_survivors(self) -> tuple[Identity, ...]:
        """Return all processes that an earlier daemon of this instance left running, with descendants.

        Returns only processes of this user, never this process or one of its ancestors. The children of this
        process carry the same mark: call this before starting the first one.
        """
        ...

    def find_running_daemon(self) -> Identity | None:
        """Return another live daemon of this instance: the parent of a subreaper with the instance's mark."""
        ...

    def identify(self, pid: int) -> Identity | None:
        """Return the process that has this pid now, or None."""
        ...

    def lineage(self, pid: int) -> tuple[Identity, ...]:
        """Return a process and its ancestors, nearest first; empty when the pid is unused."""
        ...

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs. A zombie does not."""
        ...

    async def end_orphans(self) -> int:
        """End and reap adopted processes, see `subreaper`; return the number found alive.

        No process of a live session is among them.
        """
        ...

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        """Send SIGTERM, and SIGKILL after the grace; return the processes that survived both."""
        ...
