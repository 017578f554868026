"""Answers the API from what the service holds: immutable states, so nothing waits and nothing locks.

No question asks the tracker: while it hangs, people still see what runs and why other issues wait.
"""

import os
import platform
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, assert_never

import anyio
import structlog
from anyio import CapacityLimiter
from msgspec import structs

from symphony import __version__, to_thread
from symphony.api import models
from symphony.api.documents import (
    PullRequests,
    feedback_document,
    issue_document,
    outbox_counts,
    outbox_document,
    state_document,
)
from symphony.api.history import History, utc_now
from symphony.api.interface import (
    MAX_DIFF_CHARS,
    MAX_DIFF_LINES,
    BranchDiff,
    ConflictError,
    Exposition,
    LibraryInUse,
    RunQuery,
    UnavailableError,
    UnknownError,
)
from symphony.api.models import utc_text
from symphony.api.runs import runs_document, since_wall_ms
from symphony.api.skill_outcomes import read_skill_outcomes
from symphony.daemon.comments import PeopleCommentReader
from symphony.daemon.context import RuntimeContext
from symphony.daemon.jobs import JobRunner
from symphony.daemon.journal_writer import past_issue_id, past_runs
from symphony.daemon.moves import move_now
from symphony.daemon.overview import (
    feedback_on,
    kept_workspaces,
    settings_in_force,
    skills_document,
    with_feedback,
    with_kept,
    with_past,
    with_stars,
    workflow_skills,
)
from symphony.daemon.runs.prompts import phase_or_requested, preview_prompt, public_prompt
from symphony.daemon.state_dir import library_key
from symphony.domain import (
    ALL_ISSUES,
    Issue,
    Redaction,
    Selection,
    SymphonyError,
    normalise_state,
    one_line,
    plural,
)
from symphony.journal.jobs import Job
from symphony.journal.model import JournalStatus, RunRecord, UnusableError
from symphony.journal.reader import SkillReport, open_reader
from symphony.journal.transcripts import TranscriptPage, read_transcript, transcript_path
from symphony.library.model import LEARNING_RUN, Rating
from symphony.library.store import Library
from symphony.observability.redaction import masked
from symphony.revision import commit
from symphony.scheduler import (
    AgentChoice,
    Blocked,
    Command,
    Drain,
    Event,
    OperatorAction,
    OperatorAsked,
    Refusal,
    Resume,
    State,
    WakeAsked,
    already_done,
    plan_run,
    refusal,
    stays_handed_off,
    would_coalesce,
)
from symphony.trackers.base import MovingCapability
from symphony.workspaces import Patch

_DIAGNOSIS_MS: Final = 60_000
_SKILL_USE: Final = timedelta(days=30)
ACTION_TIMEOUT_S: Final = 10.0
SNAPSHOT_TIMEOUT_S: Final = 15.0
PREVIEW_TIMEOUT_S: Final = 60.0
_PREVIEWS_AT_ONCE: Final = 2
_MAX_PATCH_BYTES: Final = 1_048_576  # more than is shown: a secret that is cut is masked first
_SHOWN_RUNS: Final = 5
_MAX_RATED_RUNS: Final = 50
_APPLIED: Final = (
    "what it proposes takes effect at once, unless a person must read it first (agent.library.sync: apply)"
)
_MAX_OF_VISITORS: Final = 20  # per issue: what visitors write is kept for ever, too
_REFRESH_REASON: Final = "operator"
_MAX_CACHED_TEXTS: Final = 50_000
_MAX_CACHED_CHARS: Final = 300
_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class ActionRequest:
    """An operator's action in the mailbox.

    The verdict is that of the state in which the scheduler takes the event: of two people who answer the same
    question, one learns that it is too late.

    Attributes:
        event: for the scheduler.
        taken: set when the verdict is known.
        refused: why the action does not fit.
        no_change: the daemon already was as the action asks for.
    """

    event: OperatorAsked
    taken: anyio.Event = field(default_factory=anyio.Event)
    refused: Refusal | None = None
    no_change: bool = False

    def resolve(self, before: State) -> None:
        """Judge the action by the state in which the scheduler took its event."""
        self.refused = refusal(before, self.event.action, self.event.issue_id, self.event.text)
        self.no_change = already_done(before, self.event.action)
        self.taken.set()


