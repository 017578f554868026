"""Who may watch the decisions: the protocol of everything that shows or remembers them."""

from typing import Protocol

from symphony.scheduler.commands import Command
from symphony.scheduler.inputs import Input
from symphony.scheduler.state import State

__all__ = ["Observer"]


class Observer(Protocol):
    """Sees every step after it was taken, one that failed as one that changed nothing; must not block."""

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """One step."""
        ...
