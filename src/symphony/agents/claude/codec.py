"""Claude Code's stream of JSON lines, sans-IO: bytes in and messages out, requests in and bytes out.

Events have a `type`, some a `subtype`. Beside them runs a control channel in both directions: a
`control_request` waits for the `control_response` of the same `request_id`, which the one who asks makes up.

    receive(bytes) -> Event | Question | Reply | Pulse | Chatter | Garbled
    request(subtype) -> (id, bytes)      answer/refuse(id, ...) -> bytes      user(text) -> bytes

Events stay undecoded, and pieces of a message are only counted: most of a stream is those. No clock, no I/O.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from symphony.agents.border import parse
from symphony.agents.wire.lines import (
    EXCERPT_CHARS,
    Chatter,
    Garbled,
    Lines,
    encoded,
    excerpt,
    unreadable,
)
from symphony.domain.decoding import UNREADABLE

__all__ = ["Codec", "Event", "Message", "Pulse", "Question", "Reply", "parse"]

_NOTHING = msgspec.Raw(b"{}")
_PULSES = frozenset({"stream_event", "keep_alive"})


class Event(msgspec.Struct, frozen=True):
    """Something happened; `raw` is the whole line."""

    type: str
    subtype: str
    raw: msgspec.Raw


class Question(msgspec.Struct, frozen=True):
    """The agent asks and waits: it must be answered with the same `id`."""

    id: str
    request: msgspec.Raw


class Reply(msgspec.Struct, frozen=True):
    """The answer to our request `id`; `error` is set where it was refused."""

    id: str
    response: msgspec.Raw
    error: str | None = None


class Pulse(msgspec.Struct, frozen=True):
    """So many messages in a row that only say that the agent is at work."""

    count: int


Message = Event | Question | Reply | Pulse | Chatter | Garbled


class _Reply(msgspec.Struct):
    subtype: str = ""
    request_id: str = ""
    response: msgspec.Raw = _NOTHING
    error: str | None = None


class _Line(msgspec.Struct):
    type: str
    subtype: str = ""
    request_id: str = ""
    request: msgspec.Raw = _NOTHING
    response: msgspec.Raw = _NOTHING


_line_decoder = msgspec.json.Decoder(_Line)
_reply_decoder = msgspec.json.Decoder(_Reply)


class Codec:
    """Both directions of one stream. Not shared, not thread-safe."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._last_id = 0

    def request(self, subtype: str, **fields: Any) -> tuple[str, bytes]:
        """A request of ours on the control channel; returns its id and its line."""
        self._last_id += 1
        name = f"symphony-{self._last_id}"
        body = {"subtype": subtype, **fields}
        return name, encoded({"type": "control_request", "request_id": name, "request": body})

    @staticmethod
    def user(text: str) -> bytes:
        """The line by which a turn begins."""
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return encoded({"type": "user", "message": message})

    @staticmethod
    def answer(request_id: str, response: Mapping[str, Any]) -> bytes:
        """The line that answers a question of the agent."""
        return _response("success", request_id, response=response)

    @staticmethod
    def refuse(request_id: str, error: str) -> bytes:
        """The line that answers a question of the agent with an error."""
        return _response("error", request_id, error=error)

    def receive(self, data: bytes) -> list[Message]:
        """The messages completed by `data`, in order; an unfinished last line is kept for the next call."""
        return _merged(self._lines.receive(data))

    def close(self) -> list[Message]:
        """What the stream's end leaves: an unfinished line counts as a whole one."""
        return _merged(self._lines.close())


def _response(subtype: str, request_id: str, **fields: Any) -> bytes:
    body = {"subtype": subtype, "request_id": request_id, **fields}
    return encoded({"type": "control_response", "response": body})


def _merged(lines: list[bytes | Garbled]) -> list[Message]:
    """The messages of lines; pulses in a row become one."""
    found: list[Message] = []
    for line in lines:
        message = line if isinstance(line, Garbled) else _message(line)
        if isinstance(message, Pulse) and found and isinstance(last := found[-1], Pulse):
            found[-1] = Pulse(last.count + message.count)
        elif message is not None:
            found.append(message)
    return found


def _message(line: bytes) -> Message | None:
    try:
        head = _line_decoder.decode(line)
        if head.type in _PULSES:
            return Pulse(1)
        if head.type == "control_response":
            return _reply(_reply_decoder.decode(head.response))
    except UNREADABLE:
        return unreadable(line)
    if head.type != "control_request":
        return Event(head.type, head.subtype, msgspec.Raw(line))
    if not head.request_id:
        return Garbled(excerpt(line)[:EXCERPT_CHARS])
    return Question(head.request_id, head.request)


def _reply(body: _Reply) -> Reply:
    error = body.error or "no reason told"
    return Reply(body.request_id, body.response, error if body.subtype == "error" else None)
