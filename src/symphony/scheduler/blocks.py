"""Claims that nobody works on any more: kept for a person (Blocked), or given up (SM4, SM7, RT5)."""

import shlex
from dataclasses import replace

from symphony.domain import Category, Failure, Issue, add_counts, fence, normalise_state, one_line, plain_text
from symphony.scheduler import policy
from symphony.scheduler.messages import (
    CleanWorkspace,
    MoveIssue,
    MoveReason,
    PostComment,
    Resume,
    ResumeReason,
    SchedulerSettings,
    Thread,
    Timer,
    TimerKind,
    WorkspaceRef,
)
from symphony.scheduler.policy import TrackerStatus
from symphony.scheduler.state import Blocked, Drain, Retry, Running, State, Step, Trigger

# What an interrupted run hands on: its conversation, and an answer not heard yet (AG23, TK4).


def thread_of(run: Running) -> Thread | None:
    """The conversation of a run with its totals so far, or null where it has none to go on with.

    The pump counts what this run used; on the thread of an earlier run that comes on top of what was known.
    """
    report, known = run.report, run.resume.thread if run.resume else None
    if report.thread_id is None:
        return known
    base = Thread(thread_id="", begun=False)
    if known is not None and known.thread_id == report.thread_id:
        base = known
    return Thread(
        thread_id=report.thread_id,
        agent=run.agent.name,
        input_tokens=add_counts(base.input_tokens, report.input_tokens),
        output_tokens=add_counts(base.output_tokens, report.output_tokens),
        total_tokens=add_counts(base.total_tokens, report.total_tokens),
        begun=base.begun or report.turn_count > 0,
    )


def threads_in_use(state: State) -> frozenset[str]:
    """The conversations that a claim may still go on with, so that nobody throws them away."""
    going = [thread_of(run) for run in state.running.values()]
    waiting = [entry.resume for entry in state.retrying.values()]
    waiting += [entry.resume for entry in state.blocked.values()]
    threads = [*going, *(resume.thread for resume in waiting if resume is not None)]
    return frozenset(thread.thread_id for thread in threads if thread is not None)


def _answer_of(run: Running) -> Resume | None:
    resume = run.resume
    return resume if resume is not None and resume.reason is ResumeReason.ANSWERED else None


def resume_interrupted(run: Running) -> Resume:
    """How a run goes on that was ended by no fault of its own.

    An answer travels again until a turn began that carries it, and for ever where there is no conversation
    that could remember it.
    """
    thread, answer = thread_of(run), _answer_of(run)
    if answer is not None and (run.report.turn_count == 0 or thread is None):
        return replace(answer, thread=thread)
    return Resume(reason=ResumeReason.INTERRUPTED, thread=thread)


def after_failure(run: Running) -> Resume | None:
    """What the attempt after a failed one knows: it starts cold, with an answer that a person gave.

    A conversation that failed before its first turn cannot be gone on with, so it is dropped here too.
    """
    if run.resume is not None and run.report.turn_count == 0:
        return replace(run.resume, thread=None)
    answer = _answer_of(run)
    return replace(answer, thread=None) if answer else None


def put_back(blocked: Blocked) -> Resume:
    """How a blocked issue goes on without an answer."""
    return blocked.resume or Resume(reason=ResumeReason.INTERRUPTED)


def answered(blocked: Blocked, text: str) -> Resume:
    """How a blocked issue goes on with a person's answer."""
    return Resume(
        reason=ResumeReason.ANSWERED,
        thread=blocked.resume.thread if blocked.resume else None,
        question=blocked.question or blocked.failure.message,
        answer=text,
    )


# States that the daemon itself moves issues to: `tracker.on_start` and `tracker.on_block`.
#
# A move is asked for and not waited for: it is carried out beside the work, and the next look at the issue
# tells whether it was made. So a tracker that is slow or refuses delays nothing, and nothing is decided on
# a move that did not happen.
#
# - `on_start` is an active state. An issue is moved there when a run of it starts, if it is not there.
# - `on_block` may be any state that is not terminal. In an active one the block is as ever. Outside of them
#   the issue *rests*: it stays blocked and is shown, instead of being released for having left the
#   active states.
# - A move to `on_block` is never "a change by a person" that unblocks: neither ours, nor one of a person.
# - What rests goes on when a person moves it to an active state, or by `answer`, `retry`, `unblock`, or a
#   budget that is there again: then it is looked at, moved back from where it rests, to `on_start` or else
#   the first of the active states, and goes on when a look says that it is there. Other changes do nothing
#   meanwhile: who edits the text of a blocked issue is often not done yet.


def on_start(work: Step, issue: Issue) -> None:
    """A run of the issue starts."""
    _move(
        work, issue, work.state.settings.on_start, MoveReason.START, frozenset({normalise_state(issue.state)})
    )


def on_block(work: Step, issue: Issue) -> None:
    """The issue waits for a person; one that somebody took out of the active states stays where it is."""
    settings = work.state.settings
    _move(work, issue, settings.on_block, MoveReason.BLOCK, settings.active_states - settings.terminal_states)


