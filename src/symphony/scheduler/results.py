"""Handles what the runs of issues produced: work that is ready for review, and pushes that are retried.

A result begins with the end of a run and adds up all runs of its issue. It is *open* while the issue is
claimed or in an active state. Once the issue is seen elsewhere, a result with a delivered branch is *ready*
for review, or *ended* if that state is terminal. A result without a branch is dropped then, and so is one
whose issue no longer exists. Issues that are ready are refreshed like those of idle workspaces, and after
every wake, to notice what people do with them.

A delivered branch is pushed as soon as its run has ended, beside everything else: a push holds no slot. It is
recorded with the result before it starts, and retried until it succeeds or is given up. The end of a run and
a later daemon start it again. A branch that the local repository refused is treated the same way. The number
of results is limited: the oldest are dropped, ended ones first.
"""

import shlex
from dataclasses import replace
from typing import Final

from msgspec import structs

from symphony.domain import (
    Category,
    DeliveredBranch,
    Failure,
    Issue,
    Verification,
    add_counts,
    fence,
    one_line,
    plain_text,
)
from symphony.scheduler import policy
from symphony.scheduler.messages import (
    BranchDelivered,
    IssueResult,
    Outcome,
    PostComment,
    PushBranch,
    Pushed,
    ResultStatus,
)
from symphony.scheduler.policy import TrackerStatus
from symphony.scheduler.resume import thread_of
from symphony.scheduler.state import Claim, Running, State, Step, claim_of

MAX_RESULTS: Final = 1_000
_MAX_REFRESHED_AT_WAKE = 50
MAY_CHANGE: Final = frozenset({ResultStatus.OPEN, ResultStatus.READY})
"""Results with these statuses may still change."""

_STATUS = {
    TrackerStatus.ACTIVE: ResultStatus.OPEN,
    TrackerStatus.INACTIVE: ResultStatus.READY,
    TrackerStatus.UNROUTABLE: ResultStatus.READY,
    TrackerStatus.TERMINAL: ResultStatus.ENDED,
    TrackerStatus.MISSING: ResultStatus.GONE,
}

# --- which results ---------------------------------------------------------------------------------------


def results_with_status(state: State, *statuses: ResultStatus) -> tuple[IssueResult, ...]:
    """The results with one of these statuses, the oldest first."""
    found = (result for result in state.results.values() if result.status in statuses)
    return tuple(sorted(found, key=lambda result: (result.ended_ms, result.issue.identifier)))


def unpushed_results(state: State) -> tuple[IssueResult, ...]:
    """The results whose branch has not reached its repositories, the oldest first."""
    return tuple(
        result
        for result in results_with_status(state, *ResultStatus)
        if result.delivered is not None and result.delivered.is_pending
    )


def unclaimed_issues(state: State) -> frozenset[str]:
    """The unclaimed issues of results that may still change."""
    return frozenset(
        key
        for key, result in state.results.items()
        if result.status in MAY_CHANGE and claim_of(state, key) is Claim.UNCLAIMED
    )


def ready_issues(state: State) -> frozenset[str]:
    """The issues that are ready for review, if they are few enough to be refreshed at every wake."""
    ready = frozenset(key for key, result in state.results.items() if result.status is ResultStatus.READY)
    return ready if len(ready) <= _MAX_REFRESHED_AT_WAKE else frozenset()


def reactivated_issues(state: State) -> frozenset[str]:
    """The issues of finished work that the last poll found in an active state."""
    return frozenset(
        key
        for key, result in state.results.items()
        if result.status is not ResultStatus.OPEN
        and key in state.candidates
        and policy.tracker_status(state.candidates[key], state.settings) is TrackerStatus.ACTIVE
    )


# --- changes ---------------------------------------------------------------------------------------------


def on_restarted(step: Step, issue_id: str) -> None:
    """Count a restart: a person wants more work on an issue with a result."""
    if (result := step.state.results.get(issue_id)) is not None:
        store(step, replace(result, restarts=add_counts(result.restarts, 1), verify_rounds=0))


def on_run_ended(step: Step, run: Running, outcome: Outcome) -> None:
    """Add a run to the result of its issue."""
    issue, facts = replace(run.issue, description=None), run.report.facts
    before = step.state.results.get(issue.id) or IssueResult(issue=issue)
    result = replace(
        before,
        issue=issue,
        status=ResultStatus.OPEN,
        ended_ms=step.now_ms,
        summary=outcome.summary or before.summary,
        left=outcome.left,
        verification=(verification := _verification(before, outcome, run.run_id)),
        verify_rounds=0 if verification is not None and verification.passed else before.verify_rounds,
        not_reviewed=0 if outcome.verification is not None else before.not_reviewed,
        thread=thread_of(run) or before.thread,
        turns=add_counts(before.turns, facts.turn_count),
        usage=before.usage.plus(facts),
    )
    if (delivered := outcome.delivered) is not None:
        is_new = before.delivered is None or before.delivered.head != delivered.head
        result = replace(
            result,
            delivered=delivered,
            commented=outcome.commented,
            pushing_since_ms=None if is_new else before.pushing_since_ms,
        )
        if is_new or not delivered.pushed:
            _log_push(step, issue, delivered)
    store(step, result)
    if result.pushing_since_ms is None and result.delivered is not None and result.delivered.is_pending:
        _push(step, result, result.delivered)
    failure = outcome.failure
    if failure is not None and failure.category is Category.DELIVERY_FAILED:
        reason = fence(one_line(failure.message))
        body = f"A run on this issue has ended, but its work could not be delivered:\n\n{reason}"
        _post_comment(step, issue, body)


