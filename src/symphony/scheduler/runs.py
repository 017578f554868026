"""The life of a run: start, turns, end and retry (specification sections 7, 8.4 and 16), and the shutdown.

A run ends in exactly one `RunEnded`. Until it arrives, the run keeps its slot and its claim.
"""

import shlex
from dataclasses import replace
from typing import Final

from msgspec import structs

from symphony.domain import NO_TOKENS, Blame, Category, Failure, Issue, RunFacts, clamp_count, plural
from symphony.scheduler import agents, blocks, budgets, hosts, policy, results, verification
from symphony.scheduler.messages import (
    ContinueRun,
    Exit,
    FinishReason,
    FinishRun,
    Outcome,
    OutcomeKind,
    Resume,
    ResumeReason,
    RunReport,
    RunStage,
    StartRun,
    StopReason,
    StopRun,
    Timer,
    TimerKind,
    Totals,
    TurnEnded,
)
from symphony.scheduler.overlap import with_overlaps_told
from symphony.scheduler.policy import Eligible, ReasonCode, TrackerStatus
from symphony.scheduler.resume import resume_after_failure, resume_interrupted
from symphony.scheduler.state import Drain, Retry, Running, State, Step, Trigger

NO_SLOT_ERROR: Final = "no available orchestrator slots"

_GRACE_MS = 30_000
_SUSPENDED_AFTER_MS = 10_000
_DRAIN_TIMER = Timer(TimerKind.DRAIN)
_STAGES_WITH_AGENT = frozenset({RunStage.LAUNCHING_AGENT, RunStage.STREAMING_TURN})
_ENDING = frozenset({RunStage.FINISHING, RunStage.VERIFYING})
_STOP_REASONS = {
    TrackerStatus.TERMINAL: StopReason.TERMINAL,
    TrackerStatus.INACTIVE: StopReason.INACTIVE,
    TrackerStatus.UNROUTABLE: StopReason.UNROUTABLE,
    TrackerStatus.MISSING: StopReason.MISSING,
}

# --- start and stop --------------------------------------------------------------------------------------


def start(step: Step, issue: Issue, *, retry: Retry | None = None) -> None:
    """Start a run attempt of an issue that is eligible by a fresh snapshot."""
    attempt = retry.attempt if retry else None
    agent, resume = agents.plan_run(step.state, issue, retry.resume if retry else None)
    phase = policy.phase_of(issue, step.state.settings)
    host = hosts.choose_host(step.state, issue.id)
    workspace = step.state.remote_workspaces.get(issue.id)
    # The run may end before it has a workspace and must not forget the workspace of an earlier attempt.
    earlier = step.state.retrying.get(issue.id)
    idle = step.state.idle_workspaces.get(issue.id)
    path = earlier.workspace_path if earlier else (idle.path or None) if idle else None
    run = Running(
        run_id=f"{step.state.epoch}-{step.next_serial()}",
        issue=issue,
        attempt=attempt,
        started_ms=step.now_ms,
        max_turns=step.state.settings.max_turns,
        attempts_without_progress=retry.attempts_without_progress if retry else 0,
        failures=retry.failures if retry else 0,
        runs=(retry.runs if retry else 0) + 1,
        report=RunReport(stage=RunStage.PREPARING_WORKSPACE, facts=RunFacts(workspace_path=path)),
        resume=resume,
        agent=agent,
        phase=phase,
        host=host,
        worked_in=_active_state(step, issue),
        verifies=resume is not None and resume.reason is ResumeReason.VERIFY,
    )
    if not step.change_claim(issue, Trigger.START, run):
        return
    if retry is None:
        results.on_restarted(step, issue.id)
    step.clear_timer(Timer(TimerKind.RETRY, issue.id))
    step.forget_idle_workspace(issue.id)
    hosts.on_run_started(step, issue, host)
    agents.on_run_started(step, run)
    step.emit(
        StartRun(
            run_id=run.run_id,
            issue=issue,
            attempt=attempt,
            resume=resume,
            agent=agent.name,
            phase=phase,
            host=host,
            last_host=workspace.host if workspace else None,
            last_identifier=workspace.identifier if workspace else None,
        )
    )
    blocks.move_on_start(step, issue, resume)
    step.notify(
        "info",
        "run_started",
        issue,
        run_id=run.run_id,
        title=issue.title,
        **policy.attempt_fields(run, step.state.settings),
        agent=agent.name,
        agent_reason=agent.reason,
        host=host,
    )


