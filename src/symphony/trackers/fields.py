"""Turns the records of a service into issues, in the same way for every tracker.

`tidy` limits the issues of every tracker, including those in files and in memory.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from msgspec import Struct

from symphony import domain
from symphony.http.fields import MalformedRecordError, dig, whole
from symphony.trackers.base import TrackerError

MAX_TITLE_CHARS = 1_000
MAX_LABELS = 100
_MAX_URL_CHARS = 2_000
_MAX_SHOWN_NAME = 80


def blocked_reason(open_blockers: Iterable[domain.Blocker]) -> str | None:
    """Why an issue with these blockers is held back; `None` without blockers."""
    names = [
        blocker.identifier or blocker.id or "an issue that the token may not see" for blocker in open_blockers
    ]
    return f"it is blocked by {', '.join(names)}" if names else None


# --- lists of records ------------------------------------------------------------------------------------

ReadIssue = Callable[[Any], domain.Issue | None]
"""Makes an issue of a record; `None` for a record that is out of scope. Raises `MalformedRecordError`."""


class Listing(Struct, frozen=True, kw_only=True):
    """Issues in the order of the service, each once, and failures for malformed records."""

    issues: tuple[domain.Issue, ...]
    skipped: tuple[domain.Failure, ...] = ()


def listing(
    service: str, records: Iterable[Any], read: ReadIssue, *, states: Iterable[str] | None = None
) -> Listing:
    """The issues of a list, only those in `states` if given. Malformed records are skipped and reported."""
    wanted = None if states is None else {domain.normalise_state(state) for state in states}
    issues: dict[str, domain.Issue] = {}
    skipped: dict[str, domain.Failure] = {}
    for record in records:
        try:
            issue = _read_tidy(record, read)
        except MalformedRecordError as error:
            failure = _failure(service, record, error)
            skipped[failure.message] = failure
        else:
            if issue is not None and (wanted is None or domain.normalise_state(issue.state) in wanted):
                issues.setdefault(issue.id, issue)
    return Listing(issues=tuple(issues.values()), skipped=tuple(skipped.values()))


def snapshots(
    service: str, records: Iterable[Any], read: ReadIssue, *, wanted: Iterable[str]
) -> tuple[domain.Issue, ...]:
    """The wanted issues of a refresh.

    Raises:
        TrackerError: a record is malformed; if it were omitted, it would look deleted.
    """
    ids = frozenset(wanted)
    issues: dict[str, domain.Issue] = {}
    for record in records:
        try:
            issue = _read_tidy(record, read)
        except MalformedRecordError as error:
            culprits = frozenset(name for name in _names(record) if name in ids)
            raise TrackerError(_failure(service, record, error), culprits=culprits) from error
        if issue is not None and issue.id in ids:
            issues.setdefault(issue.id, issue)
    return tuple(issues.values())


def _read_tidy(record: Any, read: ReadIssue) -> domain.Issue | None:
    issue = read(record)
    return None if issue is None else tidy(issue)


def _failure(service: str, record: Any, error: MalformedRecordError) -> domain.Failure:
    name = next(_names(record), "without a name")
    return domain.Failure(
        category=domain.Category.TRACKER_RESPONSE,
        blame=domain.Blame.TRACKER,
        message=f"{service}: the record {domain.one_line(name, _MAX_SHOWN_NAME)} {error}",
        hint="correct it in the tracker; it is read again at the next poll",
    )


def _names(record: Any) -> Iterator[str]:
    """The names and ids of a record, the best one for people first."""
    for key in ("identifier", "key", "number", "iid", "index", "gid", "id"):
        value = dig(record, key)
        number = whole(value)
        if number is not None:
            yield str(number)
        elif isinstance(value, str) and value.strip():
            yield value.strip()


# --- bounds ----------------------------------------------------------------------------------------------


def tidy(issue: domain.Issue) -> domain.Issue:
    """The issue with bounded fields; all but the description are on one line.

    Anybody who can write issues chooses these texts, and they appear in prompts, logs and API answers. Ids
    and identifiers are never changed, because two of them could become equal. A bad one makes the issue
    malformed.

    Raises:
        MalformedRecordError: `id` or `identifier` is longer than 255 characters or not printable.
    """
    for key, name in (("id", issue.id), ("identifier", issue.identifier)):
        if not _is_name(name):
            raise MalformedRecordError(
                f"needs {key} to be one line of at most {domain.MAX_NAME_CHARS} characters"
            )
    return replace(
        issue,
        title=domain.one_line(issue.title, MAX_TITLE_CHARS) or issue.identifier,
        state=domain.one_line(issue.state, domain.MAX_NAME_CHARS),
        not_dispatchable_reason=_short(issue.not_dispatchable_reason, MAX_TITLE_CHARS),
        branch_name=_short(issue.branch_name),
        url=issue.url if issue.url and len(issue.url) <= _MAX_URL_CHARS and issue.url.isprintable() else None,
        assignee_id=_short(issue.assignee_id),
        labels=issue.labels[:MAX_LABELS],
        blocked_by=tuple(
            domain.Blocker(
                id=blocker.id if blocker.id is not None and _is_name(blocker.id) else None,
                identifier=_short(blocker.identifier),
                state=_short(blocker.state),
            )
            for blocker in issue.blocked_by
        ),
    )


def _is_name(value: str) -> bool:
    return len(value) <= domain.MAX_NAME_CHARS and value.isprintable()


def _short(value: str | None, limit: int = domain.MAX_NAME_CHARS) -> str | None:
    return None if value is None else domain.one_line(value, limit) or None
