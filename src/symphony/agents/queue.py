"""The events of a session that nobody has taken yet: bounded, never without the end of a turn (AG9, TK3)."""

from collections import deque

from symphony.agents.events import Activity, AgentEvent, InputRequired, TurnEnded, Usage

__all__ = ["MAX_WAITING_EVENTS", "EventQueue"]

MAX_WAITING_EVENTS = 65_536


class EventQueue:
    """What one read brought and the consumer has not seen.

    When too many events wait, their words are dropped and they only count. Never dropped are the end of the
    turn, without which it would not end, and the newest totals.
    """

    def __init__(self) -> None:
        self._events: deque[AgentEvent] = deque()
        self._quiet = 0
        self._late_usage: Usage | None = None

    def __bool__(self) -> bool:
        return bool(self._events)

    def take(self) -> AgentEvent:
        """The oldest event; there must be one."""
        return self._events.popleft()

    def emit(self, event: AgentEvent) -> None:
        """Queue an event."""
        ends = isinstance(event, TurnEnded | InputRequired)
        if ends:
            self.flush_quiet()
            self._flush_usage()
        if ends or len(self._events) < MAX_WAITING_EVENTS:
            self._events.append(event)
        elif isinstance(event, Usage) and self._late_usage is None:
            self._late_usage = event
        else:
            self._quiet += 1
            self._late_usage = event if isinstance(event, Usage) else self._late_usage

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

    def forget_ends(self) -> None:
        """A new turn begins: the end of an older one is none of its events."""
        self._events = deque(
            event for event in self._events if not isinstance(event, TurnEnded | InputRequired)
        )

    def drain(self) -> tuple[AgentEvent, ...]:
        """All that is left, the newest totals included."""
        self._flush_usage()
        left = tuple(self._events)
        self._events.clear()
        return left

    def _flush_usage(self) -> None:
        if self._late_usage is not None:
            self._events.append(self._late_usage)
            self._late_usage = None
