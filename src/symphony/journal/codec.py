"""Scheduler values as JSON text and back: what the journal's rows and recorded inputs are made of.

Writing leaves out what equals its default, so that a field that is added later needs no new schema. Reading
is strict about types and blind to unknown names.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

__all__ = ["CodecError", "column", "decode", "encode", "plain", "restored"]

_T = TypeVar("_T")
_MAX_CHARS = 8 * 1024 * 1024
_MAX_INTEGER = 2**63
_PLAIN = frozenset({str, int, float, bool, type(None)})
_WRITER = json.JSONEncoder(separators=(",", ":"))


class CodecError(ValueError):
    """A value that cannot be written, or a text that is not such a value; the message says why."""


def plain(value: Any, *, whole: tuple[type, ...] = ()) -> Any:
    """JSON of a value, sets sorted; what equals its default is left out, except in the `whole` types."""
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        every = isinstance(value, whole)
        return {
            name: plain(held, whole=whole)
            for name, default in _fields(type(value))
            if (held := getattr(value, name)) != default or every
        }
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: plain(held, whole=whole) for key, held in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [plain(held, whole=whole) for held in value]
    if isinstance(value, Enum):
        value = value.value
    return value.isoformat() if isinstance(value, datetime) else value


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[tuple[str, object], ...]:
    """The names and defaults of a dataclass, which `dataclasses.fields` would gather for each value."""
    return tuple((field.name, field.default) for field in fields(kind))


def encode(value: object) -> str:
    """The text of a value, in ASCII: half of a surrogate pair survives it too.

    Raises:
        CodecError: it holds what JSON does not know, or is larger than 8 MB.
    """
    try:
        text = _WRITER.encode(plain(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__}: {error}") from error
    if len(text) > _MAX_CHARS:
        raise CodecError(f"{type(value).__name__}: {len(text):,} characters are too many")
    return text


def decode(text: object, kind: type[_T]) -> _T:
    """The value of a text.

    Raises:
        CodecError: it is none of that kind.
    """
    if not isinstance(text, str):
        raise CodecError(f"{kind.__name__}: no text")
    try:
        return restored(json.loads(text), kind)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def restored(held: object, kind: type[_T]) -> _T:
    """The value that `plain` was made of.

    Raises:
        CodecError: it was made of none of that kind.
    """
    try:
        return msgspec.convert(held, kind)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def column(value: object) -> str | int | float | None:
    """The value as SQLite can hold it: half of a surrogate pair becomes its escape.

    Raises:
        CodecError: it is of another type, or a number of more than 64 bits.
    """
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
        case None | float():
            return value
        case bool():
            return int(value)
        case int() if not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise CodecError(f"a number of {value.bit_length()} bits is too large")
        case int():
            return value
        case _:
            raise CodecError(f"a column cannot hold a {type(value).__name__}")
