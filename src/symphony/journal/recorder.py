"""Turns each step of the scheduler into journal records, and records into the first event of a new daemon.

Pure: no I/O, no clock. `StepRecorder` compares the states before and after a step. Agents report several
times a second, so a report becomes a record only at a milestone of the run: a new turn, another conversation,
more tokens, a new message. All records of one step are written in one transaction.

`recovered_event` goes the other way. Times in the journal are wall-clock times, and the clock may have been
set since. So waits are limited: none becomes negative or too long. A run that was live when its daemon ended
is continued with its conversation, from the last recorded token counts; the next run counts the rest. If an
operator was stopping the run, its issue is blocked instead.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar, assert_never

import msgspec
from msgspec import Struct, structs

from symphony import domain
from symphony.journal import model
from symphony.processes.base import Identity
from symphony.scheduler import (
    NOT_IN_HISTORY,
    AgentReported,
    Blocked,
    ClaimEntry,
    ClaimKind,
    Command,
    Event,
    IssueResult,
    Notify,
    Recovered,
    RemoteWorkspace,
    ResultStatus,
    Resume,
    Retry,
    RunEnded,
    Running,
    RunReport,
    RunStage,
    SchedulerSettings,
    State,
    StopReason,
    StoredClaim,
    Totals,
    WorkspaceRef,
    attempt_numbers,
    log_text,
    resume_interrupted,
    stopped_by_operator,
)

V = TypeVar("V")

PAUSED: Final = "paused"
"""The setting for a daemon that an operator paused; its value is `true`."""

BUDGET_WAIVERS: Final = "exempt"
"""The setting with the issues that today's budget does not stop: `{"day": …, "issues": […]}`."""

REMOTE_WORKSPACES: Final = "remote_workspaces"
"""The setting with the workspaces on hosts: a map of `RemoteWorkspace`, by issue id."""

USAGE: Final = "usage"
"""The setting with the sums that survive a restart: a `StoredUsage`."""

INTERRUPTED: Final = "interrupted"
"""The outcome of a run whose daemon ended before it."""

_MERGED: Final = "merged"
_MAX_TITLE_CHARS: Final = 500

# --- recording -------------------------------------------------------------------------------------------


class Now(Struct, frozen=True, kw_only=True):
    """One moment on the monotonic clock (`ms`) and on the wall clock."""

    ms: int
    wall_ms: int

    def wall(self, moment_ms: int) -> int:
        """The wall-clock time of a monotonic moment."""
        return self.wall_ms - self.ms + moment_ms


