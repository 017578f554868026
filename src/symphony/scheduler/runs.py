"""The life of a run attempt: start, turns, silence, end, retry, block (specification 7, 8.4, 16.5-16.6).

A run ends in exactly one `RunEnded`; until then it keeps slot and claim, whatever was asked of it.
"""

from dataclasses import replace

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue
from symphony.scheduler import blocks, policy
from symphony.scheduler.claims import Trigger
from symphony.scheduler.commands import (
    ContinueRun,
    FinishReason,
    FinishRun,
    StartRun,
    StopReason,
    StopRun,
)
from symphony.scheduler.inputs import (
    Outcome,
    OutcomeKind,
    RunReport,
    RunStage,
    Timer,
    TimerKind,
)
from symphony.scheduler.policy import Eligible, ReasonCode, Standing
from symphony.scheduler.state import Drain, Retry, Running, Totals
from symphony.scheduler.work import Work

__all__ = [
    "NO_SLOT_ERROR",
    "finish",
    "forgive_sleep",
    "judge_silence",
    "on_agent_report",
    "on_retry_refreshed",
    "on_run_ended",
    "on_running_refreshed",
    "on_settled",
    "on_turn_ended",
    "requeue",
    "start",
    "stop",
]

SETTLE_MS = 30_000
OVERSLEPT_MS = 10_000
NO_SLOT_ERROR = "no available orchestrator slots"
_AGENT_STAGES = frozenset({RunStage.LAUNCHING_AGENT, RunStage.STREAMING_TURN})
_STOP_FOR = {
    Standing.TERMINAL: StopReason.TERMINAL,
    Standing.INACTIVE: StopReason.INACTIVE,
    Standing.UNROUTABLE: StopReason.UNROUTABLE,
    Standing.MISSING: StopReason.MISSING,
}


def start(work: Work, issue: Issue, *, retry: Retry | None = None) -> None:
    """Start a run attempt; the caller has judged the issue eligible on a fresh snapshot (SC9, SC10)."""
    attempt = retry.attempt if retry else None
    run = Running(
        run_id=f"{work.state.epoch}-{work.number()}",
        issue=issue,
        attempt=attempt,
        started_ms=work.now_ms,
        max_turns=work.state.settings.max_turns,
        idle_attempts=retry.idle_attempts if retry else 0,
        failures=retry.failures if retry else 0,
        report=RunReport(stage=RunStage.PREPARING_WORKSPACE, workspace_path=_known_path(work, issue.id)),
    )
    if not work.claim(issue, Trigger.START, run):
        return
    work.clear_timer(Timer(TimerKind.RETRY, issue.id))
    work.update(parked={key: ref for key, ref in work.state.parked.items() if key != issue.id})
    work.emit(StartRun(run_id=run.run_id, issue=issue, attempt=attempt))
    work.notify("info", "run_started", issue, run_id=run.run_id, attempt=attempt)


def _known_path(work: Work, issue_id: str) -> str | None:
    """The workspace of an earlier attempt: a run that ends before it has one must not forget it (RT7)."""
    if retry := work.state.retrying.get(issue_id):
        return retry.workspace_path
    parked = work.state.parked.get(issue_id)
    return parked.path if parked else None


def stop(work: Work, run: Running, reason: StopReason) -> None:
    """Ask a run to stop in mid-turn; its end decides what follows (SC13)."""
    if run.stopping is not None:
        return
    if work.claim(run.issue, Trigger.STOP, replace(run, stopping=reason)):
        work.emit(StopRun(run_id=run.run_id, reason=reason))
        work.notify("info", "run_stopping", run.issue, run_id=run.run_id, reason=reason.value)


def finish(work: Work, run: Running, reason: FinishReason, failure: Failure | None = None) -> None:
    """Give a run that waits between turns no further turn (AG8); one that is being stopped hears nothing."""
    if run.stopping is not None:
        return
    work.set_running(replace(run, awaiting=False, finishing=reason))
    work.emit(FinishRun(run_id=run.run_id, reason=reason, failure=failure))


# --- while it runs ---------------------------------------------------------------------------------------


