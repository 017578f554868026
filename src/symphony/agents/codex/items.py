"""Thread items in words: what a command, a file change or a tool call is called on a screen (TK8). Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from symphony.agents.events import AgentEvent, ItemFinished, ItemStarted, Text
from symphony.agents.redaction import redact

__all__ = ["item_completed", "item_started"]

Item = Mapping[str, Any]
_SUMMARY_CHARS = 200
_ARGUMENT_CHARS = 8_000
_MAX_FILES = 3
_SHELL_PREFIXES = ("/bin/bash -lc ", "/bin/bash -c ", "bash -lc ", "bash -c ")
_SPEECH = frozenset({"agentMessage", "userMessage", "hookPrompt", "functionCallOutput"})


def item_started(item: Item) -> AgentEvent | None:
    """The event for work that began; null for speech, which only counts when it is complete."""
    kind = _kind(item)
    if kind in _SPEECH:
        return None
    return ItemStarted(kind=kind, summary=_summary(kind, item), arguments=_arguments(kind, item))


def item_completed(item: Item) -> AgentEvent | None:
    """The event for work that ended, or for something the agent said; null for what we said ourselves."""
    kind = _kind(item)
    if kind == "agentMessage":
        text = _text(item, "text")
        return Text(message=text) if text.strip() else None
    if kind in _SPEECH:
        return None
    exit_code = item.get("exitCode")
    return ItemFinished(
        kind=kind,
        summary=_summary(kind, item),
        status=_text(item, "status") or "completed",
        exit_code=exit_code if isinstance(exit_code, int) else None,
    )


def _kind(item: Item) -> str:
    return _text(item, "type") or "unknown"


def _summary(kind: str, item: Item) -> str:
    describe = _DESCRIBE.get(kind)
    return redact(describe(item) if describe is not None else "", _SUMMARY_CHARS)


def _arguments(kind: str, item: Item) -> str:
    """What a tool was given that reads: a command with what Codex made of it, or the arguments of a call."""
    match kind:
        case "commandExecution":
            actions = item.get("commandActions")
            parts = [one for one in actions if isinstance(one, dict)] if isinstance(actions, list) else []
            given = "\n".join([_text(item, "command"), *(_text(part, "path") for part in parts)])
        case "mcpToolCall" | "dynamicToolCall":
            arguments = item.get("arguments")
            given = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        case _:
            given = ""
    return given[:_ARGUMENT_CHARS]


def _text(item: Item, key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) else ""


def _field(key: str) -> Callable[[Item], str]:
    return lambda item: _text(item, key)


def _command(item: Item) -> str:
    command = _text(item, "command")
    for prefix in _SHELL_PREFIXES:
        if command.startswith(prefix):
            return command.removeprefix(prefix).strip("'\"")
    return command


def _files(item: Item) -> str:
    changes = item.get("changes")
    paths = (
        [_text(change, "path") for change in changes if isinstance(change, dict)]
        if isinstance(changes, list)
        else []
    )
    shown = ", ".join(path.rsplit("/", 1)[-1] for path in paths[:_MAX_FILES])
    more = len(paths) - _MAX_FILES
    return f"{shown} and {more} more" if more > 0 else shown


def _mcp(item: Item) -> str:
    return f"{_text(item, 'server')}.{_text(item, 'tool')}"


_DESCRIBE: Mapping[str, Callable[[Item], str]] = {
    "commandExecution": _command,
    "fileChange": _files,
    "mcpToolCall": _mcp,
    "dynamicToolCall": _field("tool"),
    "collabAgentToolCall": _field("tool"),
    "webSearch": _field("query"),
    "imageView": _field("path"),
    "plan": _field("text"),
    "subAgentActivity": _field("kind"),
}
