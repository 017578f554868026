"""`step`: the scheduler's one entrance (DESIGN 4).

    Facts go in, intentions come out; time is an argument. `step` is total: an input that makes no sense in
    the present state (an unknown run, a stale timer, an answer nobody waits for) leaves the state as it is.
    What may make room or bring candidates (an answer, the end of a run, new settings, an operator, a new
    day, the end of an agent's limit) has free slots filled before the step ends; the rest looks at no
    candidate, as a board may hold thousands. Whatever an input did, wanted issues are asked for.

Who may hold a claim, and how it changes hands, stands in the table of `claims`.
"""

from collections.abc import Callable
from typing import assert_never

from symphony.domain import Blame, Category, Failure, Issue, add_counts
from symphony.scheduler import blocks, operator, policy, polling, results, runs
from symphony.scheduler.messages import (
    AgentReported,
    AnswersRead,
    AnswersReadFailed,
    ClaimKind,
    Command,
    DayBegan,
    DrainAsked,
    Event,
    OperatorAsked,
    Polled,
    PollFailed,
    Pushed,
    Recovered,
    RecoveredClaim,
    Refreshed,
    RefreshFailed,
    RunEnded,
    SchedulerSettings,
    SettingsChanged,
    StopAsked,
    Timer,
    TimerFired,
    TimerKind,
    TurnEnded,
    WakeAsked,
    WorkflowRejected,
)
from symphony.scheduler.policy import Eligible, ReasonCode
from symphony.scheduler.state import (
    Blocked,
    CircuitBreaker,
    Claim,
    Cycle,
    Retry,
    State,
    Step,
    Trigger,
    claim_of,
)

# What a predecessor left: its claims come back as claims, and nobody else starts their issues (RT9, FL1).
#
# What ran goes on as a retry that is due at once, with the conversation it had. What is told is judged,
# never trusted: of two claims on one issue the first holds, and a claim that is held already stays as it
# is.


_LOST = Failure(
    category=Category.JOURNAL,
    blame=Blame.HOST,
    message="it waited for a person before the restart, and the reason is lost",
    retryable=False,
    hint="change the issue, or run `symphony unblock`",
)


def on_recovered(work: Step, fact: Recovered) -> None:
    """Take over what is told, then begin the first cycle (SC1, SC2).

    Workspaces of issues that are claimed are not left over, whenever somebody says so.
    """
    paths = {ref.issue_id: ref.path for ref in fact.workspaces}
    for claim in fact.claims:
        _recover_claim(work, claim, claim.workspace_path or paths.get(claim.issue.id))
    results.recover(work, fact.results)
    _recover_spending(work, fact)
    state = work.state
    claimed = {*state.running, *state.retrying, *state.blocked}
    parked = {ref.issue_id: ref for ref in fact.workspaces if ref.issue_id not in claimed}
    work.update(idle_workspaces=parked, idle_workspaces_checked_ms=None)
    polling.wake(work)


def _recover_claim(work: Step, claim: RecoveredClaim, path: str | None) -> None:
    issue = claim.issue
    work.update(pending_candidates=work.state.pending_candidates - {issue.id})
    if claim_of(work.state, issue.id) is not Claim.UNCLAIMED:
        work.notify("warning", "claim_not_recovered", issue, kind=claim.kind.value, reason="it is claimed")
        return
    if claim.kind is ClaimKind.BLOCKED:
        _recover_block(work, claim, path)
    else:
        _recover_retry(work, claim, path)
    work.notify("info", "claim_recovered", issue, kind=claim.kind.value, attempt=claim.attempt)


def _recover_block(work: Step, claim: RecoveredClaim, path: str | None) -> None:
    """A block counts as looked at: whatever was changed while nobody was there lifts it (RT5).

    It is as old as it was. It is told once more, as the predecessor may have ended before it was; a comment
    that stands is left.
    """
    blocked = Blocked(
        issue=claim.issue,
        failure=claim.failure or _LOST,
        blocked_ms=min(claim.since_ms, work.now_ms),
        workspace_path=path,
        has_baseline=True,
        attempt=claim.attempt,
        question=claim.question,
        resume=claim.resume,
        run_id=claim.run_id,
    )
    work.claim(claim.issue, Trigger.BLOCK, blocked)
    if claim.failure is not None:
        blocks.tell(work, blocked)


