"""Reviews of finished work: drafts, and the kind `review` of the outbox, which carries decisions out.

    shown -> drafted, comment by comment -> decided -> journal -> merge -> comment -> move -> forgotten

Drafts are stored in the journal as they are typed, one per person and issue. A decision is one job. It is
recorded before anything is done, and each of its steps recognises finished work: the merge by the base
branch, the comment by its marker, the move by the state of the issue. So after a kill between two steps, the
next daemon goes on with the second one.
"""

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import anyio
import structlog
from msgspec import Struct
from typing_extensions import override

from symphony.api.interface import API_PREFIX, ConflictError
from symphony.daemon.context import RuntimeContext, tracker_key
from symphony.daemon.core import Core
from symphony.daemon.forge.pull_requests import PullRequests
from symphony.daemon.jobs import Attempt, JobKind, JobRunner
from symphony.daemon.moves import move_now
from symphony.domain import GIVEN_UP_STATES, FaultPoint, Issue, LineComment, normalise_state, one_line
from symphony.journal.jobs import Job
from symphony.journal.model import CodecError, SettingRecord, decode, encode
from symphony.scheduler import (
    ApprovalWay,
    Command,
    Event,
    Refusal,
    ResultStatus,
    ReviewDecision,
    ReviewFacts,
    State,
    WakeAsked,
    approval_way,
    judge_review,
    review_comment,
)
from symphony.trackers.base import CommentCapability, MovingCapability
from symphony.trackers.comments import ON_BEHALF, PERSON, upsert_comment
from symphony.workspaces import Merged, MergeRefusedError, local_repository

KIND: Final = "review"
SETTING: Final = "review:"
"""The prefix of the journal's settings with reviews; the id of the issue follows."""
MAX_COMMENTS: Final = 200
MAX_DRAFT_CHARS: Final = 200_000
_MAX_REVIEWS: Final = 500
_MAX_REVIEWERS: Final = 20
_MAX_VIEWED: Final = 5_000
_WAIT_S: Final = 20.0
_LOOK_S: Final = 10.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The draft of one person's review.

    Attributes:
        seen: the head that was shown last; `before` is the previous one.
        viewed: keys of files that were read, made by `viewed_key`.
        message: the overall text.
        comments: the comments in the order of writing.
        at_wall_ms: when it was last changed.
    """

    seen: str | None = None
    before: str | None = None
    viewed: tuple[str, ...] = ()
    message: str = ""
    comments: tuple[LineComment, ...] = ()
    at_wall_ms: int = 0

    @property
    def says(self) -> bool:
        """Whether it has any text."""
        return bool(self.message.strip() or self.comments)

    @property
    def text(self) -> str:
        """All that is written in it."""
        remarks = (f"{one.place}\n{one.text}" for one in self.comments)
        return "\n\n".join(filter(None, (self.message, *remarks)))


class Decided(Struct, frozen=True, kw_only=True):
    """A decision on a head; `key` distinguishes it from others on the same head."""

    decision: ReviewDecision
    head: str
    reviewer: str
    key: str
    at_wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRecord:
    """The drafts of an issue by person, the current decision, and the one before it."""

    drafts: Mapping[str, Draft] = field(default_factory=dict)
    decided: Decided | None = None
    last: Decided | None = None
    decisions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewJob:
    """The steps of a decision; empty and `None` fields are no steps.

    Attributes:
        issue: its snapshot at the decision, without the description.
        merges: whether to merge its head.
        is_merged: whether the base already has it.
        comment: the text of the comment.
        moves_to: the target state of the issue.
    """

    issue: Issue
    decided: Decided
    branch: str
    merges: bool
    is_merged: bool
    comment: str
    moves_to: str | None


class Given(Struct, frozen=True, kw_only=True):
    """A person's decision; `head` is the commit that the person saw."""

    decision: ReviewDecision
    head: str | None
    message: str = ""
    comments: tuple[LineComment, ...] = ()
    accepts_unverified: bool = False


class Result(Struct, frozen=True, kw_only=True):
    """The result of a decision: the merge, if any, and whether everything is done."""

    way: ApprovalWay | None
    merged: Merged | None
    moved_to: str | None
    done: bool


