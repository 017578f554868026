"""Moves issues to the states of `tracker.on_start` and `tracker.on_block`."""

import logging
from collections.abc import Callable
from contextlib import suppress

import anyio
import structlog

from symphony.daemon.context import RuntimeContext
from symphony.domain import Blame, Category, Failure, SymphonyError, normalise_state
from symphony.scheduler import (
    MoveIssue,
    MoveReason,
)
from symphony.trackers.base import MovingCapability, TrackerError, not_moved

_TIMEOUT_S = 60.0
_MAX_TOLD = 1_024
_log = structlog.get_logger(__name__)


class Moves:
    """One move of an issue at a time; the newest that was asked for is the one that counts.

    Args:
        wake: called when an issue was moved back that waits for it.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._wanted: dict[str, MoveIssue] = {}
        self._locks: dict[str, anyio.Lock] = {}
        self._told: dict[tuple[str, str], str] = {}

    def ask(self, command: MoveIssue) -> None:
        """Note that this is the move which counts from now on."""
        self._wanted[command.issue.id] = command

    def forget(self, issue_id: str) -> None:
        """A run starts: what was asked for before, and is not made yet, is not wanted any more."""
        self._wanted.pop(issue_id, None)

    def run_ended(self, issue_id: str) -> None:
        """A move for the start of a run that is over comes too late."""
        wanted = self._wanted.get(issue_id)
        if wanted is not None and wanted.reason is MoveReason.START:
            del self._wanted[issue_id]

    async def make(self, context: RuntimeContext, command: MoveIssue) -> None:
        """Carry out a move that was asked for; never raises."""
        issue_id = command.issue.id
        lock = self._locks.setdefault(issue_id, anyio.Lock())
        try:
            async with lock:
                await self._make(context, command)
        finally:
            if self._wanted.get(issue_id) is command:
                del self._wanted[issue_id]
            if not lock.locked():  # a waiting one owns it by now
                self._locks.pop(issue_id, None)

    async def _make(self, context: RuntimeContext, command: MoveIssue) -> None:
        issue = command.issue
        facts = {"issue_id": issue.id, "issue_identifier": issue.identifier, "state": command.state}
        try:
            with anyio.fail_after(_TIMEOUT_S):
                before = await self._moved(context, command)
        except Exception as error:  # noqa: BLE001 - a move is never worth a run
            failure = context.redaction.failure(_failure(error))
            self._tell(command, failure)
            return
        if before is None:
            _log.debug("move_skipped", **facts)
            return
        self._told.pop((issue.id, command.state), None)
        _log.info("issue_moved", before=before, reason=command.reason.value, **facts)
        if command.reason is MoveReason.BACK:
            self._wake()

    async def _moved(self, context: RuntimeContext, command: MoveIssue) -> str | None:
        """The state before the move; null where it was not to be made any more."""
        tracker = context.tracker
        if not isinstance(tracker, MovingCapability):
            raise TrackerError(_cannot(context.settings.tracker.kind))
        found = await tracker.fetch_issues_by_ids([command.issue.id])
        if not found or self._wanted.get(command.issue.id) is not command:
            return None
        before = found[0].state
        if normalise_state(before) not in command.only_from:
            return None
        after = await tracker.move_issue(command.issue.id, command.state)
        if normalise_state(after) != normalise_state(command.state):
            kind = context.settings.tracker.kind
            raise not_moved(kind, command.issue.identifier, wanted=command.state, found=after)
        return before

    def _tell(self, command: MoveIssue, failure: Failure) -> None:
        issue, key = command.issue, (command.issue.id, command.state)
        facts = {"issue_id": issue.id, "issue_identifier": issue.identifier}
        again = self._told.get(key) == failure.message
        if not again and len(self._told) >= _MAX_TOLD:
            with suppress(StopIteration):
                del self._told[next(iter(self._told))]
        self._told[key] = failure.message
        _log.log(
            logging.DEBUG if again else logging.WARNING,
            "move_failed",
            state=command.state,
            reason=failure.line,
            hint=failure.hint,
            **facts,
        )


def _failure(error: Exception) -> Failure:
    if isinstance(error, SymphonyError):
        return error.failure
    slow = isinstance(error, TimeoutError)
    return Failure(
        category=Category.TRACKER_REQUEST,
        blame=Blame.TRACKER,
        message=f"not moved within {_TIMEOUT_S:g} s" if slow else f"internal error: {error!r}",
        hint="move the issue by hand; the work goes on",
    )


def _cannot(kind: str) -> Failure:
    return Failure(
        category=Category.INVALID_TRACKER_CONFIG,
        blame=Blame.CONFIG,
        message=f"a tracker of kind {kind} does not move issues",
        retryable=False,
        hint="leave out tracker.on_start and tracker.on_block",
    )
