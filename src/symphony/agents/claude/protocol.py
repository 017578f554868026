"""Claude Code's stream of JSON lines, sans-IO: bytes in and messages out, requests in and bytes out.

Events have a `type`, some a `subtype`. Beside them runs a control channel in both directions: a
`control_request` waits for the `control_response` of the same `request_id`, which the one who asks makes up.

    receive(bytes) -> Event | Question | Reply | Pulse | Chatter | Garbled
    request(subtype) -> (id, bytes)      answer/refuse(id, ...) -> bytes      user(text) -> bytes

Events stay undecoded, and pieces of a message are only counted: most of a stream is those. No clock, no I/O.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from symphony.agents.events import (
    MAX_ID_CHARS,
    AgentEvent,
    ContextCompacted,
    ItemFinished,
    ItemStarted,
    Malformed,
    Notice,
    RateLimits,
    Text,
    TurnEnded,
    TurnStatus,
    Usage,
    is_cost_of_a_turn,
    parse,
    redact,
)
from symphony.agents.mcp.server import SERVER_NAME
from symphony.agents.wire import EXCERPT_CHARS, Lines, MalformedLine, PlainLine, encoded, excerpt, unreadable
from symphony.config import ClaudeSettings
from symphony.domain import DECODE_ERRORS, MAX_COUNT, Blame, Category, Failure

# The arguments that follow `claude.command`, and what they close (AG4, AG14). Pure.
#
# What a workspace holds must not steer its own agent. Settings of a project can name another model
# endpoint, which then gets the key, a program that makes keys, hooks, MCP servers and permissions, and
# nobody is asked whether they are trusted. So only the operator's settings are read, MCP servers are ours
# alone, and a project speaks through its CLAUDE.md, which is text (`--add-dir` with a variable, see
# `home`).


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
    agent_lists_skills: bool,
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
    words += [] if agent_lists_skills else ["--disable-slash-commands"]
    words += [] if server is None else [f"--mcp-config={_mcp_config(server)}"]
    allowed = (*_COMMITTING, *(() if server is None else (f"mcp__{SERVER_NAME}",)))
    return (*words, f"--allowedTools={_listed(allowed)}", f"--disallowedTools={_listed(_OUT_OF_PLACE)}")


def _mcp_config(server: Sequence[str]) -> str:
    command, *arguments = server
    return json.dumps({"mcpServers": {SERVER_NAME: {"command": command, "args": arguments}}})


def _listed(names: Sequence[str]) -> str:
    return ",".join(names)


_NOTHING = msgspec.Raw(b"{}")
_PULSES = frozenset({"stream_event", "keep_alive"})


class Event(msgspec.Struct, frozen=True):
    """Something happened; `raw` is the whole line."""

    type: str
    subtype: str
    raw: msgspec.Raw


class Question(msgspec.Struct, frozen=True):
    """The agent asks and waits: it must be answered with the same `id`."""

    id: str
    request: msgspec.Raw


class Reply(msgspec.Struct, frozen=True):
    """The answer to our request `id`; `error` is set where it was refused."""

    id: str
    response: msgspec.Raw
    error: str | None = None


class KeepAlive(msgspec.Struct, frozen=True):
    """So many messages in a row that only say that the agent is at work."""

    count: int


Message = Event | Question | Reply | KeepAlive | PlainLine | MalformedLine


class _Reply(msgspec.Struct):
    subtype: str = ""
    request_id: str = ""
    response: msgspec.Raw = _NOTHING
    error: str | None = None


class _Line(msgspec.Struct):
    type: str
    subtype: str = ""
    request_id: str = ""
    request: msgspec.Raw = _NOTHING
    response: msgspec.Raw = _NOTHING


_line_decoder = msgspec.json.Decoder(_Line)
_reply_decoder = msgspec.json.Decoder(_Reply)


class Codec:
    """Both directions of one stream. Not shared, not thread-safe."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._last_id = 0

    def request(self, subtype: str, **fields: Any) -> tuple[str, bytes]:
        """A request of ours on the control channel; returns its id and its line."""
        self._last_id += 1
        name = f"symphony-{self._last_id}"
        body = {"subtype": subtype, **fields}
        return name, encoded({"type": "control_request", "request_id": name, "request": body})

    @staticmethod
    def user(text: str) -> bytes:
        """The line by which a turn begins."""
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return encoded({"type": "user", "message": message})

    @staticmethod
    def answer(request_id: str, response: Mapping[str, Any]) -> bytes:
        """The line that answers a question of the agent."""
        return _response("success", request_id, response=response)

    @staticmethod
    def refuse(request_id: str, error: str) -> bytes:
        """The line that answers a question of the agent with an error."""
        return _response("error", request_id, error=error)

    def receive(self, data: bytes) -> list[Message]:
        """The messages completed by `data`, in order; an unfinished last line is kept for the next call."""
        return _merged(self._lines.receive(data))

    def close(self) -> list[Message]:
        """What the stream's end leaves: an unfinished line counts as a whole one."""
        return _merged(self._lines.close())


