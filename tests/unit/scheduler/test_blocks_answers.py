"""Comments on an issue that waits for an answer: read, taken once and together, or shown and not obeyed."""

import pytest
from msgspec import structs

from harness.scheduling import Story, make_failure, make_issue
from symphony.domain import Blame, Category, Failure
from symphony.scheduler import (
    MAX_ANSWER_CHARS,
    AnswersRead,
    AnswersReadFailed,
    Claim,
    ClaimKind,
    DrainAsked,
    IssueComment,
    OperatorAction,
    OperatorAsked,
    Outcome,
    OutcomeKind,
    PostComment,
    ReadAnswers,
    Recovered,
    ResumeReason,
    RunEnded,
    StartRun,
    StoredClaim,
    WakeAsked,
    claim_of,
    join_comments,
    run_once_finished,
)

BLUE = IssueComment(id="c1", author="ann", text="Blue, please")
RED = IssueComment(id="c2", author="bob", text="Red")


def _asks(**settings: object) -> Story:
    """Issue 1 has an agent that asked something; readings of comments wait until they are answered."""
    story = Story(make_issue(), **{"poll_interval_ms": 30_000} | settings).begin().streams(thread_id="t1")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, question="Red or blue?")
    return story.forget()


def _wake(story: Story) -> Story:
    story.tell(WakeAsked(reason="webhook"))
    return story


def _reads(story: Story) -> int:
    return len(story.said(ReadAnswers))


def test_a_persons_comment_is_the_answer_and_continues_the_conversation() -> None:
    story = _asks()
    story.answers["1"] = (BLUE,)
    _wake(story).advance(0)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert (start.resume.reason, start.resume.question) == (ResumeReason.ANSWERED, "Red or blue?")
    assert start.resume.answer == "Blue, please"
    assert start.resume.thread is not None
    assert start.resume.thread.thread_id == "t1"
    (taken,) = story.notices("answer_taken")
    assert taken.fields == {"author": "ann", "comments": 1}


@pytest.mark.parametrize(
    ("said", "approves"),
    [
        ((("ann", "Yes."),), True),
        ((("ann", "yes"), ("bob", "approve")), True),
        ((("ann", "yes"), ("bob", "no")), False),
        ((("ann", "no"), ("bob", "yes")), False),
        ((("ann", "no"), ("ann", "yes")), True),
        ((("ann", "yes"), ("ann", "no")), False),
        ((("ann", "yes"), ("ann", "thank you")), True),
        ((("ann", "yes"), ("bob", "wait, which file?")), None),
        ((("ann", "deny"), ("bob", "wait, which file?")), False),
        ((("ann", "yes, but only this file"),), None),
        ((("ann", "y" * 1_000_000),), None),
    ],
    ids=range(11),
)
def test_people_who_answer_a_request_for_approval_at_once_have_to_agree(
    said: tuple[tuple[str, str], ...], *, approves: bool | None
) -> None:
    story = Story(make_issue(), poll_interval_ms=30_000).begin().streams(thread_id="t1")
    failure = make_failure("approval required", category=Category.APPROVAL_REQUIRED)
    outcome = Outcome(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, request="k")
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    story.answers["1"] = tuple(
        IssueComment(id=f"c{number}", author=author, text=text) for number, (author, text) in enumerate(said)
    )
    _wake(story.forget()).advance(0)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert start.resume.approves is approves
    assert start.resume.decisions == ({} if approves is None else {"k": approves})
    assert start.resume.answered_by == ", ".join(dict.fromkeys(author for author, _ in said))


def test_comments_are_read_with_every_poll_and_wake_but_never_twice_at_once() -> None:
    story = _asks()
    story.advance(30_000)
    assert _reads(story) == 1
    _wake(story)
    assert _reads(story) == 2
    story.slow = True
    _wake(story)
    assert _reads(story) == 3
    story.answer_refresh()
    story.answer_poll()
    story.advance(30_000)
    assert _reads(story) == 3, "one is under way"
    story.answers["1"] = (BLUE,)
    story.answer_read()
    assert claim_of(story.state, "1") is Claim.RETRYING


def test_a_wake_while_comments_are_read_reads_them_once_more() -> None:
    story = _asks()
    story.slow = True
    _wake(story)
    story.answer_refresh()
    story.answer_poll()
    _wake(story)
    story.advance(1_000)
    assert _reads(story) == 1
    story.answer_read()
    assert _reads(story) == 2, "the comment may have come after the first"
    story.answer_read()
    assert _reads(story) == 2


def test_run_once_does_not_end_while_comments_are_read() -> None:
    story = _asks()
    story.slow = True
    _wake(story)
    story.answer_refresh()
    story.answer_poll()
    assert not run_once_finished(story.state, story.now)
    story.answer_read()
    assert run_once_finished(story.state, story.now)


def test_comments_are_not_read_once_more_during_a_shutdown() -> None:
    story = _asks()
    story.slow = True
    _wake(story)
    story.answer_refresh()
    story.answer_poll()
    _wake(story)
    story.advance(1_000)
    story.tell(DrainAsked())
    story.answer_read()
    assert _reads(story) == 1


def test_all_answers_are_joined_with_their_authors_and_bounded() -> None:
    story = _asks()
    story.answers["1"] = tuple(
        IssueComment(id=f"c{n}", author=f"p{n}", text=f"answer {n}") for n in range(10)
    )
    _wake(story).advance(0)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert start.resume.answer == "\n\n".join(f"p{n} writes:\nanswer {n}" for n in range(10))
    _wake(story).advance(0)
    assert len(story.said(StartRun)) == 1
    whole = "x" * MAX_ANSWER_CHARS
    assert join_comments([structs.replace(BLUE, text=whole)]) == whole
    long = join_comments([structs.replace(BLUE, text="x" * 1_000_000)])
    assert long.startswith("x" * MAX_ANSWER_CHARS)
    assert long.endswith("(cut: the rest is on the issue)")
    assert len(long) < MAX_ANSWER_CHARS + 100


