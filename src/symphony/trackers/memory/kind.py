"""What the registry is told of the kind `memory`."""

from typing_extensions import override

from symphony.config.settings import TrackerSettings
from symphony.trackers.memory.records import issues_of
from symphony.trackers.memory.tracker import DEFAULT_ACTIVE, DEFAULT_TERMINAL, PROVIDER_KEYS, MemoryTracker
from symphony.trackers.registry import Place, States, TrackerKind

__all__ = ["KIND"]


class _MemoryKind(TrackerKind):
    provider_keys = PROVIDER_KEYS
    tools = ("memory_move",)

    @override
    def create(self, settings: TrackerSettings, place: Place) -> MemoryTracker:
        return MemoryTracker(issues_of(settings.provider))

    @override
    def states(self, settings: TrackerSettings, place: Place) -> States:
        issues_of(settings.provider)
        active, terminal = settings.active_states, settings.terminal_states
        return States(
            active=DEFAULT_ACTIVE if active is None else active,
            terminal=DEFAULT_TERMINAL if terminal is None else terminal,
        )


KIND = _MemoryKind()