def _response(subtype: str, request_id: str, **fields: Any) -> bytes:
    body = {"subtype": subtype, "request_id": request_id, **fields}
    return encoded({"type": "control_response", "response": body})


def _merged(lines: list[bytes | MalformedLine]) -> list[Message]:
    """The messages of lines; pulses in a row become one."""
    found: list[Message] = []
    for line in lines:
        message = line if isinstance(line, MalformedLine) else _message(line)
        if isinstance(message, KeepAlive) and found and isinstance(last := found[-1], KeepAlive):
            found[-1] = KeepAlive(last.count + message.count)
        elif message is not None:
            found.append(message)
    return found


def _message(line: bytes) -> Message | None:
    try:
        head = _line_decoder.decode(line)
        if head.type in _PULSES:
            return KeepAlive(1)
        if head.type == "control_response":
            return _reply(_reply_decoder.decode(head.response))
    except DECODE_ERRORS:
        return unreadable(line)
    if head.type != "control_request":
        return Event(head.type, head.subtype, msgspec.Raw(line))
    if not head.request_id:
        return MalformedLine(excerpt(line)[:EXCERPT_CHARS])
    return Question(head.request_id, head.request)


def _reply(body: _Reply) -> Reply:
    error = body.error or "no reason told"
    return Reply(body.request_id, body.response, error if body.subtype == "error" else None)


# What Claude Code calls an error, as a `Failure` (AGENT-FACTS 7; AG12).
#
# A failed turn says three things about itself, and each may be missing: the HTTP status of the model, a
# name that stands at its last message, and a text for people. The subtype is "success" all the same.


INSTALL_HINT = (
    "install it with `npm install -g @anthropic-ai/claude-code`, or set claude.command to where it is"
)

_MODEL_HINT = "set claude.model to a model that this account can use"
_LIMIT_HINT = "wait for the limit to reset, or use another account or model"
_STATUSES = range(100, 600)
_AUTH_STATUS = frozenset({401, 403})
_NOT_LOGGED_IN = re.compile(r"not logged in|please run /login|invalid api key", re.IGNORECASE)
_USED_UP = re.compile(
    r"usage limit|credit balance|(?:hit|reached) your .{0,40}limit|\blimit reached\b"
    r"|out of (?:extra )?(?:usage|credits)",
    re.IGNORECASE,
)
_RESETS_AT = re.compile(r"\|(\d{10})\b")


def login_hint(home: Path | None = None) -> str:
    """How to log in; `home` is the private one of the agent, null for the user's own."""
    place = "" if home is None else f"CLAUDE_CONFIG_DIR={shlex.quote(str(home))} "
    return (
        f"run `{place}claude auth login` as the user of the daemon, "
        "or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN where it starts"
    )


def turn_failure(result: Mapping[str, Any], name: str | None, *, now_s: float) -> Failure:
    """The failure behind a `result` that is an error.

    `name` is what its last message calls the error, null where there is none; `now_s` is the wall clock in
    Unix seconds, from which a reset is far away.
    """
    status = result.get("api_error_status")
    status = status if isinstance(status, int) and status in _STATUSES else None
    text = describe(result)
    category = _category(result, name, status, text)
    unknown_model = name == "model_not_found" or (name is None and status == 404)  # noqa: PLR2004 - HTTP
    hints = {Category.AGENT_AUTH: login_hint(), Category.AGENT_USAGE_LIMIT: _LIMIT_HINT}
    return Failure(
        category=category,
        blame=Blame.CONFIG if unknown_model else Blame.AGENT,
        message=redact(text),
        retryable=category is not Category.AGENT_AUTH and not unknown_model,
        hint=_MODEL_HINT if unknown_model else hints.get(category),
        retry_after_ms=_reset(text, now_s) if category is Category.AGENT_USAGE_LIMIT else None,
        status=status,
    )


def describe(result: Mapping[str, Any]) -> str:
    """What a `result` says to people; never empty."""
    errors = result.get("errors")
    told = [result.get("result"), *(errors if isinstance(errors, list) else [])]
    words = "; ".join(text for text in told if isinstance(text, str) and text.strip())
    return words or f"the turn failed without a message ({result.get('subtype') or 'no subtype'})"