class ServiceOperator:
    """Implements `api.interface.Operator` for one service; an observer of it.

    Documents are made in a thread, one at a time, and only few prompts are previewed together: neither a
    large board nor many clients slow the loop.

    Args:
        state: the present state of the scheduler; `None` before it starts.
        history: what happened.
        context: the context in force; `None` before the daemon serves.
        post: puts an item into the mailbox.
        now_ms: the monotonic clock.
        now: the wall clock.
        metrics: the metrics for a scrape.
        diagnose: checks this machine, in bounded time; raises nothing.
        notify_targets: where people are notified.
        jobs: what is owed to the outside; `None` before the daemon serves.
        journal_health: whether records survive a restart; `None` if there is no journal.
        journal: the file with past runs, which may be missing.
        on_feedback: called when feedback waits for a learning run.
        pull_requests: those of issues, by the issue's id.
        timeout_s: limit of a snapshot.
        preview_timeout_s: limit of a preview of a prompt.
        action_timeout_s: how long to wait for the scheduler to take an action.
    """

    def __init__(
        self,
        *,
        state: Callable[[], State | None],
        history: History,
        context: Callable[[], RuntimeContext | None],
        post: Callable[[Event | ActionRequest], None],
        now_ms: Callable[[], int],
        metrics: Callable[[], Awaitable[Exposition]],
        diagnose: Callable[[RuntimeContext], Awaitable[tuple[models.DoctorCheck, ...]]],
        now: Callable[[], datetime] = utc_now,
        notify_targets: Callable[[], tuple[models.NotifyTarget, ...]] = tuple,
        jobs: Callable[[], JobRunner | None] = lambda: None,
        trace_id: Callable[[str], str | None] = lambda _: None,
        traces_failure: Callable[[], str | None] = lambda: None,
        journal_health: Callable[[], JournalStatus | None] = lambda: None,
        journal: Path | None = None,
        people_comments: PeopleCommentReader | None = None,
        on_feedback: Callable[[], None] = lambda: None,
        pull_requests: Callable[[], PullRequests] = dict,
        timeout_s: float = SNAPSHOT_TIMEOUT_S,
        preview_timeout_s: float = PREVIEW_TIMEOUT_S,
        action_timeout_s: float = ACTION_TIMEOUT_S,
    ) -> None:
        self._state = state
        self._history = history
        self._context = context
        self._post = post
        self._now_ms = now_ms
        self._metrics = metrics
        self._diagnose = diagnose
        self._now = now
        self._notify_targets = notify_targets
        self._jobs = jobs
        self._trace_id = trace_id
        self._traces_failure = traces_failure
        self._journal_health = journal_health
        self._journal = journal
        self._people_comments = people_comments or PeopleCommentReader(lambda _: ())
        self._on_feedback = on_feedback
        self._pull_requests = pull_requests
        self._timeout_s = timeout_s
        self._preview_timeout_s = preview_timeout_s
        self._action_timeout_s = action_timeout_s
        self._refresh_posted = False
        self._one_at_a_time = CapacityLimiter(1)
        self._previews = anyio.Semaphore(_PREVIEWS_AT_ONCE)
        self._diagnosing = anyio.Lock()
        self._diagnosis: tuple[int, models.Diagnosis] | None = None
        self._masking: tuple[Redaction, Callable[[str], str]] | None = None

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        """See whether a refresh was taken from the mailbox."""
        del before, after, commands
        if isinstance(event, WakeAsked) and event.reason == _REFRESH_REASON:
            self._refresh_posted = False

    # --- questions ---------------------------------------------------------------------------------------

    async def state(self, only: Selection = ALL_ISSUES) -> models.State:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        now_ms, now, journal = self._now_ms(), self._now(), self._journal_health()
        mask, targets = self._cached_mask(context.redaction), self._notify_targets()
        owed = self._owed()
        pull_requests = self._pull_requests()
        library, state_dir = context.library, self._journal and self._journal.parent

        def build() -> models.State:
            document = state_document(
                state,
                self._history,
                now_ms=now_ms,
                now=now,
                journal=journal,
                workspace=context.settings.workspace,
                pull_requests=pull_requests,
                only=only,
            )
            if library is not None and state_dir is not None:
                document = with_stars(document, library, state_dir)
            document = structs.replace(
                document, kept=kept_workspaces(context, state), outbox=outbox_counts(owed)
            )
            public: models.State = masked(document, mask)
            return structs.replace(public, version=__version__, commit=commit(), notifications=targets)

        try:
            with anyio.fail_after(self._timeout_s):
                return await to_thread.run_sync(build, abandon_on_cancel=True, limiter=self._one_at_a_time)
        except TimeoutError:
            message = f"no snapshot within {self._timeout_s:g} s: the machine is overloaded"
            raise UnavailableError("snapshot_timeout", message) from None

    async def issue(self, identifier: str) -> models.Issue | None:
        """See `api.interface.Operator`."""
        journal = self._journal
        identifier, runs = await self._past(identifier)
        state, context = self._ready()
        document = issue_document(
            state,
            self._history,
            identifier,
            now_ms=self._now_ms(),
            now=self._now(),
            journal=self._journal_health(),
            runs=runs,
            workspace=context.settings.workspace,
            pull_requests=self._pull_requests(),
        )
        if document is not None:
            traced = (structs.replace(run, trace_id=self._trace_id(run.run_id)) for run in document.runs)
            document = structs.replace(
                document,
                runs=tuple(traced),
                moves_to=_moves_to(context, document.state),
            )
            state_dir = journal and journal.parent
            found = await to_thread.run_sync(feedback_on, context.library, state_dir, identifier)
            kept = await to_thread.run_sync(kept_workspaces, context, state)
            document = with_kept(with_feedback(document, found), kept)
            if journal is not None:
                document = await to_thread.run_sync(with_past, document, journal)
        public: models.Issue | None = masked(document, context.redaction.text)
        return public

    async def _past(self, identifier: str) -> tuple[str, tuple[RunRecord, ...]]:
        """The present identifier of the issue that has or had this one, and its runs, the newest first."""
        state, _ = self._ready()
        if self._journal is None:
            return identifier, ()
        issue = _find(state, identifier)
        issue_id = None if issue is None else issue.id
        if issue_id is None:
            issue_id = await to_thread.run_sync(past_issue_id, self._journal, identifier)
            issue = None if issue_id is None else _find_by_id(state, issue_id)
        records = await to_thread.run_sync(past_runs, self._journal, identifier, issue_id)
        return identifier if issue is None else issue.identifier, records

    async def runs(self, query: RunQuery) -> models.Runs:
        """See `api.interface.Operator`."""
        journal, now, (_, context) = self._journal, self._now(), self._ready()
        mask = self._cached_mask(context.redaction)

        def build() -> models.Runs:
            records: tuple[RunRecord, ...] = ()
            if journal is not None:
                with open_reader(journal) as reader:
                    records = reader.runs_since(since_wall_ms(query, now))
            public: models.Runs = masked(runs_document(records, query, now=now), mask)
            return public

        try:
            with anyio.fail_after(self._timeout_s):
                return await to_thread.run_sync(build, abandon_on_cancel=True, limiter=self._one_at_a_time)
        except TimeoutError:
            message = f"no runs within {self._timeout_s:g} s: the machine is overloaded"
            raise UnavailableError("snapshot_timeout", message) from None
        except UnusableError as error:
            message = context.redaction.text(error.failure.message)
            raise UnavailableError("journal_unavailable", message) from error

    async def skills(self) -> models.SkillsOverview:
        """See `api.interface.Operator`. Where files or the journal cannot be read in time, less is shown."""
        journal, now, (_, context) = self._journal, self._now(), self._ready()
        since = now - _SKILL_USE
        uses: tuple[SkillReport, ...] = ()
        outcomes = models.SkillOutcomes()
        found = await workflow_skills(context)
        if journal is not None and context.library is not None:
            with suppress(UnusableError):
                uses, outcomes = await to_thread.run_sync(_skill_uses, journal, context.library, since)
        document = skills_document(context, found, uses, outcomes, since=since, now=now)
        public: models.SkillsOverview = masked(document, context.redaction.text)
        return public

    def library(self) -> LibraryInUse:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        if context.library is None:
            raise UnavailableError("library_unavailable", "the daemon has no library")
        return LibraryInUse(store=context.library, mask=self._cached_mask(context.redaction))

    async def system(self) -> models.System:
        """See `api.interface.Operator`."""
        now, (_, context) = self._now(), self._ready()
        diagnosis = await self._present_diagnosis(context)

        def build() -> models.System:
            document = models.System(
                generated_at=utc_text(now),
                version=__version__,
                commit=commit(),
                python=platform.python_version(),
                platform=platform.platform(),
                pid=os.getpid(),
                workflow=str(context.workflow.path),
                state_directory=None if self._journal is None else str(self._journal.parent),
                settings=tuple(settings_in_force(context.settings)),
                diagnosis=diagnosis,
                traces_failure=self._traces_failure(),
            )
            public: models.System = masked(document, context.redaction.text)
            return public

        return await to_thread.run_sync(build)

    async def _present_diagnosis(self, context: RuntimeContext) -> models.Diagnosis:
        """The findings of the last minute: a page that many people watch does not check more often."""
        async with self._diagnosing:
            if self._diagnosis is None or self._now_ms() - self._diagnosis[0] >= _DIAGNOSIS_MS:
                checks = await self._diagnose(context)
                document = models.Diagnosis(checked_at=utc_text(self._now()), checks=checks)
                self._diagnosis = self._now_ms(), document
            return self._diagnosis[1]

    async def transcript(
        self, identifier: str, run: str | None = None, after: int | None = None, limit: int = 200
    ) -> models.Transcript | None:
        """See `api.interface.Operator`."""
        journal = self._journal
        identifier, records = await self._past(identifier)
        state, context = self._ready()
        live = next((one for one in state.running.values() if one.issue.identifier == identifier), None)
        run_ids = list(dict.fromkeys([*([live.run_id] if live else []), *(one.run_id for one in records)]))
        if not run_ids and _find(state, identifier) is None:
            return None
        learning: dict[str, str] = {}
        if run is not None and run.startswith(LEARNING_RUN):
            state_dir = journal and journal.parent
            given = await to_thread.run_sync(feedback_on, context.library, state_dir, identifier)
            learning = {one.learning.run_id: one.learning.state for one in given if one.learning.run_id}
            run_ids = list(learning)
        run_id = _run_of(run_ids, run, identifier)
        is_live = (live is not None and live.run_id == run_id) or learning.get(run_id or "") == "running"
        page = TranscriptPage()
        if run_id is not None and journal is not None:
            path = transcript_path(journal.parent, run_id)
            page = await to_thread.run_sync(
                partial(read_transcript, path, after=after, limit=limit, live=is_live)
            )
        problem = self._history.transcript_problem(live.issue.id) if live and is_live else None
        missing = (*page.missing, *(() if problem is None else (problem,)))
        return models.Transcript(  # its texts were masked when they were written
            issue_identifier=identifier,
            run_id=run_id,
            entries=page.entries,
            next_after=page.next_after,
            more=page.more,
            ended=run_id is not None and not is_live,
            complete=not missing,
            missing=missing,
            trace_id=None if run_id is None else self._trace_id(run_id),
        )

    async def prompt(self, identifier: str, phase: str | None = None) -> models.Prompt | None:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        found = _find_claim_or_candidate(state, identifier)
        if found is None:
            return None
        issue, attempt = found
        agent, resume = _next_run(state, issue)
        try:
            with anyio.fail_after(self._preview_timeout_s):
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
                    return await to_thread.run_sync(public_prompt, preview, context.redaction)
        except SymphonyError as error:
            raise SymphonyError(context.redaction.failure(error.failure)) from error
        except TimeoutError:
            message = f"no prompt within {self._preview_timeout_s:g} s: the workspace or the disk is slow"
            raise UnavailableError("snapshot_timeout", message) from None

    async def diff(self, identifier: str) -> BranchDiff | None:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        try:
            with anyio.fail_after(self._timeout_s):
                async with self._previews:
                    patch = await context.workspaces.patch(identifier, max_bytes=_MAX_PATCH_BYTES)
                    if patch is None:
                        return None
                    return await to_thread.run_sync(_branch_diff, patch, context.redaction)
        except SymphonyError as error:
            message = context.redaction.text(error.failure.message)
            raise UnavailableError("diff_unavailable", message) from error
        except TimeoutError:
            message = f"no diff within {self._timeout_s:g} s: the branch is large or the disk is slow"
            raise UnavailableError("snapshot_timeout", message) from None

    async def metrics(self) -> Exposition:
        """See `api.interface.Operator`."""
        return await self._metrics()

    def _ready(self) -> tuple[State, RuntimeContext]:
        state, context = self._state(), self._context()
        if state is None or context is None:
            raise UnavailableError("snapshot_unavailable", "the daemon is starting")
        return state, context

    def _cached_mask(self, redaction: Redaction) -> Callable[[str], str]:
        """Masks texts, with a cache: a board has the same few thousand titles in every snapshot."""
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
        state = self._state()
        if state is None or state.drain is not Drain.NO:
            message = "the daemon is not polling yet" if state is None else "the daemon is shutting down"
            raise UnavailableError("orchestrator_unavailable", message)
        coalesced = self._refresh_posted or would_coalesce(state)
        if not self._refresh_posted:
            self._refresh_posted = True
            self._post(WakeAsked(reason=_REFRESH_REASON, by_operator=True))
        return models.Refresh(
            queued=True,
            coalesced=coalesced,
            requested_at=utc_text(self._now()),
            operations=("poll", "reconcile"),
        )

    async def outbox(self) -> models.Outbox:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        public: models.Outbox = masked(outbox_document(self._owed()), context.redaction.text)
        return public

    async def change_outbox(self, verb: str, key: str) -> models.Outbox:
        """See `api.interface.Operator`."""
        _, context = self._ready()
        jobs, chosen = self._jobs(), [job for job in self._owed() if key in {job.key, job.issue_identifier}]
        if jobs is None or not chosen:
            raise UnknownError("job_not_found", "nothing like that is owed", hint="symphony outbox list")
        for job in chosen:
            (jobs.retry if verb == "retry" else jobs.drop)(job.key)
        if verb == "retry":
            names = {job.key for job in chosen}
            chosen = [job for job in self._owed() if job.key in names]
        public: models.Outbox = masked(outbox_document(chosen), context.redaction.text)
        return public

    def _owed(self) -> tuple[Job, ...]:
        jobs = self._jobs()
        return () if jobs is None else jobs.jobs

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> models.Verb | None:
        """See `api.interface.Operator`. An action that is in the mailbox for long counts as taken."""
        state, context = self._state(), self._context()
        if state is None or context is None or state.drain is Drain.EXITED:
            message = "the daemon has ended" if state and context else "the daemon is starting"
            raise UnavailableError("orchestrator_unavailable", message)
        issue = None if identifier is None else _find(state, identifier)
        if identifier is not None and issue is None:
            return None
        requested_at = utc_text(self._now())
        if verb == "move" and issue is not None:
            return await self._move(context, issue, text or "", requested_at)
        action, issue_id = OperatorAction(verb), None if issue is None else issue.id
        refused, no_change = refusal(state, action, issue_id, text), already_done(state, action)
        if refused is None and not no_change:
            request = ActionRequest(OperatorAsked(action=action, issue_id=issue_id, text=text))
            self._post(request)
            with anyio.move_on_after(self._action_timeout_s):
                await request.taken.wait()
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

    async def feedback(
        self, identifier: str, given: models.Stars, *, may_teach: bool
    ) -> models.Feedback | None:
        """See `api.interface.Operator`."""
        identifier, records = await self._past(identifier)
        state, context = self._ready()
        library, journal, issue = context.library, self._journal, _find(state, identifier)
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
        self._on_feedback()
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

    async def _move(
        self, context: RuntimeContext, issue: Issue, state: str, requested_at: str
    ) -> models.Verb:
        """Move an issue in the tracker, which knows best in which state the issue is."""
        if not state.strip():
            states = ", ".join(_moves_to(context, issue.state))
            raise ConflictError("empty_state", "no state is named", hint=f"name one: {states}")
        before = await move_now(context, issue, state, reason="operator")
        mask, shown = context.redaction.text, one_line(state)
        if before is None:
            raise ConflictError("gone", mask(f"the tracker does not find {issue.identifier} any more"))
        changed = normalise_state(before) != normalise_state(state)
        message = f"moved from {one_line(before)} to {shown}" if changed else f"it is in {shown} already"
        with suppress(UnavailableError):  # a daemon that ends does not poll
            self.refresh()
        return models.Verb(
            verb="move",
            issue_identifier=issue.identifier,
            changed=changed,
            message=mask(message),
            requested_at=requested_at,
        )


