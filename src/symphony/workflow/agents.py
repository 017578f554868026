"""The agents of a workflow by name: the four kinds, and what `agents` calls by names of its own (DESIGN 11).

A kind is a name too: its settings are its section. A named agent has the section of its kind as defaults, and
its own keys over them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from symphony.workflow.engine import names_of, typed
from symphony.workflow.settings import (
    AcpSettings,
    AgentSettings,
    ClaudeSettings,
    CodexSettings,
    CommandSettings,
    Settings,
)

__all__ = [
    "AGENT_KINDS",
    "AgentSection",
    "NamedAgent",
    "agents_in_use",
    "asked_for",
    "named_agent",
    "named_agents",
]

AgentSection = CodexSettings | ClaudeSettings | AcpSettings | CommandSettings

AGENT_KINDS: Final[Mapping[str, type[AgentSection]]] = {
    "codex": CodexSettings,
    "claude": ClaudeSettings,
    "acp": AcpSettings,
    "command": CommandSettings,
}
"""Kinds of agents, and the section that holds the settings of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAgent:
    """One agent that an issue may be given to; `settings` are of its `kind`, and `own` names its own keys."""

    name: str
    kind: str
    settings: AgentSection
    own: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def section(self) -> str:
        """Where its keys are written: `codex`, or `agents.fast`."""
        return self.name if self.name == self.kind else f"agents.{self.name}"


def named_agent(name: str, values: Mapping[str, Any], base: AgentSection) -> NamedAgent:
    """One of `agents`: its own values over those of its kind's section.

    Raises:
        pydantic_core.ValidationError: a value is wrong, which the review of the file tells before.
    """
    judged = typed(type(base), values)
    own = {key: getattr(judged, key) for key in names_of(type(base)) if key in values}
    return NamedAgent(name=name, kind=values["kind"], settings=replace(base, **own), own=frozenset(own))


def named_agents(settings: Settings) -> Mapping[str, NamedAgent]:
    """All agents that a workflow knows, the kinds among them, by name.

    Raises:
        pydantic_core.ValidationError: as `named_agent`.
    """
    kinds = {kind: NamedAgent(name=kind, kind=kind, settings=getattr(settings, kind)) for kind in AGENT_KINDS}
    named = {
        name: named_agent(name, values, kinds[values["kind"]].settings)
        for name, values in settings.agents.items()
    }
    return {**kinds, **named}


def asked_for(agent: AgentSettings) -> tuple[str, ...]:
    """The names of those that some issue may be given to: the default first, once each."""

    def names() -> Iterator[str | None]:
        yield from (agent.kind, agent.fallback)
        for rule in agent.rules:
            yield from (rule.use, rule.fallback)

    return tuple(dict.fromkeys(name for name in names() if name is not None))


def agents_in_use(settings: Settings) -> Mapping[str, NamedAgent]:
    """Those that some issue may be given to, by name: the default, the ones of rules, and every fallback."""
    known = named_agents(settings)
    return {name: known[name] for name in asked_for(settings.agent)}
