"""The SQLite file of the journal: tables, opening, writing batches and trimming. Everything here blocks.

Records that a daemon reads as a whole are stored as JSON in a `record` column; their other columns exist only
for queries. A damaged file is set aside and kept. A file of another program, another user or a newer version
is never touched. A new file is made under another name and then renamed, so that a partial one never has the
journal's name.
"""

import os
import re
import shlex
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import astuple

from symphony import sqlite
from symphony.domain import Failure, Spent, Tokens
from symphony.journal import model
from symphony.journal.jobs import Job, JobDone

_T = TypeVar("_T")
_Record = TypeVar("_Record", bound=Struct)
Row = tuple[str | int | float | None, ...]
Statement = tuple[str, Row]
Key = tuple[str, ...]

# --- tables ----------------------------------------------------------------------------------------------

APPLICATION_ID = 0x53594D50
"""`SYMP`: distinguishes journals from other SQLite files."""

VERSION = 5
"""Changes with the tables. A file of an older version is migrated, and one of a newer version is refused."""

_TOLD_COMMENTS = """
CREATE TABLE told_comments (
    issue_id TEXT PRIMARY KEY, at_wall_ms INTEGER NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID;
"""
_JOBS = """
CREATE TABLE jobs (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, issue_id TEXT NOT NULL, state TEXT NOT NULL,
    created_wall_ms INTEGER NOT NULL, due_wall_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,
    record TEXT NOT NULL
) WITHOUT ROWID;
"""
_COUNTS = tuple(Tokens.__struct_fields__)
_SIZES = ("commits", "files_changed", "insertions", "deletions")
_FLAT = ", ".join(f"'$.{name}'" for name in _COUNTS)


def _object(place: str, names: Iterable[str]) -> str:
    """SQL for an object of the numbers with these names at a place of a record."""
    numbers = ", ".join(f"'{name}', record -> '{place}.{name}'" for name in names)
    return f"json_patch('{{}}', json_object({numbers}))"


def _gathered(table: str, place: str, target: str, names: Collection[str]) -> str:
    """SQL that moves numbers at a place of each record into a nested object."""
    flat = ", ".join(f"'{place}.{name}'" for name in names)
    changed = f"json_set(json_remove(record, {flat}), '{place}.{target}', {_object(place, names)})"
    return (
        f"UPDATE {table} SET record = {changed} "  # noqa: S608 - our names
        f"WHERE json_valid(record) AND record -> '{place}' IS NOT NULL"
    )


_BY_ISSUE_ID = (
    "CREATE INDEX runs_by_issue_id ON runs (issue_id, started_wall_ms)",
    "CREATE INDEX events_by_issue_id ON events (issue_id)",
)
_MIGRATIONS = {
    1: (
        "ALTER TABLE skill_runs ADD COLUMN document TEXT NOT NULL DEFAULT ''",
        _TOLD_COMMENTS,
        *_BY_ISSUE_ID,
    ),
    2: (
        "DELETE FROM skills_notes WHERE NOT said",  # the next run decides the text of the comment anew
        "ALTER TABLE skills_notes DROP COLUMN said",
        _JOBS,
    ),
    3: (
        f"""
        UPDATE runs SET record = json_set(
            json_remove(record, '$.turns', '$.commits', '$.session_id', '$.thread_id', '$.model',
                '$.workspace_path', '$.branch', '$.cost_usd', '$.unpriced_tokens', {_FLAT}),
            '$.facts', json_patch('{{}}', json_object(
                'tokens', {_object("$", _COUNTS)}, 'cost_usd', record -> '$.cost_usd',
                'unpriced_tokens', record -> '$.unpriced_tokens', 'turn_count', record -> '$.turns',
                'commits', record -> '$.commits', 'session_id', record ->> '$.session_id',
                'thread_id', record ->> '$.thread_id', 'model', record ->> '$.model',
                'workspace_path', record ->> '$.workspace_path', 'branch', record ->> '$.branch'
            ))
        ) WHERE json_valid(record)
        """,  # noqa: S608 - our names
        """
        UPDATE results SET record = json_set(
            json_remove(record, '$.result.total_tokens', '$.result.cost_usd', '$.result.unpriced_tokens'),
            '$.result.usage', json_patch('{}', json_object(
                'tokens', json_object('total_tokens', coalesce(record -> '$.result.total_tokens', 0)),
                'cost_usd', record -> '$.result.cost_usd',
                'unpriced_tokens', record -> '$.result.unpriced_tokens'
            ))
        ) WHERE json_valid(record)
        """,
        _gathered("results", "$.result.thread", "tokens", _COUNTS),
        _gathered("claims", "$.resume.thread", "tokens", _COUNTS),
        """
        UPDATE settings SET value = json_patch(value, json_object(
            'totals', json_object('tokens', NULL, 'cost', NULL, 'usage', json_patch('{}', json_object(
                'tokens', value -> '$.totals.tokens', 'cost_usd', value -> '$.totals.cost.usd',
                'unpriced_tokens', value -> '$.totals.cost.unpriced_tokens'
            ))),
            'day_cost', json_object('usd', NULL, 'cost_usd', value -> '$.day_cost.usd')
        )) WHERE name = 'usage' AND json_valid(value)
        """,
    ),
    4: (
        _gathered("runs", "$.facts", "work", _SIZES),
        _gathered("results", "$.result.delivered", "work", _SIZES),
        """
        UPDATE claims SET record = json_object(
            'claim', json_remove(record, '$.owner', '$.since_wall_ms', '$.due_wall_ms'),
            'owner', record -> '$.owner', 'since_wall_ms', record -> '$.since_wall_ms',
            'due_wall_ms', record -> '$.due_wall_ms'
        ) WHERE json_valid(record)
        """,
    ),
}
"""By version, the statements that lead to the next version."""

