"""Random schedules: whatever happens in whatever order, the promises of the scheduler hold (DESIGN 4).

Hypothesis draws them step by step and shrinks what it finds; `test_many_schedules.py` has the mass. They are
the same on every machine and in every run. To look for new ones, here a sixtieth of so many:
`SYMPHONY_SIMULATION_EXAMPLES=100000 pytest tests/simulation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from harness.nightly import SCHEDULES
from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Blocker, Category, Failure, Issue, Tokens
from symphony.scheduler import (
    AgentReported,
    ClaimKind,
    Command,
    DayBegan,
    Drain,
    DrainAsked,
    Event,
    FetchCandidates,
    OperatorAction,
    OperatorAsked,
    Outcome,
    OutcomeKind,
    Polled,
    PollFailed,
    Recovered,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    Resume,
    ResumeReason,
    RunEnded,
    RunReport,
    RunStage,
    SettingsChanged,
    StopAsked,
    StoredClaim,
    Thread,
    Timer,
    TimerFired,
    TimerKind,
    TurnEnded,
    WakeAsked,
    WorkflowRejected,
    WorkspaceRef,
    refusal,
)

T = TypeVar("T")

RETRY_AFTER_MS = 123_000
_RESUME = Resume(
    reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t-0", tokens=Tokens(total_tokens=50))
)

IDS = ("a", "b", "c", "d", "e")
_TOKENS = st.sampled_from([0, 0, 100, 400])
_VERBS = st.sampled_from([verb for verb in OperatorAction if verb is not OperatorAction.DRAIN])
_ANY = st.integers(min_value=0, max_value=99)
_IDS = st.sampled_from(IDS)
_STATES = st.sampled_from(["Todo", "Todo", "In Progress", " TODO", "Backlog", "Done", "nowhere", ""])
_CHANGES = st.one_of(
    st.builds(lambda value: {"state": value}, _STATES),
    st.builds(lambda value: {"dispatchable": value}, st.booleans()),
    st.builds(lambda value: {"title": value}, st.sampled_from(["one", "two", ""])),
    st.builds(lambda value: {"labels": (value,)}, st.sampled_from(["x", "y"])),
    st.builds(lambda value: {"priority": value}, st.sampled_from([None, 0, 1, 4, 9])),
    st.builds(lambda value: {"blocked_by": (Blocker(id=value),)}, _IDS),
)
_SETTINGS = st.fixed_dictionaries(
    {
        "max_concurrent_agents": st.sampled_from([1, 2, 3, 0]),
        "max_concurrent_by_state": st.sampled_from([{}, {"todo": 1}, {"todo": 2, "in progress": 1}]),
        "max_turns": st.sampled_from([1, 2, 20]),
        "max_retry_backoff_ms": st.sampled_from([1, 5_000, 300_000]),
        "stall_timeout_ms": st.sampled_from([0, 2_000, 300_000]),
        "poll_interval_ms": st.sampled_from([1, 5_000, 30_000]),
        "max_turns_without_progress": st.sampled_from([None, 1, 2]),
        "max_attempts_without_progress": st.sampled_from([1, 2, 5]),
        "drain_timeout_ms": st.sampled_from([0, 10_000]),
        "required_labels": st.sampled_from([(), (), ("x",)]),
        "max_tokens_per_issue": st.sampled_from([None, None, 300]),
        "max_tokens_per_day": st.sampled_from([None, None, 500]),
        "max_turns_per_issue": st.sampled_from([None, None, 2]),
    }
)
_FAILURES = st.builds(
    lambda blame, wait: make_failure(blame=blame, retry_after_ms=wait),
    st.sampled_from(list(Blame)),
    st.sampled_from([None, 0, RETRY_AFTER_MS]),
)
_OUTCOMES = st.builds(
    lambda kind, failure, progress: Outcome(
        kind=kind, failure=failure, progress=progress, question="which?" if failure else None
    ),
    st.sampled_from([OutcomeKind.SUCCEEDED, *OutcomeKind]),
    st.one_of(st.none(), _FAILURES),
    st.sampled_from([None, True, False]),
)
_CLAIMS = st.builds(
    StoredClaim,
    issue=st.builds(make_issue, _IDS),
    kind=st.sampled_from(list(ClaimKind)),
    attempt=st.sampled_from([None, 1, 7]),
    due_ms=st.sampled_from([-5_000, 0, 500]),
    attempts_without_progress=st.integers(min_value=0, max_value=5),
    resume=st.sampled_from([None, _RESUME]),
    failure=st.one_of(st.none(), _FAILURES),
    question=st.sampled_from([None, "which?"]),
)
_STAGES = st.sampled_from([RunStage.STREAMING_TURN, *RunStage])


def _pick(many: Sequence[T], number: int) -> T:
    return many[number % len(many)]


class World(Story):
    """Answers wait until they are asked for; `snapshots` hold the board as it was at each question."""

    def __init__(self, *issues: Issue, **settings: object) -> None:
        super().__init__(*issues, **settings)
        self.slow = True
        self.snapshots: dict[int, dict[str, Issue]] = {}

    @property
    def live(self) -> Mapping[str, str]:
        """Run ids and the issues they work on, by the referee's books."""
        return self.referee.books.live

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        commands = super()._step(fact)
        for command in commands:
            if isinstance(command, FetchCandidates | RefreshIssues):
                self.snapshots[command.request] = dict(self.board)
        return commands

    def replay(self) -> None:
        """The recorded inputs give the same states and commands once more."""
        self.referee.replay()

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
            for run_id in [key for key in self.live if key in self.referee.books.told]:
                self.ends(self.live[run_id])
        state = self.state
        assert not self.live, "a run that nobody ends"
        if state.drain is Drain.NO:
            assert not state.retrying, "a claim that is stuck"
            # A stop lasts also when the tracker does not find the issue any more.
            stuck = {key for key in state.blocked if key in self.board} | {
                key
                for key, held in state.blocked.items()
                if held.failure.category is not Category.STOPPED_BY_OPERATOR
            }
            assert not stuck, "a block that is stuck"


