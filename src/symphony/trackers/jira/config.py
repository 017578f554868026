"""What `tracker` means for Jira Cloud; the keys of the reference, and `scope` (TR10)."""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.config.settings import TrackerSettings
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.raw_tools import Scope
from symphony.trackers.remote import Access

__all__ = ["PROVIDER_KEYS", "SECRET_NAMES", "JiraConfig", "read_config"]

PROVIDER_KEYS = ("base_url", "email", "api_token", "project_key", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"JIRA_API_TOKEN"})
_PROJECT = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_EMAIL = re.compile(r"[^\s:@\x00-\x1f]{1,200}@[^\s:@\x00-\x1f]{1,200}")
_GATEWAY = "/ex/jira/"


@dataclass(frozen=True, slots=True, kw_only=True)
class JiraConfig:
    """One project of a site.

    Attributes:
        project: its key, as it is written.
        pages: where people find issues, by key; null where the address is that of a gateway.
    """

    access: Access
    project: str
    pages: str | None
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> JiraConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("jira", settings.provider, environment)
    token = reader.secret("api_token", variable="JIRA_API_TOKEN")
    email = reader.needed("email", variable="JIRA_EMAIL", rule=_EMAIL, must="be an address of mail")
    base = reader.needed("base_url", variable="JIRA_BASE_URL")
    if base:
        base = reader.address("base_url", base, variable="JIRA_BASE_URL")
    pair = b64encode(f"{email}:{token}".encode()).decode("ascii")
    config = JiraConfig(
        access=Access(base=base, credential=token, headers={"authorization": f"Basic {pair}"}),
        project=reader.needed("project_key", rule=_PROJECT, must="be the key of a project, like PAY"),
        pages=None if _GATEWAY in base else f"{base}/browse/",
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=None),
        terminal=reader.states("terminal_states", settings.terminal_states, default=None),
    )
    reader.done()
    return config
