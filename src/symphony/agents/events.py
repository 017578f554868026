"""The events that an agent session reports, the same for every backend (specification section 10.4).

Backends translate the messages of their agent into these values. No module outside a backend knows a
vendor's names.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, assert_never

from symphony import domain

SHORT_MESSAGE_CHARS = 200
MAX_CHANGES: Final = 200
"""The most changed files in one event."""
MAX_PLAN_STEPS: Final = 200
"""The most steps of a plan in one event."""


def redact(text: str, limit: int = domain.MAX_LINE_CHARS) -> str:
    """Return the text as one bounded line, with credentials masked in addresses, headers and assignments.

    Agents put endpoint addresses and headers into their errors, and those travel into logs, the API and
    tracker comments. The text is masked before it is cut, so that a cut never hides the shape of a secret.
    """
    flat = domain.one_line(text, limit * 4)
    return domain.one_line(domain.mask_credentials(flat), limit)


class TurnStatus(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """A turn began on a thread; `session_id` is `<thread_id>-<turn_id>`.

    `model` is the model that the agent reports, or None.
    """

    session_id: str
    thread_id: str
    turn_id: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """`count` messages without a meaning, such as streamed text.

    Shows that the agent is alive. Reported at most once per read, if the read brought nothing else.
    """

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A message of the agent to people, whole; as far as it came if the turn was `interrupted` meanwhile."""

    message: str
    interrupted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """The reasoning of the agent, or its summary."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A step of the agent's plan; `status` is the agent's word, such as `pending` or `completed`."""

    text: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanUpdated:
    """The agent's plan, whole; `text` explains it or is the plan itself."""

    steps: tuple[PlanStep, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """A file that the agent adds, updates or deletes (`change`), with the number of lines."""

    path: str
    change: str
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemStarted:
    """A command, a file change, a search or another piece of work began.

    Attributes:
        kind: the agent's word for such work.
        summary: one line.
        arguments: of the tool as text, perhaps cut. They serve to recognise skills and are not kept.
        item_id: the agent's id of the work, empty if it has none.
        input: the whole command, or the arguments of a tool as JSON.
        changes: of files.
    """

    kind: str
    summary: str
    arguments: str = field(default="", repr=False)
    item_id: str = field(default="", compare=False, repr=False)
    input: str = field(default="", compare=False, repr=False)
    changes: tuple[FileEdit, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFinished:
    """A piece of work ended.

    Attributes:
        kind: as in `ItemStarted`.
        summary: one line.
        status: the agent's word, such as `completed`, `failed` or `declined`.
        exit_code: of a command.
        item_id: as in `ItemStarted`.
        output: what the command wrote, or the result of the tool.
        changes: of files; empty if they were known at the start.
    """

    kind: str
    summary: str
    status: str
    exit_code: int | None = None
    item_id: str = field(default="", compare=False, repr=False)
    output: str = field(default="", compare=False, repr=False)
    changes: tuple[FileEdit, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """The agent called a tool of the daemon and got an answer."""

    name: str
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered:
    """The agent asked for permission and the policy answered; `subject` is the command, file or the like."""

    kind: str
    decision: str
    subject: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCompacted:
    """The agent summarised its conversation: the model no longer sees the original text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequired:
    """Only a person can answer: the run ends and the issue is blocked.

    Attributes:
        reason: one line for people.
        approval: the agent asks for permission, not for an answer.
        question: the question in the agent's own words, or None.
        request: the key of a request for permission, which the same request has again; None if it has none.
    """

    reason: str
    approval: bool = False
    question: str | None = None
    request: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageUpdate:
    """Used tokens. `absolute` counts are totals of the thread since its start; other counts are added up.

    `model` is the model that used them; None for the model of the session.
    """

    absolute: bool
    tokens: domain.Tokens
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The newest rate limits, as the vendor sent them."""

    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNotice:
    """Anything else worth a log line; `level` is `info`, `warning` or `error`."""

    level: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A line that begins like a protocol message and is none; the excerpt has at most 1,000 characters."""

    excerpt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """The turn is over; `failure` is set unless it completed.

    `cost_usd` is its cost in US dollars by the agent's own count, None where the agent does not report one.
    """

    status: TurnStatus
    failure: domain.Failure | None = None
    cost_usd: float | None = field(default=None, compare=False)


AgentEvent = (
    SessionStarted
    | Activity
    | Text
    | Reasoning
    | PlanUpdated
    | ItemStarted
    | ItemFinished
    | ToolCalled
    | ApprovalAnswered
    | ContextCompacted
    | InputRequired
    | UsageUpdate
    | RateLimits
    | LogNotice
    | Malformed
    | TurnEnd
)


def line_changes(old: str, new: str) -> tuple[int, int]:
    """Return how many lines were added and removed, by the lines that only one of the texts has."""
    before, after = Counter(old.splitlines()), Counter(new.splitlines())
    return (after - before).total(), (before - after).total()


_WORK: Final = {
    "commandExecution": "command",
    "execute": "command",
    "fileChange": "edit",
    "fileRead": "read",
    "mcpToolCall": "tool",
    "dynamicToolCall": "tool",
    "collabAgentToolCall": "sub-agent",
    "subAgentActivity": "sub-agent",
    "webSearch": "web search",
    "imageView": "image",
}
_DECISIONS: Final = {"accept": "allowed", "decline": "declined"}


def work_name(kind: str) -> str:
    """Return an agent's word for a kind of work as people say it; unknown words stay as they are."""
    return _WORK.get(kind, kind)


def event_name(event: AgentEvent) -> str:  # noqa: C901 - one case per event
    """Return the specification's name of an event (section 10.4)."""
    match event:
        case SessionStarted():
            name = "session_started"
        case TurnEnd(status=TurnStatus.COMPLETED):
            name = "turn_completed"
        case TurnEnd(status=TurnStatus.FAILED):
            name = "turn_failed"
        case TurnEnd():
            name = "turn_cancelled"
        case InputRequired():
            name = "approval_required" if event.approval else "turn_input_required"
        case ApprovalAnswered():
            name = "approval_auto_approved" if event.decision == "accept" else "approval_declined"
        case ToolCalled():
            name = "tool_call_completed" if event.success else "tool_call_failed"
        case Malformed():
            name = "malformed"
        case (
            Text()
            | Reasoning()
            | PlanUpdated()
            | ItemStarted()
            | ItemFinished()
            | UsageUpdate()
            | RateLimits()
        ):
            name = "notification"
        case LogNotice() | Activity() | ContextCompacted():
            name = "other_message"
        case _:
            assert_never(event)
    return name


def describe_event(event: AgentEvent, redaction: domain.Redaction = domain.PATTERNS_ONLY) -> str:  # noqa: C901, PLR0912 - one case per event
    """Return the event in a few words: one line of at most `SHORT_MESSAGE_CHARS`, without secrets.

    The text is masked before it is cut, so that a cut never hides the shape of a secret.
    """
    match event:
        case Text() | LogNotice():
            words = event.message
        case Reasoning():
            words = "reasoning completed"
        case PlanUpdated():
            words = "plan updated"
        case ItemStarted():
            words = f"{work_name(event.kind)} started: {event.summary}".removesuffix(": ")
        case ItemFinished():
            code = "" if event.exit_code is None else f", exit {event.exit_code}"
            words = f"{work_name(event.kind)} {event.status}{code}: {event.summary}".removesuffix(": ")
        case InputRequired():
            words = event.reason
        case TurnEnd(failure=domain.Failure() as failure):
            words = failure.message
        case TurnEnd():
            cost = "" if event.cost_usd is None else f" for {event.cost_usd:.4f} USD"
            words = f"turn {event.status.value}{cost}"
        case ContextCompacted():
            words = "the conversation was compacted"
        case Malformed():
            words = f"malformed message: {event.excerpt}"
        case SessionStarted():
            words = "turn started"
        case Activity():
            words = domain.plural(event.count, "message")
        case UsageUpdate():
            used = event.tokens
            words = f"{used.total_tokens} tokens ({used.input_tokens} in, {used.output_tokens} out)"
        case RateLimits():
            words = "rate limits updated"
        case ToolCalled():
            words = f"tool {event.name} {'succeeded' if event.success else 'failed'}"
        case ApprovalAnswered():
            words = f"approval of {work_name(event.kind)}: {_DECISIONS.get(event.decision, event.decision)}"
        case _:
            assert_never(event)
    return redaction.line(words, SHORT_MESSAGE_CHARS)
