"""What the registry is told of the kind `markdown`."""

from typing_extensions import override

from symphony.config.settings import TrackerSettings
from symphony.trackers.markdown.config import PROVIDER_KEYS, BoardConfig
from symphony.trackers.markdown.tracker import MarkdownTracker
from symphony.trackers.registry import Place, States, TrackerKind

__all__ = ["KIND"]


class _MarkdownKind(TrackerKind):
    provider_keys = PROVIDER_KEYS
    tools = ("board_show", "board_comment", "board_move")

    @override
    def create(self, settings: TrackerSettings, place: Place) -> MarkdownTracker:
        return MarkdownTracker(_config(settings, place))

    @override
    def states(self, settings: TrackerSettings, place: Place) -> States:
        config = _config(settings, place)
        return States(active=config.active, terminal=config.terminal)


def _config(settings: TrackerSettings, place: Place) -> BoardConfig:
    return BoardConfig.of(
        settings.provider,
        base_dir=place.base_dir,
        active=settings.active_states,
        terminal=settings.terminal_states,
    )


KIND = _MarkdownKind()
