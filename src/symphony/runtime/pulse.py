"""The pulse of a run: folds its stream and reports a few times a second and at every milestone (DESIGN 4)."""

from collections.abc import Callable, Mapping
from typing import Any

from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemStarted,
    SessionStarted,
    ToolCalled,
    TurnEnded,
)
from symphony.agents.fold import Progress
from symphony.domain.redaction import Redaction
from symphony.scheduler.inputs import AgentReported, Input, RunReport, RunStage

__all__ = ["Pulse"]

INTERVAL_MS = 250
# A piece of work that begins may be followed by minutes of silence, so it is told at once.
_MILESTONES = (SessionStarted, ItemStarted, ToolCalled, TurnEnded, InputRequired)


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
        soon: Callable[[Callable[[], object]], object] = lambda beat: beat(),
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
        self._soon = soon
        self._due = False

    def place(self, workspace_path: str, branch: str | None) -> None:
        """The workspace exists."""
        self._workspace_path, self._branch = workspace_path, branch
        self.beat()

    def launched(self, pid: int) -> None:
        """The agent process exists."""
        self._pid = pid
        self.beat()

    def stage(self, stage: RunStage) -> None:
        """The attempt entered a stage."""
        if stage is not self._stage:
            self._stage = stage
            self.beat()

    def new_turn(self) -> None:
        """A continuation turn begins: tool calls are counted per turn."""
        self._tool_calls = 0

    def tool_begins(self) -> None:
        """The session calls a tool of ours; told first, as the effect may be seen before the end."""
        self._tool_calls += 1
        self.beat()

    def feel(self, event: AgentEvent) -> None:
        """Take one event of the agent; report if it is a milestone or the last report is old."""
        self._progress.add(event)
        if self._due:
            return
        if isinstance(event, _MILESTONES) or self._now_ms() - self._told_ms >= INTERVAL_MS:
            self._due = True
            self._soon(self._beat_if_due)

    def _beat_if_due(self) -> None:
        if self._due:
            self.beat()

    def beat(self) -> None:
        """Report now."""
        self._due = False
        self._told_ms = self._now_ms()
        now = self._progress.snapshot()
        limits = now.rate_limits if now.rate_limits is not self._told_limits else None
        self._told_limits = now.rate_limits
        report = RunReport(
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
        self._post(AgentReported(run_id=self._run_id, report=report))
