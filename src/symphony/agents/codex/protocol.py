"""The app-server protocol of Codex: params of requests, meaning of notifications, and errors. No I/O.

`translate` looks the method of a notification up in a table. Other methods only show that the agent is alive,
and their params are not even decoded. Unknown methods outside `item/` are searched for token totals and rate
limits, because older versions of Codex wrap those differently.
"""

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from symphony import __version__
from symphony.agents import events as agent_events
from symphony.agents.commands import shown_command
from symphony.agents.json_fields import Json, as_text, count_in, decode_object, object_in, objects_in, text_in
from symphony.agents.outages import OUTAGE, is_outage
from symphony.agents.wire import EXCERPT_CHARS, ErrorResponse, JsonRpcDialect, ServerNotification, excerpt
from symphony.config import CodexSettings
from symphony.domain import DECODE_ERRORS, Blame, Category, Failure, Tokens, ToolSpec

# --- params of requests ------------------------------------------------------------------------------------

OPEN_SANDBOXES: Final = frozenset({"dangerFullAccess", "externalSandbox"})
"""Sandbox policies under which Codex confines nothing."""

_CLIENT_NAME: Final = "symphony"
_MAX_CONTEXT_BYTES: Final = 3_500
_MAX_LINE_CHARS: Final = _MAX_CONTEXT_BYTES // 4
_USER_AGENT: Final = re.compile(r"^([^/\s]+)/(\d+\.\d+\S*)")


def initialize() -> Json:
    """Return the params of `initialize`; the experimental API is needed for dynamic tools."""
    client = {"name": _CLIENT_NAME, "title": "Symphony", "version": __version__}
    return {"clientInfo": client, "capabilities": {"experimentalApi": True}}


def parse_user_agent(user_agent: str) -> tuple[str | None, str | None]:
    """Return the name and version of an agent; `None` if it does not report them.

    Codex reports the name of its client; other agents of the protocol report their own name.
    """
    found = _USER_AGENT.match(user_agent)
    if found is None:
        return None, None
    name, version = (agent_events.redact(part, 100) for part in found.groups())
    return "codex" if found[1] == _CLIENT_NAME else name, version


def thread_start(
    settings: CodexSettings,
    *,
    cwd: Path,
    envelope: str | None,
    tools: Collection[ToolSpec],
    credentials: Collection[str],
    agent_lists_skills: bool = True,
) -> Json:
    """Return the params of a new thread.

    Args:
        settings: the key of the same name in WORKFLOW.md decides model, effort, policy and sandbox.
        cwd: the workspace.
        envelope: becomes the developer instructions.
        tools: become dynamic tools.
        credentials: variables that the app-server needs and its tool shells must not see. Tool shells are
            no login shells either: the app-server has the login environment already, and a login profile
            could bring back a tracker secret that the allow-list has removed.
        agent_lists_skills: if False, Codex does not list the skills that it finds by itself.
    """
    params = _thread(settings, cwd, credentials, agent_lists_skills=agent_lists_skills)
    if envelope is not None:
        params["developerInstructions"] = envelope
    if tools:
        params["dynamicTools"] = [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "inputSchema": spec.input_schema,
            }
            for spec in tools
        ]
    return params


def thread_resume(
    settings: CodexSettings,
    *,
    thread_id: str,
    cwd: Path,
    credentials: Collection[str],
    agent_lists_skills: bool = True,
) -> Json:
    """Return the params that continue a thread of an earlier process, without sending its turns again.

    A resumed thread keeps its first developer instructions and tools, even if others are sent.
    """
    params = _thread(settings, cwd, credentials, agent_lists_skills=agent_lists_skills)
    return {**params, "threadId": thread_id, "excludeTurns": True}


