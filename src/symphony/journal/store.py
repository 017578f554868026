"""The journal of a daemon: puts are collected on the loop and written by one thread.

    put -> backlog -> [writer thread: one transaction for all that came meanwhile] -> file

When the file cannot be used, puts stay in the backlog (bounded) and the thread tries again now and then, and
whenever somebody flushes. A file that had to be opened anew is first told the present truth, whole.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from symphony.domain.failures import Failure
from symphony.journal.backlog import Backlog, Batch, Mirror
from symphony.journal.database import Database
from symphony.journal.faults import FAULTS, UnusableError, failure_of, notice, stays_open
from symphony.journal.model import Health, HealthState, Journal, Record, Remembered, Retention, Trimmed
from symphony.journal.opening import Opened, open_database
from symphony.journal.retention import trim

__all__ = ["SqliteJournal", "open_journal"]

_FIRST_BUSY_MS = 2_000
_LATER_BUSY_MS = 100
_RETRY_S = 30.0
_LINGER_S = 0.02
_CLOSE_S = 5.0
_MAX_NOTICES = 20
_T = TypeVar("_T")
Told = Callable[[Health], None]
Written = Callable[[Iterable[Record]], None]


def _nobody(_health: Health) -> None:
    """Nobody wants to be told."""


def _unseen(_records: Iterable[Record]) -> None:
    """Nobody looks at what was written."""


def open_journal(
    path: Path,
    *,
    now_wall_ms: Callable[[], int],
    on_health: Told = _nobody,
    on_written: Written = _unseen,
    retry_s: float = _RETRY_S,
) -> Journal:
    """The journal at the path; never raises for what is there: then its health says what is wrong.

    The caller holds the instance lock of the state directory: two writers would take turns in undoing each
    other's truth. Blocks for as long as it takes to look the file through: call it in a thread, or before the
    loop runs.
    `on_health` is called in the writer's thread whenever the health changes, `on_written` with the records of
    each transaction, the events left out.
    """
    try:
        opened: Opened | Failure = open_database(path, now_wall_ms=now_wall_ms(), busy_ms=_FIRST_BUSY_MS)
    except UnusableError as error:
        opened = error.failure
    return SqliteJournal(
        path,
        opened,
        now_wall_ms=now_wall_ms,
        on_health=on_health,
        on_written=on_written,
        retry_s=retry_s,
    )


class SqliteJournal:
    """The writing side over an SQLite file; made by `open_journal`."""

    def __init__(
        self,
        path: Path,
        opened: Opened | Failure,
        *,
        now_wall_ms: Callable[[], int],
        on_health: Told,
        on_written: Written,
        retry_s: float,
    ) -> None:
        self._path = path
        self._now_wall_ms = now_wall_ms
        self._on_health = on_health
        self._on_written = on_written
        self._retry_s = retry_s
        self._changed = threading.Condition(threading.Lock())
        self._backlog = Backlog()
        self._jobs: list[Callable[[], None]] = []
        self._closing = False
        self._notices: deque[Failure] = deque(maxlen=_MAX_NOTICES)
        self._database: Database | None = None
        self._remembered = Remembered()
        if isinstance(opened, Failure):
            self._health = Health(state=HealthState.MEMORY, failure=opened)
        else:
            self._health = Health(state=HealthState.OK)
            self._database = Database(path, opened)
            self._remembered = opened.remembered
            self._notices.extend(opened.notices)
        self._mirror = Mirror(self._remembered)
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    @property
    def health(self) -> Health:
        """Whether what is put survives."""
        return self._health

    def take_notices(self) -> tuple[Failure, ...]:
        """What people should be told once."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._notices.popleft())
        return tuple(taken)

    def put(self, *records: Record) -> None:
        """Remember these together."""
        with self._changed:
            if self._closing:
                return
            wakes = not self._backlog  # else the writer knows that there is something, and lingers for more
            self._backlog.add(records)
            self._mirror.add(records)
            if wakes:
                self._changed.notify()

    async def flush(self) -> None:
        """Wait until what was put is written, or known to be unwritable."""
        await self._ask(lambda: None, otherwise=None)

    async def remembered(self) -> Remembered:
        """What a predecessor left."""
        return self._remembered

    async def trim(self, policy: Retention) -> Trimmed:
        """Drop the history that is too much; nothing happens while the file cannot be used."""
        return await self._ask(lambda: self._trim(policy), otherwise=Trimmed())

    async def close(self) -> None:
        """Write what is left, and let go of the file; a disk that hangs is left alone after five seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._ask(self._end, otherwise=None)

    async def _ask(self, job: Callable[[], _T], *, otherwise: _T) -> _T:
        """Have the writer do something behind all that was put; `otherwise` when it has ended."""
        answer: Future[_T] = Future()

        def carried_out() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(job())
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked; the thread must live on
                answer.set_exception(error)

        with self._changed:
            if self._closing:
                return otherwise
            self._jobs.append(carried_out)
            self._changed.notify()
        return await asyncio.wrap_future(answer)

    def _work(self) -> None:
        while not self._closing:
            for job in self._wait():
                job()

    def _wait(self) -> list[Callable[[], None]]:
        """Wait for something to do, write what was put, and return what else there is to do."""
        with self._changed:
            if self._health.state is HealthState.OK:
                self._changed.wait_for(lambda: bool(self._backlog or self._jobs))
                self._changed.wait_for(lambda: bool(self._jobs), _LINGER_S)
            else:
                self._changed.wait_for(lambda: bool(self._jobs), self._retry_s)
            jobs, self._jobs = self._jobs, []
        self._write()
        return jobs

    def _write(self) -> None:
        """Write the backlog; what cannot be written returns to it."""
        database = self._in_place()
        with self._changed:
            batch, truth = self._backlog.take(), () if database else self._mirror.copy()
        try:
            if database is None:
                self._notices.extend(self._begun_anew(batch, truth))
            elif batch:
                self._notices.extend(database.write(batch, now_wall_ms=self._now_wall_ms()))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one batch, the thread must live on
            self._failed(error, batch)
        else:
            self._recovered()
            self._on_written(batch.records)

    def _in_place(self) -> Database | None:
        """The open file, as long as its name means it."""
        return self._database if self._database is not None and self._database.in_place else None

    def _begun_anew(self, batch: Batch, truth: tuple[Record, ...]) -> tuple[Failure, ...]:
        """Open the file, which may be another one by now, and tell it the truth before the batch."""
        now_wall_ms = self._now_wall_ms()
        removed = self._database is not None
        self._let_go()
        opened = open_database(self._path, now_wall_ms=now_wall_ms, busy_ms=_LATER_BUSY_MS)
        database = Database(self._path, opened)
        try:
            told = database.write(batch, now_wall_ms=now_wall_ms, truth=truth)
        except BaseException:
            database.close()
            raise
        self._database = database
        begun = (notice(f"the journal {self._path} was taken away; a new one was begun without the history"),)
        return (*(begun if removed else ()), *opened.notices, *told)

    def _let_go(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _failed(self, error: Exception, batch: Batch) -> None:
        if not stays_open(error):
            self._let_go()
        with self._changed:
            self._backlog.give_back(batch)
        self._become(Health(state=HealthState.MEMORY, failure=failure_of(self._path, error)))

    def _recovered(self) -> None:
        with self._changed:
            lost, self._backlog.lost = self._backlog.lost, 0
        if lost:
            self._notices.append(notice(f"the journal could not keep {lost} records while it was unusable"))
        self._become(Health(state=HealthState.OK))

    def _become(self, health: Health) -> None:
        if health != self._health:
            self._health = health
            with suppress(RuntimeError):  # the loop that is told may have ended
                self._on_health(health)

    def _trim(self, policy: Retention) -> Trimmed:
        if self._database is None:
            return Trimmed()
        steps = trim(self._database.connection, policy, now_wall_ms=self._now_wall_ms())
        try:
            while True:
                next(steps)
                self._write()
                if self._database is None:
                    return Trimmed()
        except StopIteration as done:
            result: Trimmed = done.value
            return result
        except FAULTS as error:
            self._failed(error, Batch())
            return Trimmed()

    def _end(self) -> None:
        with self._changed:
            self._closing = True
            rest, self._jobs = self._jobs, []
        self._write()
        self._let_go()
        for job in rest:
            job()
