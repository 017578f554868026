"""Which tracker kinds there are, and how one is made from `tracker` settings (TR7, TR10)."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import structlog

from symphony.domain.failures import Blame, Category, Failure
from symphony.trackers.base import Tracker, TrackerError
from symphony.trackers.markdown import PROVIDER_KEYS, BoardConfig, MarkdownTracker
from symphony.workflow.settings import TrackerSettings

__all__ = ["SUPPORTED_KINDS", "create_tracker", "with_default_states"]

_LOG = structlog.get_logger(__name__)

Factory = Callable[[TrackerSettings, Path], Tracker]
StateDefaults = Callable[[TrackerSettings, Path], TrackerSettings]


def create_tracker(settings: TrackerSettings, *, base_dir: Path) -> Tracker:
    """Make the adapter that `settings.kind` names; `base_dir` is the directory of WORKFLOW.md.

    Raises:
        TrackerError: category `unsupported_tracker_kind`, or `invalid_tracker_config` with the key.
    """
    return _known(settings.kind)[0](settings, base_dir)


def with_default_states(settings: TrackerSettings, *, base_dir: Path) -> TrackerSettings:
    """The settings with the kind's own active and terminal states where none are configured (CF).

    Raises:
        TrackerError: as `create_tracker`.
    """
    return _known(settings.kind)[1](settings, base_dir)


def _board(settings: TrackerSettings, base_dir: Path) -> BoardConfig:
    return BoardConfig.of(
        settings.provider,
        base_dir=base_dir,
        active=settings.active_states,
        terminal=settings.terminal_states,
    )


def _markdown(settings: TrackerSettings, base_dir: Path) -> Tracker:
    _warn_unknown(settings, PROVIDER_KEYS)
    return MarkdownTracker(_board(settings, base_dir))


def _markdown_states(settings: TrackerSettings, base_dir: Path) -> TrackerSettings:
    config = _board(settings, base_dir)
    return settings.model_copy(update={"active_states": config.active, "terminal_states": config.terminal})


def _warn_unknown(settings: TrackerSettings, known: Collection[str]) -> None:
    """Say which provider keys nobody reads: a typo stops nothing, but should not go unseen (CF13)."""
    for key in sorted(str(key) for key in settings.provider if key not in known):
        _LOG.warning("unknown_tracker_key", key=f"tracker.provider.{key}", known=sorted(known))


_KINDS: Mapping[str, tuple[Factory, StateDefaults]] = {"markdown": (_markdown, _markdown_states)}
SUPPORTED_KINDS = tuple(_KINDS)


def _known(kind: str) -> tuple[Factory, StateDefaults]:
    try:
        return _KINDS[kind]
    except KeyError as error:
        raise TrackerError(
            Failure(
                category=Category.UNSUPPORTED_TRACKER_KIND,
                blame=Blame.CONFIG,
                message=f"tracker.kind: there is no tracker {kind[:80]!r}",
                retryable=False,
                hint=f"supported kinds: {', '.join(SUPPORTED_KINDS)}",
            )
        ) from error
