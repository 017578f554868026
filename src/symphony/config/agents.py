"""The agents of a workflow by name: kinds, and what `agents` calls by names of its own (DESIGN 11).

A kind is a name too: its settings are its section. A named agent has the section of its kind as defaults, and
its own keys over them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from symphony.config.keys import sections
from symphony.config.settings import AgentSection, AgentSettings, Settings

__all__ = ["AGENT_SECTIONS", "AgentKinds", "NamedAgent", "asked_for", "named_agent"]

AgentKinds = Mapping[str, type[AgentSection]]
"""The kinds of agents that are installed, and the model of each one's section.

To look a model up may import the package of the kind, which raises `SymphonyError` for one that is broken.
"""

AGENT_SECTIONS: Final[AgentKinds] = {
    name: model for name, model in sections(Settings).items() if issubclass(model, AgentSection)
}
"""Those whose sections are part of `Settings`, which takes no look at their packages."""


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
        pydantic.ValidationError: a value is wrong, which the review of the file tells before.
    """
    judged = type(base).model_validate(values)
    own = {key: getattr(judged, key) for key in judged.model_fields_set}
    settings = base.model_copy(update=own)
    return NamedAgent(name=name, kind=values["kind"], settings=settings, own=frozenset(own))


def asked_for(agent: AgentSettings) -> tuple[str, ...]:
    """The names of those that some issue may be given to: the default first, once each."""

    def names() -> Iterator[str | None]:
        yield from (agent.kind, agent.fallback)
        for rule in agent.rules:
            yield from (rule.use, rule.fallback)

    return tuple(dict.fromkeys(name for name in names() if name is not None))
