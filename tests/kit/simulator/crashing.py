"""Deaths of the simulated daemon: at a chosen point, the so-many-th time that it is reached."""

from collections import Counter
from collections.abc import Callable

from kit.simulator.crash_points import ALL_POINTS, RECOVERY_POINTS, CrashPoint
from kit.simulator.dice import Dice

__all__ = ["Crashes"]

_AGAIN = 0.3
_ANOTHER = 0.3
_ORDINALS = (1, 1, 1, 2, 3)


class Crashes:
    """Waits for a daemon to reach a point, and ends it there.

    `deaths` counts by point. A daemon that died is sometimes
    made to die once more while it recovers.
    """

    def __init__(self, dice: Dice) -> None:
        self.deaths: Counter[str] = Counter()
        self._die: Callable[[], None] | None = None
        self._dice = dice
        self._point: CrashPoint | None = None
        self._ordinal = 0

    def on_death(self, die: Callable[[], None]) -> None:
        """What ends the daemon, and has it brought back."""
        self._die = die

    def arm(self, point: CrashPoint | None = None, ordinal: int | None = None) -> None:
        """Let the daemon die at a point, or at one of chance; one that is waited for already mostly stays."""
        if point is None and self._point is not None and not self._dice.chance(_ANOTHER):
            return
        self._point = point or self._dice.pick(ALL_POINTS)
        self._ordinal = ordinal or self._dice.pick(_ORDINALS)

    def disarm(self) -> None:
        """Let it live."""
        self._point = None

    def reach(self, point: CrashPoint) -> bool:
        """The daemon is at a point; true if it died there, and must do nothing more."""
        if point is not self._point:
            return False
        self._ordinal -= 1
        if self._ordinal > 0 or self._die is None:
            return False
        self._point = None
        self.deaths[point] += 1
        if self._dice.chance(_AGAIN):
            self.arm(self._dice.pick(RECOVERY_POINTS), 1)
        self._die()
        return True
