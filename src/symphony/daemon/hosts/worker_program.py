"""`symphony worker --stdio`: carries out one run for a daemon, with frames on stdin and stdout.

The agent ends with this process, because it runs below a subreaper. This process ends its agent when its
input ends, or when it got no frame for the time of its lease.
"""

import threading
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog
from anyio import from_thread
from anyio.lowlevel import current_token

import symphony
from symphony import to_thread
from symphony.agents.registry import SECTIONS
from symphony.config import WorkflowFile, parse_workflow
from symphony.daemon import frames
from symphony.daemon.context import RuntimeContext, build_context
from symphony.daemon.hosts.host_runs import HostRuns, own_identity
from symphony.daemon.hosts.host_workspaces import HostWorkspace, RemovalRequest, answer_line
from symphony.daemon.instruction_store import InstructionStore, StoredCopy, StoredFile
from symphony.daemon.runs.tracing import RunTrace
from symphony.daemon.runs.worker import Worker
from symphony.daemon.state_dir import StateDirectory, instance_of, locate
from symphony.domain import SymphonyError
from symphony.journal.transcripts import TranscriptEntry
from symphony.library.store import Library, library_path
from symphony.processes.child import PipeReader, PipeWriter
from symphony.processes.local import LocalHost
from symphony.processes.table import ProcessTable
from symphony.revision import commit
from symphony.scheduler import Outcome, OutcomeKind
from symphony.trackers.registry import TRACKERS
from symphony.workspaces import WorkspaceRecord, delete_old_entries, find_work, last_touched, tree_size

_CHUNK_BYTES: Final = 65_536
_ENTRIES_PER_FRAME: Final = 50  # of 64 Ki characters at most
_LAST_FRAMES_S: Final = 5.0
_LOGS_KEPT_S: Final = 30 * 24 * 3_600.0
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical"})
_log = structlog.get_logger(__name__)


