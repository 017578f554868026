"""The reading side, for the command line and the API, while a daemon writes or none does.

It never writes: beside a live daemon each question sees what was committed before it. Where no file can be
made beside the journal, it is read as one that does not change, and only if it is whole in itself.

    with open_reader(path) as reader:
        for found in reader.events("SYM-7", after_id=known): ...
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from symphony.journal.codec import CodecError, column, decode, restored
from symphony.journal.faults import FAULTS, UnusableError, failure_of, is_damage, unreadable
from symphony.journal.model import (
    ClaimRecord,
    CommentRecord,
    EventRecord,
    Remembered,
    Retention,
    RunRecord,
)
from symphony.journal.opening import as_text, companions
from symphony.journal.retention import overdue
from symphony.journal.rows import load, typed
from symphony.journal.schema import APPLICATION_ID, VERSION
from symphony.journal.skill_report import SkillReport, skill_reports

__all__ = ["JournalReader", "NumberedEvent", "connect", "open_reader"]

_BUSY_S = 1.0
_EVENT = tuple(field.name for field in fields(EventRecord))
_COMMENT = tuple(field.name for field in fields(CommentRecord))
_T = TypeVar("_T")
Parameters = Sequence[str | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedEvent:
    """An event and its number, which rises with time and is never used again."""

    id: int
    event: EventRecord


class JournalReader:
    """Questions to an open journal. A row that does not decode is left out of the answer.

    Every question raises `UnusableError` if the file turns out to be damaged or was taken away.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self.connection = connection

    def claims(self) -> tuple[ClaimRecord, ...]:
        """What the daemon holds, or what a dead one held."""
        return self._records("SELECT record FROM claims", (), ClaimRecord)

    def remembered(self) -> Remembered:
        """What the next daemon would begin with."""
        with self.told():
            return load(self.connection, drop=False)[0]

    def runs(self, issue_identifier: str | None = None, *, limit: int = 50) -> tuple[RunRecord, ...]:
        """The latest runs, of one issue or of all, the newest first."""
        if issue_identifier is None:
            query = "SELECT record FROM runs ORDER BY started_wall_ms DESC, run_id DESC LIMIT ?"
            return self._records(query, (limit,), RunRecord)
        query = """
        SELECT record FROM runs WHERE issue_identifier = ? ORDER BY started_wall_ms DESC, run_id DESC LIMIT ?
        """
        return self._records(query, (issue_identifier, limit), RunRecord)

    def events(
        self, issue_identifier: str, *, after_id: int = 0, run_id: str | None = None, limit: int = 1_000
    ) -> tuple[NumberedEvent, ...]:
        """The events of an issue behind a known one, the oldest first: ask again with the last id."""
        query = """
        SELECT id, issue_id, issue_identifier, run_id, at_wall_ms, event, message FROM events
        WHERE issue_identifier = ?1 AND id > ?2 AND (?3 IS NULL OR run_id = ?3) ORDER BY id LIMIT ?4
        """
        return self._events(query, (issue_identifier, after_id, run_id, limit))

    def latest(
        self, issue_identifier: str, *, run_id: str | None = None, limit: int = 100
    ) -> tuple[NumberedEvent, ...]:
        """The last events of an issue, the oldest of them first."""
        query = """
        SELECT id, issue_id, issue_identifier, run_id, at_wall_ms, event, message FROM events
        WHERE issue_identifier = ?1 AND (?2 IS NULL OR run_id = ?2) ORDER BY id DESC LIMIT ?3
        """
        return self._events(query, (issue_identifier, run_id, limit))[::-1]

    def comments(self, issue_id: str | None = None) -> tuple[CommentRecord, ...]:
        """The comments of ours that are known, of one issue or of all."""
        query = """
        SELECT issue_id, kind, comment_id, fingerprint, at_wall_ms FROM comments
        WHERE ?1 IS NULL OR issue_id = ?1 ORDER BY issue_id, kind
        """
        return self._whole(query, (issue_id,), lambda *row: typed(CommentRecord, _COMMENT, row))

    def skills_report(self, *, since_wall_ms: int = 0) -> tuple[SkillReport, ...]:
        """What became of the runs since then that were told of skills, by name of the skill."""
        with self.told():
            return skill_reports(self.connection, since_wall_ms=since_wall_ms)

    def overdue(self, policy: Retention, *, now_wall_ms: int) -> tuple[str, ...]:
        """The runs that a trim would drop for their age or number; it may drop more for the size."""
        with self.told():
            return overdue(self.connection, policy, now_wall_ms=now_wall_ms)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors of SQLite as what they mean for people.

        Raises:
            UnusableError: the file cannot be read.
        """
        try:
            yield
        except FAULTS as error:
            raise UnusableError(failure_of(self._path, error, reading=True)) from error

    def _events(self, query: str, parameters: Parameters) -> tuple[NumberedEvent, ...]:
        return self._whole(
            query,
            parameters,
            lambda number, *row: NumberedEvent(
                id=restored(number, int), event=typed(EventRecord, _EVENT, row)
            ),
        )

    def _records(self, query: str, parameters: Parameters, kind: type[_T]) -> tuple[_T, ...]:
        return self._whole(query, parameters, lambda text: decode(text, kind))

    def _whole(self, query: str, parameters: Parameters, made: Callable[..., _T]) -> tuple[_T, ...]:
        with self.told():
            rows = self.connection.execute(query, [column(value) for value in parameters]).fetchall()
        found = []
        for row in rows:
            with suppress(CodecError):
                found.append(made(*row))
        return tuple(found)


@contextmanager
def open_reader(path: Path) -> Iterator[JournalReader]:
    """The journal at the path, to be asked from one thread; blocks only while somebody holds it, a second.

    Raises:
        UnusableError: there is none, or none that this version can read; the hint says what to do.
    """
    if not path.is_file():
        raise UnusableError(unreadable(path, "there is none", hint="symphony run begins one"))
    reader = JournalReader(path, connect(path))
    try:
        with reader.told():
            _refuse_others(path, reader.connection)
        yield reader
    finally:
        reader.connection.close()


def connect(path: Path) -> sqlite3.Connection:
    """A connection that cannot write.

    Raises:
        UnusableError: the file cannot be opened.
    """
    try:
        return _connected(path, "mode=ro")
    except FAULTS as error:
        wal, shm = companions(path)
        changes = shm.exists() or (wal.exists() and wal.stat().st_size > 0)
        if changes or is_damage(error):
            raise UnusableError(failure_of(path, error, reading=True)) from error
    try:
        return _connected(path, "mode=ro&immutable=1")
    except FAULTS as error:
        raise UnusableError(failure_of(path, error, reading=True)) from error


def _connected(path: Path, how: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = as_text
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_others(path: Path, connection: sqlite3.Connection) -> None:
    application, version = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise UnusableError(
            unreadable(path, "it is the database of another program", hint=f"move {path} away")
        )
    if version > VERSION:
        why = f"a newer symphony wrote it (schema {version}, this one knows {VERSION})"
        raise UnusableError(unreadable(path, why, hint="upgrade symphony"))
    if version < VERSION:
        why = f"an older symphony wrote it (schema {version})"
        raise UnusableError(unreadable(path, why, hint="symphony run brings it up to date"))