def _recover_retry(work: Step, claim: RecoveredClaim, path: str | None) -> None:
    waited = claim.kind is ClaimKind.RETRYING
    retry = Retry(
        issue=claim.issue,
        attempt=claim.attempt or 1,
        due_ms=max(claim.due_ms, work.now_ms) if waited else work.now_ms,
        error=claim.error,
        attempts_without_progress=claim.attempts_without_progress,
        workspace_path=path,
        failures=claim.failures,
        non_retryable=claim.non_retryable,
        runs=claim.runs,
        resume=claim.resume,
    )
    work.claim(claim.issue, Trigger.RECOVER, retry)
    work.await_retry(claim.issue.id, retry.due_ms)


def _recover_spending(work: Step, fact: Recovered) -> None:
    """What was used up before. What this daemon counted by itself is newer, so it stays."""
    state = work.state
    work.update(spent={**fact.spent, **state.spent}, paused=state.paused or fact.paused)
    if fact.paused:
        work.notify("warning", "still_paused", hint="`symphony resume` has issues started again")
    if state.day is None:
        work.update(
            day=fact.day,
            day_tokens=add_counts(fact.day_tokens, state.day_tokens),
            budget_waivers=state.budget_waivers | fact.budget_waivers,
        )


StepFunction = Callable[[State, Event, int], tuple[State, tuple[Command, ...]]]
"""How a daemon decides: `step`, or something around it that listens."""

_MAKES_ROOM = (Polled, Refreshed, RefreshFailed, RunEnded, SettingsChanged, OperatorAsked, DayBegan)


def step(state: State, fact: Event, now_ms: int) -> tuple[State, tuple[Command, ...]]:
    """The state after one fact, and what to do about it. Never raises for any input.

    A timer that was armed anew, or is armed no more, does nothing when it fires (RT1, SC4).
    """
    if isinstance(fact, TimerFired):
        armed = state.timers.get(fact.timer)
        if armed is None or armed.token != fact.token:
            return state, ()
    work = Step(state, now_ms)
    _handle(work, fact)
    if isinstance(fact, _MAKES_ROOM):
        polling.fill_slots(work)
    if work.state.poll_again and work.state.cycle is Cycle.IDLE:
        polling.begin(work)
    polling.send_wanted(work)
    runs.leave(work)
    return work.state, tuple(work.commands)


def _handle(work: Step, fact: Event) -> None:  # noqa: C901, PLR0912 - one line per kind of fact
    match fact:
        case Recovered():
            on_recovered(work, fact)
        case SettingsChanged():
            _on_settings(work, fact.settings)
        case WorkflowRejected():
            work.update(config_error=fact.failure)
            work.notify("error", "workflow_rejected", reason=fact.failure.line, hint=fact.failure.hint)
        case WakeAsked():
            polling.wake(work, by_operator=fact.by_operator)
        case Polled():
            polling.on_polled(work, fact)
        case PollFailed():
            polling.on_poll_failed(work, fact)
        case Refreshed():
            polling.on_refreshed(work, fact)
        case RefreshFailed():
            polling.on_refresh_failed(work, fact)
        case AgentReported() | TurnEnded() | RunEnded():
            _on_run(work, fact)
        case Pushed():
            results.on_pushed(work, fact)
        case TimerFired():
            late_ms = work.late_ms(fact.timer)
            work.clear_timer(fact.timer)
            runs.forgive_sleep(work, late_ms)
            if fact.timer not in work.state.timers:
                _on_timer(work, fact.timer)
        case OperatorAsked():
            operator.act(work, fact)
        case AnswersRead():
            polling.on_read(work, fact)
        case AnswersReadFailed():
            polling.on_unread(work, fact)
        case DayBegan():
            _on_day(work, fact.day)
        case DrainAsked():
            runs.drain(work)
        case StopAsked():
            runs.stop_all(work)
        case _:
            assert_never(fact)


