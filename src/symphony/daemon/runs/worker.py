"""One run attempt, from the workspace to the delivery (specification section 16.5).

    workspace -> before_run -> prompt -> agent -> turn, turn ... -> stop -> after_run -> deliver
                                         skills

Skills are loaded while the agent's process starts.

The worker makes no scheduling decisions: after each turn it waits for a directive. It can be cancelled at any
await. It sends exactly one `RunOutcome`, after all of its processes have ended.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import anyio
import structlog
from anyio.abc import TaskGroup

from symphony.agents.base import AgentBackend, AgentSession, SessionRequest, Turn, WritesMessages
from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemFinished,
    ItemStarted,
    SessionStarted,
    Text,
    TurnEnd,
    TurnStatus,
)
from symphony.agents.run_stats import Pricing, unpriced
from symphony.config import issue_too_long_failure
from symphony.daemon import frames
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs import prompts
from symphony.daemon.runs.link import DaemonLink, LinkedTools
from symphony.daemon.runs.progress import ProgressReporter
from symphony.daemon.runs.reviewer import Reviewer
from symphony.daemon.runs.session_envelope import SessionEnvelope
from symphony.daemon.runs.session_library import SessionLibrary
from symphony.daemon.runs.session_skills import SessionSkills
from symphony.daemon.runs.tracing import RunTrace
from symphony.daemon.runs.transcript import Answered, EntryWriter, ReviewerBegins, RunTranscript
from symphony.daemon.runs.verification import Verifier
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import (
    NO_COMMENTS,
    Blame,
    Category,
    CheckRun,
    Failure,
    FaultPoint,
    PeopleComments,
    ReviewerVerdict,
    SymphonyError,
    ToolResult,
    Verification,
    one_line,
)
from symphony.library.sync import CollectedSkills, Synced
from symphony.observability import bugs
from symphony.observability.span_names import SpanName
from symphony.scheduler import (
    ContinueRun,
    FinishReason,
    FinishRun,
    Outcome,
    OutcomeKind,
    ResumeReason,
    RunStage,
    Thread,
)
from symphony.skills import SkillSet
from symphony.workspaces import (
    Delivery,
    ProgressMark,
    Workspace,
    delivery_failure,
    vanished_failure,
)

_HURRY_S = 5.0
_SUMMARY_CHARS = 500
_COMMIT = re.compile(r"\bgit\b.*\bcommit\b", re.DOTALL)
_KINDS = {
    Category.TURN_INPUT_REQUIRED: OutcomeKind.INPUT_REQUIRED,
    Category.APPROVAL_REQUIRED: OutcomeKind.INPUT_REQUIRED,
    Category.TURN_TIMEOUT: OutcomeKind.TIMED_OUT,
    Category.RESPONSE_TIMEOUT: OutcomeKind.TIMED_OUT,
}
_log = structlog.get_logger(__name__)


class _FinishedError(Exception):
    """Ends the attempt after a `FinishRun`."""

    def __init__(self, directive: FinishRun) -> None:
        super().__init__(directive.reason.value)
        self.directive = directive


class Worker:
    """Carries out one run (`WorkerEnd`). It sends reports and requests to the daemon in frames.

    Args:
        start: begins the run.
        send: sends frames to the daemon.
        context: settings and adapters of this machine; the tools of `start` replace its tools.
        state_dir: the directory for the log of the agent.
        transcript: receives the entries of the transcript.
        trace: makes the spans of the run.
        pricing: prices tokens.
    """

    def __init__(
        self,
        start: frames.Start,
        send: Callable[[frames.WorkerFrame], None],
        *,
        context: RuntimeContext,
        state_dir: StateDirectory,
        transcript: EntryWriter,
        trace: RunTrace,
        pricing: Pricing = unpriced,
    ) -> None:
        command = start.command
        self._link = link = DaemonLink(send)
        self._session_id = "n/a"
        tools = LinkedTools(link, start.tools, session_id=lambda: self._session_id)
        context = replace(context, tools=tools)
        self._command = command
        self._run_id = command.run_id
        self._issue = command.issue
        self._context = context
        self._state_dir = state_dir
        self._trace = trace
        self._progress = ProgressReporter(
            lambda report: link.send(frames.Report(report=report)), context.redaction, pricing=pricing
        )
        self._transcript = RunTranscript(
            transcript,
            context.redaction,
            tokens=lambda: self._progress.facts.tokens,
            pending_message=self._pending_message,
            on_problem=lambda reason: link.send(frames.TranscriptIncomplete(reason=reason)),
        )
        self._library = SessionLibrary(context, command, send=self._send_skills)
        self._skills = SessionSkills(
            context,
            command.agent,
            self._library,
            called=command.issue.called_skills,
            phase=None if command.phase is None else command.phase.name,
            on_skills=lambda skills: link.send(frames.SkillsChanged(skills=skills)),
            report_problems=self._report_skill_problems,
        )
        self._envelope = SessionEnvelope(
            context,
            self._skills,
            command.phase,
            on_composed=lambda composed: link.send(frames.InstructionsComposed(instructions=composed)),
        )
        self._send_directive, self._directives = anyio.create_memory_object_stream[ContinueRun | FinishRun](8)
        self._attempt_scope = anyio.CancelScope()
        self._finish_scope = anyio.CancelScope(shield=True)
        self._verify_scope = anyio.CancelScope(shield=True)
        self._hurried = self._finishing = False
        self._verifies = self._only_verifies = (
            command.resume is not None and command.resume.reason is ResumeReason.VERIFY
        )
        self._delivery: Delivery | None = None

        self._session: AgentSession | None = None
        self._workspace: Workspace | None = None
        self._first_prompt: str | None = None
        self._comments = NO_COMMENTS
        self._mark_at_start: ProgressMark | None = None
        self._mark_at_turn: ProgressMark | None = None
        self._wrote_in_turn = self._wrote_in_run = False  # a tool call changed something at the tracker
        self._finish_reason: FinishReason | None = None
        self._input_failure: Failure | None = None
        self._approval_request: str | None = None
        self._question: str | None = None
        self._last_text: str | None = None
        self._git_said: str | None = None

    # --- frames of the daemon ----------------------------------------------------------------------------

    def on_frame(self, frame: frames.DaemonFrame) -> None:
        """Take a frame of the daemon."""
        match frame:
            case frames.Continue() | frames.Finish():
                if isinstance(frame, frames.Finish):
                    self._verifies = frame.command.verify
                self._send_directive.send_nowait(frame.command)
            case frames.RequestAnswered():
                self._link.on_answer(frame)
            case frames.Stop():
                self._verifies = frame.verify
                if not frame.verify:
                    self._verify_scope.cancel()
                self._attempt_scope.cancel()
            case frames.Hurry():
                self._hurry()
            case frames.Ping() | frames.Start():
                pass
            case _:
                assert_never(frame)

    def abandon(self) -> None:
        """End the agent soon, because the daemon is gone or may believe that this worker is."""
        self._link.lose()
        self._attempt_scope.cancel()
        self._hurry()

    def _hurry(self) -> None:
        """Limit the time for `after_run` and delivery.

        The time counts from the end of the agent, which takes as long as its stop sequence.
        """
        self._hurried = True
        self._verify_scope.cancel()  # a later run verifies
        if self._finishing:
            self._finish_scope.deadline = anyio.current_time() + _HURRY_S

    # --- the attempt -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the attempt to its end; sends exactly one `RunOutcome`, whatever happens."""
        outcome = Outcome(kind=OutcomeKind.CANCELED)
        with structlog.contextvars.bound_contextvars(
            issue_id=self._issue.id,
            issue_identifier=self._issue.identifier,
            run_id=self._run_id,
            session_id=self._session_id,
            **self._trace.log_fields,
        ):
            try:
                with self._attempt_scope:
                    outcome = await self._attempt()
            finally:
                if self._input_failure is not None:
                    # A stop meanwhile must not hide that the agent asks a person.
                    outcome = Outcome(
                        kind=OutcomeKind.INPUT_REQUIRED,
                        failure=self._input_failure,
                        question=self._question,
                        request=self._approval_request,
                    )
                finished, self._finishing = outcome, True
                if self._hurried:
                    self._hurry()
                with self._finish_scope:
                    finished = await self._finish(outcome)
                    await self._recheck_skills()
                with self._verify_scope:
                    finished = await self._verify(finished)
                with anyio.CancelScope(shield=True):
                    await self._transcript.close()
                self._send_directive.close()
                self._directives.close()
                self._progress.flush()
                public = self._public(finished)
                self._trace.end(public, self._progress.facts)
                self._link.send(frames.RunOutcome(outcome=public))

    async def _attempt(self) -> Outcome:
        """Run the steps, and turn their failure into an outcome."""
        error: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._progress.run)
                tasks.start_soon(self._transcript.run)
                try:
                    await self._steps(tasks)
                except Exception as failed:  # noqa: BLE001 - handled below, where no task group wraps it
                    error = failed
                tasks.cancel_scope.cancel()
        except Exception as failed:  # noqa: BLE001 - a bug costs one attempt, never the daemon
            error = failed
        match error:
            case None:
                return Outcome(kind=OutcomeKind.SUCCEEDED)
            case _FinishedError(directive=directive):
                self._finish_reason = directive.reason
                kind = OutcomeKind.FAILED if directive.failure else OutcomeKind.SUCCEEDED
                return Outcome(kind=kind, failure=directive.failure)
            case SymphonyError(failure=failure):
                return Outcome(kind=_KINDS.get(failure.category, OutcomeKind.FAILED), failure=failure)
            case _:
                return Outcome(kind=OutcomeKind.FAILED, failure=bugs.contained("run_crashed", error))

    async def _steps(self, tasks: TaskGroup) -> None:
        issue, attempt = self._issue, self._command.attempt
        workspaces, fault = self._context.workspaces, self._context.fault
        fault(FaultPoint.BEFORE_PREPARE)
        with self._trace.step(SpanName.WORKSPACE):
            self._workspace = workspace = await workspaces.prepare(issue, attempt, run_id=self._run_id)
        self._transcript.work_in(workspace.path)
        await self._library.write(workspace)
        fault(FaultPoint.AFTER_PREPARE)
        self._progress.on_workspace(str(workspace.path), workspace.branch)
        if not self._only_verifies:
            with self._traced_hook("before_run"):
                await workspaces.before_run(workspace, issue, attempt, run_id=self._run_id)
        # Changes of the hook are not work of the agent.
        self._mark_at_start = self._mark_at_turn = await workspaces.progress(workspace)
        if self._only_verifies:
            return
        self._progress.on_stage(RunStage.BUILDING_PROMPT)
        self._comments = await self._comments_of_people()
        self._first_prompt = await prompts.first_prompt(
            self._context, issue, attempt, self._command.resume, self._comments, phase=self._command.phase
        )
        await workspaces.verify(workspace)
        self._progress.on_stage(RunStage.LAUNCHING_AGENT)
        fault(FaultPoint.BEFORE_SPAWN)
        tasks.start_soon(self._load_envelope, workspace)
        await self._converse(workspace, self._first_prompt)

    async def _comments_of_people(self) -> PeopleComments:
        answer = await self._link.request(lambda number: frames.CommentsAsked(request=number))
        return (answer and answer.comments) or NO_COMMENTS

    async def _load_envelope(self, workspace: Workspace) -> None:
        with self._trace.step(SpanName.SKILLS):
            await self._envelope.load(workspace)

    def _traced_hook(self, name: str) -> AbstractContextManager[None]:
        configured = getattr(self._context.settings.hooks, name) is not None
        return self._trace.step(SpanName.HOOK, name) if configured else nullcontext()

    async def _converse(self, workspace: Workspace, prompt: str) -> None:
        """Open a session and run its turns; the agent's process has ended afterwards."""
        thread = self._resumable_thread(workspace)
        request = SessionRequest(
            run_id=self._run_id,
            cwd=workspace.path,
            briefing=partial(self._envelope.brief, workspace),
            run_tool=self._run_tool,
            stderr_path=self._state_dir.stderr_log(self._run_id),
            secret_names=self._context.secret_names,
            on_spawned=lambda process: self._link.send(frames.Spawned(process=process)),
            on_compacted=self._skills.on_compacted,
            resume=thread,
            decisions={} if self._command.resume is None else self._command.resume.decisions,
        )
        try:
            async with AsyncExitStack() as stack:
                with self._trace.step(SpanName.AGENT_START):
                    session = await stack.enter_async_context(self._agent.open(request))
                self._session = session
                self._context.fault(FaultPoint.AFTER_SPAWN)
                self._progress.on_launched(session.pid)
                await self._skills.loaded()
                await self._skills.report_problems()
                try:
                    if (thread_id := session.thread_id) is not None:
                        resumed = thread is not None and session.resume_refused is None
                        await self._skills.conversation_opened(workspace, thread_id, resumed=resumed)
                        await self._link.request(
                            lambda number: frames.ConversationOpened(request=number, thread_id=thread_id)
                        )
                        self._context.fault(FaultPoint.CONVERSATION_WRITTEN)
                    await self._turns(session, workspace, self._opening_prompt(session, thread, prompt))
                finally:
                    with anyio.CancelScope(shield=True):
                        for event in await session.stop():
                            self._on_event(event)
        except SymphonyError:
            # Problems of skills are reported whether the agent starts or not.
            await self._skills.loaded()
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._skills.report_problems()

    def _on_event(self, event: AgentEvent) -> None:
        self._progress.on_event(event)
        self._transcript.on_event(event)

    def _pending_message(self) -> str:
        session: object = self._session
        return session.pending_message if isinstance(session, WritesMessages) else ""

    @property
    def _agent(self) -> AgentBackend:
        return self._context.agent(self._command.agent)

    def _resumable_thread(self, workspace: Workspace) -> Thread | None:
        """The thread to resume; `None` in a new workspace, which lacks the work that the thread mentions."""
        resume = self._command.resume
        if resume is None or workspace.created_now or not self._agent.capabilities.resume:
            return None
        return resume.thread

    def _opening_prompt(self, session: AgentSession, thread: Thread | None, prompt: str) -> str:
        """The prompt of the first turn: `prompt`, unless the session resumes the thread."""
        resume = self._command.resume
        if thread is None or resume is None:
            return prompt
        if session.resume_refused is not None:
            _log.warning("resume_failed", thread_id=thread.thread_id, reason=session.resume_refused.line)
            return prompt
        self._progress.on_resumed(thread)
        _log.info("thread_resumed", thread_id=thread.thread_id, reason=resume.reason.value)
        return prompts.resumed_prompt(resume, prompt, self._comments)

    async def _turns(self, session: AgentSession, workspace: Workspace, prompt: str) -> None:
        """Run turns until the scheduler finishes the run, which raises `_FinishedError`."""
        turn = 1
        resume = self._command.resume
        if resume is not None and resume.answer is not None and resume.reason is ResumeReason.ANSWERED:
            answered = Answered(text=resume.answer, by=resume.answered_by, approves=resume.approves)
            self._transcript.on_event(answered)
        while True:
            self._progress.on_stage(RunStage.STREAMING_TURN)
            what = self._turn_for(prompt, turn)
            self._transcript.on_event(what)
            try:
                with self._trace.turn(turn, self._progress):
                    await self._turn(session, what)
            finally:
                await self._transcript.flush()
            self._progress.flush()
            self._context.fault(FaultPoint.TURN_ENDED)
            trace = await self._left_trace(workspace)
            changed = () if self._mark_at_turn is None else self._mark_at_turn.changed
            self._link.send(frames.TurnFinished(turn=turn, trace=trace, changed=changed))
            match await self._directives.receive():
                case FinishRun() as directive:
                    raise _FinishedError(directive)
                case ContinueRun() as directive:
                    if not await self._context.workspaces.exists(workspace):
                        raise SymphonyError(vanished_failure(workspace.path))
                    self._issue, turn = directive.issue, directive.turn
                    await self._envelope.enter_phase(directive.phase)
                    prompt = prompts.next_prompt(directive, self._context.settings.agent.max_turns)
                    self._progress.on_next_turn()

    async def _left_trace(self, workspace: Workspace) -> bool | None:
        """Whether the turn left a commit, a changed file or a change at the tracker; `None` if unknown."""
        if self._context.settings.agent.budget.max_turns_without_progress is None:
            return None
        before, self._mark_at_turn = self._mark_at_turn, await self._context.workspaces.progress(workspace)
        wrote, self._wrote_in_turn = self._wrote_in_turn, False
        return wrote or before != self._mark_at_turn

    def _turn_for(self, prompt: str, number: int) -> Turn:
        title = f"{self._issue.identifier}: {self._issue.title}"
        return Turn(prompt=prompt, title=title, number=number, envelope=self._envelope.current)

    async def _turn(self, session: AgentSession, turn: Turn) -> None:
        """Run one turn.

        Raises:
            SymphonyError: the turn did not complete.
        """
        last: AgentEvent | None = None
        worked = False
        async for event in session.run_turn(turn):
            self._on_event(event)
            last = event
            opened: tuple[str, ...] = ()
            match event:
                case ItemStarted():
                    worked = True
                    opened = self._skills.on_tool_arguments(event.arguments)
                case ItemFinished() if _COMMIT.search(event.summary):
                    self._git_said = _complaint(event) if event.exit_code else None
                case Text():
                    self._last_text = event.message
                case SessionStarted():
                    self._session_id = event.session_id
                    self._progress.on_launched(session.pid)
                    structlog.contextvars.bind_contextvars(session_id=event.session_id)
                    _log.info("turn_started", turn=turn.number, pid=session.pid)
                case _:
                    pass
            self._trace.on_event(event, opened)
        await self._skills.turn_ended()
        status = last.status.value if isinstance(last, TurnEnd) else "input_required"
        cost = self._progress.turn_cost
        _log.info("turn_ended", status=status, cost_usd=cost.cost_usd, unpriced_tokens=cost.unpriced_tokens)
        match last:
            case TurnEnd(status=TurnStatus.COMPLETED):
                return
            case InputRequired():
                self._question = last.question or last.reason
                self._approval_request = last.request
                self._input_failure = _input_failure(
                    last, self._context.workflow.agents[self._command.agent].section
                )
                raise SymphonyError(self._input_failure)
            case TurnEnd(failure=Failure() as failure):
                full = failure.category is Category.AGENT_CONTEXT_FULL
                if full and not worked and turn.prompt == self._first_prompt:
                    size = f"its prompt of {len(turn.prompt):,} characters does not fit the model's context"
                    raise SymphonyError(issue_too_long_failure(size))
                raise SymphonyError(failure)
            case _:
                interrupted = isinstance(last, TurnEnd) and last.status is TurnStatus.INTERRUPTED
                raise SymphonyError(
                    Failure(
                        category=Category.TURN_CANCELLED if interrupted else Category.TURN_FAILED,
                        blame=Blame.AGENT,
                        message="the turn was interrupted"
                        if interrupted
                        else "the turn ended without a result",
                    )
                )

    async def _run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a client tool. The calling task may have started before the session had an id."""
        with structlog.contextvars.bound_contextvars(session_id=self._session_id):
            self._progress.on_tool_call()
            self._context.fault(FaultPoint.BEFORE_TOOL)
            result = await self._skills.run_tool(name, arguments, issue=self._issue)
            self._context.fault(FaultPoint.AFTER_TOOL)
            if result.success and not result.read_only:
                self._wrote_in_turn = self._wrote_in_run = True
            self._link.send(frames.ToolFinished(success=result.success))
            _log.info("tool_called", tool=name, success=result.success)
            return result

    async def _report_skill_problems(self, found: SkillSet) -> None:
        with suppress(SymphonyError):  # the daemon logs it, and it is no reason to end a run
            await self._link.request(lambda number: frames.SkillsLoaded(request=number, found=found))

    async def _send_skills(self, collected: CollectedSkills) -> Synced | None:
        answer = await self._link.request(
            lambda number: frames.SkillsCollected(request=number, collected=collected)
        )
        return None if answer is None else answer.synced

    # --- the end -----------------------------------------------------------------------------------------

    async def _finish(self, outcome: Outcome) -> Outcome:
        """Run `after_run` and deliver; return the outcome with their results.

        `after_run` cannot change how the run ended.
        """
        workspace = self._workspace
        if workspace is None:
            return outcome
        self._progress.on_stage(RunStage.FINISHING)
        workspaces, fault = self._context.workspaces, self._context.fault
        fault(FaultPoint.AGENT_STOPPED)
        try:
            if not self._only_verifies:
                with self._traced_hook("after_run"):
                    await workspaces.after_run(
                        workspace, self._issue, self._command.attempt, run_id=self._run_id
                    )
            fault(FaultPoint.BEFORE_DELIVER)
            mark = await workspaces.progress(workspace)
            if mark.gone:
                self._workspace = None
                return _vanished(outcome, workspace)
            with self._trace.step(SpanName.DELIVERY):
                delivery = await workspaces.deliver(workspace, git_said=self._git_said, clean=mark.clean)
            fault(FaultPoint.AFTER_DELIVER)
        except Exception as error:  # noqa: BLE001 - a bug costs one attempt, never the daemon
            if not isinstance(error, SymphonyError):
                _log.exception("delivery_crashed")
            return _undelivered(outcome, delivery_failure(str(error) or repr(error)))
        for warning in delivery.warnings:
            _log.warning("workspace_warning", reason=warning)
        self._progress.on_delivered(delivery)
        progress = None if self._mark_at_start is None else mark != self._mark_at_start
        outcome = replace(
            outcome,
            progress=progress,
            delivered=delivery.delivered,
            left=None
            if delivery.left is None
            else f"{workspace.path}: {delivery.left.reason} ({delivery.left.look})",
        )
        if delivery.failure is not None:
            return _undelivered(outcome, delivery.failure)
        self._delivery = delivery
        # A run that changed nothing is no success, unless its issue was moved or the daemon is draining.
        ends = {FinishReason.INACTIVE, FinishReason.DRAINING}
        excused = self._wrote_in_run or self._only_verifies or self._finish_reason in ends
        if outcome.kind is OutcomeKind.SUCCEEDED and progress is False and not excused:
            return replace(outcome, kind=OutcomeKind.NO_PROGRESS)
        return outcome

    async def _verify(self, outcome: Outcome) -> Outcome:
        """Verify the delivery if requested; return the outcome with the result."""
        workspace, delivery = self._workspace, self._delivery
        if not self._verifies or workspace is None or delivery is None:
            return outcome
        self._progress.on_stage(RunStage.VERIFYING)
        fault = self._context.fault
        fault(FaultPoint.BEFORE_VERIFY)
        verifier = Verifier(
            context=self._context,
            agent=self._command.agent,
            run_id=self._run_id,
            on_start=lambda name: _log.info("check_started", check=name),
            on_check=self._on_check,
            on_artifact=self._keep_artifact,
        )
        try:
            verification = await verifier.verify(workspace, delivery, self._issue.identifier)
            if verification.passed and delivery.delivered:
                verification = await self._review(workspace, verification)
        except Exception as error:  # noqa: BLE001 - a bug costs one verification, never the daemon
            if not isinstance(error, SymphonyError):
                return replace(outcome, failure=bugs.contained("verification_crashed", error))
            _log.warning("not_verified", reason=error.failure.line, hint=error.failure.hint)
            return replace(outcome, failure=error.failure)
        fault(FaultPoint.AFTER_VERIFY)
        _log.info("verified", result=verification.status.value, reason=verification.line)
        return replace(outcome, verification=verification)

    async def _review(self, workspace: Workspace, verification: Verification) -> Verification:
        """The verification with the verdict of the reviewer, if there is one.

        Raises:
            SymphonyError: the reviewer gave no verdict.
        """
        context, name = self._context, self._context.settings.verify.reviewer
        if name is None:
            return verification
        context.fault(FaultPoint.BEFORE_REVIEWER)

        def begin(checkout: Path) -> None:
            self._transcript.on_event(ReviewerBegins(reviewer=name, checkout=checkout))

        def see(event: AgentEvent | Turn) -> None:
            if not isinstance(event, Turn):
                self._progress.on_reviewer_event(event)
            self._transcript.on_event(event)

        self._progress.on_reviewer(partial(context.cost, name))
        reviewer = Reviewer(
            context=context,
            name=name,
            run_id=self._run_id,
            stderr_path=self._state_dir.stderr_log(self._run_id),
            on_begin=begin,
            on_spawned=lambda process: self._link.send(frames.Spawned(process=process)),
            on_event=see,
        )
        self._session = None  # the agent's unfinished message does not belong to the reviewer
        verdict: ReviewerVerdict | None = None
        failure: Failure | None = None
        with self._trace.step(SpanName.CHECK, f"reviewer {name}"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._progress.run)
                tasks.start_soon(self._transcript.run)
                try:
                    verdict = await reviewer.review(workspace, self._issue, verification.head)
                except SymphonyError as error:
                    failure = error.failure
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise SymphonyError(failure)
        context.fault(FaultPoint.AFTER_REVIEWER)
        return replace(verification, reviewer=verdict)

    def _on_check(self, check: CheckRun) -> None:
        self._transcript.on_event(check)
        if not check.skipped:
            self._trace.on_check(check)
            _log.info(
                "check_ended",
                check=check.name,
                passed=check.passed,
                exit_code=check.exit_code,
                result=check.ended,
                duration_ms=check.duration_ms,
            )
        self._context.fault(FaultPoint.CHECK_ENDED)

    async def _keep_artifact(self, name: str, data: bytes) -> None:
        await self._link.request(lambda number: frames.ArtifactFound(request=number, name=name, data=data))

    async def _recheck_skills(self) -> None:
        """Report the skills after the run's changes, because it may be the last run of its issue."""
        if self._workspace is not None:
            await self._skills.reload(self._workspace)
            await self._skills.report_problems()
            await self._skills.sync(self._workspace)

    def _public(self, outcome: Outcome) -> Outcome:
        """The outcome with secrets masked, for logs, the terminal and the issue."""
        redaction = self._context.redaction
        return replace(
            outcome,
            failure=None if outcome.failure is None else redaction.failure(outcome.failure),
            question=None if outcome.question is None else redaction.text(outcome.question),
            delivered=None if outcome.delivered is None else outcome.delivered.masked(redaction),
            left=None if outcome.left is None else redaction.text(outcome.left),
            verification=None if outcome.verification is None else outcome.verification.masked(redaction),
            summary=redaction.line(self._last_text or "", _SUMMARY_CHARS) or None,
        )


