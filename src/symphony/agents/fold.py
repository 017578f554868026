"""Folds the events of a run into what people want to know of it (DM17, TK3-TK5, TK8). No I/O, no clock.

A stream may carry thousands of events a second; the scheduler hears of it a few times a second. `Progress` is
the one mutable thing between the two: `add` is called per event and does as little as possible, `snapshot`
gives the frozen value that travels on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from symphony.agents.events import (
    Activity,
    AgentEvent,
    ApprovalAnswered,
    ContextCompacted,
    InputRequired,
    ItemFinished,
    ItemStarted,
    Malformed,
    Notice,
    RateLimits,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnded,
    TurnStatus,
    Usage,
)
from symphony.domain.redaction import SHAPES_ONLY, Redaction

__all__ = ["Progress", "RunProgress", "Tokens", "event_name", "humanise"]

MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts; input includes cached tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """One run as it stands.

    Attributes:
        pid: the agent's process id, null before it exists.
        last_event: name of the newest event that has one (AG11).
        last_message: the newest event that says something, in words; one line of at most 200 characters,
            display only (TK8).
        turn_count: turns started in this run.
        tokens: used by this run.
        thread_tokens: high-water mark of the thread's own totals, from which a resumed thread goes on (TK4).
        rate_limits: the newest payload, as the vendor sent it.
        events: how many messages of the agent were counted.
    """

    pid: int | None = None
    session_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    turn_count: int = 0
    last_event: str | None = None
    last_message: str | None = None
    tokens: Tokens = Tokens()
    thread_tokens: Tokens = Tokens()
    rate_limits: Mapping[str, Any] | None = None
    events: int = 0


class Progress:
    """Collects the events of one run; `redaction` masks what is told."""

    def __init__(
        self,
        *,
        pid: int | None = None,
        redaction: Redaction = SHAPES_ONLY,
    ) -> None:
        self._redaction = redaction
        self._pid = pid
        self._started: SessionStarted | None = None
        self._turn_count = 0
        self._newest: AgentEvent | None = None
        self._telling: AgentEvent | None = None
        self._tokens = Tokens()
        self._mark = Tokens()
        self._rate_limits: Mapping[str, Any] | None = None
        self._events = 0

    def resumes(self, mark: Tokens) -> None:
        """The run goes on with a thread that had used so much when its mark was stored (TK4)."""
        self._mark = mark

    def add(self, event: AgentEvent) -> None:
        """Take one event into account."""
        match event:
            case Activity():
                self._events += event.count
                return
            case Usage():
                self._count(event)
            case RateLimits():
                self._rate_limits = event.payload
            case SessionStarted():
                self._begin(event)
            case _:
                pass
        self._events += 1
        self._newest = event
        if not isinstance(event, Usage | RateLimits):
            self._telling = event

    def snapshot(self) -> RunProgress:
        """The run as it stands now; later events do not change it."""
        started, newest = self._started, self._newest
        return RunProgress(
            pid=self._pid,
            session_id=None if started is None else started.session_id,
            thread_id=None if started is None else started.thread_id,
            turn_id=None if started is None else started.turn_id,
            turn_count=self._turn_count,
            last_event=None if newest is None else event_name(newest),
            last_message=None if self._telling is None else humanise(self._telling, self._redaction),
            tokens=self._tokens,
            thread_tokens=self._mark,
            rate_limits=self._rate_limits,
            events=self._events,
        )

    def _begin(self, event: SessionStarted) -> None:
        before = None if self._started is None else self._started.session_id
        self._turn_count += event.session_id != before
        self._started = event

    def _count(self, usage: Usage) -> None:
        """Absolute totals count by their rise above the mark, per field; repeats and drops add nothing."""
        new = Tokens(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
        )
        if not usage.absolute:
            self._tokens = _each(self._tokens, new, int.__add__)
            return
        high = _each(self._mark, new, max)
        self._tokens = _each(self._tokens, _each(high, self._mark, int.__sub__), int.__add__)
        self._mark = high


def _each(one: Tokens, other: Tokens, combine: Any) -> Tokens:
    return Tokens(
        input_tokens=combine(one.input_tokens, other.input_tokens),
        output_tokens=combine(one.output_tokens, other.output_tokens),
        total_tokens=combine(one.total_tokens, other.total_tokens),
    )


_TURN_NAMES = {
    TurnStatus.COMPLETED: "turn_completed",
    TurnStatus.FAILED: "turn_failed",
    TurnStatus.INTERRUPTED: "turn_cancelled",
}


def event_name(event: AgentEvent) -> str:
    """The specification's name of an event (AG11)."""
    match event:
        case SessionStarted():
            name = "session_started"
        case TurnEnded():
            name = _TURN_NAMES[event.status]
        case InputRequired():
            name = "approval_required" if event.approval else "turn_input_required"
        case ApprovalAnswered():
            name = "approval_auto_approved" if event.decision == "accept" else "approval_declined"
        case ToolCalled():
            name = "tool_call_completed" if event.success else "tool_call_failed"
        case Malformed():
            name = "malformed"
        case Text() | ItemStarted() | ItemFinished() | Usage() | RateLimits():
            name = "notification"
        case Notice() | Activity() | ContextCompacted():
            name = "other_message"
        case _:
            assert_never(event)
    return name


def humanise(event: AgentEvent, redaction: Redaction = SHAPES_ONLY) -> str:
    """The event in a few words for people: one line, at most 200 characters, no secrets (TK8).

    Masked before it is cut, so that a cut never leaves the head of a secret unrecognised.
    """
    match event:
        case Text() | Notice():
            words = event.message
        case ItemStarted():
            words = f"{event.kind} started: {event.summary}".removesuffix(": ")
        case ItemFinished():
            words = _finished(event)
        case InputRequired():
            words = event.reason
        case TurnEnded():
            words = _ended(event)
        case ContextCompacted():
            words = "the conversation was compacted"
        case Malformed():
            words = f"malformed message: {event.excerpt}"
        case _:
            words = _short(event)
    return redaction.line(words, MESSAGE_CHARS)


def _ended(event: TurnEnded) -> str:
    if event.failure is not None:
        return event.failure.line
    cost = "" if event.cost_usd is None else f" for {event.cost_usd:.4f} USD"
    return f"turn {event.status.value}{cost}"


def _finished(event: ItemFinished) -> str:
    code = "" if event.exit_code is None else f", exit {event.exit_code}"
    return f"{event.kind} {event.status}{code}: {event.summary}".removesuffix(": ")


def _short(event: SessionStarted | Activity | Usage | RateLimits | ToolCalled | ApprovalAnswered) -> str:
    match event:
        case SessionStarted():
            words = "turn started"
        case Activity():
            words = f"{event.count} messages"
        case Usage():
            words = f"{event.total_tokens} tokens ({event.input_tokens} in, {event.output_tokens} out)"
        case RateLimits():
            words = "rate limits updated"
        case ToolCalled():
            words = f"tool {event.name} {'succeeded' if event.success else 'failed'}"
        case ApprovalAnswered():
            words = f"approval of {event.kind}: {event.decision}"
        case _:
            assert_never(event)
    return words
