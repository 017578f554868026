"""A daemon takes over the claims of the previous one, and trusts nothing that cannot be."""

from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue
from symphony.domain import Category, Spent, Tokens
from symphony.scheduler import (
    ClaimKind,
    CleanWorkspace,
    DrainAsked,
    PostComment,
    Recovered,
    Resume,
    ResumeReason,
    StartRun,
    Step,
    StoredClaim,
    Thread,
    Totals,
    WakeAsked,
    WorkspaceRef,
    blocks,
)

_RESUME = Resume(
    reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t-1", tokens=Tokens(total_tokens=9))
)
_ASKED = make_failure("which colour?", category=Category.TURN_INPUT_REQUIRED)


def _claim(kind: ClaimKind, issue_id: str = "1", **fields: Any) -> StoredClaim:
    return StoredClaim(issue=make_issue(issue_id), kind=kind, **fields)


def _told(*claims: StoredClaim, board: bool = True, **books: Any) -> Story:
    story = Story(*(claim.issue for claim in claims if board), poll_interval_ms=10_000_000)
    story.now = 5_000
    story.tell(Recovered(claims=claims, **books))
    return story


@pytest.mark.parametrize(("attempt", "expected"), [(None, 1), (3, 3)])
def test_a_running_claim_continues_at_once_as_the_same_attempt(attempt: int | None, expected: int) -> None:
    story = _told(
        _claim(ClaimKind.RUNNING, attempt=attempt, resume=_RESUME, attempts_without_progress=2, due_ms=99_999)
    )
    story.advance(0)
    (start,) = story.said(StartRun)
    assert (start.attempt, start.resume) == (expected, _RESUME)
    run = story.state.running["1"]
    assert (run.resume, run.attempts_without_progress) == (_RESUME, 2)


def test_a_retry_keeps_its_number_time_and_counts() -> None:
    story = _told(
        _claim(
            ClaimKind.RETRYING,
            attempt=4,
            due_ms=65_000,
            error="it broke",
            attempts_without_progress=2,
            failures=4,
            non_retryable=True,
            workspace_path="/ws/1",
            resume=_RESUME,
        )
    )
    retry = story.state.retrying["1"]
    assert (retry.attempt, retry.due_ms, retry.error, retry.attempts_without_progress) == (
        4,
        65_000,
        "it broke",
        2,
    )
    assert (retry.failures, retry.non_retryable, retry.workspace_path) == (4, True, "/ws/1")
    assert retry.resume is _RESUME
    story.advance(59_999)
    assert not story.said(StartRun), "the poll must not start the issue again"
    story.advance(1)
    assert [start.attempt for start in story.said(StartRun)] == [4]


def test_a_retry_that_came_due_meanwhile_is_due_at_once() -> None:
    story = _told(_claim(ClaimKind.RETRYING, attempt=2, due_ms=-70_000))
    assert story.state.retrying["1"].due_ms == 5_000
    story.advance(0)
    assert story.started() == ["SYM-1"]


def test_a_block_keeps_its_reason_and_is_commented_again_with_the_same_text() -> None:
    story = _told(_claim(ClaimKind.BLOCKED, failure=_ASKED, question="red?", attempt=2, resume=_RESUME))
    story.advance(1_000_000)
    blocked = story.state.blocked["1"]
    assert (blocked.failure, blocked.question, blocked.attempt) == (_ASKED, "red?", 2)
    assert blocked.resume is _RESUME
    assert blocked.has_baseline
    (note,) = story.said(PostComment)
    assert (note.issue.id, note.kind) == ("1", "blocked")
    assert "which colour?" in note.body
    assert "red?" in note.body
    assert not story.said(StartRun)


@pytest.mark.parametrize(("since_ms", "blocked_ms"), [(-70_000, -70_000), (4_999, 4_999), (5_001, 5_000)])
def test_a_block_is_as_old_as_it_was_before_the_restart(since_ms: int, blocked_ms: int) -> None:
    story = _told(_claim(ClaimKind.BLOCKED, failure=_ASKED, since_ms=since_ms))
    assert story.state.blocked["1"].blocked_ms == blocked_ms


