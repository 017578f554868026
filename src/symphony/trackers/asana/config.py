"""What `tracker` means for a project in Asana (CF3, TR7)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.config.settings import TrackerSettings
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.raw_tools import Scope
from symphony.trackers.remote import Access

__all__ = ["DEFAULT_ENDPOINT", "PROVIDER_KEYS", "SECRET_NAMES", "AsanaConfig", "read_config"]

PROVIDER_KEYS = ("endpoint", "api_key", "project_gid", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"ASANA_PAT"})
DEFAULT_ENDPOINT = "https://app.asana.com/api/1.0"
_GID = re.compile(r"[1-9]\d{0,30}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsanaConfig:
    """One project, by its gid."""

    access: Access
    project: str
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> AsanaConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("asana", settings.provider, environment)
    key = reader.secret("api_key", variable="ASANA_PAT")
    headers = {"authorization": f"Bearer {key}"}
    config = AsanaConfig(
        access=Access(base=reader.address("endpoint", DEFAULT_ENDPOINT), credential=key, headers=headers),
        project=reader.needed("project_gid", rule=_GID, must="be the number in the project's address"),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=None),
        terminal=reader.states("terminal_states", settings.terminal_states, default=None),
    )
    reader.done()
    return config
