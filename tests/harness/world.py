"""A story in which the simulator's referee judges every step (`kit.simulator.invariants`)."""

from collections.abc import Mapping

from typing_extensions import override

from harness.scheduling import Story, make_settings
from kit.simulator import Referee
from symphony.domain import Issue
from symphony.scheduler import (
    Command,
    Drain,
    Event,
    FetchCandidates,
    OperatorAction,
    OperatorAsked,
    Polled,
    PollFailed,
    RefreshFailed,
    RefreshIssues,
    SettingsChanged,
    StartRun,
    State,
    StopRun,
    Timer,
    TimerKind,
    budget_failure,
)

__all__ = ["World"]


def _judge(before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
    """What holds beside the referee's rules: of pauses, of budgets, and of bad weather."""
    started = [command.issue for command in commands if isinstance(command, StartRun)]
    assert not (started and after.paused), "started in a pause"
    assert not any(budget_failure(after, issue) for issue in started), "started without a budget"
    if isinstance(fact, Polled | PollFailed | RefreshFailed):
        assert _claimed(before) <= _claimed(after), "released because something was not told"
        assert not any(isinstance(command, StopRun) for command in commands), "stopped for the same"


def _claimed(state: State) -> set[str]:
    return {*state.running, *state.retrying, *state.blocked}


class World(Story):
    """Answers wait until they are asked for; `snapshots` hold the board as it was at each question."""

    def __init__(self, *issues: Issue, **settings: object) -> None:
        super().__init__(*issues, **settings)
        self.slow = True
        self.snapshots: dict[int, dict[str, Issue]] = {}
        self._referee = Referee()
        self._referee.begin(self.state)

    @property
    def live(self) -> Mapping[str, str]:
        """Run ids and the issues they work on, by the referee's books."""
        return self._referee.books.live

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        self.inputs.append((self.now, fact))
        before = self.state
        commands = self._referee.tell(fact, self.now)
        self.state = self._referee.state
        _judge(before, fact, self.state, commands)
        for command in commands:
            self._note(command)
            if isinstance(command, FetchCandidates | RefreshIssues):
                self.snapshots[command.request] = dict(self.board)
        return commands

    # --- the end of a schedule ---------------------------------------------------------------------------

    def replay(self) -> None:
        """The recorded inputs give the same states and commands once more."""
        self._referee.replay()

    def quiesce(self) -> None:
        """With an unchanged board and instant answers the scheduler stops asking."""
        self.answer()
        quiet = Timer(TimerKind.TRACKER_PAUSE) in self.state.timers
        assert not self.state.ids_to_refresh or quiet or self.state.drain is Drain.EXITED

    def wind_down(self) -> None:
        """Once everything is done on the board and workers obey, nothing stays claimed."""
        self.tell(SettingsChanged(settings=make_settings(poll_interval_ms=20_000)))
        self.tell(OperatorAsked(action=OperatorAction.RESUME))
        for key in self.board:
            self.put(key, state="Done")
        self.slow = False
        for _ in range(60):
            if not self.live and not self.state.retrying and not self.state.blocked:
                return
            self.advance(20_000)
            self.answer()
            for run_id in [key for key in self.live if key in self._referee.books.told]:
                self.ends(self.live[run_id])
        state = self.state
        assert not self.live, "a run that nobody ends"
        if state.drain is Drain.NO:
            assert not state.retrying, "a claim that is stuck"
            assert not state.blocked, "a block that is stuck"
