"""Agent kinds by name, found through the entry points of the group `symphony.agents` (docs/adapters.md)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from typing_extensions import override

from symphony.adapters import AdapterRegistry
from symphony.agents.base import AgentBackend, AgentError, BackendContext, Capabilities, SettingIssues
from symphony.agents.preflight import IsolatedBackend
from symphony.config import AGENT_SECTIONS, AgentKinds, AgentSection, NamedAgent, did_you_mean_one_of
from symphony.domain import Blame, Category, Failure, SymphonyError


def _backend_class(found: object) -> type[AgentBackend]:
    if not (isinstance(found, type) and issubclass(found, AgentBackend)):
        raise TypeError(f"{found!r:.80} is no subclass of symphony.agents.base.AgentBackend")
    if not issubclass(getattr(found, "settings_type", object), AgentSection):
        raise TypeError(f"{found.__name__}.settings_type is no subclass of AgentSection")
    if not isinstance(getattr(found, "capabilities", None), Capabilities):
        raise TypeError(f"{found.__name__}.capabilities is no Capabilities")
    found.settings_type()  # raises unless every key has a default: a named agent may set any of them
    return found


AGENTS: Final = AdapterRegistry("symphony.agents", label="agent", check=_backend_class)


def agent_kind(kind: str) -> type[AgentBackend]:
    """Return the backend class of a kind.

    Raises:
        AgentError: `invalid_workflow_config`: no package offers it.
        AdapterError: `broken_adapter`: its package cannot be loaded.
    """
    try:
        return AGENTS.load(kind)
    except KeyError as error:
        failure = Failure(
            category=Category.INVALID_WORKFLOW_CONFIG,
            blame=Blame.CONFIG,
            message=f"agent.kind {kind[:80]!r} is not supported",
            retryable=False,
            hint=did_you_mean_one_of(kind, AGENTS.names),
        )
        raise AgentError(failure) from error


class _Sections(Mapping[str, type[AgentSection]]):
    """The settings models of all kinds; looking one up loads the package of its kind."""

    @override
    def __getitem__(self, kind: str) -> type[AgentSection]:
        if kind in AGENT_SECTIONS:
            return AGENT_SECTIONS[kind]
        return agent_kind(kind).settings_type

    @override
    def __contains__(self, kind: object) -> bool:
        return kind in AGENTS.names

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(AGENTS.names)

    @override
    def __len__(self) -> int:
        return len(AGENTS.names)


SECTIONS: Final[AgentKinds] = _Sections()


def check_settings(agent: NamedAgent, *, isolated: bool) -> SettingIssues:
    """Check the settings of an agent; `isolated` says that `workspace.isolation` confines its sessions.

    Raises:
        SymphonyError: as `agent_kind`, or the check of an external package raises.
    """
    try:
        return agent_kind(agent.kind).check_settings(agent.settings, isolated=isolated)
    except SymphonyError:
        raise
    except Exception as error:
        raise AGENTS.broken(agent.kind, "does not check its settings", error) from error


def skill_places(agents: Iterable[NamedAgent]) -> frozenset[str]:
    """The directories of a workspace whose skills every one of these agents lists by itself."""
    places = [frozenset(agent_kind(one.kind).skill_places(one.settings)) for one in agents]
    return frozenset.intersection(*places) if places else frozenset()


def create_backend(agent: NamedAgent, context: BackendContext) -> AgentBackend:
    """Make the backend of an agent; writes nothing to the disk.

    Raises:
        SymphonyError: as `agent_kind`, or the backend refuses its settings.
    """
    kind = agent_kind(agent.kind)
    try:
        backend = kind(settings=agent.settings, context=context, name=agent.name)
    except SymphonyError:
        raise
    except Exception as error:
        raise AGENTS.broken(agent.kind, "makes no backend", error) from error
    return backend if context.isolation is None else IsolatedBackend(backend, context, context.isolation)