class StepRecorder:
    """Makes the records of one daemon's life.

    Args:
        owner: this daemon.
        left: runs that a previous daemon left without an end. The first step ends them, together with the
            change of their claims.
        mask: masks secrets in log texts.
    """

    def __init__(
        self,
        owner: Identity,
        *,
        left: Iterable[model.RunRecord] = (),
        mask: Callable[[str], str] = str,
    ) -> None:
        self._owner = owner
        self._left = tuple(left)
        self._mask = mask
        self._live_runs: dict[str, model.RunRecord] = {}
        self._state: State | None = None

    def agent_started(self, run_id: str, agent: Identity) -> tuple[model.Record, ...]:
        """Record the process of a run's agent."""
        return self._update_run(run_id, agent=agent)

    def thread_opened(self, run_id: str, thread_id: str) -> tuple[model.Record, ...]:
        """Record the conversation that the agent of a run has opened."""
        record = self._live_runs.get(run_id)
        return (
            ()
            if record is None
            else self._update_run(run_id, facts=structs.replace(record.facts, thread_id=thread_id))
        )

    def library_used(self, run_id: str, versions: Mapping[str, int]) -> tuple[model.Record, ...]:
        """Record the versions of the library's skills in a run."""
        return self._update_run(run_id, library_versions=versions)

    def step(
        self,
        before: State,
        event: Event,
        after: State,
        commands: tuple[Command, ...],
        *,
        now_ms: int,
        wall_ms: int,
    ) -> tuple[model.Record, ...]:
        """The records of one step. `now_ms` is monotonic; `wall_ms` is the same moment on the wall clock."""
        self._state = after
        return tuple(self._records(before, event, after, commands, Now(ms=now_ms, wall_ms=wall_ms)))

    def snapshot(self, *, now_ms: int, wall_ms: int) -> tuple[model.Record, ...] | None:
        """All present records without history, for a new file; `None` before the first step."""
        if (state := self._state) is None:
            return None
        now = Now(ms=now_ms, wall_ms=wall_ms)
        empty = state.changed(
            running={},
            retrying={},
            blocked={},
            results={},
            spent={},
            budget_waivers=frozenset(),
            remote_workspaces={},
            totals=Totals(),
            day_cost=domain.NO_COST,
        )
        claims: tuple[ClaimEntry, ...] = (
            *state.running.values(),
            *state.retrying.values(),
            *state.blocked.values(),
        )
        return (
            *(_claim_record(entry, self._owner, now) for entry in claims),
            *self._live_runs.values(),
            *_result_records(state.results, empty, state, now),
            *_spent_records(empty, state, None),
            *_setting_records(empty.changed(paused=False), state),
            *(() if state.day is None else (model.DayRecord(day=state.day, tokens=state.day_tokens),)),
        )

    def _update_run(self, run_id: str, **changes: Any) -> tuple[model.Record, ...]:
        record = self._live_runs.get(run_id)
        if record is None:
            return ()
        self._live_runs[run_id] = record = replace(record, **changes)
        return (record,)

    def _records(
        self,
        before: State,
        event: Event,
        after: State,
        commands: tuple[Command, ...],
        now: Now,
    ) -> Iterator[model.Record]:
        reported = self._run(before, event.run_id) if isinstance(event, AgentReported) else None
        if isinstance(event, Recovered):
            left = {run.issue_id for run in self._left}
            yield from self._end_left_runs(now)
            yield from _result_records(left & after.results.keys(), before, after, now)
        for issue_id in [reported.issue.id] if reported else _changed_claims(before, after):
            yield from self._claim_records(issue_id, before, after, now)
        if reported:
            yield from self._report_records(reported, after, now)
        elif isinstance(event, RunEnded):
            yield from self._end_records(before, event, after, now)
        if not isinstance(event, Recovered):  # results and usage then come from the journal
            yield from _result_records(_changed_keys(before.results, after.results), before, after, now)
            yield from _spent_records(before, after, reported)
        if after.day is not None and (after.day, after.day_tokens) != (before.day, before.day_tokens):
            yield model.DayRecord(day=after.day, tokens=after.day_tokens)
        yield from _setting_records(before, after)
        for command in commands:
            if isinstance(command, Notify):
                yield from self._history_records(command, before, after, now)

    def _claim_records(self, issue_id: str, before: State, after: State, now: Now) -> Iterator[model.Record]:
        old, new = before.entry(issue_id), after.entry(issue_id)
        if isinstance(new, Running) and new.run_id not in self._live_runs:
            record = _run_record(new, after.settings, started_wall_ms=now.wall(new.started_ms))
            self._live_runs[new.run_id] = record
            yield record
        if new is None:
            if old is not None:
                yield model.ClaimReleased(issue_id=issue_id)
        elif old is None or _stored_claim(old) != _stored_claim(new):
            yield _claim_record(new, self._owner, now)

    def _report_records(self, before: Running, after: State, now: Now) -> Iterator[model.Record]:
        run, record = after.running.get(before.issue.id), self._live_runs[before.run_id]
        if run is None:
            return
        old, new = before.report, run.report
        updated = _with_report(record, new)
        if updated is not record:
            self._live_runs[run.run_id] = updated
            yield updated
        texts = []
        if new.last_words not in {old.last_words, new.last_message, None}:  # other events have come since
            texts.append(("notification", new.last_words))
        if new.last_message not in {old.last_message, None}:
            texts.append((new.last_event or "notification", new.last_message))
        for event, message in texts:
            yield model.EventRecord(
                issue_id=run.issue.id,
                issue_identifier=run.issue.identifier,
                run_id=run.run_id,
                at_wall_ms=now.wall_ms,
                event=event,
                message=message or "",
            )

    def _end_records(self, before: State, event: RunEnded, after: State, now: Now) -> Iterator[model.Record]:
        run, record = self._run(before, event.run_id), self._live_runs.pop(event.run_id, None)
        if record is None or run is None:
            return
        outcome, blocked = event.outcome, after.blocked.get(record.issue_id)
        yield replace(
            _with_report(record, run.report),
            ended_wall_ms=now.wall_ms,
            outcome=outcome.kind.value,
            reason=_end_reason(run, event),
            progress=outcome.progress,
            delivered=outcome.delivered is not None and bool(outcome.progress),
            head=None if outcome.delivered is None else outcome.delivered.head,
            verified=outcome.verification.status if outcome.verification else None,
            blocked=blocked is not None and blocked.run_id == event.run_id,
        )

    def _run(self, state: State, run_id: str) -> Running | None:
        """The run with this id, if it was started by this daemon and its issue has no newer run."""
        record = self._live_runs.get(run_id)
        run = None if record is None else state.running.get(record.issue_id)
        return run if run is not None and run.run_id == run_id else None

    def _end_left_runs(self, now: Now) -> Iterator[model.Record]:
        for record in self._left:
            yield replace(
                record,
                ended_wall_ms=max(now.wall_ms, record.started_wall_ms),
                outcome=INTERRUPTED,
                reason="the daemon ended before the run did",
            )
        self._left = ()

    def _history_records(
        self, notice: Notify, before: State, after: State, now: Now
    ) -> Iterator[model.Record]:
        if notice.issue_id is None or notice.event in NOT_IN_HISTORY:
            return
        run = after.running.get(notice.issue_id) or before.running.get(notice.issue_id)
        named = notice.fields.get("run_id")
        yield model.EventRecord(
            issue_id=notice.issue_id,
            issue_identifier=notice.issue_identifier or notice.issue_id,
            run_id=named if isinstance(named, str) else run.run_id if run else None,
            at_wall_ms=now.wall_ms,
            event=notice.event,
            message=self._mask(log_text(notice)),
        )


