"""`step`, the only entry point of the scheduler: one event in, the new state and the commands out.

`step` is pure and total. Time is an argument, and an event that makes no sense in the present state (an
unknown run, a stale timer, an unrequested answer) leaves the state unchanged.
"""

from collections.abc import Callable
from typing import Final, assert_never

from symphony.domain import NO_COST, Blame, Category, Failure, add_counts
from symphony.scheduler import (
    agents,
    blocks,
    breaker,
    budgets,
    hosts,
    messages,
    operator,
    policy,
    polling,
    pull_requests,
    results,
    runs,
)
from symphony.scheduler.state import Blocked, Claim, Cycle, Retry, State, Step, Trigger, claim_of

StepFunction = Callable[[State, messages.Event, int], tuple[State, tuple[messages.Command, ...]]]
"""The type of `step`, and of functions that wrap it."""

_MAY_FREE_SLOTS: Final = (
    messages.Polled,
    messages.Refreshed,
    messages.RefreshFailed,
    messages.RunEnded,
    messages.SettingsChanged,
    messages.OperatorAsked,
    messages.DayBegan,
)
"""Events after which free slots are filled.

Other events skip that, because a board may hold thousands of issues.
"""


def step(state: State, event: messages.Event, now_ms: int) -> tuple[State, tuple[messages.Command, ...]]:
    """The state after one event, and what to do about it. Never raises."""
    if isinstance(event, messages.TimerFired) and _is_stale(event, state):
        return state, ()
    current = Step(state, now_ms)
    _handle(current, event)
    if isinstance(event, _MAY_FREE_SLOTS):
        polling.fill_slots(current)
    if current.state.poll_again and current.state.cycle is Cycle.IDLE:
        polling.begin_cycle(current)
    polling.send_refresh(current)
    runs.exit_when_drained(current)
    return current.state, tuple(current.commands)


def _handle(step: Step, event: messages.Event) -> None:  # noqa: C901, PLR0912 - one case for each kind of event
    match event:
        case messages.Recovered():
            _on_recovered(step, event)
        case messages.SettingsChanged():
            _on_settings_changed(step, event.settings)
        case messages.WorkflowRejected(failure=failure):
            step.update(config_error=failure)
            step.notify("error", "workflow_rejected", reason=failure.line, hint=failure.hint)
        case messages.WakeAsked():
            polling.wake(step, by_operator=event.by_operator)
        case messages.Polled():
            polling.on_polled(step, event)
        case messages.PollFailed():
            polling.on_poll_failed(step, event)
        case messages.Refreshed():
            polling.on_refreshed(step, event)
        case messages.RefreshFailed():
            polling.on_refresh_failed(step, event)
        case messages.RunPlaced() | messages.AgentReported() | messages.TurnEnded() | messages.RunEnded():
            _on_run_event(step, event)
        case messages.Pushed():
            results.on_pushed(step, event)
        case messages.BranchDelivered():
            results.on_branch_delivered(step, event)
        case messages.FeedbackGiven():
            pull_requests.on_feedback_given(step, event)
        case messages.PullRequestJudged():
            pull_requests.on_pull_request_judged(step, event)
        case messages.TimerFired():
            _on_timer_fired(step, event.timer)
        case messages.OperatorAsked():
            operator.on_operator_asked(step, event)
        case messages.AnswersRead():
            blocks.on_answers_read(step, event)
        case messages.AnswersReadFailed():
            blocks.on_answers_read_failed(step, event)
        case messages.DayBegan():
            _on_day_began(step, event.day)
        case messages.DrainAsked():
            runs.drain(step)
        case messages.StopAsked():
            runs.stop_all(step)
        case _:
            assert_never(event)


# --- runs and timers -------------------------------------------------------------------------------------