def _learning_off(rating: Rating, setting: str) -> str | None:
    """Why nothing is learned from a rating; `None` if it is learned from."""
    if rating.author == "visitor":
        return "only people with write access teach"
    if not rating.learn:
        return "the person did not want it"
    if setting == "off":
        return "agent.library.learning is off"
    return None if rating.run_ids else "the issue has no run yet"


def _moves_to(context: RuntimeContext, present: str) -> tuple[str, ...]:
    """The states to offer for a move of an issue in that state; none if only the journal knows the issue."""
    if not present or not isinstance(context.tracker, MovingCapability):
        return ()
    states = (present, *context.active_states, *context.terminal_states)
    return tuple({normalise_state(state): state for state in reversed(states)}.values())[::-1]


def _run_of(run_ids: Sequence[str], begin: str | None, identifier: str) -> str | None:
    """The latest run, or the only one whose id begins so; `None` if there is no run at all.

    Raises:
        UnknownError: there is no such run, or there are several.
    """
    if begin is None:
        return next(iter(run_ids), None)
    found = [run for run in run_ids if run == begin] or [run for run in run_ids if run.startswith(begin)]
    if len(found) == 1:
        return found[0]
    what = "several runs" if found else "no run"
    shown = ", ".join((found or run_ids)[:_SHOWN_RUNS]) or "none"
    message = f"{one_line(identifier)} has {what} {one_line(begin, 100)!r}"
    raise UnknownError("run_not_found", message, hint=f"there are {shown}")


