"""The daemon around the scheduler, one life after the other: carries commands out in virtual time.

It does what `symphony.runtime` does, without a process: questions go to the tracker, runs to the workers,
timers to the clock. A fact that belongs to an earlier life never reaches the present one.
"""

from functools import partial

from symphony.scheduler.commands import (
    CleanWorkspace,
    Command,
    ContinueRun,
    Exit,
    FetchCandidates,
    FinishRun,
    RefreshIssues,
    SetTimer,
    StartRun,
    StopRun,
)
from symphony.scheduler.inputs import Input, Recovered, SchedulerSettings, Timer, TimerFired, WakeAsked
from symphony.scheduler.state import State, initial
from symphony.testing.simulator.clock import Clock
from symphony.testing.simulator.dice import Dice
from symphony.testing.simulator.referee import Referee
from symphony.testing.simulator.tracker import Act, Deliver, Tracker
from symphony.testing.simulator.workers import Workers

__all__ = ["Daemon"]

_STALE_TIMER = 0.1
_ANNOUNCED_MS = 50


class Daemon:
    """One daemon at a time; `on_exit` is called when it ends by itself. Down means `up_since_ms` is null."""

    def __init__(
        self, clock: Clock, dice: Dice, referee: Referee, tracker: Tracker, workers: Workers
    ) -> None:
        self.up_since_ms: int | None = None
        self.life = 0
        self.on_exit: Act | None = None
        self._clock = clock
        self._dice = dice
        self._referee = referee
        self._tracker = tracker
        self._workers = workers
        self._timers: dict[Timer, int] = {}
        self._deliver: Deliver = partial(self._tell_in, 0)
        tracker.announce = self._announced

    @property
    def state(self) -> State:
        """What the scheduler knows."""
        return self._referee.state

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return self.up_since_ms is not None

    def start(self, settings: SchedulerSettings) -> None:
        """Begin a life: what the last one left running has been ended, what it left on disk is told."""
        self.life += 1
        self.up_since_ms = self._clock.now_ms
        self._timers.clear()
        self._deliver = partial(self._tell_in, self.life)
        self._referee.begin(initial(settings, epoch=f"d{self.life}"))
        refs = self._workers.workspaces
        self.tell(Recovered(workspaces=tuple(refs[key] for key in sorted(refs))))

    def kill(self) -> None:
        """End at once, without a word."""
        self.up_since_ms = None
        self._workers.die()

    def tell(self, fact: Input) -> None:
        """Feed a fact to the scheduler and begin to carry out what it says."""
        if self.up_since_ms is not None:
            for command in self._referee.tell(fact, self._clock.now_ms):
                self._carry_out(command)

    def _tell_in(self, life: int, fact: Input) -> None:
        if life == self.life:
            self.tell(fact)

    def _announced(self) -> None:
        self._clock.after(_ANNOUNCED_MS, self._deliver, WakeAsked(reason="tracker_changed"))

    def _carry_out(self, command: Command) -> None:
        match command:
            case FetchCandidates():
                self._tracker.poll(command.request, self.state.settings.active_states, self._deliver)
            case RefreshIssues():
                self._tracker.refresh(command.request, command.ids, self._deliver)
            case StartRun():
                self._workers.start(command, self._deliver)
            case ContinueRun() | FinishRun():
                self._workers.direct(command)
            case StopRun():
                self._workers.stop(command.run_id)
            case SetTimer():
                self._timers[command.timer] = command.token
                self._clock.at(command.due_ms, self._fire, self.life, command)
            case CleanWorkspace():
                self._workers.workspaces.pop(command.issue_id, None)
            case Exit():
                self._clock.after(0, self._exit, self.life)
            case _:
                pass  # words for people

    def _fire(self, life: int, command: SetTimer) -> None:
        newest = self._timers.get(command.timer) == command.token
        if newest or self._dice.chance(_STALE_TIMER):
            self._tell_in(life, TimerFired(timer=command.timer, token=command.token))

    def _exit(self, life: int) -> None:
        if life == self.life and self.up:
            self.kill()
            if self.on_exit is not None:
                self.on_exit()