def _active_state(step: Step, issue: Issue) -> str | None:
    return issue.state if policy.in_active_state(issue, step.state.settings) else None


def stop(step: Step, run: Running, reason: StopReason) -> None:
    """Stop a run in the middle of a turn. The end of the run decides what follows."""
    if run.stopping is not None:
        return
    verify = verification.is_due(step.state, run, reason)
    run = verification.begun(run) if verify else replace(run, verifies=False)
    if step.change_claim(run.issue, Trigger.STOP, replace(run, stopping=reason)):
        step.emit(StopRun(run_id=run.run_id, reason=reason, verify=verify))
        step.notify("info", "run_stopping", run.issue, run_id=run.run_id, reason=reason.value)


def finish(step: Step, run: Running, reason: FinishReason, failure: Failure | None = None) -> None:
    """End a run that waits between turns, unless it is already being stopped."""
    if run.stopping is None:
        verify = failure is None and verification.is_due(step.state, run, reason)
        run = verification.begun(run) if verify else run
        step.replace_entry(replace(run, awaiting_refresh=False, finishing=reason))
        step.emit(FinishRun(run_id=run.run_id, reason=reason, failure=failure, verify=verify))


# --- turns -----------------------------------------------------------------------------------------------


def on_agent_report(step: Step, run: Running, report: RunReport) -> None:
    """Take over a report, and stop an issue that used up its tokens in the middle of a turn."""
    facts = structs.replace(
        report.facts,
        workspace_path=report.facts.workspace_path or run.report.facts.workspace_path,
        tokens=NO_TOKENS.plus(report.facts.tokens),  # within bounds
        turn_count=clamp_count(report.facts.turn_count),
    )
    report = replace(report, facts=facts)
    budgets.count_usage(step, run, report)
    new_stage = report.stage is not run.report.stage
    active = new_stage or report.event_count != run.report.event_count
    agent_stage = new_stage and report.stage in _STAGES_WITH_AGENT
    run = replace(
        run,
        report=report,
        agent_started_ms=step.now_ms
        if agent_stage and run.agent_started_ms is None
        else run.agent_started_ms,
        last_activity_ms=step.now_ms if active else run.last_activity_ms,
        reported_turn=facts.turn_count if budgets.reports_tokens(run, report) else run.reported_turn,
    )
    step.replace_entry(run)
    if report.rate_limits is not None:
        step.update(rate_limits=report.rate_limits)
    if report.pid is not None:
        hosts.on_agent_started(step, run)
    if agent_stage:
        _set_stall_timer(step, run, since_ms=step.now_ms)
    in_turn = not run.awaiting_refresh and not run.finishing and report.stage not in _ENDING
    in_review = report.stage is RunStage.VERIFYING and facts.reviewer_tokens != NO_TOKENS
    if (in_turn or in_review) and budgets.token_budget_failure(step.state, run.issue):
        stop(step, run, StopReason.BUDGET)


def on_turn_ended(step: Step, run: Running, event: TurnEnded) -> None:
    """Refresh the issue before deciding on the next turn; the end of another turn is ignored."""
    if run.stopping or run.finishing or run.awaiting_refresh or event.turn != run.turn:
        return
    budgets.tell_silence(step, run)
    idle_turns = 0 if event.trace else run.turns_without_progress + int(event.trace is False)
    run = replace(
        run,
        awaiting_refresh=True,
        last_activity_ms=step.now_ms,
        turns_without_progress=idle_turns,
        changed=frozenset(event.changed),
    )
    step.replace_entry(run)
    if step.state.drain is not Drain.NO:
        finish(step, run, FinishReason.DRAINING)
    else:
        step.request_refresh(run.issue.id)


