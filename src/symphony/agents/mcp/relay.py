"""The MCP server that an agent starts: a program of its own that only carries bytes to the daemon and back.

    python -I -S relay.py <socket>

It imports nothing of ours and knows no secret and no protocol, so it starts in a few hundredths of a second,
and works in any directory, with any environment and inside a sandbox that lets it reach the socket. It ends
when either side does.
"""

import os
import socket
import sys
import threading
from collections.abc import Sequence

_CHUNK_BYTES = 65_536


def main(arguments: Sequence[str], *, source: int = 0, target: int = 1) -> int:
    """Carry until the daemon closes the socket; 1 when nobody is there, 2 for wrong arguments."""
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
        return _receive(connection, target)


def _send(source: int, connection: socket.socket) -> None:
    """Stdin to the socket; its end is passed on, and what was asked before is still answered."""
    try:
        while data := os.read(source, _CHUNK_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the daemon has hung up, which the other direction sees too


def _receive(connection: socket.socket, target: int) -> int:
    try:
        while data := connection.recv(_CHUNK_BYTES):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(target, rest) :]
    except OSError:
        return 0  # either side is gone, and nobody is left to be told
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
