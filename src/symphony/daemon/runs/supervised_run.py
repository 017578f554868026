"""The daemon's end of the frames of one run: passes directives on, answers requests, and reports.

The worker may be in this process or in another one; nothing here depends on it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import anyio
import msgspec
import structlog

from symphony.api.models import Instructions, Skills
from symphony.daemon import frames
from symphony.daemon.comments import ReadComments
from symphony.domain import Blame, Category, Failure, Issue, SymphonyError, ToolResult
from symphony.library.sync import CollectedSkills, Synced
from symphony.processes.base import Identity
from symphony.scheduler import (
    AgentReported,
    ContinueRun,
    Event,
    FinishRun,
    Outcome,
    OutcomeKind,
    RunEnded,
    StartRun,
    TurnEnded,
)
from symphony.skills import SkillSet
from symphony.trackers.base import ToolProvider

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

_MAX_REQUESTS: Final = 200
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCallbacks:
    """What a run reports besides the events for the scheduler.

    Attributes:
        comments_told: issue id, and comments of people that were in a prompt that the agent was sent.
        agent_spawned: run id and process of the agent; called before anything is sent to it.
        conversation_opened: run id and conversation of the agent; returns when a restart would know it.
        instructions_composed: issue id, run id and the instructions of the phase that the session enters.
        skills_changed: issue id, run id and skills of the session; called again when it uses one.
        tool_called: agent, and whether its call of a tool succeeded.
        transcript_incomplete: issue, run id, and why entries of the transcript are missing.
    """

    comments_told: Callable[[str, ReadComments], None]
    agent_spawned: Callable[[str, Identity], None]
    conversation_opened: Callable[[str, str], Awaitable[None]]
    instructions_composed: Callable[[str, str, Instructions], None]
    skills_changed: Callable[[str, str, Skills], None]
    tool_called: Callable[[str, bool], None]
    transcript_incomplete: Callable[[Issue, str, str], None]


class WorkerEnd(Protocol):
    """The other end of the frames: a worker, or what leads to one."""

    def on_frame(self, frame: frames.DaemonFrame) -> None:
        """Take a frame; never waits."""
        ...

    async def run(self) -> None:
        """Carry out the run; its last frame is `Ended`, and its processes are gone afterwards."""
        ...


Carrier = Callable[[frames.Start, Callable[[frames.WorkerFrame], None]], WorkerEnd]
"""Makes the end that carries out a run; it gives its frames to the function."""


class SupervisedRun:
    """One run, from its `StartRun` to its one `RunEnded`.

    Args:
        command: begins the run.
        carrier: leads to the worker.
        tools: those of the tracker.
        post: puts an event into the mailbox.
        callbacks: what the run reports besides events.
        read_comments: reads what people wrote on the issue.
        report_skills: gets the issue and loaded skills, whose problems may be worth a comment.
        sync_skills: makes proposals of what a worker on a host collected.
        log_fields: what log lines of the run carry besides its ids.

    Raises:
        Exception: whatever the carrier raises.
    """

    def __init__(
        self,
        command: StartRun,
        *,
        carrier: Carrier,
        tools: ToolProvider,
        post: Callable[[Event], None],
        callbacks: RunCallbacks,
        read_comments: Callable[[StartRun], Awaitable[ReadComments]],
        report_skills: Callable[[Issue, SkillSet], Awaitable[None]],
        sync_skills: Callable[[StartRun, CollectedSkills], Awaitable[Synced | None]],
        log_fields: Mapping[str, str],
    ) -> None:
        self._command = command
        self._issue = command.issue
        self._tools = tools
        self._post = post
        self._callbacks = callbacks
        self._read_comments = read_comments
        self._report_skills = report_skills
        self._sync_skills = sync_skills
        self._log_fields = {
            "issue_id": command.issue.id,
            "issue_identifier": command.issue.identifier,
            "run_id": command.run_id,
            **log_fields,
        }
        self._requests: TaskGroup | None = None
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._ended = False
        self._commented = False
        self._read: ReadComments | None = None
        start = frames.Start(command=command, tools=tools.agent_tool_specs())
        self._offered = frozenset(spec.name for spec in start.tools)
        self._worker = carrier(start, self.on_frame)

    # --- to the worker -----------------------------------------------------------------------------------

    def direct(self, directive: ContinueRun | FinishRun) -> None:
        """Say how to go on after a turn."""
        match directive:
            case ContinueRun():
                self._issue = directive.issue
                self._send(frames.Continue(command=directive))
            case FinishRun():
                self._send(frames.Finish(command=directive))

    def stop(self, *, verify: bool = False) -> None:
        """Stop the run wherever it is; `verify` has what it delivers verified."""
        self._send(frames.Stop(verify=verify))

    def hurry(self) -> None:
        """Give what is left of the run little time; undelivered work stays in the workspace."""
        self._send(frames.Hurry())

    def _send(self, frame: frames.DaemonFrame) -> None:
        if not self._ended:
            self._worker.on_frame(frame)

    # --- from the worker ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have the run carried out; posts exactly one `RunEnded`, whatever happens."""
        try:
            async with anyio.create_task_group() as self._requests:
                await self._worker.run()
                self._requests.cancel_scope.cancel()
        finally:
            if not self._ended:
                failure = Failure(
                    category=Category.WORKER_LOST,
                    blame=Blame.HOST,
                    message="the worker ended without a result",
                )
                self.on_frame(frames.Ended(outcome=Outcome(kind=OutcomeKind.FAILED, failure=failure)))

    def on_frame(self, frame: frames.WorkerFrame) -> None:  # noqa: C901, PLR0912 - one case per frame
        """Take a frame of the worker; frames behind `Ended` are dropped."""
        if self._ended:
            return
        run_id, issue, callbacks = self._command.run_id, self._command.issue, self._callbacks
        match frame:
            case frames.Report():
                if frame.report.turn_count and self._read is not None:
                    callbacks.comments_told(issue.id, self._read)
                    self._read = None
                self._post(AgentReported(run_id=run_id, report=frame.report))
            case frames.TurnFinished():
                self._post(TurnEnded(run_id=run_id, turn=frame.turn, trace=frame.trace))
            case frames.Ended():
                self._ended = True
                outcome = replace(frame.outcome, commented=self._commented)
                self._post(RunEnded(run_id=run_id, outcome=outcome))
            case frames.Spawned():
                callbacks.agent_spawned(run_id, frame.process)
            case frames.InstructionsComposed():
                callbacks.instructions_composed(issue.id, run_id, frame.instructions)
            case frames.SkillsChanged():
                callbacks.skills_changed(issue.id, run_id, frame.skills)
            case frames.ToolFinished():
                callbacks.tool_called(self._command.agent, frame.success)
            case frames.TranscriptIncomplete():
                callbacks.transcript_incomplete(issue, run_id, frame.reason)
            case (
                frames.ToolCall()
                | frames.CommentsAsked()
                | frames.ConversationOpened()
                | frames.SkillProblems()
                | frames.SkillsCollected()
            ):
                if frame.request in self._scopes:
                    return
                if len(self._scopes) >= _MAX_REQUESTS:
                    busy = _internal(f"{_MAX_REQUESTS} requests wait for an answer")
                    self._send(frames.Answer(request=frame.request, failure=busy))
                    return
                self._scopes[frame.request] = anyio.CancelScope()
                assert self._requests is not None  # noqa: S101 - set by `run`, before the worker runs
                self._requests.start_soon(self._answer, frame)
            case frames.Withdraw():
                if scope := self._scopes.get(frame.request):
                    scope.cancel()
            case (
                frames.Hello() | frames.Ping() | frames.TranscriptEntries() | frames.Logged()
            ):  # those of a stream are its carrier's
                pass
            case _:
                assert_never(frame)

    async def _answer(self, frame: frames.Request) -> None:
        """Carry out a request and answer it, also if this task is cancelled: the worker may be shielded."""
        answer = frames.Answer(request=frame.request, failure=_internal("the daemon ends"))
        try:
            with self._scopes[frame.request], structlog.contextvars.bound_contextvars(**self._log_fields):
                answer = await self._carry_out(frame)
        except SymphonyError as error:
            answer = frames.Answer(request=frame.request, failure=error.failure)
        except Exception as error:  # noqa: BLE001 - the failure of a request is the worker's to handle
            _log.exception("request_failed")
            answer = frames.Answer(request=frame.request, failure=_internal(repr(error)))
        finally:
            del self._scopes[frame.request]
            self._send(answer)

    async def _carry_out(self, frame: frames.Request) -> frames.Answer:
        answer = frames.Answer(request=frame.request)
        match frame:
            case frames.ToolCall() if frame.name not in self._offered:
                refused = ToolResult.error("unsupported tool", supportedTools=sorted(self._offered))
                return msgspec.structs.replace(answer, result=refused)
            case frames.ToolCall():
                with structlog.contextvars.bound_contextvars(session_id=frame.session_id):
                    result = await self._tools.execute_agent_tool(
                        frame.name, frame.arguments, issue=self._issue
                    )
                self._commented |= result.success and result.commented
                return msgspec.structs.replace(answer, result=result)
            case frames.SkillsCollected():
                with anyio.CancelScope(shield=True):  # it is one transaction, at the end of a run
                    synced = await self._sync_skills(self._command, frame.collected)
                return msgspec.structs.replace(answer, synced=synced)
            case frames.CommentsAsked():
                self._read = await self._read_comments(self._command)
                return msgspec.structs.replace(answer, comments=self._read.shown)
            case frames.ConversationOpened():
                await self._callbacks.conversation_opened(self._command.run_id, frame.thread_id)
            case frames.SkillProblems():
                with anyio.CancelScope(shield=True):  # a run reports them at its end too
                    await self._report_skills(self._command.issue, frame.found)
        return answer


def _internal(message: str) -> Failure:
    return Failure(category=Category.INTERNAL, blame=Blame.HOST, message=message)
