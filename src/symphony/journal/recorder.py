"""What a step of the scheduler leaves to remember, and what a start makes of it. Pure: no I/O, no clock.

`Keeper` turns each step into records. A step that changes nothing worth remembering costs a few comparisons:
agents report several times a second, and only milestones of a run (a new turn, another conversation, more
tokens, a new message) become records. All records of one step belong together: a claim that became another
kind of claim is never half written.

`recovered` goes the other way. Every time in the journal is of the wall clock, which may have been set since:
a wait is never longer than a wait can be, and never negative. A run that was live goes on with its
conversation, from where its tokens were last written down; the run that goes on counts the rest.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, assert_never

from symphony.journal.model import (
    ClaimRecord,
    ClaimReleased,
    DayRecord,
    EventRecord,
    IssueSpent,
    Record,
    RecoveredState,
    ResultRecord,
    ResultReleased,
    RunRecord,
    SettingRecord,
)
from symphony.processes.base import Identity
from symphony.scheduler import (
    NOT_IN_HISTORY,
    AgentChoice,
    AgentReported,
    Blocked,
    ClaimEntry,
    ClaimKind,
    Command,
    Event,
    IssueResult,
    Notify,
    Recovered,
    RecoveredClaim,
    Resume,
    Retry,
    RunEnded,
    Running,
    RunReport,
    RunStage,
    SchedulerSettings,
    Spent,
    State,
    WorkspaceRef,
    attempt_numbers,
    log_text,
    resume_interrupted,
)

V = TypeVar("V")

PAUSED: Final = "paused"
"""The setting that says that an operator has paused the daemon; its value is `true`."""

EXEMPT: Final = "exempt"
"""The setting with the issues that today's budget is not held against: `{"day": …, "issues": […]}`."""

