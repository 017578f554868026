"""A pull request that is good in every way, its ledger, and who writes about it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from symphony.domain import (
    Author,
    Check,
    CheckState,
    PullComment,
    PullRequest,
    PullRequestReview,
    PullState,
    ReviewState,
    ReviewThread,
)
from symphony.scheduler import ForgePolicy, PullLedger

HEAD, OLD = "a" * 40, "b" * 40
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_700_000_000_000
"""Ten minutes after the push."""
POLICY = ForgePolicy(repo="octo/site", reviewers=frozenset({"review-bot"}))
LAND = structs.replace(POLICY, land=True, base="main")

ANN = Author(login="ann", can_write=True)
STRANGER = Author(login="stranger")
BOT = Author(login="review-bot", is_bot=True, can_write=True)
LISTED = Author(login="review-bot")
"""On forges that do not say who is a bot."""
IMPOSTOR = Author(login="review-bot2", is_bot=True, can_write=True)
ME = Author(login="symphony", can_write=True, is_me=True)


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def check(name: str = "test", state: str = "passed", **changes: Any) -> Check:
    made = Check(id=f"id-{name}", name=name, state=CheckState(state), sha=HEAD, required=True)
    return structs.replace(made, **changes)


def comment(body: str = "Please rename it", author: Author = ANN, **changes: Any) -> PullComment:
    made = PullComment(id="c1", author=author, body=body, at=at(NOW - 5 * MINUTE))
    return replace(made, **changes)


def review(state: str = "approved", author: Author = ANN, **changes: Any) -> PullRequestReview:
    made = PullRequestReview(
        id=f"r-{author.login}-{state}",
        author=author,
        state=ReviewState(state),
        sha=HEAD,
        body="",
        at=at(NOW - 5 * MINUTE),
    )
    return replace(made, **changes)


def thread(*comments: PullComment, resolved: bool = False) -> ReviewThread:
    return ReviewThread(
        id="t1", resolved=resolved, comments=comments or (comment(),), path="src/a.py", line=3
    )


def pull(**changes: Any) -> PullRequest:
    """A pull request that is good in every way, approved by a person."""
    made = PullRequest(
        id="P_1",
        number=7,
        url="https://forge.test/octo/site/pull/7",
        title="Fix it",
        body="",
        state=PullState.OPEN,
        draft=False,
        author=ME,
        head_branch="symphony/SYM-1",
        head_repo="octo/site",
        head_sha=HEAD,
        base_branch="main",
        conflicts=False,
        checks=(check(),),
        reviews=(review(),),
        files=("src/a.py",),
        changed_lines=10,
    )
    return replace(made, **changes)


def ledger(**changes: Any) -> PullLedger:
    made = PullLedger(
        number=7,
        branch="symphony/SYM-1",
        pushed_head=HEAD,
        pushed_ms=NOW - 10 * MINUTE,
        head=HEAD,
        head_ms=NOW - 10 * MINUTE,
        changed_ms=NOW - 5 * MINUTE,
    )
    return replace(made, **changes)
