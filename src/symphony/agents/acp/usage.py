"""Token counts in the answer to a prompt, wherever a profile says that they are (TK1, TK3). Pure.

`usage_update` is how full the context is, and no consumption; it is not looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from symphony.agents.events import Usage

__all__ = ["usage_in"]

_INPUT = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
_OUTPUT = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")
_CACHED = ("cachedReadTokens", "cachedWriteTokens")
_THOUGHTS = ("thoughtTokens",)
_TOTAL = ("totalTokens", "total_tokens")


def usage_in(result: Mapping[str, Any], path: Sequence[str]) -> Usage | None:
    """What a turn used; null when nothing is told.

    Cached tokens stand beside the input, and belong to it. Thoughts may stand beside the output; that they do
    is seen by the total, which is not believed in anything else: it may hold the size of a context.
    """
    node: object = result
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        return None
    given, taken, total = (_first(node, names) for names in (_INPUT, _OUTPUT, _TOTAL))
    if given is None and taken is None and total is None:
        return None
    cached = sum(_first(node, (name,)) or 0 for name in _CACHED)
    if given is None and taken is None:
        return Usage(absolute=False, input_tokens=0, output_tokens=0, total_tokens=total or 0)
    given, taken = (given or 0) + cached, taken or 0
    thoughts = _first(node, _THOUGHTS) or 0
    taken += thoughts if total == given + taken + thoughts else 0
    return Usage(absolute=False, input_tokens=given, output_tokens=taken, total_tokens=given + taken)


def _first(counts: Mapping[str, Any], names: Sequence[str]) -> int | None:
    found = (counts.get(name) for name in names)
    return next(
        (value for value in found if isinstance(value, int) and not isinstance(value, bool) and value >= 0),
        None,
    )
