"""The common base of all backends' sessions: turns one after the other, tool calls, and one end.

There is no background task. `run_turn` reads the agent while a consumer iterates over it, and a queue holds
the events of one read. No cancel scope spans a `yield`.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar

import anyio
from msgspec import Struct
from typing_extensions import override

from symphony.agents import base
from symphony.agents import events as agent_events
from symphony.agents.event_queue import EventQueue
from symphony.agents.process import AgentProcess
from symphony.agents.wire import MessageStream
from symphony.domain import Failure, ToolResult

MessageT = TypeVar("MessageT")
OnApproval = Literal["decline", "accept", "block"]
NO_DECISIONS: Final[Mapping[str, bool]] = MappingProxyType({})

TOOL_TIMEOUT_MS: Final = 60_000
MAX_RESULT_CHARS: Final = 1_000_000
MAX_PENDING_CHARS: Final = 65_536
_MAX_PENDING_PIECES: Final = 1_000
_MAX_NAME_CHARS: Final = 200
_MAX_QUESTION_CHARS: Final = 4_000


class PendingMessage:
    """The message that an agent is writing. Its pieces are decoded only when the text is needed.

    A message longer than `MAX_PENDING_CHARS` is cut: the agent repeats the whole message when it is
    complete.
    """

    def __init__(self, decode: Callable[[Any], str]) -> None:
        self._decode = decode
        self._pieces: list[Any] = []
        self._text = ""

    def add(self, pieces: Iterable[Any]) -> None:
        """Add undecoded pieces."""
        if len(self._text) < MAX_PENDING_CHARS:
            self._pieces.extend(pieces)
            if len(self._pieces) > _MAX_PENDING_PIECES:
                self._text = self.text

    @property
    def text(self) -> str:
        """The message so far."""
        self._text += "".join(map(self._decode, self._pieces))
        self._pieces.clear()
        return self._text

    def clear(self) -> None:
        """The message is complete, or another one begins."""
        self._pieces.clear()
        self._text = ""


class TurnSession(ABC):
    """A session for one task: cancel its turn before calling `stop`.

    Attributes:
        resume_refused: why the session has a new thread instead of the requested one, or None.
        thread_id: the thread; None before the session is open, and for an agent that has none.
    """

    resume_refused: Failure | None = None
    thread_id: str | None = None

    def __init__(self, request: base.SessionRequest, events: EventQueue) -> None:
        self._request = request
        self._events = events
        self._envelope: str | None = None  # that of the briefing, then that of the last turn with one
        self._delivered: str | None = None  # the part of it that the agent has
        self._pending = PendingMessage(str)
        self._stop_lock = anyio.Lock()
        self._stopping = False

    async def run_turn(self, turn: base.Turn) -> AsyncIterator[agent_events.AgentEvent]:
        """Run one turn; the last event is `TurnEnd` or `InputRequired`.

        Raises:
            AgentError: `turn_timeout` (silence), or why the turn did not begin or continue.
        """
        yield await self._begin(turn)
        await self._process_inbox()
        while True:
            while self._events:
                event = self._events.take()
                yield event
                if isinstance(event, agent_events.TurnEnd | agent_events.InputRequired):
                    return
            await self._advance()

    async def stop(self) -> tuple[agent_events.AgentEvent, ...]:
        """End the session and all its processes; return the events that no consumer has taken."""
        with anyio.CancelScope(shield=True):
            async with self._stop_lock:
                if not self._stopping:
                    self._stopping = True
                    await self._end()
        self._emit_pending()
        return self._events.drain()

    @property
    def pending_message(self) -> str:
        """The message that the agent is writing, as far as it has come."""
        return self._pending.text

    @abstractmethod
    async def _begin(self, turn: base.Turn) -> agent_events.SessionStarted:
        """Start a turn."""

    def _deliver(self, turn: base.Turn) -> str | None:
        """Return the text to send because the agent does not have this envelope yet, or None.

        A later text says that it replaces the earlier one.
        """
        self._envelope, earlier = turn.envelope.text or self._envelope, self._delivered
        if self._envelope is None or self._envelope == earlier:
            return None
        self._delivered = self._envelope
        return self._envelope if earlier is None else base.replacing_text(self._envelope)

    @abstractmethod
    async def _process_inbox(self) -> None:
        """Turn what was read before the turn began into events: a short turn may be over already."""

    @abstractmethod
    async def _advance(self) -> None:
        """Read once, within the limit of silence, and turn what came into events."""

    @abstractmethod
    async def _end(self) -> None:
        """End all processes."""

    def _emit(self, event: agent_events.AgentEvent) -> None:
        """Queue an event; report a compaction at once, in order with tool calls."""
        if isinstance(event, agent_events.ContextCompacted) and self._request.on_compacted is not None:
            self._request.on_compacted()
        if isinstance(event, agent_events.Text):
            self._pending.clear()
        elif isinstance(event, agent_events.TurnEnd | agent_events.InputRequired):
            self._emit_pending()
        self._events.emit(event)

    def _emit_pending(self) -> None:
        """Report the message that the agent does not finish any more, if there is one."""
        text = self.pending_message
        self._pending.clear()
        if text.strip():
            self._events.emit(agent_events.Text(message=text, interrupted=True))


class StreamSession(TurnSession, Generic[MessageT]):
    """A session whose turns all go over one stream to one process; `silence_ms` limits silence."""

    def __init__(
        self,
        process: AgentProcess,
        stream: MessageStream[MessageT],
        *,
        request: base.SessionRequest,
        events: EventQueue,
        silence_ms: int,
    ) -> None:
        super().__init__(request, events)
        self._process = process
        self._stream = stream
        self._silence_ms = silence_ms

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._process.pid

    @property
    @abstractmethod
    def _turn_is_running(self) -> bool:
        """Whether there is a turn that can be interrupted."""

    @abstractmethod
    async def _send_interrupt(self) -> None:
        """Ask the running turn to end."""

    @abstractmethod
    async def _handle(self, message: MessageT) -> None:
        """Answer a request of the agent, or absorb any other message."""

    @abstractmethod
    def _absorb(self, message: MessageT) -> None:
        """Turn a message into events. A request that comes too late to be answered is ignored."""

    @override
    async def _process_inbox(self) -> None:
        while (message := self._stream.take()) is not None:
            await self._handle(message)
        self._events.flush_activity()

    @override
    async def _advance(self) -> None:
        await self._read()
        await self._process_inbox()

    async def _read(self) -> None:
        with base.silence_limit(self._silence_ms):
            await self._stream.fill()

    @override
    async def _end(self) -> None:
        with suppress(base.AgentError, OSError):
            await self._interrupt()
        with suppress(OSError):
            await self._process.stop(self._absorb_bytes)
        self._absorb_bytes(b"")

    async def _interrupt(self) -> None:
        """Interrupt the running turn and wait for its end, so that the final token totals are written."""
        if not self._turn_is_running:
            return
        with anyio.move_on_after(self._process.grace_s):
            await self._send_interrupt()
            await self._process_inbox()
            while self._turn_is_running:
                await self._stream.fill()
                await self._process_inbox()

    def _absorb_bytes(self, data: bytes) -> None:
        self._stream.feed(data)
        while (message := self._stream.take()) is not None:
            self._absorb(message)
        self._events.flush_activity()


class ToolCall(Struct, frozen=True, kw_only=True):
    """A tool of the daemon is to be run with these arguments."""

    name: str
    arguments: Mapping[str, Any]


class RefusedCall(Struct, frozen=True, kw_only=True):
    """A call that is answered without running a tool; `name` is redacted."""

    name: str
    result: ToolResult


def check_tool_call(name: object, arguments: object, offered: Collection[str]) -> ToolCall | RefusedCall:
    """Check a tool call of an agent against the tools that its session was offered."""
    if not isinstance(name, str) or name not in offered:
        return unsupported_tool(name, offered)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        result = ToolResult.error("the arguments of a tool call must be an object")
        return RefusedCall(name=name, result=result)
    return ToolCall(name=name, arguments=arguments)


def unsupported_tool(name: object, offered: Collection[str]) -> RefusedCall:
    """Return the answer to a call of an unknown tool; it lists the known ones."""
    shown = agent_events.redact(str(name), _MAX_NAME_CHARS)
    result = ToolResult.error(f"unsupported tool {shown}", supportedTools=sorted(offered))
    return RefusedCall(name=shown, result=result)


async def run_tool(
    call: ToolCall, runner: base.ToolRunner, *, timeout_ms: int = TOOL_TIMEOUT_MS
) -> ToolResult:
    """Run a tool. One that raises, hangs or returns too much is a failed call, and nothing more."""
    try:
        with anyio.move_on_after(timeout_ms / 1000):
            result = await runner(call.name, call.arguments)
            size = len(result.text)
            if size <= MAX_RESULT_CHARS:
                return result
            message = f"the answer of tool {call.name} has {size} characters, more than {MAX_RESULT_CHARS}"
            return ToolResult.error(message, hint="ask for less")
    except Exception as error:  # noqa: BLE001 - whatever a tool raises, the agent waits for an answer
        text = agent_events.redact(str(error)) or type(error).__name__
        return ToolResult.error(f"tool {call.name} failed: {text}")
    return ToolResult.error(f"tool {call.name} did not answer within {timeout_ms} ms")


def approval_required(
    kind: str, details: Iterable[object], request: str | None
) -> agent_events.InputRequired:
    """Return the event of a request for approval that blocks the issue; `request` is its key."""
    shown = [agent_events.redact(str(detail), 300) for detail in details if detail]
    reason = ": ".join([f"approval required for {kind}", *shown])
    return agent_events.InputRequired(reason=reason, approval=True, request=request)


def request_key(kind: str, what: object) -> str:
    """Return the key of a request for approval: only a request for exactly the same has the same."""
    text = json.dumps([kind, what], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def answer_to(key: str | None, decisions: Mapping[str, bool], on_approval: OnApproval) -> OnApproval:
    """Return the answer to the request with this key: a person's decision, else that of the settings."""
    decided = None if key is None else decisions.get(key)
    return on_approval if decided is None else "accept" if decided else "decline"


def question_asked(
    questions: Sequence[str], details: Sequence[str] | None = None
) -> agent_events.InputRequired:
    """Return the event of questions that only a person can answer; `details` may hold offered answers too."""
    summary = "; ".join(agent_events.redact(text, 300) for text in questions) or "a question without words"
    whole = "\n".join(agent_events.redact(text, _MAX_QUESTION_CHARS) for text in details or questions) or None
    return agent_events.InputRequired(reason=f"the agent asks: {summary}", question=whole)