def _complaint(event: ItemFinished) -> str | None:
    """The last output line of a failed command."""
    lines = [line.strip() for line in event.output.splitlines() if line.strip()]
    git_own = [line for line in lines if line.startswith(("error:", "fatal:"))]
    return one_line("; ".join(git_own or lines[-1:]), _SUMMARY_CHARS) or None


def _input_failure(event: InputRequired, section: str) -> Failure:
    """Why a person must act; `section` names the agent's settings in the workflow file."""
    return Failure(
        category=Category.APPROVAL_REQUIRED if event.approval else Category.TURN_INPUT_REQUIRED,
        blame=Blame.AGENT,
        message=f"the agent needs a person: {event.reason}",
        retryable=False,
        hint=f"approve or deny it, or say how to do without it; {section}.on_approval decides alone"
        if event.approval
        else "write the answer as a comment on the issue",
    )


def _vanished(outcome: Outcome, workspace: Workspace) -> Outcome:
    """The outcome of a run that failed because its workspace is gone, with the agent's report, if any."""
    failure = vanished_failure(workspace.path)
    _log.warning("workspace_vanished", path=str(workspace.path), hint=failure.hint)
    if outcome.kind in {OutcomeKind.INPUT_REQUIRED, OutcomeKind.CANCELED}:
        return outcome
    return replace(outcome, kind=OutcomeKind.FAILED, failure=failure, progress=False)


def _undelivered(outcome: Outcome, failure: Failure) -> Outcome:
    """The outcome of a run whose work could not be delivered, which is no success."""
    _log.warning("delivery_failed", reason=failure.message, hint=failure.hint)
    if outcome.kind is not OutcomeKind.SUCCEEDED:
        return outcome
    return replace(outcome, kind=OutcomeKind.FAILED, failure=failure)
