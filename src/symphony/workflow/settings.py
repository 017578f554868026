"""Typed settings of the front matter (specification section 5.3; CF table; DESIGN section 11).

Only shapes, defaults and bounds; reading the file, `$VAR` and paths are `document` and `resolve`.
Durations end in `_ms`. Every model is frozen: a reload makes a new `Settings`.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AgentSettings",
    "BudgetSettings",
    "CodexSettings",
    "HooksSettings",
    "PollingSettings",
    "Settings",
    "SkillsSettings",
    "TrackerSettings",
    "WorkspaceSettings",
]


class _Section(BaseModel):
    """Frozen; unknown keys are kept out and warned about by the loader (CF13), not refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class TrackerSettings(_Section):
    """`tracker`: which board, and which of its states mean what. `provider` belongs to the adapter."""

    kind: str
    provider: dict[str, Any] = Field(default_factory=dict)
    required_labels: tuple[str, ...] = ()
    active_states: tuple[str, ...] = ()
    terminal_states: tuple[str, ...] = ()


class PollingSettings(_Section):
    """`polling`."""

    interval_ms: int = Field(default=30_000, gt=0)


class WorkspaceSettings(_Section):
    """`workspace`: where workspaces live and what populates them.

    `root` and a local `repo` are absolute after resolution. `repo` null leaves population to the hooks.
    """

    root: Path
    repo: str | None = None
    base_branch: str | None = None
    push: Literal["never", "origin"] = "never"
    keep_dirty: bool = True


class HooksSettings(_Section):
    """`hooks`: shell scripts around a run; `timeout_ms` holds for each."""

    after_create: str | None = None
    before_run: str | None = None
    after_run: str | None = None
    before_remove: str | None = None
    timeout_ms: int = Field(default=60_000, gt=0)


class BudgetSettings(_Section):
    """`agent.budget`: what an issue may use up before a person is asked."""

    max_attempts_without_progress: int = Field(default=5, gt=0)


class SkillsSettings(_Section):
    """`agent.skills`: the catalog of repository skills in the envelope."""

    enabled: bool = True
    path: str = ".symphony/skills"
    max_skills_in_prompt: int = Field(default=50, gt=0)


class AgentSettings(_Section):
    """`agent`: limits of scheduling, and which agent runs."""

    kind: str = "codex"
    max_concurrent_agents: int = Field(default=10, gt=0)
    max_turns: int = Field(default=20, gt=0)
    max_retry_backoff_ms: int = Field(default=300_000, gt=0)
    max_concurrent_agents_by_state: dict[str, int] = Field(default_factory=dict)
    drain_timeout_ms: int = Field(default=30_000, ge=0)
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    skills: SkillsSettings = Field(default_factory=SkillsSettings)


class CodexSettings(_Section):
    """`codex`: the app-server backend.

    `command` is a shell string and never rewritten. Null sandbox keys mean our recipe (AG14).
    `turn_timeout_ms` limits silence, `read_timeout_ms` one request; `stall_timeout_ms` <= 0 disables.
    """

    command: str = Field(default="codex app-server", min_length=1)
    model: str | None = None
    approval_policy: str | dict[str, Any] = "never"
    thread_sandbox: str = "workspace-write"
    turn_sandbox_policy: dict[str, Any] | None = None
    on_approval: Literal["decline", "accept", "block"] = "decline"
    turn_timeout_ms: int = Field(default=3_600_000, gt=0)
    read_timeout_ms: int = Field(default=5_000, gt=0)
    stall_timeout_ms: int = 300_000


class Settings(_Section):
    """The whole front matter, typed and resolved."""

    tracker: TrackerSettings
    workspace: WorkspaceSettings
    polling: PollingSettings = Field(default_factory=PollingSettings)
    hooks: HooksSettings = Field(default_factory=HooksSettings)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    codex: CodexSettings = Field(default_factory=CodexSettings)
