"""What `tracker` means for GitLab; the keys of the reference, and some of ours (TR10)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from symphony.config.settings import TrackerSettings
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.raw_tools import Scope
from symphony.trackers.remote import Access
from symphony.trackers.status_labels import CLOSED, StatusLabels

__all__ = [
    "DEFAULT_API_URL",
    "OPENED",
    "PROVIDER_KEYS",
    "SECRET_NAMES",
    "GitlabConfig",
    "Source",
    "read_config",
]

PROVIDER_KEYS = ("project_path", "api_key", "api_url", "states", "wait_for_blockers", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"GITLAB_PAT", "GITLAB_ACCESS_TOKEN"})
DEFAULT_API_URL = "https://gitlab.com/api/v4"
DEFAULT_PREFIX = "workflow::"
OPENED = "opened"
_STATE_KEYS = ("labels", "prefix", "source")
_PROJECT = re.compile(r"[\w.+-]{1,255}(?:/[\w.+-]{1,255}){1,20}")


class Source(StrEnum):
    """Where the state of an issue is read."""

    ISSUE = "issue"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitlabConfig:
    """One project.

    Attributes:
        project: its full path, groups included.
        graphql: the address of the GraphQL API, on the host of the REST API.
        labels: the labels that stand for states, where they are the source.
        wait_for_blockers: an issue that others block is held back.
    """

    access: Access
    project: str
    graphql: str
    source: Source
    labels: StatusLabels
    wait_for_blockers: bool
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]

    @property
    def path(self) -> str:
        """The project's path below the base address."""
        return f"/projects/{quote(self.project, safe='')}"


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> GitlabConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("gitlab", settings.provider, environment)
    token = reader.secret("api_key", variable="GITLAB_PAT")
    base = reader.address("api_url", DEFAULT_API_URL)
    project = reader.needed(
        "project_path", variable="GITLAB_PROJECT_PATH", rule=_PROJECT, must="be group/project"
    )
    if {".", ".."} & set(project.split("/")):
        reader.wrong("project_path", "must be group/project")
    active = reader.states("active_states", settings.active_states, default=None)
    terminal = reader.states("terminal_states", settings.terminal_states, default=None)
    resting = () if settings.on_block is None else (settings.on_block,)
    states = reader.part("states")
    source = _source(reader, states)
    if source is Source.ISSUE:
        _only_own_states(reader, active_states=active, terminal_states=terminal, on_block=resting)
    config = GitlabConfig(
        access=Access(base=base, credential=token, headers={"authorization": f"Bearer {token}"}),
        project=project,
        graphql=f"{base.removesuffix('/v4')}/graphql",
        source=source,
        labels=_labels(reader, states, (*active, *terminal, *resting)),
        wait_for_blockers=reader.flag("wait_for_blockers", default=False),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=active,
        terminal=terminal,
    )
    reader.done()
    return config


def _source(reader: ProviderReader, states: Mapping[str, Any]) -> Source:
    for key in sorted(str(key) for key in states if key not in _STATE_KEYS):
        reader.wrong("states", f"has an unknown key {key[:80]!r}", hint=f"keys: {', '.join(_STATE_KEYS)}")
    value = states.get("source", Source.ISSUE)
    if value in tuple(Source):
        return Source(value)
    reader.wrong("states", f"needs a source: {', '.join(Source)}")
    return Source.LABELS


def _labels(reader: ProviderReader, states: Mapping[str, Any], names: tuple[str, ...]) -> StatusLabels:
    labels = StatusLabels.of(reader, states, names, default_prefix=DEFAULT_PREFIX, opened=OPENED)
    if any("," in label for label in labels.by_state.values()):
        reader.wrong("states", "has a label with a comma, which GitLab takes for two labels")
    return labels


def _only_own_states(reader: ProviderReader, **named: tuple[str, ...]) -> None:
    for key, names in named.items():
        for name in names:
            if name.lower() not in {OPENED, CLOSED}:
                reader.wrong_at(
                    ("tracker", key),
                    f"names {name!r}, and an issue is opened or closed",
                    hint="set tracker.provider.states to {source: labels}",
                )
