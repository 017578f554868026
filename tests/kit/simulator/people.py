"""Chance sessions, and what people do on the board: file issues, move, reword, relabel and remove them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from kit.simulator.clock import Clock
from kit.simulator.dice import Dice
from kit.simulator.profiles import AgentHabits, PeopleHabits
from kit.simulator.scenario import EPOCH, make_issue
from kit.simulator.session import Ending, Session, Turn
from kit.simulator.tracker import Tracker
from symphony.domain import Blame, Blocker, Category, Issue

__all__ = ["Agents", "People"]

_STATES = ("Todo", "Todo", "Todo", "In Progress", " todo", "Backlog", "Done", "Done", "Cancelled")
_FAILURES = (
    (Category.TURN_FAILED, Blame.AGENT),
    (Category.TURN_FAILED, Blame.AGENT),
    (Category.PORT_EXIT, Blame.AGENT),
    (Category.AGENT_RATE_LIMITED, Blame.AGENT),
    (Category.AGENT_USAGE_LIMIT, Blame.AGENT),
    (Category.AGENT_CONTEXT_FULL, Blame.AGENT),
    (Category.RESPONSE_TIMEOUT, Blame.HOST),
    (Category.INTERNAL, Blame.HOST),
)


_ANSWERS = (0, 1, 1, 3)
_ANSWERED_IN_MS = (1_000, 600_000)


class Agents:
    """Gives each attempt its session: the scripted one where there is one, else one of chance."""

    def __init__(
        self, clock: Clock | None, dice: Dice, habits: AgentHabits, scripts: Mapping[str, Sequence[Session]]
    ) -> None:
        self._clock = clock
        self._down_until_ms = 0
        self._dice = dice
        self._habits = habits
        self._scripts = scripts
        self._attempts: dict[str, int] = {}
        self._calm = False
        self._next_outage()

    def _next_outage(self) -> None:
        if self._clock is not None and self._habits.outage_every_ms is not None:
            self._clock.after(self._dice.around(self._habits.outage_every_ms), self._break_down)

    def _break_down(self) -> None:
        if self._clock is not None:
            self._down_until_ms = self._clock.now_ms + self._dice.between(self._habits.outage_ms)
            self._next_outage()

    def calm_down(self) -> None:
        """From now on each session succeeds, unless it is a scripted one."""
        self._calm = True

    def session(self, issue: Issue) -> Session:
        """The session of the next attempt of an issue."""
        count = self._attempts.get(issue.identifier, 0)
        self._attempts[issue.identifier] = count + 1
        script = self._scripts.get(issue.identifier)
        if script:
            return script[min(count, len(script) - 1)]
        if self._calm:
            return Session.succeeds()
        if self._clock is not None and self._clock.now_ms < self._down_until_ms:
            return replace(Session.fails(Category.AGENT_UNAVAILABLE, after_s=5), tokens=0)
        return self._by_chance()

    def _by_chance(self) -> Session:
        dice, habits = self._dice, self._habits
        session = self._kind()
        return replace(
            session,
            prepare_ms=dice.between(habits.prepare_ms),
            deliver_ms=dice.between(habits.deliver_ms),
            stop_ms=dice.between(habits.stubborn_ms if dice.chance(habits.stubborn) else (10, 900)),
            survives=dice.chance(habits.survives),
            forgets=dice.chance(habits.forgets),
            progress=dice.pick((False, None)) if dice.chance(habits.idle) else session.progress,
            turns=tuple(self._turn(turn) for turn in session.turns),
        )

    def _turn(self, turn: Turn) -> Turn:
        dice, habits = self._dice, self._habits
        return replace(
            turn,
            lasts_ms=dice.between(habits.turn_ms),
            sign_every_ms=habits.sign_every_ms,
            silent=dice.chance(habits.silent),
        )

    def _kind(self) -> Session:
        dice, habits = self._dice, self._habits
        if dice.chance(habits.crashes):
            return Session.crashes_at_launch()
        if dice.chance(habits.asks):
            return Session.asks()
        if dice.chance(habits.stalls):
            return Session.stalls()
        if dice.chance(habits.times_out):
            return Session(turns=(Turn(ending=Ending.TIMES_OUT),), progress=None)
        return self._failed() or self._succeeded()

    def _failed(self) -> Session | None:
        dice, habits = self._dice, self._habits
        if dice.chance(habits.unprepared):
            return Session.workspace_fails(
                dice.pick((Category.WORKSPACE_HOOK_FAILED, Category.WORKSPACE_REPOSITORY))
            )
        if dice.chance(habits.fails):
            category, blame = dice.pick(_FAILURES)
            wait_ms = dice.between((0, 900_000)) if category is Category.AGENT_RATE_LIMITED else None
            return Session.fails(category, blame=blame, retry_after_ms=wait_ms)
        return None

    def _succeeded(self) -> Session:
        dice, habits = self._dice, self._habits
        moves_to = None if dice.chance(habits.unmoved) else dice.pick(habits.moves_to)
        return Session.succeeds(turns=dice.between(habits.turns), moves_to=moves_to)


class People:
    """File the issues of a scenario in time, and edit what is there."""

    def __init__(
        self, clock: Clock, dice: Dice, tracker: Tracker, habits: PeopleHabits, *, hurry: int
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._tracker = tracker
        self._ids: list[str] = []
        self._resting = False
        self._every_ms = None if habits.edit_every_ms is None else max(1, habits.edit_every_ms // hurry)
        self._next_edit()

    def file(self, board: Sequence[Issue], count: int, duration_ms: int) -> None:
        """Put the issues of the board up at once; file `count` more, a tenth at once and the rest in time."""
        for issue in board:
            self._ids.append(issue.id)
            self._tracker.put(issue)
        at_once = (count + 9) // 10
        for number in range(count):
            due_ms = 0 if number < at_once else self._dice.between((1, duration_ms))
            self._clock.at(due_ms, self._file_one, number + 1)

    def answer(self, dice: Dice) -> None:
        """From now on answer where the daemon asks something: nobody, one or several people do."""

        def asked(issue_id: str) -> None:
            for _ in range(dice.pick(_ANSWERS)):
                self._clock.after(dice.between(_ANSWERED_IN_MS), self._say, issue_id)

        self._tracker.on_question = asked

    def _say(self, issue_id: str) -> None:
        if not self._resting:
            self._tracker.say(issue_id)

    def rest(self) -> None:
        """Touch nothing any more."""
        self._resting = True

    def _file_one(self, number: int) -> None:
        if self._resting:
            return
        dice = self._dice
        waits = dice.chance(0.1) and self._ids
        issue = make_issue(
            f"SYM-{number}",
            id=f"id-{number}",
            state=dice.pick(("Todo", "Todo", "In Progress")),
            priority=dice.pick((None, 0, 1, 2, 3, 4, 9)),
            labels=("x",) if dice.chance(0.8) else (),
            created_at=EPOCH + timedelta(milliseconds=self._clock.now_ms),
            blocked_by=(Blocker(id=dice.pick(self._ids)),) if waits else (),
        )
        self._ids.append(issue.id)
        self._tracker.put(issue)

    def _next_edit(self) -> None:
        if self._every_ms is not None:
            self._clock.after(self._dice.around(self._every_ms), self._edit)

    def _edit(self) -> None:
        if self._resting:
            return
        self._next_edit()
        if self._ids:
            self._dice.pick(self._acts)(self, self._dice.pick(self._ids))

    def _move(self, key: str) -> None:
        self._tracker.change(key, state=self._dice.pick(_STATES))

    def _reword(self, key: str) -> None:
        self._tracker.change(key, title=self._dice.pick(("one", "two", "three")))

    def _rank(self, key: str) -> None:
        self._tracker.change(key, priority=self._dice.pick((None, 0, 1, 4, 9)))

    def _relabel(self, key: str) -> None:
        self._tracker.change(key, labels=self._dice.pick(((), ("x",), ("x", "y"))))

    def _route(self, key: str) -> None:
        self._tracker.change(key, dispatchable=self._dice.chance(0.7))

    def _chain(self, key: str) -> None:
        self._tracker.change(key, blocked_by=(Blocker(id=self._dice.pick(self._ids)),))

    def _remove(self, key: str) -> None:
        if self._dice.chance(0.3):
            self._tracker.remove(key)

    _acts: Sequence[Callable[["People", str], None]] = (
        _move,
        _move,
        _move,
        _reword,
        _reword,
        _rank,
        _relabel,
        _route,
        _chain,
        _remove,
    )
