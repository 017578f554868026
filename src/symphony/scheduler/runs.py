"""The life of a run attempt: start, turns, silence (specification 7, 8.4, 16.5-16.6); `endings` has its end.

A run ends in exactly one `RunEnded`; until then it keeps slot and claim, whatever was asked of it.
"""

from dataclasses import replace

from symphony.domain import Blame, Category, Failure, Issue, add_counts, clamp_count
from symphony.scheduler import blocks, policy, results
from symphony.scheduler.messages import (
    ContinueRun,
    Exit,
    FinishReason,
    FinishRun,
    Outcome,
    OutcomeKind,
    Resume,
    RunReport,
    RunStage,
    StartRun,
    StopReason,
    StopRun,
    Timer,
    TimerKind,
    TurnEnded,
)
from symphony.scheduler.policy import Eligible, ReasonCode, TrackerStatus
from symphony.scheduler.state import Drain, Retry, Running, Step, Totals, Trigger

SETTLE_MS = 30_000
OVERSLEPT_MS = 10_000
_AGENT_STAGES = frozenset({RunStage.LAUNCHING_AGENT, RunStage.STREAMING_TURN})
_STOP_FOR = {
    TrackerStatus.TERMINAL: StopReason.TERMINAL,
    TrackerStatus.INACTIVE: StopReason.INACTIVE,
    TrackerStatus.UNROUTABLE: StopReason.UNROUTABLE,
    TrackerStatus.MISSING: StopReason.MISSING,
}


def start(work: Step, issue: Issue, *, retry: Retry | None = None) -> None:
    """Start a run attempt; the caller has judged the issue eligible on a fresh snapshot (SC9, SC10)."""
    attempt = retry.attempt if retry else None
    agent, resume = policy.plan_run(work.state, issue, retry.resume if retry else None)
    run = Running(
        run_id=f"{work.state.epoch}-{work.number()}",
        issue=issue,
        attempt=attempt,
        started_ms=work.now_ms,
        max_turns=work.state.settings.max_turns,
        attempts_without_progress=retry.attempts_without_progress if retry else 0,
        failures=retry.failures if retry else 0,
        runs=(retry.runs if retry else 0) + 1,
        report=RunReport(stage=RunStage.PREPARING_WORKSPACE, workspace_path=_known_path(work, issue.id)),
        resume=resume,
        agent=agent,
    )
    if not work.claim(issue, Trigger.START, run):
        return
    work.clear_timer(Timer(TimerKind.RETRY, issue.id))
    work.unpark(issue.id)
    work.emit(StartRun(run_id=run.run_id, issue=issue, attempt=attempt, resume=resume, agent=agent.name))
    blocks.on_start(work, issue)
    work.notify(
        "info",
        "run_started",
        issue,
        run_id=run.run_id,
        title=issue.title,
        **policy.attempt_facts(run, work.state.settings),
        agent=agent.name,
        agent_reason=agent.reason,
    )


def _known_path(work: Step, issue_id: str) -> str | None:
    """The workspace of an earlier attempt: a run that ends before it has one must not forget it (RT7)."""
    if retry := work.state.retrying.get(issue_id):
        return retry.workspace_path
    parked = work.state.idle_workspaces.get(issue_id)
    return parked.path if parked else None


def stop(work: Step, run: Running, reason: StopReason) -> None:
    """Ask a run to stop in mid-turn; its end decides what follows (SC13)."""
    if run.stopping is not None:
        return
    if work.claim(run.issue, Trigger.STOP, replace(run, stopping=reason)):
        work.emit(StopRun(run_id=run.run_id, reason=reason))
        work.notify("info", "run_stopping", run.issue, run_id=run.run_id, reason=reason.value)


def finish(work: Step, run: Running, reason: FinishReason, failure: Failure | None = None) -> None:
    """Give a run that waits between turns no further turn (AG8); one that is being stopped hears nothing."""
    if run.stopping is not None:
        return
    work.set_running(replace(run, awaiting_refresh=False, finishing=reason))
    work.emit(FinishRun(run_id=run.run_id, reason=reason, failure=failure))


# --- while it runs ---------------------------------------------------------------------------------------


