"""Counts what a session used: per message while a turn runs, and exactly when it ends (TK1, TK2). Pure.

`modelUsage` of a result holds totals of the process, sub-agents included; its `usage` leaves those out, and
what stands at a message is an estimate made at its beginning. So messages are counted as they come, and a
result adds what is missing. Input tokens include cached ones, as everywhere with us; Claude's own do not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symphony.agents.border import MAX_ID_CHARS, is_cost_of_a_turn
from symphony.agents.events import Usage
from symphony.domain.counts import MOST

__all__ = ["Ledger"]

_MAX_MESSAGES = 10_000
_OF_MODEL = (("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"), "outputTokens")
_OF_TURN = (("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens")


@dataclass(frozen=True, slots=True)
class _Counts:
    taken: int = 0
    given: int = 0

    def plus(self, other: "_Counts") -> "_Counts":
        return _Counts(self.taken + other.taken, self.given + other.given)

    def above(self, other: "_Counts") -> "_Counts":
        return _Counts(max(0, self.taken - other.taken), max(0, self.given - other.given))


class Ledger:
    """What one process has used, of which each token is told once; and what that cost."""

    def __init__(self) -> None:
        self._told = _Counts()
        self._before_turn = _Counts()
        self._messages: dict[str, None] = {}
        self._cost_usd = 0.0

    def message(self, message: Mapping[str, Any]) -> Usage | None:
        """Count a message of the model, which comes once per block of its content."""
        name = str(message.get("id"))[:MAX_ID_CHARS]
        if name in self._messages:
            return None
        self._messages[name] = None
        if len(self._messages) > _MAX_MESSAGES:
            del self._messages[next(iter(self._messages))]
        return self._tell(_counts(message.get("usage"), _OF_TURN))

    def result(self, result: Mapping[str, Any]) -> Usage | None:
        """What the end of a turn adds."""
        models = result.get("modelUsage")
        totals = _Counts()
        for usage in models.values() if isinstance(models, dict) else ():
            totals = totals.plus(_counts(usage, _OF_MODEL))
        if totals == _Counts():
            totals = self._before_turn.plus(_counts(result.get("usage"), _OF_TURN))
        usage = self._tell(totals.above(self._told))
        self._before_turn = self._told
        self._messages.clear()
        return usage

    def cost_usd(self, result: Mapping[str, Any]) -> float | None:
        """What the turn cost by the agent's own count, whose totals are of the process; null for nothing.

        Infinite where that cannot be, and then nothing is remembered of it.
        """
        total = result.get("total_cost_usd")
        if not isinstance(total, int | float) or isinstance(total, bool) or total <= self._cost_usd:
            return None
        if total > MOST:
            return math.inf
        cost, self._cost_usd = total - self._cost_usd, float(total)
        return cost

    def _tell(self, new: _Counts) -> Usage | None:
        if new == _Counts():
            return None
        if is_cost_of_a_turn(new.taken + new.given):  # else it is refused, and must not hide what follows
            self._told = self._told.plus(new)
        return Usage(
            absolute=False,
            input_tokens=new.taken,
            output_tokens=new.given,
            total_tokens=new.taken + new.given,
        )


def _counts(usage: object, names: tuple[tuple[str, ...], str]) -> _Counts:
    if not isinstance(usage, Mapping):
        return _Counts()
    return _Counts(sum(_count(usage.get(name)) for name in names[0]), _count(usage.get(names[1])))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
