"""Reads values without guaranteed types from a service's JSON.

A missing required field makes a record malformed; an optional field that cannot be used becomes `None`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

_MAX_WHOLE = 2**53


class MalformedRecordError(Exception):
    """A record without a usable required field. The text follows "the record X"."""


def dig(record: Any, *keys: str) -> Any:
    """The value below nested keys; `None` where a key is missing or something is not a map."""
    for key in keys:
        if not isinstance(record, Mapping):
            return None
        record = record.get(key)
    return record


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else ()


def required(record: Any, key: str) -> str:
    """A trimmed text that is not empty; a whole number counts as its digits.

    Raises:
        MalformedRecordError: the value is missing or of another type.
    """
    if not isinstance(record, Mapping):
        raise MalformedRecordError("is no map")
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_WHOLE:
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise MalformedRecordError(f"has no {key}" if value is None else f"needs {key} to be a text")


def text(value: Any) -> str | None:
    """The value unchanged if it is a text that is not blank, else `None`."""
    return value if isinstance(value, str) and value.strip() else None


def texts(values: Iterable[Any]) -> list[str]:
    """The values that are texts and not blank."""
    return [value for value in values if isinstance(value, str) and value.strip()]


def whole(value: Any) -> int | None:
    """A whole number (`2.0` is one), else `None`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_WHOLE:
        return None  # also for NaN, which compares false
    return int(value) if value == int(value) else None


def instant(value: Any) -> datetime | None:
    """A time in RFC 3339 with an offset, else `None`."""
    if not isinstance(value, str) or "T" not in value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
