"""The open file: a batch in one transaction, and the bounds of what is kept of a run."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from symphony.domain.failures import Failure
from symphony.journal.backlog import Batch
from symphony.journal.codec import CodecError
from symphony.journal.faults import notice
from symphony.journal.model import EventRecord, Record
from symphony.journal.opening import Opened, identity
from symphony.journal.rows import INSERT_EVENT, Row, Statement, event_row, statements

__all__ = ["KEPT_FIRST", "MAX_EVENTS", "Database"]

MAX_EVENTS = 500
KEPT_FIRST = 50
_KEPT_LAST = MAX_EVENTS - 2 * KEPT_FIRST
_BUSY_MS = 500
_MAX_COUNTED = 10_000
Scope = tuple[str, str]

_COUNT = {
    "run": "SELECT count(*) FROM events WHERE run_id = ?",
    "issue": "SELECT count(*) FROM events WHERE issue_identifier = ? AND run_id IS NULL",
}
_TRIM = {
    "run": """
    DELETE FROM events WHERE run_id = ?1
    AND id NOT IN (SELECT id FROM events WHERE run_id = ?1 ORDER BY id LIMIT ?2)
    AND id NOT IN (SELECT id FROM events WHERE run_id = ?1 ORDER BY id DESC LIMIT ?3)
    """,
    "issue": """
    DELETE FROM events WHERE issue_identifier = ?1 AND run_id IS NULL AND id NOT IN (
        SELECT id FROM events WHERE issue_identifier = ?1 AND run_id IS NULL ORDER BY id LIMIT ?2
    ) AND id NOT IN (
        SELECT id FROM events WHERE issue_identifier = ?1 AND run_id IS NULL ORDER BY id DESC LIMIT ?3
    )
    """,
}


def _scope(row: Row) -> Scope:
    """What an event is one of many of: its run, or its issue where there is no run."""
    _, identifier, run_id, *_ = row
    return ("issue", str(identifier)) if run_id is None else ("run", str(run_id))


class Database:
    """One open journal, used by one thread at a time."""

    def __init__(self, path: Path, opened: Opened) -> None:
        self.connection = opened.connection
        self._path = path
        self._inode = opened.inode
        self._counts: dict[Scope, int] = {}
        self.connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")

    @property
    def in_place(self) -> bool:
        """Whether the name of the file still means the one that is open."""
        return identity(self._path) == self._inode

    def close(self) -> None:
        """Let go of the file; an error of the disk is none of this."""
        with suppress(sqlite3.Error):
            self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is done within survives, or none of it."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                with suppress(sqlite3.Error):
                    self.connection.execute("ROLLBACK")
            self._counts.clear()
            raise

    def write(
        self, batch: Batch, *, now_wall_ms: int, truth: Sequence[Record] | None = None
    ) -> tuple[Failure, ...]:
        """Write the batch; what cannot be written at all is left out and told.

        With `truth`, which a file that was just opened must be told of first: its claims are those and no
        others.

        Raises:
            sqlite3.Error: nothing of it was written.
        """
        notices: list[Failure] = []
        with self.transaction():
            if truth is not None:
                self.connection.execute("DELETE FROM claims")
                self._put(truth, now_wall_ms, notices)
            self._put(batch.records, now_wall_ms, notices)
            self._append(batch.events, notices)
        return tuple(notices)

    def _put(self, records: Iterable[Record], now_wall_ms: int, notices: list[Failure]) -> None:
        planned: list[Statement] = []
        for record in records:
            try:
                planned += statements(record, now_wall_ms=now_wall_ms)
            except CodecError as error:
                notices.append(notice(f"the journal left out a {type(record).__name__}: {error}"))
        for sql, group in groupby(planned, key=itemgetter(0)):
            self.connection.executemany(sql, [row for _, row in group])

    def _append(self, events: Iterable[EventRecord], notices: list[Failure]) -> None:
        rows: list[Row] = []
        for event in events:
            try:
                rows.append(event_row(event))
            except CodecError as error:
                notices.append(notice(f"the journal left out an event: {error}"))
        self.connection.executemany(INSERT_EVENT, rows)
        self._bound(Counter(_scope(row) for row in rows))

    def _bound(self, added: Counter[Scope]) -> None:
        """Keep the first events of a run and the newest: how it began, and how it went last."""
        for scope, count in added.items():
            kind, name = scope
            known = self._counts.get(scope)
            if known is None:
                now = int(self.connection.execute(_COUNT[kind], (name,)).fetchone()[0])
            else:
                now = known + count
            if now > MAX_EVENTS:
                self.connection.execute(_TRIM[kind], (name, KEPT_FIRST, _KEPT_LAST))
                now = KEPT_FIRST + _KEPT_LAST
            self._counts[scope] = now
        if len(self._counts) > _MAX_COUNTED:
            self._counts.clear()
