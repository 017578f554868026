"""The journal's records, their JSON form, and the errors of its file.

Times are wall-clock times in ms since 1970. Records are upserts: the newest record of a key wins, and writing
a record twice changes nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum, StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from symphony import domain, sqlite
from symphony.journal.jobs import Job, JobDone
from symphony.processes.base import Identity
from symphony.scheduler import IssueResult, NeedsYouCode, PullLedger, StoredClaim

_T = TypeVar("_T")

# --- values as JSON --------------------------------------------------------------------------------------
# This form is used for the journal's rows and for recordings. Fields that equal their default are left out,
# so a new field needs no new schema. Reading checks types and ignores unknown names.

_MAX_CHARS = 8 * 1024 * 1024
_MAX_INTEGER = 2**63
_PLAIN = frozenset({str, int, float, bool, type(None)})
_WRITER = json.JSONEncoder(separators=(",", ":"))


class CodecError(ValueError):
    """A value that cannot be written, or a text that does not decode; the message says why."""


def plain(value: Any, *, whole: tuple[type, ...] = ()) -> Any:
    """A value as JSON types, with sorted sets. Fields that equal their default are left out.

    Args:
        value: a dataclass, a Struct, an enum, a date, or a collection of these.
        whole: values of these types keep all fields.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, msgspec.Struct) or (is_dataclass(value) and not isinstance(value, type)):
        keep_all = isinstance(value, whole)
        return {
            name: plain(item, whole=whole)
            for name, default in _fields(type(value))
            if (item := getattr(value, name)) != default or keep_all
        }
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: plain(item, whole=whole) for key, item in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [plain(item, whole=whole) for item in value]
    if isinstance(value, Enum):
        value = value.value
    return value.isoformat() if isinstance(value, datetime) else value


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[tuple[str, object], ...]:
    """The names and defaults of a record, cached because finding them is slow."""
    if issubclass(kind, msgspec.Struct):
        return tuple((each.name, each.default) for each in msgspec.structs.fields(kind))
    return tuple((field.name, field.default) for field in fields(cast("type[Any]", kind)))


