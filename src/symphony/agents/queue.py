"""The events of a session that nobody has taken yet: bounded, never without the end of a turn (AG9, TK3)."""

from collections import deque

from symphony.agents.border import MAX_PAYLOAD_BYTES, Border
from symphony.agents.events import (
    Activity,
    AgentEvent,
    InputRequired,
    ItemStarted,
    RateLimits,
    Text,
    TurnEnded,
    Usage,
)
from symphony.scheduler.inputs import Thread

__all__ = ["MAX_WAITING_CHARS", "MAX_WAITING_EVENTS", "EventQueue"]

MAX_WAITING_EVENTS = 65_536
MAX_WAITING_CHARS = 16 * 1024 * 1024


class EventQueue:
    """What one read brought and the consumer has not seen; only what passes the border gets in.

    When too many events wait, their words are dropped and they only count. Never dropped are the end of the
    turn, without which it would not end, and the newest totals.
    """

    def __init__(self) -> None:
        self._border = Border()
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