def _thread(
    settings: CodexSettings, cwd: Path, credentials: Collection[str], *, agent_lists_skills: bool
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "allow_login_shell": False,
        "shell_environment_policy": {"exclude": sorted(credentials)},
    }
    if not agent_lists_skills:
        config["skills"] = {"include_instructions": False}
    if settings.effort is not None:
        config["model_reasoning_effort"] = settings.effort
    params: dict[str, Any] = {
        "cwd": str(cwd),
        "approvalPolicy": settings.approval_policy,
        "sandbox": settings.thread_sandbox,
        "config": config,
    }
    if settings.model is not None:
        params["model"] = settings.model
    return params


def turn_start(
    settings: CodexSettings, *, thread_id: str, cwd: Path, prompt: str, envelope: str | None = None
) -> Json:
    """Return the params of a turn. They hold the sandbox every time: a thread may not remember it.

    `envelope` is for the first turn of a resumed thread, and for a turn with another envelope than the one
    before: a developer message directly before the prompt.
    """
    params: dict[str, Any] = {
        "threadId": thread_id,
        "input": [{"type": "text", "text": prompt}],
        "cwd": str(cwd),
    }
    sandbox = turn_sandbox(settings, cwd)
    if sandbox is not None:
        params["sandboxPolicy"] = sandbox
    if envelope is not None:
        params["additionalContext"] = {
            key: {"value": part, "kind": "application"} for key, part in _context_parts(envelope).items()
        }
    return params


def _context_parts(text: str) -> dict[str, str]:
    """The text in parts of lines, by their keys, in the order in which Codex shows them.

    Codex cuts the middle out of a part of more than 4,000 bytes. It leaves out a part that its thread has
    been given before with the same key, so the keys of another text differ.
    """
    parts, size = [""], 0
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), _MAX_LINE_CHARS):
            piece = line[start : start + _MAX_LINE_CHARS]
            if size and size + len(piece.encode()) > _MAX_CONTEXT_BYTES:
                parts.append("")
                size = 0
            parts[-1] += piece
            size += len(piece.encode())
    if len(parts) == 1:
        return {"symphony": text}
    digest = sha256(text.encode()).hexdigest()[:8]
    return {f"symphony_{digest}_{number:03}": part for number, part in enumerate(parts)}


def turn_sandbox(settings: CodexSettings, cwd: Path) -> Json | None:
    """Return the sandbox policy of a turn in `cwd`, an absolute path without links.

    `turn_sandbox_policy` is passed unchanged. Without it the policy follows `thread_sandbox`, so that the two
    never contradict each other. `workspace-write` makes `.git` writable, as commits need it, and closes the
    network and the temp directories, in which other workspaces may lie. None for an unknown mode.
    """
    if settings.turn_sandbox_policy is not None:
        return settings.turn_sandbox_policy
    match settings.thread_sandbox:
        case "workspace-write":
            return {
                "type": "workspaceWrite",
                "writableRoots": [str(cwd / ".git")],
                "networkAccess": False,
                "excludeTmpdirEnvVar": True,
                "excludeSlashTmp": True,
            }
        case "danger-full-access":
            return {"type": "dangerFullAccess"}
        case "read-only":
            return {"type": "readOnly"}
        case _:
            return None


def without_writing(settings: CodexSettings) -> CodexSettings:
    """Return the settings of a session that only reads; a sandbox that is switched off stays off."""
    mode = (turn_sandbox(settings, Path("/")) or {}).get("type")
    if mode != "workspaceWrite":
        return settings
    return settings.model_copy(update={"thread_sandbox": "read-only", "turn_sandbox_policy": None})


# --- errors ------------------------------------------------------------------------------------------------

INSTALL_HINT: Final = "install it with `npm install -g @openai/codex`, or set codex.command to where it is"

