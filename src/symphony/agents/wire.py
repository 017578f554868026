"""The streams that agents speak on: bounded lines, JSON-RPC messages, and a process that carries them.

`LineSplitter` and `JsonRpcCodec` do no I/O and have no clock: the same bytes give the same messages, however
cut into pieces. `MessageStream` reads a process only when a caller asks for it, so the consumer of the
messages sets the pace of the agent.
"""

import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar

import anyio
import msgspec
from msgspec import Struct

from symphony.agents.base import AgentError, IsolationError
from symphony.agents.events import AgentEvent, LogNotice, Malformed, redact
from symphony.agents.isolation import has_failed
from symphony.agents.json_fields import decode_object
from symphony.agents.process import AgentProcess
from symphony.domain import DECODE_ERRORS, Blame, Category, Failure

# --- lines -------------------------------------------------------------------------------------------------

MAX_LINE_BYTES: Final = 10 * 1024 * 1024
EXCERPT_CHARS: Final = 1_000
_LOOKS_BAD: Final = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|fatal|panic(?:ked)?|exception|traceback|denied|warn\w*)\b", re.IGNORECASE
)
_encoder: Final = msgspec.json.Encoder()


class PlainLine(msgspec.Struct, frozen=True):
    """A line that was never meant as a message: a banner, a warning, a stack trace."""

    text: str


class MalformedLine(msgspec.Struct, frozen=True):
    """A line that begins with `{` and is not a message, or a line above the limit."""

    excerpt: str


class LineSplitter:
    """Splits a stream into lines. A line above the limit becomes a `MalformedLine`."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0

    def receive(self, data: bytes) -> list[bytes | MalformedLine]:
        """Return the lines that `data` completes; an unfinished last line is kept for the next call."""
        *whole, tail = data.split(b"\n")
        lines: list[bytes | MalformedLine] = []
        if whole and self._partial:
            self._keep(whole.pop(0))
            lines += self.close()
        limit = self._max_line_bytes
        lines += [line if len(line) <= limit else self._too_long(line, len(line)) for line in whole]
        self._keep(tail)
        return lines

    def close(self) -> list[bytes | MalformedLine]:
        """Return the rest at the end of the stream: an unfinished line counts as a whole one."""
        if not self._partial:
            return []
        line, size = b"".join(self._partial), self._partial_bytes
        self._partial, self._partial_bytes = [], 0
        return [line if size <= self._max_line_bytes else self._too_long(line, size)]

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._partial_bytes += len(piece)
        self._partial.append(piece)
        if self._partial_bytes > self._max_line_bytes:  # only the excerpt is needed
            self._partial = [b"".join(self._partial)[:EXCERPT_CHARS]]

    def _too_long(self, line: bytes, size: int) -> MalformedLine:
        limit = self._max_line_bytes
        return MalformedLine(
            f"line of {size} bytes exceeds the limit of {limit} bytes: {excerpt(line)[:200]}"
        )


def unreadable(line: bytes) -> PlainLine | MalformedLine | None:
    """Classify a line that is not a message; None for a blank one."""
    text = excerpt(line).strip()
    if not text:
        return None
    if text.startswith("{"):
        return MalformedLine(text[:EXCERPT_CHARS])
    return PlainLine(text[:EXCERPT_CHARS])


def excerpt(line: bytes) -> str:
    """Return the beginning of a line as text."""
    return line[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")


def line_event(line: PlainLine | MalformedLine) -> AgentEvent:
    """Return the event of a line that is not a message."""
    if isinstance(line, MalformedLine):
        return Malformed(excerpt=redact(line.excerpt))
    level = "warning" if _LOOKS_BAD.search(line.text) else "info"
    return LogNotice(level=level, message=redact(line.text))


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Return the line that carries a message. A lone surrogate, which JSON cannot hold, is replaced."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


# --- JSON-RPC 2.0 ------------------------------------------------------------------------------------------
#
# One JSON object per line. Both sides number their requests from small integers, so an id alone does not say
# whose request it is: a message with `method` and `id` is a request of the server, one with `id` only answers
# a request of the client. Codex leaves the `jsonrpc` member out, the Agent Client Protocol requires it.

METHOD_NOT_FOUND: Final = -32_601
INVALID_PARAMS: Final = -32_602

_MAX_SUPPRESSED: Final = 256
_MAX_SUPPRESSED_CHARS: Final = 200
_EMPTY: Final = msgspec.Raw(b"{}")

RequestId = int | str
_Integer = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class ServerNotification(msgspec.Struct, frozen=True):
    """A notification of the server, which expects no answer."""

    method: str
    params: msgspec.Raw


class ServerRequest(msgspec.Struct, frozen=True):
    """A request of the server, which waits for an answer with the same `id`."""

    id: RequestId
    method: str
    params: msgspec.Raw


class Response(msgspec.Struct, frozen=True):
    """The answer to the request `id`; `method` is the method of the request, empty for an unknown id."""

    id: RequestId
    method: str
    result: msgspec.Raw


class ErrorResponse(msgspec.Struct, frozen=True):
    """A JSON-RPC error as the answer to the request `id`."""

    id: RequestId
    method: str
    code: int
    message: str
    data: msgspec.Raw = _EMPTY


class Suppressed(msgspec.Struct, frozen=True):
    """A number of consecutive notifications with suppressed methods; `params` has the kept ones."""

    count: int
    params: Sequence[msgspec.Raw] = ()


Message = (
    ServerNotification | ServerRequest | Response | ErrorResponse | PlainLine | MalformedLine | Suppressed
)


class RequestAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a request of the other side: a result, or `error` as (code, message).

    `event` is what to report about the request.
    """

    result: Mapping[str, Any] | None = None
    error: tuple[int, str] | None = None
    event: AgentEvent | None = None


