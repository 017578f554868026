"""Opens a pull request for finished work, once: finds the existing one, or opens a new one.

    work is ready -> recorded as wanted -> find the one that is there, or open one -> its number is recorded

Each step is recorded before it is made, and a repetition changes nothing, so a daemon that dies at any point
leaves one pull request. A closed or merged pull request is never used again, and a stranger's never at all.
With `forge.open: never` the daemon only finds pull requests.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from symphony.config import ForgeSettings
from symphony.daemon.core import Core
from symphony.daemon.forge.pull_request_text import find_marker, marker_of, pull_request_text
from symphony.daemon.forge.records import (
    FIRST_RETRY_MS,
    LONGEST_RETRY_MS,
    PullRequestRecords,
    about,
    bounded,
    failure_of,
    forge_failure,
    retry_wait_ms,
)
from symphony.domain import Blame, Failure, PullRequest, PullState, ServiceError, SymphonyError
from symphony.journal.model import PullRequestRecord
from symphony.scheduler import IssueResult, ResultStatus, is_verified
from symphony.services.pulls import Forge

_MAX_SEARCHES: Final = 1_000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A search for a pull request that someone else opens; `times` counts the searches without a result."""

    head: str
    looked_ms: int = 0
    due_ms: int = 0
    times: int = 0
    failures: int = 0