_INVALID_CODES: Final = frozenset({-32600, -32602})
_POLICY_HINT: Final = (
    "check codex.approval_policy, codex.thread_sandbox, codex.turn_sandbox_policy and codex.model"
)
_BY_STATUS: Final = {401: Category.AGENT_AUTH, 403: Category.AGENT_AUTH, 429: Category.AGENT_RATE_LIMITED}
_BY_NAME: Final = {
    "unauthorized": Category.AGENT_AUTH,
    "usageLimitExceeded": Category.AGENT_USAGE_LIMIT,
    "sessionBudgetExceeded": Category.AGENT_USAGE_LIMIT,
    "rateLimitExceeded": Category.AGENT_RATE_LIMITED,
    "contextWindowExceeded": Category.AGENT_CONTEXT_FULL,
    "serverOverloaded": Category.AGENT_UNAVAILABLE,
    "internalServerError": Category.AGENT_UNAVAILABLE,
}
_NO_ANSWER: Final = frozenset(
    {
        "httpConnectionFailed",
        "responseStreamConnectionFailed",
        "responseStreamDisconnected",
        "responseTooManyFailedAttempts",
    }
)
"""The request got no answer or a malformed one; the HTTP status may say which."""
_NO_NAMES: Final = frozenset({"", "other"})
_MISSING_KEY: Final = "Missing environment variable"


def login_hint(home: Path | None = None) -> str:
    """Return how to log in; `home` is the private one of the agent, None for the operator's own."""
    if home is None:
        return "run `codex login` as the user of the daemon, or set the API key that the model provider names"
    command = f"CODEX_HOME={shlex.quote(str(home))} codex login"
    return f"run `{command}` as the user of the daemon, or set OPENAI_API_KEY"


def _refusal(refusal: ErrorResponse) -> Failure:
    """Return the failure of a refused request. An invalid start will be refused again."""
    invalid = refusal.code in _INVALID_CODES and refusal.method in {"thread/start", "turn/start"}
    return Failure(
        category=Category.RESPONSE_ERROR,
        blame=Blame.CONFIG if invalid else Blame.AGENT,
        message=agent_events.redact(f"{refusal.method} was refused: {refusal.message} ({refusal.code})"),
        retryable=not invalid,
        hint=_POLICY_HINT if invalid else None,
    )


DIALECT: Final = JsonRpcDialect(
    not_found=Category.CODEX_NOT_FOUND,
    install_hint=INSTALL_HINT,
    refusal=_refusal,
    message_delta="item/agentMessage/delta",
)


class _MessageDelta(msgspec.Struct, rename="camel"):
    thread_id: str = ""
    delta: str = ""


_delta_decoder: Final = msgspec.json.Decoder(_MessageDelta)


def message_piece(params: msgspec.Raw, thread_id: str | None) -> str:
    """Return the piece of a message in the params of a delta; empty for another thread."""
    try:
        delta = _delta_decoder.decode(params)
    except DECODE_ERRORS:
        return ""
    return delta.delta if delta.thread_id in {"", thread_id} else ""


def turn_failure(error: Json) -> Failure:
    """Return the failure of a `TurnError` object; an empty object is a failed turn without a reason.

    `codexErrorInfo` is a name, or a map with one name that may hold an HTTP status. An unknown error is a
    failed turn that may be retried.
    """
    name, status = _name_and_status(error.get("codexErrorInfo"))
    message = describe_error(error)
    if name == "modelNotFound":
        return Failure(
            category=Category.TURN_FAILED,
            blame=Blame.CONFIG,
            message=message,
            retryable=False,
            hint="set codex.model to a model that this account can use",
        )
    if name == "sandboxError":
        return Failure(category=Category.TURN_FAILED, blame=Blame.HOST, message=message)
    category = _BY_NAME.get(name) or _BY_STATUS.get(status or 0)
    if category is None:
        by_name = name in _NO_ANSWER and status is None
        by_words = name in _NO_NAMES and OUTAGE.search(message) is not None
        if message.startswith(_MISSING_KEY):
            category = Category.AGENT_AUTH
        elif is_outage(status) or by_name or by_words:
            category = Category.AGENT_UNAVAILABLE
        else:
            category = Category.TURN_FAILED
    hints = {
        Category.AGENT_AUTH: login_hint(),
        Category.AGENT_USAGE_LIMIT: "wait for the limit to reset, or use another account or model",
    }
    return Failure(
        category=category,
        blame=Blame.AGENT,
        message=message,
        retryable=category is not Category.AGENT_AUTH,
        hint=hints.get(category),
    )


