"""The daemon: one mailbox, one loop that decides, effects around it. The composition happens here (DESIGN 3).

    lock -> reap a dead predecessor -> bind the workflow -> preflight -> recover -> loop

The loop never awaits while deciding: it takes a fact, steps the scheduler and hands the commands out.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Protocol

import anyio
import structlog
from anyio import to_thread

from symphony.domain.failures import Blame, Category, Failure, SymphonyError
from symphony.hosts.base import Host
from symphony.runtime.bound import Bound, bind, scheduler_settings
from symphony.runtime.clock import Timers, monotonic_ms
from symphony.runtime.effects import Effects
from symphony.runtime.recovery import reap_predecessor
from symphony.runtime.state_dir import StateDirectory
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
from symphony.scheduler.machine import idle, step
from symphony.scheduler.state import Drain, State, initial
from symphony.workflow.document import Workflow
from symphony.workflow.store import Rejected, Reloaded, WorkflowStore

__all__ = ["Observer", "Service"]

_RECHECK_S = 1.0
_log = structlog.get_logger(__name__)


class Observer(Protocol):
    """Sees every step after it was taken; must not block."""

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """One step."""
        ...


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
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._store = store
        self._state_dir = state_dir
        self._host = host
        self._environment = environment
        self._once = once
        self._observers = observers
        self._now_ms = now_ms
        self._put, self._inbox = anyio.create_memory_object_stream[Input](math.inf)
        self._timers = Timers(self.post, now_ms)
        self._exit = anyio.Event()
        self._bound: Bound | None = None
        self._effects: Effects | None = None
        self._rebound = anyio.Event()
        self._reloading = anyio.Lock()
        self.state: State | None = None

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

    # --- the life of the daemon --------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until asked to end, or with `once` until nothing is left to do.

        Raises:
            SymphonyError: start-up failed; nothing was dispatched.
        """
        await to_thread.run_sync(self._state_dir.create)
        with self._put, self._inbox, self._state_dir.lock():
            await reap_predecessor(self._state_dir, self._host)
            await to_thread.run_sync(self._state_dir.trim_logs)
            bound = bind(self._store.current(), host=self._host, environment=self._environment)
            await self._check(bound)
            await self._serve(bound)

    async def _check(self, bound: Bound, *, former: Bound | None = None) -> None:
        """What must hold before a dispatch (SC1, CF6); the agent of `former` is known to work."""
        for warning in bound.workflow.warnings:
            _log.warning("workflow_warning", where=warning.where, reason=warning.message, hint=warning.hint)
        await bound.workspaces.check_root()
        if former is not None and former.settings.codex == bound.settings.codex:
            return
        found = await bound.agent.preflight(bound.settings.workspace.root)
        _log.info("agent_ready", agent=found.agent, version=found.version)
        for notice in found.notices:
            _log.warning("agent_notice", reason=notice)

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
            )
            tasks.start_soon(self._timers.run)
            tasks.start_soon(self._watch_workflow)
            tasks.start_soon(self._recheck_workflow)
            tasks.start_soon(self._watch_tracker)
            tasks.start_soon(self._decide, bound)
            await self._exit.wait()
            tasks.cancel_scope.cancel()
        await to_thread.run_sync(self._state_dir.trim_logs)
        _log.info("stopped")
        self._judge_once()

    def _judge_once(self) -> None:
        """With `once`, a board that could not be read at the end is a failure and not "nothing to do"."""
        failure = self.state.last_poll_failure if self._once and self.state else None
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
        after, commands = step(before, fact, self._now_ms())
        self.state = after
        assert self._effects is not None  # noqa: S101 - made before the loop starts
        for command in commands:
            self._effects.carry_out(command)
        for observer in self._observers:
            try:
                observer(before, fact, after, commands)
            except Exception:  # noqa: BLE001 - what people see must not stop the work
                _log.exception("observer_failed")
        if self._once and after.drain is Drain.NO and idle(after):
            self.post(DrainAsked())
        return after

    # --- reloading ---------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """Take over a changed workflow file; an invalid one holds dispatch, the last good one stays (CF8)."""
        async with self._reloading:
            try:
                match self._store.reload_if_changed():
                    case Reloaded(workflow=workflow):
                        await self._take_over(workflow)
                    case Rejected(failures=failures):
                        self.post(WorkflowRejected(failure=failures[0]))
                    case None:
                        return
            except SymphonyError as error:
                self.post(WorkflowRejected(failure=error.failure))
            except Exception as error:  # noqa: BLE001 - the version in force works on
                _log.exception("reload_crashed")
                self.post(WorkflowRejected(failure=_internal(error)))

    async def _take_over(self, workflow: Workflow) -> None:
        assert self._bound is not None  # noqa: S101 - reloads begin after the first binding
        assert self._effects is not None  # noqa: S101 - as above
        bound = bind(workflow, host=self._host, environment=self._environment)
        await self._check(bound, former=self._bound)
        self._bound = self._effects.bound = bound
        self._rebound.set()
        self._rebound = anyio.Event()
        _log.info("workflow_reloaded", workflow=str(workflow.path))
        self.post(SettingsChanged(settings=scheduler_settings(bound)))

    async def _watch_workflow(self) -> None:
        """A hint that arrives early; the recheck is what can be relied on (CF8)."""
        with _told("workflow"):
            async with aclosing(self._store.changes()) as hints:
                async for _ in hints:
                    await self._reload()

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
        with _told("tracker"):
            async for _ in watched.tracker.changes():
                self.post(WakeAsked(reason="tracker_changed"))


@contextmanager
def _told(watched: str) -> Iterator[None]:
    """Hints are a comfort: where watching fails it is logged, and looking now and then has to do."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever the watch is made of
        _log.warning("watch_failed", watched=watched, reason=str(error) or type(error).__name__)


def _internal(error: Exception) -> Failure:
    return Failure(category=Category.INTERNAL, blame=Blame.HOST, message=f"internal error: {error!r}")


async def _left_workspaces(bound: Bound) -> tuple[WorkspaceRef, ...]:
    """The workspaces on disk with the issues they belong to (SC2)."""
    return tuple(
        WorkspaceRef(issue_id=record.issue_id, identifier=record.identifier, path=str(record.path))
        for record in await bound.workspaces.recorded()
    )
