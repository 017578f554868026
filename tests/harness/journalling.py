"""Records for tests of the journal, and a journal that is opened off the loop."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from symphony.domain import (
    Author,
    Blame,
    Blocker,
    Category,
    Check,
    CheckState,
    Failure,
    Issue,
    PullComment,
    PullRequest,
    PullRequestReview,
    PullState,
    ReviewState,
    ReviewThread,
    Tokens,
)
from symphony.journal.jobs import Job
from symphony.journal.model import (
    ClaimRecord,
    CommentRecord,
    EventRecord,
    JournalStatus,
    PullRequestRecord,
    Record,
    RunRecord,
    SkillsComment,
    SkillsRecord,
    SkillUse,
)
from symphony.journal.store import Backlog, Journal, open_journal
from symphony.processes.base import Identity
from symphony.scheduler import (
    ClaimKind,
    FeedbackKind,
    NeedsYouCode,
    PullLedger,
    Resume,
    ResumeReason,
    StoredClaim,
    Thread,
    ToldFeedback,
)

__all__ = [
    "NOW",
    "OWNER",
    "claim",
    "comment",
    "event",
    "full_claim",
    "full_pull_request",
    "opened",
    "pull_request",
    "run",
    "skills",
    "skills_note",
    "written",
]


NOW = 1_700_000_000_000
OWNER = Identity(boot_id="boot", pid=42, started=12.5)


async def opened(
    path: Path,
    *,
    now_wall_ms: int = NOW,
    retry_s: float = 3_600,
    on_health: Callable[[JournalStatus], None] = lambda _: None,
    backlog: Backlog | None = None,
) -> Journal:
    """The journal; `run` tries again by itself only after an hour."""
    return await open_journal(
        path, now_wall_ms=lambda: now_wall_ms, retry_s=retry_s, on_health=on_health, backlog=backlog
    )


def written(path: Path, *records: Record, now_wall_ms: int = NOW) -> Path:
    """A journal that holds these, closed again; for tests without a loop."""

    async def write() -> None:
        journal = await opened(path, now_wall_ms=now_wall_ms)
        journal.put(*records)
        await journal.close()

    asyncio.run(write())
    return path


def claim(number: int = 1, *, kind: ClaimKind = ClaimKind.RUNNING, attempt: int | None = None) -> ClaimRecord:
    issue = Issue(
        id=f"id-{number}", identifier=f"SYM-{number}", title="A title", state="Todo", dispatchable=True
    )
    return ClaimRecord(
        claim=StoredClaim(issue=issue, kind=kind, attempt=attempt), owner=OWNER, since_wall_ms=NOW
    )


def with_claim(record: ClaimRecord, **changes: Any) -> ClaimRecord:
    """The record with other facts of the claim."""
    return structs.replace(record, claim=replace(record.claim, **changes))


def full_claim() -> ClaimRecord:
    """A claim with nothing left at its default."""
    moment = datetime(2026, 3, 4, 5, 6, 7, 8, tzinfo=UTC)
    issue = Issue(
        id="id-9",
        identifier="SYM-9",
        title="Grüße \ud800 \U0001f600",
        state="In Progress",
        dispatchable=False,
        not_dispatchable_reason="a draft",
        native_ref={"b": [1, None, {"x": 2.5}], "a": True},
        description="Two\nlines",
        priority=2,
        branch_name="b",
        url="https://tracker.example/9",
        assignee_id="someone",
        labels=("one", "two"),
        blocked_by=(Blocker(id="id-1", identifier="SYM-1", state="Todo"), Blocker()),
        created_at=moment,
        updated_at=moment,
    )
    failure = Failure(
        category=Category.TURN_INPUT_REQUIRED,
        blame=Blame.AGENT,
        message="asks",
        retryable=False,
        hint="answer it",
        where="a:1",
        retry_after_ms=5,
    )
    thread = Thread(thread_id="t", tokens=Tokens(1, 2, 3))
    return ClaimRecord(
        claim=StoredClaim(
            issue=issue,
            kind=ClaimKind.BLOCKED,
            run_id="r-9",
            attempt=3,
            error="why",
            attempts_without_progress=2,
            failures=4,
            non_retryable=True,
            workspace_path="/w/SYM-9",
            resume=Resume(reason=ResumeReason.ANSWERED, thread=thread, question="which?", answer="that"),
            failure=failure,
            question="which?",
            has_baseline=True,
        ),
        owner=OWNER,
        since_wall_ms=NOW,
        due_wall_ms=NOW + 10,
    )


def run(number: int = 1, *, ended_wall_ms: int | None = None, outcome: str | None = None) -> RunRecord:
    return RunRecord(
        run_id=f"r-{number}",
        issue_id=f"id-{number}",
        issue_identifier=f"SYM-{number}",
        started_wall_ms=NOW + number,
        ended_wall_ms=ended_wall_ms,
        outcome=outcome,
        agent=OWNER,
    )


def event(number: int = 1, *, run_id: str | None = "r-1", issue: int = 1, message: str = "") -> EventRecord:
    return EventRecord(
        issue_id=f"id-{issue}",
        issue_identifier=f"SYM-{issue}",
        run_id=run_id,
        at_wall_ms=NOW + number,
        event="said",
        message=message or f"message {number}",
    )


def comment(number: int = 1, *, fingerprint: str = "f") -> CommentRecord:
    return CommentRecord(
        issue_id=f"id-{number}", kind="skills", comment_id="c", fingerprint=fingerprint, at_wall_ms=NOW
    )


def skills_note(number: int = 1, *, body: str = "b") -> SkillsComment:
    return SkillsComment(
        issue_id=f"id-{number}",
        issue_identifier=f"SYM-{number}",
        tracker="t",
        body=body,
        named=(("a/SKILL.md", "missing_name"),),
        at_wall_ms=NOW + number,
    )


def pull_request(issue_number: int = 1, *, code: str = "opening", **changes: Any) -> PullRequestRecord:
    issue = Issue(
        id=f"id-{issue_number}", identifier=f"SYM-{issue_number}", title="t", state="s", dispatchable=True
    )
    record = PullRequestRecord(
        issue=issue, forge="github a/b", branch="b", head="c", code=code, at_wall_ms=NOW
    )
    return replace(record, **changes)


def full_pull_request(number: int = 8) -> PullRequestRecord:
    """One with everything that a snapshot and a ledger may hold."""
    author, at = Author(login="ann", can_write=True), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    said = PullComment(id="1", author=author, body="why?", at=at)
    pull = PullRequest(
        id="x",
        number=7,
        url="https://forge.example/7",
        title="t",
        body="b",
        state=PullState.OPEN,
        draft=False,
        author=author,
        head_branch="b",
        head_repo="a/b",
        head_sha="c",
        base_branch="main",
        conflicts=False,
        rules_met=True,
        checks=(Check(id="1", name="test", state=CheckState.FAILED, sha="c", required=True, log="/1"),),
        reviews=(
            PullRequestReview(id="2", author=author, state=ReviewState.APPROVED, sha="c", body="", at=at),
        ),
        threads=(ReviewThread(id="3", resolved=True, comments=(said,), path="a.py", line=3),),
        comments=(said,),
        labels=("agent",),
        files=("a.py",),
        changed_lines=3,
    )
    told = ToldFeedback(kind=FeedbackKind.CI, head="c", ids=("1",), at_ms=5)
    ledger = PullLedger(
        number=7,
        branch="b",
        pushed_head="c",
        pushed_ms=1,
        head="c",
        told=(told,),
        turns={FeedbackKind.CI: 1},
        needs_you=NeedsYouCode.QUIET,
        landings=("c",),
    )
    failure = Failure(category=Category.FORGE, blame=Blame.TRACKER, message="no answer", status=502)
    return pull_request(number, code="quiet", number=7, ours=True, pull=pull, ledger=ledger, failure=failure)


def skills(number: int = 1, *uses: SkillUse) -> SkillsRecord:
    return SkillsRecord(run_id=f"r-{number}", commit="abc", skills=uses)


def job(number: int = 1, *, attempts: int = 0) -> Job:
    """A job that waits since `NOW` and `number` milliseconds."""
    return Job(
        key=f"comment:id-{number}:delivery",
        kind="comment",
        receiver="t",
        issue_id=f"id-{number}",
        issue_identifier=f"SYM-{number}",
        payload="{}",
        created_wall_ms=NOW + number,
        due_wall_ms=NOW + number,
        attempts=attempts,
    )
