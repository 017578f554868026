"""Validation errors in our own words: a phrase that follows the name of the key, and what to do about it."""

import json
from typing import Any, Final

from pydantic_core import ErrorDetails

__all__ = ["quoted", "wording"]

_MAX_QUOTED: Final = 60

_EXPECTED: Final = {
    "bool_type": ("true or false", "write true or false, without quotes"),
    "dict_type": ("a map", "write its keys indented below it"),
    "int_type": ("a whole number", "write digits only, without quotes"),
    "model_type": ("a map", "write its keys indented below it"),
    "string_type": ("text", "put the value in quotes"),
    "tuple_type": ("a list", "write it as [first, second]"),
}
"""Per kind of type error: what the value must be, and how to write it."""


def wording(problem: ErrorDetails) -> tuple[str, str | None]:
    """The phrase and the hint for one error of pydantic; never shows the value of a key."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _EXPECTED:
        expected, hint = _EXPECTED[kind]
        return f"must be {expected}, not {_kind_of(problem['input'])}", hint
    match kind:
        case "greater_than":
            return f"must be greater than {context['gt']}", None
        case "greater_than_equal":
            return f"must be {context['ge']} or more", None
        case "literal_error":
            return f"must be one of {context['expected']}", None
        case "value_error":
            return str(context["error"]), None
        case _:
            return f"is not valid ({kind})", None


def quoted(text: str) -> str:
    """Text of the file for a one-line message: in double quotes, escaped, and not too long."""
    shown = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
    return json.dumps(shown, ensure_ascii=False)


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case int():
            return "a number"
        case float():
            return "a decimal number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case dict():
            return "a map"
        case _:
            return type(value).__name__
