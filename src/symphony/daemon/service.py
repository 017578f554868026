"""The daemon: one mailbox, one loop that decides, effects around it. The composition happens here (DESIGN 3).

    lock -> reap a dead predecessor -> bind the workflow -> preflight -> recover -> loop

The loop never awaits while deciding: it takes a fact, steps the scheduler and hands the commands out.
"""

import math
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import anyio
import structlog
from anyio import create_memory_object_stream, to_thread

from symphony.api.history import History
from symphony.api.models import Skills
from symphony.config import (
    Rejected,
    Reload,
    Reloaded,
    RetentionSettings,
    Workflow,
    WorkflowStore,
    changed_keys,
)
from symphony.daemon.clock import Timers, check_wall_clock, monotonic_ms, wall_ms
from symphony.daemon.comments import SkillComments
from symphony.daemon.context import (
    RuntimeContext,
    build_context,
    changed_agents,
    preflight_agents,
    scheduler_settings,
)
from symphony.daemon.effects import Effects
from symphony.daemon.http_server import serve_http
from symphony.daemon.journal_writer import JOURNAL_FILE, JournalWriter, open_journal_writer, past_runs
from symphony.daemon.operator import ActionRequest, ServiceOperator
from symphony.daemon.recovery import existing_workspaces, reap_predecessor, refuse_second_daemon, scan_orphans
from symphony.daemon.retention import keep_bounded
from symphony.daemon.sd_notify import Notifier
from symphony.daemon.state_dir import InstanceLock, StateDirectory, StateDirectoryError
from symphony.daemon.webhooks import Webhooks
from symphony.domain import Category, Failure, FaultHook, FaultPoint, SymphonyError, no_fault
from symphony.processes.base import Host
from symphony.scheduler import (
    Command,
    DayBegan,
    Drain,
    DrainAsked,
    Event,
    SettingsChanged,
    State,
    StepFunction,
    StopAsked,
    WakeAsked,
    WorkflowRejected,
    initial_state,
    run_once_finished,
    step,
    threads_in_use,
)

# Hints that something changed: acted on while they come, and never needed.


_log = structlog.get_logger(__name__)


async def on_change(what: str, changes: AsyncIterator[None], act: Callable[[], Awaitable[None]]) -> None:
    """Act on hints about `what`; where they fail, polling goes on without them."""
    try:
        async for _ in changes:
            await act()
    except Exception as error:  # noqa: BLE001 - inotify limits, odd file systems: hints are not needed
        _log.warning("watch_failed", what=what, reason=str(error) or type(error).__name__)


# Who may watch the decisions: the protocol of everything that shows or remembers them.


class Observer(Protocol):
    """Sees every step after it was taken, one that failed as one that changed nothing; must not block."""

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """One step."""
        ...


_RECHECK_S = 1.0
_ORPHANS_S = 1.0
_LAST_SWEEPS = 20
_LOCK_LOOKS = 3
_REFUSED_AGAIN_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """A workflow that is valid as a file and could not be taken over, and why."""

    workflow: Workflow
    failure: Failure
    at_ms: int


