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

from symphony.domain.issue import Issue
from symphony.scheduler import (
    answers,
    blocks,
    cycle,
    departure,
    endings,
    limits,
    policy,
    recovery,
    results,
    retries,
    runs,
    verbs,
)
from symphony.scheduler.commands import Command
from symphony.scheduler.inputs import (
    AgentReported,
    AnswersRead,
    AnswersUnread,
    DayBegan,
    DrainAsked,
    Input,
    OperatorAsked,
    Polled,
    PollFailed,
    Pushed,
    Recovered,
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
from symphony.scheduler.state import Cycle, State, Weather
from symphony.scheduler.work import Work

__all__ = ["Step", "idle", "over", "step"]

Step = Callable[[State, Input, int], tuple[State, tuple[Command, ...]]]
"""How a daemon decides: `step`, or something around it that listens."""

_MAKES_ROOM = (Polled, Refreshed, RefreshFailed, RunEnded, SettingsChanged, OperatorAsked, DayBegan)


def step(state: State, fact: Input, now_ms: int) -> tuple[State, tuple[Command, ...]]:
    """The state after one fact, and what to do about it. Never raises for any input.

    A timer that was armed anew, or is armed no more, does nothing when it fires (RT1, SC4).
    """
    if isinstance(fact, TimerFired) and state.timers.get(fact.timer) != fact.token:
        return state, ()
    work = Work(state, now_ms)
    _take(work, fact)
    if isinstance(fact, _MAKES_ROOM):
        cycle.fill_slots(work)
    if work.state.poll_again and work.state.cycle is Cycle.IDLE:
        cycle.begin(work)
    cycle.send_wanted(work)
    departure.leave(work)
    return work.state, tuple(work.commands)


def _take(work: Work, fact: Input) -> None:  # noqa: C901, PLR0912 - one line per kind of fact
    match fact:
        case Recovered():
            recovery.on_recovered(work, fact)
        case SettingsChanged():
            _on_settings(work, fact.settings)
        case WorkflowRejected():
            work.update(hold=fact.failure)
            work.notify("error", "workflow_rejected", reason=fact.failure.line, hint=fact.failure.hint)
        case WakeAsked():
            cycle.wake(work, by_operator=fact.by_operator)
        case Polled():
            cycle.on_polled(work, fact)
        case PollFailed():
            cycle.on_poll_failed(work, fact)
        case Refreshed():
            cycle.on_refreshed(work, fact)
        case RefreshFailed():
            cycle.on_refresh_failed(work, fact)
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
            verbs.act(work, fact)
        case AnswersRead():
            answers.on_read(work, fact)
        case AnswersUnread():
            answers.on_unread(work, fact)
        case DayBegan():
            _on_day(work, fact.day)
        case DrainAsked():
            departure.drain(work)
        case StopAsked():
            departure.stop_all(work)
        case _:
            assert_never(fact)


def _on_run(work: Work, fact: AgentReported | TurnEnded | RunEnded) -> None:
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
            endings.on_run_ended(work, run, fact.outcome)
        case _:
            assert_never(fact)


def _on_timer(work: Work, timer: Timer) -> None:  # noqa: C901 - one line per kind of timer
    match timer.kind:
        case TimerKind.POLL:
            cycle.begin(work)
        case TimerKind.RETRY:
            retries.on_due(work, timer.id)
        case TimerKind.STALL:
            if run := work.run_by_id(timer.id):
                runs.judge_silence(work, run)
        case TimerKind.SETTLE:
            if run := work.run_by_id(timer.id):
                runs.on_settled(work, run)
        case TimerKind.DRAIN:
            departure.stop_all(work)
        case TimerKind.LIMIT:
            limits.on_over(work, timer.id)
            retries.fire_due(work)
            cycle.fill_slots(work)
        case TimerKind.PUSH:
            results.on_push_due(work, timer.id)
        case TimerKind.QUIET:
            pass  # what waited for it is asked at the end of the step
        case _:
            assert_never(timer.kind)


def _on_settings(work: Work, settings: SchedulerSettings) -> None:
    """Live settings hold at once; the limits that count from now are counted again (CF8, CF10).

    They may name another tracker or another credential, so the weather is forgotten. A file that was mended
    is polled for at once: somebody is waiting for it. Who fits a raised budget goes on.
    """
    before, mended = work.state.settings, work.state.hold is not None
    work.update(settings=settings, hold=None, quiet_until_ms=None, weather=Weather())
    work.clear_timer(Timer(TimerKind.QUIET))
    for run in tuple(work.state.running.values()):
        name = run.agent.name
        if settings.facts(name).stall_timeout_ms != before.facts(name).stall_timeout_ms:
            runs.judge_silence(work, run)
    due_ms = work.now_ms + settings.poll_interval_ms
    if work.state.next_poll_ms is not None and due_ms < work.state.next_poll_ms:
        work.update(next_poll_ms=due_ms)
        work.set_timer(Timer(TimerKind.POLL), due_ms)
    blocks.lift_budgets(work)
    if mended:
        cycle.wake(work)


def _on_day(work: Work, day: str) -> None:
    """A new day, a new budget; the first that is named is the one we are in.

    After a clock that was set back nothing is given again: what was used counts on the day that it is now.
    """
    before = work.state.day
    if day == before:
        return
    work.update(day=day)
    if before is not None and day > before:
        work.update(day_tokens=0, day_spender=None, exempt=frozenset())
        work.notify("info", "day_began", day=day)
        blocks.lift_budgets(work)


def idle(state: State) -> bool:
    """Whether nothing runs, retries, is being asked for or could start.

    A poll that failed is the caller's to judge, by `last_poll_failure`.
    """
    return not state.retrying and _at_rest(state)


def over(state: State) -> bool:
    """The end of `run --once`: idle, but for retries of which nothing is to be hoped for now.

    Those are the ones whose last failure will not mend by itself, those that failed
    `max_attempts_without_progress` times in a row, whoever was to blame, and all of them while the workflow
    is invalid: an outage ends such a run too. An agent that is limited is waited for as often as that.
    """
    waiting = state.retrying.values() if state.hold is None else ()
    return all(policy.given_up(retry, state.settings) for retry in waiting) and _at_rest(state)


def _at_rest(state: State) -> bool:
    asking = state.cycle is not Cycle.IDLE or state.poll_soon or state.refresh is not None
    return (
        not asking
        and not state.wanted
        and not state.picks
        and state.polls > 0
        and not state.running
        and not any(_may_start(issue, state) for issue in state.candidates.values())
    )


def _may_start(issue: Issue, state: State) -> bool:
    """Now, or as soon as an agent answers again."""
    verdict = policy.eligible(issue, state)
    if isinstance(verdict, Eligible):
        return True
    return verdict.code is ReasonCode.AGENT_LIMITED and limits.hopeful(state)
