"""From `agent.kind` to a backend: the one place that knows which kinds exist (AG22)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from symphony.agents.base import AgentBackend, AgentError
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.codex.posture import Remark, refused_policy, unguarded
from symphony.domain.failures import Blame, Category, Failure
from symphony.hosts.base import Host
from symphony.workflow.settings import CodexSettings, Settings

__all__ = ["KINDS", "Remarks", "create_backend", "remarks"]

Factory = Callable[[Settings, Host, Mapping[str, str], frozenset[str]], AgentBackend]


def _codex(
    settings: Settings, host: Host, environ: Mapping[str, str], secret_names: frozenset[str]
) -> AgentBackend:
    return CodexBackend(settings=settings.codex, host=host, environ=environ, secret_names=secret_names)


_FACTORIES: Mapping[str, Factory] = {"codex": _codex}
KINDS = frozenset(_FACTORIES)


def create_backend(
    settings: Settings, *, host: Host, environ: Mapping[str, str], secret_names: frozenset[str] = frozenset()
) -> AgentBackend:
    """The backend for `agent.kind`; `secret_names` are variables that no agent may see (AG20).

    Raises:
        AgentError: `invalid_workflow_config` for a kind that does not exist.
    """
    factory = _FACTORIES.get(settings.agent.kind)
    if factory is None:
        failure = Failure(
            category=Category.INVALID_WORKFLOW_CONFIG,
            blame=Blame.CONFIG,
            message=f"agent.kind {settings.agent.kind!r} is not supported",
            retryable=False,
            hint=f"supported kinds: {', '.join(sorted(KINDS))}",
        )
        raise AgentError(failure)
    return factory(settings, host, environ, secret_names)


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
