"""What `tracker` means for Linear; the keys of the reference, and `scope` (TR10)."""

from collections.abc import Mapping
from dataclasses import dataclass

from symphony.config.settings import TrackerSettings
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.raw_tools import Scope
from symphony.trackers.remote import Access

__all__ = [
    "DEFAULT_ACTIVE",
    "DEFAULT_ENDPOINT",
    "DEFAULT_TERMINAL",
    "PROVIDER_KEYS",
    "SECRET_NAMES",
    "LinearConfig",
    "read_config",
]

PROVIDER_KEYS = ("endpoint", "api_key", "project_slug", "assignee", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"LINEAR_API_KEY"})
DEFAULT_ENDPOINT = "https://api.linear.app/graphql"
DEFAULT_ACTIVE = ("Todo", "In Progress")
DEFAULT_TERMINAL = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
_OAUTH = "lin_oauth_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearConfig:
    """One project of Linear.

    Attributes:
        project_slug: the last part of the project's address, or the id at its end.
        assignee: only issues of this user are dispatched: an id, or `me` for who the key belongs to.
        scope: what `linear_graphql` may reach; it cannot be narrowed, only left out.
    """

    access: Access
    project_slug: str
    assignee: str | None
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> LinearConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("linear", settings.provider, environment)
    key = reader.secret("api_key", variable="LINEAR_API_KEY")
    config = LinearConfig(
        access=Access(
            base=reader.address("endpoint", DEFAULT_ENDPOINT),
            credential=key,
            headers={"authorization": f"Bearer {key}" if key.startswith(_OAUTH) else key},
        ),
        project_slug=reader.needed("project_slug"),
        assignee=reader.text("assignee", variable="LINEAR_ASSIGNEE"),
        scope=Scope(reader.choice(SCOPE, (Scope.TOKEN, Scope.OFF), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=DEFAULT_ACTIVE),
        terminal=reader.states("terminal_states", settings.terminal_states, default=DEFAULT_TERMINAL),
    )
    reader.done()
    return config
