"""Bytes into lines, bounded: what every agent that speaks one JSON object per line has in common (AG2, AG3).

Also the words for a line that is no message: `Chatter` never meant to be one, `Garbled` did.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = [
    "EXCERPT_CHARS",
    "MAX_LINE_BYTES",
    "Chatter",
    "Garbled",
    "Lines",
    "encoded",
    "excerpt",
    "unreadable",
]

MAX_LINE_BYTES = 10 * 1024 * 1024
EXCERPT_CHARS = 1_000
_encoder = msgspec.json.Encoder()


class Chatter(msgspec.Struct, frozen=True):
    """A line that never meant to be a message: a banner, a warning, a stack trace (AG3)."""

    text: str


class Garbled(msgspec.Struct, frozen=True):
    """A line that begins with `{` and is no message, or one above the limit (AG11 `malformed`)."""

    excerpt: str


class Lines:
    """Cuts a stream into lines, however it comes in pieces. A line above the limit becomes `Garbled`."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._skipping = False

    def receive(self, data: bytes) -> list[bytes | Garbled]:
        """The lines completed by `data`, in order; an unfinished last one is kept for the next call."""
        whole = data.split(b"\n")
        tail = whole.pop()
        first = []
        if whole and self._partial:
            self._keep(whole.pop(0))
            first = [self._finish()]
        limit = self._max_line_bytes
        rest = [line if len(line) <= limit else self._refused(line, len(line)) for line in whole]
        self._keep(tail)
        return first + rest

    def close(self) -> list[bytes | Garbled]:
        """What the stream's end leaves: an unfinished line counts as a whole one."""
        return [self._finish()] if self._partial else []

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._partial_bytes += len(piece)
        if self._partial_bytes > self._max_line_bytes:
            self._skipping = True
            self._partial = [b"".join(self._partial)[:EXCERPT_CHARS] or piece[:EXCERPT_CHARS]]
        else:
            self._partial.append(piece)

    def _finish(self) -> bytes | Garbled:
        line, size, skipped = b"".join(self._partial), self._partial_bytes, self._skipping
        self._partial, self._partial_bytes, self._skipping = [], 0, False
        return self._refused(line, size) if skipped else line

    def _refused(self, line: bytes, size: int) -> Garbled:
        limit = self._max_line_bytes
        return Garbled(f"line of {size} bytes exceeds the limit of {limit} bytes: {excerpt(line)[:200]}")


def unreadable(line: bytes) -> Chatter | Garbled | None:
    """What to make of a line that is no message; null for a blank one."""
    text = excerpt(line).strip()
    if not text:
        return None
    if text.startswith("{"):
        return Garbled(text[:EXCERPT_CHARS])
    return Chatter(text[:EXCERPT_CHARS])


def excerpt(line: bytes) -> str:
    """The beginning of a line as text."""
    return line[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")


def encoded(message: Mapping[str, Any]) -> bytes:
    """The line that carries a message."""
    try:
        return _encoder.encode(message) + b"\n"
    except (
        UnicodeEncodeError
    ):  # a lone surrogate in a prompt or a tool's answer: cannot be sent, must not stop us
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