def on_agent_report(work: Work, run: Running, report: RunReport) -> None:
    """Take over what the pump folded; the silence clock starts when the agent does (SC11)."""
    alive = report.signs != run.report.signs or report.stage is not run.report.stage
    entered = report.stage in _AGENT_STAGES and report.stage is not run.report.stage
    path = report.workspace_path or run.report.workspace_path
    work.set_running(
        replace(
            run,
            report=replace(report, workspace_path=path),
            agent_ms=work.now_ms if entered and run.agent_ms is None else run.agent_ms,
            last_sign_ms=work.now_ms if alive else run.last_sign_ms,
        )
    )
    if report.rate_limits is not None:
        work.update(rate_limits=report.rate_limits)
    if entered:
        arm_silence(work, run.run_id, since_ms=work.now_ms)


def arm_silence(work: Work, run_id: str, *, since_ms: int) -> None:
    """Set the stall timer of a run so that it fires at the first moment that exceeds the limit."""
    limit = work.state.settings.stall_timeout_ms
    if limit > 0:
        work.set_timer(Timer(TimerKind.STALL, run_id), since_ms + limit + 1)


def judge_silence(work: Work, run: Running) -> None:
    """Stop a run whose agent has been silent for longer than the limit (strictly), else look again."""
    limit = work.state.settings.stall_timeout_ms
    if limit <= 0 or run.stopping or run.finishing or run.report.stage is RunStage.FINISHING:
        return
    if run.agent_ms is None:
        return
    heard = work.now_ms if run.awaiting else (run.last_sign_ms or run.agent_ms)
    if work.now_ms - heard > limit:
        stop(work, run, StopReason.STALLED)
    else:
        arm_silence(work, run.run_id, since_ms=heard)


def forgive_sleep(work: Work, late_ms: int) -> None:
    """After a timer that came far too late, count every silence anew (SC11).

    The machine was suspended or the daemon stopped: agents had no chance to speak, or to be heard.
    """
    if late_ms <= OVERSLEPT_MS:
        return
    asleep = [run for run in work.state.running.values() if run.agent_ms is not None]
    if asleep and any(run.last_sign_ms != work.now_ms for run in asleep):
        work.notify("warning", "overslept", late_ms=late_ms)
    for run in asleep:
        work.set_running(replace(run, last_sign_ms=work.now_ms))
        arm_silence(work, run.run_id, since_ms=work.now_ms)
        if run.settling:
            work.set_timer(Timer(TimerKind.SETTLE, run.run_id), work.now_ms + SETTLE_MS)


def on_turn_ended(work: Work, run: Running, turn: int) -> None:
    """A turn completed: ask the tracker before deciding on the next one (SM5, AG8).

    An end of another turn than the one that runs is late or repeated, and means nothing.
    """
    if run.stopping or run.finishing or run.awaiting or turn != run.turn:
        return
    waiting = replace(run, awaiting=True, last_sign_ms=work.now_ms)
    work.set_running(waiting)
    if work.state.drain is not Drain.NO:
        finish(work, waiting, FinishReason.DRAINING)
    else:
        work.update(wanted=work.state.wanted | {run.issue.id})


def on_running_refreshed(work: Work, run: Running, issue: Issue | None) -> None:
    """Apply a fresh snapshot to a run (SC12); between turns it also decides on the next one (AG8)."""
    if run.stopping or run.finishing:
        return
    standing = policy.standing(issue, work.state.settings)
    run = replace(run, issue=issue or run.issue)
    work.set_running(run)
    if standing is Standing.ACTIVE:
        _go_on(work, run)
    elif run.awaiting:
        finish(work, run, FinishReason.INACTIVE)
    elif run.report.tool_calls == 0:
        stop(work, run, _STOP_FOR[standing])
    elif not run.settling:
        # The session itself may have just moved its issue; let its turn come to an end, but not for ever.
        work.set_running(replace(run, settling=True))
        work.set_timer(Timer(TimerKind.SETTLE, run.run_id), work.now_ms + SETTLE_MS)