def _claim_record(entry: ClaimEntry, owner: Identity, now: Now) -> model.ClaimRecord:
    claim = _stored_claim(entry)
    waits = claim.kind is ClaimKind.RETRYING
    return model.ClaimRecord(
        claim=replace(claim, due_ms=0, since_ms=0),
        owner=owner,
        since_wall_ms=now.wall_ms if waits else now.wall(claim.since_ms),
        due_wall_ms=now.wall(claim.due_ms) if waits else None,
    )


def _stored_claim(entry: ClaimEntry) -> StoredClaim:
    """The stored part of a claim, with its times on the clock of this daemon."""
    match entry:
        case Running():
            return StoredClaim(
                issue=entry.issue,
                kind=ClaimKind.RUNNING,
                since_ms=entry.started_ms,
                run_id=entry.run_id,
                attempt=entry.attempt,
                attempts_without_progress=entry.attempts_without_progress,
                failures=entry.failures,
                workspace_path=entry.report.facts.workspace_path,
                resume=entry.resume,
                failure=stopped_by_operator(entry.issue) if entry.stopping is StopReason.OPERATOR else None,
                runs=entry.runs - 1,
            )
        case Retry():
            return StoredClaim(
                issue=entry.issue,
                kind=ClaimKind.RETRYING,
                attempt=entry.attempt,
                due_ms=entry.due_ms,
                error=entry.error,
                attempts_without_progress=entry.attempts_without_progress,
                failures=entry.failures,
                non_retryable=entry.non_retryable,
                cause=entry.cause,
                workspace_path=entry.workspace_path,
                resume=entry.resume,
                runs=entry.runs,
            )
        case Blocked():
            return StoredClaim(
                issue=entry.issue,
                kind=ClaimKind.BLOCKED,
                since_ms=entry.blocked_ms,
                run_id=entry.run_id,
                attempt=entry.attempt,
                workspace_path=entry.workspace_path,
                resume=entry.resume,
                failure=entry.failure,
                question=entry.question,
                has_baseline=entry.has_baseline,
            )
        case _:
            assert_never(entry)


