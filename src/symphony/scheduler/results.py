"""What the runs of an issue came to: the work that is ready for review, and pushes that are tried again.

A result begins with the end of a run and adds up all runs of its issue. It is *open* while the issue is
claimed or stands in an active state. When an issue with delivered commits is seen elsewhere, its result is
*ready* for review, or *ended* if that state is terminal. Ready issues are looked at like parked workspaces,
and soon after every wake, so that what a person does with them is seen. A result without a commit is dropped
when its issue leaves the active states, and so is that of an issue which the tracker does not find any more.

A push that failed is tried again, also while the issue waits for something, but not while an agent works on
it: the end of that run pushes. What is remembered is bounded: the oldest results go, the ended ones first.
"""

import shlex
from dataclasses import replace

from symphony.domain import Category, Failure, Issue, add_counts, fence, one_line
from symphony.scheduler import policy
from symphony.scheduler.messages import (
    DeliveredBranch,
    IssueResult,
    Outcome,
    PostComment,
    PushBranch,
    Pushed,
    ResultStatus,
    Timer,
    TimerKind,
)
from symphony.scheduler.policy import TrackerStatus
from symphony.scheduler.state import Claim, Drain, Running, State, Step, claim_of

MOST_REMEMBERED = 1_000
_MOST_AT_A_WAKE = 50
_FIRST_PUSH_MS = 30_000
_LONGEST_PUSH_MS = 1_800_000
_MAX_EXPONENT = 6
_STATUS = {
    TrackerStatus.ACTIVE: ResultStatus.OPEN,
    TrackerStatus.INACTIVE: ResultStatus.READY,
    TrackerStatus.UNROUTABLE: ResultStatus.READY,
    TrackerStatus.TERMINAL: ResultStatus.ENDED,
    TrackerStatus.MISSING: ResultStatus.GONE,
}


def results_with_status(state: State, *statuses: ResultStatus) -> tuple[IssueResult, ...]:
    """The results of these kinds, the oldest first."""
    found = (result for result in state.results.values() if result.status in statuses)
    return tuple(sorted(found, key=lambda result: (result.ended_ms, result.issue.identifier)))


def unpushed_results(state: State) -> tuple[IssueResult, ...]:
    """The results whose branch `origin` does not have although it should, the oldest first."""
    return tuple(
        result
        for result in results_with_status(state, *ResultStatus)
        if result.delivered is not None and result.delivered.push_failure is not None
    )


def watched(state: State) -> frozenset[str]:
    """The issues of results that may still change, and that nobody asks about for another reason."""
    statuses = {ResultStatus.OPEN, ResultStatus.READY}
    return frozenset(
        key
        for key, result in state.results.items()
        if result.status in statuses and claim_of(state, key) is Claim.UNCLAIMED
    )


def seen_at_a_wake(state: State) -> frozenset[str]:
    """The issues that are ready for review, where they are few enough to be asked about with every wake."""
    ready = frozenset(key for key, each in state.results.items() if each.status is ResultStatus.READY)
    return ready if len(ready) <= _MOST_AT_A_WAKE else frozenset()


def changed(state: State) -> frozenset[str]:
    """The issues whose work is out of our hands, as far as we know, and that are in an active state again."""
    return frozenset(
        key
        for key, result in state.results.items()
        if result.status is not ResultStatus.OPEN
        and key in state.candidates
        and policy.tracker_status(state.candidates[key], state.settings) is TrackerStatus.ACTIVE
    )


# --- what comes in ---------------------------------------------------------------------------------------


def record(work: Step, run: Running, outcome: Outcome) -> None:
    """Add a run that has just ended."""
    issue, report = replace(run.issue, description=None), run.report
    before = work.state.results.get(issue.id) or IssueResult(issue=issue)
    result = replace(
        before,
        issue=issue,
        status=ResultStatus.OPEN,
        ended_ms=work.now_ms,
        summary=outcome.summary or before.summary,
        turns=add_counts(before.turns, report.turn_count),
        total_tokens=add_counts(before.total_tokens, report.total_tokens),
        cost_usd=_sum(before.cost_usd, outcome.cost_usd),
    )
    if outcome.delivered is not None:
        result = replace(
            result,
            delivered=outcome.delivered,
            commented=outcome.commented,
            pushes=int(outcome.delivered.push_failure is not None),
            pushing=False,
        )
        news = before.delivered is None or before.delivered.head != outcome.delivered.head
        if news or not outcome.delivered.pushed:
            _tell_push(work, result)
    _keep(work, result)
    _await_push(work, result)
    if outcome.failure is not None and outcome.failure.category is Category.DELIVERY_FAILED:
        _tell_undelivered(work, issue, outcome.failure)


