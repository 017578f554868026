"""Carries out the commands of the scheduler: the only place where decisions have effects.

Each command runs in its own task. An effect reports its result as an event or logs it, and raises nothing,
because a failing call must not end the daemon.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import assert_never
from weakref import WeakValueDictionary

import anyio
import structlog
from anyio.abc import TaskGroup

from symphony import to_thread
from symphony.daemon.comments import (
    AnswerReader,
    PeopleCommentReader,
    ReadComments,
    SkillComments,
    draft_of,
    queue_comment,
)
from symphony.daemon.context import RuntimeContext, comment_severity
from symphony.daemon.core import Core
from symphony.daemon.hosts.hosts import Hosts
from symphony.daemon.hosts.session import HostSession
from symphony.daemon.jobs import JobRunner
from symphony.daemon.moves import queue_move
from symphony.daemon.pushes import queue_push
from symphony.daemon.runs.artifacts import keep_artifact
from symphony.daemon.runs.session_library import sync_from_host
from symphony.daemon.runs.supervised_run import Carrier, SupervisedRun
from symphony.daemon.runs.tracing import RunTrace, Traces
from symphony.daemon.runs.worker import Worker
from symphony.domain import (
    Blame,
    Category,
    Failure,
    FaultPoint,
    Issue,
    SymphonyError,
)
from symphony.journal.transcripts import TranscriptWriter
from symphony.library.sync import CollectedSkills, Synced
from symphony.observability import bugs
from symphony.scheduler import (
    AnswersRead,
    AnswersReadFailed,
    BranchDelivered,
    CleanWorkspace,
    Command,
    ContinueRun,
    Exit,
    FetchCandidates,
    FinishRun,
    MoveIssue,
    Notify,
    Outcome,
    OutcomeKind,
    Polled,
    PollFailed,
    PostComment,
    PushBranch,
    ReadAnswers,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    RunEnded,
    RunPlaced,
    SetTimer,
    StartRun,
    StopRun,
    TimerKind,
)
from symphony.skills import SkillSet
from symphony.trackers.base import ToolProvider, TrackerError, skipped_by
from symphony.workspaces import Removal, WorkspaceRecord

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds.

    Attributes:
        tracker_s: for one answer of the tracker with all its pages. Adapters limit each request themselves.
        exit_s: for removals in progress when the daemon exits.
        hurried_exit_s: for these and for jobs, when the operator wants to stop at once.
    """

    tracker_s: float = 120.0
    exit_s: float = 35.0
    hurried_exit_s: float = 5.0


