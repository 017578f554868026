"""The daemon's end of the frames of one run: passes directives on, answers requests, and reports.

The worker may be in this process or in another one; nothing here depends on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import anyio
import msgspec
import structlog

from symphony import scheduler
from symphony.daemon import frames
from symphony.daemon.comments import ReadComments
from symphony.daemon.core import Core
from symphony.domain import Blame, Category, Failure, Issue, SymphonyError, ToolResult
from symphony.library.sync import CollectedSkills, Synced
from symphony.skills import SkillSet
from symphony.trackers.base import ToolProvider

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

_MAX_REQUESTS: Final = 200
_log = structlog.get_logger(__name__)


class RunRequests(Protocol):
    """Answers a worker's requests other than tool calls."""

    async def read_comments(self, command: scheduler.StartRun) -> ReadComments:
        """People's comments on the issue."""
        ...

    async def report_skills(self, issue: Issue, found: SkillSet) -> None:
        """Receive loaded skills, whose problems may be worth a comment."""
        ...

    async def keep_artifact(self, run_id: str, name: str, data: bytes) -> None:
        """Store a file that a check left. Raises `SymphonyError`: it cannot be written."""
        ...

    async def sync_skills(self, command: scheduler.StartRun, collected: CollectedSkills) -> Synced | None:
        """Turn the skills that a worker on a host collected into proposals."""
        ...


class WorkerEnd(Protocol):
    """The other end of the frames: a worker, or the connection to one."""

    def on_frame(self, frame: frames.DaemonFrame) -> None:
        """Take a frame; never waits."""
        ...

    async def run(self) -> None:
        """Carry out the run; its last frame is `RunOutcome`, and its processes are gone afterwards."""
        ...


Carrier = Callable[[frames.Start, Callable[[frames.WorkerFrame], None]], WorkerEnd]
"""Makes the worker end of a run; the function receives its frames."""


