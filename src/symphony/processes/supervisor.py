"""`Supervisor`: starts commands through one small process, each command below its own subreaper.

`supervisor_program` describes that process and its requests.
"""

import errno
import os
import signal
import socket
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio import BrokenResourceError, EndOfStream, wait_readable, wait_writable
from anyio.abc import UNIXSocketStream
from anyio.lowlevel import checkpoint

from symphony import to_thread
from symphony.processes import supervisor_program
from symphony.processes.base import Identity
from symphony.processes.cgroups import RunGroups
from symphony.processes.child import PipeReader, PipeWriter, unreaped
from symphony.processes.table import INSTANCE_VARIABLE, ProcessTable

_AT_ONCE: Final = 16  # the kernel limits a user's descriptors that are in flight in sockets
_ANSWER_S: Final = 10.0
_CODE_BYTES: Final = 16
_INHERITED: Final = ("LD_LIBRARY_PATH",)  # Python itself may need it
_log = structlog.get_logger(__name__)


class Supervisor:
    """Starts the commands of one daemon.

    Its process starts with the first command, and again if it has ended or does not answer.

    Args:
        instance: names the daemon over its restarts. Each command carries it in `SYMPHONY_INSTANCE`.
        table: finds what was started.
        groups: the control groups of runs, if there are any.
        answer_s: how long to wait for the start of a command.
    """

    def __init__(
        self, instance: str, table: ProcessTable, groups: RunGroups | None, *, answer_s: float = _ANSWER_S
    ) -> None:
        self._instance = instance
        self._table = table
        self._groups = groups
        self._answer_s = answer_s
        self._program: _Program | None = None
        self._places = anyio.Semaphore(_AT_ONCE)

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        stderr: int,
        last_signal: signal.Signals,
        run_id: str | None,
    ) -> "SupervisedChild":
        """Start a command; the descriptor `stderr` stays the caller's.

        Args:
            argv: the command.
            cwd: its working directory; that of this process if it is None.
            env: its environment.
            stderr: its standard error.
            last_signal: sent to the command and its descendants when this process dies; SIGKILL follows.
            run_id: the command starts in the control group of this run, where there are groups.

        Raises:
            TimeoutError: the supervisor did not answer. Nothing was started.
            OSError: the command could not be started.
        """
        marked = {**env, INSTANCE_VARIABLE: self._instance}
        text = supervisor_program.request(
            [os.fsencode(word) for word in argv],
            [os.fsencode(f"{name}={value}") for name, value in marked.items()],
        )
        async with self._places:
            with anyio.CancelScope(shield=True):
                for _ in range(2):
                    program = self._program = self._program or _Program(self._instance)
                    try:
                        return await self._start_by(program, text, argv[0], cwd, stderr, last_signal, run_id)
                    except TimeoutError as error:
                        self._replace(program, "it does not answer")
                        raise TimeoutError(
                            errno.ETIMEDOUT, "the supervisor does not answer", argv[0]
                        ) from error
                    except (BrokenPipeError, ConnectionResetError):
                        self._replace(program, "it has ended")
        raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD), argv[0])

    def _replace(self, program: "_Program", reason: str) -> None:
        """Let another process start the next command, unless another task has already replaced it."""
        if self._program is program:
            self._program = None
            _log.warning("supervisor_replaced", reason=reason)
            program.ask_no_more()

    async def _start_by(
        self,
        program: "_Program",
        text: bytes,
        name: str,
        cwd: Path | None,
        stderr: int,
        last_signal: signal.Signals,
        run_id: str | None,
    ) -> "SupervisedChild":
        """Start a command by one process.

        Raises:
            TimeoutError: it does not answer.
            BrokenPipeError: it ended before it executed the command; so does `ConnectionResetError`.
            OSError: the command could not be started.
        """
        with ExitStack() as theirs:
            directory = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            theirs.callback(os.close, directory)
            child_stdin, own_stdin = os.pipe()
            theirs.callback(os.close, child_stdin)
            stdin = PipeWriter(own_stdin)
            own_stdout, child_stdout = os.pipe()
            theirs.callback(os.close, child_stdout)
            stdout = PipeReader(own_stdout)
            own_ended, its_ended = os.pipe()
            theirs.callback(os.close, its_ended)
            ended = _ExitCode(own_ended)
            own_started, its_started = socket.socketpair()
            theirs.enter_context(its_started)
            async with await UNIXSocketStream.from_socket(own_started) as started:
                with anyio.fail_after(self._answer_s):
                    streams = (child_stdin, child_stdout, stderr)
                    await program.ask(last_signal, its_started.fileno(), its_ended, directory, *streams)
                    theirs.close()
                    pid, number = await _line(started)
                if pid == 0:
                    raise _failure(number, name)
                command, subreaper = self._table.identify(pid), self._table.identify(number)
                if command is None or subreaper is None:
                    raise BrokenPipeError("the command was killed before it was executed")
                if self._groups is not None and run_id is not None:
                    await to_thread.run_sync(self._groups.add, run_id, pid)
                if error := await _execute(started, text):
                    raise _failure(error, name)
        return SupervisedChild(command, subreaper, stdin, stdout, ended, program)