def settle(work: Step, issue_id: str, issue: Issue | None) -> None:
    """Judge the result of an issue that was just seen as it is, or that the tracker does not find."""
    before = work.state.results.get(issue_id)
    if before is None or claim_of(work.state, issue_id) is not Claim.UNCLAIMED:
        return
    status = _STATUS[policy.tracker_status(issue, work.state.settings)]
    now = before.issue if issue is None else replace(issue, description=None)
    after = replace(before, status=status, issue=now)
    if before.status is ResultStatus.READY and status is not ResultStatus.READY:
        branch = before.delivered.branch if before.delivered else None
        if issue is None:
            words = "the tracker does not find the issue any more; its branch stays"
            work.notify("warning", "review_ended", now, reason=words, branch=branch)
        else:
            work.notify("info", "review_ended", now, reason=f"it is in {issue.state}", branch=branch)
    if _is_worthless(after):
        _drop(work, issue_id)
        return
    if after != before:
        _keep(work, after)
    if before.status is ResultStatus.OPEN and status in {ResultStatus.READY, ResultStatus.ENDED}:
        _tell_ready(work, after)


def recover(work: Step, results: tuple[IssueResult, ...]) -> None:
    """Take over what a predecessor knew; what is ready is told once more, as the word may not be out."""
    for told in results[-MOST_REMEMBERED:]:
        issue_id = told.issue.id
        if issue_id in work.state.results:
            continue
        claimed = claim_of(work.state, issue_id) is not Claim.UNCLAIMED
        status = ResultStatus.OPEN if claimed else told.status
        result = replace(told, status=status, ended_ms=min(told.ended_ms, work.now_ms), pushing=False)
        _keep(work, result)
        if result.status is ResultStatus.READY:
            _comment(work, result)
        _await_push(work, result, delay_ms=0)


def _tell_ready(work: Step, result: IssueResult) -> None:
    delivered = result.delivered
    assert delivered is not None  # noqa: S101 - a result without is worthless by now
    state, branch, commits = result.issue.state, delivered.branch, delivered.commits
    if result.status is ResultStatus.READY:
        work.notify("info", "work_ready", result.issue, state=state, branch=branch, commits=commits)
    else:
        work.notify("info", "work_ended", result.issue, state=state, branch=branch, commits=commits)
    _comment(work, result)


def _is_worthless(result: IssueResult) -> bool:
    """Whether there is nothing to review in it, and nothing left to do for it."""
    if result.status is ResultStatus.OPEN:
        return False
    if result.delivered is None:
        return True
    return result.status is ResultStatus.GONE and result.delivered.push_failure is None


def _keep(work: Step, result: IssueResult) -> None:
    results = {**work.state.results, result.issue.id: result}
    work.update(results=results)
    if len(results) > MOST_REMEMBERED:
        unclaimed = [each for key, each in results.items() if claim_of(work.state, key) is Claim.UNCLAIMED]
        ready = (ResultStatus.OPEN, ResultStatus.READY)
        oldest = min(unclaimed, key=lambda each: (each.status in ready, each.ended_ms), default=result)
        _drop(work, oldest.issue.id)


def _drop(work: Step, issue_id: str) -> None:
    work.clear_timer(Timer(TimerKind.PUSH, issue_id))
    work.update(results={key: result for key, result in work.state.results.items() if key != issue_id})


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one + (other or 0.0)


# --- pushes ----------------------------------------------------------------------------------------------


