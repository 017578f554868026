"""What an MCP client may ask of us, and the answer: tools, and nothing else. Pure, and without memory.

Every request is answered for itself, whatever came before it: a client that skips `initialize` gets its tools
all the same. What is none of ours is refused by the words of JSON-RPC, because silence hangs a client.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from symphony import __version__
from symphony.agents.redaction import redact
from symphony.agents.toolcalls import RefusedCall, ToolCall, judge
from symphony.agents.wire.jsonrpc import Notification, RequestId, ServerRequest, parse
from symphony.domain.tools import ToolResult, ToolSpec

__all__ = ["SERVER_NAME", "VERSIONS", "Reply", "cancelled", "respond", "tool_reply"]

SERVER_NAME: Final = "symphony"
VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of the protocol, the newest first; in what we use of it they are alike."""

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What goes back: a result, or `error` as (code, message)."""

    result: Mapping[str, Any] | None = None
    error: tuple[int, str] | None = None


def respond(request: ServerRequest, tools: Sequence[ToolSpec]) -> Reply | ToolCall | RefusedCall:
    """The answer to a request, or the call that has to be run for it; never raises."""
    try:
        params = parse(request.params)
    except ValueError as error:
        return Reply(error=(_INVALID_PARAMS, redact(str(error))))
    match request.method:
        case "initialize":
            return Reply(result=_welcome(params))
        case "ping":
            return Reply(result={})
        case "tools/list":
            return Reply(result={"tools": [_listed(spec) for spec in tools]})
        case "tools/call":
            return judge(params.get("name"), params.get("arguments"), [spec.name for spec in tools])
        case method:
            return Reply(error=(_METHOD_NOT_FOUND, redact(f"unsupported method {method}", 200)))


def tool_reply(result: ToolResult) -> Reply:
    """A tool's result on the wire: a failure too is something for the model to read."""
    content = [{"type": "text", "text": result.text}]
    return Reply(result={"content": content, "isError": not result.success})


def cancelled(message: Notification) -> RequestId | None:
    """The request that a client no longer waits for; null for every other notification."""
    if message.method != "notifications/cancelled":
        return None
    try:
        found = parse(message.params).get("requestId")
    except ValueError:
        return None
    return found if isinstance(found, int | str) else None


def _welcome(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """A client that speaks a version we do not know is offered our newest one."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER_NAME, "version": __version__},
    }


def _listed(spec: ToolSpec) -> Mapping[str, Any]:
    return {"name": spec.name, "description": spec.description, "inputSchema": spec.input_schema}
