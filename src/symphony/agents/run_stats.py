"""The progress of one run, collected from the events of its session."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from symphony.agents import events
from symphony.domain import NO_COST, NO_FACTS, NO_TOKENS, PATTERNS_ONLY, Cost, Redaction, Tokens, cost_of
from symphony.scheduler import RunReport, RunStage

_MAX_MODEL_CHARS = 200
Pricing = Callable[[str | None, Tokens], Cost]
"""Gives the cost of tokens that a model used now; the model is None if the agent does not name it."""


def unpriced(model: str | None, tokens: Tokens) -> Cost:
    """The cost without any price."""
    del model
    return cost_of(tokens, None)


class RunStats:
    """Collects the facts of one run from its events; `redaction` masks the texts, `pricing` prices tokens.

    A stream may carry thousands of events a second, while the scheduler needs a snapshot a few times a
    second: `add` only remembers, and `snapshot` formats.
    """

    def __init__(self, *, redaction: Redaction = PATTERNS_ONLY, pricing: Pricing = unpriced) -> None:
        self._redaction = redaction
        self._pricing = pricing
        self.facts = NO_FACTS
        self.turn_cost = NO_COST
        self._last_event: events.AgentEvent | None = None
        self._last_described: events.AgentEvent | None = None
        self._last_text: events.Text | None = None
        self._model: str | None = None
        self._earlier_cost = NO_COST
        self._thread_tokens = NO_TOKENS
        self._rate_limits: Mapping[str, Any] | None = None
        self._events = 0

    def resume_from(self, used: Tokens) -> None:
        """Count a resumed thread from the totals that were stored for it."""
        self._thread_tokens = used

    def add(self, event: events.AgentEvent) -> None:
        """Take one event into account."""
        match event:
            case events.Activity():
                self._events += event.count
                return
            case events.UsageUpdate(absolute=True):
                rise = event.tokens.above(self._thread_tokens)
                self._thread_tokens = self._thread_tokens.plus(rise)
                self._count(rise, event.model)
            case events.UsageUpdate():
                self._count(event.tokens, event.model)
            case events.TurnEnd(cost_usd=float(usd)):
                self._set_turn_cost(Cost(cost_usd=usd))
            case events.RateLimits():
                self._rate_limits = event.payload
            case events.SessionStarted():
                self._model = event.model or self._model
                if event.session_id != self.facts.session_id:
                    self._earlier_cost, self.turn_cost = self._earlier_cost.plus(self.turn_cost), NO_COST
                    self.facts = structs.replace(
                        self.facts,
                        turn_count=self.facts.turn_count + 1,
                        session_id=event.session_id,
                        thread_id=event.thread_id,
                    )
            case events.Text():
                self._last_text = event
                self._events -= event.interrupted  # only its pieces were messages of the agent
            case _:
                pass
        self._events += 1
        self._last_event = event
        if not isinstance(
            event, events.UsageUpdate | events.RateLimits | events.Reasoning | events.PlanUpdated
        ):
            self._last_described = event

    def _count(self, tokens: Tokens, model: str | None) -> None:
        self._model = self._model or model
        self.facts = structs.replace(self.facts, tokens=self.facts.tokens.plus(tokens))
        self._set_turn_cost(self.turn_cost.plus(self._pricing(model or self._model, tokens)))

    def _set_turn_cost(self, cost: Cost) -> None:
        self.turn_cost = cost
        self.facts = structs.replace(self.facts, **structs.asdict(self._earlier_cost.plus(cost)))

    def snapshot(self, stage: RunStage = RunStage.STREAMING_TURN) -> RunReport:
        """Return the report of a run in this stage."""
        event, described, text = self._last_event, self._last_described, self._last_text
        model = None if self._model is None else self._redaction.line(self._model, _MAX_MODEL_CHARS)
        return RunReport(
            stage=stage,
            facts=structs.replace(self.facts, model=model),
            event_count=self._events,
            last_event=None if event is None else events.event_name(event),
            last_message=None if described is None else events.describe_event(described, self._redaction),
            last_words=None if text is None else events.describe_event(text, self._redaction),
            rate_limits=self._rate_limits,
        )