def back(work: Step, issue: Issue) -> None:
    """The issue rests and shall go on."""
    _move(
        work,
        issue,
        work.state.settings.on_return,
        MoveReason.BACK,
        frozenset({normalise_state(issue.state)}),
    )


def _move(work: Step, issue: Issue, state: str | None, reason: MoveReason, only_from: frozenset[str]) -> None:
    if state is not None and normalise_state(state) != normalise_state(issue.state):
        work.emit(MoveIssue(issue=issue, state=state, reason=reason, only_from=only_from))


def at_rest(issue: Issue, settings: SchedulerSettings) -> bool:
    """Whether the issue is in `on_block`, and that is no active state."""
    return _is_on_block(issue, settings) and policy.tracker_status(issue, settings) is TrackerStatus.INACTIVE


def rests(settings: SchedulerSettings) -> bool:
    """Whether blocked issues are taken out of the active states."""
    state = normalise_state(settings.on_block or "")
    return state != "" and state not in settings.active_states - settings.terminal_states


def same_content(before: Issue, after: Issue, settings: SchedulerSettings) -> bool:
    """As `policy.same_request`, but that a move to `on_block` is no change."""
    if _is_on_block(after, settings):
        before = replace(before, state=after.state)
    return policy.same_content(before, after)


def _is_on_block(issue: Issue, settings: SchedulerSettings) -> bool:
    wanted = settings.on_block
    return wanted is not None and normalise_state(issue.state) == normalise_state(wanted)


LONGEST_QUESTION = 4_000
_QUESTIONS = frozenset({Category.TURN_INPUT_REQUIRED, Category.APPROVAL_REQUIRED})


# --- for a person ----------------------------------------------------------------------------------------


def block(
    work: Step,
    issue: Issue,
    failure: Failure,
    *,
    held: Running | Retry | None = None,
    question: str | None = None,
    has_baseline: bool = False,
) -> None:
    """Keep the claim and wait for a person, with the reason on the issue itself too (SM7, RT5).

    `held` is the claim as it was before, if there was one. `settled` means that the issue is known as it is
    now. On the way out nothing is asked any more: the successor looks.
    """
    asked = None if question is None else question[:LONGEST_QUESTION]
    blocked = Blocked(
        issue=issue,
        failure=failure,
        blocked_ms=work.now_ms,
        report=held.report if isinstance(held, Running) else None,
        workspace_path=_path(work, issue.id, held),
        has_baseline=has_baseline,
        attempt=held.attempt if held else None,
        question=asked,
        resume=resume_interrupted(held) if isinstance(held, Running) else held.resume if held else None,
        run_id=held.run_id if isinstance(held, Running) else None,
    )
    if not work.claim(issue, Trigger.BLOCK, blocked):
        return
    work.clear_timer(Timer(TimerKind.RETRY, issue.id))
    work.unpark(issue.id)
    if work.state.drain is Drain.NO:
        work.update(ids_to_refresh=work.state.ids_to_refresh | {issue.id})
    work.notify("error", "issue_blocked", issue, reason=failure.line, hint=failure.hint)
    tell(work, blocked)
    on_block(work, issue)


def tell(work: Step, blocked: Blocked) -> None:
    """Say on the issue itself why it is blocked; the same words again change nothing (TR11)."""
    work.emit(block_comment(blocked))


def block_comment(blocked: Blocked) -> PostComment:
    """The comment that says why an issue is blocked; each question has one of its own."""
    asks = awaits_answer(blocked.failure, blocked.question)
    return PostComment(
        issue=blocked.issue,
        kind="blocked",
        body=_note(blocked.issue, blocked.failure, blocked.question),
        occasion=(blocked.run_id or "") if asks else "",
    )


def awaits_answer(failure: Failure, question: str | None) -> bool:
    """Whether the agent waits for words of a person."""
    return question is not None or failure.category in _QUESTIONS


def _path(work: Step, issue_id: str, held: Running | Retry | None) -> str | None:
    if isinstance(held, Running):
        return held.report.workspace_path
    if held is not None:
        return held.workspace_path
    parked = work.state.idle_workspaces.get(issue_id)
    return parked.path if parked else None


def _note(issue: Issue, failure: Failure, question: str | None) -> str:
    """What the issue says. What an agent, a service or a repository may have written is in fences."""
    parts = [f"Symphony stopped working on this issue:\n\n{fence(one_line(failure.message))}"]
    if question is not None:
        parts.append(f"The agent asks:\n\n{fence(plain_text(question))}")
    if awaits_answer(failure, question):
        command = fence(f'symphony answer {shlex.quote(issue.identifier)} "…"')
        parts.append(
            "To answer, write a comment on this issue: the agent goes on with what you write. "
            f"Where the daemon runs, this does the same:\n\n{command}"
        )
    if failure.hint and failure.category is not Category.TURN_INPUT_REQUIRED:
        parts.append(f"To go on:\n\n{fence(one_line(failure.hint))}")
    return "\n\n".join(parts)