class SupervisedRun:
    """One run, from its `StartRun` to its one `RunEnded`.

    Args:
        command: begins the run.
        core: gets the events of the run, and publishes its other reports.
        carrier: makes the worker end.
        tools: the tools of the tracker.
        requests: answers the worker's requests.
        log_fields: further fields in log lines of the run.

    Raises:
        Exception: any exception of the carrier.
    """

    def __init__(
        self,
        command: scheduler.StartRun,
        core: Core,
        *,
        carrier: Carrier,
        tools: ToolProvider,
        requests: RunRequests,
        log_fields: Mapping[str, str],
    ) -> None:
        self._command = command
        self._issue = command.issue
        self._tools = tools
        self._core = core
        self._post = core.post
        self._answers = requests
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

    def direct(self, directive: scheduler.ContinueRun | scheduler.FinishRun) -> None:
        """Tell the worker how to go on after a turn."""
        match directive:
            case scheduler.ContinueRun():
                self._issue = directive.issue
                self._send(frames.Continue(command=directive))
            case scheduler.FinishRun():
                self._send(frames.Finish(command=directive))

    def stop(self, *, verify: bool = False) -> None:
        """Stop the run at any point; with `verify` the worker verifies its delivery."""
        self._send(frames.Stop(verify=verify))

    def hurry(self) -> None:
        """Limit the time for the rest of the run; undelivered work stays in the workspace."""
        self._send(frames.Hurry())

    def _send(self, frame: frames.DaemonFrame) -> None:
        if not self._ended:
            self._worker.on_frame(frame)

    # --- from the worker ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out the run; post exactly one `RunEnded`, whatever happens."""
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
                self.on_frame(
                    frames.RunOutcome(
                        outcome=scheduler.Outcome(kind=scheduler.OutcomeKind.FAILED, failure=failure)
                    )
                )

    def on_frame(self, frame: frames.WorkerFrame) -> None:  # noqa: C901, PLR0912 - one case per frame
        """Handle a frame of the worker; frames after `RunOutcome` are dropped."""
        if self._ended:
            return
        run_id, issue, publish = self._command.run_id, self._command.issue, self._core.publish
        match frame:
            case frames.Report():
                if frame.report.facts.turn_count and self._read is not None:
                    told, self._read = self._read.told, None
                    if told:
                        publish(lambda observer: observer.comments_told(issue.id, told))
                self._post(scheduler.AgentReported(run_id=run_id, report=frame.report))
            case frames.TurnFinished():
                self._post(
                    scheduler.TurnEnded(
                        run_id=run_id, turn=frame.turn, trace=frame.trace, changed=frame.changed
                    )
                )
            case frames.RunOutcome():
                self._ended = True
                outcome = replace(frame.outcome, commented=self._commented)
                self._post(scheduler.RunEnded(run_id=run_id, outcome=outcome))
            case frames.Spawned():
                publish(lambda observer: observer.agent_spawned(run_id, frame.process))
            case frames.InstructionsComposed():
                composed = frame.instructions
                publish(lambda observer: observer.instructions_composed(issue.id, run_id, composed))
            case frames.SkillsChanged():
                publish(lambda observer: observer.skills_loaded(issue.id, run_id, frame.skills))
            case frames.ToolFinished():
                agent, success = self._command.agent, frame.success
                publish(lambda observer: observer.tool_called(agent, success=success))
            case frames.TranscriptIncomplete():
                publish(lambda observer: observer.transcript_incomplete(issue, run_id, frame.reason))
            case (
                frames.ToolCallAsked()
                | frames.CommentsAsked()
                | frames.ConversationOpened()
                | frames.SkillsLoaded()
                | frames.SkillsCollected()
                | frames.ArtifactFound()
            ):
                if frame.request in self._scopes:
                    return
                if len(self._scopes) >= _MAX_REQUESTS:
                    busy = _internal(f"{_MAX_REQUESTS} requests wait for an answer")
                    self._send(frames.RequestAnswered(request=frame.request, failure=busy))
                    return
                self._scopes[frame.request] = anyio.CancelScope()
                assert self._requests is not None  # noqa: S101 - set by `run`, before the worker runs
                self._requests.start_soon(self._answer, frame)
            case frames.Withdraw():
                if scope := self._scopes.get(frame.request):
                    scope.cancel()
            case frames.Hello() | frames.Ping() | frames.TranscriptEntries() | frames.Logged():
                pass  # the carrier handles those of a stream
            case _:
                assert_never(frame)

    async def _answer(self, frame: frames.Request) -> None:
        """Carry out a request and answer it, even if this task is cancelled: the worker may be shielded."""
        answer = frames.RequestAnswered(request=frame.request, failure=_internal("the daemon ends"))
        try:
            with self._scopes[frame.request], structlog.contextvars.bound_contextvars(**self._log_fields):
                answer = await self._carry_out(frame)
        except SymphonyError as error:
            answer = frames.RequestAnswered(request=frame.request, failure=error.failure)
        except Exception as error:  # noqa: BLE001 - the failure of a request is the worker's to handle
            _log.exception("request_failed")
            answer = frames.RequestAnswered(request=frame.request, failure=_internal(repr(error)))
        finally:
            del self._scopes[frame.request]
            self._send(answer)

    async def _carry_out(self, frame: frames.Request) -> frames.RequestAnswered:
        answer = frames.RequestAnswered(request=frame.request)
        match frame:
            case frames.ToolCallAsked() if frame.name not in self._offered:
                refused = ToolResult.error("unsupported tool", supportedTools=sorted(self._offered))
                return msgspec.structs.replace(answer, result=refused)
            case frames.ToolCallAsked():
                with structlog.contextvars.bound_contextvars(session_id=frame.session_id):
                    result = await self._tools.execute_agent_tool(
                        frame.name, frame.arguments, issue=self._issue
                    )
                self._commented |= result.success and result.commented
                return msgspec.structs.replace(answer, result=result)
            case frames.SkillsCollected():
                with anyio.CancelScope(shield=True):  # it is one transaction, at the end of a run
                    synced = await self._answers.sync_skills(self._command, frame.collected)
                return msgspec.structs.replace(answer, synced=synced)
            case frames.CommentsAsked():
                self._read = await self._answers.read_comments(self._command)
                return msgspec.structs.replace(answer, comments=self._read.shown)
            case frames.ConversationOpened():
                await self._core.conversation_opened(self._command.run_id, frame.thread_id)
            case frames.ArtifactFound():
                await self._answers.keep_artifact(self._command.run_id, frame.name, frame.data)
            case frames.SkillsLoaded():
                with anyio.CancelScope(shield=True):  # a run reports them at its end too
                    await self._answers.report_skills(self._command.issue, frame.found)
        return answer


def _internal(message: str) -> Failure:
    return Failure(category=Category.INTERNAL, blame=Blame.HOST, message=message)
