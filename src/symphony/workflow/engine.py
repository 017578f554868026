"""Judges values by pydantic's engine and makes our own dataclasses of them (docs/adr/0007).

The models are as all our values: frozen, slotted, keyword-only. What a value must be stands in the annotation
of its field; here alone annotations become what the engine reads. It tells all mistakes at once, each with
its place.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from pydantic_core import SchemaValidator

__all__ = [
    "AfterCheck",
    "BeforeCheck",
    "Bounds",
    "Section",
    "marks_of",
    "names_of",
    "schema_of",
    "section_in",
    "typed",
]

Schema = dict[str, Any]
"""What the engine reads (`pydantic_core.core_schema.CoreSchema`)."""

_CONFIG: Final = {"strict": True, "hide_input_in_errors": True}
_PLAIN: Final[Mapping[Any, Schema]] = {
    str: {"type": "str"},
    bool: {"type": "bool"},
    int: {"type": "int"},
    Any: {"type": "any"},
    Path: {"type": "is-instance", "cls": Path},
}


@dataclass(frozen=True, slots=True)
class AfterCheck:
    """Changes a value that is of its type, or refuses it by a `ValueError` whose text is the phrase told."""

    check: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class BeforeCheck:
    """As `AfterCheck`, but it looks at the value before its type is judged."""

    check: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of a number: `gt` and `ge` from below, `le` from above."""

    gt: int | None = None
    ge: int | None = None
    le: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A map of a file: frozen and strict. Unknown keys are warned of by `validate` (CF13), not refused."""


S = TypeVar("S", bound=Section)


def typed(model: type[S], values: object) -> S:
    """The values as a section, defaults filled in.

    Raises:
        pydantic_core.ValidationError: everything that is wrong; its text holds no value.
    """
    made: S = _validator(model).validate_python(values)  # type: ignore[arg-type]  # classes can be hashed
    return made


@cache
def _validator(model: type[Section]) -> SchemaValidator:
    return SchemaValidator(schema_of(model), _CONFIG)  # type: ignore[arg-type]  # plain maps for its own


def names_of(model: type[Section]) -> tuple[str, ...]:
    """The keys of a section, in order."""
    return tuple(one.name for one in fields(model))


def section_in(annotation: Any) -> type[Section] | None:
    """The section that a field of this type holds; null where it holds a value."""
    plain, _ = marks_of(annotation)
    return plain if isinstance(plain, type) and issubclass(plain, Section) else None


def marks_of(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type, and what `Annotated` says of it, the innermost first."""
    if get_origin(annotation) is Annotated:
        plain, *marks = get_args(annotation)
        return plain, tuple(marks)
    return annotation, ()


def schema_of(annotation: Any) -> Schema:
    """What the engine reads, for the types that settings are made of.

    Raises:
        TypeError: it is of another type.
    """
    plain, marks = marks_of(annotation)
    schema = _schema(plain)
    for mark in marks:
        match mark:
            case AfterCheck(check):
                schema = _checked("function-after", check, schema)
            case BeforeCheck(check):
                schema = _checked("function-before", check, schema)
            case Bounds():
                bounds = {"gt": mark.gt, "ge": mark.ge, "le": mark.le}
                schema = schema | {name: bound for name, bound in bounds.items() if bound is not None}
    return schema


def _checked(kind: str, check: Callable[[Any], Any], schema: Schema) -> Schema:
    return {"type": kind, "function": {"type": "no-info", "function": check}, "schema": schema}


def _schema(plain: Any) -> Schema:
    if plain in _PLAIN:
        return _PLAIN[plain]
    if section := section_in(plain):
        return _section(section)
    origin, inside = get_origin(plain), get_args(plain)
    if origin is Literal:
        return {"type": "literal", "expected": list(inside)}
    if origin is tuple and inside[1:] == (...,):  # not strict, so that it takes the lists of a file
        items = [schema_of(inside[0])]
        return {"type": "tuple", "items_schema": items, "variadic_item_index": 0, "strict": False}
    if origin is dict:
        keys, values = map(schema_of, inside)
        return {"type": "dict", "keys_schema": keys, "values_schema": values}
    if origin in {Union, UnionType}:
        return _union(inside)
    raise TypeError(f"settings are not made of {plain!r}")


def _union(inside: tuple[Any, ...]) -> Schema:
    choices = [schema_of(one) for one in inside if one is not type(None)]
    schema = choices[0] if len(choices) == 1 else {"type": "union", "choices": choices}
    return schema if type(None) not in inside else {"type": "nullable", "schema": schema}


def _section(model: type[Section]) -> Schema:
    own = fields(model)
    arguments = {
        "type": "dataclass-args",
        "dataclass_name": model.__name__,
        "fields": [
            {"type": "dataclass-field", "name": one.name, "kw_only": True, "schema": _field(one)}
            for one in own
        ],
        "extra_behavior": "ignore",
    }
    return {
        "type": "dataclass",
        "cls": model,
        "schema": arguments,
        "fields": [one.name for one in own],
        "slots": True,
        "strict": False,  # a strict one takes nothing but itself, and a file has maps
        "config": _CONFIG,
    }


def _field(field: Field[Any]) -> Schema:
    schema = schema_of(field.type)
    if field.default is not MISSING:
        return {"type": "default", "schema": schema, "default": field.default}
    if field.default_factory is MISSING:
        return schema
    if field.default_factory is section_in(field.type):  # the engine makes it sooner than Python
        return {"type": "default", "schema": schema, "default": {}, "validate_default": True}
    return {"type": "default", "schema": schema, "default_factory": field.default_factory}
