"""One comment per issue and purpose, edited in place, on any tracker that can list and put comments (TR11).

The promise: in the steady state there is at most one visible comment of a kind on an issue, and it heals
itself to one. It is found again by a marker in its first line, but only among comments that the tracker
says are this daemon's own: anybody can paste a marker. The marker holds hex digits only, so nothing can
close the HTML comment.

- key: what the comment is about (kind, scope, issue, and the occasion where each gets its own); the same
  for ever.
- fingerprint: what it was made from; the same fingerprint means that nothing is written.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from symphony.trackers.base import AnswerCapability, Comment, CommentCapability

MAX_BODY_CHARS = 32_000
AGENT_MARK = "<!-- symphony:agent -->"
"""The first line of a comment that an agent writes by a tool of ours, with the identity of the daemon."""
SUPERSEDED = "This note was posted twice; the other one is kept up to date."
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_MARKER = re.compile(
    r"<!-- symphony:(?P<kind>[a-z0-9-]+) v1 key=(?P<key>[0-9a-f]{32}) fp=(?P<fp>[0-9a-f]{32}) -->"
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LIVE = re.compile(r":(?=//)|[@#!<\[{]")
_BREAK = "\u200b"
_CUT = "(cut: the comment was too long)"
_AGENT = "agent"


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
    tracker: CommentCapability,
    issue_id: str,
    *,
    kind: str,
    scope: str,
    fingerprint: str,
    body: str,
    occasion: str = "",
) -> Upserted:
    """Make the comment of this kind say `body`, unless it was already made from `fingerprint`.

    Args:
        tracker: where the comment goes; all writes are its `put_comment`.
        issue_id: the issue to comment on.
        kind: purpose of the comment, lower-case letters, digits and dashes (`skills`).
        scope: what tells two boards or repositories apart that share a tracker; any text.
        fingerprint: any text that changes when the comment is due to change.
        body: Markdown; beyond 32,000 characters, marker included, it is cut at a line.
        occasion: tells one comment of a kind from another on the same issue, where there is to be one each.

    Raises:
        TrackerError: listing or writing failed; trying again later is always safe.
        ValueError: `kind` is not of the form above.
    """
    key = _key(kind, scope, issue_id, occasion)
    wanted = _Wanted(kind=kind, key=key, fingerprint=_digest(fingerprint), body=body)
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
    key = _key(kind, scope, issue_id)
    wanted = _Wanted(kind=kind, key=key, fingerprint=_digest(fingerprint), body=body)
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


def _key(kind: str, scope: str, issue_id: str, occasion: str = "") -> str:
    if not _KIND.fullmatch(kind):
        raise ValueError(f"not a comment kind: {kind!r}")
    return _digest("symphony-comment", kind, scope, issue_id, *([occasion] if occasion else []))


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


def find_comment(
    comments: Sequence[Comment], issue_id: str, *, kind: str, scope: str, occasion: str = ""
) -> int | None:
    """Where in a list the comment of ours stands that `upsert_comment` keeps; `None` if it is missing."""
    key = _key(kind, scope, issue_id, occasion)
    ours = (one.mine and _marker(one).get("key") == key for one in comments)
    return next((place for place, found in enumerate(ours) if found), None)


def is_marked(body: str) -> bool:
    """Whether a text is a comment of a daemon or its agents by how it begins; anybody can write one such."""
    text = body.lstrip()
    return _MARKER.match(text) is not None or text.startswith((AGENT_MARK, SUPERSEDED))


def agent_comment(body: str, *, key: str) -> str:
    """The words of an agent as a comment of the daemon's account, marked as such; `key` is 32 hex digits.

    The account may be a person's own, so the marker is what tells these comments from that person's. It
    stands in the first line, where markers are read: one that the agent wrote means nothing behind it.
    """
    return _Wanted(kind=_AGENT, key=key, fingerprint=_digest(body), body=body).text


def agent_comment_key(comment: Comment) -> str | None:
    """The `key` of a comment that an agent wrote by our tool; `None` for any other comment."""
    marker = _marker(comment)
    return marker["key"] if comment.mine and marker.get("kind") == _AGENT else None


def lines_and_code(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is in a fence: the one that closes it is, the one that opens it is not."""
    fence = ""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        yield line, bool(fence)
        found = _FENCE.match(line)
        if found is None:
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not line[found.end() :].strip():
            fence = ""


def defused(body: str) -> str:
    """The text for a service that knows no fences: what is in them is no mention, picture, link or markup.

    A blank of no width stands behind each sign by which one begins, so that it looks the same.
    """
    return "\n".join(
        _LIVE.sub(rf"\g<0>{_BREAK}", line) if in_code else line for line, in_code in lines_and_code(body)
    )


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


# What was written on an issue since a question was asked there, and whose words are an answer.
#
# The question is a comment of ours, found by its marker; what stands below it was written since. So nothing
# has to be remembered over a restart, and no two clocks are compared. A comment is no answer if it carries
# a mark of ours, or if its author is an agent, a bot or an integration. The identity of the daemon is often
# that of a person as well: a comment of that identity without a mark is the person's, as no agent works on
# an issue that waits for an answer, and what agents of other issues write by our tools is marked
# (`comments.AGENT_MARK`).


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """Comments since the question, oldest first: by people whose words are an answer, and by other people."""

    answers: tuple[Comment, ...] = ()
    others: tuple[Comment, ...] = ()


async def replies_since(
    tracker: AnswerCapability, issue_id: str, *, kind: str, scope: str, occasion: str
) -> Replies | None:
    """The comments below the one that asks, which has this kind, scope and occasion; `None` if it is missing.

    Raises:
        TrackerError: the comments, or what their authors may do, cannot be read.
    """
    comments = await tracker.list_comments(issue_id)
    asked = find_comment(comments, issue_id, kind=kind, scope=scope, occasion=occasion)
    if asked is None:
        return None
    found = [
        comment
        for comment in comments[asked + 1 :]
        if comment.may_answer is not False and comment.body.strip() and not is_marked(comment.body)
    ]
    unknown = {one.author_key for one in found if one.may_answer is None and not one.mine}
    known = await tracker.who_may_answer(issue_id, sorted(unknown)) if unknown else frozenset[str]()
    heard = [one for one in found if one.may_answer or one.mine or one.author_key in known]
    return Replies(
        answers=tuple(heard),
        others=tuple(one for one in found if one not in heard),
    )
