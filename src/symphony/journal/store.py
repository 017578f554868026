"""The journal of a daemon: records are collected on the event loop and written in batches by a thread.

    put -> backlog -> [a thread: one transaction for all that came meanwhile] -> file

While the file cannot be used, records stay in the bounded backlog, and writing is tried again every 30 s and
with each `flush`. A file that was removed or spoilt while open is begun anew with what the daemon holds then.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, assert_never

import anyio
from anyio import to_thread

from symphony.domain import Failure, Issue
from symphony.journal.database import Batch, Database, open_database, trim_steps
from symphony.journal.model import (
    FAULTS,
    ClaimRecord,
    ClaimReleased,
    CommentRecord,
    DayRecord,
    EventRecord,
    Health,
    HealthState,
    IssueSpent,
    Record,
    RecoveredState,
    ResultRecord,
    ResultReleased,
    Retention,
    RunRecord,
    SettingRecord,
    SkillsComment,
    SkillsRecord,
    TrimResult,
    UnusableError,
    failure_of,
    notice,
    stays_open,
)
from symphony.scheduler import IssueResult

_FIRST_BUSY_MS = 2_000
_LATER_BUSY_MS = 100
_RETRY_S = 30.0
_LINGER_S = 0.02
_CLOSE_S = 5.0
_MAX_NOTICES = 20

MAX_EVENT_CHARS: Final = 32 * 1024 * 1024
"""How much of events waits for a file that cannot be used."""
MAX_HISTORY: Final = 2_000
"""How many records that are history wait for it."""
_EVENT_CHARS = 300
Key = tuple[str, ...]
_T = TypeVar("_T")


def record_key(record: Record) -> Key:
    """What the record is about; of two with the same key only the newer one matters."""
    match record:
        case ClaimRecord(issue=Issue(id=issue_id)) | ClaimReleased(issue_id=issue_id):
            key: Key = ("claim", issue_id)
        case ResultRecord(result=IssueResult(issue=Issue(id=issue_id))) | ResultReleased(issue_id=issue_id):
            key = ("result", issue_id)
        case RunRecord() | SkillsRecord():
            key = (type(record).__name__, record.run_id)
        case CommentRecord():
            key = ("comment", record.issue_id, record.kind)
        case SkillsComment():
            key = ("skills", record.issue_id)
        case IssueSpent():
            key = ("spent", record.issue_id)
        case DayRecord():
            key = ("day", record.day)
        case SettingRecord():
            key = ("setting", record.name)
        case EventRecord():  # an event replaces nothing, and never gets here
            key = ("event", record.issue_id, str(record.at_wall_ms))
        case _:
            assert_never(record)
    return key


def _is_history(record: Record) -> bool:
    """Whether losing the record costs history alone."""
    match record:
        case RunRecord(ended_wall_ms=ended_wall_ms):
            return ended_wall_ms is not None
        case SkillsComment(said=said):
            return said
        case _:
            return isinstance(record, CommentRecord | SkillsRecord)


class Backlog:
    """What was put and is not written yet: the newest record of each key, and events in their order.

    `lost` counts the history and events that had no room while nothing could be written.
    """

    def __init__(self, *, max_history: int = MAX_HISTORY, max_event_chars: int = MAX_EVENT_CHARS) -> None:
        self._max_history = max_history
        self._max_event_chars = max_event_chars
        self._current: dict[Key, Record] = {}
        self._history: dict[Key, Record] = {}
        self._events: deque[EventRecord] = deque()
        self._chars = 0
        self.lost = 0

    def __bool__(self) -> bool:
        return bool(self._current or self._history or self._events)

    def add(self, records: Iterable[Record]) -> None:
        """Take the records of one put."""
        for record in records:
            if isinstance(record, EventRecord):
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
        """Empty the backlog into one transaction, which has the effect of all puts in their order."""
        batch = Batch(records=(*self._current.values(), *self._history.values()), events=tuple(self._events))
        self._current, self._history, self._events, self._chars = {}, {}, deque(), 0
        return batch

    def give_back(self, batch: Batch) -> None:
        """Put what could not be written before what came since."""
        newer = self.take()
        self.add([*batch.records, *batch.events, *newer.records, *newer.events])


async def open_journal(
    path: Path,
    *,
    now_wall_ms: Callable[[], int],
    on_health: Callable[[Health], None] = lambda _health: None,
    on_written: Callable[[Iterable[Record]], None] = lambda _records: None,
    backlog: Backlog | None = None,
    retry_s: float = _RETRY_S,
) -> "Journal":
    """Open the journal at the path; never raises for what is there: its health says what is wrong.

    The caller holds the instance lock of the state directory: two writers would undo each other's records.

    Args:
        path: the file.
        now_wall_ms: the wall clock.
        on_health: called when the health changes.
        on_written: called with the records of each transaction, without the events.
        backlog: where records wait to be written.
        retry_s: how long `run` waits before it tries an unusable file again.
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
    """The writing side, held by the one daemon of the state directory. Nothing here raises for a bad disk.

    Made by `open_journal`. Use it on one event loop; `run` writes what is put, `flush` at once.
    """

    def __init__(
        self,
        path: Path,
        *,
        backlog: Backlog,
        now_wall_ms: Callable[[], int],
        on_health: Callable[[Health], None],
        on_written: Callable[[Iterable[Record]], None],
        retry_s: float,
    ) -> None:
        self._path = path
        self._backlog = backlog
        self._now_wall_ms = now_wall_ms
        self._on_health = on_health
        self._on_written = on_written
        self._retry_s = retry_s
        self._database: Database | None = None
        self._present: Callable[[], Iterable[Record] | None] = lambda: None
        self._notices: deque[Failure] = deque(maxlen=_MAX_NOTICES)
        self._thread = anyio.CapacityLimiter(1)
        self._writing = anyio.Lock()
        self._something = anyio.Event()
        self._closed = False
        self.health = Health(state=HealthState.OK)
        self.recovered_state = RecoveredState()

    async def begin(self) -> None:
        """Open the file, and remember what a predecessor left in it."""
        try:
            self._database = await self._opened(_FIRST_BUSY_MS)
        except UnusableError as error:
            self.health = Health(state=HealthState.MEMORY, failure=error.failure)
        else:
            self.recovered_state = self._database.recovered_state

    def snapshot_from(self, present: Callable[[], Iterable[Record] | None]) -> None:
        """Where to ask for all that holds at this moment, when the file has to be opened again or begun anew.

        The claims and results in the file are then those and no others. None stands for not known.
        """
        self._present = present

    def take_notices(self) -> tuple[Failure, ...]:
        """What people should be told, once: the next call has only what came since."""
        taken = tuple(self._notices)
        self._notices.clear()
        return taken

    def put(self, *records: Record) -> None:
        """Remember these together: all of them survive, or none. Returns at once; written soon after."""
        if not self._closed:
            self._backlog.add(records)
            self._something.set()

    async def run(self) -> None:
        """Write what is put, a moment later and all together, until cancelled."""
        while True:
            if self.health.state is HealthState.OK:
                await self._something.wait()
                self._something = anyio.Event()
                await anyio.sleep(_LINGER_S)
            else:
                await anyio.sleep(self._retry_s)
            await self.flush()

    async def flush(self) -> None:
        """Wait until what was put is written, or known to be unwritable."""
        async with self._writing:
            if not self._closed:
                await self._write()

    async def trim(self, policy: Retention) -> TrimResult:
        """Drop the history that is too much, in small steps between which puts are written.

        Nothing is dropped while the file cannot be used; an empty result also stands for a trim that failed.
        """
        if (database := self._database) is None:
            return TrimResult()
        steps = trim_steps(database.connection, policy, now_wall_ms=self._now_wall_ms())
        dropped = TrimResult()
        while True:
            async with self._writing:
                if self._closed or self._database is not database:
                    return TrimResult()
                try:
                    step = await self._in_thread(partial(next, steps, None))
                except FAULTS as error:
                    self._failed(error)
                    return TrimResult()
            if step is None:
                return dropped
            dropped += step
            await self.flush()

    async def close(self) -> None:
        """Write what is left, and let go of the file; a disk that hangs is abandoned after five seconds."""
        with anyio.move_on_after(_CLOSE_S):
            async with self._writing:
                if not self._closed:
                    self._closed = True
                    await self._write()
                    self._let_go()

    async def _write(self) -> None:
        """Write the backlog; what cannot be written returns to it."""
        batch = self._backlog.take()
        try:
            if self._database is None or not await self._in_thread(partial(self._put, self._database, batch)):
                database = await self._opened(_LATER_BUSY_MS)
                present = self._present()
                self._backlog.give_back(batch)
                self._backlog.add(present or ())
                batch = self._backlog.take()
                await self._in_thread(partial(self._put_first, database, batch, anew=present is not None))
                self._database = database
        except BaseException as error:
            self._backlog.give_back(batch)
            if not isinstance(error, Exception):  # cancelled before the thread began
                raise
            self._failed(error)
        else:
            if self._backlog.lost:
                lost, self._backlog.lost = self._backlog.lost, 0
                self._notices.append(
                    notice(f"the journal could not keep {lost} records while it was unusable")
                )
            self._become(Health(state=HealthState.OK))
            self._on_written(batch.records)

    def _put(self, database: Database, batch: Batch) -> bool:
        """Write to the open file, in the thread; false where the path does not name that file any more."""
        if not database.in_place:
            self._let_go()
            reason = f"the journal {self._path} was taken away; a new one was begun without the history"
            self._notices.append(notice(reason))
            return False
        if batch.records or batch.events:
            self._notices.extend(database.write(batch, now_wall_ms=self._now_wall_ms()))
        return True

    def _put_first(self, database: Database, batch: Batch, *, anew: bool) -> None:
        """Write to a file that was just opened, in the thread."""
        try:
            self._notices.extend(database.write(batch, now_wall_ms=self._now_wall_ms(), anew=anew))
        except BaseException:
            database.close()
            raise

    async def _opened(self, busy_ms: int) -> Database:
        """Open the file, which may be another one by now.

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

    def _let_go(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _failed(self, error: Exception) -> None:
        if not stays_open(error):
            self._let_go()
        self._become(Health(state=HealthState.MEMORY, failure=failure_of(self._path, error)))

    def _become(self, health: Health) -> None:
        if health != self.health:
            self.health = health
            self._on_health(health)