class SupervisedChild:
    """A command below a subreaper, with pipes for stdin and stdout.

    Attributes:
        identity: the identity of the command.
        root: the ancestor of all its descendants: the subreaper.
    """

    def __init__(
        self,
        command: Identity,
        subreaper: Identity,
        stdin: PipeWriter,
        stdout: PipeReader,
        ended: "_ExitCode",
        program: "_Program",
    ) -> None:
        self.identity = command
        self.root = subreaper
        self.stdin = stdin
        self.stdout = stdout
        self._ended = ended
        self._program = program  # keeps the process alive as long as one of its commands is referenced

    async def exited(self) -> None:
        """Wait until the command and all its descendants have ended."""
        await self._ended.known()

    def reap(self) -> int | None:
        """Return the exit code (negative for a signal) if the command has ended, else None."""
        return self._ended.read()

    @property
    def left_nothing(self) -> bool:
        """Whether the subreaper has said that all its descendants have ended."""
        return self._ended.of_all

    async def end_group(self, _: ProcessTable) -> None:
        """Do nothing: the subreaper has already ended the descendants."""

    def kill(self, table: ProcessTable) -> None:
        """Let the subreaper kill the command and all its descendants."""
        table.send(supervisor_program.KILL_ALL, [self.root])


class _ExitCode:
    """The reading end of the pipe on which a subreaper writes the exit code; it is closed with the object."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._close = weakref.finalize(self, os.close, fd)
        self._code: int | None = None
        self.of_all = False
        """Whether all descendants of the subreaper had ended when it wrote the code."""

    async def known(self) -> None:
        """Wait until the exit code is known. Several tasks may wait."""
        if self._code is not None:
            await checkpoint()
            return
        copy = os.dup(self._fd)
        try:
            await wait_readable(copy)
        finally:
            os.close(copy)

    def read(self) -> int | None:
        """Return the exit code; None while the subreaper lives, or if it was killed."""
        if self._code is None:
            try:
                text = os.read(self._fd, _CODE_BYTES)
            except BlockingIOError:
                return None
            code, _, left = text.partition(b" ")
            self._code = int(code) if code else -signal.SIGKILL
            self.of_all = bool(code) and not left
            self._close()
        return self._code


class _Program:
    """A process of `supervisor_program`, killed and reaped with this object.

    Raises `OSError` if it cannot be started.
    """

    def __init__(self, instance: str) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(0)
        command = supervisor_program.command_line(instance)
        with theirs:
            # That process gets neither the daemon's environment nor its streams.
            self._pid = os.posix_spawn(
                command[0],
                command,
                {name: os.environ[name] for name in _INHERITED if name in os.environ},
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ),
                setsid=True,
            )
        unreaped.add(self._pid)
        weakref.finalize(self, _kill_and_reap, self._pid, self._requests)

    async def ask(self, last_signal: signal.Signals, *descriptors: int) -> None:
        """Send a request. Raises `BrokenPipeError` or `ConnectionResetError` if the process has ended."""
        while True:
            try:
                socket.send_fds(self._requests, [b"%d" % last_signal], descriptors)
            except BlockingIOError:
                await wait_writable(self._requests)
            else:
                return

    def ask_no_more(self) -> None:
        """Let it end after the last command that it has started."""
        self._requests.close()


def _kill_and_reap(pid: int, requests: socket.socket) -> None:
    requests.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    unreaped.discard(pid)


async def _line(started: UNIXSocketStream) -> tuple[int, int]:
    """Return the two numbers of the first line. Raises `BrokenPipeError` if there is none."""
    text = b""
    try:
        while not text.endswith(b"\n"):
            text += await started.receive()
    except (EndOfStream, BrokenResourceError) as error:
        raise BrokenPipeError("the supervisor has not served the request") from error
    first, second = map(int, text.split())
    return first, second


async def _execute(started: UNIXSocketStream, text: bytes) -> int:
    """Execute the command; return 0 or the errno. Raises `BrokenPipeError` if it was killed before."""
    try:
        await started.send(text)
        await started.send_eof()
    except (BrokenResourceError, OSError) as error:
        raise BrokenPipeError("the command was killed before it was executed") from error
    answer = b""
    with suppress(EndOfStream, BrokenResourceError):
        while True:
            answer += await started.receive()
    return int(answer or 0)


def _failure(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