def _verification(before: IssueResult, outcome: Outcome, run_id: str) -> Verification | None:
    """The verification of the delivered head; a new commit makes an older one stale."""
    known, made = before.verification, outcome.verification
    if made is None:
        head = outcome.delivered.head if outcome.delivered else known.head if known else None
        return known if known is not None and known.head == head else None
    failed_before = known is not None and known.head == made.head and not known.passed
    return replace(made.kept(), run_id=run_id, passed_after_failure=made.passed and failed_before)


def on_refreshed(step: Step, issue_id: str, issue: Issue | None) -> None:
    """Apply a snapshot to the result of an unclaimed issue; `None` is an issue that no longer exists."""
    before = step.state.results.get(issue_id)
    if before is None or claim_of(step.state, issue_id) is not Claim.UNCLAIMED:
        return
    status = _STATUS[policy.tracker_status(issue, step.state.settings)]
    latest = before.issue if issue is None else replace(issue, description=None)
    after = replace(before, status=status, issue=latest)
    if before.status is ResultStatus.READY and status is not ResultStatus.READY:
        branch = before.delivered.branch if before.delivered else None
        if issue is None:
            reason = "the tracker does not find the issue any more; its branch stays"
            step.notify("warning", "review_ended", latest, reason=reason, branch=branch)
        else:
            step.notify("info", "review_ended", latest, reason=f"it is in {issue.state}", branch=branch)
    finished = before.status is ResultStatus.OPEN and status in {ResultStatus.READY, ResultStatus.ENDED}
    if finished and after.left is not None:
        step.notify("warning", "work_left", latest, reason=after.left, state=latest.state)
        if after.delivered is None:
            _announce(step, after)
    if _is_obsolete(after):
        _drop(step, issue_id)
        return
    if after != before:
        store(step, after)
    if finished and (delivered := after.delivered):
        fields = {
            "state": latest.state,
            "branch": delivered.branch,
            "commits": delivered.work.commits,
            "verified": after.verification.status.value if after.verification else None,
        }
        if status is ResultStatus.READY:
            step.notify("info", "work_ready", latest, **fields)
        else:
            step.notify("info", "work_ended", latest, **fields)
        _announce(step, after)


def on_branch_delivered(step: Step, event: BranchDelivered) -> None:
    """Take over a branch that the removal of a workspace delivered. Its issue may be on no list any more."""
    unknown = Issue(
        id=event.issue_id, identifier=event.identifier, title=event.identifier, state="", dispatchable=False
    )
    before = step.state.results.get(event.issue_id) or IssueResult(
        issue=unknown, status=ResultStatus.GONE, ended_ms=step.now_ms
    )
    if before.delivered is not None and before.delivered.head == event.delivered.head:
        return
    result = replace(before, delivered=event.delivered, pushing_since_ms=None)
    _log_push(step, result.issue, event.delivered)
    store(step, result)
    _push(step, result, event.delivered)


def recover(step: Step, recovered: tuple[IssueResult, ...]) -> None:
    """Take over the results of a previous daemon. Announce ready ones again, in case that daemon did not."""
    for known in recovered[-MAX_RESULTS:]:
        issue_id = known.issue.id
        if issue_id in step.state.results:
            continue
        claimed = claim_of(step.state, issue_id) is not Claim.UNCLAIMED
        result = replace(
            known,
            status=ResultStatus.OPEN if claimed else known.status,
            ended_ms=min(known.ended_ms, step.now_ms),
            pushing_since_ms=None,
        )
        store(step, result)
        if result.status is ResultStatus.READY:
            _announce(step, result)
        if result.delivered is not None and result.delivered.is_pending:
            _push(step, result, result.delivered)


def _is_obsolete(result: IssueResult) -> bool:
    """Whether there is nothing to review, and no push to retry."""
    if result.status is ResultStatus.OPEN:
        return False
    if result.delivered is None:
        return True
    return result.status is ResultStatus.GONE and not result.delivered.is_pending


def store(step: Step, result: IssueResult) -> None:
    """Keep a result; the oldest one makes way if there are too many."""
    results = {**step.state.results, result.issue.id: result}
    step.update(results=results)
    if len(results) > MAX_RESULTS:
        unclaimed = [each for key, each in results.items() if claim_of(step.state, key) is Claim.UNCLAIMED]
        oldest = min(unclaimed, key=lambda each: (each.status in MAY_CHANGE, each.ended_ms), default=result)
        _drop(step, oldest.issue.id)


