"""A story that observers watch, as they watch the daemon."""

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from harness.scheduling import Story
from symphony.domain import Issue
from symphony.scheduler import Command, Event, State

__all__ = ["ObservedStory"]


class ObservedStory(Story):
    """A `Story` of which `observer` sees every step."""

    def __init__(
        self,
        observer: Callable[[State, Event, State, tuple[Command, ...]], None],
        *issues: Issue,
        **settings: Any,
    ) -> None:
        super().__init__(*issues, **settings)
        self._observer = observer

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self._observer(before, fact, self.state, commands)
        return commands
