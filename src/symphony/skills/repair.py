"""Mends the one fault that people make in front matter: a one-line value that needed quotes."""

import re
from typing import Final

__all__ = ["repaired"]

_KEY: Final = re.compile(rb"[A-Za-z0-9_-]+[ \t]*:[ \t]+")
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|' rb"'(?:[^']|'')*'")
_BLOCK: Final = re.compile(rb"[|>][-+0-9]*")
_NEEDS_QUOTES: Final = re.compile(
    rb"""[&*!|>%@`{\["',]|.*?(?::(?:[ \t]|\Z)|\xc2\x85|\xe2\x80[\xa8\xa9])""", re.DOTALL
)


def repaired(front: bytes) -> bytes:
    """The front matter with every top-level one-line value quoted that YAML may not read as plain text.

    Lines are neither added nor removed, so places stay right to the line. A value that is quoted already, a
    block scalar, and a value that goes on in the next line are left alone.
    """
    lines = front.split(b"\n")
    following = [*lines[1:], b""]
    return b"\n".join(map(_line, lines, following))


def _line(line: bytes, following: bytes) -> bytes:
    key = _KEY.match(line)
    if key is None or (following[:1] in {b" ", b"\t"} and following.strip()):
        return line
    value = line[key.end() :].rstrip(b" \t\r")
    if _QUOTED.fullmatch(value) or _BLOCK.fullmatch(value) or not _NEEDS_QUOTES.match(value):
        return line
    end = line[key.end() + len(value) :]
    return key.group() + b"'" + value.replace(b"'", b"''") + b"'" + end
