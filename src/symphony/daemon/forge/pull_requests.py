"""Pull requests of finished work: opens one for each branch that is ready for review, and watches it.

    work is ready -> recorded as wanted -> find the one that is there, or open one -> its number is recorded
    all open ones are observed together -> snapshot, ledger and verdict are recorded -> something is done

Everything happens beside the scheduler: a forge that is slow or away delays no run. Each step is recorded
before it is made, and made in a way that a repetition changes nothing, so that a daemon that dies anywhere
leaves one pull request. A closed or merged one is never used again, and that of a stranger never at all.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

import anyio
import structlog

from symphony.config import ForgeSettings
from symphony.daemon.context import RuntimeContext
from symphony.daemon.forge.connect import connect_forge
from symphony.daemon.forge.feedback import make_offer, post_reply, with_reply
from symphony.daemon.forge.pull_request_text import find_marker, marker_of, pull_request_text
from symphony.daemon.moves import move_now
from symphony.domain import (
    Blame,
    Category,
    Failure,
    Issue,
    PullComment,
    PullRequest,
    PullState,
    SymphonyError,
    Thread,
    normalise_state,
    one_line,
)
from symphony.forges import Forge, ForgeError, Landing
from symphony.journal.model import PullRequestRecord
from symphony.scheduler import (
    Command,
    Ended,
    Event,
    Feedback,
    FeedbackGiven,
    FeedbackKind,
    ForgePolicy,
    IssueResult,
    Land,
    NeedsYou,
    PullLedger,
    Recovered,
    Reply,
    ResultStatus,
    SettingsChanged,
    Settled,
    State,
    Verdict,
    Wait,
    WakeAsked,
    judge_pull,
    ledger_after_claim,
    ledger_after_push,
    ledger_after_snapshot,
    ledger_after_verdict,
    must_disarm,
)

FINISH_S: Final = 10.0
_FIRST_RETRY_MS: Final = 30_000
_LONGEST_RETRY_MS: Final = 1_800_000
_MAX_DOUBLINGS: Final = 6
_STEP_S: Final = 300.0
_BRANCH_TRIES: Final = 3
"""How often the branch of a merged pull request is tried to be deleted."""
_DROPPED: Final = frozenset({"cancelled", "canceled", "duplicate", "won't do", "wontfix", "rejected"})
"""States of issues whose work nobody wants."""
_SOONEST_MS: Final = 5_000
_MAX_RECORDS: Final = 1_000
_MAX_LIST: Final = 500
_MAX_FILES: Final = 3_000
_MAX_COMMENT_CHARS: Final = 4_000
_log = structlog.get_logger(__name__)


class PullRequests:
    """Opens and watches pull requests; an observer of the scheduler.

    Args:
        context: the context in force.
        state: the present state of the scheduler.
        environment: variables of the daemon.
        recovered: what the previous daemon recorded.
        record: puts a record into the journal.
        recorded: returns when everything that was put is written, or cannot be.
        on_merged: called with the issue whose pull request was merged.
        on_changed: called with a pull request that waits for something else than before.
        post: puts an event into the mailbox of the scheduler.
        wall_ms: the wall clock.
        connect: makes the client of a forge.
    """

    def __init__(
        self,
        *,
        context: Callable[[], RuntimeContext],
        state: Callable[[], State | None],
        environment: Mapping[str, str],
        recovered: Sequence[PullRequestRecord],
        record: Callable[[PullRequestRecord], None],
        recorded: Callable[[], Awaitable[None]],
        on_merged: Callable[[Issue], None],
        on_changed: Callable[[PullRequestRecord], None],
        post: Callable[[Event], None],
        wall_ms: Callable[[], int],
        connect: Callable[[ForgeSettings, Mapping[str, str]], Forge] = connect_forge,
    ) -> None:
        self._context = context
        self._state = state
        self._environment = environment
        self._records = {record.issue.id: record for record in recovered}
        self._record = record
        self._recorded = recorded
        self._on_merged = on_merged
        self._on_changed = on_changed
        self._post = post
        self._wall_ms = wall_ms
        self._connect = connect
        self._forge: Forge | None = None
        self._connected: ForgeSettings | None = None
        self._settings: ForgeSettings | None = None
        self._woken = anyio.Event()
        self._looking = anyio.Lock()
        self._observe_at_ms = 0
        self._observed_ms = 0
        self._observing_failures = 0
        self.failure: Failure | None = None
        """Why pull requests could not be observed the last time."""

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Note the work that is finished with this step."""
        del commands
        if isinstance(event, WakeAsked):
            self.look_soon(by_person=event.by_operator)
        if isinstance(event, Recovered | SettingsChanged):
            self.wake()
        if after.results is before.results:
            return
        settings = self._context().settings.forge
        for issue_id, result in after.results.items():
            earlier = before.results.get(issue_id)
            ended = result.status is ResultStatus.ENDED
            was_open = earlier is not None and earlier.status is ResultStatus.OPEN
            wanted = result.delivered is not None and normalise_state(result.issue.state) not in _DROPPED
            if settings.opens and ended and was_open and wanted:
                self._want(result, forge_name(settings))
        self.wake()

    def wake(self) -> None:
        """Look for work now."""
        self._woken.set()

    def look_soon(self, *, by_person: bool = False) -> None:
        """Observe all soon. A webhook does not end the pause after a failure, a person does."""
        if by_person or self._observing_failures == 0:
            self._observe_at_ms = min(self._observe_at_ms, self._observed_ms + _SOONEST_MS)
        self.wake()

    def shown(self) -> Mapping[str, PullRequestRecord]:
        """All of them by the issue's id, with the reason why the forge does not answer."""
        if self.failure is None:
            return dict(self._records)
        return {
            key: replace(record, failure=record.failure or self.failure) if record.is_open else record
            for key, record in self._records.items()
        }

    def records(self) -> tuple[PullRequestRecord, ...]:
        """All of them, the oldest first; also for a journal that is recreated."""
        return tuple(sorted(self._records.values(), key=lambda each: each.at_wall_ms))

    async def run(self) -> None:
        """Open what is wanted, until cancelled."""
        while True:
            self._woken = anyio.Event()
            async with self._looking:
                wait_s = await self._look()
            with anyio.move_on_after(wait_s):
                await self._woken.wait()

    async def finish(self) -> None:
        """Finish what is under way before the daemon ends; takes ten seconds at most."""
        with anyio.move_on_after(FINISH_S):
            async with self._looking:
                await self._look()

    async def _look(self) -> float | None:
        """Do everything that is due; returns after how many seconds to look again, `None` for never."""
        state, settings = self._state(), self._context().settings.forge
        if state is None or not settings.opens:
            return None
        if settings != self._settings:  # a start, or a correction: nothing waits for a next try
            self._settings, self._observe_at_ms = settings, 0
            self._records = {
                key: replace(record, retry_wall_ms=None) for key, record in self._records.items()
            }
        wanted = [result for result in state.results.values() if self._is_wanted(result, settings)]
        for result in wanted:
            if self._due_ms(result) <= self._wall_ms():
                await self._attempt(result, settings)
        due = [self._due_ms(result) for result in wanted if self._is_wanted(result, settings)]
        if any(self._is_watched(record, settings) for record in self._records.values()):
            if self._observe_at_ms <= self._wall_ms():
                await self._observe(settings)
            due.append(self._observe_at_ms)
        return max(min(due) - self._wall_ms(), 0) / 1000 if due else None

    # --- what is wanted ----------------------------------------------------------------------------------

    def _is_wanted(self, result: IssueResult, settings: ForgeSettings) -> bool:
        """Whether something is to be done about the pull request of a result.

        Work that ended before there was a forge, or a daemon, gets none.
        """
        delivered, record = result.delivered, self._records.get(result.issue.id)
        if delivered is None or not delivered.commits or not delivered.pushed:
            return False
        if record is None or record.forge != forge_name(settings):
            return result.status is ResultStatus.READY
        if record.is_open:
            described = not record.ours or record.described == delivered.head
            return record.head != delivered.head or not record.equipped or not described
        if record.number is None:
            return result.status in {ResultStatus.READY, ResultStatus.ENDED}
        return record.head != delivered.head and result.status is ResultStatus.READY

    def _due_ms(self, result: IssueResult) -> int:
        record = self._records.get(result.issue.id)
        return 0 if record is None else record.retry_wall_ms or 0

    def _want(self, result: IssueResult, forge: str) -> PullRequestRecord:
        """Record that the delivered commit of a result is to have a pull request."""
        delivered = result.delivered
        assert delivered is not None  # noqa: S101 - of `_is_wanted`
        before = self._records.get(result.issue.id)
        fresh = PullRequestRecord(
            issue=result.issue, forge=forge, branch=delivered.branch, head=delivered.head
        )
        if before is None or before.forge != forge:
            return self._put(fresh)
        if before.number is not None and not before.is_open and before.head != delivered.head:
            return self._put(fresh)  # new work after the end of another pull request
        return self._put(replace(before, issue=result.issue, branch=delivered.branch, head=delivered.head))

    def _put(self, record: PullRequestRecord) -> PullRequestRecord:
        """Keep a record, and put it into the journal if it says something new."""
        if record != self._records.pop(record.issue.id, None):
            record = replace(record, at_wall_ms=self._wall_ms())
            self._record(record)
        self._records[record.issue.id] = record
        ended = [key for key, each in self._records.items() if not each.is_open]
        for key in ended[: max(len(self._records) - _MAX_RECORDS, 0)]:
            del self._records[key]
        return record

    def _change(self, issue_id: str, **changes: Any) -> PullRequestRecord:
        """Keep a changed record: of what it is now, as others may have changed it during a request."""
        return self._put(replace(self._records[issue_id], **changes))

    # --- one issue ---------------------------------------------------------------------------------------

    async def _attempt(self, result: IssueResult, settings: ForgeSettings) -> None:
        """Do what is wanted of one issue; a failure is recorded, and tried again later."""
        record = self._want(result, forge_name(settings))
        await self._recorded()
        issue = {"issue_id": result.issue.id, "issue_identifier": result.issue.identifier}
        with structlog.contextvars.bound_contextvars(branch=record.branch, **issue):
            try:
                with anyio.fail_after(_STEP_S):
                    forge = self._connection(settings)
                    if not record.is_open:
                        await self._open(forge, result, settings)
                    record = self._records[result.issue.id]
                    if record.is_open and not record.equipped:
                        await self._equip(forge, record, settings)
                    record = self._records[result.issue.id]
                    if record.is_open and record.ours and record.described != record.head:
                        await self._describe(forge, record, result, settings)
            except TimeoutError:
                self._failed(result.issue.id, _failure(f"no end within {_STEP_S:g} s", Blame.TRACKER))
            except SymphonyError as error:
                self._failed(result.issue.id, self._context().redaction.failure(error.failure))
            except Exception as error:  # noqa: BLE001 - a bug costs one attempt, never the daemon
                _log.exception("pull_request_crashed")
                message = self._context().redaction.text(f"internal error: {error!r}")
                self._failed(result.issue.id, _failure(message, Blame.HOST))
            else:
                self._succeeded(result.issue.id)

    def _connection(self, settings: ForgeSettings) -> Forge:
        """The client for these settings; it is kept because it remembers what it has read."""
        if self._forge is None or self._connected != settings:
            self._forge = self._connect(settings, self._environment)
            self._connected = settings
        return self._forge

    def _succeeded(self, issue_id: str) -> None:
        self._change(issue_id, failure=None, failures=0, retry_wall_ms=None)

    def _failed(self, issue_id: str, failure: Failure) -> None:
        record = self._records[issue_id]
        failures = record.failures + 1
        wait_ms = min(_FIRST_RETRY_MS * 2 ** min(failures - 1, _MAX_DOUBLINGS), _LONGEST_RETRY_MS)
        if not failure.retryable:
            wait_ms = _LONGEST_RETRY_MS
        wait_ms = max(wait_ms, failure.retry_after_ms or 0)
        repeated = record.failure is not None and record.failure.message == failure.message
        level = logging.DEBUG if repeated else logging.WARNING
        _log.log(level, "pull_request_failed", reason=failure.message, hint=failure.hint, retry_in_ms=wait_ms)
        self._put(
            replace(record, failure=failure, failures=failures, retry_wall_ms=self._wall_ms() + wait_ms)
        )

    # --- opening -----------------------------------------------------------------------------------------

    async def _open(self, forge: Forge, result: IssueResult, settings: ForgeSettings) -> None:
        """Take over the pull request that is there, or open one."""
        record = self._records[result.issue.id]
        marker = self._marker(result)
        if await self._adopt(forge, record, marker):
            return
        base = settings.base or await self._context().workspaces.base_branch()
        if base is None:
            raise SymphonyError(
                _failure(
                    "the branch to merge into is not known: the repository has a detached HEAD",
                    Blame.CONFIG,
                    hint="set forge.base",
                    retryable=False,
                )
            )
        title, body = _text(settings, result, base=base, marker=marker)
        mask = self._context().redaction.text
        try:
            number = await forge.open(
                branch=record.branch,
                base=base,
                title=mask(title),
                body=mask(body),
                draft=settings.open == "draft",
            )
        except ForgeError as error:
            # Whether it was opened is not known without an answer. After a refusal one that is there already
            # may be the reason.
            if await self._adopt(forge, record, marker):
                return
            raise error from None
        record = replace(record, number=number, ours=True, described=record.head)
        record = self._put(replace(record, code="open", message="it was opened"))
        await self._recorded()
        self._observe_at_ms = 0
        _log.info("pull_request_opened", number=number, base=base, draft=settings.open == "draft")

    def _marker(self, result: IssueResult) -> str:
        return marker_of(self._context().workflow.path.parent.name, result.issue.id)

    async def _adopt(self, forge: Forge, record: PullRequestRecord, marker: str) -> bool:
        """Take over a pull request of the branch that is open, or that ended at this very commit.

        Raises:
            SymphonyError: an open one stands in the way.
        """
        in_the_way = None
        for pull in await forge.find(record.branch):
            if pull.state is not PullState.OPEN and pull.head_sha != record.head:
                continue  # it is about earlier work
            theirs = find_marker(pull.body)
            may_write = pull.author.is_me or pull.author.can_write or await _may_write(forge, pull)
            if may_write and theirs in {None, marker}:
                await self._take_over(record, pull, ours=theirs is not None)
                return True
            if pull.state is PullState.OPEN and in_the_way is None:
                in_the_way = _in_the_way(pull, may_write=may_write)
        if in_the_way is not None:
            raise SymphonyError(in_the_way)
        return False

    async def _take_over(self, record: PullRequestRecord, pull: PullRequest, *, ours: bool) -> None:
        seen = replace(record, number=pull.number, ours=ours, equipped=not ours)
        self._put(replace(seen, code="open", message="it was found", pull=_bounded(pull)))
        self._observe_at_ms = 0
        await self._recorded()
        _log.info("pull_request_adopted", number=pull.number, url=pull.url, ours=ours)

    async def _equip(self, forge: Forge, record: PullRequestRecord, settings: ForgeSettings) -> None:
        """Read one that was just opened, and ask for its labels and reviewers."""
        assert record.number is not None  # noqa: S101 - it is open
        seen = await forge.observe([record.number], fresh=True)
        pull = seen.get(record.number)
        if pull is None:
            message = f"the forge does not show pull request {record.number}, which it opened"
            raise SymphonyError(_failure(message, Blame.TRACKER))
        issue_id = record.issue.id
        self._change(issue_id, pull=self._records[issue_id].pull or _bounded(pull))
        try:
            if settings.labels and not set(settings.labels) <= set(pull.labels):
                await forge.add_labels(pull, settings.labels)
            if settings.reviewers:
                await forge.request_reviews(pull, settings.reviewers)
        except ForgeError as error:
            if error.failure.status is None or error.failure.retryable:
                raise
            failure = self._context().redaction.failure(error.failure)
            _log.warning(
                "pull_request_not_equipped",
                number=record.number,
                reason=failure.message,
                hint="see forge.labels and forge.reviewers",
            )
        self._change(issue_id, equipped=True)

    async def _describe(
        self, forge: Forge, record: PullRequestRecord, result: IssueResult, settings: ForgeSettings
    ) -> None:
        """Write the text anew for new work, unless a person edited it."""
        assert record.number is not None  # noqa: S101 - it is open
        pull = (await forge.observe([record.number], fresh=True)).get(record.number)
        if pull is not None and record.text is not None and _digest(pull.body) == record.text:
            _, body = _text(settings, result, base=pull.base_branch, marker=self._marker(result))
            await forge.update(pull, title=pull.title, body=self._context().redaction.text(body))
            self._change(record.issue.id, text=None)
        self._change(record.issue.id, described=record.head)

    # --- observing ---------------------------------------------------------------------------------------

    def _is_watched(self, record: PullRequestRecord, settings: ForgeSettings) -> bool:
        """Whether a pull request is to be observed: an ended one until its end is recorded."""
        if record.number is None or record.forge != forge_name(settings):
            return False
        return record.is_open or record.code not in {"merged", "closed"}

    async def _observe(self, settings: ForgeSettings) -> None:
        """Observe all pull requests together, and do what their verdicts say."""
        self._observed_ms = self._wall_ms()
        self._observe_at_ms = self._observed_ms + settings.poll_interval_ms
        numbers = {
            record.number: issue_id
            for issue_id, record in self._records.items()
            if record.number is not None and self._is_watched(record, settings)
        }
        try:
            with anyio.fail_after(_STEP_S):
                forge = self._connection(settings)
                seen = await forge.observe(list(numbers))
        except TimeoutError:
            self._not_observed(_failure(f"no answer within {_STEP_S:g} s", Blame.TRACKER))
            return
        except SymphonyError as error:
            self._not_observed(error.failure)
            return
        except Exception as error:  # noqa: BLE001 - a bug costs one look, never the daemon
            _log.exception("pull_request_crashed")
            self._not_observed(_failure(f"internal error: {error!r}", Blame.HOST))
            return
        self._observing_failures, self.failure = 0, None
        for number, issue_id in numbers.items():
            record = self._records[issue_id]
            issue = {"issue_id": issue_id, "issue_identifier": record.issue.identifier}
            with structlog.contextvars.bound_contextvars(branch=record.branch, **issue):
                await self._take(forge, record, seen.get(number), settings)

    def _not_observed(self, failure: Failure) -> None:
        failure = self._context().redaction.failure(failure)
        repeated = self.failure is not None and self.failure.message == failure.message
        self._observing_failures += 1
        doublings = min(self._observing_failures - 1, _MAX_DOUBLINGS)
        wait_ms = min(_FIRST_RETRY_MS * 2**doublings, _LONGEST_RETRY_MS)
        wait_ms = max(wait_ms, failure.retry_after_ms or 0)
        self._observe_at_ms = self._wall_ms() + wait_ms
        self.failure = failure
        level = logging.DEBUG if repeated else logging.WARNING
        _log.log(level, "pull_requests_not_observed", reason=failure.message, hint=failure.hint)

    async def _take(
        self, forge: Forge, record: PullRequestRecord, pull: PullRequest | None, settings: ForgeSettings
    ) -> None:
        """Record what a snapshot says, then do something about it; a failure is tried at the next look."""
        if pull is None:
            gone = replace(record, code="gone", message="the forge does not have it any more")
            if gone != record:
                self._on_changed(self._put(gone))
            return
        try:
            made = await self._judge(record, pull, settings)
            with anyio.fail_after(_STEP_S):
                await self._act(forge, record.issue.id, made, settings)
            self._succeeded(record.issue.id)
        except TimeoutError:
            self._failed(record.issue.id, _failure(f"no end within {_STEP_S:g} s", Blame.TRACKER))
        except SymphonyError as error:
            self._failed(record.issue.id, self._context().redaction.failure(error.failure))
        except Exception as error:  # noqa: BLE001 - a bug costs one look, never the daemon
            _log.exception("pull_request_crashed")
            message = self._context().redaction.text(f"internal error: {error!r}")
            self._failed(record.issue.id, _failure(message, Blame.HOST))

    async def _judge(self, record: PullRequestRecord, pull: PullRequest, settings: ForgeSettings) -> Verdict:
        """The verdict on a snapshot; both are recorded, but what is done because of it."""
        now_ms, policy, state = self._wall_ms(), policy_of(settings), self._state()
        assert record.number is not None  # noqa: S101 - it is watched
        assert state is not None  # noqa: S101 - the daemon serves
        ledger = record.ledger or PullLedger(
            number=record.number, branch=record.branch, pushed_head=record.head, pushed_ms=now_ms
        )
        if ledger.pushed_head != record.head:
            ledger = ledger_after_push(ledger, record.head, now_ms)
        issue_id = record.issue.id
        result = state.results.get(issue_id)
        delivered = None if result is None else result.delivered
        unpushed = (  # and nobody else pushed to the branch, which would keep ours out
            delivered is not None
            and delivered.push_failure is not None
            and pull.head_sha in {record.head, delivered.head}
        )
        ledger = ledger_after_claim(
            ledger,
            working=state.entry(issue_id) is not None or unpushed,
            taken=None if result is None else result.feedback,
        )
        bounded = _bounded(pull)
        if bounded != record.pull or ledger.head is None:
            ledger = ledger_after_snapshot(ledger, bounded, policy, now_ms)
        made = judge_pull(bounded, ledger, policy, now_ms)
        if not isinstance(made, Feedback | Land):  # these are recorded when they are carried out
            ledger = ledger_after_verdict(ledger, made, now_ms)
        code, message = describe(made)
        issue = record.issue if result is None else result.issue
        text = record.text or (_digest(pull.body) if record.ours else None)
        after = replace(record, issue=issue, pull=bounded, ledger=ledger, text=text)
        if not isinstance(made, Ended):  # this is said when it is carried out
            after = replace(after, code=code, message=message)
        self._put(after)
        if after.code != record.code:
            _log.info("pull_request_judged", number=record.number, code=code, reason=message)
            self._on_changed(after)
        await self._recorded()
        return made

    async def _act(self, forge: Forge, issue_id: str, made: Verdict, settings: ForgeSettings) -> None:
        """Do what a verdict says."""
        record = self._records[issue_id]
        pull, ledger = record.pull, record.ledger
        assert pull is not None  # noqa: S101 - of `_judge`
        assert ledger is not None  # noqa: S101 - as above
        if must_disarm(pull, ledger, made):
            await forge.disarm(pull)
            _log.info("pull_request_disarmed", number=pull.number, reason=record.message)
        match made:
            case Ended(merged=merged):
                await self._end(forge, record, merged=merged, settings=settings)
            case Land():
                await self._land(forge, record, settings)
            case Feedback() if self._takes_feedback(issue_id):
                await self._tell(forge, record, made)
            case _:
                self._offer(issue_id)
                await self._post_replies(forge, issue_id)

    # --- feedback ----------------------------------------------------------------------------------------

    @property
    def tells_reviews(self) -> bool:
        """Whether agents are told of reviews."""
        settings = self._context().settings.forge
        return settings.opens and settings.feedback.review

    def threads(self, issue_id: str) -> tuple[str, ...]:
        """The threads that the agent of an issue was told of and may answer."""
        record = self._records.get(issue_id)
        return () if record is None or record.ledger is None else record.ledger.threads

    def take_reply(self, issue_id: str, reply: Reply) -> None:
        """Record what the agent answers in one of them; it is posted once its work is pushed."""
        record = self._records[issue_id]
        assert record.ledger is not None  # noqa: S101 - of `threads`
        self._put(replace(record, ledger=replace(record.ledger, replies=with_reply(record.ledger, reply))))

    def _takes_feedback(self, issue_id: str) -> bool:
        """Whether the work on an issue may still go on."""
        state = self._state()
        result = None if state is None else state.results.get(issue_id)
        return result is not None and result.status in {ResultStatus.OPEN, ResultStatus.READY}

    async def _tell(self, forge: Forge, record: PullRequestRecord, made: Feedback) -> None:
        """Record feedback as told, then offer it to the scheduler."""
        pull = record.pull
        assert pull is not None  # noqa: S101 - of `_judge`
        offer = await make_offer(forge, pull, made, self._context().redaction)
        record = self._records[record.issue.id]
        assert record.ledger is not None  # noqa: S101 - of `_judge`
        ledger = ledger_after_verdict(record.ledger, made, self._wall_ms())
        self._put(replace(record, ledger=replace(ledger, offered=offer)))
        await self._recorded()
        self._offer(record.issue.id)

    def _offer(self, issue_id: str) -> None:
        """Give the scheduler what it has not taken yet; it takes it once, when the issue is free."""
        ledger = self._records[issue_id].ledger
        offer = None if ledger is None else ledger.offered
        if offer is not None and self._takes_feedback(issue_id):
            self._post(
                FeedbackGiven(issue_id=issue_id, key=offer.key, summary=offer.summary, text=offer.text)
            )

    async def _post_replies(self, forge: Forge, issue_id: str) -> None:
        """Post what the agent answered, unless a run may still change it."""
        record = self._records[issue_id]
        pull, ledger = record.pull, record.ledger
        if pull is None or ledger is None or ledger.working:
            return
        for reply in ledger.replies:
            await post_reply(forge, pull, reply, self._context().redaction.text)
            record = self._records[issue_id]
            assert record.ledger is not None  # noqa: S101 - of `_judge`
            left = tuple(each for each in record.ledger.replies if each != reply)
            self._put(replace(record, ledger=replace(record.ledger, replies=left)))
            _log.info("review_answered", number=pull.number, thread=reply.thread_id)

    # --- the end -----------------------------------------------------------------------------------------

    async def _land(self, forge: Forge, record: PullRequestRecord, settings: ForgeSettings) -> None:
        """Ask the forge to merge exactly the commit that a fresh snapshot was judged at."""
        assert record.number is not None  # noqa: S101 - it is watched
        seen = await forge.observe([record.number], fresh=True)
        pull = seen.get(record.number)
        if pull is None:
            return
        made = await self._judge(self._records[record.issue.id], pull, settings)
        record = self._records[record.issue.id]
        if not isinstance(made, Land) or record.ledger is None:
            return
        ledger = ledger_after_verdict(record.ledger, made, self._wall_ms())
        self._put(replace(record, ledger=ledger))
        await self._recorded()
        wanted = Landing.QUEUE if settings.land == "queue" else Landing.AUTO
        done = await forge.arm(pull, wanted)
        _log.info("pull_request_landing", number=pull.number, commit=made.head, way=done.value)
        if done is Landing.MERGED:
            self._observe_at_ms = 0

    async def _end(
        self, forge: Forge, record: PullRequestRecord, *, merged: bool, settings: ForgeSettings
    ) -> None:
        """Record how it ended. After a merge, move its issue and delete its branch, if that is wanted."""
        pull = record.pull
        assert pull is not None  # noqa: S101 - of `_judge`
        if merged:
            self._on_merged(record.issue)
            await self._recorded()
            if settings.merged_state is not None:
                await move_now(self._context(), record.issue, settings.merged_state)
            if settings.delete_branch:
                await self._delete_branch(forge, record, pull)
        code, message = describe(Ended(merged=merged))
        self._on_changed(self._change(record.issue.id, code=code, message=message))
        await self._recorded()
        _log.info("pull_request_ended", number=pull.number, url=pull.url, state=pull.state.value)

    async def _delete_branch(self, forge: Forge, record: PullRequestRecord, pull: PullRequest) -> None:
        """Delete the branch, unless somebody else may need it or has a part in it."""
        removed, reason = False, await self._reason_to_keep(forge, record, pull)
        if reason is None:
            try:
                removal = await self._context().workspaces.delete_branch(record.branch, record.head)
                removed, reason = removal.removed, removal.kept_reason
            except SymphonyError as error:
                if record.failures < _BRANCH_TRIES - 1:
                    raise
                reason = self._context().redaction.failure(error.failure).message
        if removed:
            _log.info("branch_deleted", number=pull.number, commit=record.head)
        if reason is not None:
            _log.info("branch_kept", number=pull.number, reason=reason)

    async def _reason_to_keep(self, forge: Forge, record: PullRequestRecord, pull: PullRequest) -> str | None:
        state = self._state()
        if state is not None and state.entry(record.issue.id) is not None:
            return "its issue is worked on again"
        if pull.head_sha != record.head:
            return "the merged commit is not the one that the daemon pushed"
        others = [each.number for each in await forge.find(record.branch) if each.state is PullState.OPEN]
        others += await forge.find_onto(record.branch)
        return f"pull request {others[0]} needs it" if others else None


