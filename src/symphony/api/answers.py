"""Answers people's questions from a snapshot.

A daemon makes the snapshot from its live state; without a daemon, a command makes it from the files. The
functions block, because they read the journal, the library and the workspaces, so callers run them in a
thread within their own limits. Secrets are masked in every answer. No answer needs the tracker: while the
tracker hangs, people still see which issues run and why others wait.
"""

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs
from pydantic import BaseModel

from symphony import __version__
from symphony.api import models
from symphony.api.documents import (
    PullRequests,
    WaitingReason,
    feedback_document,
    issue_document,
    outbox_counts,
    outbox_document,
    state_document,
    waiting_issues,
)
from symphony.api.history import MAX_EVENTS, History
from symphony.api.interface import NEWEST_ENTRIES, RunQuery, TranscriptQuery, UnknownError
from symphony.api.models import utc_text, wall_text
from symphony.api.rehearsal import with_rehearsal
from symphony.api.runs import runs_document, since_wall_ms
from symphony.api.skill_outcomes import read_skill_outcomes, skill_uses
from symphony.config import Settings
from symphony.domain import ALL_ISSUES, Issue, Selection, SymphonyError, normalise_state, one_line
from symphony.journal.jobs import Job
from symphony.journal.model import JournalStatus, RunRecord, UnusableError
from symphony.journal.reader import SkillReport, open_reader, past_issue_id, past_runs
from symphony.journal.transcripts import TranscriptPage, read_transcript, transcript_path
from symphony.library.model import LEARNING_RUN, LibraryError
from symphony.library.store import Library
from symphony.observability.redaction import masked
from symphony.revision import commit
from symphony.scheduler import (
    Claim,
    OperatorAction,
    State,
    claim_of,
    in_active_state,
    refusal,
    slot_shortage,
)
from symphony.skills import SkillSet
from symphony.workspaces import WorkspaceManager

_SKILL_USE: Final = timedelta(days=30)
_SHOWN_RUNS: Final = 5
_BUSY_S: Final = 1.0
"""How long the state waits for the library, which a process locks briefly when it opens or closes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The data for answers.

    Attributes:
        state: the state of the scheduler.
        settings: the settings in force.
        history: what happened before.
        now_ms: the present time on the scheduler's clock.
        now: the same time on the wall clock.
        mask: masks secrets in a text.
        workspaces: manages branches and kept work.
        journal: the file with past runs, which may be missing; `None` without one.
        library: the library in use; `None` without one.
        key: the library's name for the daemon of the workflow.
        live: whether a daemon made the snapshot; otherwise nothing runs, and nothing starts by itself.
        moves_to: the states to which issues can be moved; none if the tracker cannot move issues.
        creates_in: the states in which new issues can begin; none if the tracker cannot create issues.
        journal_health: whether records survive a restart; `None` if unknown.
        pull_requests: pull requests by issue id.
        jobs: jobs that are not done.
        targets: where people are notified.
        trace_id: returns the trace id of a run.
        rehearsal: the latest rehearsal of ready branches; `None` without one.
        schedules: the schedules of recurring issues.
    """

    state: State
    settings: Settings
    history: History
    now_ms: int
    now: datetime
    mask: Callable[[str], str]
    workspaces: WorkspaceManager
    journal: Path | None
    library: Library | None
    key: str
    live: bool = True
    moves_to: tuple[str, ...] = ()
    creates_in: tuple[str, ...] = ()
    journal_health: JournalStatus | None = None
    pull_requests: PullRequests = field(default_factory=dict)
    jobs: tuple[Job, ...] = ()
    targets: tuple[models.NotifyTarget, ...] = ()
    trace_id: Callable[[str], str | None] = lambda _: None
    rehearsal: models.Rehearsal | None = None
    schedules: tuple[models.Schedule, ...] = ()


# --- the daemon ------------------------------------------------------------------------------------------


def state(of: Snapshot, only: Selection = ALL_ISSUES) -> models.State:
    """The state of the daemon, with rows for the selected issues."""
    document = state_document(
        of.state,
        of.history,
        now_ms=of.now_ms,
        now=of.now,
        journal=of.journal_health,
        workspace=of.settings.workspace,
        pull_requests=of.pull_requests,
        only=only,
        reasons=waiting_issues if of.live else _reasons_without_daemon,
    )
    document = with_stars(document, of)
    document = structs.replace(
        document,
        kept=_kept(of),
        outbox=outbox_counts(of.jobs),
        schedules=of.schedules,
        creates_in=of.creates_in,
        ready=with_rehearsal(document.ready, of.rehearsal),
    )
    public: models.State = masked(document, of.mask)
    if not of.live:
        public = structs.replace(
            public,
            health=structs.replace(public.health, status="stopped", polls=0),
            polling=structs.replace(public.polling, checking=False, next_poll_in_ms=None),
            tracker=structs.replace(public.tracker, asks_next_at=None),
        )
    return structs.replace(public, version=__version__, commit=commit(), notifications=of.targets)


