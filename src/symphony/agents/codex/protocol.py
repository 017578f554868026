"""Notifications of the app-server in our vocabulary (AG9, AG11, AG16, TK1, TK7; AGENT-FACTS 2.3). Pure.

`translate` looks a method up in one table; what is not in it is a sign of life and nothing else, and its
params are not even decoded. Unknown methods outside `item/` are searched for totals and rate limits, because
older versions wrap them differently.
"""

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony import __version__
from symphony.agents.events import (
    AgentEvent,
    ContextCompacted,
    InputRequired,
    ItemFinished,
    ItemStarted,
    Malformed,
    Notice,
    RateLimits,
    Text,
    TurnEnded,
    TurnStatus,
    Usage,
    parse,
    redact,
)
from symphony.agents.wire import EXCERPT_CHARS, Notification, excerpt
from symphony.config import CodexSettings
from symphony.domain import Blame, Category, Failure, ToolSpec

# The params of our requests: handshake, thread, turn, sandbox (AG4, AG14; AGENT-FACTS 2.3, 2.9). Pure.


Params = Mapping[str, Any]

OPEN_SANDBOXES = frozenset({"dangerFullAccess", "externalSandbox"})
"""Sandbox policies under which Codex confines nothing."""


def initialize() -> Params:
    """Who we are. The experimental API is what makes dynamic tools available."""
    client = {"name": "symphony", "title": "Symphony", "version": __version__}
    return {"clientInfo": client, "capabilities": {"experimentalApi": True}}


def thread_start(
    settings: CodexSettings,
    *,
    cwd: Path,
    envelope: str | None,
    tools: Collection[ToolSpec],
    credentials: Collection[str],
    agent_lists_skills: bool = True,
) -> Params:
    """A new thread in `cwd`, with `envelope` as developer instructions.

    `credentials` are names of variables that the app-server needs and its tool shells must not see. Tool
    shells are no login shells: the app-server already has the login environment, and a profile that exports
    a tracker secret would bring it back behind the allow-list (AG20). Without `agent_lists_skills` Codex says
    nothing of the skills that it finds by itself.
    """
    params = _thread(settings, cwd=cwd, credentials=credentials, agent_lists_skills=agent_lists_skills)
    if envelope is not None:
        params["developerInstructions"] = envelope
    if tools:
        params["dynamicTools"] = [_tool(spec) for spec in tools]
    return params


def thread_resume(
    settings: CodexSettings,
    *,
    thread_id: str,
    cwd: Path,
    credentials: Collection[str],
    agent_lists_skills: bool = True,
) -> Params:
    """A thread of an earlier process; what was said in it is not sent back to us.

    Its developer instructions and tools are those of its beginning, whatever is sent (AGENT-FACTS 2.6).
    """
    params = _thread(settings, cwd=cwd, credentials=credentials, agent_lists_skills=agent_lists_skills)
    return {**params, "threadId": thread_id, "excludeTurns": True}


def _thread(
    settings: CodexSettings, *, cwd: Path, credentials: Collection[str], agent_lists_skills: bool
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "allow_login_shell": False,
        "shell_environment_policy": {"exclude": sorted(credentials)},
    }
    if not agent_lists_skills:
        config["skills"] = {"include_instructions": False}
    params: dict[str, Any] = {
        "cwd": str(cwd),
        "approvalPolicy": settings.approval_policy,
        "sandbox": settings.thread_sandbox,
        "config": config,
    }
    if settings.effort is not None:
        config["model_reasoning_effort"] = settings.effort
    if settings.model is not None:
        params["model"] = settings.model
    return params


def turn_start(
    settings: CodexSettings, *, thread_id: str, cwd: Path, prompt: str, envelope: str | None = None
) -> Params:
    """One turn. The sandbox is sent every time, because a thread does not show that it remembers one.

    `envelope` is for the first turn of a resumed thread: a developer message directly before the prompt.
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
        params["additionalContext"] = {"symphony": {"value": envelope, "kind": "application"}}
    return params


def turn_sandbox(settings: CodexSettings, cwd: Path) -> Params | None:
    """The sandbox of a turn in `cwd` (an absolute, resolved path).

    An explicit policy is passed unchanged. Else it follows `thread_sandbox`, so that the two never contradict
    each other; for `workspace-write` it is our recipe: commits work because `.git` is writable, the network
    and the temp directories (where sibling workspaces may live) are closed. Null for a mode we do not know.
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


