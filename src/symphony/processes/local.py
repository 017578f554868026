"""`LocalHost`: runs and spawns processes on this machine.

asyncio's own subprocess support is not used, for three reasons: up to Python 3.11 it makes a thread for each
child; its `wait` does not return while a grandchild holds stdout open; and it reaps the child on its own,
after which the number of the child's process group may belong to another process. Here each child is watched
through its pidfd, and stays a zombie, and its group this process's, until `reap`.
"""

import errno
import os
import signal
import subprocess
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio import to_thread, wait_readable, wait_writable
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from symphony.processes import subreaper
from symphony.processes.base import Completed, HostProcess, Identity
from symphony.processes.cgroups import RunGroups, own_cgroup
from symphony.processes.table import INSTANCE_VARIABLE, RUN_ID_VARIABLE, ProcessTable

_GROUP_GRACE_MS: Final = 500
_LAST_BYTES_S: Final = 0.5
_KILL_WAIT_S: Final = 2.0
_CHUNK_BYTES: Final = 65_536
_SWEEPS: Final = 3  # a process may fork between the look at the table and the signal
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
        self._groups = None if instance is None or own is None else RunGroups(own, instance)
        self._table = ProcessTable(groups=self._groups)
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
        max_output_bytes: int = 1_048_576,
        supervised: bool = True,
        silence_ms: int | None = None,
    ) -> Completed:
        """Run a command in its own process group and wait for it; see `Host.run`.

        At the deadline and on cancellation, descendants that left the group end too.
        """
        stderr_pipe, child_stderr = os.pipe()
        silence = anyio.CancelScope()

        def heard() -> None:
            if silence_ms is not None:
                silence.deadline = anyio.current_time() + silence_ms / 1000

        stderr = _Capture(PipeReader(stderr_pipe), max_output_bytes, heard)
        try:
            last_signal = signal.SIGTERM if supervised else None
            child, command = await self._start(argv, last_signal, cwd, env, child_stderr)
        finally:
            os.close(child_stderr)
        stdout = _Capture(child.stdout, max_output_bytes, heard)
        heard()
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(_feed, child.stdin, stdin)
            pumps.start_soon(stdout.drain)
            pumps.start_soon(stderr.drain)
            timed_out = await self._wait_and_clean_up(child, command, timeout_ms, silence)
            with anyio.move_on_after(_LAST_BYTES_S):
                await stdout.ended.wait()
                await stderr.ended.wait()
            pumps.cancel_scope.cancel()
        return Completed(
            exit_code=child.exit_code(),
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
            last_signal = signal.SIGKILL if supervised else None
            child, command = await self._start(argv, last_signal, cwd, env, stderr, run_id=run_id)
        finally:
            os.close(stderr)
        # A command that has already ended was reaped by its subreaper, which only this process can reap.
        identity = self._table.identify(command) or self._table.identify(child.pid)
        if identity is None:  # cannot happen: an unreaped child keeps its entry
            raise ProcessLookupError(f"process {child.pid} vanished while it was started")
        return LocalProcess(child, identity, self._table, run_id)

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
        """Return the live daemon that one of the subreapers with the instance's mark belongs to."""
        for survivor in self.find_survivors():
            daemon = subreaper.daemon_of(self._table.command(survivor.pid))
            parent = self._table.lineage(survivor.pid)[1:2]
            if daemon is not None and parent and parent[0].pid == daemon:
                return parent[0]
        return None

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs. A zombie does not."""
        return self._table.is_alive(identity)

    async def end_orphans(self) -> int:
        """End and reap children that this process did not start; return the number found alive."""
        if not self._adopt_orphans:
            return 0
        ended = 0
        for _ in range(_SWEEPS):
            children = await to_thread.run_sync(self._table.adopted)
            # In this order: a child that was started meanwhile is in `_unreaped` by now.
            orphans = [pid for pid in children if pid not in _unreaped]
            if not orphans:
                break
            living = self._table.families(orphans)
            await self._table.end(living, grace_ms=_GROUP_GRACE_MS)
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait
            ended += len(living)
        if ended:
            _log.warning("orphans_ended", processes=ended)
        return ended

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
    ) -> tuple["Child", int]:
        """Start a child with the instance's mark; return it and the pid of the command.

        With an instance and a `last_signal`, the child is a subreaper and the command is below it; the
        signal is what the command gets when this process dies. With a `run_id`, the command starts in the
        control group of the run, where there are groups. Raises `OSError`.
        """
        if self._instance is None or last_signal is None:
            marks = {} if self._instance is None else {INSTANCE_VARIABLE: self._instance}
            child = Child.start(argv, cwd=cwd, env={**env, **marks}, stderr=stderr)
            return child, child.pid
        status_pipe, child_status = os.pipe()
        status = PipeReader(status_pipe)
        try:
            below = subreaper.command_line([*argv], last_signal=last_signal, status_fd=child_status)
            if self._groups is not None and run_id is not None:
                below = await to_thread.run_sync(self._groups.enter, run_id, below)
            marked = {**env, INSTANCE_VARIABLE: self._instance}
            child = Child.start(below, cwd=cwd, env=marked, stderr=stderr, pass_fds=(child_status,))
        finally:
            os.close(child_status)
        with anyio.CancelScope(shield=True):
            answer = b""
            while piece := await status.receive(64):
                answer += piece
            pid, _, error = answer.partition(b"\n")
            if error or not pid:
                await child.exited()
                child.reap()
                code = int(error or errno.ECHILD)
                raise OSError(code, os.strerror(code), argv[0])
        return child, int(pid)

    async def _wait_and_clean_up(
        self, child: "Child", command: int, timeout_ms: int, silence: anyio.CancelScope
    ) -> bool:
        """Wait for the child and end what is left of its group; return whether a deadline came first.

        The deadline of `silence` may be put off meanwhile.
        """
        in_time = False
        try:
            with anyio.move_on_after(timeout_ms / 1000), silence:
                await child.exited()
                in_time = True
        finally:
            with anyio.CancelScope(shield=True):
                if in_time:
                    # Before the reaping, while the number of the group cannot belong to anyone else.
                    child.signal_group(signal.SIGTERM)
                    child.reap()
                    if child.signal_group(0):
                        await self._table.end(self._table.group(child.pid), grace_ms=_GROUP_GRACE_MS)
                else:
                    await self._end_running(child, command)
        return not in_time

    async def _end_running(self, child: "Child", command: int) -> None:
        """End the group of a running command and its descendants everywhere; its subreaper ends by itself."""
        found = {*self._table.family(child.pid), *self._table.group(command)}
        targets = [one for one in found if one.pid != child.pid or child.pid == command]
        await self._table.end(targets, grace_ms=_GROUP_GRACE_MS)
        for _ in range(2):
            with anyio.move_on_after(_KILL_WAIT_S):
                await child.exited()
            child.signal_group(signal.SIGKILL)
        child.reap()


class LocalProcess:
    """A long-lived command (`HostProcess`): `child`, or a process below the subreaper that `child` is."""

    def __init__(self, child: "Child", identity: Identity, table: ProcessTable, run_id: str | None) -> None:
        self._child = child
        self._identity = identity
        self._table = table
        self._run_id = run_id

    @property
    def identity(self) -> Identity:
        """The identity of the command."""
        return self._identity

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
        return self._child.exit_code()

    def descendants(self) -> tuple[Identity, ...]:
        """Return the command, its descendants, and all processes with its run id.

        The subreaper is left out: it ends by itself, and must not end before everything below it.
        """
        family = self._table.family(self._child.pid, self._run_id)
        return tuple(one for one in family if one.pid != self._child.pid or one == self._identity)

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        """Send a signal to those `targets` whose identity still matches."""
        self._table.send(number, targets)


_unreaped: set[int] = set()
"""The pids of started children that were not reaped; for the thread that starts them."""


class Child:
    """A child in a session and process group of its own, with pipes for stdin and stdout."""

    def __init__(self, popen: subprocess.Popen[bytes], stdin: "PipeWriter", stdout: "PipeReader") -> None:
        self._popen = popen
        self.pid = popen.pid
        self.stdin = stdin
        self.stdout = stdout
        _unreaped.add(popen.pid)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        stderr: int,
        pass_fds: Collection[int] = (),
    ) -> "Child":
        """Start a child; the descriptors `stderr` and `pass_fds` stay the caller's. Raises `OSError`."""
        child_stdin, own_stdin = os.pipe()
        own_stdout, child_stdout = os.pipe()
        stdin, stdout = PipeWriter(own_stdin), PipeReader(own_stdout)
        try:
            popen = subprocess.Popen(
                list(argv),
                stdin=child_stdin,
                stdout=child_stdout,
                stderr=stderr,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                pass_fds=pass_fds,
            )
        finally:
            os.close(child_stdin)
            os.close(child_stdout)
        return cls(popen, stdin, stdout)

    async def exited(self) -> None:
        """Wait until the child has ended, even while other processes hold its pipes; does not reap it."""
        if self._popen.returncode is not None:
            await checkpoint()
            return
        pidfd = os.pidfd_open(self.pid)
        try:
            await wait_readable(pidfd)
        finally:
            os.close(pidfd)

    def reap(self) -> int | None:
        """Return the exit code (negative for a signal) if the child has ended, else None."""
        code = self._popen.poll()
        if code is not None:
            _unreaped.discard(self.pid)
        return code

    def exit_code(self) -> int:
        """Reap the child and return its code; one that survived SIGKILL so far counts as killed."""
        code = self.reap()
        return -signal.SIGKILL if code is None else code

    def signal_group(self, number: int) -> bool:
        """Signal the child's process group; return whether there is one left."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class PipeReader:
    """The reading end of a pipe. Closed at the end of the stream, by `close`, or with the object."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self.close = weakref.finalize(self, os.close, fd)

    async def receive(self, max_bytes: int) -> bytes:
        """Return the next bytes, `b""` at the end; other tasks run before each read.

        There is no await between reading and returning, so cancellation loses no byte.
        """
        await checkpoint()
        while self.close.alive:
            try:
                data = os.read(self._fd, max_bytes)
            except BlockingIOError:
                await wait_readable(self._fd)
                continue
            if not data:
                self.close()
            return data
        return b""


class PipeWriter:
    """The writing end of a pipe. One sender at a time."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self.close = weakref.finalize(self, os.close, fd)

    async def send(self, data: bytes) -> None:
        """Write all of it. Raises `BrokenPipeError` when either side has closed the pipe."""
        await checkpoint_if_cancelled()
        rest = memoryview(data)
        while rest:
            if not self.close.alive:
                raise BrokenPipeError("the pipe to the child is closed")
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                await wait_writable(self._fd)


class _Capture:
    """The first bytes of a stream; the rest is read and dropped, so that the writer is never blocked.

    `heard` is called after each read.
    """

    def __init__(self, source: PipeReader, limit: int, heard: Callable[[], None]) -> None:
        self._source = source
        self._limit = limit
        self._heard = heard
        self.data = bytearray()
        self.ended = anyio.Event()

    async def drain(self) -> None:
        try:
            while chunk := await self._source.receive(_CHUNK_BYTES):
                self.data += chunk[: self._limit - len(self.data)]
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