def on_running_refreshed(step: Step, run: Running, issue: Issue | None) -> None:
    """Apply a snapshot to a run: continue it, end it between turns, or stop it in the middle of one."""
    if run.stopping or run.finishing:
        return
    status = policy.tracker_status(issue, step.state.settings)
    run = replace(run, issue=issue or run.issue)
    if issue is not None:
        run = replace(
            run,
            resume=policy.seen_elsewhere(issue, run.resume),
            worked_in=_active_state(step, issue) or run.worked_in,
        )
    step.replace_entry(run)
    if status is TrackerStatus.ACTIVE:
        _continue(step, run)
    elif run.awaiting_refresh:
        finish(step, run, FinishReason.INACTIVE)
    elif issue is not None and policy.may_work(issue, run.resume, step.state.settings):
        return  # the work was handed off before the run
    elif run.report.tool_calls == 0:
        stop(step, run, _STOP_REASONS[status])
    elif not run.in_grace_period:
        # The session may have moved its own issue just now: let the turn end, but not wait forever.
        step.replace_entry(replace(run, in_grace_period=True))
        step.set_timer(Timer(TimerKind.GRACE, run.run_id), step.now_ms + _GRACE_MS)


def _continue(step: Step, run: Running) -> None:
    run = replace(run, in_grace_period=False)
    step.clear_timer(Timer(TimerKind.GRACE, run.run_id))
    max_idle_turns = step.state.settings.budget.max_turns_without_progress
    if not run.awaiting_refresh:
        step.replace_entry(run)
    elif budgets.budget_failure(step.state, run.issue):
        finish(step, run, FinishReason.BUDGET)
    elif run.turn >= run.max_turns:
        finish(step, run, FinishReason.MAX_TURNS)
    elif max_idle_turns is not None and run.turns_without_progress >= max_idle_turns:
        finish(step, run, FinishReason.NO_PROGRESS)
    else:
        run = replace(
            run,
            awaiting_refresh=False,
            turn=run.turn + 1,
            last_activity_ms=step.now_ms,
            report=replace(run.report, tool_calls=0),
            phase=policy.phase_of(run.issue, step.state.settings),
        )
        run, new = with_overlaps_told(step.state, run)
        step.replace_entry(run)
        step.emit(
            ContinueRun(run_id=run.run_id, issue=run.issue, turn=run.turn, phase=run.phase, overlaps=new)
        )


def on_grace_period_over(step: Step, run: Running) -> None:
    """Stop a session that moved its own issue but does not end its turn."""
    if run.in_grace_period and not run.awaiting_refresh and not run.finishing:
        status = policy.tracker_status(run.issue, step.state.settings)
        stop(step, run, _STOP_REASONS.get(status, StopReason.MISSING))


# --- stalls ----------------------------------------------------------------------------------------------


def _set_stall_timer(step: Step, run: Running, *, since_ms: int) -> None:
    limit_ms = step.state.settings.agent_info(run.agent.name).stall_timeout_ms
    if limit_ms > 0:
        step.set_timer(Timer(TimerKind.STALL, run.run_id), since_ms + limit_ms + 1)


def check_stall(step: Step, run: Running) -> None:
    """Stop a run whose agent was silent for longer than its limit, or check again later."""
    limit_ms = step.state.settings.agent_info(run.agent.name).stall_timeout_ms
    if limit_ms <= 0 or run.stopping or run.finishing or run.report.stage in _ENDING:
        return
    if run.agent_started_ms is None:
        return
    active_ms = step.now_ms if run.awaiting_refresh else (run.last_activity_ms or run.agent_started_ms)
    if step.now_ms - active_ms > limit_ms:
        stop(step, run, StopReason.STALLED)
    else:
        _set_stall_timer(step, run, since_ms=active_ms)


def on_overdue_timer(step: Step, overdue_ms: int) -> None:
    """Restart all stall timeouts if a timer fired much too late.

    The machine was suspended or the daemon was stopped, so that agents could not report.
    """
    if overdue_ms <= _SUSPENDED_AFTER_MS:
        return
    runs = [run for run in step.state.running.values() if run.agent_started_ms is not None]
    if any(run.last_activity_ms != step.now_ms for run in runs):
        step.notify("warning", "overslept", late_ms=overdue_ms)
    for run in runs:
        step.replace_entry(replace(run, last_activity_ms=step.now_ms))
        _set_stall_timer(step, run, since_ms=step.now_ms)
        if run.in_grace_period:
            step.set_timer(Timer(TimerKind.GRACE, run.run_id), step.now_ms + _GRACE_MS)


# --- end -------------------------------------------------------------------------------------------------


