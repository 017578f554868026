"""What a run hands over to the next run of its issue: its conversation, and an unused answer."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from symphony.scheduler.messages import ResultStatus, Resume, ResumeReason, Thread
from symphony.scheduler.state import Blocked, Retry, Running, State

MAX_DECISIONS: Final = 100
"""How many decisions about requests for approval a conversation keeps."""
_NOTHING: Final[Mapping[str, bool]] = MappingProxyType({})


def thread_of(run: Running) -> Thread | None:
    """The conversation of a run with its totals so far, or `None` if there is none to continue.

    The report counts what this run used; on a resumed thread that comes on top of the earlier totals.
    """
    facts, known = run.report.facts, run.resume.thread if run.resume else None
    if facts.thread_id is None:
        return known
    base = Thread(thread_id="", begun=False)
    if known is not None and known.thread_id == facts.thread_id:
        base = known
    return Thread(
        thread_id=facts.thread_id,
        agent=run.agent.name,
        tokens=base.tokens.plus(facts.thread_tokens),
        begun=base.begun or facts.turn_count > 0,
    )


def threads_in_use(state: State) -> frozenset[str]:
    """The conversations that a claim may still continue, which must not be deleted."""
    waiting: list[Retry | Blocked] = [*state.retrying.values(), *state.blocked.values()]
    threads = [
        *(thread_of(run) for run in state.running.values()),
        *(entry.resume.thread for entry in waiting if entry.resume is not None),
    ]
    return frozenset(thread.thread_id for thread in threads if thread is not None)


def resumable_threads(state: State) -> frozenset[str]:
    """As `threads_in_use`, plus the conversations of finished work that may still get feedback."""
    may_change = {ResultStatus.OPEN, ResultStatus.READY}
    results = (result for result in state.results.values() if result.status in may_change)
    threads = (result.thread.thread_id for result in results if result.thread is not None)
    return threads_in_use(state).union(threads)


def resume_interrupted(run: Running, *, request: str | None = None) -> Resume:
    """How to continue a run that was interrupted without being at fault.

    A person's answer is repeated until a turn that carries it has begun, and always if there is no
    conversation that could remember it. Feedback and the evidence of a failed verification are repeated until
    a run has ended well. Decisions about requests for approval last as long as the conversation; `request` is
    the key of an open request. An interrupted verification is carried out again.
    """
    thread, answer = thread_of(run), _answer(run)
    if run.resume is not None and run.resume.reason is ResumeReason.VERIFY:
        return replace(run.resume, thread=thread)
    if answer is not None and (
        run.report.facts.turn_count == 0 or thread is None or answer.reason is not ResumeReason.ANSWERED
    ):
        return replace(answer, thread=thread, request=request)
    handed_off = run.resume is not None and run.resume.after_handoff
    return Resume(
        reason=ResumeReason.INTERRUPTED,
        thread=thread,
        after_handoff=handed_off,
        request=request,
        decisions=_NOTHING if run.resume is None else run.resume.decisions,
        handed_over_to=None if run.resume is None else run.resume.handed_over_to,
        back_to=None if run.resume is None else run.resume.back_to,
    )


def resume_after_failure(run: Running) -> Resume | None:
    """What the attempt after a failed one starts with: an answer or feedback without a thread, if any.

    A run that was asked to verify still verifies.
    """
    if run.resume is not None and run.resume.reason is ResumeReason.VERIFY:
        return replace(run.resume, thread=thread_of(run))
    resume = run.resume if run.report.facts.turn_count == 0 else _answer(run)
    return None if resume is None else replace(resume, thread=None)


def resume_without_answer(blocked: Blocked) -> Resume:
    """How a blocked issue continues without an answer."""
    return blocked.resume or Resume(reason=ResumeReason.INTERRUPTED)


def resume_with_answer(
    blocked: Blocked, answer: str, *, by: str | None = None, approves: bool | None = None
) -> Resume:
    """How a blocked issue continues with a person's answer, which may decide its request for approval."""
    before = resume_without_answer(blocked)
    decisions = before.decisions
    if approves is not None and before.request is not None:
        newest = {before.request: approves}
        decisions = dict(islice({**newest, **decisions, **newest}.items(), MAX_DECISIONS))
    return Resume(
        reason=ResumeReason.ANSWERED,
        thread=before.thread,
        question=blocked.question or blocked.failure.message,
        answer=answer,
        after_handoff=before.after_handoff,
        answered_by=by,
        approves=approves,
        decisions=decisions,
        handed_over_to=before.handed_over_to,
        back_to=before.back_to,
    )


def _answer(run: Running) -> Resume | None:
    told = {ResumeReason.ANSWERED, ResumeReason.FEEDBACK, ResumeReason.VERIFY_FAILED}
    return run.resume if run.resume and run.resume.reason in told else None
