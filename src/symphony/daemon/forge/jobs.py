"""Writes to a forge: the kind `pull_request` of the outbox.

One step is one job: open a pull request or update its text, request or cancel its merge, answer in a thread,
or finish after a merge. Each step first checks what exists already, so that a repetition changes nothing.
"""

from collections.abc import Callable
from typing import ClassVar

from typing_extensions import override

from symphony.config import ForgeSettings
from symphony.daemon.context import RuntimeContext
from symphony.daemon.forge.monitor import Monitor
from symphony.daemon.forge.opener import Opener, forge_name
from symphony.daemon.forge.records import STEP_S, PullRequestRecords
from symphony.daemon.forge.writes import ForgeStep, ForgeWrite
from symphony.daemon.jobs import Attempt, JobKind
from symphony.domain import PullState
from symphony.journal.jobs import Job
from symphony.journal.model import decode
from symphony.scheduler import State
from symphony.services.pulls import Forge


class ForgeJobs(JobKind):
    """Carries out writes to a forge.

    Args:
        records: the records of pull requests.
        opener: opens them.
        monitor: watches them.
        connect: makes the client for settings.
        on_tried: called after each try.
    """

    at_once: ClassVar[int] = 4
    timeout_s: ClassVar[float] = STEP_S

    def __init__(
        self,
        records: PullRequestRecords,
        *,
        opener: Opener,
        monitor: Monitor,
        connect: Callable[[ForgeSettings], Forge],
        on_tried: Callable[[], None],
    ) -> None:
        self._records = records
        self._opener = opener
        self._monitor = monitor
        self._connect = connect
        self._on_tried = on_tried

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether the step is still needed at the forge in use."""
        write, settings = decode(job.payload, ForgeWrite), context.settings.forge
        record, result = self._records.get(job.issue_id), state.results.get(job.issue_id)
        if record is None or not settings.watches or job.receiver != forge_name(settings):
            return False
        match write.step:
            case ForgeStep.OPEN:
                return result is not None and self._opener.is_wanted(result, settings)
            case ForgeStep.LAND | ForgeStep.DISARM:
                return record.is_open
            case ForgeStep.REPLY:
                return write.thread in self._monitor.unsent(job.issue_id)
            case ForgeStep.END:
                is_merged = record.pull is not None and record.pull.state is PullState.MERGED
                return is_merged and record.code != "merged"

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        """Carry out the step; a failure is recorded with the pull request too.

        Raises:
            SymphonyError: the step may not have been done.
        """
        issue_id, settings = attempt.job.issue_id, attempt.context.settings.forge
        write = decode(attempt.job.payload, ForgeWrite)
        try:
            await self._records.take(
                issue_id, attempt.job.key, self._take(issue_id, write, settings, attempt.job.attempts)
            )
        finally:
            self._on_tried()

    async def _take(self, issue_id: str, write: ForgeWrite, settings: ForgeSettings, tries: int) -> None:
        forge = self._connect(settings)
        match write.step:
            case ForgeStep.OPEN:
                await self._opener.go_on(issue_id, settings, forge)
            case ForgeStep.LAND:
                await self._monitor.land(forge, issue_id, settings)
            case ForgeStep.DISARM:
                await self._monitor.disarm(forge, issue_id)
            case ForgeStep.REPLY:
                await self._monitor.reply(forge, issue_id, write.thread)
            case ForgeStep.END:
                await self._monitor.end(forge, issue_id, settings, tries)
