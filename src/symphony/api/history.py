"""Facts that the scheduler's state lacks: wall-clock times, and recent events per issue.

`History` observes the service. Its memory is limited and may be lost at any time; the documents then contain
less, but nothing wrong.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from typing_extensions import override

from symphony import scheduler
from symphony.api.models import Instructions, Skills, SkillsTotals
from symphony.api.observer import Observer
from symphony.domain import Issue
from symphony.journal.model import PullRequestRecord

MAX_ISSUES = 1_000
MAX_EVENTS = 25
TRANSCRIPT_INCOMPLETE = "transcript_incomplete"
PULL_REQUEST_JUDGED = "pull_request_judged"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JUMP_MS = 1_000
_LACK_OF_ROOM = frozenset({"count", "budget"})  # reasons for dropping a skill


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class HistoryEvent(Struct, frozen=True, kw_only=True):
    """An event of an issue.

    Attributes:
        number: the position, because wall-clock times do not show the order reliably.
        at: the wall-clock time.
        event: the name of the log event, or the agent's own name of its event.
        message: for people.
    """

    number: int
    at: datetime
    event: str
    message: str


def _events() -> deque[HistoryEvent]:
    return deque(maxlen=MAX_EVENTS)


@dataclass(slots=True, kw_only=True)
class IssueHistory:
    """The memory of one issue, with wall-clock times. `transcript_problem` concerns the latest run.

    `decisions` and `agent_events` have separate limits, so that a talkative agent does not push out why the
    issue was retried.
    """

    runs: int = 0
    started_at: datetime | None = None
    last_event_at: datetime | None = None
    blocked_at: datetime | None = None
    last_error: str | None = None
    skills: Skills | None = None
    transcript_problem: str | None = None
    instructions: Instructions | None = None
    decisions: deque[HistoryEvent] = field(default_factory=_events)
    agent_events: deque[HistoryEvent] = field(default_factory=_events)

    def recent(self) -> list[HistoryEvent]:
        """The latest events, the oldest first."""
        return sorted([*self.decisions, *self.agent_events], key=lambda one: one.number)


class History(Observer):
    """Observes the steps of the scheduler; valid and empty before the first one."""

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
        self._event_count = 0
        self.last_poll_at: datetime | None = None
        self.skill_totals = SkillsTotals()

    def wall(self, moment_ms: int, *, now_ms: int, now: datetime) -> datetime:
        """The wall-clock time of a monotonic moment, the same in every answer unless the wall clock jumps.

        The two clocks are never read at the same instant, so their difference varies. The first recorded
        difference is used while later ones are within a second.
        """
        offset_ms = _clock_offset_ms(now, now_ms)
        if self._offset_ms is not None and abs(self._offset_ms - offset_ms) < _JUMP_MS:
            offset_ms = self._offset_ms
        return _EPOCH + timedelta(milliseconds=offset_ms + moment_ms)

    def _note_clocks(self, now: datetime) -> None:
        if self._now_ms is None:
            return
        offset_ms = _clock_offset_ms(now, self._now_ms())
        if self._offset_ms is None or abs(self._offset_ms - offset_ms) >= _JUMP_MS:
            self._offset_ms = offset_ms

    def of(self, issue_id: str) -> IssueHistory | None:
        """The memory of an issue; `None` if it has none."""
        return self._issues.get(issue_id)

    @override
    def skills_loaded(self, issue_id: str, run_id: str, skills: Skills) -> None:
        entry = self._entry(issue_id)
        if entry.skills is None:
            self.skill_totals = _with(self.skill_totals, skills)
        entry.skills = skills

    def transcript_problem(self, issue_id: str) -> str | None:
        """Why entries of the transcript of the issue's latest run are missing, or `None`."""
        entry = self._issues.get(issue_id)
        return None if entry is None else entry.transcript_problem

    @override
    def transcript_incomplete(self, issue: Issue, run_id: str, reason: str) -> None:
        entry = self._entry(issue.id)
        entry.transcript_problem = reason
        entry.decisions.append(self._event(self._now(), TRANSCRIPT_INCOMPLETE, reason))

    @override
    def pull_request_judged(self, record: PullRequestRecord, message: str) -> None:
        self._entry(record.issue.id).decisions.append(self._event(self._now(), PULL_REQUEST_JUDGED, message))

    @override
    def instructions_composed(self, issue_id: str, run_id: str, instructions: Instructions) -> None:
        self._entry(issue_id).instructions = instructions

    @override
    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
        /,
    ) -> None:
        at = self._now()
        self._note_clocks(at)
        match event:
            case scheduler.AgentReported(run_id=run_id):
                self._note_report(before, after, run_id, at)
            case scheduler.RunEnded(run_id=run_id, outcome=outcome):
                run = _run(before, run_id)
                if run is not None and outcome.failure is not None:
                    self._entry(run.issue.id).last_error = outcome.failure.line
            case scheduler.Polled(request=request) if before.cycle_request == request:
                self.last_poll_at = at
            case _:
                pass
        for command in commands:
            self._note_command(command, at)
        self._note_claims(before, event, after, at)
        self._forget(after)

    def _entry(self, issue_id: str) -> IssueHistory:
        """The memory of the issue, which becomes the most recently used one."""
        entry = self._issues.pop(issue_id, None) or IssueHistory()
        self._issues[issue_id] = entry
        return entry

    def _note_report(
        self, before: scheduler.State, after: scheduler.State, run_id: str, at: datetime
    ) -> None:
        was, run = _run(before, run_id), _run(after, run_id)
        if was is None or run is None:
            return
        entry = self._entry(run.issue.id)
        old, new = was.report, run.report
        if new.event_count != old.event_count:
            entry.last_event_at = at
        if new.last_message is not None and new.last_message != old.last_message:
            entry.agent_events.append(self._event(at, new.last_event or "notification", new.last_message))

    def _event(self, at: datetime, event: str, message: str) -> HistoryEvent:
        self._event_count += 1
        return HistoryEvent(number=self._event_count, at=at, event=event, message=message)

    def _note_command(self, command: scheduler.Command, at: datetime) -> None:
        if isinstance(command, scheduler.StartRun):
            entry = self._entry(command.issue.id)
            entry.runs += 1
            entry.started_at, entry.last_event_at = at, None
            entry.skills = entry.instructions = None
            entry.transcript_problem = None
        elif (
            isinstance(command, scheduler.Notify)
            and command.issue_id is not None
            and command.event not in scheduler.NOT_IN_HISTORY
        ):
            decision = self._event(at, command.event, scheduler.log_text(command))
            self._entry(command.issue_id).decisions.append(decision)

    def _note_claims(
        self, before: scheduler.State, event: scheduler.Event, after: scheduler.State, at: datetime
    ) -> None:
        if after.blocked is not before.blocked:
            for issue_id in after.blocked.keys() - before.blocked.keys():
                entry = self._entry(issue_id)
                blocked = after.blocked[issue_id]
                entry.last_error = blocked.failure.line
                entry.blocked_at = (
                    self._wall_of(blocked.blocked_ms) if isinstance(event, scheduler.Recovered) else at
                )
        if after.retrying is not before.retrying:
            for issue_id, retry in after.retrying.items():
                error = retry.cause or retry.error
                if error not in {None, scheduler.NO_SLOT_ERROR} and retry is not before.retrying.get(
                    issue_id
                ):
                    self._entry(issue_id).last_error = error

    def _wall_of(self, moment_ms: int) -> datetime | None:
        """The wall-clock time of a monotonic moment; `None` without a monotonic clock."""
        return (
            None if self._offset_ms is None else _EPOCH + timedelta(milliseconds=self._offset_ms + moment_ms)
        )

    def _forget(self, state: scheduler.State) -> None:
        """Drop the issues whose last event is oldest; issues with a claim stay."""
        excess = len(self._issues) - self._max_issues
        if excess <= 0:
            return
        claimed = {*state.running, *state.retrying, *state.blocked}
        for issue_id in [key for key in self._issues if key not in claimed][:excess]:
            del self._issues[issue_id]


def _with(totals: SkillsTotals, skills: Skills) -> SkillsTotals:
    """The sums with another run; of left-out skills only those that did not fit count."""
    return SkillsTotals(
        runs=totals.runs + 1,
        listed=totals.listed + len(skills.listed),
        dropped=totals.dropped + sum(one.reason in _LACK_OF_ROOM for one in skills.dropped),
        malformed=totals.malformed + len({one.path for one in skills.problems if one.severity == "error"}),
    )


def _clock_offset_ms(now: datetime, now_ms: int) -> int:
    return (now - _EPOCH) // timedelta(milliseconds=1) - now_ms


def _run(state: scheduler.State, run_id: str) -> scheduler.Running | None:
    return next((run for run in state.running.values() if run.run_id == run_id), None)