class WorkerProgram:
    """Carries out one run for a daemon at the other end of two pipes.

    Args:
        stdin: frames of the daemon.
        stdout: frames for the daemon.
        environment: variables of this process.
        adopt_orphans: this process is a subreaper (`LocalHost`).

    Made in the thread of the event loop.
    """

    def __init__(
        self, stdin: PipeReader, stdout: PipeWriter, environment: Mapping[str, str], *, adopt_orphans: bool
    ) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._environment = environment
        self._adopt_orphans = adopt_orphans
        self._decoder = frames.FrameDecoder()
        self._heard_s = 0.0
        self._thread = threading.get_ident()
        self._loop = current_token()
        self._give, self._outgoing = anyio.create_memory_object_stream[frames.WorkerFrame](float("inf"))
        self._written = anyio.Event()
        self._worker: Worker | None = None
        self._early: list[frames.DaemonFrame] = []
        self._abandoned = False

    async def run(self) -> None:
        """Say hello, wait for the run, carry it out, and end with its last frame.

        Raises:
            FrameError: the other end is not a daemon.
        """
        refused: frames.FrameError | None = None
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.format_exc_info,
                self._log,
            ]
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write)
            release = await to_thread.run_sync(commit)
            self.send(frames.Hello(version=symphony.__version__, commit=release))
            try:
                start = await self._next()
                if isinstance(start, frames.Start) and start.site is not None:
                    await self._carry_out(start, start.site)
            except frames.FrameError as error:
                refused = error
            self._give.close()
            with anyio.move_on_after(_LAST_FRAMES_S):
                await self._written.wait()
            tasks.cancel_scope.cancel()
        if refused is not None:
            raise refused

    def send(self, frame: frames.WorkerFrame) -> None:
        """Send a frame to the daemon; never waits. Dropped if the daemon reads no more."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._give.send_nowait(frame)

    def send_from_thread(self, frame: frames.WorkerFrame) -> None:
        """As `send`, from a thread for which the event loop waits."""
        from_thread.run_sync(self.send, frame, token=self._loop)

    async def _carry_out(self, start: frames.Start, site: frames.Site) -> None:
        lease_s, self._heard_s = site.lease_ms / 1000, anyio.current_time()
        path, environment = Path(site.workflow), {**self._environment, **site.env}
        state_dir = StateDirectory(locate(path, environment))
        host = LocalHost(instance=instance_of(state_dir.path), adopt_orphans=self._adopt_orphans)
        runs, run_id = HostRuns(state_dir.path), start.command.run_id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read)
            tasks.start_soon(self._watch_lease, lease_s)
            tasks.start_soon(self._ping, lease_s / 3)
            try:
                await to_thread.run_sync(state_dir.create)
                await to_thread.run_sync(runs.begin, run_id, own_identity(host))
                context = await open_site(site, state_dir, host, environment)
                if site.delivered is not None:
                    await context.workspaces.renew(start.command.issue, site.delivered)
            except SymphonyError as error:
                self.send(frames.RunOutcome(outcome=Outcome(kind=OutcomeKind.FAILED, failure=error.failure)))
            else:
                await self._work(start, context, state_dir)
            tasks.cancel_scope.cancel()

        def tidy() -> None:
            runs.finish(run_id)
            state_dir.remove_empty_log(run_id)
            delete_old_entries(state_dir.logs, older_than_s=_LOGS_KEPT_S)

        await to_thread.run_sync(tidy)

    async def _work(self, start: frames.Start, context: RuntimeContext, state_dir: StateDirectory) -> None:
        self._worker = worker = Worker(
            start,
            self.send,
            context=context,
            state_dir=state_dir,
            transcript=_SentTranscript(self),
            trace=RunTrace(),
            pricing=partial(context.cost, start.command.agent),
        )
        for frame in self._early:
            worker.on_frame(frame)
        if self._abandoned:
            worker.abandon()
        await worker.run()

    def _abandon(self) -> None:
        """Stop everything, because the daemon is gone or may believe that this worker is.

        No agent starts any more.
        """
        self._abandoned = True
        if self._worker is not None:
            self._worker.abandon()

    # --- the stream --------------------------------------------------------------------------------------

    async def _next(self) -> frames.DaemonFrame | None:
        """The next frame; `None` at the end of the stream. Raises `FrameError`."""
        while (frame := self._decoder.take()) is None:
            data = await self._stdin.receive(_CHUNK_BYTES)
            self._heard_s = anyio.current_time()
            if not data:
                return None
            self._decoder.feed(data)
        if not isinstance(frame, frames.DaemonFrame):
            raise frames.refusal(frame)
        return frame

    async def _read(self) -> None:
        """Forward frames; without a daemon stop the run."""
        try:
            while (frame := await self._next()) is not None:
                if self._worker is None:
                    self._early.append(frame)
                else:
                    self._worker.on_frame(frame)
        except frames.FrameError:
            pass  # the daemon sends something other than frames
        self._abandon()

    async def _watch_lease(self, lease_s: float) -> None:
        over_s = self._heard_s + lease_s
        while anyio.current_time() < over_s:
            await anyio.sleep_until(over_s)
            over_s = self._heard_s + lease_s
        self._abandon()

    async def _ping(self, interval_s: float) -> None:
        while True:
            await anyio.sleep(interval_s)
            self.send(frames.Ping())

    async def _write(self) -> None:
        encoder = frames.FrameEncoder()
        async for frame in self._outgoing:
            try:
                data = encoder.encode(frame)
            except frames.FrameError as error:  # such as the arguments of a tool call with a huge number
                reason = error.failure.message
                if self._worker is not None and isinstance(frame, frames.Request):
                    self._worker.on_frame(
                        frames.RequestAnswered(request=frame.request, failure=error.failure)
                    )
                elif isinstance(frame, frames.TranscriptEntries):
                    self.send(frames.TranscriptIncomplete(reason=reason))
                else:
                    _log.error("frame_lost", frame=type(frame).__name__, reason=reason)
                continue
            try:
                await self._stdout.send(data)
            except BrokenPipeError:
                self._outgoing.close()
                break
        self._written.set()

    def _log(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        """Send a log event as a frame instead of writing it."""
        fields = msgspec.to_builtins(
            {key: value for key, value in event.items() if key != "event"}, enc_hook=str
        )
        frame = frames.Logged(
            level=level if level in _LEVELS else "error",  # type: ignore[arg-type]  # one of them
            event=str(event.get("event")),
            fields=fields,
        )
        (self.send if threading.get_ident() == self._thread else self.send_from_thread)(frame)
        raise structlog.DropEvent


async def remove_workspace(data: bytes, environment: Mapping[str, str]) -> str:
    """Remove the workspace that a `RemovalRequest` names; return the line of the answer.

    Raises:
        SymphonyError: the workspace cannot be removed.
    """
    request = msgspec.json.decode(data, type=RemovalRequest)
    context, _ = await _open_here(request.site, environment)
    record = await context.workspaces.locate(request.issue_id, request.identifier)
    return answer_line(await context.workspaces.remove(record))


async def list_workspaces(data: bytes, environment: Mapping[str, str]) -> str:
    """List the workspaces of a `Site`; return the line of the answer. Removes nothing.

    Raises:
        SymphonyError: they cannot be read.
    """
    context, host = await _open_here(msgspec.json.decode(data, type=frames.Site), environment)

    async def look(record: WorkspaceRecord) -> HostWorkspace:
        def measure() -> tuple[int, float, int | None]:
            path = record.path
            return tree_size(path), last_touched(path), ProcessTable().working_in(path)

        size, touched_s, pid = await to_thread.run_sync(measure)
        work = await find_work(
            record.path,
            host=host,
            settings=context.settings.workspace,
            environment=environment,
            secret_names=context.secret_names,
        )
        reason = None if work is None else work.reason
        return HostWorkspace(
            issue_id=record.issue_id,
            identifier=record.identifier,
            path=str(record.path),
            bytes=size,
            touched_s=touched_s,
            is_busy=pid is not None,
            kept_reason=reason if pid is None else f"a process (pid {pid}) works in it",
        )

    records = await context.workspaces.records()
    return answer_line([await look(one) for one in records if await to_thread.run_sync(one.path.is_dir)])


async def _open_here(site: frames.Site, environment: Mapping[str, str]) -> tuple[RuntimeContext, LocalHost]:
    """As `open_site`, outside of a run."""
    state_dir = StateDirectory(locate(Path(site.workflow), environment))
    await to_thread.run_sync(state_dir.create)
    host = LocalHost(instance=instance_of(state_dir.path))
    return await open_site(site, state_dir, host, {**environment, **site.env}), host


async def open_site(
    site: frames.Site, state_dir: StateDirectory, host: LocalHost, environment: Mapping[str, str]
) -> RuntimeContext:
    """Settings and adapters of this machine. Raises `SymphonyError`."""
    file = WorkflowFile(path=Path(site.workflow), data=site.text)
    workflow = parse_workflow(
        file, environment=environment, tracker_kinds=TRACKERS.names, agent_kinds=SECTIONS
    )
    instructions = workflow.settings.agent.instructions
    if site.fallback is not None:
        fallback = state_dir.path / "instructions-fallback.md"
        await to_thread.run_sync(fallback.write_bytes, site.fallback)
        instructions = instructions.model_copy(update={"fallback": str(fallback)})
    context = await to_thread.run_sync(partial(build_context, workflow, host=host, environment=environment))
    if context.instructions is not None:
        files = site.instructions
        carried = (
            None if files is None else StoredCopy({key: StoredFile(data) for key, data in files.items()})
        )
        store = InstructionStore(
            instructions,
            base_dir=workflow.path.parent,
            copies=state_dir.path / "instructions",
            carried=carried,
        )
        context = replace(context, instructions=store)
    await context.workspaces.check_root()
    path = library_path(state_dir.path, workflow.settings.agent.library.path)
    library = Library(path) if site.skills is None else None
    return replace(context, library=library, carried_skills=site.skills)


class _SentTranscript:
    """Sends the entries of the transcript to the daemon (`EntryWriter`)."""

    def __init__(self, program: WorkerProgram) -> None:
        self.problem: str | None = None
        self._program = program

    def write(self, entries: Sequence[TranscriptEntry]) -> None:
        """Send entries; called in a thread."""
        for start in range(0, len(entries), _ENTRIES_PER_FRAME):
            some = tuple(entries[start : start + _ENTRIES_PER_FRAME])
            self._program.send_from_thread(frames.TranscriptEntries(entries=some))

    def close(self) -> None:
        """End the transcript; nothing more is sent."""
