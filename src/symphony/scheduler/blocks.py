"""Claims that wait for a person: how an issue is blocked, answered, unblocked and released.

A blocked issue is unblocked by an operator, by an answer in a comment, by a change of its state, labels,
title or description, or by a budget that is available again. It is released when it ends or leaves the active
states. `pull_requests` describes what lifts the block of a pull request.

A stop by an operator lasts until an operator continues the issue or a person moves it to another state. A
change of settings that makes its state inactive or hides the issue from the tracker lifts nothing, because it
may be reversed.

**States.** The daemon can move issues itself: to `tracker.on_start` when a run starts, to `tracker.on_block`
when the issue is blocked. A move is a request without an answer; the next refresh shows whether it happened,
so a tracker that is slow or refuses delays nothing. If `on_block` is not an active state, the issue *rests*
there: it stays blocked instead of being released. To continue a resting issue, the scheduler refreshes it,
moves it back to `on_return`, and retries it once a refresh finds it in an active state. Until then other
changes of it are ignored, because a person who edits a blocked issue is often not done yet. A move to
`on_block` never unblocks an issue, whoever made it.

**Answers.** While an agent's question is open, the scheduler has the comments on its issue read with every
poll and every wake, one reading at a time. The agent gets all comments since the question by people who may
answer, together. Comments by other people are shown and ignored. A failed reading is repeated with the next
poll. An agent that asks for approval waits for a word of approval or denial. That word decides this one
request for the conversation; the agent gets any other text as an answer.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from symphony.domain import Category, Failure, Issue, fence, normalise_state, one_line, plain_text
from symphony.scheduler import breaker, budgets, hosts, policy
from symphony.scheduler.messages import (
    AnswersRead,
    AnswersReadFailed,
    CleanWorkspace,
    IssueComment,
    MoveIssue,
    MoveReason,
    PostComment,
    ReadAnswers,
    Resume,
    ResumeReason,
    SchedulerSettings,
    Timer,
    TimerKind,
    WorkspaceRef,
)
from symphony.scheduler.policy import TrackerStatus
from symphony.scheduler.resume import resume_interrupted, resume_with_answer, resume_without_answer
from symphony.scheduler.state import AnswerCheck, Blocked, Drain, Retry, Running, Step, Trigger

MAX_ANSWER_CHARS: Final = 32_000
"""The length of all comments together that an agent gets as the answer."""

_MAX_QUESTION_CHARS: Final = 4_000
_QUESTIONS: Final = frozenset({Category.TURN_INPUT_REQUIRED, Category.APPROVAL_REQUIRED})
_APPROVING: Final = frozenset({"yes", "approve", "approved", "allow", "allowed", "ok"})
_DENYING: Final = frozenset({"no", "deny", "denied", "reject", "rejected"})
_PULL_REQUESTS: Final = frozenset({Category.PULL_REQUEST_CLOSED, Category.PULL_REQUEST_NEEDS_YOU})

# --- blocking --------------------------------------------------------------------------------------------


def block(
    step: Step,
    issue: Issue,
    failure: Failure,
    *,
    held: Running | Retry | None = None,
    question: str | None = None,
    request: str | None = None,
    has_baseline: bool = False,
) -> None:
    """Keep the claim and wait for a person; a comment on the issue says why.

    Args:
        step: the step in progress.
        issue: the issue to block.
        failure: why.
        held: the claim before the block, if there was one.
        question: what the agent asks.
        request: the key of the request for approval that is open.
        has_baseline: the issue was refreshed just now. Otherwise a refresh follows, except during a shutdown.
    """
    path: str | None
    resume: Resume | None
    run = held if isinstance(held, Running) else None
    if run is not None:
        path, resume = run.report.facts.workspace_path, resume_interrupted(run, request=request)
    elif isinstance(held, Retry):
        path, resume = held.workspace_path, held.resume
    else:
        idle = step.state.idle_workspaces.get(issue.id)
        path, resume = idle.path if idle else None, None
    if failure.category in _PULL_REQUESTS:  # its issue may be handed off, and stays in its state
        resume = replace(resume or Resume(reason=ResumeReason.INTERRUPTED), after_handoff=True)
    blocked = Blocked(
        issue=issue,
        failure=failure,
        blocked_ms=step.now_ms,
        report=run.report if run else None,
        workspace_path=path,
        has_baseline=has_baseline,
        over=policy.tracker_status(issue, step.state.settings) is TrackerStatus.TERMINAL,
        attempt=held.attempt if held else None,
        question=None if question is None else question[:_MAX_QUESTION_CHARS],
        resume=resume,
        run_id=run.run_id if run else None,
    )
    if not step.change_claim(issue, Trigger.BLOCK, blocked):
        return
    step.clear_timer(Timer(TimerKind.RETRY, issue.id))
    step.forget_idle_workspace(issue.id)
    if step.state.drain is Drain.NO:
        step.request_refresh(issue.id)
    step.notify("error", "issue_blocked", issue, reason=failure.line, hint=failure.hint)
    step.emit(block_comment(blocked))
    settings = step.state.settings
    only_from = settings.active_states - settings.terminal_states
    state = settings.on_block
    if policy.is_handed_over(issue, resume):  # unverified work does not stay handed over
        only_from |= _state_of(issue)
        state = state or (resume.back_to if resume else None) or settings.on_return
    _move(step, issue, state, MoveReason.BLOCK, only_from)


def block_by_pull_request(step: Step, issue: Issue, *, held: Retry | None = None) -> bool:
    """Block the issue if its pull request needs a person; return whether it was blocked."""
    result = step.state.results.get(issue.id)
    if result is None or result.pull_block is None:
        return False
    block(step, issue, result.pull_block.failure, held=held)
    return True


def is_by_pull_request(blocked: Blocked) -> bool:
    """Whether the pull request of the issue is why it is blocked."""
    return blocked.failure.category in _PULL_REQUESTS


def is_stopped(blocked: Blocked) -> bool:
    """Whether an operator stopped the issue."""
    return blocked.failure.category is Category.STOPPED_BY_OPERATOR


def awaits_answer(blocked: Blocked) -> bool:
    """Whether the agent waits for an answer by a person."""
    return blocked.question is not None or blocked.failure.category in _QUESTIONS


def awaits_approval(blocked: Blocked) -> bool:
    """Whether the agent waits for the decision about a request for approval."""
    return blocked.failure.category is Category.APPROVAL_REQUIRED


def decision_in(text: str) -> bool | None:
    """Whether an answer to a request for approval approves it; `None` if it says something else."""
    word = text.strip().rstrip(".!").casefold()
    return True if word in _APPROVING else False if word in _DENYING else None


def _joint_decision(comments: Sequence[IssueComment]) -> bool | None:
    """The joint decision of the comments: one denial is enough, and an approval needs all people.

    The last decision of each person counts.
    """
    decisions: dict[str, bool | None] = {}
    for comment in comments:
        made = decision_in(comment.text)
        if made is not None or comment.author not in decisions:
            decisions[comment.author] = made
    if False in decisions.values():
        return False
    return True if decisions and all(decisions.values()) else None


def block_comment(blocked: Blocked) -> PostComment:
    """The comment that says why an issue is blocked; each question gets a comment of its own.

    Text by an agent, a service or a repository is fenced.
    """
    issue, failure = blocked.issue, blocked.failure
    parts = [f"Symphony stopped working on this issue:\n\n{fence(one_line(failure.message))}"]
    if blocked.question is not None:
        parts.append(f"The agent asks:\n\n{fence(plain_text(blocked.question))}")
    if awaits_answer(blocked):
        answer = f"symphony answer {shlex.quote(issue.identifier)}"
        command, decisions = fence(f'{answer} "…"'), fence(f"{answer} --approve\n{answer} --deny")
        parts.append(
            "To approve exactly this request for this session, write `yes` in a comment on this issue, and "
            "`no` to deny it. The agent gets any other text as text. On the daemon's machine, these commands "
            f"do the same:\n\n{decisions}"
            if awaits_approval(blocked)
            else "To answer, write a comment on this issue: the agent continues with it. "
            f"On the daemon's machine, this command does the same:\n\n{command}"
        )
    if failure.hint and failure.category is not Category.TURN_INPUT_REQUIRED:
        parts.append(f"To continue:\n\n{fence(one_line(failure.hint))}")
    if failure.category is Category.VERIFY_FAILED and blocked.resume is not None and blocked.resume.answer:
        parts.append(blocked.resume.answer)
    return PostComment(
        issue=issue,
        kind="blocked",
        body="\n\n".join(parts),
        occasion=(blocked.run_id or "") if awaits_answer(blocked) else "",
    )


# --- states ----------------------------------------------------------------------------------------------


def move_on_start(step: Step, issue: Issue, resume: Resume | None) -> None:
    """Move an issue to `on_start`, or to `on_feedback` after its work was handed off: a run of it starts."""
    settings = step.state.settings
    if resume is not None and resume.reason in {ResumeReason.VERIFY, ResumeReason.VERIFY_FAILED}:
        return  # the result of the verification moves it
    handed_off = resume is not None and resume.after_handoff
    state = settings.on_feedback if handed_off else settings.on_start
    _move(step, issue, state, MoveReason.START, _state_of(issue))


def _move(step: Step, issue: Issue, state: str | None, reason: MoveReason, only_from: frozenset[str]) -> None:
    if state is not None and normalise_state(state) != normalise_state(issue.state):
        step.emit(MoveIssue(issue=issue, state=state, reason=reason, only_from=only_from))


def _state_of(issue: Issue) -> frozenset[str]:
    return frozenset({normalise_state(issue.state)})


def _is_in_block_state(issue: Issue, settings: SchedulerSettings) -> bool:
    state = settings.on_block
    return state is not None and normalise_state(issue.state) == normalise_state(state)


def rests(issue: Issue, settings: SchedulerSettings) -> bool:
    """Whether the issue is in `on_block`, and that is not an active state."""
    inactive = policy.tracker_status(issue, settings) is TrackerStatus.INACTIVE
    return inactive and _is_in_block_state(issue, settings)


def _blocked_issues_rest(settings: SchedulerSettings) -> bool:
    state = normalise_state(settings.on_block or "")
    return state != "" and state not in settings.active_states - settings.terminal_states


# --- answers ---------------------------------------------------------------------------------------------


def read_answers(step: Step) -> None:
    """Read the comments on every issue that waits for an answer."""
    for blocked in tuple(step.state.blocked.values()):
        if not takes_answer(blocked):
            continue
        if blocked.answer_check.in_progress:
            check = replace(blocked.answer_check, requested_again=True)
            step.replace_entry(replace(blocked, answer_check=check))
        else:
            _read_comments(step, blocked)


def on_answers_read(step: Step, event: AnswersRead) -> None:
    """Give the answers to the agent, or remember the comments that do not count."""
    blocked = _blocked_by(step, event)
    if blocked is None:
        return
    check = blocked.answer_check
    known = {comment.id for comment in check.unauthorized}
    for comment in event.unauthorized:
        if comment.id not in known:
            step.notify("warning", "comment_not_obeyed", blocked.issue, author=comment.author)
    blocked = replace(blocked, answer_check=AnswerCheck(unauthorized=event.unauthorized))
    step.replace_entry(blocked)
    if event.answers and takes_answer(blocked):
        authors = ", ".join(dict.fromkeys(comment.author for comment in event.answers))
        step.notify("info", "answer_taken", blocked.issue, author=authors, comments=len(event.answers))
        approves = _joint_decision(event.answers) if awaits_approval(blocked) else None
        resume = resume_with_answer(blocked, join_comments(event.answers), by=authors, approves=approves)
        unblock(step, blocked, resume, reason="a person answered by a comment")
    elif check.requested_again:
        paused = breaker.requests_paused_until(step.state, step.now_ms) is not None
        if step.state.drain is Drain.NO and not paused:
            _read_comments(step, blocked)


def on_answers_read_failed(step: Step, event: AnswersReadFailed) -> None:
    """Log a failure once, and respect a pause that the tracker asks for."""
    blocked = _blocked_by(step, event)
    if blocked is None:
        return
    before, failure = blocked.answer_check, event.failure
    is_new = before.failure is None or before.failure.message != failure.message
    level = "warning" if is_new else "debug"
    step.notify(level, "answers_unread", blocked.issue, reason=failure.line, hint=failure.hint)
    check = AnswerCheck(unauthorized=before.unauthorized, failure=failure)
    step.replace_entry(replace(blocked, answer_check=check))
    if failure.retry_after_ms is not None:
        breaker.on_failure(step, failure)


def join_comments(comments: Sequence[IssueComment]) -> str:
    """The text of the comments in their order, with the authors if there are several; bounded."""
    if len(comments) == 1:
        text = comments[0].text
    else:
        text = "\n\n".join(f"{comment.author} writes:\n{comment.text}" for comment in comments)
    if len(text) <= MAX_ANSWER_CHARS:
        return text
    return f"{text[:MAX_ANSWER_CHARS]}\n(cut: the rest is on the issue)"


def takes_answer(blocked: Blocked) -> bool:
    """Whether an answer is used. A second answer is ignored while the issue is moved back."""
    return awaits_answer(blocked) and blocked.unblock_reason is None


def _read_comments(step: Step, blocked: Blocked) -> None:
    check = replace(blocked.answer_check, in_progress=True, requested_again=False)
    step.replace_entry(replace(blocked, answer_check=check))
    step.emit(ReadAnswers(question=blocked.run_id or "", comment=block_comment(blocked)))


def _blocked_by(step: Step, event: AnswersRead | AnswersReadFailed) -> Blocked | None:
    """The block that a reply to `ReadAnswers` belongs to, if it still exists and waits for that reply."""
    blocked = step.state.blocked.get(event.issue_id)
    if blocked is None or not blocked.answer_check.in_progress or event.question != (blocked.run_id or ""):
        return None
    return blocked


# --- unblocking ------------------------------------------------------------------------------------------


def unblock(step: Step, blocked: Blocked, resume: Resume | None, *, reason: str) -> None:
    """Continue a blocked issue at once, as the attempt that it was.

    If blocked issues may rest outside the active states, the issue stays blocked until a refresh finds it in
    an active one. Its state would otherwise stop the run or release the retry.
    """
    if _blocked_issues_rest(step.state.settings):
        step.replace_entry(replace(blocked, resume=resume, unblock_reason=reason))
        step.request_refresh(blocked.issue.id)
    else:
        _retry(step, blocked, resume, reason=reason)


def _retry(step: Step, blocked: Blocked, resume: Resume | None, *, reason: str) -> None:
    issue = blocked.issue
    retry = Retry(
        issue=issue,
        attempt=blocked.attempt or 1,
        due_ms=step.now_ms,
        error=None,
        attempts_without_progress=0,
        workspace_path=blocked.workspace_path,
        resume=resume,
    )
    if step.change_claim(issue, Trigger.RETRY, retry):
        step.set_retry_timer(issue.id, step.now_ms)
        step.notify("info", "issue_unblocked", issue, reason=reason)


def unblock_within_budget(step: Step) -> None:
    """Continue issues whose budget is available again, because a new day began or a limit was raised."""
    checks = {
        Category.BUDGET_ISSUE: budgets.issue_budget_failure,
        Category.BUDGET_DAY: budgets.day_budget_failure,
    }
    for blocked in tuple(step.state.blocked.values()):
        check = checks.get(blocked.failure.category)
        if check is not None and check(step.state, blocked.issue) is None:
            unblock(step, blocked, resume_without_answer(blocked), reason="there is budget again")


def waive_budget(step: Step, blocked: Blocked) -> None:
    """Count the budget of an issue from zero, and waive today's budget if that blocked it."""
    budgets.reset_usage(step, blocked.issue.id)
    if blocked.failure.category is Category.BUDGET_DAY:
        step.update(budget_waivers=step.state.budget_waivers | {blocked.issue.id})