def on_agent_report(work: Step, run: Running, report: RunReport) -> None:
    """Take over what the pump folded; the silence clock starts when the agent does (SC11).

    An issue that used up its tokens is stopped in mid-turn, as the rest of a turn may cost any number.
    """
    report = _within_bounds(report)
    policy.count(work, run, report)
    alive = report.event_count != run.report.event_count or report.stage is not run.report.stage
    entered = report.stage in _AGENT_STAGES and report.stage is not run.report.stage
    path = report.workspace_path or run.report.workspace_path
    run = replace(
        run,
        report=replace(report, workspace_path=path),
        agent_started_ms=work.now_ms if entered and run.agent_started_ms is None else run.agent_started_ms,
        last_activity_ms=work.now_ms if alive else run.last_activity_ms,
    )
    work.set_running(run)
    if report.rate_limits is not None:
        work.update(rate_limits=report.rate_limits)
    if entered:
        arm_silence(work, run, since_ms=work.now_ms)
    in_turn = not run.awaiting_refresh and not run.finishing and report.stage is not RunStage.FINISHING
    if in_turn and policy.tokens_used(work.state, run.issue):
        stop(work, run, StopReason.BUDGET)


def _within_bounds(report: RunReport) -> RunReport:
    """The report with counts that can be added up and written down, whatever a recording holds."""
    counts = (report.input_tokens, report.output_tokens, report.total_tokens, report.turn_count)
    if all(count == clamp_count(count) for count in counts):
        return report
    return replace(
        report,
        input_tokens=clamp_count(report.input_tokens),
        output_tokens=clamp_count(report.output_tokens),
        total_tokens=clamp_count(report.total_tokens),
        turn_count=clamp_count(report.turn_count),
    )


def arm_silence(work: Step, run: Running, *, since_ms: int) -> None:
    """Set the stall timer of a run so that it fires at the first moment that exceeds its agent's limit."""
    limit = work.state.settings.agent_info(run.agent.name).stall_timeout_ms
    if limit > 0:
        work.set_timer(Timer(TimerKind.STALL, run.run_id), since_ms + limit + 1)


def judge_silence(work: Step, run: Running) -> None:
    """Stop a run whose agent has been silent for longer than the limit (strictly), else look again."""
    limit = work.state.settings.agent_info(run.agent.name).stall_timeout_ms
    if limit <= 0 or run.stopping or run.finishing or run.report.stage is RunStage.FINISHING:
        return
    if run.agent_started_ms is None:
        return
    heard = work.now_ms if run.awaiting_refresh else (run.last_activity_ms or run.agent_started_ms)
    if work.now_ms - heard > limit:
        stop(work, run, StopReason.STALLED)
    else:
        arm_silence(work, run, since_ms=heard)


def forgive_sleep(work: Step, late_ms: int) -> None:
    """After a timer that came far too late, count every silence anew (SC11).

    The machine was suspended or the daemon stopped: agents had no chance to speak, or to be heard.
    """
    if late_ms <= OVERSLEPT_MS:
        return
    asleep = [run for run in work.state.running.values() if run.agent_started_ms is not None]
    if asleep and any(run.last_activity_ms != work.now_ms for run in asleep):
        work.notify("warning", "overslept", late_ms=late_ms)
    for run in asleep:
        work.set_running(replace(run, last_activity_ms=work.now_ms))
        arm_silence(work, run, since_ms=work.now_ms)
        if run.in_grace_period:
            work.set_timer(Timer(TimerKind.GRACE, run.run_id), work.now_ms + SETTLE_MS)


def on_turn_ended(work: Step, run: Running, ended: TurnEnded) -> None:
    """A turn completed: ask the tracker before deciding on the next one (SM5, AG8).

    Turns in a row that left no trace are counted; one of which that is unknown changes nothing.
    An end of another turn than the one that runs is late or repeated, and means nothing.
    """
    if run.stopping or run.finishing or run.awaiting_refresh or ended.turn != run.turn:
        return
    idle_turns = 0 if ended.trace else run.turns_without_progress + int(ended.trace is False)
    waiting = replace(
        run, awaiting_refresh=True, last_activity_ms=work.now_ms, turns_without_progress=idle_turns
    )
    work.set_running(waiting)
    if work.state.drain is not Drain.NO:
        finish(work, waiting, FinishReason.DRAINING)
    else:
        work.update(ids_to_refresh=work.state.ids_to_refresh | {run.issue.id})


