"""The daemon: composition, start-up, and the loop that decides.

    lock -> end what a killed daemon left -> build the context -> preflight -> recover -> loop

Everything that happens becomes an event in one mailbox: answers of the tracker, reports of runs, timers,
actions of operators, changes of the workflow file. The loop takes one event at a time, steps the pure
scheduler, and hands the resulting commands to `Effects`. Nothing awaits between an event and its commands.
"""

import math
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import structlog
from anyio import create_memory_object_stream

from symphony import to_thread
from symphony.api.history import History
from symphony.api.live import Changes
from symphony.api.models import DoctorCheck
from symphony.config import Workflow, WorkflowStore
from symphony.daemon.clock import check_wall_clock, monotonic_ms, utc_day, wall_ms
from symphony.daemon.comments import CommentWriter, PeopleCommentReader, SkillComments
from symphony.daemon.context import (
    RuntimeContext,
    build_context,
    scheduler_settings,
)
from symphony.daemon.core import ActionRequest, Core, StepObserver
from symphony.daemon.diagnostics import check_documents, machine_checks, run_checks
from symphony.daemon.effects import Effects
from symphony.daemon.forge.feedback import ReviewTools
from symphony.daemon.forge.pull_requests import PullRequests
from symphony.daemon.hosts.hosts import Hosts
from symphony.daemon.http_server import serve_http
from symphony.daemon.instance_lock import InstanceLock
from symphony.daemon.jobs import JobRunner
from symphony.daemon.journal_writer import (
    JournalWriter,
    open_journal_writer,
    told_comments,
)
from symphony.daemon.learning.learning_runs import Learner
from symphony.daemon.metrics import Metrics
from symphony.daemon.moves import Moves
from symphony.daemon.new_issues import IssueCreations
from symphony.daemon.notify.delivery import Deliveries
from symphony.daemon.notify.observer import NotificationObserver
from symphony.daemon.notify.targets import Deliverer
from symphony.daemon.operator import Parts, ServiceOperator
from symphony.daemon.preflight import preflight_agents
from symphony.daemon.pushes import Pushes
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
from symphony.daemon.review_answers import ReviewAnswers
from symphony.daemon.reviews import Reviews
from symphony.daemon.runs.tracing import open_traces
from symphony.daemon.schedules import ScheduleRunner
from symphony.daemon.sd_notify import Notifier
from symphony.daemon.state_dir import JOURNAL_FILE, StateDirectory
from symphony.daemon.watchers import TrackerWatch, on_change, watch_library, watch_lock, watch_orphans
from symphony.daemon.webhooks import Webhooks
from symphony.domain import DeliveredBranch, FaultHook, FaultPoint, SymphonyError, no_fault
from symphony.journal.model import PullRequestRecord
from symphony.library.store import Library, library_path
from symphony.processes.base import Host
from symphony.scheduler import (
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
_THREADS = 8
_Mail = Event | ActionRequest | anyio.Event | None
_Loop = Callable[[], Coroutine[Any, Any, None]]
_log = structlog.get_logger(__name__)


class Service:
    """Serves one workflow file.

    Tests replace half of the arguments: clocks, scheduler, crashes, systemd.

    Args:
        store: the workflow file.
        state_dir: journal, lock, logs and control socket.
        host: the host of processes.
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
        observers: tuple[StepObserver, ...] = (),
        port: int | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
        step: StepFunction = step,
        wall_ms: Callable[[], int] = wall_ms,
        fault: FaultHook = no_fault,
        notifier: Notifier | None = None,
    ) -> None:
        self._store = store
        configured = store.current().settings.agent.library.path
        self._library = Library(library_path(state_dir.path, configured))
        self._host = host
        self._once = once
        self._port = port
        self._step = step
        self._fault = fault
        self._notifier = notifier or Notifier()
        self._mailbox, self._inbox = create_memory_object_stream[_Mail](math.inf)
        self._core = core = Core(
            state_dir=state_dir, environment=environment, post=self.post, now_ms=now_ms, wall_ms=wall_ms
        )
        self._start_scope: anyio.CancelScope | None = None
        self._exit = anyio.Event()
        self._lost: SymphonyError | None = None
        self._reloader: Reloader | None = None
        self._effects: Effects | None = None
        self._parts = Parts()
        self._history = History(now_ms=now_ms)
        self._metrics = Metrics(
            core,
            journal_health=lambda: None if self._parts.journal is None else self._parts.journal.health,
            pull_requests=self._pull_request_records,
        )
        self._people_comments = PeopleCommentReader(partial(told_comments, state_dir.path / JOURNAL_FILE))
        self._changes = Changes()
        self._parts.rehearsals = self._rehearsals = Rehearsals(
            core, on_result=self._metrics.rehearsed, on_changed=self._changes.everything_changed
        )
        self._operator = ServiceOperator(
            core,
            history=self._history,
            metrics=self._metrics.exposition,
            diagnose=self._diagnose,
            parts=self._parts,
            journal=state_dir.path / JOURNAL_FILE,
            people_comments=self._people_comments,
        )
        self._webhooks = Webhooks(
            core,
            lambda: None if self._parts.pull_requests is None else self._parts.pull_requests.look_soon(),
            on_result=self._metrics.webhook_received,
        )
        core.observers = (
            self._history,
            self._metrics,
            self._operator,
            self._changes,
            self._webhooks,
            self._people_comments,
            self._rehearsals,
            *observers,
        )

    @property
    def state(self) -> State | None:
        """See `Core.state`."""
        return self._core.state

    def post(self, item: _Mail) -> None:
        """Put an event or an operator's action into the mailbox; `None` only makes the loop turn.

        An `anyio.Event` is set when the loop comes to it.

        After the end of the daemon the item is dropped.
        """
        try:
            self._mailbox.send_nowait(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _handled(self) -> None:
        """Return when every earlier event is handled, also by parts beside the loop."""
        mark = anyio.Event()
        self.post(mark)
        await mark.wait()
        if self._parts.pull_requests is not None:
            await self._parts.pull_requests.finish()

    def request_shutdown(self, *, now: bool = False) -> None:
        """Drain and exit; with `now`, stop running agents as well. A start in progress is abandoned."""
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
            check_wall_clock(self._core.wall_ms())
            to_thread.share(_THREADS)
            await to_thread.run_sync(self._core.state_dir.create)
            await self._run_alone(start)

    async def _run_alone(self, start: anyio.CancelScope) -> None:
        """Serve as the only daemon of the state directory; cancelling `start` abandons the start."""
        identity = self._host.identify(os.getpid())
        workflow = self._store.current().path
        with self._core.state_dir.lock(workflow, identity=identity) as lock:
            self._fault(FaultPoint.LOCKED)
            await refuse_second_daemon(self._core.state_dir, self._host, lock)
            scan = await scan_orphans(self._host)
            journal = open_journal_writer(
                self._core.state_dir.path,
                owner=identity,
                mask=self._core.mask,
                now_ms=self._core.now_ms,
                wall_ms=self._core.wall_ms,
                fault=self._fault,
            )
            async with journal as self._parts.journal:
                for record in self._parts.journal.previous.comments:
                    self._webhooks.ignore_comment(record.comment_id)
                self._notifier.starting("ending processes of the last daemon")
                await reap_predecessor(self._host, scan, agents=self._parts.journal.live_agents)
                self._fault(FaultPoint.REAPED)
                context = await to_thread.run_sync(self._build_context, self._store.current())
                server = context.settings.server
                async with serve_http(
                    self._operator,
                    self._core.state_dir,
                    server=server if self._port is None else server.model_copy(update={"port": self._port}),
                    environment=self._core.environment,
                    changes=self._changes,
                    workflow=context.workflow.path,
                    webhooks=self._webhooks,
                ):
                    self._notifier.starting("checking the workspace and the agent")
                    with start:
                        log_warnings(context.workflow)
                        await context.workspaces.check_root()
                        await context.workspaces.check_repository()
                        if context.carrier is None:
                            await preflight_agents(context, context.agents)
                        self._fault(FaultPoint.CHECKED)
                    if start.cancel_called:
                        _log.info("stopped")
                    else:
                        await self._serve(context, self._parts.journal, lock)

    def _build_context(self, workflow: Workflow) -> RuntimeContext:
        context = build_context(
            workflow, host=self._host, environment=self._core.environment, fault=self._fault
        )
        return replace(context, library=self._library)

    async def _diagnose(self, context: RuntimeContext) -> tuple[DoctorCheck, ...]:
        checks = machine_checks(self._host, self._core.environment, self._core.state_dir.path, context)
        findings = await run_checks(checks, timeout_s=_DIAGNOSIS_TIMEOUT_S)
        return check_documents(findings, context.redaction)

    def _compose(self, context: RuntimeContext, journal: JournalWriter) -> tuple[JobRunner, list[_Loop]]:
        """Make the parts that live while the daemon serves; return the outbox, and the loops of all parts."""
        core, parts = self._core, self._parts
        core.recorded = journal.flush
        settings, record = journal.previous.settings, journal.setting_changed
        parts.jobs = jobs = JobRunner(core, journal.previous.jobs, record=journal.put)
        deliveries = Deliveries(
            core,
            Deliverer(self._host, core.environment, context.workflow.path.parent),
            on_result=self._metrics.notified,
        )
        parts.notifications = notifications = NotificationObserver(
            core, jobs, deliveries, recovered=settings, record=record, once=self._once
        )
        parts.pull_requests = pull_requests = PullRequests(
            core,
            jobs,
            recovered=journal.previous.pull_requests,
            record=journal.put,
            on_merged=journal.work_merged,
        )
        self._operator.typed.begin(settings, record, journal.flush)
        reviews = Reviews(
            core, jobs, pull_requests, recovered=settings, record=record, on_merged=journal.work_merged
        )
        parts.reviews = ReviewAnswers(reviews)
        parts.schedules = schedules = ScheduleRunner(core, jobs, recovered=settings, record=record)
        parts.learner = learner = Learner(core, self._library)
        tracker_watch = TrackerWatch(self._poll_now)
        jobs.kinds = {
            "review": reviews,
            "issue": IssueCreations(on_created=schedules.created),
            "pull_request": pull_requests.kind,
            "notification": deliveries,
            "push": Pushes(core),
            "comment": CommentWriter(
                journal.previous.comments,
                on_written=self._comment_written,
                on_persons=self._persons_comment_written,
            ),
            "move": Moves(core),
        }
        journal.include_pending(
            lambda: (
                *jobs.jobs,
                *notifications.records(),
                *schedules.records(),
                *reviews.records(),
                *self._operator.typed.records(),
                *pull_requests.records(),
            )
        )
        core.observers = (journal, notifications, jobs, pull_requests, reviews, *core.observers, learner)
        core.parts = (
            *(deliveries, learner, pull_requests, schedules, tracker_watch),
            *(self._rehearsals, self._webhooks),
        )
        return jobs, [
            *(journal.run, core.timers.run, jobs.run, notifications.run, pull_requests.run, learner.run),
            *(tracker_watch.run, self._rehearsals.run, self._webhooks.run),
            *(() if self._once else (schedules.run,)),
        ]

    def _comment_written(self, issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        self._core.publish(lambda one: one.comment_written(issue_id, kind, comment_id, fingerprint))

    def _persons_comment_written(self, identifier: str) -> None:
        self._changes.issue_changed(identifier)
        self.post(WakeAsked(reason="comment_posted"))  # it may be an answer

    async def _serve(self, context: RuntimeContext, journal: JournalWriter, lock: InstanceLock) -> None:
        """Run the parts until the scheduler exits, and end the rest."""
        core = self._core
        self._reloader = reloader = Reloader(core, store=self._store, build=self._build_context)
        jobs, loops = self._compose(context, journal)
        tracing = open_traces(
            context,
            seed=self._core.state_dir.path.name,
            environment=self._core.environment,
            found_ms=self._metrics.found_ms,
            now_ms=self._core.now_ms,
        )
        async with (
            aclosing(Hosts(self._host, self._core.environment, self._core.state_dir.path)) as hosts,
            tracing as self._parts.traces,
            anyio.create_task_group() as tasks,
        ):
            await hosts.recover()
            core.parts = (*core.parts, hosts)
            core.reconfigure(context)
            self._effects = Effects(
                core,
                tasks=tasks,
                before_poll=reloader.check,
                review_tools=self._review_tools,
                handled=self._handled,
                on_exit=self._exit.set,
                jobs=jobs,
                skill_comments=SkillComments(
                    jobs,
                    journal.previous.skills_comments,
                    record=journal.skill_comment_changed,
                    recorded=journal.flush,
                ),
                people_comments=self._people_comments,
                traces=self._parts.traces,
                hosts=hosts,
            )
            for loop in (*loops, hosts.run):
                tasks.start_soon(loop)
            tasks.start_soon(watch_library, self._library.path, self._changes.library_changed)
            tasks.start_soon(on_change, "workflow", self._store.changes(), reloader.check)
            tasks.start_soon(self._recheck, reloader)
            tasks.start_soon(self._watch_lock, lock)
            tasks.start_soon(self._watch_journal, journal)
            tasks.start_soon(watch_orphans, self._host)
            tasks.start_soon(self._metrics.measure_loop_lag)
            tasks.start_soon(keep_bounded, self._core.state_dir, journal.trim, self._in_use)
            tasks.start_soon(self._notifier.keep_alive, self.post)
            tasks.start_soon(self._decide, context, self._effects, journal)
            await self._exit.wait()
            self._notifier.stopping()
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
        """Take over what the last daemon left, then take events from the mailbox until cancelled.

        The mailbox waits meanwhile, so a person who resumes a paused daemon at its start resumes it.
        """
        settings = scheduler_settings(context)
        state = initial_state(settings, epoch=secrets.token_hex(4))
        workspaces = await existing_workspaces(context)
        delivered: Mapping[str, DeliveredBranch] = {}
        with anyio.CancelScope() as self._start_scope:
            delivered = await deliver_interrupted(context, journal.interrupted_issues)
        _log.info("serving", workflow=str(context.workflow.path), once=self._once)
        state = self._handle(state, journal.recovery_event(settings, workspaces, delivered), effects)
        for answer in journal.stored_answers():
            state = self._handle(state, answer, effects)
        self._notifier.looped(state)
        async for item in self._inbox:
            if isinstance(item, ActionRequest):
                before, state = state, self._handle(state, item.event, effects)
                item.resolve(before)
            elif isinstance(item, anyio.Event):
                item.set()
            elif item is not None:
                state = self._handle(state, item, effects)
            if self._once and state.drain is Drain.NO and run_once_finished(state, self._core.now_ms()):
                self.post(DrainAsked())
            self._notifier.looped(state)

    def _handle(self, before: State, event: Event, effects: Effects) -> State:
        """Take one step and carry out its commands; the state afterwards.

        A bug in the step costs this one event and a log line, not the daemon.
        """
        try:
            after, commands = self._step(before, event, self._core.now_ms())
        except Exception:  # noqa: BLE001 - the step should be total
            _log.exception("decision_failed", input=type(event).__name__)
            self._core.stepped(before, event, before, ())
            return before
        self._core.state = after
        for command in commands:
            effects.carry_out(command)
        self._core.timers.keep(after.timers)
        self._core.stepped(before, event, after, commands)
        return after

    # --- beside the loop ---------------------------------------------------------------------------------

    async def _recheck(self, reloader: Reloader) -> None:
        """Check the workflow file and the date every second, because notifications are not reliable."""
        while True:
            await anyio.sleep(_RECHECK_S)
            await reloader.check()
            today = utc_day(self._core.wall_ms())
            if self.state is not None and self.state.day not in {None, today}:
                self.post(DayBegan(day=today))
            if self._once:
                self.post(None)  # the passing of time also ends it

    async def _poll_now(self) -> None:
        self.post(WakeAsked(reason="tracker_changed"))

    def _review_tools(self, issue_id: str, tools: ToolProvider) -> ToolProvider:
        """The tools of a run, including the tool for review answers if its agent gets reviews."""
        pulls = self._parts.pull_requests
        if pulls is None or not pulls.tells_reviews:
            return tools
        threads, on_reply = partial(pulls.threads, issue_id), partial(pulls.take_reply, issue_id)
        return ReviewTools(tools, threads=threads, on_reply=on_reply)

    def _pull_request_records(self) -> tuple[PullRequestRecord, ...]:
        return () if self._parts.pull_requests is None else self._parts.pull_requests.records()

    async def _watch_lock(self, lock: InstanceLock) -> None:
        self._lost = await watch_lock(self._core.state_dir, lock)
        self.request_shutdown(now=True)

    async def _watch_journal(self, journal: JournalWriter) -> None:
        self._lost = await journal.until_taken_away()
        self.request_shutdown(now=True)

    def _in_use(self) -> InUse:
        """The data that retention must keep, and its settings."""
        state = self.state
        runs = {run.run_id for run in state.running.values()} if state else set()
        if self._parts.learner is not None and self._parts.learner.run_id is not None:
            runs.add(self._parts.learner.run_id)
        return InUse(
            settings=self._core.in_force.settings.retention,
            runs=frozenset(runs),
            threads=resumable_threads(state) if state else frozenset(),
        )
