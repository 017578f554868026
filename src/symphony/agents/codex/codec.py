"""The wire of the app-server, sans-IO: bytes in and messages out, requests in and bytes out.

One JSON object per line, JSON-RPC 2.0 without the `jsonrpc` member (AG2). Both sides number their requests
from small integers, so an id alone does not say whose it is: a message with `method` and `id` is a request of
the server, one with `id` only answers a request of ours.

    receive(bytes) -> Notification | ServerRequest | Response | Refusal | Chatter | Garbled | Muted
    request(method, params) -> (id, bytes)      answer/refuse(id, ...) -> bytes

`params` and `result` stay undecoded: most of a stream is output deltas that nobody reads, and leaving them
raw is what keeps the pump cheap. No clock and no I/O; the same input always gives the same output, however it
is cut into chunks.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = [
    "MAX_LINE_BYTES",
    "Chatter",
    "Codec",
    "Garbled",
    "Message",
    "Muted",
    "Notification",
    "Refusal",
    "Response",
    "ServerRequest",
    "parse",
]

MAX_LINE_BYTES = 10 * 1024 * 1024
EXCERPT_CHARS = 1_000
_MAX_MUTED = 256

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
    """A JSON-RPC error as the answer to our request `id`."""

    id: RequestId
    method: str
    code: int
    message: str


class Chatter(msgspec.Struct, frozen=True):
    """A line that never meant to be a message: a banner, a warning, a stack trace (AG3)."""

    text: str


class Garbled(msgspec.Struct, frozen=True):
    """A line that begins with `{` and is no message, or one above the limit (AG11 `malformed`)."""

    excerpt: str


class Muted(msgspec.Struct, frozen=True):
    """So many notifications in a row whose methods were muted."""

    count: int


Message = Notification | ServerRequest | Response | Refusal | Chatter | Garbled | Muted


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Envelope(msgspec.Struct):
    method: str | None = None
    id: int | str | None = None
    params: msgspec.Raw = _NOTHING
    result: msgspec.Raw = _NOTHING
    error: _Error | None = None


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decoder = msgspec.json.Decoder(_Envelope)
_encoder = msgspec.json.Encoder()


def parse(raw: msgspec.Raw) -> dict[str, Any]:
    """The object inside `params` or `result`; empty when it is absent, null or no object.

    Raises:
        ValueError: the text is not UTF-8 or nests beyond reason.
    """
    try:
        value = msgspec.json.decode(raw)
    except _UNREADABLE as error:
        raise ValueError(f"params: {error}") from error
    return value if isinstance(value, dict) else {}


class Codec:
    """Both directions of one connection. Not shared, not thread-safe."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._skipping = False
        self._last_id = 0
        self._pending: dict[RequestId, str] = {}
        self._muted: set[str | None] = set()

    def request(self, method: str, params: Mapping[str, Any]) -> tuple[int, bytes]:
        """Number a request of ours; returns its id and its line."""
        self._last_id += 1
        self._pending[self._last_id] = method
        return self._last_id, _line({"method": method, "id": self._last_id, "params": params})

    def notify(self, method: str) -> bytes:
        """The line of a notification of ours (the protocol has one, without params)."""
        return _line({"method": method})

    def answer(self, request_id: RequestId, result: Mapping[str, Any]) -> bytes:
        """The line that answers a request of the server."""
        return _line({"id": request_id, "result": result})

    def refuse(self, request_id: RequestId, code: int, message: str) -> bytes:
        """The line that answers a request of the server with a JSON-RPC error."""
        return _line({"id": request_id, "error": {"code": code, "message": message}})

    def receive(self, data: bytes) -> list[Message]:
        """The messages completed by `data`, in order; an unfinished last line is kept for the next call."""
        lines = data.split(b"\n")
        tail = lines.pop()
        found: list[Message | None] = [self._finish(lines.pop(0))] if lines and self._partial else []
        muted = 0
        for line in lines:
            envelope = _envelope(line) if len(line) <= self._max_line_bytes else None
            if envelope is not None and envelope.method in self._muted and envelope.id is None:
                muted += 1
                continue
            if muted:
                found.append(Muted(muted))
                muted = 0
            found.append(self._finish(line) if envelope is None else self._sort(envelope, line))
        found.append(Muted(muted) if muted else None)
        self._keep(tail)
        return [message for message in found if message is not None]

    def mute(self, method: str) -> None:
        """From now on only count notifications of this method: most of a stream is output in pieces."""
        if len(self._muted) < _MAX_MUTED:
            self._muted.add(method)

    def close(self) -> list[Message]:
        """What the stream's end leaves: an unfinished line counts as a whole one."""
        message = self._finish(b"")
        return [] if message is None else [message]

    def _keep(self, tail: bytes) -> None:
        if not tail:
            return
        self._partial_bytes += len(tail)
        if self._partial_bytes > self._max_line_bytes:
            self._skipping = True
            self._partial = [b"".join(self._partial)[:EXCERPT_CHARS] or tail[:EXCERPT_CHARS]]
        else:
            self._partial.append(tail)

    def _finish(self, end: bytes) -> Message | None:
        self._keep(end)
        if not self._partial:
            return None
        line, size, too_long = b"".join(self._partial), self._partial_bytes, self._skipping
        self._partial, self._partial_bytes, self._skipping = [], 0, False
        if too_long:
            limit = self._max_line_bytes
            return Garbled(f"line of {size} bytes exceeds the limit of {limit} bytes: {_text(line)[:200]}")
        return self._message(line)

    def _message(self, line: bytes) -> Message | None:
        envelope = _envelope(line)
        return _unreadable(line) if envelope is None else self._sort(envelope, line)

    def _sort(self, envelope: _Envelope, line: bytes) -> Message:
        if envelope.method is not None:
            if envelope.id is None:
                return Notification(envelope.method, envelope.params)
            return ServerRequest(envelope.id, envelope.method, envelope.params)
        if envelope.id is None:
            return Garbled(_text(line)[:EXCERPT_CHARS])
        method = self._pending.pop(envelope.id, "")
        if envelope.error is not None:
            return Refusal(envelope.id, method, envelope.error.code, envelope.error.message)
        return Response(envelope.id, method, envelope.result)


def _envelope(line: bytes) -> _Envelope | None:
    """The envelope in a line; null when it is no message."""
    try:
        return _decoder.decode(line)
    except _UNREADABLE:
        return None


def _unreadable(line: bytes) -> Message | None:
    text = _text(line).strip()
    if not text:
        return None
    if text.startswith("{"):
        return Garbled(text[:EXCERPT_CHARS])
    return Chatter(text[:EXCERPT_CHARS])


def _text(line: bytes) -> str:
    return line[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")


def _line(message: Mapping[str, Any]) -> bytes:
    try:
        return _encoder.encode(message) + b"\n"
    except (
        UnicodeEncodeError
    ):  # a lone surrogate in a prompt or a tool's answer: cannot be sent, must not stop us
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
