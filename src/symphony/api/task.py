"""The tracker's snapshot of an issue as a document: description, labels, dependencies, comments. Pure.

The daemon asks the tracker. This module limits the answer, which may be missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec import Struct

from symphony.api import models
from symphony.api.models import utc_text, wall_text
from symphony.domain import Blocker, Issue, normalise_state, one_line
from symphony.scheduler import State
from symphony.trackers.base import Comment
from symphony.trackers.comments import OPERATOR, WrittenBy, attributed

MAX_DESCRIPTION_CHARS: Final = 32_000
MAX_COMMENTS: Final = 50
MAX_COMMENT_CHARS: Final = 8_000
MAX_ALL_COMMENTS_CHARS: Final = 48_000
_MAX_BLOCKERS: Final = 50
_AUTHOR_CHARS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerAnswer:
    """The tracker's answer about an issue.

    Attributes:
        issue: `None` if the tracker does not have it, or did not answer.
        comments: the comments, oldest first.
        answered: whether the tracker answered.
        failure: why something is missing, in one line with secrets masked.
    """

    issue: Issue | None = None
    comments: tuple[Comment, ...] = ()
    answered: bool = False
    failure: str | None = None


class UnsentComment(Struct, frozen=True, kw_only=True):
    """A comment of a person that is not posted yet; `failure` is that of the last attempt."""

    text: str
    since_wall_ms: int
    given_up: bool
    failure: str | None


def task_document(
    state: State,
    *,
    issue_id: str,
    identifier: str,
    known: Issue | None,
    answer: TrackerAnswer,
    unsent: Sequence[UnsentComment],
    can_comment: bool,
    now: datetime,
) -> models.Task:
    """The document of one issue.

    Args:
        state: the state of the scheduler, with other issues.
        issue_id: the issue.
        identifier: its name for people.
        known: the daemon's snapshot, for parts that the tracker does not answer now.
        answer: the tracker's answer.
        unsent: comments of people that the tracker does not have yet.
        can_comment: whether the tracker has comments.
        now: the present time.
    """
    issue = answer.issue or known
    description = None if issue is None else (issue.description or "").strip() or None
    comments, left_out = _newest(answer.comments)
    return models.Task(
        generated_at=utc_text(now),
        issue_id=issue_id,
        issue_identifier=identifier,
        title="" if issue is None else issue.title,
        state="" if issue is None else issue.state,
        gone=answer.answered and answer.issue is None,
        description=None if description is None else description[:MAX_DESCRIPTION_CHARS],
        description_cut=len(description or "") > MAX_DESCRIPTION_CHARS,
        labels=() if issue is None else issue.labels,
        priority=None if issue is None else issue.priority,
        blocked_by=_blockers(() if issue is None else issue.blocked_by, state),
        created_at=None if issue is None else _moment(issue.created_at),
        updated_at=None if issue is None else _moment(issue.updated_at),
        comments=(*comments, *map(_unsent, unsent)),
        comments_left_out=left_out,
        can_comment=can_comment,
        failure=answer.failure,
    )


def _newest(comments: Sequence[Comment]) -> tuple[list[models.TaskComment], int]:
    """The newest comments that fit, the newest last, and how many do not fit."""
    shown: list[models.TaskComment] = []
    room = MAX_ALL_COMMENTS_CHARS
    for by, comment in map(attributed, reversed(comments)):
        body = comment.body.strip()
        room -= min(len(body), MAX_COMMENT_CHARS)
        if room < 0 or len(shown) == MAX_COMMENTS:
            break
        shown.append(
            models.TaskComment(
                id=comment.id,
                by=by.value,
                author=one_line(comment.author, _AUTHOR_CHARS) or by.value,
                at=_moment(comment.created_at),
                body=body[:MAX_COMMENT_CHARS],
                cut=len(body) > MAX_COMMENT_CHARS,
            )
        )
    return shown[::-1], len(comments) - len(shown)


def _unsent(comment: UnsentComment) -> models.TaskComment:
    return models.TaskComment(
        id=None,
        by=WrittenBy.PERSON.value,
        author=OPERATOR,
        at=wall_text(comment.since_wall_ms),
        body=comment.text,
        cut=False,
        sent="given_up" if comment.given_up else "waiting",
        failure=comment.failure,
    )


def _blockers(blockers: Iterable[Blocker], state: State) -> tuple[models.TaskBlocker, ...]:
    titles = {issue.identifier: issue.title for issue in state.candidates.values()}
    return tuple(
        models.TaskBlocker(
            issue_identifier=one.identifier or one.id,
            title=titles.get(one.identifier or ""),
            state=one.state,
            over=one.state is not None and normalise_state(one.state) in state.settings.terminal_states,
            known=one.identifier is not None,
        )
        for one in list(blockers)[:_MAX_BLOCKERS]
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
