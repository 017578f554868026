"""From what a predecessor left to the first input of the scheduler. Pure; damaged or odd memory costs itself.

Every time in the journal is of the wall clock, which may have been set since: a wait is never longer than a
wait can be, and never negative. A run that was live goes on with its thread, from where its tokens were last
written down; what it used after that is counted by the run that goes on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.journal.keeping import EXEMPT, PAUSED
from symphony.journal.model import ClaimRecord, Remembered, RunRecord
from symphony.scheduler import threads
from symphony.scheduler.inputs import (
    ClaimKind,
    Recovered,
    RecoveredClaim,
    Resume,
    RunReport,
    RunStage,
    WorkspaceRef,
)
from symphony.scheduler.state import AgentChoice, Running

__all__ = ["Start", "recovered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """When a daemon starts: both clocks, today (`YYYY-MM-DD`, UTC), and the longest that a retry may wait."""

    now_ms: int
    wall_ms: int
    today: str
    max_wait_ms: int


def recovered(
    remembered: Remembered, start: Start, *, workspaces: tuple[WorkspaceRef, ...] = ()
) -> Recovered:
    """The first input of a daemon that starts now; `workspaces` are those that were found on disk."""
    live = {run.run_id: run for run in remembered.live_runs}
    return Recovered(
        workspaces=workspaces,
        claims=tuple(_claim(record, live, start) for record in remembered.claims),
        spent=remembered.spent,
        day=start.today,
        day_tokens=remembered.days.get(start.today, 0),
        exempt=_exempt(remembered.settings.get(EXEMPT), start.today),
        paused=remembered.settings.get(PAUSED) == "true",
    )


def _claim(record: ClaimRecord, live: Mapping[str, RunRecord], start: Start) -> RecoveredClaim:
    run = live.get(record.run_id or "")
    return RecoveredClaim(
        issue=record.issue,
        kind=record.kind,
        attempt=record.attempt,
        due_ms=_due_ms(record, start),
        since_ms=_since_ms(record, start),
        error=record.error,
        idle_attempts=record.idle_attempts,
        failures=record.failures,
        hopeless=record.hopeless,
        workspace_path=record.workspace_path or (run.workspace_path if run else None),
        resume=_resume(record, run) if record.kind is ClaimKind.RUNNING else record.resume,
        failure=record.failure,
        question=record.question,
        settled=record.settled,
    )


def _due_ms(record: ClaimRecord, start: Start) -> int:
    """When a retry is due: at its time, and no later than if its whole wait began now (the clock was set)."""
    due_wall_ms = start.wall_ms if record.due_wall_ms is None else record.due_wall_ms
    left_ms, whole_ms = due_wall_ms - start.wall_ms, due_wall_ms - record.since_wall_ms
    return start.now_ms + max(min(left_ms, whole_ms, start.max_wait_ms), 0)


def _since_ms(record: ClaimRecord, start: Start) -> int:
    """When the claim became what it is, never after now: negative if that was before the clock's zero."""
    return start.now_ms + min(record.since_wall_ms - start.wall_ms, 0)


def _resume(record: ClaimRecord, run: RunRecord | None) -> Resume:
    """How the issue of a run that was live goes on: as if it had been interrupted just now.

    What it used of its thread is what was written down last; the rest is counted when it goes on (TK4).
    """
    report = RunReport(stage=RunStage.PREPARING_WORKSPACE)
    if run is not None:
        report = RunReport(
            stage=RunStage.STREAMING_TURN,
            thread_id=run.thread_id,
            turn_count=run.turns,
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
            total_tokens=run.total_tokens,
        )
    return threads.interrupted(
        Running(
            run_id=record.run_id or "",
            issue=record.issue,
            attempt=record.attempt,
            started_ms=0,
            max_turns=0,
            idle_attempts=record.idle_attempts,
            report=report,
            resume=record.resume,
            agent=AgentChoice(name=run.agent_name) if run and run.agent_name else AgentChoice(),
        )
    )


def _exempt(told: str | None, today: str) -> frozenset[str]:
    """The issues that today's budget is not held against; yesterday's exemption is none."""
    try:
        held = json.loads(told or "null")
        if held["day"] == today:
            return frozenset(str(issue_id) for issue_id in held["issues"])
    except (ValueError, TypeError, KeyError):
        pass
    return frozenset()