def _name_and_status(info: object) -> tuple[str, int | None]:
    if isinstance(info, str):
        return info, None
    if isinstance(info, dict) and len(info) == 1:
        name, details = next(iter(info.items()))
        status = details.get("httpStatusCode") if isinstance(details, dict) else None
        return str(name), status if isinstance(status, int) else None
    return "", None


def describe_error(error: Json) -> str:
    """Return message and details of a `TurnError` as one redacted line."""
    parts = [text for key in ("message", "additionalDetails") if (text := text_in(error, key))]
    return agent_events.redact(": ".join(parts)) or "the turn failed without a message"


UNEXPLAINED: Final = turn_failure({})

# --- token totals and rate limits, in their old shapes and new ---------------------------------------------

_INPUT: Final = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
_OUTPUT: Final = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")
_TOTAL: Final = ("totalTokens", "total_tokens", "total")
_CACHE_READ: Final = ("cachedInputTokens", "cached_input_tokens")
_CACHE_WRITE: Final = ("cacheWriteInputTokens", "cache_write_input_tokens")
_REASONING: Final = ("reasoningOutputTokens", "reasoning_output_tokens")
_TOTAL_PATHS: Final = (
    ("tokenUsage", "total"),
    ("msg", "info", "total_token_usage"),
    ("msg", "payload", "info", "total_token_usage"),
    ("info", "total_token_usage"),
    ("total_token_usage",),
)
_LIMIT_NAMES: Final = ("limitId", "limit_id", "limitName", "limit_name")
_LIMIT_WINDOWS: Final = ("primary", "secondary", "credits")
_MAX_SEARCH_DEPTH: Final = 8


def usage_of(counts: object) -> agent_events.UsageUpdate | None:
    """Return absolute totals from a map of counts; None if it names neither input, output nor total."""
    if not isinstance(counts, Mapping):
        return None
    given, taken, total = (count_in(counts, names) for names in (_INPUT, _OUTPUT, _TOTAL))
    if given is None and taken is None and total is None:
        return None
    given, taken = given or 0, taken or 0
    tokens = Tokens(
        input_tokens=given,
        output_tokens=taken,
        total_tokens=given + taken if total is None else total,
        cache_read_tokens=count_in(counts, _CACHE_READ) or 0,
        cache_write_tokens=count_in(counts, _CACHE_WRITE) or 0,
        reasoning_tokens=count_in(counts, _REASONING) or 0,
    )
    return agent_events.UsageUpdate(absolute=True, tokens=tokens)


def total_usage_in(params: Json) -> agent_events.UsageUpdate | None:
    """Return the totals of the thread in a notification. The usage of the last call alone is ignored."""
    for path in _TOTAL_PATHS:
        node: object = params
        for key in path:
            node = node.get(key) if isinstance(node, Mapping) else None
        if (usage := usage_of(node)) is not None:
            return usage
    return None


def rate_limits_in(params: Json) -> agent_events.RateLimits | None:
    """Return the first map, at any depth, that names a limit and holds one of its windows."""
    for node in _maps(params, _MAX_SEARCH_DEPTH):
        if any(node.get(key) for key in _LIMIT_NAMES) and _has_window(node):
            return agent_events.RateLimits(payload=node)
    return None


def _has_window(limits: Json) -> bool:
    return any(limits.get(key) is not None for key in _LIMIT_WINDOWS)


def _maps(node: object, depth: int) -> Iterator[Json]:
    if depth == 0:
        return
    if isinstance(node, Mapping):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _maps(child, depth - 1)


# --- thread items ------------------------------------------------------------------------------------------

_SUMMARY_CHARS: Final = 200
_ARGUMENT_CHARS: Final = 8_000
_MAX_FILES: Final = 3
_MESSAGES: Final = frozenset({"agentMessage", "userMessage", "hookPrompt", "functionCallOutput"})
_SUMMARY_KEYS: Final = {
    "dynamicToolCall": "tool",
    "collabAgentToolCall": "tool",
    "webSearch": "query",
    "imageView": "path",
    "plan": "text",
    "subAgentActivity": "kind",
}