def totals_with(state: State, *runs: Running, now_ms: int) -> Totals:
    """The totals with what these runs used so far."""
    totals, known = state.totals, set(state.known_issues)
    for run in runs:
        facts, issue_id = run.report.facts, run.issue.id
        has_session = facts.session_id is not None
        agent_ms = 0 if run.agent_started_ms is None else now_ms - run.agent_started_ms
        totals = Totals(
            usage=totals.usage.plus(facts),
            sessions=totals.sessions + has_session,
            issues=totals.issues + (has_session and issue_id not in known),
            running_ms=totals.running_ms + agent_ms,
        )
        known |= {issue_id} if has_session else set()
    return totals


def on_run_ended(step: Step, run: Running, outcome: Outcome) -> None:
    """Account for a run, then decide on its claim."""
    facts = run.report.facts
    step.update(totals=totals_with(step.state, run, now_ms=step.now_ms))
    if facts.session_id is not None:
        step.update(known_issues=step.remember(step.state.known_issues, run.issue.id))
    results.on_run_ended(step, run, outcome)
    agents.on_run_ended(step, run, outcome)
    hosts.on_run_ended(step, run, outcome)
    step.clear_timer(Timer(TimerKind.STALL, run.run_id))
    step.clear_timer(Timer(TimerKind.GRACE, run.run_id))
    step.notify(
        "info" if outcome.kind is OutcomeKind.SUCCEEDED else "warning",
        "run_ended",
        run.issue,
        run_id=run.run_id,
        session_id=facts.session_id or "n/a",
        outcome=outcome.kind.value,
        reason=outcome.failure.line if outcome.failure else (run.stopping or run.finishing or None),
        hint=outcome.failure.hint if outcome.failure else None,
        turns=facts.turn_count,
        commits=facts.work.commits,
        agent=run.agent.name,
        agent_reason=run.agent.reason,
        host=run.machine,
    )
    by_hand = verification.is_by_hand(run)
    if by_hand and (outcome.verification is not None or step.state.drain is Drain.NO):
        _give_up(step, run.issue, facts.workspace_path)
    elif run.verifies and not verification.is_over(outcome):
        _after_failed_verification(step, run, outcome)
    elif run.stopping is StopReason.TERMINAL:
        blocks.clean_and_release(step, run.issue, facts.workspace_path)
    elif run.stopping in {StopReason.INACTIVE, StopReason.UNROUTABLE, StopReason.MISSING}:
        blocks.release(step, run.issue, path=facts.workspace_path)
    else:
        _decide_next(step, run, outcome)
    results.on_refreshed(step, run.issue.id, None if run.stopping is StopReason.MISSING else run.issue)


def _give_up(step: Step, issue: Issue, path: str | None) -> None:
    """End a claim for good."""
    if policy.tracker_status(issue, step.state.settings) is TrackerStatus.TERMINAL:
        blocks.clean_and_release(step, issue, path)
    else:
        blocks.release(step, issue, path=path)


def _after_failed_verification(step: Step, run: Running, outcome: Outcome) -> None:
    """Send the work back to its agent or to a person, or verify again after an interruption."""
    if outcome.verification is not None:
        resume = verification.send_back(step, run, outcome.verification)
        if resume is not None:
            without_progress = _attempts_without_progress(run, outcome, None)
            delay_ms = policy.CONTINUATION_DELAY_MS
            _queue_retry(
                step, run, attempt=1, delay_ms=delay_ms, without_progress=without_progress, resume=resume
            )
    elif step.state.drain is not Drain.NO:
        _continue_later(step, run, outcome)
    else:
        failure = outcome.failure or verification.NOT_DONE
        if not verification.is_given_up(step, run, failure):
            _retry_after_failure(step, run, outcome, failure)