def runs(of: Snapshot, query: RunQuery) -> models.Runs:
    """The runs in the journal that a query selects, with their sums.

    Raises:
        UnusableError: the journal cannot be read.
    """
    records: tuple[RunRecord, ...] = ()
    if of.journal is not None:
        with open_reader(of.journal) as reader:
            records = reader.runs_since(since_wall_ms(query, of.now))
    public: models.Runs = masked(runs_document(records, query, now=of.now), of.mask)
    return public


def outbox(of: Snapshot) -> models.Outbox:
    """The jobs that wait or were given up."""
    public: models.Outbox = masked(outbox_document(of.jobs), of.mask)
    return public


def system(
    of: Snapshot, workflow: Path, diagnosis: models.Diagnosis, traces_failure: str | None
) -> models.System:
    """The program and the settings in force."""
    document = models.System(
        generated_at=utc_text(of.now),
        version=__version__,
        commit=commit(),
        python=platform.python_version(),
        platform=platform.platform(),
        pid=os.getpid(),
        workflow=str(workflow),
        state_directory=None if of.journal is None else str(of.journal.parent),
        settings=tuple(settings_in_force(of.settings)),
        diagnosis=diagnosis,
        traces_failure=traces_failure,
    )
    public: models.System = masked(document, of.mask)
    return public


def skills(of: Snapshot, found: SkillSet | None) -> models.SkillsOverview:
    """The found skills and their use; parts are missing if the journal or the library cannot be read."""
    since, section = of.now - _SKILL_USE, of.settings.agent.skills
    uses: tuple[SkillReport, ...] = ()
    outcomes = models.SkillOutcomes()
    if of.journal is not None and of.library is not None:
        since_ms = round(since.timestamp() * 1000)
        with suppress(UnusableError), open_reader(of.journal) as reader:
            outcomes = read_skill_outcomes(reader, of.library, of.key, since_wall_ms=since_ms)
            uses = reader.skills_report(since_wall_ms=since_ms)
    document = models.SkillsOverview(
        generated_at=utc_text(of.now),
        enabled=section.enabled,
        source=section.source,
        complete=found is not None and found.incomplete is None,
        roots=tuple(f"{root.scope.value}: {root.path}" for root in found.roots) if found else (),
        skills=tuple(models.KnownSkill.of(skill) for skill in (found.skills if found else ())),
        problems=found.problems if found else (),
        since=utc_text(since),
        uses=tuple(skill_uses(use) for use in uses if use.listed or use.seen),
        outcomes=outcomes,
    )
    public: models.SkillsOverview = masked(document, of.mask)
    return public


# --- one issue -------------------------------------------------------------------------------------------


def issue(of: Snapshot, identifier: str) -> models.Issue | None:
    """One issue by its present or a former identifier; `None` if it is unknown."""
    identifier, records = past(of, identifier)
    document = issue_document(
        of.state,
        of.history,
        identifier,
        now_ms=of.now_ms,
        now=of.now,
        journal=of.journal_health,
        runs=records,
        workspace=of.settings.workspace,
        pull_requests=of.pull_requests,
    )
    if document is None:
        return None
    document = structs.replace(
        document,
        runs=tuple(structs.replace(run, trace_id=of.trace_id(run.run_id)) for run in document.runs),
        moves_to=offered_states(of.moves_to, document.state),
    )
    if not of.live:
        document = _without_daemon(document, of)
    found = feedback(of, identifier)
    stars = next((one.stars for one in found if one.author == "operator"), None)
    result = None
    if document.result is not None:
        (rehearsed,) = with_rehearsal((document.result,), of.rehearsal)
        result = structs.replace(rehearsed, stars=stars)
    kept = next((one for one in _kept(of) if one.issue_id == document.issue_id), None)
    verify = _verify(of, document.issue_id) if of.live and result is not None else None
    document = structs.replace(document, feedback=found, result=result, kept=kept, verify=verify)
    if of.journal is not None:
        document = _with_past(document, of.journal)
    public: models.Issue = masked(document, of.mask)
    return public


