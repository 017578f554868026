"""The effect of a pull request on its issue: feedback claims it again, and some states block it.

An issue is blocked once its pull request was closed unmerged, or if only a person can go on with it. No run
of it starts then, whatever its state. A run in progress ends first. The block is lifted by an operator, by a
move of the issue to another state, or by the pull request: it is reopened, a person comments on it, or
nothing is wrong with it any more. The next occasion has another key and blocks again.
"""

import shlex
from dataclasses import replace

from symphony.domain import Blame, Category, Failure, Issue, normalise_state
from symphony.scheduler import blocks, policy, results
from symphony.scheduler.messages import (
    FeedbackGiven,
    IssueResult,
    PullBlock,
    PullRequestJudged,
    Resume,
    ResumeReason,
    SchedulerSettings,
)
from symphony.scheduler.policy import TrackerStatus
from symphony.scheduler.resume import resume_without_answer
from symphony.scheduler.state import Blocked, Claim, Drain, Retry, Running, State, Step, Trigger, claim_of
from symphony.scheduler.verdict import NeedsYou, PullLedger, PullRequestEnded, Verdict, Wait


def is_worked_on(state: State, issue_id: str) -> bool:
    """Whether an issue is claimed for another reason than that its pull request needs a person."""
    entry = state.entry(issue_id)
    return entry is not None and not (isinstance(entry, Blocked) and blocks.is_by_pull_request(entry))


def has_new_work(state: State, issue: Issue) -> bool:
    """Whether an issue got new work since its hand-off from elsewhere than its pull request.

    `issue` is the tracker's latest snapshot, which may be newer than the scheduler's.
    """
    entry = state.entry(issue.id)
    held = isinstance(entry, Blocked) and blocks.is_by_pull_request(entry)
    goes_on = held or (entry is not None and entry.resume is not None and entry.resume.after_handoff)
    if policy.tracker_status(issue, state.settings) is TrackerStatus.ACTIVE:
        by_feedback = normalise_state(issue.state) == normalise_state(state.settings.on_feedback or "")
        return not (goes_on and by_feedback)
    return entry is not None and not goes_on


def block_of(made: Verdict, ledger: PullLedger, result: IssueResult) -> PullRequestJudged | None:
    """The message to the scheduler about a verdict, or `None` if it knows it already.

    Nothing changes while a pull request that needs a person also waits for something else.
    """
    number, name = ledger.number, shlex.quote(result.issue.identifier)
    lift = f"move the issue to another state, or run `symphony unblock {name}`"
    block: PullBlock | None = None
    match made:
        case Wait() if ledger.needs_you is not None:
            return None
        case PullRequestEnded(merged=False):
            words = "is not at the forge any more" if made.gone else "was closed without being merged"
            block = _block(
                f"closed {number}",
                Category.PULL_REQUEST_CLOSED,
                f"its pull request {number} {words}",
                hint=lift if made.gone else f"reopen it, {lift}",
            )
        case NeedsYou():
            block = _block(
                f"{made.code} {number} {ledger.head}",
                Category.PULL_REQUEST_NEEDS_YOU,
                f"its pull request {number} needs a person: {made.message}",
                hint=f"see `symphony pr {name}`; comment on it, {lift}",
            )
        case _:
            pass
    known = {None if result.pull_block is None else result.pull_block.key, result.lifted}
    if known == {None} if block is None else block.key in known:
        return None
    return PullRequestJudged(issue_id=result.issue.id, block=block)


def _block(key: str, category: Category, message: str, *, hint: str) -> PullBlock:
    failure = Failure(category=category, blame=Blame.HOST, message=message, retryable=False, hint=hint)
    return PullBlock(key=key, failure=failure)