def _decide_next(step: Step, run: Running, outcome: Outcome) -> None:
    """Block the issue, continue the run later, or retry."""
    failure = _failure_of(step, run, outcome)
    out_of_budget = run.stopping is StopReason.BUDGET or run.finishing is FinishReason.BUDGET
    drained = run.stopping is StopReason.DRAINING or (
        run.finishing is FinishReason.DRAINING and outcome.clean
    )
    if run.stopping is StopReason.OPERATOR:
        blocks.block(step, run.issue, stopped_by_operator(run.issue), held=run)
    elif failure is not None and outcome.kind is OutcomeKind.INPUT_REQUIRED:
        blocks.block(step, run.issue, failure, held=run, question=outcome.question, request=outcome.request)
    elif out_of_budget and (used := budgets.budget_failure(step.state, run.issue)):
        blocks.block(step, run.issue, used, held=run)
    elif out_of_budget or drained:  # the budget may have been raised since
        _continue_later(step, run, outcome)
    elif failure is None:
        if outcome.kind is OutcomeKind.SUCCEEDED:
            step.update(completed=step.remember(step.state.completed, run.issue.id))
        without_progress = _attempts_without_progress(run, outcome, None)
        _queue_retry(
            step, run, attempt=1, delay_ms=policy.CONTINUATION_DELAY_MS, without_progress=without_progress
        )
    elif failure.category is Category.ISSUE_TOO_LONG:
        blocks.block(step, run.issue, failure, held=run)
    else:
        _retry_after_failure(step, run, outcome, failure)


def _failure_of(step: Step, run: Running, outcome: Outcome) -> Failure | None:
    if run.stopping is StopReason.STALLED and outcome.kind is not OutcomeKind.INPUT_REQUIRED:
        section = step.state.settings.agent_info(run.agent.name).section
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


def _continue_later(step: Step, run: Running, outcome: Outcome) -> None:
    """Continue the same attempt as soon as a daemon can; nothing counts against the issue."""
    retry = Retry(
        issue=run.issue,
        attempt=run.attempt or 1,
        due_ms=step.now_ms,
        error=None,
        attempts_without_progress=0 if outcome.progress else run.attempts_without_progress,
        workspace_path=run.report.facts.workspace_path,
        failures=run.failures,
        runs=run.runs - 1,
        resume=resume_interrupted(run),
        may_have_moved=run.report.tool_calls > 0,
    )
    if step.change_claim(run.issue, Trigger.RETRY, retry):
        step.set_retry_timer(run.issue.id, step.now_ms)
        fields = policy.attempt_fields(retry, step.state.settings)
        step.notify("info", "run_interrupted", run.issue, run_id=run.run_id, **fields)


def _retry_after_failure(step: Step, run: Running, outcome: Outcome, failure: Failure) -> None:
    """Retry after a delay, or block the issue after too many attempts without progress."""
    settings = step.state.settings
    attempt, resume = (run.attempt or 0) + 1, resume_after_failure(run)
    limited = failure.category in agents.LIMIT_CATEGORIES
    delay_ms = policy.backoff_ms(attempt, settings.max_retry_backoff_ms)
    without_progress = _attempts_without_progress(run, outcome, failure)
    if failure.category is Category.WORKSPACE_VANISHED and run.failures == 0:
        # The agent may not be at fault: repeat the same attempt, once.
        attempt, without_progress = run.attempt or 1, run.attempts_without_progress
        delay_ms = policy.backoff_ms(1, settings.max_retry_backoff_ms)
    elif limited:
        attempt, resume = run.attempt or 1, resume_interrupted(run)  # the conversation is not at fault
        limited_until_ms = agents.agent_limited_until(step.state, run.issue)
        if limited_until_ms is not None:
            delay_ms = limited_until_ms - step.now_ms
        elif agents.is_limited(step.state, run.agent.name):  # the fallback takes over, else another host
            delay_ms = policy.CONTINUATION_DELAY_MS
    elif without_progress >= settings.budget.max_attempts_without_progress:
        blocks.block(step, run.issue, no_progress(run.issue, without_progress, failure), held=run)
        return
    else:
        delay_ms = max(delay_ms, failure.retry_after_ms or 0)
        if run.finishing is FinishReason.REFRESH_FAILED:  # the tracker failed, not the run
            resume = resume_interrupted(run)
    _queue_retry(
        step,
        run,
        attempt=attempt,
        delay_ms=delay_ms,
        without_progress=without_progress,
        failure=failure,
        resume=resume,
        counts_as_failure=not limited,
    )


def _attempts_without_progress(run: Running, outcome: Outcome, failure: Failure | None) -> int:
    """Consecutive attempts that left nothing behind.

    An attempt whose progress is unknown changes nothing, unless no agent was launched.
    """
    if outcome.progress:
        return 0
    unknown = outcome.progress is None and run.agent_started_ms is not None
    return run.attempts_without_progress + int(not unknown and policy.counts_as_no_progress(failure))


