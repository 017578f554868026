"""`step`: the scheduler's one entrance (DESIGN 4).

    Facts go in, intentions come out; time is an argument. `step` is total: an input that makes no sense in
    the present state (an unknown run, a stale timer, an answer nobody waits for) leaves the state as it is.
    Whatever an input did, free slots are filled and wanted issues are asked for before the step ends.
    Only a report of an agent frees nothing: it comes a few times a second, and looks at no candidate.

Who may hold a claim, and how it changes hands, stands in the table of `claims`.
"""

from dataclasses import replace
from typing import assert_never

from symphony.scheduler import cycle, runs
from symphony.scheduler.commands import Command, Exit, FinishReason, StopReason
from symphony.scheduler.inputs import (
    AgentReported,
    DrainAsked,
    Input,
    Polled,
    PollFailed,
    Recovered,
    Refreshed,
    RefreshFailed,
    RunEnded,
    RunStage,
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
from symphony.scheduler.policy import Eligible, eligible
from symphony.scheduler.state import Cycle, Drain, State
from symphony.scheduler.work import Work

__all__ = ["idle", "step"]


def step(state: State, fact: Input, now_ms: int) -> tuple[State, tuple[Command, ...]]:
    """The state after one fact, and what to do about it. Never raises for any input."""
    work = Work(state, now_ms)
    _take(work, fact)
    if not isinstance(fact, AgentReported):
        cycle.fill_slots(work)
    if work.state.poll_again and work.state.cycle is Cycle.IDLE:
        cycle.begin(work)
    cycle.send_wanted(work)
    _leave(work)
    return work.state, tuple(work.commands)


def _take(work: Work, fact: Input) -> None:  # noqa: C901, PLR0912 - one line per kind of fact
    match fact:
        case Recovered():
            work.update(parked={ref.issue_id: ref for ref in fact.workspaces}, parked_ms=None)
            cycle.wake(work)
        case SettingsChanged():
            _on_settings(work, fact.settings)
        case WorkflowRejected():
            work.update(hold=fact.failure)
            work.notify("error", "workflow_rejected", reason=fact.failure.line, hint=fact.failure.hint)
        case WakeAsked():
            cycle.wake(work)
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
        case TimerFired():
            if work.state.timers.get(fact.timer) == fact.token:
                work.clear_timer(fact.timer)
                _on_timer(work, fact.timer)
        case DrainAsked():
            _on_drain(work)
        case StopAsked():
            work.update(drain=Drain.DRAINING if work.state.drain is Drain.NO else work.state.drain)
            _stop_all(work)
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
            runs.on_turn_ended(work, run, fact.turn)
        case RunEnded():
            runs.on_run_ended(work, run, fact.outcome)
        case _:
            assert_never(fact)


def _on_timer(work: Work, timer: Timer) -> None:
    match timer.kind:
        case TimerKind.POLL:
            cycle.begin(work)
        case TimerKind.RETRY:
            retry = work.state.retrying.get(timer.id)
            if retry is not None and work.state.drain is Drain.NO:
                work.set_retry(replace(retry, firing=True))
                work.update(wanted=work.state.wanted | {timer.id})
        case TimerKind.STALL:
            if run := work.run_by_id(timer.id):
                runs.judge_silence(work, run)
        case TimerKind.SETTLE:
            if run := work.run_by_id(timer.id):
                runs.on_settled(work, run)
        case TimerKind.DRAIN:
            _stop_all(work)
        case _:
            assert_never(timer.kind)


def _on_settings(work: Work, settings: SchedulerSettings) -> None:
    """Live settings hold at once; the limits that count from now are counted again (CF8, CF10)."""
    before = work.state.settings
    work.update(settings=settings, hold=None)
    if settings.stall_timeout_ms != before.stall_timeout_ms:
        for run in tuple(work.state.running.values()):
            runs.judge_silence(work, run)
    due_ms = work.now_ms + settings.poll_interval_ms
    if work.state.next_poll_ms is not None and due_ms < work.state.next_poll_ms:
        work.update(next_poll_ms=due_ms)
        work.set_timer(Timer(TimerKind.POLL), due_ms)


def _on_drain(work: Work) -> None:
    if work.state.drain is not Drain.NO:
        return
    work.update(drain=Drain.DRAINING, picks=frozenset())
    work.set_timer(Timer(TimerKind.DRAIN), work.now_ms + work.state.settings.drain_timeout_ms)
    work.notify("info", "draining", running=len(work.state.running))
    for run in tuple(work.state.running.values()):
        if run.awaiting:
            runs.finish(work, run, FinishReason.DRAINING)
        elif run.report.stage not in {RunStage.STREAMING_TURN, RunStage.FINISHING}:
            runs.stop(work, run, StopReason.DRAINING)


def _stop_all(work: Work) -> None:
    for run in tuple(work.state.running.values()):
        runs.stop(work, run, StopReason.DRAINING)


def _leave(work: Work) -> None:
    if work.state.drain is Drain.DRAINING and not work.state.running:
        work.update(drain=Drain.EXITED)
        work.emit(Exit())


def idle(state: State) -> bool:
    """Whether nothing runs, retries, is being asked for or could start: the end of `--once`.

    A poll that failed is the caller's to judge, by `last_poll_failure`.
    """
    asking = state.cycle is not Cycle.IDLE or state.poll_soon or state.refresh is not None
    return (
        not asking
        and not state.wanted
        and not state.picks
        and state.polls > 0
        and not state.running
        and not state.retrying
        and not any(isinstance(eligible(issue, state), Eligible) for issue in state.candidates.values())
    )
