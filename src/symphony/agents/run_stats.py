"""The progress of one run, collected from the events of its session."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symphony.agents.events import (
    NO_TOKENS,
    Activity,
    AgentEvent,
    RateLimits,
    SessionStarted,
    Text,
    Tokens,
    Usage,
    describe_event,
    event_name,
)
from symphony.domain import PATTERNS_ONLY, Redaction


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of a run at one moment.

    Attributes:
        pid: the agent's process id, None before it exists.
        last_event: the specification's name of the newest event (section 10.4).
        last_message: the newest event that says something, in one short line for display.
        last_words: the newest message of the agent to people, in one short line; None before the first.
        turn_count: turns started in this run.
        tokens: used by this run.
        thread_tokens: high-water mark of the thread's own totals, from which a resumed thread goes on.
        rate_limits: the newest payload, as the vendor sent it.
        events: the number of messages of the agent.
    """

    pid: int | None = None
    session_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    turn_count: int = 0
    last_event: str | None = None
    last_message: str | None = None
    last_words: str | None = None
    tokens: Tokens = NO_TOKENS
    thread_tokens: Tokens = NO_TOKENS
    rate_limits: Mapping[str, Any] | None = None
    events: int = 0


class RunStats:
    """Collects the events of one run; `redaction` masks the texts.

    A stream may carry thousands of events a second, while the scheduler needs a snapshot a few times a
    second: `add` only remembers, and `snapshot` formats.
    """

    def __init__(self, *, pid: int | None = None, redaction: Redaction = PATTERNS_ONLY) -> None:
        self._redaction = redaction
        self._pid = pid
        self._started: SessionStarted | None = None
        self._turn_count = 0
        self._last_event: AgentEvent | None = None
        self._last_described: AgentEvent | None = None
        self._last_text: Text | None = None
        self._tokens = NO_TOKENS
        self._thread_tokens = NO_TOKENS
        self._rate_limits: Mapping[str, Any] | None = None
        self._events = 0

    def resume_from(self, used: Tokens) -> None:
        """Count a resumed thread from the totals that were stored for it."""
        self._thread_tokens = used

    def add(self, event: AgentEvent) -> None:
        """Take one event into account."""
        match event:
            case Activity():
                self._events += event.count
                return
            case Usage(absolute=True):
                rise = event.tokens.above(self._thread_tokens)
                self._thread_tokens = self._thread_tokens.plus(rise)
                self._tokens = self._tokens.plus(rise)
            case Usage():
                self._tokens = self._tokens.plus(event.tokens)
            case RateLimits():
                self._rate_limits = event.payload
            case SessionStarted():
                self._turn_count += self._started is None or event.session_id != self._started.session_id
                self._started = event
            case Text():
                self._last_text = event
            case _:
                pass
        self._events += 1
        self._last_event = event
        if not isinstance(event, Usage | RateLimits):
            self._last_described = event

    def snapshot(self) -> RunProgress:
        """Return the progress at this moment."""
        started, event, described = self._started, self._last_event, self._last_described
        text = self._last_text
        return RunProgress(
            pid=self._pid,
            session_id=None if started is None else started.session_id,
            thread_id=None if started is None else started.thread_id,
            turn_id=None if started is None else started.turn_id,
            turn_count=self._turn_count,
            last_event=None if event is None else event_name(event),
            last_message=None if described is None else describe_event(described, self._redaction),
            last_words=None if text is None else describe_event(text, self._redaction),
            tokens=self._tokens,
            thread_tokens=self._thread_tokens,
            rate_limits=self._rate_limits,
            events=self._events,
        )