def _queue_retry(
    step: Step,
    run: Running,
    *,
    attempt: int,
    delay_ms: int,
    without_progress: int,
    failure: Failure | None = None,
    resume: Resume | None = None,
    counts_as_failure: bool = True,
) -> None:
    issue, error = run.issue, failure.line if failure else None
    due_ms = step.now_ms + delay_ms
    retry = Retry(
        issue=issue,
        attempt=attempt,
        due_ms=due_ms,
        error=error,
        attempts_without_progress=without_progress,
        workspace_path=run.report.facts.workspace_path,
        failures=run.failures + int(counts_as_failure) if failure else 0,
        non_retryable=failure is not None and not failure.retryable and counts_as_failure,
        runs=run.runs,
        resume=resume,
        may_have_moved=failure is not None and run.report.tool_calls > 0,
    )
    if step.change_claim(issue, Trigger.RETRY, retry):
        step.set_retry_timer(issue.id, due_ms)
        if error:
            fields = policy.attempt_fields(retry, step.state.settings)
            step.notify("info", "run_retrying", issue, **fields, delay_ms=delay_ms, reason=error)


def no_progress(issue: Issue, attempts: int, last: Failure | None = None) -> Failure:
    """The failure that blocks an issue whose attempts leave nothing behind."""
    tail = f"; the last one ended with: {last.message}" if last else ""
    return Failure(
        category=Category.NO_PROGRESS,
        blame=Blame.AGENT,
        message=f"{plural(attempts, 'attempt')} left neither a new commit nor a changed tree{tail}",
        retryable=False,
        hint=(
            "change the issue's state, labels, title or description to have it tried again, "
            f"or run `symphony unblock {shlex.quote(issue.identifier)}`"
        ),
    )


def stopped_by_operator(issue: Issue) -> Failure:
    """The failure that blocks an issue after an operator stopped it."""
    name = shlex.quote(issue.identifier)
    return Failure(
        category=Category.STOPPED_BY_OPERATOR,
        blame=Blame.HOST,
        message="an operator stopped it",
        retryable=False,
        hint=f"run `symphony retry {name}` or `symphony unblock {name}`",
    )


# --- due retries -----------------------------------------------------------------------------------------


def on_retry_due(step: Step, issue_id: str) -> None:
    """Refresh the issue of a due retry, except during a shutdown."""
    retry = step.state.retrying.get(issue_id)
    if retry is not None and step.state.drain is Drain.NO:
        step.replace_entry(replace(retry, refreshing=True))
        step.request_refresh(issue_id)


def make_due(step: Step, retry: Retry) -> None:
    """Make a retry due now."""
    if not retry.refreshing:
        step.replace_entry(replace(retry, due_ms=step.now_ms))
        step.set_retry_timer(retry.issue.id, step.now_ms)


def on_resumed(step: Step) -> None:
    """Make the retries due that waited for the end of a pause."""
    for retry in tuple(step.state.retrying.values()):
        if retry.due_ms <= step.now_ms:
            make_due(step, retry)


def refresh_due_retries(step: Step) -> None:
    """Refresh all due retries together, so that they start in dispatch order."""
    for retry in tuple(step.state.retrying.values()):
        if retry.due_ms <= step.now_ms and not retry.refreshing:
            step.clear_timer(Timer(TimerKind.RETRY, retry.issue.id))
            on_retry_due(step, retry.issue.id)


def requeue(step: Step, retry: Retry, error: str, *, failure: Failure | None = None) -> None:
    """Put a due retry back, with the next attempt number and a backoff."""
    attempt = retry.attempt + 1
    delay_ms = policy.backoff_ms(attempt, step.state.settings.max_retry_backoff_ms)
    due_ms = step.now_ms + delay_ms
    entry = replace(retry, attempt=attempt, due_ms=due_ms, error=error, refreshing=False)
    if failure is not None:
        entry = replace(entry, failures=retry.failures + 1, non_retryable=not failure.retryable)
    if step.change_claim(retry.issue, Trigger.RETRY, entry):
        step.set_retry_timer(retry.issue.id, due_ms)
        fields = policy.attempt_fields(entry, step.state.settings)
        step.notify("info", "run_retrying", retry.issue, **fields, delay_ms=delay_ms, reason=error)