def item_started(item: Json) -> agent_events.AgentEvent | None:
    """Return the event of work that began; None for messages, which count when they are complete."""
    kind = text_in(item, "type") or "unknown"
    if kind in _MESSAGES:
        return None
    return agent_events.ItemStarted(
        kind=kind,
        summary=_summary(kind, item),
        arguments=_arguments(kind, item),
        item_id=text_in(item, "id"),
        input=_input(kind, item),
        changes=_changes(item),
    )


def item_completed(item: Json) -> agent_events.AgentEvent | None:
    """Return the event of work that ended or of a message of the agent; None for other messages."""
    kind = text_in(item, "type") or "unknown"
    if kind == "agentMessage":
        text = text_in(item, "text")
        return agent_events.Text(message=text) if text.strip() else None
    if kind in _MESSAGES:
        return None
    if kind == "contextCompaction":
        return agent_events.ContextCompacted()
    if kind == "reasoning" and (text := _reasoning(item)):
        return agent_events.Reasoning(text=text)
    if kind == "plan" and (text := text_in(item, "text")).strip():
        return agent_events.PlanUpdated(text=text)
    exit_code = item.get("exitCode")
    return agent_events.ItemFinished(
        kind=kind,
        summary=_summary(kind, item),
        status=text_in(item, "status") or "completed",
        exit_code=exit_code if isinstance(exit_code, int) else None,
        item_id=text_in(item, "id"),
        output=_output(kind, item),
        changes=_changes(item),
    )


def _input(kind: str, item: Json) -> str:
    """Return the whole command, or the arguments of a tool."""
    if kind == "commandExecution":
        return shown_command(item.get("command"))
    arguments = item.get("arguments") or item.get("query")
    return "" if arguments is None else as_text(arguments)


def _output(kind: str, item: Json) -> str:
    """Return the output of the command, or the result or error of a tool."""
    if kind == "commandExecution":
        return text_in(item, "aggregatedOutput")
    parts = [*objects_in(item, "contentItems"), *objects_in(object_in(item, "result"), "content")]
    texts = [text for part in parts if (text := text_in(part, "text"))]
    if texts:
        return "\n".join(texts)
    result = item.get("error") or item.get("result")
    return "" if result is None else as_text(result)


def _changes(item: Json) -> tuple[agent_events.FileEdit, ...]:
    """Return the changed files. A new or deleted file has its content instead of a diff."""
    found = []
    for change in objects_in(item, "changes")[: agent_events.MAX_CHANGES]:
        kind, text = change.get("kind"), text_in(change, "diff")
        name = text_in(kind, "type") if isinstance(kind, dict) else text_in(change, "kind")
        lines = text.splitlines()
        if name == "add":
            added, removed = len(lines), 0
        elif name == "delete":
            added, removed = 0, len(lines)
        else:
            added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
            removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
        found.append(
            agent_events.FileEdit(
                path=text_in(change, "path"), change=name or "update", added=added, removed=removed
            )
        )
    return tuple(found)


def _reasoning(item: Json) -> str:
    """Return the summary of the model's reasoning, or the raw reasoning without one."""
    for key in ("summary", "content"):
        parts = item.get(key)
        texts = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
        if text := "\n\n".join(texts).strip():
            return text
    return ""


def _summary(kind: str, item: Json) -> str:
    match kind:
        case "commandExecution":
            text = shown_command(item.get("command"))
        case "fileChange":
            names = [text_in(change, "path").rsplit("/", 1)[-1] for change in objects_in(item, "changes")]
            more = len(names) - _MAX_FILES
            text = ", ".join(names[:_MAX_FILES]) + (f" and {more} more" if more > 0 else "")
        case "mcpToolCall":
            text = f"{text_in(item, 'server')}.{text_in(item, 'tool')}"
        case _:
            text = text_in(item, _SUMMARY_KEYS.get(kind, ""))
    return agent_events.redact(text, _SUMMARY_CHARS)


