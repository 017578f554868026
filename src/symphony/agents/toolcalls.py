"""A call of one of our tools by an agent: judged, run and bounded, whichever way it came (AG17, AG18)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from symphony.agents.base import ToolRunner
from symphony.agents.redaction import redact
from symphony.domain.tools import ToolResult

__all__ = [
    "MAX_RESULT_CHARS",
    "TOOL_TIMEOUT_MS",
    "RefusedCall",
    "ToolCall",
    "judge",
    "run_tool",
    "unsupported",
]

TOOL_TIMEOUT_MS = 60_000
MAX_RESULT_CHARS = 1_000_000
_MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One of our tools is to be run with these arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCall:
    """A call that is answered without running anything; `name` is fit to be shown."""

    name: str
    result: ToolResult


def judge(name: object, arguments: object, offered: Collection[str]) -> ToolCall | RefusedCall:
    """What an agent sent as a call, held against the tools that its session was offered."""
    if not isinstance(name, str) or name not in offered:
        return unsupported(name, offered)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        result = ToolResult.error("the arguments of a tool call must be an object")
        return RefusedCall(name=name, result=result)
    return ToolCall(name=name, arguments=arguments)


def unsupported(name: object, offered: Collection[str]) -> RefusedCall:
    """The answer to a call of something that is no tool of the session; it names those that are."""
    shown = redact(str(name), _MAX_NAME_CHARS)
    result = ToolResult.error(f"unsupported tool {shown}", supportedTools=sorted(offered))
    return RefusedCall(name=shown, result=result)


async def run_tool(call: ToolCall, runner: ToolRunner) -> ToolResult:
    """Run a tool; one that raises or hangs is a failed call to the agent, and nothing more (AG18)."""
    try:
        with anyio.move_on_after(TOOL_TIMEOUT_MS / 1000):
            return _bounded(call.name, await runner(call.name, call.arguments))
    except Exception as error:  # noqa: BLE001 - whatever a tool raises, the agent waits for an answer
        text = redact(str(error)) or type(error).__name__
        return ToolResult.error(f"tool {call.name} failed: {text}")
    return ToolResult.error(f"tool {call.name} did not answer within {TOOL_TIMEOUT_MS} ms")


def _bounded(name: str, result: ToolResult) -> ToolResult:
    size = len(result.text)
    if size <= MAX_RESULT_CHARS:
        return result
    message = f"the answer of tool {name} has {size} characters, more than {MAX_RESULT_CHARS}"
    return ToolResult.error(message, hint="ask for less")
