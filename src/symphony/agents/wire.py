"""The wires that agents speak on, sans-IO: lines, JSON-RPC, and a connection of both with a process."""

import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import msgspec

from symphony.agents.base import AgentError
from symphony.agents.events import Malformed, Notice, parse, redact
from symphony.agents.process import AgentProcess
from symphony.domain import DECODE_ERRORS, Blame, Category, Failure

# Bytes into lines, bounded: what every agent that speaks one JSON object per line has in common (AG2, AG3).
#
# Also the words for a line that is no message: `Chatter` never meant to be one, `Garbled` did.


MAX_LINE_BYTES = 10 * 1024 * 1024
EXCERPT_CHARS = 1_000
_encoder = msgspec.json.Encoder()


class PlainLine(msgspec.Struct, frozen=True):
    """A line that never meant to be a message: a banner, a warning, a stack trace (AG3)."""

    text: str


class MalformedLine(msgspec.Struct, frozen=True):
    """A line that begins with `{` and is no message, or one above the limit (AG11 `malformed`)."""

    excerpt: str


class Lines:
    """Cuts a stream into lines, however it comes in pieces. A line above the limit becomes `Garbled`."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._skipping = False

    def receive(self, data: bytes) -> list[bytes | MalformedLine]:
        """The lines completed by `data`, in order; an unfinished last one is kept for the next call."""
        whole = data.split(b"\n")
        tail = whole.pop()
        first = []
        if whole and self._partial:
            self._keep(whole.pop(0))
            first = [self._finish()]
        limit = self._max_line_bytes
        rest = [line if len(line) <= limit else self._refused(line, len(line)) for line in whole]
        self._keep(tail)
        return first + rest

    def close(self) -> list[bytes | MalformedLine]:
        """What the stream's end leaves: an unfinished line counts as a whole one."""
        return [self._finish()] if self._partial else []

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._partial_bytes += len(piece)
        if self._partial_bytes > self._max_line_bytes:
            self._skipping = True
            self._partial = [b"".join(self._partial)[:EXCERPT_CHARS] or piece[:EXCERPT_CHARS]]
        else:
            self._partial.append(piece)

    def _finish(self) -> bytes | MalformedLine:
        line, size, skipped = b"".join(self._partial), self._partial_bytes, self._skipping
        self._partial, self._partial_bytes, self._skipping = [], 0, False
        return self._refused(line, size) if skipped else line

    def _refused(self, line: bytes, size: int) -> MalformedLine:
        limit = self._max_line_bytes
        return MalformedLine(
            f"line of {size} bytes exceeds the limit of {limit} bytes: {excerpt(line)[:200]}"
        )


def unreadable(line: bytes) -> PlainLine | MalformedLine | None:
    """What to make of a line that is no message; null for a blank one."""
    text = excerpt(line).strip()
    if not text:
        return None
    if text.startswith("{"):
        return MalformedLine(text[:EXCERPT_CHARS])
    return PlainLine(text[:EXCERPT_CHARS])


def excerpt(line: bytes) -> str:
    """The beginning of a line as text."""
    return line[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")


def encoded(message: Mapping[str, Any]) -> bytes:
    """The line that carries a message."""
    try:
        return _encoder.encode(message) + b"\n"
    except (
        UnicodeEncodeError
    ):  # a lone surrogate in a prompt or a tool's answer: cannot be sent, must not stop us
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


# What an agent writes beside its protocol, as events: it is shown, and means nothing else (AG7).


_LOOKS_BAD = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|fatal|panic(?:ked)?|exception|traceback|denied|warn\w*)\b", re.IGNORECASE
)


def noise(heard: PlainLine | MalformedLine) -> Notice | Malformed:
    """The event of a line that is no message of the protocol."""
    if isinstance(heard, MalformedLine):
        return Malformed(excerpt=redact(heard.excerpt))
    level = "warning" if _LOOKS_BAD.search(heard.text) else "info"
    return Notice(level=level, message=redact(heard.text))


# How a conversation with an agent ends early: its process is gone, or it does not answer (AG10, AG12).


_NOT_FOUND_EXIT = 127


async def ending(process: AgentProcess, *, missing: Category, install_hint: str, heard: bool) -> Failure:
    """Why the stream of a process has ended.

    `missing` and `install_hint` are for a program that is not there, which `heard`, that it has said
    something before, rules out.
    """
    code = await process.exit_code()
    last = await process.stderr_line()
    said = f": {last}" if last else ""
    if code == _NOT_FOUND_EXIT and not heard:
        return Failure(
            category=missing,
            blame=Blame.CONFIG,
            message=redact(f"the agent's program was not found{said}"),
            hint=install_hint,
        )
    ended = "closed its output" if code is None else f"ended with exit code {code}"
    return Failure(category=Category.PORT_EXIT, blame=Blame.AGENT, message=redact(f"the agent {ended}{said}"))


def response_timeout(message: str) -> AgentError:
    """An agent that does not answer, or does not read, in time."""
    return AgentError(Failure(category=Category.RESPONSE_TIMEOUT, blame=Blame.AGENT, message=message))


# JSON-RPC 2.0 over lines, sans-IO: bytes in and messages out, requests in and bytes out.
#
# One JSON object per line (AG2). Both sides number their requests from small integers, so an id alone does
# not say whose it is: a message with `method` and `id` is a request of the other side, one with `id` only
# answers a request of ours. Codex leaves the `jsonrpc` member out, the Agent Client Protocol wants it.
#
#     receive(bytes) -> Notification | ServerRequest | Response | Refusal | Chatter | Garbled | Muted
#     request(method, params) -> (id, bytes)      answer/refuse(id, ...) -> bytes
#
# `params` and `result` stay undecoded: most of a stream is output deltas that nobody reads, and leaving
# them raw is what keeps the pump cheap. No clock and no I/O; the same input always gives the same output,
# however it is cut into chunks.