def _category(result: Mapping[str, Any], name: str | None, status: int | None, text: str) -> Category:
    if name == "billing_error" or _USED_UP.search(text):
        return Category.AGENT_USAGE_LIMIT
    if status in _AUTH_STATUS or name == "authentication_failed" or _NOT_LOGGED_IN.search(text):
        return Category.AGENT_AUTH
    if result.get("terminal_reason") == "prompt_too_long" or text.startswith("Prompt is too long"):
        return Category.AGENT_CONTEXT_FULL
    if status == 429 or name == "rate_limit":  # noqa: PLR2004 - HTTP
        return Category.AGENT_RATE_LIMITED
    return Category.TURN_FAILED


def _reset(text: str, now_s: float) -> int | None:
    """Milliseconds until the time that some of the texts end with."""
    found = _RESETS_AT.search(text)
    return None if found is None else max(0, int((int(found[1]) - now_s) * 1000))


# Counts what a session used: per message while a turn runs, and exactly when it ends (TK1, TK2). Pure.
#
# `modelUsage` of a result holds totals of the process, sub-agents included; its `usage` leaves those out,
# and what stands at a message is an estimate made at its beginning. So messages are counted as they come,
# and a result adds what is missing. Input tokens include cached ones, as everywhere with us; Claude's own
# do not.


