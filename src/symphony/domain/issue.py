"""The normalised issue that every tracker adapter produces (specification section 4.1.1; DM1-DM9, DM19)."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from symphony.domain.redaction import one_line

# Names derived from other names: workspace keys, branches, session ids (DM10-DM13); their order.


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_MAX_KEY_BYTES = 255
_MAX_BRANCH_BYTES = _MAX_KEY_BYTES - len(".lock")
_NUMBER = re.compile(r"([0-9]{1,18})")
BRANCH_PREFIX = "symphony/"


class UnsafeKeyError(ValueError):
    """The identifier gives a key that must never become a directory name (DM12)."""


def workspace_key(identifier: str) -> str:
    """The directory name of an issue's workspace; depends on the identifier alone (DM10, DM11).

    Raises:
        UnsafeKeyError: the key would be empty, `.`, `..` or longer than 255 bytes.
    """
    safe = _UNSAFE.sub("_", identifier)
    if safe == identifier:
        key = safe
    else:
        digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
        key = f"{safe}--{digest[:16]}"
    if key in {"", ".", ".."} or len(key) > _MAX_KEY_BYTES:
        raise UnsafeKeyError(f"identifier {identifier[:80]!r} cannot name a workspace directory")
    return key


def branch_name(key: str) -> str:
    """The issue's branch, `symphony/<key>`; a hash stands in where git refuses the key as a ref part.

    The refusals are those of git-check-ref-format(1) that the key alphabet leaves possible, and a name
    that is too long for the file `<name>.lock` through which git writes a branch.
    """
    refused = ".." in key or key.startswith((".", "-")) or key.endswith((".", ".lock"))
    if refused or len(key) > _MAX_BRANCH_BYTES:
        key = hashlib.sha256(key.encode()).hexdigest()[:16]
    return BRANCH_PREFIX + key


def session_id(thread_id: str, turn_id: str) -> str:
    """The id under which logs and the API know one turn of one thread (DM13)."""
    return f"{thread_id}-{turn_id}"


def natural_order(identifier: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key of every list of issues that people read: SYM-2 stands before SYM-10, whatever the case.

    The scheduler starts issues in an order of its own (`policy.sort_key`).
    """
    # Texts and numbers alternate, beginning with a text, so that like is compared with like.
    parts = _NUMBER.split(identifier.casefold())
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), identifier


MAX_NAME_CHARS: Final = 255
"""How long an identifier may be, and how much is shown and compared of a state, a label or an account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """An issue that stands in the way of another; each field is null where the tracker does not say."""

    id: str | None = None
    identifier: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One unit of work as the tracker showed it at one moment.

    `id` is the opaque dispatch identity and the only key the scheduler uses; `identifier` is for people,
    logs and directory names. `state` keeps the provider's spelling. `dispatchable` has no default on
    purpose (DM2): an adapter must decide, and says why not in `not_dispatchable_reason`.
    """

    id: str
    identifier: str
    title: str
    state: str
    dispatchable: bool
    not_dispatchable_reason: str | None = None
    native_ref: Mapping[str, Any] | None = None
    description: str | None = None
    priority: int | None = None
    branch_name: str | None = None
    url: str | None = None
    assignee_id: str | None = None
    labels: tuple[str, ...] = ()
    blocked_by: tuple[Blocker, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None


@lru_cache(maxsize=1_024)
def normalise_state(state: str) -> str:
    """The form in which two state names are compared: one line, in lower case (DM7)."""
    return one_line(state, MAX_NAME_CHARS).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The issues that somebody wants to see.

    Attributes:
        most: how many waiting issues at most, the first to start; None is all.
        states: only issues in these states, in any spelling; none given is every state.
        codes: only issues with these codes (`observability.waiting.CODES`); none given is every code.
    """

    limit: int | None = None
    states: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()

    def includes(self, issue: Issue, code: str) -> bool:
        """Whether an issue with this code is among them, but for `most`."""
        if self.codes and code not in self.codes:
            return False
        return not self.states or normalise_state(issue.state) in {
            normalise_state(one) for one in self.states
        }


ALL_ISSUES: Final = Selection()


def normalise_label(label: str) -> str:
    """The form in which labels are kept and compared: one line, in lower case (DM6)."""
    return one_line(label, MAX_NAME_CHARS).lower()


def normalise_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels as `normalise_label` has them, without blanks or repeats, in first-seen order (DM6)."""
    cleaned = map(normalise_label, labels)
    return tuple(dict.fromkeys(label for label in cleaned if label))


def is_routable(issue: Issue, required_labels: Iterable[str]) -> bool:
    """Whether the issue may be dispatched here at all (DM19); says nothing of state, claims or slots.

    A blank required label is a label that no issue has, so it matches nothing.
    """
    have = set(issue.labels)
    return issue.dispatchable and all(normalise_label(label) in have for label in required_labels)


def _instant(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def template_view(issue: Issue) -> dict[str, Any]:
    """The issue as prompt variables: string keys, nested lists and maps, times as ISO-8601 text (PR2)."""
    return {
        "id": issue.id,
        "native_ref": None if issue.native_ref is None else dict(issue.native_ref),
        "identifier": issue.identifier,
        "title": issue.title,
        "description": issue.description,
        "priority": issue.priority,
        "state": issue.state,
        "branch_name": issue.branch_name,
        "url": issue.url,
        "assignee_id": issue.assignee_id,
        "labels": list(issue.labels),
        "blocked_by": [
            {"id": blocker.id, "identifier": blocker.identifier, "state": blocker.state}
            for blocker in issue.blocked_by
        ],
        "dispatchable": issue.dispatchable,
        "not_dispatchable_reason": issue.not_dispatchable_reason,
        "created_at": _instant(issue.created_at),
        "updated_at": _instant(issue.updated_at),
    }
