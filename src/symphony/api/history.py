"""What the state alone does not tell: when things happened by the wall clock, and what happened before.

An observer of the service. It keeps a bounded memory per issue and of a bounded number of issues, decides
nothing, and may be lost at any time: the documents then say less, never something wrong.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from symphony.api.models import Skills, SkillsTotals
from symphony.scheduler import (
    NO_SLOT_ERROR,
    NOT_IN_HISTORY,
    AgentReported,
    Command,
    Event,
    Notify,
    Polled,
    Recovered,
    RunEnded,
    Running,
    StartRun,
    State,
    log_text,
)

MAX_ISSUES = 1_000
MAX_EVENTS = 25
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JUMP_MS = 1_000
_FOR_WANT_OF_ROOM = frozenset({"count", "budget"})


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that happened to an issue; `event` is the name in the log, or the agent's own.

    `number` tells the order, which the wall clock does not.
    """

    number: int
    at: datetime
    event: str
    message: str


def _events() -> deque[Happening]:
    return deque(maxlen=MAX_EVENTS)


@dataclass(slots=True, kw_only=True)
class IssueHistory:
    """The memory of one issue. Times are of the wall clock, taken when the thing happened.

    `steps` are decisions about the issue, `words` what its agent did: kept apart, so that a talkative agent
    does not push out why the issue was retried.
    """

    runs: int = 0
    started_at: datetime | None = None
    last_event_at: datetime | None = None
    blocked_at: datetime | None = None
    last_error: str | None = None
    skills: Skills | None = None
    steps: deque[Happening] = field(default_factory=_events)
    words: deque[Happening] = field(default_factory=_events)

    def recent(self) -> list[Happening]:
        """What happened last, oldest first."""
        return sorted([*self.steps, *self.words], key=lambda one: one.number)


