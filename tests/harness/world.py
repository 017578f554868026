"""A world that keeps its own books and checks the scheduler against them after every step.

What must hold (DESIGN 4): limits at the moment of a start; one live run per issue; a run ends by its own end
and by nothing else; no start on the way out or under an invalid workflow; every wait has somebody who will
end it, so that no claim is ever stuck.
"""

from collections import Counter
from collections.abc import Collection

from typing_extensions import override

from harness.scheduling import Story, make_settings
from symphony.domain.issue import Issue, normalise_state
from symphony.scheduler.commands import (
    Command,
    ContinueRun,
    Exit,
    FetchCandidates,
    FinishRun,
    RefreshIssues,
    StartRun,
    StopRun,
)
from symphony.scheduler.inputs import (
    Input,
    Refreshed,
    RunEnded,
    RunStage,
    SettingsChanged,
    Timer,
    TimerKind,
)
from symphony.scheduler.machine import step
from symphony.scheduler.policy import CONTINUATION_DELAY_MS
from symphony.scheduler.state import Cycle, Drain, Running, State

__all__ = ["RETRY_AFTER_MS", "World"]

RETRY_AFTER_MS = 123_000
_UNWATCHED = frozenset({RunStage.FINISHING})


class World(Story):
    """A story in which every step is checked. `live` maps run ids to issue ids by the world's own count."""

    def __init__(self, *issues: Issue, **settings: object) -> None:
        super().__init__(*issues, **settings)
        self.slow = True
        self.live: dict[str, str] = {}
        self.stopped: set[str] = set()
        self.finished: set[str] = set()
        self.begun = False
        self.steps: list[tuple[State, tuple[Command, ...]]] = []
        self.snapshots: dict[int, dict[str, Issue]] = {}
        self._first = self.state

    @override
    def _step(self, fact: Input) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self.steps.append((self.state, commands))
        if isinstance(fact, RunEnded):
            self.live.pop(fact.run_id, None)
        for command in commands:
            self._book(command)
            if isinstance(command, FetchCandidates | RefreshIssues):
                self.snapshots[command.request] = dict(self.board)
        self._check_starts(before, fact, commands)
        self._check_claims(before, fact)
        self._check_waits(before)
        self._check_exit()
        return commands

    # --- the world's own books ---------------------------------------------------------------------------

    def _book(self, command: Command) -> None:
        match command:
            case StartRun():
                assert command.issue.id not in self.live.values(), "two live runs of one issue"
                assert command.run_id not in self.live, "a run id used twice"
                self.live[command.run_id] = command.issue.id
            case StopRun():
                assert command.run_id in self.live
                assert command.run_id not in self.stopped, "stopped twice"
                self.stopped.add(command.run_id)
            case FinishRun():
                assert command.run_id in self.live
                assert command.run_id not in self.stopped | self.finished, "finished though it is deaf"
                self.finished.add(command.run_id)
            case ContinueRun():
                assert command.run_id in self.live
                assert command.run_id not in self.stopped | self.finished, "continued though it ends"
            case Exit():
                assert not self.live, "exit while something runs"
            case _:
                pass

    # --- what must hold ----------------------------------------------------------------------------------

    def _check_starts(self, before: State, fact: Input, commands: Collection[Command]) -> None:
        started = [command for command in commands if isinstance(command, StartRun)]
        if not started:
            return
        state = self.state
        assert before.drain is Drain.NO, "a start on the way out"
        assert before.hold is None, "a start under an invalid workflow"
        assert isinstance(fact, Refreshed), "a start without a fresh look"
        assert all(start.issue in fact.issues for start in started)
        assert all(start.issue.id not in before.wanted for start in started), "a start by a stale answer"
        assert len(state.running) <= state.settings.max_concurrent_agents
        used = Counter(normalise_state(start.issue.state) for start in started)
        used.update(_steady_states(before, state))
        for name, cap in state.settings.max_concurrent_by_state.items():
            if any(normalise_state(start.issue.state) == name for start in started):
                assert used[name] <= cap, "a start beyond the limit of its state"

    def _check_claims(self, before: State, fact: Input) -> None:
        state = self.state
        claims = [*state.running, *state.retrying, *state.blocked]
        assert len(claims) == len(set(claims)), "an issue claimed in two ways"
        assert {run.run_id: key for key, run in state.running.items()} == self.live, "a slot lost or invented"
        assert all(key == run.issue.id for key, run in state.running.items())
        if isinstance(fact, SettingsChanged):
            assert set(claims) == {*before.running, *before.retrying, *before.blocked}
        longest = max(
            state.settings.max_retry_backoff_ms,
            state.settings.poll_interval_ms,
            CONTINUATION_DELAY_MS,
            RETRY_AFTER_MS,
        )
        for key, retry in state.retrying.items():
            if before.retrying.get(key) != retry:
                assert retry.due_ms - self.now <= longest, "a wait beyond the cap"

    def _check_waits(self, before: State) -> None:
        """Everything that waits is waited for."""
        state, asked = self.state, self._asked()
        assert len(self.refreshes) <= 1, "two by-id requests under way"
        assert {ask.request for ask in self.refreshes} == (
            {state.refresh.request} if state.refresh else set()
        )
        if state.wanted and not state.refresh and state.drain is not Drain.EXITED:
            assert self._armed(Timer(TimerKind.QUIET)), "ids that nobody will ask for"
        assert state.picks <= asked
        assert not state.picks & {*state.running, *state.retrying, *state.blocked}
        for key, run in state.running.items():
            self._check_run(key, run, asked)
        if state.drain is Drain.NO:
            for key, retry in state.retrying.items():
                waiting = key in asked if retry.firing else self._armed(Timer(TimerKind.RETRY, key))
                assert waiting, "a retry that never comes due"
            if self.begun:
                self._check_cycle(asked)
        elif before.drain is state.drain is Drain.DRAINING and state.running:
            ending = all(run.stopping for run in state.running.values())
            assert ending or self._armed(Timer(TimerKind.DRAIN)), "a drain without end"

    def _check_run(self, key: str, run: Running, asked: Collection[str]) -> None:
        if run.stopping or run.finishing:
            return
        if run.awaiting:
            assert key in asked, "a worker that waits for ever"
            return
        if run.settling:
            assert self._armed(Timer(TimerKind.SETTLE, run.run_id)), "a grace without end"
        watched = run.agent_ms is not None and run.report.stage not in _UNWATCHED
        if watched and self.state.settings.stall_timeout_ms > 0:
            assert self._armed(Timer(TimerKind.STALL, run.run_id)), "silence nobody notices"

    def _check_cycle(self, asked: Collection[str]) -> None:
        state = self.state
        open_requests = {ask.request for ask in self.refreshes} | {ask.request for ask in self.polls}
        if state.cycle is Cycle.IDLE:
            assert self._armed(Timer(TimerKind.POLL)), "no next poll"
            assert not state.poll_again
        elif state.cycle_request is None:
            assert state.cycle is Cycle.RECONCILING
            assert asked, "a cycle that waits for no question"
        else:
            assert state.cycle_request in open_requests, "a cycle that waits for no answer"

    def _check_exit(self) -> None:
        assert self.exits() <= 1
        assert (self.exits() == 1) == (self.state.drain is Drain.EXITED)

    def _asked(self) -> frozenset[str]:
        state = self.state
        return state.wanted | (state.refresh.ids if state.refresh else frozenset())

    def _armed(self, timer: Timer) -> bool:
        """The timer is live in the scheduler's eyes and will fire with that token."""
        pending = self.timers.get(timer)
        return pending is not None and self.state.timers.get(timer) == pending.token

    # --- the end of a schedule ---------------------------------------------------------------------------

    def replay(self) -> None:
        """The recorded inputs give the same states and commands once more."""
        state = self._first
        for (now_ms, fact), (expected, commands) in zip(self.inputs, self.steps, strict=True):
            state, said = step(state, fact, now_ms)
            assert said == commands
            assert state == expected

    def quiesce(self) -> None:
        """With an unchanged board and instant answers the scheduler stops asking."""
        self.answer()
        quiet = self._armed(Timer(TimerKind.QUIET))
        assert not self.state.wanted or quiet or self.state.drain is Drain.EXITED

    def wind_down(self) -> None:
        """Once everything is done on the board and workers obey, nothing stays claimed."""
        self.tell(SettingsChanged(settings=make_settings(poll_interval_ms=20_000)))
        for key in self.board:
            self.put(key, state="Done")
        self.slow = False
        for _ in range(60):
            self.advance(20_000)
            self.answer()
            for run_id in [run_id for run_id in self.live if run_id in self.stopped | self.finished]:
                self.ends(self.live[run_id])
        state = self.state
        assert not self.live, "a run that nobody ends"
        if state.drain is Drain.NO:
            assert not state.retrying, "a claim that is stuck"
            assert not state.blocked, "a block that is stuck"


def _steady_states(before: State, after: State) -> Counter[str]:
    """States of the runs that were in that state all through a step."""
    return Counter(
        normalise_state(run.issue.state)
        for key, run in after.running.items()
        if key in before.running
        and normalise_state(before.running[key].issue.state) == normalise_state(run.issue.state)
    )
