"""The objects of the app-server protocol as version 0.169 sends them: threads, turns, items, usage (pure)."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "agent_message",
    "command_execution",
    "dynamic_tool_call",
    "file_change",
    "rate_limits",
    "sandbox_policy",
    "thread",
    "thread_start_result",
    "token_usage",
    "turn",
    "user_message",
]

Object = dict[str, Any]
_SANDBOX_TYPES = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}


def sandbox_policy(mode: object) -> Object | None:
    """The policy object for a mode of `thread/start`; null for a mode that does not exist."""
    kind = _SANDBOX_TYPES.get(mode) if isinstance(mode, str) else None
    if kind is None:
        return None
    if kind == "workspaceWrite":
        return {"type": kind, "writableRoots": [], "networkAccess": False}
    return {"type": kind}


def thread(thread_id: str, cwd: str, *, version: str, now_s: int) -> Object:
    """A thread that has just started and lives in memory only."""
    return {
        "id": thread_id,
        "sessionId": thread_id,
        "projectId": None,
        "preview": "",
        "ephemeral": True,
        "modelProvider": "none",
        "createdAt": now_s,
        "updatedAt": now_s,
        "status": {"type": "idle"},
        "path": None,
        "cwd": cwd,
        "cliVersion": version,
        "source": "appServer",
        "turns": [],
    }


def thread_start_result(started: Object, *, approval_policy: object, sandbox: Object) -> Object:
    """The answer to `thread/start`."""
    return {
        "thread": started,
        "model": "none",
        "modelProvider": "none",
        "cwd": started["cwd"],
        "instructionSources": [],
        "approvalPolicy": approval_policy,
        "approvalsReviewer": "user",
        "sandbox": sandbox,
    }


def turn(
    turn_id: str,
    status: str,
    *,
    items: Sequence[Object] = (),
    error: str | None = None,
    info: str = "other",
) -> Object:
    """A turn; `error` is the message of a failed one, `info` its kind."""
    failure = None
    if error is not None:
        failure = {"message": error, "codexErrorInfo": info, "additionalDetails": None}
    view = "summary" if items else "notLoaded"
    return {"id": turn_id, "items": list(items), "itemsView": view, "status": status, "error": failure}


def user_message(item_id: str, text: str) -> Object:
    """What the client said."""
    content = [{"type": "text", "text": text, "text_elements": []}]
    return {"type": "userMessage", "id": item_id, "clientId": None, "content": content}


def agent_message(item_id: str, text: str) -> Object:
    """What the agent says to people."""
    return {"type": "agentMessage", "id": item_id, "text": text, "phase": None}


def command_execution(
    item_id: str,
    command: str,
    cwd: str,
    *,
    status: str = "inProgress",
    output: str | None = None,
    exit_code: int | None = None,
    duration_ms: int | None = None,
) -> Object:
    """A command, running or ended."""
    return {
        "type": "commandExecution",
        "id": item_id,
        "command": command,
        "cwd": cwd,
        "processId": None,
        "status": status,
        "commandActions": [{"type": "unknown", "command": command}],
        "aggregatedOutput": output,
        "exitCode": exit_code,
        "durationMs": duration_ms,
    }


def file_change(item_id: str, path: str, *, kind: str, diff: str, status: str = "inProgress") -> Object:
    """A file written: `kind` is `add` or `update`; `diff` is the whole text or a unified diff."""
    described = {"type": kind} if kind == "add" else {"type": kind, "move_path": None}
    changes = [{"path": path, "kind": described, "diff": diff}]
    return {"type": "fileChange", "id": item_id, "changes": changes, "status": status}


def dynamic_tool_call(
    item_id: str, tool: str, arguments: Mapping[str, Any], *, answer: Mapping[str, Any] | None = None
) -> Object:
    """A call of a client's tool, open or (with the client's answer) ended."""
    success = None if answer is None else bool(answer.get("success"))
    return {
        "type": "dynamicToolCall",
        "id": item_id,
        "namespace": None,
        "tool": tool,
        "arguments": dict(arguments),
        "status": "inProgress" if success is None else "completed" if success else "failed",
        "contentItems": None if answer is None else answer.get("contentItems", []),
        "success": success,
        "durationMs": None,
    }


def token_usage(total: Mapping[str, int], last: Mapping[str, int]) -> Object:
    """`total` counts the thread since its start, `last` the newest step."""
    return {"total": dict(total), "last": dict(last), "modelContextWindow": None}


def rate_limits() -> Object:
    """Limits that nobody uses up."""
    window = {"usedPercent": 0, "windowDurationMins": 300, "resetsAt": None}
    return {"limitId": "scripted", "limitName": None, "primary": window, "secondary": None, "credits": None}
