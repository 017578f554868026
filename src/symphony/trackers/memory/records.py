"""From a record, which is a map like one of a provider's answers, to an issue (DM1-DM9, TR4). Pure.

Mapping (TR10): every field of an issue has a key of its name. `id`, `title` and `state` are required;
`identifier` is the id unless it is given. `dispatchable` has no default of true (DM2): a record that does
not say so is held back. Optional values that cannot be used are null or empty.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Blocker, Issue, normalise_labels
from symphony.trackers.base import ConfigProblem, TrackerConfigError, TrackerError
from symphony.trackers.reading import MalformedRecordError, tidy

__all__ = ["Record", "issue_of", "issues_of"]

Record = Mapping[str, Any]
_HELD_BACK = "the record does not say that it is dispatchable"
_MAX_PRIORITY = 1_000_000
_SHOWN = 80


def issue_of(record: Record) -> Issue:
    """The issue of a record.

    Raises:
        TrackerError: `tracker_response`: the record is malformed; its id is the culprit, where it has one.
    """
    try:
        return _read(record)
    except MalformedRecordError as error:
        issue_id = record.get("id")
        failure = Failure(
            category=Category.TRACKER_RESPONSE,
            blame=Blame.TRACKER,
            message=f"the record {str(issue_id)[:_SHOWN]!r} {error}",
            hint="put a sound record in its place",
        )
        culprits = frozenset({issue_id} if isinstance(issue_id, str) else ())
        raise TrackerError(failure, culprits=culprits) from error


def _read(record: Record) -> Issue:
    issue_id = _required(record, "id")
    dispatchable = record.get("dispatchable") is True
    reason = _text(record.get("not_dispatchable_reason")) or _HELD_BACK
    issue = Issue(
        id=issue_id,
        identifier=_required(record, "identifier") if "identifier" in record else issue_id,
        title=_required(record, "title"),
        state=_required(record, "state"),
        dispatchable=dispatchable,
        not_dispatchable_reason=None if dispatchable else reason,
        native_ref=_json_map(record.get("native_ref")),
        description=_text(record.get("description")),
        priority=_whole(record.get("priority")),
        branch_name=_text(record.get("branch_name")),
        url=_text(record.get("url")),
        assignee_id=_text(record.get("assignee_id")),
        labels=normalise_labels(label for label in _items(record.get("labels")) if isinstance(label, str)),
        blocked_by=tuple(_blockers(record.get("blocked_by"))),
        created_at=_instant(record.get("created_at")),
        updated_at=_instant(record.get("updated_at")),
    )
    return tidy(issue)


def issues_of(provider: Mapping[str, Any]) -> tuple[Record, ...]:
    """The records of `tracker.provider.issues`, all of them sound; none where there is no such key.

    Raises:
        TrackerConfigError: `invalid_tracker_config`, one problem for each record that does not fit.
    """
    given = provider.get("issues", [])
    if not isinstance(given, list):
        raise TrackerConfigError([_problem((), "must be a list of maps")])
    problems: list[ConfigProblem] = []
    seen: dict[str, Record] = {}
    for index, record in enumerate(given):
        if wrong := _wrong(record, seen):
            problems.append(_problem((index,), wrong))
        else:
            seen[record["id"]] = record
    if problems:
        raise TrackerConfigError(problems)
    return tuple(seen.values())


def _wrong(record: object, seen: Mapping[str, Record]) -> str | None:
    if not isinstance(record, Mapping):
        return "must be a map"
    try:
        issue = _read(record)
    except MalformedRecordError as error:
        return str(error)
    return f"has the id {issue.id[:_SHOWN]!r} of another one" if issue.id in seen else None


def _problem(at: tuple[int, ...], problem: str) -> ConfigProblem:
    name = "".join(["tracker.provider.issues", *(f"[{index}]" for index in at)])
    return ConfigProblem(
        location=("tracker", "provider", "issues", *at),
        failure=Failure(
            category=Category.INVALID_TRACKER_CONFIG,
            blame=Blame.CONFIG,
            message=f"{name} {problem}",
            retryable=False,
            hint="an issue is a map with id, title, state and dispatchable: true",
        ),
    )


def _required(record: Record, key: str) -> str:
    value = record.get(key)
    if isinstance(value, str) and value.strip():
        return value.strip()
    problem = f"has no {key}" if value is None else f"needs {key} to be a text that is not empty"
    raise MalformedRecordError(problem)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) <= _MAX_PRIORITY and value == int(value) else None


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else ()


def _blockers(value: object) -> Iterable[Blocker]:
    for entry in _items(value):
        match entry:
            case str() if entry.strip():
                yield Blocker(id=entry.strip(), identifier=entry.strip())
            case Mapping():
                fields = {name: _text(entry.get(name)) for name in ("id", "identifier", "state")}
                if any(fields.values()):
                    yield Blocker(**fields)
            case _:
                continue


def _json_map(value: object) -> Mapping[str, Any] | None:
    """A copy that nobody else holds, or null: what is not JSON cannot be passed on (DM5)."""
    if not isinstance(value, Mapping):
        return None
    try:
        copy = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None
    return copy if isinstance(copy, dict) else None


def _instant(value: object) -> datetime | None:
    """RFC 3339 with an offset, or null (DM8)."""
    if isinstance(value, str) and "T" in value:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, datetime) and value.tzinfo is not None else None
