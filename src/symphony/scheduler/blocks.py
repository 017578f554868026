"""Claims that nobody works on any more: kept for a person (Blocked), or given up (SM4, SM7, RT5)."""

from dataclasses import replace

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue
from symphony.scheduler import policy
from symphony.scheduler.claims import Trigger
from symphony.scheduler.commands import CleanWorkspace, PostNote
from symphony.scheduler.inputs import Timer, TimerKind, WorkspaceRef
from symphony.scheduler.policy import Standing
from symphony.scheduler.state import Blocked, Running
from symphony.scheduler.work import Work

__all__ = ["block", "clean_and_release", "on_blocked_refreshed", "release"]


def block(
    work: Work, issue: Issue, failure: Failure, *, run: Running | None = None, path: str | None = None
) -> None:
    """Keep the claim and wait for a person, with the reason on the issue itself too (SM7, RT5)."""
    blocked = Blocked(
        issue=issue,
        failure=failure,
        blocked_ms=work.now_ms,
        report=run.report if run else None,
        workspace_path=run.report.workspace_path if run else path,
    )
    if not work.claim(issue, Trigger.BLOCK, blocked):
        return
    work.clear_timer(Timer(TimerKind.RETRY, issue.id))
    work.update(wanted=work.state.wanted | {issue.id})
    work.notify("error", "issue_blocked", issue, reason=failure.line, hint=failure.hint)
    hint = f"\n\nTo go on: {failure.hint}." if failure.hint else ""
    body = f"Symphony stopped working on this issue: {failure.message}.{hint}"
    work.emit(PostNote(issue=issue, kind="blocked", body=body))


def on_blocked_refreshed(work: Work, blocked: Blocked, issue: Issue | None) -> None:
    """Release a blocked issue that ended, left, or was changed by somebody (SM4, RT5)."""
    match policy.standing(issue, work.state.settings):
        case Standing.TERMINAL:
            clean_and_release(work, blocked.issue, blocked.workspace_path)
        case Standing.ACTIVE if issue is not None:
            if blocked.settled and not policy.same_request(blocked.issue, issue):
                release(work, issue, path=blocked.workspace_path)
                work.notify("info", "issue_unblocked", issue, reason="the issue was changed")
            elif not blocked.settled or issue != blocked.issue:
                # The first look after the block sets the mark, as the session may have moved its own issue.
                work.set_blocked(replace(blocked, issue=issue, settled=True))
                if not blocked.settled:
                    work.notify("debug", "block_settled", issue)
        case _:
            release(work, blocked.issue, path=blocked.workspace_path)


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
    work.emit(CleanWorkspace(issue_id=issue.id, identifier=issue.identifier, path=path))
    if any(
        issue.id == blocker.id for other in work.state.candidates.values() for blocker in other.blocked_by
    ):
        work.update(poll_again=True)
