"""The daemon's comments on issues: written in the background, one per issue and kind.

`CommentWriter` writes them. `AnswerReader` reads people's answers to a question, `PeopleCommentReader` their
other comments. `SkillComments` keeps the comments about malformed skills up to date.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Final

import anyio
import structlog
from cachetools import FIFOCache
from msgspec import Struct
from typing_extensions import override

from symphony import skills, to_thread
from symphony.api.observer import Observer
from symphony.api.task import UnsentComment
from symphony.daemon.context import RuntimeContext, tracker_key
from symphony.daemon.jobs import Attempt, JobKind, JobRunner
from symphony.domain import (
    NO_COMMENTS,
    Blame,
    Category,
    Failure,
    FaultPoint,
    Issue,
    PeopleComments,
    PersonComment,
    one_line,
    plain_text,
)
from symphony.journal.jobs import Job, JobState
from symphony.journal.model import CommentRecord, SkillsComment, ToldComment, decode, encode
from symphony.scheduler import MAX_ANSWER_CHARS, IssueComment, PostComment, State
from symphony.skills import Severity, SkillSet
from symphony.trackers.base import AnswerCapability, Comment, CommentCapability, TrackerError
from symphony.trackers.comments import (
    ON_BEHALF,
    PERSON,
    Upserted,
    comments_of_people,
    find_comment,
    replies_since,
    revise_comment,
    upsert_comment,
)

MAX_KNOWN: Final = 1_000
MAX_SKILL_COMMENTS: Final = 4_096
_BLOCKED: Final = "blocked"
_READS_AT_ONCE: Final = 4
_REPOST_MS: Final = 600_000
_MAX_REPOSTED: Final = 1_024
_MAX_OTHERS: Final = 10
_AUTHOR_CHARS: Final = 100
PEOPLE_COMMENTS_S: Final = 15.0
MAX_PEOPLE_COMMENTS: Final = 200
MAX_COMMENT_CHARS: Final = 16_000
MAX_PEOPLE_CHARS: Final = 64_000
_MOST_TIMES_TOLD: Final = 2
_OTHERS_CHARS: Final = 200
_log = structlog.get_logger(__name__)

OnWritten = Callable[[str, str, str, str], None]
"""Called with the issue's id, the kind, the comment's id and the fingerprint of a written comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentDraft:
    """A comment to write.

    Attributes:
        issue_id: the issue.
        issue_identifier: its name for people.
        kind: its purpose; there is one comment per issue, kind and occasion.
        body: Markdown.
        occasion: distinguishes comments of a kind, as in `PostComment`.
        revise: only change an existing comment.
        verify: ask the tracker, even if the comment is known to exist.
    """

    issue_id: str
    issue_identifier: str
    kind: str
    body: str
    occasion: str = ""
    revise: bool = False
    verify: bool = False

    @property
    def key(self) -> str:
        """The key of its job. A later comment of a kind replaces an unwritten one, but not a person's."""
        of_kind = f"{self.issue_id}:{self.kind}"
        return f"{of_kind}:{self.occasion}" if self.kind == PERSON else of_kind


