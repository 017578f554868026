"""The life of a run attempt: start, turns, silence (specification 7, 8.4, 16.5-16.6); `endings` has its end.

A run ends in exactly one `RunEnded`; until then it keeps slot and claim, whatever was asked of it.
"""

from dataclasses import replace

from symphony.domain.counts import within
from symphony.domain.failures import Failure
from symphony.domain.issue import Issue
from symphony.scheduler import budgets, choice, moves, policy
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
    RunReport,
    RunStage,
    Timer,
    TimerKind,
    TurnEnded,
)
from symphony.scheduler.policy import Standing
from symphony.scheduler.state import Drain, Retry, Running
from symphony.scheduler.work import Work

__all__ = [
    "finish",
    "forgive_sleep",
    "judge_silence",
    "on_agent_report",
    "on_running_refreshed",
    "on_settled",
    "on_turn_ended",
    "start",
    "stop",
]

SETTLE_MS = 30_000
OVERSLEPT_MS = 10_000
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
    agent, resume = choice.plan(work.state, issue, retry.resume if retry else None)
    run = Running(
        run_id=f"{work.state.epoch}-{work.number()}",
        issue=issue,
        attempt=attempt,
        started_ms=work.now_ms,
        max_turns=work.state.settings.max_turns,
        idle_attempts=retry.idle_attempts if retry else 0,
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
    moves.on_start(work, issue)
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
    """Take over what the pump folded; the silence clock starts when the agent does (SC11).

    An issue that used up its tokens is stopped in mid-turn, as the rest of a turn may cost any number.
    """
    report = _within_bounds(report)
    budgets.count(work, run, report)
    alive = report.signs != run.report.signs or report.stage is not run.report.stage
    entered = report.stage in _AGENT_STAGES and report.stage is not run.report.stage
    path = report.workspace_path or run.report.workspace_path
    run = replace(
        run,
        report=replace(report, workspace_path=path),
        agent_ms=work.now_ms if entered and run.agent_ms is None else run.agent_ms,
        last_sign_ms=work.now_ms if alive else run.last_sign_ms,
    )
    work.set_running(run)
    if report.rate_limits is not None:
        work.update(rate_limits=report.rate_limits)
    if entered:
        arm_silence(work, run, since_ms=work.now_ms)
    in_turn = not run.awaiting and not run.finishing and report.stage is not RunStage.FINISHING
    if in_turn and budgets.tokens_used(work.state, run.issue):
        stop(work, run, StopReason.BUDGET)


def _within_bounds(report: RunReport) -> RunReport:
    """The report with counts that can be added up and written down, whatever a recording holds."""
    counts = (report.input_tokens, report.output_tokens, report.total_tokens, report.turn_count)
    if all(count == within(count) for count in counts):
        return report
    return replace(
        report,
        input_tokens=within(report.input_tokens),
        output_tokens=within(report.output_tokens),
        total_tokens=within(report.total_tokens),
        turn_count=within(report.turn_count),
    )


def arm_silence(work: Work, run: Running, *, since_ms: int) -> None:
    """Set the stall timer of a run so that it fires at the first moment that exceeds its agent's limit."""
    limit = work.state.settings.facts(run.agent.name).stall_timeout_ms
    if limit > 0:
        work.set_timer(Timer(TimerKind.STALL, run.run_id), since_ms + limit + 1)


def judge_silence(work: Work, run: Running) -> None:
    """Stop a run whose agent has been silent for longer than the limit (strictly), else look again."""
    limit = work.state.settings.facts(run.agent.name).stall_timeout_ms
    if limit <= 0 or run.stopping or run.finishing or run.report.stage is RunStage.FINISHING:
        return
    if run.agent_ms is None:
        return
    heard = work.now_ms if run.awaiting else (run.last_sign_ms or run.agent_ms)
    if work.now_ms - heard > limit:
        stop(work, run, StopReason.STALLED)
    else:
        arm_silence(work, run, since_ms=heard)


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
        arm_silence(work, run, since_ms=work.now_ms)
        if run.settling:
            work.set_timer(Timer(TimerKind.SETTLE, run.run_id), work.now_ms + SETTLE_MS)


def on_turn_ended(work: Work, run: Running, ended: TurnEnded) -> None:
    """A turn completed: ask the tracker before deciding on the next one (SM5, AG8).

    Turns in a row that left no trace are counted; one of which that is unknown changes nothing.
    An end of another turn than the one that runs is late or repeated, and means nothing.
    """
    if run.stopping or run.finishing or run.awaiting or ended.turn != run.turn:
        return
    idle_turns = 0 if ended.trace else run.idle_turns + int(ended.trace is False)
    waiting = replace(run, awaiting=True, last_sign_ms=work.now_ms, idle_turns=idle_turns)
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
    most_idle = work.state.settings.max_turns_without_progress
    work.clear_timer(Timer(TimerKind.SETTLE, run.run_id))
    if not run.awaiting:
        work.set_running(run)
    elif budgets.used(work.state, run.issue):
        finish(work, run, FinishReason.BUDGET)
    elif run.turn >= run.max_turns:
        finish(work, run, FinishReason.MAX_TURNS)
    elif most_idle is not None and run.idle_turns >= most_idle:
        finish(work, run, FinishReason.NO_PROGRESS)
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
