"""Workers: each carries one run attempt out as its session tells, and ends with exactly one `RunEnded`."""

from collections.abc import Callable
from dataclasses import replace

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue
from symphony.scheduler.commands import ContinueRun, FinishRun, StartRun
from symphony.scheduler.inputs import (
    AgentReported,
    Input,
    Outcome,
    OutcomeKind,
    RunEnded,
    RunReport,
    RunStage,
    TurnEnded,
    WorkspaceRef,
)
from symphony.testing.simulator.clock import Clock
from symphony.testing.simulator.session import Ending, Session, Turn
from symphony.testing.simulator.tracker import Tracker

__all__ = ["Worker", "Workers"]

_TURN_TIMEOUT_MS = 3_600_000
_KINDS = {
    Ending.FAILS: OutcomeKind.FAILED,
    Ending.ASKS: OutcomeKind.INPUT_REQUIRED,
    Ending.TIMES_OUT: OutcomeKind.TIMED_OUT,
}
_TIMED_OUT = Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message="the turn took too long")


class Workers:
    """All live workers of one daemon, and the workspaces they leave behind, which outlive it."""

    def __init__(self, clock: Clock, tracker: Tracker, sessions: Callable[[Issue], Session]) -> None:
        self.workspaces: dict[str, WorkspaceRef] = {}
        self._clock = clock
        self._tracker = tracker
        self._sessions = sessions
        self._live: dict[str, Worker] = {}

    def start(self, command: StartRun, tell: Callable[[Input], None]) -> None:
        """Begin a run attempt; `tell` brings its facts to the daemon that asked for it."""

        def tell_and_forget(fact: Input) -> None:
            if isinstance(fact, RunEnded):
                self._live.pop(fact.run_id, None)
            tell(fact)

        session = self._sessions(command.issue)
        worker = Worker(command, session, self._clock, self._tracker, self.workspaces, tell_and_forget)
        self._live[command.run_id] = worker
        worker.begin()

    def direct(self, command: ContinueRun | FinishRun) -> None:
        """One more turn, or none."""
        if worker := self._live.get(command.run_id):
            worker.direct(command)

    def stop(self, run_id: str) -> None:
        """End in mid-turn."""
        if worker := self._live.get(run_id):
            worker.stop()

    def die(self) -> None:
        """The daemon was killed: its workers tell nothing any more, and are ended at the next start."""
        for worker in self._live.values():
            worker.die()
        self._live.clear()


class Worker:
    """One run attempt. What it has planned is void once it is told to end (`_phase` changes)."""

    def __init__(
        self,
        command: StartRun,
        session: Session,
        clock: Clock,
        tracker: Tracker,
        workspaces: dict[str, WorkspaceRef],
        tell: Callable[[Input], None],
    ) -> None:
        self._run_id = command.run_id
        self._issue = command.issue
        self._session = session
        self._clock = clock
        self._tracker = tracker
        self._workspaces = workspaces
        self._tell = tell
        self._phase = 0
        self._turn = 0
        self._report = RunReport(stage=RunStage.PREPARING_WORKSPACE)

    # --- its life ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare the workspace."""
        self._then(self._session.prepare_ms, self._prepared)

    def _prepared(self) -> None:
        if self._session.prepare_failure is not None:
            self._end(OutcomeKind.FAILED, self._session.prepare_failure)
            return
        issue = self._issue
        ref = WorkspaceRef(issue_id=issue.id, identifier=issue.identifier, path=f"/ws/{issue.identifier}")
        self._workspaces[issue.id] = ref
        self._say(stage=RunStage.LAUNCHING_AGENT, workspace_path=ref.path)
        self._then(self._session.launch_ms, self._launched)

    def _launched(self) -> None:
        if self._session.launch_failure is not None:
            self._end(OutcomeKind.FAILED, self._session.launch_failure)
        else:
            self._begin_turn()

    def _begin_turn(self) -> None:
        turns = self._session.turns
        turn = turns[min(self._turn, len(turns) - 1)]
        self._turn += 1
        self._say(
            stage=RunStage.STREAMING_TURN,
            turn_count=self._turn,
            signs=self._report.signs + 1,
            tool_calls=0,
            total_tokens=self._report.total_tokens + self._session.tokens,
        )
        if not turn.silent:
            self._next_sign(turn, self._clock.now_ms + turn.lasts_ms)
        if turn.moves_to is not None:
            self._then(turn.lasts_ms // 2, self._move, turn.moves_to)
        if turn.ending is Ending.HANGS:
            self._then(turn.lasts_ms + _TURN_TIMEOUT_MS, self._end, OutcomeKind.TIMED_OUT, _TIMED_OUT)
        else:
            self._then(turn.lasts_ms, self._end_turn, turn)

    def _next_sign(self, turn: Turn, until_ms: int) -> None:
        if self._clock.now_ms + turn.sign_every_ms < until_ms:
            self._then(turn.sign_every_ms, self._sign, turn, until_ms)

    def _sign(self, turn: Turn, until_ms: int) -> None:
        self._say(signs=self._report.signs + 1)
        self._next_sign(turn, until_ms)

    def _move(self, state: str) -> None:
        self._say(signs=self._report.signs + 1, tool_calls=self._report.tool_calls + 1)
        self._tracker.change(self._issue.id, state=state)

    def _end_turn(self, turn: Turn) -> None:
        if turn.ending is Ending.COMPLETES:
            self._tell(TurnEnded(run_id=self._run_id, turn=self._turn))
        else:
            self._then(self._session.deliver_ms, self._end, _KINDS[turn.ending], turn.failure or _TIMED_OUT)

    # --- what it is told ---------------------------------------------------------------------------------

    def direct(self, command: ContinueRun | FinishRun) -> None:
        """One more turn, or none: then deliver and end."""
        if isinstance(command, ContinueRun):
            self._then(0, self._begin_turn)
        else:
            self._then(0, self._finish, command.failure)

    def _finish(self, failure: Failure | None) -> None:
        self._say(stage=RunStage.FINISHING)
        kind = OutcomeKind.FAILED if failure else OutcomeKind.SUCCEEDED
        self._then(self._session.deliver_ms, self._end, kind, failure)

    def stop(self) -> None:
        """Drop what was planned and end, when the session pleases."""
        self._phase += 1
        self._then(self._session.stop_ms, self._end, OutcomeKind.CANCELED, None)

    def die(self) -> None:
        """Do nothing more."""
        self._phase = -1

    # --- its words ---------------------------------------------------------------------------------------

    def _say(self, **changes: object) -> None:
        self._report = replace(self._report, **changes)  # type: ignore[arg-type]  # fields of RunReport, by name
        self._tell(AgentReported(run_id=self._run_id, report=self._report))

    def _end(self, kind: OutcomeKind, failure: Failure | None) -> None:
        self._phase = -1
        outcome = Outcome(kind=kind, failure=failure, progress=self._session.progress)
        self._tell(RunEnded(run_id=self._run_id, outcome=outcome))

    def _then(self, delay_ms: int, act: Callable[..., None], *arguments: object) -> None:
        self._clock.after(delay_ms, self._unless_told, self._phase, act, arguments)

    def _unless_told(self, phase: int, act: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if phase == self._phase:
            act(*arguments)