def _tool(spec: ToolSpec) -> Params:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.input_schema,
    }


# What Codex calls an error, as a `Failure` (AGENT-FACTS 7; AG12).
#
# `codexErrorInfo` is a name, or a map with one name that may hold an HTTP status. The status decides before
# the name does; what is unknown is a failed turn that may be tried again.


INSTALL_HINT = "install it with `npm install -g @openai/codex`, or set codex.command to where it is"
LOGIN_HINT = "run `codex login` as the user of the daemon, or set the API key that the model provider names"


def login_hint(home: str) -> str:
    """As `LOGIN_HINT`, for an agent that lives in a home of the daemon's own."""
    return (
        f"run `CODEX_HOME={shlex.quote(home)} codex login` as the user of the daemon, or set OPENAI_API_KEY"
    )


_BY_STATUS = {401: Category.AGENT_AUTH, 403: Category.AGENT_AUTH, 429: Category.AGENT_RATE_LIMITED}
_BY_NAME = {
    "unauthorized": Category.AGENT_AUTH,
    "usageLimitExceeded": Category.AGENT_USAGE_LIMIT,
    "sessionBudgetExceeded": Category.AGENT_USAGE_LIMIT,
    "rateLimitExceeded": Category.AGENT_RATE_LIMITED,
    "contextWindowExceeded": Category.AGENT_CONTEXT_FULL,
}
_MISSING_KEY = "Missing environment variable"
_HINTS = {
    Category.AGENT_AUTH: LOGIN_HINT,
    Category.AGENT_USAGE_LIMIT: "wait for the limit to reset, or use another account or model",
}


def turn_failure(error: Mapping[str, Any]) -> Failure:
    """The failure behind a `TurnError` object; an empty object is a turn that failed without saying why."""
    name, status = _name_and_status(error.get("codexErrorInfo"))
    message = describe_error(error)
    if name == "modelNotFound":
        return _model_not_found(message)
    if name == "sandboxError":
        return Failure(category=Category.TURN_FAILED, blame=Blame.HOST, message=message)
    category = _category(name, status, message)
    return Failure(
        category=category,
        blame=Blame.AGENT,
        message=message,
        retryable=category is not Category.AGENT_AUTH,
        hint=_HINTS.get(category),
    )


def describe_error(error: Mapping[str, Any]) -> str:
    """Message and details of a `TurnError`, one redacted line."""
    parts = [
        part for key in ("message", "additionalDetails") if isinstance(part := error.get(key), str) and part
    ]
    return redact(": ".join(parts)) or "the turn failed without a message"


def _model_not_found(message: str) -> Failure:
    return Failure(
        category=Category.TURN_FAILED,
        blame=Blame.CONFIG,
        message=message,
        retryable=False,
        hint="set codex.model to a model that this account can use",
    )


def _category(name: str, status: int | None, message: str) -> Category:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if message.startswith(_MISSING_KEY):
        return Category.AGENT_AUTH
    return Category.TURN_FAILED


def _name_and_status(info: object) -> tuple[str, int | None]:
    if isinstance(info, str):
        return info, None
    if isinstance(info, dict) and len(info) == 1:
        name, details = next(iter(info.items()))
        status = details.get("httpStatusCode") if isinstance(details, dict) else None
        return str(name), status if isinstance(status, int) else None
    return "", None


UNEXPLAINED = turn_failure({})


# Token totals and rate limits wherever Codex puts them, old shapes and new (TK1, TK2, TK7). Pure.


_INPUT = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
_OUTPUT = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")
_TOTAL = ("totalTokens", "total_tokens", "total")
_TOTAL_PATHS = (
    ("tokenUsage", "total"),
    ("msg", "info", "total_token_usage"),
    ("msg", "payload", "info", "total_token_usage"),
    ("info", "total_token_usage"),
    ("total_token_usage",),
)
_MAX_DEPTH = 8


