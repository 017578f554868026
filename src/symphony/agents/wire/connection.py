"""An agent's process and its JSON-RPC wire: requests with a deadline, messages read by read (AG2, AG10).

Pull-based: bytes are read only inside `call` and `fill`, so whoever consumes the messages sets the pace of
the agent. What arrives while a request waits for its answer is handed on, not dropped.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from symphony.agents.base import AgentError
from symphony.agents.process import AgentProcess
from symphony.agents.redaction import redact
from symphony.agents.wire.ending import ending, response_timeout
from symphony.agents.wire.jsonrpc import Codec, Message, Refusal, Response, ServerRequest, parse
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["Connection", "Manner", "RefusedError"]

Handler = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How one backend speaks and words its failures.

    Attributes:
        missing: the category of a program that is not there, with what to do about it.
        install_hint: see `missing`.
        refusal: words the JSON-RPC error by which a request of ours was refused.
        versioned: every message carries `"jsonrpc": "2.0"`.
    """

    missing: Category
    install_hint: str
    refusal: Callable[[Refusal], Failure]
    versioned: bool = False


class RefusedError(AgentError):
    """The agent answered a request with a JSON-RPC error; `code` is what it sent."""

    def __init__(self, failure: Failure, code: int) -> None:
        super().__init__(failure)
        self.code = code


class Connection:
    """A process and its codec. One user at a time."""

    def __init__(self, process: AgentProcess, *, read_timeout_ms: int, manner: Manner) -> None:
        self._process = process
        self._manner = manner
        self._codec = Codec(versioned=manner.versioned)
        self._read_timeout_ms = read_timeout_ms
        self._inbox: deque[Message] = deque()
        self._heard = False

    async def call(
        self, method: str, params: Mapping[str, Any], other: Handler, *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """Send a request and return its result; `other` gets every message that is not the answer.

        The deadline (`read_timeout_ms` unless given) holds for the whole request; chatter does not extend it.

        Raises:
            RefusedError: the agent said no.
            AgentError: `response_timeout`, `response_error` or `port_exit`.
        """
        limit_ms = self._read_timeout_ms if timeout_ms is None else timeout_ms
        with anyio.move_on_after(limit_ms / 1000):
            request_id, wire = self._codec.request(method, params)
            await self._process.send(wire)
            return self._result(await self._answer_to(request_id, other))
        raise response_timeout(f"no answer to {method} within {limit_ms} ms")

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send something whose answer, if any, nobody waits for; without params, a notification."""
        wire = self._codec.notify(method) if params is None else self._codec.request(method, params)[1]
        await self._write(wire)

    async def ask(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request whose answer comes among the messages, however late; returns its id."""
        request_id, wire = self._codec.request(method, params)
        await self._write(wire)
        return request_id

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        await self._write(self._codec.notify(method, params))

    async def answer(self, request: ServerRequest, result: Mapping[str, Any]) -> None:
        """Answer a request of the server."""
        await self._write(self._codec.answer(request.id, result))

    async def refuse(self, request: ServerRequest, code: int, message: str) -> None:
        """Answer a request of the server with a JSON-RPC error."""
        await self._write(self._codec.refuse(request.id, code, message))

    async def fill(self) -> None:
        """Read once; afterwards `take` has what that completed, which may be nothing.

        Raises:
            AgentError: the stream has ended and all of it was taken (`port_exit`, `codex_not_found`).
        """
        data = await self._process.receive()
        if data:
            self.feed(data)
            return
        self._inbox.extend(self._codec.close())
        if not self._inbox:
            raise AgentError(
                await ending(
                    self._process,
                    missing=self._manner.missing,
                    install_hint=self._manner.install_hint,
                    heard=self._heard,
                )
            )

    def feed(self, data: bytes) -> None:
        """Take bytes that somebody else read; `b""` stands for the end of the stream."""
        messages = self._codec.receive(data) if data else self._codec.close()
        if not self._heard:
            self._heard = any(isinstance(message, Response | Refusal) for message in messages)
        self._inbox.extend(messages)

    def mute(self, method: str) -> None:
        """Only count notifications of this method from now on."""
        self._codec.mute(method)

    def take(self) -> Message | None:
        """The next message that has been read, or null."""
        return self._inbox.popleft() if self._inbox else None

    async def _answer_to(self, request_id: int, other: Handler) -> Response | Refusal:
        while True:
            while (message := self.take()) is not None:
                if isinstance(message, Response | Refusal) and message.id == request_id:
                    return message
                await other(message)
            await self.fill()

    async def _write(self, wire: bytes) -> None:
        with anyio.move_on_after(self._read_timeout_ms / 1000):
            await self._process.send(wire)
            return
        raise response_timeout(f"the agent has not read its input for {self._read_timeout_ms} ms")

    def _result(self, answer: Response | Refusal) -> dict[str, Any]:
        if isinstance(answer, Refusal):
            raise RefusedError(self._manner.refusal(answer), answer.code)
        try:
            return parse(answer.result)
        except ValueError as error:
            text = redact(f"unreadable answer to {answer.method}: {error}")
            failure = Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text)
            raise AgentError(failure) from error