def _on_run_event(
    step: Step,
    event: messages.RunPlaced | messages.AgentReported | messages.TurnEnded | messages.RunEnded,
) -> None:
    run = step.run_by_id(event.run_id)
    if run is None:
        step.notify("debug", "unknown_run", run_id=event.run_id, input=type(event).__name__)
        return
    may_start = False
    match event:
        case messages.RunPlaced():
            hosts.on_run_placed(step, run, event.host)
        case messages.AgentReported():
            used = budgets.reports_tokens(run, event.report)
            may_start = used and agents.on_answered(step, run)
            runs.on_agent_report(step, run, event.report)
        case messages.TurnEnded():
            may_start = agents.on_answered(step, run)
            runs.on_turn_ended(step, run, event)
        case messages.RunEnded():
            may_start = agents.tries_agent(step.state, run)
            runs.on_run_ended(step, run, event.outcome)
        case _:
            assert_never(event)
    if may_start:  # what waited for the agent
        runs.refresh_due_retries(step)
        polling.fill_slots(step)


def _is_stale(event: messages.TimerFired, state: State) -> bool:
    """Whether the timer was set again, or cleared, before it fired."""
    armed = state.timers.get(event.timer)
    return armed is None or armed.token != event.token


def _on_timer_fired(step: Step, timer: messages.Timer) -> None:  # noqa: C901 - one case for each kind of timer
    overdue_ms = step.overdue_ms(timer)
    step.clear_timer(timer)
    runs.on_overdue_timer(step, overdue_ms)
    if timer in step.state.timers:
        return  # the run has just set its timer again
    match timer.kind:
        case messages.TimerKind.POLL:
            polling.begin_cycle(step)
        case messages.TimerKind.RETRY:
            runs.on_retry_due(step, timer.id)
        case messages.TimerKind.STALL:
            if run := step.run_by_id(timer.id):
                runs.check_stall(step, run)
        case messages.TimerKind.GRACE:
            if run := step.run_by_id(timer.id):
                runs.on_grace_period_over(step, run)
        case messages.TimerKind.DRAIN:
            runs.stop_all(step)
        case messages.TimerKind.LIMIT:
            agents.on_limit_over(step, timer.id)
            runs.refresh_due_retries(step)
            polling.fill_slots(step)
        case messages.TimerKind.HOST:
            hosts.on_rest_over(step, timer.id)
            runs.refresh_due_retries(step)
            polling.fill_slots(step)
        case messages.TimerKind.TRACKER_PAUSE:
            pass  # the refresh that waited for it is sent at the end of the step
        case _:
            assert_never(timer.kind)


# --- settings and days -----------------------------------------------------------------------------------


def _on_settings_changed(step: Step, settings: messages.SchedulerSettings) -> None:
    """Apply new settings to runs and waiting issues; after a repair of the workflow, poll at once."""
    before, was_invalid = step.state.settings, step.state.config_error is not None
    step.update(settings=settings, config_error=None)
    breaker.reset(step)
    for run in tuple(step.state.running.values()):
        name = run.agent.name
        if settings.agent_info(name).stall_timeout_ms != before.agent_info(name).stall_timeout_ms:
            runs.check_stall(step, run)
    due_ms = step.now_ms + settings.poll_interval_ms
    if step.state.next_poll_ms is not None and due_ms < step.state.next_poll_ms:
        step.update(next_poll_ms=due_ms)
        step.set_timer(messages.Timer(messages.TimerKind.POLL), due_ms)
    blocks.unblock_within_budget(step)
    if was_invalid:
        polling.wake(step)


def _on_day_began(step: Step, day: str) -> None:
    """Reset the daily budget, unless the clock was set back. The first day is only recorded."""
    before = step.state.day
    if day == before:
        return
    step.update(day=day)
    if before is not None and day > before:
        step.update(day_tokens=0, day_cost=NO_COST, day_spender=None, budget_waivers=frozenset())
        step.notify("info", "day_began", day=day)
        blocks.unblock_within_budget(step)


# --- recovery --------------------------------------------------------------------------------------------

_UNKNOWN_REASON: Final = Failure(
    category=Category.JOURNAL,
    blame=Blame.HOST,
    message="it waited for a person before the restart, and the reason is lost",
    retryable=False,
    hint="change the issue, or run `symphony unblock`",
)