_SCHEMA = f"""
CREATE TABLE claims (issue_id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE results (issue_id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, issue_id TEXT NOT NULL, issue_identifier TEXT NOT NULL,
    started_wall_ms INTEGER NOT NULL, ended_wall_ms INTEGER, outcome TEXT, record TEXT NOT NULL
);
CREATE INDEX runs_by_issue ON runs (issue_identifier, started_wall_ms);
CREATE INDEX runs_by_start ON runs (started_wall_ms);
CREATE INDEX runs_alive ON runs (run_id) WHERE ended_wall_ms IS NULL;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, issue_id TEXT NOT NULL, issue_identifier TEXT NOT NULL,
    run_id TEXT, at_wall_ms INTEGER NOT NULL, event TEXT NOT NULL, message TEXT NOT NULL
);
CREATE INDEX events_by_issue ON events (issue_identifier);
CREATE INDEX events_by_run ON events (run_id);
CREATE TABLE comments (
    issue_id TEXT NOT NULL, kind TEXT NOT NULL, comment_id TEXT NOT NULL, fingerprint TEXT NOT NULL,
    at_wall_ms INTEGER NOT NULL, PRIMARY KEY (issue_id, kind)
) WITHOUT ROWID;
CREATE TABLE skills_notes (
    issue_id TEXT PRIMARY KEY, at_wall_ms INTEGER NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE pull_requests (
    issue_id TEXT PRIMARY KEY, is_open INTEGER NOT NULL, at_wall_ms INTEGER NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE skill_runs (
    run_id TEXT PRIMARY KEY, commit_id TEXT, at_wall_ms INTEGER NOT NULL, document TEXT NOT NULL
);
CREATE TABLE skill_uses (
    run_id TEXT NOT NULL REFERENCES skill_runs (run_id) ON DELETE CASCADE, position INTEGER NOT NULL,
    name TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT, listed INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (run_id, position)
) WITHOUT ROWID;
CREATE TABLE instruction_uses (
    run_id TEXT NOT NULL, phase TEXT NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL,
    sha256 TEXT NOT NULL, at_wall_ms INTEGER NOT NULL, PRIMARY KEY (run_id, phase, position)
) WITHOUT ROWID;
CREATE TABLE spent (
    issue_id TEXT PRIMARY KEY, tokens INTEGER NOT NULL, turns INTEGER NOT NULL, at_wall_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE days (day TEXT PRIMARY KEY, tokens INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
{_TOLD_COMMENTS}
{_JOBS}
{"; ".join(_BY_ISSUE_ID)};
"""
_CREATED = re.compile(r"CREATE TABLE (\w+)")
_TABLES = frozenset(_CREATED.findall(_SCHEMA))


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file."""
    connection.executescript(_SCHEMA)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def missing_table(connection: sqlite3.Connection) -> str | None:
    """The name of a table that the file lacks although its version should have it, or `None`."""
    found = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    for version in range(sqlite.number(connection, "user_version"), VERSION):
        found.update(_CREATED.findall("".join(_MIGRATIONS.get(version, ()))))
    return min(_TABLES - found, default=None)


# --- records as rows -------------------------------------------------------------------------------------

_MAX_MESSAGE_CHARS = 2_000
_MAX_NAME_CHARS = 200
_UNSPENT = Spent()

INSERT_EVENT = """
INSERT INTO events (issue_id, issue_identifier, run_id, at_wall_ms, event, message) VALUES (?, ?, ?, ?, ?, ?)
"""

# An update leaves the other indexes alone, which halves the pages that change.
_PUT_RUN = """
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET
    issue_identifier = excluded.issue_identifier, ended_wall_ms = excluded.ended_wall_ms,
    outcome = excluded.outcome, record = excluded.record
