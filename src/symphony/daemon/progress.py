"""Reports the progress of a run to the scheduler, at milestones at once, else every 250 ms."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemStarted,
    Tokens,
    TurnEnded,
)
from symphony.agents.run_stats import RunStats
from symphony.domain import Redaction
from symphony.scheduler import (
    AgentReported,
    Event,
    RunReport,
    RunStage,
    Thread,
)

INTERVAL_S: Final = 0.25
# A piece of work that begins may be followed by minutes of silence, so it is told at once.
_MILESTONES = (ItemStarted, TurnEnded, InputRequired)
# A drain lets turns end, so it must know of them; delivery may take minutes.
_TOLD_AT_ONCE = frozenset([RunStage.STREAMING_TURN, RunStage.FINISHING])


class ProgressReporter:
    """Between the agent's stream, which may be fast, and the scheduler, which must not be flooded.

    `run` reports what is new while it runs; what must be told in time is reported without it.
    """

    def __init__(
        self,
        run_id: str,
        post: Callable[[Event], None],
        redaction: Redaction,
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._run_id = run_id
        self._post = post
        self._interval_s = interval_s
        self._progress = RunStats(redaction=redaction)
        self._pid: int | None = None
        self._stage = RunStage.PREPARING_WORKSPACE
        self._workspace_path: str | None = None
        self._branch: str | None = None
        self._tool_calls = 0
        self._told_limits: Mapping[str, Any] | None = None
        self._is_due = False
        self._news = anyio.Event()
        self._milestone = anyio.Event()

    async def run(self) -> None:
        """Report what is new, until cancelled. What one read brought makes one report."""
        while True:
            await self._news.wait()
            self._news, self._milestone = anyio.Event(), anyio.Event()
            if self._is_due:
                self.beat()
                with anyio.move_on_after(self._interval_s):
                    await self._milestone.wait()

    def place(self, workspace_path: str, branch: str | None) -> None:
        """The workspace exists."""
        self._workspace_path, self._branch = workspace_path, branch
        self._note()

    def resumes(self, thread: Thread) -> None:
        """The session goes on with a thread: what it had used before is not counted again."""
        self._progress.resume_from(
            Tokens(
                input_tokens=thread.input_tokens,
                output_tokens=thread.output_tokens,
                total_tokens=thread.total_tokens,
            )
        )

    def launched(self, pid: int) -> None:
        """The agent process exists; 0 for an agent that starts one with each turn."""
        self._pid = pid or None
        self._note()

    def stage(self, stage: RunStage) -> None:
        """The attempt entered a stage."""
        if stage is not self._stage:
            self._stage = stage
            if stage in _TOLD_AT_ONCE:
                self.beat()
            else:
                self._note()

    def new_turn(self) -> None:
        """A continuation turn begins: tool calls are counted per turn."""
        self._tool_calls = 0

    def tool_begins(self) -> None:
        """The session calls a tool of ours; told first, as the effect may be seen before the end."""
        self._tool_calls += 1
        self.beat()

    def feel(self, event: AgentEvent) -> None:
        """Take one event of the agent."""
        self._progress.add(event)
        self._note()
        if isinstance(event, _MILESTONES):
            self._milestone.set()

    def end(self) -> None:
        """Report what is not reported yet."""
        if self._is_due:
            self.beat()

    def _note(self) -> None:
        self._is_due = True
        self._news.set()

    def beat(self) -> None:
        """Report now."""
        self._is_due = False
        self._post(AgentReported(run_id=self._run_id, report=self._report()))

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
            event_count=now.events,
            tool_calls=self._tool_calls,
            last_event=now.last_event,
            last_message=now.last_message,
            input_tokens=now.tokens.input_tokens,
            output_tokens=now.tokens.output_tokens,
            total_tokens=now.tokens.total_tokens,
            rate_limits=limits,
        )
