"""Decisions of a person about finished work, and the comment that sends it back. Pure.

A decision names the commit that the person saw. It is refused if the branch is at another commit, so that
nobody decides about unseen work. The checks run in this order: is there work to review, was it decided
already, was this commit shown, and then what the decision itself needs.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from symphony.domain import DeliveredBranch, Failure, fence, one_line, plain_text
from symphony.scheduler.messages import IssueResult, Refusal, ResultStatus
from symphony.scheduler.verdict import WaitCode
from symphony.scheduler.verification import is_verified

MAX_REVIEW_CHARS: Final = 30_000
"""The longest comment that sends work back: no tracker cuts it."""
_SHORT: Final = 12
_SETTLES: Final = frozenset(
    {
        *("opening", "open", WaitCode.LANDING, WaitCode.WORKING, WaitCode.PUSH_NOT_SEEN, WaitCode.INCOMPLETE),
        *(WaitCode.MERGEABILITY_UNKNOWN, WaitCode.CHECKS_NOT_STARTED, WaitCode.CHECKS_PENDING),
    }
)
"""Reasons to wait that end without a person."""


class ReviewDecision(StrEnum):
    """What a person decides."""

    SEND_BACK = "send_back"
    APPROVE = "approve"


class ApprovalWay(StrEnum):
    """What an approval does.

    `MERGE` merges into the base branch of the local repository, `LAND` asks the forge by the rules of
    `forge.land`, `OPEN` opens the pull request. With `BY_HAND` a person merges, and the approval of merged
    work only moves the issue.
    """

    MERGE = "merge"
    LAND = "land"
    OPEN = "open"
    BY_HAND = "by_hand"


class ReviewCode(StrEnum):
    """Why a decision is refused."""

    NOT_READY = "not_ready"
    DECIDED = "decided"
    NOT_SHOWN = "not_shown"
    HEAD_MOVED = "head_moved"
    NOTHING_SAID = "nothing_said"
    TOO_LONG = "too_long"
    NO_COMMENTS = "no_comments"
    UNVERIFIED = "unverified"
    NOT_PUSHED = "not_pushed"
    NOT_LANDED = "not_landed"
    NOT_MERGED = "not_merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFacts:
    """What a decision depends on.

    Attributes:
        result: the result of the issue; `None` if it has none.
        shown: the commit that the person saw; `None` if none was shown.
        decided: another decision on this work that is being carried out; `None` if there is none.
        last: the decision on the shown commit that was carried out before; `None` without one.
        block: why the issue is blocked; `None` if it is not.
        comment: the comment to write; empty if the person wrote nothing.
        has_comments: whether the tracker has comments.
        verifies: whether the settings have verification commands.
        accepts_unverified: the person knows that this commit did not pass its verification.
        way: what an approval does.
        hindrance: why the forge is not asked to merge it, as `hindrance_of` returns it.
        merged: whether the base has the commit already.
        command: the command with which a person merges.
    """

    result: IssueResult | None
    shown: str | None
    decided: ReviewDecision | None = None
    last: ReviewDecision | None = None
    block: Failure | None = None
    comment: str = ""
    has_comments: bool = True
    verifies: bool = False
    accepts_unverified: bool = False
    way: ApprovalWay = ApprovalWay.BY_HAND
    hindrance: str | None = None
    merged: bool = False
    command: str = ""


def approval_way(*, watches: bool, pull_is_open: bool, merges: bool) -> ApprovalWay:
    """What an approval does: a watched forge comes first, then the setting `review.merge`."""
    if watches:
        return ApprovalWay.LAND if pull_is_open else ApprovalWay.OPEN
    return ApprovalWay.MERGE if merges else ApprovalWay.BY_HAND


def hindrance_of(code: str, message: str, *, is_open: bool, lands: bool) -> str | None:
    """Why an approval would have no effect on the pull request; `None` if it would have one.

    Args:
        code: what the pull request waits for.
        message: the same in words.
        is_open: whether it is neither merged nor closed.
        lands: whether `forge.land` allows the daemon to have it merged.
    """
    if is_open and not lands:
        return "forge.land is never: a person merges the pull request at the forge"
    return None if is_open and code in _SETTLES else message


def judge_review(facts: ReviewFacts, decision: ReviewDecision) -> Refusal | None:
    """Why a decision is refused; `None` if it may be carried out."""
    result, delivered = facts.result, None if facts.result is None else facts.result.delivered
    if result is None or delivered is None or result.status is not ResultStatus.READY:
        return _not_ready(facts)
    refusal = _judge_shown(facts, result, delivered) or _judge_comment(facts)
    if refusal is not None:
        return refusal
    return (_judge_approval if decision is ReviewDecision.APPROVE else _judge_send_back)(facts, result)


def _not_ready(facts: ReviewFacts) -> Refusal:
    """What has happened to work that waits for no review, and what a person can do."""
    result, hint = facts.result, "`symphony explain` shows the state of the issue"
    if facts.block is not None:
        message, hint = facts.block.message, facts.block.hint or hint
    elif result is None or result.delivered is None:
        message = "no run of this issue has delivered work"
    elif result.status is ResultStatus.GONE:
        message = f"the tracker does not have the issue any more; {result.delivered.branch} stays"
    elif result.status is ResultStatus.ENDED:
        message = f"the issue is in {one_line(result.issue.state)}, so its work needs no review"
        hint = "move it to an active state to have it worked on again"
    else:
        message = f"the issue is in {one_line(result.issue.state)}, so an agent works on it, or will"
    if facts.last is not None:
        message = f"{_decided(facts.last)}; {message}"
    return Refusal(code=ReviewCode.NOT_READY, message=message, hint=hint)


def _decided(decision: ReviewDecision) -> str:
    return f"this work was {'approved' if decision is ReviewDecision.APPROVE else 'sent back'} already"


def _judge_shown(facts: ReviewFacts, result: IssueResult, delivered: DeliveredBranch) -> Refusal | None:
    if facts.decided is not None:
        return Refusal(
            code=ReviewCode.DECIDED,
            message=_decided(facts.decided),
            hint="`symphony outbox list` shows the steps that are not done yet",
        )
    if facts.shown is None:
        return Refusal(
            code=ReviewCode.NOT_SHOWN,
            message=f"{delivered.branch} at {delivered.head[:_SHORT]} was not shown yet",
            hint=f"look at it first: symphony review {shlex.quote(result.issue.identifier)}",
        )
    if facts.shown != delivered.head:
        return Refusal(
            code=ReviewCode.HEAD_MOVED,
            message=f"{delivered.branch} is at {delivered.head[:_SHORT]} now, and {facts.shown[:_SHORT]}"
            " was shown",
            hint="look at the new changes, and decide again",
        )
    return None


def _judge_comment(facts: ReviewFacts) -> Refusal | None:
    if len(facts.comment) > MAX_REVIEW_CHARS:
        return Refusal(
            code=ReviewCode.TOO_LONG,
            message=f"the comment would have {len(facts.comment):,} characters; {MAX_REVIEW_CHARS:,} fit",
        )
    if facts.comment and not facts.has_comments:
        return Refusal(
            code=ReviewCode.NO_COMMENTS,
            message="the tracker has no comments, so the agent cannot get any",
        )
    return None


def _judge_send_back(facts: ReviewFacts, _: IssueResult) -> Refusal | None:
    if facts.comment:
        return None
    return Refusal(
        code=ReviewCode.NOTHING_SAID,
        message="there is no comment that says what to change",
        hint="comment on a line, or write what to change",
    )


def _judge_approval(facts: ReviewFacts, result: IssueResult) -> Refusal | None:
    assert result.delivered is not None  # noqa: S101 - see `judge_review`
    by_forge = facts.way in {ApprovalWay.LAND, ApprovalWay.OPEN}
    if facts.verifies and not is_verified(result, result.delivered.head):
        if by_forge:
            return Refusal(
                code=ReviewCode.UNVERIFIED,
                message="this commit did not pass its verification, which pull requests need",
                hint="send it back",
            )
        if not facts.accepts_unverified:
            return Refusal(
                code=ReviewCode.UNVERIFIED,
                message="this commit did not pass its verification",
                hint="send it back, or approve it as unverified (--unverified)",
            )
    if by_forge and not result.delivered.pushed:
        return Refusal(
            code=ReviewCode.NOT_PUSHED,
            message=f"{result.delivered.branch} is not pushed to origin, as a pull request needs",
            hint="see workspace.push, and `symphony outbox list`",
        )
    if by_forge and facts.hindrance is not None:
        return Refusal(
            code=ReviewCode.NOT_LANDED, message=facts.hindrance, hint="`symphony pr ISSUE` has more"
        )
    if facts.way is ApprovalWay.BY_HAND and not facts.merged:
        return Refusal(
            code=ReviewCode.NOT_MERGED,
            message="the base branch does not have this commit yet",
            hint=f"merge it, and approve it then: {facts.command}; or set review.merge: true",
        )
    return None


# --- what the agent is told ------------------------------------------------------------------------------


class LineComment(Struct, frozen=True, kw_only=True):
    """A person's comment on a line of a change."""

    file: Annotated[str, Meta(description="As it is shown.")]
    line: Annotated[int, Meta(ge=1)]
    old: Annotated[bool, Meta(description="A line of the file as it was before the change.")]
    quote: Annotated[str, Meta(description="The line; untrusted text.")]
    text: str
    head: Annotated[str, Meta(description="The commit that the line was shown of.")]

    @property
    def place(self) -> str:
        """`FILE:LINE`, for people."""
        return f"{self.file}:{self.line}{' (before the change)' if self.old else ''}"


def review_comment(
    head: str, message: str, comments: Sequence[LineComment], *, sends_back: bool = True
) -> str:
    """The comment on the issue as Markdown; empty if the person wrote nothing. Quoted lines are fenced."""
    said = plain_text(message).strip()
    if not said and not comments:
        return ""
    parts = [f"Review of `{head[:_SHORT]}`{': please change this.' if sends_back else ': approved.'}"]
    if said:
        parts.append(said)
    for comment in comments:
        stale = "" if comment.head == head else f" at {comment.head[:_SHORT]}"
        quoted = plain_text(comment.quote)
        parts.append(fence(f"{one_line(comment.place)}{stale}\n{quoted}"))
        parts.append(plain_text(comment.text).strip())
    return "\n\n".join(parts)
