"""`session/update` in our vocabulary (AG9, AG11, TK8). Keeps what later updates of a tool call leave out.

An agent speaks in pieces; people are told whole messages, so pieces are gathered until something else comes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony import __version__
from symphony.agents.acp.profiles import Profile
from symphony.agents.events import (
    AgentEvent,
    ItemFinished,
    ItemStarted,
    Text,
    TurnEnded,
    TurnStatus,
    Usage,
    decoded,
    redact,
)
from symphony.agents.wire import JsonRpcDialect, Refusal
from symphony.domain import Blame, Category, Failure

# The params of our requests: handshake, session, prompt; and where the envelope goes in them. Pure.


PROTOCOL_VERSION = 1

Params = Mapping[str, Any]
McpServer = tuple[str, Sequence[str]]
"""Name and command of a server of tools that the agent starts."""


def initialize() -> Params:
    """Who we are, and that we lend neither files nor terminals: an agent has its own."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "symphony", "title": "Symphony", "version": __version__},
    }


def session(
    *, cwd: Path, servers: Sequence[McpServer], extra: Params, session_id: str | None = None
) -> dict[str, Any]:
    """A session in `cwd`, a new one or `session_id`, with servers of tools; `extra` is the profile's."""
    params = {
        **extra,
        "cwd": str(cwd),
        "mcpServers": [
            {"name": name, "command": argv[0], "args": list(argv[1:]), "env": []} for name, argv in servers
        ],
    }
    return params if session_id is None else {**params, "sessionId": session_id}


