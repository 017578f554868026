"""The daemon: one mailbox, one loop that decides, effects around it. The composition happens here (DESIGN 3).

    lock -> reap a dead predecessor -> bind the workflow -> preflight -> recover -> loop

The loop never awaits while deciding: it takes a fact, steps the scheduler and hands the commands out.
"""

import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import anyio
import structlog
from anyio import to_thread

from symphony.agents.base import Preflight
from symphony.domain.failures import Failure, SymphonyError
from symphony.hosts.base import Host
from symphony.observability.history import History
from symphony.runtime.bound import Bound, bind, scheduler_settings
from symphony.runtime.clock import Timers, monotonic_ms
from symphony.runtime.effects import Effects
from symphony.runtime.operator import ServiceOperator
from symphony.runtime.reachable import reachable
from symphony.runtime.recovery import reap_predecessor
from symphony.runtime.retention import keep_bounded
from symphony.runtime.state_dir import LiveRun, StateDirectory
from symphony.scheduler.commands import Command
from symphony.scheduler.inputs import (
    DrainAsked,
    Input,
    Recovered,
    SettingsChanged,
    StopAsked,
    WakeAsked,
    WorkflowRejected,
    WorkspaceRef,
)
from symphony.scheduler.machine import over, step
from symphony.scheduler.state import Drain, State, initial
from symphony.workflow.document import Workflow
from symphony.workflow.keys import changed_keys
from symphony.workflow.settings import RetentionSettings
from symphony.workflow.store import Rejected, Reloaded, WorkflowStore
from symphony.workflow.values import Reload

__all__ = ["Observer", "Service", "Step"]

_RECHECK_S = 1.0
_REFUSED_AGAIN_MS = 30_000
# For short work on files. More of them only fight for the interpreter, and the number stays as sessions grow.
_THREADS = 12
_log = structlog.get_logger(__name__)


class Observer(Protocol):
    """Sees every step after it was taken, one that failed as one that changed nothing; must not block."""

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """One step."""
        ...


