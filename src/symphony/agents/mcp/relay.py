"""The MCP server that an agent starts: a program that only carries bytes to the daemon and back.

    python -I -S relay.py <socket>

It imports no other module of Symphony and knows no secret and no protocol. So it starts in a few hundredths
of a second, in any directory, with any environment, and inside a sandbox that lets it reach the socket. It
ends when either side does.
"""

import os
import socket
import sys
import threading
from collections.abc import Sequence

_CHUNK_BYTES = 65_536


def main(arguments: Sequence[str], *, source: int = 0, target: int = 1) -> int:
    """Carry bytes until the daemon closes the socket; return 1 if it cannot be reached, 2 for misuse."""
    if len(arguments) != 1:
        sys.stderr.write("usage: relay.py <socket>\n")
        return 2
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        try:
            connection.connect(arguments[0])
        except OSError as error:
            sys.stderr.write(f"symphony: the tools of this session cannot be reached: {error}\n")
            return 1
        threading.Thread(target=_send, args=(source, connection), daemon=True).start()
        _receive(connection, target)
    return 0


def _send(source: int, connection: socket.socket) -> None:
    """Carry stdin to the socket and pass its end on; open requests are still answered."""
    try:
        while data := os.read(source, _CHUNK_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the daemon has closed the socket, which the other direction sees too


def _receive(connection: socket.socket, target: int) -> None:
    try:
        while data := connection.recv(_CHUNK_BYTES):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(target, rest) :]
    except OSError:
        return  # either side has ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
