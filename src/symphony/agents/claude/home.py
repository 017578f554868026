"""Claude Code's own directory, the variables it reads, and those by which it stays what it was started as."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["ATTACHMENTS", "CLAUDE_VARIABLES", "FIXED", "config_directory", "written_places"]

CLAUDE_VARIABLES = frozenset(
    {
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BETAS"),
        *("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"),
        *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")),
        *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "MAX_THINKING_TOKENS", "API_TIMEOUT_MS"),
    }
)
"""What passes from the daemon's own variables; whatever else a provider needs, `claude.env` names."""

ATTACHMENTS = "CLAUDE_CODE_DISABLE_ATTACHMENTS"

FIXED: Mapping[str, str] = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The default tries for minutes, also with a wrong key; the scheduler knows better how long to wait.
    "CLAUDE_CODE_MAX_RETRIES": "4",
    # Else a command in the background begins a turn of its own when it ends, between two of ours.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # Else `@path` in the text of an issue puts any file of this machine before the model, unasked.
    ATTACHMENTS: "1",
    # CLAUDE.md of the workspace, whose settings are not read.
    "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1",
}


def config_directory(env: Mapping[str, str]) -> Path | None:
    """`$CLAUDE_CONFIG_DIR`, else `~/.claude`; null without a home."""
    if env.get("CLAUDE_CONFIG_DIR"):
        return Path(env["CLAUDE_CONFIG_DIR"])
    return Path(env["HOME"]) / ".claude" if env.get("HOME") else None


def written_places(env: Mapping[str, str]) -> tuple[Path, ...]:
    """What a session writes to besides its workspace: its directory, and a file beside that of the user."""
    own = config_directory(env)
    beside = (Path(env["HOME"]) / ".claude.json",) if env.get("HOME") else ()
    return (*(() if own is None else (own,)), *(() if env.get("CLAUDE_CONFIG_DIR") else beside))
