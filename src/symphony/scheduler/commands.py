"""Intentions of the scheduler; the runtime carries each one out and answers with inputs (DESIGN 4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue
from symphony.scheduler.inputs import Resume, Timer

__all__ = [
    "CleanWorkspace",
    "Command",
    "ContinueRun",
    "Exit",
    "FetchCandidates",
    "FinishReason",
    "FinishRun",
    "MoveIssue",
    "MoveReason",
    "Notify",
    "PostNote",
    "PushBranch",
    "ReadAnswers",
    "RefreshIssues",
    "SetTimer",
    "StartRun",
    "StopReason",
    "StopRun",
]


class FinishReason(StrEnum):
    """Why a run gets no further turn (AG8)."""

    INACTIVE = "inactive"
    MAX_TURNS = "max_turns"
    DRAINING = "draining"
    REFRESH_FAILED = "refresh_failed"
    BUDGET = "budget"
    NO_PROGRESS = "no_progress"


class StopReason(StrEnum):
    """Why a run is stopped in mid-turn (SC11-SC13, SC16)."""

    TERMINAL = "terminal"
    INACTIVE = "inactive"
    UNROUTABLE = "unroutable"
    MISSING = "missing"
    STALLED = "stalled"
    DRAINING = "draining"
    BUDGET = "budget"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCandidates:
    """Fetch all issues in active states; answered by `Polled` or `PollFailed`."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshIssues:
    """Fetch these issues by id in one request; answered by `Refreshed` or `RefreshFailed`."""

    request: int
    ids: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    """Start a run attempt by an agent; `attempt` is null for the first (PR3); no `resume`: it starts cold."""

    run_id: str
    issue: Issue
    attempt: int | None
    resume: Resume | None = None
    agent: str = "codex"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueRun:
    """Run one more turn on the same thread."""

    run_id: str
    issue: Issue
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRun:
    """No further turn: stop the agent, deliver the work and end. With `failure`, end as failed."""

    run_id: str
    reason: FinishReason
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Cancel the run in mid-turn; frees nothing until its `RunEnded` arrives."""

    run_id: str
    reason: StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Fire `TimerFired(timer, token)` at `due_ms` of the monotonic clock, replacing the timer's last one."""

    timer: Timer
    token: int
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanWorkspace:
    """Remove an ended issue's workspace; `path` is the recorded one, null derives it (WS13)."""

    issue_id: str
    identifier: str
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostNote:
    """Put one comment of ours on the issue, edited in place when it changes (TR11).

    There is one per issue and kind, and one more for each `occasion`: a question gets a comment of its own,
    so that people are notified of it and what stands below it is what they say to it.
    """

    issue: Issue
    kind: str
    body: str
    occasion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswers:
    """Read what people wrote on an issue since its question; answered by `AnswersRead` or `AnswersUnread`.

    `note` is the comment that asks; it is posted where it is missing. `question` names the question.
    """

    question: str
    note: PostNote


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBranch:
    """Push a delivered branch, whose tip is `head`, once more; answered by `Pushed`."""

    issue_id: str
    branch: str
    head: str


class MoveReason(StrEnum):
    """Why the daemon moves an issue to another state."""

    START = "start"
    BLOCK = "block"
    BACK = "back"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveIssue:
    """Give an issue another state, beside the work; a later look tells whether it happened.

    It is done only where the issue is still in one of the states `only_from` (normalised): what a person or
    the agent did meanwhile stands.
    """

    issue: Issue
    state: str
    reason: MoveReason
    only_from: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """One log line; the same words are shown on every surface."""

    level: str
    event: str
    issue_id: str | None = None
    issue_identifier: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """Draining is over and nothing runs: the daemon may end."""


Command = (
    FetchCandidates
    | RefreshIssues
    | StartRun
    | ContinueRun
    | FinishRun
    | StopRun
    | SetTimer
    | CleanWorkspace
    | PostNote
    | PushBranch
    | ReadAnswers
    | MoveIssue
    | Notify
    | Exit
)