def on_blocked_refreshed(step: Step, blocked: Blocked, issue: Issue | None) -> None:
    """Apply a snapshot to a blocked issue: release or unblock it, or remember the snapshot."""
    settings = step.state.settings
    if issue is not None and rests(issue, settings):
        step.replace_entry(replace(blocked, issue=issue, has_baseline=True))
        if blocked.unblock_reason is not None:
            _move(step, issue, settings.on_return, MoveReason.BACK, _state_of(issue))
        return
    changed = issue is not None and _is_changed(blocked, issue, settings)
    ended = blocked.over and policy.tracker_status(issue, settings) is TrackerStatus.TERMINAL
    if is_stopped(blocked) and blocked.unblock_reason is None and not changed and not ended:
        seen = blocked.has_baseline or issue is not None
        step.replace_entry(replace(blocked, issue=issue or blocked.issue, has_baseline=seen))
    else:
        _follow(step, blocked, issue, changed=changed and blocked.has_baseline)


def _follow(step: Step, blocked: Blocked, issue: Issue | None, *, changed: bool) -> None:
    """Release or unblock an issue as the tracker has it now, or remember the snapshot."""
    settings = step.state.settings
    if changed and blocked.unblock_reason is None:
        waive_budget(step, blocked)
    match policy.tracker_status(issue, settings):
        case TrackerStatus.TERMINAL if not policy.is_handed_over(issue, blocked.resume):
            clean_and_release(step, blocked.issue, blocked.workspace_path)
        case _ if issue is not None and policy.may_work(issue, blocked.resume, settings):
            resume = policy.seen_elsewhere(issue, blocked.resume)
            if resume is not blocked.resume:
                blocked = replace(blocked, resume=resume)
                step.replace_entry(blocked)
            if blocked.unblock_reason is not None:
                _retry(step, replace(blocked, issue=issue), blocked.resume, reason=blocked.unblock_reason)
            elif changed:
                release(step, issue, path=blocked.workspace_path)
                step.notify("info", "issue_unblocked", issue, reason="the issue was changed")
            elif not blocked.has_baseline or issue != blocked.issue:
                # The first snapshot is the baseline, because the session may have moved its own issue.
                step.replace_entry(replace(blocked, issue=issue, has_baseline=True))
                if not blocked.has_baseline:
                    step.notify("debug", "block_settled", issue)
        case _:
            release(step, blocked.issue, path=blocked.workspace_path)


