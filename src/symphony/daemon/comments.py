"""The daemon's own comments: one per issue and kind, posted beside the work and never in its way (TR11)."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Final

import anyio
import structlog

from symphony import skills
from symphony.daemon.context import RuntimeContext
from symphony.domain import FaultPoint, Issue, one_line, plain_text
from symphony.journal.model import CommentRecord, SkillsComment
from symphony.scheduler import MAX_ANSWER_CHARS, IssueComment, PostComment
from symphony.skills import Severity, SkillSet
from symphony.trackers.base import AnswerCapability, Comment, CommentCapability, Tracker
from symphony.trackers.comments import Upserted, replies_since, revise_comment, upsert_comment

_TIMEOUT_S = 30.0
_MAX_KNOWN: Final = 1_000
_SKILLS: Final = "skills"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What one comment shall say; with `revise` it is said only where such a comment already stands.

    `occasion` is as in `PostNote`. With `sure` the tracker is asked even if the comment is known to stand.
    """

    issue_id: str
    issue_identifier: str
    kind: str
    body: str
    occasion: str = ""
    revise: bool = False
    sure: bool = False


Remember = Callable[[str, str, str, str], None]
"""Takes an issue's id, a kind, a comment's id and a fingerprint."""


def _forget(*_: str) -> None:
    """Nobody remembers."""


class IssueComments:
    """Keeps the comments up to date; what it knows to stand there costs no request again.

    That knowledge is a saving and nothing else: without it the tracker is asked, and the marker of the
    comment tells. It is dropped with the tracker it is about, and for one note whenever writing it failed.

    Args:
        known: what a predecessor knew to stand there, at the tracker that is served first; the newest first,
            so that the oldest goes when there is too much.
        remember: told of each comment that stands: issue, kind, comment id and fingerprint.
    """

    def __init__(self, known: Sequence[CommentRecord] = (), *, remember: Remember = _forget) -> None:
        self._tracker: Tracker | None = None
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict(
            ((one.issue_id, one.kind), one.fingerprint) for one in reversed(known)
        )
        self._remember = remember
        self._locks: dict[str, anyio.Lock] = {}

    async def post(
        self,
        context: RuntimeContext,
        issue: Issue,
        *,
        kind: str,
        body: str,
        occasion: str = "",
        sure: bool = False,
    ) -> None:
        """Put or edit one note of a kind on an issue; `sure` looks at the tracker whatever is known."""
        note = _Note(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            kind=kind,
            body=body,
            occasion=occasion,
            sure=sure,
        )
        await self._keep(context, note)

    async def say(self, context: RuntimeContext, wanted: SkillsComment) -> bool:
        """Have the comment about skills say this; whether it does, or none is there to be revised."""
        note = _Note(
            issue_id=wanted.issue_id,
            issue_identifier=wanted.issue_identifier,
            kind=_SKILLS,
            body=wanted.body,
            revise=wanted.revise,
        )
        return await self._keep(context, note)

    async def _keep(self, context: RuntimeContext, note: _Note) -> bool:
        """One note of an issue at a time: two that overtake each other would leave the older one standing."""
        lock = self._locks.setdefault(note.issue_id, anyio.Lock())
        try:
            async with lock:
                return await self._put(context, note)
        finally:
            if not lock.locked():  # a waiting one owns it by now
                self._locks.pop(note.issue_id, None)

    async def _put(self, context: RuntimeContext, note: _Note) -> bool:
        if context.tracker is not self._tracker:
            if self._tracker is not None:
                self._known.clear()
            self._tracker = context.tracker
        key, said = (note.issue_id, note.kind), note.occasion + note.body
        digest = sha256(said.encode()).hexdigest()
        if self._known.get(key) == digest and not note.sure:
            return True
        self._known.pop(key, None)
        context.fault(FaultPoint.BEFORE_COMMENT)
        stands = await _write(context, note)
        if stands is None:
            return False
        context.fault(FaultPoint.AFTER_COMMENT)
        self._known[key] = digest
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        if stands:
            self._remember(*key, stands, digest)
        return True


def scope_of(context: RuntimeContext) -> str:
    """What tells the comments of this workflow from those of another one on the same tracker."""
    return context.workflow.path.parent.name