def _text(settings: ForgeSettings, result: IssueResult, *, base: str, marker: str) -> tuple[str, str]:
    """Title and text. Raises `SymphonyError` if a template cannot be rendered."""
    try:
        return pull_request_text(settings, result, base=base, marker=marker)
    except ValueError as error:
        failure = _failure(str(error), Blame.CONFIG, hint="correct WORKFLOW.md", retryable=False)
        raise SymphonyError(failure) from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def forge_name(settings: ForgeSettings) -> str:
    """Kind and repository, as they are recorded."""
    return f"{settings.kind} {settings.repo}"


async def _may_write(forge: Forge, pull: PullRequest) -> bool:
    """Whether the author may write to the repository, which `find` does not tell on every forge."""
    seen = await forge.observe([pull.number], fresh=True)
    return pull.number in seen and seen[pull.number].author.can_write


def _in_the_way(pull: PullRequest, *, may_write: bool) -> Failure:
    whose = (
        "another workflow" if may_write else f"{pull.author.login or 'a deleted account'}, who may not write"
    )
    return _failure(
        f"the branch has the open pull request {pull.url} of {whose}",
        Blame.TRACKER,
        hint="close it, or let one workflow alone work on the issue",
        retryable=False,
    )


def _bounded(pull: PullRequest) -> PullRequest:
    """The snapshot as it is recorded: no text of others makes it large, and what is cut is not complete."""

    def cut(comment: PullComment) -> PullComment:
        return replace(comment, body=comment.body[:_MAX_COMMENT_CHARS])

    def cut_thread(thread: Thread) -> Thread:
        return replace(thread, comments=tuple(cut(each) for each in thread.comments[-_MAX_LIST:]))

    lengths = [len(pull.checks), len(pull.reviews), len(pull.threads), len(pull.comments)]
    lengths += [len(thread.comments) for thread in pull.threads]
    return replace(
        pull,
        title=one_line(pull.title),
        body=pull.body[:_MAX_COMMENT_CHARS],
        checks=pull.checks[:_MAX_LIST],
        reviews=tuple(
            replace(each, body=each.body[:_MAX_COMMENT_CHARS]) for each in pull.reviews[-_MAX_LIST:]
        ),
        threads=tuple(cut_thread(each) for each in pull.threads[-_MAX_LIST:]),
        comments=tuple(cut(each) for each in pull.comments[-_MAX_LIST:]),
        files=pull.files[:_MAX_FILES],
        complete=pull.complete and max(lengths) <= _MAX_LIST and len(pull.files) <= _MAX_FILES,
    )


