"""From Forgejo's JSON to issues. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from symphony.domain.issue import Blocker, Issue, normalise_labels, normalise_state
from symphony.trackers.forgejo.config import ForgejoConfig, Source
from symphony.trackers.reading import (
    MalformedRecordError,
    instant,
    items,
    mapping,
    required,
    text,
    whole,
)
from symphony.trackers.status_labels import CLOSED, OPEN, LabelState

__all__ = [
    "blockers_of",
    "is_over",
    "is_pull_request",
    "issue_of",
    "label_ids",
    "label_names",
    "number_of",
    "touched",
    "untouched",
]


def number_of(record: Any) -> str | None:
    """The number of an issue as text, or null."""
    number = whole(mapping(record).get("number"))
    return str(number) if number is not None and number > 0 else None


def touched(record: Any) -> datetime | None:
    """When the issue was last changed, to the second; null where it does not say."""
    return instant(mapping(record).get("updated_at"))


def untouched(record: Any) -> bool:
    """Whether nothing was done to the issue since it was made: a dependency is a change like others."""
    changed = touched(record)
    return changed is not None and changed == instant(mapping(record).get("created_at"))


def is_pull_request(record: Any) -> bool:
    """Whether the record is a pull request, which has a number of the same row."""
    return mapping(record).get("pull_request") is not None


def label_ids(record: Any) -> Mapping[str, int]:
    """The ids of a record's labels by name."""
    found = ((mapping(each).get("name"), whole(mapping(each).get("id"))) for each in _labels(record))
    return {name.strip(): number for name, number in found if isinstance(name, str) and number is not None}


def label_names(record: Any) -> list[str]:
    """The names of a record's labels."""
    names = (mapping(each).get("name") for each in _labels(record))
    return [name for name in names if isinstance(name, str) and name.strip()]


def _labels(record: Any) -> Sequence[Any]:
    return items(mapping(record).get("labels"))


def _state(record: Any, config: ForgejoConfig, terminal: frozenset[str]) -> LabelState:
    own = required(record, "state")
    if own not in {OPEN, CLOSED}:
        raise MalformedRecordError(f"has the state {own[:40]!r}, which is neither open nor closed")
    if config.source is Source.ISSUE:
        return LabelState(state=own)
    return config.labels.read(label_names(record), closed=own == CLOSED, terminal=terminal)


def is_over(record: Any, config: ForgejoConfig, terminal: frozenset[str]) -> bool:
    """Whether the issue is in a terminal state, or in none that can be read."""
    try:
        return normalise_state(_state(record, config, terminal).state) in terminal
    except MalformedRecordError:
        return True


def issue_of(
    record: Any,
    *,
    config: ForgejoConfig,
    terminal: frozenset[str],
    blockers: Mapping[str, tuple[Blocker, ...]],
) -> Issue | None:
    """One issue; null for a pull request.

    Raises:
        MalformedRecordError: it has no number, title or state.
    """
    number, title = required(record, "number"), required(record, "title")
    state = _state(record, config, terminal)
    if is_pull_request(record):
        return None
    blocked_by = blockers.get(number, ())
    objection = state.objection or _objection(blocked_by, terminal)
    return Issue(
        id=number,
        identifier=f"{config.brand.short}-{number}",
        title=title,
        state=state.state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={
            "id": whole(record.get("id")),
            "number": whole(record.get("number")),
            "repo": f"{config.owner}/{config.repo}",
        },
        description=text(record.get("body")),
        url=text(record.get("html_url")),
        assignee_id=text(mapping(record.get("assignee")).get("login")),
        labels=normalise_labels(label_names(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def _objection(blockers: Sequence[Blocker], terminal: frozenset[str]) -> str | None:
    going_on = [blocker for blocker in blockers if normalise_state(blocker.state or "") not in terminal]
    waits_for = [blocker.identifier or "an issue that the token may not see" for blocker in going_on]
    return f"it is blocked by {', '.join(waits_for)}" if waits_for else None


def blockers_of(
    records: Sequence[Any], config: ForgejoConfig, terminal: frozenset[str]
) -> tuple[Blocker, ...]:
    """The issues that another one depends on; those of other repositories are named with theirs.

    What the token may not see comes as a record without a number.
    """
    return tuple(dict.fromkeys(_blocker(record, config, terminal) for record in records))


def _blocker(record: Any, config: ForgejoConfig, terminal: frozenset[str]) -> Blocker:
    number = number_of(record)
    if number is None:
        return Blocker()
    here = f"{config.owner}/{config.repo}"
    repo = text(mapping(mapping(record).get("repository")).get("full_name")) or here
    if repo.lower() != here.lower():
        own = text(mapping(record).get("state"))
        return Blocker(id=f"{repo}#{number}", identifier=f"{repo}#{number}", state=own)
    try:
        state = _state(record, config, terminal).state
    except MalformedRecordError:
        state = None
    return Blocker(id=number, identifier=f"{config.brand.short}-{number}", state=state)
