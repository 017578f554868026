"""The table of all keys, made from the models of `settings`."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import reduce
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from msgspec import Struct
from pydantic.fields import FieldInfo

from symphony.config.settings import Reload, Section, Settings, sections
from symphony.config.values import Shape


class Key(Struct, frozen=True, kw_only=True):
    """One key.

    Attributes:
        name: dotted (`agent.max_turns`).
        shape: what its value must be.
        default: as it would be written in the file; `None` if nothing is set by default.
        unset: what applies without a default, in words.
        required: it has no default.
        reload: when a change takes effect.
        meaning: one line of Markdown, with links as docs/workflow-file.md has them.
    """

    name: str
    shape: str
    default: str | None
    unset: str
    required: bool
    reload: Reload
    meaning: str


def keys_of(model: type[Section], prefix: str = "") -> Iterator[Key]:
    """The keys of a model and of its sections; inherited keys are last."""
    below = sections(model)
    own = [name for name in model.__annotations__ if name in model.model_fields]
    for name in dict.fromkeys((*own, *model.model_fields)):
        if name in below:
            yield from keys_of(below[name], f"{prefix}{name}.")
        else:
            yield _key(f"{prefix}{name}", model.model_fields[name])


def _key(name: str, field: FieldInfo) -> Key:
    told = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    shown, required = told.get("shown"), field.is_required()
    default = None if required else _written(field.get_default(call_default_factory=True))
    return Key(
        name=name,
        shape=_shape(field.annotation, field.metadata),
        default=str(shown) if shown else default,
        unset=str(told.get("unset", "none")),
        required=required and not shown,
        reload=Reload(str(told.get("reload", Reload.SESSION))),
        meaning=field.description or "",
    )


def _shape(annotation: Any, marks: Sequence[object]) -> str:
    """The shape: the outermost mark, because an alias may override an inner one; choices by their names."""
    for mark in reversed(marks):
        if isinstance(mark, Shape):
            return mark.text
    inside = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _shape(inside[0], inside[1:])
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(f"`{value}`" for value in annotation)
    if get_origin(annotation) in {Union, UnionType}:
        return _shape(inside[0], ())
    return str(getattr(annotation, "__name__", annotation))


def _written(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case ():
            return "[]"
        case _:
            return str(value)


KEYS: Final[Mapping[str, Key]] = {key.name: key for key in keys_of(Settings)}
"""All keys in the order of the models."""


def value_of(settings: Settings, name: str) -> Any:
    """The value of a key by its dotted name."""
    return reduce(getattr, name.split("."), settings)


def changed_keys(before: Settings, after: Settings, reload: Reload) -> tuple[str, ...]:
    """The keys of one reload class whose values differ."""
    return tuple(
        key.name
        for key in KEYS.values()
        if key.reload is reload and value_of(before, key.name) != value_of(after, key.name)
    )
