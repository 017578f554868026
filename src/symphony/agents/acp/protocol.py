"""The Agent Client Protocol: params of requests, meaning of updates, and errors. No I/O."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cachetools import FIFOCache

from symphony import __version__
from symphony.agents.acp.profiles import AcpProfile
from symphony.agents.commands import shown_command
from symphony.agents.events import (
    MAX_CHANGES,
    MAX_PLAN_STEPS,
    AgentEvent,
    FileEdit,
    ItemFinished,
    ItemStarted,
    PlanStep,
    PlanUpdated,
    Reasoning,
    Text,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
    line_changes,
    redact,
)
from symphony.agents.json_fields import Json, as_text, count_in, decode_json, object_in, objects_in, text_in
from symphony.agents.outages import OUTAGE
from symphony.agents.wire import ErrorResponse, JsonRpcDialect
from symphony.domain import Blame, Category, Failure, Tokens

# --- params of requests ------------------------------------------------------------------------------------

PROTOCOL_VERSION: Final = 1

McpServer = tuple[str, Sequence[str]]
"""Name and command of an MCP server that the agent starts."""


def initialize() -> Json:
    """Return the params of `initialize`. It offers neither files nor terminals: agents have their own."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "symphony", "title": "Symphony", "version": __version__},
    }


def session(
    *, cwd: Path, servers: Sequence[McpServer] = (), extra: Json | None = None, session_id: str | None = None
) -> dict[str, Any]:
    """Return the params of a new session, or of `session_id`; `extra` comes from the profile."""
    params = {
        **(extra or {}),
        "cwd": str(cwd),
        "mcpServers": [
            {"name": name, "command": argv[0], "args": list(argv[1:]), "env": []} for name, argv in servers
        ],
    }
    return params if session_id is None else {**params, "sessionId": session_id}


def prompt(session_id: str, text: str) -> Json:
    """Return the params of a turn."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


def fill(template: Any, name: str, text: str) -> Any:
    """Replace `{name}` by `text` in every text of a template."""
    if isinstance(template, str):
        return template.replace(f"{{{name}}}", text)
    if isinstance(template, Mapping):
        return {key: fill(value, name, text) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [fill(value, name, text) for value in template]
    return template


def config_value(*parts: Json, given: str | None) -> str:
    """Return a configuration as JSON: the operator's own (`given`) with `parts` merged into it.

    Lists are concatenated. An operator's value that is not a JSON object is dropped.
    """
    try:
        merged = json.loads(given or "{}")
    except ValueError:
        merged = {}
    merged = merged if isinstance(merged, dict) else {}
    for part in parts:
        merged = _merge(merged, part)
    return json.dumps(merged, ensure_ascii=False)


def _merge(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, Mapping):
        both = {key: _merge(one[key], value) if key in one else value for key, value in other.items()}
        return {**one, **both}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(value for value in other if value not in one)]
    return other


# --- errors ------------------------------------------------------------------------------------------------
#
# The protocol has one code for a missing login. Everything else travels in messages, and in `data` as each
# agent likes. So patterns decide, and an unknown error is a failed turn that may be retried.

AUTH_REQUIRED: Final = -32_000

_PROMPT: Final = "session/prompt"
_MAX_ERROR_CHARS: Final = 2_000
_MAX_DATA_DEPTH: Final = 4
_RETRY_AFTER: Final = re.compile(
    r"retry[ _-]?(?:delay|after|in)\W{0,5}(\d{1,6}(?:\.\d{1,9})?)\s*(ms|s)\b", re.IGNORECASE
)
_USAGE_LIMIT: Final = (
    r"usage.?limit|insufficient.?quota|quota (?:was |is )?exceeded|exceeded your.{0,20}quota"
    r"|credit balance|out of credits?|billing|payment required"
)
_RATE_LIMIT: Final = r"\b429\b|rate.?limit|too many requests|resource.?exhausted"
_BAD_KEY: Final = r"(?:invalid|incorrect|missing|not valid)"
_AUTH: Final = (
    r"\b40[13]\b|unauthori[sz]ed|authenticat|not logged in|please log ?in|permission_denied"
    rf"|{_BAD_KEY}[^.]{{0,40}}api.?key|api.?key[^.]{{0,40}}{_BAD_KEY}"
)
_CONTEXT: Final = (
    r"context.{0,12}(?:length|window|limit|overflow)|prompt is too long"
    r"|exceeds the maximum number of tokens|token count.{0,40}exceeds"
)
_PATTERNS: Final = tuple(
    (category, re.compile(pattern, re.IGNORECASE))
    for category, pattern in (
        (Category.AGENT_USAGE_LIMIT, _USAGE_LIMIT),
        (Category.AGENT_RATE_LIMITED, _RATE_LIMIT),
        (Category.AGENT_AUTH, _AUTH),
        (Category.AGENT_CONTEXT_FULL, _CONTEXT),
        (Category.AGENT_UNAVAILABLE, OUTAGE.pattern),
    )
)
_UNKNOWN_MODEL: Final = re.compile(
    r"model.{0,80}(?:not.?found|not supported|does not exist|unknown|invalid)"
    r"|(?:unknown|invalid|no such|unsupported).{0,20}model|not_found_error",
    re.IGNORECASE,
)


def dialect(profile: AcpProfile) -> JsonRpcDialect:
    """Return the connection's parameters for such an agent."""
    return JsonRpcDialect(
        not_found=Category.AGENT_NOT_FOUND,
        install_hint=profile.install_hint,
        refusal=lambda refusal: refusal_failure(refusal, profile),
        versioned=True,
    )