def _on_recovered(step: Step, event: messages.Recovered) -> None:
    """Take over the claims of a previous daemon, then begin the first cycle.

    The stored claims are not trusted: of two claims on an issue the first one counts, and an existing claim
    stays.
    """
    paths = {ref.issue_id: ref.path for ref in event.workspaces}
    for claim in event.claims:
        _recover_claim(step, claim, claim.workspace_path or paths.get(claim.issue.id))
    results.recover(step, event.results)
    state = step.state
    step.update(
        spent={**event.spent, **state.spent},
        paused=state.paused or event.paused,
        remote_workspaces={**event.remote_workspaces, **state.remote_workspaces},
    )
    if event.paused:
        step.notify("warning", "still_paused", hint="`symphony resume` has issues started again")
    if state.day is None:
        step.update(
            day=event.day,
            day_tokens=add_counts(event.day_tokens, state.day_tokens),
            day_cost=event.day_cost.plus(state.day_cost),
            totals=event.totals,
            known_issues=event.known_issues,
            budget_waivers=state.budget_waivers | event.budget_waivers,
        )
    on_hosts = (
        messages.WorkspaceRef(issue_id=issue_id, identifier=workspace.identifier, path="")
        for issue_id, workspace in event.remote_workspaces.items()
    )
    refs = (*on_hosts, *event.workspaces)
    idle = {ref.issue_id: ref for ref in refs if step.state.entry(ref.issue_id) is None}
    step.update(idle_workspaces=idle, idle_workspaces_checked_ms=None)
    polling.wake(step)


def _recover_claim(step: Step, claim: messages.StoredClaim, path: str | None) -> None:
    issue = claim.issue
    step.update(pending_candidates=step.state.pending_candidates - {issue.id})
    if claim_of(step.state, issue.id) is not Claim.UNCLAIMED:
        step.notify("warning", "claim_not_recovered", issue, kind=claim.kind.value, reason="it is claimed")
        return
    if claim.kind is messages.ClaimKind.BLOCKED:
        _recover_block(step, claim, path)
    else:
        _recover_retry(step, claim, path)
    step.notify("info", "claim_recovered", issue, kind=claim.kind.value, attempt=claim.attempt)


def _recover_block(step: Step, claim: messages.StoredClaim, path: str | None) -> None:
    """Block the issue again. A change of it since the journal's snapshot unblocks it.

    If the snapshot is older than the block, the session of a stopped issue may have moved the issue since.
    """
    failure = claim.failure or _UNKNOWN_REASON
    stopped = failure.category is Category.STOPPED_BY_OPERATOR
    blocked = Blocked(
        issue=claim.issue,
        failure=failure,
        blocked_ms=min(claim.since_ms, step.now_ms),
        workspace_path=path,
        has_baseline=claim.has_baseline or not stopped,
        over=policy.tracker_status(claim.issue, step.state.settings) is policy.TrackerStatus.TERMINAL,
        attempt=claim.attempt,
        question=claim.question,
        resume=claim.resume,
        run_id=claim.run_id,
    )
    step.change_claim(claim.issue, Trigger.BLOCK, blocked)
    if claim.failure is not None:  # the previous daemon may have ended before it posted the comment
        step.emit(blocks.block_comment(blocked))


def _recover_retry(step: Step, claim: messages.StoredClaim, path: str | None) -> None:
    """Retry the issue: when its retry was due, or at once if it was running."""
    retry = Retry(
        issue=claim.issue,
        attempt=claim.attempt or 1,
        due_ms=max(claim.due_ms, step.now_ms) if claim.kind is messages.ClaimKind.RETRYING else step.now_ms,
        error=claim.error,
        attempts_without_progress=claim.attempts_without_progress,
        workspace_path=path,
        failures=claim.failures,
        non_retryable=claim.non_retryable,
        cause=claim.cause,
        runs=claim.runs,
        resume=claim.resume,
        may_have_moved=claim.kind is messages.ClaimKind.RUNNING,
    )
    step.change_claim(claim.issue, Trigger.RECOVER, retry)
    step.set_retry_timer(claim.issue.id, retry.due_ms)
