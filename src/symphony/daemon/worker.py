"""One run attempt, from workspace to delivery (specification 16.5; AG6-AG8, WS10).

    workspace -> before_run -> prompt -> agent -> turn, turn ... -> stop -> after_run -> deliver
                                         skills

Skills are loaded while the agent's process starts, which is told of them when it has come up.

The worker decides nothing about scheduling: after each turn it waits for a directive, it may be cancelled at
any await, and it answers with exactly one `RunEnded` when none of its processes is alive any more.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from symphony.agents.base import AgentBackend, AgentSession, SessionRequest
from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemStarted,
    SessionStarted,
    Text,
    TurnEnded,
    TurnStatus,
)
from symphony.api.models import Skills
from symphony.config import continuation_prompt, issue_too_long_failure
from symphony.daemon import prompts
from symphony.daemon.context import RuntimeContext
from symphony.daemon.progress import ProgressReporter
from symphony.daemon.session_skills import SessionSkills
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Blame, Category, Failure, FaultPoint, Issue, SymphonyError, ToolResult
from symphony.processes.base import Identity
from symphony.scheduler import (
    ContinueRun,
    DeliveredBranch,
    Event,
    FinishReason,
    FinishRun,
    Outcome,
    OutcomeKind,
    RunEnded,
    RunStage,
    StartRun,
    Thread,
)
from symphony.scheduler import TurnEnded as TurnDone
from symphony.skills import SkillSet
from symphony.workspaces import Changes, Delivery, ProgressMark, Workspace, delivery_failure, vanished_failure

# From the end of a turn to the end of a run: which failure it is, and how the run is said to have ended.


_INPUT_CATEGORIES = frozenset({Category.TURN_INPUT_REQUIRED, Category.APPROVAL_REQUIRED})
_TIMEOUTS = frozenset({Category.TURN_TIMEOUT, Category.RESPONSE_TIMEOUT})


def kind_of(failure: Failure) -> OutcomeKind:
    """How a run ended that failed like this."""
    if failure.category in _INPUT_CATEGORIES:
        return OutcomeKind.INPUT_REQUIRED
    return OutcomeKind.TIMED_OUT if failure.category in _TIMEOUTS else OutcomeKind.FAILED


def needs_person(event: InputRequired, section: str) -> Failure:
    """Why a person is asked; `section` is where the agent's settings are written."""
    return Failure(
        category=Category.APPROVAL_REQUIRED if event.approval else Category.TURN_INPUT_REQUIRED,
        blame=Blame.AGENT,
        message=f"the agent needs a person: {event.reason}",
        retryable=False,
        hint=f"say in the issue's description how to do without it, or change {section}.on_approval"
        if event.approval
        else "write the answer as a comment on the issue",
    )


def turn_failure(last: AgentEvent | None) -> Failure:
    """What is wrong with a turn that neither completed nor told a failure."""
    interrupted = isinstance(last, TurnEnded) and last.status is TurnStatus.INTERRUPTED
    return Failure(
        category=Category.TURN_CANCELLED if interrupted else Category.TURN_FAILED,
        blame=Blame.AGENT,
        message="the turn was interrupted" if interrupted else "the turn ended without a result",
    )


OnSkills = Callable[[str, str, Skills], None]
"""Told of an issue's id, a run's id and the skills of the run, and again when it was seen to read one."""

OnAgent = Callable[[str, Identity], None]
"""Told of a run's id and the process of its agent, before anything is sent to it."""

OnConversation = Callable[[str, str], Awaitable[None]]
"""Told of a run's id and the conversation that its agent opened; returns when a restart would know it."""

