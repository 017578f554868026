"""The referee: every step goes through it, and the first broken rule ends the game (DESIGN 4)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kit.simulator.books import Books, Left, Moment
from kit.simulator.invariants import first_broken
from kit.simulator.judged import REPLAY, TOTAL
from kit.simulator.rules import Invariant
from symphony.scheduler import Command, Event, StartRun, State, StepFunction, step

__all__ = ["InvariantBrokenError", "Life", "Referee", "Told", "Violation"]


Told = tuple[int, Event, tuple[Command, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken rule: its name and words, what was seen, when, at which input, and for which issue."""

    invariant: str
    rule: str
    message: str
    at_ms: int
    input_number: int
    issue_id: str | None = None


class InvariantBrokenError(AssertionError):
    """Carries the violation that ends a simulation; an assertion error, for test tools."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(f"{violation.invariant}: {violation.message}")
        self.violation = violation


@dataclass(slots=True)
class Life:
    """One daemon's life: its first state, all it was told and said, and its present state."""

    first: State
    state: State
    steps: list[Told] = field(default_factory=list)


class Referee:
    """Takes steps for one world, keeps its books and judges every moment.

    `watch` is called with each moment that broke no rule. `step` is the scheduler that is judged.
    """

    def __init__(self, step: StepFunction = step, *, watch: Callable[[Moment], None] | None = None) -> None:
        self.books = Books()
        self.lives: list[Life] = []
        self.count = 0
        self._step = step
        self._watch = watch

    @property
    def state(self) -> State:
        """The present daemon's state."""
        return self.lives[-1].state

    def left(self) -> Left:
        """What a successor would have to know."""
        return Left(state=self.state, counted=self.books.counted, answers=self.books.answers)

    def begin(self, state: State) -> None:
        """A daemon begins with this state; what a predecessor left is ended before."""
        self.books.forget_daemon()
        self.lives.append(Life(first=state, state=state))

    def tell(self, fact: Event, now_ms: int) -> tuple[Command, ...]:
        """One step of the present daemon; returns what it said.

        Raises:
            InvariantBrokenError: a rule does not hold.
        """
        life, books = self.lives[-1], self.books
        before = life.state
        self.count += 1
        known = books.hear(fact, now_ms)
        live, told = books.live, books.told
        try:
            after, commands = self._step(before, fact, now_ms)
        except Exception as error:
            life.steps.append((now_ms, fact, ()))
            raise self.broken(TOTAL, f"{type(error).__name__}: {error}", now_ms) from error
        life.state = after
        life.steps.append((now_ms, fact, commands))
        books.book(commands)
        books.follow(before, fact, after)
        if after.config_error is not None:
            books.expects_poll = False  # an invalid workflow is not polled for
        moment = Moment(
            number=self.count,
            now_ms=now_ms,
            before=before,
            fact=fact,
            after=after,
            commands=commands,
            books=books,
            known=known,
            live=live,
            told=told,
            starts=tuple(command for command in commands if isinstance(command, StartRun))
            if commands
            else (),
            asked=after.ids_to_refresh | after.refresh.ids if after.refresh else after.ids_to_refresh,
        )
        if found := first_broken(moment):
            invariant, broken = found
            raise self.broken(invariant, broken.message, now_ms, broken.issue_id)
        if self._watch is not None:
            self._watch(moment)
        return commands

    def broken(
        self, invariant: Invariant, message: str, now_ms: int, issue_id: str | None = None
    ) -> InvariantBrokenError:
        """The error for a rule that was found broken just now."""
        return InvariantBrokenError(
            Violation(
                invariant=invariant.name,
                rule=invariant.rule,
                message=message,
                at_ms=now_ms,
                input_number=self.count,
                issue_id=issue_id,
            )
        )

    def replay(self) -> None:
        """Take every step of every life again: the same commands must come, and the same state at the end.

        Raises:
            InvariantBrokenError: they do not.
        """
        for life in self.lives:
            state = life.first
            for now_ms, fact, said in life.steps:
                state, again = self._step(state, fact, now_ms)
                if again != said:
                    raise self.broken(REPLAY, f"other commands for the same {type(fact).__name__}", now_ms)
            if state != life.state:
                raise self.broken(REPLAY, "another state after the same inputs", life.steps[-1][0])
