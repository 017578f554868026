"""Every key of the front matter as one table, made from the models: name, shape, default, reload class."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic.fields import FieldInfo

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
    field = model.model_fields.get(name)
    match field.annotation if field else None:
        case type() as annotation if issubclass(annotation, Section):
            return annotation
        case _:
            return None


def _walk(model: type[Section], prefix: str = "") -> Iterator[Key]:
    for name, field in model.model_fields.items():
        if section := section_of(model, name):
            yield from _walk(section, f"{prefix}{name}.")
        else:
            yield _key(f"{prefix}{name}", field)


def _key(name: str, field: FieldInfo) -> Key:
    computed = _last(field, DefaultText)
    reload = _last(field, Reload)
    assert reload is not None, f"{name} does not say when a change takes effect"  # noqa: S101 - seen at import
    return Key(
        name=name,
        shape=_shape(field),
        default=computed.text if computed else None if field.is_required() else _written(_default(field)),
        required=field.is_required() and computed is None,
        reload=reload,
    )


def _last(field: FieldInfo, kind: type[T]) -> T | None:
    """The outermost mark of a kind: an alias may carry one that the field overrides."""
    return next((mark for mark in reversed(field.metadata) if isinstance(mark, kind)), None)


def _shape(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    shape = _last(field, Shape)
    assert shape is not None, field  # noqa: S101 - seen at import
    return shape.text


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


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
