"""The pulse of a run: folds its stream and reports a few times a second and at every milestone (DESIGN 4).

What came too soon after the last report is reported when its time has come, also if nothing follows: the last
word before a long silence is the one that people want to read. That there are signs of life and nothing else
is reported once a second.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemStarted,
    SessionStarted,
    ToolCalled,
    TurnEnded,
)
from symphony.agents.fold import Progress, Tokens
from symphony.domain.redaction import Redaction
from symphony.scheduler.inputs import AgentReported, Input, RunReport, RunStage, Thread

__all__ = ["Later", "Pending", "Pulse", "on_the_loop"]

INTERVAL_MS = 250
MOMENT_MS = 100
SIGN_MS = 1_000
# A piece of work that begins may be followed by minutes of silence, so it is told at once.
_MILESTONES = (ItemStarted, TurnEnded, InputRequired)
# What follows soon by itself is told with it.
_STEPS = (SessionStarted, ToolCalled)


class Pending(Protocol):
    """Something that will be called, unless it is cancelled before."""

    def cancel(self) -> None:
        """Do not call it; nothing happens when it was called already."""
        ...


Later = Callable[[float, Callable[[], None]], Pending]
"""Calls a function after so many seconds."""


def on_the_loop(delay_s: float, call: Callable[[], None]) -> Pending:
    """Call a function on the running event loop."""
    return asyncio.get_running_loop().call_later(delay_s, call)


class Pulse:
    """Between the agent's stream, which may be fast, and the scheduler, which must not be flooded.

    `soon` calls back when what one read brought has been taken in: all the milestones in it make one report.
    """

    def __init__(
        self,
        run_id: str,
        post: Callable[[Input], None],
        now_ms: Callable[[], int],
        redaction: Redaction,
        *,
        soon: Callable[[Callable[[], object]], object] = lambda beat: beat(),
        later: Later | None = None,
    ) -> None:
        self._run_id = run_id
        self._post = post
        self._now_ms = now_ms
        self._progress = Progress(redaction=redaction)
        self._pid: int | None = None
        self._stage = RunStage.PREPARING_WORKSPACE
        self._workspace_path: str | None = None
        self._branch: str | None = None
        self._tool_calls = 0
        self._told_limits: Mapping[str, Any] | None = None
        self._told_ms = 0
        self._told: RunReport | None = None
        self._soon = soon
        self._due = False
        self._later = later
        self._owed: Pending | None = None
        self._is_news = False

    def place(self, workspace_path: str, branch: str | None) -> None:
        """The workspace exists."""
        self._workspace_path, self._branch = workspace_path, branch
        self._beat_presently()

    def resumes(self, thread: Thread) -> None:
        """The session goes on with a thread: what it had used before is not counted again."""
        self._progress.resumes(
            Tokens(
                input_tokens=thread.input_tokens,
                output_tokens=thread.output_tokens,
                total_tokens=thread.total_tokens,
            )
        )

    def launched(self, pid: int) -> None:
        """The agent process exists; 0 for an agent that starts one with each turn."""
        self._pid = pid or None
        self._beat_presently()

    def stage(self, stage: RunStage) -> None:
        """The attempt entered a stage. That a turn begins is told before it does: a drain lets turns end."""
        if stage is not self._stage:
            self._stage = stage
            if stage is RunStage.STREAMING_TURN:
                self._beat_soon()
            else:
                self._beat_presently()

    def new_turn(self) -> None:
        """A continuation turn begins: tool calls are counted per turn."""
        self._tool_calls = 0

    def tool_begins(self) -> None:
        """The session calls a tool of ours; told first, as the effect may be seen before the end."""
        self._tool_calls += 1
        self.beat()

    def feel(self, event: AgentEvent) -> None:
        """Take one event of the agent; report if it is a milestone or the last report is old, else later."""
        self._progress.add(event)
        if self._due:
            return
        since_ms = self._now_ms() - self._told_ms
        if isinstance(event, _MILESTONES) or since_ms >= INTERVAL_MS:
            self._beat_soon()
        elif isinstance(event, _STEPS):
            self._beat_presently()
        elif self._owed is None and self._later is not None:
            self._owed = self._later((INTERVAL_MS - since_ms) / 1000, self._beat_if_news)

    def _beat_presently(self) -> None:
        """Report in a moment, together with what follows until then: a start has half a dozen such steps."""
        if self._later is None:
            self._beat_soon()
        elif not self._due:
            self._forget_owed()
            self._owed, self._is_news = self._later(MOMENT_MS / 1000, self._beat_if_news), True

    def _beat_soon(self) -> None:
        """Report when whoever is at work now has had its turn: what it has to say in one go is one report."""
        if not self._due:
            self._due = True
            self._soon(self._beat_if_due)

    def _beat_if_due(self) -> None:
        if self._due:
            self._beat_if_news()

    def _beat_if_news(self) -> None:
        """Report now; signs of life and nothing else wait until the last report is a second old."""
        report, told, since_ms = self._report(), self._told, self._now_ms() - self._told_ms
        merely = told is not None and report == replace(told, signs=report.signs, rate_limits=None)
        if self._later is None or not merely or since_ms >= SIGN_MS:
            self._tell(report)
            return
        self._due = False
        self._forget_owed()
        self._owed = self._later((SIGN_MS - since_ms) / 1000, self.beat)

    def end(self) -> None:
        """Report what is due or new, and nothing more by itself; that it is finishing is no news any more."""
        if self._due or self._is_news:
            report = self._report()
            if self._told is None or replace(self._told, stage=report.stage) != report:
                self._tell(report)
        self._due = False
        self._forget_owed()

    def _forget_owed(self) -> None:
        self._is_news = False
        if self._owed is not None:
            self._owed.cancel()
            self._owed = None

    def beat(self) -> None:
        """Report now."""
        self._tell(self._report())

    def _tell(self, report: RunReport) -> None:
        self._forget_owed()
        self._due = False
        self._told_ms = self._now_ms()
        self._told = report
        self._post(AgentReported(run_id=self._run_id, report=report))

    def _report(self) -> RunReport:
        now = self._progress.snapshot()
        limits = now.rate_limits if now.rate_limits is not self._told_limits else None
        self._told_limits = now.rate_limits
        return RunReport(
            stage=self._stage,
            workspace_path=self._workspace_path,
            branch=self._branch,
            session_id=now.session_id,
            thread_id=now.thread_id,
            pid=self._pid,
            turn_count=now.turn_count,
            signs=now.events,
            tool_calls=self._tool_calls,
            last_event=now.last_event,
            last_message=now.last_message,
            input_tokens=now.tokens.input_tokens,
            output_tokens=now.tokens.output_tokens,
            total_tokens=now.tokens.total_tokens,
            rate_limits=limits,
        )