"""

_REACH = """
UPDATE runs SET record = json_set(record, ?, json('true')) WHERE run_id = (
    SELECT run_id FROM runs WHERE issue_id = ? AND record ->> '$.delivered'
    ORDER BY started_wall_ms DESC LIMIT 1
)
"""


def event_row(event: model.EventRecord) -> Row:
    """The row of an event for `INSERT_EVENT`, with its message cut to 2,000 characters.

    Raises:
        CodecError: the event cannot be written.
    """
    return _row(
        event.issue_id, event.issue_identifier, event.run_id, event.at_wall_ms,
        _cut(event.event, _MAX_NAME_CHARS), _cut(event.message, _MAX_MESSAGE_CHARS),
    )  # fmt: skip


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _row(*values: object) -> Row:
    return tuple(model.column(value) for value in values)


def _statements(record: model.Record, now_wall_ms: int) -> list[Statement]:  # noqa: C901, PLR0912, PLR0915 - one case per kind
    """The statements that write a record.

    Raises:
        CodecError: the record cannot be written.
    """
    match record:
        case model.ClaimRecord(claim=claim):
            made = [("REPLACE INTO claims VALUES (?, ?)", _row(claim.issue.id, model.encode(record)))]
        case model.ClaimReleased(issue_id=issue_id):
            made = [("DELETE FROM claims WHERE issue_id = ?", _row(issue_id))]
        case model.ResultRecord(result=result):
            made = [("REPLACE INTO results VALUES (?, ?)", _row(result.issue.id, model.encode(record)))]
        case model.ResultReleased(issue_id=issue_id):
            made = [("DELETE FROM results WHERE issue_id = ?", _row(issue_id))]
        case model.RunRecord() as run:
            row = _row(
                run.run_id, run.issue_id, run.issue_identifier, run.started_wall_ms, run.ended_wall_ms,
                run.outcome, model.encode(run),
            )  # fmt: skip
            made = [(_PUT_RUN, row)]
        case model.MilestoneRecord(milestone=milestone):
            row = _row(f"$.{milestone}", record.issue_id)
            made = [(_REACH, row)]
        case model.EventRecord():
            made = [(INSERT_EVENT, event_row(record))]
        case model.CommentRecord():
            row = _row(*astuple(record))
            made = [("REPLACE INTO comments VALUES (?, ?, ?, ?, ?)", row)]
        case model.ToldComments(issue_id=issue_id, at_wall_ms=at_wall_ms):
            made = [
                (
                    "REPLACE INTO told_comments VALUES (?, ?, ?)",
                    _row(issue_id, at_wall_ms, model.encode(record)),
                )
            ]
        case model.SkillsComment(issue_id=issue_id, at_wall_ms=at_wall_ms):
            row = _row(issue_id, at_wall_ms, model.encode(record))
            made = [("REPLACE INTO skills_notes VALUES (?, ?, ?)", row)]
        case model.PullRequestRecord(issue=issue, is_open=is_open, at_wall_ms=at_wall_ms):
            row = _row(issue.id, is_open, at_wall_ms, model.encode(record))
            made = [("REPLACE INTO pull_requests VALUES (?, ?, ?, ?)", row)]
        case Job(key=key):
            row = _row(
                key, record.kind, record.issue_id, record.state.value, record.created_wall_ms,
                record.due_wall_ms, record.attempts, model.encode(record),
            )  # fmt: skip
            made = [("REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)]
        case JobDone(key=key):
            made = [("DELETE FROM jobs WHERE key = ?", _row(key))]
        case model.SkillsRecord(run_id=run_id):
            made = [
                ("DELETE FROM skill_runs WHERE run_id = ?", _row(run_id)),
                (
                    "INSERT INTO skill_runs VALUES (?, ?, ?, ?)",
                    _row(run_id, record.commit, now_wall_ms, record.document),
                ),
            ]
            for position, use in enumerate(record.skills):
                row = _row(run_id, position, use.name, use.path, use.sha256, use.listed, use.seen)
                made.append(("INSERT INTO skill_uses VALUES (?, ?, ?, ?, ?, ?, ?)", row))
        case model.InstructionsRecord(run_id=run_id, phase=phase):
            made = [("DELETE FROM instruction_uses WHERE run_id = ? AND phase = ?", _row(run_id, phase))]
            for position, module in enumerate(record.modules):
                row = _row(run_id, phase, position, module.name, module.sha256, now_wall_ms)
                made.append(("INSERT INTO instruction_uses VALUES (?, ?, ?, ?, ?, ?)", row))
        case model.IssueSpent(issue_id=issue_id, spent=spent) if spent == _UNSPENT:
            made = [("DELETE FROM spent WHERE issue_id = ?", _row(issue_id))]
        case model.IssueSpent(issue_id=issue_id, spent=spent):
            row = _row(issue_id, spent.tokens, spent.turns, now_wall_ms)
            made = [("REPLACE INTO spent VALUES (?, ?, ?, ?)", row)]
        case model.DayRecord(day=day, tokens=tokens):
            made = [("REPLACE INTO days VALUES (?, ?)", _row(day, tokens))]
        case model.SettingRecord(name=name, value=None):
            made = [("DELETE FROM settings WHERE name = ?", _row(name))]
        case model.SettingRecord(name=name, value=value):
            made = [("REPLACE INTO settings VALUES (?, ?)", _row(name, value))]
        case _:
            assert_never(record)
    return made


def typed(kind: type[_Record], row: Sequence[object]) -> _Record:
    """A record from a row whose columns are its fields in order.

    Raises:
        CodecError: a column has the wrong type.
    """
    return model.restored(dict(zip(kind.__struct_fields__, row, strict=True)), kind)


def load(connection: sqlite3.Connection, *, drop: bool) -> tuple[model.RecoveredState, tuple[Failure, ...]]:
    """The state for a start, and a notice for each table with rows that do not decode.

    Such rows are skipped. `drop` deletes them, because a claim that cannot be read must not reappear with the
    next version of the program.

    Raises:
        sqlite3.Error: the file cannot be read or written.
    """
    notices: list[Failure] = []

    def read(table: str, columns: str, made: Callable[..., _T], clause: str = "") -> tuple[_T, ...]:
        key = {"runs": "run_id", "days": "day", "settings": "name", "jobs": "key"}.get(table, "issue_id")
        values, broken = [], []
        for row in connection.execute(f"SELECT {key}, {columns} FROM {table} {clause}"):  # noqa: S608 - our names
            try:
                values.append(made(*row[1:]))
            except model.CodecError as error:
                broken.append((row[0], error))
        if broken and drop:
            connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", [(row[0],) for row in broken])  # noqa: S608 - our names
        if broken:
            reason = f"{len(broken)} of the journal's {table} could not be read: {broken[0][1]}"
            notices.append(model.notice(reason))
        return tuple(values)

    alive = "WHERE ended_wall_ms IS NULL ORDER BY started_wall_ms, run_id"
    columns = "issue_id, kind, comment_id, fingerprint, at_wall_ms"
    remembered = model.RecoveredState(
        claims=read("claims", "record", partial(model.decode, kind=model.ClaimRecord)),
        results=read("results", "record", partial(model.decode, kind=model.ResultRecord)),
        live_runs=read("runs", "record", partial(model.decode, kind=model.RunRecord), alive),
        spent=dict(read("spent", "issue_id, tokens, turns", _spent)),
        days=dict(read("days", "day, tokens", lambda *row: model.restored(row, tuple[str, int]))),
        settings=dict(read("settings", "name, value", lambda *row: model.restored(row, tuple[str, str]))),
        worked_on=frozenset(
            str(issue_id)
            for (issue_id,) in connection.execute(
                "SELECT DISTINCT issue_id FROM runs WHERE ended_wall_ms IS NOT NULL"
            )
        ),
        comments=read("comments", columns, _comment, "ORDER BY at_wall_ms DESC LIMIT 4096"),
        skills_comments=read(
            "skills_notes",
            "record",
            partial(model.decode, kind=model.SkillsComment),
            "ORDER BY at_wall_ms DESC LIMIT 4096",
        ),
        pull_requests=read("pull_requests", "record", partial(model.decode, kind=model.PullRequestRecord)),
        jobs=read("jobs", "record", partial(model.decode, kind=Job), "ORDER BY created_wall_ms"),
    )
    return remembered, tuple(notices)


def _spent(issue_id: object, tokens: object, turns: object) -> tuple[str, Spent]:
    return model.restored(issue_id, str), model.restored({"tokens": tokens, "turns": turns}, Spent)


def _comment(*row: object) -> model.CommentRecord:
    return typed(model.CommentRecord, row)


# --- opening ---------------------------------------------------------------------------------------------

ASIDE = ".damaged-"
_KEPT_ASIDE = 5
_PAGE_BYTES = 4_096
_MAX_WAL_BYTES = 16 * 1024 * 1024
_LATER_BUSY_MS = 500


def connect(path: Path, mode: sqlite.Mode, *, busy_s: float) -> sqlite3.Connection:
    """Open an existing journal; text that is not UTF-8, as in a damaged file, is replaced.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = sqlite.connect(path, mode, busy_s=busy_s)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def open_database(path: Path, *, now_wall_ms: int, busy_ms: int) -> "Database":
    """Open or create the journal. Waits for up to `busy_ms` while another process locks it.

    Raises:
        UnusableError: the file cannot be used, and was not changed.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return _open(path, now_wall_ms, busy_ms)
        except sqlite.DamagedError as damage:
            aside = _set_aside(path, now_wall_ms)
            database = _open(path, now_wall_ms, busy_ms)
            damaged = model.notice(
                f"the journal {path} was damaged ({damage}); a new one was begun without the history",
                hint=f"the damaged one is stored as {aside.name}; delete it when you do not need it",
            )
            database.notices = (damaged, *database.notices)
            return database
    except (OSError, *sqlite.ERRORS, sqlite.DamagedError) as error:
        raise model.UnusableError(model.failure_of(path, error)) from error


def _open(path: Path, now_wall_ms: int, busy_ms: int) -> "Database":
    if _is_present(path):
        application, version = sqlite.identity(path)
        if application != APPLICATION_ID:
            raise model.UnusableError(
                model.unusable(path, "it is the database of another program", hint=f"move {path} away")
            )
        _refuse_other_versions(path, version)
    else:
        sqlite.create(path, partial(_fill, now_wall_ms=now_wall_ms))
    connection = connect(path, "rw", busy_s=busy_ms / 1000)
    try:
        return _checked(connection, path)
    except BaseException as error:
        with suppress(sqlite3.Error):
            connection.close()
        if sqlite.is_damage(error):
            raise sqlite.DamagedError(str(error)) from error
        raise


def _is_present(path: Path) -> bool:
    """Whether there is a file of this user to open; an empty one is removed."""
    try:
        is_regular, status = sqlite.is_regular(path), path.lstat()
    except FileNotFoundError:
        return False
    if not is_regular:
        raise model.UnusableError(model.unusable(path, "it is not a regular file", hint=f"move {path} away"))
    if status.st_uid != os.geteuid():
        why = f"it belongs to another user (uid {status.st_uid})"
        command = f"chown {os.geteuid()} {shlex.quote(str(path))}"
        hint = f"run symphony as that user, or give the file back: {command}"
        raise model.UnusableError(model.unusable(path, why, hint=hint))
    if status.st_size == 0:
        path.unlink()
    elif status.st_mode & 0o077:
        path.chmod(0o600)
    return status.st_size > 0


def _refuse_other_versions(path: Path, version: int) -> None:
    if version > VERSION:
        why = f"a newer symphony wrote it (schema {version}, this one knows {VERSION})"
        raise model.UnusableError(model.unusable(path, why, hint=f"upgrade symphony, or move {path} away"))
    if version < VERSION and version not in _MIGRATIONS:
        raise sqlite.DamagedError(f"schema {version} is not known")


def _fill(connection: sqlite3.Connection, *, now_wall_ms: int) -> None:
    """Make an empty journal.

    Event ids begin at the present time, so that the position of a reader in an earlier file is below them.
    """
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    create_tables(connection)
    connection.execute("INSERT INTO sqlite_sequence VALUES ('events', ?)", (now_wall_ms,))
    connection.execute("PRAGMA journal_mode = WAL")


def _checked(connection: sqlite3.Connection, path: Path) -> "Database":
    _refuse_other_versions(path, sqlite.number(connection, "user_version"))
    if (damage := sqlite.damage(connection)) is not None:
        raise sqlite.DamagedError(damage)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrated = sqlite.migrate(connection, _MIGRATIONS, VERSION)  # raises if it cannot be written
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK):
            raise sqlite.DamagedError("its format is not known") from error
        raise
    if (table := missing_table(connection)) is not None:
        raise sqlite.DamagedError(f"{table} is missing")
    connection.execute("COMMIT" if migrated else "ROLLBACK")
    remembered, notices = load(connection, drop=True)
    if _identity(path) is None:
        raise sqlite.DamagedError("it was removed")
    connection.execute(f"PRAGMA busy_timeout = {_LATER_BUSY_MS}")
    return Database(path, connection, recovered_state=remembered, notices=notices)


def _set_aside(path: Path, now_wall_ms: int) -> Path:
    """Rename a damaged file and its companions; keep only the newest five of such files."""
    moment = datetime.fromtimestamp(now_wall_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}{ASIDE}{moment}")
    number = 1
    while any(taken.exists() for taken in (aside, *sqlite.companions(aside))):
        number += 1
        aside = path.with_name(f"{path.name}{ASIDE}{moment}.{number}")
    parts = zip((path, *sqlite.companions(path)), (aside, *sqlite.companions(aside)), strict=True)
    for source, target in parts:
        with suppress(FileNotFoundError):
            source.rename(target)
    names = {found.name for found in path.parent.glob(f"{path.name}{ASIDE}*")}
    mains = sorted({name.removesuffix("-wal").removesuffix("-shm") for name in names} - {aside.name})
    for name in mains[: max(len(mains) - _KEPT_ASIDE + 1, 0)]:
        old = path.with_name(name)
        for part in (old, *sqlite.companions(old)):
            with suppress(OSError):
                part.unlink()
    return aside


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at the path, or `None`."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


# --- the open file ---------------------------------------------------------------------------------------

MAX_EVENTS = 500
_KEPT_FIRST = 50
_KEPT_LAST = MAX_EVENTS - 2 * _KEPT_FIRST
_MAX_COUNTED = 10_000
Scope = tuple[str, str]

_COUNT = {
    "run": "SELECT count(*) FROM events WHERE run_id = ?",
    "issue": "SELECT count(*) FROM events WHERE issue_identifier = ? AND run_id IS NULL",
}
_TRIM = {
    "run": """
    DELETE FROM events WHERE run_id = :name
    AND id NOT IN (SELECT id FROM events WHERE run_id = :name ORDER BY id LIMIT :first)
    AND id NOT IN (SELECT id FROM events WHERE run_id = :name ORDER BY id DESC LIMIT :last)
    """,
    "issue": """
    DELETE FROM events WHERE issue_identifier = :name AND run_id IS NULL AND id NOT IN (
        SELECT id FROM events WHERE issue_identifier = :name AND run_id IS NULL ORDER BY id LIMIT :first
    ) AND id NOT IN (
        SELECT id FROM events WHERE issue_identifier = :name AND run_id IS NULL ORDER BY id DESC LIMIT :last
    )
    """,
}


class Batch(Struct, frozen=True, kw_only=True):
    """The content of one transaction: the newest record of each key, and events in order."""

    records: tuple[model.Record, ...] = ()
    events: tuple[model.EventRecord, ...] = ()


class Database:
    """An open journal, made by `open_database` and used by one thread at a time.

    Attributes:
        recovered_state: what the previous daemon left.
        notices: notices about the opening, for people.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        recovered_state: model.RecoveredState,
        notices: tuple[Failure, ...],
    ) -> None:
        self.connection = connection
        self.recovered_state = recovered_state
        self.notices = notices
        self._path = path
        self._identity = _identity(path)
        self._counts: dict[Scope, int] = {}

    @property
    def in_place(self) -> bool:
        """Whether the path still names the open file."""
        return _identity(self._path) == self._identity

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self.connection.close()

    def write(self, batch: Batch, *, now_wall_ms: int, is_snapshot: bool = False) -> tuple[Failure, ...]:
        """Write a batch in one transaction, and return a notice for each record that cannot be encoded.

        The claims and results of a snapshot replace those in the file.

        Raises:
            sqlite3.Error: nothing was written.
        """
        notices: list[Failure] = []
        planned: list[Statement] = []
        for record in (*batch.records, *batch.events):
            try:
                planned += _statements(record, now_wall_ms)
            except model.CodecError as error:
                kind = "n event" if isinstance(record, model.EventRecord) else f" {type(record).__name__}"
                notices.append(model.notice(f"the journal left out a{kind}: {error}"))
        try:
            with sqlite.transaction(self.connection):
                if is_snapshot:
                    self.connection.execute("DELETE FROM claims")
                    self.connection.execute("DELETE FROM results")
                for sql, group in groupby(planned, key=itemgetter(0)):
                    rows = [row for _, row in group]
                    self.connection.executemany(sql, rows)
                    if sql is INSERT_EVENT:
                        self._bound_events(rows)
        except BaseException:
            self._counts.clear()  # the counts include records that were rolled back
            raise
        return tuple(notices)

    def _bound_events(self, added: Iterable[Row]) -> None:
        """Limit the events of each run, or of an issue outside of runs, to the first and the latest ones."""
        for scope, count in Counter(_scope(row) for row in added).items():
            kind, name = scope
            known = self._counts.get(scope)
            if known is None:
                now = int(self.connection.execute(_COUNT[kind], (name,)).fetchone()[0])
            else:
                now = known + count
            if now > MAX_EVENTS:
                bounds = {"name": name, "first": _KEPT_FIRST, "last": _KEPT_LAST}
                self.connection.execute(_TRIM[kind], bounds)
                now = _KEPT_FIRST + _KEPT_LAST
            self._counts[scope] = now
        if len(self._counts) > _MAX_COUNTED:
            self._counts.clear()


