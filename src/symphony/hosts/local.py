"""`LocalHost`: this machine."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from symphony.hosts.base import Completed, HostProcess, Identity
from symphony.hosts.child import PIPE_BYTES, Child, ReadEnd, WriteEnd, start
from symphony.hosts.groups import RunGroups, own_group
from symphony.hosts.processes import INSTANCE_VARIABLE, RUN_ID_VARIABLE, ProcessTable
from symphony.hosts.tether import Tether, startable

__all__ = ["LocalHost", "LocalProcess"]

_GROUP_GRACE_MS: Final = 500
_LAST_BYTES_S: Final = 0.5
_KILL_WAIT_S: Final = 2.0
# Nearly what a pipe holds: a larger buffer is mapped and unmapped by every read, which costs more than it.
_CHUNK_BYTES: Final = PIPE_BYTES - 1_024


class LocalProcess:
    """A long-lived child of this process (`HostProcess`)."""

    def __init__(self, child: Child, identity: Identity, table: ProcessTable, run_id: str | None) -> None:
        self._child = child
        self._identity = identity
        self._table = table
        self._run_id = run_id

    @property
    def identity(self) -> Identity:
        """Who the child is."""
        return self._identity

    @property
    def exit_code(self) -> int | None:
        """The exit code once the child has ended, else null."""
        return self._child.reap()

    async def receive(self, max_bytes: int = _CHUNK_BYTES) -> bytes:
        """Next bytes of stdout; `b""` at its end."""
        return await self._child.stdout.receive(max_bytes)

    async def send(self, data: bytes) -> None:
        """Write to stdin, one sender at a time. Raises `BrokenPipeError`."""
        await self._child.stdin.send(data)

    async def close_stdin(self) -> None:
        """Close stdin; harmless when it is closed."""
        self._child.stdin.close()

    async def wait(self) -> int:
        """Wait for the child to end, also while others hold its stdout open, and return its exit code."""
        await self._child.exited()
        return _exit_code(self._child)

    def descendants(self) -> tuple[Identity, ...]:
        """The child, all below it, and all that carry the `SYMPHONY_RUN_ID` it was started with."""
        return self._table.family(self._identity.pid, self._run_id)

    def offspring(self) -> tuple[Identity, ...]:
        """The child and all below it."""
        return self._table.family(self._identity.pid)

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        """Send a signal to those of `targets` that still are who they were."""
        self._table.send(number, targets)


class LocalHost:
    """This machine (`Host`). Children are watched without threads; see `child`.

    With an `instance`, which names one daemon over its restarts, every child carries it in
    `SYMPHONY_INSTANCE`, by which a successor finds what was left, and dies with this process where the kernel
    can see to that.
    """

    def __init__(self, *, instance: str | None = None, tether: Tether | None = None) -> None:
        own = None if instance is None else own_group()
        self._groups = None if instance is None or own is None else RunGroups(own, instance)
        self._table = ProcessTable(groups=self._groups)
        self._instance = instance
        self._marks = {} if instance is None else {INSTANCE_VARIABLE: instance}
        self._tether = tether or (None if instance is None else Tether())

    @property
    def name(self) -> str:
        """`local`."""
        return "local"

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str],
        timeout_ms: int,
        stdin: bytes = b"",
        max_output_bytes: int = 1_048_576,
        tethered: bool = True,
    ) -> Completed:
        """Run a command in its own process group and wait (WS8); see `Host.run`.

        At the deadline, and on cancellation, its descendants that left the group end with it.
        """
        errors, child_stderr = os.pipe()
        stderr = _Capture(ReadEnd(errors), max_output_bytes)
        try:
            child = await self._start(argv, signal.SIGTERM if tethered else None, cwd, env, child_stderr)
        finally:
            os.close(child_stderr)
        stdout = _Capture(child.stdout, max_output_bytes)
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(_feed, child.stdin, stdin)
            pumps.start_soon(stdout.drain)
            pumps.start_soon(stderr.drain)
            timed_out = await self._until_ended(child, timeout_ms)
            with anyio.move_on_after(_LAST_BYTES_S):
                await stdout.ended.wait()
                await stderr.ended.wait()
            pumps.cancel_scope.cancel()
        return Completed(
            exit_code=_exit_code(child),
            stdout=bytes(stdout.data),
            stderr=bytes(stderr.data),
            timed_out=timed_out,
        )

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stderr_path: Path,
    ) -> HostProcess:
        """Start a long-lived child in a session of its own, its stderr appended to a file of mode 0600."""
        run_id = env.get(RUN_ID_VARIABLE)
        log = os.open(stderr_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = await self._start(argv, signal.SIGKILL, cwd, env, log, run_id=run_id)
        finally:
            os.close(log)
        identity = self._table.identify(child.pid)
        if identity is None:  # cannot be: an unreaped child keeps its entry
            raise ProcessLookupError(f"process {child.pid} vanished while it was started")
        return LocalProcess(child, identity, self._table, run_id)

    def identify(self, pid: int) -> Identity | None:
        """Who has this process number now; null when nobody has."""
        return self._table.identify(pid)

    def lineage(self, pid: int) -> tuple[Identity, ...]:
        """A process and those above it, nearest first; see `Host.lineage`."""
        return self._table.lineage(pid)

    def find_marked(self, run_ids: Sequence[str]) -> tuple[Identity, ...]:
        """Every live process of this user, but this one, that belongs to one of the runs, and all below."""
        return self._table.marked(run_ids)

    def find_left(self) -> tuple[Identity, ...]:
        """What an earlier daemon of this instance left running, with all below it; see `Host.find_left`."""
        return () if self._instance is None else self._table.left_by(self._instance)

    def alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        return self._table.alive(identity)

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        """SIGTERM, then SIGKILL after the grace; returns those that survived even that."""
        return await self._table.end(targets, grace_ms=grace_ms)

    async def _start(
        self,
        argv: Sequence[str],
        last_word: signal.Signals | None,
        cwd: Path | None,
        env: Mapping[str, str],
        stderr: int,
        *,
        run_id: str | None = None,
    ) -> Child:
        """Start a marked child that gets the signal `last_word` when this process dies. Raises `OSError`.

        With a `run_id` it starts in the control group of that run, where there are such.
        """
        marked = {**env, **self._marks}
        if self._instance is not None and last_word is not None:
            tied = self._tied_at_once(argv, last_word, marked, run_id)
            if tied is None:
                tied = await to_thread.run_sync(self._wrapped, argv, last_word, cwd, marked, run_id)
            argv = tied
        return start(argv, cwd=cwd, env=marked, stderr=stderr)

    def _tied_at_once(
        self,
        argv: Sequence[str],
        last_word: signal.Signals,
        env: Mapping[str, str],
        run_id: str | None,
    ) -> Sequence[str] | None:
        """The same as `_wrapped` where no file has to be looked at; else null."""
        if self._tether is None or (self._groups is not None and run_id is not None):
            return None
        return self._tether.tie_at_once(argv, last_word, env=env)

    def _wrapped(
        self,
        argv: Sequence[str],
        last_word: signal.Signals,
        cwd: Path | None,
        env: Mapping[str, str],
        run_id: str | None,
    ) -> Sequence[str]:
        """The command behind what ties it to us and puts it into its group. Looks at files."""
        tied = argv if self._tether is None else self._tether.tie(argv, last_word, cwd=cwd, env=env)
        if self._groups is None or run_id is None or not startable(argv[0], cwd, env):
            return tied
        return self._groups.enter(run_id, tied)

    async def _until_ended(self, child: Child, timeout_ms: int) -> bool:
        """Wait for the child and end what is left of its group; whether the deadline came first."""
        in_time = False
        try:
            with anyio.move_on_after(timeout_ms / 1000):
                await child.exited()
                in_time = True
        finally:
            with anyio.CancelScope(shield=True):
                await (self._end_leftovers(child) if in_time else self._end_all(child))
        return not in_time

    async def _end_leftovers(self, child: Child) -> None:
        """End what a finished command left in its group.

        SIGTERM goes out before the reaping, while the group's number cannot be anyone else's.
        """
        child.signal_group(signal.SIGTERM)
        child.reap()
        if child.signal_group(0):
            await self._table.end(self._table.group(child.pid), grace_ms=_GROUP_GRACE_MS)

    async def _end_all(self, child: Child) -> None:
        """End a running command: its group, and its descendants wherever they are."""
        targets = {*self._table.family(child.pid), *self._table.group(child.pid)}
        await self._table.end(tuple(targets), grace_ms=_GROUP_GRACE_MS)
        child.signal_group(signal.SIGKILL)
        with anyio.move_on_after(_KILL_WAIT_S):
            await child.exited()
        child.reap()


class _Capture:
    """The first bytes of a stream; the rest is read and dropped, so that the writer is never held up."""

    def __init__(self, source: ReadEnd, limit: int) -> None:
        self._source = source
        self._limit = limit
        self.data = bytearray()
        self.ended = anyio.Event()

    async def drain(self) -> None:
        try:
            while chunk := await self._source.receive(_CHUNK_BYTES):
                self.data += chunk[: self._limit - len(self.data)]
        finally:
            self._source.close()
            self.ended.set()


async def _feed(stdin: WriteEnd, data: bytes) -> None:
    try:
        await stdin.send(data)
    except BrokenPipeError:
        return  # a command need not read what it is given
    finally:
        stdin.close()


def _exit_code(child: Child) -> int:
    """The child's code; one that not even SIGKILL could end yet counts as killed."""
    code = child.reap()
    return -signal.SIGKILL if code is None else code
