"""From the kind of an agent to its backend: the one place that knows which kinds exist (AG22).

A kind is loaded when a workflow names it: most workflows name one, and loading all of them takes a tenth of
the time until the first agent lives.
"""

from importlib import import_module
from typing import Final

from symphony.agents.base import AgentBackend, AgentError, Surroundings
from symphony.agents.enclosed import EnclosedBackend
from symphony.agents.kinds import Kind, Program, Remarks
from symphony.domain.failures import Blame, Category, Failure
from symphony.workflow.agents import NamedAgent

__all__ = ["KINDS", "Program", "Remarks", "create_backend", "program", "remarks"]

KINDS: Final = frozenset({"acp", "claude", "codex", "command"})


def create_backend(agent: NamedAgent, around: Surroundings) -> AgentBackend:
    """The backend of an agent; makes nothing on disk.

    Raises:
        AgentError: `invalid_workflow_config` for a kind that does not exist.
    """
    if agent.kind not in KINDS:
        failure = Failure(
            category=Category.INVALID_WORKFLOW_CONFIG,
            blame=Blame.CONFIG,
            message=f"agent.kind {agent.kind!r} is not supported",
            retryable=False,
            hint=f"supported kinds: {', '.join(sorted(KINDS))}",
        )
        raise AgentError(failure)
    backend = _kind(agent).make(agent.settings, around, agent.name)
    return backend if around.isolation is None else EnclosedBackend(backend, around, around.isolation)


def remarks(agent: NamedAgent, *, isolated: bool) -> Remarks:
    """Judge the settings of an agent, of a kind that exists; pure."""
    return _kind(agent).judge(agent.settings, isolated)


def program(agent: NamedAgent) -> Program | None:
    """What an agent of a kind that exists would start; null where only the agent itself could tell."""
    return _kind(agent).program(agent.settings, agent.section)


def _kind(agent: NamedAgent) -> Kind:
    """What there is to know of the kind, which exists."""
    found: Kind = import_module(f"symphony.agents.{agent.kind}.kind").KIND
    return found
