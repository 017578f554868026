"""The daemon's own comments: one per issue and kind, posted beside the work and never in its way (TR11)."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

import anyio
import structlog

from symphony.daemon.bound import Bound
from symphony.domain.fault_points import FaultPoint
from symphony.domain.issue import Issue
from symphony.journal.model import CommentRecord, SkillsNote
from symphony.trackers.base import CommentCapability, Tracker
from symphony.trackers.comments import Upserted, revise_comment, upsert_comment

__all__ = ["Notes", "Remember", "scope_of"]

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


class Notes:
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
        self, bound: Bound, issue: Issue, *, kind: str, body: str, occasion: str = "", sure: bool = False
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
        await self._keep(bound, note)

    async def say(self, bound: Bound, wanted: SkillsNote) -> bool:
        """Have the comment about skills say this; whether it does, or none is there to be revised."""
        note = _Note(
            issue_id=wanted.issue_id,
            issue_identifier=wanted.issue_identifier,
            kind=_SKILLS,
            body=wanted.body,
            revise=wanted.revise,
        )
        return await self._keep(bound, note)

    async def _keep(self, bound: Bound, note: _Note) -> bool:
        """One note of an issue at a time: two that overtake each other would leave the older one standing."""
        lock = self._locks.setdefault(note.issue_id, anyio.Lock())
        try:
            async with lock:
                return await self._put(bound, note)
        finally:
            if not lock.locked():  # a waiting one owns it by now
                self._locks.pop(note.issue_id, None)

    async def _put(self, bound: Bound, note: _Note) -> bool:
        if bound.tracker is not self._tracker:
            if self._tracker is not None:
                self._known.clear()
            self._tracker = bound.tracker
        key, said = (note.issue_id, note.kind), note.occasion + note.body
        digest = sha256(said.encode()).hexdigest()
        if self._known.get(key) == digest and not note.sure:
            return True
        self._known.pop(key, None)
        bound.fault(FaultPoint.BEFORE_COMMENT)
        stands = await _write(bound, note)
        if stands is None:
            return False
        bound.fault(FaultPoint.AFTER_COMMENT)
        self._known[key] = digest
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        if stands:
            self._remember(*key, stands, digest)
        return True


def scope_of(bound: Bound) -> str:
    """What tells the comments of this workflow from those of another one on the same tracker."""
    return bound.workflow.path.parent.name


async def _write(bound: Bound, note: _Note) -> str | None:
    """The id of the comment that now stands as it should; empty where none is needed, null if it failed."""
    tracker = bound.tracker
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
                scope=scope_of(bound),
                fingerprint=note.body,
                body=bound.redaction.text(note.body),
            )
    except Exception as error:  # noqa: BLE001 - a comment is never worth a run
        reason = bound.redaction.text(str(error)) or type(error).__name__
        _log.warning("comment_failed", reason=reason, **facts)
        return None
    if done is None:
        return ""
    _log.info("comment_posted", outcome=done.outcome.value, comment_id=done.comment_id, **facts)
    return done.comment_id
