"""The plain tools of a session on every tracker over HTTP: move its own issue, comment on its own issue.

The issue is the session's and cannot be named by the model. `trackers.remote` runs the tools with the
daemon's credential. The raw tool of an adapter, which reaches more, is in `trackers.raw_tools`.
"""

from collections.abc import Mapping
from typing import Any

from symphony.domain.tools import ToolSpec

__all__ = [
    "COMMENT",
    "MAX_COMMENT_CHARS",
    "MAX_STATE_CHARS",
    "MOVE",
    "NAMES",
    "SPECS",
    "argument_problem",
    "closed_schema",
]

NAMES = MOVE, COMMENT = "issue_move", "issue_comment"
MAX_STATE_CHARS = 200
MAX_COMMENT_CHARS = 30_000
"""Less than a comment of the daemon may have: there is room for the marker in front."""


def closed_schema(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON Schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def argument_problem(arguments: object, **limits: int) -> str | None:
    """What is wrong with the arguments of a call, or `None`.

    Each argument in `limits` must be a text that is not empty and has at most so many characters. There are
    no others.
    """
    if not isinstance(arguments, Mapping):
        return "the arguments must be an object"
    unknown = sorted(str(key) for key in arguments if key not in limits)
    if unknown:
        return f"unknown argument {unknown[0][:80]!r}"
    for name, limit in limits.items():
        value = arguments.get(name)
        if not isinstance(value, str) or not value.strip():
            return f"{name!r} must be a text that is not empty"
        if len(value) > limit:
            return f"{name!r} holds at most {limit} characters, this one has {len(value)}"
    return None


SPECS = (
    ToolSpec(
        name=MOVE,
        description=(
            "Move the issue you are working on to another state. "
            "The answer to a state that does not exist names those that do."
        ),
        input_schema=closed_schema(state={"type": "string", "minLength": 1, "maxLength": MAX_STATE_CHARS}),
    ),
    ToolSpec(
        name=COMMENT,
        description="Add a comment in Markdown to the issue you are working on.",
        input_schema=closed_schema(body={"type": "string", "minLength": 1, "maxLength": MAX_COMMENT_CHARS}),
    ),
)