class Opener:
    """Opens pull requests, or finds existing ones.

    Args:
        records: the records of pull requests.
        core: state, context, wall clock and journal.
        on_open: called after one was opened or found.
    """

    def __init__(
        self,
        records: PullRequestRecords,
        core: Core,
        *,
        on_open: Callable[[], None],
    ) -> None:
        self._records = records
        self._core = core
        self._on_open = on_open
        self._searches: dict[str, _Search] = {}

    # --- what is wanted ----------------------------------------------------------------------------------

    def is_wanted(self, result: IssueResult, settings: ForgeSettings) -> bool:
        """Whether the pull request of a result needs work.

        Work that ended before there was a forge or a daemon gets no pull request.
        """
        delivered, record = result.delivered, self._records.get(result.issue.id)
        has_work = (
            delivered is not None and delivered.work.commits and (delivered.pushed or not settings.opens)
        )
        if delivered is None or not has_work or not self._may_open(record, result, delivered.head):
            return False
        if record is None or record.forge != forge_name(settings):
            return result.status is ResultStatus.READY
        if record.is_open and not delivered.pushed:
            return False  # wait until the work is pushed
        if record.is_open:
            return record.head != delivered.head or not record.is_prepared
        if record.number is None:
            ended_too = settings.opens and result.status is ResultStatus.ENDED
            return ended_too or result.status is ResultStatus.READY
        return record.head != delivered.head and result.status is ResultStatus.READY

    def _may_open(self, record: PullRequestRecord | None, result: IssueResult, head: str) -> bool:
        """Whether a pull request may be opened: only for a verified commit."""
        opened = record is not None and record.number is not None
        return opened or not self._core.in_force.settings.verify.is_set or is_verified(result, head)

    def search_due_ms(self, result: IssueResult) -> int:
        """When to search for a pull request of someone else, in Unix time."""
        search = self._searches.get(result.issue.id)
        is_same = search is not None and result.delivered is not None and search.head == result.delivered.head
        return search.due_ms if search is not None and is_same else 0

    def want(self, result: IssueResult, settings: ForgeSettings) -> PullRequestRecord:
        """Record that the delivered commit of a result needs a pull request."""
        delivered = result.delivered
        assert delivered is not None  # noqa: S101 - of `is_wanted`
        before, fresh = self._records.get(result.issue.id), _fresh(result, settings)
        if before is None or before.forge != fresh.forge:
            return self._records.put(fresh)
        if before.number is not None and not before.is_open and before.head != delivered.head:
            return self._records.put(fresh)  # new work after the end of another pull request
        updated = replace(before, issue=result.issue, branch=delivered.branch, head=delivered.head)
        return self._records.put(updated)

    def search_soon(self, *, by_person: bool) -> None:
        """Search now, or some time after the last search if only the forge reports a change."""
        if by_person:
            self._searches.clear()
        for issue_id, search in self._searches.items():
            if search.failures == 0:
                due_ms = min(search.due_ms, search.looked_ms + FIRST_RETRY_MS)
                self._searches[issue_id] = replace(search, due_ms=due_ms, times=0)

    # --- one issue ---------------------------------------------------------------------------------------

    def searches(self, result: IssueResult, settings: ForgeSettings) -> bool:
        """Whether to search for a pull request of someone else instead of opening one."""
        record = self._records.get(result.issue.id)
        return not settings.opens and (record is None or not record.is_open)

    async def go_on(self, issue_id: str, settings: ForgeSettings, forge: Forge) -> None:
        """Open the wanted pull request of an issue, or update it.

        Raises:
            SymphonyError: it is not open or not up to date.
        """
        state = self._core.state
        result = None if state is None else state.results.get(issue_id)
        if result is None:
            return
        if not self._records[issue_id].is_open:
            await self._open(forge, result, settings)
        record = self._records[issue_id]
        if record.is_open and not record.equipped:
            await self._equip(forge, record, settings)
        record = self._records[issue_id]
        if record.is_open and record.ours and record.described != record.head:
            await self._describe(forge, record, result, settings)

    # --- one that is there -------------------------------------------------------------------------------

    async def search(
        self, result: IssueResult, settings: ForgeSettings, connect: Callable[[], Forge]
    ) -> None:
        """Search for a pull request of an agent or a person, less and less often.

        Nothing is recorded until there is one, because there may never be one.
        """
        issue_id, fresh = result.issue.id, _fresh(result, settings)
        search = self._searches.get(issue_id) or _Search(head=fresh.head)
        search = search if search.head == fresh.head else _Search(head=fresh.head)

        async def look() -> None:
            found, _ = await self._existing(connect(), fresh, self._marker(result))
            if found is not None:
                await self._take_over(fresh, found, ours=False)

        with about(fresh):
            failure = await failure_of(look())
        if failure is None:
            wait_ms = min(settings.poll_interval_ms << min(search.times, 10), LONGEST_RETRY_MS)
            search = replace(search, times=search.times + 1, failures=0)
        else:
            failure = self._core.in_force.redaction.failure(failure)
            wait_ms = retry_wait_ms(failure, search.failures + 1)
            search = replace(search, failures=search.failures + 1)
            level = logging.WARNING if search.failures == 1 else logging.DEBUG
            fields = {"reason": failure.message, "hint": failure.hint, "retry_in_ms": wait_ms}
            _log.log(level, "pull_request_failed", **fields)
        self._searches.pop(issue_id, None)
        now_ms = self._core.wall_ms()
        self._searches[issue_id] = replace(search, looked_ms=now_ms, due_ms=now_ms + wait_ms)
        if len(self._searches) > _MAX_SEARCHES:
            del self._searches[next(iter(self._searches))]

    async def _existing(
        self, forge: Forge, record: PullRequestRecord, marker: str
    ) -> tuple[PullRequest | None, Failure | None]:
        """A pull request of the branch to take over: open, or ended at this commit.

        Without one, why an open one cannot be taken over, if there is one.
        """
        in_the_way = None
        for pull in await forge.find(record.branch):
            if pull.state is not PullState.OPEN and pull.head_sha != record.head:
                continue  # it is about earlier work
            may_write = pull.author.is_me or pull.author.can_write or await _may_write(forge, pull)
            if may_write and find_marker(pull.body) in {None, marker}:
                return pull, None
            if pull.state is PullState.OPEN and in_the_way is None:
                in_the_way = _in_the_way(pull, may_write=may_write)
        return None, in_the_way

    async def _adopt(self, forge: Forge, record: PullRequestRecord, marker: str) -> bool:
        """Take over the existing pull request. Raises `SymphonyError` if an open one prevents a new one."""
        found, in_the_way = await self._existing(forge, record, marker)
        if found is not None:
            await self._take_over(record, found, ours=find_marker(found.body) is not None)
        elif in_the_way is not None:
            raise SymphonyError(in_the_way)
        return found is not None

    async def _take_over(self, record: PullRequestRecord, pull: PullRequest, *, ours: bool) -> None:
        seen = replace(record, number=pull.number, ours=ours, equipped=not ours)
        self._records.put(replace(seen, code="open", message="it was found", pull=bounded(pull)))
        self._on_open()
        await self._core.recorded()
        _log.info("pull_request_adopted", number=pull.number, url=pull.url, ours=ours)

    # --- a new one ---------------------------------------------------------------------------------------

    async def _open(self, forge: Forge, result: IssueResult, settings: ForgeSettings) -> None:
        """Take over the existing pull request, or open one."""
        record = self._records[result.issue.id]
        marker = self._marker(result)
        if await self._adopt(forge, record, marker):
            return
        base = settings.base or await self._core.in_force.workspaces.base_branch()
        if base is None:
            problem = "the branch to merge into is not known: the repository has a detached HEAD"
            raise SymphonyError(forge_failure(problem, Blame.CONFIG, hint="set forge.base", retryable=False))
        title, body = _text(settings, result, base=base, marker=marker)
        mask, is_draft = self._core.in_force.redaction.text, settings.open == "draft"
        try:
            number = await forge.open(
                branch=record.branch, base=base, title=mask(title), body=mask(body), draft=is_draft
            )
        except ServiceError as error:
            # Whether it was opened is not known without an answer. After a refusal one that is there already
            # may be the reason.
            if await self._adopt(forge, record, marker):
                return
            raise error from None
        opened = replace(record, number=number, ours=True, described=record.head)
        self._records.put(replace(opened, code="open", message="it was opened"))
        await self._core.recorded()
        self._on_open()
        _log.info("pull_request_opened", number=number, base=base, draft=is_draft)

    def _marker(self, result: IssueResult) -> str:
        return marker_of(self._core.in_force.workflow.path.parent.name, result.issue.id)

    async def _equip(self, forge: Forge, record: PullRequestRecord, settings: ForgeSettings) -> None:
        """Read a newly opened pull request, and request its labels and reviewers."""
        assert record.number is not None  # noqa: S101 - it is open
        seen = await forge.observe([record.number], fresh=True)
        pull = seen.get(record.number)
        if pull is None:
            message = f"the forge does not show pull request {record.number}, which it opened"
            raise SymphonyError(forge_failure(message, Blame.TRACKER))
        issue_id = record.issue.id
        self._records.change(issue_id, pull=self._records[issue_id].pull or bounded(pull))
        if not set(map(str.lower, settings.labels)) <= set(pull.labels):
            await self._equip_with(forge.add_labels(pull, settings.labels), record)
        for login in settings.reviewers:  # one by one: with one that it cannot ask, a forge refuses all
            await self._equip_with(forge.request_reviews(pull, [login]), record)
        self._records.change(issue_id, equipped=True)

    async def _equip_with(self, request: Awaitable[None], record: PullRequestRecord) -> None:
        """Request labels or a reviewer; refused ones are left out."""
        try:
            await request
        except ServiceError as error:
            if error.failure.status is None or error.failure.retryable:
                raise
            failure = self._core.in_force.redaction.failure(error.failure)
            _log.warning(
                "pull_request_not_equipped",
                number=record.number,
                reason=failure.message,
                hint="see forge.labels and forge.reviewers",
            )

    async def _describe(
        self, forge: Forge, record: PullRequestRecord, result: IssueResult, settings: ForgeSettings
    ) -> None:
        """Update the text for new work, unless a person edited it."""
        assert record.number is not None  # noqa: S101 - it is open
        pull = (await forge.observe([record.number], fresh=True)).get(record.number)
        if pull is not None and record.text is not None and digest(pull.body) == record.text:
            _, body = _text(settings, result, base=pull.base_branch, marker=self._marker(result))
            await forge.update(pull, title=pull.title, body=self._core.in_force.redaction.text(body))
            shown = (await forge.observe([pull.number], fresh=True)).get(pull.number)
            self._records.change(record.issue.id, text=None if shown is None else digest(shown.body))
        self._records.change(record.issue.id, described=record.head)


