"""What an interrupted run hands on: its conversation, and an answer not heard yet (AG23, TK4)."""

from dataclasses import replace

from symphony.domain.counts import added
from symphony.scheduler.inputs import Resume, ResumeReason, Thread
from symphony.scheduler.state import Blocked, Running, State

__all__ = ["after_failure", "answered", "interrupted", "put_back", "thread_of", "threads_in_use"]


def thread_of(run: Running) -> Thread | None:
    """The conversation of a run with its totals so far, or null where it has none to go on with.

    The pump counts what this run used; on the thread of an earlier run that comes on top of what was known.
    """
    report, known = run.report, run.resume.thread if run.resume else None
    if report.thread_id is None:
        return known
    base = Thread(thread_id="", begun=False)
    if known is not None and known.thread_id == report.thread_id:
        base = known
    return Thread(
        thread_id=report.thread_id,
        agent=run.agent.name,
        input_tokens=added(base.input_tokens, report.input_tokens),
        output_tokens=added(base.output_tokens, report.output_tokens),
        total_tokens=added(base.total_tokens, report.total_tokens),
        begun=base.begun or report.turn_count > 0,
    )


def threads_in_use(state: State) -> frozenset[str]:
    """The conversations that a claim may still go on with, so that nobody throws them away."""
    going = [thread_of(run) for run in state.running.values()]
    waiting = [entry.resume for entry in state.retrying.values()]
    waiting += [entry.resume for entry in state.blocked.values()]
    threads = [*going, *(resume.thread for resume in waiting if resume is not None)]
    return frozenset(thread.thread_id for thread in threads if thread is not None)


def _answer_of(run: Running) -> Resume | None:
    resume = run.resume
    return resume if resume is not None and resume.reason is ResumeReason.ANSWERED else None


def interrupted(run: Running) -> Resume:
    """How a run goes on that was ended by no fault of its own.

    An answer travels again until a turn began that carries it, and for ever where there is no conversation
    that could remember it.
    """
    thread, answer = thread_of(run), _answer_of(run)
    if answer is not None and (run.report.turn_count == 0 or thread is None):
        return replace(answer, thread=thread)
    return Resume(reason=ResumeReason.INTERRUPTED, thread=thread)


def after_failure(run: Running) -> Resume | None:
    """What the attempt after a failed one knows: it starts cold, with an answer that a person gave.

    A conversation that failed before its first turn cannot be gone on with, so it is dropped here too.
    """
    if run.resume is not None and run.report.turn_count == 0:
        return replace(run.resume, thread=None)
    answer = _answer_of(run)
    return replace(answer, thread=None) if answer else None


def put_back(blocked: Blocked) -> Resume:
    """How a blocked issue goes on without an answer."""
    return blocked.resume or Resume(reason=ResumeReason.INTERRUPTED)


def answered(blocked: Blocked, text: str) -> Resume:
    """How a blocked issue goes on with a person's answer."""
    return Resume(
        reason=ResumeReason.ANSWERED,
        thread=blocked.resume.thread if blocked.resume else None,
        question=blocked.question or blocked.failure.message,
        answer=text,
    )