def _scope(row: Row) -> Scope:
    """The run whose limit applies to an event, or its issue if the event belongs to no run."""
    _, identifier, run_id, *_ = row
    return ("issue", str(identifier)) if run_id is None else ("run", str(run_id))


# --- trimming --------------------------------------------------------------------------------------------

RUNS_PER_STEP = 20
"""How many runs are deleted together; that takes a few milliseconds."""
_EVENTS_PER_STEP = 1_000
_PAGES_PER_STEP = 256

_OVERDUE = """
SELECT run_id FROM runs WHERE ended_wall_ms IS NOT NULL AND (
    ended_wall_ms < ? OR run_id NOT IN (
        SELECT run_id FROM runs WHERE ended_wall_ms IS NOT NULL ORDER BY ended_wall_ms DESC, run_id LIMIT ?
    )
) ORDER BY ended_wall_ms, run_id
"""
_OLDEST = """
SELECT run_id FROM runs WHERE ended_wall_ms IS NOT NULL ORDER BY ended_wall_ms, run_id LIMIT ?
"""
_LOOSE = """
DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE at_wall_ms < ?
    AND (run_id IS NULL OR run_id NOT IN (SELECT run_id FROM runs)) LIMIT ?
)
"""
_OLDEST_LOOSE = """
DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE run_id IS NULL OR run_id NOT IN (SELECT run_id FROM runs) ORDER BY id LIMIT ?
)
"""
_UNCLAIMED = "issue_id NOT IN (SELECT issue_id FROM claims)"
_WITHOUT_RESULT = "issue_id NOT IN (SELECT issue_id FROM results)"
_OF_ISSUE = {
    "comments": _UNCLAIMED,
    "told_comments": _UNCLAIMED,
    "skills_notes": _UNCLAIMED,
    "pull_requests": f"NOT is_open AND {_WITHOUT_RESULT}",
}
"""Rows of issues to delete when they are too old or have no run left: tables and conditions."""

