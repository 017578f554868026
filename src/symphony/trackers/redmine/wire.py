"""From Redmine's JSON to issues. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symphony.domain.issue import Blocker, Issue, normalise_labels, normalise_state
from symphony.trackers.base import Comment
from symphony.trackers.reading import (
    MalformedRecordError,
    instant,
    items,
    mapping,
    required,
    text,
    whole,
)
from symphony.trackers.redmine.config import RedmineConfig

__all__ = ["Around", "blocker_ids", "comments_of", "identifier", "issue_of", "number_of", "ranks_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What an issue's own record does not say: ranks of priorities, and records of what blocks it, by id."""

    ranks: Mapping[int, int] = field(default_factory=dict)
    blockers: Mapping[str, Any] = field(default_factory=dict)


def identifier(issue_id: str) -> str:
    """The name of an issue for people and branches."""
    return f"RM-{issue_id}"


def number_of(node: Any) -> int | None:
    """The id in a map like `{"id": 3, "name": "High"}`, or null."""
    return whole(mapping(node).get("id"))


def ranks_of(priorities: Iterable[Any]) -> Mapping[int, int]:
    """Ranks by id, 1 for the most urgent: Redmine lists priorities from the least urgent on."""
    ranks: dict[int, int] = {}
    above = 1
    for priority in reversed(list(priorities)):
        number = number_of(priority)
        if number is not None:
            ranks[number] = above
            above += mapping(priority).get("active") is not False
    return ranks


def blocker_ids(record: Any) -> tuple[str, ...]:
    """The issues that block this one, as its own record says; a relation runs from the blocker."""
    own = number_of(record)
    found = (
        whole(mapping(relation).get("issue_id"))
        for relation in items(mapping(record).get("relations"))
        if mapping(relation).get("relation_type") == "blocks"
        and whole(mapping(relation).get("issue_to_id")) == own
    )
    return tuple(dict.fromkeys(str(number) for number in found if number is not None))


def issue_of(record: Any, *, config: RedmineConfig, terminal: frozenset[str], around: Around) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no id, subject or status."""
    issue_id, title = required(record, "id"), required(record, "subject")
    state = _status(record)
    if state is None:
        raise MalformedRecordError("has no status")
    names = blocker_ids(record)
    waits_for = [identifier(name) for name in names if not _is_over(around.blockers.get(name), terminal)]
    objection = f"it is blocked by {', '.join(waits_for)}" if waits_for else None
    return Issue(
        id=issue_id,
        identifier=identifier(issue_id),
        title=title,
        state=state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref=_native_ref(record),
        description=text(record.get("description")),
        priority=around.ranks.get(number_of(record.get("priority")) or 0),
        url=f"{config.access.base}/issues/{issue_id}",
        assignee_id=_name(number_of(record.get("assigned_to"))),
        labels=normalise_labels(_labels(record)),
        blocked_by=tuple(
            Blocker(id=name, identifier=identifier(name), state=_status(around.blockers.get(name)))
            for name in names
        ),
        created_at=instant(record.get("created_on")),
        updated_at=instant(record.get("updated_on")),
    )


def comments_of(record: Any, *, me: str) -> tuple[Comment, ...]:
    """The notes of an issue, oldest first; entries of its history that only tell of changes are none."""
    return tuple(
        Comment(
            id=str(number_of(entry)),
            body=entry["notes"],
            mine=_name(number_of(entry.get("user"))) == me,
            author=text(mapping(entry.get("user")).get("name")) or "",
            author_key=_name(number_of(entry.get("user"))) or "",
            may_answer=None,
        )
        for entry in items(mapping(record).get("journals"))
        if number_of(entry) is not None and text(entry.get("notes"))
    )


def _status(record: Any) -> str | None:
    name = text(mapping(mapping(record).get("status")).get("name"))
    return None if name is None else name.strip()


def _is_over(record: Any, terminal: frozenset[str]) -> bool:
    """Whether a blocker is closed, or terminal for us; one that may not be seen is not."""
    closed = mapping(mapping(record).get("status")).get("is_closed") is True
    return closed or normalise_state(_status(record) or "") in terminal


def _labels(record: Mapping[str, Any]) -> Sequence[str]:
    """Redmine has no labels; what it sorts issues by are their tracker and their category."""
    names = (text(mapping(record.get(key)).get("name")) for key in ("tracker", "category"))
    return [name for name in names if name]


def _native_ref(record: Mapping[str, Any]) -> Mapping[str, Any]:
    keys = ("project", "tracker", "status", "priority", "fixed_version", "parent")
    found = {f"{key}_id": number_of(record.get(key)) for key in keys}
    return {name: value for name, value in found.items() if value is not None}


def _name(number: int | None) -> str | None:
    return None if number is None else str(number)
