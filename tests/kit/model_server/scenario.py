"""What the model server answers: steps of a scenario, in no wire format (pure).

A scenario is a tuple of steps. The step that answers a request is the number of tool results that follow
the last user text; a scenario that is over answers with a harmless text. The server therefore keeps no state,
and a request that the agent repeats gets the same answer again.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "HARMLESS",
    "Answer",
    "Block",
    "CustomCall",
    "Cut",
    "FunctionCall",
    "Hang",
    "HttpError",
    "Reset",
    "Scenario",
    "Step",
    "Text",
    "Usage",
    "api_error",
    "context_full",
    "edit_and_commit",
    "patch",
    "rate_limit_headers",
    "rate_limited",
    "say",
    "server_error",
    "shell",
    "tool",
    "unauthorized",
    "usage_limit",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The model says something."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """The model calls a tool with JSON arguments."""

    name: str
    arguments: Mapping[str, Any]
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomCall:
    """The model calls a tool that takes plain text, such as `apply_patch`."""

    name: str
    text: str


Block = Text | FunctionCall | CustomCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call; `input_tokens` includes `cached_tokens`."""

    input_tokens: int = 100
    cached_tokens: int = 60
    output_tokens: int = 10
    reasoning_tokens: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer of one or several blocks; `delta_ms` is a pause before each piece of text."""

    blocks: tuple[Block, ...]
    usage: Usage = field(default_factory=Usage)
    headers: Mapping[str, str] = field(default_factory=dict)
    delta_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpError:
    """An HTTP error with a JSON body."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """No answer until the server closes; with `after_start` the stream has begun before."""

    after_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The stream begins and the connection closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The connection is reset before any answer."""


Step = Answer | HttpError | Hang | Cut | Reset
Scenario = tuple[Step, ...]


def say(text: str) -> Answer:
    """An answer that ends the turn with a text."""
    return Answer(blocks=(Text(text=text),))


def shell(command: str, **arguments: Any) -> Answer:
    """Run a shell command with Codex's `exec_command`; `arguments` are further ones of that tool."""
    return tool("exec_command", {"cmd": command, **arguments})


def patch(text: str) -> Answer:
    """Change files with Codex's `apply_patch`; `text` is between the begin and end lines of a patch."""
    whole = f"*** Begin Patch\n{text.rstrip()}\n*** End Patch\n"
    return Answer(blocks=(CustomCall(name="apply_patch", text=whole),))


def tool(name: str, arguments: Mapping[str, Any], *, namespace: str | None = None) -> Answer:
    """Call any tool by its name, a client's one included; those of MCP servers are in a `namespace`."""
    return Answer(blocks=(FunctionCall(name=name, arguments=arguments, namespace=namespace),))


def edit_and_commit(path: str, text: str, message: str, *, last: tuple[Answer, ...] = ()) -> Scenario:
    """Write a file, commit everything, do `last` (a tool that moves the issue, say), say that it is done."""
    file = shlex.quote(path)
    write = f'mkdir -p -- "$(dirname -- {file})" && printf %s {shlex.quote(text)} > {file}'
    commit = f"git add --all && git commit --quiet --message {shlex.quote(message)}"
    return (shell(write), shell(commit), *last, say("Done."))


def unauthorized() -> HttpError:
    """The key is wrong."""
    return _error(401, "Incorrect API key provided", kind="invalid_request_error", code="invalid_api_key")


def rate_limited() -> HttpError:
    """Too many requests for the moment."""
    return _error(429, "Rate limit reached", kind="requests", code="rate_limit_exceeded")


def usage_limit(resets_in_s: int = 3600) -> HttpError:
    """The plan is used up for longer."""
    error = {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "resets_in_seconds": resets_in_s,
    }
    return HttpError(status=429, body={"error": error})


def context_full() -> HttpError:
    """The conversation no longer fits the model."""
    message = "Your input exceeds the context window of this model"
    return _error(400, message, kind="invalid_request_error", code="context_length_exceeded")


def server_error() -> HttpError:
    """Something broke at the model's side."""
    return _error(500, "The server had an error", kind="server_error", code=None)


def api_error(status: int, kind: str, message: str) -> HttpError:
    """An error in the words of Anthropic's API: `kind` is such as `rate_limit_error`."""
    return HttpError(status=status, body={"type": "error", "error": {"type": kind, "message": message}})


def rate_limit_headers(
    *, primary_used_percent: float, window_minutes: int = 300, reset_at_s: int | None = None
) -> Mapping[str, str]:
    """Headers from which Codex reports rate limits; `reset_at_s` is a Unix time in seconds."""
    headers = {
        "x-codex-primary-used-percent": json.dumps(primary_used_percent),
        "x-codex-primary-window-minutes": str(window_minutes),
    }
    return headers if reset_at_s is None else {**headers, "x-codex-primary-reset-at": str(reset_at_s)}


def _error(status: int, message: str, *, kind: str, code: str | None) -> HttpError:
    return HttpError(status=status, body={"error": {"message": message, "type": kind, "code": code}})


HARMLESS = say("There is nothing to do.")