def on_feedback_given(step: Step, event: FeedbackGiven) -> None:
    """Claim the issue of finished work for one more run, in the same workspace and conversation.

    Feedback that comes while the issue is claimed, or during a shutdown, is not taken.
    """
    result = step.state.results.get(event.issue_id)
    if result is None or result.status not in results.MAY_CHANGE or result.feedback == event.key:
        return
    issue = result.issue
    _need_nobody(step, issue.id)
    if step.state.drain is not Drain.NO or claim_of(step.state, issue.id) is not Claim.UNCLAIMED:
        step.notify("debug", "feedback_deferred", issue, reason=event.summary)
        return
    result = step.state.results[issue.id]
    idle = step.state.idle_workspaces.get(issue.id)
    retry = Retry(
        issue=issue,
        attempt=1,
        due_ms=step.now_ms,
        error=None,
        attempts_without_progress=0,
        workspace_path=idle.path if idle else None,
        resume=Resume(
            reason=ResumeReason.FEEDBACK, thread=result.thread, answer=event.text, after_handoff=True
        ),
    )
    step.update(pending_candidates=step.state.pending_candidates - {issue.id})
    results.store(step, replace(result, feedback=event.key))
    step.change_claim(issue, Trigger.FEEDBACK, retry)
    step.forget_idle_workspace(issue.id)
    step.set_retry_timer(issue.id, step.now_ms)
    step.notify("info", "feedback_taken", issue, reason=event.summary)


def on_pull_request_judged(step: Step, event: PullRequestJudged) -> None:
    """Block the issue or lift its block; a block that a person lifted stays lifted."""
    result = step.state.results.get(event.issue_id)
    if result is None or result.status not in results.MAY_CHANGE:
        return
    if event.block is None:
        _need_nobody(step, event.issue_id)
        return
    if event.block.key == result.lifted:
        return
    results.store(step, replace(result, pull_block=event.block))
    entry = step.state.entry(event.issue_id)
    if isinstance(entry, Blocked) and blocks.is_by_pull_request(entry):
        entry = replace(entry, failure=event.block.failure)
        step.replace_entry(entry)
        step.emit(blocks.block_comment(entry))
    elif not isinstance(entry, Running | Blocked):
        step.update(pending_candidates=step.state.pending_candidates - {event.issue_id})
        blocks.block_by_pull_request(step, result.issue if entry is None else entry.issue, held=entry)


def _need_nobody(step: Step, issue_id: str) -> None:
    """Lift the block of a pull request that needs no person any more. The next occasion blocks again."""
    result, blocked = step.state.results[issue_id], step.state.blocked.get(issue_id)
    results.store(step, replace(result, pull_block=None, lifted=None))
    if blocked is not None and blocks.is_by_pull_request(blocked):
        lift(
            step, blocked, resume_without_answer(blocked), reason="its pull request no longer needs a person"
        )


def stays_handed_off(blocked: Blocked, settings: SchedulerSettings) -> bool:
    """Whether no run follows once the block of a pull request is lifted: the work waits for review again."""
    left = resume_without_answer(blocked)
    has_told_all = left.thread is None and left.answer is None
    return blocks.is_by_pull_request(blocked) and has_told_all and _is_handed_off(blocked.issue, settings)


def _is_handed_off(issue: Issue, settings: SchedulerSettings) -> bool:
    inactive = policy.tracker_status(issue, settings) is TrackerStatus.INACTIVE
    return inactive and not blocks.rests(issue, settings)


def lift(step: Step, blocked: Blocked, resume: Resume, *, reason: str) -> None:
    """Continue an issue that its pull request blocked, or have its work wait for review again."""
    issue, settings = blocked.issue, step.state.settings
    result = step.state.results.get(issue.id)
    if result is not None and result.pull_block is not None:
        results.store(step, replace(result, pull_block=None, lifted=result.pull_block.key))
    if stays_handed_off(blocked, settings):
        blocks.release(step, issue, path=blocked.workspace_path)
        step.notify("info", "issue_unblocked", issue, reason=reason)
        results.on_refreshed(step, issue.id, issue)
    else:
        resume = replace(resume, after_handoff=_is_handed_off(issue, settings))
        blocks.unblock(step, blocked, resume, reason=reason)
