"""What operators say to a running daemon: the verbs, said by somebody who looks at its state."""

from collections.abc import Sequence
from typing import Protocol

from kit.simulator.dice import Dice
from symphony.scheduler import Event, OperatorAction, OperatorAsked, State

__all__ = ["Orders"]


_VERBS = (
    OperatorAction.STOP,
    OperatorAction.RETRY,
    OperatorAction.UNBLOCK,
    OperatorAction.ANSWER,
    OperatorAction.ANSWER,
    OperatorAction.ANSWER,
    OperatorAction.PAUSE,
    OperatorAction.DRAIN,
)
_WORDS = ("the first one", "neither", "as you like")
_NONSENSE = 0.1


class Daemon(Protocol):
    """Whom orders are given to."""

    @property
    def state(self) -> State:
        """What it knows."""
        ...

    def tell(self, fact: Event) -> None:
        """Tell it something."""
        ...


class Orders:
    """Gives one order at a time; now and then one that makes no sense."""

    def __init__(self, dice: Dice, daemon: Daemon) -> None:
        self._dice = dice
        self._daemon = daemon

    def give(self) -> None:
        """Say one verb."""
        dice, state = self._dice, self._daemon.state
        if state.paused:
            self._say(OperatorAction.RESUME)
            return
        verb = dice.pick(_VERBS)
        match verb:
            case OperatorAction.STOP:
                self._say(verb, [*state.running, *state.retrying])
            case OperatorAction.RETRY:
                self._say(verb, [*state.retrying, *state.blocked])
            case OperatorAction.UNBLOCK | OperatorAction.ANSWER:
                self._say(verb, list(state.blocked))
            case _:
                self._say(verb)

    def _say(self, verb: OperatorAction, issues: Sequence[str] | None = None) -> None:
        dice = self._dice
        if issues is None:
            self._daemon.tell(OperatorAsked(action=verb))
            return
        known = sorted(issues)
        if not known and not dice.chance(_NONSENSE):
            return
        text = dice.pick(_WORDS) if verb is OperatorAction.ANSWER else None
        issue_id = dice.pick(known) if known else "nobody"
        self._daemon.tell(OperatorAsked(action=verb, issue_id=issue_id, text=text))
