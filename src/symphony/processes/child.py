"""A direct child of this process, and the pipes to a child.

asyncio's own subprocess support is not used, for three reasons: up to Python 3.11 it makes a thread for each
child; its `wait` does not return while a grandchild holds stdout open; and it reaps the child on its own,
after which the number of the child's process group may belong to another process. This module watches each
child through its pidfd. Until `reap` the child stays a zombie, so the number of its group cannot be reused.
"""

import os
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from anyio import wait_readable, wait_writable
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from symphony.processes.base import Identity
from symphony.processes.table import ProcessTable

_GROUP_GRACE_MS: Final = 500
_SEEN_S: Final = 1.0

unreaped: Final[set[int]] = set()
"""The pids of started children that are not reaped yet; for the thread that starts them."""


class Child:
    """A child in a session and process group of its own, with pipes for stdin and stdout.

    Attributes:
        identity: the identity of the child.
        root: the ancestor of all its descendants: the child.
        left_nothing: whether it is known that all descendants have ended; it never is.
    """

    left_nothing: Final = False

    def __init__(
        self, popen: subprocess.Popen[bytes], identity: Identity, stdin: "PipeWriter", stdout: "PipeReader"
    ) -> None:
        self._popen = popen
        self.identity = self.root = identity
        self.stdin = stdin
        self.stdout = stdout

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        stderr: int,
        table: ProcessTable,
    ) -> "Child":
        """Start a child; the descriptor `stderr` stays the caller's. Raises `OSError`."""
        with ExitStack() as theirs:
            child_stdin, own_stdin = os.pipe()
            theirs.callback(os.close, child_stdin)
            stdin = PipeWriter(own_stdin)
            own_stdout, child_stdout = os.pipe()
            theirs.callback(os.close, child_stdout)
            stdout = PipeReader(own_stdout)
            popen = subprocess.Popen(
                list(argv),
                stdin=child_stdin,
                stdout=child_stdout,
                stderr=stderr,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
            )
        unreaped.add(popen.pid)
        # If `/proc` hides processes that may not be inspected, a child is hidden until a moment after its
        # `exec`.
        deadline = time.monotonic() + _SEEN_S
        while (identity := table.identify(popen.pid)) is None:
            if time.monotonic() > deadline:
                popen.kill()
                popen.wait()
                unreaped.discard(popen.pid)
                raise ProcessLookupError(f"process {popen.pid} vanished while it was started")
            os.sched_yield()
        return cls(popen, identity, stdin, stdout)

    async def exited(self) -> None:
        """Wait until the child has ended, even while other processes hold its pipes; does not reap it."""
        if self._popen.returncode is not None:
            await checkpoint()
            return
        pidfd = os.pidfd_open(self._popen.pid)
        try:
            await wait_readable(pidfd)
        finally:
            os.close(pidfd)

    def reap(self) -> int | None:
        """Return the exit code (negative for a signal) if the child has ended, else None."""
        code = self._popen.poll()
        if code is not None:
            unreaped.discard(self._popen.pid)
        return code

    async def end_group(self, table: ProcessTable) -> None:
        """Reap a child that has ended, and end the rest of its group."""
        # Do this before reaping, while the number of the group cannot belong to another process.
        self._signal_group(signal.SIGTERM)
        self.reap()
        if self._signal_group(0):
            await table.end(table.group(self._popen.pid), grace_ms=_GROUP_GRACE_MS)

    def kill(self, _: ProcessTable) -> None:
        """Kill its group, whose number cannot be reused before the child is reaped."""
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> bool:
        """Signal the child's process group; return whether there is one left."""
        try:
            os.killpg(self._popen.pid, number)
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