def _go_on(work: Work, run: Running) -> None:
    run = replace(run, settling=False)
    work.clear_timer(Timer(TimerKind.SETTLE, run.run_id))
    if not run.awaiting:
        work.set_running(run)
    elif run.turn >= run.max_turns:
        finish(work, run, FinishReason.MAX_TURNS)
    else:
        report = replace(run.report, tool_calls=0)
        run = replace(run, awaiting=False, turn=run.turn + 1, last_sign_ms=work.now_ms, report=report)
        work.set_running(run)
        work.emit(ContinueRun(run_id=run.run_id, issue=run.issue, turn=run.turn))


def on_settled(work: Work, run: Running) -> None:
    """The grace for a session that moved its own issue is over; judge by the last snapshot."""
    standing = policy.standing(run.issue, work.state.settings)
    if run.settling and not run.awaiting and not run.finishing:
        reason = _STOP_FOR.get(standing, StopReason.MISSING)
        stop(work, run, reason)


# --- its end ---------------------------------------------------------------------------------------------


def on_run_ended(work: Work, run: Running, outcome: Outcome) -> None:
    """Account for the run, then retry, block or release its claim (SM4, RT2-RT5)."""
    _account(work, run)
    work.clear_timer(Timer(TimerKind.STALL, run.run_id))
    work.clear_timer(Timer(TimerKind.SETTLE, run.run_id))
    work.notify(
        "info" if outcome.kind is OutcomeKind.SUCCEEDED else "warning",
        "run_ended",
        run.issue,
        run_id=run.run_id,
        session_id=run.report.session_id or "n/a",
        outcome=outcome.kind.value,
        reason=outcome.failure.line if outcome.failure else (run.stopping or run.finishing or None),
        turns=run.report.turn_count,
        commits=outcome.commits,
    )
    if work.state.drain is not Drain.NO:
        blocks.release(work, run.issue, path=run.report.workspace_path)
    elif run.stopping is StopReason.TERMINAL:
        blocks.clean_and_release(work, run.issue, run.report.workspace_path)
    elif run.stopping in {StopReason.INACTIVE, StopReason.UNROUTABLE, StopReason.MISSING}:
        blocks.release(work, run.issue, path=run.report.workspace_path)
    else:
        _decide_next(work, run, outcome)


def _account(work: Work, run: Running) -> None:
    totals, report = work.state.totals, run.report
    spent = 0 if run.agent_ms is None else work.now_ms - run.agent_ms
    work.update(
        totals=Totals(
            input_tokens=totals.input_tokens + report.input_tokens,
            output_tokens=totals.output_tokens + report.output_tokens,
            total_tokens=totals.total_tokens + report.total_tokens,
            running_ms=totals.running_ms + spent,
        )
    )


def _decide_next(work: Work, run: Running, outcome: Outcome) -> None:
    failure = _failure_of(run, outcome)
    idle = _idle_attempts(run, outcome, failure)
    if failure is None:
        work.update(completed=work.state.completed | {run.issue.id})
        _queue(work, run, attempt=1, delay_ms=policy.CONTINUATION_DELAY_MS, idle=idle)
    elif outcome.kind is OutcomeKind.INPUT_REQUIRED:
        blocks.block(work, run.issue, failure, run=run)
    elif idle >= work.state.settings.max_attempts_without_progress:
        blocks.block(work, run.issue, _no_progress(idle, failure), run=run)
    else:
        attempt = (run.attempt or 0) + 1
        cap = work.state.settings.max_retry_backoff_ms
        delay = max(policy.backoff_ms(attempt, cap), failure.retry_after_ms or 0)
        _queue(work, run, attempt=attempt, delay_ms=delay, idle=idle, failure=failure)


def _idle_attempts(run: Running, outcome: Outcome, failure: Failure | None) -> int:
    """Attempts in a row that left nothing behind (RT5).

    Where nobody can tell, the attempt neither counts nor forgives, unless no agent was there to do anything.
    """
    if outcome.progress:
        return 0
    unknown = outcome.progress is None and run.agent_ms is not None
    return run.idle_attempts + int(not unknown and policy.counts_as_idle(failure))


