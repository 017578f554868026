"""The protocol of Claude Code: arguments, JSON lines, and the meaning of events and errors. No I/O.

Events have a `type`, some a `subtype`. Besides them there is a control channel in both directions: a
`control_request` waits for the `control_response` with the same `request_id`, which the sender makes up.
"""

import json
import math
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from cachetools import FIFOCache
from msgspec import structs

from symphony.agents import events, wire
from symphony.agents.event_queue import fits_one_turn
from symphony.agents.json_fields import (
    MAX_ID_CHARS,
    Json,
    count_in,
    decode_object,
    object_in,
    objects_in,
    text_in,
)
from symphony.agents.mcp.server import SERVER_NAME
from symphony.agents.outages import OUTAGE, is_outage
from symphony.config import ClaudeSettings
from symphony.domain import DECODE_ERRORS, MAX_COUNT, NO_TOKENS, Blame, Category, Failure, Tokens

# --- arguments ---------------------------------------------------------------------------------------------
#
# The content of a workspace must not control its own agent. Settings of a project could name another model
# endpoint, which then gets the API key, a program that makes keys, hooks, MCP servers and permissions, and
# Claude would ask no person. So it reads only the operator's settings, and the MCP server of the daemon is
# the only one. A project is heard through its CLAUDE.md, which is text (`--add-dir` together with
# `CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD`).

EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
OWN_TOOLS: Final = f"mcp__{SERVER_NAME}__"
"""The prefix of the names of the daemon's tools."""

_PROTOCOL: Final = (
    *("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--include-partial-messages", "--permission-prompt-tool", "stdio"),
)
# Without these two a session could deliver nothing; everything else is the operator's choice.
_COMMIT_TOOLS: Final = ("Bash(git add:*)", "Bash(git commit:*)")
# These leave the workspace, or outlast the turn.
_FORBIDDEN_TOOLS: Final = ("EnterWorktree", "ExitWorktree", "CronCreate", "ScheduleWakeup")
_EDITING_TOOLS: Final = ("Edit", "Write", "NotebookEdit")


def session_arguments(
    settings: ClaudeSettings,
    *,
    cwd: Path,
    thread_id: str,
    resumed: bool = False,
    envelope: str | None = None,
    server: Sequence[str] | None = None,
    agent_lists_skills: bool = True,
    read_only: bool = False,
) -> tuple[str, ...]:
    """Return the arguments of one process. Free text is one word with its option, so it is never an option.

    Args:
        settings: decides model, effort and permission mode.
        cwd: the workspace.
        thread_id: names a new conversation, or the one to continue if `resumed`.
        resumed: continue a conversation.
        envelope: appended to the system prompt. A conversation does not remember it.
        server: the command of the MCP server with the daemon's tools, or None.
        agent_lists_skills: if False, Claude lists no skills by itself.
        read_only: Claude has no tools that edit files or commit.
    """
    words = [*_PROTOCOL, "--permission-mode", settings.permission_mode]
    words += ["--setting-sources", "user", "--strict-mcp-config", "--add-dir", str(cwd)]
    words += [f"--resume={thread_id}" if resumed else f"--session-id={thread_id}"]
    words += [] if settings.model is None else [f"--model={settings.model}"]
    words += [] if settings.effort is None else [f"--effort={settings.effort}"]
    words += [] if envelope is None else [f"--append-system-prompt={envelope}"]
    words += [] if agent_lists_skills else ["--disable-slash-commands"]
    allowed = [] if read_only else [*_COMMIT_TOOLS]
    forbidden = [*_FORBIDDEN_TOOLS, *(_EDITING_TOOLS if read_only else ())]
    if server is not None:
        command, *arguments = server
        config = {"mcpServers": {SERVER_NAME: {"command": command, "args": arguments}}}
        words += [f"--mcp-config={json.dumps(config)}"]
        allowed += [f"mcp__{SERVER_NAME}"]
    words += [f"--allowedTools={','.join(allowed)}"] if allowed else []
    words += [f"--disallowedTools={','.join(forbidden)}"]
    return tuple(words)


# --- the stream --------------------------------------------------------------------------------------------

_EMPTY: Final = msgspec.Raw(b"{}")
_KEEP_ALIVES: Final = frozenset({"stream_event", "keep_alive"})