def on_retry_refreshed(step: Step, retry: Retry, issue: Issue | None) -> None:
    """Apply a snapshot to a due retry: clean up, release, block, wait or start."""
    settings, path = step.state.settings, retry.workspace_path
    if step.state.drain is not Drain.NO:
        return
    retry = verification.of_cut_off_run(step.state, retry, issue)
    status = policy.tracker_status(issue, settings)
    if status is TrackerStatus.TERMINAL and not policy.is_handed_over(issue, retry.resume):
        blocks.clean_and_release(step, retry.issue, path)
    elif issue is not None and blocks.block_by_pull_request(step, issue, held=retry):
        return
    elif issue is None or not policy.may_work(issue, retry.resume, settings):
        blocks.release(step, retry.issue, path=path)
    elif retry.attempts_without_progress >= settings.budget.max_attempts_without_progress:
        blocks.block(step, issue, no_progress(issue, retry.attempts_without_progress), held=retry)
    elif not verification.is_by_hand(retry) and (used := budgets.budget_failure(step.state, issue)):
        blocks.block(step, issue, used, held=retry)
    else:
        resume = policy.seen_elsewhere(issue, retry.resume)
        _start_or_wait(step, replace(retry, issue=issue, resume=resume))


def _start_or_wait(step: Step, retry: Retry) -> None:
    verdict = policy.eligibility(retry.issue, step.state, own_claim=retry)
    if isinstance(verdict, Eligible):
        start(step, retry.issue, retry=retry)
        return
    if verdict.code in {ReasonCode.NO_SLOT, ReasonCode.NO_STATE_SLOT, ReasonCode.NO_HOST_SLOT}:
        shortage = verdict.message if verdict.code is ReasonCode.NO_HOST_SLOT else NO_SLOT_ERROR
        cause = retry.cause or (retry.error if retry.failures else None)
        requeue(step, replace(retry, cause=cause), shortage)
        return
    wake_ms = due_ms = step.now_ms + step.state.settings.poll_interval_ms
    if verdict.code is ReasonCode.AGENT_LIMITED:
        limited_until_ms = agents.agent_limited_until(
            step.state, retry.issue, agents.thread_agent(retry.resume)
        )
        if limited_until_ms is None:  # another run tests the agent; this retry stays due
            due_ms = retry.due_ms
        else:
            wake_ms = due_ms = limited_until_ms
    elif verdict.code is ReasonCode.PAUSED:
        due_ms = retry.due_ms  # stays due, and starts as soon as the daemon is resumed
    step.replace_entry(replace(retry, refreshing=False, due_ms=due_ms))
    step.set_retry_timer(retry.issue.id, wake_ms)


# --- shutdown --------------------------------------------------------------------------------------------


def drain(step: Step, *, without_timeout: bool = False) -> None:
    """Let turns end and start nothing; what still runs after `drain_timeout_ms` is stopped.

    An operator drains without the timeout, because turns have limits of their own. A signal later adds it.
    """
    first = step.state.drain is Drain.NO
    if first:
        step.update(drain=Drain.DRAINING, pending_candidates=frozenset())
        step.notify("info", "draining", running=len(step.state.running))
    if not without_timeout and step.state.drain is Drain.DRAINING and _DRAIN_TIMER not in step.state.timers:
        step.set_timer(_DRAIN_TIMER, step.now_ms + step.state.settings.drain_timeout_ms)
    if first:
        for run in tuple(step.state.running.values()):
            if run.awaiting_refresh:
                finish(step, run, FinishReason.DRAINING)
            elif run.report.stage not in {RunStage.STREAMING_TURN, *_ENDING}:
                stop(step, run, StopReason.DRAINING)


def stop_all(step: Step) -> None:
    """End everything now."""
    if step.state.drain is not Drain.EXITED:
        step.update(drain=Drain.STOPPING)
    for run in tuple(step.state.running.values()):
        stop(step, run, StopReason.DRAINING)


def exit_when_drained(step: Step) -> None:
    """Let the daemon end once nothing runs any more."""
    draining = step.state.drain in {Drain.DRAINING, Drain.STOPPING}
    if draining and not step.state.running:
        step.update(drain=Drain.EXITED)
        step.emit(Exit())
