"""Notifications of the app-server in our vocabulary (AG9, AG11, AG16, TK1, TK7; AGENT-FACTS 2.3). Pure.

`translate` looks a method up in one table; what is not in it is a sign of life and nothing else, and its
params are not even decoded. Unknown methods outside `item/` are searched for totals and rate limits, because
older versions wrap them differently.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symphony.agents.codex.errors import describe_error, turn_failure
from symphony.agents.codex.items import item_completed, item_started
from symphony.agents.codex.tokens import rate_limits_in, total_usage_in, usage_of
from symphony.agents.events import (
    AgentEvent,
    ContextCompacted,
    InputRequired,
    Malformed,
    Notice,
    RateLimits,
    TurnEnded,
    TurnStatus,
)
from symphony.agents.redaction import redact
from symphony.agents.wire.jsonrpc import Notification, parse
from symphony.agents.wire.lines import EXCERPT_CHARS, excerpt
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["HEARD", "Translation", "means_nothing", "translate"]

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What one notification means, and whose it is.

    `thread_id` and `turn_id` are null where the message names none. `error` is what stands
    in the way of the turn: with `fatal` its end must follow, without it the agent tries again.
    """

    events: Sequence[AgentEvent] = ()
    thread_id: str | None = None
    turn_id: str | None = None
    turn_started: bool = False
    error: Failure | None = None
    fatal: bool = False


_NOTHING = Translation()
_INPUT_METHODS = frozenset(
    f"turn/{name}"
    for name in (
        "input_required",
        "needs_input",
        "need_input",
        "request_input",
        "request_response",
        "provide_input",
        "approval_required",
    )
)
_INPUT_FLAGS = ("requiresInput", "needsInput", "inputRequired", "input_required")
_TELLING = (b"limitId", b"limit_id", b"limitName", b"limit_name", b"total_token_usage", b"tokenUsage")


def translate(message: Notification) -> Translation:
    """The meaning of one notification; never raises, whatever it holds."""
    handler = _HANDLERS.get(message.method) or _fallback(message)
    if handler is None:
        return _NOTHING
    try:
        params = parse(message.params)
    except ValueError:
        return Translation(events=(Malformed(excerpt=_excerpt(message)),))
    return handler(params)


def means_nothing(method: str) -> bool:
    """Whether notifications of this method are signs of life and nothing else, whatever they hold."""
    return method.startswith("item/") and method not in _HANDLERS


def _fallback(message: Notification) -> Callable[[Params], Translation] | None:
    method = message.method
    if method in _INPUT_METHODS:
        return _input_required
    if method.startswith("turn/"):
        return _other_turn
    if means_nothing(method):
        return None
    raw = bytes(message.params)
    return _figures if any(word in raw for word in _TELLING) else None


def _excerpt(message: Notification) -> str:
    text = excerpt(bytes(message.params))
    return f"{message.method}: {text}"[:EXCERPT_CHARS]


def _of(params: Params, *events: AgentEvent | None, **extra: Any) -> Translation:
    return Translation(
        events=tuple(event for event in events if event is not None),
        thread_id=_string(params, "threadId"),
        turn_id=_string(params, "turnId") or _string(_map(params, "turn"), "id"),
        **extra,
    )


def _string(params: Params, key: str) -> str | None:
    value = params.get(key)
    return value if isinstance(value, str) and value else None


def _map(params: Params, key: str) -> Params:
    value = params.get(key)
    return value if isinstance(value, dict) else {}


def _item_started(params: Params) -> Translation:
    return _of(params, item_started(_map(params, "item")))


def _item_completed(params: Params) -> Translation:
    return _of(params, item_completed(_map(params, "item")))


def _figures(params: Params) -> Translation:
    return _of(params, total_usage_in(params), rate_limits_in(params))


def _rate_limits(params: Params) -> Translation:
    payload = _map(params, "rateLimits")
    says = any(payload.get(key) is not None for key in ("primary", "secondary", "credits"))
    return _of(params, RateLimits(payload=payload) if says else rate_limits_in(params))


def _turn_started(params: Params) -> Translation:
    return _of(params, turn_started=True)


def _turn_completed(params: Params) -> Translation:
    if _asks(params):
        return _input_required(params)
    turn = _map(params, "turn")
    status = _string(turn, "status") or TurnStatus.COMPLETED.value
    usage = total_usage_in(params) or usage_of(params.get("usage")) or usage_of(turn.get("usage"))
    return _of(params, usage, _ended(status, _map(turn, "error") or _map(params, "error")))


def _turn_failed(params: Params) -> Translation:
    error = _map(_map(params, "turn"), "error") or _map(params, "error")
    return _of(params, _ended("failed", error))


def _turn_cancelled(params: Params) -> Translation:
    return _of(params, _ended("interrupted", {}))


def _ended(status: str, error: Params) -> TurnEnded:
    match status:
        case "completed":
            return TurnEnded(status=TurnStatus.COMPLETED)
        case "interrupted":
            message = describe_error(error) if error else "the turn was interrupted"
            failure = Failure(category=Category.TURN_CANCELLED, blame=Blame.AGENT, message=message)
            return TurnEnded(status=TurnStatus.INTERRUPTED, failure=failure)
        case "failed":
            return TurnEnded(status=TurnStatus.FAILED, failure=turn_failure(error))
        case other:
            failure = turn_failure({"message": f"the turn ended with the unknown status {other!r}"})
            return TurnEnded(status=TurnStatus.FAILED, failure=failure)


def _other_turn(params: Params) -> Translation:
    return _input_required(params) if _asks(params) else _of(params)


def _input_required(params: Params) -> Translation:
    reason = _string(params, "message") or _string(params, "reason") or "the agent waits for a person"
    return _of(params, InputRequired(reason=redact(reason)))


def _asks(params: Params) -> bool:
    places = (params, _map(params, "turn"))
    return any(
        place.get("type") in ("input_required", "needs_input")
        or any(place.get(flag) is True for flag in _INPUT_FLAGS)
        for place in places
    )


def _error(params: Params) -> Translation:
    error = _map(params, "error")
    fatal = params.get("willRetry") is not True
    notice = Notice(level="error" if fatal else "warning", message=describe_error(error))
    return _of(params, notice, error=turn_failure(error), fatal=fatal)


def _notice(level: str, *keys: str) -> Callable[[Params], Translation]:
    def handle(params: Params) -> Translation:
        text = redact(": ".join(value for key in keys if (value := _string(params, key))))
        return _of(params, Notice(level=level, message=text) if text else None)

    return handle


def _rerouted(params: Params) -> Translation:
    models = f"model rerouted from {_string(params, 'fromModel')} to {_string(params, 'toModel')}"
    return _of(params, Notice(level="warning", message=redact(models)))


def _compacted(params: Params) -> Translation:
    return _of(params, ContextCompacted())


_HANDLERS: Mapping[str, Callable[[Params], Translation]] = {
    "item/started": _item_started,
    "item/completed": _item_completed,
    "thread/tokenUsage/updated": _figures,
    "account/rateLimits/updated": _rate_limits,
    "turn/started": _turn_started,
    "turn/completed": _turn_completed,
    "turn/failed": _turn_failed,
    "turn/cancelled": _turn_cancelled,
    "error": _error,
    "warning": _notice("warning", "message"),
    "guardianWarning": _notice("warning", "message"),
    "configWarning": _notice("warning", "summary", "details"),
    "deprecationNotice": _notice("info", "summary", "details"),
    "model/rerouted": _rerouted,
    "thread/compacted": _compacted,
}

HEARD = frozenset(_HANDLERS)
"""The notifications that mean something to us."""
