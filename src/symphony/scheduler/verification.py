"""Verifies finished work before anything relies on it.

A run that hands its issue over, in any state that is not active, is *due*: its worker delivers, and then runs
the operator's commands on the delivered head. So is a run that had its last turn. The result decides what
follows:

- *passed*, or everything that failed fails on the base too: the run ends as without verification;
- *failed*: the issue is moved back to the state in which it was worked on, and the same conversation gets the
  evidence as data. After `verify_rounds` such rounds the issue is blocked instead;
- *not carried out to its end*: a later run only verifies. That is never a pass. If the reviewer of an issue
  gives no verdict `MAX_NOT_REVIEWED` times in a row, the issue is blocked and a person decides whether it
  goes on without a review.

A verification that a person asked for (`order`) changes the result only: the claim is given up with its run.

While the issue is still where it was handed over, its claim is kept (`Resume.handed_over_to`). A person who
closes or moves an issue in the middle of a turn decides; nothing is verified then.
"""

from dataclasses import replace
from typing import Final

from symphony.domain import (
    Blame,
    Category,
    Failure,
    Issue,
    Verification,
    VerificationStatus,
    normalise_state,
    plural,
)
from symphony.scheduler import blocks, policy, results
from symphony.scheduler.messages import (
    FinishReason,
    IssueResult,
    MoveIssue,
    MoveReason,
    Outcome,
    Resume,
    ResumeReason,
    StopReason,
)
from symphony.scheduler.resume import thread_of
from symphony.scheduler.state import Retry, Running, State, Step, Trigger

NOT_DONE: Final = Failure(
    category=Category.VERIFY_NOT_DONE,
    blame=Blame.HOST,
    message="its work could not be verified",
    hint="`symphony logs` shows the reason; it is tried again",
)
"""Why a run is tried again if its worker could not carry out the verification."""

MAX_NOT_REVIEWED: Final = 3
"""How often a reviewer may give no verdict on the work of an issue before a person is asked."""

_HANDED_OVER: Final = frozenset(
    {StopReason.TERMINAL, StopReason.INACTIVE, FinishReason.INACTIVE, FinishReason.MAX_TURNS}
)


def is_due(state: State, run: Running, reason: FinishReason | StopReason) -> bool:
    """Whether a run that ends itself for this reason must be verified."""
    by_itself = isinstance(reason, FinishReason) or run.in_grace_period
    return state.settings.verify_rounds is not None and by_itself and reason in _HANDED_OVER


def begun(run: Running) -> Running:
    """The run once its worker was asked to verify; if it is cut off, the next run only verifies."""
    before = run.resume or Resume(reason=ResumeReason.VERIFY)
    resume = replace(
        before,
        reason=ResumeReason.VERIFY,
        question=None,
        answer=None,
        after_handoff=True,
        handed_over_to=normalise_state(run.issue.state),
        back_to=run.worked_in or before.back_to,
    )
    return replace(run, verifies=True, resume=resume)


def is_verified(result: IssueResult | None, head: str) -> bool:
    """Whether this exact commit of an issue passed its verification."""
    made = None if result is None else result.verification
    return made is not None and made.head == head and made.passed


def of_cut_off_run(state: State, retry: Retry, issue: Issue | None) -> Retry:
    """The retry; it only verifies if its last run had moved the issue before it was interrupted."""
    settings, result = state.settings, state.results.get(retry.issue.id)
    unverified = result is not None and result.delivered is not None and result.verification is None
    if not (retry.may_have_moved and unverified and settings.verify_rounds is not None and issue is not None):
        return retry
    if retry.resume is not None and retry.resume.answer is not None:
        return retry  # no turn began with it, so a person moved the issue
    left = {policy.TrackerStatus.TERMINAL, policy.TrackerStatus.INACTIVE}
    if policy.tracker_status(issue, settings) not in left or policy.is_handed_over(issue, retry.resume):
        return retry
    resume = replace(
        retry.resume or Resume(reason=ResumeReason.VERIFY),
        reason=ResumeReason.VERIFY,
        question=None,
        answer=None,
        after_handoff=True,
        handed_over_to=normalise_state(issue.state),
        back_to=retry.issue.state if policy.in_active_state(retry.issue, settings) else None,
    )
    return replace(retry, resume=resume)


