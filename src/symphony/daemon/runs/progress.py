"""Reports the progress of a run to the scheduler: milestones at once, anything else twice a second."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
from msgspec import structs

from symphony.agents import events
from symphony.agents.run_stats import Pricing, RunStats, unpriced
from symphony.domain import Cost, Redaction, RunFacts
from symphony.scheduler import RunReport, RunStage, Thread
from symphony.workspaces import Delivery

INTERVAL_S: Final = 0.5
# Minutes of silence may follow the start of an item, so it is reported at once.
_MILESTONES = (events.ItemStarted, events.TurnEnd, events.InputRequired)
# A drain lets turns end, so the scheduler must know of them; a delivery may take minutes.
_URGENT_STAGES = frozenset([RunStage.STREAMING_TURN, RunStage.FINISHING, RunStage.VERIFYING])


def with_work(facts: RunFacts, delivery: Delivery) -> RunFacts:
    """The facts of a run, including the work on its branch."""
    return structs.replace(facts, work=delivery.work)


class ProgressReporter:
    """Turns an agent's many events into few reports to the scheduler.

    While `run` runs, every change is reported eventually, including the last one before a long silence.
    """

    def __init__(
        self,
        report: Callable[[RunReport], None],
        redaction: Redaction,
        *,
        pricing: Pricing = unpriced,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._report = report
        self._interval_s = interval_s
        self._redaction = redaction
        self._stats = RunStats(redaction=redaction, pricing=pricing)
        self._reviewer: RunStats | None = None
        self._stage = RunStage.PREPARING_WORKSPACE
        self._pid: int | None = None
        self._tool_calls = 0
        self._reported_limits: Mapping[str, Any] | None = None
        self._is_due = False
        self._reported_at = -math.inf
        self._changed = anyio.Event()
        self._milestone = anyio.Event()

    async def run(self) -> None:
        """Report changes until cancelled. All events of one read make one report."""
        while True:
            await self._changed.wait()
            if anyio.current_time() < (due := self._reported_at + self._interval_s):
                with anyio.CancelScope(deadline=due):
                    await self._milestone.wait()
            self._changed, self._milestone = anyio.Event(), anyio.Event()
            self.flush()

    def on_workspace(self, path: str, branch: str | None) -> None:
        """The workspace exists."""
        facts = self._stats.facts
        self._stats.facts = structs.replace(facts, workspace_path=path, branch=branch)
        self._set_due()

    def on_delivered(self, delivery: Delivery) -> None:
        """The work of the run was measured, even if it could not be delivered."""
        self._stats.facts = with_work(self._stats.facts, delivery)
        self._set_due()

    def on_launched(self, pid: int) -> None:
        """The agent's process exists; `pid` is 0 for an agent that starts a process for each turn."""
        self._pid = pid or None
        self._set_due()

    def on_resumed(self, thread: Thread) -> None:
        """The session resumes a thread: do not count the thread's earlier tokens again."""
        self._stats.resume_from(thread.tokens)

    def on_stage(self, stage: RunStage) -> None:
        """The run enters a stage."""
        if stage is self._stage:
            return
        self._stage = stage
        if stage in _URGENT_STAGES:
            self.report_now()
        else:
            self._set_due()

    def on_next_turn(self) -> None:
        """A continuation turn starts: tool calls are counted per turn."""
        self._tool_calls = 0

    def on_tool_call(self) -> None:
        """The session calls a client tool.

        This is reported first, because its effect may be visible before it returns.
        """
        self._tool_calls += 1
        self.report_now()

    def on_reviewer(self, pricing: Pricing) -> None:
        """A reviewer begins.

        Its usage counts for the run, but its conversation does not belong to the run.
        """
        self._reviewer = RunStats(redaction=self._redaction, pricing=pricing)

    def on_reviewer_event(self, event: events.AgentEvent) -> None:
        """The reviewer sent an event."""
        if self._reviewer is not None:
            self._reviewer.add(event)
            self._set_due()

    @property
    def facts(self) -> RunFacts:
        """The facts of the run so far."""
        return self._with_reviewer(self._stats.facts)

    def _with_reviewer(self, facts: RunFacts) -> RunFacts:
        if self._reviewer is None:
            return facts
        used = self._reviewer.facts
        return structs.replace(facts.plus(used), reviewer_tokens=used.tokens)

    def on_event(self, event: events.AgentEvent) -> None:
        """The agent sent an event."""
        self._stats.add(event)
        self._set_due()
        if isinstance(event, _MILESTONES):
            self._milestone.set()

    @property
    def turn_cost(self) -> Cost:
        """The cost of the latest turn so far."""
        return self._stats.turn_cost

    def flush(self) -> None:
        """Report what is not reported yet."""
        if self._is_due:
            self.report_now()

    def report_now(self) -> None:
        """Report the present state."""
        self._is_due, self._reported_at = False, anyio.current_time()
        report = self._stats.snapshot(self._stage)
        limits = None if report.rate_limits is self._reported_limits else report.rate_limits
        self._reported_limits = report.rate_limits
        report = replace(report, pid=self._pid, tool_calls=self._tool_calls, rate_limits=limits)
        if self._reviewer is not None:
            seen = self._reviewer.snapshot(self._stage)
            report = replace(
                report,
                facts=self._with_reviewer(report.facts),
                event_count=report.event_count + seen.event_count,
                last_event=seen.last_event or report.last_event,
                last_message=seen.last_message or report.last_message,
            )
        self._report(report)

    def _set_due(self) -> None:
        self._is_due = True
        self._changed.set()
