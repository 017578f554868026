"""The line between agent and client: JSON objects, requests of the agent, and the wire's faults."""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from symphony.testing.scripted_agent.faults import Faults

__all__ = ["GARBAGE", "ClientGoneError", "Wire", "write_stdout"]

_BETWEEN_PIECES_S = 0.002
GARBAGE = (
    b"this line is no protocol\n",
    b'{"method": "turn/started", "params": \n',
    b"[1, 2, 3]\n",
    b'"text"\n',
    b'{"method": 7, "params": []}\n',
    b'{"id": {"not": "an id"}, "result": 1}\n',
    b"\xff\xfe\x00\n",
    b"\n",
)


class ClientGoneError(Exception):
    """Nobody will answer any more."""


class Wire:
    """Writes frames, whole and one at a time, from any thread, and waits for the client's answers."""

    def __init__(
        self, write: Callable[[bytes], None], faults: Faults, *, leave: Callable[[int], None] = os._exit
    ) -> None:
        self._write = write
        self._faults = faults
        self._leave = leave
        self._lock = threading.Lock()
        self._answered = threading.Condition()
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._next_id = 0
        self._mute = False
        self._gone = False

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, with the time member that the original adds."""
        self._frame({"method": method, "params": params, "emittedAtMs": time.time_ns() // 1_000_000})
        self._strike(method)

    def result(self, request_id: object, result: Mapping[str, Any]) -> None:
        """Answer a request of the client."""
        self._frame({"id": request_id, "result": result})

    def error(self, request_id: object, message: str) -> None:
        """Refuse a request of the client, with the code that the original uses for everything."""
        self._frame({"error": {"code": -32600, "message": message}, "id": request_id})

    def ask(
        self, method: str, params: Mapping[str, Any], gave_up: threading.Event
    ) -> Mapping[str, Any] | None:
        """Ask the client and wait; null when `gave_up` was set meanwhile.

        Returns the answer as it came, with `result` or `error`.

        Raises:
            ClientGoneError: the client has closed its side.
        """
        with self._answered:
            request_id, self._next_id = self._next_id, self._next_id + 1
        self._frame({"method": method, "id": request_id, "params": params})
        self._strike(method)
        with self._answered:
            self._answered.wait_for(lambda: request_id in self._answers or gave_up.is_set() or self._gone)
            if self._gone:
                raise ClientGoneError
            return self._answers.pop(request_id, None)

    def answered(self, frame: Mapping[str, Any]) -> None:
        """Deliver an answer of the client to whoever asked; an id that nobody waits for is dropped."""
        if isinstance(frame.get("id"), int):
            with self._answered:
                self._answers[frame["id"]] = frame
                self._answered.notify_all()

    def wake(self, *, gone: bool = False) -> None:
        """Let everybody who waits look again whether waiting makes sense."""
        with self._answered:
            self._gone = self._gone or gone
            self._answered.notify_all()

    def received(self, method: str) -> None:
        """Tell that the client sent `method`, before anything is answered."""
        self._strike(method)

    def garbage(self) -> None:
        """Write lines that are no protocol, when that is switched on."""
        if self._faults.garbage:
            self._bytes(b"".join(GARBAGE))

    def _strike(self, method: str) -> None:
        if method == self._faults.exit_on:
            self._leave(self._faults.exit_code)
        if method == self._faults.silent_after:
            self._mute = True

    def _frame(self, frame: Mapping[str, Any]) -> None:
        self._bytes(json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def _bytes(self, data: bytes) -> None:
        with self._lock:
            if self._mute:
                return
            if not self._faults.split_lines:
                self._write(data)
                return
            for piece in _pieces(data):
                self._write(piece)
                time.sleep(_BETWEEN_PIECES_S)


def _pieces(data: bytes) -> list[bytes]:
    """Three pieces; the second cut falls inside a character of several bytes, if there is one."""
    third = len(data) // 3
    wide = next((place for place, byte in enumerate(data) if byte >= 0xC0 and place > third), third * 2)  # noqa: PLR2004 - first byte of a UTF-8 sequence
    return [data[:third], data[third : wide + 1], data[wide + 1 :]]


def write_stdout(data: bytes) -> None:
    """Write to stdout at once; a reader that is gone is none of our business."""
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return
