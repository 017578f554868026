"""Pushes delivered branches to their repositories: the job kind `push` of the outbox."""

import math
from typing import ClassVar, Final

from msgspec import Struct
from typing_extensions import override

from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import Core
from symphony.daemon.jobs import Attempt, JobKind, JobRunner
from symphony.domain import DeliveredBranch, FaultPoint, SymphonyError
from symphony.journal.jobs import Job
from symphony.journal.model import decode, encode
from symphony.observability import bugs
from symphony.scheduler import PushBranch, Pushed, State

_RECEIVER: Final = "origin"


class PushJob(Struct, frozen=True, kw_only=True):
    """One push: `PushBranch` for the journal."""

    branch: str
    head: str


class Pushes(JobKind):
    """Pushes branches to `origin` and to a local repository.

    Args:
        core: state and mailbox.
    """

    at_once: ClassVar[int] = 4
    timeout_s: ClassVar[float] = math.inf  # git ends a push after 60 s without headway

    def __init__(self, core: Core) -> None:
        self._core = core

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether a repository still lacks the branch, and nothing newer was delivered."""
        delivered = _delivered(state, job.issue_id)
        head = decode(job.payload, PushJob).head
        return delivered is not None and delivered.is_pending and delivered.head == head

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        """Push a branch, and report the outcome to the scheduler.

        Raises:
            SymphonyError: a repository still lacks it.
        """
        context, push, issue_id = attempt.context, decode(attempt.job.payload, PushJob), attempt.job.issue_id
        state = self._core.state
        delivered = None if state is None else _delivered(state, issue_id)
        placed, pushed = None, None
        context.fault(FaultPoint.BEFORE_PUSH)
        try:
            placed = await context.workspaces.place(push.branch)
            if delivered is not None and delivered.to_push:
                pushed = await context.workspaces.push(push.branch)
        except Exception as error:  # noqa: BLE001 - every failure becomes an event
            pushed = bugs.contained("effect_crashed", error)
        context.fault(FaultPoint.AFTER_PUSH)
        placed, pushed = (
            None if each is None else context.redaction.failure(each) for each in (placed, pushed)
        )
        self._core.post(Pushed(issue_id=issue_id, head=push.head, failure=pushed, branch_failure=placed))
        if failure := pushed or placed:
            raise SymphonyError(failure)


def _delivered(state: State, issue_id: str) -> DeliveredBranch | None:
    result = state.results.get(issue_id)
    return None if result is None else result.delivered


def queue_push(jobs: JobRunner, command: PushBranch) -> None:
    """Queue a push; it replaces an earlier one of the issue."""
    jobs.queue(
        kind="push",
        key=command.issue.id,
        receiver=_RECEIVER,
        issue_id=command.issue.id,
        issue_identifier=command.issue.identifier,
        payload=encode(PushJob(branch=command.branch, head=command.head)),
    )
