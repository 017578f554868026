"""One child process with pipes, watched through its pidfd: no thread per child, no race about its number.

asyncio's own subprocess support is not used, for three reasons: up to Python 3.11 it makes a thread for
each child; its `wait` does not return while a grandchild holds stdout open; and it reaps the child on its
own, after which the number of its process group may belong to somebody else. Here the child stays a zombie,
and its group ours, until `reap`.
"""

import math
import os
import subprocess
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread, wait_readable, wait_writable
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

__all__ = ["Child", "ReadEnd", "WriteEnd", "start", "started_here"]

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
