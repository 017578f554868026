"""One run attempt, from workspace to delivery (specification 16.5; AG6-AG8, WS10).

    workspace -> before_run -> prompt -> agent -> turn, turn ... -> stop -> after_run -> deliver
                                         skills

Skills are loaded while the agent's process starts, which is told of them when it has come up.

The worker decides nothing about scheduling: after each turn it waits for a directive, it may be cancelled at
any await, and it answers with exactly one `RunEnded` when none of its processes is alive any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import structlog
from anyio import to_thread

from symphony.agents.base import AgentBackend, AgentSession, Briefing, Place, SessionRequest
from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemStarted,
    SessionStarted,
    TurnEnded,
    TurnStatus,
)
from symphony.agents.place import place_of
from symphony.domain.failures import Blame, Category, Failure, SymphonyError
from symphony.domain.fault_points import FaultPoint
from symphony.domain.issue import Issue
from symphony.domain.tools import ToolResult
from symphony.hosts.base import Identity
from symphony.observability.history import RunSkills
from symphony.runtime import briefing
from symphony.runtime.bound import Bound
from symphony.runtime.pool import Ahead
from symphony.runtime.pulse import Pulse, on_the_loop
from symphony.runtime.session_skills import SessionSkills
from symphony.runtime.state_dir import StateDirectory
from symphony.runtime.turn_ends import kind_of, needs_person, turn_failure
from symphony.scheduler.commands import ContinueRun, FinishRun, StartRun
from symphony.scheduler.inputs import Input, Outcome, OutcomeKind, RunEnded, RunStage, Thread
from symphony.scheduler.inputs import TurnEnded as TurnDone
from symphony.skills import Problem
from symphony.workflow.prompts import continuation_prompt
from symphony.workspace.model import ProgressMark, Workspace

__all__ = ["OnAgent", "OnSkills", "Worker"]

OnSkills = Callable[[str, str, RunSkills], None]
"""Told of an issue's id, a run's id and the skills of the run, and again when it was seen to read one."""

OnAgent = Callable[[str, Identity], None]
"""Told of a run's id and the process of its agent, before anything is sent to it."""

_log = structlog.get_logger(__name__)
_HURRY_S = 5.0


class _FinishedError(Exception):
    """Unwinds a run that was told to finish."""

    def __init__(self, directive: FinishRun) -> None:
        super().__init__(directive.reason.value)
        self.directive = directive


