"""`LocalHost`: this machine."""

import errno
import math
import os
import signal
import subprocess
import weakref
from collections.abc import Collection, Mapping, Sequence
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

# One child process with pipes, watched through its pidfd: no thread per child, no race about its number.
#
# asyncio's own subprocess support is not used, for three reasons: up to Python 3.11 it makes a thread for
# each child; its `wait` does not return while a grandchild holds stdout open; and it reaps the child on its
# own, after which the number of its process group may belong to somebody else. Here the child stays a
# zombie, and its group ours, until `reap`.


_unreaped: set[int] = set()


class ReadEnd:
    """Our end of a pipe that the child writes to. Closed at its end, by `close`, or with the object."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self.close = weakref.finalize(self, os.close, fd)

    async def receive(self, max_bytes: int) -> bytes:
        """Next bytes; `b""` at the end. No await stands between reading and returning, so none get lost.

        Other tasks get their turn before each read.
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


class WriteEnd:
    """Our end of a pipe that the child reads from. One sender at a time."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self.close = weakref.finalize(self, os.close, fd)

    async def send(self, data: bytes) -> None:
        """Write it all. Raises `BrokenPipeError` when either side has closed the pipe."""
        await checkpoint_if_cancelled()
        rest = memoryview(data)
        while rest:
            if not self.close.alive:
                raise BrokenPipeError("the pipe to the child is closed")
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                await wait_writable(self._fd)


class Child:
    """A child in a session and process group of its own."""

    def __init__(self, popen: subprocess.Popen[bytes], stdin: WriteEnd, stdout: ReadEnd) -> None:
        self._popen = popen
        self.pid = popen.pid
        _unreaped.add(popen.pid)
        self.stdin = stdin
        self.stdout = stdout

    async def exited(self) -> None:
        """Wait until the child itself has ended, whoever still holds its pipes; does not reap it."""
        if self._popen.returncode is not None:
            await checkpoint()
        elif hasattr(os, "pidfd_open"):
            await _readable_once(os.pidfd_open(self.pid))
        else:
            await to_thread.run_sync(
                _wait_unreaped, self.pid, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf)
            )

    def reap(self) -> int | None:
        """The exit code (negative for a signal) if the child has ended, else null."""
        code = self._popen.poll()
        if code is not None:
            _unreaped.discard(self.pid)
        return code

    def signal_group(self, number: int) -> bool:
        """Signal the child's process group; whether there is one left."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def started_here() -> frozenset[int]:
    """The children that were started here and not reaped. Ask in the thread that starts them."""
    return frozenset(_unreaped)


def start(
    argv: Sequence[str],
    *,
    cwd: Path | None,
    env: Mapping[str, str],
    stderr: int,
    pass_fds: Collection[int] = (),
) -> Child:
    """Start a child; the descriptors `stderr` and `pass_fds` stay the caller's. Raises `OSError`."""
    child_stdin, our_stdin = os.pipe()
    our_stdout, child_stdout = os.pipe()
    stdin, stdout = WriteEnd(our_stdin), ReadEnd(our_stdout)
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
    return Child(popen, stdin, stdout)


async def _readable_once(fd: int) -> None:
    try:
        await wait_readable(fd)
    finally:
        os.close(fd)