async def _write(context: RuntimeContext, note: _Note) -> str | None:
    """The id of the comment that now stands as it should; empty where none is needed, null if it failed."""
    tracker = context.tracker
    facts = {"issue_id": note.issue_id, "issue_identifier": note.issue_identifier, "kind": note.kind}
    if not isinstance(tracker, CommentCapability):
        if not note.revise:
            _log.info("comment_skipped", reason="the tracker has no comments", **facts)
        return ""
    put: Callable[..., Awaitable[Upserted | None]] = (
        revise_comment if note.revise else partial(upsert_comment, occasion=note.occasion)
    )
    try:
        with anyio.fail_after(_TIMEOUT_S):
            done = await put(
                tracker,
                note.issue_id,
                kind=note.kind,
                scope=scope_of(context),
                fingerprint=note.body,
                body=context.redaction.text(note.body),
            )
    except Exception as error:  # noqa: BLE001 - a comment is never worth a run
        reason = context.redaction.text(str(error)) or type(error).__name__
        _log.warning("comment_failed", reason=reason, **facts)
        return None
    if done is None:
        return ""
    _log.info("comment_posted", outcome=done.outcome.value, comment_id=done.comment_id, **facts)
    return done.comment_id


# Reads what people wrote on an issue since its question was asked there, bounded and fit to be passed on.
#
# The comment that asks may be missing: it could not be written, or somebody removed it. Then it is written
# again, now and then only, and what people write below it counts.


_AT_ONCE: Final = 4
_LOOKED_AT: Final = 8 * MAX_ANSWER_CHARS
_ASK_AGAIN_MS: Final = 600_000
_MAX_ASKED: Final = 1_024
_MAX_OTHERS: Final = 10
_AUTHOR_CHARS: Final = 100
_OTHERS_CHARS: Final = 200


class Answers:
    """Reads the comments of a few issues at a time.

    Args:
        notes: writes the comment that asks.
        now_ms: the monotonic clock.
    """

    def __init__(self, notes: IssueComments, *, now_ms: Callable[[], int]) -> None:
        self._notes = notes
        self._now_ms = now_ms
        self._few = anyio.Semaphore(_AT_ONCE)
        self._asked_ms: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def read(
        self, context: RuntimeContext, note: PostComment
    ) -> tuple[tuple[IssueComment, ...], tuple[IssueComment, ...]]:
        """Answers to the question that `note` asks, and the newest comments of others (first line only).

        Raises:
            TrackerError: the comments cannot be read.
        """
        tracker = context.tracker
        if not isinstance(tracker, AnswerCapability):
            return (), ()
        async with self._few:
            written = await replies_since(
                tracker, note.issue.id, kind=note.kind, scope=scope_of(context), occasion=note.occasion
            )
            if written is None:
                await self._ask_again(context, note)
                return (), ()
        return tuple(_answers(written.answers)), tuple(
            IssueComment(id=one.id, author=_author(one), text=_first_line(one.body))
            for one in written.others[-_MAX_OTHERS:]
        )

    async def _ask_again(self, context: RuntimeContext, note: PostComment) -> None:
        key, now_ms = (note.issue.id, note.occasion), self._now_ms()
        if now_ms - self._asked_ms.get(key, -_ASK_AGAIN_MS) < _ASK_AGAIN_MS:
            return
        self._asked_ms[key] = now_ms
        if len(self._asked_ms) > _MAX_ASKED:
            self._asked_ms.popitem(last=False)
        await self._notes.post(
            context, note.issue, kind=note.kind, body=note.body, occasion=note.occasion, sure=True
        )


def _answers(comments: Iterable[Comment]) -> Iterable[IssueComment]:
    """What fits into what an agent is given, and one character more to tell that there is more."""
    left = MAX_ANSWER_CHARS + 1
    for comment in comments:
        if left <= 0:
            return
        text = plain_text(comment.body[:_LOOKED_AT]).strip()[:left]
        left -= len(text)
        yield IssueComment(id=comment.id, author=_author(comment), text=text)


def _author(comment: Comment) -> str:
    return one_line(comment.author, _AUTHOR_CHARS) or "somebody"


def _first_line(body: str) -> str:
    return one_line(body.strip()[:_OTHERS_CHARS].partition("\n")[0], _OTHERS_CHARS)


# The comment about malformed skills on an issue: it stays true, whatever becomes of a request.
#
# What it shall say is decided with each look at the skills, at the start of a run and at its end, and is
# kept in the journal before the tracker is asked, so that no restart loses it. What the tracker did not
# take is tried again until it stands, less and less often, and never in the way of a run.
#
# A comment that a person has deleted was read: it is not written again while there is nothing new to say.
# Other problems make a new one; that they are over is said nowhere then.


FIRST_RETRY_S: Final = 30.0
LONGEST_RETRY_S: Final = 1_800.0
_MAX_EXPONENT: Final = 6
_MAX_KEPT: Final = 4_096