class _Error(msgspec.Struct):
    code: _Integer = 0
    message: str = ""
    data: msgspec.Raw = _EMPTY


class _Envelope(msgspec.Struct):
    method: str | None = None
    id: _Integer | str | None = None
    params: msgspec.Raw = _EMPTY
    result: msgspec.Raw = _EMPTY
    error: _Error | None = None


_decoder: Final = msgspec.json.Decoder(_Envelope)


class JsonRpcCodec:
    """Both directions of one JSON-RPC connection.

    `params` and `result` stay undecoded, and suppressed notifications are only counted: most of a stream is
    output in small pieces, which have no use here.

    Args:
        max_line_bytes: longer lines are malformed.
        versioned: every message carries `"jsonrpc": "2.0"`.
        kept: a suppressed method whose params are kept, undecoded.
    """

    def __init__(
        self, *, max_line_bytes: int = MAX_LINE_BYTES, versioned: bool = False, kept: str | None = None
    ) -> None:
        self._lines = LineSplitter(max_line_bytes=max_line_bytes)
        self._kept = kept
        self._version: Mapping[str, Any] = {"jsonrpc": "2.0"} if versioned else {}
        self._last_id = 0
        self._pending: dict[RequestId, str] = {}
        self._suppressed: set[str | None] = set() if kept is None else {kept}

    def request(self, method: str, params: Mapping[str, Any]) -> tuple[int, bytes]:
        """Number a request; return its id and its line."""
        self._last_id += 1
        self._pending[self._last_id] = method
        return self._last_id, self._line({"method": method, "id": self._last_id, "params": params})

    def notification(self, method: str, params: Mapping[str, Any] | None = None) -> bytes:
        """Return the line of a notification."""
        return self._line({"method": method} if params is None else {"method": method, "params": params})

    def answer(self, request_id: RequestId, answer: RequestAnswer) -> bytes:
        """Return the line that answers a request of the other side."""
        if answer.error is None:
            return self._line({"id": request_id, "result": answer.result or {}})
        code, message = answer.error
        return self._line({"id": request_id, "error": {"code": code, "message": message}})

    def suppress(self, method: str) -> None:
        """Only count notifications of this method from now on."""
        if len(self._suppressed) < _MAX_SUPPRESSED and len(method) <= _MAX_SUPPRESSED_CHARS:
            self._suppressed.add(method)

    def receive(self, data: bytes) -> list[Message]:
        """Return the messages that `data` completes; an unfinished last line is kept for the next call."""
        return self._decode(self._lines.receive(data))

    def close(self) -> list[Message]:
        """Return the rest at the end of the stream: an unfinished line counts as a whole one."""
        return self._decode(self._lines.close())

    def _decode(self, lines: list[bytes | MalformedLine]) -> list[Message]:
        messages: list[Message] = []
        count, params = 0, list[msgspec.Raw]()
        for line in lines:
            message: Message | None
            if isinstance(line, MalformedLine):
                message = line
            else:
                try:
                    envelope = _decoder.decode(line)
                except DECODE_ERRORS:
                    message = unreadable(line)
                else:
                    if envelope.id is None and envelope.method in self._suppressed:
                        count += 1
                        if envelope.method == self._kept:
                            params.append(envelope.params)
                        continue
                    message = self._message(envelope, line)
            if count:
                messages.append(Suppressed(count, params))
                count, params = 0, []
            if message is not None:
                messages.append(message)
        if count:
            messages.append(Suppressed(count, params))
        return messages

    def _message(self, envelope: _Envelope, line: bytes) -> Message:
        if envelope.method is not None:
            if envelope.id is None:
                return ServerNotification(envelope.method, envelope.params)
            return ServerRequest(envelope.id, envelope.method, envelope.params)
        if envelope.id is None:
            return MalformedLine(excerpt(line)[:EXCERPT_CHARS])
        method = self._pending.pop(envelope.id, "")
        if (error := envelope.error) is not None:
            return ErrorResponse(envelope.id, method, error.code, error.message, error.data)
        return Response(envelope.id, method, envelope.result)

    def _line(self, message: Mapping[str, Any]) -> bytes:
        return encode_line({**self._version, **message})