def refusal_failure(refusal: ErrorResponse, profile: AcpProfile) -> Failure:
    """Return the failure of a JSON-RPC error: of the turn for a prompt, else of the request.

    Most agents put the cause into texts of `data`.
    """
    try:
        data = decode_json(refusal.data)
    except ValueError:
        data = None
    details = [text for text in _texts(data, _MAX_DATA_DEPTH) if text.strip() and text not in refusal.message]
    text = ": ".join([refusal.message or "no reason given", *details])[:_MAX_ERROR_CHARS]
    return _failure(text, profile, method=refusal.method, code=refusal.code)


def message_failure(message: str, profile: AcpProfile) -> Failure:
    """Return the failure of a turn that the agent reported as a message."""
    return _failure(message or "the turn used no tokens", profile, method=_PROMPT, code=0)


def _failure(text: str, profile: AcpProfile, *, method: str, code: int) -> Failure:
    category = next((category for category, pattern in _PATTERNS if pattern.search(text)), None)
    if category is None and code == AUTH_REQUIRED:
        category = Category.AGENT_AUTH
    if category is None and _UNKNOWN_MODEL.search(text):
        return Failure(
            category=Category.TURN_FAILED,
            blame=Blame.CONFIG,
            message=redact(text),
            retryable=False,
            hint="set acp.model to a model that this account can use",
        )
    prompted = method == _PROMPT
    message = text if prompted else f"{method} was refused: {text} ({code})"
    hints = {
        Category.AGENT_AUTH: profile.login_hint,
        Category.AGENT_USAGE_LIMIT: "wait for the limit to reset, or use another account or model",
    }
    wait = _RETRY_AFTER.search(text) if category is Category.AGENT_RATE_LIMITED else None
    unit_ms = 1 if wait is not None and wait[2].lower() == "ms" else 1_000
    return Failure(
        category=category or (Category.TURN_FAILED if prompted else Category.RESPONSE_ERROR),
        blame=Blame.AGENT,
        message=redact(message),
        retryable=category is not Category.AGENT_AUTH,
        hint=None if category is None else hints.get(category),
        retry_after_ms=None if wait is None else round(float(wait[1]) * unit_ms),
    )


def _texts(node: object, depth: int) -> list[str]:
    if isinstance(node, str):
        return [node]
    if depth == 0 or not isinstance(node, dict | list):
        return []
    children = node.values() if isinstance(node, dict) else node
    return [text for child in children for text in _texts(child, depth - 1)]


def turn_end(stop_reason: object) -> TurnEnd:
    """Return the end of a turn by its `stopReason`.

    `max_turn_requests` completes the turn: the agent paused after many calls of its model, and the next turn
    continues.
    """
    match stop_reason:
        case "end_turn" | "max_turn_requests":
            return TurnEnd(status=TurnStatus.COMPLETED)
        case "cancelled":
            status, category, text = TurnStatus.INTERRUPTED, Category.TURN_CANCELLED, "the turn was cancelled"
        case "refusal":
            status, category, text = TurnStatus.FAILED, Category.TURN_FAILED, "the agent refused to go on"
        case "max_tokens":
            status, category = TurnStatus.FAILED, Category.AGENT_CONTEXT_FULL
            text = "the model's limit of tokens was reached"
        case _:
            status, category = TurnStatus.FAILED, Category.TURN_FAILED
            text = f"the turn ended with the unknown stop reason {redact(repr(stop_reason), 100)}"
    return TurnEnd(status=status, failure=Failure(category=category, blame=Blame.AGENT, message=text))


