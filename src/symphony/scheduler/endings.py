"""The end of a run attempt: account for it, then retry, block or release its claim (SM4, SM7, RT2-RT5)."""

from symphony.domain.counts import added
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue
from symphony.scheduler import blocks, budgets, choice, limits, policy, results, threads
from symphony.scheduler.claims import Trigger
from symphony.scheduler.commands import FinishReason, StopReason
from symphony.scheduler.inputs import Outcome, OutcomeKind, Resume, Timer, TimerKind
from symphony.scheduler.state import Retry, Running, Totals
from symphony.scheduler.work import Work

__all__ = ["no_progress", "on_run_ended", "stopped_by_operator"]


def on_run_ended(work: Work, run: Running, outcome: Outcome) -> None:
    """Account for the run, then decide on its claim; on the way out a successor gets it (SM4, RT2-RT5)."""
    _account(work, run)
    results.record(work, run, outcome)
    limits.learn(work, run, outcome)
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
        hint=outcome.failure.hint if outcome.failure else None,
        turns=run.report.turn_count,
        commits=outcome.commits,
        agent=run.agent.name,
        agent_reason=run.agent.reason,
    )
    if run.stopping is StopReason.TERMINAL:
        blocks.clean_and_release(work, run.issue, run.report.workspace_path)
    elif run.stopping in {StopReason.INACTIVE, StopReason.UNROUTABLE, StopReason.MISSING}:
        blocks.release(work, run.issue, path=run.report.workspace_path)
    else:
        _decide_next(work, run, outcome)
    results.settle(work, run.issue.id, None if run.stopping is StopReason.MISSING else run.issue)


def _account(work: Work, run: Running) -> None:
    totals, report = work.state.totals, run.report
    spent = 0 if run.agent_ms is None else work.now_ms - run.agent_ms
    work.update(
        totals=Totals(
            input_tokens=added(totals.input_tokens, report.input_tokens),
            output_tokens=added(totals.output_tokens, report.output_tokens),
            total_tokens=added(totals.total_tokens, report.total_tokens),
            running_ms=totals.running_ms + spent,
        )
    )


def _decide_next(work: Work, run: Running, outcome: Outcome) -> None:
    failure = _failure_of(run, outcome, work.state.settings.facts(run.agent.name).section)
    if failure is not None and outcome.kind is OutcomeKind.INPUT_REQUIRED:
        blocks.block(work, run.issue, failure, held=run, question=outcome.question)
    elif run.stopping is StopReason.OPERATOR:
        blocks.block(work, run.issue, stopped_by_operator(run.issue), held=run)
    elif run.stopping is StopReason.BUDGET or run.finishing is FinishReason.BUDGET:
        _out_of_budget(work, run, outcome)
    elif _interrupted(run, outcome):
        _go_on_later(work, run, outcome)
    elif failure is None:
        if outcome.kind is OutcomeKind.SUCCEEDED:
            work.update(completed=work.state.completed | {run.issue.id})
        idle = _idle_attempts(run, outcome, None)
        _queue(work, run, attempt=1, delay_ms=policy.CONTINUATION_DELAY_MS, idle=idle)
    elif failure.category is Category.WORKSPACE_VANISHED and run.failures == 0:
        _queue_anew(work, run, failure)
    elif failure.category in choice.LIMITS:
        _after_limit(work, run, outcome, failure)
    else:
        _after_failure(work, run, outcome, failure)


def _after_failure(work: Work, run: Running, outcome: Outcome, failure: Failure) -> None:
    """Try again later, or ask a person. Whom only the tracker failed goes on with its conversation (AG8)."""
    if failure.category is Category.ISSUE_TOO_LONG:
        blocks.block(work, run.issue, failure, held=run)
        return
    idle = _idle_attempts(run, outcome, failure)
    if idle >= work.state.settings.max_attempts_without_progress:
        blocks.block(work, run.issue, no_progress(run.issue, idle, failure), held=run)
        return
    attempt = (run.attempt or 0) + 1
    cap = work.state.settings.max_retry_backoff_ms
    delay = max(policy.backoff_ms(attempt, cap), failure.retry_after_ms or 0)
    blameless = run.finishing is FinishReason.REFRESH_FAILED
    resume = threads.interrupted(run) if blameless else threads.after_failure(run)
    _queue(work, run, attempt=attempt, delay_ms=delay, idle=idle, failure=failure, resume=resume)


def _queue_anew(work: Work, run: Running, failure: Failure) -> None:
    """The same attempt begins anew, as nobody knows that the agent is to blame; a second time it counts."""
    attempt, idle = run.attempt or 1, run.idle_attempts
    delay = policy.backoff_ms(1, work.state.settings.max_retry_backoff_ms)
    resume = threads.after_failure(run)
    _queue(work, run, attempt=attempt, delay_ms=delay, idle=idle, failure=failure, resume=resume)