def _wait_unreaped(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


_GROUP_GRACE_MS: Final = 500
_LAST_BYTES_S: Final = 0.5
_KILL_WAIT_S: Final = 2.0
_CHUNK_BYTES: Final = 65_536
_SWEEPS: Final = 3
_log = structlog.get_logger(__name__)


class LocalProcess:
    """A long-lived command (`HostProcess`): a child of ours, or of the subreaper that is our child."""

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
        return self._without_subreaper(self._table.family(self._child.pid, self._run_id))

    def offspring(self) -> tuple[Identity, ...]:
        """The child and all below it."""
        return self._without_subreaper(self._table.family(self._child.pid))

    def _without_subreaper(self, found: tuple[Identity, ...]) -> tuple[Identity, ...]:
        """It ends by itself, and must not before all below it have."""
        hidden = self._child.pid if self._child.pid != self._identity.pid else None
        return tuple(one for one in found if one.pid != hidden)

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        """Send a signal to those of `targets` that still are who they were."""
        self._table.send(number, targets)


class LocalHost:
    """This machine (`Host`). Children are watched without threads; see `child`.

    With an `instance`, which names one daemon over its restarts, every child carries it in
    `SYMPHONY_INSTANCE`, by which a successor finds what was left, and on Linux runs below a subreaper. With
    `adopt_orphans` this process is one too, and ends what comes to it.
    """

    def __init__(self, *, instance: str | None = None, adopt_orphans: bool = False) -> None:
        own = None if instance is None else own_cgroup()
        self._groups = None if instance is None or own is None else RunGroups(own, instance)
        self._table = ProcessTable(groups=self._groups)
        self._instance = instance
        self._marks = {} if instance is None else {INSTANCE_VARIABLE: instance}
        self._supervised = instance is not None and subreaper.available()
        self._adopt_orphans = adopt_orphans and self._supervised

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
    ) -> Completed:
        """Run a command in its own process group and wait (WS8); see `Host.run`.

        At the deadline, and on cancellation, its descendants that left the group end with it.
        """
        errors, child_stderr = os.pipe()
        stderr = _Capture(ReadEnd(errors), max_output_bytes)
        try:
            last_word = signal.SIGTERM if supervised else None
            child, command = await self._start(argv, last_word, cwd, env, child_stderr)
        finally:
            os.close(child_stderr)
        stdout = _Capture(child.stdout, max_output_bytes)
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(_feed, child.stdin, stdin)
            pumps.start_soon(stdout.drain)
            pumps.start_soon(stderr.drain)
            timed_out = await self._until_ended(child, command, timeout_ms)
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
            child, command = await self._start(argv, signal.SIGKILL, cwd, env, log, run_id=run_id)
        finally:
            os.close(log)
        # A command that has ended already was reaped by its subreaper, which nobody but us can reap.
        identity = self._table.identify(command) or self._table.identify(child.pid)
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

    def find_survivors(self) -> tuple[Identity, ...]:
        """What an earlier daemon of this instance left running; see `Host.find_survivors`."""
        return () if self._instance is None else self._table.left_by(self._instance)

    def find_running_daemon(self) -> Identity | None:
        """The living daemon that one of the subreapers with our mark belongs to."""
        for one in self.find_survivors():
            daemon = subreaper.daemon_of(self._table.command(one.pid))
            parents = self._table.lineage(one.pid)[1:2]
            if daemon is not None and parents and parents[0].pid == daemon:
                return parents[0]
        return None

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        return self._table.is_alive(identity)

    async def end_orphans(self) -> int:
        """End and reap our children that we did not start; see `Host.end_orphans`."""
        ended = 0
        for _ in range(
            _SWEEPS if self._adopt_orphans else 0
        ):  # a process may fork between the look and the signal
            children = await to_thread.run_sync(self._table.adopted)
            # In this order: one that was started meanwhile is known by now.
            orphans = [pid for pid in children if pid not in started_here()]
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
    ) -> tuple[Child, int]:
        """Start a marked child; with it the number of the command, which may be below it. Raises `OSError`.

        A `last_word` asks for a subreaper, and is what the command is sent when we are gone. With a `run_id`
        it starts in the control group of that run, where there are such.
        """
        marked = {**env, **self._marks}
        if not self._supervised or last_word is None:
            child = start(argv, cwd=cwd, env=marked, stderr=stderr)
            return child, child.pid
        answer, told = os.pipe()
        reader = ReadEnd(answer)
        try:
            below = subreaper.above(argv, last_word=last_word, told=told)
            if self._groups is not None and run_id is not None:
                below = await to_thread.run_sync(self._groups.enter, run_id, below)
            child = start(below, cwd=cwd, env=marked, stderr=stderr, pass_fds=(told,))
        finally:
            os.close(told)
        with anyio.CancelScope(shield=True):
            number, _, error = (await _all_of(reader)).partition(b"\n")
            if error or not number:
                await child.exited()
                child.reap()
                code = int(error or errno.ECHILD)
                raise OSError(code, os.strerror(code), argv[0])
        return child, int(number)

    async def _until_ended(self, child: Child, command: int, timeout_ms: int) -> bool:
        """Wait for the child and end what is left of its group; whether the deadline came first."""
        in_time = False
        try:
            with anyio.move_on_after(timeout_ms / 1000):
                await child.exited()
                in_time = True
        finally:
            with anyio.CancelScope(shield=True):
                await (self._end_leftovers(child) if in_time else self._end_all(child, command))
        return not in_time

    async def _end_leftovers(self, child: Child) -> None:
        """End what a finished command left in its group.

        SIGTERM goes out before the reaping, while the group's number cannot be anyone else's.
        """
        child.signal_group(signal.SIGTERM)
        child.reap()
        if child.signal_group(0):
            await self._table.end(self._table.group(child.pid), grace_ms=_GROUP_GRACE_MS)

    async def _end_all(self, child: Child, command: int) -> None:
        """End a running command: its group, and its descendants wherever they are; its subreaper follows."""
        found = {*self._table.family(child.pid), *self._table.group(command)}
        targets = [one for one in found if one.pid != child.pid or child.pid == command]
        await self._table.end(targets, grace_ms=_GROUP_GRACE_MS)
        for _ in range(2):
            with anyio.move_on_after(_KILL_WAIT_S):
                await child.exited()
            child.signal_group(signal.SIGKILL)
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


async def _all_of(reader: ReadEnd) -> bytes:
    data = b""
    while piece := await reader.receive(64):
        data += piece
    return data


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
