"""Records as rows and back: the only place that knows the columns.

A row that does not decode costs that row: a start tells and drops it, as a claim that nobody can read any
more must not come back with the next version of the program. Who may only read passes over it.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, assert_never

from symphony.domain.failures import Failure
from symphony.journal.codec import CodecError, column, decode, encode, restored
from symphony.journal.faults import notice
from symphony.journal.model import (
    ClaimGone,
    ClaimRecord,
    CommentRecord,
    DayRecord,
    EventRecord,
    IssueSpent,
    Record,
    Remembered,
    RunRecord,
    SettingRecord,
    SkillsRecord,
)
from symphony.scheduler.inputs import Spent

__all__ = [
    "INSERT_EVENT",
    "MAX_MESSAGE_CHARS",
    "Row",
    "Statement",
    "event_row",
    "load",
    "statements",
    "typed",
]

MAX_MESSAGE_CHARS = 2_000
_MAX_NAME_CHARS = 200
_UNSPENT = Spent()
Row = tuple[str | int | float | None, ...]
Statement = tuple[str, Row]
_T = TypeVar("_T")

_NEWEST_COMMENTS = """
SELECT issue_id, issue_id, kind, comment_id, fingerprint, at_wall_ms FROM comments
ORDER BY at_wall_ms DESC LIMIT 4096
"""
INSERT_EVENT = """
INSERT INTO events (issue_id, issue_identifier, run_id, at_wall_ms, event, message) VALUES (?, ?, ?, ?, ?, ?)
"""


def event_row(event: EventRecord) -> Row:
    """An event for `INSERT_EVENT`, its message cut.

    Raises:
        CodecError: it cannot be written.
    """
    return _row(
        event.issue_id, event.issue_identifier, event.run_id, event.at_wall_ms,
        _cut(event.event, _MAX_NAME_CHARS), _cut(event.message, MAX_MESSAGE_CHARS),
    )  # fmt: skip


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _row(*values: object) -> Row:
    return tuple(column(value) for value in values)


def statements(record: Record, *, now_wall_ms: int) -> Sequence[Statement]:
    """What writes a record.

    Raises:
        CodecError: it cannot be written.
    """
    match record:
        case RunRecord():
            made: Sequence[Statement] = [("REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", _run(record))]
        case EventRecord():
            made = [(INSERT_EVENT, event_row(record))]
        case CommentRecord():
            made = [("REPLACE INTO comments VALUES (?, ?, ?, ?, ?)", _comment(record))]
        case SkillsRecord():
            made = list(_skills(record, now_wall_ms))
        case IssueSpent(issue_id=issue_id, spent=spent) if spent == _UNSPENT:
            made = [("DELETE FROM spent WHERE issue_id = ?", _row(issue_id))]
        case IssueSpent(issue_id=issue_id, spent=spent):
            row = _row(issue_id, spent.tokens, spent.turns, now_wall_ms)
            made = [("REPLACE INTO spent VALUES (?, ?, ?, ?)", row)]
        case _:
            made = [_of_few_columns(record)]
    return made


def _of_few_columns(record: ClaimRecord | ClaimGone | DayRecord | SettingRecord) -> Statement:
    match record:
        case ClaimRecord():
            made: Statement = "REPLACE INTO claims VALUES (?, ?)", _row(record.issue.id, encode(record))
        case ClaimGone(issue_id=issue_id):
            made = "DELETE FROM claims WHERE issue_id = ?", _row(issue_id)
        case DayRecord(day=day, tokens=tokens):
            made = "REPLACE INTO days VALUES (?, ?)", _row(day, tokens)
        case SettingRecord(name=name, value=None):
            made = "DELETE FROM settings WHERE name = ?", _row(name)
        case SettingRecord(name=name, value=value):
            made = "REPLACE INTO settings VALUES (?, ?)", _row(name, value)
        case _:
            assert_never(record)
    return made


def _run(run: RunRecord) -> Row:
    return _row(
        run.run_id, run.issue_id, run.issue_identifier, run.started_wall_ms, run.ended_wall_ms, run.outcome,
        encode(run),
    )  # fmt: skip


def _comment(comment: CommentRecord) -> Row:
    return _row(
        comment.issue_id, comment.kind, comment.comment_id, comment.fingerprint, comment.at_wall_ms
    )  # fmt: skip


def _skills(record: SkillsRecord, now_wall_ms: int) -> Iterator[Statement]:
    yield "DELETE FROM skill_runs WHERE run_id = ?", _row(record.run_id)
    yield "INSERT INTO skill_runs VALUES (?, ?, ?)", _row(record.run_id, record.commit, now_wall_ms)
    for position, use in enumerate(record.skills):
        row = _row(record.run_id, position, use.name, use.path, use.sha256, use.listed, use.seen)
        yield "INSERT INTO skill_uses VALUES (?, ?, ?, ?, ?, ?, ?)", row


def load(connection: sqlite3.Connection, *, drop: bool) -> tuple[Remembered, tuple[Failure, ...]]:
    """What a start needs, and what was lost of it: rows that do not decode, which `drop` takes from the file.

    Raises:
        sqlite3.Error: the file cannot be read, or not written.
    """
    notices: list[Failure] = []

    def taken(table: str, key: str, query: str, made: Callable[..., _T]) -> list[_T]:
        whole, broken = [], []
        for row in connection.execute(query):
            try:
                whole.append(made(*row[1:]))
            except CodecError as error:
                broken.append((row[0], error))
        if broken and drop:
            connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", [(row[0],) for row in broken])  # noqa: S608 - names of ours
        if broken:
            notices.append(
                notice(f"{len(broken)} of the journal's {table} could not be read: {broken[0][1]}")
            )
        return whole

    alive = "SELECT run_id, record FROM runs WHERE ended_wall_ms IS NULL ORDER BY started_wall_ms, run_id"
    remembered = Remembered(
        claims=tuple(taken("claims", "issue_id", "SELECT issue_id, record FROM claims", _claim)),
        live_runs=tuple(taken("runs", "run_id", alive, lambda text: decode(text, RunRecord))),
        spent=dict(taken("spent", "issue_id", "SELECT issue_id, issue_id, tokens, turns FROM spent", _spent)),
        days=dict(taken("days", "day", "SELECT day, day, tokens FROM days", _day)),
        settings=dict(taken("settings", "name", "SELECT name, name, value FROM settings", _setting)),
        comments=tuple(taken("comments", "issue_id", _NEWEST_COMMENTS, _commented)),
    )
    return remembered, tuple(notices)


def _claim(text: object) -> ClaimRecord:
    return decode(text, ClaimRecord)


def _spent(issue_id: object, tokens: object, turns: object) -> tuple[str, Spent]:
    return restored(issue_id, str), restored({"tokens": tokens, "turns": turns}, Spent)


def _day(day: object, tokens: object) -> tuple[str, int]:
    return restored(day, str), restored(tokens, int)


def _setting(name: object, value: object) -> tuple[str, str]:
    return restored(name, str), restored(value, str)


def _commented(*row: object) -> CommentRecord:
    return typed(CommentRecord, ("issue_id", "kind", "comment_id", "fingerprint", "at_wall_ms"), row)


def typed(kind: type[_T], names: Sequence[str], row: Sequence[Any]) -> _T:
    """A value whose fields are columns.

    Raises:
        CodecError: the row holds no such value.
    """
    return restored(dict(zip(names, row, strict=True)), kind)
