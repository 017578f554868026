"""`LocalHost`: runs and spawns processes on this machine, directly or through its supervisor."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import structlog

from symphony.processes.base import MAX_OUTPUT_BYTES, Completed, HostProcess, Identity
from symphony.processes.cgroups import RunGroups, own_cgroup
from symphony.processes.child import Child, PipeReader, PipeWriter, unreaped
from symphony.processes.supervisor import SupervisedChild, Supervisor
from symphony.processes.table import INSTANCE_VARIABLE, RUN_ID_VARIABLE, ProcessTable

_GROUP_GRACE_MS: Final = 500
_LAST_BYTES_S: Final = 0.5
_KILL_WAIT_S: Final = 2.0
_CHUNK_BYTES: Final = 65_536
_HIDDEN_WAIT_S: Final = 0.05
_SWEEPS: Final = 3  # a process may fork between the reading of the table and the signal
_log = structlog.get_logger(__name__)


class LocalHost:
    """This machine (`Host`).

    Args:
        instance: names one daemon over its restarts. Every child carries it in `SYMPHONY_INSTANCE`, by which
            a later daemon finds survivors, and runs below a subreaper.
        adopt_orphans: this process is a subreaper too, and `end_orphans` ends what it adopts.

    Raises:
        HostError: there is no `/proc`.
    """

    def __init__(self, *, instance: str | None = None, adopt_orphans: bool = False) -> None:
        own = None if instance is None else own_cgroup()
        groups = None if instance is None or own is None else RunGroups(own, instance)
        self._table = ProcessTable(groups=groups)
        self._supervisor = None if instance is None else Supervisor(instance, self._table, groups)
        self._instance = instance
        self._adopt_orphans = adopt_orphans and instance is not None

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
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        supervised: bool = True,
        silence_ms: int | None = None,
        keep_end: bool = False,
    ) -> Completed:
        """Run a command in its own process group and wait for it; see `Host.run`.

        At the deadline and on cancellation, descendants that left the group end too.
        """
        stderr_pipe, child_stderr = os.pipe()
        silence = anyio.CancelScope()

        def heard() -> None:
            if silence_ms is not None:
                silence.deadline = anyio.current_time() + silence_ms / 1000

        stderr = _Capture(PipeReader(stderr_pipe), max_output_bytes, heard, keep_end=keep_end)
        try:
            last_signal = signal.SIGTERM if supervised else None
            child = await self._start(argv, last_signal, cwd, env, child_stderr)
        finally:
            os.close(child_stderr)
        stdout = _Capture(child.stdout, max_output_bytes, heard, keep_end=keep_end)
        heard()
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(_feed, child.stdin, stdin)
            pumps.start_soon(stdout.drain)
            pumps.start_soon(stderr.drain)
            timed_out = await self._wait_and_clean_up(child, timeout_ms, silence)
            with anyio.move_on_after(_LAST_BYTES_S):
                await stdout.ended.wait()
                await stderr.ended.wait()
            pumps.cancel_scope.cancel()
        return Completed(
            exit_code=_exit_code(child),
            stdout=bytes(stdout.data),
            stderr=bytes(stderr.data),
            timed_out=timed_out,
            silent=silence.cancelled_caught,
        )

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stderr_path: Path,
        supervised: bool = True,
    ) -> HostProcess:
        """Start a long-lived child in a session of its own; stderr is appended to a file of mode 0600."""
        run_id = env.get(RUN_ID_VARIABLE)
        stderr = os.open(stderr_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            start = os.fstat(stderr).st_size
            last_signal = signal.SIGKILL if supervised else None
            child = await self._start(argv, last_signal, cwd, env, stderr, run_id=run_id)
        finally:
            os.close(stderr)
        return LocalProcess(child, self._table, run_id, adopted=self._adopt_orphans, stderr_start=start)

    def identify(self, pid: int) -> Identity | None:
        """Return the process that has this pid now, or None."""
        return self._table.identify(pid)

    def lineage(self, pid: int) -> tuple[Identity, ...]:
        """Return a process and its ancestors, nearest first."""
        return self._table.lineage(pid)

    def find_marked(self, run_ids: Sequence[str]) -> tuple[Identity, ...]:
        """Return all live processes of this user in one of the runs, except this one, and descendants."""
        return self._table.marked(run_ids)

    def find_survivors(self) -> tuple[Identity, ...]:
        """Return what an earlier daemon of this instance left running; see `Host.find_survivors`."""
        return () if self._instance is None else self._table.left_by(self._instance)

    def find_running_daemon(self) -> Identity | None:
        """Return the live daemon of this instance, found by a subreaper of a running command."""
        if self._instance is None:
            return None
        for pid, daemon in self._table.serving(self._instance):
            above = self._table.lineage(pid)[2:3]  # behind the subreaper and the supervisor
            if above and above[0].pid == daemon != os.getpid():
                return above[0]
        return None

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs. A zombie does not."""
        return self._table.is_alive(identity)

    async def end_orphans(self) -> int:
        """End and reap children that this process did not start; return the number found alive."""
        if not self._adopt_orphans:
            return 0
        ended = set[int]()
        for _ in range(_SWEEPS):
            children = self._table.adopted()
            # The order matters: a child that was started meanwhile is in `unreaped` by now.
            orphans = [pid for pid in children if pid not in unreaped]
            if not orphans:
                break
            living = self._table.families(orphans)
            await self._table.end(living, grace_ms=_GROUP_GRACE_MS)
            ended.update(one.pid for one in living)
            for pid in orphans:
                with suppress(ChildProcessError, PermissionError):
                    if os.waitpid(pid, os.WNOHANG)[0] == 0:  # noqa: ASYNC222 - does not wait
                        os.kill(pid, signal.SIGKILL)  # `/proc` may hide it, but only this process can reap it
                        ended.add(pid)
                        await anyio.sleep(_HIDDEN_WAIT_S)
        if ended:
            _log.warning("orphans_ended", processes=len(ended))
        return len(ended)

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        """Send SIGTERM, and SIGKILL after the grace; return the processes that survived both."""
        return await self._table.end(targets, grace_ms=grace_ms)

    async def _start(
        self,
        argv: Sequence[str],
        last_signal: signal.Signals | None,
        cwd: Path | None,
        env: Mapping[str, str],
        stderr: int,
        *,
        run_id: str | None = None,
    ) -> Child | SupervisedChild:
        """Start a child with the instance's mark, below a subreaper if it has a `last_signal`."""
        if self._supervisor is not None and last_signal is not None:
            return await self._supervisor.start(
                argv, cwd=cwd, env=env, stderr=stderr, last_signal=last_signal, run_id=run_id
            )
        marks = {} if self._instance is None else {INSTANCE_VARIABLE: self._instance}
        return Child.start(argv, cwd=cwd, env={**env, **marks}, stderr=stderr, table=self._table)

    async def _wait_and_clean_up(
        self, child: Child | SupervisedChild, timeout_ms: int, silence: anyio.CancelScope
    ) -> bool:
        """Wait for the child and end the rest of its group; return whether a deadline came first.

        Output extends the deadline of `silence`.
        """
        in_time = False
        try:
            with anyio.move_on_after(timeout_ms / 1000), silence:
                await child.exited()
                in_time = True
        finally:
            with anyio.CancelScope(shield=True):
                if in_time:
                    await child.end_group(self._table)
                else:
                    await self._end_running(child)
        return not in_time

    async def _end_running(self, child: Child | SupervisedChild) -> None:
        """End the group of a running command and its descendants everywhere; its subreaper ends by itself."""
        targets = {*_descendants(self._table, child), *self._table.group(child.identity.pid)}
        await self._table.end(list(targets), grace_ms=_GROUP_GRACE_MS)
        child.kill(self._table)
        with anyio.move_on_after(_KILL_WAIT_S):
            await child.exited()
        self._table.send(signal.SIGKILL, [child.root])  # if a subreaper dies, the kernel kills its command
        with anyio.move_on_after(_KILL_WAIT_S):
            await child.exited()
        child.reap()