def on_running_refreshed(work: Step, run: Running, issue: Issue | None) -> None:
    """Apply a fresh snapshot to a run (SC12); between turns it also decides on the next one (AG8)."""
    if run.stopping or run.finishing:
        return
    standing = policy.tracker_status(issue, work.state.settings)
    run = replace(run, issue=issue or run.issue)
    work.set_running(run)
    if standing is TrackerStatus.ACTIVE:
        _go_on(work, run)
    elif run.awaiting_refresh:
        finish(work, run, FinishReason.INACTIVE)
    elif run.report.tool_calls == 0:
        stop(work, run, _STOP_FOR[standing])
    elif not run.in_grace_period:
        # The session itself may have just moved its issue; let its turn come to an end, but not for ever.
        work.set_running(replace(run, in_grace_period=True))
        work.set_timer(Timer(TimerKind.GRACE, run.run_id), work.now_ms + SETTLE_MS)


def _go_on(work: Step, run: Running) -> None:
    run = replace(run, in_grace_period=False)
    most_idle = work.state.settings.max_turns_without_progress
    work.clear_timer(Timer(TimerKind.GRACE, run.run_id))
    if not run.awaiting_refresh:
        work.set_running(run)
    elif policy.budget_failure(work.state, run.issue):
        finish(work, run, FinishReason.BUDGET)
    elif run.turn >= run.max_turns:
        finish(work, run, FinishReason.MAX_TURNS)
    elif most_idle is not None and run.turns_without_progress >= most_idle:
        finish(work, run, FinishReason.NO_PROGRESS)
    else:
        report = replace(run.report, tool_calls=0)
        run = replace(
            run, awaiting_refresh=False, turn=run.turn + 1, last_activity_ms=work.now_ms, report=report
        )
        work.set_running(run)
        work.emit(ContinueRun(run_id=run.run_id, issue=run.issue, turn=run.turn))


def on_settled(work: Step, run: Running) -> None:
    """The grace for a session that moved its own issue is over; judge by the last snapshot."""
    standing = policy.tracker_status(run.issue, work.state.settings)
    if run.in_grace_period and not run.awaiting_refresh and not run.finishing:
        reason = _STOP_FOR.get(standing, StopReason.MISSING)
        stop(work, run, reason)


# The end of a run attempt: account for it, then retry, block or release its claim (SM4, SM7, RT2-RT5).


def on_run_ended(work: Step, run: Running, outcome: Outcome) -> None:
    """Account for the run, then decide on its claim; on the way out a successor gets it (SM4, RT2-RT5)."""
    _account(work, run)
    results.record(work, run, outcome)
    policy.learn(work, run, outcome)
    work.clear_timer(Timer(TimerKind.STALL, run.run_id))
    work.clear_timer(Timer(TimerKind.GRACE, run.run_id))
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


def _account(work: Step, run: Running) -> None:
    totals, report = work.state.totals, run.report
    spent = 0 if run.agent_started_ms is None else work.now_ms - run.agent_started_ms
    work.update(
        totals=Totals(
            input_tokens=add_counts(totals.input_tokens, report.input_tokens),
            output_tokens=add_counts(totals.output_tokens, report.output_tokens),
            total_tokens=add_counts(totals.total_tokens, report.total_tokens),
            running_ms=totals.running_ms + spent,
        )
    )


def _decide_next(work: Step, run: Running, outcome: Outcome) -> None:
    failure = _failure_of(run, outcome, work.state.settings.agent_info(run.agent.name).section)
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
    elif failure.category in policy.LIMITS:
        _after_limit(work, run, outcome, failure)
    else:
        _after_failure(work, run, outcome, failure)


def _after_failure(work: Step, run: Running, outcome: Outcome, failure: Failure) -> None:
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
    resume = blocks.resume_interrupted(run) if blameless else blocks.after_failure(run)
    _queue(work, run, attempt=attempt, delay_ms=delay, idle=idle, failure=failure, resume=resume)


def _queue_anew(work: Step, run: Running, failure: Failure) -> None:
    """The same attempt begins anew, as nobody knows that the agent is to blame; a second time it counts."""
    attempt, idle = run.attempt or 1, run.attempts_without_progress
    delay = policy.backoff_ms(1, work.state.settings.max_retry_backoff_ms)
    resume = blocks.after_failure(run)
    _queue(work, run, attempt=attempt, delay_ms=delay, idle=idle, failure=failure, resume=resume)


