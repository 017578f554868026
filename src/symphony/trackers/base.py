"""The contract of tracker adapters (specification section 11)."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from symphony import domain

_MAX_NAME = 80


TrackerError = domain.ServiceError
"""The exception of every tracker, including those in other packages (docs/adapters.md)."""


class ConfigProblem(Struct, frozen=True, kw_only=True):
    """A setting that an adapter cannot use; `location` are the keys that lead to it."""

    location: tuple[str | int, ...]
    failure: domain.Failure


class TrackerConfigError(TrackerError):
    """The section `tracker` does not fit the kind. `problems` lists all mistakes and is not empty."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__(problems[0].failure)
        self.problems = tuple(problems)


class ToolProvider(Protocol):
    """Offers tools to sessions and runs them."""

    def agent_tool_specs(self) -> tuple[domain.ToolSpec, ...]:
        """The tools to offer to a session; may be empty."""
        ...

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: domain.Issue
    ) -> domain.ToolResult:
        """Run a tool with the daemon's credential. A tracker never raises: a failure is a `ToolResult`."""
        ...


@runtime_checkable
class Tracker(ToolProvider, Protocol):
    """The two reads that every adapter implements, and the tools that it offers to sessions.

    A read can be cancelled at any await; the daemon gives up after two minutes. After a failure with
    `retry_after_ms` the daemon does not ask earlier.
    """

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[domain.Issue]:
        """All issues in scope that are in one of the states. Malformed records are skipped and logged.

        Raises:
            TrackerError: the call failed; a partial list is never returned.
        """
        ...

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[domain.Issue]:
        """Current snapshots, each id once. Ids that are deleted or out of scope are omitted.

        Raises:
            TrackerError: the call failed, or a requested record is malformed.
        """
        ...

    def secret_environment_names(self) -> frozenset[str]:
        """Environment variables with credentials of this tracker; child processes do not get them."""
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yields when something may have changed: a hint to poll now, not a source of truth."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment as listed.

    Attributes:
        mine: whether the account of the daemon wrote it. A person may use the same account; such comments
            have no marker (`comments.is_marked`).
        author: the author's name for people; untrusted text.
        author_key: the author's id, as passed to `who_may_answer`.
        may_answer: whether a comment of this author can answer a question: true for a person with that right,
            false for agents, bots and integrations, `None` if `who_may_answer` has to decide.
        created_at: when it was written, if the service reports that.
    """

    id: str
    body: str
    mine: bool
    author: str = ""
    author_key: str = ""
    may_answer: bool | None = False
    created_at: datetime | None = None


@runtime_checkable
class CommentCapability(Protocol):
    """Trackers with comments: the two operations on which `comments.upsert_comment` builds."""

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        """All comments of an issue, oldest first. Raises `TrackerError`."""
        ...

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Create a comment (`comment_id` is `None`) or replace one, and return its id.

        `key` makes a create idempotent.

        Raises:
            TrackerError: the comment may not have been written.
        """
        ...


@runtime_checkable
class AnswerCapability(CommentCapability, Protocol):
    """Trackers on which a person's comment can answer an agent's question (`comments.replies_since`)."""

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """The authors (`Comment.author_key`) who may answer a question on the issue.

        People who may write to the project and the author of the issue may answer. Raises `TrackerError`.
        """
        ...


@runtime_checkable
class FindingCapability(Protocol):
    """Trackers whose issues have ids that differ from the identifiers that people use."""

    async def find_issue(self, identifier: str) -> domain.Issue | None:
        """The issue with this identifier, in whatever state; `None` if there is none in scope.

        Raises:
            TrackerError: the call failed.
        """
        ...


async def find_issue(tracker: Tracker, identifier: str) -> domain.Issue | None:
    """As `FindingCapability.find_issue`; in trackers without it the identifier is the id."""
    if isinstance(tracker, FindingCapability):
        return await tracker.find_issue(identifier)
    found = await tracker.fetch_issues_by_ids([identifier])
    return next((issue for issue in found if issue.identifier == identifier), None)


