"""From the kind of an agent to its backend: the one place that knows which kinds exist (AG22)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from symphony.agents.acp.backend import AcpBackend
from symphony.agents.base import AgentBackend, AgentError, Surroundings
from symphony.agents.claude.backend import ClaudeBackend
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.codex.posture import refused_policy, unguarded
from symphony.agents.enclosed import EnclosedBackend
from symphony.agents.posture import Remark
from symphony.domain.failures import Blame, Category, Failure
from symphony.workflow.agents import NamedAgent
from symphony.workflow.settings import AcpSettings, ClaudeSettings, CodexSettings

__all__ = ["KINDS", "Remarks", "create_backend", "remarks"]

Factory = Callable[[NamedAgent, Surroundings], AgentBackend]


def _codex(agent: NamedAgent, around: Surroundings) -> AgentBackend:
    assert isinstance(agent.settings, CodexSettings)  # noqa: S101 - settings are of the agent's kind
    return CodexBackend(settings=agent.settings, around=around, name=agent.name)


def _acp(agent: NamedAgent, around: Surroundings) -> AgentBackend:
    assert isinstance(agent.settings, AcpSettings)  # noqa: S101 - as above
    return AcpBackend(settings=agent.settings, around=around, name=agent.name)


def _claude(agent: NamedAgent, around: Surroundings) -> AgentBackend:
    assert isinstance(agent.settings, ClaudeSettings)  # noqa: S101 - as above
    return ClaudeBackend(settings=agent.settings, around=around, name=agent.name)


_FACTORIES: Mapping[str, Factory] = {"acp": _acp, "claude": _claude, "codex": _codex}
KINDS = frozenset(_FACTORIES)


def create_backend(agent: NamedAgent, around: Surroundings) -> AgentBackend:
    """The backend of an agent; makes nothing on disk.

    Raises:
        AgentError: `invalid_workflow_config` for a kind that does not exist.
    """
    factory = _FACTORIES.get(agent.kind)
    if factory is None:
        failure = Failure(
            category=Category.INVALID_WORKFLOW_CONFIG,
            blame=Blame.CONFIG,
            message=f"agent.kind {agent.kind!r} is not supported",
            retryable=False,
            hint=f"supported kinds: {', '.join(sorted(KINDS))}",
        )
        raise AgentError(failure)
    backend = factory(agent, around)
    return backend if around.isolation is None else EnclosedBackend(backend, around, around.isolation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remarks:
    """What a person should know about the settings of an agent before anything runs.

    `unguarded` says why sessions would run without a sandbox of ours, `doubtful` what the agent will probably
    refuse; each null where there is nothing to say.
    """

    unguarded: Remark | None
    doubtful: Remark | None


def remarks(settings: CodexSettings) -> Remarks:
    """Judge the section of an agent; pure."""
    return Remarks(unguarded=unguarded(settings), doubtful=refused_policy(settings))
