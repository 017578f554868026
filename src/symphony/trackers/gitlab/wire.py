"""From GitLab's JSON to issues. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from symphony.domain.issue import Blocker, Issue, normalise_labels, normalise_state
from symphony.trackers.gitlab.config import OPENED, GitlabConfig, Source
from symphony.trackers.reading import (
    MalformedRecordError,
    instant,
    items,
    mapping,
    required,
    text,
    whole,
)
from symphony.trackers.status_labels import CLOSED, LabelState

__all__ = ["blocked_iids", "blockers_of", "iid_of", "is_opened", "issue_of", "label_names"]


def iid_of(record: Any) -> str | None:
    """The number of an issue within its project as text, or null."""
    iid = whole(mapping(record).get("iid"))
    return str(iid) if iid is not None and iid > 0 else None


def is_opened(record: Any) -> bool:
    """Whether the issue is open."""
    return bool(mapping(record).get("state") == OPENED)


def label_names(record: Any) -> list[str]:
    """The names of a record's labels."""
    return [label for label in items(mapping(record).get("labels")) if text(label)]


def issue_of(
    record: Any,
    *,
    config: GitlabConfig,
    terminal: frozenset[str],
    blockers: Mapping[str, tuple[Blocker, ...]],
) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no iid, title or state."""
    iid, title, own = required(record, "iid"), required(record, "title"), required(record, "state")
    if own not in {OPENED, CLOSED}:
        raise MalformedRecordError(f"has the state {own[:40]!r}, which is neither opened nor closed")
    state = _state(record, own, config, terminal)
    blocked_by = blockers.get(iid, ())
    objection = state.objection or _objection(blocked_by, terminal)
    return Issue(
        id=iid,
        identifier=f"GL-{iid}",
        title=title,
        state=state.state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref=_native_ref(record, config),
        description=text(record.get("description")),
        url=text(record.get("web_url")),
        assignee_id=_assignee(record),
        labels=normalise_labels(label_names(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def _state(record: Mapping[str, Any], own: str, config: GitlabConfig, terminal: frozenset[str]) -> LabelState:
    if config.source is Source.ISSUE:
        return LabelState(state=own)
    return config.labels.read(label_names(record), closed=own == CLOSED, terminal=terminal)


def _objection(blockers: Iterable[Blocker], terminal: frozenset[str]) -> str | None:
    waits_for = [
        blocker.identifier or "an unknown issue"
        for blocker in blockers
        if normalise_state(blocker.state or "") not in terminal
    ]
    return f"it is blocked by {', '.join(waits_for)}" if waits_for else None


def _assignee(record: Mapping[str, Any]) -> str | None:
    first = next(iter(items(record.get("assignees"))), record.get("assignee"))
    return text(mapping(first).get("username"))


def _native_ref(record: Mapping[str, Any], config: GitlabConfig) -> Mapping[str, Any]:
    references = {key: text(value) for key, value in mapping(record.get("references")).items() if text(value)}
    return {
        "id": whole(record.get("id")),
        "iid": whole(record.get("iid")),
        "project_id": whole(record.get("project_id")),
        "project_path": config.project,
        "references": references,
    }


def blocked_iids(nodes: Sequence[Any]) -> frozenset[str]:
    """Of the issues that GraphQL told of, those that something blocks."""
    found = (text(mapping(node).get("iid")) for node in nodes if mapping(node).get("blocked") is True)
    return frozenset(iid for iid in found if iid)


def blockers_of(
    links: Sequence[Any], *, project_id: int | None, config: GitlabConfig, terminal: frozenset[str]
) -> tuple[Blocker, ...]:
    """The issues that block another one, of all that are linked with it; of other projects by their path.

    Their state is that of their labels where states are in labels and they are of this project, else their
    own.
    """
    found = []
    for link in links:
        iid, own = iid_of(link), text(mapping(link).get("state"))
        if mapping(link).get("link_type") != "is_blocked_by" or iid is None:
            continue
        here = whole(link.get("project_id")) == project_id
        elsewhere = text(mapping(link.get("references")).get("full")) or text(link.get("web_url"))
        state = _state(link, own, config, terminal).state if own is not None and here else own
        found.append(
            Blocker(id=iid if here else elsewhere, identifier=f"GL-{iid}" if here else elsewhere, state=state)
        )
    return tuple(found)
