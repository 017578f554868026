"""The simulation: one world, one seed, one clock; ends at its time, or at the first broken rule."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from kit.simulator.books import Moment
from kit.simulator.clock import Clock
from kit.simulator.crashing import Crashes
from kit.simulator.daemon import Daemon
from kit.simulator.dice import Dice
from kit.simulator.forge import Forge, Watch
from kit.simulator.hosts import Hosts
from kit.simulator.judged import AGENT, COMMENT, FINISHED, HEARD, TOLD, WINDS_DOWN
from kit.simulator.liveness import Liveness
from kit.simulator.memory import Forgetting, Memory
from kit.simulator.notes import Notes
from kit.simulator.operators import Operators
from kit.simulator.people import Agents, People
from kit.simulator.referee import InvariantBrokenError, Referee, Violation
from kit.simulator.result import Result
from kit.simulator.scenario import Scenario, days, make_settings, minutes
from kit.simulator.statistics import Tally
from kit.simulator.tracker import Tracker
from kit.simulator.workers import Checks, Workers
from symphony.domain import Category, normalise_state
from symphony.scheduler import (
    Drain,
    DrainAsked,
    Eligible,
    OperatorAction,
    OperatorAsked,
    SettingsChanged,
    StepFunction,
    WakeAsked,
    awaits_answer,
    eligibility,
    step,
)

__all__ = ["Parts", "Simulation", "simulate"]


_ONE_DAY = days(1)
_MINUTE_MS = 60_000
_LEAVE_MS = 12 * 60 * _MINUTE_MS
_LOOKS = 10
_NOTE_MS = 2_000
_CRASHES, _MEMORY, _WORDS, _HOSTS, _FORGE, _CHECKS = (
    1 << 40,
    1 << 41,
    1 << 42,
    1 << 43,
    1 << 44,
    1 << 45,
)  # dice of their own, so that they change no other chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of the daemon around the scheduler that can be put in the place of ours, to see who notices.

    `reaps`: a start ends the agents that are left. `reads_back`: a comment that stands is looked for before
    one is written. `fences`: a run waits for what is left of its issue on hosts. `forgetting` is what becomes
    of the memory. `watch` looks at pull requests.
    """

    reaps: bool = True
    reads_back: bool = True
    fences: bool = True
    forgetting: Forgetting | None = None
    watch: Watch | None = None


