"""The arguments that follow `claude.command`, and what they close (AG4, AG14). Pure.

What a workspace holds must not steer its own agent. Settings of a project can name another model endpoint,
which then gets the key, a program that makes keys, hooks, MCP servers and permissions, and nobody is asked
whether they are trusted. So only the operator's settings are read, MCP servers are ours alone, and a project
speaks through its CLAUDE.md, which is text (`--add-dir` with a variable, see `home`).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from symphony.agents.mcp.protocol import SERVER_NAME
from symphony.config.settings import ClaudeSettings

__all__ = ["EFFORTS", "own_tools", "session_arguments"]

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_PROTOCOL = (
    *("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--include-partial-messages", "--permission-prompt-tool", "stdio"),
)
# Without these two nothing of a turn would be delivered; everything else is a person's choice.
_COMMITTING = ("Bash(git add:*)", "Bash(git commit:*)")
# They leave the workspace, or outlast the turn.
_OUT_OF_PLACE = ("EnterWorktree", "ExitWorktree", "CronCreate", "ScheduleWakeup")


def own_tools() -> str:
    """What the names of our own tools begin with."""
    return f"mcp__{SERVER_NAME}__"


def session_arguments(
    settings: ClaudeSettings,
    *,
    cwd: Path,
    thread_id: str,
    resumed: bool,
    envelope: str | None,
    server: Sequence[str] | None,
    own_skill_listing: bool,
) -> tuple[str, ...]:
    """The arguments of one process: a new conversation called `thread_id`, or that one `resumed`.

    `server` is the command of the MCP server of our tools, null for none. The envelope is told each time,
    because a conversation does not remember it. Each value that others worded is one word with its option,
    so that it is never taken for an option itself.
    """
    words = [*_PROTOCOL, "--permission-mode", settings.permission_mode]
    words += ["--setting-sources", "user", "--strict-mcp-config", "--add-dir", str(cwd)]
    words += [f"--resume={thread_id}" if resumed else f"--session-id={thread_id}"]
    words += [] if settings.model is None else [f"--model={settings.model}"]
    words += [] if settings.effort is None else [f"--effort={settings.effort}"]
    words += [] if envelope is None else [f"--append-system-prompt={envelope}"]
    words += [] if own_skill_listing else ["--disable-slash-commands"]
    words += [] if server is None else [f"--mcp-config={_mcp_config(server)}"]
    allowed = (*_COMMITTING, *(() if server is None else (f"mcp__{SERVER_NAME}",)))
    return (*words, f"--allowedTools={_listed(allowed)}", f"--disallowedTools={_listed(_OUT_OF_PLACE)}")


def _mcp_config(server: Sequence[str]) -> str:
    command, *arguments = server
    return json.dumps({"mcpServers": {SERVER_NAME: {"command": command, "args": arguments}}})


def _listed(names: Sequence[str]) -> str:
    return ",".join(names)
