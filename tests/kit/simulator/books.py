"""The books an outsider keeps: what runs, what was asked and what is armed, counted from inputs and commands.

Nothing here is read from the scheduler's state, so that the two can be compared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from symphony.domain import Failure
from symphony.scheduler import (
    AgentReported,
    AnswersRead,
    AnswersReadFailed,
    Command,
    ContinueRun,
    DrainAsked,
    Event,
    Exit,
    FetchCandidates,
    FinishRun,
    OperatorAction,
    OperatorAsked,
    Polled,
    PollFailed,
    PushBranch,
    Pushed,
    ReadAnswers,
    Recovered,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    RunEnded,
    SetTimer,
    StartRun,
    State,
    StopAsked,
    StopRun,
    Timer,
    TimerFired,
    TurnEnded,
    WakeAsked,
    join_comments,
)

__all__ = ["Books", "Left", "Moment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What was true when the newest thing was written that a successor can read.

    Attributes:
        state: all that the scheduler knew.
        counted: tokens that were counted so far, by issue, whatever was forgiven since.
        answers: what persons answered and no turn has heard.
        pushes: issue id -> the commit whose push is tried until it succeeds.
        max_wait_ms: the longest that a recovered retry may wait.
        clock_set: somebody set the wall clock since the daemon began that wrote this.
    """

    state: State
    counted: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    max_wait_ms: int = 0
    clock_set: bool = False


