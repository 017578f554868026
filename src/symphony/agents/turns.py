"""What the sessions of all backends do alike: turns one after the other, and one end (AG5, AG6, AG9, AG21).

There is no background task. `run_turn` reads the agent while somebody iterates over it; events wait in a
queue that holds what one read brought. No cancel scope spans a `yield`.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import anyio
from typing_extensions import override

from symphony.agents.base import AgentError
from symphony.agents.events import AgentEvent, InputRequired, SessionStarted, TurnEnded
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.agents.silence import silence_limit

__all__ = ["Conversation", "Turns", "Wire"]

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