def _after_limit(work: Step, run: Running, outcome: Outcome, failure: Failure) -> None:
    """The fallback takes over at once; without one the issue waits until its agent may be asked again."""
    idle = _idle_attempts(run, outcome, failure)
    attempt, resume = (run.attempt or 0) + 1, blocks.after_failure(run)
    until_ms = policy.agent_limited_until(work.state, run.issue, policy.thread_agent(resume))
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


def _out_of_budget(work: Step, run: Running, outcome: Outcome) -> None:
    """The budget that ended the run is judged anew, as somebody may have raised it since."""
    failure = policy.budget_failure(work.state, run.issue)
    if failure is None:
        _go_on_later(work, run, outcome)
    else:
        blocks.block(work, run.issue, failure, held=run)


def _interrupted(run: Running, outcome: Outcome) -> bool:
    """Whether the run was ended by our own end, and not by anything of its own."""
    asked_to_end = run.finishing is FinishReason.DRAINING and outcome.clean
    return asked_to_end or run.stopping is StopReason.DRAINING


def _go_on_later(work: Step, run: Running, outcome: Outcome) -> None:
    """The same attempt goes on as soon as somebody can take it up; nothing counts against the issue."""
    retry = Retry(
        issue=run.issue,
        attempt=run.attempt or 1,
        due_ms=work.now_ms,
        error=None,
        attempts_without_progress=0 if outcome.progress else run.attempts_without_progress,
        workspace_path=run.report.workspace_path,
        failures=run.failures,
        runs=run.runs - 1,
        resume=blocks.resume_interrupted(run),
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
    unknown = outcome.progress is None and run.agent_started_ms is not None
    return run.attempts_without_progress + int(not unknown and policy.counts_as_no_progress(failure))


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
    work: Step,
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
        attempts_without_progress=idle,
        workspace_path=run.report.workspace_path,
        failures=run.failures + int(not blameless) if failure else 0,
        non_retryable=failure is not None and not failure.retryable and not blameless,
        runs=run.runs,
        resume=resume,
    )
    if work.claim(issue, Trigger.RETRY, retry):
        work.await_retry(issue.id, due_ms)
        if error:
            facts = policy.attempt_facts(retry, work.state.settings)
            work.notify("info", "run_retrying", issue, **facts, delay_ms=delay_ms, reason=error)


# A retry comes due: it meets a fresh snapshot, and starts, waits, blocks or goes (RT6, RT7).


NO_SLOT_ERROR = "no available orchestrator slots"


def on_due(work: Step, issue_id: str) -> None:
    """The timer fired: ask for a fresh snapshot, unless we are on the way out."""
    retry = work.state.retrying.get(issue_id)
    if retry is not None and work.state.drain is Drain.NO:
        work.set_retry(replace(retry, refreshing=True))
        work.update(ids_to_refresh=work.state.ids_to_refresh | {issue_id})


def make_due(work: Step, retry: Retry) -> None:
    """Have a waiting claim come due now, unless it is due already."""
    if not retry.refreshing:
        work.set_retry(replace(retry, due_ms=work.now_ms))
        work.await_retry(retry.issue.id, work.now_ms)


def end_of_pause(work: Step) -> None:
    """Have those come due that only waited for the daemon to be resumed."""
    for retry in tuple(work.state.retrying.values()):
        if retry.due_ms <= work.now_ms:
            make_due(work, retry)


def fire_due(work: Step) -> None:
    """Have all that are due by now asked about together, so that they start in the order of dispatch."""
    for retry in tuple(work.state.retrying.values()):
        if retry.due_ms <= work.now_ms and not retry.refreshing:
            work.clear_timer(Timer(TimerKind.RETRY, retry.issue.id))
            on_due(work, retry.issue.id)


def requeue(work: Step, retry: Retry, error: str, *, failure: Failure | None = None) -> None:
    """Put a due retry back with the next attempt number and the failure formula (RT6)."""
    attempt = retry.attempt + 1
    delay_ms = policy.backoff_ms(attempt, work.state.settings.max_retry_backoff_ms)
    due_ms = work.now_ms + delay_ms
    entry = replace(retry, attempt=attempt, due_ms=due_ms, error=error, refreshing=False)
    if failure is not None:
        entry = replace(entry, failures=retry.failures + 1, non_retryable=not failure.retryable)
    if work.claim(retry.issue, Trigger.RETRY, entry):
        work.await_retry(retry.issue.id, due_ms)
        facts = policy.attempt_facts(entry, work.state.settings)
        work.notify("info", "run_retrying", retry.issue, **facts, delay_ms=delay_ms, reason=error)


