"""Validation errors in our own words: a phrase that follows the name of the key, and what to do about it."""

from typing import Final

from pydantic_core import ErrorDetails

__all__ = ["wording"]

_EXPECTED: Final = {
    "bool_type": ("true or false", "write true or false, without quotes"),
    "dataclass_type": ("a map", "write its keys indented below it"),
    "dict_type": ("a map", "write its keys indented below it"),
    "int_type": ("a whole number", "write digits only, without quotes"),
    "is_instance_of": ("a path", "put the value in quotes"),
    "string_type": ("text", "put the value in quotes"),
    "tuple_type": ("a list", "write it as [first, second]"),
}
"""Per kind of type error: what the value must be, and how to write it."""

_BOUNDS: Final = {
    "greater_than": ("must be greater than {}", "gt"),
    "greater_than_equal": ("must be {} or more", "ge"),
    "less_than_equal": ("must be {} or less", "le"),
}
"""Per kind of bound: the phrase, and where the engine keeps the number."""

_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a decimal number"),
    (str, "text"),
    (list, "a list"),
    (dict, "a map"),
    (type(None), "nothing"),
)
"""What people call the values of YAML; bool stands first because it is an int."""


def wording(problem: ErrorDetails) -> tuple[str, str | None]:
    """The phrase and the hint for one error of the engine; never shows the value of a key."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _EXPECTED:
        expected, hint = _EXPECTED[kind]
        return f"must be {expected}, not {_kind_of(problem['input'])}", hint
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return words.format(context[name]), None
    match kind:
        case "missing":
            return "is required", None
        case "literal_error":
            return f"must be one of {context['expected']}", None
        case "value_error":
            return str(context["error"]), None
        case _:
            return f"is not valid ({kind})", None


def _kind_of(value: object) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), type(value).__name__)