_MAX_MESSAGES = 10_000
_OF_MODEL = (("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"), "outputTokens")
_OF_TURN = (("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens")


@dataclass(frozen=True, slots=True)
class _Counts:
    taken: int = 0
    given: int = 0

    def plus(self, other: "_Counts") -> "_Counts":
        return _Counts(self.taken + other.taken, self.given + other.given)

    def above(self, other: "_Counts") -> "_Counts":
        return _Counts(max(0, self.taken - other.taken), max(0, self.given - other.given))


class TokenCounter:
    """What one process has used, of which each token is told once; and what that cost."""

    def __init__(self) -> None:
        self._told = _Counts()
        self._before_turn = _Counts()
        self._messages: dict[str, None] = {}
        self._cost_usd = 0.0

    def message(self, message: Mapping[str, Any]) -> Usage | None:
        """Count a message of the model, which comes once per block of its content."""
        name = str(message.get("id"))[:MAX_ID_CHARS]
        if name in self._messages:
            return None
        self._messages[name] = None
        if len(self._messages) > _MAX_MESSAGES:
            del self._messages[next(iter(self._messages))]
        return self._tell(_counts(message.get("usage"), _OF_TURN))

    def result(self, result: Mapping[str, Any]) -> Usage | None:
        """What the end of a turn adds."""
        models = result.get("modelUsage")
        totals = _Counts()
        for usage in models.values() if isinstance(models, dict) else ():
            totals = totals.plus(_counts(usage, _OF_MODEL))
        if totals == _Counts():
            totals = self._before_turn.plus(_counts(result.get("usage"), _OF_TURN))
        usage = self._tell(totals.above(self._told))
        self._before_turn = self._told
        self._messages.clear()
        return usage

    def cost_usd(self, result: Mapping[str, Any]) -> float | None:
        """What the turn cost by the agent's own count, whose totals are of the process; null for nothing.

        Infinite where that cannot be, and then nothing is remembered of it.
        """
        total = result.get("total_cost_usd")
        if not isinstance(total, int | float) or isinstance(total, bool) or total <= self._cost_usd:
            return None
        if total > MAX_COUNT:
            return math.inf
        cost, self._cost_usd = total - self._cost_usd, float(total)
        return cost

    def _tell(self, new: _Counts) -> Usage | None:
        if new == _Counts():
            return None
        if is_cost_of_a_turn(new.taken + new.given):  # else it is refused, and must not hide what follows
            self._told = self._told.plus(new)
        return Usage(
            absolute=False,
            input_tokens=new.taken,
            output_tokens=new.given,
            total_tokens=new.taken + new.given,
        )


def _counts(usage: object, names: tuple[tuple[str, ...], str]) -> _Counts:
    if not isinstance(usage, Mapping):
        return _Counts()
    return _Counts(sum(_count(usage.get(name)) for name in names[0]), _count(usage.get(names[1])))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# Claude's tools in words: what a call is named on a screen, and how its result reads (TK8). Pure.


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


# Events of Claude Code in our vocabulary (AG9, AG11, TK1, TK7). Pure.
#
# A translator belongs to one process: a result names its call by an id only, and totals are of the process.
# What is not understood is a sign of life and nothing else.


Body = Mapping[str, Any]
Handler = Callable[[Body], Iterator[AgentEvent]]
_MAX_OPEN = 1_000


class Translator:
    """Turns the events of one process into ours."""

    def __init__(self, *, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._ledger = TokenCounter()
        self._open: dict[str, ItemStarted] = {}
        self._error: str | None = None
        self._warned = False
        self._handlers: Mapping[tuple[str, str], Handler] = {
            ("assistant", ""): self._assistant,
            ("user", ""): self._user,
            ("result", ""): self._result,
            ("rate_limit_event", ""): _rate_limits,
            ("system", "init"): self._init,
            ("system", "api_retry"): _api_retry,
            ("system", "compact_boundary"): _compacted,
        }

    def translate(self, event: Event) -> tuple[AgentEvent, ...]:
        """The meaning of one event, nothing for a sign of life; never raises, whatever it holds."""
        handler = self._handlers.get((event.type, event.subtype if event.type == "system" else ""))
        if handler is None:
            return ()
        try:
            body = parse(event.raw)
        except ValueError:
            return (Malformed(excerpt=f"{event.type}: {excerpt(bytes(event.raw))}"[:EXCERPT_CHARS]),)
        return tuple(handler(body))

    def _assistant(self, body: Body) -> Iterator[AgentEvent]:
        message = _map(body, "message")
        self._error = _string(body, "error")
        usage = self._ledger.message(message)
        if usage is not None:
            yield usage
        mine = body.get("parent_tool_use_id") is None and self._error is None
        for block in _blocks(message):
            match block.get("type"):
                case "text" if mine and (text := _string(block, "text")) and text.strip():
                    yield Text(message=text)
                case "tool_use":
                    yield self._started(block)
                case _:
                    pass

    def _started(self, block: Body) -> ItemStarted:
        item = started(block)
        if len(self._open) < _MAX_OPEN:
            self._open[_name(block, "id")] = item
        return item

    def _user(self, body: Body) -> Iterator[AgentEvent]:
        for block in _blocks(_map(body, "message")):
            item = self._open.pop(_name(block, "tool_use_id"), None)
            if block.get("type") == "tool_result" and item is not None:
                yield finished(item, block)

    def _init(self, body: Body) -> Iterator[AgentEvent]:
        """Comes with every turn; what it says of our own tools is told once."""
        servers = body.get("mcp_servers")
        for server in servers if isinstance(servers, list) else ():
            if not isinstance(server, dict) or server.get("name") != SERVER_NAME or self._warned:
                continue
            if (status := _string(server, "status")) in {"failed", "needs-auth", "disabled"}:
                self._warned = True
                yield Notice(level="warning", message=f"the agent has no tools of ours: {status}")

    def _result(self, body: Body) -> Iterator[AgentEvent]:
        usage, cost = self._ledger.result(body), self._ledger.cost_usd(body)
        self._open.clear()
        if usage is not None:
            yield usage
        yield replace(self._ended(body), cost_usd=cost)

    def _ended(self, body: Body) -> TurnEnded:
        reason, name = _string(body, "terminal_reason") or "", self._error
        self._error = None
        if reason.startswith("aborted"):
            message = f"the turn was interrupted ({redact(reason, 100)})"
            failure = Failure(category=Category.TURN_CANCELLED, blame=Blame.AGENT, message=message)
            return TurnEnded(status=TurnStatus.INTERRUPTED, failure=failure)
        if body.get("is_error") is not True and body.get("subtype") == "success":
            return TurnEnded(status=TurnStatus.COMPLETED)
        return TurnEnded(status=TurnStatus.FAILED, failure=turn_failure(body, name, now_s=self._wall_clock()))


def _rate_limits(body: Body) -> Iterator[AgentEvent]:
    payload = _map(body, "rate_limit_info")
    if payload:
        yield RateLimits(payload=payload)


def _api_retry(body: Body) -> Iterator[AgentEvent]:
    """A request to the model failed and is tried again; how often is bounded by a variable of ours."""
    status = body.get("error_status")
    told = redact(_string(body, "error") or "unknown", 100)
    what = told if status is None else f"{told} ({redact(str(status), 10)})"
    tries = f"{redact(str(body.get('attempt')), 10)} of {redact(str(body.get('max_retries')), 10)}"
    yield Notice(level="warning", message=f"the model could not be asked: {what}; retry {tries}")


def _compacted(body: Body) -> Iterator[AgentEvent]:
    del body
    yield ContextCompacted()


def _blocks(message: Body) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _name(block: Body, key: str) -> str:
    return str(block.get(key))[:MAX_ID_CHARS]


def _map(body: Body, key: str) -> dict[str, Any]:
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _string(body: Body, key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) and value else None
