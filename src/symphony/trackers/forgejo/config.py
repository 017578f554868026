"""What `tracker` means for a repository on Forgejo or Gitea (CF3, TR7)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from symphony.config.settings import TrackerSettings
from symphony.domain.issue import normalise_state
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.raw_tools import Scope
from symphony.trackers.remote import Access
from symphony.trackers.repository import REPOSITORY
from symphony.trackers.status_labels import CLOSED, OPEN, StatusLabels

__all__ = ["FORGEJO", "GITEA", "PROVIDER_KEYS", "Brand", "ForgejoConfig", "Source", "reader_of"]

PROVIDER_KEYS = ("url", "repo", "token", "states", SCOPE, INSECURE_HTTP)
API = "/api/v1"
SCOPED_PREFIX = "status/"
"""Labels with a slash can exclude each other, and then the server itself keeps one state per issue."""
_PART_KEYS = frozenset({"source", "prefix", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Brand:
    """One of the names of the adapter; `short` begins the identifiers of its issues."""

    kind: str
    service: str
    short: str
    url_variable: str
    token_variable: str


FORGEJO = Brand(
    kind="forgejo",
    service="Forgejo",
    short="FJ",
    url_variable="FORGEJO_URL",
    token_variable="FORGEJO_TOKEN",  # noqa: S106 - the name of a variable
)
GITEA = Brand(
    kind="gitea",
    service="Gitea",
    short="GT",
    url_variable="GITEA_URL",
    token_variable="GITEA_TOKEN",  # noqa: S106 - as above
)


class Source(StrEnum):
    """Where the state of an issue is read."""

    ISSUE = "issue"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgejoConfig:
    """One repository; `labels` are those that stand for states, where they are the source."""

    brand: Brand
    access: Access
    owner: str
    repo: str
    source: Source
    labels: StatusLabels
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]

    @property
    def path(self) -> str:
        """The repository's path below the base address."""
        return f"/repos/{self.owner}/{self.repo}"


def reader_of(brand: Brand) -> Callable[[TrackerSettings, Mapping[str, str]], ForgejoConfig]:
    """What reads the settings; it raises `TrackerConfigError` with everything that does not fit."""

    def read(settings: TrackerSettings, environment: Mapping[str, str]) -> ForgejoConfig:
        reader = ProviderReader(brand.kind, settings.provider, environment)
        config = _read(reader, brand, settings)
        reader.done()
        return config

    return read


def _read(reader: ProviderReader, brand: Brand, settings: TrackerSettings) -> ForgejoConfig:
    token = reader.secret("token", variable=brand.token_variable)
    repo = reader.needed("repo", rule=REPOSITORY, must="be owner/name")
    owner, _, name = repo.partition("/")
    if {owner, name} & {".", ".."}:
        reader.wrong("repo", "must be owner/name")
    active = reader.states("active_states", settings.active_states, default=None)
    terminal = reader.states("terminal_states", settings.terminal_states, default=None)
    resting = () if settings.on_block is None else (settings.on_block,)
    part = reader.part("states")
    source = _source(reader, part)
    if source is Source.ISSUE:
        _only_own_states(reader, active_states=active, terminal_states=terminal, on_block=resting)
    headers = {"authorization": f"token {token}"}
    return ForgejoConfig(
        brand=brand,
        access=Access(base=_base(reader, brand), credential=token, headers=headers),
        owner=owner,
        repo=name,
        source=source,
        labels=StatusLabels.of(
            reader,
            part,
            (*active, *terminal, *resting),
            default_prefix=SCOPED_PREFIX,
        ),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=active,
        terminal=terminal,
    )


def _base(reader: ProviderReader, brand: Brand) -> str:
    """The address of the API: what people paste is that of the site."""
    if reader.text("url", variable=brand.url_variable) is None:
        hint = f"the address of the site, like https://git.example.org; or the variable {brand.url_variable}"
        reader.wrong("url", "is required", hint=hint)
        return f"https://localhost{API}"
    return reader.address("url", "https://localhost", variable=brand.url_variable).removesuffix(API) + API


def _source(reader: ProviderReader, part: Mapping[str, Any]) -> Source:
    for key in sorted(str(key) for key in part if key not in _PART_KEYS):
        reader.wrong(
            "states", f"has an unknown key {key[:80]!r}", hint=f"keys: {', '.join(sorted(_PART_KEYS))}"
        )
    value = part.get("source", Source.ISSUE)
    if value in tuple(Source):
        return Source(value)
    reader.wrong("states", f"needs a source: {', '.join(Source)}")
    return Source.LABELS


def _only_own_states(reader: ProviderReader, **named: tuple[str, ...]) -> None:
    for key, names in named.items():
        for name in names:
            if normalise_state(name) not in {OPEN, CLOSED}:
                reader.wrong_at(
                    ("tracker", key),
                    f"names {name!r}, and an issue is open or closed",
                    hint="set tracker.provider.states to {source: labels}",
                )
