"""The params of our requests: handshake, thread, turn, sandbox (AG4, AG14; AGENT-FACTS 2.3, 2.9). Pure."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from symphony import __version__
from symphony.config.settings import CodexSettings
from symphony.domain.tools import ToolSpec

__all__ = ["OPEN_SANDBOXES", "initialize", "thread_resume", "thread_start", "turn_sandbox", "turn_start"]

Params = Mapping[str, Any]

OPEN_SANDBOXES = frozenset({"dangerFullAccess", "externalSandbox"})
"""Sandbox policies under which Codex confines nothing."""


def initialize() -> Params:
    """Who we are. The experimental API is what makes dynamic tools available."""
    client = {"name": "symphony", "title": "Symphony", "version": __version__}
    return {"clientInfo": client, "capabilities": {"experimentalApi": True}}


def thread_start(
    settings: CodexSettings,
    *,
    cwd: Path,
    envelope: str | None,
    tools: Collection[ToolSpec],
    credentials: Collection[str],
    own_skill_listing: bool = True,
) -> Params:
    """A new thread in `cwd`, with `envelope` as developer instructions.

    `credentials` are names of variables that the app-server needs and its tool shells must not see. Tool
    shells are no login shells: the app-server already has the login environment, and a profile that exports
    a tracker secret would bring it back behind the allow-list (AG20). Without `own_skill_listing` Codex says
    nothing of the skills that it finds by itself.
    """
    params = _thread(settings, cwd=cwd, credentials=credentials, own_skill_listing=own_skill_listing)
    if envelope is not None:
        params["developerInstructions"] = envelope
    if tools:
        params["dynamicTools"] = [_tool(spec) for spec in tools]
    return params


def thread_resume(
    settings: CodexSettings,
    *,
    thread_id: str,
    cwd: Path,
    credentials: Collection[str],
    own_skill_listing: bool = True,
) -> Params:
    """A thread of an earlier process; what was said in it is not sent back to us.

    Its developer instructions and tools are those of its beginning, whatever is sent (AGENT-FACTS 2.6).
    """
    params = _thread(settings, cwd=cwd, credentials=credentials, own_skill_listing=own_skill_listing)
    return {**params, "threadId": thread_id, "excludeTurns": True}


def _thread(
    settings: CodexSettings, *, cwd: Path, credentials: Collection[str], own_skill_listing: bool
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "allow_login_shell": False,
        "shell_environment_policy": {"exclude": sorted(credentials)},
    }
    if not own_skill_listing:
        config["skills"] = {"include_instructions": False}
    params: dict[str, Any] = {
        "cwd": str(cwd),
        "approvalPolicy": settings.approval_policy,
        "sandbox": settings.thread_sandbox,
        "config": config,
    }
    if settings.effort is not None:
        config["model_reasoning_effort"] = settings.effort
    if settings.model is not None:
        params["model"] = settings.model
    return params


def turn_start(
    settings: CodexSettings, *, thread_id: str, cwd: Path, prompt: str, envelope: str | None = None
) -> Params:
    """One turn. The sandbox is sent every time, because a thread does not show that it remembers one.

    `envelope` is for the first turn of a resumed thread: a developer message directly before the prompt.
    """
    params: dict[str, Any] = {
        "threadId": thread_id,
        "input": [{"type": "text", "text": prompt}],
        "cwd": str(cwd),
    }
    sandbox = turn_sandbox(settings, cwd)
    if sandbox is not None:
        params["sandboxPolicy"] = sandbox
    if envelope is not None:
        params["additionalContext"] = {"symphony": {"value": envelope, "kind": "application"}}
    return params


def turn_sandbox(settings: CodexSettings, cwd: Path) -> Params | None:
    """The sandbox of a turn in `cwd` (an absolute, resolved path).

    An explicit policy is passed unchanged. Else it follows `thread_sandbox`, so that the two never contradict
    each other; for `workspace-write` it is our recipe: commits work because `.git` is writable, the network
    and the temp directories (where sibling workspaces may live) are closed. Null for a mode we do not know.
    """
    if settings.turn_sandbox_policy is not None:
        return settings.turn_sandbox_policy
    match settings.thread_sandbox:
        case "workspace-write":
            return {
                "type": "workspaceWrite",
                "writableRoots": [str(cwd / ".git")],
                "networkAccess": False,
                "excludeTmpdirEnvVar": True,
                "excludeSlashTmp": True,
            }
        case "danger-full-access":
            return {"type": "dangerFullAccess"}
        case "read-only":
            return {"type": "readOnly"}
        case _:
            return None


def _tool(spec: ToolSpec) -> Params:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.input_schema,
    }