class Simulation:
    """A world in virtual time.

    Args:
        scenario: the board, the limits, the habits.
        seed: the same seed gives the same history, on any machine.
        duration: virtual time; it is over in seconds.
        step: the scheduler that is judged.
        parts: other parts of the daemon that are judged, in the place of ours.
        replays: whether every step is taken again at the end and must give the same.
        replay_command: the command that gives this simulation again, where the caller knows a better one.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int,
        duration: timedelta,
        step: StepFunction = step,
        parts: Parts | None = None,
        replays: bool = True,
        replay_command: str | None = None,
    ) -> None:
        self._scenario = scenario
        self._seed = seed
        self._duration = duration
        self._replays = replays
        self._command = replay_command
        self._violation: Violation | None = None
        self._finished = self._lived_ms = 0
        self._clock = Clock()
        dice = Dice(seed)
        profile, settings = scenario.profile, scenario.first_settings()
        self._tally = Tally()
        self._tracker = Tracker(self._clock, dice, profile.tracker, tells=profile.people.tells)
        self._agents = Agents(self._clock, dice, profile.agents, scenario.sessions)
        self._crashes = Crashes(Dice(seed + _CRASHES))
        if scenario.crash is not None:
            self._crashes.arm(*scenario.crash)
        self._referee = Referee(step, watch=self._watch)
        self._make_daemon(dice, parts or Parts())
        self._people = People(self._clock, dice, self._tracker, profile.people, hurry=scenario.hurry)
        if profile.agents.asks:
            self._people.answer(Dice(seed + _WORDS))
        self._operators = Operators(
            self._clock,
            dice,
            self._daemon,
            self._crashes,
            self._memory,
            profile.operators,
            settings,
            hurry=scenario.hurry,
        )
        self._forge = Forge(
            self._clock,
            Dice(seed + _FORGE),
            profile.forge,
            self._daemon,
            self._memory,
            self._referee,
            (parts and parts.watch) or Watch(),
        )
        self._liveness = Liveness(self._clock, self._referee, self._tracker, self._daemon, self._operators)
        self._people.file(scenario.board, scenario.issues, self.end_ms)
        self._clock.at(0, self._daemon.start, settings)
        self._clock.after(1_000, self._liveness.look_now_and_then)

    def _make_daemon(self, dice: Dice, parts: Parts) -> None:
        clock, tracker, crashes = self._clock, self._tracker, self._crashes
        workers = Workers(clock, tracker, crashes, self._agents.session)
        workers.on_second = self._second_agent
        workers.fences = parts.fences
        workers.checks = Checks(Dice(self._seed + _CHECKS), self._scenario.profile.checks)
        self._hosts = Hosts(
            clock, Dice(self._seed + _HOSTS), self._scenario.profile.hosts, lambda: workers.live
        )
        workers.hosts = self._hosts
        self._referee.books.tokens = workers.disk.used
        habits = self._scenario.profile.journal
        self._memory = memory = Memory(clock, Dice(self._seed + _MEMORY), habits, parts.forgetting)
        self._notes = Notes(clock, dice, tracker, memory, crashes, reads_back=parts.reads_back)
        self._notes.on_second = self._second_comment
        self._daemon = Daemon(
            clock, dice, self._referee, tracker, workers, memory, self._notes, reaps=parts.reaps
        )

    @property
    def end_ms(self) -> int:
        """When it is over."""
        return round(self._duration.total_seconds() * 1000)

    def run(self, *, progress: Callable[[int], None] | None = None, slices: int = 100) -> Result:
        """Live to the end or to the first broken rule; `progress` is told the virtual time now and then."""
        try:
            for part in range(1, slices + 1 if progress else 2):
                until_ms = self.end_ms * part // slices if progress else self.end_ms
                self._clock.run(until_ms, over=self._enough if self._scenario.max_inputs else None)
                if progress:
                    progress(until_ms)
            self._count_finished()
            if self._scenario.winds_down:
                self._settle()
                self._wind_down()
            if self._replays:
                self._referee.replay()
        except InvariantBrokenError as error:
            self._violation = error.violation
        return self._result()

    def _watch(self, moment: Moment) -> None:
        self._tally.watch(moment)
        self._liveness.watch(moment)

    def _enough(self) -> bool:
        return self._scenario.max_inputs is not None and self._referee.count >= self._scenario.max_inputs

    def _second_agent(self, issue_id: str) -> None:
        words = "a second agent was started beside a live one"
        raise self._referee.broken(AGENT, words, self._clock.now_ms, issue_id)

    def _second_comment(self, issue_id: str) -> None:
        words = "it has the same comment twice"
        raise self._referee.broken(COMMENT, words, self._clock.now_ms, issue_id)

    # --- the end -----------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Nobody disturbs, and all goes well: what may be worked on is finished, or blocked and told."""
        self._people.rest()
        self._tracker.mend()
        self._agents.calm_down()
        self._memory.rest()
        self._hosts.rest()
        self._forge.rest()
        self._liveness.rest()
        self._crashes.disarm()
        daemon, clock = self._daemon, self._clock
        if daemon.up and daemon.state.drain is not Drain.NO:
            self._leave()
        self._operators.rest()
        clock.run(clock.now_ms + _LEAVE_MS, over=lambda: daemon.up)
        slots = max(1, self._scenario.first_settings().max_concurrent_agents)
        settings = make_settings(poll_interval_ms=_MINUTE_MS, max_concurrent_agents=slots)
        daemon.tell(SettingsChanged(settings=settings))
        if daemon.state.paused:
            daemon.tell(OperatorAsked(action=OperatorAction.RESUME))
        daemon.tell(WakeAsked(reason="good weather"))
        for look in range(_LOOKS):
            clock.run(clock.now_ms + _MINUTE_MS * 2**look)
            if not self._unfinished() and not self._unheard():
                break
        if unfinished := self._unfinished():
            words = "it is neither finished nor blocked"
            raise self._referee.broken(FINISHED, words, clock.now_ms, unfinished[0])
        clock.run(clock.now_ms + _NOTE_MS)
        if unheard := self._unheard():
            raise self._referee.broken(HEARD, "a person answered, and it waits", clock.now_ms, unheard[0])
        self._forge.check_end()
        clock.run(clock.now_ms + _NOTE_MS)
        told = {key for key, kind in self._tracker.comments if kind.startswith("blocked")}
        for key, blocked in sorted(daemon.state.blocked.items()):
            if key not in told and not self._waits_for_operator(key):
                words = f"nobody told that it is blocked: {blocked.failure.message}"
                raise self._referee.broken(TOLD, words, clock.now_ms, key)

    def _unfinished(self) -> list[str]:
        state = self._daemon.state
        board = self._tracker.in_states(state.settings.active_states)
        return [
            issue.id
            for issue in board
            if issue.id in state.running
            or issue.id in state.retrying
            or isinstance(eligibility(issue, state), Eligible)
        ]

    def _unheard(self) -> list[str]:
        """The issues with an open question that a person answered.

        An answer may be there for minutes: a request that hangs since before the good weather holds up the
        cycle, and the comments are read with the next one.
        """
        return [
            key
            for key, blocked in sorted(self._daemon.state.blocked.items())
            if awaits_answer(blocked) and self._tracker.said_to(key, blocked.run_id or "")
        ]

    def _wind_down(self) -> None:
        """Everything is done, nobody disturbs: claims must go, and the daemon must end when asked."""
        self._tracker.close()
        daemon = self._daemon
        daemon.tell(WakeAsked(reason="the end"))
        self._clock.run(self._clock.now_ms + _LEAVE_MS, over=lambda: not self._claimed())
        if claimed := self._claimed():
            words = f"{len(claimed)} issues are still claimed though everything is done"
            raise self._referee.broken(WINDS_DOWN, words, self._clock.now_ms, claimed[0])
        daemon.tell(DrainAsked())
        self._leave()

    def _claimed(self) -> list[str]:
        state = self._daemon.state
        claims = {*state.running, *state.retrying, *state.blocked}
        return sorted(key for key in claims if not self._waits_for_operator(key))

    def _waits_for_operator(self, key: str) -> bool:
        """Whether an operator stopped an issue that is gone from the board: only an operator lifts that.

        Nobody can write a comment on it.
        """
        blocked = self._daemon.state.blocked.get(key)
        is_stopped = blocked is not None and blocked.failure.category is Category.STOPPED_BY_OPERATOR
        return is_stopped and key not in self._tracker.board

    def _leave(self) -> None:
        self._clock.run(self._clock.now_ms + _LEAVE_MS, over=lambda: not self._daemon.up)
        if self._daemon.up:
            raise self._referee.broken(
                WINDS_DOWN, "the daemon was asked to end and did not", self._clock.now_ms
            )

    # --- what it came to ---------------------------------------------------------------------------------

    def _result(self) -> Result:
        statistics = self._tally.statistics(
            virtual_ms=self._lived_ms or self._clock.now_ms,
            inputs=self._referee.count,
            lives=len(self._referee.lives),
            issues=len(self._tracker.changed_ms),
            finished=self._finished,
            crashes=self._crashes.deaths,
        )
        return Result(
            seed=self._seed,
            replay_command=self._replay_command(),
            violations=() if self._violation is None else (self._violation,),
            statistics=statistics,
            lives=self._referee.lives,
        )

    def _count_finished(self) -> None:
        self._lived_ms = self._clock.now_ms
        terminal = self._scenario.first_settings().terminal_states
        states = (normalise_state(issue.state) for issue in self._tracker.board.values())
        self._finished = sum(state in terminal for state in states)

    def _replay_command(self) -> str | None:
        options = self._scenario.options()
        if self._command is not None or options is None:
            return self._command
        whole_days, rest = divmod(self._duration, days(1))
        length = ("--minutes", f"{self._duration / minutes(1):.12g}") if rest else ("--days", str(whole_days))
        words = shlex.join(["--seed", str(self._seed), *length, *options])
        return f"PYTHONPATH=tests python -m kit.simulator {words}"


def simulate(
    scenario: Scenario,
    *,
    seed: int = 0,
    duration: timedelta = _ONE_DAY,
    step: StepFunction = step,
) -> Result:
    """Live through a scenario in virtual time; `Result.check` raises for a broken rule.

    `seed` decides everything that chance decides; `step` is the scheduler that is judged.
    """
    return Simulation(scenario, seed=seed, duration=duration, step=step).run()
