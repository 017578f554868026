"""The installed kinds of trackers, and how to make a tracker from the section `tracker`.

An entry point of the group `symphony.trackers` leads to a kind (docs/adapters.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from symphony.adapters import AdapterRegistry
from symphony.config import TrackerSettings, did_you_mean_one_of
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.trackers.base import Tracker, TrackerError
from symphony.trackers.webhooks import WebhookScheme

T = TypeVar("T")


class TrackerContext(Struct, frozen=True, kw_only=True):
    """What a kind needs besides its settings.

    Attributes:
        base_dir: the directory of WORKFLOW.md.
        environment: variables that `$NAME` refers to, or that contain a credential.
        deciding_labels: normalised labels, besides `skill:…`, that agents must not set or remove with tools.
    """

    base_dir: Path
    environment: Mapping[str, str]
    deciding_labels: frozenset[str] = frozenset()


class States(Struct, frozen=True, kw_only=True):
    """The states in which an issue is worked on, and those in which it is over."""

    active: tuple[str, ...]
    terminal: tuple[str, ...]


class TrackerKind(ABC):
    """A kind of tracker; an entry point leads to an object of a subclass.

    Attributes:
        provider_keys: the keys of `tracker.provider` that it reads; `symphony check` warns about others.
        secret_names: variables that may contain the credential if the file names none.
        tools: the tools that it can offer to a session; settings may remove some.
        webhooks: how the service signs webhooks; `None` without webhooks.
    """

    provider_keys: tuple[str, ...] = ()
    secret_names: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()
    webhooks: WebhookScheme | None = None

    @abstractmethod
    def create(self, settings: TrackerSettings, context: TrackerContext) -> Tracker:
        """Make the tracker, without a request to the service.

        Raises:
            TrackerConfigError: with every setting that does not fit.
        """

    @abstractmethod
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        """The states of the settings, or the defaults of the kind. Validates all settings.

        Raises:
            TrackerConfigError: with every setting that does not fit.
        """


def _kind_of_tracker(loaded: object) -> TrackerKind:
    if not isinstance(loaded, TrackerKind):
        raise TypeError(f"{type(loaded).__name__} is no symphony.trackers.registry.TrackerKind")
    return loaded


TRACKERS: Final = AdapterRegistry("symphony.trackers", label="tracker", check=_kind_of_tracker)


def tracker_kind(kind: str) -> TrackerKind:
    """A kind by its name.

    Raises:
        TrackerError: `unsupported_tracker_kind`: no package offers it.
        AdapterError: `broken_adapter`: its package cannot be loaded.
    """
    try:
        return TRACKERS.load(kind)
    except KeyError as error:
        raise TrackerError(
            Failure(
                category=Category.UNSUPPORTED_TRACKER_KIND,
                blame=Blame.CONFIG,
                message=f"tracker.kind: there is no tracker {kind[:80]!r}",
                retryable=False,
                hint=did_you_mean_one_of(kind, TRACKERS.names),
            )
        ) from error


def create_tracker(
    settings: TrackerSettings,
    *,
    base_dir: Path,
    environment: Mapping[str, str],
    deciding_labels: frozenset[str] = frozenset(),
) -> Tracker:
    """Make the tracker that `settings.kind` names.

    Args:
        settings: the section `tracker`.
        base_dir: the directory of WORKFLOW.md.
        environment: variables that `$NAME` refers to, or that contain a credential.
        deciding_labels: `Settings.deciding_labels`; only its tools need them.

    Raises:
        TrackerError: `unsupported_tracker_kind`.
        TrackerConfigError: `invalid_tracker_config`, with every key that does not fit.
        AdapterError: `broken_adapter`.
    """

    def create(kind: TrackerKind, context: TrackerContext) -> Tracker:
        tracker = kind.create(settings, context)
        if not isinstance(tracker, Tracker):
            raise TypeError(f"{type(tracker).__name__} is no symphony.trackers.base.Tracker")
        return tracker

    context = TrackerContext(base_dir=base_dir, environment=environment, deciding_labels=deciding_labels)
    return _ask_kind(create, settings, context, broken="makes no tracker")


def with_default_states(
    settings: TrackerSettings, *, base_dir: Path, environment: Mapping[str, str]
) -> TrackerSettings:
    """The settings, with the kind's active and terminal states if they name none.

    Raises:
        TrackerError: as `create_tracker`.
    """

    def states(kind: TrackerKind, context: TrackerContext) -> TrackerSettings:
        found = kind.states(settings, context)
        return settings.model_copy(update={"active_states": found.active, "terminal_states": found.terminal})

    context = TrackerContext(base_dir=base_dir, environment=environment)
    return _ask_kind(states, settings, context, broken="does not judge its settings")


def _ask_kind(
    ask: Callable[[TrackerKind, TrackerContext], T],
    settings: TrackerSettings,
    context: TrackerContext,
    *,
    broken: str,
) -> T:
    """Call a kind; an unexpected exception of another package's code becomes `broken_adapter`."""
    kind = tracker_kind(settings.kind)
    try:
        return ask(kind, context)
    except SymphonyError:
        raise
    except Exception as error:
        raise TRACKERS.broken(settings.kind, broken, error) from error