def _branch_diff(patch: Patch, redaction: Redaction) -> BranchDiff:
    text = redaction.verbatim(patch.content.decode("utf-8", "replace")).removesuffix("\n")
    shown = "\n".join(text[:MAX_DIFF_CHARS].split("\n")[:MAX_DIFF_LINES])
    cut = shown != text or len(patch.content) == _MAX_PATCH_BYTES
    return BranchDiff(branch=patch.branch, text=shown, cut=cut)


def _find_claim_or_candidate(state: State, identifier: str) -> tuple[Issue, int | None] | None:
    """The issue of that identifier, and the number of its present or next attempt."""
    for run in state.running.values():
        if run.issue.identifier == identifier:
            return run.issue, run.attempt
    for retry in state.retrying.values():
        if retry.issue.identifier == identifier:
            return retry.issue, retry.attempt
    for issue in (*(one.issue for one in state.blocked.values()), *state.candidates.values()):
        if issue.identifier == identifier:
            return issue, None
    return None


def _find(state: State, identifier: str) -> Issue | None:
    """The issue of that identifier, also if nothing can be done about it any more."""
    if found := _find_claim_or_candidate(state, identifier):
        return found[0]
    issues = (result.issue for result in state.results.values())
    return next((issue for issue in issues if issue.identifier == identifier), None)