# --- and back to work ------------------------------------------------------------------------------------


def go_on(work: Step, blocked: Blocked, resume: Resume | None, *, reason: str) -> None:
    """Put a blocked issue back to work at once, as the attempt that it was.

    One that may rest in `on_block`, out of the active states, is looked at first and stays blocked until it
    is seen in an active state: a run would be stopped, and a retry released, for its state.
    """
    if rests(work.state.settings):
        work.set_blocked(replace(blocked, resume=resume, unblock_reason=reason))
        work.update(ids_to_refresh=work.state.ids_to_refresh | {blocked.issue.id})
    else:
        _try_again(work, blocked, resume, reason=reason)


def _try_again(work: Step, blocked: Blocked, resume: Resume | None, *, reason: str) -> None:
    issue = blocked.issue
    retry = Retry(
        issue=issue,
        attempt=blocked.attempt or 1,
        due_ms=work.now_ms,
        error=None,
        attempts_without_progress=0,
        workspace_path=blocked.workspace_path,
        resume=resume,
    )
    if work.claim(issue, Trigger.RETRY, retry):
        work.await_retry(issue.id, work.now_ms)
        work.notify("info", "issue_unblocked", issue, reason=reason)


def lift_budgets(work: Step) -> None:
    """Let go on what was blocked by a budget that is used up no more: a new day, or a raised limit."""
    for blocked in tuple(work.state.blocked.values()):
        category = blocked.failure.category
        if category is Category.BUDGET_ISSUE:
            left = policy.issue_used(work.state, blocked.issue) is None
        else:
            left = category is Category.BUDGET_DAY and policy.day_used(work.state, blocked.issue) is None
        if left:
            go_on(work, blocked, put_back(blocked), reason="there is budget again")


def forgive(work: Step, blocked: Blocked) -> None:
    """A person wants the issue worked on: count its budget anew, and let it pass that of today."""
    policy.forget(work, blocked.issue.id)
    if blocked.failure.category is Category.BUDGET_DAY:
        work.update(budget_waivers=work.state.budget_waivers | {blocked.issue.id})


def on_blocked_refreshed(work: Step, blocked: Blocked, issue: Issue | None) -> None:
    """Release a blocked issue that ended, left, or was changed by somebody (SM4, RT5).

    A move to `on_block` changes nothing, whoever made it; while the issue rests there, only a move does.
    """
    settings = work.state.settings
    if issue is not None and at_rest(issue, settings):
        work.set_blocked(replace(blocked, issue=issue, has_baseline=True))
        if blocked.unblock_reason is not None:
            back(work, issue)
        return
    changed = issue is not None and blocked.has_baseline and not same_content(blocked.issue, issue, settings)
    if changed and blocked.unblock_reason is None:
        forgive(work, blocked)
    match policy.tracker_status(issue, settings):
        case TrackerStatus.TERMINAL:
            clean_and_release(work, blocked.issue, blocked.workspace_path)
        case TrackerStatus.ACTIVE if issue is not None:
            _on_active(work, blocked, issue, changed=changed)
        case _:
            release(work, blocked.issue, path=blocked.workspace_path)


def _on_active(work: Step, blocked: Blocked, issue: Issue, *, changed: bool) -> None:
    if blocked.unblock_reason is not None:
        _try_again(work, replace(blocked, issue=issue), blocked.resume, reason=blocked.unblock_reason)
    elif changed:
        release(work, issue, path=blocked.workspace_path)
        work.notify("info", "issue_unblocked", issue, reason="the issue was changed")
    elif not blocked.has_baseline or issue != blocked.issue:
        # The first look after the block sets the mark, as the session may have moved its own issue.
        work.set_blocked(replace(blocked, issue=issue, has_baseline=True))
        if not blocked.has_baseline:
            work.notify("debug", "block_settled", issue)


# --- given up --------------------------------------------------------------------------------------------


def release(work: Step, issue: Issue, *, path: str | None) -> None:
    """Give the claim up and keep the workspace, remembering it so that it is cleaned once the issue ends."""
    if not work.claim(issue, Trigger.RELEASE):
        return
    work.clear_timer(Timer(TimerKind.RETRY, issue.id))
    if path is not None:
        ref = WorkspaceRef(issue_id=issue.id, identifier=issue.identifier, path=path)
        work.update(idle_workspaces={**work.state.idle_workspaces, issue.id: ref})
    work.notify("info", "claim_released", issue, state=issue.state)


def clean_and_release(work: Step, issue: Issue, path: str | None) -> None:
    """Give the claim of an ended issue up and remove its workspace; what it blocked may start now (SC12)."""
    release(work, issue, path=None)
    policy.forget(work, issue.id)
    work.emit(CleanWorkspace(issue_id=issue.id, identifier=issue.identifier, path=path))
    if any(
        issue.id == blocker.id for other in work.state.candidates.values() for blocker in other.blocked_by
    ):
        work.update(poll_again=True)
