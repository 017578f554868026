"""What was written on an issue since a question was asked there, and whose words are an answer.

The question is a comment of ours, found by its marker; what stands below it was written since. So nothing has
to be remembered over a restart, and no two clocks are compared. A comment is no answer if it carries a mark
of ours, or if its author is an agent, a bot or an integration. The identity of the daemon is often that of a
person as well: a comment of that identity without a mark is the person's, as no agent works on an issue that
waits for an answer, and what agents of other issues write by our tools is marked (`comments.AGENT_MARK`).
"""

from dataclasses import dataclass

from symphony.trackers.base import AnswerCapability, Comment
from symphony.trackers.comments import find_comment, is_marked

__all__ = ["Written", "written_since"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Comments since the question, oldest first: by people whose words are an answer, and by other people."""

    answers: tuple[Comment, ...] = ()
    others: tuple[Comment, ...] = ()


async def written_since(
    tracker: AnswerCapability, issue_id: str, *, kind: str, scope: str, occasion: str
) -> Written | None:
    """The comments below the one that asks, which has this kind, scope and occasion; `None` if it is missing.

    Raises:
        TrackerError: the comments, or what their authors may do, cannot be read.
    """
    comments = await tracker.list_comments(issue_id)
    asked = find_comment(comments, issue_id, kind=kind, scope=scope, occasion=occasion)
    if asked is None:
        return None
    found = [
        comment
        for comment in comments[asked + 1 :]
        if comment.may_answer is not False and comment.body.strip() and not is_marked(comment.body)
    ]
    unknown = {one.author_key for one in found if one.may_answer is None and not one.mine}
    known = await tracker.who_may_answer(issue_id, sorted(unknown)) if unknown else frozenset[str]()
    heard = [one for one in found if one.may_answer or one.mine or one.author_key in known]
    return Written(
        answers=tuple(heard),
        others=tuple(one for one in found if one not in heard),
    )
