"""The progress of one run, collected from the events of its session."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.agents.events import (
    Activity,
    AgentEvent,
    PlanUpdated,
    RateLimits,
    Reasoning,
    SessionStarted,
    Text,
    TurnEnd,
    Usage,
    describe_event,
    event_name,
)
from symphony.domain import NO_COST, NO_TOKENS, PATTERNS_ONLY, Cost, Redaction, Tokens, cost_of

_MAX_MODEL_CHARS = 200
Pricing = Callable[[str | None, Tokens], Cost]
"""Gives the cost of tokens that a model used now; the model is None if the agent does not name it."""


def unpriced(model: str | None, tokens: Tokens) -> Cost:
    """The cost without any price."""
    del model
    return cost_of(tokens, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of a run at one moment.

    Attributes:
        pid: the agent's process id, None before it exists.
        last_event: the specification's name of the newest event (section 10.4).
        last_message: the newest event that says something, in one short line for display.
        last_words: the newest message of the agent to people, in one short line; None before the first.
        turn_count: turns started in this run.
        model: the one that the agent says it uses.
        tokens: used by this run.
        cost: of these tokens: as the agent reports it at the end of a turn, else by price.
        turn_cost: the part of the latest turn.
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
    model: str | None = None
    tokens: Tokens = NO_TOKENS
    cost: Cost = NO_COST
    turn_cost: Cost = NO_COST
    rate_limits: Mapping[str, Any] | None = None
    events: int = 0


class RunStats:
    """Collects the events of one run; `redaction` masks the texts, `pricing` prices tokens.

    A stream may carry thousands of events a second, while the scheduler needs a snapshot a few times a
    second: `add` only remembers, and `snapshot` formats.
    """

    def __init__(
        self, *, pid: int | None = None, redaction: Redaction = PATTERNS_ONLY, pricing: Pricing = unpriced
    ) -> None:
        self._redaction = redaction
        self._pricing = pricing
        self._pid = pid
        self._started: SessionStarted | None = None
        self._turn_count = 0
        self._last_event: AgentEvent | None = None
        self._last_described: AgentEvent | None = None
        self._last_text: Text | None = None
        self._model: str | None = None
        self._tokens = NO_TOKENS
        self._earlier_cost = self._turn_cost = NO_COST
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
                self._count(rise, event.model)
            case Usage():
                self._count(event.tokens, event.model)
            case TurnEnd(cost_usd=float(usd)):
                self._turn_cost = Cost(usd=usd)
            case RateLimits():
                self._rate_limits = event.payload
            case SessionStarted():
                if self._started is None or event.session_id != self._started.session_id:
                    self._turn_count += 1
                    self._earlier_cost, self._turn_cost = self._earlier_cost.plus(self._turn_cost), NO_COST
                self._started, self._model = event, event.model or self._model
            case Text():
                self._last_text = event
                self._events -= event.interrupted  # only its pieces were messages of the agent
            case _:
                pass
        self._events += 1
        self._last_event = event
        if not isinstance(event, Usage | RateLimits | Reasoning | PlanUpdated):
            self._last_described = event

    def _count(self, tokens: Tokens, model: str | None) -> None:
        self._model = self._model or model
        self._tokens = self._tokens.plus(tokens)
        self._turn_cost = self._turn_cost.plus(self._pricing(model or self._model, tokens))

    @property
    def tokens(self) -> Tokens:
        """The tokens used by this run so far."""
        return self._tokens

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
            model=None if self._model is None else self._redaction.line(self._model, _MAX_MODEL_CHARS),
            tokens=self._tokens,
            cost=self._earlier_cost.plus(self._turn_cost),
            turn_cost=self._turn_cost,
            rate_limits=self._rate_limits,
            events=self._events,
        )