class CommentWriter(JobKind):
    """Creates and updates comments: the kind `comment` of the outbox.

    Comments that are known to be up to date cost no request. That knowledge is optional: without it the
    tracker is asked, and the comment's marker shows its state. It belongs to one tracker, and a failed write
    drops it.

    Args:
        known: comments of the previous daemon at the first tracker, the newest first.
        on_written: called with each comment that is up to date.
        on_persons: called with the identifier of the issue after a comment of a person was written.
        max_known: how many comments to remember; the oldest is forgotten first.
    """

    def __init__(
        self,
        known: Sequence[CommentRecord] = (),
        *,
        on_written: OnWritten = lambda *_: None,
        on_persons: Callable[[str], None] = lambda _: None,
        max_known: int = MAX_KNOWN,
    ) -> None:
        self._on_written = on_written
        self._on_persons = on_persons
        self._tracker: object = None
        self._digests: FIFOCache[tuple[str, str], str] = FIFOCache(max_known)
        self._digests.update(((one.issue_id, one.kind), one.fingerprint) for one in reversed(known))

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether the comment is still true and its tracker in use: a block may be over by now.

        A person's comment is never dropped.
        """
        kind = decode(job.payload, CommentDraft).kind
        is_over = kind == _BLOCKED and job.issue_id not in state.blocked
        return kind == PERSON or (not is_over and job.receiver == tracker_key(context))

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        """Create or update a comment.

        Raises:
            TrackerError: it could not be written, or it is a person's comment for another tracker.
        """
        context, comment = attempt.context, decode(attempt.job.payload, CommentDraft)
        if attempt.job.receiver != tracker_key(context):
            raise TrackerError(
                Failure(
                    category=Category.INVALID_TRACKER_CONFIG,
                    blame=Blame.CONFIG,
                    message="WORKFLOW.md names another tracker than when the comment was written",
                    retryable=False,
                )
            )
        if context.tracker is not self._tracker:
            if self._tracker is not None:
                self._digests.clear()
            self._tracker = context.tracker
        key = (comment.issue_id, comment.kind)
        digest = sha256((comment.occasion + comment.body).encode()).hexdigest()
        if self._digests.get(key) == digest and not comment.verify:
            return
        self._digests.pop(key, None)
        context.fault(FaultPoint.BEFORE_COMMENT)
        comment_id = await _write(context, comment)
        context.fault(FaultPoint.AFTER_COMMENT)
        self._digests[key] = digest
        if comment_id is not None:
            self._on_written(*key, comment_id, digest)
        if comment.kind == PERSON:
            self._on_persons(comment.issue_identifier)


async def _write(context: RuntimeContext, comment: CommentDraft) -> str | None:
    """The id of the up-to-date comment; `None` if none is needed."""
    tracker = context.tracker
    fields = {
        "issue_id": comment.issue_id,
        "issue_identifier": comment.issue_identifier,
        "kind": comment.kind,
    }
    if not isinstance(tracker, CommentCapability):
        if not comment.revise:
            _log.info("comment_skipped", reason="the tracker has no comments", **fields)
        return None
    write: Callable[..., Awaitable[Upserted | None]] = (
        revise_comment if comment.revise else partial(upsert_comment, occasion=comment.occasion)
    )
    written = await write(
        tracker,
        comment.issue_id,
        kind=comment.kind,
        scope=_scope(context),
        fingerprint=comment.body,
        body=context.redaction.text(comment.body),
    )
    if written is None:
        return None
    outcome = written.outcome.value
    _log.info("comment_posted", outcome=outcome, comment_id=written.comment_id, **fields)
    return written.comment_id


def queue_comment(jobs: JobRunner, context: RuntimeContext, comment: CommentDraft) -> None:
    """Queue a comment for the tracker; it replaces an unwritten one of its kind."""
    masked = replace(comment, body=context.redaction.text(comment.body))
    jobs.queue(
        kind="comment",
        key=comment.key,
        receiver=tracker_key(context),
        issue_id=comment.issue_id,
        issue_identifier=comment.issue_identifier,
        payload=encode(masked),
    )


def queue_persons_comment(
    jobs: JobRunner, context: RuntimeContext, issue_id: str, issue_identifier: str, text: str
) -> None:
    """Queue a comment of a person for the tracker."""
    comment = CommentDraft(
        issue_id=issue_id,
        issue_identifier=issue_identifier,
        kind=PERSON,
        body=f"{ON_BEHALF}\n\n{text}",
        occasion=token_hex(8),
    )
    queue_comment(jobs, context, comment)


def unsent_comments(
    jobs: Iterable[Job], context: RuntimeContext, issue_id: str, posted: Sequence[Comment]
) -> tuple[UnsentComment, ...]:
    """The comments of people on an issue that are not among the `posted` ones yet, the oldest first.

    The tracker has a comment before its job is done.
    """
    drafts = (
        (job, decode(job.payload, CommentDraft))
        for job in jobs
        if job.key.startswith(f"comment:{issue_id}:{PERSON}:")
    )
    return tuple(
        UnsentComment(
            text=draft.body.removeprefix(ON_BEHALF).lstrip("\n"),
            since_wall_ms=job.created_wall_ms,
            given_up=job.state is JobState.GIVEN_UP,
            failure=job.failure,
        )
        for job, draft in drafts
        if find_comment(posted, issue_id, kind=PERSON, scope=_scope(context), occasion=draft.occasion) is None
    )


def _scope(context: RuntimeContext) -> str:
    """Distinguishes the comments of this workflow from those of another one at the same tracker."""
    return context.workflow.path.parent.name


# --- answers ---------------------------------------------------------------------------------------------


class AnswerReader:
    """Reads people's comments on an issue since its question was asked.

    The comment with the question may be missing, because it could not be written or a person deleted it. It
    is then written again, at most every ten minutes, and answers below it count.

    Args:
        jobs: queues the question.
        now_ms: the monotonic clock.
    """

    def __init__(self, jobs: JobRunner, *, now_ms: Callable[[], int]) -> None:
        self._jobs = jobs
        self._now_ms = now_ms
        self._few = anyio.Semaphore(_READS_AT_ONCE)
        self._reposted_ms: FIFOCache[tuple[str, str], int] = FIFOCache(_MAX_REPOSTED)

    async def read(
        self, context: RuntimeContext, question: PostComment
    ) -> tuple[tuple[IssueComment, ...], tuple[IssueComment, ...]]:
        """The answers to a question, and first lines of the newest comments by people who may not answer.

        The answers together are at most one character longer than the scheduler's limit, which shows that
        there is more.

        Raises:
            TrackerError: the comments cannot be read.
        """
        tracker, issue_id = context.tracker, question.issue.id
        if not isinstance(tracker, AnswerCapability):
            return (), ()
        async with self._few:
            written = await replies_since(
                tracker, issue_id, kind=question.kind, scope=_scope(context), occasion=question.occasion
            )
            if written is None:
                self._repost(context, question)
                return (), ()
        answers: list[IssueComment] = []
        room = MAX_ANSWER_CHARS + 1
        for one in written.answers:
            if room <= 0:
                break
            text = plain_text(one.body[: 8 * MAX_ANSWER_CHARS]).strip()[:room]
            room -= len(text)
            answers.append(_remark(one, text))
        others = [
            _remark(one, one_line(one.body.strip()[:_OTHERS_CHARS].partition("\n")[0], _OTHERS_CHARS))
            for one in written.others[-_MAX_OTHERS:]
        ]
        return tuple(answers), tuple(others)

    def _repost(self, context: RuntimeContext, question: PostComment) -> None:
        key, now_ms = (question.issue.id, question.occasion), self._now_ms()
        if self._jobs.is_waiting(f"comment:{question.issue.id}:{question.kind}"):
            return  # the question is being written
        if now_ms - self._reposted_ms.get(key, -_REPOST_MS) < _REPOST_MS:
            return
        self._reposted_ms[key] = now_ms
        queue_comment(self._jobs, context, replace(draft_of(question), verify=True))


def draft_of(command: PostComment) -> CommentDraft:
    """The comment that the scheduler wants."""
    return CommentDraft(
        issue_id=command.issue.id,
        issue_identifier=command.issue.identifier,
        kind=command.kind,
        body=command.body,
        occasion=command.occasion,
    )


def _remark(comment: Comment, text: str) -> IssueComment:
    return IssueComment(
        id=comment.id, author=one_line(comment.author, _AUTHOR_CHARS) or "unknown author", text=text
    )


# --- comments of people ----------------------------------------------------------------------------------


class ReadComments(Struct, frozen=True, kw_only=True):
    """New comments of people on an issue, and the records of them for the journal."""

    shown: PeopleComments = NO_COMMENTS
    told: tuple[ToldComment, ...] = ()


class PeopleCommentReader(Observer):
    """Reads people's comments on an issue for the prompt of a session.

    Each comment is new once, and again after an edit. A digest identifies its text.

    Args:
        recorded: reads the comments that sessions of an issue got before this daemon. Blocking.
    """

    def __init__(self, recorded: Callable[[str], tuple[ToldComment, ...]]) -> None:
        self._recorded = recorded
        self._told: FIFOCache[str, tuple[ToldComment, ...]] = FIFOCache(MAX_KNOWN)

    async def read(self, context: RuntimeContext, issue: Issue, answer: str | None) -> ReadComments:
        """The comments of people; none if they cannot be read, and the next run gets them.

        A comment in `answer` is not new, because the session gets it anyway.
        """
        tracker = context.tracker
        if not isinstance(tracker, AnswerCapability):
            return ReadComments()
        fields = {"issue_id": issue.id, "issue_identifier": issue.identifier}
        try:
            with anyio.fail_after(PEOPLE_COMMENTS_S):
                comments = await comments_of_people(tracker, issue.id)
        except Exception as error:  # noqa: BLE001 - a comment must not cost a run
            reason = context.redaction.text(str(error)) or type(error).__name__
            _log.warning("comments_not_read", reason=reason, **fields)
            return ReadComments()
        told = self._told.get(issue.id) if comments else ()
        if told is None:
            told = await to_thread.run_sync(self._recorded, issue.id)
        return _sorted_out(comments, {one.comment_id: one for one in told}, answer)

    @override
    def comments_told(self, issue_id: str, told: tuple[ToldComment, ...]) -> None:
        self._told[issue_id] = told


def _sorted_out(
    comments: Sequence[Comment], told: Mapping[str, ToldComment], answer: str | None
) -> ReadComments:
    """The comments within the limits, chosen from the newest, and their records."""
    known: list[PersonComment] = []
    new: list[PersonComment] = []
    all_told: list[ToldComment] = []
    left_out, room = 0, MAX_PEOPLE_CHARS
    for comment in reversed(comments):
        digest = sha256(comment.body.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        before = told.get(comment.id, ToldComment(comment_id=comment.id, digest="", times=0))
        is_new = before.digest != digest and before.times < _MOST_TIMES_TOLD
        all_told.append(
            ToldComment(comment_id=comment.id, digest=digest, times=before.times + 1) if is_new else before
        )
        body = plain_text(comment.body[: 2 * MAX_COMMENT_CHARS]).strip()
        if len(body) > MAX_COMMENT_CHARS:
            body = body[:MAX_COMMENT_CHARS] + "\n(cut: the comment is longer)"
        is_new = is_new and not (body and answer and body in answer)
        if room < len(body) or len(known) == MAX_PEOPLE_COMMENTS:
            room = 0  # older comments that would fit must not overtake it
            left_out += is_new
            continue
        room -= len(body)
        author = one_line(comment.author, _AUTHOR_CHARS) or "unknown author"
        shown = PersonComment(author=author, created_at=comment.created_at, body=body)
        known.append(shown)
        new += [shown] if is_new else []
    return ReadComments(
        shown=PeopleComments(known=tuple(known[::-1]), new=tuple(new[::-1]), left_out=left_out),
        told=tuple(all_told[: 2 * MAX_PEOPLE_COMMENTS]),
    )


# --- comments about skills -------------------------------------------------------------------------------


class SkillComments:
    """Keeps the comments about malformed skills up to date, one per issue.

    Each loading of the skills, at the start and at the end of a run, decides the text of the comment. The
    outbox writes it. A comment that a person deleted is not written again until there are other problems.

    Args:
        jobs: queues the comments.
        known: the comments of the previous daemon, the newest first.
        record: called with each new text.
        recorded: waits until everything recorded survives a restart.
        max_kept: how many comments to remember; the oldest is forgotten first.
    """

    def __init__(
        self,
        jobs: JobRunner,
        known: Sequence[SkillsComment] = (),
        *,
        record: Callable[[SkillsComment], None],
        recorded: Callable[[], Awaitable[None]],
        max_kept: int = MAX_SKILL_COMMENTS,
    ) -> None:
        self._jobs = jobs
        self._record = record
        self._recorded = recorded
        self._max_kept = max_kept
        self._kept = OrderedDict((one.issue_id, one) for one in reversed(known))

    async def update(
        self, context: RuntimeContext, issue: Issue, found: SkillSet, *, at_least: Severity | None
    ) -> None:
        """Decide the text of the comment on an issue; on return a new text is in the journal.

        `at_least` is the lowest severity that is worth a comment. With `None` no problem is, and an existing
        comment reports what happened to the problems it names.
        """
        before = self._kept.get(issue.id)
        tracker = tracker_key(context)
        if before is not None and before.tracker != tracker:
            before = None
        named = skills.named_problems(found.problems, at_least=at_least)
        body = None if at_least is None else skills.comment_body(found.problems, at_least=at_least)
        revise = body is None
        if body is None:
            if before is None:
                return  # nothing was reported
            named = before.named
            disabled = context.settings.agent.skills.disabled_skills
            body = skills.resolved_body(named, found, switched_off=disabled)
        wanted = SkillsComment(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            tracker=tracker,
            body=context.redaction.text(body),
            named=named,
            revise=revise,
        )
        if before is not None and replace(before, at_wall_ms=0) == wanted:
            return
        self._kept[issue.id] = wanted
        self._kept.move_to_end(issue.id)
        if len(self._kept) > self._max_kept:
            self._kept.popitem(last=False)
        self._record(wanted)
        comment = CommentDraft(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            kind="skills",
            body=wanted.body,
            revise=revise,
        )
        queue_comment(self._jobs, context, comment)
        await self._recorded()
