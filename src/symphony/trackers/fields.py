"""From a service's JSON to the fields of an issue, the same way for every tracker (DM2-DM9, TR4).

What is required and missing makes a record malformed; what is optional and of no use becomes null. `tidy`
holds for the issues of every tracker, those in files and in memory too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from symphony.domain import MAX_NAME_CHARS, Blame, Blocker, Category, Failure, Issue, one_line
from symphony.trackers.base import TrackerError

MAX_TITLE_CHARS = 1_000
MAX_LABELS = 100
_MAX_URL_CHARS = 2_000
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
            issue = _tidied(read(record))
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
            issue = _tidied(read(record))
        except MalformedRecordError as error:
            culprit = frozenset(name for name in _names(record) if name in asked)
            raise TrackerError(_failure(service, record, error), culprits=culprit) from error
        if issue is not None and issue.id in asked:
            issues.setdefault(issue.id, issue)
    return tuple(issues.values())


def tidy(issue: Issue) -> Issue:
    """The issue as it may stand in prompts, logs and answers: one line with a bound, but for the description.

    Whoever may write issues chooses these texts, and each stands where it must not break out. What names an
    issue is never changed, as two of them might become equal: one that is no name makes the issue malformed.

    Raises:
        MalformedRecordError: `id` or `identifier` is longer than 255 characters, or breaks a line.
    """
    for key, name in (("id", issue.id), ("identifier", issue.identifier)):
        if not _is_name(name):
            raise MalformedRecordError(f"needs {key} to be one line of at most {MAX_NAME_CHARS} characters")
    return replace(
        issue,
        title=one_line(issue.title, MAX_TITLE_CHARS) or issue.identifier,
        state=one_line(issue.state, MAX_NAME_CHARS),
        not_dispatchable_reason=_short(issue.not_dispatchable_reason, MAX_TITLE_CHARS),
        branch_name=_short(issue.branch_name),
        url=issue.url if issue.url and len(issue.url) <= _MAX_URL_CHARS and issue.url.isprintable() else None,
        assignee_id=_short(issue.assignee_id),
        labels=issue.labels[:MAX_LABELS],
        blocked_by=tuple(map(_tidy_blocker, issue.blocked_by)),
    )


def _tidied(issue: Issue | None) -> Issue | None:
    return None if issue is None else tidy(issue)


def _tidy_blocker(blocker: Blocker) -> Blocker:
    return Blocker(
        id=blocker.id if blocker.id is not None and _is_name(blocker.id) else None,
        identifier=_short(blocker.identifier),
        state=_short(blocker.state),
    )


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_CHARS and text.isprintable()


def _short(text: str | None, limit: int = MAX_NAME_CHARS) -> str | None:
    return None if text is None else one_line(text, limit) or None


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
            value = str(number) if (number := whole(value)) is not None else value
            if isinstance(value, str) and value.strip():
                yield value.strip()


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
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_WHOLE:
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise MalformedRecordError(f"has no {key}" if value is None else f"needs {key} to be a text")


def text(value: Any) -> str | None:
    """A text that is not blank, as it is, or null."""
    return value if isinstance(value, str) and value.strip() else None


def whole(value: Any) -> int | None:
    """A whole number, `2.0` included, or null."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_WHOLE:
        return None  # NaN is none too: it is not less than anything
    return int(value) if value == int(value) else None


def instant(value: Any) -> datetime | None:
    """RFC 3339 with an offset, or null (DM8)."""
    if not isinstance(value, str) or "T" not in value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