def on_refreshed(work: Step, retry: Retry, issue: Issue | None) -> None:
    """A due retry meets a fresh snapshot: clean, release, block, wait or start (RT6)."""
    settings, path = work.state.settings, retry.workspace_path
    if work.state.drain is not Drain.NO:
        return
    match policy.tracker_status(issue, settings):
        case TrackerStatus.TERMINAL:
            blocks.clean_and_release(work, retry.issue, path)
        case TrackerStatus.ACTIVE if issue is not None:
            _start_retry(work, replace(retry, issue=issue))
        case _:
            blocks.release(work, retry.issue, path=path)


def _start_retry(work: Step, retry: Retry) -> None:
    """A start that its budget does not allow blocks instead, whatever else is in the way."""
    if retry.attempts_without_progress >= work.state.settings.max_attempts_without_progress:
        idle = no_progress(retry.issue, retry.attempts_without_progress)
        blocks.block(work, retry.issue, idle, held=retry)
    elif used := policy.budget_failure(work.state, retry.issue):
        blocks.block(work, retry.issue, used, held=retry)
    else:
        _start_or_wait(work, retry)


def _start_or_wait(work: Step, retry: Retry) -> None:
    """Start a due retry if nothing but its own claim is in the way; the attempt counts only against slots.

    One that waits for the end of a pause stays due, so that it starts at once when the daemon is resumed. One
    whose agent is limited comes due when that is over.
    """
    verdict = policy.eligibility(retry.issue, work.state, own_claim=True)
    if isinstance(verdict, Eligible):
        start(work, retry.issue, retry=retry)
    elif verdict.code in {ReasonCode.NO_SLOT, ReasonCode.NO_STATE_SLOT}:
        requeue(work, retry, NO_SLOT_ERROR)
    elif verdict.code is ReasonCode.AGENT_LIMITED:
        until_ms = policy.agent_limited_until(work.state, retry.issue, policy.thread_agent(retry.resume))
        due_ms = max(until_ms or 0, work.now_ms)
        work.set_retry(replace(retry, refreshing=False, due_ms=due_ms))
        work.await_retry(retry.issue.id, due_ms)
    else:
        again_ms = work.now_ms + work.state.settings.poll_interval_ms
        due_ms = retry.due_ms if verdict.code is ReasonCode.PAUSED else again_ms
        work.set_retry(replace(retry, refreshing=False, due_ms=due_ms))
        work.await_retry(retry.issue.id, again_ms)


# The way out: what runs comes to an end, what is claimed is left to a successor (SC16, CL6).


_DRAIN = Timer(TimerKind.DRAIN)


def drain(work: Step, *, patient: bool = False) -> None:
    """Let turns come to their end and start nothing; after `drain_timeout_ms` what still runs is stopped.

    A patient drain, which an operator asks for, has no such end: a turn is bounded by its own limits. A
    signal that comes after it sets one.
    """
    first = work.state.drain is Drain.NO
    if first:
        work.update(drain=Drain.DRAINING, pending_candidates=frozenset())
        work.notify("info", "draining", running=len(work.state.running))
    if not patient and work.state.drain is Drain.DRAINING and _DRAIN not in work.state.timers:
        work.set_timer(_DRAIN, work.now_ms + work.state.settings.drain_timeout_ms)
    if first:
        for run in tuple(work.state.running.values()):
            if run.awaiting_refresh:
                finish(work, run, FinishReason.DRAINING)
            elif run.report.stage not in {RunStage.STREAMING_TURN, RunStage.FINISHING}:
                stop(work, run, StopReason.DRAINING)


def stop_all(work: Step) -> None:
    """End everything now."""
    if work.state.drain is Drain.NO:
        work.update(drain=Drain.DRAINING)
    for run in tuple(work.state.running.values()):
        stop(work, run, StopReason.DRAINING)


def leave(work: Step) -> None:
    """Say goodbye once, when nothing runs any more."""
    if work.state.drain is Drain.DRAINING and not work.state.running:
        work.update(drain=Drain.EXITED)
        work.emit(Exit())