# --- streams of a process ----------------------------------------------------------------------------------

_NOT_FOUND_EXIT: Final = 127

MessageT = TypeVar("MessageT")
MessageT_co = TypeVar("MessageT_co", covariant=True)


class Decoder(Protocol[MessageT_co]):
    """Turns bytes into messages."""

    def receive(self, data: bytes) -> Sequence[MessageT_co]:
        """Return the messages that `data` completes."""
        ...

    def close(self) -> Sequence[MessageT_co]:
        """Return the rest at the end of the stream."""
        ...


class MessageStream(Generic[MessageT]):
    """An agent's process and the messages that it writes. One user at a time.

    Args:
        process: read only inside `call` of a subclass and `fill`.
        decoder: decodes the output of the process.
        read_timeout_ms: limits a request, and a write that the agent does not read.
        not_found: the category of a program that the shell does not find.
        install_hint: what to do about that.
    """

    def __init__(
        self,
        process: AgentProcess,
        decoder: Decoder[MessageT],
        *,
        read_timeout_ms: int,
        not_found: Category,
        install_hint: str,
    ) -> None:
        self._process = process
        self._decoder = decoder
        self._read_timeout_ms = read_timeout_ms
        self._not_found = not_found
        self._install_hint = install_hint
        self._inbox: deque[MessageT] = deque()
        self._has_spoken = False

    async def fill(self) -> None:
        """Read once; afterwards `take` returns the messages that this completed, if any.

        Raises:
            AgentError: the stream has ended and every message was taken (`port_exit`, or not found).
            IsolationError: it has ended before the agent began.
        """
        data = await self._process.receive()
        self.feed(data)
        if not data and not self._inbox:
            raise await self._exit_error()

    def feed(self, data: bytes) -> None:
        """Add bytes that were read elsewhere; `b""` marks the end of the stream."""
        messages = self._decoder.receive(data) if data else self._decoder.close()
        if not self._has_spoken:
            self._has_spoken = any(not isinstance(one, PlainLine | MalformedLine) for one in messages)
        self._inbox.extend(messages)

    def take(self) -> MessageT | None:
        """Return the next message that has been read, or None."""
        return self._inbox.popleft() if self._inbox else None

    async def _exchange(
        self,
        line: bytes,
        is_reply: Callable[[MessageT], bool],
        handle: Callable[[MessageT], Awaitable[None]],
        *,
        what: str,
        timeout_ms: int,
    ) -> MessageT:
        """Send a request and return its reply; `handle` gets every other message.

        The deadline holds for the whole request: other messages do not extend it.
        """
        with anyio.move_on_after(timeout_ms / 1000):
            await self._process.send(line)
            while True:
                while (message := self.take()) is not None:
                    if is_reply(message):
                        return message
                    await handle(message)
                await self.fill()
        raise _response_timeout(f"no answer to {what} within {timeout_ms} ms")

    async def _write(self, line: bytes) -> None:
        with anyio.move_on_after(self._read_timeout_ms / 1000):
            await self._process.send(line)
            return
        raise _response_timeout(f"the agent has not read its input for {self._read_timeout_ms} ms")

    async def _exit_error(self) -> AgentError:
        """Return why the stream has ended. A program that has sent a message was found."""
        code = await self._process.exit_code()
        last_line = await self._process.stderr_line()
        details = f": {last_line}" if last_line else ""
        if code == _NOT_FOUND_EXIT and not self._has_spoken:
            failure = Failure(
                category=self._not_found,
                blame=Blame.CONFIG,
                message=redact(f"the agent's program was not found{details}"),
                hint=self._install_hint,
            )
            return AgentError(failure)
        ended = "closed its output" if code is None else f"ended with exit code {code}"
        message = redact(f"the agent {ended}{details}")
        failure = Failure(category=Category.PORT_EXIT, blame=Blame.AGENT, message=message)
        not_begun = not self._has_spoken and has_failed(code, last_line)
        return IsolationError(failure) if not_begun else AgentError(failure)


