"""Files the issues of `schedules` when they are due (docs/how-to/recurring-issues.md).

    checks the clock -> asks for the former issue -> records and queues the next one -> the outbox creates it

`scheduler.schedules` decides what is due. The handled due time and the job of its issue go into the journal
in one transaction, so after a crash both are known or neither. A paused or draining daemon files nothing;
afterwards all missed due times make one issue. The same is true for due times while no daemon ran.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

import anyio
import structlog

from symphony import scheduler, to_thread
from symphony.api import models
from symphony.api.documents import created_document
from symphony.config import ScheduleSettings, render_scheduled_issue
from symphony.daemon.clock import monotonic_ms, wall_ms
from symphony.daemon.context import RuntimeContext, tracker_key
from symphony.daemon.core import Core
from symphony.daemon.jobs import JobRunner
from symphony.daemon.journal_writer import open_journal_writer
from symphony.daemon.new_issues import KIND, WantedIssue, create_now, first_state, masked_issue, queue_issue
from symphony.daemon.state_dir import StateDirectory, instance_of
from symphony.domain import Issue, SymphonyError, moment, next_due_ms, normalise_state, one_line
from symphony.journal.model import CodecError, SettingRecord, UnusableError, decode, encode
from symphony.journal.reader import open_reader
from symphony.observability import bugs
from symphony.observability.redaction import masked
from symphony.processes.base import Identity
from symphony.processes.local import LocalHost
from symphony.trackers.base import IssueToCreate

LONGEST_WAIT_S: Final = 15.0
"""How often to check schedules at least: the clock may be set, a pause may end."""
TIMEOUT_S: Final = 60.0
REFRESH_S: Final = 5.0
_FRESH_MS: Final = 10_000
_SETTING: Final = "schedule."
_log = structlog.get_logger(__name__)


class ScheduleRunner:
    """The schedules of one daemon.

    Args:
        core: state, context, mailbox and clocks.
        jobs: queues the issues.
        recovered: the settings that the previous daemon left in the journal.
        record: puts a setting into the journal; `None` deletes it.
        longest_wait_s: how often to check at least.
    """

    def __init__(
        self,
        core: Core,
        jobs: JobRunner,
        *,
        recovered: Mapping[str, str],
        record: Callable[[str, str | None], None],
        longest_wait_s: float = LONGEST_WAIT_S,
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._record = record
        self._longest_wait_s = longest_wait_s
        self._records = read_records(recovered)
        self._refreshed_ms = -_FRESH_MS
        self._woken = anyio.Event()

    def reconfigure(self, _context: RuntimeContext) -> None:
        """Check the schedules of new settings now."""
        self._woken.set()

    async def run(self) -> None:
        """File due issues until cancelled."""
        await self._core.recovered.wait()
        while True:
            self._woken = anyio.Event()
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - a bug costs one look, never the daemon
                bugs.contained("schedules_crashed", error)
            with anyio.move_on_after(self._wait_s()):
                await self._woken.wait()

    async def look(self) -> None:
        """File the issues that are due now."""
        state, context = self._core.state, self._core.in_force
        if state is None or state.paused or state.drain is not scheduler.Drain.NO:
            return
        settings = {each.name: each for each in context.settings.schedules}
        for name, record in self._records.items():
            if name not in settings and not record.removed:
                self._keep(name, replace(record, removed=True))
        for each in settings.values():
            await self._look_at(each, context)

    def _wait_s(self) -> float:
        """The time until something is due, at most `longest_wait_s`."""
        now_ms, waits_s = self._core.wall_ms(), [self._longest_wait_s]
        for each in self._core.in_force.settings.schedules:
            record = self._records.get(each.name)
            due_ms = None if record is None else next_due_ms(each.cron, each.zone, record.handled_ms)
            if due_ms is not None and due_ms > now_ms:
                waits_s.append((due_ms - now_ms) / 1000)
        return min(waits_s)

    async def _look_at(self, settings: ScheduleSettings, context: RuntimeContext) -> None:
        name, now_ms = settings.name, self._core.wall_ms()
        known = self._records.get(name)
        record = scheduler.present_schedule(known, now_ms)
        if record is not known:
            self._keep(name, record)
        former = self._former_without_asking(name, record)
        decision = scheduler.decide_schedule(schedule_of(settings), record, now_ms, former)
        if decision.verdict is scheduler.ScheduleVerdict.WAIT or (due_ms := decision.due_ms) is None:
            return
        try:
            if record.issue is not None and former is scheduler.Former.UNKNOWN:
                record, former = await _ask(context, record, record.issue)
                decision = scheduler.decide_schedule(schedule_of(settings), record, now_ms, former)
            if decision.verdict is scheduler.ScheduleVerdict.SKIP:
                _log.info("schedule_skipped", schedule=name, due_at=_utc_time(due_ms))
                self._keep(name, decision.record)
                return
            new = await new_issue(settings, context, record, state=self._core.state, now_ms=now_ms)
        except (SymphonyError, ValueError, TimeoutError) as error:
            self._failed(name, record, error, context)
            return
        if self._core.in_force is not context:
            return  # decided by settings that are no longer in force: the next check decides anew
        text = f"{tracker_key(context)} {name} {due_ms}"
        key = sha256(f"symphony-schedule {text}".encode()).hexdigest()[:32]
        # No await between these two: they are one transaction of the journal.
        self._keep(name, decision.record)
        queue_issue(self._jobs, context, WantedIssue(schedule=name, key=key, new=new))

    def _former_without_asking(self, name: str, record: scheduler.ScheduleRecord) -> scheduler.Former:
        if self._jobs.is_waiting(f"{KIND}:{name}"):
            return scheduler.Former.OPEN  # it is being created
        return scheduler.Former.OVER if record.issue is None else scheduler.Former.UNKNOWN

    def _keep(self, name: str, record: scheduler.ScheduleRecord) -> None:
        self._records[name] = record
        self._record(_SETTING + name, encode(record))

    def _failed(
        self, name: str, record: scheduler.ScheduleRecord, error: Exception, context: RuntimeContext
    ) -> None:
        """Try again at the next check; a known reason is not logged again."""
        reason = error.failure.line if isinstance(error, SymphonyError) else str(error) or "no answer in time"
        reason = context.redaction.text(one_line(reason, 500))
        if reason != record.failure:
            _log.warning("schedule_failed", schedule=name, reason=reason)
            self._keep(name, replace(record, failure=reason))

    def created(self, wanted: WantedIssue, issue: Issue) -> None:
        """The issue that a schedule wanted is at the tracker."""
        record = self._records.get(wanted.schedule, scheduler.ScheduleRecord(handled_ms=self._core.wall_ms()))
        self._keep(wanted.schedule, replace(record, issue=filed_issue(issue), failure=None))
        self._core.post(scheduler.WakeAsked(reason="issue_filed"))

    async def file_now(self, settings: ScheduleSettings) -> Issue:
        """File an issue of a schedule now, even while the former one is open; due times do not change.

        Raises:
            SymphonyError: the tracker did not create it.
            ValueError: its title or body cannot be rendered; the message says why.
        """
        context, now_ms = self._core.in_force, self._core.wall_ms()
        record = scheduler.present_schedule(self._records.get(settings.name), now_ms)
        new = await new_issue(settings, context, record, state=self._core.state, now_ms=now_ms)
        issue = await create_now(context, new, now=moment(now_ms))
        record = scheduler.present_schedule(self._records.get(settings.name), now_ms)
        self._keep(settings.name, replace(record, issue=filed_issue(issue), failure=None))
        self._core.post(scheduler.WakeAsked(reason="issue_filed"))
        return issue

    def records(self) -> tuple[SettingRecord, ...]:
        """All records, for a journal that is recreated."""
        return tuple(
            SettingRecord(name=_SETTING + name, value=encode(record))
            for name, record in self._records.items()
        )

    async def refresh(self) -> None:
        """Update the states of the last filed issues from the tracker; without an answer they stay."""
        context, now_ms = self._core.in_force, self._core.wall_ms()
        if not 0 <= now_ms - self._refreshed_ms < _FRESH_MS:
            self._refreshed_ms = now_ms
            for name, record in (await _refreshed(context, self._records)).items():
                if self._records[name].issue == record.issue or record.issue is None:
                    continue
                self._keep(name, replace(self._records[name], issue=record.issue))

    def documents(self) -> tuple[models.Schedule, ...]:
        """The schedules as documents of the API."""
        jobs = {job.key.removeprefix(f"{KIND}:"): job for job in self._jobs.jobs if job.kind == KIND}
        failing = {
            name: replace(record, failure=jobs[name].failure) if name in jobs else record
            for name, record in self._records.items()
        }
        return schedule_documents(self._core.in_force, failing, now_ms=self._core.wall_ms())


def read_records(settings: Mapping[str, str]) -> dict[str, scheduler.ScheduleRecord]:
    """The schedule records in the journal, by name; unreadable ones are left out."""
    found = dict[str, scheduler.ScheduleRecord]()
    for name, text in settings.items():
        if name.startswith(_SETTING):
            try:
                found[name.removeprefix(_SETTING)] = decode(text, scheduler.ScheduleRecord)
            except CodecError:
                continue
    return found


def schedule_of(settings: ScheduleSettings) -> scheduler.Schedule:
    """The part of the settings that decisions depend on."""
    return scheduler.Schedule(
        name=settings.name,
        cron=settings.cron,
        zone=settings.zone,
        skip_while_open=settings.skip_while_open,
    )


def filed_issue(issue: Issue) -> scheduler.FiledIssue:
    """The record of a created issue."""
    return scheduler.FiledIssue(id=issue.id, identifier=issue.identifier, url=issue.url, state=issue.state)


async def new_issue(
    settings: ScheduleSettings,
    context: RuntimeContext,
    record: scheduler.ScheduleRecord,
    *,
    state: scheduler.State | None,
    now_ms: int,
) -> IssueToCreate:
    """The next issue of a schedule, with secrets masked.

    Raises:
        ValueError: its title or body cannot be rendered.
        SymphonyError: there is no state to begin in.
    """
    former = record.issue
    result = None if state is None or former is None else state.results.get(former.id)
    previous = None
    if former is not None:
        previous = {
            "identifier": former.identifier,
            "url": former.url,
            "state": former.state,
            "result": None if result is None else result.status.value,
        }

    def render() -> tuple[str, str]:
        return render_scheduled_issue(
            settings,
            base_dir=context.workflow.path.parent,
            now=moment(now_ms, settings.zone),
            previous=previous,
        )

    title, body = await to_thread.run_sync(render)
    return masked_issue(
        context,
        IssueToCreate(
            title=title, body=body, state=first_state(context, settings.state), labels=settings.labels
        ),
    )


async def _ask(
    context: RuntimeContext, record: scheduler.ScheduleRecord, issue: scheduler.FiledIssue
) -> tuple[scheduler.ScheduleRecord, scheduler.Former]:
    """The record with the present state of the former issue. Raises `SymphonyError` or `TimeoutError`."""
    with anyio.fail_after(TIMEOUT_S):
        found = await context.tracker.fetch_issues_by_ids([issue.id])
    if not found:
        return replace(record, issue=replace(issue, state=None)), scheduler.Former.OVER
    terminal = {normalise_state(state) for state in context.terminal_states}
    former = scheduler.Former.OVER if normalise_state(found[0].state) in terminal else scheduler.Former.OPEN
    return replace(record, issue=filed_issue(found[0])), former


async def _refreshed(
    context: RuntimeContext, records: Mapping[str, scheduler.ScheduleRecord]
) -> dict[str, scheduler.ScheduleRecord]:
    """The records with the present states of their issues; unchanged if the tracker does not answer soon."""
    issues = {record.issue.id for record in records.values() if record.issue is not None}
    try:
        with anyio.fail_after(REFRESH_S):
            found = {issue.id: issue for issue in await context.tracker.fetch_issues_by_ids(issues)}
    except (SymphonyError, TimeoutError):
        return dict(records)
    return {
        name: replace(
            record,
            issue=filed_issue(found[record.issue.id])
            if record.issue.id in found
            else replace(record.issue, state=None),
        )
        if record.issue is not None
        else record
        for name, record in records.items()
    }


async def schedules_without_daemon(context: RuntimeContext, journal: Path) -> tuple[models.Schedule, ...]:
    """The schedules of a workflow, from the journal of the last daemon, with secrets masked."""

    def read() -> Mapping[str, str]:
        try:
            with open_reader(journal) as reader:
                return reader.recovered_state().settings
        except UnusableError:
            return {}

    records = await _refreshed(context, read_records(await to_thread.run_sync(read)))
    found = models.Schedules(schedules=schedule_documents(context, records, now_ms=wall_ms()))
    public: models.Schedules = masked(found, context.redaction.text)
    return public.schedules


def file_without_daemon(
    state_dir: StateDirectory, workflow: Path, context: RuntimeContext, name: str
) -> models.CreatedIssue | None:
    """File an issue of a schedule while no daemon serves; `None` if there is no such schedule. Blocking.

    Raises:
        SymphonyError: a daemon is just starting, or the tracker did not create it.
        ValueError: title or body cannot be rendered.
    """
    settings = next((each for each in context.settings.schedules if each.name == name), None)
    if settings is None:
        return None
    state_dir.create()
    identity = LocalHost(instance=instance_of(state_dir.path)).identify(os.getpid())
    with state_dir.lock(workflow, identity=identity):
        issue = anyio.run(_file_here, state_dir, identity, context, settings)
    public: models.CreatedIssue = masked(created_document(issue), context.redaction.text)
    return public


async def _file_here(
    state_dir: StateDirectory,
    identity: Identity | None,
    context: RuntimeContext,
    settings: ScheduleSettings,
) -> Issue:
    core = Core(
        state_dir=state_dir, environment=os.environ, post=lambda _: None, now_ms=monotonic_ms, wall_ms=wall_ms
    )
    core.context = context
    writer = open_journal_writer(
        state_dir.path, owner=identity, mask=str, now_ms=monotonic_ms, wall_ms=wall_ms
    )
    async with writer as journal:
        schedules = ScheduleRunner(
            core,
            JobRunner(core, record=journal.put),
            recovered=journal.previous.settings,
            record=journal.setting_changed,
        )
        return await schedules.file_now(settings)


def schedule_documents(
    context: RuntimeContext, records: Mapping[str, scheduler.ScheduleRecord], *, now_ms: int
) -> tuple[models.Schedule, ...]:
    """The schedules of a workflow with their records, as documents of the API."""
    shown = []
    for settings in context.settings.schedules:
        record = scheduler.present_schedule(records.get(settings.name), now_ms)
        due_ms = next_due_ms(settings.cron, settings.zone, record.handled_ms)
        issue = record.issue
        shown.append(
            models.Schedule(
                name=settings.name,
                cron=settings.cron,
                timezone=settings.timezone,
                next_at=None if due_ms is None else _utc_time(due_ms),
                due=due_ms is not None and due_ms <= now_ms,
                last_due_at=None if record.due_ms is None else _utc_time(record.due_ms),
                skipped=record.skipped,
                issue_id=None if issue is None else issue.id,
                issue_identifier=None if issue is None else issue.identifier,
                issue_url=None if issue is None else issue.url,
                issue_state=None if issue is None else issue.state,
                failure=record.failure,
            )
        )
    return tuple(shown)


def _utc_time(wall_ms: int) -> str:
    return models.utc_text(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=wall_ms))