class Worker:
    """Carries one `StartRun` out."""

    def __init__(
        self,
        command: StartRun,
        *,
        bound: Bound,
        state_dir: StateDirectory,
        post: Callable[[Input], None],
        report_problems: Callable[[Issue, tuple[Problem, ...]], None],
        on_skills: OnSkills,
        on_agent: OnAgent,
        now_ms: Callable[[], int],
    ) -> None:
        self._command = command
        self._issue = command.issue
        self._bound = bound
        self._state_dir = state_dir
        self._post = post
        self._report_problems = report_problems
        self._on_agent = on_agent
        self._pulse = Pulse(
            command.run_id,
            post,
            now_ms,
            bound.redaction,
            soon=asyncio.get_running_loop().call_soon,
            later=on_the_loop,
        )
        self._scope = anyio.CancelScope()
        self._closing = anyio.CancelScope(shield=True)
        self._hurried = self._ending = False
        self._give, self._directives = anyio.create_memory_object_stream[ContinueRun | FinishRun](8)
        self._workspace: Workspace | None = None
        self._before: ProgressMark | None = None
        self._needs: Failure | None = None
        self._question: str | None = None
        self._skills = SessionSkills(
            bound, command.agent, partial(on_skills, command.issue.id, command.run_id)
        )
        self._session_id = "n/a"

    # --- what the scheduler may say ----------------------------------------------------------------------

    def direct(self, directive: ContinueRun | FinishRun) -> None:
        """Answer the worker's question after a turn."""
        self._give.send_nowait(directive)

    def stop(self) -> None:
        """Cancel the attempt wherever it is."""
        self._scope.cancel()

    def hurry(self) -> None:
        """Leave hooks and delivery at the end little time; what is not delivered stays in the workspace.

        The time counts from the end of the agent, whose stop ladder takes what it takes.
        """
        self._hurried = True
        if self._ending:
            self._closing.deadline = anyio.current_time() + _HURRY_S

    # --- the attempt -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the attempt to its end; posts exactly one `RunEnded`, whatever happens."""
        issue = self._issue
        outcome = Outcome(kind=OutcomeKind.CANCELED)
        with structlog.contextvars.bound_contextvars(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            run_id=self._command.run_id,
            session_id="n/a",
        ):
            try:
                with self._scope:
                    outcome = await self._guarded(self._attempt)
            finally:
                if self._needs is not None:
                    # A stop that came meanwhile must not hide that a person is asked for (SM7).
                    outcome = Outcome(
                        kind=OutcomeKind.INPUT_REQUIRED, failure=self._needs, question=self._question
                    )
                closing, self._ending = outcome, True
                if self._hurried:
                    self.hurry()
                with self._closing:
                    closing = await self._finish(outcome)
                outcome = closing
                self._give.close()
                self._directives.close()
                self._pulse.end()
                self._post(RunEnded(run_id=self._command.run_id, outcome=self._shown(outcome)))

    def _shown(self, outcome: Outcome) -> Outcome:
        """The outcome without secrets: what it says goes to logs, to the terminal and onto the issue."""
        redaction = self._bound.redaction
        if outcome.question is not None:
            outcome = replace(outcome, question=redaction.text(outcome.question))
        if outcome.failure is None:
            return outcome
        return replace(outcome, failure=redaction.failure(outcome.failure))

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> Outcome:
        try:
            await step()
        except _FinishedError as finished:
            failure = finished.directive.failure
            return Outcome(kind=OutcomeKind.FAILED if failure else OutcomeKind.SUCCEEDED, failure=failure)
        except SymphonyError as error:
            return Outcome(kind=kind_of(error.failure), failure=error.failure)
        except Exception as error:  # noqa: BLE001 - a bug costs one attempt, never the daemon
            _log.exception("run_crashed")
            failure = Failure(
                category=Category.INTERNAL, blame=Blame.HOST, message=f"internal error: {error!r}"
            )
            return Outcome(kind=OutcomeKind.FAILED, failure=failure)
        return Outcome(kind=OutcomeKind.SUCCEEDED)

    async def _attempt(self) -> None:
        issue, attempt, run_id = self._issue, self._command.attempt, self._command.run_id
        workspaces = self._bound.workspaces
        fault = self._bound.fault
        fault(FaultPoint.BEFORE_PREPARE)
        entered = await workspaces.enter(issue, attempt, self._ready, run_id=run_id)
        self._workspace, self._before, ready = entered
        fault(FaultPoint.AFTER_PREPARE)
        self._pulse.place(str(self._workspace.path), self._workspace.branch)
        await workspaces.before_run(self._workspace, issue, attempt, run_id=run_id)
        self._pulse.stage(RunStage.BUILDING_PROMPT)
        if ready is None:
            ready = await to_thread.run_sync(self._ready, self._workspace)
        place, prompt = ready
        self._pulse.stage(RunStage.LAUNCHING_AGENT)
        fault(FaultPoint.BEFORE_SPAWN)
        await self._converse(self._workspace, place, prompt)

    def _ready(self, workspace: Workspace) -> tuple[Place, str]:
        """The prompt, and the last look before the launch (WS4, WS6); blocking."""
        command = self._command
        prompt = briefing.prompt_blocking(self._bound, self._issue, command.attempt, command.resume)
        self._bound.workspaces.verify_blocking(workspace)
        return place_of(workspace.path, self._state_dir.stderr_log(command.run_id)), prompt

    def _tell_problems(self) -> None:
        """Say on the issue what is wrong with skills: once, and not while the agent has yet to be started."""
        problems = self._skills.take_problems()
        if problems is not None:
            self._report_problems(self._issue, problems)

    # --- the session -------------------------------------------------------------------------------------

    async def _converse(self, workspace: Workspace, place: Place, prompt: str) -> None:
        told = Ahead(partial(self._brief, workspace))
        request = SessionRequest(
            run_id=self._command.run_id,
            cwd=workspace.path,
            place=place,
            briefing=told.result,
            run_tool=self._run_tool,
            stderr_path=self._state_dir.stderr_log(self._command.run_id),
            secret_names=self._bound.secret_names,
            on_spawned=partial(self._spawned, told),
            on_compacted=self._skills.forget,
            resume=self._thread(workspace),
        )
        try:
            await self._session(request, told, prompt)
        except SymphonyError:
            await told.result()  # an agent that does not start is no reason to keep quiet about skills
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await told.drop()
            self._tell_problems()

    async def _session(self, request: SessionRequest, told: Ahead[Briefing], prompt: str) -> None:
        async with self._agent.open(request) as session:
            self._bound.fault(FaultPoint.AFTER_SPAWN)
            self._pulse.launched(session.pid)
            await told.result()
            self._tell_problems()
            try:
                await self._turns(session, self._resumed(session, request.resume) or prompt)
            finally:
                with anyio.CancelScope(shield=True):
                    for event in await session.stop():
                        self._pulse.feel(event)

    async def _brief(self, workspace: Workspace) -> Briefing:
        await self._bound.workspaces.keep(workspace)
        return await self._skills.brief(workspace)

    def _spawned(self, told: Ahead[Briefing], agent: Identity) -> None:
        """While the program comes up there is time for the disk and for skills."""
        self._on_agent(self._command.run_id, agent)
        told.begin()

    def _thread(self, workspace: Workspace) -> Thread | None:
        """The thread to go on with: none in a new workspace, which holds nothing of what the thread tells."""
        resume = self._command.resume
        if resume is None or workspace.created_now or not self._agent.capabilities.resume:
            return None
        return resume.thread

    @property
    def _agent(self) -> AgentBackend:
        return self._bound.agent(self._command.agent)

    def _resumed(self, session: AgentSession, thread: Thread | None) -> str | None:
        """The prompt for a session that goes on with its thread; null for one that starts cold."""
        resume = self._command.resume
        if thread is None or resume is None:
            return None
        if session.resume_refused is not None:
            _log.warning("resume_failed", thread_id=thread.thread_id, reason=session.resume_refused.line)
            return None
        self._pulse.resumes(thread)
        _log.info("thread_resumed", thread_id=thread.thread_id, reason=resume.reason.value)
        return briefing.resumed_prompt(resume)

    async def _turns(self, session: AgentSession, prompt: str) -> None:
        turn = 1
        while True:
            self._pulse.stage(RunStage.STREAMING_TURN)
            await self._turn(session, prompt)
            self._pulse.beat()
            self._bound.fault(FaultPoint.TURN_ENDED)
            self._post(TurnDone(run_id=self._command.run_id, turn=turn))
            match await self._directives.receive():
                case FinishRun() as directive:
                    raise _FinishedError(directive)
                case ContinueRun() as directive:
                    self._issue, turn = directive.issue, directive.turn
                    prompt = continuation_prompt(turn, self._bound.settings.agent.max_turns)
                    self._pulse.new_turn()

    async def _turn(self, session: AgentSession, prompt: str) -> None:
        title = f"{self._issue.identifier}: {self._issue.title}"
        last: AgentEvent | None = None
        async for event in session.run_turn(prompt, title=title):
            self._pulse.feel(event)
            if isinstance(event, ItemStarted):
                self._skills.sight(event.arguments)
            last = event
            if isinstance(event, SessionStarted):
                self._session_id = event.session_id
                self._pulse.launched(session.pid)
                structlog.contextvars.bind_contextvars(session_id=event.session_id)
                _log.info("turn_started", pid=session.pid)
        status = last.status.value if isinstance(last, TurnEnded) else "input_required"
        _log.info(
            "turn_ended", status=status, cost_usd=last.cost_usd if isinstance(last, TurnEnded) else None
        )
        match last:
            case TurnEnded(status=TurnStatus.COMPLETED):
                return
            case InputRequired():
                self._needs = needs_person(last, self._bound.named[self._command.agent].section)
                self._question = last.question or last.reason
                raise SymphonyError(self._needs)
            case TurnEnded(failure=Failure() as failure):
                raise SymphonyError(failure)
            case _:
                raise SymphonyError(turn_failure(last))

    async def _run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool; the call may come from a task that began before the session had a name."""
        with structlog.contextvars.bound_contextvars(session_id=self._session_id):
            self._pulse.tool_begins()
            self._bound.fault(FaultPoint.BEFORE_TOOL)
            result = await self._skills.run_tool(name, arguments, issue=self._issue)
            self._bound.fault(FaultPoint.AFTER_TOOL)
            _log.info("tool_called", tool=name, success=result.success)
            return result

    # --- the end -----------------------------------------------------------------------------------------

    async def _finish(self, outcome: Outcome) -> Outcome:
        """after_run, delivery and the progress mark; nothing here can change how the run ended (WS10)."""
        run_id, workspace = self._command.run_id, self._workspace
        if workspace is None:
            return outcome
        self._pulse.stage(RunStage.FINISHING)
        workspaces, fault = self._bound.workspaces, self._bound.fault
        fault(FaultPoint.AGENT_STOPPED)
        try:
            await workspaces.after_run(workspace, self._issue, self._command.attempt, run_id=run_id)
            fault(FaultPoint.BEFORE_DELIVER)
            after, delivery = await workspaces.leave(workspace)
            fault(FaultPoint.AFTER_DELIVER)
        except SymphonyError as error:
            _log.warning("delivery_failed", reason=error.failure.line, hint=error.failure.hint)
            return outcome
        except Exception:  # noqa: BLE001 - as above
            _log.exception("delivery_crashed")
            return outcome
        for warning in delivery.warnings:
            _log.warning("workspace_warning", reason=warning)
        progress = None if self._before is None else after != self._before
        return replace(outcome, progress=progress, commits=delivery.commits)