def _drop(step: Step, issue_id: str) -> None:
    step.update(results={key: result for key, result in step.state.results.items() if key != issue_id})


# --- pushes ----------------------------------------------------------------------------------------------


def _push(step: Step, result: IssueResult, delivered: DeliveredBranch) -> None:
    """Start to push a delivered branch to its repositories."""
    store(step, replace(result, pushing_since_ms=step.now_ms))
    step.emit(PushBranch(issue=result.issue, branch=delivered.branch, head=delivered.head))
    step.notify("info", "push_started", result.issue, branch=delivered.branch, commit=delivered.head)


def on_pushed(step: Step, event: Pushed) -> None:
    """Take over the outcome of a push; the outcome for an older commit is ignored."""
    before = step.state.results.get(event.issue_id)
    if before is None or before.delivered is None or before.delivered.head != event.head:
        return
    delivered = structs.replace(before.delivered, branch_failure=event.branch_failure)
    if delivered.to_push:
        pushed = event.failure is None
        delivered = structs.replace(delivered, pushed=pushed, to_push=not pushed, push_failure=event.failure)
    result = replace(before, delivered=delivered, pushing_since_ms=None)
    if result == before:
        return  # the same failure as before
    if delivered != before.delivered:
        _log_push(step, result.issue, delivered)
    if _is_obsolete(result):
        _drop(step, event.issue_id)
        return
    store(step, result)
    if result.status in {ResultStatus.READY, ResultStatus.ENDED}:
        _announce(step, result, failed_before=bool(before.delivered.failures))


def _log_push(step: Step, issue: Issue, delivered: DeliveredBranch) -> None:
    branch = delivered.branch
    if failure := delivered.branch_failure:
        reason, hint = failure.message, failure.hint
        step.notify("warning", "branch_not_placed", issue, branch=branch, reason=reason, hint=hint)
    if failure := delivered.push_failure:
        reason, hint = failure.message, failure.hint
        step.notify("warning", "push_failed", issue, branch=branch, reason=reason, hint=hint)
    elif delivered.pushed:
        step.notify("info", "branch_pushed", issue, branch=branch, commit=delivered.head)


# --- comments --------------------------------------------------------------------------------------------


def _announce(step: Step, result: IssueResult, *, failed_before: bool = False) -> None:
    """Comment on the issue where its work is.

    If the agent commented already, add only what it cannot know.
    """
    delivered, left = result.delivered, result.left
    rest = None if left is None else f"Work that no branch has is in the workspace:\n\n{fence(left)}"
    checked = result.verification is not None
    if delivered is None or (result.commented and not (checked or delivered.failures or failed_before)):
        if rest is not None:
            _post_comment(step, result.issue, rest)
        return
    parts = [f"The work on this issue is on the branch `{delivered.branch}`: {delivered.work.line}."]
    if delivered.branch_failure is not None:
        missing = f"The branch `{delivered.branch}` of the repository does not have it."
        parts = [f"The work on this issue is stored where Symphony runs: {delivered.work.line}. {missing}"]
        parts.append(_what_to_do(delivered.branch_failure))
    if delivered.push_failure is not None:
        parts.append(f"The branch could not be pushed to `origin`.\n\n{_what_to_do(delivered.push_failure)}")
    elif delivered.pushed:
        parts.append("The branch is pushed to `origin`.")
    elif delivered.to_push:
        parts.append("The branch is being pushed to `origin`.")
    if any(failure.retryable for failure in delivered.failures):
        parts.append("The daemon tries again.")
    if result.verification is not None:
        parts.append(_verified(result.verification))
    command = fence(f"symphony diff {shlex.quote(result.issue.identifier)}")
    parts.append(f"To look at it on the daemon's machine:\n\n{command}")
    if rest is not None:
        parts.append(rest)
    _post_comment(step, result.issue, "\n\n".join(parts))


def _verified(verification: Verification) -> str:
    """The results of the checks, for people. Names of files and tests are text by the agent."""
    kind = "Verified" if verification.passed else "Not verified"
    parts = [f"{kind} at `{verification.head[:12]}`:\n\n{fence(plain_text(verification.line))}"]
    if verification.protected_changes:
        changed = "\n".join(map(one_line, verification.protected_changes))
        parts.append(f"The change touches protected files:\n\n{fence(changed)}")
    if verification.weakened:
        parts.append(
            f"Tests that it deletes or skips:\n\n{fence(plain_text(chr(10).join(verification.weakened)))}"
        )
    if verification.reviewer is not None and verification.reviewer.remarks:
        parts.append(f"Remarks of the reviewer:\n\n{verification.reviewer.shown_remarks()}")
    return "\n\n".join(parts)


def _what_to_do(failure: Failure) -> str:
    """The failure and the way out of it, as a quotation."""
    return fence("\n".join(one_line(text) for text in (failure.message, failure.hint) if text))


def _post_comment(step: Step, issue: Issue, body: str) -> None:
    """Post the comment about the delivery; a later one replaces it."""
    if step.state.settings.comment_on_delivery:
        step.emit(PostComment(issue=issue, kind="delivery", body=body))