_AGED = (
    *(f"DELETE FROM {table} WHERE at_wall_ms < ? AND {over}" for table, over in _OF_ISSUE.items()),  # noqa: S608 - our names
    f"DELETE FROM spent WHERE at_wall_ms < ? AND {_UNCLAIMED}",  # noqa: S608 - our names
    "DELETE FROM skill_runs WHERE at_wall_ms < ? AND run_id NOT IN (SELECT run_id FROM runs)",
    "DELETE FROM instruction_uses WHERE at_wall_ms < ? AND run_id NOT IN (SELECT run_id FROM runs)",
)
_FORGOTTEN = tuple(
    f"DELETE FROM {table} WHERE issue_id = :issue AND {over} "  # noqa: S608 - our names
    "AND NOT EXISTS (SELECT 1 FROM runs WHERE issue_id = :issue)"
    for table, over in {
        **_OF_ISSUE,
        "events": f"run_id IS NULL AND {_UNCLAIMED} AND {_WITHOUT_RESULT}",
    }.items()
)
_OF_RUN = ("events", "skill_runs", "instruction_uses", "runs")


def overdue(connection: sqlite3.Connection, policy: model.Retention, *, now_wall_ms: int) -> tuple[str, ...]:
    """The ended runs that are too old or too many, the oldest first."""
    bounds = (now_wall_ms - policy.max_age_ms, policy.max_runs)
    return tuple(str(run_id) for (run_id,) in connection.execute(_OVERDUE, bounds))