class Schedules(RuleBasedStateMachine):
    """One daemon's life; every step is checked by the world."""

    @initialize(options=_SETTINGS, count=st.integers(min_value=0, max_value=len(IDS)), at_work=st.booleans())
    def a_daemon(self, options: dict[str, Any], count: int, *, at_work: bool) -> None:
        self.world = World(*(make_issue(key, labels=("x",)) for key in IDS[:count]), **options)
        self.answers: list[Event] = []
        if at_work:
            self.the_daemon_recovers(frozenset())
            self.world.answer()

    def _answer(self, fact: Event) -> None:
        self.answers.append(fact)
        self.world.tell(fact)

    def _bounded(self, duration_ms: int) -> int:
        """Not so long that the shortest repeated wait fires more than some dozens of times."""
        now = self.world.state.settings
        return min(duration_ms, 50 * min(now.poll_interval_ms, now.max_retry_backoff_ms))

    # --- the board ---------------------------------------------------------------------------------------

    @rule(key=_IDS, changes=_CHANGES)
    def an_issue_is_made_or_changed(self, key: str, changes: dict[str, Any]) -> None:
        self.world.board[key] = replace(self.world.board.get(key, make_issue(key)), **changes)

    @rule(key=_IDS)
    def an_issue_vanishes(self, key: str) -> None:
        self.world.board.pop(key, None)

    # --- the tracker answers -----------------------------------------------------------------------------

    @rule()
    def everything_is_answered(self) -> None:
        self.world.answer()

    @precondition(lambda self: self.world.polls)
    @rule(stale=st.booleans())
    def a_poll_is_answered(self, *, stale: bool) -> None:
        ask = self.world.polls.pop(0)
        board = self.world.snapshots[ask.request] if stale else self.world.board
        self._answer(Polled(request=ask.request, issues=tuple(board.values())))

    @precondition(lambda self: self.world.polls)
    @rule(failure=_FAILURES)
    def a_poll_fails(self, failure: Failure) -> None:
        self._answer(PollFailed(request=self.world.polls.pop(0).request, failure=failure))

    @precondition(lambda self: self.world.refreshes)
    @rule(stale=st.booleans(), generous=st.booleans())
    def a_refresh_is_answered(self, *, stale: bool, generous: bool) -> None:
        ask = self.world.refreshes.pop(0)
        board = self.world.snapshots[ask.request] if stale else self.world.board
        issues = tuple(board[key] for key in sorted(board) if generous or key in ask.ids)
        self._answer(Refreshed(request=ask.request, issues=issues))

    @precondition(lambda self: self.world.refreshes)
    @rule(failure=_FAILURES, culprits=st.frozensets(_IDS, max_size=2))
    def a_refresh_fails(self, failure: Failure, culprits: frozenset[str]) -> None:
        request = self.world.refreshes.pop(0).request
        self._answer(RefreshFailed(request=request, failure=failure, culprits=culprits))

    @precondition(lambda self: self.answers)
    @rule(number=_ANY)
    def an_old_answer_comes_again(self, number: int) -> None:
        self.world.tell(_pick(self.answers, number))

    # --- workers -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.live)
    @rule(number=_ANY, stage=_STAGES, signs=st.booleans(), tool=st.booleans(), tokens=_TOKENS)
    def an_agent_reports(self, number: int, stage: RunStage, tokens: int, *, signs: bool, tool: bool) -> None:
        key = self.world.live[_pick(list(self.world.live), number)]
        before = self.world.state.running[key].report
        self.world.report(
            key,
            stage=stage,
            event_count=before.event_count + signs,
            tool_calls=int(tool),
            workspace_path=f"/ws/{key}",
            thread_id=f"t-{number % 2}",
            turn_count=self.world.state.running[key].turn,
            total_tokens=before.facts.tokens.total_tokens + tokens,
        )

    @precondition(lambda self: self.world.live)
    @rule(number=_ANY)
    def a_turn_ends(self, number: int) -> None:
        self.world.turn_ends(self.world.live[_pick(list(self.world.live), number)])

    @precondition(lambda self: self.world.live)
    @rule(number=_ANY, state=_STATES)
    def a_session_moves_its_own_issue(self, number: int, state: str) -> None:
        key = self.world.live[_pick(list(self.world.live), number)]
        self.world.streams(key, tool_calls=1)
        if key in self.world.board:
            self.world.put(key, state=state)
        self.somebody_wakes_it()

    @precondition(lambda self: self.world.live)
    @rule(number=_ANY, turn=st.integers(min_value=-1, max_value=3))
    def a_turn_is_said_to_end(self, number: int, turn: int) -> None:
        self.world.tell(TurnEnded(run_id=_pick(list(self.world.live), number), turn=turn))

    @precondition(lambda self: self.world.live)
    @rule(number=_ANY, outcome=_OUTCOMES)
    def a_run_ends(self, number: int, outcome: Outcome) -> None:
        self._answer(RunEnded(run_id=_pick(list(self.world.live), number), outcome=outcome))

    @precondition(lambda self: self.world.live)
    @rule(number=_ANY, failure=_FAILURES, person=st.booleans())
    def a_run_ends_in_vain(self, number: int, failure: Failure, *, person: bool) -> None:
        kind = OutcomeKind.INPUT_REQUIRED if person else OutcomeKind.FAILED
        self.a_run_ends(number, Outcome(kind=kind, failure=failure, progress=False))

    # --- time --------------------------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from([1, 100, 1_000, 10_000, 40_000, 700_000]))
    def time_passes_and_timers_are_late(self, duration_ms: int) -> None:
        self.world.now += duration_ms

    @rule(duration_ms=st.sampled_from([1, 100, 1_000, 10_000, 40_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.advance(self._bounded(duration_ms))

    @precondition(lambda self: self.world.timers)
    @rule(number=_ANY)
    def one_timer_fires(self, number: int) -> None:
        timer = self.world.timers.pop(_pick(list(self.world.timers), number))
        self.world.now = max(self.world.now, timer.due_ms)
        self.world.tell(TimerFired(timer=timer.timer, token=timer.token))

    @rule(duration_ms=st.sampled_from([1_000, 10_000, 40_000, 300_000]))
    def time_passes_and_the_tracker_answers(self, duration_ms: int) -> None:
        self.world.slow = False
        self.world.advance(self._bounded(duration_ms))
        self.world.slow = True

    @rule(kind=st.sampled_from(list(TimerKind)), token=_ANY, number=_ANY)
    def a_stale_timer_fires(self, kind: TimerKind, token: int, number: int) -> None:
        timer = Timer(kind, _pick([*IDS, "", *self.world.live], number))
        before = self.world.state
        armed = before.timers.get(timer)
        if armed is None or armed.token != token:
            assert self.world.tell(TimerFired(timer=timer, token=token)) == ()
            assert self.world.state == before

    # --- the operator ------------------------------------------------------------------------------------

    @rule(ids=st.frozensets(_IDS), claims=st.lists(_CLAIMS, max_size=3), paused=st.booleans())
    def the_daemon_recovers(
        self, ids: frozenset[str], claims: Sequence[StoredClaim] = (), *, paused: bool = False
    ) -> None:
        refs = tuple(WorkspaceRef(issue_id=key, identifier=key, path=f"/ws/{key}") for key in sorted(ids))
        self.world.tell(
            Recovered(workspaces=refs, claims=tuple(claims), paused=paused, day="2025-01-01", day_tokens=7)
        )

    @rule(verb=_VERBS, key=_IDS, text=st.sampled_from([None, "", "blue"]))
    def an_operator_asks(self, verb: OperatorAction, key: str, text: str | None) -> None:
        before, refused = self.world.state, refusal(self.world.state, verb, key, text)
        self.world.tell(OperatorAsked(action=verb, issue_id=key, text=text))
        if refused is not None:  # what is due by now is done at any input
            after = self.world.state
            assert (after.running, after.retrying, after.blocked) == (
                before.running,
                before.retrying,
                before.blocked,
            )
            assert (after.paused, after.drain) == (before.paused, before.drain)

    @rule(day=st.sampled_from(["2025-01-01", "2025-01-02"]))
    def a_day_begins(self, day: str) -> None:
        self.world.tell(DayBegan(day=day))

    @rule()
    def somebody_wakes_it(self) -> None:
        self.world.tell(WakeAsked(reason="test"))

    @rule(options=_SETTINGS)
    def the_settings_change(self, options: dict[str, Any]) -> None:
        self.world.tell(SettingsChanged(settings=make_settings(**options)))

    @rule()
    def the_workflow_breaks(self) -> None:
        self.world.tell(WorkflowRejected(failure=make_failure()))

    @precondition(lambda self: len(self.world.inputs) > 25)
    @rule(number=_ANY, now=st.booleans())
    def it_is_asked_to_end(self, number: int, *, now: bool) -> None:
        if number % 4 == 0:
            self.world.tell(StopAsked() if now else DrainAsked())
        elif number % 4 == 1 and now:
            self.world.tell(OperatorAsked(action=OperatorAction.DRAIN))

    # --- nonsense ----------------------------------------------------------------------------------------

    @rule(number=_ANY, text=st.text(max_size=3), outcome=_OUTCOMES, failure=_FAILURES)
    def nonsense_is_told(self, number: int, text: str, outcome: Outcome, failure: Failure) -> None:
        odd = make_issue(text, identifier=text, title=text, state=text)
        facts: list[Event] = [
            Polled(request=-number, issues=(odd,)),
            PollFailed(request=-number, failure=failure),
            Refreshed(request=-number, issues=(odd, odd)),
            RefreshFailed(request=-number, failure=failure, culprits=frozenset({text})),
            AgentReported(run_id=text, report=RunReport(stage=RunStage.FINISHING)),
            TurnEnded(run_id=text, turn=-number),
            RunEnded(run_id=text, outcome=outcome),
        ]
        before = self.world.state
        self.world.tell(_pick(facts, number))
        assert self.world.state == before

    # --- the end -----------------------------------------------------------------------------------------

    @override
    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.quiesce()
        self.world.wind_down()
        self.world.replay()


_SETTINGS_OF_THE_SEARCH = settings(
    max_examples=int(SCHEDULES) // 60 + 1 if SCHEDULES else 30,
    stateful_step_count=60,
    derandomize=SCHEDULES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.conformance("S-3", "S-16")
@pytest.mark.timeout(0 if SCHEDULES else 400)  # a second a piece on a busy machine, with coverage
def test_the_promises_hold_in_any_schedule() -> None:
    run_state_machine_as_test(Schedules, settings=_SETTINGS_OF_THE_SEARCH)
