"""The contract of tracker adapters (specification 11; TR1-TR9, DESIGN 11a)."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from symphony.domain import Blame, Category, Failure, Issue, SymphonyError, ToolResult, ToolSpec, one_line


class TrackerError(SymphonyError):
    """A tracker call failed as a whole (TR3).

    `culprits` are the issue ids to blame, where that is known.
    """

    def __init__(self, failure: Failure, *, culprits: frozenset[str] = frozenset()) -> None:
        super().__init__(failure)
        self.culprits = culprits


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One setting that an adapter cannot work with; `location` are the keys that lead to it."""

    location: tuple[str | int, ...]
    failure: Failure


class TrackerConfigError(TrackerError):
    """The settings of `tracker` do not fit its kind; `problems` are all of them, and never empty."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__(problems[0].failure)
        self.problems = tuple(problems)


@runtime_checkable
class Tracker(Protocol):
    """The two reads every adapter offers, and the tools a session may use through the daemon.

    The reads may be cancelled at any await: the daemon gives an answer up after two minutes. A failure with
    `retry_after_ms` keeps the daemon from asking sooner, whatever wakes it.
    """

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        """Every issue in scope in one of the states; all or nothing; malformed records skipped and logged.

        Raises:
            TrackerError: the call failed; no partial list is ever returned.
        """
        ...

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        """Full current snapshots, each id at most once; ids that are gone or out of scope are omitted.

        Raises:
            TrackerError: the call failed, or a record asked for is malformed (TR4).
        """
        ...

    def secret_environment_names(self) -> frozenset[str]:
        """Environment variables that hold this tracker's credentials; removed from every child (AG20)."""
        ...

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        """Tools to advertise to a session (TR9); may be empty."""
        ...

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        """Run one tool with the daemon's credential; never raises: a failure is a `ToolResult` (AG18)."""
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yield whenever something may have changed: a hint to poll now, never a source of truth."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment as listed.

    Attributes:
        mine: whether this daemon's own identity wrote it. A person may share that identity with the daemon:
            what has no mark of ours (`comments.is_marked`) is then that person's.
        author: who wrote it, for people; text of others.
        author_key: how `who_may_answer` names the author.
        may_answer: whether the words of the author answer a question: true for a person who may, false for
            an agent, a bot or an integration, `None` where `who_may_answer` has to be asked.
    """

    id: str
    body: str
    mine: bool
    author: str = ""
    author_key: str = ""
    may_answer: bool | None = False


@runtime_checkable
class CommentCapability(Protocol):
    """The two primitives on which `trackers.comments.upsert_comment` builds (TR11)."""

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        """All comments of an issue, oldest first. Raises `TrackerError`."""
        ...

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Create (`comment_id` null) or replace a comment and return its id; `key` makes a create idempotent.

        Raises:
            TrackerError: nothing is known to have been written.
        """
        ...


@runtime_checkable
class AnswerCapability(CommentCapability, Protocol):
    """Trackers on which a comment of a person can be the answer to a question (`trackers.answers`)."""

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """Which of these authors (`Comment.author_key`) may answer a question that is asked on the issue.

        Those who may write to the project, and the author of the issue. Raises `TrackerError`.
        """
        ...


@runtime_checkable
class MovingCapability(Protocol):
    """Trackers in which the daemon may give an issue another state (`on_start`, `on_block`)."""

    async def move_issue(self, issue_id: str, state: str) -> str:
        """Move an issue and return the state that was read back, since some servers accept and ignore.

        Raises:
            TrackerError: there is no such issue or state, the move is forbidden, or it did not happen.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountInfo:
    """What a credential sees: who it belongs to, the name of what is in scope, and its states.

    No states at all means that any name is one.
    """

    login: str | None
    scope: str
    states: tuple[str, ...]


@runtime_checkable
class AccountCapability(Protocol):
    """Trackers that can tell who we are there and what there is, for `symphony tracker check`."""

    async def account_info(self) -> AccountInfo:
        """Ask for it. Raises `TrackerError`."""
        ...


@runtime_checkable
class SkippingCapability(Protocol):
    """Tells which records a listing had to leave out, so that people see more of it than a line in a log."""

    def skipped(self) -> Sequence[Failure]:
        """One failure per malformed record of the last `fetch_issues_by_states`."""
        ...


def skipped_by(tracker: Tracker) -> tuple[Failure, ...]:
    """What the tracker left out of its last listing; nothing where it cannot tell."""
    return tuple(tracker.skipped()) if isinstance(tracker, SkippingCapability) else ()


# Refusals that are ours and the same for every service: what was named is not there, or was not done.


_NAME = 80


def not_found(service: str, what: str, *, hint: str | None = None, status: int = 404) -> TrackerError:
    """Something asked for by name is not there, or may not be seen."""
    return _refusal(f"{service}: there is no {one_line(what, 200)}", hint, status=status)


def no_such_state(service: str, state: str, known: Sequence[str]) -> TrackerError:
    """A state to move to that the tracker does not have."""
    hint = f"states: {', '.join(known)}" if known else None
    return _refusal(f"{service}: there is no state {one_line(state, _NAME)!r}", hint)


def no_way(service: str, issue: str, *, wanted: str, found: str, known: Sequence[str]) -> TrackerError:
    """No rule of the tracker leads an issue from where it is to that state, or there is no such state."""
    hint = f"from there it can be moved to: {', '.join(known)}" if known else "it cannot be moved from there"
    return _refusal(
        f"{service}: {one_line(issue, _NAME)} cannot be moved from {one_line(found, _NAME)!r}"
        f" to {one_line(wanted, _NAME)!r}",
        hint,
    )


def not_moved(service: str, issue: str, *, wanted: str, found: str, hint: str | None = None) -> TrackerError:
    """The service took the move and did not make it."""
    return _refusal(
        f"{service}: {one_line(issue, _NAME)} is still in {one_line(found, _NAME)!r}"
        f" after a move to {one_line(wanted, _NAME)!r}",
        hint or "the tracker's rules may forbid this move, or somebody else made another one",
    )


def _refusal(message: str, hint: str | None, *, status: int | None = None) -> TrackerError:
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=message,
            retryable=False,
            hint=hint or "look at the issue in the tracker",
            status=status,
        )
    )
