"""The daemon: composition, start-up, and the loop that decides.

    lock -> end what a killed daemon left -> build the context -> preflight -> recover -> loop

Everything that happens becomes an event in one mailbox: answers of the tracker, reports of runs, timers,
actions of operators, changes of the workflow file. The loop takes one event at a time, steps the pure
scheduler, and hands the resulting commands to `Effects`. Nothing awaits between an event and its commands.
"""

import math
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Protocol

import anyio
import structlog
from anyio import create_memory_object_stream

from symphony import to_thread
from symphony.api.history import PULL_REQUEST_JUDGED, TRANSCRIPT_INCOMPLETE, History
from symphony.api.live import Changes
from symphony.api.models import DoctorCheck, Instructions, Skills
from symphony.config import Workflow, WorkflowStore
from symphony.daemon.clock import Timers, check_wall_clock, monotonic_ms, utc_day, wall_ms
from symphony.daemon.comments import CommentWriter, PeopleCommentReader, ReadComments, SkillComments
from symphony.daemon.context import (
    RuntimeContext,
    build_context,
    scheduler_settings,
)
from symphony.daemon.diagnostics import check_documents, machine_checks, run_checks
from symphony.daemon.effects import Effects
from symphony.daemon.forge.feedback import ReviewTools
from symphony.daemon.forge.pull_requests import PullRequests
from symphony.daemon.hosts.ray_hosts import RayHosts
from symphony.daemon.hosts.remote_worker import RemoteHosts
from symphony.daemon.hosts.ssh_hosts import SshHosts
from symphony.daemon.http_server import serve_http
from symphony.daemon.instance_lock import InstanceLock
from symphony.daemon.jobs import JobRunner
from symphony.daemon.journal_writer import (
    JOURNAL_FILE,
    JournalWriter,
    open_journal_writer,
    told_comments,
)
from symphony.daemon.learning.learning_runs import Learner
from symphony.daemon.metrics import Metrics
from symphony.daemon.moves import Moves
from symphony.daemon.notify.outbox import Outbox
from symphony.daemon.notify.targets import Deliverer
from symphony.daemon.operator import ActionRequest, ServiceOperator
from symphony.daemon.preflight import preflight_agents
from symphony.daemon.recovery import (
    deliver_interrupted,
    existing_workspaces,
    reap_predecessor,
    refuse_second_daemon,
    scan_orphans,
)
from symphony.daemon.rehearsals import Rehearsals
from symphony.daemon.reload import Reloader, log_warnings
from symphony.daemon.retention import InUse, keep_bounded
from symphony.daemon.runs.supervised_run import RunCallbacks
from symphony.daemon.runs.tracing import Traces, open_traces
from symphony.daemon.sd_notify import Notifier
from symphony.daemon.state_dir import StateDirectory
from symphony.daemon.watchers import on_change, watch_library, watch_lock, watch_orphans
from symphony.daemon.webhooks import Webhooks
from symphony.domain import FaultHook, FaultPoint, Issue, SymphonyError, no_fault
from symphony.journal.model import PullRequestRecord
from symphony.library.store import Library, library_path
from symphony.processes.base import Host
from symphony.scheduler import (
    Command,
    DayBegan,
    Drain,
    DrainAsked,
    Event,
    State,
    StepFunction,
    StopAsked,
    WakeAsked,
    initial_state,
    resumable_threads,
    run_once_finished,
    step,
)
from symphony.trackers.base import ToolProvider

_RECHECK_S = 1.0
_DIAGNOSIS_TIMEOUT_S = 5.0
_LAST_ORPHAN_SWEEPS = 20
_THREADS = 16
_log = structlog.get_logger(__name__)


class Observer(Protocol):
    """Sees every step of the scheduler; must not block."""

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        """One step was taken. A step that failed has the same state before and after."""
        ...