def _changed_keys(before: Mapping[str, V], after: Mapping[str, V]) -> Iterator[str]:
    """The keys whose values are no longer the same object."""
    if before is after:
        return
    yield from (key for key, value in after.items() if before.get(key) is not value)
    yield from before.keys() - after.keys()


def _changed_claims(before: State, after: State) -> list[str]:
    found = {
        *_changed_keys(before.running, after.running),
        *_changed_keys(before.retrying, after.retrying),
        *_changed_keys(before.blocked, after.blocked),
    }
    return sorted(found)


def _run_record(run: Running, settings: SchedulerSettings, *, started_wall_ms: int) -> model.RunRecord:
    number, last = attempt_numbers(run, settings)
    return model.RunRecord(
        run_id=run.run_id,
        issue_id=run.issue.id,
        issue_identifier=run.issue.identifier,
        started_wall_ms=started_wall_ms,
        attempt=run.attempt,
        facts=structs.replace(run.report.facts, model=run.agent.model),
        issue_state=run.issue.state,
        issue_title=domain.one_line(run.issue.title, _MAX_TITLE_CHARS),
        agent_name=run.agent.name,
        agent_reason=run.agent.reason,
        attempt_number=number,
        attempt_limit=last,
    )


def _with_report(record: model.RunRecord, report: RunReport) -> model.RunRecord:
    """The record with the values of a report; the same object if nothing changed, which is usual."""
    known, facts = record.facts, report.facts
    facts = structs.replace(
        facts,
        thread_id=facts.thread_id or known.thread_id,
        model=facts.model or known.model,
        workspace_path=facts.workspace_path or known.workspace_path,
    )
    return record if facts == known else replace(record, facts=facts)


def _end_reason(run: Running, event: RunEnded) -> str | None:
    """Why a run ended, in one line; `None` if it completed on its own."""
    if event.outcome.failure is not None:
        return event.outcome.failure.line
    if run.stopping is not None:
        return f"stopped: {run.stopping.words}"
    return None if run.finishing is None else f"finished: {run.finishing.words}"


def _result_records(
    issue_ids: Iterable[str], before: State, after: State, now: Now
) -> Iterator[model.Record]:
    """The changed results of these issues. Whether a push is in progress is not recorded."""
    for issue_id in sorted(issue_ids):
        old, new = before.results.get(issue_id), after.results.get(issue_id)
        if new is None:
            yield model.ResultReleased(issue_id=issue_id)
        elif old is None or replace(old, pushing_since_ms=new.pushing_since_ms) != new:
            kept = replace(new, pushing_since_ms=None)
            yield model.ResultRecord(result=kept, ended_wall_ms=now.wall(new.ended_ms))
            yield from _milestone_records(new)


def _milestone_records(result: IssueResult) -> Iterator[model.MilestoneRecord]:
    """The milestones of delivered work by the tracker's state; abandoned work is not ready."""
    state = domain.normalise_state(result.issue.state)
    left = result.status in {ResultStatus.READY, ResultStatus.ENDED}
    if result.delivered is None or not left or state in domain.GIVEN_UP_STATES:
        return
    yield milestone_record(result.issue, model.Milestone.READY)
    if state == _MERGED:
        yield milestone_record(result.issue, model.Milestone.MERGED)


def milestone_record(issue: domain.Issue, milestone: model.Milestone) -> model.MilestoneRecord:
    """The record of a milestone; also for milestones from another source than the tracker."""
    return model.MilestoneRecord(issue_id=issue.id, issue_identifier=issue.identifier, milestone=milestone)


def _spent_records(before: State, after: State, reported: Running | None) -> Iterator[model.Record]:
    """The changed usage of issues; a report of an agent changes only the usage of its own issue."""
    if after.spent is before.spent:
        return
    for issue_id in [reported.issue.id] if reported else sorted(_changed_keys(before.spent, after.spent)):
        spent = after.spent.get(issue_id, domain.Spent())
        if spent != before.spent.get(issue_id, domain.Spent()):
            yield model.IssueSpent(issue_id=issue_id, spent=spent)