def _failure_of(run: Running, outcome: Outcome) -> Failure | None:
    if run.stopping is StopReason.STALLED and outcome.kind is not OutcomeKind.INPUT_REQUIRED:
        return Failure(
            category=Category.STALLED,
            blame=Blame.AGENT,
            message="the agent gave no sign of life within codex.stall_timeout_ms",
        )
    if outcome.kind is OutcomeKind.SUCCEEDED:
        return None
    return outcome.failure or Failure(
        category=Category.INTERNAL, blame=Blame.HOST, message=f"the run ended as {outcome.kind.value}"
    )


def _no_progress(attempts: int, last: Failure | None = None) -> Failure:
    tail = f"; the last one ended with {last.line}" if last else ""
    return Failure(
        category=Category.NO_PROGRESS,
        blame=Blame.AGENT,
        message=f"{attempts} attempts left neither a new commit nor a changed tree{tail}",
        retryable=False,
        hint="change the issue's state, labels, title or description to have it tried again",
    )


def _queue(
    work: Work, run: Running, *, attempt: int, delay_ms: int, idle: int, failure: Failure | None = None
) -> None:
    issue, error = run.issue, failure.line if failure else None
    due_ms = work.now_ms + delay_ms
    retry = Retry(
        issue=issue,
        attempt=attempt,
        due_ms=due_ms,
        error=error,
        idle_attempts=idle,
        workspace_path=run.report.workspace_path,
        failures=run.failures + 1 if failure else 0,
        hopeless=failure is not None and not failure.retryable,
    )
    if work.claim(issue, Trigger.RETRY, retry):
        work.set_timer(Timer(TimerKind.RETRY, issue.id), due_ms)
        if error:
            work.notify("info", "run_retrying", issue, attempt=attempt, delay_ms=delay_ms, reason=error)


def requeue(work: Work, retry: Retry, error: str, *, failure: Failure | None = None) -> None:
    """Put a due retry back with the next attempt number and the failure formula (RT6)."""
    attempt = retry.attempt + 1
    delay_ms = policy.backoff_ms(attempt, work.state.settings.max_retry_backoff_ms)
    due_ms = work.now_ms + delay_ms
    entry = replace(retry, attempt=attempt, due_ms=due_ms, error=error, firing=False)
    if failure is not None:
        entry = replace(entry, failures=retry.failures + 1, hopeless=not failure.retryable)
    if work.claim(retry.issue, Trigger.RETRY, entry):
        work.set_timer(Timer(TimerKind.RETRY, retry.issue.id), due_ms)
        work.notify("info", "run_retrying", retry.issue, attempt=attempt, delay_ms=delay_ms, reason=error)


def on_retry_refreshed(work: Work, retry: Retry, issue: Issue | None) -> None:
    """A due retry meets a fresh snapshot: clean, release, block, wait or start (RT6)."""
    settings, path = work.state.settings, retry.workspace_path
    if work.state.drain is not Drain.NO:
        return
    match policy.standing(issue, settings):
        case Standing.TERMINAL:
            blocks.clean_and_release(work, retry.issue, path)
            return
        case Standing.ACTIVE if issue is not None:
            retry = replace(retry, issue=issue)
        case _:
            blocks.release(work, retry.issue, path=path)
            return
    if retry.idle_attempts >= settings.max_attempts_without_progress:
        blocks.block(work, retry.issue, _no_progress(retry.idle_attempts), path=path)
    else:
        _start_or_wait(work, retry)


def _start_or_wait(work: Work, retry: Retry) -> None:
    """Start a due retry if nothing but its own claim is in the way; the attempt counts only against slots."""
    verdict = policy.eligible(retry.issue, work.state, own_claim=True)
    if isinstance(verdict, Eligible):
        start(work, retry.issue, retry=retry)
    elif verdict.code in {ReasonCode.NO_SLOT, ReasonCode.NO_STATE_SLOT}:
        requeue(work, retry, NO_SLOT_ERROR)
    else:
        due_ms = work.now_ms + work.state.settings.poll_interval_ms
        work.set_retry(replace(retry, firing=False, due_ms=due_ms))
        work.set_timer(Timer(TimerKind.RETRY, retry.issue.id), due_ms)
