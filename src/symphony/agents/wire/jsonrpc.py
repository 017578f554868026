"""JSON-RPC 2.0 over lines, sans-IO: bytes in and messages out, requests in and bytes out.

One JSON object per line (AG2). Both sides number their requests from small integers, so an id alone does not
say whose it is: a message with `method` and `id` is a request of the other side, one with `id` only answers a
request of ours. Codex leaves the `jsonrpc` member out, the Agent Client Protocol wants it.

    receive(bytes) -> Notification | ServerRequest | Response | Refusal | Chatter | Garbled | Muted
    request(method, params) -> (id, bytes)      answer/refuse(id, ...) -> bytes

`params` and `result` stay undecoded: most of a stream is output deltas that nobody reads, and leaving them
raw is what keeps the pump cheap. No clock and no I/O; the same input always gives the same output, however it
is cut into chunks.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from symphony.agents.border import parse
from symphony.agents.wire.lines import (
    EXCERPT_CHARS,
    MAX_LINE_BYTES,
    Chatter,
    Garbled,
    Lines,
    encoded,
    excerpt,
    unreadable,
)
from symphony.domain.decoding import UNREADABLE

__all__ = [
    "MAX_LINE_BYTES",
    "Chatter",
    "Codec",
    "Garbled",
    "Message",
    "Muted",
    "Notification",
    "Refusal",
    "RequestId",
    "Response",
    "ServerRequest",
    "parse",
]

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


class Muted(msgspec.Struct, frozen=True):
    """So many notifications in a row whose methods were muted."""

    count: int


Message = Notification | ServerRequest | Response | Refusal | Chatter | Garbled | Muted


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

    def _read(self, lines: list[bytes | Garbled]) -> list[Message]:
        """Once for each event of a stream: what is muted costs no call but that of the decoder."""
        found: list[Message | None] = []
        muted, silent, decode = 0, self._muted, _decoder.decode
        for line in lines:
            envelope = None
            if isinstance(line, bytes):
                try:
                    envelope = decode(line)
                except UNREADABLE:
                    pass  # no message
                else:
                    if envelope.method in silent and envelope.id is None:
                        muted += 1
                        continue
            if muted:
                found.append(Muted(muted))
                muted = 0
            found.append(self._message(line, envelope))
        found.append(Muted(muted) if muted else None)
        return [message for message in found if message is not None]

    def _message(self, line: bytes | Garbled, envelope: _Envelope | None) -> Message | None:
        if isinstance(line, Garbled):
            return line
        return unreadable(line) if envelope is None else self._sort(envelope, line)

    def _sort(self, envelope: _Envelope, line: bytes) -> Message:
        if envelope.method is not None:
            if envelope.id is None:
                return Notification(envelope.method, envelope.params)
            return ServerRequest(envelope.id, envelope.method, envelope.params)
        if envelope.id is None:
            return Garbled(excerpt(line)[:EXCERPT_CHARS])
        method = self._pending.pop(envelope.id, "")
        if (error := envelope.error) is not None:
            return Refusal(envelope.id, method, error.code, error.message, error.data)
        return Response(envelope.id, method, envelope.result)

    def _line(self, message: Mapping[str, Any]) -> bytes:
        return encoded({**self._stamp, **message})