def encode(value: object) -> str:
    """The JSON text of a value, in ASCII, so that lone surrogates survive.

    Raises:
        CodecError: JSON cannot express the value, or the text is larger than 8 MB.
    """
    try:
        text = _WRITER.encode(plain(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__}: {error}") from error
    if len(text) > _MAX_CHARS:
        raise CodecError(f"{type(value).__name__}: {len(text):,} characters are too many")
    return text


def decode(text: object, kind: type[_T]) -> _T:
    """The value of a JSON text.

    Raises:
        CodecError: the text is not a value of that type.
    """
    if not isinstance(text, str):
        raise CodecError(f"{kind.__name__}: not a text")
    try:
        return restored(json.loads(text), kind)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def restored(value: object, kind: type[_T]) -> _T:
    """The inverse of `plain`.

    Raises:
        CodecError: the JSON value is not one of that type.
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def column(value: object) -> str | int | float | None:
    """A value as SQLite can store it; lone surrogates become escapes.

    Raises:
        CodecError: the value has another type, or is a number of more than 64 bits.
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
            raise CodecError(f"a column cannot store a {type(value).__name__}")


# --- records ---------------------------------------------------------------------------------------------


class ClaimRecord(Struct, frozen=True, kw_only=True):
    """A claim on an issue. Key: the issue's id.

    Attributes:
        claim: the claim without times, because times are on the clock of one daemon.
        owner: the daemon that wrote the record.
        since_wall_ms: when the run started, the issue was blocked, or the retry was scheduled.
        due_wall_ms: when a retry is due.
    """

    claim: StoredClaim
    owner: Identity
    since_wall_ms: int
    due_wall_ms: int | None = None


class ClaimReleased(Struct, frozen=True, kw_only=True):
    """The claim on an issue was released."""

    issue_id: str


class ResultRecord(Struct, frozen=True, kw_only=True):
    """What the runs of an issue produced, and when the last run ended. Key: the issue's id."""

    result: IssueResult
    ended_wall_ms: int


class ResultReleased(Struct, frozen=True, kw_only=True):
    """The result of an issue was dropped."""

    issue_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run attempt. Key: its id.

    Attributes:
        attempt: the attempt number of the specification; for people it is `attempt_number` of
            `attempt_limit`.
        ended_wall_ms: `None`, like `outcome`, while the run is live.
        reason: why the run ended, in one line.
        agent: the process of the agent.
        agent_name: the agent that was chosen, because of `agent_reason`.
        facts: what the run did; its model is the one that the agent reported, else the configured one.
        issue_state: the state of the issue at the tracker when the run started.
        issue_title: its title then; `None` in rows of older versions.
        delivered: whether the run added work to the branch that it delivered.
        head: the commit that it delivered; `None` without one, and in rows of older versions.
        verified: the status of the verification of its delivery; `None` if there was none.
        blocked: whether the issue waits for a person since this run.
        ready: whether the issue left the active states with the work that this run delivered last.
        merged: whether that work is known to be merged.
        library_versions: by name, the versions of the skills of the library that the run had.
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
    facts: domain.RunFacts = domain.NO_FACTS
    issue_state: str | None = None
    issue_title: str | None = None
    agent: Identity | None = None
    agent_name: str | None = None
    agent_reason: str | None = None
    attempt_number: int | None = None
    attempt_limit: int | None = None
    delivered: bool = False
    head: str | None = None
    verified: domain.VerificationStatus | None = None
    blocked: bool = False
    ready: bool = False
    merged: bool = False
    library_versions: Mapping[str, int] | None = None


class Milestone(StrEnum):
    """A milestone of delivered work; each value is a field of `RunRecord`."""

    READY = "ready"
    MERGED = "merged"


class MilestoneRecord(Struct, frozen=True, kw_only=True):
    """Delivered work reached a milestone; it counts for the run that delivered last.

    Key: issue and milestone.
    """

    issue_id: str
    issue_identifier: str
    milestone: Milestone


class EventRecord(Struct, frozen=True, kw_only=True):
    """One line of an issue's history, with secrets masked. Appended; `run_id` is `None` outside a run."""

    issue_id: str
    issue_identifier: str
    run_id: str | None
    at_wall_ms: int
    event: str
    message: str


class CommentRecord(Struct, frozen=True, kw_only=True):
    """A comment that the daemon posted. Key: issue and kind.

    `fingerprint` is a hash of the input of the comment.
    """

    issue_id: str
    kind: str
    comment_id: str
    fingerprint: str
    at_wall_ms: int


class ToldComment(Struct, frozen=True, kw_only=True):
    """A comment of a person that sessions got: a digest of its text, and how often they got it."""

    comment_id: str
    digest: str
    times: int


class ToldComments(Struct, frozen=True, kw_only=True):
    """The comments of people that sessions of an issue got. Key: the issue's id."""

    issue_id: str
    comments: tuple[ToldComment, ...]
    at_wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsComment:
    """The comment about skills on an issue. Key: the issue's id.

    Attributes:
        tracker: identifies the tracker of the issue.
        body: the text of the comment.
        named: the problems that it names, or last named if all are solved: sanitised paths with codes.
        revise: whether to edit only an existing comment, and post no new one.
    """

    issue_id: str
    issue_identifier: str
    tracker: str
    body: str
    named: tuple[tuple[str, str], ...] = ()
    revise: bool = False
    at_wall_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestRecord:
    """The pull request of an issue. Key: the issue's id. It is written before each step that it describes.

    Attributes:
        issue: its latest snapshot, without the description.
        forge: kind, repository and server; records of another forge are left alone.
        branch: the head branch; `head` is the delivered commit that belongs on it.
        number: its number; `None` until it is open.
        ours: whether the daemon opened it, so that it updates text and labels.
        equipped: whether labels and reviewers were requested.
        described: the commit that its text describes, if the daemon wrote it.
        text: a digest of that text as the forge first showed it; if the text differs, a person edited it.
        pull: the last snapshot.
        ledger: what was done about it; `None` until it is observed.
        code: what it waits for, as a stable code; `message` is the same in words.
        failure: why the last step did not succeed.
    """

    issue: domain.Issue
    forge: str
    branch: str
    head: str
    number: int | None = None
    ours: bool = False
    equipped: bool = False
    described: str | None = None
    text: str | None = None
    pull: domain.PullRequest | None = None
    ledger: PullLedger | None = None
    code: str = "opening"
    message: str = "it is about to be opened"
    failure: domain.Failure | None = None
    at_wall_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a pull request that is not known to be merged, closed or deleted."""
        is_over = self.code == "gone" or (
            self.pull is not None and self.pull.state is not domain.PullState.OPEN
        )
        return self.number is not None and not is_over

    @property
    def is_prepared(self) -> bool:
        """Whether its labels, reviewers and text are complete for the delivered commit."""
        return self.equipped and (not self.ours or self.described == self.head)

    @property
    def needs_you(self) -> bool:
        """Whether only a person can go on."""
        return self.code in {"closed", "gone", *NeedsYouCode}


class SkillUse(Struct, frozen=True, kw_only=True):
    """One skill in one run: whether Symphony or the agent itself listed it, and whether the agent read it.

    `sha256` is the hash of the whole file, or `None` if the file was unreadable.
    """

    name: str
    path: str
    sha256: str | None
    listed: bool
    seen: bool = False


class SkillsRecord(Struct, frozen=True, kw_only=True):
    """The skills of a run, and the commit that they were read from. Key: the run's id.

    `document` is the JSON document for later questions about the issue; empty if there is none.
    """

    run_id: str
    commit: str | None
    skills: tuple[SkillUse, ...]
    document: str = ""


class InstructionUse(Struct, frozen=True, kw_only=True):
    """One module of instructions that a run got; `sha256` is the hash of its file."""

    name: str
    sha256: str


class InstructionsRecord(Struct, frozen=True, kw_only=True):
    """The instructions of a run in one phase, in their order. Key: the run's id and the phase.

    The phase is empty without phases.
    """

    run_id: str
    phase: str
    modules: tuple[InstructionUse, ...]


class IssueSpent(Struct, frozen=True, kw_only=True):
    """What an issue used of its budget; zero deletes the row. Key: the issue's id."""

    issue_id: str
    spent: domain.Spent


class DayRecord(Struct, frozen=True, kw_only=True):
    """What all issues used on one day. Key: the day (`YYYY-MM-DD`, UTC)."""

    day: str
    tokens: int


class SettingRecord(Struct, frozen=True, kw_only=True):
    """A value that the daemon leaves for the next one, such as `paused`; `None` deletes it. Key: the name."""

    name: str
    value: str | None


Record = (
    ClaimRecord
    | ClaimReleased
    | ResultRecord
    | ResultReleased
    | RunRecord
    | MilestoneRecord
    | EventRecord
    | CommentRecord
    | ToldComments
    | SkillsComment
    | PullRequestRecord
    | SkillsRecord
    | InstructionsRecord
    | Job
    | JobDone
    | IssueSpent
    | DayRecord
    | SettingRecord
)

# --- the journal as a whole ------------------------------------------------------------------------------


class HealthState(StrEnum):
    """Whether records survive a restart: `memory` means that the file cannot be written."""

    OK = "ok"
    MEMORY = "memory"


class JournalStatus(Struct, frozen=True, kw_only=True):
    """The state of the journal; `failure` says what is wrong and what to do."""

    state: HealthState
    failure: domain.Failure | None = None


class RecoveredState(Struct, frozen=True, kw_only=True):
    """The part of the journal that a start needs, without history.

    `worked_on` are the ids of issues with ended runs. `comments` and `skills_comments` are the newest ones;
    `jobs` are in the order of their creation.
    """

    claims: tuple[ClaimRecord, ...] = ()
    results: tuple[ResultRecord, ...] = ()
    live_runs: tuple[RunRecord, ...] = ()
    spent: Mapping[str, domain.Spent] = msgspec.field(default_factory=dict)
    days: Mapping[str, int] = msgspec.field(default_factory=dict)
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    worked_on: frozenset[str] = frozenset()
    comments: tuple[CommentRecord, ...] = ()
    skills_comments: tuple[SkillsComment, ...] = ()
    pull_requests: tuple[PullRequestRecord, ...] = ()
    jobs: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history is kept. The runs that ended first are deleted first.

    Live runs, and the comments and usage of claimed issues, are never deleted.

    Attributes:
        max_age_ms: the longest time since the end of a run.
        max_runs: the largest number of ended runs.
        max_bytes: the largest size of the file without free pages.
    """

    max_age_ms: int = 30 * 24 * 3_600_000
    max_runs: int = 5_000
    max_bytes: int = 256 * 1024 * 1024


class TrimResult(Struct, frozen=True, kw_only=True):
    """What a trim deleted; `bytes` says how much the file shrank."""

    runs: int = 0
    events: int = 0
    bytes: int = 0

    def __add__(self, other: "TrimResult") -> "TrimResult":
        return TrimResult(
            runs=self.runs + other.runs, events=self.events + other.events, bytes=self.bytes + other.bytes
        )


# --- errors of the file ----------------------------------------------------------------------------------

DAMAGED_HINT = "the next start of the daemon sets the damaged file aside and begins a new one"


class UnusableError(domain.SymphonyError):
    """The file cannot be used, and was not changed."""


def unusable(path: Path, why: str, *, hint: str) -> domain.Failure:
    """The failure of a journal that cannot be written."""
    return domain.Failure(
        category=domain.Category.JOURNAL,
        blame=domain.Blame.HOST,
        message=f"the journal {path} cannot be used: {why}; what happens now is forgotten at a restart",
        hint=hint,
    )


def unreadable(path: Path, why: str, *, hint: str) -> domain.Failure:
    """The failure of a journal that cannot be read."""
    return notice(f"the journal {path} cannot be read: {why}", hint=hint)


def notice(message: str, *, hint: str | None = None) -> domain.Failure:
    """A failure to report once, for example about a file that was replaced."""
    return domain.Failure(
        category=domain.Category.JOURNAL, blame=domain.Blame.HOST, message=message, hint=hint
    )


def taken_away(path: Path) -> domain.Failure:
    """The failure of a journal whose file was removed or replaced while it was open."""
    return domain.Failure(
        category=domain.Category.JOURNAL,
        blame=domain.Blame.HOST,
        message=f"the journal {path} was removed while the daemon was running",
        hint="start the daemon again: it begins a new journal; stop it before you remove or replace the file",
    )


def failure_of(path: Path, error: BaseException, *, reading: bool = False) -> domain.Failure:
    """The failure for an error of SQLite or of the file system."""
    make_failure = unreadable if reading else unusable
    if isinstance(error, UnusableError):
        return error.failure
    if reading and sqlite.is_damage(error):
        return make_failure(path, f"it is damaged ({error})", hint=DAMAGED_HINT)
    why, hint = sqlite.explain(error)
    return make_failure(path, why, hint=hint)
