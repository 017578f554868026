"""Moves issues to other tracker states, for `tracker.on_start` and `tracker.on_block`, or for an operator.

The scheduler decides the former. Such a move is made only if the issue is still in the state on which the
decision was based. The tracker's answer shows whether a move happened.
"""

from collections.abc import Callable
from typing import Final

import anyio
import structlog
from msgspec import Struct
from typing_extensions import override

from symphony.daemon.context import RuntimeContext, tracker_key
from symphony.daemon.core import Core
from symphony.daemon.jobs import Attempt, JobKind, JobRunner
from symphony.domain import Blame, Category, Failure, FaultPoint, Issue, SymphonyError, normalise_state
from symphony.journal.jobs import Job
from symphony.journal.model import decode, encode
from symphony.scheduler import MoveIssue, MoveReason, State, WakeAsked
from symphony.trackers.base import MovingCapability, TrackerError, not_moved

TIMEOUT_S: Final = 60.0
_NO_MOVES: Final = "leave out tracker.on_start and tracker.on_block"
_log = structlog.get_logger(__name__)


class MoveJob(Struct, frozen=True, kw_only=True):
    """One move: `MoveIssue` for the journal. `seen` is the state of the issue at the decision."""

    issue_id: str
    issue_identifier: str
    state: str
    reason: MoveReason
    only_from: frozenset[str]
    seen: str


class Moves(JobKind):
    """Carries out the scheduler's moves: the job kind `move` of the outbox.

    A late move is made only from a state that the daemon expects: the one that it saw, or one to which it
    moves issues at a start. Any other state comes from a person.

    Args:
        core: the mailbox: an issue that was moved back to an active state needs a poll.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether the reason of the move still holds."""
        if job.receiver != tracker_key(context):
            return False
        blocked = state.blocked.get(job.issue_id)
        match decode(job.payload, MoveJob).reason:
            case MoveReason.START:
                return job.issue_id in state.running
            case MoveReason.BLOCK:
                return blocked is not None
            case MoveReason.VERIFY_FAILED:
                entry = state.entry(job.issue_id)
                return bool(entry and entry.resume and entry.resume.handed_over_to)
            case MoveReason.BACK:
                return blocked is not None and blocked.unblock_reason is not None

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        """Move an issue, unless the move is outdated.

        Raises:
            TrackerError: it was not moved.
        """
        context, move = attempt.context, decode(attempt.job.payload, MoveJob)
        fields = {"issue_id": move.issue_id, "issue_identifier": move.issue_identifier, "state": move.state}
        found = await context.tracker.fetch_issues_by_ids([move.issue_id])
        if not found or not attempt.still_needed() or not _fits(move, found[0].state, attempt):
            _log.debug("move_skipped", **fields)
            return
        context.fault(FaultPoint.BEFORE_MOVE)
        await _move(context, found[0], move.state, hint=_NO_MOVES)
        context.fault(FaultPoint.AFTER_MOVE)
        _log.info("issue_moved", before=found[0].state, reason=move.reason.value, **fields)
        if move.reason is MoveReason.BACK:
            self._core.post(WakeAsked(reason="issue_moved"))


def _fits(move: MoveJob, before: str, attempt: Attempt) -> bool:
    """Whether an issue in the state `before` may be moved."""
    now = normalise_state(before)
    if now == normalise_state(move.state) or now not in move.only_from:
        return False
    settings = attempt.context.settings
    known = (move.seen, settings.tracker.on_start, settings.forge.on_feedback)
    return not attempt.is_late or now in {normalise_state(state) for state in known if state}


def queue_move(jobs: JobRunner, context: RuntimeContext, command: MoveIssue) -> None:
    """Queue a move; it replaces an earlier pending one of the issue."""
    issue = command.issue
    move = MoveJob(
        issue_id=issue.id,
        issue_identifier=issue.identifier,
        state=command.state,
        reason=command.reason,
        only_from=command.only_from,
        seen=issue.state,
    )
    jobs.queue(
        kind="move",
        key=issue.id,
        receiver=tracker_key(context),
        issue_id=issue.id,
        issue_identifier=issue.identifier,
        payload=encode(move),
    )


async def move_now(
    context: RuntimeContext,
    issue: Issue,
    state: str,
    *,
    reason: str,
    may_move: Callable[[Issue], bool] = lambda _: True,
) -> str | None:
    """Move an issue at once; return its state before, or `None` if the tracker does not have the issue.

    Args:
        context: the context in force.
        issue: the issue.
        state: the target state.
        reason: why, for the log.
        may_move: whether the tracker's present snapshot may be moved.

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
        raise SymphonyError(context.redaction.failure(_failure(error))) from error
    return found[0].state if found else None


async def _move(context: RuntimeContext, issue: Issue, state: str, *, hint: str) -> None:
    """Move an issue and read its state back. `hint` says what to do if the tracker cannot move issues."""
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


def _failure(error: Exception) -> Failure:
    if isinstance(error, SymphonyError):
        return error.failure
    slow = isinstance(error, TimeoutError)
    return Failure(
        category=Category.TRACKER_REQUEST,
        blame=Blame.TRACKER,
        message=f"not moved within {TIMEOUT_S:g} s" if slow else f"internal error: {error!r}",
        hint="move the issue by hand; the work continues",
    )