def _verify(of: Snapshot, issue_id: str) -> models.Choice:
    """Whether `symphony verify` is possible now."""
    refused = refusal(of.state, OperatorAction.VERIFY, issue_id)
    if refused is None:
        return models.Choice(allowed=True)
    return models.Choice(allowed=False, code=refused.code, message=refused.message, hint=refused.hint)


def issue_of_tracker(of: Snapshot, found: Issue) -> models.Issue | None:
    """An issue that the daemon does not work on: the tracker's snapshot, with the journal's facts."""
    state = of.state.changed(candidates={**of.state.candidates, found.id: found})
    document = issue(replace(of, state=state), found.identifier)
    if document is None or document.waiting is None or in_active_state(found, of.state.settings):
        return document
    return structs.replace(document, status="inactive")


def transcript(
    of: Snapshot, identifier: str, part: TranscriptQuery = NEWEST_ENTRIES
) -> models.Transcript | None:
    """A part of the transcript of a run of the issue; `None` if the issue is unknown.

    Raises:
        UnknownError: the issue has no such run.
    """
    identifier, records = past(of, identifier)
    live = next((one for one in of.state.running.values() if one.issue.identifier == identifier), None)
    run_ids = list(dict.fromkeys([*([live.run_id] if live else []), *(one.run_id for one in records)]))
    if not run_ids and find_issue(of.state, identifier) is None:
        return None
    learning: dict[str, str] = {}
    if part.run is not None and part.run.startswith(LEARNING_RUN):
        given = feedback(of, identifier)
        learning = {one.learning.run_id: one.learning.state for one in given if one.learning.run_id}
        run_ids = list(learning)
    run_id = _run_of(run_ids, part.run, identifier)
    is_live = (live is not None and live.run_id == run_id) or learning.get(run_id or "") == "running"
    page = TranscriptPage()
    if run_id is not None and of.journal is not None:
        path = transcript_path(of.journal.parent, run_id)
        page = read_transcript(
            path, after=part.after, before=part.before, limit=part.limit, live=is_live, text=part.text
        )
    problem = of.history.transcript_problem(live.issue.id) if live and is_live else None
    missing = (*page.missing, *(() if problem is None else (problem,)))
    return models.Transcript(  # the texts were masked before they were written
        issue_identifier=identifier,
        run_id=run_id,
        entries=page.entries,
        next_after=page.next_after,
        more=page.more,
        earlier=page.earlier,
        ended=run_id is not None and not is_live,
        complete=not missing,
        missing=missing,
        trace_id=None if run_id is None else of.trace_id(run_id),
    )


def past(of: Snapshot, identifier: str) -> tuple[str, tuple[RunRecord, ...]]:
    """The present identifier of the issue with this present or former one, and its runs, newest first."""
    if of.journal is None:
        return identifier, ()
    found = find_issue(of.state, identifier)
    issue_id = None if found is None else found.id
    if issue_id is None:
        issue_id = past_issue_id(of.journal, identifier)
        found = None if issue_id is None else _find_by_id(of.state, issue_id)
    records = past_runs(of.journal, identifier, issue_id)
    return identifier if found is None else found.identifier, records


def feedback(of: Snapshot, identifier: str) -> tuple[models.Feedback, ...]:
    """The feedback on an issue; none if the library cannot be read."""
    with suppress(LibraryError):
        if of.library is not None and of.library.path.exists():
            return tuple(map(feedback_document, of.library.feedback(of.key, identifier)))
    return ()


def find_claim_or_candidate(state: State, identifier: str) -> tuple[Issue, int | None] | None:
    """The issue with this identifier, and the number of its present or next attempt."""
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


def find_issue(state: State, identifier: str) -> Issue | None:
    """The issue with this identifier, even if no action on it is possible any more."""
    if found := find_claim_or_candidate(state, identifier):
        return found[0]
    issues = (result.issue for result in state.results.values())
    return next((issue for issue in issues if issue.identifier == identifier), None)


def _find_by_id(state: State, issue_id: str) -> Issue | None:
    """The issue with this id, as `find_issue`."""
    for known in (state.running, state.retrying, state.blocked, state.results):
        if (entry := known.get(issue_id)) is not None:
            return entry.issue
    return state.candidates.get(issue_id)


