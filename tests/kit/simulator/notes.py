"""The daemon's comments in a simulation: known ones cost nothing, others are found by their marker."""

from collections.abc import Callable

from kit.simulator.clock import Clock
from kit.simulator.crashing import Crashes
from kit.simulator.dice import Dice
from kit.simulator.memory import Memory
from kit.simulator.tracker import Tracker
from symphony.domain import FaultPoint
from symphony.scheduler import PostComment

__all__ = ["Notes"]


_TAKES_MS = 100
_RETRY_MS = 20_000
_UNDER_WAY = 0.5


class Notes:
    """Posts what the scheduler wants to be said.

    What the tracker does not take is tried again. `on_second` is called with an issue that has more than one
    comment of a kind. `reads_back` is whether a comment that stands is looked for.
    """

    def __init__(
        self,
        clock: Clock,
        dice: Dice,
        tracker: Tracker,
        memory: Memory,
        crashes: Crashes,
        *,
        reads_back: bool = True,
    ) -> None:
        self.on_second: Callable[[str], None] | None = None
        self._clock = clock
        self._dice = dice
        self._tracker = tracker
        self._memory = memory
        self._crashes = crashes
        self._reads_back = reads_back
        self._known: dict[tuple[str, str], str] = {}
        self._wanted: dict[tuple[str, str], PostComment] = {}

    def begin(self) -> None:
        """A daemon begins with what its predecessor knew to stand there."""
        self._known = dict(self._memory.comments)

    def post(self, note: PostComment, lives: Callable[[], bool]) -> None:
        """Put a note on its issue; `lives` says whether the daemon that wanted it still does."""
        if self._known.get((note.issue.id, note.kind)) == _said(note):
            return
        self.sure(note, lives)

    def sure(self, note: PostComment, lives: Callable[[], bool]) -> None:
        """As `post`, whatever is known to stand there."""
        self._wanted[note.issue.id, note.kind] = note
        if not self._crashes.reach(FaultPoint.BEFORE_COMMENT):
            self._clock.after(_TAKES_MS, self._write, note, lives)

    def _write(self, note: PostComment, lives: Callable[[], bool]) -> None:
        self._known.pop((note.issue.id, note.kind), None)
        issue_id, key = note.issue.id, (note.issue.id, note.kind)
        if not lives() and self._dice.chance(_UNDER_WAY):
            return  # the request died with the daemon; else it was on its way
        if not self._tracker.comment(note, reads_back=self._reads_back):
            if lives() and self._wanted.get(key) is note:
                self._clock.after(_RETRY_MS, self._write, note, lives)
            return
        if (
            len(self._tracker.comments[issue_id, f"{note.kind} {note.occasion}"]) > 1
            and self.on_second is not None
        ):
            self.on_second(issue_id)
        if lives() and not self._crashes.reach(FaultPoint.AFTER_COMMENT):
            self._known[key] = _said(note)
            self._memory.commented(issue_id, note.kind, _said(note))


def _said(note: PostComment) -> str:
    return f"{note.occasion}\n{note.body}"
