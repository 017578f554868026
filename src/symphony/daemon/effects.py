"""One coroutine per command: the only place where decisions meet the world.

Every effect answers the scheduler or logs; none lets an exception out, because one failing call must not take
the daemon down.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never
from weakref import WeakValueDictionary

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskGroup

from symphony.daemon.clock import Timers
from symphony.daemon.comments import Answers, IssueComments, SkillComments
from symphony.daemon.context import RuntimeContext, comment_severity
from symphony.daemon.moves import Moves
from symphony.daemon.state_dir import StateDirectory
from symphony.daemon.worker import OnAgent, OnConversation, OnSkills, Worker
from symphony.domain import Blame, Category, Failure, FaultPoint, Issue, SymphonyError
from symphony.scheduler import (
    AnswersRead,
    AnswersReadFailed,
    CleanWorkspace,
    Command,
    ContinueRun,
    Event,
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
    Pushed,
    ReadAnswers,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    RunEnded,
    SetTimer,
    StartRun,
    StopRun,
    WakeAsked,
)
from symphony.skills import SkillSet
from symphony.trackers.base import TrackerError, skipped_by
from symphony.workspaces import WorkspaceRecord

_log = structlog.get_logger(__name__)


class Effects:
    """Carries commands out in tasks of one group; `context` may be replaced by a reload at any time."""

    def __init__(
        self,
        *,
        context: RuntimeContext,
        state_dir: StateDirectory,
        tasks: TaskGroup,
        timers: Timers,
        post: Callable[[Event], None],
        before_poll: Callable[[], Awaitable[None]],
        on_exit: Callable[[], None],
        on_skills: OnSkills,
        on_agent: OnAgent,
        on_conversation: OnConversation,
        notes: IssueComments,
        skill_comments: SkillComments,
        now_ms: Callable[[], int],
    ) -> None:
        self.context = context
        self._state_dir = state_dir
        self._tasks = tasks
        self._timers = timers
        self._post = post
        self._before_poll = before_poll
        self._on_exit = on_exit
        self._on_skills = on_skills
        self._on_agent = on_agent
        self._on_conversation = on_conversation
        self._workers: dict[str, Worker] = {}
        self._places: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._notes = notes
        self._skill_comments = skill_comments
        self._answers = Answers(notes, now_ms=now_ms)
        self._moves = Moves(wake=lambda: post(WakeAsked(reason="issue_moved")))
        self._background = 0
        self._quiet = anyio.Event()
        self._leaving: anyio.CancelScope | None = None
        self._hurried = False

    def carry_out(self, command: Command) -> None:  # noqa: C901, PLR0912 - one line per kind of command
        """Begin to carry out one command; returns at once."""
        match command:
            case FetchCandidates():
                self._tasks.start_soon(self._fetch, command)
            case RefreshIssues():
                self._tasks.start_soon(self._refresh, command)
            case StartRun():
                self._moves.forget(command.issue.id)
                self._start(command)
            case ContinueRun() | FinishRun():
                if worker := self._workers.get(command.run_id):
                    worker.direct(command)
            case StopRun():
                if worker := self._workers.get(command.run_id):
                    worker.stop()
            case SetTimer():
                self._timers.set(command)
            case CleanWorkspace():
                self._beside(self._clean, command)
            case PostComment():
                self._beside(self._note, command)
            case PushBranch():
                self._beside(self._push, command)
            case ReadAnswers():
                self._tasks.start_soon(self._read_answers, command)
            case MoveIssue():
                self._moves.ask(command)
                self._beside(self._moves.make, self.context, command)
            case Notify():
                _notify(command)
            case Exit():
                self._tasks.start_soon(self._exit)
            case _:
                assert_never(command)

    def begin(self) -> None:
        """What comments shall say that a predecessor left unsaid is said beside the work."""
        self._beside(self._skill_comments.say_left, self.context)
        self._tasks.start_soon(self._skill_comments.run, lambda: self.context)

    def hurry(self) -> None:
        """What is being ended anyway ends soon (CL6); a comment that is cut off is for the successor."""
        self._hurried = True
        if self._leaving is not None:
            self._leaving.deadline = min(self._leaving.deadline, anyio.current_time() + _HURRY_S)
        for worker in self._workers.values():
            worker.hurry()

    # --- the tracker -------------------------------------------------------------------------------------

    async def _fetch(self, command: FetchCandidates) -> None:
        try:
            await self._before_poll()
            context = self.context
            with _bounded():
                issues = await context.tracker.fetch_issues_by_states(context.active_states)
        except Exception as error:  # noqa: BLE001 - every failure becomes a fact for the scheduler
            self._post(PollFailed(request=command.request, failure=self._failure(error)))
        else:
            skipped = tuple(context.redaction.failure(each) for each in skipped_by(context.tracker))
            self._post(Polled(request=command.request, issues=tuple(issues), skipped_records=skipped))

    async def _refresh(self, command: RefreshIssues) -> None:
        try:
            with _bounded():
                issues = await self.context.tracker.fetch_issues_by_ids(command.ids)
        except Exception as error:  # noqa: BLE001 - every failure becomes a fact for the scheduler
            culprits = error.culprits if isinstance(error, TrackerError) else frozenset()
            failure = self._failure(error)
            self._post(RefreshFailed(request=command.request, failure=failure, culprits=culprits))
        else:
            self._post(Refreshed(request=command.request, issues=tuple(issues)))

    async def _read_answers(self, command: ReadAnswers) -> None:
        issue_id, question = command.comment.issue.id, command.question
        try:
            with _bounded():
                answers, others = await self._answers.read(self.context, command.comment)
        except Exception as error:  # noqa: BLE001 - every failure becomes a fact for the scheduler
            failure = self._failure(error)
            self._post(AnswersReadFailed(issue_id=issue_id, question=question, failure=failure))
        else:
            self._post(
                AnswersRead(issue_id=issue_id, question=question, answers=answers, unauthorized=others)
            )

    def _failure(self, error: Exception) -> Failure:
        if isinstance(error, SymphonyError):
            return self.context.redaction.failure(error.failure)
        _log.error("tracker_crashed", exc_info=error)
        return Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=self.context.redaction.text(f"internal error: {error!r}"),
        )

    # --- runs --------------------------------------------------------------------------------------------

    def _start(self, command: StartRun) -> None:
        try:
            worker = Worker(
                command,
                context=self.context,
                state_dir=self._state_dir,
                post=self._post,
                report_skills=self._report_skills,
                on_skills=self._on_skills,
                on_agent=self._on_agent,
                on_conversation=self._on_conversation,
            )
        except Exception as error:  # noqa: BLE001 - a start that fails is a failed attempt (SC10)
            _log.exception("run_crashed", run_id=command.run_id)
            self._post(RunEnded(run_id=command.run_id, outcome=self._not_spawned(error)))
            return
        self._workers[command.run_id] = worker
        self._tasks.start_soon(self._run, command, worker)

    def _not_spawned(self, error: Exception) -> Outcome:
        failure = Failure(
            category=Category.INTERNAL,
            blame=Blame.HOST,
            message=self.context.redaction.text(f"failed to spawn agent: {error!r}"),
        )
        return Outcome(kind=OutcomeKind.FAILED, failure=failure)

    async def _run(self, command: StartRun, worker: Worker) -> None:
        try:
            async with self._place(command.issue.id):
                await worker.run()
        finally:
            self._workers.pop(command.run_id, None)
            self._moves.run_ended(command.issue.id)
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._state_dir.drop_empty_log, command.run_id)

    async def _report_skills(self, issue: Issue, found: SkillSet) -> None:
        """Keep in the journal what the comment shall say, and have it said beside the run."""
        at_least = comment_severity(self.context.settings)
        if await self._skill_comments.want(self.context, issue, found, at_least=at_least):
            self._beside(self._skill_comments.say, self.context, issue.id)

    # --- beside the work ---------------------------------------------------------------------------------

    async def _clean(self, command: CleanWorkspace) -> None:
        facts = {"issue_id": command.issue_id, "issue_identifier": command.identifier}
        async with self._place(command.issue_id):
            try:
                self.context.fault(FaultPoint.BEFORE_CLEAN)
                removal = await self.context.workspaces.remove(await self._record(command))
            except SymphonyError as error:
                _log.warning("workspace_kept", reason=error.failure.line, **facts)
                return
            except OSError as error:
                _log.warning("workspace_kept", reason=str(error), **facts)
                return
        self.context.fault(FaultPoint.AFTER_CLEAN)
        if removal.removed:
            _log.info("workspace_removed", **facts)
        elif removal.kept_reason:
            _log.warning("workspace_kept", reason=removal.kept_reason, **facts)

    async def _record(self, command: CleanWorkspace) -> WorkspaceRecord:
        """The recorded workspace of a run, or where it would be below the present root (WS13)."""
        if command.path is None:
            return await self.context.workspaces.locate(command.issue_id, command.identifier)
        path = Path(command.path)
        return WorkspaceRecord(
            issue_id=command.issue_id, identifier=command.identifier, key=path.name, path=path
        )

    async def _note(self, command: PostComment) -> None:
        await self._notes.post(
            self.context, command.issue, kind=command.kind, body=command.body, occasion=command.occasion
        )

    async def _push(self, command: PushBranch) -> None:
        try:
            failure = await self.context.workspaces.push(command.branch)
        except Exception as error:  # noqa: BLE001 - every failure becomes a fact for the scheduler
            _log.exception("effect_crashed")
            failure = Failure(
                category=Category.INTERNAL, blame=Blame.HOST, message=f"internal error: {error!r}"
            )
        failure = None if failure is None else self.context.redaction.failure(failure)
        self._post(Pushed(issue_id=command.issue_id, head=command.head, failure=failure))

    def _place(self, issue_id: str) -> anyio.Lock:
        """The lock of an issue's workspace: a run and a removal never meet there.

        Who holds it or waits for it keeps it; one that nobody needs any more is gone.
        """
        return self._places.setdefault(issue_id, anyio.Lock())

    def _beside(self, effect: Callable[..., Awaitable[None]], *arguments: object) -> None:
        self._background += 1
        self._tasks.start_soon(self._counted, effect, arguments)

    async def _counted(self, effect: Callable[..., Awaitable[None]], arguments: tuple[object, ...]) -> None:
        try:
            await effect(*arguments)
        except Exception:  # noqa: BLE001 - what is done beside the work must not end it
            _log.exception("effect_crashed")
        finally:
            self._background -= 1
            if self._background == 0:
                self._quiet.set()
                self._quiet = anyio.Event()

    async def _exit(self) -> None:
        """Let comments and removals that are under way end, for a bounded time, then leave."""
        with anyio.move_on_after(_HURRY_S if self._hurried else _LEAVE_S) as self._leaving:
            while self._background:
                await self._quiet.wait()
        self._on_exit()


_LEAVE_S = 35.0
_HURRY_S = 5.0
_TRACKER_S = 120.0


@contextmanager
def _bounded() -> Iterator[None]:
    """Give up on a tracker that does not answer: one question that hangs must not end polling for ever.

    Adapters bound each request themselves; this is the limit of a whole answer, all pages of it.
    """
    with anyio.move_on_after(_TRACKER_S) as limit:
        yield
    if limit.cancelled_caught:
        raise TrackerError(
            Failure(
                category=Category.TRACKER_REQUEST,
                blame=Blame.TRACKER,
                message=f"no answer within {_TRACKER_S:g} s",
                hint="see whether the tracker can be reached; it is asked again with the next poll",
            )
        )


def _notify(command: Notify) -> None:
    facts = {key: value for key, value in command.fields.items() if value is not None}
    if command.issue_id is not None:
        facts |= {"issue_id": command.issue_id, "issue_identifier": command.issue_identifier}
    getattr(_log, command.level)(command.event, **facts)