class Service:
    """Serves one workflow file until it is asked to end."""

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
        self._notifier = notifier or Notifier()
        self._step = step
        self._store = store
        self._state_dir = state_dir
        self._host = host
        self._environment = environment
        self._once = once
        self._port = port
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._memory: JournalWriter | None = None
        self._fault = fault
        self._put, self._inbox = create_memory_object_stream[Event | ActionRequest | None](math.inf)
        self._timers = Timers(self.post, now_ms)
        self._exit = anyio.Event()
        self._starting: anyio.CancelScope | None = None
        self._context: RuntimeContext | None = None
        self._effects: Effects | None = None
        self._rebound = anyio.Event()
        self._reloading = anyio.Lock()
        self._refused: _Refused | None = None
        self._lock_lost: StateDirectoryError | None = None
        self.state: State | None = None
        self._history = History(now_ms=now_ms)
        self._operator = ServiceOperator(
            state=lambda: self.state,
            history=self._history,
            context=lambda: self._context,
            post=self.post,
            now_ms=now_ms,
            journal_health=lambda: None if self._memory is None else self._memory.health,
            runs=lambda identifier: past_runs(state_dir.path / JOURNAL_FILE, identifier),
        )
        self._hooks = Webhooks(lambda: self._context, self.post, environment=environment, now_ms=wall_ms)
        self._observers: tuple[Observer, ...] = (self._history, self._operator, *observers)

    # --- asked from outside ------------------------------------------------------------------------------

    def post(self, item: Event | ActionRequest | None) -> None:
        """Put a fact or an order into the mailbox, or None for a turn of the loop; dropped after the end."""
        try:
            self._put.send_nowait(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    def request_shutdown(self, *, now: bool = False) -> None:
        """Drain and exit; with `now`, stop what runs as well (CL6). A start that is under way is given up."""
        self._notifier.stopping()
        self.post(StopAsked() if now else DrainAsked())
        if now and self._effects is not None:
            self._effects.hurry()
        if self._starting is not None:
            self._starting.cancel()

    async def reload_now(self) -> None:
        """Look at the workflow file at once, and try one again that was refused a moment ago."""
        if self._effects is None:
            return  # it is still starting, and looks at the file when it serves
        self._notifier.reloading()
        if self._refused is not None:
            self._refused = replace(self._refused, at_ms=self._now_ms() - _REFUSED_AGAIN_MS)
        await self._reload()
        self._notifier.reloaded()

    # --- the life of the daemon --------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until asked to end, or with `once` until nothing is left to do.

        Raises:
            SymphonyError: start-up failed; nothing was dispatched.
        """
        self._starting = anyio.CancelScope()
        check_wall_clock(self._wall_ms())
        await to_thread.run_sync(self._state_dir.create)
        with self._put, self._inbox, self._locked() as lock:
            self._fault(FaultPoint.LOCKED)
            await refuse_second_daemon(self._state_dir, self._host, lock)
            first = await scan_orphans(self._host)
            opened = open_journal_writer(
                self._state_dir.path,
                owner=self._host.identify(os.getpid()),
                mask=self._masked,
                now_ms=self._now_ms,
                wall_ms=self._wall_ms,
                fault=self._fault,
            )
            async with opened as self._memory:
                self._notifier.starting("ending what a predecessor left")
                agents = self._memory.left_agents
                await reap_predecessor(self._host, first, agents=agents)
                self._fault(FaultPoint.REAPED)
                context = self._bind(self._store.current())
                server = context.settings.server
                async with serve_http(
                    self._operator,
                    self._state_dir,
                    host=server.host,
                    port=server.port if self._port is None else self._port,
                    environment=self._environment,
                    workflow=context.workflow.path,
                    hooks=self._hooks,
                ):
                    self._notifier.starting("checking the workspace and the agent")
                    with self._starting:
                        await self._check(context)
                        self._fault(FaultPoint.CHECKED)
                    if self._starting.cancel_called:
                        _log.info("stopped")
                    else:
                        await self._serve(context, self._memory, lock)

    def _locked(self) -> AbstractContextManager[InstanceLock]:
        """The instance lock, with what others are told who meet it."""
        return self._state_dir.lock(self._store.current().path, identity=self._host.identify(os.getpid()))

    def _masked(self, text: str) -> str:
        return text if self._context is None else self._context.redaction.text(text)

    def _bind(self, workflow: Workflow) -> RuntimeContext:
        return build_context(workflow, host=self._host, environment=self._environment, fault=self._fault)

    async def _check(self, context: RuntimeContext) -> None:
        """What must hold before the first dispatch (SC1, CF6)."""
        _warn(context.workflow)
        await context.workspaces.check_root()
        await context.workspaces.check_repository()
        await preflight_agents(context, context.agents)

    async def _serve(self, context: RuntimeContext, memory: JournalWriter, lock: InstanceLock) -> None:
        self._context = context
        self._observers = (memory, *self._observers)

        def skills_loaded(issue_id: str, run_id: str, skills: Skills) -> None:
            self._history.skills_loaded(issue_id, skills)
            memory.skills_loaded(run_id, skills)

        notes = self._hooks.heard(memory.comments, memory.commented)
        skill_comments = SkillComments(
            notes, memory.skills_notes, remember=memory.skills_noted, written=memory.written
        )
        memory.unsaid_from(lambda: skill_comments.unsaid)
        async with anyio.create_task_group() as tasks:
            self._effects = Effects(
                context=context,
                state_dir=self._state_dir,
                tasks=tasks,
                timers=self._timers,
                post=self.post,
                before_poll=self._reload,
                on_exit=self._exit.set,
                on_skills=skills_loaded,
                on_agent=memory.agent_spawned,
                on_conversation=memory.conversation_opened,
                notes=notes,
                skill_comments=skill_comments,
                now_ms=self._now_ms,
            )
            self._effects.begin()
            tasks.start_soon(memory.journal.run)
            tasks.start_soon(self._timers.run)
            tasks.start_soon(self._watch_workflow)
            tasks.start_soon(self._recheck_workflow)
            tasks.start_soon(self._watch_orphans)
            tasks.start_soon(self._watch_lock, lock)
            tasks.start_soon(self._watch_tracker)
            tasks.start_soon(self._hooks.run)
            bounded = partial(keep_bounded, needed=self._needed)
            tasks.start_soon(bounded, self._state_dir, memory.journal.trim, self._kept)
            tasks.start_soon(self._decide, context, memory)
            tasks.start_soon(self._notifier.nudges, self.post)
            await self._exit.wait()
            self._notifier.stopping()
            tasks.cancel_scope.cancel()
        for _ in range(_LAST_SWEEPS):
            if not await self._host.end_orphans():
                break
        _log.info("stopped")
        if self._lock_lost is not None:
            raise self._lock_lost
        self._judge_once()

    def _judge_once(self) -> None:
        """With `once`, a board or a workflow that cannot be read at the end is no "nothing to do"."""
        if not self._once or self.state is None:
            return
        failure = self.state.config_error or self.state.last_poll_failure
        if failure is not None:
            raise SymphonyError(failure)

    async def _decide(self, context: RuntimeContext, memory: JournalWriter) -> None:
        settings = scheduler_settings(context)
        state = initial_state(settings, epoch=secrets.token_hex(4))
        self.state = state
        self.post(memory.recovery_event(settings, await existing_workspaces(context)))
        _log.info("serving", workflow=str(context.workflow.path), once=self._once)
        async for item in self._inbox:
            before = state
            if isinstance(item, ActionRequest):
                state = self._take(before, item.fact)
                item.take(before)
            elif item is not None:
                state = self._take(before, item)
            self._notifier.turned(state)

    def _take(self, before: State, fact: Event) -> State:
        """One step. A bug in it costs this one fact and a log line, never the daemon and what it watches."""
        assert self._effects is not None  # noqa: S101 - made before the loop starts
        try:
            after, commands = self._step(before, fact, self._now_ms())
        except Exception:  # noqa: BLE001 - the step is total; should it not be, the night must go on
            _log.exception("decision_failed", input=type(fact).__name__)
            self._show(before, fact, before, ())
            return before
        self.state = after
        for command in commands:
            self._effects.carry_out(command)
        self._show(before, fact, after, commands)
        if self._once and after.drain is Drain.NO and run_once_finished(after):
            self.post(DrainAsked())
        return after

    def _show(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        for observer in self._observers:
            try:
                observer(before, fact, after, commands)
            except Exception:  # noqa: BLE001 - a display that fails must not stop the work (FL)
                _log.exception("observer_failed")

    # --- reloading ---------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """Take over a changed workflow file; an invalid one holds dispatch, the last good one stays (CF8)."""
        async with self._reloading:
            try:
                match self._store.reload_if_changed():
                    case Reloaded(workflow=workflow):
                        await self._take_over(workflow)
                    case Rejected(failures=failures):
                        self._refused = None
                        self.post(WorkflowRejected(failure=failures[0]))
                    case None:
                        await self._try_refused_again()
            except Exception:  # noqa: BLE001 - what is in force stays in force
                _log.exception("reload_failed")

    async def _try_refused_again(self) -> None:
        """A good file whose agent or repository was refused: that may be mended without touching the file."""
        refused = self._refused
        if refused is not None and self._now_ms() - refused.at_ms >= _REFUSED_AGAIN_MS:
            await self._take_over(refused.workflow)

    async def _take_over(self, workflow: Workflow) -> None:
        assert self._context is not None  # noqa: S101 - reloads begin after the first binding
        assert self._effects is not None  # noqa: S101 - as above
        try:
            context = self._bind(workflow)
            await context.workspaces.check_root()
            await preflight_agents(context, changed_agents(self._context, context))
        except SymphonyError as error:
            again = self._refused is not None and self._refused.failure == error.failure
            self._refused = _Refused(workflow=workflow, failure=error.failure, at_ms=self._now_ms())
            if not again:
                self.post(WorkflowRejected(failure=error.failure))
            return
        self._refused = None
        before = self._context.settings
        self._context = self._effects.context = context
        self._rebound.set()
        self._rebound = anyio.Event()
        _warn(workflow)
        _log.info("workflow_reloaded", workflow=str(workflow.path))
        if waiting := changed_keys(before, workflow.settings, Reload.RESTART):
            _log.warning("restart_needed", keys=waiting)
        self.post(SettingsChanged(settings=scheduler_settings(context)))

    def _kept(self) -> tuple[RetentionSettings, frozenset[str]]:
        """What `retention` says now, and the runs that live."""
        assert self._context is not None  # noqa: S101 - set before this is asked
        running = self.state.running.values() if self.state is not None else ()
        return self._context.settings.retention, frozenset(run.run_id for run in running)

    def _needed(self) -> frozenset[str]:
        return frozenset() if self.state is None else threads_in_use(self.state)

    async def _watch_workflow(self) -> None:
        """A hint that arrives early; the recheck is what can be relied on (CF8)."""
        await on_change("workflow", self._store.changes(), self._reload)

    async def _recheck_workflow(self) -> None:
        while True:
            await anyio.sleep(_RECHECK_S)
            await self._reload()
            self._tell_the_day()

    async def _watch_lock(self, lock: InstanceLock) -> None:
        """Lock anew what somebody put in the place of the lock file; where another daemon has it, end.

        One that is only starting finds us and leaves, so it is given a few looks.
        """
        taken = 0
        lost: StateDirectoryError | None = None
        while lost is None or taken < _LOCK_LOOKS:
            await anyio.sleep(_RECHECK_S)
            try:
                if await to_thread.run_sync(self._renew, lock):
                    _log.warning("instance_lock_restored", path=str(self._state_dir.path / "lock"))
                taken, lost = 0, None
            except StateDirectoryError as error:
                if lost is None:
                    _log.warning("instance_lock_missing", reason=error.failure.line, hint=error.failure.hint)
                lost = error
                taken = taken + 1 if error.failure.category is Category.INSTANCE_LOCKED else 0
        self._lock_lost = lost
        _log.error("instance_lock_lost", reason=lost.failure.line, hint=lost.failure.hint)
        self.request_shutdown(now=True)

    def _renew(self, lock: InstanceLock) -> bool:
        if not self._state_dir.path.is_dir():
            self._state_dir.create()
        return lock.renew()

    async def _watch_orphans(self) -> None:
        """End what came to us because somebody ended the subreaper that it belonged to."""
        while True:
            await anyio.sleep(_ORPHANS_S)
            try:
                await self._host.end_orphans()
            except OSError:
                _log.exception("orphans_not_ended")

    def _tell_the_day(self) -> None:
        """Tell when the day is another one: by looking, as no timer knows when somebody sets the clock."""
        if self._memory is not None and self.state is not None and self.state.day is not None:
            today = self._memory.today()
            if today != self.state.day:
                self.post(DayBegan(day=today))

    async def _watch_tracker(self) -> None:
        """Wake the poller when the board changes; a reload that changes the tracker watches the new one."""
        while True:
            assert self._context is not None  # noqa: S101 - set before this task starts
            watched, rebound = self._context, self._rebound
            async with anyio.create_task_group() as group:
                group.start_soon(self._wake_on_changes, watched)
                await rebound.wait()
                group.cancel_scope.cancel()

    async def _wake_on_changes(self, watched: RuntimeContext) -> None:
        async def wake() -> None:
            self.post(WakeAsked(reason="tracker_changed"))

        await on_change("tracker", watched.tracker.changes(), wake)


def _warn(workflow: Workflow) -> None:
    for warning in workflow.warnings:
        _log.warning("workflow_warning", where=warning.where, reason=warning.message, hint=warning.hint)
