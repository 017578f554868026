"""The events of a session that its consumer has not taken yet, limited in number and size.

Every event passes `EventBounds` first: no count, text or structure that leaves the queue is too large to be
added up, shown, masked or stored.
"""

from collections import deque
from dataclasses import fields, replace
from typing import Any, Final, get_args

import msgspec
import structlog

from symphony.agents import events
from symphony.agents.json_fields import nests_deeper
from symphony.domain import MAX_COUNT, NO_TOKENS, Tokens
from symphony.scheduler import Thread

MAX_TEXT_CHARS: Final = 10 * 1024 * 1024  # as much as one line can hold
MAX_FIELD_CHARS: Final = 8_000
_WHOLE: Final = frozenset({"text", "input", "output"})  # fields with whole texts of the agent
MAX_PAYLOAD_BYTES: Final = 16_384
MAX_PAYLOAD_DEPTH: Final = 16
# A thousand model calls, each with a context window of a million tokens.
MAX_TOKENS_PER_TURN: Final = 1_000_000_000
_MAX_USD: Final = 1_000_000.0
_EXIT_CODES: Final = range(-(2**31), 2**32)
MAX_QUEUED_EVENTS: Final = 65_536
MAX_QUEUED_CHARS: Final = 16 * 1024 * 1024
_log = structlog.get_logger(__name__)


def fits_one_turn(tokens: int) -> bool:
    """Whether one turn can have used this number of tokens."""
    return 0 <= tokens <= MAX_TOKENS_PER_TURN


_FIELD_NAMES: Final = {
    kind: tuple(field.name for field in fields(kind)) for kind in get_args(events.AgentEvent)
}


