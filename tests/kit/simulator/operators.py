"""What happens to the daemon from outside: reloads, wakes, verbs, drains, kills, crashes, suspends."""

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from kit.simulator.clock import Clock
from kit.simulator.crashing import Crashes
from kit.simulator.daemon import Daemon
from kit.simulator.dice import Dice
from kit.simulator.memory import Memory
from kit.simulator.orders import Orders
from kit.simulator.profiles import OperatorHabits
from symphony.domain import Blame, Category, Failure
from symphony.scheduler import (
    Drain,
    DrainAsked,
    SchedulerSettings,
    SettingsChanged,
    StopAsked,
    WakeAsked,
    WorkflowRejected,
)

__all__ = ["Operators"]


_BROKEN = Failure(
    category=Category.WORKFLOW_PARSE_ERROR, blame=Blame.CONFIG, message="not YAML", where="WORKFLOW.md:3"
)


class Operators:
    """Act on the daemon in their own time, and bring it back whenever it went away.

    `settings` are those of the workflow file, in force from the next reload or start; `disturbed_ms` is when
    the machine last woke up.
    """

    def __init__(
        self,
        clock: Clock,
        dice: Dice,
        daemon: Daemon,
        crashes: Crashes,
        memory: Memory,
        habits: OperatorHabits,
        settings: SchedulerSettings,
        *,
        hurry: int,
    ) -> None:
        self.settings = settings
        self.disturbed_ms = 0
        self._first = settings
        self._clock = clock
        self._dice = dice
        self._daemon = daemon
        self._crashes = crashes
        self._memory = memory
        self._orders = Orders(dice, daemon)
        self._habits = habits
        self._hurry = hurry
        self._resting = False
        self._broken = False
        daemon.on_exit = self._bring_back
        crashes.on_death(self._kill)
        for every_ms, act in (
            (habits.reload_every_ms, self._reload),
            (habits.break_every_ms, self._break),
            (habits.wake_every_ms, self._wake),
            (habits.drain_every_ms, self._drain),
            (habits.kill_every_ms, self._kill),
            (habits.suspend_every_ms, self._suspend),
            (habits.crash_every_ms, crashes.arm),
            (habits.verb_every_ms, self._orders.give),
            (habits.clock_every_ms, self._set_clock),
        ):
            if every_ms is not None:
                self._plan(max(1, every_ms // hurry), act)

    def _plan(self, every_ms: int, act: Callable[[], None]) -> None:
        self._clock.after(self._dice.around(every_ms), self._act, every_ms, act)

    def _act(self, every_ms: int, act: Callable[[], None]) -> None:
        if self._resting:
            return
        self._plan(every_ms, act)
        if self._daemon.up:
            act()

    def rest(self) -> None:
        """Leave the daemon alone, once it is up and its workflow is valid."""
        self._resting = True
        self._crashes.disarm()
        if not self._daemon.alive:
            self._start()

    # --- the workflow file -------------------------------------------------------------------------------

    def _reload(self) -> None:
        dice, first = self._dice, self._first
        slots = first.max_concurrent_agents
        self.settings = replace(
            first,
            max_concurrent_agents=dice.pick((slots, slots, slots + 1, max(1, slots // 2))),
            max_concurrent_by_state=dice.pick(
                ({}, {}, {"todo": 1}, {"todo": max(1, slots - 1), "in progress": 1})
            ),
            max_turns=dice.pick((first.max_turns, 1, 2)),
            max_retry_backoff_ms=dice.pick((first.max_retry_backoff_ms, 30_000, 900_000)),
            stall_timeout_ms=dice.pick((first.stall_timeout_ms, 0, first.stall_timeout_ms * 2)),
            poll_interval_ms=dice.pick((first.poll_interval_ms, first.poll_interval_ms * 2)),
            budget=structs.replace(
                first.budget,
                max_attempts_without_progress=dice.pick((first.budget.max_attempts_without_progress, 1, 3)),
            ),
            drain_timeout_ms=dice.pick((first.drain_timeout_ms, 0)),
            required_labels=("X ",) if dice.chance(0.1) else (),
            fallback=dice.pick((first.fallback, first.fallback, None, "aider")),
            rules=dice.pick((first.rules, first.rules, ())),
        )
        self._broken = False
        self._daemon.tell(SettingsChanged(settings=self.settings))

    def _break(self) -> None:
        self._broken = True
        self._daemon.tell(WorkflowRejected(failure=_BROKEN))
        self._clock.after(self._dice.between(self._habits.broken_ms) // min(self._hurry, 10), self._mend)

    def _mend(self) -> None:
        if self._broken and not self._resting:
            self._broken = False
            self._daemon.tell(SettingsChanged(settings=self.settings))

    # --- the daemon --------------------------------------------------------------------------------------

    def _wake(self) -> None:
        for _ in range(self._dice.between((1, 3))):
            self._daemon.tell(WakeAsked(reason="operator", by_operator=True))

    def _drain(self) -> None:
        self._daemon.tell(DrainAsked())
        if self._dice.chance(0.4):
            self._clock.after(self._dice.between((0, 20_000)), self._hurry_up, self._daemon.life)

    def _hurry_up(self, life: int) -> None:
        draining = self._daemon.up and self._daemon.state.drain is not Drain.NO
        if life == self._daemon.life and draining:
            self._daemon.tell(StopAsked())

    def _kill(self) -> None:
        self._daemon.kill()
        self._bring_back()

    def _bring_back(self) -> None:
        if not self._resting:
            self._clock.after(self._dice.between(self._habits.down_ms), self._start)

    def _start(self) -> None:
        if not self._daemon.alive:
            self._broken = False  # a daemon does not start with an invalid workflow, so somebody mended it
            self._daemon.start(self.settings)

    def _set_clock(self) -> None:
        self._memory.set_clock()
        self._daemon.look_at_the_day()

    def _suspend(self) -> None:
        self._clock.suspend(self._dice.between(self._habits.suspend_ms))
        self.disturbed_ms = self._clock.now_ms