# --- tokens ------------------------------------------------------------------------------------------------

_INPUT: Final = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
_OUTPUT: Final = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")
_CACHE_READ: Final = ("cachedReadTokens",)
_CACHE_WRITE: Final = ("cachedWriteTokens",)
_THOUGHTS: Final = ("thoughtTokens",)
_TOTAL: Final = ("totalTokens", "total_tokens")


def usage_in(result: Json, path: Sequence[str]) -> UsageUpdate | None:
    """Return the token counts in the answer to a prompt; None if it reports none.

    Cached tokens are reported besides the input and belong to it. Thoughts may be reported besides the
    output, which the total shows. The total is trusted for nothing else: it may hold the size of the context.
    (`usage_update` reports the size of the context too, not consumption, and is ignored.)
    """
    node: object = result
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        return None
    given, taken, total = (count_in(node, keys) for keys in (_INPUT, _OUTPUT, _TOTAL))
    if given is None and taken is None:
        if total is None:
            return None
        return UsageUpdate(absolute=False, tokens=Tokens(total_tokens=total))
    read, written, thoughts = (count_in(node, keys) or 0 for keys in (_CACHE_READ, _CACHE_WRITE, _THOUGHTS))
    given, taken = (given or 0) + read + written, taken or 0
    taken += thoughts if total == given + taken + thoughts else 0
    tokens = Tokens(
        input_tokens=given,
        output_tokens=taken,
        total_tokens=given + taken,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=min(thoughts, taken),
    )
    return UsageUpdate(absolute=False, tokens=tokens)


# --- updates -----------------------------------------------------------------------------------------------

_SUMMARY_CHARS: Final = 200
_ARGUMENT_CHARS: Final = 8_000
_MESSAGE_CHARS: Final = 262_144
_MAX_CALLS: Final = 1_024
_ENDED: Final = ("completed", "failed")
_OUTPUT_KEYS: Final = ("formatted_output", "aggregated_output", "output", "stdout")
_EXIT_CODE_KEYS: Final = ("exitCode", "exit_code", "exit")


@dataclass(slots=True, kw_only=True)
class _ToolCall:
    """A tool call, as far as updates have described it.

    `command` is the one in the raw input, empty for one of an unknown form; None for other calls.
    """

    kind: str = "other"
    title: str = ""
    command: str | None = None
    raw_input: str = ""
    paths: str = ""
    output: str = ""
    changes: tuple[FileEdit, ...] = ()
    reported: bool = False

    @property
    def summary(self) -> str:
        """The command, or the title of another call."""
        command = self.command if self.kind == "execute" else None
        return redact(command or self.title, _SUMMARY_CHARS)

    def update(self, update: Json) -> None:
        """Take over the fields of an update; later updates leave out what has not changed."""
        self.kind = text_in(update, "kind")[:40] or self.kind
        title = text_in(update, "title")
        self.title = title[:_ARGUMENT_CHARS] if title.strip() else self.title
        if raw := update.get("rawInput"):
            self.raw_input = json.dumps(raw, ensure_ascii=False)
            self.command = _command(raw)
        paths = [str(place.get("path", "")) for place in objects_in(update, "locations")]
        self.paths = "\n".join(paths)[:_ARGUMENT_CHARS] or self.paths
        self.output = _output(update) or self.output
        self.changes = _changes(update) or self.changes


