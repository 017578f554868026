"""Makes the service's snapshots for `api.answers`, and carries out people's actions.

States are immutable, so nothing waits and nothing locks.
"""

import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, TypeVar, assert_never

import anyio
import structlog
from anyio import CapacityLimiter
from cachetools import FIFOCache
from msgspec import structs
from typing_extensions import override

from symphony import skills, to_thread
from symphony.api import answers, models
from symphony.api.documents import created_document, feedback_document
from symphony.api.history import History
from symphony.api.interface import (
    NEWEST_ENTRIES,
    ConflictError,
    DraftEdit,
    Exposition,
    LibraryInUse,
    RunQuery,
    TranscriptQuery,
    UnavailableError,
    UnknownError,
    WorkingDiff,
)
from symphony.api.models import wall_text
from symphony.api.observer import Observer
from symphony.api.task import TrackerAnswer, task_document
from symphony.api.typed import TypedTexts
from symphony.daemon.comments import PeopleCommentReader, queue_persons_comment, unsent_comments
from symphony.daemon.context import RuntimeContext, skill_options
from symphony.daemon.core import ActionRequest, Core
from symphony.daemon.forge.pull_requests import PullRequests
from symphony.daemon.jobs import JobRunner
from symphony.daemon.journal_writer import JournalWriter
from symphony.daemon.learning.learning_runs import Learner
from symphony.daemon.moves import move_now
from symphony.daemon.new_issues import create_given
from symphony.daemon.notify.observer import NotificationObserver
from symphony.daemon.rehearsals import Rehearsals
from symphony.daemon.review_answers import ReviewAnswers
from symphony.daemon.runs.artifacts import read_artifact
from symphony.daemon.runs.prompts import phase_or_requested, preview_prompt, public_prompt
from symphony.daemon.runs.skills import LOAD_DEADLINE_S, in_skill_thread
from symphony.daemon.runs.tracing import Traces
from symphony.daemon.schedules import ScheduleRunner
from symphony.daemon.state_dir import library_key
from symphony.daemon.tasks import TaskReader
from symphony.domain import (
    ALL_ISSUES,
    AgentChoice,
    FileChange,
    Issue,
    Redaction,
    Selection,
    SymphonyError,
    moment,
    normalise_state,
    one_line,
    plural,
)
from symphony.journal.jobs import Job
from symphony.journal.model import JournalStatus, PullRequestRecord, UnusableError
from symphony.library.model import Rating
from symphony.observability.redaction import masked
from symphony.scheduler import (
    Blocked,
    CircuitState,
    Command,
    Drain,
    Event,
    OperatorAction,
    OperatorAsked,
    Resume,
    State,
    WakeAsked,
    already_done,
    circuit_state,
    plan_run,
    refusal,
    stays_handed_off,
    would_coalesce,
)
from symphony.skills import SkillSet
from symphony.trackers.base import CommentCapability, MovingCapability, creation_problem, unique
from symphony.workspaces import NUMSTAT, parse_numstat

_DIAGNOSIS_MS: Final = 60_000
ACTION_TIMEOUT_S: Final = 10.0
SNAPSHOT_TIMEOUT_S: Final = 15.0
PREVIEW_TIMEOUT_S: Final = 60.0
_PREVIEWS_AT_ONCE: Final = 2
_MAX_PATCH_BYTES: Final = 1_048_576
WORKING_TIMEOUT_S: Final = 2.0
_MAX_WORKING_CHARS: Final = 200 * 1_024
_MAX_WORKING_BYTES: Final = 2 * _MAX_WORKING_CHARS  # masked before it is cut
_WORK_FRESH_MS: Final = 3_000
_WORK_TOO_SLOW_MS: Final = 60_000
_MAX_WORK: Final = 100
_MAX_RATED_RUNS: Final = 50
_APPLIED: Final = (
    "what it proposes takes effect at once, unless a person must read it first (agent.library.sync: apply)"
)
_MAX_OF_VISITORS: Final = 20  # per issue, because feedback of visitors is also stored permanently
_REFRESH_REASON: Final = "operator"
_MAX_CACHED_TEXTS: Final = 50_000
_MAX_CACHED_CHARS: Final = 300
_GRACE_S: Final = 0.5
_Answer = TypeVar("_Answer")
_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of the daemon that answers need; `None` until the daemon has them."""

    journal: JournalWriter | None = None
    jobs: JobRunner | None = None
    notifications: NotificationObserver | None = None
    traces: Traces | None = None
    learner: Learner | None = None
    pull_requests: PullRequests | None = None
    rehearsals: Rehearsals | None = None
    reviews: ReviewAnswers | None = None
    schedules: ScheduleRunner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits in seconds.

    Attributes:
        snapshot_s: for a snapshot.
        preview_s: for a preview.
        working_s: for reading the changes in a workspace.
        action_s: for the scheduler to take an action.
    """

    snapshot_s: float = SNAPSHOT_TIMEOUT_S
    preview_s: float = PREVIEW_TIMEOUT_S
    working_s: float = WORKING_TIMEOUT_S
    action_s: float = ACTION_TIMEOUT_S


