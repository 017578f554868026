"""Typed settings of the front matter (specification section 5.3; CF table; DESIGN section 11).

Only shapes, defaults and bounds. Reading the file, `$VAR`, paths and the wording of errors are `document`,
`resolve` and `validate`. Durations end in `_ms`. Every model is frozen: a reload makes a new `Settings`.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "OPAQUE_KEYS",
    "RESERVED_SECTIONS",
    "AgentSettings",
    "BudgetSettings",
    "CodexSettings",
    "HooksSettings",
    "PollingSettings",
    "Section",
    "Settings",
    "SkillsSettings",
    "TrackerSettings",
    "WorkspaceSettings",
]

RESERVED_SECTIONS: Final = frozenset({"observability", "server", "worker"})
"""Sections of the specification that this version knows of and does not use: accepted in silence."""

OPAQUE_KEYS: Final = frozenset({("codex", "approval_policy"), ("codex", "turn_sandbox_policy")})
"""Maps handed to the agent unchanged (AG14), nulls included."""


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _no_option(text: str) -> str:
    """A value that git would take for an option must not reach its command line."""
    if text.startswith("-"):
        raise ValueError("must not begin with a dash")
    return text


def _blank_to_null(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _trimmed(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(name.strip() for name in names if name.strip())


def _labels(names: tuple[str, ...]) -> tuple[str, ...]:
    """As issue labels, but a blank one stays: it is a label no issue has, so it matches nothing (DM19)."""
    return tuple(dict.fromkeys(name.strip().lower() for name in names))


def _inside_workspace(text: str) -> str:
    path = PurePosixPath(text)
    if not text.strip() or path.is_absolute() or ".." in path.parts or text.startswith("~"):
        raise ValueError("must be a path inside the workspace: relative, not empty, without ..")
    return text


def _text_or_map(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("must be text or a map")  # noqa: TRY004 - pydantic reports ValueError only
    return value


def _json_safe(value: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    """The agent is spoken to in JSON, which knows neither `.nan` nor `.inf`."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError("must not contain .nan or .inf") from error
    return value


_Text = Annotated[str, AfterValidator(_without_nul)]
_Name = Annotated[_Text, AfterValidator(_not_blank)]
_GitName = Annotated[_Name, AfterValidator(_no_option)]
_Script = Annotated[_Text | None, AfterValidator(_blank_to_null)]
_Names = Annotated[tuple[_Text, ...], Field(strict=False)]
_States = Annotated[_Names | None, AfterValidator(_trimmed)]
_Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """Frozen and strict; unknown keys are warned about by `validate` (CF13), not refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class TrackerSettings(Section):
    """`tracker`: which board, and which of its states mean what. `provider` belongs to the adapter.

    States are null where the file does not name them: then the adapter's defaults hold, if it has any.
    """

    kind: _Name
    provider: dict[str, Any] = Field(default_factory=dict)
    required_labels: Annotated[_Names, AfterValidator(_labels)] = ()
    active_states: _States = None
    terminal_states: _States = None


class PollingSettings(Section):
    """`polling`."""

    interval_ms: _Positive = 30_000


class WorkspaceSettings(Section):
    """`workspace`: where workspaces live and what populates them.

    `root` and a local `repo` are absolute after resolution. `repo` null leaves population to the hooks.
    """

    root: Path
    repo: _GitName | None = None
    base_branch: _GitName | None = None
    push: Literal["never", "origin"] = "never"
    keep_dirty: bool = True


class HooksSettings(Section):
    """`hooks`: shell scripts around a run, null where there is none; `timeout_ms` holds for each."""

    after_create: _Script = None
    before_run: _Script = None
    after_run: _Script = None
    before_remove: _Script = None
    timeout_ms: _Positive = 60_000


class BudgetSettings(Section):
    """`agent.budget`: what an issue may use up before a person is asked."""

    max_attempts_without_progress: _Positive = 5


class SkillsSettings(Section):
    """`agent.skills`: the catalog of repository skills in the envelope; `path` is below the workspace."""

    enabled: bool = True
    path: Annotated[_Text, AfterValidator(_inside_workspace)] = ".symphony/skills"
    max_skills_in_prompt: _Positive = 50


class AgentSettings(Section):
    """`agent`: limits of scheduling, and which agent runs.

    Keys of `max_concurrent_agents_by_state` are trimmed and lower-cased; entries that are not a number
    greater than 0 were left out with a warning (CF9).
    """

    kind: _Name = "codex"
    max_concurrent_agents: _Positive = 10
    max_turns: _Positive = 20
    max_retry_backoff_ms: _Positive = 300_000
    max_concurrent_agents_by_state: dict[str, _Positive] = Field(default_factory=dict)
    drain_timeout_ms: Annotated[int, Field(ge=0)] = 30_000
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    skills: SkillsSettings = Field(default_factory=SkillsSettings)


class CodexSettings(Section):
    """`codex`: the app-server backend.

    `command` is a shell string and never rewritten. Null sandbox keys mean our recipe (AG14).
    `turn_timeout_ms` limits silence, `read_timeout_ms` one request; `stall_timeout_ms` <= 0 disables.
    """

    command: _Name = "codex app-server"
    model: _Name | None = None
    approval_policy: Annotated[
        str | dict[str, Any], BeforeValidator(_text_or_map), AfterValidator(_json_safe)
    ] = "never"
    thread_sandbox: _Name = "workspace-write"
    turn_sandbox_policy: Annotated[dict[str, Any] | None, AfterValidator(_json_safe)] = None
    on_approval: Literal["decline", "accept", "block"] = "decline"
    turn_timeout_ms: _Positive = 3_600_000
    read_timeout_ms: _Positive = 5_000
    stall_timeout_ms: int = 300_000


class Settings(Section):
    """The whole front matter, typed and resolved."""

    tracker: TrackerSettings
    workspace: WorkspaceSettings
    polling: PollingSettings = Field(default_factory=PollingSettings)
    hooks: HooksSettings = Field(default_factory=HooksSettings)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    codex: CodexSettings = Field(default_factory=CodexSettings)