class ClaudeEvent(msgspec.Struct, frozen=True):
    """Something happened; `raw` is the whole line."""

    type: str
    subtype: str
    raw: msgspec.Raw


class ControlRequest(msgspec.Struct, frozen=True):
    """A request of the agent, which waits for an answer with the same `id`."""

    id: str
    request: msgspec.Raw


class ControlResponse(msgspec.Struct, frozen=True):
    """The answer to the request `id`; `error` is set if it was refused."""

    id: str
    response: msgspec.Raw
    error: str | None = None


class KeepAlive(msgspec.Struct, frozen=True):
    """A number of messages in a row that only show that the agent is working; `pieces` of what it writes."""

    count: int
    pieces: list[bytes] = []


Message = ClaudeEvent | ControlRequest | ControlResponse | KeepAlive | wire.PlainLine | wire.MalformedLine


class _Line(msgspec.Struct):
    type: str
    subtype: str = ""
    request_id: str = ""
    request: msgspec.Raw = _EMPTY
    response: msgspec.Raw = _EMPTY


class _Response(msgspec.Struct):
    subtype: str = ""
    request_id: str = ""
    response: msgspec.Raw = _EMPTY
    error: str | None = None


class _Delta(msgspec.Struct):
    text: str = ""


class _StreamEvent(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Piece(msgspec.Struct):
    event: _StreamEvent = msgspec.field(default_factory=_StreamEvent)
    parent_tool_use_id: str | None = None


_TEXT_DELTA: Final = b'"text_delta"'
_OF_MESSAGE: Final = b'"type":"message_'  # its start and end, which have its usage
_piece_decoder: Final = msgspec.json.Decoder(_Piece)
_line_decoder: Final = msgspec.json.Decoder(_Line)
_response_decoder: Final = msgspec.json.Decoder(_Response)


class ClaudeCodec:
    """Both directions of one stream. Events stay undecoded, and pieces of messages are only counted."""

    def __init__(self) -> None:
        self._lines = wire.LineSplitter()
        self._last_id = 0

    def request(self, subtype: str, **fields: Any) -> tuple[str, bytes]:
        """Number a control request; return its id and its line."""
        self._last_id += 1
        request_id = f"symphony-{self._last_id}"
        body = {"subtype": subtype, **fields}
        return request_id, wire.encode_line(
            {"type": "control_request", "request_id": request_id, "request": body}
        )

    @staticmethod
    def user(text: str) -> bytes:
        """Return the line that starts a turn."""
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return wire.encode_line({"type": "user", "message": message})

    @staticmethod
    def answer(request_id: str, response: Json) -> bytes:
        """Return the line that answers a control request."""
        body = {"subtype": "success", "request_id": request_id, "response": response}
        return wire.encode_line({"type": "control_response", "response": body})

    @staticmethod
    def refuse(request_id: str, error: str) -> bytes:
        """Return the line that answers a control request with an error."""
        body = {"subtype": "error", "request_id": request_id, "error": error}
        return wire.encode_line({"type": "control_response", "response": body})

    def receive(self, data: bytes) -> list[Message]:
        """Return the messages that `data` completes; an unfinished last line is kept for the next call."""
        return _decode(self._lines.receive(data))

    def close(self) -> list[Message]:
        """Return the rest at the end of the stream: an unfinished line counts as a whole one."""
        return _decode(self._lines.close())


def _decode(lines: list[bytes | wire.MalformedLine]) -> list[Message]:
    """Return the messages of lines; keep-alives in a row become one."""
    found: list[Message] = []
    for line in lines:
        message = line if isinstance(line, wire.MalformedLine) else _message(line)
        if isinstance(message, KeepAlive) and found and isinstance(last := found[-1], KeepAlive):
            last.pieces.extend(message.pieces)
            found[-1] = KeepAlive(last.count + message.count, last.pieces)
        elif message is not None:
            found.append(message)
    return found


def _message(line: bytes) -> Message | None:
    try:
        head = _line_decoder.decode(line)
        if head.type == "control_response":
            body = _response_decoder.decode(head.response)
            error = (body.error or "no reason given") if body.subtype == "error" else None
            return ControlResponse(body.request_id, body.response, error)
    except DECODE_ERRORS:
        return wire.unreadable(line)
    if head.type in _KEEP_ALIVES and _OF_MESSAGE not in line:
        return KeepAlive(1, [line] if _TEXT_DELTA in line else [])
    if head.type != "control_request":
        return ClaudeEvent(head.type, head.subtype, msgspec.Raw(line))
    if not head.request_id:
        return wire.MalformedLine(wire.excerpt(line)[: wire.EXCERPT_CHARS])
    return ControlRequest(head.request_id, head.request)


def message_piece(line: bytes) -> str:
    """Return the piece of a message in a line; empty for another line, and for the message of a sub-agent."""
    try:
        piece = _piece_decoder.decode(line)
    except DECODE_ERRORS:
        return ""
    return "" if piece.parent_tool_use_id else piece.event.delta.text


# --- errors ------------------------------------------------------------------------------------------------

INSTALL_HINT: Final = (
    "install it with `npm install -g @anthropic-ai/claude-code`, or set claude.command to where it is"
)

_MODEL_HINT: Final = "set claude.model to a model that this account can use"
_LIMIT_HINT: Final = "wait for the limit to reset, or use another account or model"
_HTTP_STATUSES: Final = range(100, 600)
_NOT_LOGGED_IN: Final = re.compile(r"not logged in|please run /login|invalid api key", re.IGNORECASE)
_LIMIT_REACHED: Final = re.compile(
    r"usage limit|credit balance|(?:hit|reached) your .{0,40}limit|\blimit reached\b"
    r"|out of (?:extra )?(?:usage|credits)",
    re.IGNORECASE,
)
_OUTAGES: Final = frozenset({"server_error", "overloaded", "overloaded_error", "api_error"})
_RESETS_AT: Final = re.compile(r"\|(\d{10})\b")


def login_hint(home: Path | None = None) -> str:
    """Return how to log in; `home` is the private one of the agent, None for the operator's own."""
    variable = "" if home is None else f"CLAUDE_CONFIG_DIR={shlex.quote(str(home))} "
    return (
        f"run `{variable}claude auth login` as the user of the daemon, "
        "or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN where it starts"
    )


def turn_failure(result: Json, error_name: str | None) -> Failure:
    """Return the failure of a `result` event that is an error; `error_name` is that of its last message.

    A failed turn may report the HTTP status of the model, an error name, and a text for people. Each of them
    may be missing, and the subtype is "success" all the same.
    """
    status = result.get("api_error_status")
    status = status if isinstance(status, int) and status in _HTTP_STATUSES else None
    text = describe_result(result)
    category = _category(result, error_name, status, text)
    not_found = error_name is None and status == HTTPStatus.NOT_FOUND
    unknown_model = error_name == "model_not_found" or not_found
    hints = {Category.AGENT_AUTH: login_hint(), Category.AGENT_USAGE_LIMIT: _LIMIT_HINT}
    resets_at = _RESETS_AT.search(text) if category is Category.AGENT_USAGE_LIMIT else None
    return Failure(
        category=category,
        blame=Blame.CONFIG if unknown_model else Blame.AGENT,
        message=events.redact(text),
        retryable=category is not Category.AGENT_AUTH and not unknown_model,
        hint=_MODEL_HINT if unknown_model else hints.get(category),
        retry_after_ms=None if resets_at is None else max(0, int((int(resets_at[1]) - time.time()) * 1000)),
        status=status,
    )


def _category(result: Json, name: str | None, status: int | None, text: str) -> Category:
    if name == "billing_error" or _LIMIT_REACHED.search(text):
        return Category.AGENT_USAGE_LIMIT
    if status in {401, 403} or name == "authentication_failed" or _NOT_LOGGED_IN.search(text):
        return Category.AGENT_AUTH
    if result.get("terminal_reason") == "prompt_too_long" or text.startswith("Prompt is too long"):
        return Category.AGENT_CONTEXT_FULL
    if status == HTTPStatus.TOO_MANY_REQUESTS or name == "rate_limit":
        return Category.AGENT_RATE_LIMITED
    if is_outage(status) or name in _OUTAGES or (status is None and OUTAGE.search(text)):
        return Category.AGENT_UNAVAILABLE
    return Category.TURN_FAILED


def describe_result(result: Json) -> str:
    """Return the text of a `result` event; never empty."""
    errors = result.get("errors")
    texts = [result.get("result"), *(errors if isinstance(errors, list) else [])]
    words = "; ".join(text for text in texts if isinstance(text, str) and text.strip())
    return words or f"the turn failed without a message ({result.get('subtype') or 'no subtype'})"


# --- tokens and cost ---------------------------------------------------------------------------------------

_MAX_MESSAGES: Final = 10_000
_MODEL_KEYS: Final = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_TURN_KEYS: Final = (
    *("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
)
_NO_MODEL: Final = "<synthetic>"


class TokenCounter:
    """Counts what one process has used; reports each token once.

    `modelUsage` of a result holds totals of the process, including sub-agents. Its `usage` leaves those out,
    and the usage of a message is an estimate made at its beginning. So messages are counted as they come, the
    end of their stream corrects the estimate, and a result adds what is missing. Claude's own input counts do
    not include cached tokens.
    """

    def __init__(self) -> None:
        self._reported = NO_TOKENS
        self._before_turn = NO_TOKENS
        self._messages: FIFOCache[str, Tokens] = FIFOCache(_MAX_MESSAGES)
        self._streams: dict[str, Json] = {}
        self._cost_usd = 0.0

    def message(self, message: Json) -> events.UsageUpdate | None:
        """Count a message of the model, which comes once for each block of its content."""
        return self._count(message, object_in(message, "usage"))

    def streamed(self, event: Json, caller: str) -> events.UsageUpdate | None:
        """Count the tokens that the end of a message's stream adds to its estimate.

        `caller` is the tool call whose sub-agent wrote the message; empty for the agent itself.
        """
        kind = event.get("type")
        if kind == "message_start":
            self._streams[caller] = object_in(event, "message")
        elif kind == "message_stop":
            self._streams.pop(caller, None)
        elif kind == "message_delta" and caller in self._streams:
            return self._count(self._streams[caller], object_in(event, "usage"))
        return None

    def _count(self, message: Json, usage: Json) -> events.UsageUpdate | None:
        """Count by how much the usage of a message exceeds what was counted of it."""
        message_id = str(message.get("id"))[:MAX_ID_CHARS]
        before = self._messages.pop(message_id, NO_TOKENS)
        new = _tokens(usage, _TURN_KEYS).above(before)
        self._messages[message_id] = before.plus(new)
        model = text_in(message, "model")[:MAX_ID_CHARS]
        return self._report(new, model=None if model == _NO_MODEL else model or None)

    def result(self, result: Json) -> events.UsageUpdate | None:
        """Count the tokens that the end of a turn adds."""
        models, totals = object_in(result, "modelUsage"), NO_TOKENS
        for name in models:
            totals = totals.plus(_tokens(object_in(models, name), _MODEL_KEYS))
        if totals == NO_TOKENS:
            turn = _tokens(object_in(result, "usage"), _TURN_KEYS)
            totals = self._before_turn.plus(turn)
        usage = self._report(totals.above(self._reported))
        self._before_turn = self._reported
        self._messages.clear()
        self._streams.clear()
        return usage

    def cost_usd(self, result: Json) -> float | None:
        """Return the cost of the turn by the agent's own count, None if it reports none.

        `total_cost_usd` is a total of the process. An impossible total gives infinity and is not remembered.
        """
        total = result.get("total_cost_usd")
        if not isinstance(total, int | float) or isinstance(total, bool) or total <= self._cost_usd:
            return None
        if total > MAX_COUNT:
            return math.inf
        cost, self._cost_usd = total - self._cost_usd, float(total)
        return cost

    def _report(self, new: Tokens, *, model: str | None = None) -> events.UsageUpdate | None:
        total = new.input_tokens + new.output_tokens  # not that of `new`: an estimate may exceed one count
        if total == 0:
            return None
        if fits_one_turn(total):  # else it will be refused, and must not hide what follows
            self._reported = self._reported.plus(new)
        return events.UsageUpdate(
            absolute=False, tokens=structs.replace(new, total_tokens=total), model=model
        )


def _tokens(usage: Json, keys: tuple[str, ...]) -> Tokens:
    fresh, taken, read, written = (count_in(usage, (key,)) or 0 for key in keys)
    given = fresh + read + written
    return Tokens(given, taken, given + taken, cache_read_tokens=read, cache_write_tokens=written)


# --- tool calls --------------------------------------------------------------------------------------------

_SUMMARY_CHARS: Final = 200
_ARGUMENT_CHARS: Final = 8_000
_MCP_PREFIX: Final = "mcp__"
_KINDS: Final = {
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
_SUMMARY_KEYS: Final = (
    *("command", "file_path", "notebook_path", "query", "url", "pattern", "skill", "description"),
)
_EXIT_CODE: Final = re.compile(r"Exit code (\d{1,10})\b", re.ASCII)


def item_started(block: Json) -> events.ItemStarted:
    """Return the event of a `tool_use` block."""
    name, arguments = str(block.get("name") or "unknown"), object_in(block, "input")
    if name.startswith(_MCP_PREFIX):
        kind, summary = "mcpToolCall", name.removeprefix(_MCP_PREFIX).replace("__", ".", 1)
    else:
        kind = _KINDS.get(name, events.redact(name, 100))
        key = next((key for key in _SUMMARY_KEYS if isinstance(arguments.get(key), str)), "")
        summary = text_in(arguments, key)
        summary = summary.rsplit("/", 1)[-1] if key.endswith("_path") else summary
    if kind == "commandExecution":
        text = str(arguments.get("command", ""))
    else:
        text = json.dumps(arguments, ensure_ascii=False) if arguments else ""
    return events.ItemStarted(
        kind=kind,
        summary=events.redact(summary, _SUMMARY_CHARS),
        arguments=text[:_ARGUMENT_CHARS],
        item_id=text_in(block, "id")[:MAX_ID_CHARS],
        input=text,
        changes=_changes(name, arguments) if kind == "fileChange" else (),
    )


def _changes(tool: str, arguments: Json) -> tuple[events.FileEdit, ...]:
    """Return the file that a tool writes; a written file counts as new."""
    path = text_in(arguments, "file_path") or text_in(arguments, "notebook_path")
    if tool == "Write":
        lines = len(text_in(arguments, "content").splitlines())
        return (events.FileEdit(path=path, change="write", added=lines),)
    edits: list[Json] = [*objects_in(arguments, "edits")] or [arguments]
    counts = [
        events.line_changes(
            text_in(edit, "old_string"), text_in(edit, "new_string") or text_in(edit, "new_source")
        )
        for edit in edits
    ]
    added, removed = (sum(numbers) for numbers in zip(*counts, strict=True))
    return (events.FileEdit(path=path, change="update", added=added, removed=removed),)


def item_finished(item: events.ItemStarted, block: Json) -> events.ItemFinished:
    """Return the event of the `tool_result` block of a call, whose content is text or a list of parts."""
    failed = block.get("is_error") is True
    texts = [text_in(part, "text") for part in objects_in(block, "content")]
    text = "\n".join(texts) if texts else text_in(block, "content")
    code = None
    if item.kind == "commandExecution":
        found = _EXIT_CODE.match(text)
        code = int(found[1]) if found is not None else None if failed else 0
    return events.ItemFinished(
        kind=item.kind,
        summary=item.summary,
        status="failed" if failed else "completed",
        exit_code=code,
        item_id=item.item_id,
        output=text,
    )


def _plan(arguments: Json) -> events.PlanUpdated:
    """Return the plan in the arguments of `TodoWrite`."""
    return events.PlanUpdated(
        steps=tuple(
            events.PlanStep(text=text_in(todo, "content"), status=text_in(todo, "status"))
            for todo in objects_in(arguments, "todos")[: events.MAX_PLAN_STEPS]
        )
    )


# --- events ------------------------------------------------------------------------------------------------

_MAX_OPEN_CALLS: Final = 1_000


class Translator:
    """Turns the events of one process into `AgentEvent`s.

    A result names its call only by an id, and totals are those of the process. An event that is not
    understood only shows that the agent is alive.
    """

    def __init__(self) -> None:
        self._tokens = TokenCounter()
        self._open_calls: dict[str, events.ItemStarted] = {}
        self._error_name: str | None = None
        self._warned = False
        self._handlers: Mapping[tuple[str, str], Callable[[Json], Iterator[events.AgentEvent]]] = {
            ("assistant", ""): self._assistant,
            ("user", ""): self._user,
            ("result", ""): self._result,
            ("stream_event", ""): self._streamed,
            ("rate_limit_event", ""): _rate_limits,
            ("system", "init"): self._init,
            ("system", "api_retry"): _api_retry,
            ("system", "compact_boundary"): _compacted,
        }

    def translate(self, event: ClaudeEvent) -> tuple[events.AgentEvent, ...]:
        """Return the meaning of one event, empty if it has none; never raises."""
        handler = self._handlers.get((event.type, event.subtype if event.type == "system" else ""))
        if handler is None:
            return ()
        try:
            body = decode_object(event.raw)
        except ValueError:
            return (
                events.Malformed(
                    excerpt=f"{event.type}: {wire.excerpt(bytes(event.raw))}"[: wire.EXCERPT_CHARS]
                ),
            )
        return tuple(handler(body))

    def _assistant(self, body: Json) -> Iterator[events.AgentEvent]:
        message = object_in(body, "message")
        self._error_name = text_in(body, "error") or None
        usage = self._tokens.message(message)
        if usage is not None:
            yield usage
        shown = body.get("parent_tool_use_id") is None and self._error_name is None
        for block in objects_in(message, "content"):
            match block.get("type"):
                case "text" if shown and (text := text_in(block, "text")).strip():
                    yield events.Text(message=text)
                case "thinking" if shown and (text := text_in(block, "thinking")).strip():
                    yield events.Reasoning(text=text)
                case "tool_use":
                    item = item_started(block)
                    if block.get("name") == "TodoWrite" and shown:
                        yield _plan(object_in(block, "input"))
                    if len(self._open_calls) < _MAX_OPEN_CALLS:
                        self._open_calls[str(block.get("id"))[:MAX_ID_CHARS]] = item
                    yield item
                case _:
                    pass

    def _streamed(self, body: Json) -> Iterator[events.AgentEvent]:
        usage = self._tokens.streamed(object_in(body, "event"), text_in(body, "parent_tool_use_id"))
        if usage is not None:
            yield usage

    def _user(self, body: Json) -> Iterator[events.AgentEvent]:
        for block in objects_in(object_in(body, "message"), "content"):
            item = self._open_calls.pop(str(block.get("tool_use_id"))[:MAX_ID_CHARS], None)
            if block.get("type") == "tool_result" and item is not None:
                yield item_finished(item, block)

    def _init(self, body: Json) -> Iterator[events.AgentEvent]:
        """Warn once if the daemon's tools are not available; the event comes with every turn."""
        for server in objects_in(body, "mcp_servers"):
            status = server.get("status")
            if (
                server.get("name") == SERVER_NAME
                and status in ("failed", "needs-auth", "disabled")
                and not self._warned
            ):
                self._warned = True
                yield events.LogNotice(
                    level="warning", message=f"the agent has no tools of Symphony: {status}"
                )

    def _result(self, body: Json) -> Iterator[events.AgentEvent]:
        usage, cost = self._tokens.result(body), self._tokens.cost_usd(body)
        self._open_calls.clear()
        if usage is not None:
            yield usage
        yield replace(self._turn_end(body), cost_usd=cost)

    def _turn_end(self, body: Json) -> events.TurnEnd:
        reason, error_name = text_in(body, "terminal_reason"), self._error_name
        self._error_name = None
        if reason.startswith("aborted"):
            message = f"the turn was interrupted ({events.redact(reason, 100)})"
            failure = Failure(category=Category.TURN_CANCELLED, blame=Blame.AGENT, message=message)
            return events.TurnEnd(status=events.TurnStatus.INTERRUPTED, failure=failure)
        if body.get("is_error") is not True and body.get("subtype") == "success":
            return events.TurnEnd(status=events.TurnStatus.COMPLETED)
        return events.TurnEnd(status=events.TurnStatus.FAILED, failure=turn_failure(body, error_name))


def _rate_limits(body: Json) -> Iterator[events.AgentEvent]:
    payload = object_in(body, "rate_limit_info")
    if payload:
        yield events.RateLimits(payload=payload)


def _api_retry(body: Json) -> Iterator[events.AgentEvent]:
    """A request to the model failed and is retried; `CLAUDE_CODE_MAX_RETRIES` limits the retries."""
    status, error = body.get("error_status"), events.redact(text_in(body, "error") or "unknown", 100)
    reason = error if status is None else f"{error} ({events.redact(str(status), 10)})"
    tries = (
        f"{events.redact(str(body.get('attempt')), 10)} of {events.redact(str(body.get('max_retries')), 10)}"
    )
    yield events.LogNotice(level="warning", message=f"the model could not be asked: {reason}; retry {tries}")


def _compacted(body: Json) -> Iterator[events.AgentEvent]:
    del body
    yield events.ContextCompacted()
