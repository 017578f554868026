"""Reads issues from the tracker when people open their pages.

An open page asks repeatedly. The tracker is asked only now and then for each issue, and not at all while its
circuit is open. A tracker that does not answer delays a page by some seconds, once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
from cachetools import FIFOCache

from symphony.api.task import TrackerAnswer
from symphony.daemon.context import RuntimeContext
from symphony.domain import SymphonyError, one_line
from symphony.trackers.base import AccountCapability, CommentCapability, find_issue, unique

FRESH_MS: Final = 10_000
DEADLINE_S: Final = 4.0
_STATES_MS: Final = 600_000
_MAX_KEPT: Final = 64


@dataclass(slots=True)
class _Kept:
    """The last answer about an issue, with its time, its tracker, and the number of changes before it."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    answer: TrackerAnswer | None = None
    tracker: object = None
    at_ms: int = 0
    changes: int = 0
    seen: int = 0


class TaskReader:
    """Reads issues with their comments, and the states of the tracker.

    Args:
        now_ms: the monotonic clock.
        deadline_s: how long one reading may take.
    """

    def __init__(self, *, now_ms: Callable[[], int], deadline_s: float = DEADLINE_S) -> None:
        self._now_ms = now_ms
        self._deadline_s = deadline_s
        self._kept: FIFOCache[tuple[str, bool], _Kept] = FIFOCache(_MAX_KEPT)
        self._states: tuple[str, ...] = ()
        self._states_of: object = None
        self._states_at_ms = 0

    def states(self, context: RuntimeContext) -> tuple[str, ...]:
        """The states that the tracker last reported; none if they are unknown, or if any is legal."""
        return self._states if self._states_of is context.tracker else ()

    def changed(self, issue_id: str) -> None:
        """The daemon changed the issue at the tracker: earlier answers and reads are outdated."""
        for (name, _), kept in self._kept.items():
            found = None if kept.answer is None else kept.answer.issue
            if name == issue_id or (found is not None and found.id == issue_id):
                kept.changes += 1

    async def read(
        self, context: RuntimeContext, issue: str, *, by_identifier: bool = False, paused: bool
    ) -> TrackerAnswer:
        """The tracker's answer about an issue; never raises, and names missing parts.

        Args:
            context: the context in force.
            issue: the id of the issue, or its identifier.
            by_identifier: whether `issue` is the identifier.
            paused: whether the tracker must not be asked.
        """
        kept = self._kept.setdefault((issue, by_identifier), _Kept())
        async with kept.lock:
            before = kept.answer if kept.tracker is context.tracker else None
            is_fresh = self._now_ms() - kept.at_ms < FRESH_MS and kept.seen == kept.changes
            if before is not None and is_fresh:
                return before
            seen = kept.changes
            if paused:
                answer = TrackerAnswer(failure="the tracker fails, and is not asked for a while")
            else:
                answer = await self._ask(context, issue, by_identifier=by_identifier)
            if answer.failure is not None and before is not None:
                answer = replace(before, failure=answer.failure)
            kept.answer, kept.tracker, kept.seen = answer, context.tracker, seen
            kept.at_ms = self._now_ms()
            return answer

    async def _ask(self, context: RuntimeContext, name: str, *, by_identifier: bool) -> TrackerAnswer:
        tracker, answer = context.tracker, TrackerAnswer()
        try:
            with anyio.fail_after(self._deadline_s):
                if by_identifier:
                    issue = await find_issue(tracker, name)
                else:
                    issue = next(iter(await tracker.fetch_issues_by_ids([name])), None)
                answer = replace(answer, issue=issue, answered=True)
                if issue is not None and isinstance(tracker, CommentCapability):
                    answer = replace(answer, comments=tuple(await tracker.list_comments(issue.id)))
                await self._learn_states(context)
        except TimeoutError:
            return replace(answer, failure=f"the tracker did not answer within {self._deadline_s:g} s")
        except SymphonyError as error:
            return replace(answer, failure=context.redaction.text(error.failure.message))
        except Exception as error:  # noqa: BLE001 - a tracker of another package must not cost the page
            return replace(
                answer, failure=context.redaction.text(one_line(f"{type(error).__name__}: {error}"))
            )
        return answer

    async def _learn_states(self, context: RuntimeContext) -> None:
        tracker, now_ms = context.tracker, self._now_ms()
        is_known = self._states_of is tracker and now_ms - self._states_at_ms < _STATES_MS
        if is_known or not isinstance(tracker, AccountCapability):
            return
        self._states_of, self._states_at_ms = tracker, now_ms  # even if it fails
        self._states = unique((await tracker.account_info()).states)