class Effects:
    """Carries out commands in the tasks of one group.

    It has many arguments, because each carries out another kind of command.

    Args:
        core: state, context, mailbox, clocks and observers.
        tasks: the group of all tasks.
        before_poll: awaited before each poll.
        review_tools: adds to the tools of a run the one that answers reviews of its issue's work.
        handled: waits until all earlier events in the mailbox are handled.
        on_exit: called when the daemon may end.
        jobs: carries out jobs.
        skill_comments: decides about comments on skills.
        people_comments: reads people's comments.
        traces: starts the traces of runs.
        hosts: carries runs out on hosts.
        timeouts: limits of the effects.
    """

    def __init__(
        self,
        core: Core,
        *,
        tasks: TaskGroup,
        before_poll: Callable[[], Awaitable[None]],
        review_tools: Callable[[str, ToolProvider], ToolProvider],
        handled: Callable[[], Awaitable[None]],
        on_exit: Callable[[], None],
        jobs: JobRunner,
        skill_comments: SkillComments,
        people_comments: PeopleCommentReader,
        traces: Traces,
        hosts: Hosts,
        timeouts: Timeouts = Timeouts(),
    ) -> None:
        self._core = core
        self._post = core.post
        self._tasks = tasks
        self._before_poll = before_poll
        self._review_tools = review_tools
        self._handled = handled
        self._on_exit = on_exit
        self._jobs = jobs
        self._skill_comments = skill_comments
        self._people_comments = people_comments
        self._traces = traces
        self._hosts = hosts
        self._timeouts = timeouts
        self._answers = AnswerReader(jobs, now_ms=core.now_ms)
        self._drained_by_ms: int | None = None
        self._runs: dict[str, SupervisedRun] = {}
        # A run and a removal never meet in the workspace of an issue.
        self._workspace_locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._background_tasks = 0
        self._background_idle = anyio.Event()
        self._exit_scope: anyio.CancelScope | None = None
        self._hurried = False

    def carry_out(self, command: Command) -> None:  # noqa: C901, PLR0912 - one case per command
        """Start to carry out one command; returns at once."""
        match command:
            case FetchCandidates():
                self._tasks.start_soon(self._fetch, command)
            case RefreshIssues():
                self._tasks.start_soon(self._refresh, command)
            case StartRun():
                self._start_run(command)
            case ContinueRun() | FinishRun():
                if run := self._runs.get(command.run_id):
                    run.direct(command)
            case StopRun():
                if run := self._runs.get(command.run_id):
                    run.stop(verify=command.verify)
            case SetTimer():
                if command.timer.kind is TimerKind.DRAIN:
                    self._drained_by_ms = command.due_ms
                self._core.timers.set(command)
            case CleanWorkspace():
                self._in_background(self._clean, command)
            case PostComment():
                queue_comment(self._jobs, self._core.in_force, draft_of(command))
            case PushBranch():
                queue_push(self._jobs, command)
            case ReadAnswers():
                self._tasks.start_soon(self._read_answers, command)
            case MoveIssue():
                queue_move(self._jobs, self._core.in_force, command)
            case Notify():
                fields = {key: value for key, value in command.fields.items() if value is not None}
                if command.issue_id is not None:
                    fields["issue_id"] = command.issue_id
                    fields["issue_identifier"] = command.issue_identifier
                if trace_id := self._traces.trace_id(fields.get("run_id")):
                    fields["trace_id"] = trace_id
                getattr(_log, command.level)(command.event, **fields)
            case Exit():
                self._tasks.start_soon(self._exit)
            case _:
                assert_never(command)

    def hurry(self) -> None:
        """Limit the time of everything that is ending; the next daemon repeats interrupted work."""
        self._hurried = True
        if self._exit_scope is not None:
            deadline = anyio.current_time() + self._timeouts.hurried_exit_s
            self._exit_scope.deadline = min(self._exit_scope.deadline, deadline)
        for run in self._runs.values():
            run.hurry()

    # --- the tracker -------------------------------------------------------------------------------------

    async def _fetch(self, command: FetchCandidates) -> None:
        try:
            await self._before_poll()
            context = self._core.in_force
            with self._tracker_deadline():
                issues = await context.tracker.fetch_issues_by_states(context.active_states)
        except Exception as error:  # noqa: BLE001 - every failure becomes an event
            self._post(PollFailed(request=command.request, failure=self._tracker_failure(error)))
        else:
            skipped = tuple(context.redaction.failure(each) for each in skipped_by(context.tracker))
            self._post(Polled(request=command.request, issues=tuple(issues), skipped_records=skipped))

    async def _refresh(self, command: RefreshIssues) -> None:
        try:
            with self._tracker_deadline():
                issues = await self._core.in_force.tracker.fetch_issues_by_ids(command.ids)
        except Exception as error:  # noqa: BLE001 - every failure becomes an event
            culprits = error.culprits if isinstance(error, TrackerError) else frozenset()
            failure = self._tracker_failure(error)
            self._post(RefreshFailed(request=command.request, failure=failure, culprits=culprits))
        else:
            self._post(Refreshed(request=command.request, issues=tuple(issues)))

    async def _read_answers(self, command: ReadAnswers) -> None:
        issue_id, question = command.comment.issue.id, command.question
        try:
            with self._tracker_deadline():
                answers, others = await self._answers.read(self._core.in_force, command.comment)
        except Exception as error:  # noqa: BLE001 - every failure becomes an event
            failure = self._tracker_failure(error)
            self._post(AnswersReadFailed(issue_id=issue_id, question=question, failure=failure))
        else:
            self._post(
                AnswersRead(issue_id=issue_id, question=question, answers=answers, unauthorized=others)
            )

    @contextmanager
    def _tracker_deadline(self) -> Iterator[None]:
        """Give up on a tracker that does not answer, so that a hanging request does not end polling."""
        with anyio.move_on_after(self._timeouts.tracker_s) as scope:
            yield
        if scope.cancelled_caught:
            raise TrackerError(
                Failure(
                    category=Category.TRACKER_REQUEST,
                    blame=Blame.TRACKER,
                    message=f"no answer within {self._timeouts.tracker_s:g} s",
                    hint="see whether the tracker can be reached; it is asked again with the next poll",
                )
            )

    def _tracker_failure(self, error: Exception) -> Failure:
        redaction = self._core.in_force.redaction
        if isinstance(error, SymphonyError):
            return redaction.failure(error.failure)
        failure = bugs.contained("tracker_crashed", error, Category.TRACKER_REQUEST, Blame.TRACKER)
        return redaction.failure(failure)

    # --- runs --------------------------------------------------------------------------------------------

    def _start_run(self, command: StartRun) -> None:
        context = self._core.in_force
        try:
            trace = self._traces.start(command, context)
            run = SupervisedRun(
                command,
                self._core,
                carrier=self._carrier(command, context, trace),
                tools=self._review_tools(command.issue.id, context.tracker),
                requests=self,
                log_fields=trace.log_fields,
            )
        except Exception as error:  # noqa: BLE001 - a failed start is a failed attempt
            _log.exception("run_crashed", run_id=command.run_id)
            failure = Failure(
                category=Category.INTERNAL,
                blame=Blame.HOST,
                message=context.redaction.text(f"failed to spawn agent: {error!r}"),
            )
            outcome = Outcome(kind=OutcomeKind.FAILED, failure=failure)
            self._post(RunEnded(run_id=command.run_id, outcome=outcome))
            return
        self._runs[command.run_id] = run
        self._tasks.start_soon(self._run, command, run)

    def _carrier(self, command: StartRun, context: RuntimeContext, trace: RunTrace) -> Carrier:
        transcript = TranscriptWriter(self._core.state_dir.transcript(command.run_id))
        if command.host is None:
            return partial(
                Worker,
                context=context,
                state_dir=self._core.state_dir,
                transcript=transcript,
                trace=trace,
                pricing=self._core.pricing(command.agent),
            )
        return partial(
            HostSession,
            on_placed=lambda host: self._post(RunPlaced(run_id=command.run_id, host=host)),
            hosts=self._hosts,
            context=context,
            environment=self._core.environment,
            stderr_path=self._core.state_dir.stderr_log(command.run_id),
            transcript=transcript,
        )

    async def _run(self, command: StartRun, run: SupervisedRun) -> None:
        try:
            async with self._workspace_lock(command.issue.id):
                await self._hosts.fence_issue(self._core.in_force, command.issue.id)
                await run.run()
        finally:
            self._runs.pop(command.run_id, None)
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._core.state_dir.remove_empty_log, command.run_id)

    async def sync_skills(self, command: StartRun, collected: CollectedSkills) -> Synced | None:
        """See `RunRequests`."""
        return await sync_from_host(self._core.in_force, command, collected)

    async def keep_artifact(self, run_id: str, name: str, data: bytes) -> None:
        """See `RunRequests`."""
        place = self._core.state_dir.artifacts / run_id
        try:
            await to_thread.run_sync(keep_artifact, place, name, data)
        except OSError as error:
            message = f"a file of a check cannot be stored: {error}"
            raise SymphonyError(
                Failure(category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=message)
            ) from error

    async def read_comments(self, command: StartRun) -> ReadComments:
        """See `RunRequests`."""
        answer = None if command.resume is None else command.resume.answer
        return await self._people_comments.read(self._core.in_force, command.issue, answer)

    async def report_skills(self, issue: Issue, found: SkillSet) -> None:
        """Queue the comment about skills."""
        context = self._core.in_force
        at_least = comment_severity(context.settings)
        await self._skill_comments.update(context, issue, found, at_least=at_least)

    # --- in the background -------------------------------------------------------------------------------

    async def _clean(self, command: CleanWorkspace) -> None:
        ids = {"issue_id": command.issue_id, "issue_identifier": command.identifier}
        async with self._workspace_lock(command.issue_id):
            context = self._core.in_force
            try:
                context.fault(FaultPoint.BEFORE_CLEAN)
                if command.host is not None:
                    removal = await self._hosts.clean(context, command)
                else:
                    removal = await self._remove(context, command)
            except SymphonyError as error:
                _log.warning("workspace_kept", reason=error.failure.line, **ids)
                return
            except OSError as error:
                _log.warning("workspace_kept", reason=str(error), **ids)
                return
        context.fault(FaultPoint.AFTER_CLEAN)
        delivered = None if removal.delivery is None else removal.delivery.delivered
        if delivered is not None and delivered.is_pending:
            event = BranchDelivered(
                issue_id=command.issue_id, identifier=command.identifier, delivered=delivered
            )
            self._post(event)
        if removal.removed:
            _log.info("workspace_removed", **ids)
        elif removal.kept_reason:
            _log.warning("workspace_kept", reason=removal.kept_reason, look=removal.look, **ids)

    async def _remove(self, context: RuntimeContext, command: CleanWorkspace) -> Removal:
        if command.path is None:  # not recorded: its place below the present root
            record = await context.workspaces.locate(command.issue_id, command.identifier)
        else:
            path = Path(command.path)
            record = WorkspaceRecord(
                issue_id=command.issue_id, identifier=command.identifier, key=path.name, path=path
            )
        return await context.workspaces.remove(record)

    def _workspace_lock(self, issue_id: str) -> anyio.Lock:
        return self._workspace_locks.setdefault(issue_id, anyio.Lock())

    def _in_background(self, effect: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start an effect for which the exit of the daemon waits, for a limited time."""

        async def run() -> None:
            try:
                await effect(*arguments)
            except Exception:  # noqa: BLE001 - background work must not end the daemon
                _log.exception("effect_crashed")
            finally:
                self._background_tasks -= 1
                if self._background_tasks == 0:
                    self._background_idle.set()

        self._background_tasks += 1
        self._tasks.start_soon(run)

    async def _exit(self) -> None:
        """Wait for jobs and background tasks, for a limited time, and let the daemon end."""
        limit_s, hurried_s = self._timeouts.exit_s, self._timeouts.hurried_exit_s
        if self._drained_by_ms is not None:  # the time that `agent.drain_timeout_ms` leaves
            limit_s = max((self._drained_by_ms - self._core.now_ms()) / 1000, hurried_s)
        with anyio.move_on_after(hurried_s if self._hurried else limit_s) as self._exit_scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._settle)
                with anyio.move_on_after(self._timeouts.exit_s):
                    while self._background_tasks:
                        self._background_idle = anyio.Event()
                        await self._background_idle.wait()
        self._on_exit()

    async def _settle(self) -> None:
        """Wait for jobs, and for jobs that follow from them, such as a comment about a push."""
        await self._jobs.finish()
        await self._handled()
        await self._jobs.finish()
