"""Every key of the front matter as one table, made from the models: name, shape, default, reload class."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from symphony.workflow.engine import marks_of, section_in
from symphony.workflow.settings import Section, Settings
from symphony.workflow.values import DefaultText, Reload, Shape

__all__ = ["KEYS", "Key", "changed_keys", "section_of", "value_of"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        name: dotted, as people write it (`agent.max_turns`).
        shape: what its value must be.
        default: as it would stand in the file; null where leaving it out means nothing is set.
        required: it has no default.
        reload: when a change takes effect.
    """

    name: str
    shape: str
    default: str | None
    required: bool
    reload: Reload


def section_of(model: type[Section], name: str) -> type[Section] | None:
    """The section that a field holds; null where it holds a value, or there is no such field."""
    return next((section_in(field.type) for field in fields(model) if field.name == name), None)


def _walk(model: type[Section], prefix: str = "") -> Iterator[Key]:
    for field in fields(model):
        if section := section_in(field.type):
            yield from _walk(section, f"{prefix}{field.name}.")
        else:
            yield _key(f"{prefix}{field.name}", field)


def _key(name: str, field: Field[Any]) -> Key:
    plain, marks = marks_of(field.type)
    computed = _last(marks, DefaultText)
    reload = _last(marks, Reload)
    assert reload is not None, f"{name} does not say when a change takes effect"  # noqa: S101 - seen at import
    return Key(
        name=name,
        shape=_shape(plain, marks),
        default=computed.text if computed else _written(_default(field)),
        required=_is_required(field) and computed is None,
        reload=reload,
    )


def _last(marks: Sequence[object], kind: type[T]) -> T | None:
    """The outermost mark of a kind: an alias may carry one that the field overrides."""
    return next((mark for mark in reversed(marks) if isinstance(mark, kind)), None)


def _shape(plain: Any, marks: Sequence[object]) -> str:
    if get_origin(plain) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(plain))
    shape = _last(marks, Shape)
    assert shape is not None, plain  # noqa: S101 - seen at import
    return shape.text


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


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


KEYS: Final[Mapping[str, Key]] = {key.name: key for key in _walk(Settings)}
"""In the order of the models."""


def value_of(settings: Settings, name: str) -> Any:
    """The value of a key by its dotted name."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def changed_keys(before: Settings, after: Settings, reload: Reload) -> tuple[str, ...]:
    """The keys of one reload class whose values differ."""
    return tuple(
        key.name
        for key in KEYS.values()
        if key.reload is reload and value_of(before, key.name) != value_of(after, key.name)
    )
