"""The daemon's side of the journal: records each step, and gives back what a predecessor recorded."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import structlog

from symphony.api.models import Skills
from symphony.daemon.clock import wall_ms
from symphony.domain import FaultHook, FaultPoint, no_fault
from symphony.journal.model import (
    ClaimRecord,
    CommentRecord,
    Health,
    HealthState,
    Record,
    RecoveredState,
    RunRecord,
    SkillsComment,
    SkillsRecord,
    SkillUse,
    UnusableError,
)
from symphony.journal.reader import open_reader
from symphony.journal.recorder import Start, StepRecorder, recovered_event
from symphony.journal.store import Journal, open_journal
from symphony.processes.base import Identity
from symphony.scheduler import (
    MAX_THROTTLE_MS,
    ClaimKind,
    Command,
    Event,
    Recovered,
    SchedulerSettings,
    State,
    WorkspaceRef,
)

JOURNAL_FILE = "journal.db"
_LONGEST_WAIT_S = 5.0
_CLAIM = (FaultPoint.CLAIM_PUT, FaultPoint.CLAIM_WRITTEN)
_RETRY = (FaultPoint.RETRY_PUT, FaultPoint.RETRY_WRITTEN)
_END = (FaultPoint.END_PUT, FaultPoint.END_WRITTEN)
_log = structlog.get_logger(__name__)


def recovery_event(
    remembered: RecoveredState,
    settings: SchedulerSettings,
    *,
    now_ms: int,
    wall_ms: int,
    workspaces: tuple[WorkspaceRef, ...],
) -> Recovered:
    """What a scheduler that starts at this moment is told first; the moment is given by both clocks."""
    start = Start(
        now_ms=now_ms,
        wall_ms=wall_ms,
        today=_day(wall_ms),
        max_wait_ms=max(settings.max_retry_backoff_ms, MAX_THROTTLE_MS),
    )
    return recovered_event(remembered, start, workspaces=workspaces)


def past_runs(journal: Path, identifier: str) -> tuple[RunRecord, ...]:
    """The last runs of an issue, the newest first; blocking. A journal that cannot be read knows of none."""
    try:
        with open_reader(journal) as reader:
            return reader.runs(identifier)
    except UnusableError:
        return ()


def _day(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).date().isoformat()


def _ourselves(pid: int) -> Identity:
    """Us, where the host cannot tell who we are."""
    return Identity(boot_id="", pid=pid, started=0.0)


class JournalWriter:
    """One daemon's memory; made by `open_journal_writer`.

    Args:
        journal: where it is kept.
        owner: this daemon.
        mask: hides secrets in what is told about issues.
        now_ms: the monotonic clock. wall_ms: the wall clock.
        fault: told of what was put, before it can be written.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        owner: Identity,
        mask: Callable[[str], str],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int] = wall_ms,
        fault: FaultHook = no_fault,
    ) -> None:
        self._fault = fault
        self._journal = journal
        self._remembered = journal.recovered_state
        self._keeper = StepRecorder(owner, left=self._remembered.live_runs, mask=mask)
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._unsaid: Callable[[], Iterable[SkillsComment]] = tuple
        journal.snapshot_from(self._present)

    @property
    def health(self) -> Health:
        """Whether what happens survives a restart."""
        return self._journal.health

    @property
    def left_agents(self) -> tuple[Identity, ...]:
        """The agents of the runs that a predecessor left without an end."""
        return tuple(run.agent for run in self._remembered.live_runs if run.agent is not None)

    @property
    def comments(self) -> tuple[CommentRecord, ...]:
        """Comments of ours that stand at the tracker, as far as we know."""
        return self._remembered.comments

    @property
    def skills_notes(self) -> tuple[SkillsComment, ...]:
        """What comments about skills shall say, or say, as far as we know."""
        return self._remembered.skills_comments

    @property
    def journal(self) -> Journal:
        """The journal itself, for upkeep."""
        return self._journal

    def unsaid_from(self, unsaid: Callable[[], Iterable[SkillsComment]]) -> None:
        """Where to ask for what comments about skills do not say yet, should the journal be begun anew."""
        self._unsaid = unsaid

    def _present(self) -> tuple[Record, ...] | None:
        """What a journal that is begun anew in mid-life must hold."""
        present = self._keeper.snapshot(now_ms=self._now_ms(), wall_ms=self._wall_ms())
        return None if present is None else (*present, *self._unsaid())

    def today(self) -> str:
        """The day by the wall clock, UTC."""
        return _day(self._wall_ms())

    def recovery_event(self, settings: SchedulerSettings, workspaces: tuple[WorkspaceRef, ...]) -> Recovered:
        """What the scheduler is told first."""
        now_ms, wall_ms = self._now_ms(), self._wall_ms()
        return recovery_event(
            self._remembered, settings, now_ms=now_ms, wall_ms=wall_ms, workspaces=workspaces
        )

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Keep what one step leaves."""
        self._put(
            *self._keeper.step(before, fact, after, commands, now_ms=self._now_ms(), wall_ms=self._wall_ms())
        )

    def agent_spawned(self, run_id: str, agent: Identity) -> None:
        """The agent of a run exists."""
        self._put(*self._keeper.agent_started(run_id, agent))

    async def conversation_opened(self, run_id: str, thread_id: str) -> None:
        """The agent of a run has opened a conversation; returns when that is written, or cannot be."""
        self._put(*self._keeper.thread_opened(run_id, thread_id))
        await self.written()

    async def written(self) -> None:
        """Wait until what was kept so far is written, or cannot be."""
        with anyio.move_on_after(_LONGEST_WAIT_S):
            await self._journal.flush()

    def commented(self, issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        """A comment of ours stands at the tracker."""
        self._put(
            CommentRecord(
                issue_id=issue_id,
                kind=kind,
                comment_id=comment_id,
                fingerprint=fingerprint,
                at_wall_ms=self._wall_ms(),
            )
        )

    def skills_noted(self, note: SkillsComment) -> None:
        """The comment about skills on an issue shall say this, or says it."""
        self._put(replace(note, at_wall_ms=self._wall_ms()))

    def skills_loaded(self, run_id: str, skills: Skills) -> None:
        """A run was told of these skills, or has looked at one of them."""
        uses = (
            SkillUse(name=one.name, path=one.path, sha256=one.sha256, listed=True, seen=one.seen)
            for one in skills.listed
        )
        self._put(SkillsRecord(run_id=run_id, commit=skills.commit, skills=tuple(uses)))

    def _put(self, *records: Record) -> None:
        if records:
            self._journal.put(*records)
            _tell_notices(self._journal)
            for put, _ in _points(records):
                self._fault(put)


def _points(records: Iterable[Record]) -> Iterator[tuple[FaultPoint, FaultPoint]]:
    """The points that records stand for: that they are put, and that they are written."""
    for record in records:
        if isinstance(record, RunRecord) and record.ended_wall_ms is not None:
            yield _END
        elif isinstance(record, ClaimRecord) and record.kind is not ClaimKind.BLOCKED:
            yield _CLAIM if record.kind is ClaimKind.RUNNING else _RETRY


@asynccontextmanager
async def open_journal_writer(
    state_path: Path,
    *,
    owner: Identity | None,
    mask: Callable[[str], str],
    now_ms: Callable[[], int],
    wall_ms: Callable[[], int] = wall_ms,
    fault: FaultHook = no_fault,
) -> AsyncIterator[JournalWriter]:
    """The journal of a state directory, under its lock: open while the body runs, written whatever ends it.

    The body is to have `journal.run` in a task, which writes what is put.

    What is wrong with it is told in the log.
    """

    def has_written(records: Iterable[Record]) -> None:
        for _, written in _points(records):
            fault(written)

    journal = await open_journal(
        state_path / JOURNAL_FILE, now_wall_ms=wall_ms, on_health=_tell, on_written=has_written
    )
    if journal.health.state is HealthState.MEMORY:
        _tell(journal.health)
    _tell_notices(journal)
    try:
        yield JournalWriter(
            journal,
            owner=owner or _ourselves(os.getpid()),
            mask=mask,
            now_ms=now_ms,
            wall_ms=wall_ms,
            fault=fault,
        )
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()
        _tell_notices(journal)


def _tell_notices(journal: Journal) -> None:
    """One line for each thing that was lost or set aside since the last time."""
    for notice in journal.take_notices():
        _log.warning("journal_notice", reason=notice.message, hint=notice.hint)


def _tell(health: Health) -> None:
    """One line when the journal is lost, and one when it is back."""
    if health.failure is None:
        _log.info("journal_recovered")
    else:
        _log.warning("journal_degraded", reason=health.failure.message, hint=health.failure.hint)
