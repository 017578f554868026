"""A retry comes due: it meets a fresh snapshot, and starts, waits, blocks or goes (RT6, RT7)."""

from dataclasses import replace

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue
from symphony.scheduler import blocks, budgets, choice, endings, policy, runs
from symphony.scheduler.claims import Trigger
from symphony.scheduler.inputs import Timer, TimerKind
from symphony.scheduler.policy import Eligible, ReasonCode, Standing
from symphony.scheduler.state import Drain, Retry
from symphony.scheduler.work import Work

__all__ = ["NO_SLOT_ERROR", "end_of_pause", "fire_due", "make_due", "on_due", "on_refreshed", "requeue"]

NO_SLOT_ERROR = "no available orchestrator slots"


def on_due(work: Work, issue_id: str) -> None:
    """The timer fired: ask for a fresh snapshot, unless we are on the way out."""
    retry = work.state.retrying.get(issue_id)
    if retry is not None and work.state.drain is Drain.NO:
        work.set_retry(replace(retry, firing=True))
        work.update(wanted=work.state.wanted | {issue_id})


def make_due(work: Work, retry: Retry) -> None:
    """Have a waiting claim come due now, unless it is due already."""
    if not retry.firing:
        work.set_retry(replace(retry, due_ms=work.now_ms))
        work.await_retry(retry.issue.id, work.now_ms)


def end_of_pause(work: Work) -> None:
    """Have those come due that only waited for the daemon to be resumed."""
    for retry in tuple(work.state.retrying.values()):
        if retry.due_ms <= work.now_ms:
            make_due(work, retry)


def fire_due(work: Work) -> None:
    """Have all that are due by now asked about together, so that they start in the order of dispatch."""
    for retry in tuple(work.state.retrying.values()):
        if retry.due_ms <= work.now_ms and not retry.firing:
            work.clear_timer(Timer(TimerKind.RETRY, retry.issue.id))
            on_due(work, retry.issue.id)


def requeue(work: Work, retry: Retry, error: str, *, failure: Failure | None = None) -> None:
    """Put a due retry back with the next attempt number and the failure formula (RT6)."""
    attempt = retry.attempt + 1
    delay_ms = policy.backoff_ms(attempt, work.state.settings.max_retry_backoff_ms)
    due_ms = work.now_ms + delay_ms
    entry = replace(retry, attempt=attempt, due_ms=due_ms, error=error, firing=False)
    if failure is not None:
        entry = replace(entry, failures=retry.failures + 1, hopeless=not failure.retryable)
    if work.claim(retry.issue, Trigger.RETRY, entry):
        work.await_retry(retry.issue.id, due_ms)
        facts = policy.attempt_facts(entry, work.state.settings)
        work.notify("info", "run_retrying", retry.issue, **facts, delay_ms=delay_ms, reason=error)


def on_refreshed(work: Work, retry: Retry, issue: Issue | None) -> None:
    """A due retry meets a fresh snapshot: clean, release, block, wait or start (RT6)."""
    settings, path = work.state.settings, retry.workspace_path
    if work.state.drain is not Drain.NO:
        return
    match policy.standing(issue, settings):
        case Standing.TERMINAL:
            blocks.clean_and_release(work, retry.issue, path)
        case Standing.ACTIVE if issue is not None:
            _go_on(work, replace(retry, issue=issue))
        case _:
            blocks.release(work, retry.issue, path=path)


def _go_on(work: Work, retry: Retry) -> None:
    """A start that its budget does not allow blocks instead, whatever else is in the way."""
    if retry.idle_attempts >= work.state.settings.max_attempts_without_progress:
        idle = endings.no_progress(retry.issue, retry.idle_attempts)
        blocks.block(work, retry.issue, idle, held=retry)
    elif used := budgets.used(work.state, retry.issue):
        blocks.block(work, retry.issue, used, held=retry)
    else:
        _start_or_wait(work, retry)


def _start_or_wait(work: Work, retry: Retry) -> None:
    """Start a due retry if nothing but its own claim is in the way; the attempt counts only against slots.

    One that waits for the end of a pause stays due, so that it starts at once when the daemon is resumed. One
    whose agent is limited comes due when that is over.
    """
    verdict = policy.eligible(retry.issue, work.state, own_claim=True)
    if isinstance(verdict, Eligible):
        runs.start(work, retry.issue, retry=retry)
    elif verdict.code in {ReasonCode.NO_SLOT, ReasonCode.NO_STATE_SLOT}:
        requeue(work, retry, NO_SLOT_ERROR)
    elif verdict.code is ReasonCode.AGENT_LIMITED:
        until_ms = choice.waits_until(work.state, retry.issue, choice.thread_agent(retry.resume))
        due_ms = max(until_ms or 0, work.now_ms)
        work.set_retry(replace(retry, firing=False, due_ms=due_ms))
        work.await_retry(retry.issue.id, due_ms)
    else:
        again_ms = work.now_ms + work.state.settings.poll_interval_ms
        due_ms = retry.due_ms if verdict.code is ReasonCode.PAUSED else again_ms
        work.set_retry(replace(retry, firing=False, due_ms=due_ms))
        work.await_retry(retry.issue.id, again_ms)
