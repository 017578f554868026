"""One HTTP request over a Unix socket and its answer, bounded in time and in size.

The protocol is h11's, on a blocking socket: a command that asks a daemon needs no event loop and no pool, and
importing an HTTP client with all that it can do would take longer than the question.
"""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import h11

__all__ = ["EndlessAnswerError", "exchange"]

_PIECE_BYTES: Final = 65_536


class EndlessAnswerError(Exception):
    """The answer is longer than the caller takes."""


def exchange(
    path: Path, method: str, target: str, *, body: bytes | None, limit_s: float, max_bytes: int
) -> tuple[int, bytes]:
    """Status and body of what the server at `path` answers, whatever the status is.

    `limit_s` holds for the whole, from the connection to the last byte, so a drip of bytes does not renew it.

    Raises:
        TimeoutError: the whole answer was not there in time.
        EndlessAnswerError: its body is longer than `max_bytes`.
        OSError: there is no connection, or it broke.
        h11.ProtocolError: the answer is no HTTP, or ends too early.
    """
    deadline = time.monotonic() + limit_s
    connection = h11.Connection(h11.CLIENT)
    status, told = 0, bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        _bound(wire, deadline)
        wire.connect(os.fsencode(path))
        wire.sendall(b"".join(_request(connection, method, target, body)))
        while True:
            match connection.next_event():
                case h11.Response(status_code=status):
                    pass
                case h11.Data(data=piece):
                    told += piece
                    if len(told) > max_bytes:
                        raise EndlessAnswerError
                case h11.EndOfMessage():
                    return status, bytes(told)
                case _:  # what was received so far is no whole event
                    _bound(wire, deadline)
                    connection.receive_data(wire.recv(_PIECE_BYTES))


def _bound(wire: socket.socket, deadline: float) -> None:
    """Let the next call on the socket take no longer than there is time."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    wire.settimeout(left_s)


def _request(connection: h11.Connection, method: str, target: str, body: bytes | None) -> Iterator[bytes]:
    headers = [
        ("host", "symphony"),
        ("accept", "application/json"),
        ("connection", "close"),
        ("content-length", str(len(body or b""))),
    ]
    if body is not None:
        headers.append(("content-type", "application/json"))
    yield connection.send(h11.Request(method=method, target=target, headers=headers)) or b""
    if body:
        yield connection.send(h11.Data(data=body)) or b""
    yield connection.send(h11.EndOfMessage()) or b""