INTERRUPTED: Final = "interrupted"
"""The outcome of a run whose daemon ended before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """One moment on both clocks."""

    ms: int
    wall_ms: int

    def wall(self, moment_ms: int) -> int:
        """The wall-clock time of a monotonic moment."""
        return self.wall_ms - self.ms + moment_ms


class StepRecorder:
    """Sees every step of one daemon's life.

    Args:
        owner: this daemon.
        left: the runs that a predecessor left without an end; they are ended with the first step, together
            with what becomes of their claims.
        mask: hides secrets in what is told about issues.
    """

    def __init__(
        self,
        owner: Identity,
        *,
        left: Iterable[RunRecord] = (),
        mask: Callable[[str], str] = str,
    ) -> None:
        self._owner = owner
        self._left = tuple(left)
        self._mask = mask
        self._rows: dict[str, RunRecord] = {}
        self._state: State | None = None

    def agent_started(self, run_id: str, agent: Identity) -> tuple[Record, ...]:
        """The agent of a run exists."""
        row = self._rows.get(run_id)
        if row is None:
            return ()
        self._rows[run_id] = row = replace(row, agent=agent)
        return (row,)

    def thread_opened(self, run_id: str, thread_id: str) -> tuple[Record, ...]:
        """The agent of a run has opened this conversation."""
        row = self._rows.get(run_id)
        if row is None:
            return ()
        self._rows[run_id] = row = replace(row, thread_id=thread_id)
        return (row,)

    def step(
        self,
        before: State,
        fact: Event,
        after: State,
        commands: tuple[Command, ...],
        *,
        now_ms: int,
        wall_ms: int,
    ) -> tuple[Record, ...]:
        """What one step leaves to remember: `now_ms` is monotonic, `wall_ms` the same moment on the wall."""
        self._state = after
        return tuple(self._records(before, fact, after, commands, Now(ms=now_ms, wall_ms=wall_ms)))

    def snapshot(self, *, now_ms: int, wall_ms: int) -> tuple[Record, ...] | None:
        """All that a file that is begun anew must hold, which is no history; None before the first step."""
        if (state := self._state) is None:
            return None
        now = Now(ms=now_ms, wall_ms=wall_ms)
        empty = replace(
            state, running={}, retrying={}, blocked={}, results={}, spent={}, budget_waivers=frozenset()
        )
        claims: tuple[ClaimEntry, ...] = (
            *state.running.values(),
            *state.retrying.values(),
            *state.blocked.values(),
        )
        return (
            *(_claim_record(entry, self._owner, now) for entry in claims),
            *self._rows.values(),
            *_results(empty, state, now),
            *_spent(empty, state, None),
            *_settings(replace(empty, paused=False), state),
            *(() if state.day is None else (DayRecord(day=state.day, tokens=state.day_tokens),)),
        )

    def _records(
        self,
        before: State,
        fact: Event,
        after: State,
        commands: tuple[Command, ...],
        now: Now,
    ) -> Iterator[Record]:
        reported = self._run(before, fact.run_id) if isinstance(fact, AgentReported) else None
        if isinstance(fact, Recovered):
            yield from self._end_left(now)
        for issue_id in [reported.issue.id] if reported else _claims_changed(before, after):
            yield from self._claim(issue_id, before, after, now)
        if reported:
            yield from self._reported(reported, after, now)
        elif isinstance(fact, RunEnded):
            yield from self._ended(before, fact, now)
        if not isinstance(fact, Recovered):  # then all of it comes from the journal
            yield from _results(before, after, now)
            yield from _spent(before, after, reported)
        yield from _day(before, after)
        yield from _settings(before, after)
        for command in commands:
            if isinstance(command, Notify):
                yield from self._told(command, before, after, now)

    # --- claims ------------------------------------------------------------------------------------------

    def _claim(self, issue_id: str, before: State, after: State, now: Now) -> Iterator[Record]:
        old, new = _entry(before, issue_id), _entry(after, issue_id)
        if isinstance(new, Running) and new.run_id not in self._rows:
            row = _row(new, after.settings, started_wall_ms=now.wall(new.started_ms))
            self._rows[new.run_id] = row
            yield row
        if new is None:
            if old is not None:
                yield ClaimReleased(issue_id=issue_id)
        elif old is None or _essence(old) != _essence(new):
            yield _claim_record(new, self._owner, now)

    # --- runs --------------------------------------------------------------------------------------------

    def _reported(self, was: Running, after: State, now: Now) -> Iterator[Record]:
        run, row = after.running.get(was.issue.id), self._rows[was.run_id]
        if run is None:
            return
        old, new = was.report, run.report
        current = _updated(row, new)
        if current is not row:
            self._rows[run.run_id] = current
            yield current
        if new.last_message is not None and new.last_message != old.last_message:
            yield EventRecord(
                issue_id=run.issue.id,
                issue_identifier=run.issue.identifier,
                run_id=run.run_id,
                at_wall_ms=now.wall_ms,
                event=new.last_event or "notification",
                message=new.last_message,
            )

    def _ended(self, before: State, fact: RunEnded, now: Now) -> Iterator[Record]:
        run, row = self._run(before, fact.run_id), self._rows.pop(fact.run_id, None)
        if row is None or run is None:
            return
        yield replace(
            _updated(row, run.report),
            ended_wall_ms=now.wall_ms,
            outcome=fact.outcome.kind.value,
            reason=_why(run, fact),
            progress=fact.outcome.progress,
            commits=fact.outcome.commits,
        )

    def _run(self, state: State, run_id: str) -> Running | None:
        """The run of that name, if it is one of ours and still the one that its issue has."""
        row = self._rows.get(run_id)
        run = None if row is None else state.running.get(row.issue_id)
        return run if run is not None and run.run_id == run_id else None

    def _end_left(self, now: Now) -> Iterator[Record]:
        for row in self._left:
            yield replace(
                row,
                ended_wall_ms=max(now.wall_ms, row.started_wall_ms),
                outcome=INTERRUPTED,
                reason="the daemon ended before the run did",
            )
        self._left = ()

    # --- events ------------------------------------------------------------------------------------------

    def _told(self, notice: Notify, before: State, after: State, now: Now) -> Iterator[Record]:
        if notice.issue_id is None or notice.event in NOT_IN_HISTORY:
            return
        run = after.running.get(notice.issue_id) or before.running.get(notice.issue_id)
        named = notice.fields.get("run_id")
        yield EventRecord(
            issue_id=notice.issue_id,
            issue_identifier=notice.issue_identifier or notice.issue_id,
            run_id=named if isinstance(named, str) else run.run_id if run else None,
            at_wall_ms=now.wall_ms,
            event=notice.event,
            message=self._mask(log_text(notice)),
        )


def _entry(state: State, issue_id: str) -> ClaimEntry | None:
    return state.running.get(issue_id) or state.retrying.get(issue_id) or state.blocked.get(issue_id)


def _claim_record(entry: ClaimEntry, owner: Identity, now: Now) -> ClaimRecord:
    """The claim as it is remembered."""
    match entry:
        case Running():
            return ClaimRecord(
                issue=entry.issue,
                kind=ClaimKind.RUNNING,
                owner=owner,
                since_wall_ms=now.wall(entry.started_ms),
                run_id=entry.run_id,
                attempt=entry.attempt,
                idle_attempts=entry.attempts_without_progress,
                failures=entry.failures,
                workspace_path=entry.report.workspace_path,
                resume=entry.resume,
                runs=entry.runs - 1,
            )
        case Retry():
            return ClaimRecord(
                issue=entry.issue,
                kind=ClaimKind.RETRYING,
                owner=owner,
                since_wall_ms=now.wall_ms,
                attempt=entry.attempt,
                due_wall_ms=now.wall(entry.due_ms),
                error=entry.error,
                idle_attempts=entry.attempts_without_progress,
                failures=entry.failures,
                hopeless=entry.non_retryable,
                workspace_path=entry.workspace_path,
                resume=entry.resume,
                runs=entry.runs,
            )
        case Blocked():
            return ClaimRecord(
                issue=entry.issue,
                kind=ClaimKind.BLOCKED,
                owner=owner,
                since_wall_ms=now.wall(entry.blocked_ms),
                run_id=entry.run_id,
                attempt=entry.attempt,
                workspace_path=entry.workspace_path,
                resume=entry.resume,
                failure=entry.failure,
                question=entry.question,
                settled=entry.has_baseline,
            )
        case _:
            assert_never(entry)


_NOT_US = Identity(boot_id="", pid=0, started=0.0)
_EPOCH = Now(ms=0, wall_ms=0)


def _essence(entry: ClaimEntry) -> ClaimRecord:
    """What of a claim is remembered, whenever that is: a change of it has to be written."""
    return _claim_record(entry, _NOT_US, _EPOCH)


def _changed(before: Mapping[str, V], after: Mapping[str, V]) -> Iterator[str]:
    """The keys whose values are not the same object any more."""
    if before is after:
        return
    yield from (key for key, value in after.items() if before.get(key) is not value)
    yield from before.keys() - after.keys()


def _claims_changed(before: State, after: State) -> list[str]:
    found = {
        *_changed(before.running, after.running),
        *_changed(before.retrying, after.retrying),
        *_changed(before.blocked, after.blocked),
    }
    return sorted(found)


def _row(run: Running, settings: SchedulerSettings, *, started_wall_ms: int) -> RunRecord:
    number, last = attempt_numbers(run, settings)
    return RunRecord(
        run_id=run.run_id,
        issue_id=run.issue.id,
        issue_identifier=run.issue.identifier,
        started_wall_ms=started_wall_ms,
        attempt=run.attempt,
        workspace_path=run.report.workspace_path,
        agent_name=run.agent.name,
        agent_reason=run.agent.reason,
        attempt_number=number,
        attempt_limit=last,
    )


def _updated(row: RunRecord, report: RunReport) -> RunRecord:
    """The row with what the report says; the very same where that is nothing new, as it mostly is."""
    news: dict[str, Any] = {
        "turns": report.turn_count,
        "session_id": report.session_id,
        "thread_id": report.thread_id or row.thread_id,
        "input_tokens": report.input_tokens,
        "output_tokens": report.output_tokens,
        "total_tokens": report.total_tokens,
        "workspace_path": report.workspace_path or row.workspace_path,
        "branch": report.branch,
    }
    return row if all(getattr(row, name) == new for name, new in news.items()) else replace(row, **news)


def _why(run: Running, fact: RunEnded) -> str | None:
    """Why a run ended as it did, in one line; null where it simply came to its end."""
    if fact.outcome.failure is not None:
        return fact.outcome.failure.line
    if run.stopping is not None:
        return f"stopped: {run.stopping.value}"
    return None if run.finishing is None else f"finished: {run.finishing.value}"


def _results(before: State, after: State, now: Now) -> Iterator[Record]:
    """What became of finished work; that a push is under way is nothing to remember."""
    for issue_id in sorted(_changed(before.results, after.results)):
        result, was = after.results.get(issue_id), before.results.get(issue_id)
        if result is None:
            yield ResultReleased(issue_id=issue_id)
        elif was is None or replace(was, pushing=result.pushing) != result:
            yield ResultRecord(result=replace(result, pushing=False), ended_wall_ms=now.wall(result.ended_ms))


def _spent(before: State, after: State, reported: Running | None) -> Iterator[Record]:
    """What issues used up; a report of an agent changes that of its own issue alone."""
    if after.spent is before.spent:
        return
    for issue_id in [reported.issue.id] if reported else sorted(_changed(before.spent, after.spent)):
        spent = after.spent.get(issue_id, Spent())
        if spent != before.spent.get(issue_id, Spent()):
            yield IssueSpent(issue_id=issue_id, spent=spent)


def _day(before: State, after: State) -> Iterator[Record]:
    if after.day is not None and (after.day, after.day_tokens) != (before.day, before.day_tokens):
        yield DayRecord(day=after.day, tokens=after.day_tokens)


def _settings(before: State, after: State) -> Iterator[Record]:
    if after.paused is not before.paused:
        yield SettingRecord(name=PAUSED, value="true" if after.paused else None)
    if (after.budget_waivers or before.budget_waivers) and (after.budget_waivers, after.day) != (
        before.budget_waivers,
        before.day,
    ):
        told = json.dumps({"day": after.day, "issues": sorted(after.budget_waivers)})
        yield SettingRecord(name=EXEMPT, value=told if after.budget_waivers else None)


# --- reading back -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """When a daemon starts: both clocks, today (`YYYY-MM-DD`, UTC), and the longest that a retry may wait."""

    now_ms: int
    wall_ms: int
    today: str
    max_wait_ms: int


def recovered_event(
    remembered: RecoveredState, start: Start, *, workspaces: tuple[WorkspaceRef, ...] = ()
) -> Recovered:
    """The first input of a daemon that starts now; `workspaces` are those that were found on disk."""
    live = {run.run_id: run for run in remembered.live_runs}
    return Recovered(
        workspaces=workspaces,
        claims=tuple(_claim(record, live, start) for record in remembered.claims),
        results=tuple(_result(record, start) for record in _by_age(remembered.results)),
        spent=remembered.spent,
        day=start.today,
        day_tokens=remembered.days.get(start.today, 0),
        budget_waivers=_exempt(remembered.settings.get(EXEMPT), start.today),
        paused=remembered.settings.get(PAUSED) == "true",
    )


def _claim(record: ClaimRecord, live: Mapping[str, RunRecord], start: Start) -> RecoveredClaim:
    run = live.get(record.run_id or "")
    return RecoveredClaim(
        issue=record.issue,
        kind=record.kind,
        run_id=record.run_id if record.kind is ClaimKind.BLOCKED else None,
        attempt=record.attempt,
        due_ms=_due_ms(record, start),
        since_ms=_since_ms(record, start),
        error=record.error,
        attempts_without_progress=record.idle_attempts,
        failures=record.failures,
        non_retryable=record.hopeless,
        runs=record.runs,
        workspace_path=record.workspace_path or (run.workspace_path if run else None),
        resume=_resume(record, run) if record.kind is ClaimKind.RUNNING else record.resume,
        failure=record.failure,
        question=record.question,
        has_baseline=record.settled,
    )


def _due_ms(record: ClaimRecord, start: Start) -> int:
    """When a retry is due: at its time, and no later than if its whole wait began now (the clock was set)."""
    due_wall_ms = start.wall_ms if record.due_wall_ms is None else record.due_wall_ms
    left_ms, whole_ms = due_wall_ms - start.wall_ms, due_wall_ms - record.since_wall_ms
    return start.now_ms + max(min(left_ms, whole_ms, start.max_wait_ms), 0)


def _since_ms(record: ClaimRecord, start: Start) -> int:
    """When the claim became what it is, never after now: negative if that was before the clock's zero."""
    return start.now_ms + min(record.since_wall_ms - start.wall_ms, 0)


