"""Turns each step of the scheduler into what the journal has to remember of it. Pure: no I/O, no clock.

A step that changes nothing worth remembering costs a few comparisons: agents report several times a second,
and only milestones of a run (a new turn, another thread, more tokens, new words) become records. All records
of one step belong together: a claim that became another kind of claim is never half written.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from symphony.hosts.base import Identity
from symphony.journal.claims import Now, claim_record, essence
from symphony.journal.model import (
    ClaimGone,
    DayRecord,
    EventRecord,
    IssueSpent,
    Record,
    RunRecord,
    SettingRecord,
)
from symphony.scheduler.commands import Command, Notify
from symphony.scheduler.inputs import (
    AgentReported,
    Input,
    Recovered,
    RunEnded,
    RunReport,
    Spent,
)
from symphony.scheduler.notices import SILENT, words
from symphony.scheduler.state import Entry, Running, State

__all__ = ["EXEMPT", "INTERRUPTED", "PAUSED", "Keeper"]

V = TypeVar("V")

PAUSED: Final = "paused"
"""The setting that says that an operator has paused the daemon; its value is `true`."""

EXEMPT: Final = "exempt"
"""The setting with the issues that today's budget is not held against: `{"day": …, "issues": […]}`."""

INTERRUPTED: Final = "interrupted"
"""The outcome of a run whose daemon ended before it."""


class Keeper:
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

    def spawned(self, run_id: str, agent: Identity) -> tuple[Record, ...]:
        """The agent of a run exists."""
        row = self._rows.get(run_id)
        if row is None:
            return ()
        self._rows[run_id] = row = replace(row, agent=agent)
        return (row,)

    def step(
        self,
        before: State,
        fact: Input,
        after: State,
        commands: tuple[Command, ...],
        *,
        now_ms: int,
        wall_ms: int,
    ) -> tuple[Record, ...]:
        """What one step leaves to remember: `now_ms` is monotonic, `wall_ms` the same moment on the wall."""
        now = Now(ms=now_ms, wall_ms=wall_ms)
        return tuple(self._records(before, fact, after, commands, now))

    def _records(
        self,
        before: State,
        fact: Input,
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
            row = _row(new, started_wall_ms=now.wall(new.started_ms))
            self._rows[new.run_id] = row
            yield row
        if new is None:
            if old is not None:
                yield ClaimGone(issue_id=issue_id)
        elif old is None or essence(old) != essence(new):
            yield claim_record(new, self._owner, now)

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
        if notice.issue_id is None or notice.event in SILENT:
            return
        run = after.running.get(notice.issue_id) or before.running.get(notice.issue_id)
        named = notice.fields.get("run_id")
        yield EventRecord(
            issue_id=notice.issue_id,
            issue_identifier=notice.issue_identifier or notice.issue_id,
            run_id=named if isinstance(named, str) else run.run_id if run else None,
            at_wall_ms=now.wall_ms,
            event=notice.event,
            message=self._mask(words(notice)),
        )


def _entry(state: State, issue_id: str) -> Entry | None:
    return state.running.get(issue_id) or state.retrying.get(issue_id) or state.blocked.get(issue_id)


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


def _row(run: Running, *, started_wall_ms: int) -> RunRecord:
    return RunRecord(
        run_id=run.run_id,
        issue_id=run.issue.id,
        issue_identifier=run.issue.identifier,
        started_wall_ms=started_wall_ms,
        attempt=run.attempt,
        workspace_path=run.report.workspace_path,
        agent_name=run.agent.name,
        agent_reason=run.agent.reason,
    )


def _updated(row: RunRecord, report: RunReport) -> RunRecord:
    """The row with what the report says; the very same where that is nothing new, as it mostly is."""
    news: dict[str, Any] = {
        "turns": report.turn_count,
        "session_id": report.session_id,
        "thread_id": report.thread_id,
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
    if after.exempt is not before.exempt and (after.exempt, after.day) != (before.exempt, before.day):
        told = json.dumps({"day": after.day, "issues": sorted(after.exempt)})
        yield SettingRecord(name=EXEMPT, value=told if after.exempt else None)
