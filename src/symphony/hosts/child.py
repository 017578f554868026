"""One child process with pipes, watched through its pidfd: no thread per child, no race about its number.

asyncio's own subprocess support is not used, for three reasons: up to Python 3.11 it makes a thread for
each child; its `wait` does not return while a grandchild holds stdout open; and it reaps the child on its
own, after which the number of its process group may belong to somebody else. Here the child stays a zombie,
and its group ours, until `reap`.
"""

import fcntl
import math
import os
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio import to_thread, wait_readable, wait_writable
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

__all__ = ["PIPE_BYTES", "Child", "ReadEnd", "WriteEnd", "start"]

PIPE_BYTES = 131_072


class ReadEnd:
    """Our end of a pipe that the child writes to. Closed at its end, by `close`, or with the object."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._waited = False
        self.close = weakref.finalize(self, os.close, fd)

    async def receive(self, max_bytes: int) -> bytes:
        """Next bytes; `b""` at the end. No await stands between reading and returning, so none get lost.

        Others get their turn before each read but the first one after a wait: between a question and its
        answer there is nothing to read, and the way around the loop would only cost time.
        """
        waited, self._waited = self._waited, False
        await (checkpoint_if_cancelled() if waited else checkpoint())
        while self.close.alive:
            try:
                data = os.read(self._fd, max_bytes)
            except BlockingIOError:
                await wait_readable(self._fd)
                self._waited = True
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
        return self._popen.poll()

    def signal_group(self, number: int) -> bool:
        """Signal the child's process group; whether there is one left."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def start(argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str], stderr: int) -> Child:
    """Start a child; `stderr` is a file descriptor that stays the caller's. Raises `OSError`."""
    child_stdin, our_stdin = os.pipe()
    our_stdout, child_stdout = os.pipe()
    stdin, stdout = WriteEnd(our_stdin), ReadEnd(our_stdout)
    _widen(our_stdout)
    try:
        popen = subprocess.Popen(
            list(argv),
            stdin=child_stdin,
            stdout=child_stdout,
            stderr=stderr,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
    finally:
        os.close(child_stdin)
        os.close(child_stdout)
    return Child(popen, stdin, stdout)


def _widen(fd: int) -> None:
    """Let a pipe hold twice as much, where one may: a read costs as much as the events that it brings."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # a user may have so much in pipes, and no more
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


async def _readable_once(fd: int) -> None:
    try:
        await wait_readable(fd)
    finally:
        os.close(fd)


def _wait_unreaped(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
