"""What a predecessor left: its claims come back as claims, and nobody else starts their issues (RT9, FL1).

What ran goes on as a retry that is due at once, with the conversation it had. What is told is judged, never
trusted: of two claims on one issue the first holds, and a claim that is held already stays as it is.
"""

from symphony.domain.counts import added
from symphony.domain.failures import Blame, Category, Failure
from symphony.scheduler import blocks, cycle, results
from symphony.scheduler.claims import Claim, Trigger, claim_of
from symphony.scheduler.inputs import ClaimKind, Recovered, RecoveredClaim
from symphony.scheduler.state import Blocked, Retry
from symphony.scheduler.work import Work

__all__ = ["on_recovered"]

_LOST = Failure(
    category=Category.JOURNAL,
    blame=Blame.HOST,
    message="it waited for a person before the restart, and the reason is lost",
    retryable=False,
    hint="change the issue, or run `symphony unblock`",
)


def on_recovered(work: Work, fact: Recovered) -> None:
    """Take over what is told, then begin the first cycle (SC1, SC2).

    Workspaces of issues that are claimed are not left over, whenever somebody says so.
    """
    paths = {ref.issue_id: ref.path for ref in fact.workspaces}
    for claim in fact.claims:
        _take(work, claim, claim.workspace_path or paths.get(claim.issue.id))
    results.recover(work, fact.results)
    _take_books(work, fact)
    state = work.state
    claimed = {*state.running, *state.retrying, *state.blocked}
    parked = {ref.issue_id: ref for ref in fact.workspaces if ref.issue_id not in claimed}
    work.update(parked=parked, parked_ms=None)
    cycle.wake(work)


def _take(work: Work, claim: RecoveredClaim, path: str | None) -> None:
    issue = claim.issue
    work.update(picks=work.state.picks - {issue.id})
    if claim_of(work.state, issue.id) is not Claim.UNCLAIMED:
        work.notify("warning", "claim_not_recovered", issue, kind=claim.kind.value, reason="it is claimed")
        return
    if claim.kind is ClaimKind.BLOCKED:
        _take_block(work, claim, path)
    else:
        _take_retry(work, claim, path)
    work.notify("info", "claim_recovered", issue, kind=claim.kind.value, attempt=claim.attempt)


def _take_block(work: Work, claim: RecoveredClaim, path: str | None) -> None:
    """A block counts as looked at: whatever was changed while nobody was there lifts it (RT5).

    It is as old as it was. It is told once more, as the predecessor may have ended before it was; a comment
    that stands is left.
    """
    blocked = Blocked(
        issue=claim.issue,
        failure=claim.failure or _LOST,
        blocked_ms=min(claim.since_ms, work.now_ms),
        workspace_path=path,
        settled=True,
        attempt=claim.attempt,
        question=claim.question,
        resume=claim.resume,
        run_id=claim.run_id,
    )
    work.claim(claim.issue, Trigger.BLOCK, blocked)
    if claim.failure is not None:
        blocks.tell(work, blocked)


def _take_retry(work: Work, claim: RecoveredClaim, path: str | None) -> None:
    waited = claim.kind is ClaimKind.RETRYING
    retry = Retry(
        issue=claim.issue,
        attempt=claim.attempt or 1,
        due_ms=max(claim.due_ms, work.now_ms) if waited else work.now_ms,
        error=claim.error,
        idle_attempts=claim.idle_attempts,
        workspace_path=path,
        failures=claim.failures,
        hopeless=claim.hopeless,
        runs=claim.runs,
        resume=claim.resume,
    )
    work.claim(claim.issue, Trigger.RECOVER, retry)
    work.await_retry(claim.issue.id, retry.due_ms)


def _take_books(work: Work, fact: Recovered) -> None:
    """What was used up before. What this daemon counted by itself is newer, so it stays."""
    state = work.state
    work.update(spent={**fact.spent, **state.spent}, paused=state.paused or fact.paused)
    if fact.paused:
        work.notify("warning", "still_paused", hint="`symphony resume` has issues started again")
    if state.day is None:
        work.update(
            day=fact.day,
            day_tokens=added(fact.day_tokens, state.day_tokens),
            exempt=state.exempt | fact.exempt,
        )
