"""Which tracker kinds there are, and how one is made from `tracker` settings (TR7, TR10)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.domain.failures import Blame, Category, Failure
from symphony.trackers import memory
from symphony.trackers.base import Tracker, TrackerError
from symphony.trackers.markdown import PROVIDER_KEYS, BoardConfig, MarkdownTracker
from symphony.workflow.settings import TrackerSettings

if TYPE_CHECKING:
    from symphony.trackers.remote import RemoteKind

__all__ = ["SUPPORTED_KINDS", "create_tracker", "provider_keys", "remote_kind", "with_default_states"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a workflow stands: the directory of WORKFLOW.md, and the variables that `$NAME` may refer to."""

    base_dir: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One kind: how it is made, what its states are by default, which keys of `provider` it reads."""

    create: Callable[[TrackerSettings, _Place], Tracker]
    with_states: Callable[[TrackerSettings, _Place], TrackerSettings]
    provider_keys: tuple[str, ...]


def create_tracker(settings: TrackerSettings, *, base_dir: Path, environment: Mapping[str, str]) -> Tracker:
    """Make the adapter that `settings.kind` names.

    Args:
        settings: the section `tracker`.
        base_dir: the directory of WORKFLOW.md.
        environment: variables that `$NAME` may refer to, or that hold a credential.

    Raises:
        TrackerError: category `unsupported_tracker_kind`.
        TrackerConfigError: category `invalid_tracker_config`, with every key that does not fit.
    """
    return _known(settings.kind).create(settings, _Place(base_dir=base_dir, environment=environment))


def with_default_states(
    settings: TrackerSettings, *, base_dir: Path, environment: Mapping[str, str]
) -> TrackerSettings:
    """The settings with the kind's own active and terminal states where none are configured (CF).

    All settings of the tracker are judged on the way.

    Raises:
        TrackerError: as `create_tracker`.
    """
    return _known(settings.kind).with_states(settings, _Place(base_dir=base_dir, environment=environment))


def provider_keys(kind: str) -> tuple[str, ...]:
    """The keys of `tracker.provider` that the adapter of a kind reads; others are a typo (CF13).

    Raises:
        TrackerError: category `unsupported_tracker_kind`.
    """
    return _known(kind).provider_keys


def remote_kind(kind: str) -> "RemoteKind[Any]":
    """The adapter of a kind that is asked over HTTP. Raises `KeyError` for any other."""
    found: RemoteKind[Any] = import_module(_REMOTE[kind]).KIND
    return found


def _board(settings: TrackerSettings, place: _Place) -> BoardConfig:
    return BoardConfig.of(
        settings.provider,
        base_dir=place.base_dir,
        active=settings.active_states,
        terminal=settings.terminal_states,
    )


def _markdown(settings: TrackerSettings, place: _Place) -> Tracker:
    return MarkdownTracker(_board(settings, place))


def _markdown_states(settings: TrackerSettings, place: _Place) -> TrackerSettings:
    config = _board(settings, place)
    return replace(settings, active_states=config.active, terminal_states=config.terminal)


def _memory(settings: TrackerSettings, place: _Place) -> Tracker:
    del place
    return memory.MemoryTracker(memory.issues_of(settings.provider))


def _memory_states(settings: TrackerSettings, place: _Place) -> TrackerSettings:
    del place
    memory.issues_of(settings.provider)
    active = memory.DEFAULT_ACTIVE if settings.active_states is None else settings.active_states
    terminal = memory.DEFAULT_TERMINAL if settings.terminal_states is None else settings.terminal_states
    return replace(settings, active_states=active, terminal_states=terminal)


def _remote(kind: "RemoteKind[Any]") -> _Kind:
    def create(settings: TrackerSettings, place: _Place) -> Tracker:
        return kind.create(settings, place.environment)

    def with_states(settings: TrackerSettings, place: _Place) -> TrackerSettings:
        config = kind.configure(settings, place.environment)
        return replace(settings, active_states=config.active, terminal_states=config.terminal)

    return _Kind(create=create, with_states=with_states, provider_keys=kind.provider_keys)


_REMOTE: Mapping[str, str] = {
    "linear": "symphony.trackers.linear",
    "github": "symphony.trackers.github",
    "gitlab": "symphony.trackers.gitlab",
    "jira": "symphony.trackers.jira",
    "forgejo": "symphony.trackers.forgejo",
    "gitea": "symphony.trackers.forgejo.gitea",
    "asana": "symphony.trackers.asana",
    "redmine": "symphony.trackers.redmine",
}
"""Kinds that are asked over HTTP, and the packages whose `KIND` they are; one is loaded when it is used."""

_LOCAL: Mapping[str, _Kind] = {
    "markdown": _Kind(create=_markdown, with_states=_markdown_states, provider_keys=PROVIDER_KEYS),
    "memory": _Kind(create=_memory, with_states=_memory_states, provider_keys=memory.PROVIDER_KEYS),
}
SUPPORTED_KINDS = (*_LOCAL, *_REMOTE)


def _known(kind: str) -> _Kind:
    if kind in _LOCAL:
        return _LOCAL[kind]
    try:
        return _remote(remote_kind(kind))
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
