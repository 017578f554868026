"""Writes the journal of a daemon: records are collected on the event loop and written in batches by a thread.

    put -> backlog -> [a thread: one transaction for all records since the last one] -> file

While the file cannot be written, records stay in the bounded backlog, and writing is retried every 30 s and
with each `flush`. If the file is damaged while open, a new one is made from the daemon's present state. If
the file is removed or replaced, nothing more is written, and the daemon ends.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, assert_never

import anyio

from symphony import sqlite, to_thread
from symphony.domain import Failure, Issue
from symphony.journal import model
from symphony.journal.database import (
    RUNS_PER_STEP,
    Batch,
    Database,
    make_room,
    open_database,
    trim_steps,
)
from symphony.journal.jobs import Job, JobDone
from symphony.scheduler import IssueResult, StoredClaim

_FIRST_BUSY_MS = 2_000
_LATER_BUSY_MS = 100
_RETRY_S = 30.0
_LINGER_S = 0.02
_CLOSE_S = 5.0
_MAX_NOTICES = 20

MAX_EVENT_CHARS: Final = 32 * 1024 * 1024
"""The largest size of events that wait while the file cannot be written."""

MAX_HISTORY: Final = 2_000
"""How many records of history wait at most."""

_EVENT_CHARS = 300  # estimated size of an event without its message
Key = tuple[str, ...]
_T = TypeVar("_T")


def record_key(record: model.Record) -> Key:  # noqa: C901, PLR0912 - one case per record
    """The key of a record; of two records with the same key only the newer one matters."""
    match record:
        case (
            model.ClaimRecord(claim=StoredClaim(issue=Issue(id=issue_id)))
            | model.ClaimReleased(issue_id=issue_id)
        ):
            key: Key = ("claim", issue_id)
        case (
            model.ResultRecord(result=IssueResult(issue=Issue(id=issue_id)))
            | model.ResultReleased(issue_id=issue_id)
        ):
            key = ("result", issue_id)
        case model.RunRecord() | model.SkillsRecord():
            key = (type(record).__name__, record.run_id)
        case model.InstructionsRecord():
            key = ("instructions", record.run_id, record.phase)
        case model.MilestoneRecord():
            key = ("milestone", record.issue_id, record.milestone)
        case model.CommentRecord():
            key = ("comment", record.issue_id, record.kind)
        case model.ToldComments():
            key = ("told", record.issue_id)
        case model.SkillsComment():
            key = ("skills", record.issue_id)
        case Job() | JobDone():
            key = ("job", record.key)
        case model.PullRequestRecord():
            key = ("pull_request", record.issue.id)
        case model.IssueSpent():
            key = ("spent", record.issue_id)
        case model.DayRecord():
            key = ("day", record.day)
        case model.SettingRecord():
            key = ("setting", record.name)
        case model.EventRecord():  # never used: events are appended
            key = ("event", record.issue_id, str(record.at_wall_ms))
        case _:
            assert_never(record)
    return key


def _is_history(record: model.Record) -> bool:
    """Whether losing the record loses only history."""
    match record:
        case model.RunRecord(ended_wall_ms=ended_wall_ms):
            return ended_wall_ms is not None
        case _:
            return isinstance(
                record,
                model.CommentRecord | model.SkillsRecord | model.InstructionsRecord | model.MilestoneRecord,
            )


class Backlog:
    """Records that are not written yet: the newest of each key, and all events in order.

    `lost` counts events and records of history that were dropped because of the limits.
    """

    def __init__(self, *, max_history: int = MAX_HISTORY, max_event_chars: int = MAX_EVENT_CHARS) -> None:
        self._max_history = max_history
        self._max_event_chars = max_event_chars
        self._current: dict[Key, model.Record] = {}
        self._history: dict[Key, model.Record] = {}
        self._events: deque[model.EventRecord] = deque()
        self._chars = 0
        self.lost = 0

    def __bool__(self) -> bool:
        return bool(self._current or self._history or self._events)

    def add(self, records: Iterable[model.Record]) -> None:
        """Add the records of one put."""
        for record in records:
            if isinstance(record, model.EventRecord):
                self._events.append(record)
                self._chars += _EVENT_CHARS + len(record.message)
                continue
            key, history = record_key(record), _is_history(record)
            (self._current if history else self._history).pop(key, None)
            (self._history if history else self._current)[key] = record
        while self._chars > self._max_event_chars:
            self._chars -= _EVENT_CHARS + len(self._events.popleft().message)
            self.lost += 1
        while len(self._history) > self._max_history:
            del self._history[next(iter(self._history))]
            self.lost += 1

    def take(self) -> Batch:
        """Empty the backlog into one transaction with the effect of all puts in order."""
        batch = Batch(records=(*self._current.values(), *self._history.values()), events=tuple(self._events))
        self._current, self._history, self._events, self._chars = {}, {}, deque(), 0
        return batch

    def give_back(self, batch: Batch) -> None:
        """Put a batch that could not be written back in front of newer records."""
        newer = self.take()
        self.add([*batch.records, *batch.events, *newer.records, *newer.events])


async def open_journal(
    path: Path,
    *,
    now_wall_ms: Callable[[], int],
    on_health: Callable[[model.JournalStatus], None] = lambda _health: None,
    on_written: Callable[[Iterable[model.Record]], None] = lambda _records: None,
    backlog: Backlog | None = None,
    retry_s: float = _RETRY_S,
) -> "Journal":
    """Open the journal. Does not raise if the file cannot be used; `Journal.health` says what is wrong.

    The caller must hold the instance lock of the state directory, because two writers would overwrite each
    other's records.

    Args:
        path: the file.
        now_wall_ms: the wall clock.
        on_health: called when the health changes.
        on_written: called with the records of each transaction, without the events.
        backlog: collects the records to write.
        retry_s: how long `run` waits before it retries an unusable file.
    """
    journal = Journal(
        path,
        backlog=Backlog() if backlog is None else backlog,
        now_wall_ms=now_wall_ms,
        on_health=on_health,
        on_written=on_written,
        retry_s=retry_s,
    )
    await journal.begin()
    return journal


class Journal:
    """The open journal of the one daemon of a state directory. No method raises for a bad disk.

    Made by `open_journal` and used on one event loop.
    """

    def __init__(
        self,
        path: Path,
        *,
        backlog: Backlog,
        now_wall_ms: Callable[[], int],
        on_health: Callable[[model.JournalStatus], None],
        on_written: Callable[[Iterable[model.Record]], None],
        retry_s: float,
    ) -> None:
        self._path = path
        self._backlog = backlog
        self._now_wall_ms = now_wall_ms
        self._on_health = on_health
        self._on_written = on_written
        self._retry_s = retry_s
        self._database: Database | None = None
        self._present: Callable[[], Iterable[model.Record] | None] = lambda: None
        self._notices: deque[Failure] = deque(maxlen=_MAX_NOTICES)
        self._thread = anyio.CapacityLimiter(1)
        self._writing = anyio.Lock(fast_acquire=True)
        self._has_records = anyio.Event()
        self._put_count = self._written_count = 0
        self._closed = False
        self._taken_away = anyio.Event()
        self._limits: model.Retention | None = None
        self._ended_runs = 0
        self.health = model.JournalStatus(state=model.HealthState.OK)
        self.recovered_state = model.RecoveredState()

    async def begin(self) -> None:
        """Open the file and load what the previous daemon left."""
        try:
            self._database = await self._opened(_FIRST_BUSY_MS)
        except model.UnusableError as error:
            self.health = model.JournalStatus(state=model.HealthState.MEMORY, failure=error.failure)
        else:
            self.recovered_state = self._database.recovered_state

    def snapshot_from(self, present: Callable[[], Iterable[model.Record] | None]) -> None:
        """Set the source of all present records, for a file that is opened again or replaced.

        They then replace the claims and results in the file. `None` means that they are not known yet.
        """
        self._present = present

    def take_notices(self) -> tuple[Failure, ...]:
        """The notices to show to people since the last call."""
        taken = tuple(self._notices)
        self._notices.clear()
        return taken

    def put(self, *records: model.Record) -> None:
        """Write these records soon, in one transaction. Returns at once."""
        if not self._closed:
            self._backlog.add(records)
            self._put_count += 1
            self._has_records.set()

    async def run(self) -> None:
        """Write the put records in batches, until cancelled."""
        while True:
            if self.health.state is model.HealthState.OK:
                await self._has_records.wait()
                self._has_records = anyio.Event()
                await self.written()
            else:
                await anyio.sleep(self._retry_s)
                await self.flush()

    async def written(self) -> None:
        """Return when the writing of all put records has succeeded or failed; callers share a write."""
        wanted = self._put_count
        async with self._writing:
            if self._written_count < wanted and not self._closed:
                await anyio.sleep(_LINGER_S)
                await self._write()
                await self._make_room()

    async def until_taken_away(self) -> model.UnusableError:
        """Wait until a write finds the file removed or replaced; return the error that ends the daemon."""
        await self._taken_away.wait()
        assert self.health.failure is not None  # noqa: S101 - the event is set behind it
        return model.UnusableError(self.health.failure)

    async def flush(self) -> None:
        """As `written`, but write now, even if there is nothing to write."""
        async with self._writing:
            if not self._closed:
                await self._write()
                await self._make_room()

    async def trim(self, policy: model.Retention) -> model.TrimResult:
        """Delete excess history, in small steps between which puts are written.

        Deletes nothing while the file cannot be used. The result is empty too if the trim failed. From now
        on, the end of a run also deletes the oldest runs beyond the limits.
        """
        self._limits = policy
        if (database := self._database) is None:
            return model.TrimResult()
        steps = trim_steps(database.connection, policy, now_wall_ms=self._now_wall_ms())
        dropped = model.TrimResult()
        while True:
            async with self._writing:
                if self._closed or self._database is not database:
                    return model.TrimResult()
                try:
                    step = await self._in_thread(partial(next, steps, None))
                except sqlite.ERRORS as error:
                    self._failed(error)
                    return model.TrimResult()
            if step is None:
                return dropped
            dropped += step
            await self.flush()

    async def close(self) -> None:
        """Write the rest and close the file; give up after five seconds if the disk hangs."""
        with anyio.move_on_after(_CLOSE_S):
            async with self._writing:
                if not self._closed:
                    self._closed = True
                    await self._write()
                    self._close_database()

    async def _write(self) -> None:
        """Write the backlog; on failure the records return to it."""
        batch, put_count = self._backlog.take(), self._put_count
        try:
            if self._database is not None:
                await self._in_thread(partial(self._put, self._database, batch))
            else:
                database = await self._opened(_LATER_BUSY_MS)
                present = self._present()
                self._backlog.give_back(batch)
                self._backlog.add(present or ())
                batch = self._backlog.take()
                await self._in_thread(
                    partial(self._put_first, database, batch, is_snapshot=present is not None)
                )
                self._database = database
        except BaseException as error:
            self._backlog.give_back(batch)
            if not isinstance(error, Exception):  # cancelled before the thread began
                raise
            taken_away = self._database is not None and isinstance(error, model.UnusableError)
            self._failed(error)
            if taken_away:
                self._closed = True
                self._taken_away.set()
        else:
            if self._backlog.lost:
                lost, self._backlog.lost = self._backlog.lost, 0
                self._notices.append(
                    model.notice(f"the journal could not keep {lost} records while it was unusable")
                )
            self._ended_runs += sum(
                isinstance(each, model.RunRecord) and each.ended_wall_ms is not None for each in batch.records
            )
            self._set_health(model.JournalStatus(state=model.HealthState.OK))
            self._on_written(batch.records)
        self._written_count = put_count

    async def _make_room(self) -> None:
        """Delete some runs beyond the limits of the last trim after as many runs have ended."""
        if self._limits is None or self._database is None or self._ended_runs < RUNS_PER_STEP:
            return
        self._ended_runs = 0
        step = partial(make_room, self._database.connection, self._limits, now_wall_ms=self._now_wall_ms())
        try:
            await self._in_thread(step)
        except sqlite.ERRORS as error:
            self._failed(error)

    def _put(self, database: Database, batch: Batch) -> None:
        """Write to the open file, in the thread.

        Raises:
            UnusableError: the path names another file or none.
        """
        if not database.in_place:
            raise model.UnusableError(model.taken_away(self._path))
        if batch.records or batch.events:
            self._notices.extend(database.write(batch, now_wall_ms=self._now_wall_ms()))

    def _put_first(self, database: Database, batch: Batch, *, is_snapshot: bool) -> None:
        """Write to a file that was just opened, in the thread."""
        try:
            self._notices.extend(
                database.write(batch, now_wall_ms=self._now_wall_ms(), is_snapshot=is_snapshot)
            )
        except BaseException:
            database.close()
            raise

    async def _opened(self, busy_ms: int) -> Database:
        """Open the file at the path.

        Raises:
            UnusableError: it cannot be used.
        """
        now_wall_ms = self._now_wall_ms()
        database = await self._in_thread(
            lambda: open_database(self._path, now_wall_ms=now_wall_ms, busy_ms=busy_ms)
        )
        self._notices.extend(database.notices)
        return database

    async def _in_thread(self, job: Callable[[], _T]) -> _T:
        return await to_thread.run_sync(job, abandon_on_cancel=self._closed, limiter=self._thread)

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _failed(self, error: Exception) -> None:
        if not sqlite.is_temporary(error):
            self._close_database()
        self._set_health(
            model.JournalStatus(state=model.HealthState.MEMORY, failure=model.failure_of(self._path, error))
        )

    def _set_health(self, health: model.JournalStatus) -> None:
        if health != self.health:
            self.health = health
            self._on_health(health)
