"""The agents of a workflow by name: the four kinds, and what `agents` calls by names of its own (DESIGN 11).

A kind is a name too: its settings are its section. A named agent has the section of its kind as defaults, and
its own keys over them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from symphony.workflow.settings import AcpSettings, ClaudeSettings, CodexSettings, CommandSettings, Settings

__all__ = ["AGENT_KINDS", "AgentSection", "NamedAgent", "agents_in_use", "named_agents"]

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
    """One agent that an issue may be given to; `settings` are of its `kind`."""

    name: str
    kind: str
    settings: AgentSection


def named_agents(settings: Settings) -> Mapping[str, NamedAgent]:
    """All agents that a workflow knows, the kinds among them, by name.

    Raises:
        pydantic.ValidationError: a named agent is wrong, which the review of the file tells before.
    """
    kinds = {kind: NamedAgent(name=kind, kind=kind, settings=getattr(settings, kind)) for kind in AGENT_KINDS}
    named: dict[str, NamedAgent] = {}
    for name, values in settings.agents.items():
        base = kinds[values["kind"]]
        own = {key: value for key, value in values.items() if key != "kind"}
        merged = {**base.settings.model_dump(exclude_unset=True), **own}
        section = type(base.settings).model_validate(merged)
        named[name] = NamedAgent(name=name, kind=base.kind, settings=section)
    return {**kinds, **named}


def agents_in_use(settings: Settings) -> Mapping[str, NamedAgent]:
    """Those that some issue may be given to: the default, the ones of rules, and every fallback."""
    agent = settings.agent
    asked = [agent.kind, agent.fallback]
    for rule in agent.rules:
        asked += [rule.use, rule.fallback]
    known = named_agents(settings)
    return {name: known[name] for name in dict.fromkeys(asked) if name is not None}
