"""Claude's tools in words: what a call is named on a screen, and how its result reads (TK8). Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from symphony.agents.events import ItemFinished, ItemStarted
from symphony.agents.redaction import redact

__all__ = ["finished", "started"]

_SUMMARY_CHARS = 200
_ARGUMENT_CHARS = 8_000
_KINDS = {
    "Bash": "commandExecution",
    "Edit": "fileChange",
    "MultiEdit": "fileChange",
    "NotebookEdit": "fileChange",
    "Write": "fileChange",
    "Read": "fileRead",
    "WebFetch": "webSearch",
    "WebSearch": "webSearch",
    "Agent": "subAgentActivity",
    "Task": "subAgentActivity",
}
_TELLING = ("command", "file_path", "notebook_path", "query", "url", "pattern", "skill", "description")
_MCP = "mcp__"
_EXIT_CODE = re.compile(r"Exit code (\d{1,10})\b", re.ASCII)


def started(block: Mapping[str, Any]) -> ItemStarted:
    """The event for a `tool_use` block."""
    name = str(block.get("name") or "unknown")
    given = block.get("input")
    arguments: Mapping[str, Any] = given if isinstance(given, dict) else {}
    kind = "mcpToolCall" if name.startswith(_MCP) else _KINDS.get(name, redact(name, 100))
    return ItemStarted(
        kind=kind, summary=_summary(name, arguments), arguments=_arguments(kind, arguments)[:_ARGUMENT_CHARS]
    )


def finished(item: ItemStarted, block: Mapping[str, Any]) -> ItemFinished:
    """The event for the `tool_result` block of a call."""
    failed = block.get("is_error") is True
    code = None
    if item.kind == "commandExecution":
        found = _EXIT_CODE.match(_text(block.get("content")))
        code = int(found[1]) if found is not None else None if failed else 0
    status = "failed" if failed else "completed"
    return ItemFinished(kind=item.kind, summary=item.summary, status=status, exit_code=code)


def _summary(name: str, arguments: Mapping[str, Any]) -> str:
    if name.startswith(_MCP):
        return redact(name.removeprefix(_MCP).replace("__", ".", 1), _SUMMARY_CHARS)
    key = next((key for key in _TELLING if isinstance(arguments.get(key), str)), None)
    if key is None:
        return ""
    text = arguments[key]
    return redact(text.rsplit("/", 1)[-1] if key.endswith("_path") else text, _SUMMARY_CHARS)


def _arguments(kind: str, arguments: Mapping[str, Any]) -> str:
    if kind == "commandExecution":
        return str(arguments.get("command", ""))
    return json.dumps(arguments, ensure_ascii=False) if arguments else ""


def _text(content: object) -> str:
    """The beginning of a tool's result, which is text or a list of parts."""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else ""