def _find_by_id(state: State, issue_id: str) -> Issue | None:
    """The issue of that id, as `_find`."""
    for known in (state.running, state.retrying, state.blocked, state.results):
        if (entry := known.get(issue_id)) is not None:
            return entry.issue
    return state.candidates.get(issue_id)


def _next_run(state: State, issue: Issue) -> tuple[AgentChoice, Resume | None]:
    """The agent of the present or next run of an issue, and what that run resumes."""
    if run := state.running.get(issue.id):
        return run.agent, run.resume
    entry = state.retrying.get(issue.id) or state.blocked.get(issue.id)
    return plan_run(state, issue, entry.resume if entry else None)


def _skill_uses(
    journal: Path, library: Library, since: datetime
) -> tuple[tuple[SkillReport, ...], models.SkillOutcomes]:
    since_ms = round(since.timestamp() * 1000)
    with open_reader(journal) as reader:
        outcomes = read_skill_outcomes(reader, library, library_key(journal.parent), since_wall_ms=since_ms)
        return reader.skills_report(since_wall_ms=since_ms), outcomes


# --- messages --------------------------------------------------------------------------------------------

_ALREADY: Final = {
    OperatorAction.PAUSE: "the daemon is paused already",
    OperatorAction.RESUME: "the daemon is not paused",
    OperatorAction.DRAIN: "the daemon is shutting down already",
}


def _effect(action: OperatorAction, state: State, issue_id: str) -> str:
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
            text = f"its budget counts anew, and {_next_try(state, blocked)}"
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
