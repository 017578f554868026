"""Watches open pull requests: observes all together, judges each, and acts on the verdict.

    all open ones are observed together -> snapshot, ledger and verdict are recorded -> the verdict is carried
    out

Each verdict is recorded before it is carried out. A verdict that gives feedback or lands a change is recorded
together with its effect.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, assert_never

import structlog

from symphony import scheduler
from symphony.config import ForgeSettings, Workflow
from symphony.daemon.core import Core
from symphony.daemon.forge.cleanup import Cleanup
from symphony.daemon.forge.feedback import make_offer, post_reply, reply_marker, with_reply
from symphony.daemon.forge.opener import digest, forge_name
from symphony.daemon.forge.records import PullRequestRecords, about, bounded, failure_of, retry_wait_ms
from symphony.daemon.forge.writes import ForgeStep, queue_write
from symphony.daemon.jobs import JobRunner
from symphony.domain import Failure, PullRequest, PullState, ServiceError, SymphonyError
from symphony.journal.model import PullRequestRecord
from symphony.services.pulls import Forge, Landing

_SOONEST_MS: Final = 5_000
_log = structlog.get_logger(__name__)


class Monitor:
    """Watches pull requests.

    Args:
        records: the records of pull requests.
        core: state, context, mailbox, clocks and observers.
        jobs: queues writes to the forge.
        cleanup: does the steps after a merge.
    """

    def __init__(
        self,
        records: PullRequestRecords,
        core: Core,
        *,
        jobs: JobRunner,
        cleanup: Cleanup,
    ) -> None:
        self._records = records
        self._core = core
        self._jobs = jobs
        self._cleanup = cleanup
        self._observed_ms = 0
        self._failures = 0
        self.due_ms = 0
        """The time of the next observation, in Unix time."""
        self._base: str | None = None
        self.failure: Failure | None = None
        """Why the last observation failed."""

    # --- observing ---------------------------------------------------------------------------------------

    def observe_soon(self, *, by_person: bool) -> None:
        """Observe all soon. Only a person ends the pause after a failure."""
        if by_person or self._failures == 0:
            self.due_ms = min(self.due_ms, self._observed_ms + _SOONEST_MS)

    def watches_any(self, settings: ForgeSettings) -> bool:
        """Whether there is a pull request to observe."""
        return any(self._is_watched(record, settings) for record in self._records.all().values())

    def _is_watched(self, record: PullRequestRecord, settings: ForgeSettings) -> bool:
        """Whether to observe a pull request.

        A merged one is observed until the merge is recorded, and a closed one while its issue waits for a
        person to reopen it.
        """
        if record.number is None or record.forge != forge_name(settings):
            return False
        if record.code in {"closed", "gone"}:
            return self._may_go_on(record.issue.id)
        return record.is_open or record.code != "merged"

    async def observe(self, settings: ForgeSettings, connect: Callable[[], Forge]) -> None:
        """Observe all pull requests together, and act on their verdicts."""
        self._observed_ms = self._core.wall_ms()
        self.due_ms = self._observed_ms + settings.poll_interval_ms
        numbers = {
            record.number: issue_id
            for issue_id, record in self._records.all().items()
            if record.number is not None and self._is_watched(record, settings)
        }
        seen = dict[int, PullRequest]()

        malformed = dict[int, ServiceError]()

        async def look() -> None:
            try:
                seen.update(await connect().observe(list(numbers)))
            except ServiceError as error:
                if not error.culprits:
                    raise
                malformed.update({number: error for number in numbers if str(number) in error.culprits})
                seen.update(
                    await connect().observe([number for number in numbers if number not in malformed])
                )

        self._base = settings.base
        if self._base is None and settings.land != "never":
            self._base = await self._core.in_force.workspaces.base_branch()
        failure = await failure_of(look())
        if failure is not None:
            self._not_observed(self._core.in_force.redaction.failure(failure))
            return
        self._failures, self.failure = 0, None
        for number, issue_id in numbers.items():
            record, pull = self._records[issue_id], seen.get(number)
            if number in malformed:
                await self._records.look(issue_id, _fail(malformed[number]))
            elif pull is None:
                self._gone(record)
            else:
                await self._records.look(issue_id, self._take(connect(), issue_id, pull, settings))

    def _not_observed(self, failure: Failure) -> None:
        self._failures += 1
        self.due_ms = self._core.wall_ms() + retry_wait_ms(replace(failure, retryable=True), self._failures)
        repeated = self.failure is not None and self.failure.message == failure.message
        self.failure = failure
        level = logging.DEBUG if repeated else logging.WARNING
        _log.log(level, "pull_requests_not_observed", reason=failure.message, hint=failure.hint)

    def _gone(self, record: PullRequestRecord) -> None:
        made = scheduler.PullRequestEnded(merged=False, gone=True)
        code, message = describe(made)
        gone = replace(record, code=code, message=message)
        if gone != record:
            with about(record):
                _log.info("pull_request_judged", number=record.number, code=code, reason=message)
            self._publish(self._records.put(gone))
        self._block(record.issue.id, made)

    def _publish(self, record: PullRequestRecord) -> None:
        """Notify observers of a pull request that waits for something else than before."""
        message = self._core.mask(f"{record.message} ({record.code})")
        self._core.publish(lambda observer: observer.pull_request_judged(record, message))

    # --- judging -----------------------------------------------------------------------------------------

    async def _take(self, forge: Forge, issue_id: str, pull: PullRequest, settings: ForgeSettings) -> None:
        """Record a snapshot and its verdict, then act on it."""
        made = await self._judge(self._records[issue_id], pull, settings)
        record = self._records[issue_id]
        pull, ledger = _observed(record)
        self._block(issue_id, made)
        if scheduler.must_disarm(pull, ledger, made):
            queue_write(self._jobs, record, ForgeStep.DISARM, about=pull.head_sha)
        match made:
            case scheduler.PullRequestEnded(merged=True):
                if record.code != describe(made)[0]:
                    queue_write(self._jobs, record, ForgeStep.END, about=pull.head_sha)
            case scheduler.PullRequestEnded():
                if record.code != describe(made)[0]:
                    await self._ended(issue_id, made)
            case scheduler.MergeHead():
                queue_write(self._jobs, record, ForgeStep.LAND, about=made.head)
            case scheduler.FeedbackTurn():
                await self._tell(forge, issue_id, made)
            case _:
                self._offer_feedback(issue_id)
        if not isinstance(made, scheduler.PullRequestEnded):
            for thread in self.unsent(issue_id):
                about = reply_marker(self._reply(issue_id, thread))
                queue_write(self._jobs, record, ForgeStep.REPLY, about=about, thread=thread)

    async def _judge(
        self, record: PullRequestRecord, pull: PullRequest, settings: ForgeSettings
    ) -> scheduler.Verdict:
        """The verdict on a snapshot; records both, but does not act."""
        now_ms, state = self._core.wall_ms(), self._core.state
        policy = policy_of(settings, self._core.in_force.workflow, base=self._base)
        assert record.number is not None  # noqa: S101 - it is watched
        assert state is not None  # noqa: S101 - the daemon serves
        ledger = record.ledger or scheduler.PullLedger(
            number=record.number, branch=record.branch, pushed_head=record.head, pushed_ms=now_ms
        )
        issue_id = record.issue.id
        result = state.results.get(issue_id)
        delivered = None if result is None else result.delivered
        if (
            pull.state is PullState.OPEN
            and delivered is not None
            and (delivered.pushed or pull.head_sha == delivered.head)
        ):
            record = replace(record, head=delivered.head)  # pushed by a run that just ended, or by a person
        if ledger.pushed_head != record.head:
            ledger = scheduler.ledger_after_push(ledger, record.head, now_ms)
        unpushed = (  # and no one else pushed to the branch, which would reject the daemon's push
            delivered is not None and delivered.to_push and pull.head_sha in {record.head, delivered.head}
        )
        ledger = scheduler.ledger_after_claim(
            ledger,
            working=scheduler.is_worked_on(state, issue_id) or unpushed,
            result=result,
        )
        ledger = scheduler.ledger_after_lift(ledger, None if result is None else result.lifted, now_ms)
        kept = bounded(pull)
        if kept != record.pull or ledger.head is None:
            ledger = scheduler.ledger_after_snapshot(ledger, kept, policy, now_ms)
        made = scheduler.judge_pull(kept, ledger, policy, now_ms)
        if isinstance(made, scheduler.FeedbackTurn) and not self._may_go_on(issue_id):
            made = scheduler.left_to_people(made)
        verifies = self._core.in_force.settings.verify.is_set
        if (
            isinstance(made, scheduler.MergeHead)
            and verifies
            and not scheduler.is_verified(result, kept.head_sha)
        ):
            made = scheduler.Wait(scheduler.WaitCode.NOT_VERIFIED, "its commit did not pass its verification")
        # Feedback and a merge are recorded when they are carried out.
        if not isinstance(made, scheduler.FeedbackTurn | scheduler.MergeHead):
            ledger = scheduler.ledger_after_verdict(ledger, made, now_ms)
        code, message = describe(made)
        issue = record.issue if result is None else result.issue
        text = record.text or (digest(pull.body) if record.ours else None)
        after = replace(record, issue=issue, pull=kept, ledger=ledger, text=text)
        if not isinstance(made, scheduler.PullRequestEnded):  # this is said when it is carried out
            after = replace(after, code=code, message=message)
        self._records.put(after)
        if after.code != record.code:
            _log.info("pull_request_judged", number=record.number, code=code, reason=message)
            self._publish(after)
        await self._core.recorded()
        return made

    def _block(self, issue_id: str, made: scheduler.Verdict) -> None:
        """Tell the scheduler whether the issue waits for a person, unless it knows that already."""
        state, ledger = self._core.state, self._records[issue_id].ledger
        result = None if state is None else state.results.get(issue_id)
        if ledger is not None and result is not None and (judged := scheduler.block_of(made, ledger, result)):
            self._core.post(judged)

    # --- feedback ----------------------------------------------------------------------------------------

    def threads(self, issue_id: str) -> tuple[str, ...]:
        """The threads that the agent of an issue got and may answer."""
        record = self._records.get(issue_id)
        return () if record is None or record.ledger is None else record.ledger.threads

    def take_reply(self, issue_id: str, reply: scheduler.ThreadReply) -> None:
        """Record an answer of the agent in a thread; it is posted once the agent's work is pushed."""
        _, ledger = _observed(self._records[issue_id])
        self._records.change(issue_id, ledger=replace(ledger, replies=with_reply(ledger, reply)))

    def _may_go_on(self, issue_id: str) -> bool:
        """Whether the work on an issue may still go on."""
        state = self._core.state
        result = None if state is None else state.results.get(issue_id)
        return result is not None and result.status in {
            scheduler.ResultStatus.OPEN,
            scheduler.ResultStatus.READY,
        }

    async def _tell(self, forge: Forge, issue_id: str, made: scheduler.FeedbackTurn) -> None:
        """Record feedback as told, then offer it to the scheduler."""
        pull, _ = _observed(self._records[issue_id])
        base = None if made.conflict is None else await self._fetch_base(made.conflict)
        offer = await make_offer(forge, pull, made, self._core.in_force.redaction, base=base)
        _, ledger = _observed(self._records[issue_id])
        told = scheduler.ledger_after_verdict(ledger, made, self._core.wall_ms())
        self._records.change(issue_id, ledger=replace(told, offered=offer))
        await self._core.recorded()
        self._offer_feedback(issue_id)

    async def _fetch_base(self, branch: str) -> str | None:
        """Fetch the latest commit of the base branch, so that every workspace has it; return it."""
        try:
            return await self._core.in_force.workspaces.fetch_base(branch)
        except SymphonyError as error:
            failure = self._core.in_force.redaction.failure(error.failure)
            _log.warning("base_not_fetched", base=branch, reason=failure.message)
            return None

    def _offer_feedback(self, issue_id: str) -> None:
        """Offer feedback that the scheduler has not taken yet; it takes it once, when the issue is free.

        Feedback about an older push is withdrawn as soon as the forge shows the latest one.
        """
        record = self._records[issue_id]
        offer = _observed(record)[1].offered
        if offer is not None and offer.head == record.head and self._may_go_on(issue_id):
            self._core.post(
                scheduler.FeedbackGiven(
                    issue_id=issue_id, key=offer.key, summary=offer.summary, text=offer.text
                )
            )

    def unsent(self, issue_id: str) -> tuple[str, ...]:
        """The threads with an answer to post now; none while a run may still change the answers."""
        record = self._records.get(issue_id)
        ledger = None if record is None else record.ledger
        return () if ledger is None or ledger.working else tuple(each.thread_id for each in ledger.replies)

    def _reply(self, issue_id: str, thread: str | None) -> scheduler.ThreadReply:
        _, ledger = _observed(self._records[issue_id])
        return next(each for each in ledger.replies if each.thread_id == thread)

    async def reply(self, forge: Forge, issue_id: str, thread: str | None) -> None:
        """Post the agent's answer in a thread.

        Posted answers are read again first: an earlier try may have succeeded although its response was lost,
        and not every forge shows that as a change of the pull request.
        """
        pull, reply = _observed(self._records[issue_id])[0], self._reply(issue_id, thread)
        pull_now = (await forge.observe([pull.number], fresh=True)).get(pull.number)
        if pull_now is None:
            return
        await post_reply(forge, pull_now, reply, self._core.in_force.redaction.text)
        _, now = _observed(self._records[issue_id])
        left = tuple(each for each in now.replies if each != reply)
        self._records.change(issue_id, ledger=replace(now, replies=left))
        _log.info("review_answered", number=pull.number, thread=reply.thread_id)

    # --- landing and the end -----------------------------------------------------------------------------

    async def land(self, forge: Forge, issue_id: str, settings: ForgeSettings) -> None:
        """Ask the forge to merge exactly the commit of a fresh snapshot that was judged."""
        record = self._records[issue_id]
        assert record.number is not None  # noqa: S101 - it is watched
        seen = await forge.observe([record.number], fresh=True)
        pull = seen.get(record.number)
        if pull is None:
            return
        made = await self._judge(self._records[record.issue.id], pull, settings)
        if not isinstance(made, scheduler.MergeHead):
            return
        _, ledger = _observed(self._records[record.issue.id])
        self._records.change(
            record.issue.id, ledger=scheduler.ledger_after_verdict(ledger, made, self._core.wall_ms())
        )
        await self._core.recorded()
        wanted = Landing.QUEUE if settings.land == "queue" else Landing.AUTO
        done = await forge.arm(pull, wanted)
        _log.info("pull_request_landing", number=pull.number, commit=made.head, way=done.value)
        if done is Landing.MERGED:
            self.due_ms = 0

    async def disarm(self, forge: Forge, issue_id: str) -> None:
        """Withdraw the request to merge."""
        record = self._records[issue_id]
        pull, _ = _observed(record)
        await forge.disarm(pull)
        _, ledger = _observed(self._records[issue_id])
        self._records.change(issue_id, ledger=replace(ledger, landed_ms=0))
        _log.info("pull_request_disarmed", number=pull.number, reason=record.message)

    async def end(self, forge: Forge, issue_id: str, settings: ForgeSettings, tries: int) -> None:
        """Do the steps after a merge, and record the end."""
        record = self._records[issue_id]
        pull, _ = _observed(record)
        await self._cleanup.merged(forge, record, pull, settings, tries)
        await self._ended(issue_id, scheduler.PullRequestEnded(merged=True))

    async def _ended(self, issue_id: str, made: scheduler.PullRequestEnded) -> None:
        code, message = describe(made)
        record = self._records.change(issue_id, code=code, message=message)
        self._publish(record)
        await self._core.recorded()
        pull, _ = _observed(record)
        _log.info("pull_request_ended", number=pull.number, url=pull.url, state=pull.state.value)