def _arguments(kind: str, item: Json) -> str:
    """Return what may name a file that is read: a command with the paths in it, or arguments."""
    match kind:
        case "commandExecution":
            paths = [text_in(action, "path") for action in objects_in(item, "commandActions")]
            text = "\n".join([text_in(item, "command"), *paths])
        case "mcpToolCall" | "dynamicToolCall":
            arguments = item.get("arguments")
            text = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        case _:
            text = ""
    return text[:_ARGUMENT_CHARS]


# --- notifications -----------------------------------------------------------------------------------------


class Translation(Struct, frozen=True, kw_only=True):
    """The meaning of one notification.

    Attributes:
        events: what to report.
        thread_id: the thread that it belongs to, or None.
        turn_id: the turn that it belongs to, or None.
        turn_started: a turn has begun.
        error: why the turn cannot go on, or None.
        fatal: the turn must end after the error; else the agent retries.
    """

    events: tuple[agent_events.AgentEvent, ...] = ()
    thread_id: str | None = None
    turn_id: str | None = None
    turn_started: bool = False
    error: Failure | None = None
    fatal: bool = False


_Handler = Callable[[Json], Translation]
_INPUT_METHODS: Final = frozenset(
    {
        *("turn/input_required", "turn/needs_input", "turn/need_input", "turn/request_input"),
        *("turn/request_response", "turn/provide_input", "turn/approval_required"),
    }
)
_INPUT_FLAGS: Final = ("requiresInput", "needsInput", "inputRequired", "input_required")
_FIGURE_NAMES: Final = tuple(name.encode() for name in (*_LIMIT_NAMES, "total_token_usage", "tokenUsage"))


def translate(message: ServerNotification) -> Translation:
    """Return the meaning of one notification; never raises."""
    method = message.method
    handler = _HANDLERS.get(method)
    if handler is None and method in _INPUT_METHODS:
        handler = _input_required
    elif handler is None and method.startswith("turn/"):
        handler = _other_turn
    elif handler is None and not is_mere_activity(method):
        raw = bytes(message.params)
        handler = _figures if any(name in raw for name in _FIGURE_NAMES) else None
    if handler is None:
        return Translation()
    try:
        params = decode_object(message.params)
    except ValueError:
        text = f"{method}: {excerpt(bytes(message.params))}"[:EXCERPT_CHARS]
        return Translation(events=(agent_events.Malformed(excerpt=text),))
    return handler(params)


def is_mere_activity(method: str) -> bool:
    """Whether notifications of this method only show that the agent is alive, regardless of their content."""
    return method.startswith("item/") and method not in _HANDLERS


def _translation(params: Json, *events: agent_events.AgentEvent | None, **fields: Any) -> Translation:
    return Translation(
        events=tuple(event for event in events if event is not None),
        thread_id=text_in(params, "threadId") or None,
        turn_id=text_in(params, "turnId") or text_in(object_in(params, "turn"), "id") or None,
        **fields,
    )


def _item_started(params: Json) -> Translation:
    return _translation(params, item_started(object_in(params, "item")))


def _item_completed(params: Json) -> Translation:
    return _translation(params, item_completed(object_in(params, "item")))


def _figures(params: Json) -> Translation:
    return _translation(params, total_usage_in(params), rate_limits_in(params))


def _rate_limits(params: Json) -> Translation:
    payload = object_in(params, "rateLimits")
    return _translation(
        params, agent_events.RateLimits(payload=payload) if _has_window(payload) else rate_limits_in(params)
    )


def _turn_started(params: Json) -> Translation:
    return _translation(params, turn_started=True)


def _turn_completed(params: Json) -> Translation:
    if _requires_input(params):
        return _input_required(params)
    turn = object_in(params, "turn")
    usage = total_usage_in(params) or usage_of(params.get("usage")) or usage_of(turn.get("usage"))
    error = object_in(turn, "error") or object_in(params, "error")
    return _translation(params, usage, _turn_end(text_in(turn, "status") or "completed", error))