def _used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the file without its free pages."""
    pages, free, size = (
        sqlite.number(connection, name) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def make_room(connection: sqlite3.Connection, policy: model.Retention, *, now_wall_ms: int) -> None:
    """Delete the oldest of the runs that are too old or too many, at most `2 * RUNS_PER_STEP`.

    Their pages are reused, so that the file of a busy daemon keeps its size between two trims.

    Raises:
        sqlite3.Error: nothing was deleted.
    """
    _drop(connection, overdue(connection, policy, now_wall_ms=now_wall_ms)[: 2 * RUNS_PER_STEP])


def trim_steps(
    connection: sqlite3.Connection, policy: model.Retention, *, now_wall_ms: int
) -> Iterator[model.TrimResult]:
    """Delete excess history; each step is a transaction of a few milliseconds and yields its result.

    Raises:
        sqlite3.Error: a step failed; the earlier ones are committed.
    """
    before = sqlite.number(connection, "page_count")
    oldest = now_wall_ms - policy.max_age_ms
    names = overdue(connection, policy, now_wall_ms=now_wall_ms)
    for place in range(0, len(names), RUNS_PER_STEP):
        chosen = names[place : place + RUNS_PER_STEP]
        yield model.TrimResult(runs=len(chosen), events=_drop(connection, chosen))
    while dropped := connection.execute(_LOOSE, (oldest, _EVENTS_PER_STEP)).rowcount:
        yield model.TrimResult(events=dropped)
    for sql in _AGED:
        connection.execute(sql, (oldest,))
        yield model.TrimResult()
    day = datetime.fromtimestamp(max(oldest, 0) / 1000, UTC).date().isoformat()
    connection.execute("DELETE FROM days WHERE day < ?", (day,))
    while _used_bytes(connection) > policy.max_bytes:  # the oldest runs, then the oldest loose events
        chosen = tuple(str(run_id) for (run_id,) in connection.execute(_OLDEST, (RUNS_PER_STEP,)))
        if chosen:
            yield model.TrimResult(runs=len(chosen), events=_drop(connection, chosen))
        elif dropped := connection.execute(_OLDEST_LOOSE, (_EVENTS_PER_STEP,)).rowcount:
            yield model.TrimResult(events=dropped)
        else:
            break
    free = sqlite.number(connection, "freelist_count")
    while free:  # return free pages to the disk, a megabyte at a time
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_PER_STEP})").fetchall()
        left = sqlite.number(connection, "freelist_count")
        if left >= free:
            break
        free = left
        yield model.TrimResult()
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    freed = (before - sqlite.number(connection, "page_count")) * sqlite.number(connection, "page_size")
    yield model.TrimResult(bytes=max(freed, 0))


def _drop(connection: sqlite3.Connection, run_ids: tuple[str, ...]) -> int:
    """Delete runs and their data, and the data of issues without further runs.

    Returns the number of events.
    """
    rows = [(run_id,) for run_id in run_ids]
    marks = ", ".join("?" * len(run_ids))
    of_runs = f"SELECT DISTINCT issue_id FROM runs WHERE run_id IN ({marks})"  # noqa: S608 - question marks
    with sqlite.transaction(connection):
        issues = [{"issue": issue_id} for (issue_id,) in connection.execute(of_runs, run_ids)]
        dropped = [
            connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", rows).rowcount  # noqa: S608 - our names
            for table in _OF_RUN
        ]
        forgotten = [connection.executemany(sql, issues).rowcount for sql in _FORGOTTEN]
    return dropped[0] + forgotten[-1]