class EventBounds:
    """Checks the events of one session; logs the first refusal of each kind."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._thread = NO_TOKENS
        self._turn = NO_TOKENS

    def resume_from(self, used: Tokens) -> None:
        """Accept totals of a resumed thread that rise from its earlier usage."""
        self._thread = used

    def new_turn(self) -> None:
        """Count the tokens of another turn from now on."""
        self._turn = NO_TOKENS

    def check(self, event: events.AgentEvent) -> events.AgentEvent | None:
        """Return the event with its texts cut to their bounds; None if it reports something impossible."""
        match event:
            case events.UsageUpdate():
                return event if self._is_plausible(event) else None
            case events.RateLimits(payload=payload):
                if nests_deeper(payload, MAX_PAYLOAD_DEPTH):
                    self._refuse("rate_limits", f"it nests deeper than {MAX_PAYLOAD_DEPTH} levels")
                    return None
                if len(msgspec.json.encode(payload)) > MAX_PAYLOAD_BYTES:
                    self._refuse("rate_limits", f"it is larger than {MAX_PAYLOAD_BYTES:,} bytes")
                    return None
                return event
            case events.ItemFinished(exit_code=int(code)) if code not in _EXIT_CODES:
                event = replace(event, exit_code=None)
            case events.TurnEnd(cost_usd=float(cost)) if not 0 <= cost <= _MAX_USD:
                self._refuse("cost", f"it is not within 0 and {_MAX_USD:,.0f} USD")
                event = replace(event, cost_usd=None)
            case _:
                pass
        values = ((name, getattr(event, name)) for name in _FIELD_NAMES[type(event)])
        whole = isinstance(event, events.Text)
        cut: dict[str, Any] = {
            name: text[:limit]
            for name, text in values
            if isinstance(text, str)
            and len(text) > (limit := MAX_TEXT_CHARS if whole or name in _WHOLE else MAX_FIELD_CHARS)
        }
        return replace(event, **cut) if cut else event

    def _is_plausible(self, usage: events.UsageUpdate) -> bool:
        """Whether one turn can have used what this turn reported so far, this report included."""
        counts = usage.tokens
        if not all(0 <= count <= MAX_COUNT for count in counts.counts().values()):
            self._refuse("usage", f"a count is not within 0 and {MAX_COUNT}")
            return False
        rise = counts.above(self._thread) if usage.absolute else counts
        turn = self._turn.plus(rise)
        if not all(fits_one_turn(count) for count in turn.counts().values()):
            self._refuse("usage", f"a turn uses at most {MAX_TOKENS_PER_TURN:,} tokens")
            return False
        self._turn = turn
        if usage.absolute:
            self._thread = self._thread.plus(rise)
        return True

    def _refuse(self, what: str, reason: str) -> None:
        if what not in self._logged:
            self._logged.add(what)
            _log.warning("agent_report_refused", what=what, reason=reason)


class EventQueue:
    """The events that one read brought and the consumer has not taken.

    When too many events are queued, further ones are only counted. Never dropped are the end of the turn,
    without which the turn would not end, and the newest token totals.

    Args:
        max_events: how many events are queued.
    """

    def __init__(self, *, max_events: int = MAX_QUEUED_EVENTS) -> None:
        self._max_events = max_events
        self._bounds = EventBounds()
        self._events: deque[events.AgentEvent] = deque()
        self._chars = 0
        self._activity = 0
        self._late_usage: events.UsageUpdate | None = None

    def __bool__(self) -> bool:
        return bool(self._events)

    def take(self) -> events.AgentEvent:
        """Return the oldest event. Raises `IndexError` when there is none."""
        event = self._events.popleft()
        self._chars -= event_size(event)
        return event

    def resume_from(self, thread: Thread) -> None:
        """Accept totals of a resumed thread that rise from its earlier usage."""
        self._bounds.resume_from(thread.tokens)

    def emit(self, reported: events.AgentEvent) -> None:
        """Queue an event. One that is refused or has no room counts as activity."""
        event = self._bounds.check(reported)
        if event is None:
            self._activity += 1
            return
        ends = isinstance(event, events.TurnEnd | events.InputRequired)
        if ends:
            self.flush_activity()
            self._flush_usage()
        if ends or (len(self._events) < self._max_events and self._chars < MAX_QUEUED_CHARS):
            self._events.append(event)
            self._chars += event_size(event)
        elif isinstance(event, events.UsageUpdate):
            self._activity += self._late_usage is not None
            self._late_usage = _merged(self._late_usage, event)
        else:
            self._activity += 1

    def count(self, messages: int = 1) -> None:
        """Count messages without a meaning."""
        self._activity += messages

    def flush_activity(self) -> None:
        """Queue what was counted since the last read: at most one `Activity` per read."""
        if self._activity:
            if self._events and isinstance(last := self._events[-1], events.Activity):
                self._activity += last.count
                self._events.pop()
            self._events.append(events.Activity(count=self._activity))
            self._activity = 0

    def new_turn(self) -> None:
        """Begin a new turn: drop the end of an earlier one, and count tokens from zero."""
        self._bounds.new_turn()
        self._events = deque(
            event for event in self._events if not isinstance(event, events.TurnEnd | events.InputRequired)
        )

    def drain(self) -> tuple[events.AgentEvent, ...]:
        """Return and remove everything that is queued, the newest totals included."""
        self._flush_usage()
        left = tuple(self._events)
        self._events.clear()
        self._chars = 0
        return left

    def _flush_usage(self) -> None:
        if self._late_usage is not None:
            self._events.append(self._late_usage)
            self._late_usage = None


def _merged(earlier: events.UsageUpdate | None, later: events.UsageUpdate) -> events.UsageUpdate:
    """Two reports as one: absolute totals replace each other, other counts are added up."""
    if earlier is None or later.absolute:
        return later
    return replace(later, tokens=earlier.tokens.plus(later.tokens))


def event_size(event: object) -> int:
    """Return how many characters an event holds, approximately."""
    match event:
        case events.Text():
            return len(event.message)
        case events.Reasoning() | events.PlanUpdated():
            return len(event.text) + 100
        case events.ItemStarted():
            return len(event.summary) + len(event.arguments) + len(event.input)
        case events.ItemFinished():
            return len(event.output)
        case events.RateLimits():
            return MAX_PAYLOAD_BYTES
        case _:
            return 0
