"""What an agent session reports, the same for every backend (specification 10.4; AG11, AG12).

Backends translate their wire format into these values; nothing behind this module knows a vendor's word.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final, assert_never

import msgspec
import structlog

from symphony.domain import (
    DECODE_ERRORS,
    MAX_COUNT,
    MAX_LINE_CHARS,
    PATTERNS_ONLY,
    Failure,
    Redaction,
    mask_credentials,
    one_line,
)
from symphony.scheduler import Thread

# Text of an agent made fit to be shown: one line, no credentials, bounded.
#
# Failure messages travel into logs, the API and tracker comments, and agents put endpoint addresses and
# headers into their errors (AGENT-FACTS 7).


def redact(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """`one_line` with credentials masked: in addresses, headers, assignments, and known token shapes.

    The text is masked before it is cut, so that a cut never leaves the head of a secret unrecognised.
    """
    flat = one_line(text, limit * 4)
    return one_line(mask_credentials(flat), limit)


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


# Where what an agent sends comes in: everything is held to bounds here, the same for every backend.
#
# `decoded` reads the JSON of a message, `Border` judges the events that a backend made of messages. Nothing
# behind the two meets a number, a text or a structure that it could not count, show, mask or write down.


MAX_DEPTH: Final = 64
MAX_ID_CHARS: Final = 200
MAX_TEXT_CHARS: Final = 10 * 1024 * 1024  # what one line can hold
MAX_WORDS_CHARS: Final = 8_000
MAX_PAYLOAD_BYTES: Final = 16_384
MAX_PAYLOAD_DEPTH: Final = 16
# A thousand calls of a model, each with a full context window of a million tokens.
MOST_TOKENS_PER_TURN: Final = 1_000_000_000
_MOST_USD: Final = 1_000_000.0
_EXIT_CODES: Final = range(-(2**31), 2**32)
_log = structlog.get_logger(__name__)

Counts = tuple[int, int, int]


def decoded(raw: msgspec.Raw | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, no UTF-8, or nests deeper than `MAX_DEPTH`.
    """
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS as error:
        raise ValueError(str(error)) from error
    if _nests_beyond(value, MAX_DEPTH):
        raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")
    return value


def parse(raw: msgspec.Raw) -> dict[str, Any]:
    """The object in a part of a message; empty when it is absent, null or no object.

    Raises:
        ValueError: see `decoded`.
    """
    value = decoded(raw)
    return value if isinstance(value, dict) else {}


def is_cost_of_a_turn(tokens: int) -> bool:
    """Whether one turn can have used so many."""
    return 0 <= tokens <= MOST_TOKENS_PER_TURN


