"""Claims that nobody works on any more: kept for a person (Blocked), or given up (SM4, SM7, RT5)."""

import shlex
from dataclasses import replace

from symphony.domain.failures import Category, Failure
from symphony.domain.fence import fence
from symphony.domain.issue import Issue
from symphony.domain.plain import one_line, plain
from symphony.scheduler import budgets, moves, policy, threads
from symphony.scheduler.claims import Trigger
from symphony.scheduler.commands import CleanWorkspace, PostNote
from symphony.scheduler.inputs import Resume, Timer, TimerKind, WorkspaceRef
from symphony.scheduler.policy import Standing
from symphony.scheduler.state import Blocked, Drain, Retry, Running
from symphony.scheduler.work import Work

__all__ = [
    "answerable",
    "block",
    "clean_and_release",
    "forgive",
    "go_on",
    "lift_budgets",
    "note",
    "on_blocked_refreshed",
    "release",
    "tell",
]

LONGEST_QUESTION = 4_000
_QUESTIONS = frozenset({Category.TURN_INPUT_REQUIRED, Category.APPROVAL_REQUIRED})


# --- for a person ----------------------------------------------------------------------------------------


def block(
    work: Work,
    issue: Issue,
    failure: Failure,
    *,
    held: Running | Retry | None = None,
    question: str | None = None,
    settled: bool = False,
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
        settled=settled,
        attempt=held.attempt if held else None,
        question=asked,
        resume=threads.interrupted(held) if isinstance(held, Running) else held.resume if held else None,
        run_id=held.run_id if isinstance(held, Running) else None,
    )
    if not work.claim(issue, Trigger.BLOCK, blocked):
        return
    work.clear_timer(Timer(TimerKind.RETRY, issue.id))
    work.unpark(issue.id)
    if work.state.drain is Drain.NO:
        work.update(wanted=work.state.wanted | {issue.id})
    work.notify("error", "issue_blocked", issue, reason=failure.line, hint=failure.hint)
    tell(work, blocked)
    moves.on_block(work, issue)


def tell(work: Work, blocked: Blocked) -> None:
    """Say on the issue itself why it is blocked; the same words again change nothing (TR11)."""
    work.emit(note(blocked))


def note(blocked: Blocked) -> PostNote:
    """The comment that says why an issue is blocked; each question has one of its own."""
    asks = answerable(blocked.failure, blocked.question)
    return PostNote(
        issue=blocked.issue,
        kind="blocked",
        body=_note(blocked.issue, blocked.failure, blocked.question),
        occasion=(blocked.run_id or "") if asks else "",
    )


def answerable(failure: Failure, question: str | None) -> bool:
    """Whether the agent waits for words of a person."""
    return question is not None or failure.category in _QUESTIONS


def _path(work: Work, issue_id: str, held: Running | Retry | None) -> str | None:
    if isinstance(held, Running):
        return held.report.workspace_path
    if held is not None:
        return held.workspace_path
    parked = work.state.parked.get(issue_id)
    return parked.path if parked else None


def _note(issue: Issue, failure: Failure, question: str | None) -> str:
    """What the issue says. What an agent, a service or a repository may have written is in fences."""
    parts = [f"Symphony stopped working on this issue:\n\n{fence(one_line(failure.message))}"]
    if question is not None:
        parts.append(f"The agent asks:\n\n{fence(plain(question))}")
    if answerable(failure, question):
        command = fence(f'symphony answer {shlex.quote(issue.identifier)} "…"')
        parts.append(
            "To answer, write a comment on this issue: the agent goes on with what you write. "
            f"Where the daemon runs, this does the same:\n\n{command}"
        )
    if failure.hint and failure.category is not Category.TURN_INPUT_REQUIRED:
        parts.append(f"To go on:\n\n{fence(one_line(failure.hint))}")
    return "\n\n".join(parts)


# --- and back to work ------------------------------------------------------------------------------------


def go_on(work: Work, blocked: Blocked, resume: Resume | None, *, reason: str) -> None:
    """Put a blocked issue back to work at once, as the attempt that it was.

    One that may rest in `on_block`, out of the active states, is looked at first and stays blocked until it
    is seen in an active state: a run would be stopped, and a retry released, for its state.
    """
    if moves.rests(work.state.settings):
        work.set_blocked(replace(blocked, resume=resume, returning=reason))
        work.update(wanted=work.state.wanted | {blocked.issue.id})
    else:
        _try_again(work, blocked, resume, reason=reason)