def _setting_records(before: State, after: State) -> Iterator[model.Record]:
    if after.paused is not before.paused:
        yield model.SettingRecord(name=PAUSED, value="true" if after.paused else None)
    if (after.budget_waivers or before.budget_waivers) and (after.budget_waivers, after.day) != (
        before.budget_waivers,
        before.day,
    ):
        text = json.dumps({"day": after.day, "issues": sorted(after.budget_waivers)})
        yield model.SettingRecord(name=BUDGET_WAIVERS, value=text if after.budget_waivers else None)
    if after.remote_workspaces != before.remote_workspaces:
        value = model.encode(RemoteWorkspaces(after.remote_workspaces)) if after.remote_workspaces else None
        yield model.SettingRecord(name=REMOTE_WORKSPACES, value=value)
    if (after.totals, after.day_cost) != (before.totals, before.day_cost):
        usage = StoredUsage(totals=after.totals, day=after.day, day_cost=after.day_cost)
        yield model.SettingRecord(name=USAGE, value=model.encode(usage))


class RemoteWorkspaces(Struct, frozen=True):
    """The workspaces on hosts, by issue id."""

    workspaces: Mapping[str, RemoteWorkspace] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUsage:
    """What all runs used: `totals` of ended runs, and the cost of the tokens of `day`."""

    totals: Totals = field(default_factory=Totals)
    day: str | None = None
    day_cost: domain.Cost = domain.NO_COST


# --- recovery --------------------------------------------------------------------------------------------


class DaemonStart(Struct, frozen=True, kw_only=True):
    """The time of a daemon's start on both clocks, the day (`YYYY-MM-DD`, UTC), the longest retry wait."""

    now_ms: int
    wall_ms: int
    today: str
    max_wait_ms: int

    def past_ms(self, wall_ms: int) -> int:
        """A past wall-clock time on the monotonic clock: never after now, and possibly negative."""
        return self.now_ms + min(wall_ms - self.wall_ms, 0)


def recovered_event(
    remembered: model.RecoveredState,
    start: DaemonStart,
    *,
    workspaces: tuple[WorkspaceRef, ...] = (),
    delivered: Mapping[str, domain.DeliveredBranch] = MappingProxyType({}),
) -> Recovered:
    """The first event of a daemon that starts now.

    `workspaces` were found on disk. `delivered` has the deliveries from workspaces of interrupted runs, by
    issue id.
    """
    live = {run.run_id: run for run in remembered.live_runs}
    usage, known_issues = _recorded_usage(remembered)
    return Recovered(
        workspaces=workspaces,
        claims=tuple(_recovered_claim(record, live, start) for record in remembered.claims),
        results=_recovered_results(remembered, start, delivered),
        spent=remembered.spent,
        day=start.today,
        day_tokens=remembered.days.get(start.today, 0),
        day_cost=usage.day_cost if usage.day == start.today else domain.NO_COST,
        totals=usage.totals,
        known_issues=known_issues,
        budget_waivers=_waivers_of_today(remembered.settings.get(BUDGET_WAIVERS), start.today),
        paused=remembered.settings.get(PAUSED) == "true",
        remote_workspaces=_recorded_remote_workspaces(remembered),
    )


def _recorded_remote_workspaces(remembered: model.RecoveredState) -> Mapping[str, RemoteWorkspace]:
    try:
        return model.decode(remembered.settings[REMOTE_WORKSPACES], RemoteWorkspaces).workspaces
    except (KeyError, model.CodecError):
        return {}


