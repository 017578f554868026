"""Frames of the app-server said in Claude Code's words, version 2.1 (pure)."""

from collections.abc import Mapping
from typing import Any

__all__ = ["answer_of", "control_response", "items_started", "question", "result", "tool_result"]

Object = dict[str, Any]
_MODEL = "none"
_TOOLS = {"commandExecution": "Bash", "fileChange": "Write"}


def items_started(item: Mapping[str, Any]) -> list[Object]:
    """A piece of work that begins, as a message that uses a tool; nothing for speech."""
    kind = str(item["type"])
    if kind == "dynamicToolCall":
        name, given = f"mcp__symphony__{item['tool']}", item["arguments"]
    elif kind in _TOOLS:
        name = _TOOLS[kind]
        given = {"command": item["command"]} if name == "Bash" else {"file_path": item["changes"][0]["path"]}
    else:
        return []
    return [_assistant(item["id"], {"type": "tool_use", "id": item["id"], "name": name, "input": given})]


def tool_result(item: Mapping[str, Any]) -> list[Object]:
    """A piece of work that ended, or what the agent says to people."""
    kind = str(item["type"])
    if kind == "agentMessage":
        return [_assistant(item["id"], {"type": "text", "text": item["text"]})]
    if kind not in {*_TOOLS, "dynamicToolCall"}:
        return []
    failed, text = item["status"] != "completed", str(item.get("aggregatedOutput") or "")
    if failed and item.get("exitCode") is not None:
        text = f"Exit code {item['exitCode']}\n{text}"
    block = {"type": "tool_result", "tool_use_id": item["id"], "content": text, "is_error": failed}
    return [{"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None}]


def result(turn: Mapping[str, Any], totals: Mapping[str, int]) -> Object:
    """How a turn ended; `totals` are those of the process."""
    status, error = turn["status"], (turn.get("error") or {}).get("message")
    aborted = status == "interrupted"
    usage = {"inputTokens": totals.get("inputTokens", 0), "outputTokens": totals.get("outputTokens", 0)}
    return {
        "type": "result",
        "subtype": "error_during_execution" if aborted else "success",
        "is_error": status != "completed",
        "api_error_status": None,
        "result": error or "",
        "total_cost_usd": usage["outputTokens"] / 1000,
        "usage": {},
        "modelUsage": {_MODEL: usage},
        "terminal_reason": "aborted_tools" if aborted else "completed",
    }


def question(method: str, params: Mapping[str, Any]) -> Object:
    """What is asked of the client: whether a tool may be used, or something that nobody knows."""
    if method == "item/tool/requestUserInput":
        questions = [{"question": one["question"], "options": []} for one in params["questions"]]
        return {"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": {"questions": questions}}
    if method == "item/commandExecution/requestApproval":
        given = {"command": params["command"]}
        return {"subtype": "can_use_tool", "tool_name": "Bash", "input": given}
    return {"subtype": method}


def answer_of(response: Mapping[str, Any]) -> Object:
    """The client's answer to a question, in the app-server's words: `result` or `error`."""
    if response.get("subtype") == "error":
        return {"error": {"message": str(response.get("error"))}}
    told = response.get("response") or {}
    if told.get("behavior") == "allow":
        return {"result": {"decision": "accept"}}
    return {"result": {"decision": "cancel" if told.get("interrupt") else "decline"}}


def control_response(request_id: object, response: Mapping[str, Any]) -> Object:
    """A request of the client, answered."""
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return {"type": "control_response", "response": body}


def _assistant(message_id: str, block: Object) -> Object:
    message = {"id": message_id, "role": "assistant", "model": _MODEL, "content": [block], "usage": {}}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None}