def order(step: Step, result: IssueResult) -> None:
    """Claim the issue of finished work for a run that only verifies it, because a person asked for that."""
    issue, idle = result.issue, step.state.idle_workspaces.get(result.issue.id)
    resume = Resume(
        reason=ResumeReason.VERIFY,
        thread=result.thread,
        after_handoff=True,
        handed_over_to=normalise_state(issue.state),
        by_hand=True,
    )
    retry = Retry(
        issue=issue,
        attempt=1,
        due_ms=step.now_ms,
        error=None,
        attempts_without_progress=0,
        workspace_path=(idle.path or None) if idle else None,
        resume=resume,
    )
    step.update(pending_candidates=step.state.pending_candidates - {issue.id})
    step.change_claim(issue, Trigger.VERIFY, retry)  # It has no claim, or else the order is refused.
    step.forget_idle_workspace(issue.id)
    step.set_retry_timer(issue.id, step.now_ms)


def is_by_hand(entry: Running | Retry) -> bool:
    """Whether a person asked for the verification that this claim is for."""
    return entry.resume is not None and entry.resume.by_hand


def is_over(outcome: Outcome) -> bool:
    """Whether a run that was verified ends like any other."""
    return outcome.verification is not None and outcome.verification.status is not VerificationStatus.FAILED


def send_back(step: Step, run: Running, verification: Verification) -> Resume | None:
    """Send what failed to the agent or to a person; return how the next run continues, if one follows."""
    issue, settings = run.issue, step.state.settings
    before = run.resume or Resume(reason=ResumeReason.VERIFY)
    handed_over = policy.tracker_status(issue, settings) is not policy.TrackerStatus.ACTIVE
    resume = replace(
        before,
        reason=ResumeReason.VERIFY_FAILED,
        thread=thread_of(run),
        answer=verification.evidence(),
        after_handoff=handed_over,
        handed_over_to=before.handed_over_to if handed_over else None,
    )
    step.notify("warning", "verify_failed", issue, run_id=run.run_id, reason=verification.line)
    if not handed_over:  # the run had its last turn and claimed nothing
        return resume
    result = step.state.results[issue.id]
    rounds = result.verify_rounds + 1
    back_to = resume.back_to or settings.on_return
    if rounds <= (settings.verify_rounds or 0):
        results.store(step, replace(result, verify_rounds=rounds))
        if back_to is not None:
            state = frozenset({normalise_state(issue.state)})
            step.emit(MoveIssue(issue=issue, state=back_to, reason=MoveReason.VERIFY_FAILED, only_from=state))
        return resume
    results.store(step, replace(result, verify_rounds=0))
    blocks.block(step, issue, _failure(verification, rounds - 1), held=replace(run, resume=resume))
    return None


def is_given_up(step: Step, run: Running, failure: Failure) -> bool:
    """Block an issue whose reviewer gave no verdict too often; returns whether it did. Counts this time."""
    result = step.state.results.get(run.issue.id)
    if failure.category is not Category.NOT_REVIEWED or result is None:
        return False
    tries = result.not_reviewed + 1
    if tries < MAX_NOT_REVIEWED:
        results.store(step, replace(result, not_reviewed=tries))
        return False
    results.store(step, replace(result, not_reviewed=0))
    message = f"the commands passed, but there was no review in {plural(tries, 'attempt')}: {failure.message}"
    blocks.block(step, run.issue, replace(failure, message=message, retryable=False), held=run)
    return True


def _failure(verification: Verification, rounds: int) -> Failure:
    """The failure that blocks an issue whose agent does not get its work through the checks."""
    return Failure(
        category=Category.VERIFY_FAILED,
        blame=Blame.AGENT,
        message=f"its work is not verified after {plural(rounds, 'round')}: {verification.line}",
        retryable=False,
        hint="look at it with `symphony diff`, then answer the agent or run `symphony unblock`",
    )
