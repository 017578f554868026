"""What the journal remembers, one record per fact, and what can be wrong with its file.

Times are of the wall clock, in ms since 1970. Records are upserts: the newest of a key wins, and a record
that is written twice changes nothing.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum, StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from symphony.domain import Blame, Category, Failure, Issue, SymphonyError, is_disk_full
from symphony.processes.base import Identity
from symphony.scheduler import ClaimKind, IssueResult, Resume, Spent

# Scheduler values as JSON text and back: what the journal's rows and recorded inputs are made of.
#
# Writing leaves out what equals its default, so that a field that is added later needs no new schema.
# Reading is strict about types and blind to unknown names.


_T = TypeVar("_T")
_MAX_CHARS = 8 * 1024 * 1024
_MAX_INTEGER = 2**63
_PLAIN = frozenset({str, int, float, bool, type(None)})
_WRITER = json.JSONEncoder(separators=(",", ":"))


class CodecError(ValueError):
    """A value that cannot be written, or a text that is not such a value; the message says why."""


def plain(value: Any, *, whole: tuple[type, ...] = ()) -> Any:
    """JSON of a value, sets sorted; what equals its default is left out, except in the `whole` types."""
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        every = isinstance(value, whole)
        return {
            name: plain(held, whole=whole)
            for name, default in _fields(type(value))
            if (held := getattr(value, name)) != default or every
        }
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: plain(held, whole=whole) for key, held in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [plain(held, whole=whole) for held in value]
    if isinstance(value, Enum):
        value = value.value
    return value.isoformat() if isinstance(value, datetime) else value


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[tuple[str, object], ...]:
    """The names and defaults of a dataclass, which `dataclasses.fields` would gather for each value."""
    return tuple((field.name, field.default) for field in fields(kind))


def encode(value: object) -> str:
    """The text of a value, in ASCII: half of a surrogate pair survives it too.

    Raises:
        CodecError: it holds what JSON does not know, or is larger than 8 MB.
    """
    try:
        text = _WRITER.encode(plain(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__}: {error}") from error
    if len(text) > _MAX_CHARS:
        raise CodecError(f"{type(value).__name__}: {len(text):,} characters are too many")
    return text


def decode(text: object, kind: type[_T]) -> _T:
    """The value of a text.

    Raises:
        CodecError: it is none of that kind.
    """
    if not isinstance(text, str):
        raise CodecError(f"{kind.__name__}: no text")
    try:
        return restored(json.loads(text), kind)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def restored(held: object, kind: type[_T]) -> _T:
    """The value that `plain` was made of.

    Raises:
        CodecError: it was made of none of that kind.
    """
    try:
        return msgspec.convert(held, kind)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def column(value: object) -> str | int | float | None:
    """The value as SQLite can hold it: half of a surrogate pair becomes its escape.

    Raises:
        CodecError: it is of another type, or a number of more than 64 bits.
    """
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
        case None | float():
            return value
        case bool():
            return int(value)
        case int() if not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise CodecError(f"a number of {value.bit_length()} bits is too large")
        case int():
            return value
        case _:
            raise CodecError(f"a column cannot hold a {type(value).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """A claim on an issue (key: the issue's id) and who holds it.

    `owner` is the daemon that wrote it. `run_id` is of a run, or of the run that was
    blocked. `due_wall_ms` is of a retry, `since_wall_ms` when the claim became
    what it is. The other fields are those of `RecoveredClaim`.
    """

    issue: Issue
    kind: ClaimKind
    owner: Identity
    since_wall_ms: int
    run_id: str | None = None
    attempt: int | None = None
    due_wall_ms: int | None = None
    error: str | None = None
    idle_attempts: int = 0
    failures: int = 0
    hopeless: bool = False
    workspace_path: str | None = None
    resume: Resume | None = None
    failure: Failure | None = None
    question: str | None = None
    settled: bool = False
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReleased:
    """The claim on an issue was released."""

    issue_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """What the runs of an issue came to (key: the issue's id), and when the last of them ended."""

    result: IssueResult
    ended_wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultReleased:
    """There is nothing to remember any more of what the runs of an issue came to."""

    issue_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run attempt (key: its id) as it stands; `ended_wall_ms` and `outcome` are null while it lives.

    `agent` is the process that was started for it; `reason` the one line why it ended as it did. By
    `agent_name` it was run for `agent_reason`; rows of older versions tell of neither.
    `attempt` is the number of the specification; for people it was attempt `attempt_number` of
    `attempt_limit`.
    """

    run_id: str
    issue_id: str
    issue_identifier: str
    started_wall_ms: int
    attempt: int | None = None
    ended_wall_ms: int | None = None
    outcome: str | None = None
    reason: str | None = None
    progress: bool | None = None
    commits: int = 0
    turns: int = 0
    session_id: str | None = None
    thread_id: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    workspace_path: str | None = None
    branch: str | None = None
    agent: Identity | None = None
    agent_name: str | None = None
    agent_reason: str | None = None
    attempt_number: int | None = None
    attempt_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """Something that happened to an issue; appended. `run_id` is null outside a run. Secrets are masked."""

    issue_id: str
    issue_identifier: str
    run_id: str | None
    at_wall_ms: int
    event: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentRecord:
    """A comment of ours (key: issue and kind), and what it was made from."""

    issue_id: str
    kind: str
    comment_id: str
    fingerprint: str
    at_wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsComment:
    """What the comment about skills on an issue shall say (key: the issue's id), and whether it says so.

    `tracker` tells the tracker that it is for from any other. `named` are the problems that it names, or has
    named where nothing is left to report: paths in harmless form, with codes. With `revise` it is said only
    where such a comment stands.
    """

    issue_id: str
    issue_identifier: str
    tracker: str
    body: str
    named: tuple[tuple[str, str], ...] = ()
    revise: bool = False
    said: bool = False
    at_wall_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUse:
    """One skill in one run; `sha256` is of the whole file, null if it was unreadable."""

    name: str
    path: str
    sha256: str | None
    listed: bool
    seen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsRecord:
    """What a run was told of skills (key: the run's id), and what it looked at."""

    run_id: str
    commit: str | None
    skills: tuple[SkillUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueSpent:
    """What an issue has used up of its budget (key: its id); nothing used up forgets it."""

    issue_id: str
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRecord:
    """What all issues used up on one day (key: the day, `YYYY-MM-DD`, UTC)."""

    day: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRecord:
    """One word of the daemon to its successor (key: the name), such as `paused`; null forgets it."""

    name: str
    value: str | None


Record = (
    ClaimRecord
    | ClaimReleased
    | ResultRecord
    | ResultReleased
    | RunRecord
    | EventRecord
    | CommentRecord
    | SkillsComment
    | SkillsRecord
    | IssueSpent
    | DayRecord
    | SettingRecord
)


class HealthState(StrEnum):
    """Whether what is put survives: `memory` means that it does not, for a reason that people are shown."""

    OK = "ok"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the journal is; `failure` says what is wrong and what to do."""

    state: HealthState
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredState:
    """What a predecessor left: everything a start needs, and no history; of comments the newest.

    Of what the comments about skills shall say, the newest as well, those first that do not say it yet.
    """

    claims: tuple[ClaimRecord, ...] = ()
    results: tuple[ResultRecord, ...] = ()
    live_runs: tuple[RunRecord, ...] = ()
    spent: Mapping[str, Spent] = field(default_factory=dict)
    days: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    comments: tuple[CommentRecord, ...] = ()
    skills_comments: tuple[SkillsComment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history is kept. Live runs are never trimmed, nor what is known of an issue with a claim.

    That is its comments and what it has used up; of its runs, those that ended go like any other.

    `max_age_ms` counts from the end of a run, `max_runs` are ended ones, `max_bytes` is what is in use of the
    file; what goes first is what ended first.
    """

    max_age_ms: int = 30 * 24 * 3_600_000
    max_runs: int = 5_000
    max_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimResult:
    """What a trim dropped; `bytes` is by how much the file shrank."""

    runs: int = 0
    events: int = 0
    bytes: int = 0

    def __add__(self, other: "TrimResult") -> "TrimResult":
        return TrimResult(
            runs=self.runs + other.runs, events=self.events + other.events, bytes=self.bytes + other.bytes
        )


# --- what is wrong with the file ----------------------------------------------------------------------------

FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""What a question to a file may raise: the words of an error may hold bytes of a damaged file."""
_PRIMARY = 0xFF
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PATIENCE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}
_WORDS = {
    sqlite3.SQLITE_BUSY: ("another process keeps it locked", "end the program that holds the file open"),
    sqlite3.SQLITE_LOCKED: ("another process keeps it locked", "end the program that holds the file open"),
    sqlite3.SQLITE_FULL: ("the disk is full", "make room on the disk of the state directory"),
    sqlite3.SQLITE_READONLY: ("it cannot be written", "make the state directory writable for this user"),
    sqlite3.SQLITE_PERM: ("it cannot be written", "make the state directory writable for this user"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "make the state directory writable for this user"),
}
ANEW = "the next start of the daemon sets the damaged file aside and begins a new one"
_ELSE = "look at the disk of the state directory"


class UnusableError(SymphonyError):
    """The file cannot be used as it is, and was left as it is."""


class DamagedError(Exception):
    """The file is not, or no longer, a journal of ours; the message says what is wrong with it."""


def unusable(path: Path, why: str, *, hint: str) -> Failure:
    """Why nothing that is put survives the daemon."""
    return Failure(
        category=Category.JOURNAL,
        blame=Blame.HOST,
        message=f"the journal {path} cannot be used: {why}; what happens now is forgotten at a restart",
        hint=hint,
    )


def unreadable(path: Path, why: str, *, hint: str) -> Failure:
    """Why what is remembered cannot be told."""
    return notice(f"the journal {path} cannot be read: {why}", hint=hint)


def notice(message: str, *, hint: str | None = None) -> Failure:
    """Something to be told once, with the journal in order."""
    return Failure(category=Category.JOURNAL, blame=Blame.HOST, message=message, hint=hint)


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY


def is_damage(error: BaseException) -> bool:
    """Whether the file itself is wrong, and not the disk or the moment."""
    return isinstance(error, UnicodeDecodeError) or _code(error) in _DAMAGE


def stays_open(error: BaseException) -> bool:
    """Whether the same connection may succeed later: another process's lock, or a full disk."""
    return _code(error) in _PATIENCE


def failure_of(path: Path, error: BaseException, *, reading: bool = False) -> Failure:
    """What an error of SQLite or of the file system means for people."""
    told = unreadable if reading else unusable
    if isinstance(error, UnusableError):
        return error.failure
    if isinstance(error, OSError):
        hint = _WORDS[sqlite3.SQLITE_FULL][1] if is_disk_full(error) else _ELSE
        return told(path, error.strerror or str(error), hint=hint)
    if reading and is_damage(error):
        return told(path, f"it is damaged ({error})", hint=ANEW)
    why, hint = _WORDS.get(_code(error), (str(error) or type(error).__name__, _ELSE))
    return told(path, why, hint=hint)
