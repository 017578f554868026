"""What a run hands on: its conversation, what was counted of it, and an answer that is never lost."""

from dataclasses import replace

import pytest
from msgspec import structs

from harness.scheduling import make_failure, make_issue, make_settings
from symphony.domain import RunFacts, Tokens
from symphony.scheduler import (
    Blocked,
    Resume,
    ResumeReason,
    Retry,
    Running,
    RunReport,
    RunStage,
    Thread,
    initial_state,
    resume,
)

_OLD = Thread(thread_id="t-1", tokens=Tokens(100, 10, 110))
_INTERRUPTED = Resume(reason=ResumeReason.INTERRUPTED, thread=_OLD)
_ANSWERED = Resume(reason=ResumeReason.ANSWERED, thread=_OLD, question="which?", answer="blue")


def _run(
    thread_id: str | None = None, *, turns: int = 0, total_tokens: int = 0, resume: Resume | None = None
) -> Running:
    report = RunReport(
        stage=RunStage.STREAMING_TURN,
        facts=RunFacts(
            thread_id=thread_id,
            turn_count=turns,
            tokens=Tokens(total_tokens // 2, total_tokens // 2, total_tokens),
        ),
    )
    return Running(
        run_id="e-1",
        issue=make_issue(),
        attempt=None,
        started_ms=0,
        max_turns=20,
        attempts_without_progress=0,
        report=report,
        resume=resume,
    )


def test_a_run_without_an_agent_has_no_conversation() -> None:
    assert resume.thread_of(_run()) is None


def test_a_new_conversation_has_the_totals_of_its_run() -> None:
    assert resume.thread_of(_run("t-9", total_tokens=40)) == Thread(
        thread_id="t-9", tokens=Tokens(20, 20, 40), begun=False
    )


@pytest.mark.parametrize(
    ("known", "thread_id", "turns", "begun"),
    [
        (None, "t-9", 0, False),
        (None, "t-9", 1, True),
        (_INTERRUPTED, "t-1", 0, True),
        (_INTERRUPTED, "t-2", 0, False),
        (Resume(reason=ResumeReason.INTERRUPTED, thread=structs.replace(_OLD, begun=False)), "t-1", 0, False),
        (Resume(reason=ResumeReason.INTERRUPTED, thread=structs.replace(_OLD, begun=False)), "t-1", 1, True),
    ],
)
def test_a_conversation_has_begun_once_a_turn_of_it_did(
    known: Resume | None, thread_id: str, turns: int, *, begun: bool
) -> None:
    thread = resume.thread_of(_run(thread_id, turns=turns, resume=known))
    assert thread is not None
    assert thread.begun is begun


def test_a_continued_conversation_adds_the_run_to_its_totals() -> None:
    assert resume.thread_of(_run("t-1", total_tokens=40, resume=_INTERRUPTED)) == Thread(
        thread_id="t-1", tokens=Tokens(120, 30, 150)
    )


def test_another_conversation_than_the_requested_one_counts_from_zero() -> None:
    thread = resume.thread_of(_run("t-2", total_tokens=40, resume=_INTERRUPTED))
    assert thread is not None
    assert (thread.thread_id, thread.tokens.total_tokens) == ("t-2", 40)


def test_before_the_agent_reports_the_conversation_is_the_resumed_one() -> None:
    assert resume.thread_of(_run(resume=_INTERRUPTED)) is _OLD
    assert resume.thread_of(_run(resume=Resume(reason=ResumeReason.INTERRUPTED))) is None


def test_an_interrupted_run_continues_its_conversation() -> None:
    assert resume.resume_interrupted(_run("t-9", turns=1)) == Resume(
        reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t-9")
    )
    assert resume.resume_interrupted(_run()) == Resume(reason=ResumeReason.INTERRUPTED)


def test_an_answer_that_no_turn_carried_is_repeated() -> None:
    assert resume.resume_interrupted(_run(resume=_ANSWERED)) == _ANSWERED


def test_an_answer_that_the_conversation_remembers_is_not_repeated() -> None:
    later = resume.resume_interrupted(_run("t-1", turns=1, resume=_ANSWERED))
    assert (later.reason, later.answer) == (ResumeReason.INTERRUPTED, None)


def test_an_answer_that_no_conversation_remembers_is_repeated() -> None:
    cold = Resume(reason=ResumeReason.ANSWERED, question="which?", answer="blue")
    assert resume.resume_interrupted(_run(turns=1, resume=cold)) == cold


def test_after_a_failure_a_run_starts_a_new_conversation() -> None:
    assert resume.resume_after_failure(_run("t-9", turns=1)) is None
    assert resume.resume_after_failure(_run("t-1", turns=1, resume=_INTERRUPTED)) is None


def test_a_conversation_that_cannot_continue_is_dropped() -> None:
    assert resume.resume_after_failure(_run(resume=_INTERRUPTED)) == Resume(reason=ResumeReason.INTERRUPTED)


@pytest.mark.parametrize("turns", [0, 1])
def test_an_answer_survives_a_failure(turns: int) -> None:
    after = resume.resume_after_failure(_run("t-1", turns=turns, resume=_ANSWERED))
    assert after == Resume(reason=ResumeReason.ANSWERED, question="which?", answer="blue")


def test_an_answer_is_kept_with_its_question() -> None:
    blocked = Blocked(issue=make_issue(), failure=make_failure("which?"), blocked_ms=0)
    assert resume.resume_with_answer(blocked, "blue") == Resume(
        reason=ResumeReason.ANSWERED, question="which?", answer="blue"
    )
    assert resume.resume_without_answer(blocked) == Resume(reason=ResumeReason.INTERRUPTED)


def test_conversations_that_a_claim_may_continue_are_in_use() -> None:
    other = Resume(reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t-3"))
    retry = Retry(issue=make_issue(), attempt=1, due_ms=0, error=None, attempts_without_progress=0)
    state = initial_state(make_settings(), epoch="e").changed(
        running={"a": _run("t-9"), "b": _run()},
        retrying={"c": replace(retry, resume=other), "d": retry},
        blocked={"e": Blocked(issue=make_issue(), failure=make_failure(), blocked_ms=0, resume=_ANSWERED)},
    )
    assert resume.threads_in_use(state) == {"t-1", "t-3", "t-9"}
