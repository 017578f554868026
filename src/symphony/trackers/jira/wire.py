"""From Jira's JSON to issues. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.domain.issue import Blocker, Issue, normalise_labels, normalise_state
from symphony.trackers.jira.adf import markdown_of
from symphony.trackers.reading import (
    MalformedRecordError,
    instant,
    items,
    mapping,
    required,
    text,
)

__all__ = ["FIELDS", "issue_of", "project_of", "status_names"]

FIELDS = (
    "summary",
    "description",
    "status",
    "priority",
    "assignee",
    "labels",
    "issuelinks",
    "project",
    "created",
    "updated",
)
"""What is asked of an issue; Jira sends nothing that is not named."""

_WAITING, _OVER = "new", "done"
_WAITING_NAMES = frozenset({"todo", "to do"})
_PRIORITIES = frozenset({"1", "2", "3", "4", "5"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Relation:
    blocker: Blocker
    over: bool


def project_of(record: Any) -> tuple[str | None, str | None]:
    """Id and key of the project that an issue is in."""
    project = mapping(mapping(mapping(record).get("fields")).get("project"))
    return text(project.get("id")), text(project.get("key"))


def issue_of(record: Any, *, terminal: frozenset[str], pages: str | None) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no id, key, summary or status."""
    issue_id, key = required(record, "id"), required(record, "key")
    fields = record.get("fields")
    if not isinstance(fields, Mapping):
        raise MalformedRecordError("has no fields")
    title, status = required(fields, "summary"), mapping(fields.get("status"))
    if not text(status.get("name")):
        raise MalformedRecordError("has no status")
    relations = _relations(fields.get("issuelinks"), terminal)
    objection = _objection(status, relations)
    return Issue(
        id=issue_id,
        identifier=key,
        title=title,
        state=required(status, "name"),
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        description=markdown_of(fields.get("description")),
        priority=_priority(fields.get("priority")),
        url=None if pages is None else f"{pages}{key}",
        assignee_id=text(mapping(fields.get("assignee")).get("accountId")),
        labels=normalise_labels(label for label in items(fields.get("labels")) if isinstance(label, str)),
        blocked_by=tuple(relation.blocker for relation in relations),
        created_at=instant(fields.get("created")),
        updated_at=instant(fields.get("updated")),
    )


def _priority(value: Any) -> int | None:
    """By the ids of the priorities that every site begins with; they keep them whatever they are called."""
    number = text(mapping(value).get("id"))
    return int(number) if number in _PRIORITIES else None


def _category(status: Mapping[str, Any]) -> str | None:
    return text(mapping(status.get("statusCategory")).get("key"))


def _objection(status: Mapping[str, Any], relations: Iterable[_Relation]) -> str | None:
    """Work that has begun is not stopped by a blocker."""
    waiting = _category(status) == _WAITING or normalise_state(str(status.get("name"))) in _WAITING_NAMES
    waits_for = [relation.blocker for relation in relations if not relation.over] if waiting else []
    if not waits_for:
        return None
    names = ", ".join(blocker.identifier or "an unknown issue" for blocker in waits_for)
    return f"it is blocked by {names}"


def _relations(links: Any, terminal: frozenset[str]) -> tuple[_Relation, ...]:
    """What blocks the issue, by links of the type Blocks; one whose status is unknown counts as open."""
    found = []
    for link in items(links):
        other = mapping(mapping(link).get("inwardIssue"))
        if not other or not _blocks(mapping(mapping(link).get("type"))):
            continue
        status = mapping(mapping(other.get("fields")).get("status"))
        name = text(status.get("name"))
        blocker = Blocker(id=text(other.get("id")), identifier=text(other.get("key")), state=name)
        over = _category(status) == _OVER or (name is not None and normalise_state(name) in terminal)
        found.append(_Relation(blocker=blocker, over=over))
    return tuple(found)


def _blocks(kind: Mapping[str, Any]) -> bool:
    names = {normalise_state(str(kind.get("name"))), normalise_state(str(kind.get("inward")))}
    return bool(names & {"blocks", "is blocked by"})


def status_names(kinds: Any) -> tuple[str, ...]:
    """The statuses of a project, which Jira tells by type of issue, each once."""
    names = (
        text(mapping(status).get("name"))
        for kind in items(kinds)
        for status in items(mapping(kind).get("statuses"))
    )
    return tuple(dict.fromkeys(name for name in names if name))
