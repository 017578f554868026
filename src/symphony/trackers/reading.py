"""From a service's JSON to the fields of an issue, the same way for every tracker (DM2-DM9, TR4).

What is required and missing makes a record malformed; what is optional and of no use becomes null.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue
from symphony.domain.plain import one_line
from symphony.trackers.base import TrackerError

__all__ = [
    "Listing",
    "MalformedRecordError",
    "instant",
    "items",
    "listing",
    "mapping",
    "required",
    "snapshots",
    "text",
    "title_of",
    "whole",
]

MAX_TITLE_CHARS = 1_000
_MAX_WHOLE = 2**53
_NAME = 80


class MalformedRecordError(Exception):
    """A required field cannot be produced; the text completes a sentence that begins with the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Issues in the order of the service, each once, and what had to be left out."""

    issues: tuple[Issue, ...]
    skipped: tuple[Failure, ...] = ()


Read = Callable[[Any], Issue | None]
"""Makes an issue of a record; null where it is none of ours. Raises `MalformedRecordError`."""


def listing(service: str, records: Iterable[Any], read: Read) -> Listing:
    """The issues of a list; malformed records are left out and told (TR4)."""
    issues: dict[str, Issue] = {}
    skipped: dict[str, Failure] = {}
    for record in records:
        try:
            issue = read(record)
        except MalformedRecordError as error:
            failure = _failure(service, record, error)
            skipped[failure.message] = failure
        else:
            if issue is not None:
                issues.setdefault(issue.id, issue)
    return Listing(issues=tuple(issues.values()), skipped=tuple(skipped.values()))


def snapshots(
    service: str, records: Iterable[Any], read: Read, *, wanted: Iterable[str]
) -> tuple[Issue, ...]:
    """The issues of a refresh, of those asked for.

    Raises:
        TrackerError: a record is malformed; a missing one would be taken for gone (TR4).
    """
    asked = frozenset(wanted)
    issues: dict[str, Issue] = {}
    for record in records:
        try:
            issue = read(record)
        except MalformedRecordError as error:
            culprit = frozenset(name for name in _names(record) if name in asked)
            raise TrackerError(_failure(service, record, error), culprits=culprit) from error
        if issue is not None and issue.id in asked:
            issues.setdefault(issue.id, issue)
    return tuple(issues.values())


def _failure(service: str, record: Any, error: MalformedRecordError) -> Failure:
    name = next(_names(record), "without a name")
    return Failure(
        category=Category.TRACKER_RESPONSE,
        blame=Blame.TRACKER,
        message=f"{service}: the record {one_line(name, _NAME)} {error}",
        hint="correct it in the tracker; it is read again at the next poll",
    )


def _names(record: Any) -> Iterator[str]:
    """What a record may be called by, best for people first."""
    if isinstance(record, Mapping):
        for key in ("identifier", "key", "number", "iid", "index", "gid", "id"):
            value = record.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
                yield str(value).strip()


def mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else ()


def required(record: Any, key: str) -> str:
    """A text that is not empty, trimmed; a whole number is taken as its digits.

    Raises:
        MalformedRecordError: it is not there, or something else.
    """
    if not isinstance(record, Mapping):
        raise MalformedRecordError("is no map")
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise MalformedRecordError(f"has no {key}" if value is None else f"needs {key} to be a text")


def title_of(record: Any, key: str = "title") -> str:
    """The title, shortened where nobody would read it to its end. Raises as `required`."""
    title = required(record, key)
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…"


def text(value: Any) -> str | None:
    """A text that is not blank, as it is, or null."""
    return value if isinstance(value, str) and value.strip() else None


def whole(value: Any) -> int | None:
    """A whole number, `2.0` included, or null."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if abs(value) <= _MAX_WHOLE and value == int(value) else None


def instant(value: Any) -> datetime | None:
    """RFC 3339 with an offset, or null (DM8)."""
    if not isinstance(value, str) or "T" not in value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
