"""Token totals and rate limits wherever Codex puts them, old shapes and new (TK1, TK2, TK7). Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from symphony.agents.events import RateLimits, Usage

__all__ = ["rate_limits_in", "total_usage_in", "usage_of"]

_INPUT = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
_OUTPUT = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")
_TOTAL = ("totalTokens", "total_tokens", "total")
_TOTAL_PATHS = (
    ("tokenUsage", "total"),
    ("msg", "info", "total_token_usage"),
    ("msg", "payload", "info", "total_token_usage"),
    ("info", "total_token_usage"),
    ("total_token_usage",),
)
_MAX_DEPTH = 8


def usage_of(counts: object) -> Usage | None:
    """Absolute totals out of one map of counts; null when it names neither input, output nor total."""
    if not isinstance(counts, Mapping):
        return None
    given, taken, total = (_first(counts, names) for names in (_INPUT, _OUTPUT, _TOTAL))
    if given is None and taken is None and total is None:
        return None
    given, taken = given or 0, taken or 0
    return Usage(
        absolute=True,
        input_tokens=given,
        output_tokens=taken,
        total_tokens=given + taken if total is None else total,
    )


def total_usage_in(params: Mapping[str, Any]) -> Usage | None:
    """The thread's totals in a notification. What the last call alone used is never looked at."""
    found = (usage_of(_at(params, path)) for path in _TOTAL_PATHS)
    return next((usage for usage in found if usage is not None), None)


def rate_limits_in(params: Mapping[str, Any]) -> RateLimits | None:
    """The first map, at any depth, that names a limit and says something about it (TK7)."""
    payload = next((node for node in _maps(params, _MAX_DEPTH) if _is_rate_limit(node)), None)
    return None if payload is None else RateLimits(payload=payload)


def _is_rate_limit(node: Mapping[str, Any]) -> bool:
    names = any(node.get(key) for key in ("limitId", "limit_id", "limitName", "limit_name"))
    return names and any(node.get(key) is not None for key in ("primary", "secondary", "credits"))


def _maps(node: object, depth: int) -> Iterator[Mapping[str, Any]]:
    if depth == 0:
        return
    if isinstance(node, Mapping):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _maps(child, depth - 1)


def _at(node: object, path: tuple[str, ...]) -> object:
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = (_count(counts.get(name)) for name in names)
    return next((value for value in found if value is not None), None)


def _count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:18])
    return None