class Service:
    """Serves one workflow file.

    Args:
        store: the workflow file.
        state_dir: journal, lock, logs and control socket.
        host: where processes run.
        environment: variables of the daemon.
        once: exit when nothing is left to do.
        observers: see every step.
        port: TCP port of the API; the one of the workflow file by default.
        now_ms: the monotonic clock.
        step: the scheduler.
        wall_ms: the wall clock.
        fault: called at the points where crash tests kill the daemon.
        notifier: talks to the service manager.
    """

    def __init__(
        self,
        *,
        store: WorkflowStore,
        state_dir: StateDirectory,
        host: Host,
        environment: Mapping[str, str],
        once: bool = False,
        observers: tuple[Observer, ...] = (),
        port: int | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
        step: StepFunction = step,
        wall_ms: Callable[[], int] = wall_ms,
        fault: FaultHook = no_fault,
        notifier: Notifier | None = None,
    ) -> None:
        self._store = store
        self._state_dir = state_dir
        configured = store.current().settings.agent.library.path
        self._library = Library(library_path(state_dir.path, configured))
        self._host = host
        self._environment = environment
        self._once = once
        self._port = port
        self._now_ms = now_ms
        self._step = step
        self._wall_ms = wall_ms
        self._fault = fault
        self._notifier = notifier or Notifier()
        self._mailbox, self._inbox = create_memory_object_stream[Event | ActionRequest | None](math.inf)
        self._timers = Timers(self.post, now_ms)
        self._start_scope: anyio.CancelScope | None = None
        self._exit = anyio.Event()
        self._lost: SymphonyError | None = None
        self._journal: JournalWriter | None = None
        self._reloader: Reloader | None = None
        self._effects: Effects | None = None
        self.state: State | None = None
        self._outbox: Outbox | None = None
        self._jobs: JobRunner | None = None
        self._history = History(now_ms=now_ms)
        self._traces: Traces | None = None
        self._learner: Learner | None = None
        self._pull_requests: PullRequests | None = None
        self._metrics = Metrics(
            state=lambda: self.state,
            journal_health=lambda: None if self._journal is None else self._journal.health,
            pull_requests=self._pull_request_records,
            now_ms=now_ms,
            wall_ms=wall_ms,
        )
        self._people_comments = PeopleCommentReader(partial(told_comments, state_dir.path / JOURNAL_FILE))
        self._changes = Changes()
        self._rehearsals = Rehearsals(
            context=self._context,
            state=lambda: self.state,
            on_result=self._metrics.rehearsed,
            on_changed=self._changes.merges_rehearsed,
        )
        self._operator = ServiceOperator(
            state=lambda: self.state,
            history=self._history,
            context=self._context,
            post=self.post,
            now_ms=now_ms,
            metrics=self._metrics.exposition,
            diagnose=self._diagnose,
            notify_targets=lambda: () if self._outbox is None else self._outbox.targets(),
            jobs=lambda: self._jobs,
            journal_health=lambda: None if self._journal is None else self._journal.health,
            journal=state_dir.path / JOURNAL_FILE,
            people_comments=self._people_comments,
            trace_id=lambda run_id: None if self._traces is None else self._traces.trace_id(run_id),
            on_feedback=lambda: None if self._learner is None else self._learner.wake(),
            traces_failure=lambda: None if self._traces is None else self._traces.failure,
            pull_requests=lambda: {} if self._pull_requests is None else self._pull_requests.shown(),
            rehearsals=self._rehearsals,
        )
        self._webhooks = Webhooks(
            self._context,
            self.post,
            lambda: None if self._pull_requests is None else self._pull_requests.look_soon(),
            environment=environment,
            now_ms=wall_ms,
            on_result=self._metrics.webhook_received,
        )
        self._observers: tuple[Observer, ...] = (
            self._history,
            self._metrics,
            self._operator,
            self._changes,
            self._rehearsals,
            *observers,
        )

    def post(self, item: Event | ActionRequest | None) -> None:
        """Put an event or an operator's action into the mailbox; `None` only makes the loop turn.

        After the end of the daemon the item is dropped.
        """
        try:
            self._mailbox.send_nowait(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    def request_shutdown(self, *, now: bool = False) -> None:
        """Drain and exit; with `now`, stop running agents as well. A start that is under way is abandoned."""
        self._notifier.stopping()
        self.post(StopAsked() if now else DrainAsked())
        if now and self._effects is not None:
            self._effects.hurry()
        if self._start_scope is not None:
            self._start_scope.cancel()

    async def reload_now(self) -> None:
        """Check the workflow file at once, and retry a file that was refused."""
        if self._reloader is None:
            return  # the daemon still starts, and reads the file when it serves
        self._notifier.reloading()
        await self._reloader.check(retry=True)
        self._notifier.reloaded()

    # --- start -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until shutdown is requested, or with `once` until nothing is left to do.

        Raises:
            SymphonyError: the start failed and nothing was dispatched, the instance lock was lost, or with
                `once` the tracker or the workflow file could not be read at the end.
        """
        with self._mailbox, self._inbox:
            start = self._start_scope = anyio.CancelScope()
            check_wall_clock(self._wall_ms())
            to_thread.share(_THREADS)
            await to_thread.run_sync(self._state_dir.create)
            await self._run_alone(start)

    async def _run_alone(self, start: anyio.CancelScope) -> None:
        """Serve as the only daemon of the state directory; cancelling `start` abandons the start."""
        identity = self._host.identify(os.getpid())
        workflow = self._store.current().path
        with self._state_dir.lock(workflow, identity=identity) as lock:
            self._fault(FaultPoint.LOCKED)
            await refuse_second_daemon(self._state_dir, self._host, lock)
            scan = await scan_orphans(self._host)
            journal = open_journal_writer(
                self._state_dir.path,
                owner=identity,
                mask=self._mask,
                now_ms=self._now_ms,
                wall_ms=self._wall_ms,
                fault=self._fault,
            )
            async with journal as self._journal:
                for record in self._journal.previous.comments:
                    self._webhooks.ignore_comment(record.comment_id)
                self._notifier.starting("ending what a predecessor left")
                await reap_predecessor(self._host, scan, agents=self._journal.live_agents)
                self._fault(FaultPoint.REAPED)
                context = await to_thread.run_sync(self._build_context, self._store.current())
                server = context.settings.server
                async with serve_http(
                    self._operator,
                    self._state_dir,
                    server=server if self._port is None else server.model_copy(update={"port": self._port}),
                    environment=self._environment,
                    changes=self._changes,
                    workflow=context.workflow.path,
                    webhooks=self._webhooks,
                ):
                    self._notifier.starting("checking the workspace and the agent")
                    with start:
                        log_warnings(context.workflow)
                        await context.workspaces.check_root()
                        await context.workspaces.check_repository()
                        if not context.settings.worker.remote:
                            await preflight_agents(context, context.agents)
                        self._fault(FaultPoint.CHECKED)
                    if start.cancel_called:
                        _log.info("stopped")
                    else:
                        await self._serve(context, self._journal, lock)

    def _build_context(self, workflow: Workflow) -> RuntimeContext:
        context = build_context(workflow, host=self._host, environment=self._environment, fault=self._fault)
        return replace(context, library=self._library)

    def _context(self) -> RuntimeContext | None:
        """The context in force; `None` until the daemon serves."""
        return None if self._reloader is None else self._reloader.context

    async def _diagnose(self, context: RuntimeContext) -> tuple[DoctorCheck, ...]:
        checks = machine_checks(self._host, self._environment, self._state_dir.path, context)
        findings = await run_checks(checks, timeout_s=_DIAGNOSIS_TIMEOUT_S)
        return check_documents(findings, context.redaction)

    def _mask(self, text: str) -> str:
        context = self._context()
        return text if context is None else context.redaction.text(text)

    def _on_instructions(
        self, journal: JournalWriter, issue_id: str, run_id: str, instructions: Instructions
    ) -> None:
        self._history.instructions_composed(issue_id, instructions)
        journal.instructions_composed(run_id, instructions)

    def _comments_told(self, journal: JournalWriter, issue_id: str, read: ReadComments) -> None:
        if read.told:
            self._people_comments.were_told(issue_id, read)
            journal.comments_told(issue_id, read.told)

    async def _serve(self, context: RuntimeContext, journal: JournalWriter, lock: InstanceLock) -> None:
        """Compose the parts, run them until the scheduler exits, and end what is left."""
        self._reloader = reloader = Reloader(
            context, store=self._store, build=self._build_context, post=self.post, now_ms=self._now_ms
        )
        self._outbox = outbox = Outbox(
            state=lambda: self.state,
            context=lambda: reloader.context,
            deliverer=Deliverer(self._host, self._environment, context.workflow.path.parent),
            environment=self._environment,
            recovered=journal.previous.settings,
            record=journal.setting_changed,
            recorded=journal.flush,
            on_result=self._metrics.notified,
            now_ms=self._now_ms,
            wall_ms=self._wall_ms,
            once=self._once,
        )

        def skills_changed(issue_id: str, run_id: str, skills: Skills) -> None:
            self._history.skills_loaded(issue_id, skills)
            self._metrics.skills_loaded(run_id, skills)
            journal.skills_loaded(run_id, skills)
            outbox.skills_loaded(skills)

        def transcript_incomplete(issue: Issue, run_id: str, reason: str) -> None:
            self._history.transcript_incomplete(issue.id, reason)
            journal.event(issue, TRANSCRIPT_INCOMPLETE, reason, run_id)

        def comment_written(issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
            self._webhooks.ignore_comment(comment_id)
            journal.comment_written(issue_id, kind, comment_id, fingerprint)

        self._jobs = jobs = JobRunner(
            {
                "comment": CommentWriter(journal.previous.comments, on_written=comment_written),
                "move": Moves(on_moved_back=lambda: self.post(WakeAsked(reason="issue_moved"))),
            },
            journal.previous.jobs,
            state=lambda: self.state,
            context=lambda: reloader.context,
            record=journal.put,
            recorded=journal.flush,
            now_ms=self._now_ms,
            wall_ms=self._wall_ms,
        )
        self._observers = (journal, outbox, jobs, *self._observers)
        skill_comments = SkillComments(
            jobs,
            journal.previous.skills_comments,
            record=journal.skill_comment_changed,
            recorded=journal.flush,
        )
        journal.include_pending(lambda: (*jobs.jobs, *outbox.records(), *self._pull_request_records()))

        tracing = open_traces(
            context,
            seed=self._state_dir.path.name,
            environment=self._environment,
            found_ms=self._metrics.found_ms,
            now_ms=self._now_ms,
        )
        async with (
            aclosing(SshHosts(self._host, self._environment)) as ssh,
            aclosing(RayHosts(self._host, self._environment, self._state_dir.path)) as ray,
            RemoteHosts(ssh, ray, self._state_dir.path) as hosts,
            tracing as self._traces,
            anyio.create_task_group() as tasks,
        ):
            await hosts.recover()
            self._effects = Effects(
                context=lambda: reloader.context,
                state_dir=self._state_dir,
                tasks=tasks,
                timers=self._timers,
                post=self.post,
                before_poll=reloader.check,
                review_tools=self._review_tools,
                recorded=journal.flush,
                on_exit=self._exit.set,
                callbacks=RunCallbacks(
                    comments_told=partial(self._comments_told, journal),
                    agent_spawned=journal.agent_spawned,
                    conversation_opened=journal.conversation_opened,
                    instructions_composed=partial(self._on_instructions, journal),
                    skills_changed=skills_changed,
                    tool_called=self._metrics.tool_called,
                    transcript_incomplete=transcript_incomplete,
                ),
                jobs=jobs,
                skill_comments=skill_comments,
                people_comments=self._people_comments,
                traces=self._traces,
                hosts=hosts,
                environment=self._environment,
                now_ms=self._now_ms,
            )
            for part in (journal, self._timers, self._webhooks, outbox, jobs, self._rehearsals):
                tasks.start_soon(part.run)
            tasks.start_soon(self._serve_library, reloader, self._effects)
            tasks.start_soon(on_change, "workflow", self._store.changes(), reloader.check)
            tasks.start_soon(self._recheck, reloader)
            tasks.start_soon(self._watch_tracker, reloader)
            tasks.start_soon(self._keep_hosts, reloader, hosts)
            tasks.start_soon(self._watch_lock, lock)
            tasks.start_soon(self._watch_journal, journal)
            tasks.start_soon(watch_orphans, self._host)
            tasks.start_soon(self._watch_pull_requests, reloader, journal, outbox)
            tasks.start_soon(self._metrics.measure_loop_lag)
            tasks.start_soon(keep_bounded, self._state_dir, journal.trim, partial(self._in_use, reloader))
            tasks.start_soon(self._notifier.keep_alive, self.post)
            tasks.start_soon(self._decide, context, self._effects, journal)
            await self._exit.wait()
            self._notifier.stopping()
            await self._finish(outbox)
            tasks.cancel_scope.cancel()
        for _ in range(_LAST_ORPHAN_SWEEPS):
            if not await self._host.end_orphans():
                break
        _log.info("stopped")
        if self._lost is not None:
            raise self._lost
        if self._once and self.state is not None:
            # "Nothing left to do" is not true if the tracker or the workflow file could not be read.
            failure = self.state.config_error or self.state.last_poll_failure
            if failure is not None:
                raise SymphonyError(failure)

    # --- the loop ----------------------------------------------------------------------------------------

    async def _decide(self, context: RuntimeContext, effects: Effects, journal: JournalWriter) -> None:
        """Take events from the mailbox, one at a time, until cancelled."""
        settings = scheduler_settings(context)
        self.state = state = initial_state(settings, epoch=secrets.token_hex(4))
        workspaces = await existing_workspaces(context)
        delivered = await deliver_interrupted(context, journal.interrupted_issues)
        self.post(journal.recovery_event(settings, workspaces, delivered))
        for answer in journal.stored_answers():
            self.post(answer)
        _log.info("serving", workflow=str(context.workflow.path), once=self._once)
        async for item in self._inbox:
            if isinstance(item, ActionRequest):
                before, state = state, self._handle(state, item.event, effects)
                item.resolve(before)
            elif item is not None:
                state = self._handle(state, item, effects)
            if self._once and state.drain is Drain.NO and run_once_finished(state, self._now_ms()):
                self.post(DrainAsked())
            self._notifier.looped(state)

    def _handle(self, before: State, event: Event, effects: Effects) -> State:
        """Take one step and carry out its commands; the state afterwards.

        A bug in the step costs this one event and a log line, not the daemon.
        """
        try:
            after, commands = self._step(before, event, self._now_ms())
        except Exception:  # noqa: BLE001 - the step should be total
            _log.exception("decision_failed", input=type(event).__name__)
            self._notify_observers(before, event, before, ())
            return before
        self.state = after
        for command in commands:
            effects.carry_out(command)
        self._timers.keep(after.timers)
        self._notify_observers(before, event, after, commands)
        return after

    def _notify_observers(
        self, before: State, event: Event, after: State, commands: tuple[Command, ...]
    ) -> None:
        for observer in self._observers:
            try:
                observer(before, event, after, commands)
            except Exception:  # noqa: BLE001 - a broken display must not stop the work
                _log.exception("observer_failed")

    # --- beside the loop ---------------------------------------------------------------------------------

    async def _recheck(self, reloader: Reloader) -> None:
        """Check every second what no notification tells reliably: the workflow file and the date."""
        while True:
            await anyio.sleep(_RECHECK_S)
            await reloader.check()
            today = utc_day(self._wall_ms())
            if self.state is not None and self.state.day not in {None, today}:
                self.post(DayBegan(day=today))
            if self._once:
                self.post(None)  # it also ends by the time that passes

    async def _keep_hosts(self, reloader: Reloader, hosts: RemoteHosts) -> None:
        """End the connections to hosts whose settings are no longer in force."""
        while True:
            replaced = reloader.replaced
            await hosts.keep(reloader.context)
            await replaced.wait()

    async def _watch_tracker(self, reloader: Reloader) -> None:
        """Poll when the tracker reports a change; after a reload, watch the tracker of the new context."""

        async def wake() -> None:
            self.post(WakeAsked(reason="tracker_changed"))

        while True:
            tracker, replaced = reloader.context.tracker, reloader.replaced
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(on_change, "tracker", tracker.changes(), wake)
                await replaced.wait()
                tasks.cancel_scope.cancel()

    async def _serve_library(self, reloader: Reloader, effects: Effects) -> None:
        """Learn from the feedback that people give, and tell pages of changes of the library."""
        self._learner = Learner(
            context=lambda: reloader.context,
            state=lambda: self.state,
            library=self._library,
            state_dir=self._state_dir,
            pricing=effects.pricing,
        )
        self._observers = (*self._observers, self._learner)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch_library, self._library.path, self._changes.library_changed)
            await self._learner.run()

    async def _watch_pull_requests(self, reloader: Reloader, journal: JournalWriter, outbox: Outbox) -> None:
        """Open pull requests of finished work, and watch them."""

        def judged(record: PullRequestRecord) -> None:
            message = self._mask(f"{record.message} ({record.code})")
            self._history.pull_request_judged(record.issue.id, message)
            journal.event(record.issue, PULL_REQUEST_JUDGED, message)
            outbox.pull_request_changed(record)

        self._pull_requests = PullRequests(
            context=lambda: reloader.context,
            state=lambda: self.state,
            environment=self._environment,
            recovered=journal.previous.pull_requests,
            record=journal.put,
            recorded=journal.flush,
            on_merged=journal.work_merged,
            on_changed=judged,
            post=self.post,
            wall_ms=self._wall_ms,
        )
        self._observers = (*self._observers, self._pull_requests)
        await self._pull_requests.run()

    def _review_tools(self, issue_id: str, tools: ToolProvider) -> ToolProvider:
        """The tools of a run, with the one that answers reviews if they are told."""
        pulls = self._pull_requests
        if pulls is None or not pulls.tells_reviews:
            return tools
        threads, on_reply = partial(pulls.threads, issue_id), partial(pulls.take_reply, issue_id)
        return ReviewTools(tools, threads=threads, on_reply=on_reply)

    async def _finish(self, outbox: Outbox) -> None:
        """Let what works beside the scheduler come to its end, for a limited time."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.finish)
            if self._pull_requests is not None:
                tasks.start_soon(self._pull_requests.finish)

    def _pull_request_records(self) -> tuple[PullRequestRecord, ...]:
        return () if self._pull_requests is None else self._pull_requests.records()

    async def _watch_lock(self, lock: InstanceLock) -> None:
        self._lost = await watch_lock(self._state_dir, lock)
        self.request_shutdown(now=True)

    async def _watch_journal(self, journal: JournalWriter) -> None:
        self._lost = await journal.until_taken_away()
        self.request_shutdown(now=True)

    def _in_use(self, reloader: Reloader) -> InUse:
        """What retention must keep, and its settings."""
        state = self.state
        runs = {run.run_id for run in state.running.values()} if state else set()
        if self._learner is not None and self._learner.run_id is not None:
            runs.add(self._learner.run_id)
        return InUse(
            settings=reloader.context.settings.retention,
            runs=frozenset(runs),
            threads=resumable_threads(state) if state else frozenset(),
        )