def _response_timeout(message: str) -> AgentError:
    return AgentError(Failure(category=Category.RESPONSE_TIMEOUT, blame=Blame.AGENT, message=message))


def response_error(message: str) -> AgentError:
    """Return the error for an answer that the agent refused or that cannot be used."""
    failure = Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=redact(message))
    return AgentError(failure)


class RpcError(AgentError):
    """The agent answered a request with a JSON-RPC error; `code` is that of the error."""

    def __init__(self, failure: Failure, code: int) -> None:
        super().__init__(failure)
        self.code = code


class JsonRpcDialect(Struct, frozen=True, kw_only=True):
    """The differences between agents that use JSON-RPC.

    Attributes:
        not_found: the category of a program that the shell does not find.
        install_hint: what to do about that.
        refusal: the failure of a request that was answered with an error.
        versioned: every message carries `"jsonrpc": "2.0"`.
        message_delta: the notification with the next piece of a message, or None.
    """

    not_found: Category
    install_hint: str
    refusal: Callable[[ErrorResponse], Failure]
    versioned: bool = False
    message_delta: str | None = None


class Connection(MessageStream[Message]):
    """A process that speaks JSON-RPC."""

    def __init__(self, process: AgentProcess, *, read_timeout_ms: int, dialect: JsonRpcDialect) -> None:
        self._dialect = dialect
        self._codec = JsonRpcCodec(versioned=dialect.versioned, kept=dialect.message_delta)
        super().__init__(
            process,
            self._codec,
            read_timeout_ms=read_timeout_ms,
            not_found=dialect.not_found,
            install_hint=dialect.install_hint,
        )

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        handle: Callable[[Message], Awaitable[None]],
        *,
        timeout_ms: int | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result; `handle` gets every message that is not the answer.

        The deadline is `read_timeout_ms` unless given.

        Raises:
            RpcError: the agent answered with an error.
            AgentError: `response_timeout`, `response_error`, `port_exit` or not found.
        """
        request_id, line = self._codec.request(method, params)
        reply = await self._exchange(
            line,
            lambda message: isinstance(message, Response | ErrorResponse) and message.id == request_id,
            handle,
            what=method,
            timeout_ms=self._read_timeout_ms if timeout_ms is None else timeout_ms,
        )
        if isinstance(reply, ErrorResponse):
            raise RpcError(self._dialect.refusal(reply), reply.code)
        try:
            return decode_object(reply.result if isinstance(reply, Response) else _EMPTY)
        except ValueError as error:
            raise response_error(f"unreadable answer to {method}: {error}") from error

    async def request(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request and return its id. The answer comes among the messages."""
        request_id, line = self._codec.request(method, params)
        await self._write(line)
        return request_id

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._write(self._codec.notification(method, params))

    async def answer(self, request: ServerRequest, answer: RequestAnswer) -> None:
        """Answer a request of the server."""
        await self._write(self._codec.answer(request.id, answer))

    async def refuse(self, request: ServerRequest, message: str, code: int = METHOD_NOT_FOUND) -> None:
        """Answer a request of the server with an error."""
        await self.answer(request, RequestAnswer(error=(code, message)))

    def suppress(self, method: str) -> None:
        """Only count notifications of this method from now on."""
        self._codec.suppress(method)
