"""`session/update` in our vocabulary (AG9, AG11, TK8). Keeps what later updates of a tool call leave out.

An agent speaks in pieces; people are told whole messages, so pieces are gathered until something else comes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symphony.agents.events import AgentEvent, ItemFinished, ItemStarted, Text
from symphony.agents.redaction import redact

__all__ = ["Updates"]

_SUMMARY_CHARS = 200
_ARGUMENT_CHARS = 8_000
_MESSAGE_CHARS = 262_144
_MAX_CALLS = 1_024
_ENDED = ("completed", "failed")
_EXIT_CODES = ("exitCode", "exit_code", "exit")

Update = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class _Call:
    """A tool call as far as it was told; `command` is the one in `raw`, which may say it oddly, or null."""

    kind: str = "other"
    title: str = ""
    command: str | None = None
    raw: str = ""
    paths: str = ""
    told: bool = False


class Updates:
    """Turns updates of one session into events; an empty answer is a sign of life and nothing else."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._words: list[str] = []
        self._chars = 0

    @property
    def last_words(self) -> str:
        """The message that has been gathered so far."""
        return "".join(self._words).strip()

    def take(self, update: Update) -> list[AgentEvent]:
        """The events of one update; never raises, whatever it holds."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._speech(update)
            case "tool_call":
                return [*self.flush(), *self._call(update, known=False)]
            case "tool_call_update":
                return [*self.flush(), *self._call(update, known=bool(update.get("rawInput")))]
            case "user_message_chunk" | "plan":
                return self.flush()
            case _:
                return []

    def permission(self, call: Update) -> tuple[list[AgentEvent], str]:
        """The events of a tool call as a request for permission tells it, often for the first time.

        With them comes its title, which may have been told before; empty for a command.
        """
        events = [*self.flush(), *self._call(call, known=True)]
        told = self._calls.get(_name(call), _Call())
        return events, told.title if told.command is None else ""

    def flush(self) -> list[AgentEvent]:
        """The message that has been gathered, if there is one."""
        words = "".join(self._words)
        self._words.clear()
        self._chars = 0
        return [Text(message=words)] if words.strip() else []

    def forget(self) -> None:
        """Drop what was gathered: a conversation that is told again is no news."""
        self._words.clear()
        self._chars = 0
        self._calls.clear()

    def _speech(self, update: Update) -> list[AgentEvent]:
        content = update.get("content")
        text = content.get("text") if isinstance(content, dict) else None
        if isinstance(text, str) and text:
            self._words.append(text)
            self._chars += len(text)
        return self.flush() if self._chars > _MESSAGE_CHARS else []

    def _call(self, update: Update, *, known: bool) -> list[AgentEvent]:
        """A call is told when it is `known` what it is to do, which many agents say in a second update."""
        name = _name(update)
        call = self._calls.setdefault(name, _Call())
        if len(self._calls) > _MAX_CALLS:
            self._calls.pop(next(iter(self._calls)))
        _learn(call, update)
        status = update.get("status")
        ended = status in _ENDED
        events: list[AgentEvent] = []
        if not call.told and (known or ended or status == "in_progress"):
            call.told = True
            events.append(ItemStarted(kind=call.kind, summary=_summary(call), arguments=_arguments(call)))
        if ended:
            self._calls.pop(name, None)
            summary, code = _summary(call), _exit_code(update)
            events.append(ItemFinished(kind=call.kind, summary=summary, status=str(status), exit_code=code))
        return events


def _name(update: Update) -> str:
    return str(update.get("toolCallId", ""))[:200]


def _learn(call: _Call, update: Update) -> None:
    kind, title, raw = update.get("kind"), update.get("title"), update.get("rawInput")
    call.kind = kind[:40] if isinstance(kind, str) and kind else call.kind
    call.title = title[:_ARGUMENT_CHARS] if isinstance(title, str) and title.strip() else call.title
    if raw:
        call.raw = json.dumps(raw, ensure_ascii=False)[:_ARGUMENT_CHARS]
        call.command = _command(raw)
    places = update.get("locations")
    entries = places if isinstance(places, list) else []
    found = [str(place.get("path", "")) for place in entries if isinstance(place, dict)]
    call.paths = "\n".join(found)[:_ARGUMENT_CHARS] or call.paths


def _summary(call: _Call) -> str:
    """A command in its own words, anything else by its title."""
    command = call.command if call.kind == "execute" else None
    return redact(command or call.title, _SUMMARY_CHARS)


def _command(raw: object) -> str | None:
    if not isinstance(raw, dict) or "command" not in raw:
        return None
    command = raw["command"]
    if isinstance(command, list):
        command = " ".join(str(word) for word in command)
    return command[:_ARGUMENT_CHARS] if isinstance(command, str) else ""


def _arguments(call: _Call) -> str:
    return f"{call.raw}\n{call.paths}".strip()[:_ARGUMENT_CHARS]


def _exit_code(update: Update) -> int | None:
    """Beside the output of a command, in its metadata, or where the end of its terminal is told."""
    output = _map(update, "rawOutput")
    places = (output, _map(output, "metadata"), _map(_map(update, "_meta"), "terminal_exit"))
    found = (place.get(key) for place in places for key in _EXIT_CODES)
    return next((code for code in found if isinstance(code, int) and not isinstance(code, bool)), None)


def _map(node: Update, key: str) -> Update:
    value = node.get(key)
    return value if isinstance(value, dict) else {}
