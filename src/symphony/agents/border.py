"""Where what an agent sends comes in: everything is held to bounds here, the same for every backend.

`decoded` reads the JSON of a message, `Border` judges the events that a backend made of messages. Nothing
behind the two meets a number, a text or a structure that it could not count, show, mask or write down.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

import msgspec
import structlog

from symphony.agents.events import AgentEvent, ItemFinished, RateLimits, Text, TurnEnded, Usage
from symphony.domain.counts import MOST
from symphony.domain.decoding import UNREADABLE

__all__ = [
    "MAX_DEPTH",
    "MAX_ID_CHARS",
    "MAX_PAYLOAD_BYTES",
    "MAX_PAYLOAD_DEPTH",
    "MAX_TEXT_CHARS",
    "MOST_TOKENS_PER_TURN",
    "Border",
    "decoded",
    "is_cost_of_a_turn",
    "parse",
]

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
    except UNREADABLE as error:
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


class Border:
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
        if not all(0 <= count <= MOST for count in counts):
            self._refuse("usage", f"a count is not within 0 and {MOST}")
            return False
        high = self._high
        if usage.absolute:
            high = _each(max, counts, high)
            counts = _each(int.__sub__, high, self._high)
        turn = _each(int.__add__, self._turn, counts)
        if not all(is_cost_of_a_turn(count) for count in turn):
            self._refuse("usage", f"a turn uses at most {MOST_TOKENS_PER_TURN:,} tokens")
            return False
        self._turn, self._high = turn, high
        return True

    def _refuse(self, what: str, reason: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning("agent_report_refused", what=what, reason=reason)


def _each(combine: Callable[[int, int], int], one: Counts, other: Counts) -> Counts:
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
