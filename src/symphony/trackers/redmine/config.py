"""What `tracker` means for Redmine (TR10)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.config.settings import TrackerSettings
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.raw_tools import Scope
from symphony.trackers.remote import Access

__all__ = ["PROVIDER_KEYS", "SECRET_NAMES", "RedmineConfig", "read_config"]

PROVIDER_KEYS = ("base_url", "api_key", "project", "subprojects", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"REDMINE_API_KEY"})
_PROJECT = re.compile(r"[a-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedmineConfig:
    """One project; `subprojects` says whether the issues of its subprojects are in scope too."""

    access: Access
    project: str
    subprojects: bool
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> RedmineConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("redmine", settings.provider, environment)
    key = reader.secret("api_key", variable="REDMINE_API_KEY")
    config = RedmineConfig(
        access=Access(base=_address(reader), credential=key, headers={"x-redmine-api-key": key}),
        project=reader.needed(
            "project",
            variable="REDMINE_PROJECT",
            rule=_PROJECT,
            must="be the identifier that stands in the project's address",
        ),
        subprojects=reader.flag("subprojects", default=False),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=None),
        terminal=reader.states("terminal_states", settings.terminal_states, default=None),
    )
    reader.done()
    return config


def _address(reader: ProviderReader) -> str:
    """Where Redmine is; there is no place that would do for everybody."""
    if not reader.needed("base_url", variable="REDMINE_URL"):
        return ""
    return reader.address("base_url", "", variable="REDMINE_URL")