def usage_of(counts: object) -> Usage | None:
    """Absolute totals out of one map of counts; null when it names neither input, output nor total."""
    if not isinstance(counts, Mapping):
        return None
    given, taken, total = (_first(counts, names) for names in (_INPUT, _OUTPUT, _TOTAL))
    if given is None and taken is None and total is None:
        return None
    given, taken = given or 0, taken or 0
    return Usage(
        absolute=True,
        input_tokens=given,
        output_tokens=taken,
        total_tokens=given + taken if total is None else total,
    )


def total_usage_in(params: Mapping[str, Any]) -> Usage | None:
    """The thread's totals in a notification. What the last call alone used is never looked at."""
    found = (usage_of(_at(params, path)) for path in _TOTAL_PATHS)
    return next((usage for usage in found if usage is not None), None)


def rate_limits_in(params: Mapping[str, Any]) -> RateLimits | None:
    """The first map, at any depth, that names a limit and says something about it (TK7)."""
    payload = next((node for node in _maps(params, _MAX_DEPTH) if _is_rate_limit(node)), None)
    return None if payload is None else RateLimits(payload=payload)


def _is_rate_limit(node: Mapping[str, Any]) -> bool:
    names = any(node.get(key) for key in ("limitId", "limit_id", "limitName", "limit_name"))
    return names and any(node.get(key) is not None for key in ("primary", "secondary", "credits"))


def _maps(node: object, depth: int) -> Iterator[Mapping[str, Any]]:
    if depth == 0:
        return
    if isinstance(node, Mapping):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _maps(child, depth - 1)


def _at(node: object, path: tuple[str, ...]) -> object:
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = (_count(counts.get(name)) for name in names)
    return next((value for value in found if value is not None), None)


def _count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:18])
    return None