@dataclass(slots=True, kw_only=True)
class Books:
    """The account of one world, across restarts.

    Attributes:
        live: run id -> issue id of every run that was started and has not ended.
        told: run id -> the last word a live run got that ends it, `StopRun` or `FinishRun`.
        turns: run id -> the turn that is under way, null between two, and how many in a row left no trace.
        used: how often each run id was given, across restarts.
        polls, refreshes: requests that were asked and not answered, with the ids of a refresh.
        timers: the newest arming of every timer that has not fired.
        begun: whether the daemon was told to begin.
        expects_poll: somebody woke the daemon and no poll was asked since.
        patient_until_ms: until when the other side asked us to wait, at most.
        longest_wait_ms: the longest wait that any failure asked for.
        patient: an operator's drain has no end of its own, until a signal sets one.
        exits: how often the daemon of this life was told to end.
        remembers: it is known what the daemon of this life could remember: `left`, null for nothing.
        counted: tokens that the scheduler counted, by issue, whatever was forgiven since.
        tokens: tokens that agents really used, by issue; null where nobody can tell.
        answers: what persons answered and no turn has heard.
        reads: questions whose comments are being read, as pairs of issue and question.
        taken: the questions that a comment was taken as the answer to, by its id.
    """

    live: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, type[StopRun | FinishRun]] = field(default_factory=dict)
    turns: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    polls: set[int] = field(default_factory=set)
    refreshes: dict[int, frozenset[str]] = field(default_factory=dict)
    timers: dict[Timer, SetTimer] = field(default_factory=dict)
    begun: bool = False
    expects_poll: bool = False
    patient_until_ms: int = 0
    longest_wait_ms: int = 0
    patient: bool = False
    exits: int = 0
    remembers: bool = False
    left: Left | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[str, int] | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    pushes: Mapping[str, str] = field(default_factory=dict)
    reads: set[tuple[str, str]] = field(default_factory=set)
    taken: dict[str, set[str]] = field(default_factory=dict)

    def hear(self, fact: Event, now_ms: int) -> bool:  # noqa: C901 - one line per kind of fact
        """Book a fact before the scheduler hears it; false for one that belongs to nothing known."""
        match fact:
            case RunEnded():
                known = fact.run_id in self.live
                self.live = {key: issue for key, issue in self.live.items() if key != fact.run_id}
                self.turns.pop(fact.run_id, None)
                self._heed(fact.outcome.failure, now_ms)
                return known
            case Pushed():
                known = self.pushes.get(fact.issue_id) == fact.head
                if known and fact.failure is None and fact.branch_failure is None:
                    self.pushes = {key: head for key, head in self.pushes.items() if key != fact.issue_id}
            case Polled() | PollFailed():
                known = fact.request in self.polls
                self.polls.discard(fact.request)
            case Refreshed() | RefreshFailed():
                known = self.refreshes.pop(fact.request, None) is not None
            case AnswersRead() | AnswersReadFailed():
                known = (fact.issue_id, fact.question) in self.reads
                self.reads.discard((fact.issue_id, fact.question))
            case TimerFired():
                armed = self.timers.get(fact.timer)
                known = armed is not None and armed.token == fact.token
                if known:
                    del self.timers[fact.timer]
                return known
            case OperatorAsked() | DrainAsked() | StopAsked():
                self.patient = isinstance(fact, OperatorAsked) and (
                    self.patient or fact.action is OperatorAction.DRAIN
                )
                return True
            case Recovered() | WakeAsked():
                self.begun = self.expects_poll = True
                return True
            case _:
                run_id = getattr(fact, "run_id", None)
                return run_id is None or run_id in self.live
        if isinstance(fact, PollFailed | RefreshFailed | AnswersReadFailed):
            self._heed(fact.failure, now_ms)
        return known

    def _heed(self, failure: Failure | None, now_ms: int) -> None:
        wait_ms = (failure.retry_after_ms or 0) if failure else 0
        self.longest_wait_ms = max(self.longest_wait_ms, wait_ms)
        self.patient_until_ms = max(self.patient_until_ms, now_ms + wait_ms)

    def book(self, commands: Sequence[Command]) -> None:  # noqa: C901 - one line per command
        """Book what the scheduler said."""
        for command in commands:
            match command:
                case StartRun():
                    self.live = {**self.live, command.run_id: command.issue.id}
                    self.used[command.run_id] += 1
                    self.turns[command.run_id] = 1, 0
                case ContinueRun():
                    self.turns[command.run_id] = command.turn, self.turns.get(command.run_id, (None, 0))[1]
                case StopRun() | FinishRun():
                    self.told = {**self.told, command.run_id: type(command)}
                case FetchCandidates():
                    self.polls.add(command.request)
                    self.expects_poll = False
                case RefreshIssues():
                    self.refreshes[command.request] = command.ids
                case ReadAnswers():
                    self.reads.add((command.comment.issue.id, command.question))
                case SetTimer():
                    self.timers[command.timer] = command
                case PushBranch():
                    self.pushes = {**self.pushes, command.issue.id: command.head}
                case Exit():
                    self.exits += 1
                case _:
                    pass

    def follow(self, before: State, fact: Event, after: State) -> None:  # noqa: C901 - one line per fact
        """Book what changed in what is used up, and who has heard what a person answered."""
        if after.spent is not before.spent and not isinstance(fact, Recovered):
            counted = dict(self.counted)
            for key, spent in after.spent.items():
                was = before.spent.get(key)
                if spent is not was:
                    counted[key] = counted.get(key, 0) + spent.tokens - (was.tokens if was else 0)
            self.counted = counted
        if isinstance(fact, TurnEnded):
            self._turn_ended(fact)
        if isinstance(fact, OperatorAsked) and fact.action is OperatorAction.ANSWER:
            self._answered(before, fact.issue_id or "", fact.text or "", after)
        elif isinstance(fact, AnswersRead) and fact.answers:
            if self._answered(before, fact.issue_id, join_comments(fact.answers), after):
                for remark in fact.answers:
                    self.taken.setdefault(remark.id, set()).add(fact.question)
        elif self.answers and isinstance(fact, AgentReported) and fact.report.facts.turn_count:
            heard = self.live.get(fact.run_id)
            self.answers = {key: text for key, text in self.answers.items() if key != heard}
        if self.answers and (after.running is not before.running or after.retrying is not before.retrying):
            claimed = (after.running, after.retrying, after.blocked)
            self.answers = {
                key: text for key, text in self.answers.items() if any(key in held for held in claimed)
            }

    def _turn_ended(self, fact: TurnEnded) -> None:
        under_way, idle = self.turns.get(fact.run_id, (None, 0))
        if fact.turn == under_way:
            self.turns[fact.run_id] = None, 0 if fact.trace else idle + int(fact.trace is False)

    def _answered(self, before: State, key: str, text: str, after: State) -> bool:
        taken = key in before.blocked and key not in after.blocked
        if taken:
            self.answers = {**self.answers, key: text}
        return taken

    def forget_daemon(self) -> None:
        """The daemon is gone and its successor has ended what it left: open questions and timers are void."""
        self.live, self.told, self.pushes, self.turns = {}, {}, {}, {}
        self.polls.clear()
        self.refreshes.clear()
        self.reads.clear()
        self.timers.clear()
        self.begun = self.expects_poll = self.patient = False
        self.exits = 0
        self.remembers, self.left = False, None

    def remember(self, left: Left | None) -> None:
        """The daemon begins with this of its predecessor, and nothing else."""
        self.remembers, self.left = True, left
        if left is not None:
            self.counted = left.counted
        self.answers = left.answers if left else {}


@dataclass(slots=True, kw_only=True)
class Moment:
    """One step, for the invariants: the state around it, what came, what was said, and the books after it.

    `live` and `told` are as they stood before the commands; `known` is false for a fact that belongs to no
    live run, no open request and no armed timer. `asked` are the ids somebody wants or waits for. `seen`
    is what was seen of issues by id before.
    """

    number: int
    now_ms: int
    before: State
    fact: Event
    after: State
    commands: tuple[Command, ...]
    books: Books
    known: bool
    live: Mapping[str, str]
    told: Mapping[str, type[StopRun | FinishRun]]
    starts: tuple[StartRun, ...] = ()
    asked: frozenset[str] = frozenset()

    def armed(self, timer: Timer) -> bool:
        """Whether the timer will fire with a token that the scheduler still listens to."""
        pending = self.books.timers.get(timer)
        return pending is not None and self.after.timers.get(timer) == pending
