"""What `tracker` means for GitHub; the keys of the reference, `states` and `scope` (TR10)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from symphony.config.settings import TrackerSettings
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.raw_tools import Scope
from symphony.trackers.remote import Access
from symphony.trackers.repository import REPOSITORY
from symphony.trackers.status_labels import StatusLabels

__all__ = [
    "DEFAULT_API_URL",
    "PROVIDER_KEYS",
    "SECRET_NAMES",
    "GithubConfig",
    "Project",
    "Source",
    "read_config",
]

PROVIDER_KEYS = ("repo", "token", "api_url", "states", "wait_for_sub_issues", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"GITHUB_TOKEN"})
DEFAULT_API_URL = "https://api.github.com"
DEFAULT_FIELD = "Status"
_API_VERSION = "2022-11-28"
_OWN_STATES = frozenset({"open", "closed"})


class Source(StrEnum):
    """Where the state of an issue is read."""

    ISSUE = "issue"
    LABELS = "labels"
    PROJECT = "project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project (of the second version) whose field holds the state: whose, which number, which field."""

    owner: str
    number: int
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GithubConfig:
    """One repository.

    Attributes:
        graphql: the address of the GraphQL API, on the host of the REST API.
        labels: the labels that stand for states, where they are the source.
        wait_for_sub_issues: an issue with open sub-issues is held back.
    """

    access: Access
    owner: str
    repo: str
    graphql: str
    source: Source
    labels: StatusLabels
    project: Project | None
    wait_for_sub_issues: bool
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]

    @property
    def path(self) -> str:
        """The repository's path below the base address."""
        return f"/repos/{self.owner}/{self.repo}"


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> GithubConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("github", settings.provider, environment)
    token = reader.secret("token", variable="GITHUB_TOKEN")
    base = reader.address("api_url", DEFAULT_API_URL)
    repo = reader.needed("repo", variable="GITHUB_REPO", rule=REPOSITORY, must="be owner/name")
    owner, _, name = repo.partition("/")
    if {owner, name} & {".", ".."}:
        reader.wrong("repo", "must be owner/name")
    active = reader.states("active_states", settings.active_states, default=None)
    terminal = reader.states("terminal_states", settings.terminal_states, default=None)
    resting = () if settings.on_block is None else (settings.on_block,)
    states = reader.part("states")
    source = _source(reader, states)
    if source is Source.ISSUE:
        _only_own_states(reader, active_states=active, terminal_states=terminal, on_block=resting)
    project = _project(reader, states, owner) if source is Source.PROJECT else None
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/vnd.github+json",
        "x-github-api-version": _API_VERSION,
    }
    config = GithubConfig(
        access=Access(base=base, credential=token, headers=headers),
        owner=owner,
        repo=name,
        graphql=_graphql(base),
        source=source,
        labels=StatusLabels.of(reader, states, (*active, *terminal, *resting)),
        project=project,
        wait_for_sub_issues=reader.flag("wait_for_sub_issues", default=False),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=active,
        terminal=terminal,
    )
    reader.done()
    return config


def _source(reader: ProviderReader, states: Mapping[str, Any]) -> Source:
    known = {"source", "prefix", "labels", "project", "owner", "field"}
    for key in sorted(str(key) for key in states if key not in known):
        reader.wrong("states", f"has an unknown key {key[:80]!r}", hint=f"keys: {', '.join(sorted(known))}")
    value = states.get("source", Source.ISSUE)
    if value in tuple(Source):
        return Source(value)
    reader.wrong("states", f"needs a source: {', '.join(Source)}")
    return Source.LABELS


def _only_own_states(reader: ProviderReader, **named: tuple[str, ...]) -> None:
    for key, names in named.items():
        for name in names:
            if name.lower() not in _OWN_STATES:
                reader.wrong_at(
                    ("tracker", key),
                    f"names {name!r}, and an issue is open or closed",
                    hint="set tracker.provider.states to {source: labels} or {source: project}",
                )


def _project(reader: ProviderReader, states: Mapping[str, Any], owner: str) -> Project | None:
    number = states.get("project")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        reader.wrong("states", "needs `project`, the number in the project's address")
        return None
    return Project(
        owner=_named(reader, states, "owner", owner),
        number=number,
        field=_named(reader, states, "field", DEFAULT_FIELD),
    )


def _named(reader: ProviderReader, states: Mapping[str, Any], key: str, default: str) -> str:
    value = states.get(key, default)
    if isinstance(value, str) and value.strip():
        return value.strip()
    reader.wrong("states", f"needs `{key}` to be a text")
    return default


def _graphql(base: str) -> str:
    """`/graphql` beside the REST API: GitHub Enterprise Server has `/api/v3` and `/api/graphql`."""
    parts = urlsplit(base)
    path = parts.path.removesuffix("/v3") if parts.path.endswith("/api/v3") else parts.path
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/graphql", "", ""))