async def _fail(error: ServiceError) -> None:
    raise error


def _observed(record: PullRequestRecord) -> tuple[PullRequest, scheduler.PullLedger]:
    """The snapshot and ledger that `Monitor._judge` recorded."""
    assert record.pull is not None  # noqa: S101 - see above
    assert record.ledger is not None  # noqa: S101 - see above
    return record.pull, record.ledger


def policy_of(settings: ForgeSettings, workflow: Workflow, *, base: str | None) -> scheduler.ForgePolicy:
    """The part of the settings that verdicts depend on; `base` is the branch on which changes land."""
    agent = workflow.settings.agent
    files = (workflow.path, Path(agent.instructions.fallback or workflow.path))
    folders = (agent.skills.path, *agent.skills.extra_paths, agent.instructions.path, agent.library.directory)
    told = {kind for kind in scheduler.FeedbackKind if getattr(settings.feedback, kind.value)}
    return scheduler.ForgePolicy(
        repo=settings.repo or "",
        grace_ms=settings.checks_grace_ms,
        feedback=frozenset(told),
        required_checks=settings.required_checks,
        reviewers=frozenset(map(str.lower, settings.reviewers)),
        land=settings.land != "never",
        base=base,
        protected_names=frozenset(each.name.casefold() for each in files),
        protected_paths=tuple(map(str, folders)),
        land_labels=frozenset(map(str.lower, settings.land_limits.labels)),
        land_max_lines=settings.land_limits.max_changed_lines,
        land_paths=settings.land_limits.paths,
    )


def describe(made: scheduler.Verdict) -> tuple[str, str]:
    """The stable code of a verdict, and its message for people."""
    match made:
        case scheduler.ReadyForPerson(message=message):
            return "settled", message
        case scheduler.Wait(code=code, message=message) | scheduler.NeedsYou(code=code, message=message):
            return code.value, message
        case scheduler.FeedbackTurn(kinds=kinds):
            return "feedback", f"there is news for the agent: {', '.join(kinds)}"
        case scheduler.MergeHead():
            return "landing", "the forge is asked to merge it"
        case scheduler.PullRequestEnded(merged=True):
            return "merged", "it is merged"
        case scheduler.PullRequestEnded(gone=gone):
            closed = "closed", "it was closed without being merged; a person decides about the issue"
            return ("gone", "the forge does not have it any more") if gone else closed
        case _:
            assert_never(made)