def _run_of(run_ids: Sequence[str], begin: str | None, identifier: str) -> str | None:
    """The latest run, or the only one whose id begins with `begin`; `None` if there is no run at all.

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


def offered_states(states: Sequence[str], present: str) -> tuple[str, ...]:
    """The states to offer for a move of an issue; none if only the journal knows the issue."""
    if not present or not states:
        return ()
    return tuple({normalise_state(state): state for state in reversed((present, *states))}.values())[::-1]


def with_stars(document: models.State, of: Snapshot) -> models.State:
    """The state with the stars of ready issues; without stars if the library cannot be read quickly."""
    stars: Mapping[str, int] = {}
    if document.ready and of.library is not None and of.library.path.exists():
        with suppress(LibraryError):
            stars = Library(of.library.path, busy_s=_BUSY_S).stars_of_issues(of.key)
    ready = (structs.replace(row, stars=stars.get(row.issue_identifier)) for row in document.ready)
    return structs.replace(document, ready=tuple(ready)) if stars else document


def _with_past(document: models.Issue, journal: Path) -> models.Issue:
    """The issue with the skills of its latest run and its events, if only the journal has them.

    Returns the issue unchanged if the journal cannot be read.
    """
    if document.running is not None:
        return document
    skills_of_run, events = document.skills, document.recent_events
    with suppress(UnusableError, msgspec.MsgspecError), open_reader(journal) as reader:
        if not events:
            past = reader.latest_events(
                document.issue_identifier, issue_id=document.issue_id, limit=MAX_EVENTS
            )
            events = tuple(
                models.Event(at=wall_text(one.at_wall_ms), event=one.event, message=one.message)
                for one in (numbered.event for numbered in past)
            )
        if skills_of_run is None and document.runs:
            text = reader.skills_document(document.runs[0].run_id)
            skills_of_run = None if text is None else msgspec.json.decode(text, type=models.Skills)
    return structs.replace(document, skills=skills_of_run, recent_events=events)


def _kept(of: Snapshot) -> tuple[models.KeptWorkspace, ...]:
    """The workspaces with work that is on no branch, of issues without a claim."""
    with suppress(SymphonyError):
        return tuple(
            models.KeptWorkspace(
                issue_id=kept.issue_id,
                issue_identifier=kept.identifier,
                path=str(kept.path),
                reason=kept.reason,
                look=kept.look,
            )
            for kept in of.workspaces.kept()
            if claim_of(of.state, kept.issue_id) is Claim.UNCLAIMED
        )
    return ()


# --- settings --------------------------------------------------------------------------------------------


def settings_in_force(settings: Settings) -> Iterator[models.Setting]:
    """All settings that have a value. The types of secrets mask them."""
    given = dict(_leaves("", settings.model_dump(exclude_unset=True)))
    for key, value in _leaves("", settings.model_dump()):
        yield models.Setting(key=key, value=value, given=key in given)


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(f"{prefix}.{name}" if prefix else str(name), part)
    elif isinstance(value, list | tuple | set | frozenset):
        if value:
            yield prefix, ", ".join(str(part) for part in value)
    elif value is not None:
        yield prefix, str(value)


# --- without a daemon ------------------------------------------------------------------------------------


def _without_daemon(document: models.Issue, of: Snapshot) -> models.Issue:
    found = find_issue(of.state, document.issue_identifier)
    if document.waiting is None or found is None:
        return document
    given = document.waiting.reason
    reason = _reason_without_daemon(found, WaitingReason(given.code, given.message), of.state)
    return structs.replace(
        document, waiting=models.Waiting(reason=models.Reason(code=reason.code, message=reason.message))
    )


def _reasons_without_daemon(state: State) -> Iterator[tuple[Issue, WaitingReason]]:
    for issue, reason in waiting_issues(state):
        yield issue, _reason_without_daemon(issue, reason, state)


def _reason_without_daemon(issue: Issue, reason: WaitingReason, state: State) -> WaitingReason:
    """The reason without the statement that the issue starts; names the slot for which it would wait."""
    if reason.code not in {"starting", "deferred"}:
        return reason
    if issue.id not in state.pending_candidates:
        ahead = Counter(normalise_state(state.candidates[key].state) for key in state.pending_candidates)
        if shortage := slot_shortage(issue, state, reserved=ahead):
            message = f"others would start before it, and then {shortage.message}"
            return WaitingReason(shortage.code.value, message)
    return WaitingReason("starting", "it would start now, and no daemon is running")