def _by_age(records: tuple[ResultRecord, ...]) -> list[ResultRecord]:
    return sorted(records, key=lambda record: (record.ended_wall_ms, record.result.issue.id))


def _result(record: ResultRecord, start: Start) -> IssueResult:
    ended_ms = start.now_ms + min(record.ended_wall_ms - start.wall_ms, 0)
    return replace(record.result, ended_ms=ended_ms)


def _resume(record: ClaimRecord, run: RunRecord | None) -> Resume:
    """How the issue of a run that was live goes on: as if it had been interrupted just now.

    What it used of its thread is what was written down last; the rest is counted when it goes on (TK4).
    """
    report = RunReport(stage=RunStage.PREPARING_WORKSPACE)
    if run is not None:
        report = RunReport(
            stage=RunStage.STREAMING_TURN,
            thread_id=run.thread_id,
            turn_count=run.turns,
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
            total_tokens=run.total_tokens,
        )
    return resume_interrupted(
        Running(
            run_id=record.run_id or "",
            issue=record.issue,
            attempt=record.attempt,
            started_ms=0,
            max_turns=0,
            attempts_without_progress=record.idle_attempts,
            report=report,
            resume=record.resume,
            agent=AgentChoice(name=run.agent_name) if run and run.agent_name else AgentChoice(),
        )
    )


def _exempt(told: str | None, today: str) -> frozenset[str]:
    """The issues that today's budget is not held against; yesterday's exemption is none."""
    try:
        held = json.loads(told or "null")
        if held["day"] == today:
            return frozenset(str(issue_id) for issue_id in held["issues"])
    except (ValueError, TypeError, KeyError):
        pass
    return frozenset()