class ServiceOperator(Observer):
    """Implements `api.interface.Operator` for one service; an observer of it.

    Documents are made in a thread, one at a time, and only a few prompts are previewed together, so that
    neither a large board nor many clients slow the loop.

    Args:
        core: state, context, mailbox and clocks.
        history: past events.
        metrics: the metrics for a scrape.
        diagnose: checks this machine, in bounded time; never raises.
        parts: parts of the daemon for other answers.
        journal: the file with past runs, which may be missing.
        people_comments: reads people's comments.
        limits: how long a question may take.
    """

    def __init__(
        self,
        core: Core,
        *,
        history: History,
        metrics: Callable[[], Awaitable[Exposition]],
        diagnose: Callable[[RuntimeContext], Awaitable[tuple[models.DoctorCheck, ...]]],
        parts: Parts,
        journal: Path | None = None,
        people_comments: PeopleCommentReader | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self._core = core
        self._history = history
        self._metrics = metrics
        self._diagnose = diagnose
        self._parts = parts
        self._journal = journal
        self._people_comments = people_comments or PeopleCommentReader(lambda _: ())
        self._limits = limits
        self.typed = TypedTexts(core.wall_ms)
        self._tasks = TaskReader(now_ms=core.now_ms)
        self._finding = anyio.Lock()
        self._refresh_posted = False
        self._one_at_a_time = CapacityLimiter(1)
        self._reading_work = anyio.Lock()
        self._work: FIFOCache[str, tuple[int, tuple[FileChange, ...] | None]] = FIFOCache(_MAX_WORK)
        self._previews = anyio.Semaphore(_PREVIEWS_AT_ONCE)
        self._diagnosing = anyio.Lock()
        self._diagnosis: tuple[int, models.Diagnosis] | None = None
        self._masking: tuple[Redaction, Callable[[str], str]] | None = None

    @override
    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        del before, after, commands  # only for whether a refresh was taken from the mailbox
        if isinstance(event, WakeAsked) and event.reason == _REFRESH_REASON:
            self._refresh_posted = False

    @override
    def comment_written(self, issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        del kind, comment_id, fingerprint
        self._tasks.changed(issue_id)

    # --- questions ---------------------------------------------------------------------------------------

    def _snapshot(self) -> answers.Snapshot:
        """A snapshot of the present state.

        Raises:
            UnavailableError: the daemon is starting.
        """
        state, context = self._ready()
        return answers.Snapshot(
            state=state,
            settings=context.settings,
            history=self._history,
            now_ms=self._core.now_ms(),
            now=moment(self._core.wall_ms()),
            mask=self._cached_mask(context.redaction),
            workspaces=context.workspaces,
            journal=self._journal,
            library=None if self._journal is None else context.library,
            key="" if self._journal is None else library_key(self._journal.parent),
            moves_to=self._moves(context),
            creates_in=_creates_in(context),
            journal_health=self._health(),
            pull_requests=self._pull_requests(),
            jobs=self._jobs(),
            targets=self._targets(),
            trace_id=self._trace_id,
            rehearsal=None if self._parts.rehearsals is None else self._parts.rehearsals.latest,
            schedules=() if self._parts.schedules is None else self._parts.schedules.documents(),
        )

    async def _in_time(self, answer: Callable[[answers.Snapshot], _Answer], what: str) -> _Answer:
        """An answer from a thread, one at a time.

        Raises:
            UnavailableError: it took too long, or the journal cannot be read.
        """
        snapshot = self._snapshot()
        try:
            with anyio.fail_after(self._limits.snapshot_s):
                return await to_thread.run_sync(
                    answer, snapshot, abandon_on_cancel=True, limiter=self._one_at_a_time
                )
        except TimeoutError:
            message = f"no {what} within {self._limits.snapshot_s:g} s: the machine is overloaded"
            raise UnavailableError("snapshot_timeout", message) from None
        except UnusableError as error:
            message = snapshot.mask(error.failure.message)
            raise UnavailableError("journal_unavailable", message) from error

    async def state(self, only: Selection = ALL_ISSUES) -> models.State:
        """See `api.interface.Operator`."""
        return await self._in_time(partial(answers.state, only=only), "snapshot")

    async def rehearse(self, identifiers: Sequence[str] = ()) -> models.Rehearsal:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        if self._parts.rehearsals is None:
            raise UnavailableError("snapshot_unavailable", "the daemon is starting")
        try:
            found = await self._parts.rehearsals.rehearse(identifiers)
        except SymphonyError as error:
            raise SymphonyError(context.redaction.failure(error.failure)) from error
        public: models.Rehearsal = masked(found, context.redaction.text)
        return public

    async def runs(self, query: RunQuery) -> models.Runs:
        """See `api.interface.Operator`."""
        return await self._in_time(partial(answers.runs, query=query), "runs")

    async def issue(self, identifier: str) -> models.Issue | None:
        """See `api.interface.Operator`."""
        snapshot = self._snapshot()
        document = await to_thread.run_sync(answers.issue, snapshot, identifier)
        if document is not None and document.state:
            return document
        try:
            found = await self._find(identifier)
        except UnavailableError:
            if document is None:
                raise
            found = None
        if found is None:
            return document
        return await to_thread.run_sync(answers.issue_of_tracker, snapshot, found)

    async def task(self, identifier: str) -> models.Task | None:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        snapshot = self._snapshot()
        identifier, issue_id = await to_thread.run_sync(_named, snapshot, identifier)
        if issue_id is None and (found := await self._find(identifier)) is not None:
            issue_id = found.id
        if issue_id is None:
            return None
        known, answer = answers.find_issue(state, identifier), await self._read(identifier, issue_id)
        document = task_document(
            state,
            issue_id=issue_id,
            identifier=identifier,
            known=known,
            answer=answer,
            unsent=unsent_comments(snapshot.jobs, context, issue_id, answer.comments),
            can_comment=isinstance(context.tracker, CommentCapability),
            now=snapshot.now,
        )
        public: models.Task = masked(document, snapshot.mask)
        return public

    async def _read(self, identifier: str, issue_id: str | None) -> TrackerAnswer:
        """The tracker's answer about an issue, by identifier if the id is unknown."""
        state, context = self._ready()
        return await self._tasks.read(
            context,
            issue_id or identifier,
            by_identifier=issue_id is None,
            paused=circuit_state(state, self._core.now_ms()) is CircuitState.OPEN,
        )

    async def _find(self, identifier: str) -> Issue | None:
        """The tracker's issue with an identifier that the daemon does not know.

        One at a time, because people may make up any number of identifiers.

        Raises:
            UnavailableError: the tracker does not answer.
        """
        async with self._finding:
            answer = await self._read(identifier, None)
        if not answer.answered:
            message = f"the daemon does not know {one_line(identifier)}, and asking the tracker failed"
            raise UnavailableError("tracker_unavailable", f"{message}: {answer.failure}")
        return answer.issue

    async def transcript(
        self, identifier: str, part: TranscriptQuery = NEWEST_ENTRIES
    ) -> models.Transcript | None:
        """See `api.interface.Operator`."""
        return await to_thread.run_sync(answers.transcript, self._snapshot(), identifier, part)

    async def skills(self) -> models.SkillsOverview:
        """See `api.interface.Operator`. Parts are missing if files or the journal cannot be read in time."""
        _, context = self._ready()
        found = await _workflow_skills(context)
        return await to_thread.run_sync(answers.skills, self._snapshot(), found)

    def library(self) -> LibraryInUse:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        if context.library is None:
            raise UnavailableError("library_unavailable", "the daemon has no library")
        return LibraryInUse(store=context.library, mask=self._cached_mask(context.redaction))

    async def system(self) -> models.System:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        diagnosis = await self._present_diagnosis(context)
        ask = partial(
            answers.system,
            self._snapshot(),
            context.workflow.path,
            diagnosis,
            traces_failure=None if self._parts.traces is None else self._parts.traces.failure,
        )
        return await to_thread.run_sync(ask)

    async def _present_diagnosis(self, context: RuntimeContext) -> models.Diagnosis:
        """The findings of the last minute, so that many watched pages do not cause more checks."""
        async with self._diagnosing:
            if self._diagnosis is None or self._core.now_ms() - self._diagnosis[0] >= _DIAGNOSIS_MS:
                checks = await self._diagnose(context)
                document = models.Diagnosis(checked_at=wall_text(self._core.wall_ms()), checks=checks)
                self._diagnosis = self._core.now_ms(), document
            return self._diagnosis[1]

    async def prompt(self, identifier: str, phase: str | None = None) -> models.Prompt | None:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        found = answers.find_claim_or_candidate(state, identifier)
        if found is None:
            return None
        issue, attempt = found
        agent, resume = _next_run(state, issue)
        try:
            with anyio.fail_after(self._limits.preview_s):
                async with self._previews:
                    answer = None if resume is None else resume.answer
                    comments = await self._people_comments.read(context, issue, answer)
                    preview = await preview_prompt(
                        context,
                        issue,
                        attempt,
                        resume,
                        agent=agent,
                        comments=comments.shown,
                        phase=phase_or_requested(issue, state.settings, phase),
                    )
                    return await to_thread.run_sync(
                        public_prompt, preview, issue, state.settings, context.redaction
                    )
        except SymphonyError as error:
            raise SymphonyError(context.redaction.failure(error.failure)) from error
        except TimeoutError:
            message = f"no prompt within {self._limits.preview_s:g} s: the workspace or the disk is slow"
            raise UnavailableError("snapshot_timeout", message) from None

    async def working_diff(self, identifier: str) -> WorkingDiff | None:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        try:
            with anyio.fail_after(self._limits.snapshot_s):
                async with self._reading_work:
                    patch = await context.workspaces.working_patch(identifier, max_bytes=_MAX_WORKING_BYTES)
        except SymphonyError as error:
            message = context.redaction.text(error.failure.message)
            raise UnavailableError("diff_unavailable", message) from error
        except TimeoutError:
            message = f"no diff within {self._limits.snapshot_s:g} s: the workspace or the disk is slow"
            raise UnavailableError("snapshot_timeout", message) from None
        if patch is None:
            return None
        text = patch.content.decode("utf-8", "replace").removesuffix("\n")
        shown = context.redaction.verbatim(text)[:_MAX_WORKING_CHARS]
        return WorkingDiff(text=shown, cut=len(text) > _MAX_WORKING_CHARS)

    async def working_files(self, identifier: str) -> tuple[FileChange, ...] | None:
        """See `api.interface.Operator`. A slow workspace is not read again for a while."""
        _, context = self._ready()
        files: tuple[FileChange, ...] | None = None
        with anyio.move_on_after(self._limits.working_s):
            async with self._reading_work:
                until, found = self._work.get(identifier, (0, None))
                if self._core.now_ms() < until:
                    return found
                self._work[identifier] = self._core.now_ms() + _WORK_TOO_SLOW_MS, None
                with suppress(SymphonyError):
                    patch = await context.workspaces.working_patch(
                        identifier, NUMSTAT, max_bytes=_MAX_PATCH_BYTES
                    )
                    if patch is not None:
                        files = tuple(
                            structs.replace(file, path=context.redaction.text(file.path))
                            for file in parse_numstat(patch.content)
                        )
                self._work[identifier] = self._core.now_ms() + _WORK_FRESH_MS, files
        return files

    async def review(
        self,
        identifier: str,
        reviewer: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> models.Review | None:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        async with self._previews:
            answers_of = self._review_answers()
            return await answers_of.review(context, self._snapshot(), identifier, reviewer, since, until)

    async def patches(
        self, review: models.Review, files: Sequence[int], *, context: int
    ) -> Mapping[int, str]:
        """See `api.interface.Operator`."""
        _, in_force = self._ready()
        async with self._previews:
            return await self._review_answers().patches(in_force, review, files, lines=context)

    def _review_answers(self) -> ReviewAnswers:
        if self._parts.reviews is None:
            raise UnavailableError("snapshot_unavailable", "the daemon is starting")
        return self._parts.reviews

    async def artifact(self, identifier: str, file: str) -> tuple[str, bytes] | None:
        """See `api.interface.Operator`."""
        state, _ = self._ready()
        results = (each for each in state.results.values() if each.issue.identifier == identifier)
        made = next((each.verification for each in results), None)
        name = next((one.name for one in made.artifacts if one.file == file), None) if made else None
        if made is None or name is None or made.run_id is None:
            return None
        place = self._core.state_dir.artifacts / made.run_id
        data = await to_thread.run_sync(read_artifact, place, file)
        return None if data is None else (name, data)

    async def metrics(self) -> Exposition:
        """See `api.interface.Operator`."""
        return await self._metrics()

    def _ready(self) -> tuple[State, RuntimeContext]:
        state, context = self._core.state, self._core.context
        if state is None or context is None:
            raise UnavailableError("snapshot_unavailable", "the daemon is starting")
        return state, context

    def _cached_mask(self, redaction: Redaction) -> Callable[[str], str]:
        """Masks texts, with a cache, because a board has the same few thousand titles in every snapshot."""
        if self._masking is None or self._masking[0] is not redaction:
            cached = lru_cache(maxsize=_MAX_CACHED_TEXTS)(redaction.text)
            self._masking = (
                redaction,
                lambda text: cached(text) if len(text) <= _MAX_CACHED_CHARS else redaction.text(text),
            )
        return self._masking[1]

    # --- actions -----------------------------------------------------------------------------------------

    def refresh(self) -> models.Refresh:
        """See `api.interface.Operator`. Any number of requests puts one event into the mailbox."""
        state = self._core.state
        if state is None or state.drain is not Drain.NO:
            message = "the daemon is not polling yet" if state is None else "the daemon is shutting down"
            raise UnavailableError("orchestrator_unavailable", message)
        coalesced = self._refresh_posted or would_coalesce(state)
        if not self._refresh_posted:
            self._refresh_posted = True
            self._core.post(WakeAsked(reason=_REFRESH_REASON, by_operator=True))
        return models.Refresh(
            queued=True,
            coalesced=coalesced,
            requested_at=wall_text(self._core.wall_ms()),
            operations=("poll", "reconcile"),
        )

    async def outbox(self) -> models.Outbox:
        """See `api.interface.Operator`."""
        return answers.outbox(self._snapshot())

    async def change_outbox(self, verb: str, key: str) -> models.Outbox:
        """See `api.interface.Operator`."""
        snapshot = self._snapshot()
        jobs = self._parts.jobs
        chosen = [job for job in self._jobs() if key in {job.key, job.issue_identifier}]
        if jobs is None or not chosen:
            raise UnknownError("job_not_found", "there is no such job", hint="symphony outbox list")
        for job in chosen:
            (jobs.retry if verb == "retry" else jobs.drop)(job.key)
        await self._core.recorded()
        if verb == "retry":
            names = {job.key for job in chosen}
            chosen = [job for job in self._jobs() if job.key in names]
        return answers.outbox(replace(snapshot, jobs=tuple(chosen)))

    def _health(self) -> JournalStatus | None:
        """Whether records survive a restart; `None` if there is no journal."""
        return None if self._parts.journal is None else self._parts.journal.health

    def _targets(self) -> tuple[models.NotifyTarget, ...]:
        """Where people are notified."""
        return () if self._parts.notifications is None else self._parts.notifications.targets()

    def _trace_id(self, run_id: str) -> str | None:
        return None if self._parts.traces is None else self._parts.traces.trace_id(run_id)

    def _moves(self, context: RuntimeContext) -> tuple[str, ...]:
        """The states to which issues can be moved; none if the tracker cannot move issues."""
        if not isinstance(context.tracker, MovingCapability):
            return ()
        tracker, state = context.settings.tracker, self._core.state
        named = (tracker.on_start, tracker.on_block, context.settings.forge.on_feedback)
        seen = () if state is None else (result.issue.state for result in state.results.values())
        return unique(
            (
                *self._tasks.states(context),
                *context.active_states,
                *filter(None, named),
                *seen,
                *context.terminal_states,
            )
        )

    def _pull_requests(self) -> Mapping[str, PullRequestRecord]:
        """Pull requests by issue id."""
        return {} if self._parts.pull_requests is None else self._parts.pull_requests.shown()

    def _jobs(self) -> tuple[Job, ...]:
        jobs = self._parts.jobs
        return () if jobs is None else jobs.jobs

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> models.Verb | None:
        """See `api.interface.Operator`. An action that stays in the mailbox for long counts as taken."""
        state, context = self._core.state, self._core.context
        if state is None or context is None or state.drain is Drain.EXITED:
            message = "the daemon has ended" if state and context else "the daemon is starting"
            raise UnavailableError("orchestrator_unavailable", message)
        if verb == "comment":
            return await self._comment(context, identifier or "", text or "")
        issue = None if identifier is None else answers.find_issue(state, identifier)
        if identifier is not None and issue is None and verb == "move":
            issue = await self._find(identifier)
        if identifier is not None and issue is None:
            return None
        requested_at = wall_text(self._core.wall_ms())
        if verb == "move" and issue is not None:
            return await self._move(context, issue, text or "", requested_at)
        action, issue_id = OperatorAction(verb), None if issue is None else issue.id
        refused, no_change = refusal(state, action, issue_id, text), already_done(state, action)
        if refused is None and not no_change:
            request = ActionRequest(OperatorAsked(action=action, issue_id=issue_id, text=text))
            self._core.post(request)
            with anyio.move_on_after(self._limits.action_s):
                await request.taken.wait()
                await self._core.recorded()
            refused, no_change = request.refused, request.no_change
        if refused is not None:
            mask = context.redaction.text
            hint = mask(refused.hint or _hint(refused.code, identifier))
            raise ConflictError(refused.code, mask(refused.message), hint=hint)
        return models.Verb(
            verb=verb,
            issue_identifier=identifier,
            changed=not no_change,
            message=_ALREADY[action] if no_change else _effect(action, state, issue_id or ""),
            requested_at=requested_at,
        )

    async def draft(self, identifier: str, reviewer: str, edit: DraftEdit) -> str | None:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        issue = answers.find_issue(state, identifier)
        if issue is None:
            return None
        text = await self._review_answers().edit(context, issue.id, issue.identifier, reviewer, edit)
        await self._core.recorded()
        return text

    async def decide(
        self, identifier: str, reviewer: str, given: models.ReviewGiven, *, with_draft: bool = False
    ) -> models.ReviewOutcome | None:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        issue = answers.find_issue(state, identifier)
        if issue is None:
            return None
        try:
            return await self._review_answers().decide(
                context,
                issue.id,
                issue.identifier,
                reviewer,
                given,
                with_draft=with_draft,
                requested_at=wall_text(self._core.wall_ms()),
            )
        except SymphonyError as error:
            raise SymphonyError(context.redaction.failure(error.failure)) from error

    async def create_issue(self, given: models.NewIssue) -> models.CreatedIssue:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        created = await create_given(context, given=given, now=moment(self._core.wall_ms()))
        self._poll_soon()
        return created

    async def schedules(self) -> models.Schedules:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        schedules = self._parts.schedules
        if schedules is not None:
            await schedules.refresh()
        found = () if schedules is None else schedules.documents()
        public: models.Schedules = masked(models.Schedules(schedules=found), context.redaction.text)
        return public

    async def run_schedule(self, name: str) -> models.CreatedIssue:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        settings = next((each for each in context.settings.schedules if each.name == name), None)
        if settings is None or self._parts.schedules is None:
            known = ", ".join(each.name for each in context.settings.schedules) or "none"
            raise UnknownError("schedule_not_found", "there is no such schedule", hint=f"there are: {known}")
        try:
            issue = await self._parts.schedules.file_now(settings)
        except ValueError as error:
            message = context.redaction.text(str(error))
            raise ConflictError("schedule_failed", message, hint="correct WORKFLOW.md") from error
        await self._core.recorded()
        public: models.CreatedIssue = masked(created_document(issue), context.redaction.text)
        return public

    def _poll_soon(self) -> None:
        with suppress(UnavailableError):  # an ending daemon does not poll
            self.refresh()

    async def feedback(
        self, identifier: str, given: models.Stars, *, may_teach: bool
    ) -> models.Feedback | None:
        """See `api.interface.Operator`."""
        identifier, records = await to_thread.run_sync(answers.past, self._snapshot(), identifier)
        state, context = self._ready()
        library, journal, issue = context.library, self._journal, answers.find_issue(state, identifier)
        if library is None or journal is None or (issue is None and not records):
            return None
        live = (run.run_id for run in state.running.values() if run.issue.identifier == identifier)
        run_ids = dict.fromkeys((*live, *(one.run_id for one in records)))
        rating = Rating(
            workflow=library_key(journal.parent),
            issue_id=records[0].issue_id if issue is None else issue.id,
            issue_identifier=identifier,
            run_ids=tuple(run_ids)[:_MAX_RATED_RUNS],
            stars=given.stars,
            comment=context.redaction.text(given.comment),
            author="operator" if may_teach else "visitor",
            learn=given.learn,
        )
        if not may_teach:
            before = await to_thread.run_sync(library.feedback, rating.workflow, identifier)
            if sum(one.rating.author == "visitor" for one in before) >= _MAX_OF_VISITORS:
                raise ConflictError("too_much_feedback", "visitors have rated this issue often enough")
        off = _learning_off(rating, context.settings.agent.library.learning)
        stored = await to_thread.run_sync(partial(library.rate, rating, off=off))
        if self._parts.learner is not None:
            self._parts.learner.wake()
        _log.info(
            "feedback_given",
            issue_id=rating.issue_id,
            issue_identifier=identifier,
            feedback=stored.id,
            stars=rating.stars,
            author=rating.author,
            learning=stored.learning.value,
        )
        document = feedback_document(stored)
        if context.settings.agent.library.sync == "apply" and document.learning.state != "off":
            learning = structs.replace(document.learning, reason=_APPLIED)
            document = structs.replace(document, learning=learning)
        return document

    async def _comment(self, context: RuntimeContext, identifier: str, text: str) -> models.Verb | None:
        """Queue a person's comment for the tracker; on return it is in the journal."""
        identifier, issue_id = await to_thread.run_sync(_named, self._snapshot(), identifier)
        if issue_id is None and (found := await self._find(identifier)) is not None:
            issue_id = found.id
        if issue_id is None:
            return None
        if not text.strip():
            raise ConflictError("empty_comment", "the comment has no text", hint="write something")
        if self._parts.jobs is None or not isinstance(context.tracker, CommentCapability):
            message = f"a tracker of kind {context.settings.tracker.kind} takes no comments"
            raise ConflictError("no_comments", message, hint="write in the tracker itself")
        queue_persons_comment(self._parts.jobs, context, issue_id, identifier, text.strip())
        await self._core.recorded()
        blocked = None if self._core.state is None else self._core.state.blocked.get(issue_id)
        asks = blocked is not None and blocked.question is not None
        effect = "it answers the agent's question" if asks else "the next session of the issue gets it"
        return models.Verb(
            verb="comment",
            issue_identifier=identifier,
            changed=True,
            message=f"the comment goes to the tracker; {effect}",
            requested_at=wall_text(self._core.wall_ms()),
        )

    async def _move(
        self, context: RuntimeContext, issue: Issue, state: str, requested_at: str
    ) -> models.Verb:
        """Move an issue at the tracker, by the tracker's present state of the issue."""
        if not state.strip():
            states = ", ".join(answers.offered_states(self._moves(context), issue.state))
            raise ConflictError("empty_state", "no state is named", hint=f"name one: {states}")
        before = await move_now(context, issue, state, reason="operator")
        self._tasks.changed(issue.id)
        mask, shown = context.redaction.text, one_line(state)
        if before is None:
            raise ConflictError("gone", mask(f"the tracker does not find {issue.identifier} any more"))
        changed = normalise_state(before) != normalise_state(state)
        message = f"moved from {one_line(before)} to {shown}" if changed else f"it is in {shown} already"
        self._poll_soon()
        return models.Verb(
            verb="move",
            issue_identifier=issue.identifier,
            changed=changed,
            message=mask(message),
            requested_at=requested_at,
            before=mask(before) if changed else None,
        )


def _learning_off(rating: Rating, setting: str) -> str | None:
    """Why nothing is learned from a rating; `None` if learning follows."""
    if rating.author == "visitor":
        return "only people with write access teach"
    if not rating.learn:
        return "the person did not want it"
    if setting == "off":
        return "agent.library.learning is off"
    return None if rating.run_ids else "the issue has no run yet"


def _named(of: answers.Snapshot, identifier: str) -> tuple[str, str | None]:
    """The present identifier of an issue, and its id; `None` if both daemon and journal do not know it."""
    identifier, records = answers.past(of, identifier)
    issue = answers.find_issue(of.state, identifier)
    if issue is not None:
        return identifier, issue.id
    return identifier, records[0].issue_id if records else None


def _creates_in(context: RuntimeContext) -> tuple[str, ...]:
    """The states in which new issues can begin; none if the tracker cannot create issues."""
    if creation_problem(context.tracker, context.settings.tracker.kind) is not None:
        return ()
    return tuple(context.active_states)


async def _workflow_skills(context: RuntimeContext) -> SkillSet | None:
    """The skills beside WORKFLOW.md and those of the user; `None` if reading them takes too long."""
    directory, options = context.workflow.path.parent, skill_options(context.settings.agent.skills)
    return await in_skill_thread(
        lambda: skills.load(directory, options, until=time.monotonic() + LOAD_DEADLINE_S),
        LOAD_DEADLINE_S,
        grace_s=_GRACE_S,
    )


def _next_run(state: State, issue: Issue) -> tuple[AgentChoice, Resume | None]:
    """The agent of the present or next run of an issue, and what that run resumes."""
    if run := state.running.get(issue.id):
        return run.agent, run.resume
    entry = state.retrying.get(issue.id) or state.blocked.get(issue.id)
    return plan_run(state, issue, entry.resume if entry else None)


# --- messages --------------------------------------------------------------------------------------------

_ALREADY: Final = {
    OperatorAction.PAUSE: "the daemon is paused already",
    OperatorAction.RESUME: "the daemon is not paused",
    OperatorAction.DRAIN: "the daemon is shutting down already",
}


def _effect(action: OperatorAction, state: State, issue_id: str) -> str:  # noqa: C901 - one case per action
    """What happens now, in one line; `state` is from before the action."""
    running, blocked = len(state.running), state.blocked.get(issue_id)
    match action:
        case OperatorAction.STOP:
            stopped = issue_id in state.running
            what = "the run is being stopped" if stopped else "it is not tried again by itself"
            text = f"{what}; the issue stays blocked until you retry it"
        case OperatorAction.RETRY:
            text = _next_try(state, blocked)
        case OperatorAction.UNBLOCK:
            text = f"it has a new budget, and {_next_try(state, blocked)}"
        case OperatorAction.APPROVE | OperatorAction.DENY:
            decided = "approved" if action is OperatorAction.APPROVE else "denied"
            text = f"the request is {decided} for this session; {_next_try(state, blocked)}"
        case OperatorAction.ANSWER:
            same = blocked is not None and blocked.resume is not None and blocked.resume.thread is not None
            gets = (
                "the agent gets the answer in the same conversation"
                if same
                else "the next attempt gets the answer"
            )
            text = f"{gets}; {_next_try(state, blocked)}"
        case OperatorAction.VERIFY:
            text = "its work is verified now, or as soon as a slot is free"
        case OperatorAction.PAUSE:
            agents = f"{plural(running, 'running agent')} may go on"
            text = (
                f"nothing new is started until `symphony resume`; {agents if running else 'none is running'}"
            )
        case OperatorAction.RESUME:
            text = "issues are started again"
        case OperatorAction.DRAIN:
            text = "nothing is running, so the daemon ends now"
            if running:
                text = f"nothing new is started; the daemon ends after the present turns ({running} running)"
        case _:
            assert_never(action)
    return text


def _next_try(state: State, blocked: Blocked | None) -> str:
    if blocked is not None and stays_handed_off(blocked, state.settings):
        return f"it stays in {one_line(blocked.issue.state, 100)} until there is feedback"
    if state.paused:
        return "it is tried once the daemon is resumed"
    return "it is tried now, or as soon as a slot is free"


def _hint(code: str, identifier: str | None) -> str:
    """What to do instead of a refused action."""
    name = "" if identifier is None else shlex.quote(one_line(identifier))
    match code:
        case "running":
            return f"`symphony stop {name}` ends its run"
        case "empty_answer":
            return f'say something: symphony answer {name} "…"'
        case _ if identifier is None:
            return "`symphony status` shows the state of the daemon"
        case _:
            return f"`symphony explain {name}` shows why"
