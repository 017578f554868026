"""The snapshot of a pull request (on GitLab: merge request) that all forges share. `None` means unknown."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class PullState(StrEnum):
    """Where a pull request stands."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


class CheckState(StrEnum):
    """How a check stands. A skipped or neutral check and an optional manual one count as passed."""

    PENDING = "pending"
    PASSED = "passed"
    FAILED = "failed"


class ReviewState(StrEnum):
    """What a review says. Dismissed and unsubmitted reviews do not count as reviews."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    COMMENTED = "commented"


class Author(Struct, frozen=True, kw_only=True):
    """Who wrote something; `login` is exact, in lower case, and empty for a deleted account.

    Attributes:
        can_write: whether the forge says that the account may write to the repository.
        is_me: whether it is the account of the daemon's token.
    """

    login: str
    is_bot: bool = False
    can_write: bool = False
    is_me: bool = False


class Check(Struct, frozen=True, kw_only=True):
    """One CI check or job.

    Attributes:
        id: unique among the checks of a commit. Each run of a check has its own id.
        sha: the commit that it ran on, which need not be the head.
        required: whether the base branch requires it.
        summary: the step that failed, or what the check itself says, in one line.
        log: the key with which `Forge.log_tail` reads its log; `None` if the forge has no log.
    """

    id: str
    name: str
    state: CheckState
    sha: str
    required: bool = False
    summary: str | None = None
    url: str | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullComment:
    """A comment, alone or in a thread; `at` is when it was last changed."""

    id: str
    author: Author
    body: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewThread:
    """Comments on one place of the change; `line` is `None` for a whole file or an outdated place."""

    id: str
    resolved: bool
    comments: tuple[PullComment, ...]
    path: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestReview:
    """A review of the commit `sha`. Reviews that consist only of threads are left out.

    GitLab's reviews have no text.
    """

    id: str
    author: Author
    state: ReviewState
    sha: str | None
    body: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """The facts of a forge about a pull request, all read at one time.

    Attributes:
        id: the forge's own reference.
        head_repo: the repository of the head branch (`owner/name`); `None` if it is deleted.
        head_sha: the last commit of the head branch.
        conflicts: whether it conflicts with the base; `None` while the forge has not computed that.
        missing_checks: names of required checks that have not started on the head, as far as the forge tells.
        rules_met: whether the reviews that the forge's own rules require are there; `None` without such
            rules.
        armed: whether the forge merges it by itself as soon as it may; `None` where it does not tell.
        queued: whether it is in a merge queue or merge train.
        complete: whether all checks, reviews and comments are here; a very long list is cut.
    """

    id: str
    number: int
    url: str
    title: str
    body: str
    state: PullState
    draft: bool
    author: Author
    head_branch: str
    head_repo: str | None
    head_sha: str
    base_branch: str
    conflicts: bool | None = None
    rules_met: bool | None = None
    checks: tuple[Check, ...] = ()
    missing_checks: tuple[str, ...] = ()
    reviews: tuple[PullRequestReview, ...] = ()
    threads: tuple[ReviewThread, ...] = ()
    comments: tuple[PullComment, ...] = ()
    labels: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    changed_lines: int | None = None
    armed: bool | None = False
    queued: bool = False
    complete: bool = True
