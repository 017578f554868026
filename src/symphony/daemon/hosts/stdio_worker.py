"""A worker in another process: frames over its stdin and stdout."""

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import structlog

import symphony
from symphony import to_thread
from symphony.daemon import frames
from symphony.daemon.carriers import MAX_SAID_CHARS
from symphony.daemon.runs.transcript import EntryWriter
from symphony.domain import Blame, Category, Failure, SymphonyError, one_line
from symphony.observability import bugs
from symphony.processes.base import Host, HostProcess
from symphony.revision import commit
from symphony.scheduler import Outcome, OutcomeKind

_EXIT_S: Final = 30.0  # its stop ladder, `after_run` and delivery, both with little time
_HELLO_S: Final = 60.0  # a busy machine may take long to start a program
_SWEEPS: Final = 3
_MAX_WAITING: Final = 200  # frames; a frame is at most as large as the answer to a tool call
_FRAMES_PER_S: Final = 100.0
_BURST: Final = 1_000.0  # frames that are read ahead; later ones wait in the pipe
_log = structlog.get_logger(__name__)


class StdioWorker:
    """A worker in another process (`WorkerEnd`). Its first frame is the `Start` with a site.

    Until then the worker loads its program and waits.

    Args:
        host: where `argv` runs.
        argv: starts the worker, such as `symphony worker --stdio`.
        env: all variables of the process.
        lease_ms: the lease of the site.
        stderr_path: the file that receives its stderr.
        sweep: the run whose marked processes are ended on `host` once the worker has ended; `None` for none.
    """

    def __init__(
        self,
        *,
        host: Host,
        argv: Sequence[str],
        env: Mapping[str, str],
        lease_ms: int,
        stderr_path: Path,
        sweep: str | None = None,
    ) -> None:
        self.reported_end = False
        """Whether the worker reported how the run ended, after its processes were gone."""
        self.over = anyio.Event()
        """None of its processes is alive."""
        self._argv = tuple(argv)
        self._stderr_path = stderr_path
        self._sweep = sweep
        self._host = host
        self._env = env
        self._lease_s = lease_ms / 1000
        self._send: Callable[[frames.WorkerFrame], None] | None = None
        self._check: Callable[[frames.WorkerFrame], frames.WorkerFrame] | None = None
        self._transcript: EntryWriter | None = None
        self._ended: frames.RunOutcome | None = None
        self._child: HostProcess | None = None
        self._scope = anyio.CancelScope()
        self._give, self._outgoing = anyio.create_memory_object_stream[frames.DaemonFrame](_MAX_WAITING)
        self._accepted = anyio.Event()
        self._ready = anyio.Event()
        self._started = anyio.Event()
        self._clogged = anyio.Event()
        self._stopped = anyio.Event()
        self._stop_s = 0.0
        self._exit_s = _EXIT_S

    def take_run(
        self,
        send: Callable[[frames.WorkerFrame], None],
        transcript: EntryWriter,
        check: Callable[[frames.WorkerFrame], frames.WorkerFrame],
        stop_s: float,
    ) -> None:
        """Start a run on it.

        Args:
            send: receives its frames.
            transcript: receives the entries of the transcript.
            check: returns the trustworthy part of each frame, or raises `FrameError`; blocking.
            stop_s: how many seconds the run may take to end after a request to stop it.
        """
        self._send, self._transcript, self._check, self._stop_s = send, transcript, check, stop_s
        self._finish()

    def abandon(self) -> None:
        """End the worker and its work."""
        self._scope.cancel()

    @property
    def started(self) -> bool:
        """Whether the run may have begun."""
        return self._started.is_set()

    async def until_ready(self) -> None:
        """Wait until the worker has loaded its program and can take a run, or has ended."""
        await self._ready.wait()

    def on_frame(self, frame: frames.DaemonFrame) -> None:
        """Send a frame to the worker; dropped once the worker is gone.

        Too many waiting frames end the worker.
        """
        # The commands of a verification have their own limits.
        if isinstance(frame, frames.Stop) and not frame.verify:
            self._stopped.set()
        try:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._give.send_nowait(frame)
        except anyio.WouldBlock:
            self._clogged.set()

    async def run(self) -> None:
        """Start the worker and forward frames, its `RunOutcome` only once none of its processes is alive."""
        ended = _lost("the worker was cut off")
        try:
            with self._scope:
                self._child = child = await self._host.spawn(
                    self._argv,
                    cwd=Path("/"),
                    env=self._env,
                    stderr_path=self._stderr_path,
                    supervised=False,  # a client ends with its input, as the worker does
                )
                try:
                    ended = await self._converse(child)
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._end(child)
        except OSError as error:
            ended = _lost(f"the worker cannot be started: {error}")
        finally:
            self._ready.set()
            self._give.close()
            self._outgoing.close()
            self._ended = ended
            self._finish()
            self.over.set()

    def _finish(self) -> None:
        """Send the outcome, if there was a run."""
        if self._ended is not None and self._send is not None and self._transcript is not None:
            self._transcript.close()
            self._send(self._ended)

    async def _converse(self, child: HostProcess) -> frames.RunOutcome:
        hint = f"see {self._stderr_path}, if it exists"
        failed = _lost("the worker ended without a result", hint=hint)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, child)
                tasks.start_soon(self._watch_waiting)
                tasks.start_soon(self._watch_stop)
                failed = await self._read(child) or failed
                tasks.cancel_scope.cancel()
        except* SymphonyError as errors:
            failure = next(one.failure for one in errors.exceptions if isinstance(one, SymphonyError))
            failure = replace(failure, hint=failure.hint or hint)
            failed = frames.RunOutcome(outcome=Outcome(kind=OutcomeKind.FAILED, failure=failure))
        except* Exception as errors:  # noqa: BLE001 - a bug costs one attempt, never the daemon
            failure = bugs.contained("run_crashed", errors.exceptions[0], Category.WORKER_LOST)
            failed = frames.RunOutcome(outcome=Outcome(kind=OutcomeKind.FAILED, failure=failure))
        return failed

    async def _write(self, child: HostProcess) -> None:
        """Send frames as they come, and a `Ping` if there are none, to renew the lease.

        Raises:
            FrameError: a frame cannot be encoded, such as a run with very large skills.
        """
        encoder = frames.FrameEncoder()
        await self._accepted.wait()
        frame = await self._outgoing.receive()
        self._started.set()
        while True:
            try:
                data = encoder.encode(frame)
            except frames.FrameError as error:  # such as a result that is too large
                if not isinstance(frame, frames.RequestAnswered):
                    raise
                data = encoder.encode(frames.RequestAnswered(request=frame.request, failure=error.failure))
            try:
                await child.send(data)
            except BrokenPipeError:
                return  # the end of its output shows that too
            frame = frames.Ping()
            with anyio.move_on_after(self._lease_s / 3):
                frame = await self._outgoing.receive()

    async def _watch_waiting(self) -> None:
        """Raise `SymphonyError` if the worker reads frames more slowly than they come."""
        await self._clogged.wait()
        self._exit_s = 0
        raise SymphonyError(_failure(f"the way to the worker is too slow: {_MAX_WAITING} frames wait"))

    async def _watch_stop(self) -> None:
        """Raise `SymphonyError` if the worker does not stop its run after the request."""
        await self._stopped.wait()
        await anyio.sleep(self._stop_s)
        self._exit_s = 0
        raise SymphonyError(_failure(f"the worker did not stop its run within {self._stop_s:g} s"))

    async def _read(self, child: HostProcess) -> frames.RunOutcome | None:
        """Forward frames until the last one, or `None` at the end of the stream.

        Raises:
            SymphonyError: the stream contains something other than frames, the worker has another release, or
                it was silent for longer than the lease.
        """
        decoder, room, since_s = frames.FrameDecoder(), _BURST, anyio.current_time()
        while True:
            while (frame := decoder.take()) is not None:
                now_s = anyio.current_time()
                room, since_s = min(room + (now_s - since_s) * _FRAMES_PER_S, _BURST) - 1, now_s
                await anyio.sleep(max(0.0, -room / _FRAMES_PER_S))
                if isinstance(frame, frames.Hello):
                    await self._accept(frame)
                elif isinstance(frame, frames.WorkerFrame) and self._accepted.is_set():
                    if (ended := await self._take(frame)) is not None:
                        return ended
                else:
                    raise frames.refusal(frame)
            data: bytes | None = None
            limit_s = self._lease_s if self._accepted.is_set() else max(self._lease_s, _HELLO_S)
            with anyio.move_on_after(limit_s):
                data = await child.receive()
            if data is None:
                self._exit_s = 0
                raise SymphonyError(_failure(f"the worker was silent for {limit_s:g} s"))
            if not data:
                decoder.end()
                return None
            decoder.feed(data)

    async def _take(self, frame: frames.WorkerFrame) -> frames.RunOutcome | None:
        """Forward the trustworthy part of a frame; return the last one. Raises `FrameError`."""
        assert self._check is not None  # noqa: S101 - it has a run
        assert self._send is not None  # noqa: S101 - likewise
        assert self._transcript is not None  # noqa: S101 - likewise
        match await to_thread.run_sync(self._check, frame):
            case frames.TranscriptEntries(entries=entries):
                await to_thread.run_sync(self._transcript.write, entries)
            case frames.Logged() as logged:
                getattr(_log, logged.level)(logged.event, **logged.fields)
            case frames.RunOutcome() as ended:
                self.reported_end = True
                return ended
            case other:
                self._send(other)
        return None

    async def _accept(self, hello: frames.Hello) -> None:
        own = await to_thread.run_sync(commit)
        same_commit = None in {own, hello.commit} or own == hello.commit
        if hello.version != symphony.__version__ or not same_commit:
            theirs = one_line(f"{hello.version} ({hello.commit})", MAX_SAID_CHARS)
            mine = f"{symphony.__version__} ({own})"
            raise SymphonyError(
                _failure(
                    f"the worker is release {theirs}, the daemon is {mine}",
                    hint="install the same release of symphony on both machines: `symphony hosts prepare`",
                )
            )
        self._accepted.set()
        self._ready.set()
        await self._started.wait()  # until then it sends nothing

    async def _end(self, child: HostProcess) -> None:
        """Let the worker stop its agent and end; then end the remaining processes."""
        await child.close_stdin()
        with anyio.move_on_after(self._exit_s):
            await child.wait()
        if child.exit_code is None:
            child.signal(signal.SIGKILL, child.descendants())
            await child.wait()
        if self._sweep is None:
            return
        for _ in range(_SWEEPS):
            left = await to_thread.run_sync(self._host.find_marked, (self._sweep,))
            if not left:
                return
            await self._host.end(left, grace_ms=0)


def _failure(message: str, *, hint: str | None = None) -> Failure:
    return Failure(category=Category.WORKER_LOST, blame=Blame.HOST, message=message, hint=hint)


def _lost(message: str, *, hint: str | None = None) -> frames.RunOutcome:
    return frames.RunOutcome(outcome=Outcome(kind=OutcomeKind.FAILED, failure=_failure(message, hint=hint)))