def test_a_block_repeats_the_comment_of_the_previous_daemon() -> None:
    before = Story(make_issue())
    blocks.block(work := Step(before.state, 0), make_issue(), _ASKED, question="red?")
    (first,) = [command for command in work.commands if isinstance(command, PostComment)]
    story = _told(_claim(ClaimKind.BLOCKED, failure=_ASKED, question="red?"))
    assert story.said(PostComment) == [first], "the same text changes nothing at the tracker"


def test_a_change_between_two_daemons_unblocks() -> None:
    story = Story(make_issue(title="Red"), poll_interval_ms=10_000_000)
    story.tell(Recovered(claims=(_claim(ClaimKind.BLOCKED, failure=_ASKED),)))
    assert story.started() == ["SYM-1"]


def test_an_issue_that_ended_between_two_daemons_is_cleaned_up() -> None:
    story = Story(make_issue("1", state="Done"), make_issue("2", state="Done"))
    story.tell(
        Recovered(
            claims=(_claim(ClaimKind.BLOCKED, "1", failure=_ASKED), _claim(ClaimKind.RUNNING, "2")),
            workspaces=tuple(
                WorkspaceRef(issue_id=key, identifier=f"SYM-{key}", path=f"/ws/{key}") for key in "12"
            ),
        )
    )
    story.advance(0)
    assert [clean.path for clean in story.said(CleanWorkspace)] == ["/ws/1", "/ws/2"]


def test_a_block_without_a_reason_gets_one() -> None:
    story = _told(_claim(ClaimKind.BLOCKED))
    assert story.state.blocked["1"].failure.category is Category.JOURNAL
    assert not story.said(PostComment), "what stands on the issue tells more"


def test_spending_and_pause_are_taken_over() -> None:
    story = _told(
        spent={"9": Spent(tokens=70, turns=2)},
        day="2025-01-01",
        day_tokens=500,
        budget_waivers=frozenset({"9"}),
        paused=True,
    )
    state = story.state
    assert state.spent == {"9": Spent(tokens=70, turns=2)}
    assert (state.day, state.day_tokens) == ("2025-01-01", 500)
    assert state.budget_waivers == {"9"}
    assert state.paused
    assert len(story.notices("still_paused")) == 1, "people must know why nothing starts"
    assert state.totals == Totals(), "totals are those of the journal"


def test_of_two_claims_on_one_issue_the_first_counts() -> None:
    story = _told(
        _claim(ClaimKind.RETRYING, attempt=2, due_ms=90_000), _claim(ClaimKind.BLOCKED, failure=_ASKED)
    )
    assert story.state.retrying["1"].attempt == 2
    assert not story.state.blocked
    assert [notice.fields["kind"] for notice in story.notices("claim_not_recovered")] == ["blocked"]
    assert [notice.fields for notice in story.notices("claim_recovered")] == [
        {"kind": "retrying", "attempt": 2}
    ]


def test_an_existing_claim_stays_as_it_is() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000).begin().streams()
    run = story.state.running["1"]
    story.tell(Recovered(claims=(_claim(ClaimKind.RUNNING),), day="2025-01-01", day_tokens=9))
    story.tell(Recovered(day="2025-01-02", day_tokens=7))
    assert story.state.running["1"] == run
    assert (story.state.day, story.state.day_tokens) == ("2025-01-01", 9), "what is known is not told anew"


def test_a_recovered_claim_replaces_a_pending_candidate() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000)
    story.slow = True
    story.begin()
    story.answer_poll()
    story.tell(Recovered(claims=(_claim(ClaimKind.RETRYING, attempt=2, due_ms=90_000),)))
    story.answer()
    assert not story.said(StartRun)


def test_claims_that_are_recovered_during_a_shutdown_are_left_to_the_next_daemon() -> None:
    story = Story(make_issue())
    story.tell(DrainAsked())
    story.tell(Recovered(claims=(_claim(ClaimKind.RUNNING), _claim(ClaimKind.BLOCKED, "2"))))
    story.tell(WakeAsked(reason="t"))
    story.advance(100_000)
    assert not story.said(StartRun)
    assert story.state.retrying.keys() == {"1"}
    assert story.state.blocked.keys() == {"2"}