class LocalProcess:
    """A long-lived command (`HostProcess`)."""

    def __init__(
        self,
        child: Child | SupervisedChild,
        table: ProcessTable,
        run_id: str | None,
        *,
        adopted: bool,
        stderr_start: int,
    ) -> None:
        self._child = child
        self._table = table
        self._run_id = run_id
        self._adopted = adopted  # what its subreaper leaves becomes a child of this process
        self.stderr_start: Final = stderr_start

    @property
    def identity(self) -> Identity:
        """The identity of the command."""
        return self._child.identity

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the command runs."""
        return self._child.reap()

    async def receive(self, max_bytes: int = _CHUNK_BYTES) -> bytes:
        """Return the next bytes of stdout, `b""` at its end."""
        return await self._child.stdout.receive(max_bytes)

    async def send(self, data: bytes) -> None:
        """Write to stdin, one sender at a time. Raises `BrokenPipeError`."""
        await self._child.stdin.send(data)

    async def close_stdin(self) -> None:
        """Close stdin. Closing it twice is allowed."""
        self._child.stdin.close()

    async def wait(self) -> int:
        """Wait for the command to end, even while others hold its stdout; return its exit code."""
        await self._child.exited()
        return _exit_code(self._child)

    def descendants(self) -> tuple[Identity, ...]:
        """Return the command, its descendants, and all processes with its run id."""
        found = _descendants(self._table, self._child, self._run_id)
        hidden = self.identity not in found and self.exit_code is None  # by `/proc`
        return (self.identity, *found) if hidden else found

    def left_only_orphans(self) -> bool:
        """Return whether everything that the ended command left is a child of this process, if anything is.

        The kernel gives the children of a subreaper to this process before the subreaper counts as ended.
        """
        return self._child.left_nothing or (self._adopted and not self._table.is_alive(self._child.root))

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        """Send a signal to those `targets` whose identity still matches.

        SIGKILL for a command also kills all its descendants, even if `/proc` hides them.
        """
        self._table.send(number, targets)
        if number == signal.SIGKILL and self.identity in targets and self.exit_code is None:
            self._child.kill(self._table)


def _descendants(
    table: ProcessTable, child: Child | SupervisedChild, run_id: str | None = None
) -> tuple[Identity, ...]:
    """Return a command, its descendants, and all processes of its run.

    Its subreaper is left out: it ends by itself, and must not end before its descendants.
    """
    found = table.family(child.root, run_id)
    return tuple(one for one in found if one != child.root or one == child.identity)


def _exit_code(child: Child | SupervisedChild) -> int:
    """Reap a child and return its code; one that survived SIGKILL so far counts as killed."""
    code = child.reap()
    return -signal.SIGKILL if code is None else code


class _Capture:
    """The first bytes of a stream, or the last ones with `keep_end`.

    The rest is read and dropped, so that the writer is never blocked.

    `heard` is called after each read.
    """

    def __init__(
        self, source: PipeReader, limit: int, heard: Callable[[], None], *, keep_end: bool = False
    ) -> None:
        self._source = source
        self._limit = limit
        self._keep_end = keep_end
        self._heard = heard
        self.data = bytearray()
        self.ended = anyio.Event()

    async def drain(self) -> None:
        try:
            while chunk := await self._source.receive(_CHUNK_BYTES):
                self.data += chunk if self._keep_end else chunk[: self._limit - len(self.data)]
                del self.data[: max(len(self.data) - self._limit, 0)]
                self._heard()
        finally:
            self._source.close()
            self.ended.set()


async def _feed(stdin: PipeWriter, data: bytes) -> None:
    try:
        await stdin.send(data)
    except BrokenPipeError:
        return  # a command need not read its input
    finally:
        stdin.close()
