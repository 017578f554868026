"""Reads the journal, for the command line and the API, with or without a running daemon.

A reader never writes. Each query sees everything committed before it. If the directory is not writable,
SQLite cannot create its files beside the journal. The journal is then opened as immutable, unless changes
wait in the write-ahead log.

    with open_reader(path) as reader:
        for found in reader.events("SYM-7", after_id=known): ...
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from symphony import sqlite
from symphony.domain import Failure
from symphony.journal import database, model
from symphony.journal.jobs import Job
from symphony.journal.skill_outcomes import (
    VersionOutcomes,
    version_outcomes,
)
from symphony.journal.skill_usage import SkillUsage

_BUSY_S = 1.0
_ALL_RUNS = 100_000
_T = TypeVar("_T")
Parameters = Sequence[str | int | None] | Mapping[str, str | int | None]


class NumberedEvent(Struct, frozen=True, kw_only=True):
    """An event and its id. Ids rise with time and are never reused."""

    id: int
    event: model.EventRecord


_ISSUE = """coalesce(
    :issue_id,
    (SELECT issue_id FROM claims
        WHERE CASE WHEN json_valid(record) THEN record ->> '$.claim.issue.identifier' END = :identifier),
    (SELECT issue_id FROM results
        WHERE CASE WHEN json_valid(record) THEN record ->> '$.result.issue.identifier' END = :identifier),
    (SELECT issue_id FROM (
        SELECT * FROM (
            SELECT issue_id, at_wall_ms FROM events WHERE issue_identifier = :identifier
            ORDER BY id DESC LIMIT 1
        ) UNION ALL SELECT * FROM (
            SELECT issue_id, started_wall_ms FROM runs WHERE issue_identifier = :identifier
            ORDER BY started_wall_ms DESC LIMIT 1
        )
    ) ORDER BY at_wall_ms DESC LIMIT 1)
)"""
"""SQL for the issue that has an identifier or had it last; a tracker may reuse identifiers."""

_USES = """
WITH known AS MATERIALIZED (
    SELECT recorded.run_id, coalesce(run.started_wall_ms, recorded.at_wall_ms) AS at_wall_ms,
        CASE WHEN run.run_id IS NOT NULL AND run.ended_wall_ms IS NULL THEN 'running'
            ELSE coalesce(run.outcome, 'unknown') END AS outcome
    FROM skill_runs AS recorded LEFT JOIN runs AS run ON run.run_id = recorded.run_id
    WHERE coalesce(run.started_wall_ms, recorded.at_wall_ms) >= ?
)
SELECT name, sha256, outcome, sum(listed), sum(seen), max(at_wall_ms)
FROM known JOIN skill_uses USING (run_id) GROUP BY name, sha256, outcome ORDER BY name, outcome
"""


class SkillReport(SkillUsage, frozen=True, kw_only=True):
    """The same with the start of the latest run."""

    last_used_wall_ms: int


def _skill_reports(connection: sqlite3.Connection, since_wall_ms: int) -> tuple[SkillReport, ...]:
    found = []
    for name, rows in groupby(connection.execute(_USES, (since_wall_ms,)), key=itemgetter(0)):
        outcomes, seen_outcomes = Counter[str](), Counter[str]()
        versions, last_used_wall_ms = set[str](), 0
        for _, sha256, outcome, listed, seen, at_wall_ms in rows:
            outcomes[outcome] += listed
            seen_outcomes[outcome] += seen
            versions |= set() if sha256 is None else {sha256}
            last_used_wall_ms = max(last_used_wall_ms, at_wall_ms)
        found.append(
            SkillReport(
                name=name,
                listed=outcomes.total(),
                seen=seen_outcomes.total(),
                outcomes=dict(+outcomes),
                seen_outcomes=dict(+seen_outcomes),
                versions=len(versions),
                last_used_wall_ms=last_used_wall_ms,
            )
        )
    return tuple(found)


class JournalReader:
    """Queries to an open journal. Rows that do not decode are left out.

    Every query raises `UnusableError` if the file is damaged or was removed.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self.connection = connection

    def claims(self) -> tuple[model.ClaimRecord, ...]:
        """The claims of the running daemon, or of the last one."""
        return self._records("SELECT record FROM claims", (), model.ClaimRecord)

    def results(self) -> tuple[model.ResultRecord, ...]:
        """What the runs of issues produced."""
        return self._records("SELECT record FROM results", (), model.ResultRecord)

    def recovered_state(self) -> model.RecoveredState:
        """The state with which the next daemon would start."""
        with self.translated_errors():
            return database.load(self.connection, drop=False)[0]

    def issue_id(self, issue_identifier: str) -> str | None:
        """The id of the issue that has this identifier, or had it last."""
        query, parameters = f"SELECT {_ISSUE}", {"identifier": issue_identifier, "issue_id": None}
        return next(iter(self._whole(query, parameters, lambda found: model.restored(found, str))), None)

    def runs(
        self, issue_identifier: str | None = None, *, issue_id: str | None = None, limit: int = 50
    ) -> tuple[model.RunRecord, ...]:
        """The latest runs of one issue or of all, newest first.

        An issue is found by its id, or by each identifier that it had and no other issue had later.
        """
        of_issue = "" if issue_identifier is None else f"WHERE issue_id = {_ISSUE}"
        order = "ORDER BY started_wall_ms DESC, run_id DESC LIMIT :limit"
        query = f"SELECT record FROM runs {of_issue} {order}"  # noqa: S608 - constants
        parameters = {"identifier": issue_identifier, "issue_id": issue_id, "limit": limit}
        return self._records(query, parameters, model.RunRecord)

    def runs_since(self, wall_ms: int) -> tuple[model.RunRecord, ...]:
        """All runs that started then or later, newest first."""
        query = (
            "SELECT record FROM runs WHERE started_wall_ms >= ? ORDER BY started_wall_ms DESC, run_id DESC"
        )
        return self._records(query, (wall_ms,), model.RunRecord)

    def identifiers(self) -> tuple[str, ...]:
        """The identifiers of all issues with runs or events."""
        query = """
        SELECT issue_identifier FROM runs UNION SELECT issue_identifier FROM events ORDER BY issue_identifier
        """
        return self._whole(query, (), str)

    def events(
        self, issue_identifier: str, *, after_id: int = 0, run_id: str | None = None, limit: int = 1_000
    ) -> tuple[NumberedEvent, ...]:
        """The events of an issue after `after_id`, oldest first; pass the last id to get the next page.

        The issue is found as in `runs`.
        """
        return self._events("ASC", issue_identifier, after_id=after_id, run_id=run_id, limit=limit)

    def latest_events(
        self,
        issue_identifier: str,
        *,
        issue_id: str | None = None,
        run_id: str | None = None,
        limit: int = 100,
    ) -> tuple[NumberedEvent, ...]:
        """The latest events of an issue, oldest first; it is found as in `runs`."""
        return self._events("DESC", issue_identifier, issue_id=issue_id, run_id=run_id, limit=limit)[::-1]

    def comments(self, issue_id: str | None = None) -> tuple[model.CommentRecord, ...]:
        """The comments that the daemon posted, on one issue or on all."""
        query = """
        SELECT issue_id, kind, comment_id, fingerprint, at_wall_ms FROM comments
        WHERE issue_id = coalesce(?, issue_id) ORDER BY issue_id, kind
        """
        return self._whole(query, (issue_id,), lambda *row: database.typed(model.CommentRecord, row))

    def told_comments(self, issue_id: str) -> tuple[model.ToldComment, ...]:
        """The comments of people that sessions of an issue got."""
        query = "SELECT record FROM told_comments WHERE issue_id = ?"
        found = self._whole(query, (issue_id,), partial(model.decode, kind=model.ToldComments))
        return found[0].comments if found else ()

    def jobs(self) -> tuple[Job, ...]:
        """The jobs that wait or were given up, the oldest first."""
        return self._records("SELECT record FROM jobs ORDER BY created_wall_ms", (), Job)

    def skills_report(self, *, since_wall_ms: int = 0) -> tuple[SkillReport, ...]:
        """How runs with skills ended since then, one report per skill, sorted by name."""
        with self.translated_errors():
            return _skill_reports(self.connection, since_wall_ms)

    def listed_skills(self, run_id: str) -> tuple[str, ...]:
        """The names of the skills that a run had in its list."""
        query = "SELECT DISTINCT name FROM skill_uses WHERE run_id = ? AND listed ORDER BY name"
        return self._whole(query, (run_id,), lambda name: model.restored(name, str))

    def skills_document(self, run_id: str) -> str | None:
        """The document of a run's skills, in JSON; `None` if there is none."""
        query = "SELECT document FROM skill_runs WHERE run_id = ? AND document != ''"
        return next(iter(self._whole(query, (run_id,), lambda text: model.restored(text, str))), None)

    def version_outcomes(
        self, *, since_wall_ms: int = 0, stars: Mapping[str, int] | None = None
    ) -> tuple[VersionOutcomes, ...]:
        """The outcomes of the runs since then, for each version of a skill, agent and model."""
        with self.translated_errors():
            return version_outcomes(self.connection, since_wall_ms, stars or {})

    def expired_runs(self, policy: model.Retention, *, now_wall_ms: int) -> tuple[str, ...]:
        """The runs that a trim would delete because of age or number; it may delete more because of size."""
        with self.translated_errors():
            return database.overdue(self.connection, policy, now_wall_ms=now_wall_ms)

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn errors of SQLite into `UnusableError`.

        Raises:
            UnusableError: the file cannot be read.
        """
        try:
            yield
        except sqlite.ERRORS as error:
            raise model.UnusableError(model.failure_of(self._path, error, reading=True)) from error

    def _events(
        self,
        order: str,
        identifier: str,
        *,
        issue_id: str | None = None,
        run_id: str | None,
        limit: int,
        after_id: int = 0,
    ) -> tuple[NumberedEvent, ...]:
        query = f"""
        SELECT id, issue_id, issue_identifier, run_id, at_wall_ms, event, message FROM events
        WHERE issue_id = {_ISSUE} AND id > :after_id AND run_id IS coalesce(:run_id, run_id)
        ORDER BY id {order} LIMIT :limit
        """  # noqa: S608 - constants
        return self._whole(
            query,
            {
                "identifier": identifier,
                "issue_id": issue_id,
                "after_id": after_id,
                "run_id": run_id,
                "limit": limit,
            },
            lambda number, *row: NumberedEvent(
                id=model.restored(number, int), event=database.typed(model.EventRecord, row)
            ),
        )

    def _records(self, query: str, parameters: Parameters, kind: type[_T]) -> tuple[_T, ...]:
        return self._whole(query, parameters, lambda text: model.decode(text, kind))

    def _whole(self, query: str, parameters: Parameters, made: Callable[..., _T]) -> tuple[_T, ...]:
        columns = (
            {name: model.column(value) for name, value in parameters.items()}
            if isinstance(parameters, Mapping)
            else [model.column(value) for value in parameters]
        )
        with self.translated_errors():
            rows = self.connection.execute(query, columns).fetchall()
        found = []
        for row in rows:
            with suppress(model.CodecError):
                found.append(made(*row))
        return tuple(found)


@contextmanager
def open_reader(path: Path) -> Iterator[JournalReader]:
    """Open the journal for queries from one thread. Blocks for up to a second while the file is locked.

    Raises:
        UnusableError: the file is missing, or this version cannot read it; the hint says what to do.
    """
    if not path.is_file():
        raise model.UnusableError(model.unreadable(path, "there is none", hint="symphony run begins one"))
    reader = JournalReader(path, _connect(path))
    try:
        with reader.translated_errors():
            _refuse_others(path, reader.connection)
        yield reader
    finally:
        reader.connection.close()


def past_issue_id(journal: Path, identifier: str) -> str | None:
    """The id of the issue that has or had this identifier; `None` if the journal has none. Blocking."""
    try:
        with open_reader(journal) as reader:
            return reader.issue_id(identifier)
    except model.UnusableError:
        return None


def past_runs(journal: Path, identifier: str, issue_id: str | None = None) -> tuple[model.RunRecord, ...]:
    """The runs of an issue, the newest first; empty if the journal cannot be read. Blocking."""
    try:
        with open_reader(journal) as reader:
            return reader.runs(identifier, issue_id=issue_id, limit=_ALL_RUNS)
    except model.UnusableError:
        return ()


def _connect(path: Path) -> sqlite3.Connection:
    """A read-only connection.

    Raises:
        UnusableError: the file cannot be opened.
    """
    try:
        return _connected(path, "ro")
    except sqlite.ERRORS as error:
        wal, shm = sqlite.companions(path)
        changes = shm.exists() or (wal.exists() and wal.stat().st_size > 0)
        if changes or sqlite.is_damage(error):
            raise model.UnusableError(model.failure_of(path, error, reading=True)) from error
    try:
        return _connected(path, "frozen")
    except sqlite.ERRORS as error:
        raise model.UnusableError(model.failure_of(path, error, reading=True)) from error


def _connected(path: Path, mode: sqlite.Mode) -> sqlite3.Connection:
    connection = database.connect(path, mode, busy_s=_BUSY_S)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_others(path: Path, connection: sqlite3.Connection) -> None:
    application, version = (sqlite.number(connection, name) for name in ("application_id", "user_version"))
    if application != database.APPLICATION_ID:
        raise model.UnusableError(
            model.unreadable(path, "it is the database of another program", hint=f"move {path} away")
        )
    if version > database.VERSION:
        why = f"a newer symphony wrote it (schema {version}, this one knows {database.VERSION})"
        raise model.UnusableError(model.unreadable(path, why, hint="upgrade symphony"))
    if 0 < version < database.VERSION:
        why = f"an older symphony wrote it (schema {version}, this one knows {database.VERSION})"
        raise model.UnusableError(model.unreadable(path, why, hint="symphony run brings it up to date"))
    if version < database.VERSION:
        raise model.UnusableError(
            model.unreadable(path, f"it is damaged (schema {version} is not known)", hint=model.DAMAGED_HINT)
        )


# --- check of the file -----------------------------------------------------------------------------------

_NEWEST = """
SELECT max(
    coalesce((SELECT max(at_wall_ms) FROM events), 0), coalesce((SELECT max(started_wall_ms) FROM runs), 0)
)
"""
_COUNTS = "SELECT (SELECT count(*) FROM claims), (SELECT count(*) FROM runs), (SELECT count(*) FROM events)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The state of the file at the path of the journal.

    Attributes:
        present: whether the file exists.
        bytes: size on disk, including the write-ahead log.
        newest_wall_ms: the time of the latest run or event.
        aside: damaged journals that were set aside earlier.
        failure: what is wrong; `None` for a sound journal and for a missing one.
    """

    path: Path
    present: bool
    bytes: int = 0
    version: int | None = None
    newest_wall_ms: int | None = None
    claims: int = 0
    runs: int = 0
    events: int = 0
    aside: tuple[Path, ...] = ()
    failure: Failure | None = None


