"""What an agent session reports, the same for every backend (specification 10.4; AG11, AG12).

Backends translate their wire format into these values; nothing behind this module knows a vendor's word.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from symphony.domain.failures import Failure

__all__ = [
    "Activity",
    "AgentEvent",
    "ApprovalAnswered",
    "ContextCompacted",
    "InputRequired",
    "ItemFinished",
    "ItemStarted",
    "Malformed",
    "Notice",
    "RateLimits",
    "SessionStarted",
    "Text",
    "ToolCalled",
    "TurnEnded",
    "TurnStatus",
    "Usage",
]


class TurnStatus(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """A turn began on a thread; `session_id` is `<thread_id>-<turn_id>` (DM13)."""

    session_id: str
    thread_id: str
    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A sign of life without a meaning of its own (streamed text, command output); `count` messages at once.

    Reported so that a long answer is not taken for silence; at most one per read, and only when nothing else
    came of it.
    """

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The agent said something to people."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemStarted:
    """The agent began a piece of work: a command, a file change, a search.

    `arguments` is what it gave the tool, as text that may be cut: to recognise things, never shown or kept.
    """

    kind: str
    summary: str
    arguments: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFinished:
    """A piece of work ended; `exit_code` only where it was a command."""

    kind: str
    summary: str
    status: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """The agent called one of our tools and was answered."""

    name: str
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered:
    """The agent asked for permission and the policy answered."""

    kind: str
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCompacted:
    """The agent summed its conversation up: the model no longer has the words of what it was given before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequired:
    """Only a person can answer: the run ends and the issue is blocked (SM7); `approval` says which kind.

    `question` is what the agent wants to be told, in its own words; null where `reason` is all there is.
    """

    reason: str
    approval: bool = False
    question: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens used. `absolute` counts are totals of the thread since its start; others are to be added up.

    Input tokens include cached ones.
    """

    absolute: bool
    input_tokens: int
    output_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The newest rate-limit facts, as the vendor sent them."""

    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Anything else worth a log line; `level` is `info`, `warning` or `error`."""

    level: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A line that looked like a protocol message and was none; `excerpt` is at most 1,000 characters."""

    excerpt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over; `failure` is set unless it completed.

    `cost_usd` is what it cost by the agent's own count, in US dollars; null where the agent tells nothing.
    """

    status: TurnStatus
    failure: Failure | None = None
    cost_usd: float | None = field(default=None, compare=False)


AgentEvent = (
    SessionStarted
    | Activity
    | Text
    | ItemStarted
    | ItemFinished
    | ToolCalled
    | ApprovalAnswered
    | ContextCompacted
    | InputRequired
    | Usage
    | RateLimits
    | Notice
    | Malformed
    | TurnEnded
)
