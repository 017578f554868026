"""The tracker: a board that people and sessions change, and answers that are late, old, doubled or absent."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kit.simulator.clock import Clock
from kit.simulator.dice import Dice
from kit.simulator.profiles import TrackerHabits
from symphony.domain import Blame, Category, Failure, Issue, normalise_state
from symphony.scheduler import (
    AnswersRead,
    AnswersReadFailed,
    Event,
    IssueComment,
    Polled,
    PollFailed,
    PostComment,
    ReadAnswers,
    Refreshed,
    RefreshFailed,
)

__all__ = ["Act", "Deliver", "Tracker"]


Act = Callable[[], None]
Deliver = Callable[[Event], None]


class Tracker:
    """The board and its answers.

    `sound_from_ms` is the moment from which nothing that went wrong here can delay anybody, `changed_ms` when
    an issue was last changed. `announce` is called after a change that the tracker tells of, `on_question`
    with an issue on which the daemon asked something.
    """

    def __init__(self, clock: Clock, dice: Dice, habits: TrackerHabits, *, tells: float) -> None:
        self.habits = habits
        self.board: dict[str, Issue] = {}
        self.changed_ms: dict[str, int] = {}
        self.sound_from_ms = 0
        self.announce: Act | None = None
        self._clock = clock
        self._dice = dice
        self.comments: dict[tuple[str, str], list[str]] = {}
        self.threads: dict[str, list[IssueComment]] = {}
        self.on_question: Callable[[str], None] | None = None
        self._tells = tells
        self._states: dict[str, dict[str, Issue]] = {}
        self._was_done: set[str] = set()
        self._down_until_ms = 0
        self._closed = False
        self._next_outage()

    # --- the board ---------------------------------------------------------------------------------------

    def put(self, issue: Issue) -> None:
        """Add an issue, or replace it by a changed one."""
        self.remove(issue.id)
        self.board[issue.id] = issue
        self._states.setdefault(normalise_state(issue.state), {})[issue.id] = issue
        if issue.state == "Done":
            self._was_done.add(issue.id)
        if self._dice.chance(self._tells) and self.announce is not None:
            self.announce()

    def change(self, issue_id: str, **changes: Any) -> None:
        """Change an issue, if it is there and the board is open."""
        if issue_id in self.board and not self._closed:
            self.put(replace(self.board[issue_id], **changes))

    def remove(self, issue_id: str) -> None:
        """Take an issue off the board."""
        self.changed_ms[issue_id] = self._clock.now_ms
        if issue := self.board.pop(issue_id, None):
            del self._states[normalise_state(issue.state)][issue_id]

    def in_states(self, states: Iterable[str]) -> tuple[Issue, ...]:
        """The issues in any of these normalised states, in the order of the states' names."""
        return tuple(issue for state in sorted(states) for issue in self._states.get(state, {}).values())

    def comment(self, note: PostComment, *, reads_back: bool = True) -> bool:
        """Put a comment of ours on an issue, or edit the one that is found by its marker.

        False if the tracker did not take it, or the issue is gone.
        """
        issue_id = note.issue.id
        if issue_id not in self.board or self._failure() is not None:
            return False
        standing = self.comments.setdefault((issue_id, f"{note.kind} {note.occasion}"), [])
        if standing and reads_back:
            standing[-1] = note.body
        else:
            standing.append(note.body)
            thread = self.threads.setdefault(issue_id, [])
            thread.append(IssueComment(id=f"ours-{len(thread)}", author="", text=note.occasion))
            if note.occasion and self.on_question is not None:
                self.on_question(issue_id)
        return True

    def say(self, issue_id: str) -> None:
        """A person writes something else than ever on an issue where we wrote."""
        thread = self.threads.get(issue_id, [])
        if thread and issue_id in self.board and not self._closed:
            thread.append(
                IssueComment(id=f"{issue_id}-{len(thread)}", author="ann", text=f"words {len(thread)}")
            )
            if self._dice.chance(self._tells) and self.announce is not None:
                self.announce()

    def said_to(self, issue_id: str, question: str) -> tuple[IssueComment, ...] | None:
        """What people wrote below a question; null where it does not stand there."""
        thread = self.threads.get(issue_id, [])
        asked = [at for at, one in enumerate(thread) if not one.author and one.text == question]
        return tuple(one for one in thread[asked[0] :] if one.author) if asked else None

    # --- its answers -------------------------------------------------------------------------------------

    def poll(self, request: int, states: frozenset[str], deliver: Deliver) -> None:
        """Answer `FetchCandidates` in a while."""
        self._answer(
            lambda: Polled(request=request, issues=self._doubled(self.in_states(states))),
            lambda failure: PollFailed(request=request, failure=failure),
            deliver,
        )

    def refresh(self, request: int, ids: frozenset[str], deliver: Deliver) -> None:
        """Answer `RefreshIssues` in a while."""
        order = sorted(ids)

        def found() -> Event:
            issues = tuple(self.board[key] for key in order if key in self.board)
            return Refreshed(request=request, issues=self._doubled(issues))

        def failed(failure: Failure) -> Event:
            partial = failure.category is Category.TRACKER_RESPONSE and self._dice.chance(0.7)
            culprits = frozenset({self._dice.pick(order)}) if partial else frozenset[str]()
            return RefreshFailed(request=request, failure=failure, culprits=culprits)

        self._answer(found, failed, deliver)

    def read(self, asked: ReadAnswers, ask: Act, deliver: Deliver) -> None:
        """Answer `ReadAnswers` in a while; `ask` puts a question that does not stand there."""
        issue_id, question = asked.comment.issue.id, asked.question

        def found() -> Event:
            answers = self.said_to(issue_id, asked.comment.occasion)
            if answers is None:
                ask()
            return AnswersRead(issue_id=issue_id, question=question, answers=answers or ())

        self._answer(
            found,
            lambda failure: AnswersReadFailed(issue_id=issue_id, question=question, failure=failure),
            deliver,
        )

    def _answer(
        self, found: Callable[[], Event], failed: Callable[[Failure], Event], deliver: Deliver
    ) -> None:
        dice, habits = self._dice, self.habits
        wait_ms = dice.between(habits.latency_ms)
        if dice.chance(habits.hangs):
            wait_ms = dice.between(habits.hang_ms)
            self._unsound(wait_ms)
        failure = self._failure()
        if failure is not None:
            self._unsound(wait_ms + (failure.retry_after_ms or 0))
            self._clock.after(wait_ms, deliver, failed(failure))
        elif dice.chance(habits.stale):
            self._unsound(wait_ms)
            self._clock.after(wait_ms, deliver, found())
        else:
            self._clock.after(wait_ms, self._deliver_fresh, found, deliver)

    def _deliver_fresh(self, found: Callable[[], Event], deliver: Deliver) -> None:
        answer = found()
        deliver(answer)
        if self._dice.chance(self.habits.repeats):
            self._clock.after(self._dice.between(self.habits.latency_ms), deliver, answer)

    def _doubled(self, issues: tuple[Issue, ...]) -> tuple[Issue, ...]:
        if issues and self._dice.chance(self.habits.doubles):
            self._unsound(0)
            return (*issues, self._dice.pick(issues))
        return issues

    # --- what goes wrong ---------------------------------------------------------------------------------

    def _failure(self) -> Failure | None:
        dice, habits = self._dice, self.habits
        if self._clock.now_ms < self._down_until_ms or dice.chance(habits.fails):
            return _tracker_failure(Category.TRACKER_REQUEST, "no answer")
        if dice.chance(habits.rate_limits):
            wait_ms = dice.between(habits.retry_after_ms)
            return _tracker_failure(
                Category.TRACKER_RATE_LIMITED, "too many requests", retry_after_ms=wait_ms
            )
        if dice.chance(habits.malforms):
            return _tracker_failure(Category.TRACKER_RESPONSE, "an issue without a title")
        return None

    def _unsound(self, for_ms: int) -> None:
        self.sound_from_ms = max(self.sound_from_ms, self._clock.now_ms + for_ms)

    def _next_outage(self) -> None:
        if self.habits.outage_every_ms is not None:
            self._clock.after(self._dice.around(self.habits.outage_every_ms), self._break_down)

    def _break_down(self) -> None:
        if self.habits.outage_every_ms is not None:
            self._down_until_ms = self._clock.now_ms + self._dice.between(self.habits.outage_ms)
            self._unsound(self._down_until_ms - self._clock.now_ms)
            self._next_outage()

    def mend(self) -> None:
        """From now on every request goes well."""
        self.habits = TrackerHabits()
        self._down_until_ms = 0

    def close(self) -> None:
        """Every issue is over, nobody changes one any more, and from now on every request goes well.

        One that its agent said to be done, and whose work may fail its checks, is cancelled.
        """
        self._tells = 0
        for key in tuple(self.board):
            state = "Cancelled" if key in self._was_done else "Done"
            self.change(key, state=state, dispatchable=True)
        self._closed = True
        self.mend()


def _tracker_failure(category: Category, message: str, *, retry_after_ms: int | None = None) -> Failure:
    return Failure(category=category, blame=Blame.TRACKER, message=message, retry_after_ms=retry_after_ms)