def _on_run(work: Step, fact: AgentReported | TurnEnded | RunEnded) -> None:
    run = work.run_by_id(fact.run_id)
    if run is None:
        work.notify("debug", "unknown_run", run_id=fact.run_id, input=type(fact).__name__)
        return
    match fact:
        case AgentReported():
            runs.on_agent_report(work, run, fact.report)
        case TurnEnded():
            runs.on_turn_ended(work, run, fact)
        case RunEnded():
            runs.on_run_ended(work, run, fact.outcome)
        case _:
            assert_never(fact)


def _on_timer(work: Step, timer: Timer) -> None:  # noqa: C901 - one line per kind of timer
    match timer.kind:
        case TimerKind.POLL:
            polling.begin(work)
        case TimerKind.RETRY:
            runs.on_due(work, timer.id)
        case TimerKind.STALL:
            if run := work.run_by_id(timer.id):
                runs.judge_silence(work, run)
        case TimerKind.GRACE:
            if run := work.run_by_id(timer.id):
                runs.on_settled(work, run)
        case TimerKind.DRAIN:
            runs.stop_all(work)
        case TimerKind.LIMIT:
            policy.on_over(work, timer.id)
            runs.fire_due(work)
            polling.fill_slots(work)
        case TimerKind.PUSH:
            results.on_push_due(work, timer.id)
        case TimerKind.TRACKER_PAUSE:
            pass  # what waited for it is asked at the end of the step
        case _:
            assert_never(timer.kind)


def _on_settings(work: Step, settings: SchedulerSettings) -> None:
    """Live settings hold at once; the limits that count from now are counted again (CF8, CF10).

    They may name another tracker or another credential, so the weather is forgotten. A file that was mended
    is polled for at once: somebody is waiting for it. Who fits a raised budget goes on.
    """
    before, mended = work.state.settings, work.state.config_error is not None
    work.update(settings=settings, config_error=None, throttled_until_ms=None, breaker=CircuitBreaker())
    work.clear_timer(Timer(TimerKind.TRACKER_PAUSE))
    for run in tuple(work.state.running.values()):
        name = run.agent.name
        if settings.agent_info(name).stall_timeout_ms != before.agent_info(name).stall_timeout_ms:
            runs.judge_silence(work, run)
    due_ms = work.now_ms + settings.poll_interval_ms
    if work.state.next_poll_ms is not None and due_ms < work.state.next_poll_ms:
        work.update(next_poll_ms=due_ms)
        work.set_timer(Timer(TimerKind.POLL), due_ms)
    blocks.lift_budgets(work)
    if mended:
        polling.wake(work)


def _on_day(work: Step, day: str) -> None:
    """A new day, a new budget; the first that is named is the one we are in.

    After a clock that was set back nothing is given again: what was used counts on the day that it is now.
    """
    before = work.state.day
    if day == before:
        return
    work.update(day=day)
    if before is not None and day > before:
        work.update(day_tokens=0, day_spender=None, budget_waivers=frozenset())
        work.notify("info", "day_began", day=day)
        blocks.lift_budgets(work)


def is_idle(state: State) -> bool:
    """Whether nothing runs, retries, is being asked for or could start.

    A poll that failed is the caller's to judge, by `last_poll_failure`.
    """
    return not state.retrying and _at_rest(state)


def run_once_finished(state: State) -> bool:
    """The end of `run --once`: idle, but for retries of which nothing is to be hoped for now.

    Those are the ones whose last failure will not mend by itself, those that failed
    `max_attempts_without_progress` times in a row, whoever was to blame, and all of them while the workflow
    is invalid: an outage ends such a run too. An agent that is limited is waited for as often as that.
    """
    waiting = state.retrying.values() if state.config_error is None else ()
    return all(policy.given_up(retry, state.settings) for retry in waiting) and _at_rest(state)


def _at_rest(state: State) -> bool:
    asking = state.cycle is not Cycle.IDLE or state.poll_soon or state.refresh is not None
    return (
        not asking
        and not state.ids_to_refresh
        and not state.pending_candidates
        and state.polls > 0
        and not state.running
        and not any(_may_start(issue, state) for issue in state.candidates.values())
    )


def _may_start(issue: Issue, state: State) -> bool:
    """Now, or as soon as an agent answers again."""
    verdict = policy.eligibility(issue, state)
    if isinstance(verdict, Eligible):
        return True
    return verdict.code is ReasonCode.AGENT_LIMITED and policy.hopeful(state)
