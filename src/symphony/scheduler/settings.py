"""The part of the workflow's settings that decisions depend on; a reload brings a new one (DESIGN 4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["AgentFacts", "Rule", "SchedulerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """What is known of one agent.

    Attributes:
        kind: which backend it has.
        section: where its settings are written, for hints: `codex`, `agents.fast`.
        stall_timeout_ms: how long it may be silent; 0 or less is for ever.
        model: as it is configured; null leaves it to the agent.
    """

    kind: str
    section: str
    stall_timeout_ms: int
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One of `agent.rules`: label and state are lower-cased, and all that are not null must hold."""

    use: str
    label: str | None = None
    state: str | None = None
    fallback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The settings that decisions depend on. State names are normalised (DM7), but for `on_…` (see `moves`).

    Durations are in ms; budgets are in tokens and turns, and null means without limit. `agent` is the
    default, and `stall_timeout_ms` that of agents which `agents` does not tell of. `comment_on_delivery` says
    whether an issue gets a comment when its work is ready for review.
    """

    active_states: frozenset[str]
    terminal_states: frozenset[str]
    required_labels: tuple[str, ...] = ()
    poll_interval_ms: int = 30_000
    max_concurrent_agents: int = 10
    max_concurrent_by_state: Mapping[str, int] = field(default_factory=dict)
    max_turns: int = 20
    max_retry_backoff_ms: int = 300_000
    stall_timeout_ms: int = 300_000
    max_attempts_without_progress: int = 3
    max_turns_without_progress: int | None = 2
    drain_timeout_ms: int = 30_000
    max_tokens_per_issue: int | None = None
    max_tokens_per_day: int | None = None
    max_turns_per_issue: int | None = None
    on_start: str | None = None
    on_block: str | None = None
    on_return: str | None = None
    comment_on_delivery: bool = True
    agent: str = "codex"
    fallback: str | None = None
    rules: tuple[Rule, ...] = ()
    agents: Mapping[str, AgentFacts] = field(default_factory=dict)

    def facts(self, agent: str) -> AgentFacts:
        """What is told of an agent; of one that is named no more, what its name alone says."""
        return self.agents.get(agent) or AgentFacts(
            kind=agent, section=agent, stall_timeout_ms=self.stall_timeout_ms
        )