class EventBounds:
    """Judges the events of one session; what it refuses is logged once for each reason."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._high: Counts = (0, 0, 0)
        self._turn: Counts = (0, 0, 0)

    def resumes(self, used: Counts) -> None:
        """The session goes on with a thread that had used so many input, output and total tokens."""
        self._high = used

    def new_turn(self) -> None:
        """What is reported from now on was used by another turn."""
        self._turn = (0, 0, 0)

    def admitted(self, event: AgentEvent) -> AgentEvent | None:
        """The event, its texts cut to their bounds; None where it reports what cannot be."""
        match event:
            case Usage():
                return event if self._is_plausible(event) else None
            case RateLimits():
                reason = _unfit(event.payload)
                if reason is not None:
                    self._refuse("rate_limits", reason)
                return event if reason is None else None
            case ItemFinished(exit_code=int(code)) if code not in _EXIT_CODES:
                event = replace(event, exit_code=None)
            case TurnEnded(cost_usd=float(cost)) if not 0 <= cost <= _MOST_USD:
                self._refuse("cost", f"it is not within 0 and {_MOST_USD:,.0f} USD")
                event = replace(event, cost_usd=None)
            case _:
                pass
        return _cut(event)

    def _is_plausible(self, usage: Usage) -> bool:
        """Whether a turn can have used what was used in this one so far, this report included."""
        counts = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
        if not all(0 <= count <= MAX_COUNT for count in counts):
            self._refuse("usage", f"a count is not within 0 and {MAX_COUNT}")
            return False
        high = self._high
        if usage.absolute:
            high = _pairwise(max, counts, high)
            counts = _pairwise(int.__sub__, high, self._high)
        turn = _pairwise(int.__add__, self._turn, counts)
        if not all(is_cost_of_a_turn(count) for count in turn):
            self._refuse("usage", f"a turn uses at most {MOST_TOKENS_PER_TURN:,} tokens")
            return False
        self._turn, self._high = turn, high
        return True

    def _refuse(self, what: str, reason: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning("agent_report_refused", what=what, reason=reason)


def _pairwise(combine: Callable[[int, int], int], one: Counts, other: Counts) -> Counts:
    return combine(one[0], other[0]), combine(one[1], other[1]), combine(one[2], other[2])


def _unfit(payload: Mapping[str, Any]) -> str | None:
    if _nests_beyond(payload, MAX_PAYLOAD_DEPTH):
        return f"it nests deeper than {MAX_PAYLOAD_DEPTH} levels"
    if len(msgspec.json.encode(payload)) > MAX_PAYLOAD_BYTES:
        return f"it is larger than {MAX_PAYLOAD_BYTES:,} bytes"
    return None


def _nests_beyond(value: object, most: int) -> bool:
    """Whether lists and objects nest deeper; level by level, so that no depth is too much for it."""
    level: list[Any] = [value]
    for _ in range(most + 1):
        nodes = [node for node in level if isinstance(node, dict | list)]
        if not nodes:
            return False
        level = [child for node in nodes for child in (node.values() if isinstance(node, dict) else node)]
    return True


def _cut(event: AgentEvent) -> AgentEvent:
    """The event with its texts cut, so that one message of an agent cannot fill the memory."""
    limit = MAX_TEXT_CHARS if isinstance(event, Text) else MAX_WORDS_CHARS
    held = {field.name: getattr(event, field.name) for field in fields(event)}
    long: dict[str, Any] = {
        name: text[:limit] for name, text in held.items() if isinstance(text, str) and len(text) > limit
    }
    return replace(event, **long) if long else event


# The events of a session that nobody has taken yet: bounded, never without the end of a turn (AG9, TK3).


MAX_WAITING_EVENTS = 65_536
MAX_WAITING_CHARS = 16 * 1024 * 1024


class EventQueue:
    """What one read brought and the consumer has not seen; only what passes the border gets in.

    When too many events wait, their words are dropped and they only count. Never dropped are the end of the
    turn, without which it would not end, and the newest totals.
    """

    def __init__(self) -> None:
        self._border = EventBounds()
        self._events: deque[AgentEvent] = deque()
        self._chars = 0
        self._quiet = 0
        self._late_usage: Usage | None = None

    def __bool__(self) -> bool:
        return bool(self._events)

    def take(self) -> AgentEvent:
        """The oldest event; there must be one."""
        event = self._events.popleft()
        self._chars -= _chars(event)
        return event

    def resumes(self, thread: Thread) -> None:
        """The session goes on with a thread: totals of it rise from what it had used."""
        self._border.resumes((thread.input_tokens, thread.output_tokens, thread.total_tokens))

    def emit(self, reported: AgentEvent) -> None:
        """Queue an event; one that the border refuses is a sign of life."""
        event = self._border.admitted(reported)
        if event is None:
            self._quiet += 1
            return
        ends = isinstance(event, TurnEnded | InputRequired)
        if ends:
            self.flush_quiet()
            self._flush_usage()
        if ends or (len(self._events) < MAX_WAITING_EVENTS and self._chars < MAX_WAITING_CHARS):
            self._events.append(event)
            self._chars += _chars(event)
        elif isinstance(event, Usage):
            self._quiet += self._late_usage is not None
            self._late_usage = _both(self._late_usage, event)
        else:
            self._quiet += 1

    def count(self, messages: int = 1) -> None:
        """Note signs of life that mean nothing of their own."""
        self._quiet += messages

    def flush_quiet(self) -> None:
        """Tell of the signs of life since the last read: at most one `Activity` per read."""
        if self._quiet:
            if self._events and isinstance(last := self._events[-1], Activity):
                self._quiet += last.count
                self._events.pop()
            self._events.append(Activity(count=self._quiet))
            self._quiet = 0

    def new_turn(self) -> None:
        """A new turn begins: the end of an older one is none of its events, nor is what that used."""
        self._border.new_turn()
        self._events = deque(
            event for event in self._events if not isinstance(event, TurnEnded | InputRequired)
        )

    def drain(self) -> tuple[AgentEvent, ...]:
        """All that is left, the newest totals included."""
        self._flush_usage()
        left = tuple(self._events)
        self._events.clear()
        self._chars = 0
        return left

    def _flush_usage(self) -> None:
        if self._late_usage is not None:
            self._events.append(self._late_usage)
            self._late_usage = None


def _both(earlier: Usage | None, later: Usage) -> Usage:
    """Two reports as one: totals replace each other, and others are added up."""
    if earlier is None or later.absolute:
        return later
    return Usage(
        absolute=False,
        input_tokens=earlier.input_tokens + later.input_tokens,
        output_tokens=earlier.output_tokens + later.output_tokens,
        total_tokens=earlier.total_tokens + later.total_tokens,
    )


def _chars(event: AgentEvent) -> int:
    """How much an event holds, about."""
    match event:
        case Text():
            return len(event.message)
        case ItemStarted():
            return len(event.summary) + len(event.arguments)
        case RateLimits():
            return MAX_PAYLOAD_BYTES
        case _:
            return 0


# Folds the events of a run into what people want to know of it (DM17, TK3-TK5, TK8). No I/O, no clock.
#
# A stream may carry thousands of events a second; the scheduler hears of it a few times a second.
# `Progress` is the one mutable thing between the two: `add` is called per event and does as little as
# possible, `snapshot` gives the frozen value that travels on.


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


class RunStats:
    """Collects the events of one run; `redaction` masks what is told."""

    def __init__(
        self,
        *,
        pid: int | None = None,
        redaction: Redaction = PATTERNS_ONLY,
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
            self._tokens = _each_token(self._tokens, new, int.__add__)
            return
        high = _each_token(self._mark, new, max)
        self._tokens = _each_token(self._tokens, _each_token(high, self._mark, int.__sub__), int.__add__)
        self._mark = high


def _each_token(one: Tokens, other: Tokens, combine: Any) -> Tokens:
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


def humanise(event: AgentEvent, redaction: Redaction = PATTERNS_ONLY) -> str:
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