class Updates:
    """Turns the updates of one session into events.

    An agent speaks in pieces, and people are shown whole messages: pieces are collected until another update
    comes. An empty list means that an update only shows that the agent is alive.
    """

    def __init__(self) -> None:
        self._calls: FIFOCache[str, _ToolCall] = FIFOCache(_MAX_CALLS)
        self._pieces: list[str] = []
        self._thoughts: list[str] = []
        self._chars = 0

    @property
    def pending_message(self) -> str:
        """The message that has been collected so far."""
        return "".join(self._pieces).strip()

    def translate(self, update: Json) -> list[AgentEvent]:
        """Return the events of one update; never raises."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._collect(update, self._pieces, self._thoughts)
            case "agent_thought_chunk":
                return self._collect(update, self._thoughts, self._pieces)
            case "tool_call":
                return [*self.flush(), *self._call_events(update, complete=False)]
            case "tool_call_update":
                return [*self.flush(), *self._call_events(update, complete=bool(update.get("rawInput")))]
            case "plan" | "user_message_chunk" as kind:
                return [*self.flush(), *([_plan(update)] if kind == "plan" and update.get("entries") else [])]
            case _:
                return []

    def permission(self, call: Json) -> tuple[list[AgentEvent], str]:
        """Return the events of a tool call in a request for permission, and its title, empty for a command.

        The request is often the first message about the call. The title may have come earlier.
        """
        events = [*self.flush(), *self._call_events(call, complete=True)]
        known = self._calls.get(_call_id(call), _ToolCall())
        return events, known.title if known.command is None else ""

    def _collect(self, update: Json, pieces: list[str], others: list[str]) -> list[AgentEvent]:
        """Collect a piece of a message or of a thought; one of them ends where the other begins."""
        text = text_in(object_in(update, "content"), "text")
        events = self.flush() if text and others else []
        if text:
            pieces.append(text)
            self._chars += len(text)
        return [*events, *(self.flush() if self._chars > _MESSAGE_CHARS else [])]

    def flush(self) -> list[AgentEvent]:
        """Return the message or the thought that has been collected, if there is one."""
        thought, text = "".join(self._thoughts), "".join(self._pieces)
        self._clear()
        return [
            *([Reasoning(text=thought)] if thought.strip() else []),
            *([Text(message=text)] if text.strip() else []),
        ]

    def forget(self) -> None:
        """Drop what was collected: a conversation that is replayed is not news."""
        self._clear()
        self._calls.clear()

    def _clear(self) -> None:
        self._thoughts.clear()
        self._pieces.clear()
        self._chars = 0

    def _call_events(self, update: Json, *, complete: bool) -> list[AgentEvent]:
        """Return the events of a tool call. It is reported once its input is `complete`, or it has begun.

        Many agents send the input in a second update.
        """
        call_id = _call_id(update)
        call = self._calls.setdefault(call_id, _ToolCall())
        call.update(update)
        status = update.get("status")
        events: list[AgentEvent] = []
        if not call.reported and (complete or status == "in_progress" or status in _ENDED):
            call.reported = True
            arguments = f"{call.raw_input[:_ARGUMENT_CHARS]}\n{call.paths}".strip()[:_ARGUMENT_CHARS]
            events.append(
                ItemStarted(
                    kind=call.kind,
                    summary=call.summary,
                    arguments=arguments,
                    item_id=call_id,
                    input=call.command or call.raw_input,
                    changes=call.changes,
                )
            )
        if status in _ENDED:
            self._calls.pop(call_id, None)
            events.append(
                ItemFinished(
                    kind=call.kind,
                    summary=call.summary,
                    status=str(status),
                    exit_code=_exit_code(update),
                    item_id=call_id,
                    output=call.output,
                    changes=call.changes,
                )
            )
        return events


def _plan(update: Json) -> PlanUpdated:
    return PlanUpdated(
        steps=tuple(
            PlanStep(text=text_in(entry, "content"), status=text_in(entry, "status"))
            for entry in objects_in(update, "entries")[:MAX_PLAN_STEPS]
        )
    )


def _call_id(update: Json) -> str:
    return str(update.get("toolCallId", ""))[:200]


def _command(raw_input: object) -> str | None:
    if not isinstance(raw_input, dict) or "command" not in raw_input:
        return None
    return shown_command(raw_input["command"])


def _output(update: Json) -> str:
    """Return the result of a tool call: its content, or its raw output."""
    texts = [text_in(object_in(part, "content"), "text") for part in objects_in(update, "content")]
    if text := "\n".join(text for text in texts if text):
        return text
    raw = update.get("rawOutput")
    if isinstance(raw, dict):
        raw = next((raw[key] for key in _OUTPUT_KEYS if isinstance(raw.get(key), str)), raw)
    return "" if raw is None else as_text(raw)


def _changes(update: Json) -> tuple[FileEdit, ...]:
    """Return the changed files of a tool call. A new file has no old text."""
    found = []
    for part in objects_in(update, "content")[:MAX_CHANGES]:
        if part.get("type") == "diff":
            added, removed = line_changes(text_in(part, "oldText"), text_in(part, "newText"))
            change = "add" if part.get("oldText") is None else "update"
            found.append(FileEdit(path=text_in(part, "path"), change=change, added=added, removed=removed))
    return tuple(found)


def _exit_code(update: Json) -> int | None:
    """Return the exit code beside the output of a command, in its metadata, or at the end of its terminal."""
    output = object_in(update, "rawOutput")
    nodes = (output, object_in(output, "metadata"), object_in(object_in(update, "_meta"), "terminal_exit"))
    codes = (node.get(key) for node in nodes for key in _EXIT_CODE_KEYS)
    return next((code for code in codes if isinstance(code, int) and not isinstance(code, bool)), None)