Step = Callable[[State, Input, int], tuple[State, tuple[Command, ...]]]
"""How a daemon decides: `machine.step`, or something around it that listens."""


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
        step: Step = step,
    ) -> None:
        self._step = step
        self._store = store
        self._state_dir = state_dir
        self._host = host
        self._environment = environment
        self._once = once
        self._port = port
        self._now_ms = now_ms
        self._put, self._inbox = anyio.create_memory_object_stream[Input](math.inf)
        self._timers = Timers(self.post, now_ms)
        self._exit = anyio.Event()
        self._bound: Bound | None = None
        self._effects: Effects | None = None
        self._rebound = anyio.Event()
        self._reloading = anyio.Lock()
        self._refused: _Refused | None = None
        self.state: State | None = None
        self._history = History(now_ms=now_ms)
        self._operator = ServiceOperator(
            state=lambda: self.state,
            history=self._history,
            bound=lambda: self._bound,
            post=self.post,
            now_ms=now_ms,
        )
        self._observers: tuple[Observer, ...] = (self._history, self._operator, *observers)

    # --- asked from outside ------------------------------------------------------------------------------

    def post(self, fact: Input) -> None:
        """Put a fact into the mailbox; facts after the end are dropped."""
        try:
            self._put.send_nowait(fact)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    def ask_to_end(self, *, now: bool = False) -> None:
        """Drain and exit; with `now`, stop what runs as well (CL6)."""
        self.post(StopAsked() if now else DrainAsked())
        if now and self._effects is not None:
            self._effects.hurry()

    # --- the life of the daemon --------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until asked to end, or with `once` until nothing is left to do.

        Raises:
            SymphonyError: start-up failed; nothing was dispatched.
        """
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        await to_thread.run_sync(self._state_dir.create)
        with self._put, self._inbox, self._state_dir.lock():
            await reap_predecessor(self._state_dir, self._host)
            await to_thread.run_sync(self._state_dir.trim_logs)
            bound = bind(self._store.current(), host=self._host, environment=self._environment)
            server = bound.settings.server
            async with reachable(
                self._operator,
                self._state_dir,
                host=server.host,
                port=server.port if self._port is None else self._port,
                environment=self._environment,
                workflow=bound.workflow.path,
            ):
                await self._check(bound)
                await self._serve(bound)

    async def _check(self, bound: Bound) -> None:
        """What must hold before the first dispatch (SC1, CF6)."""
        _warn(bound.workflow)
        await bound.workspaces.check_root()
        await bound.workspaces.check_repository()
        found = await self._preflight(bound)
        _log.info("agent_ready", agent=found.agent, version=found.version)
        for notice in found.notices:
            _log.warning("agent_notice", reason=notice)

    async def _preflight(self, bound: Bound) -> Preflight:
        """Ask the agent; should we be killed meanwhile, our successor finds its processes like a run's."""
        run_id = f"{secrets.token_hex(4)}-preflight"
        self._state_dir.write_run(LiveRun(run_id=run_id, issue_id="", issue_identifier=""))
        try:
            return await bound.agent.preflight(bound.settings.workspace.root, run_id=run_id)
        finally:
            self._state_dir.remove_run(run_id)

    async def _serve(self, bound: Bound) -> None:
        self._bound = bound
        async with anyio.create_task_group() as tasks:
            self._effects = Effects(
                bound=bound,
                state_dir=self._state_dir,
                tasks=tasks,
                timers=self._timers,
                post=self.post,
                before_poll=self._reload,
                on_exit=self._exit.set,
                on_skills=self._history.skills_loaded,
                now_ms=self._now_ms,
            )
            tasks.start_soon(self._timers.run)
            tasks.start_soon(self._watch_workflow)
            tasks.start_soon(self._recheck_workflow)
            tasks.start_soon(self._watch_tracker)
            tasks.start_soon(self._keep_bounded)
            tasks.start_soon(self._decide, bound)
            await self._exit.wait()
            tasks.cancel_scope.cancel()
        await to_thread.run_sync(self._state_dir.trim_logs)
        _log.info("stopped")
        self._judge_once()

    def _judge_once(self) -> None:
        """With `once`, a board or a workflow that cannot be read at the end is no "nothing to do"."""
        if not self._once or self.state is None:
            return
        failure = self.state.hold or self.state.last_poll_failure
        if failure is not None:
            raise SymphonyError(failure)

    async def _decide(self, bound: Bound) -> None:
        state = initial(scheduler_settings(bound), epoch=secrets.token_hex(4))
        self.state = state
        self.post(Recovered(workspaces=await _left_workspaces(bound)))
        _log.info("serving", workflow=str(bound.workflow.path), once=self._once)
        async for fact in self._inbox:
            state = self._take(state, fact)

    def _take(self, before: State, fact: Input) -> State:
        """One step. A bug in it costs this one fact and a log line, never the daemon and what it watches."""
        assert self._effects is not None  # noqa: S101 - made before the loop starts
        try:
            after, commands = self._step(before, fact, self._now_ms())
        except Exception:  # noqa: BLE001 - the step is total; should it not be, the night must go on
            _log.exception("decision_failed", input=type(fact).__name__)
            self._show(before, fact, before, ())  # it is out of the mailbox, and somebody may wait for that
            return before
        self.state = after
        for command in commands:
            self._effects.carry_out(command)
        self._show(before, fact, after, commands)
        if self._once and after.drain is Drain.NO and over(after):
            self.post(DrainAsked())
        return after

    def _show(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
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
        assert self._bound is not None  # noqa: S101 - reloads begin after the first binding
        assert self._effects is not None  # noqa: S101 - as above
        try:
            bound = bind(workflow, host=self._host, environment=self._environment)
            await bound.workspaces.check_root()
            if workflow.settings.codex != self._bound.settings.codex:
                await self._preflight(bound)
        except SymphonyError as error:
            again = self._refused is not None and self._refused.failure == error.failure
            self._refused = _Refused(workflow=workflow, failure=error.failure, at_ms=self._now_ms())
            if not again:
                self.post(WorkflowRejected(failure=error.failure))
            return
        self._refused = None
        before = self._bound.settings
        self._bound = self._effects.bound = bound
        self._rebound.set()
        self._rebound = anyio.Event()
        _warn(workflow)
        _log.info("workflow_reloaded", workflow=str(workflow.path))
        if waiting := changed_keys(before, workflow.settings, Reload.RESTART):
            _log.warning("restart_needed", keys=waiting)
        self.post(SettingsChanged(settings=scheduler_settings(bound)))

    async def _keep_bounded(self) -> None:
        """What ended runs left, by the settings as they are then (`retention`)."""

        def settings() -> RetentionSettings:
            assert self._bound is not None  # noqa: S101 - set before this task starts
            return self._bound.settings.retention

        def live() -> Collection[str]:
            return [] if self.state is None else [run.run_id for run in self.state.running.values()]

        await keep_bounded(self._state_dir, settings=settings, live=live)

    async def _watch_workflow(self) -> None:
        """A hint that arrives early; the recheck is what can be relied on (CF8)."""
        await self._hints("workflow", self._store.changes(), self._reload)

    async def _recheck_workflow(self) -> None:
        while True:
            await anyio.sleep(_RECHECK_S)
            await self._reload()

    async def _watch_tracker(self) -> None:
        """Wake the poller when the board changes; a reload that changes the tracker watches the new one."""
        while True:
            assert self._bound is not None  # noqa: S101 - set before this task starts
            watched, rebound = self._bound, self._rebound
            async with anyio.create_task_group() as group:
                group.start_soon(self._wake_on_changes, watched)
                await rebound.wait()
                group.cancel_scope.cancel()

    async def _wake_on_changes(self, watched: Bound) -> None:
        async def wake() -> None:
            self.post(WakeAsked(reason="tracker_changed"))

        await self._hints("tracker", watched.tracker.changes(), wake)

    async def _hints(
        self, what: str, changes: AsyncIterator[None], act: Callable[[], Awaitable[None]]
    ) -> None:
        """Act on hints that something changed; where they fail, polling goes on without them."""
        try:
            async for _ in changes:
                await act()
        except Exception as error:  # noqa: BLE001 - inotify limits, odd file systems: hints are not needed
            _log.warning("watch_failed", what=what, reason=str(error) or type(error).__name__)


def _warn(workflow: Workflow) -> None:
    for warning in workflow.warnings:
        _log.warning("workflow_warning", where=warning.where, reason=warning.message, hint=warning.hint)


async def _left_workspaces(bound: Bound) -> tuple[WorkspaceRef, ...]:
    """The workspaces on disk with the issues they belong to (SC2)."""
    try:
        records = await bound.workspaces.recorded()
    except SymphonyError as error:
        _log.warning("sweep_failed", reason=error.failure.line, hint=error.failure.hint)
        return ()
    return tuple(
        WorkspaceRef(issue_id=record.issue_id, identifier=record.identifier, path=str(record.path))
        for record in records
    )
