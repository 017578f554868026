"""What the sessions of all backends do alike: turns one after the other, and one end (AG5, AG6, AG9, AG21).

There is no background task. `run_turn` reads the agent while somebody iterates over it; events wait in a
queue that holds what one read brought. No cancel scope spans a `yield`.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import anyio
from typing_extensions import override

from symphony.agents.base import AgentError, ToolRunner, silence_limit
from symphony.agents.events import AgentEvent, EventQueue, InputRequired, SessionStarted, TurnEnded, redact
from symphony.agents.process import AgentProcess
from symphony.domain import ToolResult

# A call of one of our tools by an agent: judged, run and bounded, whichever way it came (AG17, AG18).


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


MessageT = TypeVar("MessageT")
MessageT_co = TypeVar("MessageT_co", covariant=True)


class Turns(ABC):
    """A session for one task: cancel its turn before calling `stop`."""

    def __init__(self, events: EventQueue) -> None:
        self._events = events
        self._stop_lock = anyio.Lock()
        self._stopping = False

    async def run_turn(self, prompt: str, *, title: str) -> AsyncIterator[AgentEvent]:
        """Run one turn; the last event is `TurnEnded` or `InputRequired`.

        Raises:
            AgentError: `turn_timeout` (silence), or why the turn did not begin or go on.
        """
        yield await self._begin(prompt, title)
        await self._catch_up()
        while True:
            while self._events:
                event = self._events.take()
                yield event
                if isinstance(event, TurnEnded | InputRequired):
                    return
            await self._advance()

    async def stop(self) -> tuple[AgentEvent, ...]:
        """End the session and all its processes; returns what nobody has seen yet, once."""
        with anyio.CancelScope(shield=True):
            async with self._stop_lock:
                if not self._stopping:
                    self._stopping = True
                    await self._end()
        return self._events.drain()

    @abstractmethod
    async def _begin(self, prompt: str, title: str) -> SessionStarted:
        """Ask for a turn."""

    @abstractmethod
    async def _catch_up(self) -> None:
        """Make events of what was read before the turn had begun: a short one may be over already."""

    @abstractmethod
    async def _advance(self) -> None:
        """Read once, within the limit of silence, and make events of what came."""

    @abstractmethod
    async def _end(self) -> None:
        """End what runs."""


class Wire(Protocol[MessageT_co]):
    """An agent's stream, read by read, as messages."""

    async def fill(self) -> None:
        """Read once."""

    def feed(self, data: bytes) -> None:
        """Take bytes that somebody else read; `b""` stands for the end of the stream."""

    def take(self) -> MessageT_co | None:
        """The next message that has been read, or null."""


class Conversation(Turns, Generic[MessageT]):
    """A session whose turns all go over one wire to one process; `limit_ms` bounds silence."""

    def __init__(
        self, process: AgentProcess, wire: Wire[MessageT], *, events: EventQueue, limit_ms: int
    ) -> None:
        super().__init__(events)
        self._process = process
        self._wire = wire
        self._limit_ms = limit_ms

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._process.pid

    @abstractmethod
    async def _handle(self, message: MessageT) -> None:
        """Answer a message that asks for something, absorb any other."""

    @abstractmethod
    def _absorb(self, message: MessageT) -> None:
        """Everything that needs no answer; what asks for one comes here when it is too late for it."""

    @abstractmethod
    async def _interrupt(self) -> None:
        """Ask the turn that runs, if any, to end, and wait for that."""

    @override
    async def _catch_up(self) -> None:
        while (message := self._wire.take()) is not None:
            await self._handle(message)
        self._events.flush_quiet()

    @override
    async def _advance(self) -> None:
        await self._listen()
        await self._catch_up()

    async def _listen(self) -> None:
        with silence_limit(self._limit_ms):
            await self._wire.fill()

    @override
    async def _end(self) -> None:
        with suppress(AgentError, OSError):
            await self._interrupt()
        with suppress(OSError):
            await self._process.stop(self._last_words)
        self._last_words(b"")

    def _last_words(self, data: bytes) -> None:
        self._wire.feed(data)
        while (message := self._wire.take()) is not None:
            self._absorb(message)
        self._events.flush_quiet()