def checkup(path: Path) -> Checkup:
    """Check the whole file without changing it, at about a gigabyte per second. Never raises."""
    size = 0
    for part in (path, *sqlite.companions(path)):
        with suppress(OSError):
            size += part.stat().st_size
    beside = sorted(path.parent.glob(f"{path.name}{database.ASIDE}*"))
    aside = tuple(part for part in beside if not part.name.endswith(("-wal", "-shm")))
    if not path.exists():
        return Checkup(path=path, present=False, aside=aside)
    found = Checkup(path=path, present=True, bytes=size, aside=aside)
    try:
        with open_reader(path) as reader, reader.translated_errors():
            found = replace(found, version=database.VERSION)
            if (damage := _damage(reader.connection)) is not None:
                return replace(
                    found,
                    failure=model.unreadable(path, f"it is damaged ({damage})", hint=model.DAMAGED_HINT),
                )
            claims, runs, events = reader.connection.execute(_COUNTS).fetchone()
            newest = reader.connection.execute(_NEWEST).fetchone()[0] or None
            return replace(found, newest_wall_ms=newest, claims=claims, runs=runs, events=events)
    except model.UnusableError as error:
        return replace(found, failure=error.failure)


def _damage(connection: sqlite3.Connection) -> str | None:
    if (damage := sqlite.damage(connection)) is not None:
        return damage
    table = database.missing_table(connection)
    return None if table is None else f"{table} is missing"
