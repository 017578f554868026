"""Moves issues to other tracker states, for `tracker.on_start` and `tracker.on_block`, or for an operator.

The scheduler decides which of the former to make. Such a move is made only if the issue still is in the state
that the decision was based on. The tracker's own answer tells whether a move happened.
"""

import logging
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

import anyio
import structlog
from cachetools import FIFOCache

from symphony.daemon.context import RuntimeContext
from symphony.domain import Blame, Category, Failure, Issue, SymphonyError, normalise_state
from symphony.scheduler import MoveIssue, MoveReason
from symphony.trackers.base import MovingCapability, TrackerError, not_moved

TIMEOUT_S: Final = 60.0
MAX_REPORTED: Final = 1_024
_NO_MOVES: Final = "leave out tracker.on_start and tracker.on_block"
_log = structlog.get_logger(__name__)


class Moves:
    """Makes one move of an issue at a time; the newest request replaces earlier ones.

    Args:
        on_moved_back: called after an issue was moved back to an active state, where it waits for a poll.
        timeout_s: limit of one move.
        max_reported: number of failed moves whose warning is not repeated.
    """

    def __init__(
        self,
        on_moved_back: Callable[[], None],
        *,
        timeout_s: float = TIMEOUT_S,
        max_reported: int = MAX_REPORTED,
    ) -> None:
        self._on_moved_back = on_moved_back
        self._timeout_s = timeout_s
        self._wanted: dict[str, MoveIssue] = {}
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._reported: FIFOCache[tuple[str, str], str] = FIFOCache(
            max_reported
        )  # failures by issue and state

    def request(self, command: MoveIssue) -> None:
        """Replace earlier requests for the issue; `move` must follow."""
        self._wanted[command.issue.id] = command

    def cancel(self, issue_id: str) -> None:
        """Drop a move that is not made yet, because a run of the issue starts."""
        self._wanted.pop(issue_id, None)

    def run_ended(self, issue_id: str) -> None:
        """Drop a move for the start of a run that has ended."""
        wanted = self._wanted.get(issue_id)
        if wanted is not None and wanted.reason is MoveReason.START:
            del self._wanted[issue_id]

    async def move(self, context: RuntimeContext, command: MoveIssue) -> None:
        """Make a requested move, unless a newer request replaced it; failures are logged."""
        issue = command.issue
        fields = {"issue_id": issue.id, "issue_identifier": issue.identifier, "state": command.state}
        try:
            async with self._locks.setdefault(issue.id, anyio.Lock()):
                try:
                    with anyio.fail_after(self._timeout_s):
                        before = await self._moved_from(context, command)
                except Exception as error:  # noqa: BLE001 - a move must not cost a run
                    self._report(command, context.redaction.failure(_failure(error, self._timeout_s)))
                    return
                if before is None:
                    _log.debug("move_skipped", **fields)
                    return
                self._reported.pop((issue.id, command.state), None)
                _log.info("issue_moved", before=before, reason=command.reason.value, **fields)
                if command.reason is MoveReason.BACK:
                    self._on_moved_back()
        finally:
            if self._wanted.get(issue.id) is command:
                del self._wanted[issue.id]

    async def _moved_from(self, context: RuntimeContext, command: MoveIssue) -> str | None:
        """The state before the move; `None` if the move no longer fits."""
        found = await context.tracker.fetch_issues_by_ids([command.issue.id])
        if not found or self._wanted.get(command.issue.id) is not command:
            return None
        before = found[0].state
        if normalise_state(before) not in command.only_from:
            return None
        await _move(context, command.issue, command.state, hint=_NO_MOVES)
        return before

    def _report(self, command: MoveIssue, failure: Failure) -> None:
        """Warn of a failure once per issue and state, until a move to that state succeeds."""
        issue, key = command.issue, (command.issue.id, command.state)
        repeated = self._reported.get(key) == failure.message
        self._reported[key] = failure.message
        _log.log(
            logging.DEBUG if repeated else logging.WARNING,
            "move_failed",
            state=command.state,
            reason=failure.line,
            hint=failure.hint,
            issue_id=issue.id,
            issue_identifier=issue.identifier,
        )


async def move_now(
    context: RuntimeContext,
    issue: Issue,
    state: str,
    *,
    reason: str,
    may_move: Callable[[Issue], bool] = lambda _: True,
) -> str | None:
    """Move an issue at once; the state before, `None` if the tracker does not have the issue.

    Args:
        context: the context in force.
        issue: the issue.
        state: where it goes.
        reason: why, for the log.
        may_move: whether it may be moved as the tracker has it now.

    Raises:
        SymphonyError: the tracker did not move it; secrets are masked.
    """
    try:
        with anyio.fail_after(TIMEOUT_S):
            found = await context.tracker.fetch_issues_by_ids([issue.id])
            fields = {"issue_id": issue.id, "issue_identifier": issue.identifier, "state": state}
            if found and normalise_state(found[0].state) != normalise_state(state):
                if may_move(found[0]):
                    await _move(context, issue, state, hint="move it in the tracker")
                    _log.info("issue_moved", before=found[0].state, reason=reason, **fields)
                else:
                    _log.info("move_skipped", **fields)
    except Exception as error:
        raise SymphonyError(context.redaction.failure(_failure(error, TIMEOUT_S))) from error
    return found[0].state if found else None


async def _move(context: RuntimeContext, issue: Issue, state: str, *, hint: str) -> None:
    """Move an issue, and see where it is then. `hint` says what to do where the tracker moves no issues."""
    tracker, kind = context.tracker, context.settings.tracker.kind
    if not isinstance(tracker, MovingCapability):
        raise TrackerError(
            Failure(
                category=Category.INVALID_TRACKER_CONFIG,
                blame=Blame.CONFIG,
                message=f"a tracker of kind {kind} does not move issues",
                retryable=False,
                hint=hint,
            )
        )
    after = await tracker.move_issue(issue.id, state)
    if normalise_state(after) != normalise_state(state):
        raise not_moved(kind, issue.identifier, wanted=state, found=after)


def _failure(error: Exception, timeout_s: float) -> Failure:
    if isinstance(error, SymphonyError):
        return error.failure
    slow = isinstance(error, TimeoutError)
    return Failure(
        category=Category.TRACKER_REQUEST,
        blame=Blame.TRACKER,
        message=f"not moved within {timeout_s:g} s" if slow else f"internal error: {error!r}",
        hint="move the issue by hand; the work goes on",
    )
