"""Connects stdin, stdout and stderr with a command on a node of a Ray cluster, as the ssh client does.

    ray_relay.py SOCKET [OPTION…] PLACE COMMAND

It talks only to the bridge at the socket. It loads no library, so that it starts at once. Git runs it as
`GIT_SSH_COMMAND`, with options that it ignores.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

INPUT, OUTPUT, ERRORS, EXIT = b"i", b"o", b"e", b"x"
"""The kinds of pieces in the stream. Empty input is its end.

The exit code is the last piece, in decimal digits.
"""
FAILED: Final = 255
"""The exit code if the command could not run or its end is unknown; the same as ssh's."""
CHUNK_BYTES: Final = 262_144


def head(kind: bytes, size: int) -> bytes:
    """The header of a piece with this size."""
    return kind + size.to_bytes(4, "big")


def relay(path: str, place: str, command: str) -> int:
    """Run the command at a place of the bridge; returns its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            connection.sendall(
                json.dumps({"message": "RunCommand", "place": place, "command": command}).encode() + b"\n"
            )
        except OSError as error:
            _write(2, f"the bridge to Ray cannot be reached: {error.strerror}\n".encode())
            return FAILED
        threading.Thread(target=_send, args=(connection,), daemon=True).start()
        for kind, piece in _pieces(connection):
            if kind == EXIT:
                return int(piece)
            _write(2 if kind == ERRORS else 1, piece)
    _write(2, b"the bridge to Ray ended\n")
    return FAILED


def _pieces(connection: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    with suppress(ConnectionError), connection.makefile("rb") as stream:
        while prefix := stream.read(5):
            yield prefix[:1], stream.read(int.from_bytes(prefix[1:], "big"))


def _send(connection: socket.socket) -> None:
    try:
        data = b"."
        while data:
            data = os.read(0, CHUNK_BYTES)
            connection.sendall(head(INPUT, len(data)) + data)
    except OSError:
        return  # the command or the bridge has ended


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    try:
        code = relay(sys.argv[1], *sys.argv[-2:])
    except OSError:  # nobody reads the output any more
        code = FAILED
    sys.stdout.flush()
    os._exit(code)