_MAX_MUTED = 256
_MAX_MUTED_CHARS = 200

RequestId = int | str
_NOTHING = msgspec.Raw(b"{}")


class Notification(msgspec.Struct, frozen=True):
    """Something happened at the server; nobody waits for an answer."""

    method: str
    params: msgspec.Raw


class ServerRequest(msgspec.Struct, frozen=True):
    """The server asks and waits: it must be answered with the same `id` (AG13)."""

    id: RequestId
    method: str
    params: msgspec.Raw


class Response(msgspec.Struct, frozen=True):
    """The answer to our request `id`; `method` is what we had asked, empty if nobody waits for it."""

    id: RequestId
    method: str
    result: msgspec.Raw


class Refusal(msgspec.Struct, frozen=True):
    """A JSON-RPC error as the answer to our request `id`; `data` is what stands beside its message."""

    id: RequestId
    method: str
    code: int
    message: str
    data: msgspec.Raw = _NOTHING


class Suppressed(msgspec.Struct, frozen=True):
    """So many notifications in a row whose methods were muted."""

    count: int


Message = Notification | ServerRequest | Response | Refusal | PlainLine | MalformedLine | Suppressed


class _Error(msgspec.Struct):
    code: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0
    message: str = ""
    data: msgspec.Raw = _NOTHING


class _Envelope(msgspec.Struct):
    method: str | None = None
    id: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | str | None = None
    params: msgspec.Raw = _NOTHING
    result: msgspec.Raw = _NOTHING
    error: _Error | None = None


_decoder = msgspec.json.Decoder(_Envelope)


class Codec:
    """Both directions of one connection. Not shared, not thread-safe."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES, versioned: bool = False) -> None:
        self._lines = Lines(max_line_bytes=max_line_bytes)
        self._stamp: Mapping[str, Any] = {"jsonrpc": "2.0"} if versioned else {}
        self._last_id = 0
        self._pending: dict[RequestId, str] = {}
        self._muted: set[str | None] = set()

    def request(self, method: str, params: Mapping[str, Any]) -> tuple[int, bytes]:
        """Number a request of ours; returns its id and its line."""
        self._last_id += 1
        self._pending[self._last_id] = method
        return self._last_id, self._line({"method": method, "id": self._last_id, "params": params})

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> bytes:
        """The line of a notification of ours."""
        return self._line({"method": method} if params is None else {"method": method, "params": params})

    def answer(self, request_id: RequestId, result: Mapping[str, Any]) -> bytes:
        """The line that answers a request of the server."""
        return self._line({"id": request_id, "result": result})

    def refuse(self, request_id: RequestId, code: int, message: str) -> bytes:
        """The line that answers a request of the server with a JSON-RPC error."""
        return self._line({"id": request_id, "error": {"code": code, "message": message}})

    def receive(self, data: bytes) -> list[Message]:
        """The messages completed by `data`, in order; an unfinished last line is kept for the next call."""
        return self._read(self._lines.receive(data))

    def mute(self, method: str) -> None:
        """From now on only count notifications of this method: most of a stream is output in pieces."""
        if len(self._muted) < _MAX_MUTED and len(method) <= _MAX_MUTED_CHARS:
            self._muted.add(method)

    def close(self) -> list[Message]:
        """What the stream's end leaves: an unfinished line counts as a whole one."""
        return self._read(self._lines.close())

    def _read(self, lines: list[bytes | MalformedLine]) -> list[Message]:
        """Once for each event of a stream: what is muted costs no call but that of the decoder."""
        found: list[Message | None] = []
        muted, silent, decode = 0, self._muted, _decoder.decode
        for line in lines:
            envelope = None
            if isinstance(line, bytes):
                try:
                    envelope = decode(line)
                except DECODE_ERRORS:
                    pass  # no message
                else:
                    if envelope.method in silent and envelope.id is None:
                        muted += 1
                        continue
            if muted:
                found.append(Suppressed(muted))
                muted = 0
            found.append(self._message(line, envelope))
        found.append(Suppressed(muted) if muted else None)
        return [message for message in found if message is not None]

    def _message(self, line: bytes | MalformedLine, envelope: _Envelope | None) -> Message | None:
        if isinstance(line, MalformedLine):
            return line
        return unreadable(line) if envelope is None else self._sort(envelope, line)

    def _sort(self, envelope: _Envelope, line: bytes) -> Message:
        if envelope.method is not None:
            if envelope.id is None:
                return Notification(envelope.method, envelope.params)
            return ServerRequest(envelope.id, envelope.method, envelope.params)
        if envelope.id is None:
            return MalformedLine(excerpt(line)[:EXCERPT_CHARS])
        method = self._pending.pop(envelope.id, "")
        if (error := envelope.error) is not None:
            return Refusal(envelope.id, method, error.code, error.message, error.data)
        return Response(envelope.id, method, envelope.result)

    def _line(self, message: Mapping[str, Any]) -> bytes:
        return encoded({**self._stamp, **message})


# An agent's process and its JSON-RPC wire: requests with a deadline, messages read by read (AG2, AG10).
#
# Pull-based: bytes are read only inside `call` and `fill`, so whoever consumes the messages sets the pace
# of the agent. What arrives while a request waits for its answer is handed on, not dropped.


Handler = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRpcDialect:
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

    def __init__(self, process: AgentProcess, *, read_timeout_ms: int, manner: JsonRpcDialect) -> None:
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