def forge_name(settings: ForgeSettings) -> str:
    """Kind, repository and server for the record, because numbers of pull requests are valid only there."""
    return " ".join(filter(None, (settings.kind, settings.repo, settings.url)))


def digest(text: str) -> str:
    """The digest that recognises the text of a pull request."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def _fresh(result: IssueResult, settings: ForgeSettings) -> PullRequestRecord:
    delivered = result.delivered
    assert delivered is not None  # noqa: S101 - of `is_wanted`
    return PullRequestRecord(
        issue=result.issue, forge=forge_name(settings), branch=delivered.branch, head=delivered.head
    )


def _text(settings: ForgeSettings, result: IssueResult, *, base: str, marker: str) -> tuple[str, str]:
    """Title and text. Raises `SymphonyError` if a template cannot be rendered."""
    try:
        return pull_request_text(settings, result, base=base, marker=marker)
    except ValueError as error:
        failure = forge_failure(str(error), Blame.CONFIG, hint="correct WORKFLOW.md", retryable=False)
        raise SymphonyError(failure) from error


async def _may_write(forge: Forge, pull: PullRequest) -> bool:
    """Whether the author may write to the repository; `find` does not report that on every forge."""
    seen = await forge.observe([pull.number], fresh=True)
    return pull.number in seen and seen[pull.number].author.can_write


def _in_the_way(pull: PullRequest, *, may_write: bool) -> Failure:
    whose = (
        "another workflow" if may_write else f"{pull.author.login or 'a deleted account'}, who may not write"
    )
    return forge_failure(
        f"the branch has the open pull request {pull.url} of {whose}",
        Blame.TRACKER,
        hint="close it, or let one workflow alone work on the issue",
        retryable=False,
    )
