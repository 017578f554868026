"""The tools of sessions on every tracker over HTTP: move the own issue, comment on it, read comments.

The tools act on the session's issue; the model cannot name another one. `remote.RemoteTracker` runs the
tools. Adapters also have a tool for raw API requests, see `raw_tools`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from symphony.domain import ToolSpec

NAMES = MOVE, COMMENT, COMMENTS = "issue_move", "issue_comment", "issue_comments"
MAX_STATE_CHARS = 200
MAX_COMMENT_CHARS = 30_000
"""The limit for a comment; leaves space for a marker within `comments.MAX_BODY_CHARS`."""
MAX_SHOWN_COMMENTS = 50
MAX_SHOWN_CHARS = 4_000
"""How many comments `issue_comments` returns at most, and how many characters of each."""


def object_schema(properties: Mapping[str, Any], required: Iterable[str] | None = None) -> Mapping[str, Any]:
    """The JSON Schema of an object with these properties and no others; without `required` all are."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def text_schema(max_chars: int) -> Mapping[str, Any]:
    """The JSON Schema of a text that is not empty."""
    return {"type": "string", "minLength": 1, "maxLength": max_chars}


SPECS = (
    ToolSpec(
        name=MOVE,
        description=(
            "Move the issue you are working on to another state. "
            "If the state does not exist, the answer lists the states."
        ),
        input_schema=object_schema({"state": text_schema(MAX_STATE_CHARS)}),
    ),
    ToolSpec(
        name=COMMENT,
        description="Add a comment in Markdown to the issue you are working on.",
        input_schema=object_schema({"body": text_schema(MAX_COMMENT_CHARS)}),
    ),
    ToolSpec(
        name=COMMENTS,
        description="Read the newest comments on the issue you are working on, oldest first.",
        input_schema=object_schema({}),
    ),
)


def unknown_argument(arguments: object, known: Iterable[str]) -> str | None:
    """What is wrong with the names of the arguments, or `None`."""
    if not isinstance(arguments, Mapping):
        return "the arguments must be an object"
    unknown = sorted({str(key) for key in arguments} - set(known))
    return f"unknown argument {unknown[0][:80]!r}" if unknown else None


def argument_problem(arguments: Mapping[str, Any], **limits: int) -> str | None:
    """What is wrong with text arguments, or `None`; `limits` are their maximum lengths."""
    if problem := unknown_argument(arguments, limits):
        return problem
    for name, limit in limits.items():
        value = arguments.get(name)
        if not isinstance(value, str) or not value.strip():
            return f"{name!r} must be a text that is not empty"
        if len(value) > limit:
            return f"{name!r} has at most {limit} characters, this one has {len(value)}"
    return None
