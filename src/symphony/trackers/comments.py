"""Comments of the daemon: one per issue and purpose, edited in place, and the replies below a question.

In the steady state an issue has at most one visible comment of a kind; duplicates are removed. A comment is
found again by a marker in its first line, and only among the comments of the daemon's own account, because
anybody can paste a marker. The marker holds hex digits only, so that nothing can close the HTML comment.

- key: identifies the comment by kind, scope and issue, and by occasion if each occasion gets its own comment.
- fingerprint: identifies the input of the text; the same fingerprint means that nothing is written.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from msgspec import Struct

from symphony.trackers.base import AnswerCapability, Comment, CommentCapability

MAX_BODY_CHARS = 32_000
AGENT_MARK = "<!-- symphony:agent -->"
"""The first line of a comment that an agent writes by a raw tool, with the account of the daemon."""
SUPERSEDED = "This note was posted twice. The other one is updated."
PERSON = "person"
"""The kind of a comment that a person writes with Symphony; the account of the daemon posts it."""
ON_BEHALF = "An operator writes, by Symphony:"
"""The first visible line of such a comment in the tracker."""
OPERATOR = "operator"
"""The author of such a comment, for people and agents."""
_CUT = "(cut: the comment was too long)"
_AGENT = "agent"
_OURS = "<!-- symphony:"
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_MARKER = re.compile(
    r"<!-- symphony:(?P<kind>[a-z0-9-]+) v1 key=(?P<key>[0-9a-f]{32}) fp=(?P<fp>[0-9a-f]{32}) -->"
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MARKUP = re.compile(r":(?=//)|[@#!<\[{]")
_ZERO_WIDTH_SPACE = "\u200b"


# --- one comment per purpose -----------------------------------------------------------------------------


class UpsertOutcome(StrEnum):
    """What an upsert did."""

    CREATED = "created"
    EDITED = "edited"
    UNCHANGED = "unchanged"


class Upserted(Struct, frozen=True, kw_only=True):
    """The comment after an upsert."""

    comment_id: str
    outcome: UpsertOutcome


class _Wanted(Struct, frozen=True, kw_only=True):
    """The comment that is wanted; `fingerprint` is a digest."""

    kind: str
    key: str
    fingerprint: str
    body: str

    @property
    def text(self) -> str:
        marker = f"<!-- symphony:{self.kind} v1 key={self.key} fp={self.fingerprint} -->\n"
        return marker + _bounded(self.body, MAX_BODY_CHARS - len(marker))

    async def find(self, tracker: CommentCapability, issue_id: str) -> list[Comment]:
        """The daemon's own comments with this kind and key, oldest first."""
        return [
            comment
            for comment in await tracker.list_comments(issue_id)
            if comment.mine
            and (marker := _marker(comment)).get("kind") == self.kind
            and marker.get("key") == self.key
        ]


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
        tracker: where the comment goes.
        issue_id: the issue to comment on.
        kind: the purpose of the comment: lower-case letters, digits and dashes (`skills`).
        scope: any text that tells apart boards or repositories that share a tracker.
        fingerprint: any text that changes when the comment has to change.
        body: Markdown; cut at a line end beyond 32,000 characters, marker included.
        occasion: distinguishes comments of one kind on one issue, if each occasion gets its own.

    Raises:
        TrackerError: listing or writing failed; it is always safe to try again.
        ValueError: `kind` does not have the form above.
    """
    key = _key(kind, scope, issue_id, occasion)
    wanted = _Wanted(kind=kind, key=key, fingerprint=_digest(fingerprint), body=body)
    if found := await wanted.find(tracker, issue_id):
        return await _keep_one(tracker, issue_id, found, wanted)
    comment_id = await tracker.put_comment(issue_id, wanted.text, key=wanted.key, comment_id=None)
    found = await wanted.find(tracker, issue_id)
    if len(found) > 1:
        comment_id = (await _keep_one(tracker, issue_id, found, wanted)).comment_id
    return Upserted(comment_id=comment_id, outcome=UpsertOutcome.CREATED)


async def revise_comment(
    tracker: CommentCapability, issue_id: str, *, kind: str, scope: str, fingerprint: str, body: str
) -> Upserted | None:
    """As `upsert_comment`, but only if there is such a comment; else writes nothing and returns `None`.

    Raises:
        TrackerError, ValueError: as `upsert_comment`.
    """
    key = _key(kind, scope, issue_id)
    wanted = _Wanted(kind=kind, key=key, fingerprint=_digest(fingerprint), body=body)
    found = await wanted.find(tracker, issue_id)
    return await _keep_one(tracker, issue_id, found, wanted) if found else None


async def _keep_one(
    tracker: CommentCapability, issue_id: str, found: Sequence[Comment], wanted: _Wanted
) -> Upserted:
    """Update the oldest comment and replace the others by a text without a marker."""
    kept, *duplicates = found
    outcome = UpsertOutcome.UNCHANGED
    if _marker(kept)["fp"] != wanted.fingerprint:
        await tracker.put_comment(issue_id, wanted.text, key=wanted.key, comment_id=kept.id)
        outcome = UpsertOutcome.EDITED
    for duplicate in duplicates:
        await tracker.put_comment(issue_id, SUPERSEDED, key=wanted.key, comment_id=duplicate.id)
    return Upserted(comment_id=kept.id, outcome=outcome)


def find_comment(
    comments: Sequence[Comment], issue_id: str, *, kind: str, scope: str, occasion: str = ""
) -> int | None:
    """The index of the comment that `upsert_comment` keeps; `None` if it is missing."""
    key = _key(kind, scope, issue_id, occasion)
    found = (comment.mine and _marker(comment).get("key") == key for comment in comments)
    return next((index for index, matches in enumerate(found) if matches), None)


def _marker(comment: Comment) -> dict[str, str]:
    match = _MARKER.match(comment.body.lstrip())
    return {} if match is None else match.groupdict()


def _key(kind: str, scope: str, issue_id: str, occasion: str = "") -> str:
    if not _KIND.fullmatch(kind):
        raise ValueError(f"not a comment kind: {kind!r}")
    return _digest("symphony-comment", kind, scope, issue_id, *([occasion] if occasion else []))


def _digest(*parts: str) -> str:
    """128 bits of SHA-256 over the parts, each preceded by its length."""
    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in raw)).hexdigest()[:32]


def _bounded(body: str, limit: int) -> str:
    """The body, cut at a line end if it is too long; a fence that the cut leaves open is closed."""
    if len(body) <= limit:
        return body
    room = limit - len(_CUT) - 2 - 40
    head = body[: body.rfind("\n", 0, room)] if "\n" in body[:room] else body[:room]
    *_, (_, fence) = lines_and_fences(f"{head}\n")
    return "\n".join([head, *([fence] if fence else []), _CUT])


# --- comments of agents ----------------------------------------------------------------------------------


def agent_comment(body: str, *, key: str) -> str:
    """An agent's text as a comment of the daemon's account, marked as an agent's; `key` is 32 hex digits.

    The account may be a person's own: the marker tells such comments from that person's. A marker is read in
    the first line only, so one in the agent's text has no effect.
    """
    return _Wanted(kind=_AGENT, key=key, fingerprint=_digest(body), body=body).text


def agent_comment_key(comment: Comment) -> str | None:
    """The `key` of a comment that an agent wrote by `issue_comment`; `None` for any other comment."""
    marker = _marker(comment)
    return marker["key"] if comment.mine and marker.get("kind") == _AGENT else None


def is_marked(body: str) -> bool:
    """Whether a text begins like a comment of a daemon or its agents. Anybody can write such a text."""
    text = body.lstrip()
    return text.startswith((_OURS, SUPERSEDED))


# --- authorship ----------------------------------------------------------------------------------


class WrittenBy(StrEnum):
    """Who wrote a comment."""

    PERSON = "person"
    AGENT = "agent"
    DAEMON = "daemon"
    BOT = "bot"
    """Another program: an app, a bot or an integration."""


def attributed(comment: Comment) -> tuple[WrittenBy, Comment]:
    """Who wrote a comment, and the comment without its marker.

    A comment that a person writes with Symphony counts as a person's, although the account of the daemon
    posts it. An agent cannot forge one: every comment that it writes or edits with the daemon's tools begins
    with the marker of agents. In a comment of another account the marker of persons proves nothing, and
    `may_answer` decides.
    """
    text = comment.body.lstrip()
    first, _, rest = text.partition("\n")
    kind = _marker(comment).get("kind")
    if kind == PERSON and (comment.mine or comment.may_answer is not False):
        body = rest.removeprefix(ON_BEHALF).lstrip("\n")
        author, may_answer = (OPERATOR, True) if comment.mine else (comment.author, comment.may_answer)
        return WrittenBy.PERSON, replace(comment, body=body, author=author, may_answer=may_answer)
    if is_marked(text):
        plain = replace(comment, body=rest if text.startswith(_OURS) else text)
        of_agent = kind == _AGENT or first.startswith(AGENT_MARK)
        return (WrittenBy.AGENT if of_agent else WrittenBy.DAEMON), plain
    if comment.may_answer is not False:
        return WrittenBy.PERSON, comment
    if comment.author == _AGENT:
        return WrittenBy.AGENT, comment
    return (WrittenBy.DAEMON if comment.mine else WrittenBy.BOT), comment


# --- fenced code -----------------------------------------------------------------------------------------


def lines_and_fences(text: str) -> Iterator[tuple[str, str]]:
    """Each line with the fence around it, empty outside. The last line of a fence counts as inside."""
    fence = ""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        yield line, fence
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            fence = match[1]
        elif match[1].startswith(fence) and not line[match.end() :].strip():
            fence = ""


def without_markup(body: str) -> str:
    """The text for a service without fenced code.

    Fenced text contains no mention, picture, link or markup: a zero-width space follows each character that
    could begin one.
    """
    return "\n".join(
        _MARKUP.sub(rf"\g<0>{_ZERO_WIDTH_SPACE}", line) if fence else line
        for line, fence in lines_and_fences(body)
    )


# --- comments of people ----------------------------------------------------------------------------------
# A question is a comment of the daemon, found by its marker; replies are the comments below it. So no state
# has to survive a restart, and no clocks are compared. Comments with a marker and comments by agents, bots or
# integrations are no replies. An unmarked comment of the daemon's own account is a person's: no agent works
# on an issue that waits for an answer, and the daemon's tools mark what other agents write. A comment with
# the marker of a person is a person's too.


class Replies(Struct, frozen=True, kw_only=True):
    """Comments below a question, oldest first: `answers` by people who may answer, `others` by others."""

    answers: tuple[Comment, ...] = ()
    others: tuple[Comment, ...] = ()


async def replies_since(
    tracker: AnswerCapability, issue_id: str, *, kind: str, scope: str, occasion: str
) -> Replies | None:
    """The comments below the question with this kind, scope and occasion; `None` if the question is missing.

    Raises:
        TrackerError: the comments, or the rights of their authors, cannot be read.
    """
    comments = await tracker.list_comments(issue_id)
    asked = find_comment(comments, issue_id, kind=kind, scope=scope, occasion=occasion)
    if asked is None:
        return None
    return await _of_people(tracker, issue_id, comments[asked + 1 :])


async def comments_of_people(tracker: AnswerCapability, issue_id: str) -> tuple[Comment, ...]:
    """The comments on an issue by people who may answer a question, oldest first. Raises `TrackerError`."""
    return (await _of_people(tracker, issue_id, await tracker.list_comments(issue_id))).answers


async def _of_people(tracker: AnswerCapability, issue_id: str, comments: Sequence[Comment]) -> Replies:
    by_people = [
        comment
        for by, comment in map(attributed, comments)
        if by is WrittenBy.PERSON and comment.body.strip()
    ]
    unknown = {comment.author_key for comment in by_people if comment.may_answer is None and not comment.mine}
    known = await tracker.who_may_answer(issue_id, sorted(unknown)) if unknown else frozenset[str]()
    answers = [
        comment for comment in by_people if comment.may_answer or comment.mine or comment.author_key in known
    ]
    return Replies(
        answers=tuple(answers),
        others=tuple(comment for comment in by_people if comment not in answers),
    )