# Thread items in words: what a command, a file change or a tool call is called on a screen (TK8). Pure.


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
    if kind == "contextCompaction":
        return ContextCompacted()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What one notification means, and whose it is.

    `thread_id` and `turn_id` are null where the message names none. `error` is what stands
    in the way of the turn: with `fatal` its end must follow, without it the agent tries again.
    """

    events: Sequence[AgentEvent] = ()
    thread_id: str | None = None
    turn_id: str | None = None
    turn_started: bool = False
    error: Failure | None = None
    fatal: bool = False


_NOTHING = Translation()
_INPUT_METHODS = frozenset(
    f"turn/{name}"
    for name in (
        "input_required",
        "needs_input",
        "need_input",
        "request_input",
        "request_response",
        "provide_input",
        "approval_required",
    )
)
_INPUT_FLAGS = ("requiresInput", "needsInput", "inputRequired", "input_required")
_TELLING = (b"limitId", b"limit_id", b"limitName", b"limit_name", b"total_token_usage", b"tokenUsage")


def translate(message: Notification) -> Translation:
    """The meaning of one notification; never raises, whatever it holds."""
    handler = _HANDLERS.get(message.method) or _fallback(message)
    if handler is None:
        return _NOTHING
    try:
        params = parse(message.params)
    except ValueError:
        return Translation(events=(Malformed(excerpt=_excerpt(message)),))
    return handler(params)


def means_nothing(method: str) -> bool:
    """Whether notifications of this method are signs of life and nothing else, whatever they hold."""
    return method.startswith("item/") and method not in _HANDLERS


def _fallback(message: Notification) -> Callable[[Params], Translation] | None:
    method = message.method
    if method in _INPUT_METHODS:
        return _input_required
    if method.startswith("turn/"):
        return _other_turn
    if means_nothing(method):
        return None
    raw = bytes(message.params)
    return _figures if any(word in raw for word in _TELLING) else None


def _excerpt(message: Notification) -> str:
    text = excerpt(bytes(message.params))
    return f"{message.method}: {text}"[:EXCERPT_CHARS]


def _of(params: Params, *events: AgentEvent | None, **extra: Any) -> Translation:
    return Translation(
        events=tuple(event for event in events if event is not None),
        thread_id=_string(params, "threadId"),
        turn_id=_string(params, "turnId") or _string(_map(params, "turn"), "id"),
        **extra,
    )


def _string(params: Params, key: str) -> str | None:
    value = params.get(key)
    return value if isinstance(value, str) and value else None


def _map(params: Params, key: str) -> Params:
    value = params.get(key)
    return value if isinstance(value, dict) else {}


def _item_started(params: Params) -> Translation:
    return _of(params, item_started(_map(params, "item")))


def _item_completed(params: Params) -> Translation:
    return _of(params, item_completed(_map(params, "item")))


def _figures(params: Params) -> Translation:
    return _of(params, total_usage_in(params), rate_limits_in(params))


def _rate_limits(params: Params) -> Translation:
    payload = _map(params, "rateLimits")
    says = any(payload.get(key) is not None for key in ("primary", "secondary", "credits"))
    return _of(params, RateLimits(payload=payload) if says else rate_limits_in(params))


def _turn_started(params: Params) -> Translation:
    return _of(params, turn_started=True)


def _turn_completed(params: Params) -> Translation:
    if _asks(params):
        return _input_required(params)
    turn = _map(params, "turn")
    status = _string(turn, "status") or TurnStatus.COMPLETED.value
    usage = total_usage_in(params) or usage_of(params.get("usage")) or usage_of(turn.get("usage"))
    return _of(params, usage, _ended(status, _map(turn, "error") or _map(params, "error")))


def _turn_failed(params: Params) -> Translation:
    error = _map(_map(params, "turn"), "error") or _map(params, "error")
    return _of(params, _ended("failed", error))


def _turn_cancelled(params: Params) -> Translation:
    return _of(params, _ended("interrupted", {}))


def _ended(status: str, error: Params) -> TurnEnded:
    match status:
        case "completed":
            return TurnEnded(status=TurnStatus.COMPLETED)
        case "interrupted":
            message = describe_error(error) if error else "the turn was interrupted"
            failure = Failure(category=Category.TURN_CANCELLED, blame=Blame.AGENT, message=message)
            return TurnEnded(status=TurnStatus.INTERRUPTED, failure=failure)
        case "failed":
            return TurnEnded(status=TurnStatus.FAILED, failure=turn_failure(error))
        case other:
            failure = turn_failure({"message": f"the turn ended with the unknown status {other!r}"})
            return TurnEnded(status=TurnStatus.FAILED, failure=failure)


def _other_turn(params: Params) -> Translation:
    return _input_required(params) if _asks(params) else _of(params)


def _input_required(params: Params) -> Translation:
    reason = _string(params, "message") or _string(params, "reason") or "the agent waits for a person"
    return _of(params, InputRequired(reason=redact(reason)))


def _asks(params: Params) -> bool:
    places = (params, _map(params, "turn"))
    return any(
        place.get("type") in ("input_required", "needs_input")
        or any(place.get(flag) is True for flag in _INPUT_FLAGS)
        for place in places
    )


def _error(params: Params) -> Translation:
    error = _map(params, "error")
    fatal = params.get("willRetry") is not True
    notice = Notice(level="error" if fatal else "warning", message=describe_error(error))
    return _of(params, notice, error=turn_failure(error), fatal=fatal)


def _notice(level: str, *keys: str) -> Callable[[Params], Translation]:
    def handle(params: Params) -> Translation:
        text = redact(": ".join(value for key in keys if (value := _string(params, key))))
        return _of(params, Notice(level=level, message=text) if text else None)

    return handle


def _rerouted(params: Params) -> Translation:
    models = f"model rerouted from {_string(params, 'fromModel')} to {_string(params, 'toModel')}"
    return _of(params, Notice(level="warning", message=redact(models)))


def _compacted(params: Params) -> Translation:
    return _of(params, ContextCompacted())


_HANDLERS: Mapping[str, Callable[[Params], Translation]] = {
    "item/started": _item_started,
    "item/completed": _item_completed,
    "thread/tokenUsage/updated": _figures,
    "account/rateLimits/updated": _rate_limits,
    "turn/started": _turn_started,
    "turn/completed": _turn_completed,
    "turn/failed": _turn_failed,
    "turn/cancelled": _turn_cancelled,
    "error": _error,
    "warning": _notice("warning", "message"),
    "guardianWarning": _notice("warning", "message"),
    "configWarning": _notice("warning", "summary", "details"),
    "deprecationNotice": _notice("info", "summary", "details"),
    "model/rerouted": _rerouted,
    "thread/compacted": _compacted,
}

HEARD = frozenset(_HANDLERS)
"""The notifications that mean something to us."""
