"""What the app-server says, in the words of the Agent Client Protocol (pure)."""

from collections.abc import Mapping
from typing import Any

__all__ = ["OPTIONS", "decision_of", "ended", "permission", "tool_call", "tool_done"]

Json = dict[str, Any]

OPTIONS = (
    {"optionId": "yes-once", "kind": "allow_once", "name": "Allow"},
    {"optionId": "yes-ever", "kind": "allow_always", "name": "Always allow"},
    {"optionId": "no", "kind": "reject_once", "name": "Reject"},
)
_KINDS = {"commandExecution": "execute", "fileChange": "edit"}
_DECISIONS = {"yes-once": "accept", "yes-ever": "acceptForSession", "no": "decline"}
_STOPS = {"completed": "end_turn", "interrupted": "cancelled"}


def tool_call(item: Mapping[str, Any]) -> Json:
    """A piece of work that began."""
    return {"sessionUpdate": "tool_call", "status": "in_progress", **_call(item)}


def tool_done(item: Mapping[str, Any]) -> Json:
    """A piece of work that ended."""
    failed = item.get("status") in {"failed", "declined"} or item.get("success") is False
    update: Json = {"sessionUpdate": "tool_call_update", "status": "failed" if failed else "completed"}
    if isinstance(item.get("exitCode"), int):
        update["rawOutput"] = {"exitCode": item["exitCode"]}
    return {**update, **_call(item)}


def _call(item: Mapping[str, Any]) -> Json:
    kind = item["type"]
    call: Json = {"toolCallId": item["id"], "kind": _KINDS.get(kind, "other"), "title": kind}
    match kind:
        case "commandExecution":
            call |= {"title": item["command"], "rawInput": {"command": item["command"], "cwd": item["cwd"]}}
        case "fileChange":
            path = item["changes"][0]["path"]
            call |= {"title": f"Edit {path}", "locations": [{"path": path}], "rawInput": {"path": path}}
        case _:
            call |= {"title": f"mcp__symphony__{item.get('tool')}", "rawInput": item.get("arguments") or {}}
    return call


def permission(params: Mapping[str, Any]) -> Json:
    """The question whether a command may be run."""
    call = {
        "toolCallId": params["itemId"],
        "kind": "execute",
        "title": params["command"],
        "status": "pending",
        "rawInput": {"command": params["command"]},
    }
    return {"toolCall": call, "options": list(OPTIONS)}


def decision_of(answer: Mapping[str, Any]) -> Json:
    """The client's choice as the app-server's client would have made it; no choice cancels the turn."""
    outcome = (answer.get("result") or {}).get("outcome") or {}
    return {"decision": _DECISIONS.get(str(outcome.get("optionId")), "cancel")}


def ended(turn: Mapping[str, Any], usage: Mapping[str, int], place: str) -> Json:
    """The answer to a prompt, with the tokens where a profile says that they are."""
    counts = {
        "inputTokens": usage.get("inputTokens", 0),
        "outputTokens": usage.get("outputTokens", 0),
        "totalTokens": usage.get("totalTokens", 0),
    }
    result: Json = {"stopReason": _STOPS[turn["status"]]}
    match place:
        case "usage":
            result["usage"] = counts
        case "quota":
            spelled = {"input_tokens": counts["inputTokens"], "output_tokens": counts["outputTokens"]}
            result["_meta"] = {"quota": {"token_count": spelled}}
    return result