def policy_of(settings: ForgeSettings) -> ForgePolicy:
    """The part of the settings that verdicts depend on."""
    told = {kind for kind in FeedbackKind if getattr(settings.feedback, kind.value)}
    return ForgePolicy(
        repo=settings.repo or "",
        grace_ms=settings.checks_grace_ms,
        feedback=frozenset(told),
        required_checks=settings.required_checks,
        reviewers=frozenset(login.lower() for login in settings.reviewers),
        own_labels=frozenset(settings.labels),
        land=settings.land != "never",
        land_labels=frozenset(settings.land_limits.labels),
        land_max_lines=settings.land_limits.max_changed_lines,
        land_paths=settings.land_limits.paths,
    )


def describe(made: Verdict) -> tuple[str, str]:
    """The stable code of a verdict, and what it says to people."""
    match made:
        case Settled(message=message):
            return "settled", message
        case Wait(code=code, message=message) | NeedsYou(code=code, message=message):
            return code.value, message
        case Feedback(kinds=kinds):
            return "feedback", f"there is news for the agent: {', '.join(kinds)}"
        case Land():
            return "landing", "the forge is asked to merge it"
        case Ended(merged=True):
            return "merged", "it is merged"
        case Ended():
            return "closed", "it was closed without being merged; a person decides about the issue"
        case _:
            assert_never(made)


def _failure(message: str, blame: Blame, *, hint: str | None = None, retryable: bool = True) -> Failure:
    return Failure(category=Category.FORGE, blame=blame, message=message, hint=hint, retryable=retryable)