def _recovered_results(
    remembered: model.RecoveredState, start: DaemonStart, delivered: Mapping[str, domain.DeliveredBranch]
) -> tuple[IssueResult, ...]:
    """The results, oldest first, including the usage and deliveries of interrupted runs."""
    records = sorted(remembered.results, key=lambda record: (record.ended_wall_ms, record.result.issue.id))
    found = {
        record.result.issue.id: replace(record.result, ended_ms=start.past_ms(record.ended_wall_ms))
        for record in records
    }
    issues = {one.claim.issue.id: replace(one.claim.issue, description=None) for one in remembered.claims}
    for run in remembered.live_runs:
        result = found.get(run.issue_id)
        if result is None and run.issue_id in issues:
            result = IssueResult(issue=issues[run.issue_id], ended_ms=start.now_ms)
        if result is not None:
            found[run.issue_id] = replace(
                result,
                turns=domain.add_counts(result.turns, run.facts.turn_count),
                usage=result.usage.plus(run.facts),
            )
    for issue_id, branch in delivered.items():
        result = found.get(issue_id)
        if result is not None and (result.delivered is None or result.delivered.head != branch.head):
            found[issue_id] = replace(result, delivered=branch, commented=False)
    return tuple(found.values())


def _recorded_usage(remembered: model.RecoveredState) -> tuple[StoredUsage, frozenset[str]]:
    """The sums of the previous daemon, including its interrupted runs, and the issues of these runs."""
    try:
        usage = model.decode(remembered.settings[USAGE], StoredUsage)
    except (KeyError, model.CodecError):
        usage = StoredUsage()
    totals, known = usage.totals, remembered.worked_on
    for run in remembered.live_runs:
        has_session = run.facts.session_id is not None
        totals = replace(
            totals,
            usage=totals.usage.plus(run.facts),
            sessions=totals.sessions + has_session,
            issues=totals.issues + (has_session and run.issue_id not in known),
        )
        known |= {run.issue_id} if has_session else set()
    return replace(usage, totals=totals), known


def _recovered_claim(
    record: model.ClaimRecord, live: Mapping[str, model.RunRecord], start: DaemonStart
) -> StoredClaim:
    claim, run = record.claim, live.get(record.claim.run_id or "")
    was_running = claim.kind is ClaimKind.RUNNING
    kind = ClaimKind.BLOCKED if was_running and claim.failure is not None else claim.kind
    return replace(
        claim,
        kind=kind,
        run_id=claim.run_id if kind is ClaimKind.BLOCKED else None,
        due_ms=_due_ms(record, start),
        since_ms=start.past_ms(record.since_wall_ms),
        workspace_path=claim.workspace_path or (run.facts.workspace_path if run else None),
        resume=_resume_of_run(claim, run) if was_running else claim.resume,
    )


def _due_ms(record: model.ClaimRecord, start: DaemonStart) -> int:
    """When a retry is due.

    If the clock was set back, it is due at the latest after one whole wait from now.
    """
    due_wall_ms = start.wall_ms if record.due_wall_ms is None else record.due_wall_ms
    left_ms, whole_ms = due_wall_ms - start.wall_ms, due_wall_ms - record.since_wall_ms
    return start.now_ms + max(min(left_ms, whole_ms, start.max_wait_ms), 0)


def _resume_of_run(claim: StoredClaim, run: model.RunRecord | None) -> Resume:
    """How the issue of a live run continues: as if the run was interrupted just now."""
    report = RunReport(stage=RunStage.PREPARING_WORKSPACE)
    if run is not None:
        report = RunReport(
            stage=RunStage.STREAMING_TURN,
            facts=run.facts,
        )
    return resume_interrupted(
        Running(
            run_id=claim.run_id or "",
            issue=claim.issue,
            attempt=claim.attempt,
            started_ms=0,
            max_turns=0,
            attempts_without_progress=claim.attempts_without_progress,
            report=report,
            resume=claim.resume,
            agent=domain.AgentChoice(name=run.agent_name) if run and run.agent_name else domain.AgentChoice(),
        )
    )


def _waivers_of_today(text: str | None, today: str) -> frozenset[str]:
    """The issues that today's budget does not stop; waivers of another day are void."""
    try:
        held = json.loads(text or "null")
        if held["day"] == today:
            return frozenset(str(issue_id) for issue_id in held["issues"])
    except (ValueError, TypeError, KeyError):
        pass
    return frozenset()