class SkillComments:
    """Keeps them, one for each issue.

    Args:
        notes: writes them.
        known: what a predecessor knew: what they shall say, and whether they do; the last goes first.
        remember: told of each that is to say something, and again when it does.
        written: waits until what was remembered survives a restart.
        first_retry_s: how long the first wait is after the tracker did not take one; each further one is
            twice as long, up to half an hour.
    """

    def __init__(
        self,
        notes: IssueComments,
        known: Sequence[SkillsComment] = (),
        *,
        remember: Callable[[SkillsComment], None],
        written: Callable[[], Awaitable[None]],
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        self._notes = notes
        self._kept = OrderedDict((one.issue_id, one) for one in reversed(known))
        self._remember = remember
        self._written = written
        self._first_retry_s = first_retry_s
        self._failures: dict[str, int] = {}
        self._due_s: dict[str, float] = {}
        self._failed = anyio.Event()

    async def want(
        self, context: RuntimeContext, issue: Issue, found: SkillSet, *, at_least: Severity | None
    ) -> bool:
        """Decide what the comment on an issue shall say after a look at its skills; whether that is news.

        `at_least` is the mildest severity that is worth a comment; with None none is, and one that stands
        says what has become of what it named. News is in the journal when this returns.
        """
        before = self._kept.get(issue.id)
        tracker = _tracker_of(context)
        if before is not None and before.tracker != tracker:
            before = None
        named = skills.named_problems(found.problems, at_least=at_least)
        body = None if at_least is None else skills.comment_body(found.problems, at_least=at_least)
        if body is None and before is None and at_least is None:
            return False
        revise = body is None
        if body is None:
            named = () if before is None else before.named
            switched_off = context.settings.agent.skills.disabled_skills
            body = skills.resolved_body(named, found, switched_off=switched_off)
        wanted = SkillsComment(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            tracker=tracker,
            body=context.redaction.text(body),
            named=named,
            revise=revise,
        )
        if before is not None and replace(before, said=False, at_wall_ms=0) == wanted:
            return not before.said
        self._keep(wanted)
        self._due_s.pop(issue.id, None)
        self._failures.pop(issue.id, None)
        await self._written()
        return True

    async def say(self, context: RuntimeContext, issue_id: str) -> None:
        """Have the comment on an issue say what it shall, now or later; a failing tracker raises nothing."""
        wanted = self._kept.get(issue_id)
        if wanted is None or wanted.said or wanted.tracker != _tracker_of(context):
            self._due_s.pop(issue_id, None)
            return
        said = await self._notes.say(context, wanted)
        if self._kept.get(issue_id) is not wanted:
            return  # by now it shall say something else, and is on its way
        if said:
            self._failures.pop(issue_id, None)
            self._due_s.pop(issue_id, None)
            self._keep(replace(wanted, said=True))
            return
        failures = self._failures[issue_id] = self._failures.get(issue_id, 0) + 1
        wait_s = min(self._first_retry_s * 2 ** min(failures - 1, _MAX_EXPONENT), LONGEST_RETRY_S)
        self._due_s[issue_id] = anyio.current_time() + wait_s
        self._failed.set()
        facts = {"issue_id": issue_id, "issue_identifier": wanted.issue_identifier}
        _log.info("comment_retry", wait_s=wait_s, **facts)

    @property
    def unsaid(self) -> tuple[SkillsComment, ...]:
        """What comments shall say and do not say yet."""
        return tuple(one for one in self._kept.values() if not one.said)

    async def say_left(self, context: RuntimeContext) -> None:
        """Have all say what they shall that a predecessor left unsaid."""
        for issue_id in [one.issue_id for one in self.unsaid]:
            await self.say(context, issue_id)

    async def run(self, context: Callable[[], RuntimeContext]) -> None:
        """Try again what the tracker did not take, when it is due; ends by cancellation."""
        while True:
            self._failed = anyio.Event()
            with anyio.move_on_at(min(self._due_s.values(), default=float("inf"))):
                await self._failed.wait()
            now_s = anyio.current_time()
            for issue_id in [key for key, due_s in self._due_s.items() if due_s <= now_s]:
                await self.say(context(), issue_id)

    def _keep(self, note: SkillsComment) -> None:
        self._kept[note.issue_id] = note
        self._kept.move_to_end(note.issue_id)
        if len(self._kept) > _MAX_KEPT:
            issue_id, _ = self._kept.popitem(last=False)
            self._due_s.pop(issue_id, None)
            self._failures.pop(issue_id, None)
        self._remember(note)


def _tracker_of(context: RuntimeContext) -> str:
    """What tells this workflow's tracker from another one; holds no secret."""
    settings = context.settings.tracker
    facts = f"{context.workflow.path} {settings.kind} {sorted(settings.provider.items())!r}"
    return sha256(facts.encode(errors="replace")).hexdigest()[:32]