def prompt(session_id: str, text: str) -> Params:
    """One turn."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


def filled(template: Any, name: str, text: str) -> Any:
    """A template with `{name}` replaced by `text` in every text of it."""
    if isinstance(template, str):
        return template.replace(f"{{{name}}}", text)
    if isinstance(template, Mapping):
        return {key: filled(value, name, text) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [filled(value, name, text) for value in template]
    return template


def config_value(*parts: Params, given: str | None) -> str:
    """A configuration as JSON: the operator's own (`given`) with `parts` over it, lists one behind the other.

    What the operator wrote that is no JSON object is not ours to mend: ours stands alone then.
    """
    try:
        merged = json.loads(given or "{}")
    except ValueError:
        merged = {}
    merged = merged if isinstance(merged, dict) else {}
    for part in parts:
        merged = _merged(merged, part)
    return json.dumps(merged, ensure_ascii=False)


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, Mapping):
        both = {key: _merged(one[key], value) if key in one else value for key, value in other.items()}
        return {**one, **both}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(value for value in other if value not in one)]
    return other


# What an agent's JSON-RPC error or stop reason means, as a `Failure` (AGENT-FACTS 7; AG12). Pure.
#
# The protocol has one code of its own for a missing login; everything else travels in words, and in `data`
# as each agent likes. So words decide, and what is unknown is a failed turn that may be tried again.


AUTH_REQUIRED = -32_000
_MAX_DETAILS = 2_000
_RETRY_AFTER = re.compile(
    r"retry[ _-]?(?:delay|after|in)\W{0,5}(\d{1,6}(?:\.\d{1,9})?)\s*(ms|s)\b", re.IGNORECASE
)
_USAGE_LIMIT = (
    r"usage.?limit|insufficient.?quota|quota (?:was |is )?exceeded|exceeded your.{0,20}quota"
    r"|credit balance|out of credits?|billing|payment required"
)
_RATE_LIMIT = r"\b429\b|rate.?limit|too many requests|resource.?exhausted|overloaded"
_BAD_KEY = r"(?:invalid|incorrect|missing|not valid)"
_AUTH = (
    r"\b40[13]\b|unauthori[sz]ed|authenticat|not logged in|please log ?in|permission_denied"
    rf"|{_BAD_KEY}[^.]{{0,40}}api.?key|api.?key[^.]{{0,40}}{_BAD_KEY}"
)
_CONTEXT = (
    r"context.{0,12}(?:length|window|limit|overflow)|prompt is too long"
    r"|exceeds the maximum number of tokens|token count.{0,40}exceeds"
)
_WORDS: tuple[tuple[Category, re.Pattern[str]], ...] = tuple(
    (category, re.compile(words, re.IGNORECASE))
    for category, words in (
        (Category.AGENT_USAGE_LIMIT, _USAGE_LIMIT),
        (Category.AGENT_RATE_LIMITED, _RATE_LIMIT),
        (Category.AGENT_AUTH, _AUTH),
        (Category.AGENT_CONTEXT_FULL, _CONTEXT),
    )
)
_NO_MODEL = re.compile(
    r"model.{0,80}(?:not.?found|not supported|does not exist|unknown|invalid)"
    r"|(?:unknown|invalid|no such|unsupported).{0,20}model|not_found_error",
    re.IGNORECASE,
)


def manner(profile: Profile) -> JsonRpcDialect:
    """How the connection words what goes wrong with such an agent."""
    return JsonRpcDialect(
        missing=Category.AGENT_NOT_FOUND,
        install_hint=profile.install_hint,
        refusal=lambda answer: refused(answer, profile),
        versioned=True,
    )


def refused(answer: Refusal, profile: Profile) -> Failure:
    """The failure behind a JSON-RPC error: of the turn for a prompt, else of the request."""
    return _failure(_words_of(answer), answer.code, profile, method=answer.method)


def in_words(text: str, profile: Profile) -> Failure:
    """The failure of a turn that the agent told in words alone."""
    return _failure(text or "the turn used no tokens", 0, profile, method="session/prompt")


def _failure(text: str, code: int, profile: Profile, *, method: str) -> Failure:
    category = _category(code, text)
    if category is None and _NO_MODEL.search(text):
        return Failure(
            category=Category.TURN_FAILED,
            blame=Blame.CONFIG,
            message=redact(text),
            retryable=False,
            hint="set acp.model to a model that this account can use",
        )
    prompted = method == "session/prompt"
    message = text if prompted else f"{method} was refused: {text} ({code})"
    return Failure(
        category=category or (Category.TURN_FAILED if prompted else Category.RESPONSE_ERROR),
        blame=Blame.AGENT,
        message=redact(message),
        retryable=category is not Category.AGENT_AUTH,
        hint=_hint(category, profile),
        retry_after_ms=_retry_after_ms(text) if category is Category.AGENT_RATE_LIMITED else None,
    )


def turn_end(reason: object) -> TurnEnded:
    """The end of a turn by its `stopReason`.

    `max_turn_requests` completes: the agent paused after many calls of its model, and the next turn goes on.
    """
    match reason:
        case "end_turn" | "max_turn_requests":
            return TurnEnded(status=TurnStatus.COMPLETED)
        case "cancelled":
            return _ended(TurnStatus.INTERRUPTED, Category.TURN_CANCELLED, "the turn was cancelled")
        case "refusal":
            return _ended(TurnStatus.FAILED, Category.TURN_FAILED, "the agent refused to go on")
        case "max_tokens":
            text = "the model's limit of tokens was reached"
            return _ended(TurnStatus.FAILED, Category.AGENT_CONTEXT_FULL, text)
        case _:
            text = f"the turn ended with the unknown stop reason {redact(repr(reason), 100)}"
            return _ended(TurnStatus.FAILED, Category.TURN_FAILED, text)


def _ended(status: TurnStatus, category: Category, message: str) -> TurnEnded:
    return TurnEnded(status=status, failure=Failure(category=category, blame=Blame.AGENT, message=message))


def _words_of(answer: Refusal) -> str:
    """Message and every text in `data`, which is where most agents say what really happened."""
    try:
        data = decoded(answer.data)
    except ValueError:
        data = None
    details = [text for text in _texts(data, 4) if text.strip() and text not in answer.message]
    return ": ".join([answer.message or "no reason given", *details])[:_MAX_DETAILS]


def _texts(node: object, depth: int) -> list[str]:
    if isinstance(node, str):
        return [node]
    if depth == 0 or not isinstance(node, dict | list):
        return []
    children = node.values() if isinstance(node, dict) else node
    return [text for child in children for text in _texts(child, depth - 1)]


def _category(code: int, text: str) -> Category | None:
    found = next((category for category, words in _WORDS if words.search(text)), None)
    if code == AUTH_REQUIRED and found is None:
        return Category.AGENT_AUTH
    return found


def _hint(category: Category | None, profile: Profile) -> str | None:
    if category is Category.AGENT_AUTH:
        return profile.login_hint
    if category is Category.AGENT_USAGE_LIMIT:
        return "wait for the limit to reset, or use another account or model"
    return None


def _retry_after_ms(text: str) -> int | None:
    found = _RETRY_AFTER.search(text)
    if found is None:
        return None
    return round(float(found[1]) * (1 if found[2].lower() == "ms" else 1_000))


# Token counts in the answer to a prompt, wherever a profile says that they are (TK1, TK3). Pure.
#
# `usage_update` is how full the context is, and no consumption; it is not looked at.


_INPUT = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
_OUTPUT = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")
_CACHED = ("cachedReadTokens", "cachedWriteTokens")
_THOUGHTS = ("thoughtTokens",)
_TOTAL = ("totalTokens", "total_tokens")


def usage_in(result: Mapping[str, Any], path: Sequence[str]) -> Usage | None:
    """What a turn used; null when nothing is told.

    Cached tokens stand beside the input, and belong to it. Thoughts may stand beside the output; that they do
    is seen by the total, which is not believed in anything else: it may hold the size of a context.
    """
    node: object = result
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        return None
    given, taken, total = (_first(node, names) for names in (_INPUT, _OUTPUT, _TOTAL))
    if given is None and taken is None and total is None:
        return None
    cached = sum(_first(node, (name,)) or 0 for name in _CACHED)
    if given is None and taken is None:
        return Usage(absolute=False, input_tokens=0, output_tokens=0, total_tokens=total or 0)
    given, taken = (given or 0) + cached, taken or 0
    thoughts = _first(node, _THOUGHTS) or 0
    taken += thoughts if total == given + taken + thoughts else 0
    return Usage(absolute=False, input_tokens=given, output_tokens=taken, total_tokens=given + taken)


def _first(counts: Mapping[str, Any], names: Sequence[str]) -> int | None:
    found = (counts.get(name) for name in names)
    return next(
        (value for value in found if isinstance(value, int) and not isinstance(value, bool) and value >= 0),
        None,
    )


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