class History:
    """Folds the steps of the scheduler. An empty one is valid: it knows nothing."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = utc_now,
        now_ms: Callable[[], int] | None = None,
        max_issues: int = MAX_ISSUES,
    ) -> None:
        self._now = now
        self._now_ms = now_ms
        self._max_issues = max_issues
        self._issues: dict[str, IssueHistory] = {}
        self._offset_ms: int | None = None
        self._happened = 0
        self.last_poll_at: datetime | None = None
        self.skill_totals = SkillsTotals()

    def wall(self, moment_ms: int, *, now_ms: int, now: datetime) -> datetime:
        """The wall-clock time of a monotonic moment, the same in every answer unless the wall clock jumps.

        Two clocks are never read at the same instant, so their distance flickers; the one noted first holds
        as long as it is about right.
        """
        offset_ms = _offset(now, now_ms)
        if self._offset_ms is not None and abs(self._offset_ms - offset_ms) < _JUMP_MS:
            offset_ms = self._offset_ms
        return _EPOCH + timedelta(milliseconds=offset_ms + moment_ms)

    def _note_clocks(self, now: datetime) -> None:
        if self._now_ms is None:
            return
        offset_ms = _offset(now, self._now_ms())
        if self._offset_ms is None or abs(self._offset_ms - offset_ms) >= _JUMP_MS:
            self._offset_ms = offset_ms

    def of(self, issue_id: str) -> IssueHistory | None:
        """What is known of an issue, by its id."""
        return self._issues.get(issue_id)

    def skills_loaded(self, issue_id: str, skills: Skills) -> None:
        """A run of the issue was told of these skills; told again when it was seen to read one of them."""
        entry = self._entry(issue_id)
        if entry.skills is None:
            self.skill_totals = _with(self.skill_totals, skills)
        entry.skills = skills

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Fold one step."""
        at = self._now()
        self._note_clocks(at)
        if isinstance(fact, AgentReported):
            self._reported(before, after, fact.run_id, at)
        elif isinstance(fact, RunEnded):
            self._ended(before, fact)
        elif isinstance(fact, Polled) and before.cycle_request == fact.request:
            self.last_poll_at = at
        for command in commands:
            self._told(command, at)
        self._claims(before, fact, after, at)
        self._forget(after)

    def _entry(self, issue_id: str) -> IssueHistory:
        """The issue's memory, as the one touched last."""
        entry = self._issues.pop(issue_id, None) or IssueHistory()
        self._issues[issue_id] = entry
        return entry

    def _reported(self, before: State, after: State, run_id: str, at: datetime) -> None:
        was, run = _run(before, run_id), _run(after, run_id)
        if was is None or run is None:
            return
        entry = self._entry(run.issue.id)
        old, new = was.report, run.report
        if new.event_count != old.event_count:
            entry.last_event_at = at
        if new.last_message is not None and new.last_message != old.last_message:
            entry.words.append(self._happening(at, new.last_event or "notification", new.last_message))

    def _happening(self, at: datetime, event: str, message: str) -> Happening:
        self._happened += 1
        return Happening(number=self._happened, at=at, event=event, message=message)

    def _ended(self, before: State, fact: RunEnded) -> None:
        run = _run(before, fact.run_id)
        if run is not None and fact.outcome.failure is not None:
            self._entry(run.issue.id).last_error = fact.outcome.failure.line

    def _told(self, command: Command, at: datetime) -> None:
        if isinstance(command, StartRun):
            entry = self._entry(command.issue.id)
            entry.runs += 1
            entry.started_at, entry.last_event_at, entry.skills = at, None, None
        elif (
            isinstance(command, Notify)
            and command.issue_id is not None
            and command.event not in NOT_IN_HISTORY
        ):
            step = self._happening(at, command.event, log_text(command))
            self._entry(command.issue_id).steps.append(step)

    def _claims(self, before: State, fact: Event, after: State, at: datetime) -> None:
        if after.blocked is not before.blocked:
            for issue_id in after.blocked.keys() - before.blocked.keys():
                entry = self._entry(issue_id)
                blocked = after.blocked[issue_id]
                entry.last_error = blocked.failure.line
                entry.blocked_at = self._earlier(blocked.blocked_ms) if isinstance(fact, Recovered) else at
        if after.retrying is not before.retrying:
            for issue_id, retry in after.retrying.items():
                # That no slot was free says nothing about the issue, and the failure of its last run does.
                if retry.error not in {None, NO_SLOT_ERROR} and retry is not before.retrying.get(issue_id):
                    self._entry(issue_id).last_error = retry.error

    def _earlier(self, moment_ms: int) -> datetime | None:
        """The wall-clock time of what was before this daemon; null where no clock tells."""
        return (
            None if self._offset_ms is None else _EPOCH + timedelta(milliseconds=self._offset_ms + moment_ms)
        )

    def _forget(self, state: State) -> None:
        """Drop the issues that nothing happened to for longest; those with a claim stay."""
        excess = len(self._issues) - self._max_issues
        if excess <= 0:
            return
        claimed = {*state.running, *state.retrying, *state.blocked}
        for issue_id in [key for key in self._issues if key not in claimed][:excess]:
            del self._issues[issue_id]


def _with(totals: SkillsTotals, skills: Skills) -> SkillsTotals:
    """The sums with one more run; what an operator has left out, or a search finds, is not dropped."""
    return SkillsTotals(
        runs=totals.runs + 1,
        listed=totals.listed + len(skills.listed),
        dropped=totals.dropped + sum(one.reason in _FOR_WANT_OF_ROOM for one in skills.dropped),
        malformed=totals.malformed + len({one.path for one in skills.problems if one.severity == "error"}),
    )


def _offset(now: datetime, now_ms: int) -> int:
    """The distance of the two clocks in ms."""
    return (now - _EPOCH) // timedelta(milliseconds=1) - now_ms


def _run(state: State, run_id: str) -> Running | None:
    return next((run for run in state.running.values() if run.run_id == run_id), None)
