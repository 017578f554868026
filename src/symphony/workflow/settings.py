"""Typed settings of the front matter (specification section 5.3; CF table; DESIGN section 11).

Only shapes, defaults, bounds and when a change takes effect. Reading the file, `$VAR`, paths and the wording
of errors are `document`, `resolve` and `validate`; the kinds of values are `values`, and who judges them is
`engine`. Durations end in `_ms`. Every section is frozen: a reload makes a new `Settings`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from symphony.workflow.engine import Section
from symphony.workflow.values import (
    DefaultText,
    EnvNames,
    EnvValues,
    Flag,
    GitName,
    Host,
    Hosts,
    Labels,
    LowerName,
    Name,
    NonNegative,
    OpaqueMap,
    OpaqueTextOrMap,
    Port,
    Positive,
    Reload,
    Script,
    Shape,
    SkillNames,
    SkillsPath,
    SkillsPaths,
    States,
    UserPath,
    Whole,
)

__all__ = [
    "NULL_KEYS",
    "OPAQUE_KEYS",
    "AcpSettings",
    "AgentRule",
    "AgentSettings",
    "BudgetSettings",
    "ClaudeSettings",
    "CodexSettings",
    "CommandSettings",
    "HooksSettings",
    "ObservabilitySettings",
    "PollingSettings",
    "RetentionSettings",
    "Section",
    "ServerSettings",
    "Settings",
    "SkillsSettings",
    "TrackerSettings",
    "WorkerSettings",
    "WorkspaceSettings",
]

OPAQUE_KEYS: Final = frozenset(
    {("codex", "approval_policy"), ("codex", "turn_sandbox_policy"), ("acp", "system_meta")}
)
"""Maps handed to the agent unchanged (AG14), nulls included."""

NULL_KEYS: Final = frozenset({("agent", "skills", "user_path")})
"""Keys that have a default and can be switched off: there a null means "none" and not "default" (WF8)."""

_LIVE: Final = Reload.LIVE
_SESSION: Final = Reload.SESSION
_RESTART: Final = Reload.RESTART


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings(Section):
    """`tracker`: which board, and which of its states mean what. `provider` belongs to the adapter.

    Secrets that stand in `provider` literally are held as `Secret`, whose text form is masked (CF13).
    States are null where the file does not name them: then the adapter's defaults hold, if it has any.
    `on_start` and `on_block` are states that the daemon moves issues to. `webhook_secret` switches webhooks
    on; it is `$NAME` or, against all advice, the secret itself, and no part of the text form.
    """

    kind: Annotated[Name, _LIVE]
    provider: Annotated[dict[str, Any], Shape("map"), _LIVE] = field(default_factory=dict)
    required_labels: Annotated[Labels, _LIVE] = ()
    active_states: Annotated[States, _LIVE] = None
    terminal_states: Annotated[States, _LIVE] = None
    on_start: Annotated[Name | None, Shape("text"), _LIVE] = None
    on_block: Annotated[Name | None, Shape("text"), _LIVE] = None
    webhook_secret: Annotated[Name | None, Shape("text"), _LIVE] = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingSettings(Section):
    """`polling`."""

    interval_ms: Annotated[Positive, _LIVE] = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings(Section):
    """`workspace`: where workspaces live, what populates them, and what holds an agent inside.

    `root` and a local `repo` are absolute after resolution. `repo` null leaves population to the hooks; it
    may be an address with credentials, so it is no part of the text form.
    """

    root: Annotated[Path, Shape("path"), DefaultText("<temp>/symphony_workspaces"), _LIVE]
    repo: Annotated[GitName | None, Shape("path or URL"), _LIVE] = field(default=None, repr=False)
    base_branch: Annotated[GitName | None, Shape("text"), _LIVE] = None
    push: Annotated[Literal["never", "origin"], _LIVE] = "never"
    keep_dirty: Annotated[Flag, _LIVE] = True
    isolation: Annotated[Literal["none", "bwrap"], _SESSION] = "none"
    network: Annotated[Literal["open", "closed"], _SESSION] = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksSettings(Section):
    """`hooks`: shell scripts around a run, null where there is none; `timeout_ms` holds for each."""

    after_create: Annotated[Script, _LIVE] = None
    before_run: Annotated[Script, _LIVE] = None
    after_run: Annotated[Script, _LIVE] = None
    before_remove: Annotated[Script, _LIVE] = None
    timeout_ms: Annotated[Positive, _LIVE] = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings(Section):
    """`agent.budget`: what an issue, and a day, may use up before a person is asked; null is without limit.

    Tokens are those that the agent reports as total; days are those of UTC.
    """

    max_tokens_per_issue: Annotated[Positive | None, Shape("number > 0"), _LIVE] = None
    max_tokens_per_day: Annotated[Positive | None, Shape("number > 0"), _LIVE] = None
    max_turns_per_issue: Annotated[Positive | None, Shape("number > 0"), _LIVE] = None
    max_attempts_without_progress: Annotated[Positive, _LIVE] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsSettings(Section):
    """`agent.skills`: the catalog of skills in the envelope.

    `path` and `extra_paths` are below the workspace. `user_path` is absolute or below the home of the account
    that the daemon runs as; null switches that scope off. `search_above` null means that all are listed.
    """

    enabled: Annotated[Flag, _LIVE] = True
    path: Annotated[SkillsPath, _LIVE] = ".symphony/skills"
    user_path: Annotated[UserPath | None, Shape("absolute path"), _LIVE] = "~/.symphony/skills"
    extra_paths: Annotated[SkillsPaths, _LIVE] = ()
    max_skills_in_prompt: Annotated[Positive, _LIVE] = 50
    max_prompt_chars: Annotated[Positive, _LIVE] = 8_000
    format: Annotated[Literal["compact", "full", "xml"], _LIVE] = "compact"
    validation: Annotated[Literal["lenient", "strict"], _LIVE] = "lenient"
    comment_on: Annotated[Literal["error", "warning", "never"], _LIVE] = "error"
    name_fallback: Annotated[Flag, _LIVE] = False
    reserved_words: Annotated[SkillNames, _LIVE] = ()
    include: Annotated[SkillNames, _LIVE] = ()
    disabled_skills: Annotated[SkillNames, _LIVE] = ()
    native: Annotated[Literal["auto", "always"], _LIVE] = "auto"
    activation: Annotated[Literal["read", "tool"], _LIVE] = "read"
    search_above: Annotated[Positive | None, Shape("number > 0"), _LIVE] = None
    source: Annotated[Literal["workspace", "base_branch"], _LIVE] = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRule(Section):
    """One of `agent.rules`: `use` an agent for issues with a label, in a state, or both (all that is told).

    Labels and states are trimmed and lower-cased. `fallback` null means `agent.fallback`.
    """

    use: Name
    label: LowerName | None = None
    state: LowerName | None = None
    fallback: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(Section):
    """`agent`: limits of scheduling, and which agent runs.

    `kind` is a kind or a name of `agents`. The first of `rules` that fits an issue chooses instead of it,
    when a run starts; `fallback` takes over while the agent is rate limited or out of credit.
    Keys of `max_concurrent_agents_by_state` are trimmed and lower-cased; entries that are not a number
    greater than 0 were left out with a warning (CF9).
    """

    kind: Annotated[Name, _SESSION] = "codex"
    fallback: Annotated[Name | None, Shape("name of an agent"), _SESSION] = None
    rules: Annotated[tuple[AgentRule, ...], Shape("list of rules"), _SESSION] = ()
    max_concurrent_agents: Annotated[Positive, _LIVE] = 10
    max_turns: Annotated[Positive, _SESSION] = 20
    max_retry_backoff_ms: Annotated[Positive, _LIVE] = 300_000
    max_concurrent_agents_by_state: Annotated[
        dict[str, Positive], Shape("map of state to number > 0"), _LIVE
    ] = field(default_factory=dict)
    drain_timeout_ms: Annotated[NonNegative, _LIVE] = 30_000
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    skills: SkillsSettings = field(default_factory=SkillsSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexSettings(Section):
    """`codex`: the app-server backend.

    `command` is a shell string and never rewritten. Null sandbox keys mean our recipe (AG14).
    `turn_timeout_ms` limits silence, `read_timeout_ms` one request; `stall_timeout_ms` <= 0 disables.
    """

    command: Annotated[Name, Shape("shell command"), _SESSION] = "codex app-server"
    model: Annotated[Name | None, Shape("text"), _SESSION] = None
    effort: Annotated[Name | None, Shape("text"), _SESSION] = None
    home: Annotated[Literal["operator", "private"], _SESSION] = "operator"
    env: Annotated[EnvNames, _SESSION] = ()
    approval_policy: Annotated[OpaqueTextOrMap, _SESSION] = "never"
    thread_sandbox: Annotated[Name, _SESSION] = "workspace-write"
    turn_sandbox_policy: Annotated[OpaqueMap, _SESSION] = None
    on_approval: Annotated[Literal["decline", "accept", "block"], _SESSION] = "decline"
    turn_timeout_ms: Annotated[Positive, _SESSION] = 3_600_000
    read_timeout_ms: Annotated[Positive, _SESSION] = 5_000
    stall_timeout_ms: Annotated[Whole, _LIVE] = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeSettings(Section):
    """`claude`: Claude Code over stream-json.

    `on_approval` answers what the agent's permission mode leaves open. `home: private` gives it a
    configuration directory of the daemon's own. Times as in `codex`.
    """

    command: Annotated[Name, Shape("shell command"), _SESSION] = "claude"
    model: Annotated[Name | None, Shape("text"), _SESSION] = None
    effort: Annotated[Name | None, Shape("text"), _SESSION] = None
    home: Annotated[Literal["operator", "private"], _SESSION] = "operator"
    permission_mode: Annotated[
        Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"], _SESSION
    ] = "acceptEdits"
    on_approval: Annotated[Literal["decline", "accept", "block"], _SESSION] = "decline"
    env: Annotated[EnvNames, _SESSION] = ()
    turn_timeout_ms: Annotated[Positive, _SESSION] = 3_600_000
    read_timeout_ms: Annotated[Positive, _SESSION] = 30_000
    stall_timeout_ms: Annotated[Whole, _LIVE] = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpSettings(Section):
    """`acp`: any agent that speaks the Agent Client Protocol.

    `profile` names what is known of an agent; every other key overrides the profile, null means its value.
    `system_text` says how the envelope travels: `meta` (session/new), `config` (the profile's own way) or
    `prompt`, in front of the first prompt, which every agent takes. `system_meta` is what `meta` adds to the
    request, with `{envelope}` where the text stands. `mode` is set by `session/set_mode`. `usage_path` leads
    to the token counts in the answer to a prompt, with dots; `env_values` are variables with fixed values.
    """

    profile: Annotated[Name, _SESSION] = "generic"
    command: Annotated[Name | None, Shape("shell command"), _SESSION] = None
    model: Annotated[Name | None, Shape("text"), _SESSION] = None
    home: Annotated[Literal["operator", "private"], _SESSION] = "operator"
    mode: Annotated[Name | None, Shape("text"), _SESSION] = None
    system_text: Annotated[
        Literal["meta", "config", "prompt"] | None, Shape("`meta`, `config`, `prompt`"), _SESSION
    ] = None
    on_approval: Annotated[Literal["decline", "accept", "block"], _SESSION] = "decline"
    env: Annotated[EnvNames, _SESSION] = ()
    env_values: Annotated[EnvValues, _SESSION] = field(default_factory=dict)
    system_meta: Annotated[OpaqueMap, _SESSION] = None
    usage: Annotated[
        Literal["turn", "last_call", "none"] | None, Shape("`turn`, `last_call`, `none`"), _SESSION
    ] = None
    usage_path: Annotated[Name | None, Shape("text"), _SESSION] = None
    load: Annotated[bool | None, Shape("true or false"), _SESSION] = None
    start_timeout_ms: Annotated[Positive | None, Shape("number > 0"), _SESSION] = None
    turn_timeout_ms: Annotated[Positive, _SESSION] = 3_600_000
    read_timeout_ms: Annotated[Positive, _SESSION] = 5_000
    stall_timeout_ms: Annotated[Whole, _LIVE] = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings(Section):
    """`command`: a one-shot program per turn, whose exit code and changed tree are the result.

    `command` is a shell string in which `{prompt_file}`, `{envelope_file}`, `{issue}` and `{model}` stand for
    quoted words; `profile` names a known program, whose command is used where none is told.
    """

    profile: Annotated[Name, _SESSION] = "generic"
    command: Annotated[Name | None, Shape("shell command"), _SESSION] = None
    model: Annotated[Name | None, Shape("text"), _SESSION] = None
    home: Annotated[Literal["operator", "private"], _SESSION] = "operator"
    env: Annotated[EnvNames, _SESSION] = ()
    turn_timeout_ms: Annotated[Positive, _SESSION] = 3_600_000
    stall_timeout_ms: Annotated[Whole, _LIVE] = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(Section):
    """`server`: the HTTP API on TCP. A port, 0 for a free one, switches it on (AP2)."""

    port: Annotated[Port | None, Shape("number 0 to 65535"), _RESTART] = None
    host: Annotated[Host, _RESTART] = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(Section):
    """`worker`: other machines to run sessions on; none means this one (SW1).

    This version has no such workers. What starts a daemon must refuse a list that is not empty, because
    falling back to this machine would run agents where nobody asked for them (SW3).
    """

    ssh_hosts: Annotated[Hosts, _LIVE] = ()
    max_concurrent_agents_per_host: Annotated[Positive | None, Shape("number > 0"), _LIVE] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilitySettings(Section):
    """`observability`: the reference's live view in a terminal, which this version does not have."""

    dashboard_enabled: Annotated[Flag, _RESTART] = True
    refresh_ms: Annotated[Positive, _RESTART] = 1_000
    render_interval_ms: Annotated[Positive, _RESTART] = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Section):
    """`retention`: how much of what ended runs left is kept; the newest stays, and all of live runs.

    `max_log_bytes` is of all agents' stderr logs together, `max_journal_bytes` of the journal's file.
    """

    max_age_days: Annotated[Positive, _LIVE] = 30
    max_runs: Annotated[Positive, _LIVE] = 1_000
    max_log_bytes: Annotated[Positive, _LIVE] = 104_857_600
    max_journal_bytes: Annotated[Positive, _LIVE] = 268_435_456


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Section):
    """The whole front matter, typed and resolved.

    `agents` holds, by name, a `kind` and what differs from the section of that kind (`agents.named_agents`).
    """

    tracker: TrackerSettings
    workspace: WorkspaceSettings
    polling: PollingSettings = field(default_factory=PollingSettings)
    hooks: HooksSettings = field(default_factory=HooksSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    agents: Annotated[dict[str, Any], Shape("map of name to settings"), _SESSION] = field(
        default_factory=dict
    )
    codex: CodexSettings = field(default_factory=CodexSettings)
    claude: ClaudeSettings = field(default_factory=ClaudeSettings)
    acp: AcpSettings = field(default_factory=AcpSettings)
    command: CommandSettings = field(default_factory=CommandSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    observability: ObservabilitySettings = field(default_factory=ObservabilitySettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