def _sign_in(reviewer: str) -> str:
    """The sign-in in which the name of a browser was made."""
    return reviewer.partition("-")[0]


class Reviews(JobKind):
    """Keeps reviews and carries decisions out; an observer of the scheduler.

    Args:
        core: state, context, mailbox, clocks and observers.
        jobs: queues the decisions.
        pull_requests: the pull requests of the results.
        recovered: values of the previous daemon.
        record: stores a value for the next daemon; `None` deletes it.
        on_merged: called with the issue whose work was merged, maybe repeatedly.
    """

    at_once: ClassVar[int] = 4
    timeout_s: ClassVar[float] = 300.0

    def __init__(
        self,
        core: Core,
        jobs: JobRunner,
        pull_requests: PullRequests,
        *,
        recovered: Mapping[str, str],
        record: Callable[[str, str | None], None],
        on_merged: Callable[[Issue], None],
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._pull_requests = pull_requests
        self._record = record
        self._on_merged = on_merged
        self._reviews: dict[str, ReviewRecord] = {}
        self._waiting: dict[str, anyio.Event] = {}
        self._ended: dict[str, Merged | MergeRefusedError | None] = {}
        self._merging = anyio.Lock()
        for name, text in recovered.items():
            if name.startswith(SETTING):
                try:
                    self._reviews[name.removeprefix(SETTING)] = decode(text, ReviewRecord)
                except CodecError:
                    self._record(name, None)

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Forget decisions on work that left the review, so that it can be decided on again later."""
        del event, commands
        if after.results is before.results:
            return
        for issue_id, review in list(self._reviews.items()):
            result, earlier = after.results.get(issue_id), before.results.get(issue_id)
            was_ready = earlier is not None and earlier.status is ResultStatus.READY
            is_ready = result is not None and result.status is ResultStatus.READY
            if review.decided is not None and was_ready and not is_ready:
                self._keep(issue_id, replace(review, decided=None, last=review.decided))

    def records(self) -> tuple[SettingRecord, ...]:
        """All reviews, for a journal that is recreated."""
        return tuple(
            SettingRecord(name=f"{SETTING}{issue_id}", value=encode(review))
            for issue_id, review in self._reviews.items()
        )

    # --- drafts ------------------------------------------------------------------------------------------

    def draft(self, issue_id: str, reviewer: str) -> Draft:
        """The draft of a person; empty if there is none."""
        return self._reviews.get(issue_id, ReviewRecord()).drafts.get(reviewer, Draft())

    def others(self, issue_id: str, reviewer: str) -> tuple[Draft, ...]:
        """Drafts with text by other people, the newest first."""
        drafts, left = self._reviews.get(issue_id, ReviewRecord()).drafts, self._left(issue_id, reviewer)
        found = [one for name, one in drafts.items() if name != reviewer and name not in left and one.says]
        return tuple(sorted(found, key=lambda draft: -draft.at_wall_ms))

    def left(self, issue_id: str, reviewer: str) -> Draft | None:
        """The newest draft of a browser that cannot come back, as its sign-in is gone: see `API_PREFIX`.

        Only a person knows whose it is, so a browser goes on with it when that person says so: `take`.
        """
        return max(self._left(issue_id, reviewer).values(), key=lambda one: one.at_wall_ms, default=None)

    def _left(self, issue_id: str, reviewer: str) -> Mapping[str, Draft]:
        return {
            name: draft
            for name, draft in self._reviews.get(issue_id, ReviewRecord()).drafts.items()
            if draft.says and not name.startswith(API_PREFIX) and _sign_in(name) != _sign_in(reviewer)
            if not reviewer.startswith(API_PREFIX)
        }

    def take(self, issue_id: str, reviewer: str) -> None:
        """Go on with what is `left`, and with what was drafted meanwhile. Raises `ConflictError`."""
        taken = self.left(issue_id, reviewer)
        if taken is None:
            return
        own = self.draft(issue_id, reviewer)
        message = "\n\n".join(filter(None, (taken.message, own.message)))
        self.change(
            issue_id, reviewer, replace(own, message=message, comments=(*taken.comments, *own.comments))
        )
        review = self._reviews[issue_id]
        kept = {name: one for name, one in review.drafts.items() if one is not taken}
        self._keep(issue_id, replace(review, drafts=kept))

    def decided(self, issue_id: str, head: str | None) -> Decided | None:
        """The decision on this head that is being carried out, or whose result is not visible yet."""
        decided = self._reviews.get(issue_id, ReviewRecord()).decided
        return decided if decided is not None and decided.head == head else None

    def shown(self, issue_id: str, reviewer: str, head: str) -> Draft:
        """Note that a person was shown this head; return the draft with the previous head."""
        draft = self.draft(issue_id, reviewer)
        if draft.seen == head:
            return draft
        return self.change(issue_id, reviewer, replace(draft, seen=head, before=draft.seen))

    def change(self, issue_id: str, reviewer: str, draft: Draft) -> Draft:
        """Store a draft.

        Raises:
            ConflictError: it is too long; the previous one is kept.
        """
        size = len(draft.message) + sum(len(one.text) + len(one.quote) for one in draft.comments)
        if size > MAX_DRAFT_CHARS or len(draft.comments) > MAX_COMMENTS:
            limits = f"a review has at most {MAX_COMMENTS} comments and {MAX_DRAFT_CHARS:,} characters"
            raise ConflictError("too_long", limits)
        draft = replace(draft, viewed=draft.viewed[-_MAX_VIEWED:], at_wall_ms=self._core.wall_ms())
        review = self._reviews.get(issue_id, ReviewRecord())
        drafts = {**{name: one for name, one in review.drafts.items() if name != reviewer}, reviewer: draft}
        while len(drafts) > _MAX_REVIEWERS:
            oldest = min(drafts, key=lambda name: (drafts[name].says, drafts[name].at_wall_ms))
            del drafts[oldest]
        self._keep(issue_id, replace(review, drafts=drafts))
        return draft

    def _keep(self, issue_id: str, review: ReviewRecord) -> None:
        self._reviews.pop(issue_id, None)
        self._reviews[issue_id] = review
        self._record(f"{SETTING}{issue_id}", encode(review))
        if len(self._reviews) > _MAX_REVIEWS:
            oldest = next(iter(self._reviews))
            del self._reviews[oldest]
            self._record(f"{SETTING}{oldest}", None)

    # --- decisions ---------------------------------------------------------------------------------------

    def way(self, issue_id: str) -> ApprovalWay:
        """What an approval of this issue does."""
        settings = self._core.in_force.settings
        return approval_way(
            watches=settings.forge.watches,
            pull_is_open=self._pull_requests.is_open(issue_id),
            merges=settings.review.merge,
        )

    def state_after(self, decision: ReviewDecision) -> str | None:
        """The target state of a decision; `None` if the tracker cannot move issues."""
        context = self._core.in_force
        if not isinstance(context.tracker, MovingCapability):
            return None
        if decision is ReviewDecision.SEND_BACK:
            return next(iter(context.active_states), None)
        states = context.terminal_states
        good = (state for state in states if normalise_state(state) not in GIVEN_UP_STATES)
        return next(good, next(iter(states), None))

    def facts(self, issue_id: str, given: Given, *, merged: bool) -> ReviewFacts:
        """The present facts for `judge_review`."""
        context, state = self._core.in_force, self._core.state
        result = None if state is None else state.results.get(issue_id)
        delivered = None if result is None else result.delivered
        decided = self.decided(issue_id, None if delivered is None else delivered.head)
        last = self._reviews.get(issue_id, ReviewRecord()).last
        blocked = None if state is None else state.blocked.get(issue_id)
        return ReviewFacts(
            result=result,
            shown=given.head,
            decided=None if decided is None else decided.decision,
            last=last.decision if last is not None and last.head == given.head else None,
            block=None if blocked is None else blocked.failure,
            comment=review_comment(
                given.head or "",
                given.message,
                given.comments,
                sends_back=given.decision is ReviewDecision.SEND_BACK,
            ),
            has_comments=isinstance(context.tracker, CommentCapability),
            verifies=context.settings.verify.is_set,
            accepts_unverified=given.accepts_unverified,
            way=self.way(issue_id),
            hindrance=None if result is None else self._pull_requests.hindrance(result),
            merged=merged,
            command=self.command(issue_id),
        )

    def command(self, issue_id: str) -> str:
        """The command with which a person merges the work, in the repository; empty without work."""
        state, settings = self._core.state, self._core.in_force.settings.workspace
        result = None if state is None else state.results.get(issue_id)
        if result is None or result.delivered is None:
            return ""
        branch, local = result.delivered.branch, local_repository(settings.repo or "")
        if local is None:
            return f"git fetch origin {shlex.quote(branch)} && git merge FETCH_HEAD"
        return f"git -C {shlex.quote(str(local))} merge {shlex.quote(branch)}"

    async def decide(self, issue_id: str, reviewer: str, given: Given) -> Result:
        """Record a decision, and wait a while for its execution.

        Raises:
            ConflictError: it is refused and nothing is done.
            SymphonyError: git failed and nothing is done.
        """
        approves, way = given.decision is ReviewDecision.APPROVE, self.way(issue_id)
        facts = replace(self.facts(issue_id, given, merged=True), hindrance=None)  # these are checked now
        _check(judge_review(facts, given.decision))
        merged: Merged | None = None
        if approves and way in {ApprovalWay.MERGE, ApprovalWay.BY_HAND}:
            merged = await self._check_merge(issue_id, given, way)
        elif approves:
            with anyio.move_on_after(_LOOK_S):  # otherwise by the forge's last answer
                await self._pull_requests.look_now()
            way = self.way(issue_id)
        # Another person may have decided meanwhile.
        facts = self.facts(issue_id, given, merged=merged is not None)
        _check(judge_review(facts, given.decision))
        assert facts.result is not None  # noqa: S101 - judged
        assert facts.result.delivered is not None  # noqa: S101 - judged
        by_forge = approves and way in {ApprovalWay.LAND, ApprovalWay.OPEN}
        review = self._reviews.get(issue_id, ReviewRecord())
        decided = Decided(
            decision=given.decision,
            head=facts.result.delivered.head,
            reviewer=reviewer,
            key=_digest(issue_id, facts.result.delivered.head, str(review.decisions)),
            at_wall_ms=self._core.wall_ms(),
        )
        self._keep(issue_id, replace(review, decided=decided, decisions=review.decisions + 1))
        if by_forge:
            self._pull_requests.approve(facts.result)
        moves_to = None if by_forge else self.state_after(given.decision)
        job = ReviewJob(
            issue=replace(facts.result.issue, description=None),
            decided=decided,
            branch=facts.result.delivered.branch,
            merges=approves and way is ApprovalWay.MERGE,
            is_merged=merged is not None,
            comment=facts.comment,
            moves_to=moves_to,
        )
        ended = await self._carry_out_now(job)
        if isinstance(ended, MergeRefusedError):
            raise self._conflict(ended)
        return Result(
            way=way if approves else None,
            merged=merged or (ended[0] if ended else None),
            moved_to=moves_to,
            done=ended is not None,
        )

    def _conflict(self, error: MergeRefusedError) -> ConflictError:
        failure = self._core.in_force.redaction.failure(error.failure)
        return ConflictError(error.code.value, failure.message, hint=failure.hint)

    async def _check_merge(self, issue_id: str, given: Given, way: ApprovalWay) -> Merged | None:
        result = self.facts(issue_id, given, merged=True).result
        assert result is not None  # noqa: S101 - judged
        assert result.delivered is not None  # noqa: S101 - judged
        try:
            return await self._core.in_force.workspaces.check_merge(
                result.delivered.branch, result.delivered.head
            )
        except MergeRefusedError as error:
            if way is ApprovalWay.BY_HAND:
                return None
            raise self._conflict(error) from error

    async def _carry_out_now(self, job: ReviewJob) -> tuple[Merged | None] | MergeRefusedError | None:
        """The result; `None` if it is not done yet."""
        context, issue = self._core.in_force, job.issue
        payload, key = encode(_masked(job, context)), job.decided.key
        self._waiting[key] = done = anyio.Event()
        self._jobs.queue(
            kind=KIND,
            key=issue.id,
            receiver=tracker_key(context),
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            payload=payload,
        )
        try:
            with anyio.move_on_after(_WAIT_S):
                await done.wait()
                ended = self._ended.pop(key, None)
                return ended if isinstance(ended, MergeRefusedError) else (ended,)
        finally:
            self._waiting.pop(key, None)
            self._ended.pop(key, None)
        return None

    # --- the job -----------------------------------------------------------------------------------------

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether its tracker is still in use."""
        decode(job.payload, ReviewJob)
        return job.receiver == tracker_key(context)

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        """Merge, comment and move, each unless it is done already.

        If a person has to decide about the merge, the decision ends without a comment and a move.

        Raises:
            SymphonyError: a step failed; all steps are tried again.
        """
        context, job = attempt.context, decode(attempt.job.payload, ReviewJob)
        decided, issue = job.decided, job.issue
        fields = {"issue_id": issue.id, "issue_identifier": issue.identifier, "commit": decided.head}
        merged: Merged | None = None
        if job.merges:
            try:
                merged = await self._merge(context, job)
            except MergeRefusedError as error:
                failure = context.redaction.failure(error.failure)
                _log.warning("review_refused", reason=failure.message, hint=failure.hint, **fields)
                self._over(job, error)
                return
        if merged is not None or job.is_merged:
            self._on_merged(issue)
        if job.comment and isinstance(context.tracker, CommentCapability):
            context.fault(FaultPoint.BEFORE_COMMENT)
            written = await upsert_comment(
                context.tracker,
                issue.id,
                kind=PERSON,
                scope=context.workflow.path.parent.name,
                fingerprint=job.comment,
                body=f"{ON_BEHALF}\n\n{job.comment}",
                occasion=decided.key,
            )
            comment_id = written.comment_id
            self._core.publish(
                lambda observer: observer.comment_written(issue.id, KIND, comment_id, decided.key)
            )
            context.fault(FaultPoint.AFTER_COMMENT)
        if job.moves_to is not None:
            seen = normalise_state(issue.state)
            context.fault(FaultPoint.BEFORE_MOVE)
            await move_now(
                context,
                issue,
                job.moves_to,
                reason="review",
                may_move=lambda now: normalise_state(now.state) == seen,  # else a person moved it
            )
            context.fault(FaultPoint.AFTER_MOVE)
            self._core.post(WakeAsked(reason="issue_moved"))
        _log.info("review_carried_out", decision=decided.decision.value, state=job.moves_to, **fields)
        self._over(job, merged)

    async def _merge(self, context: RuntimeContext, job: ReviewJob) -> Merged:
        title = one_line(f"{job.issue.identifier}: {job.issue.title}", 200)
        async with self._merging:
            context.fault(FaultPoint.BEFORE_MERGE)
            merged = await context.workspaces.merge(
                job.branch, job.decided.head, f"Merge {job.branch}\n\n{title}\n"
            )
        if not merged.before:
            _log.info(
                "work_merged",
                issue_id=job.issue.id,
                issue_identifier=job.issue.identifier,
                branch=merged.base,
                commit=merged.commit,
            )
        context.fault(FaultPoint.AFTER_MERGE)
        return merged

    def _over(self, job: ReviewJob, ended: Merged | MergeRefusedError | None) -> None:
        """Forget the draft of a decision that was carried out, and notify the waiting caller."""
        issue_id, decided = job.issue.id, job.decided
        review = self._reviews.get(issue_id, ReviewRecord())
        drafts = dict(review.drafts)
        if not isinstance(ended, MergeRefusedError) and (draft := drafts.get(decided.reviewer)) is not None:
            drafts[decided.reviewer] = replace(draft, message="", comments=())
        stays = job.moves_to is not None and not isinstance(ended, MergeRefusedError)
        kept = review.decided if stays or review.decided != decided else None
        self._keep(issue_id, replace(review, drafts=drafts, decided=kept))
        if (waiting := self._waiting.get(decided.key)) is not None:
            self._ended[decided.key] = ended
            waiting.set()


def viewed_key(path: str, content: str) -> str:
    """Identifies a file with this content; `content` is an object id."""
    return _digest(path, content)[:16]


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise ConflictError(refusal.code, refusal.message, hint=refusal.hint)


def _masked(job: ReviewJob, context: RuntimeContext) -> ReviewJob:
    return replace(job, comment=context.redaction.text(job.comment))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
