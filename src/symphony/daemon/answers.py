"""Reads what people wrote on an issue since its question was asked there, bounded and fit to be passed on.

The comment that asks may be missing: it could not be written, or somebody removed it. Then it is written
again, now and then only, and what people write below it counts.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import anyio

from symphony.daemon.bound import Bound
from symphony.daemon.notes import Notes, scope_of
from symphony.domain.plain import one_line, plain
from symphony.scheduler.answers import LONGEST_ANSWER
from symphony.scheduler.commands import PostNote
from symphony.scheduler.inputs import Remark
from symphony.trackers.answers import written_since
from symphony.trackers.base import AnswerCapability, Comment

__all__ = ["Answers"]

_AT_ONCE: Final = 4
_LOOKED_AT: Final = 8 * LONGEST_ANSWER
_ASK_AGAIN_MS: Final = 600_000
_MAX_ASKED: Final = 1_024
_MAX_OTHERS: Final = 10
_AUTHOR_CHARS: Final = 100
_OTHERS_CHARS: Final = 200


class Answers:
    """Reads the comments of a few issues at a time.

    Args:
        notes: writes the comment that asks.
        now_ms: the monotonic clock.
    """

    def __init__(self, notes: Notes, *, now_ms: Callable[[], int]) -> None:
        self._notes = notes
        self._now_ms = now_ms
        self._few = anyio.Semaphore(_AT_ONCE)
        self._asked_ms: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def read(self, bound: Bound, note: PostNote) -> tuple[tuple[Remark, ...], tuple[Remark, ...]]:
        """Answers to the question that `note` asks, and the newest comments of others (first line only).

        Raises:
            TrackerError: the comments cannot be read.
        """
        tracker = bound.tracker
        if not isinstance(tracker, AnswerCapability):
            return (), ()
        async with self._few:
            written = await written_since(
                tracker, note.issue.id, kind=note.kind, scope=scope_of(bound), occasion=note.occasion
            )
            if written is None:
                await self._ask_again(bound, note)
                return (), ()
        return tuple(_answers(written.answers)), tuple(
            Remark(id=one.id, author=_author(one), text=_first_line(one.body))
            for one in written.others[-_MAX_OTHERS:]
        )

    async def _ask_again(self, bound: Bound, note: PostNote) -> None:
        key, now_ms = (note.issue.id, note.occasion), self._now_ms()
        if now_ms - self._asked_ms.get(key, -_ASK_AGAIN_MS) < _ASK_AGAIN_MS:
            return
        self._asked_ms[key] = now_ms
        if len(self._asked_ms) > _MAX_ASKED:
            self._asked_ms.popitem(last=False)
        await self._notes.post(
            bound, note.issue, kind=note.kind, body=note.body, occasion=note.occasion, sure=True
        )


def _answers(comments: Iterable[Comment]) -> Iterable[Remark]:
    """What fits into what an agent is given, and one character more to tell that there is more."""
    left = LONGEST_ANSWER + 1
    for comment in comments:
        if left <= 0:
            return
        text = plain(comment.body[:_LOOKED_AT]).strip()[:left]
        left -= len(text)
        yield Remark(id=comment.id, author=_author(comment), text=text)


def _author(comment: Comment) -> str:
    return one_line(comment.author, _AUTHOR_CHARS) or "somebody"


def _first_line(body: str) -> str:
    return one_line(body.strip()[:_OTHERS_CHARS].partition("\n")[0], _OTHERS_CHARS)
