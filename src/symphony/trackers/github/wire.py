"""From GitHub's JSON to issues. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symphony.domain.issue import Blocker, Issue, normalise_labels, normalise_state
from symphony.trackers.github.config import GithubConfig, Source
from symphony.trackers.reading import (
    MalformedRecordError,
    instant,
    items,
    mapping,
    required,
    text,
    whole,
)
from symphony.trackers.status_labels import LabelState

__all__ = [
    "Board",
    "blocked_count",
    "blockers_of",
    "is_pull_request",
    "issue_of",
    "label_names",
    "may_answer",
    "number_of",
]

_INSIDERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What was asked for besides the issues: blockers, and states of a project, by number of the issue."""

    blockers: Mapping[str, tuple[Blocker, ...]]
    states: Mapping[str, str]


def number_of(record: Any) -> str | None:
    """The number of an issue as text, or null."""
    number = whole(mapping(record).get("number"))
    return str(number) if number is not None and number > 0 else None


def is_pull_request(record: Any) -> bool:
    """Whether the record is a pull request, which GitHub lists among issues."""
    return mapping(record).get("pull_request") is not None


def blocked_count(record: Any) -> int:
    """How many open issues block this one, as its own record says; no request is needed to know of none."""
    return whole(mapping(mapping(record).get("issue_dependencies_summary")).get("blocked_by")) or 0


def may_answer(comment: Any) -> bool | None:
    """Whether the words of who wrote a comment answer a question; `None` where only the issue's author may.

    An account that is gone and an app are nobody. GitHub tells with each comment how its author stands to the
    repository: its owner, a member of the organisation that owns it, or a collaborator.
    """
    user, record = mapping(mapping(comment).get("user")), mapping(comment)
    if user.get("type") != "User" or record.get("performed_via_github_app") is not None:
        return False
    return True if record.get("author_association") in _INSIDERS else None


def label_names(record: Any) -> list[str]:
    """The names of a record's labels, which may be texts or maps."""
    names = (
        label if isinstance(label, str) else mapping(label).get("name")
        for label in items(mapping(record).get("labels"))
    )
    return [name for name in names if isinstance(name, str) and name.strip()]


def issue_of(record: Any, *, config: GithubConfig, terminal: frozenset[str], board: Board) -> Issue | None:
    """One issue; null for a pull request, and where states are in a project, for what is not in it.

    Raises:
        MalformedRecordError: it has no number, title or state.
    """
    number, title, own = required(record, "number"), required(record, "title"), required(record, "state")
    if own not in {"open", "closed"}:
        raise MalformedRecordError(f"has the state {own[:40]!r}, which is neither open nor closed")
    if is_pull_request(record):
        return None
    state = _state(record, own, config, terminal, board)
    if state is None:
        return None
    blockers = board.blockers.get(number, ())
    objection = state.objection or _objection(record, blockers, config, terminal)
    return Issue(
        id=number,
        identifier=f"GH-{number}",
        title=title,
        state=state.state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref=_native_ref(record, config),
        description=text(record.get("body")),
        url=text(record.get("html_url")),
        assignee_id=text(mapping(record.get("assignee")).get("login")),
        labels=normalise_labels(label_names(record)),
        blocked_by=blockers,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def _state(
    record: Mapping[str, Any], own: str, config: GithubConfig, terminal: frozenset[str], board: Board
) -> LabelState | None:
    match config.source:
        case Source.ISSUE:
            return LabelState(state=own)
        case Source.LABELS:
            return config.labels.read(label_names(record), closed=own == "closed", terminal=terminal)
        case Source.PROJECT:
            state = board.states.get(str(record["number"]))
            if own == "closed" and (state is None or normalise_state(state) not in terminal):
                return LabelState(state="closed")
            return None if state is None else LabelState(state=state)


def _objection(
    record: Mapping[str, Any], blockers: Sequence[Blocker], config: GithubConfig, terminal: frozenset[str]
) -> str | None:
    going_on = [blocker for blocker in blockers if normalise_state(blocker.state or "") not in terminal]
    waits_for = [blocker.identifier or "an unknown issue" for blocker in going_on]
    if waits_for:
        return f"it is blocked by {', '.join(waits_for)}"
    total, done = _sub_issues(record)
    if config.wait_for_sub_issues and done < total:
        return f"{total - done} of its {total} sub-issues are open"
    return None


def _sub_issues(record: Mapping[str, Any]) -> tuple[int, int]:
    summary = mapping(record.get("sub_issues_summary"))
    return whole(summary.get("total")) or 0, whole(summary.get("completed")) or 0


def _native_ref(record: Mapping[str, Any], config: GithubConfig) -> Mapping[str, Any]:
    ref: dict[str, Any] = {
        "id": whole(record.get("id")),
        "node_id": text(record.get("node_id")),
        "number": whole(record.get("number")),
        "repo": f"{config.owner}/{config.repo}",
    }
    total, done = _sub_issues(record)
    return {**ref, "sub_issues": {"total": total, "completed": done}} if total else ref


def blockers_of(
    records: Sequence[Any], config: GithubConfig, terminal: frozenset[str]
) -> tuple[Blocker, ...]:
    """The issues that block another one; those of other repositories are named with theirs.

    Their state is that of their labels where states are in labels, else open or closed.
    """
    found = []
    for record in records:
        number = number_of(record)
        if number is None:
            continue
        repo = "/".join((text(mapping(record).get("repository_url")) or "").split("/")[-2:])
        here = not repo or repo.lower() == f"{config.owner}/{config.repo}".lower()
        found.append(
            Blocker(
                id=number if here else f"{repo}#{number}",
                identifier=f"GH-{number}" if here else f"{repo}#{number}",
                state=_state_of_blocker(mapping(record), config, terminal),
            )
        )
    return tuple(found)


def _state_of_blocker(
    record: Mapping[str, Any], config: GithubConfig, terminal: frozenset[str]
) -> str | None:
    own = text(record.get("state"))
    if config.source is not Source.LABELS or own is None:
        return own
    return config.labels.read(label_names(record), closed=own == "closed", terminal=terminal).state
