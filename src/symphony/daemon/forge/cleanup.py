"""The steps after a merge: records the outcome, moves the issue, and deletes the branch.

The end is recorded when all steps are done. If the daemon dies earlier, the next one repeats them, which
changes nothing.
"""

from collections.abc import Callable
from typing import Final

import structlog

from symphony.config import ForgeSettings
from symphony.daemon.core import Core
from symphony.daemon.forge.records import PullRequestRecords
from symphony.daemon.moves import move_now
from symphony.domain import Issue, PullRequest, PullState, SymphonyError, normalise_state
from symphony.journal.model import PullRequestRecord
from symphony.scheduler import WakeAsked, has_new_work, is_worked_on
from symphony.services.pulls import Forge

_BRANCH_TRIES: Final = 3
"""How often the daemon tries to delete the branch of a merged pull request."""
_log = structlog.get_logger(__name__)


class Cleanup:
    """Does the steps after a merge.

    Args:
        records: the records of pull requests.
        core: state, context, mailbox and journal.
        on_merged: called with the issue whose pull request was merged.
    """

    def __init__(
        self,
        records: PullRequestRecords,
        core: Core,
        *,
        on_merged: Callable[[Issue], None],
    ) -> None:
        self._records = records
        self._core = core
        self._on_merged = on_merged

    async def merged(
        self, forge: Forge, record: PullRequestRecord, pull: PullRequest, settings: ForgeSettings, tries: int
    ) -> None:
        """Record the merge; move the issue and delete the branch, if the settings say so.

        An issue with new work is not moved, because that would stop the run. `tries` is how often this has
        failed.

        Raises:
            SymphonyError: a step must be tried again.
        """
        self._on_merged(record.issue)
        await self._core.recorded()
        if settings.merged_state is not None:
            before = await move_now(
                self._core.in_force,
                record.issue,
                settings.merged_state,
                reason="merge",
                may_move=self._is_finished,
            )
            if before is not None and normalise_state(before) != normalise_state(settings.merged_state):
                self._core.post(WakeAsked(reason="issue_moved"))
        if settings.delete_branch:
            await self._delete_branch(forge, record, pull, tries)

    def _is_finished(self, issue: Issue) -> bool:
        """Whether the issue has no new work, by the tracker's present snapshot."""
        state = self._core.state
        return state is None or not has_new_work(state, issue)

    async def _delete_branch(
        self, forge: Forge, record: PullRequestRecord, pull: PullRequest, tries: int
    ) -> None:
        """Delete the branch, unless someone else may need it or committed to it."""
        removed, reason = False, await self._reason_to_keep(forge, record, pull)
        if reason is None:
            try:
                removal = await self._core.in_force.workspaces.delete_branch(record.branch, record.head)
                removed, reason = removal.removed, removal.kept_reason
            except SymphonyError as error:
                if tries < _BRANCH_TRIES - 1:
                    raise
                reason = self._core.in_force.redaction.failure(error.failure).message
        if removed:
            _log.info("branch_deleted", number=pull.number, commit=record.head)
        if reason is not None:
            _log.info("branch_kept", number=pull.number, reason=self._core.in_force.redaction.text(reason))

    async def _reason_to_keep(self, forge: Forge, record: PullRequestRecord, pull: PullRequest) -> str | None:
        state = self._core.state
        if state is not None and is_worked_on(state, record.issue.id):
            return "its issue is worked on again"
        if pull.head_sha != record.head:
            return "the merged commit is not the one that the daemon delivered"
        others = [each.number for each in await forge.find(record.branch) if each.state is PullState.OPEN]
        others += await forge.find_onto(record.branch)
        return f"pull request {others[0]} needs it" if others else None
