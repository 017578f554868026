"""A Claude process and its stream: requests with a deadline, messages read by read (AG2, AG10).

Pull-based like every wire of ours: bytes are read only inside `call` and `fill`.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from symphony.agents.base import AgentError
from symphony.agents.claude.codec import Codec, Message, Question, Reply, parse
from symphony.agents.claude.errors import INSTALL_HINT
from symphony.agents.process import AgentProcess
from symphony.agents.redaction import redact
from symphony.agents.wire.ending import ending, response_timeout
from symphony.agents.wire.lines import Chatter, Garbled
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["Channel"]

Handler = Callable[[Message], Awaitable[None]]


class Channel:
    """A process and its codec. One user at a time."""

    def __init__(self, process: AgentProcess, *, read_timeout_ms: int) -> None:
        self._process = process
        self._codec = Codec()
        self._read_timeout_ms = read_timeout_ms
        self._inbox: deque[Message] = deque()
        self._heard = False

    async def call(self, subtype: str, other: Handler, **fields: Any) -> dict[str, Any]:
        """Ask on the control channel; `other` gets every message that is not the answer.

        Raises:
            AgentError: `response_timeout`, `response_error`, `port_exit`, `agent_not_found`; or what `other`
                raises.
        """
        with anyio.move_on_after(self._read_timeout_ms / 1000):
            request_id, wire = self._codec.request(subtype, **fields)
            await self._process.send(wire)
            return _result(subtype, await self._reply_to(request_id, other))
        raise response_timeout(f"no answer to {subtype} within {self._read_timeout_ms} ms")

    async def tell(self, subtype: str, **fields: Any) -> None:
        """Ask for something whose answer nobody waits for."""
        await self._write(self._codec.request(subtype, **fields)[1])

    async def say(self, text: str) -> None:
        """Begin a turn."""
        await self._write(self._codec.user(text))

    async def answer(self, question: Question, response: Mapping[str, Any]) -> None:
        """Answer a question of the agent."""
        await self._write(self._codec.answer(question.id, response))

    async def refuse(self, question: Question, error: str) -> None:
        """Answer a question of the agent with an error."""
        await self._write(self._codec.refuse(question.id, error))

    async def fill(self) -> None:
        """Read once; afterwards `take` has what that completed, which may be nothing.

        Raises:
            AgentError: the stream has ended and all of it was taken (`port_exit`, `agent_not_found`).
        """
        data = await self._process.receive()
        self.feed(data)
        if not data and not self._inbox:
            failure = await ending(
                self._process,
                missing=Category.AGENT_NOT_FOUND,
                install_hint=INSTALL_HINT,
                heard=self._heard,
            )
            raise AgentError(failure)

    def feed(self, data: bytes) -> None:
        """Take bytes that somebody else read; `b""` stands for the end of the stream."""
        messages = self._codec.receive(data) if data else self._codec.close()
        self._heard = self._heard or any(not isinstance(message, Chatter | Garbled) for message in messages)
        self._inbox.extend(messages)

    def take(self) -> Message | None:
        """The next message that has been read, or null."""
        return self._inbox.popleft() if self._inbox else None

    async def _reply_to(self, request_id: str, other: Handler) -> Reply:
        while True:
            while (message := self.take()) is not None:
                if isinstance(message, Reply) and message.id == request_id:
                    return message
                await other(message)
            await self.fill()

    async def _write(self, wire: bytes) -> None:
        with anyio.move_on_after(self._read_timeout_ms / 1000):
            await self._process.send(wire)
            return
        raise response_timeout(f"the agent has not read its input for {self._read_timeout_ms} ms")


def _result(subtype: str, reply: Reply) -> dict[str, Any]:
    if reply.error is not None:
        raise AgentError(_response_error(f"{subtype} was refused: {reply.error}"))
    try:
        return parse(reply.response)
    except ValueError as error:
        raise AgentError(_response_error(f"unreadable answer to {subtype}: {error}")) from error


def _response_error(text: str) -> Failure:
    return Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=redact(text))
