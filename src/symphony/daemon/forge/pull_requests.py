"""Pull requests of finished work.

They are handled beside the scheduler, so a slow or unreachable forge delays no run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio

from symphony import scheduler
from symphony.config import ForgeSettings
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import Core
from symphony.daemon.forge.cleanup import Cleanup
from symphony.daemon.forge.jobs import ForgeJobs
from symphony.daemon.forge.monitor import Monitor
from symphony.daemon.forge.opener import Opener, forge_name
from symphony.daemon.forge.records import PullRequestRecords
from symphony.daemon.forge.writes import KIND, ForgeStep, queue_write
from symphony.daemon.jobs import JobRunner
from symphony.domain import GIVEN_UP_STATES, Issue, normalise_state
from symphony.journal.model import PullRequestRecord
from symphony.services.forges import connect_forge
from symphony.services.pulls import Forge

FINISH_S: Final = 10.0


class PullRequests:
    """Opens and watches pull requests; an observer of the scheduler.

    Args:
        core: state, context, mailbox, clocks and observers.
        jobs: queues writes to the forge.
        recovered: the records of the previous daemon.
        record: puts a record into the journal.
        on_merged: called with the issue whose pull request was merged.
        connect: makes the client of a forge.
    """

    def __init__(
        self,
        core: Core,
        jobs: JobRunner,
        *,
        recovered: Sequence[PullRequestRecord],
        record: Callable[[PullRequestRecord], None],
        on_merged: Callable[[Issue], None],
        connect: Callable[[ForgeSettings, Mapping[str, str]], Forge] = connect_forge,
    ) -> None:
        self._core = core
        self._connect = connect
        self._records = PullRequestRecords(recovered, core=core, jobs=jobs, record=record)
        cleanup = Cleanup(self._records, core, on_merged=on_merged)
        self._monitor = Monitor(self._records, core, jobs=jobs, cleanup=cleanup)
        self._opener = Opener(self._records, core, on_open=self._observe_now)
        self._jobs = jobs
        self.kind: Final = ForgeJobs(
            self._records,
            opener=self._opener,
            monitor=self._monitor,
            connect=self._connection,
            on_tried=self.wake,
        )
        """Carries out writes to the forge."""
        self._forge: Forge | None = None
        self._connected: ForgeSettings | None = None
        self._settings: ForgeSettings | None = None
        self._woken = anyio.Event()
        self._looking = anyio.Lock()

    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
    ) -> None:
        """Note the work that this step finished."""
        del commands
        if isinstance(event, scheduler.WakeAsked):
            self.look_soon(by_person=event.by_operator)
        if isinstance(event, scheduler.Recovered):
            self.wake()
        if after.results is before.results:
            return
        settings = self._core.in_force.settings.forge
        for issue_id, result in after.results.items():
            earlier = before.results.get(issue_id)
            ended = result.status is scheduler.ResultStatus.ENDED
            was_open = earlier is not None and earlier.status is scheduler.ResultStatus.OPEN
            given_up = normalise_state(result.issue.state) in GIVEN_UP_STATES
            wanted = result.delivered is not None and not given_up
            if settings.opens and ended and was_open and wanted:
                self._opener.want(result, settings)
        self.wake()

    def reconfigure(self, _context: RuntimeContext) -> None:
        """Check the forge of new settings now."""
        self.wake()

    def wake(self) -> None:
        """Look for work now."""
        self._woken.set()

    def look_soon(self, *, by_person: bool = False) -> None:
        """Observe all soon, because the forge reports a change or a person asks."""
        if by_person:
            self._jobs.retry_kind(KIND)
        self._monitor.observe_soon(by_person=by_person)
        self._opener.search_soon(by_person=by_person)
        self.wake()

    def shown(self) -> Mapping[str, PullRequestRecord]:
        """All records by issue id, with the reason why the forge does not answer."""
        failure, records = self._monitor.failure, self._records.all()
        if failure is None:
            return records
        return {
            key: replace(record, failure=record.failure or failure) if record.is_open else record
            for key, record in records.items()
        }

    def is_open(self, issue_id: str) -> bool:
        """Whether the pull request of an issue is open, as far as known."""
        record = self._records.all().get(issue_id)
        return record is not None and record.is_open

    def hindrance(self, result: scheduler.IssueResult) -> str | None:
        """Why an approval of this work would have no effect on its pull request, by its last snapshot."""
        settings, delivered = self._core.in_force.settings.forge, result.delivered
        record = self._records.all().get(result.issue.id)
        if record is None or delivered is None or record.number is None:
            return None
        if record.forge != forge_name(settings) or record.head != delivered.head:
            return None  # the record is about other work
        return scheduler.hindrance_of(
            record.code, record.message, is_open=record.is_open, lands=settings.land != "never"
        )

    def approve(self, result: scheduler.IssueResult) -> None:
        """A person approved this work: open its pull request, or let it be merged by the rules of `land`."""
        settings = self._core.in_force.settings.forge
        record = self._records.all().get(result.issue.id)
        if record is None or not record.is_open:
            record = self._opener.want(result, settings)
            queue_write(self._jobs, record, ForgeStep.OPEN, about=record.head)
        else:
            queue_write(self._jobs, record, ForgeStep.LAND, about=record.head)
        self.look_soon(by_person=True)

    def records(self) -> tuple[PullRequestRecord, ...]:
        """All records, the oldest first; also for a new journal."""
        return tuple(sorted(self._records.all().values(), key=lambda each: each.at_wall_ms))

    @property
    def tells_reviews(self) -> bool:
        """Whether agents get reviews."""
        settings = self._core.in_force.settings.forge
        return settings.watches and settings.feedback.review

    def threads(self, issue_id: str) -> tuple[str, ...]:
        """The threads that the agent of an issue got and may answer."""
        return self._monitor.threads(issue_id)

    def take_reply(self, issue_id: str, reply: scheduler.ThreadReply) -> None:
        """Record an answer of the agent in a thread; it is posted once the agent's work is pushed."""
        self._monitor.take_reply(issue_id, reply)

    async def run(self) -> None:
        """Open and watch pull requests until cancelled."""
        while True:
            self._woken = anyio.Event()
            async with self._looking:
                wait_s = await self._do_due_work()
            with anyio.move_on_after(wait_s):
                await self._woken.wait()

    async def look_now(self) -> None:
        """Observe all, and act on the verdicts."""
        self._observe_now()
        async with self._looking:
            await self._do_due_work()

    async def finish(self) -> None:
        """Finish work in progress before the daemon ends; takes ten seconds at most."""
        with anyio.move_on_after(FINISH_S):
            async with self._looking:
                await self._do_due_work()

    async def _do_due_work(self) -> float | None:
        """Do everything that is due; return after how many seconds to check again, `None` for never."""
        state, settings = self._core.state, self._core.in_force.settings.forge
        if state is None or not settings.watches:
            return None
        self._records.trim(state.results)
        if settings != self._settings:  # after a start or a correction nothing waits for a next try
            self._settings = settings
            self._jobs.retry_kind(KIND)
            self._opener.search_soon(by_person=True)
            self._observe_now()

        def connect() -> Forge:
            return self._connection(settings)

        due = await self._open(state, settings, connect)
        if self._monitor.watches_any(settings):
            if self._monitor.due_ms <= self._core.wall_ms():
                await self._monitor.observe(settings, connect)
            due.append(self._monitor.due_ms)
        return max(min(due) - self._core.wall_ms(), 0) / 1000 if due else None

    async def _open(
        self, state: scheduler.State, settings: ForgeSettings, connect: Callable[[], Forge]
    ) -> list[int]:
        """Queue wanted pull requests, and search for others; return when to check again, in Unix time."""
        due = list[int]()
        for result in state.results.values():
            if not self._opener.is_wanted(result, settings):
                continue
            if not self._opener.searches(result, settings):
                record = self._opener.want(result, settings)
                queue_write(self._jobs, record, ForgeStep.OPEN, about=record.head)
                continue
            if self._opener.search_due_ms(result) <= self._core.wall_ms():
                await self._opener.search(result, settings, connect)
            if self._opener.is_wanted(result, settings):
                due.append(self._opener.search_due_ms(result))
        return due

    def _observe_now(self) -> None:
        self._monitor.due_ms = 0

    def _connection(self, settings: ForgeSettings) -> Forge:
        """The client for these settings. It is kept, because it caches what it has read."""
        if self._forge is None or self._connected != settings:
            self._forge = self._connect(settings, self._core.environment)
            self._connected = settings
        return self._forge
