"""A tracker behind a bad line: answers that are late, that are cut off, and old ones that come again.

What is cut was carried out or not, as it falls; the daemon cannot know. Every read is still one that a real
tracker could have given, at this moment or a moment ago.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import anyio

from symphony.domain import Blame, Category, Failure, Issue, ToolResult, ToolSpec
from symphony.trackers.base import Comment, CommentCapability, Tracker, TrackerError, skipped_by

__all__ = ["Weathered"]


_T = TypeVar("_T")
_LATE, _LOST, _CUT, _OLD = 0.25, 0.06, 0.06, 0.05
_LONGEST_S = 0.6


class Weathered:
    """A tracker with comments, seen through bad weather."""

    def __init__(self, inner: Tracker, dice: Random) -> None:
        assert isinstance(inner, CommentCapability)
        self._inner = inner
        self._comments: CommentCapability = inner
        self._dice = dice
        self._last: dict[tuple[str, ...], Sequence[Issue]] = {}

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        """Sometimes the answer of last time."""
        key = tuple(states)
        if key in self._last and self._dice.random() < _OLD:
            return self._last[key]
        self._last[key] = await self._sent(lambda: self._inner.fetch_issues_by_states(states))
        return self._last[key]

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        return await self._sent(lambda: self._inner.fetch_issues_by_ids(ids))

    def skipped(self) -> Sequence[Failure]:
        return skipped_by(self._inner)

    def secret_environment_names(self) -> frozenset[str]:
        return self._inner.secret_environment_names()

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        return self._inner.agent_tool_specs()

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        try:
            return await self._sent(lambda: self._inner.execute_agent_tool(name, arguments, issue=issue))
        except TrackerError as error:
            return ToolResult.error(error.failure.message)

    def changes(self) -> AsyncIterator[None]:
        return self._inner.changes()

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        return await self._sent(lambda: self._comments.list_comments(issue_id))

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        return await self._sent(
            lambda: self._comments.put_comment(issue_id, body, key=key, comment_id=comment_id)
        )

    async def _sent(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        if self._dice.random() < _LATE:
            await anyio.sleep(self._dice.uniform(0, _LONGEST_S))
        if self._dice.random() < _LOST:
            raise _no_answer("the question was lost")
        answer = await ask()
        if self._dice.random() < _CUT:
            raise _no_answer("the answer was cut off")
        return answer


def _no_answer(how: str) -> TrackerError:
    return TrackerError(Failure(category=Category.TRACKER_REQUEST, blame=Blame.TRACKER, message=how))