_log = structlog.get_logger(__name__)
_HURRY_S = 5.0
_SUMMARY_CHARS = 500


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
        context: RuntimeContext,
        state_dir: StateDirectory,
        post: Callable[[Event], None],
        report_skills: Callable[[Issue, SkillSet], Awaitable[None]],
        on_skills: OnSkills,
        on_agent: OnAgent,
        on_conversation: OnConversation,
    ) -> None:
        self._command = command
        self._issue = command.issue
        self._context = context
        self._state_dir = state_dir
        self._post = post
        self._report_skills = report_skills
        self._on_agent = on_agent
        self._on_conversation = on_conversation
        self._pulse = ProgressReporter(command.run_id, post, context.redaction)
        self._scope = anyio.CancelScope()
        self._closing = anyio.CancelScope(shield=True)
        self._hurried = self._ending = False
        self._give, self._directives = anyio.create_memory_object_stream[ContinueRun | FinishRun](8)
        self._workspace: Workspace | None = None
        self._before: ProgressMark | None = None
        self._marked: ProgressMark | None = None
        self._acted_in_turn = self._acted_in_run = False
        self._finished: FinishReason | None = None
        self._needs: Failure | None = None
        self._question: str | None = None
        self._said: str | None = None
        self._cost_usd: float | None = None
        self._commented = False
        self._skills = SessionSkills(
            context, command.agent, partial(on_skills, command.issue.id, command.run_id)
        )
        self._session_id = "n/a"
        self._task: str | None = None

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
                    await self._look_at_skills_again()
                outcome = closing
                self._give.close()
                self._directives.close()
                self._pulse.end()
                self._post(RunEnded(run_id=self._command.run_id, outcome=self._shown(outcome)))

    def _shown(self, outcome: Outcome) -> Outcome:
        """The outcome without secrets: what it says goes to logs, to the terminal and onto the issue."""
        redaction = self._context.redaction
        said = redaction.line(self._said or "", _SUMMARY_CHARS)
        outcome = replace(outcome, summary=said or None, cost_usd=self._cost_usd, commented=self._commented)
        if outcome.question is not None:
            outcome = replace(outcome, question=redaction.text(outcome.question))
        if outcome.delivered is not None and outcome.delivered.push_failure is not None:
            told = redaction.failure(outcome.delivered.push_failure)
            outcome = replace(outcome, delivered=replace(outcome.delivered, push_failure=told))
        if outcome.failure is None:
            return outcome
        return replace(outcome, failure=redaction.failure(outcome.failure))

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> Outcome:
        try:
            await step()
        except _FinishedError as finished:
            failure, self._finished = finished.directive.failure, finished.directive.reason
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
        """Go through the steps; reports go out and skills are loaded beside them."""
        failed: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pulse.run)
            try:
                await self._steps(tasks)
            except Exception as error:  # noqa: BLE001 - raised below, where no task group wraps it
                failed = error
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def _steps(self, tasks: TaskGroup) -> None:
        issue, attempt, run_id = self._issue, self._command.attempt, self._command.run_id
        workspaces = self._context.workspaces
        fault = self._context.fault
        fault(FaultPoint.BEFORE_PREPARE)
        self._workspace = workspace = await workspaces.prepare(issue, attempt, run_id=run_id)
        self._before = await workspaces.progress(workspace)
        fault(FaultPoint.AFTER_PREPARE)
        self._pulse.place(str(workspace.path), workspace.branch)
        await workspaces.before_run(workspace, issue, attempt, run_id=run_id)
        if self._context.settings.hooks.before_run is not None:
            # What the hook changed is no work of the agent.
            self._before = await workspaces.progress(workspace)
        self._marked = self._before
        self._pulse.stage(RunStage.BUILDING_PROMPT)
        prompt = self._task = await prompts.first_prompt(self._context, issue, attempt, self._command.resume)
        await workspaces.verify(workspace)
        self._pulse.stage(RunStage.LAUNCHING_AGENT)
        fault(FaultPoint.BEFORE_SPAWN)
        tasks.start_soon(self._skills.load, workspace)
        await self._converse(workspace, prompt)

    async def _tell_problems(self) -> None:
        """Say on the issue what is wrong with skills: not while the agent has yet to be started."""
        found = self._skills.take_found()
        if found is not None:
            await self._report_skills(self._issue, found)

    # --- the session -------------------------------------------------------------------------------------

    async def _converse(self, workspace: Workspace, prompt: str) -> None:
        request = SessionRequest(
            run_id=self._command.run_id,
            cwd=workspace.path,
            briefing=partial(self._skills.brief, workspace),
            run_tool=self._run_tool,
            stderr_path=self._state_dir.stderr_log(self._command.run_id),
            secret_names=self._context.secret_names,
            on_spawned=partial(self._on_agent, self._command.run_id),
            on_compacted=self._skills.forget,
            resume=self._thread(workspace),
        )
        try:
            await self._session(request, workspace, prompt)
        except SymphonyError:
            # The comment about skills does not depend on whether the agent starts.
            await self._skills.loaded()
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._tell_problems()

    async def _session(self, request: SessionRequest, workspace: Workspace, prompt: str) -> None:
        async with self._agent.open(request) as session:
            self._context.fault(FaultPoint.AFTER_SPAWN)
            self._pulse.launched(session.pid)
            await self._skills.loaded()
            await self._tell_problems()
            try:
                if session.thread_id is not None:
                    await self._on_conversation(self._command.run_id, session.thread_id)
                    self._context.fault(FaultPoint.CONVERSATION_WRITTEN)
                await self._turns(session, workspace, self._first_prompt(session, request.resume, prompt))
            finally:
                with anyio.CancelScope(shield=True):
                    for event in await session.stop():
                        self._pulse.feel(event)

    def _thread(self, workspace: Workspace) -> Thread | None:
        """The thread to go on with: none in a new workspace, which holds nothing of what the thread tells."""
        resume = self._command.resume
        if resume is None or workspace.created_now or not self._agent.capabilities.resume:
            return None
        return resume.thread

    @property
    def _agent(self) -> AgentBackend:
        return self._context.agent(self._command.agent)

    def _first_prompt(self, session: AgentSession, thread: Thread | None, prompt: str) -> str:
        """What a session is told that goes on with its thread; `prompt` for one that starts cold."""
        resume = self._command.resume
        if thread is None or resume is None:
            return prompt
        if session.resume_refused is not None:
            _log.warning("resume_failed", thread_id=thread.thread_id, reason=session.resume_refused.line)
            return prompt
        self._pulse.resumes(thread)
        _log.info("thread_resumed", thread_id=thread.thread_id, reason=resume.reason.value)
        return prompts.resumed_prompt(resume, prompt)

    async def _turns(self, session: AgentSession, workspace: Workspace, prompt: str) -> None:
        turn = 1
        while True:
            self._pulse.stage(RunStage.STREAMING_TURN)
            await self._turn(session, prompt, turn)
            self._pulse.beat()
            self._context.fault(FaultPoint.TURN_ENDED)
            if not await self._context.workspaces.exists(workspace):
                raise SymphonyError(vanished_failure(workspace.path))
            trace = await self._trace(workspace)
            self._post(TurnDone(run_id=self._command.run_id, turn=turn, trace=trace))
            match await self._directives.receive():
                case FinishRun() as directive:
                    raise _FinishedError(directive)
                case ContinueRun() as directive:
                    self._issue, turn = directive.issue, directive.turn
                    prompt = continuation_prompt(turn, self._context.settings.agent.max_turns)
                    self._pulse.new_turn()

    async def _trace(self, workspace: Workspace) -> bool | None:
        """Whether the turn left a commit, a changed file or a change at the tracker; `None` if unknown."""
        if self._context.settings.agent.budget.max_turns_without_progress is None:
            return None
        before, self._marked = self._marked, await self._context.workspaces.progress(workspace)
        acted, self._acted_in_turn = self._acted_in_turn, False
        return acted or before != self._marked

    async def _turn(self, session: AgentSession, prompt: str, turn: int) -> None:
        title = f"{self._issue.identifier}: {self._issue.title}"
        last: AgentEvent | None = None
        worked = False
        async for event in session.run_turn(prompt, title=title):
            self._pulse.feel(event)
            if isinstance(event, ItemStarted):
                worked = True
                self._skills.sight(event.arguments)
            elif isinstance(event, Text):
                self._said = event.message
            last = event
            if isinstance(event, SessionStarted):
                self._session_id = event.session_id
                self._pulse.launched(session.pid)
                structlog.contextvars.bind_contextvars(session_id=event.session_id)
                _log.info("turn_started", turn=turn, pid=session.pid)
        status = last.status.value if isinstance(last, TurnEnded) else "input_required"
        cost_usd = last.cost_usd if isinstance(last, TurnEnded) else None
        if cost_usd is not None:
            self._cost_usd = (self._cost_usd or 0.0) + cost_usd
        _log.info("turn_ended", status=status, cost_usd=cost_usd)
        match last:
            case TurnEnded(status=TurnStatus.COMPLETED):
                return
            case InputRequired():
                self._needs = needs_person(last, self._context.named[self._command.agent].section)
                self._question = last.question or last.reason
                raise SymphonyError(self._needs)
            case TurnEnded(failure=Failure() as failure):
                if failure.category is Category.AGENT_CONTEXT_FULL and not worked and prompt == self._task:
                    measure = f"its prompt of {len(prompt):,} characters does not fit the model's context"
                    raise SymphonyError(issue_too_long_failure(measure))
                raise SymphonyError(failure)
            case _:
                raise SymphonyError(turn_failure(last))

    async def _run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool; the call may come from a task that began before the session had a name."""
        with structlog.contextvars.bound_contextvars(session_id=self._session_id):
            self._pulse.tool_begins()
            self._context.fault(FaultPoint.BEFORE_TOOL)
            result = await self._skills.run_tool(name, arguments, issue=self._issue)
            self._context.fault(FaultPoint.AFTER_TOOL)
            if result.success and not result.read_only:
                self._acted_in_turn = self._acted_in_run = True
            self._commented |= result.success and result.commented
            _log.info("tool_called", tool=name, success=result.success)
            return result

    # --- the end -----------------------------------------------------------------------------------------

    async def _finish(self, outcome: Outcome) -> Outcome:
        """after_run, delivery and the progress mark; `after_run` cannot change how the run ended (WS10)."""
        run_id, workspace = self._command.run_id, self._workspace
        if workspace is None:
            return outcome
        self._pulse.stage(RunStage.FINISHING)
        workspaces, fault = self._context.workspaces, self._context.fault
        fault(FaultPoint.AGENT_STOPPED)
        if not await workspaces.exists(workspace):
            return self._without_workspace(workspace, outcome)
        try:
            await workspaces.after_run(workspace, self._issue, self._command.attempt, run_id=run_id)
            fault(FaultPoint.BEFORE_DELIVER)
            after = await workspaces.progress(workspace)
            delivery = await workspaces.deliver(workspace)
            fault(FaultPoint.AFTER_DELIVER)
        except Exception as error:  # noqa: BLE001 - a bug costs one attempt, never the daemon
            if not isinstance(error, SymphonyError):
                _log.exception("delivery_crashed")
            return _undelivered(outcome, delivery_failure(str(error) or repr(error)))
        for warning in delivery.warnings:
            _log.warning("workspace_warning", reason=warning)
        progress = None if self._before is None else after != self._before
        outcome = replace(
            outcome, progress=progress, commits=delivery.commits, delivered=_delivered(delivery)
        )
        if delivery.failure is not None:
            return _undelivered(outcome, delivery.failure)
        # A run without any trace of work is no success, unless its issue was moved or the daemon ends.
        excused = self._acted_in_run or self._finished in {FinishReason.INACTIVE, FinishReason.DRAINING}
        if outcome.kind is OutcomeKind.SUCCEEDED and progress is False and not excused:
            return replace(outcome, kind=OutcomeKind.NO_PROGRESS)
        return outcome

    async def _look_at_skills_again(self) -> None:
        """Say what the run itself has made of the skills: it may be the last one of its issue."""
        if self._workspace is not None and await self._context.workspaces.exists(self._workspace):
            await self._skills.look_again(self._workspace)
            await self._tell_problems()

    def _without_workspace(self, workspace: Workspace, outcome: Outcome) -> Outcome:
        """The outcome of a run whose workspace is gone: that is why it failed, whatever the agent said."""
        failure = vanished_failure(workspace.path)
        _log.warning("workspace_vanished", path=str(workspace.path), hint=failure.hint)
        if outcome.kind in {OutcomeKind.INPUT_REQUIRED, OutcomeKind.CANCELED}:
            return outcome
        return replace(outcome, kind=OutcomeKind.FAILED, failure=failure, progress=False)


def _undelivered(outcome: Outcome, failure: Failure) -> Outcome:
    """The outcome of a run whose work nobody can have: no success, whatever the agent said."""
    _log.warning("delivery_failed", reason=failure.message, hint=failure.hint)
    if outcome.kind is not OutcomeKind.SUCCEEDED:
        return outcome
    return replace(outcome, kind=OutcomeKind.FAILED, failure=failure)


def _delivered(delivery: Delivery) -> DeliveredBranch | None:
    """What the scheduler is told of a delivery; `None` where the branch has no commit of its own."""
    if delivery.branch is None or delivery.head is None or not (delivery.delivered and delivery.commits):
        return None
    changes = delivery.changes or Changes()
    return DeliveredBranch(
        branch=delivery.branch,
        head=delivery.head,
        commits=delivery.commits,
        files_changed=len(changes.files),
        insertions=changes.insertions,
        deletions=changes.deletions,
        pushed=delivery.pushed,
        push_failure=delivery.push_failure,
    )
