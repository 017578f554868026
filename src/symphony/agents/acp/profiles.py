"""Profiles of agents that speak the Agent Client Protocol, as data.

A profile supplies what the section `acp` leaves out. An agent without a profile is configured by keys of
WORKFLOW.md alone. The facts about an agent were observed with the version that its profile names.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from symphony.agents.folders import (
    CLAUDE_FOLDERS,
    CODEX_FOLDERS,
    GEMINI_FOLDERS,
    OPENCODE_FOLDERS,
    AgentFolder,
)
from symphony.config import AcpSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpProfile:
    """One agent.

    Attributes:
        command: the shell command that starts it, or None.
        model_argument: appended to that command for a model, with `{model}`; None if the model is chosen in
            the session.
        variables: the daemon's variables that it needs, such as its keys.
        env_values: variables with fixed values.
        config: a variable that holds a configuration as JSON, and what an envelope adds to it, with
            `{envelope_file}` for the path of a file with the envelope; or None.
        config_always: added to that configuration with or without an envelope; `{workspace}` is the session's
            directory.
        start_timeout_ms: limit for the answer to `initialize`, and again to `session/new`.
        system_text: how the envelope travels: in `session/new`, by `config`, or in front of the first prompt.
        system_meta: added to `session/new` for it, with `{envelope}`; only for `meta`.
        envelope_on_resume: a resumed session takes a new envelope in the same way; else it precedes the
            prompt.
        usage: what the token counts of an answer cover: the turn, or only its last call of the model.
        usage_path: where they are in the answer to a prompt.
        errors_as_messages: a turn that the model refused ends well, with the error as a message of the agent.
            It is recognised by using no tokens.
        load: a later process can resume a session.
        asks: it asks before it changes anything, in its initial mode.
        open_modes: modes in which it does not ask.
        install_hint: what to do when it is not installed.
        login_hint: what to do when it is not logged in.
        home_variables: variables that move all it keeps below a home, with `{home}`.
        home_outside_temp: it refuses a home below the temp directory.
        home_files: files of a new private home, by relative path.
        folders: what it keeps in the operator's home.
        workspace_skills: where it looks for skills in a workspace.
        host_skills: where it looks for skills below its home.
        observed: the version that these facts were observed with, or None.
        broken: what does not work, in sentences for people.
    """

    command: str | None = None
    model_argument: str | None = None
    variables: frozenset[str] = frozenset()
    env_values: Mapping[str, str] = field(default_factory=dict)
    config: tuple[str, Mapping[str, Any]] | None = None
    config_always: Mapping[str, Any] = field(default_factory=dict)
    start_timeout_ms: int = 30_000
    system_text: Literal["meta", "config", "prompt"] = "prompt"
    system_meta: Mapping[str, Any] = field(default_factory=dict)
    envelope_on_resume: bool = False
    usage: Literal["turn", "last_call", "none"] = "turn"
    usage_path: tuple[str, ...] = ("usage",)
    errors_as_messages: bool = False
    load: bool = True
    asks: bool = False
    open_modes: frozenset[str] = frozenset()
    install_hint: str = "set acp.command to the shell command that starts the agent"
    login_hint: str = "log the agent in as the user of the daemon, or name the variable of its key in acp.env"
    home_variables: Mapping[str, str] = field(default_factory=dict)
    home_outside_temp: bool = False
    home_files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[AgentFolder, ...] = ()
    workspace_skills: tuple[str, ...] = ()
    host_skills: tuple[str, ...] = ()
    observed: str | None = None
    broken: tuple[str, ...] = ()


_XDG: Final = {
    "HOME": "{home}",
    "XDG_CONFIG_HOME": "{home}/.config",
    "XDG_DATA_HOME": "{home}/.local/share",
    "XDG_STATE_HOME": "{home}/.local/state",
    "XDG_CACHE_HOME": "{home}/.cache",
}
_OPENAI: Final = frozenset({"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT"})
_ANTHROPIC: Final = frozenset({"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"})
_GEMINI_KEYS: Final = frozenset(
    {
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_GENAI_USE_VERTEXAI",
    }
)

PROFILES: Final[Mapping[str, AcpProfile]] = {
    "generic": AcpProfile(home_variables=_XDG),
    "gemini": AcpProfile(
        command="gemini --acp",
        model_argument="-m {model}",
        variables=_GEMINI_KEYS,
        env_values={"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        start_timeout_ms=60_000,
        usage_path=("_meta", "quota", "token_count"),
        load=False,
        asks=True,
        open_modes=frozenset({"yolo"}),
        install_hint="install it with `npm install -g @google/gemini-cli`, or set acp.command",
        login_hint="run `gemini` once as the user of the daemon, or set GEMINI_API_KEY for it",
        home_variables=_XDG,
        home_files={
            ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}\n',
        },
        folders=GEMINI_FOLDERS,
        workspace_skills=(".gemini/skills", ".agents/skills"),
        host_skills=(".gemini/skills", ".agents/skills"),
        observed="Gemini CLI 0.61.0",
        broken=(
            "A session cannot be continued: `session/load` fails, so every run starts a new one.",
            "It has no system-level text: the envelope is in front of the first prompt.",
            "Its start takes several seconds.",
            "It retries a rate limit silently for minutes; `acp.stall_timeout_ms` ends that.",
        ),
    ),
    "opencode": AcpProfile(
        command="opencode acp",
        variables=_OPENAI | _ANTHROPIC | _GEMINI_KEYS | {"OPENCODE_API_KEY", "OPENROUTER_API_KEY"},
        env_values={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
        config=("OPENCODE_CONFIG_CONTENT", {"instructions": ["{envelope_file}"]}),
        config_always={
            "autoupdate": False,
            "share": "disabled",
            "permission": {"edit": "ask", "bash": "ask", "webfetch": "ask"},
        },
        start_timeout_ms=120_000,
        system_text="config",
        envelope_on_resume=True,
        usage="last_call",
        asks=True,
        install_hint="install it with `npm install -g opencode-ai`, or set acp.command",
        login_hint="run `opencode auth login` as the user of the daemon, or set the key of a provider",
        home_variables=_XDG,
        folders=OPENCODE_FOLDERS,
        workspace_skills=(".opencode/skill", ".opencode/skills", ".agents/skills", ".claude/skills"),
        host_skills=(".config/opencode/skill", ".agents/skills", ".claude/skills"),
        observed="OpenCode 1.18.33",
        broken=(
            "It reports only the tokens of the last model call of a turn, so turns with tools count too low.",
            "A declined permission ends the turn.",
            "The agent retries a rate limit silently for more than a minute before it reports it.",
            "Its start takes from several seconds to half a minute.",
        ),
    ),
    "claude-agent-acp": AcpProfile(
        command="claude-agent-acp",
        variables=_ANTHROPIC
        | {
            "CLAUDE_CODE_EXECUTABLE",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CONFIG_DIR",
        },
        env_values={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "DISABLE_AUTOUPDATER": "1",
        },
        system_text="meta",
        system_meta={"_meta": {"systemPrompt": {"append": "{envelope}"}}},
        envelope_on_resume=True,
        asks=True,
        open_modes=frozenset({"bypassPermissions", "auto"}),
        install_hint="install it with `npm install -g @agentclientprotocol/claude-agent-acp@0.49.0`",
        login_hint="run `claude /login` as the user of the daemon, or set ANTHROPIC_API_KEY",
        home_variables={**_XDG, "CLAUDE_CONFIG_DIR": "{home}/.claude"},
        folders=CLAUDE_FOLDERS,
        workspace_skills=(".claude/skills",),
        host_skills=(".claude/skills",),
        observed="claude-agent-acp 0.49.0",
        broken=("Rate limits are not reported before they are reached.",),
    ),
    "codex-acp": AcpProfile(
        command="codex-acp",
        variables=_OPENAI | {"CODEX_API_KEY", "CODEX_HOME", "CODEX_PATH"},
        # By default the agent's own model judges requests instead of asking the client.
        env_values={"INITIAL_AGENT_MODE": "workspace-write"},
        config=("CODEX_CONFIG", {}),
        config_always={
            "allow_login_shell": False,  # a login profile would bring back removed secrets
            "sandbox_workspace_write": {
                "writable_roots": ["{workspace}/.git"],
                "exclude_slash_tmp": True,
                "exclude_tmpdir_env_var": True,
            },
            "shell_environment_policy": {"exclude": ["CODEX_API_KEY", "OPENAI_API_KEY"]},
        },
        system_text="meta",
        system_meta={
            "systemPrompt": {"mode": "append", "content": [{"type": "text", "text": "{envelope}"}]},
        },
        errors_as_messages=True,
        asks=True,
        open_modes=frozenset({"agent-full-access"}),
        install_hint="install it with `npm install -g @agentclientprotocol/codex-acp`",
        login_hint="run `codex login` as the user of the daemon, or set OPENAI_API_KEY",
        home_variables={**_XDG, "CODEX_HOME": "{home}/.codex"},
        home_outside_temp=True,
        home_files={".codex/config.toml": ""},
        folders=CODEX_FOLDERS,
        workspace_skills=(".agents/skills", ".codex/skills"),
        host_skills=(".agents/skills", ".codex/skills"),
        observed="codex-acp 2.6.0",
        broken=(
            "When a session continues, a changed envelope is in front of the prompt.",
            "Tokens of a cancelled turn are not reported.",
            "Rate limits are not reported; `kind: codex` reports them.",
        ),
    ),
}


def profile_of(settings: AcpSettings) -> AcpProfile | None:
    """Return the named profile with the settings applied to it; None for an unknown name."""
    base = PROFILES.get(settings.profile)
    if base is None:
        return None
    values: dict[str, Any] = {
        "command": settings.command,
        "model_argument": None if settings.command is None else "",
        "start_timeout_ms": settings.start_timeout_ms,
        "system_text": settings.system_text or (None if settings.system_meta is None else "meta"),
        "system_meta": settings.system_meta,
        "usage": settings.usage,
        "usage_path": None if settings.usage_path is None else tuple(settings.usage_path.split(".")),
        "load": settings.load,
    }
    return replace(
        base,
        variables=base.variables | set(settings.env),
        env_values={**base.env_values, **settings.env_values},
        **{key: value for key, value in values.items() if value is not None},
    )


def command_of(settings: AcpSettings, profile: AcpProfile) -> str | None:
    """Return the shell command: the operator's, which is not rewritten, else the profile's; or None."""
    command = settings.command or profile.command
    if command is None or settings.command is not None:
        return command
    if settings.model is None or not profile.model_argument:
        return command
    return f"{command} {profile.model_argument.replace('{model}', shlex.quote(settings.model))}"
