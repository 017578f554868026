"""Comments on an issue that waits for an answer: what a person writes there is the answer.

While an agent's question is open, the comments of its issue are read with every poll and every wake, never
more than once at a time. The runtime tells what was written since the question and whose words count. All
that such people wrote goes to the agent together, by the path of the verb `answer`. What others wrote is
shown and not obeyed. A reading that fails speaks against nothing but itself: it is tried again with the next
poll, and only a pause that the tracker asked for is heeded.
"""

from collections.abc import Sequence
from dataclasses import replace

from symphony.scheduler import blocks, threads, weather
from symphony.scheduler.commands import ReadAnswers
from symphony.scheduler.inputs import AnswersRead, AnswersUnread, Remark
from symphony.scheduler.state import Blocked, Drain, Reading
from symphony.scheduler.work import Work

__all__ = ["LONGEST_ANSWER", "on_read", "on_unread", "read", "together"]

LONGEST_ANSWER = 32_000
"""Characters of all comments together that an agent is given as the answer."""


def read(work: Work) -> None:
    """Have the comments of every issue read that waits for an answer."""
    for blocked in tuple(work.state.blocked.values()):
        if not _waits(blocked):
            continue
        if blocked.comments.under_way:
            work.set_blocked(replace(blocked, comments=replace(blocked.comments, again=True)))
        else:
            _ask(work, blocked)


def _ask(work: Work, blocked: Blocked) -> None:
    reading = replace(blocked.comments, under_way=True, again=False)
    work.set_blocked(replace(blocked, comments=reading))
    work.emit(ReadAnswers(question=blocked.run_id or "", note=blocks.note(blocked)))


def _waits(blocked: Blocked) -> bool:
    """Whether an answer would be taken: one that was given already, and waits for a move back, is enough."""
    return blocks.answerable(blocked.failure, blocked.question) and blocked.returning is None


def on_read(work: Work, fact: AnswersRead) -> None:
    """Take an answer, or note what was said by others; what belongs to an earlier question means nothing."""
    blocked = _asked(work, fact)
    if blocked is None:
        return
    known = {remark.id for remark in blocked.comments.others}
    for remark in fact.others:
        if remark.id not in known:
            work.notify("warning", "comment_not_obeyed", blocked.issue, author=remark.author)
    before, blocked = blocked.comments, replace(blocked, comments=Reading(others=fact.others))
    work.set_blocked(blocked)
    if fact.answers and _waits(blocked):
        authors = ", ".join(dict.fromkeys(remark.author for remark in fact.answers))
        work.notify("info", "answer_taken", blocked.issue, author=authors, comments=len(fact.answers))
        resume = threads.answered(blocked, together(fact.answers))
        blocks.go_on(work, blocked, resume, reason="a person answered by a comment")
    elif before.again:
        _once_more(work, blocked)


def on_unread(work: Work, fact: AnswersUnread) -> None:
    """Say once why the comments cannot be read; heed a pause that the tracker asked for."""
    blocked = _asked(work, fact)
    if blocked is None:
        return
    before, failure = blocked.comments, fact.failure
    told = before.failure is not None and before.failure.message == failure.message
    work.notify(
        "debug" if told else "warning",
        "answers_unread",
        blocked.issue,
        reason=failure.line,
        hint=failure.hint,
    )
    work.set_blocked(replace(blocked, comments=Reading(others=before.others, failure=failure)))
    if failure.retry_after_ms is not None:
        weather.on_failure(work, failure)


def _asked(work: Work, fact: AnswersRead | AnswersUnread) -> Blocked | None:
    """The block whose comments were read, if it still stands and somebody waits for this."""
    blocked = work.state.blocked.get(fact.issue_id)
    if blocked is None or not blocked.comments.under_way or fact.question != (blocked.run_id or ""):
        return None
    return blocked


def _once_more(work: Work, blocked: Blocked) -> None:
    """Somebody woke us while the comments were read: the answer may not have been there yet."""
    if work.state.drain is Drain.NO and weather.quiet_until(work.state, work.now_ms) is None:
        _ask(work, blocked)


def together(remarks: Sequence[Remark]) -> str:
    """What one or several comments say, in their order, each of several with its author; bounded."""
    if len(remarks) == 1:
        text = remarks[0].text
    else:
        text = "\n\n".join(f"{remark.author} writes:\n{remark.text}" for remark in remarks)
    if len(text) <= LONGEST_ANSWER:
        return text
    return f"{text[:LONGEST_ANSWER]}\n(cut: the rest stands on the issue)"
