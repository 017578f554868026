"""The other side of sd_notify(3): a datagram socket that keeps what a daemon says to its manager."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Manager", "managing"]

DEADLINE_S = 120.0


class Manager:
    """All datagrams so far, each as a dictionary of its lines."""

    def __init__(self, door: socket.socket, address: str) -> None:
        self._door = door
        self.address = address
        self.heard: list[dict[str, str]] = []

    def read(self) -> dict[str, str]:
        """Wait for the next datagram."""
        text = self._door.recv(65_536).decode()
        said = dict(line.split("=", 1) for line in text.splitlines())
        self.heard.append(said)
        return said

    def until(self, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Wait for a datagram of which something holds; those before it are remembered too."""
        while not holds(said := self.read()):
            pass
        return said

    def until_said(self, name: str) -> dict[str, str]:
        """Wait for a datagram with this name in it."""
        return self.until(lambda said: name in said)

    def waiting(self) -> list[dict[str, str]]:
        """What is there already, without waiting for more."""
        before = len(self.heard)
        self._door.settimeout(0)
        try:
            while True:
                self.read()
        except BlockingIOError:
            return self.heard[before:]
        finally:
            self._door.settimeout(DEADLINE_S)

    def hears_within(self, timeout_ms: int) -> bool:
        """Whether anything more is said in that time."""
        self._door.settimeout(timeout_ms / 1000)
        try:
            self.read()
        except TimeoutError:
            return False
        finally:
            self._door.settimeout(DEADLINE_S)
        return True

    def all(self, name: str) -> list[str]:
        """Every value that was said of a name, in order."""
        return [said[name] for said in self.heard if name in said]


@contextmanager
def managing(address: Path | str) -> Iterator[Manager]:
    """Listen at a path, or at `@name` of the abstract name space."""
    name = str(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind("\0" + name[1:] if name.startswith("@") else name)
        door.settimeout(DEADLINE_S)
        yield Manager(door, name)
