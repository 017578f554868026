"""The normalised issue of all trackers (specification section 4.1.1), and names derived from it."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from symphony.domain.redaction import one_line

BRANCH_PREFIX = "symphony/"
BOARD_PATH: Final = ".symphony/issues"
"""Where a Markdown board is beside its WORKFLOW.md, unless the settings name another place."""

MAX_ISSUE_TITLE_CHARS: Final = 250
MAX_ISSUE_BODY_CHARS: Final = 30_000
"""The longest body of a new issue, including the mark of the daemon.

Jira's limit is the lowest: 32,767 characters.
"""
MAX_NAME_CHARS: Final = 255
"""The longest identifier, and the length to which states, labels and accounts are cut."""

GIVEN_UP_STATES: Final = frozenset({"cancelled", "canceled", "duplicate", "won't do", "wontfix", "rejected"})
"""Normalised states of issues that were given up."""
SKILL_LABEL_PREFIX: Final = "skill:"
"""A label `skill:<name>` on an issue assigns that skill to it."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_MAX_KEY_BYTES = 255
_MAX_BRANCH_BYTES = _MAX_KEY_BYTES - len(".lock")
_NUMBER = re.compile(r"([0-9]{1,18})")

# --- names -----------------------------------------------------------------------------------------------


class UnsafeKeyError(ValueError):
    """The identifier yields a key that must not become a directory name."""


def workspace_key(identifier: str) -> str:
    """The directory name of an issue's workspace; depends only on the identifier.

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
    """The issue's branch, `symphony/<key>`, or with a hash of the key if git refuses the key.

    Git refuses some names that the alphabet of keys allows (git-check-ref-format(1)), and names that are too
    long for `<name>.lock`, the file through which it writes a branch.
    """
    refused = ".." in key or key.startswith((".", "-")) or key.endswith((".", ".lock"))
    if refused or len(key) > _MAX_BRANCH_BYTES:
        key = hashlib.sha256(key.encode()).hexdigest()[:16]
    return BRANCH_PREFIX + key


def session_id(thread_id: str, turn_id: str) -> str:
    """The id of one turn of one thread, in logs and the API."""
    return f"{thread_id}-{turn_id}"


def natural_order(identifier: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key for lists of issues that people read: SYM-2 comes before SYM-10, ignoring case.

    The scheduler starts issues in another order (`policy.dispatch_order`).
    """
    # Texts and numbers alternate, beginning with a text, so that the same types are compared.
    parts = _NUMBER.split(identifier.casefold())
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), identifier


# --- issues ----------------------------------------------------------------------------------------------


class Blocker(Struct, frozen=True, kw_only=True):
    """An issue that blocks another; a field is `None` if the tracker does not report it."""

    id: str | None = None
    identifier: str | None = None
    state: str | None = None


class PersonComment(Struct, frozen=True, kw_only=True):
    """A comment of a person on an issue, as a prompt shows it; all of it is untrusted text."""

    author: str
    created_at: datetime | None
    body: str


class PeopleComments(Struct, frozen=True, kw_only=True):
    """Comments of people on an issue, oldest first, bounded.

    Attributes:
        known: all comments that fit.
        new: comments that no session of the issue has received, and comments that were edited since then.
        left_out: how many new ones did not fit.
    """

    known: tuple[PersonComment, ...] = ()
    new: tuple[PersonComment, ...] = ()
    left_out: int = 0


NO_COMMENTS: Final = PeopleComments()


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A snapshot of an issue.

    Attributes:
        id: opaque, and the only key that the scheduler uses.
        identifier: for people, logs and directory names.
        state: in the spelling of the tracker.
        dispatchable: whether the tracker allows work on the issue, otherwise with a
            `not_dispatchable_reason`. It has no default, so that each adapter must decide.
        native_ref: how the tracker itself refers to the issue.
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

    @property
    def called_skills(self) -> tuple[str, ...]:
        """The names of skills that people called for by a label, in lower case."""
        prefix = SKILL_LABEL_PREFIX
        return tuple(label.removeprefix(prefix) for label in self.labels if label.startswith(prefix))


def issues_named(wanted: str, names: Iterable[str]) -> tuple[str, ...]:
    """The identifiers that match what a person typed: regardless of case, or else by number."""
    known, name = tuple(dict.fromkeys(names)), wanted.strip().casefold()
    alike = tuple(one for one in known if one.casefold() == name)
    number = name.removeprefix("#")
    if alike or not (number.isascii() and number.isdigit()):
        return alike
    return tuple(one for one in known if one == number or one.rpartition("-")[2] == number)


@lru_cache(maxsize=1_024)
def normalise_state(state: str) -> str:
    """A state name for comparisons: one line in lower case."""
    return one_line(state, MAX_NAME_CHARS).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A filter for lists of waiting issues.

    Attributes:
        limit: the largest number of issues, in the order in which they start; `None` is all.
        states: only issues in these states, in any spelling; empty is every state.
        codes: only issues that wait for one of these reasons, by code; empty is every code.
        text: only issues with this text in their identifier or title, in any case; empty is every issue.
    """

    limit: int | None = None
    states: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()
    text: str = ""

    def includes(self, issue: Issue, code: str) -> bool:
        """Whether an issue with this code passes the filter, regardless of `limit`."""
        if self.codes and code not in self.codes:
            return False
        if self.text and self.text.casefold() not in f"{issue.identifier} {issue.title}".casefold():
            return False
        return not self.states or normalise_state(issue.state) in {
            normalise_state(state) for state in self.states
        }


ALL_ISSUES: Final = Selection()


@lru_cache(maxsize=1_024)
def normalise_label(label: str) -> str:
    """A label for storage and comparisons: one line in lower case."""
    return one_line(label, MAX_NAME_CHARS).lower()


def normalise_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The normalised labels in their order, without empty and repeated ones."""
    cleaned = map(normalise_label, labels)
    return tuple(dict.fromkeys(label for label in cleaned if label))


def is_routable(issue: Issue, required_labels: Iterable[str]) -> bool:
    """Whether this daemon may work on the issue, regardless of its state, claims and slots.

    A blank required label matches no issue.
    """
    return issue.dispatchable and all(normalise_label(label) in issue.labels for label in required_labels)


def _instant(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def template_view(issue: Issue, comments: PeopleComments = NO_COMMENTS) -> dict[str, Any]:
    """The issue as variables of the prompt template: lists and maps, with times as ISO-8601 text."""
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
        "comments": [_comment_view(comment) for comment in comments.known],
        "new_comments": [_comment_view(comment) for comment in comments.new],
    }


def _comment_view(comment: PersonComment) -> dict[str, Any]:
    created_at = _instant(comment.created_at)
    return {"author": comment.author, "created_at": created_at, "body": comment.body}