def _after_limit(work: Work, run: Running, outcome: Outcome, failure: Failure) -> None:
    """The fallback takes over at once; without one the issue waits until its agent may be asked again."""
    idle = _idle_attempts(run, outcome, failure)
    attempt, resume = (run.attempt or 0) + 1, threads.after_failure(run)
    until_ms = choice.waits_until(work.state, run.issue, choice.thread_agent(resume))
    if until_ms is None:
        delay_ms, takes_over = policy.CONTINUATION_DELAY_MS, True
    else:
        backoff_ms = policy.backoff_ms(attempt, work.state.settings.max_retry_backoff_ms)
        delay_ms, takes_over = max(backoff_ms, until_ms - work.now_ms), False
    _queue(
        work,
        run,
        attempt=attempt,
        delay_ms=delay_ms,
        idle=idle,
        failure=failure,
        resume=resume,
        blameless=takes_over,
    )


def _out_of_budget(work: Work, run: Running, outcome: Outcome) -> None:
    """The budget that ended the run is judged anew, as somebody may have raised it since."""
    failure = budgets.used(work.state, run.issue)
    if failure is None:
        _go_on_later(work, run, outcome)
    else:
        blocks.block(work, run.issue, failure, held=run)


def _interrupted(run: Running, outcome: Outcome) -> bool:
    """Whether the run was ended by our own end, and not by anything of its own."""
    asked_to_end = run.finishing is FinishReason.DRAINING and outcome.clean
    return asked_to_end or run.stopping is StopReason.DRAINING


def _go_on_later(work: Work, run: Running, outcome: Outcome) -> None:
    """The same attempt goes on as soon as somebody can take it up; nothing counts against the issue."""
    retry = Retry(
        issue=run.issue,
        attempt=run.attempt or 1,
        due_ms=work.now_ms,
        error=None,
        idle_attempts=0 if outcome.progress else run.idle_attempts,
        workspace_path=run.report.workspace_path,
        failures=run.failures,
        runs=run.runs - 1,
        resume=threads.interrupted(run),
    )
    if work.claim(run.issue, Trigger.RETRY, retry):
        work.await_retry(run.issue.id, work.now_ms)
        facts = policy.attempt_facts(retry, work.state.settings)
        work.notify("info", "run_interrupted", run.issue, run_id=run.run_id, **facts)


def _idle_attempts(run: Running, outcome: Outcome, failure: Failure | None) -> int:
    """Attempts in a row that left nothing behind (RT5).

    Where nobody can tell, the attempt neither counts nor forgives, unless no agent was there to do anything.
    """
    if outcome.progress:
        return 0
    unknown = outcome.progress is None and run.agent_ms is not None
    return run.idle_attempts + int(not unknown and policy.counts_as_idle(failure))


def _failure_of(run: Running, outcome: Outcome, section: str) -> Failure | None:
    if run.stopping is StopReason.STALLED and outcome.kind is not OutcomeKind.INPUT_REQUIRED:
        return Failure(
            category=Category.STALLED,
            blame=Blame.AGENT,
            message=f"the agent gave no sign of life within {section}.stall_timeout_ms",
        )
    if outcome.clean:
        return None
    return outcome.failure or Failure(
        category=Category.INTERNAL, blame=Blame.HOST, message=f"the run ended as {outcome.kind.value}"
    )


def no_progress(issue: Issue, attempts: int, last: Failure | None = None) -> Failure:
    """Why an issue is tried no more whose attempts leave nothing behind (RT5)."""
    tail = f"; the last one ended with {last.line}" if last else ""
    return Failure(
        category=Category.NO_PROGRESS,
        blame=Blame.AGENT,
        message=f"{attempts} attempts left neither a new commit nor a changed tree{tail}",
        retryable=False,
        hint=(
            "change the issue's state, labels, title or description to have it tried again, "
            f"or run `symphony unblock {issue.identifier}`"
        ),
    )


def stopped_by_operator(issue: Issue) -> Failure:
    """Why an issue is worked on no more that an operator stopped."""
    return Failure(
        category=Category.STOPPED_BY_OPERATOR,
        blame=Blame.HOST,
        message="an operator stopped it",
        retryable=False,
        hint=f"run `symphony retry {issue.identifier}` or `symphony unblock {issue.identifier}`",
    )


def _queue(
    work: Work,
    run: Running,
    *,
    attempt: int,
    delay_ms: int,
    idle: int,
    failure: Failure | None = None,
    resume: Resume | None = None,
    blameless: bool = False,
) -> None:
    """Wait for the next attempt; `blameless` means that another agent takes over, so nothing is counted."""
    issue, error = run.issue, failure.line if failure else None
    due_ms = work.now_ms + delay_ms
    retry = Retry(
        issue=issue,
        attempt=attempt,
        due_ms=due_ms,
        error=error,
        idle_attempts=idle,
        workspace_path=run.report.workspace_path,
        failures=run.failures + int(not blameless) if failure else 0,
        hopeless=failure is not None and not failure.retryable and not blameless,
        runs=run.runs,
        resume=resume,
    )
    if work.claim(issue, Trigger.RETRY, retry):
        work.await_retry(issue.id, due_ms)
        if error:
            facts = policy.attempt_facts(retry, work.state.settings)
            work.notify("info", "run_retrying", issue, **facts, delay_ms=delay_ms, reason=error)
