"""The daemon's side of the journal: records each step, and reads the records of the previous daemon.

Nothing here waits while the daemon decides, and no error here stops the daemon. If the file cannot be used,
the health of the journal says so, the log gets a warning, and the daemon goes on without a journal.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import msgspec
import structlog
from msgspec import Struct
from typing_extensions import override

from symphony import scheduler
from symphony.api.history import PULL_REQUEST_JUDGED, TRANSCRIPT_INCOMPLETE
from symphony.api.models import Instructions, Skills
from symphony.api.observer import Observer
from symphony.daemon.clock import utc_day, wall_ms
from symphony.daemon.state_dir import JOURNAL_FILE
from symphony.domain import DeliveredBranch, FaultHook, FaultPoint, Issue, no_fault
from symphony.journal import model
from symphony.journal.jobs import Job, JobDone
from symphony.journal.reader import open_reader
from symphony.journal.recorder import DaemonStart, StepRecorder, milestone_record, recovered_event
from symphony.journal.store import Journal, open_journal
from symphony.processes.base import Identity

_FLUSH_TIMEOUT_S: Final = 5.0
_ANSWER: Final = "answer "  # and the id of the issue: the name of a setting with a `StoredAnswer`
_log = structlog.get_logger(__name__)


def recovery_event(
    previous: model.RecoveredState,
    settings: scheduler.SchedulerSettings,
    *,
    now_ms: int,
    wall_ms: int,
    workspaces: tuple[scheduler.WorkspaceRef, ...],
    delivered: Mapping[str, DeliveredBranch] = MappingProxyType({}),
) -> scheduler.Recovered:
    """The first event of a scheduler that starts now; `now_ms` and `wall_ms` are the same moment.

    `delivered` has the deliveries of interrupted runs at this start, by issue id.
    """
    start = DaemonStart(
        now_ms=now_ms,
        wall_ms=wall_ms,
        today=utc_day(wall_ms),
        max_wait_ms=max(settings.max_retry_backoff_ms, scheduler.MAX_THROTTLE_MS),
    )
    return recovered_event(previous, start, workspaces=workspaces, delivered=delivered)


def listed_skills(journal: Path, run_id: str) -> tuple[str, ...]:
    """The names of the skills that a run listed; empty if the journal cannot be read. Blocking."""
    try:
        with open_reader(journal) as reader:
            return reader.listed_skills(run_id)
    except model.UnusableError:
        return ()


def told_comments(journal: Path, issue_id: str) -> tuple[model.ToldComment, ...]:
    """The comments of people that sessions of an issue got. Blocking."""
    try:
        with open_reader(journal) as reader:
            return reader.told_comments(issue_id)
    except model.UnusableError:
        return ()


@asynccontextmanager
async def open_journal_writer(
    state_path: Path,
    *,
    owner: Identity | None,
    mask: Callable[[str], str],
    now_ms: Callable[[], int],
    wall_ms: Callable[[], int] = wall_ms,
    fault: FaultHook = no_fault,
) -> AsyncIterator["JournalWriter"]:
    """Open the journal of a locked state directory; it is written completely when the context ends.

    The caller runs `JournalWriter.run` in a task meanwhile. Problems of the journal are logged.

    Args:
        state_path: the state directory.
        owner: this daemon's process; `None` if the host cannot identify it.
        mask: masks secrets in the records of issues.
        now_ms: the monotonic clock.
        wall_ms: the wall clock.
        fault: called when records are put and when they are written.
    """

    def on_written(records: Iterable[model.Record]) -> None:
        for _, written in _fault_points(records):
            fault(written)

    journal = await open_journal(
        state_path / JOURNAL_FILE, now_wall_ms=wall_ms, on_health=_log_health, on_written=on_written
    )
    if journal.health.state is model.HealthState.MEMORY:
        _log_health(journal.health)
    _log_notices(journal)
    try:
        yield JournalWriter(
            journal,
            owner=owner or Identity(boot_id="", pid=os.getpid(), started=0.0),
            mask=mask,
            now_ms=now_ms,
            wall_ms=wall_ms,
            fault=fault,
        )
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()
        _log_notices(journal)


class StoredAnswer(Struct, frozen=True, kw_only=True):
    """An answer that was given while no daemon ran; `question` is the id of the run that asked."""

    question: str
    asked: scheduler.OperatorAsked


class JournalWriter(Observer):
    """Writes the journal of one daemon; an observer of the service. Made by `open_journal_writer`.

    Attributes:
        previous: what the previous daemon left.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        owner: Identity,
        mask: Callable[[str], str],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        fault: FaultHook,
    ) -> None:
        self._journal = journal
        self.previous = journal.recovered_state
        self._recorder = StepRecorder(owner, left=self.previous.live_runs, mask=mask)
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._fault = fault
        self._stored_answers: set[str] = set()
        self._pending: Callable[[], Iterable[model.Record]] = tuple
        journal.snapshot_from(self._present)

    # --- what the previous daemon left -------------------------------------------------------------------

    @property
    def live_agents(self) -> tuple[Identity, ...]:
        """The agents of the runs that have no recorded end."""
        return tuple(run.agent for run in self.previous.live_runs if run.agent is not None)

    @property
    def interrupted_issues(self) -> frozenset[str]:
        """The issues of the runs that have no recorded end."""
        return frozenset(run.issue_id for run in self.previous.live_runs)

    def recovery_event(
        self,
        settings: scheduler.SchedulerSettings,
        workspaces: tuple[scheduler.WorkspaceRef, ...],
        delivered: Mapping[str, DeliveredBranch] = MappingProxyType({}),
    ) -> scheduler.Recovered:
        """The first event of the scheduler."""
        return recovery_event(
            self.previous,
            settings,
            now_ms=self._now_ms(),
            wall_ms=self._wall_ms(),
            workspaces=workspaces,
            delivered=delivered,
        )

    def stored_answers(self) -> tuple[scheduler.OperatorAsked, ...]:
        """The answers to open questions that were given while no daemon ran."""
        found = []
        for claim in (record.claim for record in self.previous.claims):
            try:
                stored = model.decode(self.previous.settings[_ANSWER + claim.issue.id], StoredAnswer)
            except (KeyError, model.CodecError):
                continue
            if claim.kind is scheduler.ClaimKind.BLOCKED and stored.question == claim.run_id:
                found.append(stored.asked)
        self._stored_answers.update(asked.issue_id or "" for asked in found)
        return tuple(found)

    def store_answer(self, answer: StoredAnswer) -> None:
        """Store an answer for the next daemon."""
        self.setting_changed(f"{_ANSWER}{answer.asked.issue_id}", model.encode(answer))

    # --- recording ---------------------------------------------------------------------------------------

    @override
    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
        /,
    ) -> None:
        """Record one step."""
        now_ms, wall_ms = self._now_ms(), self._wall_ms()
        records = self._recorder.step(before, event, after, commands, now_ms=now_ms, wall_ms=wall_ms)
        if isinstance(event, scheduler.OperatorAsked) and event.issue_id in self._stored_answers:
            self._stored_answers.discard(event.issue_id)
            records = (*records, model.SettingRecord(name=_ANSWER + event.issue_id, value=None))
        self.put(*records)

    @override
    def agent_spawned(self, run_id: str, agent: Identity) -> None:
        """The process of a run's agent exists."""
        self.put(*self._recorder.agent_started(run_id, agent))

    @override
    async def conversation_opened(self, run_id: str, thread_id: str) -> None:
        """The agent of a run opened a conversation; return once that is written, or cannot be."""
        self.put(*self._recorder.thread_opened(run_id, thread_id))
        await self.flush()

    @override
    def comment_written(self, issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        """A comment of the daemon is at the tracker."""
        self.put(
            model.CommentRecord(
                issue_id=issue_id,
                kind=kind,
                comment_id=comment_id,
                fingerprint=fingerprint,
                at_wall_ms=self._wall_ms(),
            )
        )

    @override
    def comments_told(self, issue_id: str, told: tuple[model.ToldComment, ...]) -> None:
        """A session of an issue got comments of people; `comments` are all that its sessions have got."""
        self.put(model.ToldComments(issue_id=issue_id, comments=told, at_wall_ms=self._wall_ms()))

    def skill_comment_changed(self, comment: model.SkillsComment) -> None:
        """The comment about skills on an issue has a new text, or is posted."""
        self.put(replace(comment, at_wall_ms=self._wall_ms()))

    def event(self, issue: Issue, event: str, message: str, run_id: str | None = None) -> None:
        """Record an event of an issue that is not a step of the scheduler."""
        self.put(
            model.EventRecord(
                issue_id=issue.id,
                issue_identifier=issue.identifier,
                run_id=run_id,
                at_wall_ms=self._wall_ms(),
                event=event,
                message=message,
            )
        )

    def setting_changed(self, name: str, value: str | None) -> None:
        """Store a value for the next daemon; `None` deletes it."""
        self.put(model.SettingRecord(name=name, value=value))

    @override
    def skills_loaded(self, issue_id: str, run_id: str, skills: Skills) -> None:
        """A run lists these skills, or has used one of them."""
        shown = (*skills.listed, *skills.native)
        uses = (
            model.SkillUse(name=one.name, path=one.path, sha256=one.sha256, listed=True, seen=one.seen)
            for one in shown
        )
        document = msgspec.json.encode(skills).decode()
        self.put(
            model.SkillsRecord(run_id=run_id, commit=skills.commit, skills=tuple(uses), document=document)
        )
        versions = {one.name: one.library_version for one in shown if one.library_version is not None}
        if versions:
            self.put(*self._recorder.library_used(run_id, versions))

    @override
    def transcript_incomplete(self, issue: Issue, run_id: str, reason: str) -> None:
        self.event(issue, TRANSCRIPT_INCOMPLETE, reason, run_id)

    @override
    def pull_request_judged(self, record: model.PullRequestRecord, message: str) -> None:
        self.event(record.issue, PULL_REQUEST_JUDGED, message)

    def work_merged(self, issue: Issue) -> None:
        """The work that was delivered on an issue is merged."""
        self.put(milestone_record(issue, model.Milestone.MERGED))

    @override
    def instructions_composed(self, issue_id: str, run_id: str, instructions: Instructions) -> None:
        """A run gets these instructions in one of its phases."""
        modules = tuple(
            model.InstructionUse(name=one.name, sha256=one.sha256) for one in instructions.modules
        )
        self.put(model.InstructionsRecord(run_id=run_id, phase=instructions.phase or "", modules=modules))

    def put(self, *records: model.Record) -> None:
        """Record facts that no other method records."""
        if records:
            self._journal.put(*records)
            _log_notices(self._journal)
            for put, _ in _fault_points(records):
                self._fault(put)

    # --- the file ----------------------------------------------------------------------------------------

    @property
    def health(self) -> model.JournalStatus:
        """Whether records survive a restart."""
        return self._journal.health

    async def run(self) -> None:
        """Write the put records until cancelled."""
        await self._journal.run()

    async def until_taken_away(self) -> model.UnusableError:
        """Wait until a write finds the file removed or replaced; return the error that ends the daemon."""
        return await self._journal.until_taken_away()

    async def flush(self) -> None:
        """Wait until all records put so far are written, or cannot be."""
        with anyio.move_on_after(_FLUSH_TIMEOUT_S):
            await self._journal.written()

    async def trim(self, policy: model.Retention) -> model.TrimResult:
        """Remove records beyond the limits."""
        return await self._journal.trim(policy)

    def include_pending(self, pending: Callable[[], Iterable[model.Record]]) -> None:
        """Also write pending comments and notifications into a new journal."""
        self._pending = pending

    def _present(self) -> tuple[model.Record, ...] | None:
        """The content for a new journal; `None` before the first step."""
        present = self._recorder.snapshot(now_ms=self._now_ms(), wall_ms=self._wall_ms())
        return None if present is None else (*present, *self._pending())


def _fault_points(records: Iterable[model.Record]) -> Iterator[tuple[FaultPoint, FaultPoint]]:
    """For each record with crash points: the point after it is put, and the point after it is written."""
    for record in records:
        match record:
            case model.RunRecord(ended_wall_ms=int()):
                yield FaultPoint.END_PUT, FaultPoint.END_WRITTEN
            case model.ClaimRecord(claim=scheduler.StoredClaim(kind=scheduler.ClaimKind.RUNNING)):
                yield FaultPoint.CLAIM_PUT, FaultPoint.CLAIM_WRITTEN
            case model.ClaimRecord(claim=scheduler.StoredClaim(kind=scheduler.ClaimKind.RETRYING)):
                yield FaultPoint.RETRY_PUT, FaultPoint.RETRY_WRITTEN
            case Job(attempts=0):
                yield FaultPoint.JOB_PUT, FaultPoint.JOB_WRITTEN
            case JobDone():
                yield FaultPoint.JOB_DONE_PUT, FaultPoint.JOB_DONE_WRITTEN
            case _:
                pass


def _log_notices(journal: Journal) -> None:
    """Log what was lost or set aside since the last call."""
    for notice in journal.take_notices():
        _log.warning("journal_notice", reason=notice.message, hint=notice.hint)


def _log_health(health: model.JournalStatus) -> None:
    if health.failure is None:
        _log.info("journal_recovered")
    else:
        _log.warning("journal_degraded", reason=health.failure.message, hint=health.failure.hint)
