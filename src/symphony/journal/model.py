"""What the journal remembers, one record per fact (DESIGN 10). Times: wall clock, ms since 1970.

Records are upserts: the newest of a key wins, so that one that is written twice changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue
from symphony.hosts.base import Identity
from symphony.scheduler.inputs import ClaimKind, Resume, Spent

__all__ = [
    "ClaimGone",
    "ClaimRecord",
    "CommentRecord",
    "DayRecord",
    "EventRecord",
    "Health",
    "HealthState",
    "IssueSpent",
    "Journal",
    "Record",
    "Remembered",
    "Retention",
    "RunRecord",
    "SettingRecord",
    "SkillUse",
    "SkillsRecord",
    "Trimmed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """A claim on an issue (key: the issue's id) and who holds it.

    `owner` is the daemon that wrote it. `due_wall_ms` is of a retry, `since_wall_ms` when the claim became
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimGone:
    """The claim on an issue was released."""

    issue_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run attempt (key: its id) as it stands; `ended_wall_ms` and `outcome` are null while it lives.

    `agent` is the process that was started for it; `reason` the one line why it ended as it did. By
    `agent_name` it was run for `agent_reason`; rows of older versions tell of neither.
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
    | ClaimGone
    | RunRecord
    | EventRecord
    | CommentRecord
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
class Remembered:
    """What a predecessor left: everything a start needs, and no history; of comments the newest."""

    claims: tuple[ClaimRecord, ...] = ()
    live_runs: tuple[RunRecord, ...] = ()
    spent: Mapping[str, Spent] = field(default_factory=dict)
    days: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    comments: tuple[CommentRecord, ...] = ()


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
class Trimmed:
    """What a trim dropped; `bytes` is by how much the file shrank."""

    runs: int = 0
    events: int = 0
    bytes: int = 0


class Journal(Protocol):
    """The writing side, held by the one daemon of the state directory. Nothing here raises for a bad disk."""

    @property
    def health(self) -> Health:
        """Whether what is put survives."""
        ...

    def take_notices(self) -> tuple[Failure, ...]:
        """What people should be told, once: the next call has only what came since."""
        ...

    def put(self, *records: Record) -> None:
        """Remember these together: all of them survive, or none. Returns at once; written soon after."""
        ...

    async def flush(self) -> None:
        """Wait until what was put is written, or known to be unwritable."""
        ...

    async def remembered(self) -> Remembered:
        """What a predecessor left that a start needs to know; puts of this life are not in it."""
        ...

    async def trim(self, policy: Retention) -> Trimmed:
        """Drop the history that is too much, in small steps between which puts are written."""
        ...

    async def close(self) -> None:
        """Write what is left, and let go of the file."""
        ...