def _turn_failed(params: Json) -> Translation:
    error = object_in(object_in(params, "turn"), "error") or object_in(params, "error")
    return _translation(params, _turn_end("failed", error))


def _turn_cancelled(params: Json) -> Translation:
    return _translation(params, _turn_end("interrupted", {}))


def _turn_end(status: str, error: Json) -> agent_events.TurnEnd:
    match status:
        case "completed":
            return agent_events.TurnEnd(status=agent_events.TurnStatus.COMPLETED)
        case "interrupted":
            message = describe_error(error) if error else "the turn was interrupted"
            failure = Failure(category=Category.TURN_CANCELLED, blame=Blame.AGENT, message=message)
            return agent_events.TurnEnd(status=agent_events.TurnStatus.INTERRUPTED, failure=failure)
        case "failed":
            return agent_events.TurnEnd(status=agent_events.TurnStatus.FAILED, failure=turn_failure(error))
        case other:
            failure = turn_failure({"message": f"the turn ended with the unknown status {other!r}"})
            return agent_events.TurnEnd(status=agent_events.TurnStatus.FAILED, failure=failure)


def _plan_updated(params: Json) -> Translation:
    steps = tuple(
        agent_events.PlanStep(text=text_in(step, "step"), status=text_in(step, "status"))
        for step in objects_in(params, "plan")[: agent_events.MAX_PLAN_STEPS]
    )
    return _translation(params, agent_events.PlanUpdated(steps=steps, text=text_in(params, "explanation")))


def _other_turn(params: Json) -> Translation:
    return _input_required(params) if _requires_input(params) else _translation(params)


def _input_required(params: Json) -> Translation:
    reason = text_in(params, "message") or text_in(params, "reason") or "the agent waits for a person"
    return _translation(params, agent_events.InputRequired(reason=agent_events.redact(reason)))


def _requires_input(params: Json) -> bool:
    return any(
        node.get("type") in ("input_required", "needs_input")
        or any(node.get(flag) is True for flag in _INPUT_FLAGS)
        for node in (params, object_in(params, "turn"))
    )


def _error(params: Json) -> Translation:
    error = object_in(params, "error")
    fatal = params.get("willRetry") is not True
    notice = agent_events.LogNotice(level="error" if fatal else "warning", message=describe_error(error))
    return _translation(params, notice, error=turn_failure(error), fatal=fatal)


def _notice(level: str, *keys: str) -> _Handler:
    def handle(params: Json) -> Translation:
        text = agent_events.redact(": ".join(value for key in keys if (value := text_in(params, key))))
        return _translation(params, agent_events.LogNotice(level=level, message=text) if text else None)

    return handle


def _rerouted(params: Json) -> Translation:
    models = f"model rerouted from {params.get('fromModel')} to {params.get('toModel')}"
    return _translation(params, agent_events.LogNotice(level="warning", message=agent_events.redact(models)))


def _compacted(params: Json) -> Translation:
    return _translation(params, agent_events.ContextCompacted())


_HANDLERS: Final[Mapping[str, _Handler]] = {
    "item/started": _item_started,
    "item/completed": _item_completed,
    "thread/tokenUsage/updated": _figures,
    "account/rateLimits/updated": _rate_limits,
    "turn/started": _turn_started,
    "turn/completed": _turn_completed,
    "turn/failed": _turn_failed,
    "turn/cancelled": _turn_cancelled,
    "turn/plan/updated": _plan_updated,
    "error": _error,
    "warning": _notice("warning", "message"),
    "guardianWarning": _notice("warning", "message"),
    "configWarning": _notice("warning", "summary", "details"),
    "deprecationNotice": _notice("info", "summary", "details"),
    "model/rerouted": _rerouted,
    "thread/compacted": _compacted,
}

TRANSLATED: Final = frozenset(_HANDLERS)
"""The methods of notifications that have a meaning."""
