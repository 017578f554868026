"""Events of Claude Code in our vocabulary (AG9, AG11, TK1, TK7). Pure.

A translator belongs to one process: a result names its call by an id only, and totals are of the process.
What is not understood is a sign of life and nothing else.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from symphony.agents.border import MAX_ID_CHARS
from symphony.agents.claude import items
from symphony.agents.claude.codec import Event, parse
from symphony.agents.claude.errors import turn_failure
from symphony.agents.claude.tokens import Ledger
from symphony.agents.events import (
    AgentEvent,
    ContextCompacted,
    ItemStarted,
    Malformed,
    Notice,
    RateLimits,
    Text,
    TurnEnded,
    TurnStatus,
)
from symphony.agents.mcp.protocol import SERVER_NAME
from symphony.agents.redaction import redact
from symphony.agents.wire.lines import EXCERPT_CHARS, excerpt
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["Translator"]

Body = Mapping[str, Any]
Handler = Callable[[Body], Iterator[AgentEvent]]
_MAX_OPEN = 1_000


class Translator:
    """Turns the events of one process into ours."""

    def __init__(self, *, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._ledger = Ledger()
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
        item = items.started(block)
        if len(self._open) < _MAX_OPEN:
            self._open[_name(block, "id")] = item
        return item

    def _user(self, body: Body) -> Iterator[AgentEvent]:
        for block in _blocks(_map(body, "message")):
            item = self._open.pop(_name(block, "tool_use_id"), None)
            if block.get("type") == "tool_result" and item is not None:
                yield items.finished(item, block)

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
