"""One comment per issue and purpose, edited in place, on any tracker that can list and put comments (TR11).

The promise: in the steady state there is at most one visible comment of a kind on an issue, and it heals
itself to one. It is found again by a marker in its first line, but only among comments that the tracker
says are this daemon's own: anybody can paste a marker. The marker holds hex digits only, so nothing can
close the HTML comment.

- key: who the comment is about (kind, scope, issue); the same for ever.
- fingerprint: what it was made from; the same fingerprint means that nothing is written.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from symphony.trackers.base import Comment, CommentCapability

__all__ = ["MAX_BODY_CHARS", "Outcome", "Upserted", "is_marked", "revise_comment", "upsert_comment"]

MAX_BODY_CHARS = 32_000
SUPERSEDED = "This note was posted twice; the other one is kept up to date."
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_MARKER = re.compile(
    r"<!-- symphony:(?P<kind>[a-z0-9-]+) v1 key=(?P<key>[0-9a-f]{32}) fp=(?P<fp>[0-9a-f]{32}) -->"
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CUT = "(cut: the comment was too long)"


class Outcome(StrEnum):
    """What an upsert did."""

    CREATED = "created"
    EDITED = "edited"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upserted:
    """The comment that now stands, and what was done to get there."""

    comment_id: str
    outcome: Outcome


async def upsert_comment(
    tracker: CommentCapability, issue_id: str, *, kind: str, scope: str, fingerprint: str, body: str
) -> Upserted:
    """Make the comment of this kind say `body`, unless it was already made from `fingerprint`.

    Args:
        tracker: where the comment goes; all writes are its `put_comment`.
        issue_id: the issue to comment on.
        kind: purpose of the comment, lower-case letters, digits and dashes (`skills`).
        scope: what tells two boards or repositories apart that share a tracker; any text.
        fingerprint: any text that changes when the comment is due to change.
        body: Markdown; beyond 32,000 characters, marker included, it is cut at a line.

    Raises:
        TrackerError: listing or writing failed; trying again later is always safe.
        ValueError: `kind` is not of the form above.
    """
    wanted = _wanted(issue_id, kind=kind, scope=scope, fingerprint=fingerprint, body=body)
    ours = _ours(await tracker.list_comments(issue_id), wanted)
    if ours:
        return await _keep_one(tracker, issue_id, ours, wanted)
    comment_id = await tracker.put_comment(issue_id, wanted.text, key=wanted.key, comment_id=None)
    ours = _ours(await tracker.list_comments(issue_id), wanted)
    if len(ours) > 1:
        kept = await _keep_one(tracker, issue_id, ours, wanted)
        comment_id = kept.comment_id
    return Upserted(comment_id=comment_id, outcome=Outcome.CREATED)


async def revise_comment(
    tracker: CommentCapability, issue_id: str, *, kind: str, scope: str, fingerprint: str, body: str
) -> Upserted | None:
    """As `upsert_comment`, but only where such a comment stands: null, and nothing written, where none does.

    Raises:
        TrackerError, ValueError: as `upsert_comment`.
    """
    wanted = _wanted(issue_id, kind=kind, scope=scope, fingerprint=fingerprint, body=body)
    ours = _ours(await tracker.list_comments(issue_id), wanted)
    return await _keep_one(tracker, issue_id, ours, wanted) if ours else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    kind: str
    key: str
    fingerprint: str
    body: str

    @property
    def text(self) -> str:
        marker = f"<!-- symphony:{self.kind} v1 key={self.key} fp={self.fingerprint} -->\n"
        return marker + _bounded(self.body, MAX_BODY_CHARS - len(marker))


def _wanted(issue_id: str, *, kind: str, scope: str, fingerprint: str, body: str) -> _Wanted:
    if not _KIND.fullmatch(kind):
        raise ValueError(f"not a comment kind: {kind!r}")
    key = _digest("symphony-comment", kind, scope, issue_id)
    return _Wanted(kind=kind, key=key, fingerprint=_digest(fingerprint), body=body)


async def _keep_one(
    tracker: CommentCapability, issue_id: str, ours: Sequence[Comment], wanted: _Wanted
) -> Upserted:
    """Bring the oldest of ours up to date and blank the others; without a marker they are not found again."""
    kept, *others = ours
    outcome = Outcome.UNCHANGED
    if _marker(kept)["fp"] != wanted.fingerprint:
        await tracker.put_comment(issue_id, wanted.text, key=wanted.key, comment_id=kept.id)
        outcome = Outcome.EDITED
    for other in others:
        await tracker.put_comment(issue_id, SUPERSEDED, key=wanted.key, comment_id=other.id)
    return Upserted(comment_id=kept.id, outcome=outcome)


def _ours(comments: Sequence[Comment], wanted: _Wanted) -> list[Comment]:
    """Comments written by this daemon that carry this marker, oldest first."""
    return [comment for comment in comments if comment.mine and _is(comment, wanted)]


def _is(comment: Comment, wanted: _Wanted) -> bool:
    marker = _marker(comment)
    return marker.get("kind") == wanted.kind and marker.get("key") == wanted.key


def is_marked(body: str) -> bool:
    """Whether a text begins as the comments of a daemon do; anybody can write one that does."""
    return _MARKER.match(body.lstrip()) is not None


def _marker(comment: Comment) -> dict[str, str]:
    match = _MARKER.match(comment.body.lstrip())
    return {} if match is None else match.groupdict()


def _digest(*parts: str) -> str:
    """128 bits of SHA-256 over the parts, each with its length before it."""
    joined = b"".join(
        len(raw).to_bytes(8, "big") + raw for raw in (part.encode("utf-8", "surrogatepass") for part in parts)
    )
    return hashlib.sha256(joined).hexdigest()[:32]


def _bounded(body: str, limit: int) -> str:
    """The body, cut at a line end where it is too long; a fence that the cut left open is closed."""
    if len(body) <= limit:
        return body
    room = limit - len(_CUT) - 2 - 40
    head = body[: body.rfind("\n", 0, room)] if "\n" in body[:room] else body[:room]
    return "\n".join([head, *_open_fence(head), _CUT])


def _open_fence(text: str) -> list[str]:
    """The line that closes the fence `text` ends inside of, if any, no longer than 38 characters."""
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            fence = match[1]
        elif match[1].startswith(fence) and not line[match.end() :].strip():
            fence = ""
    return [fence] if fence else []