def on_push_due(work: Step, issue_id: str) -> None:
    """Try a push again that failed. A run that is under way pushes at its own end."""
    result = work.state.results.get(issue_id)
    if result is None or result.delivered is None or issue_id in work.state.running:
        return
    if work.state.drain is Drain.NO:
        _keep(work, replace(result, pushing=True))
        delivered = result.delivered
        work.emit(PushBranch(issue_id=issue_id, branch=delivered.branch, head=delivered.head))


def on_pushed(work: Step, fact: Pushed) -> None:
    """Take over how a push went; one of another commit than the newest means nothing."""
    result = work.state.results.get(fact.issue_id)
    if result is None or result.delivered is None or result.delivered.head != fact.head or not result.pushing:
        return
    delivered = replace(result.delivered, pushed=fact.failure is None, push_failure=fact.failure)
    failed = fact.failure is not None
    result = replace(result, delivered=delivered, pushing=False, pushes=result.pushes + 1 if failed else 0)
    _tell_push(work, result)
    if _is_worthless(result):
        _drop(work, fact.issue_id)
        return
    _keep(work, result)
    _await_push(work, result)
    if result.status in {ResultStatus.READY, ResultStatus.ENDED}:
        _comment(work, result)


def _await_push(work: Step, result: IssueResult, *, delay_ms: int | None = None) -> None:
    """Set when the push is tried again that failed.

    One that will not mend by itself waits for the next delivery or start. On the way out nobody waits, as the
    successor tries.
    """
    timer = Timer(TimerKind.PUSH, result.issue.id)
    failure = result.delivered.push_failure if result.delivered else None
    hopeless = failure is None or (not failure.retryable and delay_ms is None)
    if hopeless or work.state.drain is not Drain.NO:
        work.clear_timer(timer)
        return
    if delay_ms is None:
        exponent = min(max(result.pushes - 1, 0), _MAX_EXPONENT)
        delay_ms = min(_FIRST_PUSH_MS * 2**exponent, _LONGEST_PUSH_MS)
    work.set_timer(timer, work.now_ms + delay_ms)


def _tell_push(work: Step, result: IssueResult) -> None:
    delivered = result.delivered
    if delivered is not None and delivered.push_failure is not None:
        failure = delivered.push_failure
        work.notify(
            "warning",
            "push_failed",
            result.issue,
            branch=delivered.branch,
            reason=failure.message,
            hint=failure.hint,
        )
    elif delivered is not None and delivered.pushed:
        work.notify("info", "branch_pushed", result.issue, branch=delivered.branch, commit=delivered.head)


# --- words on the issue ----------------------------------------------------------------------------------


def _comment(work: Step, result: IssueResult) -> None:
    """Say on the issue where its work is, unless its agent did; the same words again change nothing."""
    if work.state.settings.comment_on_delivery and not result.commented and result.delivered is not None:
        body = _note(result.issue, result.delivered)
        work.emit(PostComment(issue=result.issue, kind="delivery", body=body))


def _tell_undelivered(work: Step, issue: Issue, failure: Failure) -> None:
    """Say on the issue that its work is nowhere else; a later delivery takes the place of these words."""
    if work.state.settings.comment_on_delivery:
        reason = fence(one_line(failure.message))
        body = f"A run on this issue has ended, and nobody can have its work yet:\n\n{reason}"
        work.emit(PostComment(issue=issue, kind="delivery", body=body))


def _note(issue: Issue, delivered: DeliveredBranch) -> str:
    commits, files = _plural(delivered.commits, "commit"), _plural(delivered.files_changed, "file")
    lines = f"+{delivered.insertions} -{delivered.deletions}"
    parts = [f"The work on this issue is on the branch `{delivered.branch}`: {commits}, {files} ({lines})."]
    if delivered.push_failure is not None:
        reason = fence(one_line(delivered.push_failure.message))
        parts.append(f"The branch could not be pushed to `origin`. It is tried again.\n\n{reason}")
    elif delivered.pushed:
        parts.append("The branch is pushed to `origin`.")
    command = fence(f"symphony diff {shlex.quote(issue.identifier)}")
    parts.append(f"To look at it where Symphony runs:\n\n{command}")
    return "\n\n".join(parts)


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
