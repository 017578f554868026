"""The comment about malformed skills on an issue: it stays true, whatever becomes of a request.

What it shall say is decided with each look at the skills, at the start of a run and at its end, and is kept
in the journal before the tracker is asked, so that no restart loses it. What the tracker did not take is
tried again until it stands, less and less often, and never in the way of a run.

A comment that a person has deleted was read: it is not written again while there is nothing new to say.
Other problems make a new one; that they are over is said nowhere then.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

import anyio
import structlog

from symphony import skills
from symphony.daemon.bound import Bound
from symphony.daemon.notes import Notes
from symphony.domain.issue import Issue
from symphony.journal.model import SkillsNote
from symphony.skills import Severity, SkillSet

__all__ = ["SkillComments"]

FIRST_RETRY_S: Final = 30.0
LONGEST_RETRY_S: Final = 1_800.0
_MAX_EXPONENT: Final = 6
_MAX_KEPT: Final = 4_096
_log = structlog.get_logger(__name__)


class SkillComments:
    """Keeps them, one for each issue.

    Args:
        notes: writes them.
        known: what a predecessor knew: what they shall say, and whether they do; the last goes first.
        remember: told of each that is to say something, and again when it does.
        written: waits until what was remembered survives a restart.
        first_retry_s: how long the first wait is after the tracker did not take one; each further one is
            twice as long, up to half an hour.
    """

    def __init__(
        self,
        notes: Notes,
        known: Sequence[SkillsNote] = (),
        *,
        remember: Callable[[SkillsNote], None],
        written: Callable[[], Awaitable[None]],
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        self._notes = notes
        self._kept = OrderedDict((one.issue_id, one) for one in reversed(known))
        self._remember = remember
        self._written = written
        self._first_retry_s = first_retry_s
        self._failures: dict[str, int] = {}
        self._due_s: dict[str, float] = {}
        self._failed = anyio.Event()

    async def want(self, bound: Bound, issue: Issue, found: SkillSet, *, at_least: Severity | None) -> bool:
        """Decide what the comment on an issue shall say after a look at its skills; whether that is news.

        `at_least` is the mildest severity that is worth a comment; with None none is, and one that stands
        says what has become of what it named. News is in the journal when this returns.
        """
        before = self._kept.get(issue.id)
        tracker = _tracker_of(bound)
        if before is not None and before.tracker != tracker:
            before = None
        named = skills.named_problems(found.problems, at_least=at_least)
        body = None if at_least is None else skills.comment_body(found.problems, at_least=at_least)
        if body is None and before is None and at_least is None:
            return False
        revise = body is None
        if body is None:
            named = () if before is None else before.named
            switched_off = bound.settings.agent.skills.disabled_skills
            body = skills.resolved_body(named, found, switched_off=switched_off)
        wanted = SkillsNote(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            tracker=tracker,
            body=bound.redaction.text(body),
            named=named,
            revise=revise,
        )
        if before is not None and replace(before, said=False, at_wall_ms=0) == wanted:
            return not before.said
        self._keep(wanted)
        self._due_s.pop(issue.id, None)
        self._failures.pop(issue.id, None)
        await self._written()
        return True

    async def say(self, bound: Bound, issue_id: str) -> None:
        """Have the comment on an issue say what it shall, now or later; a failing tracker raises nothing."""
        wanted = self._kept.get(issue_id)
        if wanted is None or wanted.said or wanted.tracker != _tracker_of(bound):
            self._due_s.pop(issue_id, None)
            return
        said = await self._notes.say(bound, wanted)
        if self._kept.get(issue_id) is not wanted:
            return  # by now it shall say something else, and is on its way
        if said:
            self._failures.pop(issue_id, None)
            self._due_s.pop(issue_id, None)
            self._keep(replace(wanted, said=True))
            return
        failures = self._failures[issue_id] = self._failures.get(issue_id, 0) + 1
        wait_s = min(self._first_retry_s * 2 ** min(failures - 1, _MAX_EXPONENT), LONGEST_RETRY_S)
        self._due_s[issue_id] = anyio.current_time() + wait_s
        self._failed.set()
        facts = {"issue_id": issue_id, "issue_identifier": wanted.issue_identifier}
        _log.info("comment_retry", wait_s=wait_s, **facts)

    @property
    def unsaid(self) -> tuple[SkillsNote, ...]:
        """What comments shall say and do not say yet."""
        return tuple(one for one in self._kept.values() if not one.said)

    async def say_left(self, bound: Bound) -> None:
        """Have all say what they shall that a predecessor left unsaid."""
        for issue_id in [one.issue_id for one in self.unsaid]:
            await self.say(bound, issue_id)

    async def run(self, bound: Callable[[], Bound]) -> None:
        """Try again what the tracker did not take, when it is due; ends by cancellation."""
        while True:
            self._failed = anyio.Event()
            with anyio.move_on_at(min(self._due_s.values(), default=float("inf"))):
                await self._failed.wait()
            now_s = anyio.current_time()
            for issue_id in [key for key, due_s in self._due_s.items() if due_s <= now_s]:
                await self.say(bound(), issue_id)

    def _keep(self, note: SkillsNote) -> None:
        self._kept[note.issue_id] = note
        self._kept.move_to_end(note.issue_id)
        if len(self._kept) > _MAX_KEPT:
            issue_id, _ = self._kept.popitem(last=False)
            self._due_s.pop(issue_id, None)
            self._failures.pop(issue_id, None)
        self._remember(note)


def _tracker_of(bound: Bound) -> str:
    """What tells this workflow's tracker from another one; holds no secret."""
    settings = bound.settings.tracker
    facts = f"{bound.workflow.path} {settings.kind} {sorted(settings.provider.items())!r}"
    return sha256(facts.encode(errors="replace")).hexdigest()[:32]