def _is_changed(blocked: Blocked, after: Issue, settings: SchedulerSettings) -> bool:
    """Whether the content has changed; a move to `on_block` or back after a verification is no change.

    If an operator stopped it or its pull request needs a person, only a move counts, because programs label
    issues and edit their text.
    """
    before = blocked.issue
    if _is_in_block_state(after, settings) or _is_moved_back(blocked, after, settings):
        before = replace(before, state=after.state)
    if is_stopped(blocked) or is_by_pull_request(blocked):
        return normalise_state(before.state) != normalise_state(after.state)
    return not policy.same_content(before, after)


def _is_moved_back(blocked: Blocked, after: Issue, settings: SchedulerSettings) -> bool:
    """Whether the daemon moved the issue out of the state where its work was handed over."""
    return policy.is_handed_over(blocked.issue, blocked.resume) and policy.in_active_state(after, settings)


# --- releasing -------------------------------------------------------------------------------------------


def release(step: Step, issue: Issue, *, path: str | None) -> None:
    """Give up the claim. The workspace at `path` is kept, and cleaned up once the issue has ended.

    The result keeps the conversation with its latest totals: feedback may continue it. A block by its pull
    request is lifted, because a person moved the issue.
    """
    held = step.state.entry(issue.id)
    if not step.change_claim(issue, Trigger.RELEASE):
        return
    if (result := step.state.results.get(issue.id)) is not None:
        resume = held.resume if isinstance(held, Retry | Blocked) else None
        kept = replace(
            result,
            thread=resume.thread if resume is not None and resume.thread is not None else result.thread,
            pull_block=None,
            lifted=result.lifted if result.pull_block is None else result.pull_block.key,
        )
        step.update(results={**step.state.results, issue.id: kept})
    step.clear_timer(Timer(TimerKind.RETRY, issue.id))
    if path is not None:
        ref = WorkspaceRef(issue_id=issue.id, identifier=issue.identifier, path=path)
        step.update(idle_workspaces={**step.state.idle_workspaces, issue.id: ref})
    step.notify("info", "claim_released", issue, state=issue.state)


def clean_and_release(step: Step, issue: Issue, path: str | None) -> None:
    """Give up the claim of an ended issue and remove its workspace; issues that it blocked may start now."""
    release(step, issue, path=None)
    budgets.reset_usage(step, issue.id)
    host = hosts.forget_workspace(step, issue.id)
    clean = CleanWorkspace(
        issue_id=issue.id, identifier=issue.identifier, path=None if host else path, host=host
    )
    step.emit(clean)
    candidates = step.state.candidates.values()
    if any(issue.id == blocker.id for candidate in candidates for blocker in candidate.blocked_by):
        step.update(poll_again=True)