def _try_again(work: Work, blocked: Blocked, resume: Resume | None, *, reason: str) -> None:
    issue = blocked.issue
    retry = Retry(
        issue=issue,
        attempt=blocked.attempt or 1,
        due_ms=work.now_ms,
        error=None,
        idle_attempts=0,
        workspace_path=blocked.workspace_path,
        resume=resume,
    )
    if work.claim(issue, Trigger.RETRY, retry):
        work.await_retry(issue.id, work.now_ms)
        work.notify("info", "issue_unblocked", issue, reason=reason)


def lift_budgets(work: Work) -> None:
    """Let go on what was blocked by a budget that is used up no more: a new day, or a raised limit."""
    for blocked in tuple(work.state.blocked.values()):
        category = blocked.failure.category
        if category is Category.BUDGET_ISSUE:
            left = budgets.issue_used(work.state, blocked.issue) is None
        else:
            left = category is Category.BUDGET_DAY and budgets.day_used(work.state, blocked.issue) is None
        if left:
            go_on(work, blocked, threads.put_back(blocked), reason="there is budget again")


def forgive(work: Work, blocked: Blocked) -> None:
    """A person wants the issue worked on: count its budget anew, and let it pass that of today."""
    budgets.forget(work, blocked.issue.id)
    if blocked.failure.category is Category.BUDGET_DAY:
        work.update(exempt=work.state.exempt | {blocked.issue.id})


def on_blocked_refreshed(work: Work, blocked: Blocked, issue: Issue | None) -> None:
    """Release a blocked issue that ended, left, or was changed by somebody (SM4, RT5).

    A move to `on_block` changes nothing, whoever made it; while the issue rests there, only a move does.
    """
    settings = work.state.settings
    if issue is not None and moves.at_rest(issue, settings):
        work.set_blocked(replace(blocked, issue=issue, settled=True))
        if blocked.returning is not None:
            moves.back(work, issue)
        return
    changed = issue is not None and blocked.settled and not moves.same_request(blocked.issue, issue, settings)
    if changed and blocked.returning is None:
        forgive(work, blocked)
    match policy.standing(issue, settings):
        case Standing.TERMINAL:
            clean_and_release(work, blocked.issue, blocked.workspace_path)
        case Standing.ACTIVE if issue is not None:
            _on_active(work, blocked, issue, changed=changed)
        case _:
            release(work, blocked.issue, path=blocked.workspace_path)


def _on_active(work: Work, blocked: Blocked, issue: Issue, *, changed: bool) -> None:
    if blocked.returning is not None:
        _try_again(work, replace(blocked, issue=issue), blocked.resume, reason=blocked.returning)
    elif changed:
        release(work, issue, path=blocked.workspace_path)
        work.notify("info", "issue_unblocked", issue, reason="the issue was changed")
    elif not blocked.settled or issue != blocked.issue:
        # The first look after the block sets the mark, as the session may have moved its own issue.
        work.set_blocked(replace(blocked, issue=issue, settled=True))
        if not blocked.settled:
            work.notify("debug", "block_settled", issue)


# --- given up --------------------------------------------------------------------------------------------


def release(work: Work, issue: Issue, *, path: str | None) -> None:
    """Give the claim up and keep the workspace, remembering it so that it is cleaned once the issue ends."""
    if not work.claim(issue, Trigger.RELEASE):
        return
    work.clear_timer(Timer(TimerKind.RETRY, issue.id))
    if path is not None:
        ref = WorkspaceRef(issue_id=issue.id, identifier=issue.identifier, path=path)
        work.update(parked={**work.state.parked, issue.id: ref})
    work.notify("info", "claim_released", issue, state=issue.state)


def clean_and_release(work: Work, issue: Issue, path: str | None) -> None:
    """Give the claim of an ended issue up and remove its workspace; what it blocked may start now (SC12)."""
    release(work, issue, path=None)
    budgets.forget(work, issue.id)
    work.emit(CleanWorkspace(issue_id=issue.id, identifier=issue.identifier, path=path))
    if any(
        issue.id == blocker.id for other in work.state.candidates.values() for blocker in other.blocked_by
    ):
        work.update(poll_again=True)