def test_an_unauthorized_comment_is_logged_once_and_not_obeyed() -> None:
    story = _asks()
    story.others["1"] = (RED,)
    _wake(story)
    _wake(story)
    assert story.state.blocked["1"].answer_check.unauthorized == (RED,)
    (told,) = story.notices("comment_not_obeyed")
    assert told.fields == {"author": "bob"}
    story.answers["1"] = (BLUE,)
    _wake(story).advance(0)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert start.resume.answer == "Blue, please"


@pytest.mark.parametrize(
    "failure",
    [
        make_failure("no way", category=Category.BUDGET_ISSUE),
        make_failure("no progress", category=Category.NO_PROGRESS),
    ],
)
def test_comments_are_read_only_where_an_answer_is_awaited(failure: Failure) -> None:
    story = Story(make_issue(), poll_interval_ms=30_000).begin().streams()
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=failure)
    _wake(story)
    assert claim_of(story.state, "1") is Claim.BLOCKED
    assert _reads(story) == 0


def test_an_answer_to_an_earlier_question_is_ignored() -> None:
    story = _asks()
    first = story.state.blocked["1"].run_id or ""
    story.answers["1"] = (BLUE,)
    _wake(story).advance(0)
    story.answers.clear()
    story.streams().ends(kind=OutcomeKind.INPUT_REQUIRED, question="And the size?")
    late = AnswersRead(issue_id="1", question=first, answers=(RED,))
    before = story.state
    story.tell(late)
    assert story.state == before, "no reading is in progress"
    story.slow = True
    _wake(story)
    before = story.state
    story.tell(late)
    story.tell(AnswersReadFailed(issue_id="1", question=first, failure=make_failure()))
    story.tell(AnswersRead(issue_id="nobody", question=first, answers=(RED,)))
    assert story.state == before


def test_each_question_has_a_comment_of_its_own() -> None:
    story = _asks()
    story.answers["1"] = (BLUE,)
    _wake(story).advance(0)
    story.answers.clear()
    story.forget().streams().ends(kind=OutcomeKind.INPUT_REQUIRED, question="And the size?")
    (note,) = story.said(PostComment)
    assert note.occasion == story.state.blocked["1"].run_id
    story.forget()
    _wake(story)
    (read,) = story.said(ReadAnswers)
    assert read.comment == note
    assert read.question == note.occasion


def test_a_failed_reading_is_logged_once_and_changes_nothing_else() -> None:
    story = _asks()
    failure = make_failure("no answer", category=Category.TRACKER_REQUEST, blame=Blame.TRACKER)
    for _ in range(3):
        story.slow = True
        _wake(story)
        asked = story.reads.pop(0)
        story.slow = False
        story.answer()
        story.tell(AnswersReadFailed(issue_id="1", question=asked.question, failure=failure))
        story.advance(200)
    assert [notice.level for notice in story.notices("answers_unread")] == ["warning", "debug", "debug"]
    assert story.state.blocked["1"].answer_check.failure == failure
    assert story.state.breaker.failures == 0
    story.answers["1"] = (BLUE,)
    _wake(story).advance(0)
    assert story.said(StartRun)


def test_a_pause_that_the_tracker_asks_for_is_respected() -> None:
    story = _asks()
    story.slow = True
    _wake(story)
    asked = story.reads.pop(0)
    story.slow = False
    story.answer()
    failure = make_failure("slow down", category=Category.TRACKER_RATE_LIMITED, retry_after_ms=90_000)
    story.tell(AnswersReadFailed(issue_id="1", question=asked.question, failure=failure))
    story.forget()
    _wake(story)
    story.advance(80_000)
    assert _reads(story) == 0
    story.advance(20_000)
    assert _reads(story) == 1


def test_a_second_answer_is_ignored_while_the_issue_is_moved_back() -> None:
    story = _asks(on_block="Human Review", on_return="Todo")
    story.board["1"] = make_issue(state="Human Review")
    _wake(story)
    story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="Blue"))
    assert story.state.blocked["1"].unblock_reason is not None
    story.forget()
    _wake(story)
    assert _reads(story) == 0


def test_an_answer_that_arrives_after_the_operators_changes_nothing() -> None:
    story = _asks(on_block="Human Review", on_return="Todo")
    story.board["1"] = make_issue(state="Human Review")
    story.slow = True
    _wake(story)
    story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="Blue"))
    story.answers["1"] = (RED,)
    story.answer_read()
    resume = story.state.blocked["1"].resume
    assert resume is not None
    assert resume.answer == "Blue"


def test_after_a_restart_the_same_question_is_read() -> None:
    story = _asks()
    run_id = story.state.blocked["1"].run_id
    claim = StoredClaim(
        issue=make_issue(),
        kind=ClaimKind.BLOCKED,
        run_id=run_id,
        failure=make_failure("asks", category=Category.TURN_INPUT_REQUIRED),
        question="Red or blue?",
        has_baseline=True,
    )
    later = Story(make_issue())
    later.answers["1"] = (BLUE,)
    later.tell(Recovered(claims=(claim,)))
    (note, *_), (read, *_) = later.said(PostComment), later.said(ReadAnswers)
    assert read.comment == note
    assert read.question == run_id
    assert claim_of(later.state, "1") is Claim.RETRYING
