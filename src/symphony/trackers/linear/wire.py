"""From Linear's JSON to issues. Pure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from symphony.domain.issue import Blocker, Issue, normalise_labels, normalise_state
from symphony.trackers.reading import (
    MalformedRecordError,
    instant,
    items,
    mapping,
    required,
    text,
    whole,
)

__all__ = [
    "Judge",
    "Relation",
    "author_of",
    "comment_id_of",
    "issue_of",
    "label_names",
    "may_answer",
    "relations_of",
]

_WAITING = frozenset({"triage", "backlog", "unstarted"})
_OVER = frozenset({"completed", "canceled", "duplicate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An issue that stands in the way; `over` says that its state is terminal."""

    blocker: Blocker
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What decides whether an issue may be dispatched (TR6): whose it must be, and which states are over."""

    assignee: str | None
    terminal: frozenset[str]

    def objection(self, record: Mapping[str, Any], relations: Sequence[Relation]) -> str | None:
        """Why the issue is held back, or null. Work that has begun is not stopped by a blocker."""
        if self.assignee is not None and _assignee(record) != self.assignee:
            return "it is assigned to somebody else, or to nobody"
        state = mapping(record.get("state"))
        waiting = normalise_state(str(state.get("name"))) == "todo" or state.get("type") in _WAITING
        waits_for = [relation.blocker for relation in relations if not relation.over] if waiting else []
        if not waits_for:
            return None
        names = ", ".join(blocker.identifier or blocker.id or "an unknown issue" for blocker in waits_for)
        return f"it is blocked by {names}"


def issue_of(record: Any, *, judge: Judge, labels: Sequence[str], relations: Sequence[Relation]) -> Issue:
    """One issue. Raises `MalformedRecordError`."""
    issue_id, identifier = required(record, "id"), required(record, "identifier")
    title = required(record, "title")
    state = record.get("state")
    if not isinstance(state, Mapping) or not text(state.get("name")):
        raise MalformedRecordError("has no state")
    objection = judge.objection(record, relations)
    return Issue(
        id=issue_id,
        identifier=identifier,
        title=title,
        state=required(state, "name"),
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        description=text(record.get("description")),
        priority=_priority(record.get("priority")),
        branch_name=text(record.get("branchName")),
        url=text(record.get("url")),
        assignee_id=_assignee(record),
        labels=normalise_labels(labels),
        blocked_by=tuple(relation.blocker for relation in relations),
        created_at=instant(record.get("createdAt")),
        updated_at=instant(record.get("updatedAt")),
    )


def _assignee(record: Mapping[str, Any]) -> str | None:
    return text(mapping(record.get("assignee")).get("id"))


def _priority(value: Any) -> int | None:
    """Linear's 0 is "none"."""
    return whole(value) or None


def label_names(record: Any) -> list[str]:
    """The names of a record's labels."""
    labels = (
        mapping(node).get("name") for node in items(mapping(mapping(record).get("labels")).get("nodes"))
    )
    return [label for label in labels if isinstance(label, str)]


def relations_of(record: Any, terminal: Iterable[str]) -> tuple[Relation, ...]:
    """What blocks the issue; a blocker whose state is not told counts as open."""
    over = frozenset(terminal)
    found = []
    for node in items(mapping(mapping(record).get("inverseRelations")).get("nodes")):
        issue = mapping(mapping(node).get("issue"))
        if mapping(node).get("type") != "blocks" or not issue:
            continue
        state = mapping(issue.get("state"))
        name = text(state.get("name"))
        blocker = Blocker(id=text(issue.get("id")), identifier=text(issue.get("identifier")), state=name)
        done = state.get("type") in _OVER or (name is not None and normalise_state(name) in over)
        found.append(Relation(blocker=blocker, over=done))
    return tuple(found)


def author_of(comment: Any) -> str:
    """The name of who wrote a comment; empty where Linear tells none."""
    who = (("user", "displayName"), ("externalUser", "displayName"), ("botActor", "name"))
    record = mapping(comment)
    names = (text(mapping(record.get(key)).get(name)) for key, name in who)
    return next((name for name in names if name), "")


def may_answer(comment: Any) -> bool | None:
    """Whether the words of who wrote a comment answer a question: of a person who is in the workspace.

    What a bot, an app or an agent wrote does not. People outside, whose words an integration brought, are
    told by `None`.
    """
    record = mapping(comment)
    if record.get("botActor") is not None:
        return False
    if record.get("externalUser") is not None:
        return None
    return mapping(record.get("user")).get("app") is False


def comment_id_of(issue_id: str, key: str) -> str:
    """The id that we give to a comment, a UUID v4 by its form, so that a repeated create makes no second."""
    digest = hashlib.sha256(f"symphony-comment\n{issue_id}\n{key}".encode()).digest()[:16]
    return str(UUID(bytes=digest, version=4))
