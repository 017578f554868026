"""Which kinds of trackers are installed, and how one is made from `tracker` settings (TR7, TR10).

A kind is what an entry point of the group `symphony.trackers` leads to (docs/adapters.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from symphony.adapters import AdapterRegistry
from symphony.config import TrackerSettings, did_you_mean_one_of
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.trackers.base import Tracker, TrackerError
from symphony.trackers.webhooks import WebhookScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerContext:
    """Where a workflow stands.

    Attributes:
        base_dir: the directory of WORKFLOW.md.
        environment: variables that `$NAME` may refer to, or that hold a credential.
    """

    base_dir: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The states in which an issue is worked on, and those in which it is over."""

    active: tuple[str, ...]
    terminal: tuple[str, ...]


class TrackerKind(ABC):
    """One kind of tracker; an entry point leads to an object of a subclass.

    Attributes:
        provider_keys: the keys of `tracker.provider` that are read; any other is told to be a typo (CF13).
        secret_names: variables that may hold the credential where the file names none.
        tools: the tools that it can offer to a session; settings may take some away.
        webhooks: how the service sends and signs; `None` for one that is only polled.
    """

    provider_keys: tuple[str, ...] = ()
    secret_names: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()
    webhooks: WebhookScheme | None = None

    @abstractmethod
    def create(self, settings: TrackerSettings, context: TrackerContext) -> Tracker:
        """Make the tracker; asks nothing of the service.

        Raises:
            TrackerConfigError: with every setting that does not fit.
        """

    @abstractmethod
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        """The states of the settings, or the kind's own where none are set; judges all settings.

        Raises:
            TrackerConfigError: with every setting that does not fit.
        """


def _kind_of_tracker(found: object) -> TrackerKind:
    if not isinstance(found, TrackerKind):
        raise TypeError(f"{type(found).__name__} is no symphony.trackers.registry.TrackerKind")
    return found


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


def create_tracker(settings: TrackerSettings, *, base_dir: Path, environment: Mapping[str, str]) -> Tracker:
    """Make the adapter that `settings.kind` names.

    Args:
        settings: the section `tracker`.
        base_dir: the directory of WORKFLOW.md.
        environment: variables that `$NAME` may refer to, or that hold a credential.

    Raises:
        TrackerError: `unsupported_tracker_kind`.
        TrackerConfigError: `invalid_tracker_config`, with every key that does not fit.
        AdapterError: `broken_adapter`.
    """
    kind, context = tracker_kind(settings.kind), TrackerContext(base_dir=base_dir, environment=environment)
    try:
        made = kind.create(settings, context)
        if not isinstance(made, Tracker):
            raise TypeError(f"{type(made).__name__} is no symphony.trackers.base.Tracker")  # noqa: TRY301 - told below, as any fault of an adapter is
    except SymphonyError:
        raise
    except Exception as error:
        raise TRACKERS.broken(settings.kind, "makes no tracker", error) from error
    return made


def with_default_states(
    settings: TrackerSettings, *, base_dir: Path, environment: Mapping[str, str]
) -> TrackerSettings:
    """The settings with the kind's own active and terminal states where none are configured (CF).

    All settings of the tracker are judged on the way.

    Raises:
        TrackerError: as `create_tracker`.
    """
    kind, context = tracker_kind(settings.kind), TrackerContext(base_dir=base_dir, environment=environment)
    try:
        states = kind.states(settings, context)
        return settings.model_copy(
            update={"active_states": states.active, "terminal_states": states.terminal}
        )
    except SymphonyError:
        raise
    except Exception as error:
        raise TRACKERS.broken(settings.kind, "does not judge its settings", error) from error