@runtime_checkable
class MovingCapability(Protocol):
    """Trackers in which the daemon can move issues (`on_start`, `on_block`)."""

    async def move_issue(self, issue_id: str, state: str) -> str:
        """Move an issue and return the state that was read back: some servers accept a move and ignore it.

        Raises:
            TrackerError: the issue or the state does not exist, or the move failed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueToCreate:
    """An issue to create: a title, a body in Markdown, the state to begin in, and labels."""

    title: str
    body: str
    state: str
    labels: tuple[str, ...] = ()


def issue_mark(key: str) -> str:
    """The mark of an issue that was created with this key: an HTML comment in its text."""
    return f"<!-- symphony:issue v1 key={key} -->"


def marked_issue_body(new: IssueToCreate, key: str) -> str:
    """The body of a new issue with the mark in its last line."""
    return f"{new.body.rstrip()}\n\n{issue_mark(key)}".lstrip()


@runtime_checkable
class CreatingCapability(Protocol):
    """Trackers in which the daemon can create issues (`schedules`, `symphony issue new`)."""

    def creation_problem(self) -> str | None:
        """Why these settings allow no new issues; `None` if they do."""
        ...

    async def create_issue(self, new: IssueToCreate, *, key: str, since: datetime) -> domain.Issue:
        """Create an issue unless one with this key exists; return the tracker's current snapshot of it.

        The daemon marks the issue inconspicuously with `key`, 32 hex digits, and looks for the mark first, so
        an attempt whose answer was lost can be repeated.

        Args:
            new: the issue.
            key: the same for each attempt at the same issue.
            since: when the issue was first requested; earlier issues are ignored.

        Raises:
            TrackerError: the issue may or may not exist now; repeat the call with the same key.
        """
        ...


def creation_problem(tracker: Tracker, kind: str) -> domain.Failure | None:
    """Why the tracker cannot create issues; `None` if it can."""
    problem = f"a tracker of kind {kind} does not create issues"
    if isinstance(tracker, CreatingCapability) and (problem := tracker.creation_problem() or "") == "":
        return None
    return domain.Failure(
        category=domain.Category.INVALID_TRACKER_CONFIG,
        blame=domain.Blame.CONFIG,
        message=problem,
        retryable=False,
        hint="leave out `schedules`, and create issues with the tracker's own means",
    )


class AccountInfo(Struct, frozen=True, kw_only=True):
    """What a credential sees: its account, the name of the scope, and the states; none if any is legal."""

    login: str | None
    scope: str
    states: tuple[str, ...]


@runtime_checkable
class AccountCapability(Protocol):
    """Trackers that report account, scope and states, for `symphony tracker check`."""

    async def account_info(self) -> AccountInfo:
        """Ask the service. Raises `TrackerError`."""
        ...


@runtime_checkable
class SkippingCapability(Protocol):
    """Trackers that report which records they skipped, beyond a log line."""

    def skipped(self) -> Sequence[domain.Failure]:
        """One failure per malformed record of the last `fetch_issues_by_states`."""
        ...


def skipped_by(tracker: Tracker) -> tuple[domain.Failure, ...]:
    """The records that the tracker skipped in its last listing; empty if it cannot report them."""
    return tuple(tracker.skipped()) if isinstance(tracker, SkippingCapability) else ()


def not_moved(service: str, issue: str, *, wanted: str, found: str, hint: str | None = None) -> TrackerError:
    """The failure of a move that the service accepted but did not carry out."""
    return TrackerError(
        domain.Failure(
            category=domain.Category.TRACKER_STATUS,
            blame=domain.Blame.TRACKER,
            message=(
                f"{service}: {domain.one_line(issue, _MAX_NAME)} is still in"
                f" {domain.one_line(found, _MAX_NAME)!r} after a move to"
                f" {domain.one_line(wanted, _MAX_NAME)!r}"
            ),
            retryable=False,
            hint=hint or "the rules of the tracker may forbid this move, or someone else moved the issue",
        )
    )


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Trimmed names without blank or repeated ones, each in its first position and spelling."""
    found: dict[str, str] = {}
    for name in names:
        if name.strip():
            found.setdefault(domain.normalise_state(name), name.strip())
    return tuple(found.values())
