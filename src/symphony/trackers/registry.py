"""Which tracker kinds there are, and how one is made from `tracker` settings (TR7, TR10)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from symphony.domain.failures import Blame, Category, Failure
from symphony.trackers import memory
from symphony.trackers.base import Tracker, TrackerError
from symphony.trackers.markdown import PROVIDER_KEYS, BoardConfig, MarkdownTracker
from symphony.workflow.settings import TrackerSettings

__all__ = ["SUPPORTED_KINDS", "create_tracker", "provider_keys", "with_default_states"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One kind: how it is made, what its states are by default, which keys of `provider` it reads."""

    create: Callable[[TrackerSettings, Path], Tracker]
    with_states: Callable[[TrackerSettings, Path], TrackerSettings]
    provider_keys: tuple[str, ...]


def create_tracker(settings: TrackerSettings, *, base_dir: Path) -> Tracker:
    """Make the adapter that `settings.kind` names; `base_dir` is the directory of WORKFLOW.md.

    Raises:
        TrackerError: category `unsupported_tracker_kind`.
        TrackerConfigError: category `invalid_tracker_config`, with every key that does not fit.
    """
    return _known(settings.kind).create(settings, base_dir)


def with_default_states(settings: TrackerSettings, *, base_dir: Path) -> TrackerSettings:
    """The settings with the kind's own active and terminal states where none are configured (CF).

    Raises:
        TrackerError: as `create_tracker`.
    """
    return _known(settings.kind).with_states(settings, base_dir)


def provider_keys(kind: str) -> tuple[str, ...]:
    """The keys of `tracker.provider` that the adapter of a kind reads; others are a typo (CF13).

    Raises:
        TrackerError: category `unsupported_tracker_kind`.
    """
    return _known(kind).provider_keys


def _board(settings: TrackerSettings, base_dir: Path) -> BoardConfig:
    return BoardConfig.of(
        settings.provider,
        base_dir=base_dir,
        active=settings.active_states,
        terminal=settings.terminal_states,
    )


def _markdown(settings: TrackerSettings, base_dir: Path) -> Tracker:
    return MarkdownTracker(_board(settings, base_dir))


def _markdown_states(settings: TrackerSettings, base_dir: Path) -> TrackerSettings:
    config = _board(settings, base_dir)
    return settings.model_copy(update={"active_states": config.active, "terminal_states": config.terminal})


def _memory(settings: TrackerSettings, base_dir: Path) -> Tracker:
    del base_dir
    return memory.MemoryTracker(memory.issues_of(settings.provider))


def _memory_states(settings: TrackerSettings, base_dir: Path) -> TrackerSettings:
    del base_dir
    memory.issues_of(settings.provider)
    active = memory.DEFAULT_ACTIVE if settings.active_states is None else settings.active_states
    terminal = memory.DEFAULT_TERMINAL if settings.terminal_states is None else settings.terminal_states
    return settings.model_copy(update={"active_states": active, "terminal_states": terminal})


_KINDS: Mapping[str, _Kind] = {
    "markdown": _Kind(create=_markdown, with_states=_markdown_states, provider_keys=PROVIDER_KEYS),
    "memory": _Kind(create=_memory, with_states=_memory_states, provider_keys=memory.PROVIDER_KEYS),
}
SUPPORTED_KINDS = tuple(_KINDS)


def _known(kind: str) -> _Kind:
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
