"""Mends the faults that people make in front matter, without adding or removing a line."""

import re
from typing import Final, NamedTuple

from symphony import frontmatter
from symphony.frontmatter import Document, FrontMatterError, Profile

__all__ = ["Advice", "legible", "load", "lost_word", "quoted"]

_KEY: Final = re.compile(rb"[A-Za-z0-9_-]+[ \t]*:[ \t]+")
_COLON: Final = re.compile(rb"[^-&*!|>%@`{}\[\]\"',?].*:(?:[ \t]|\Z)", re.DOTALL)
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|' rb"'(?:[^']|'')*'", re.DOTALL)
_ALIAS_AND_MORE: Final = re.compile(rb"\*\S+[ \t]+[^\s#]")
# An anchor or a tag before words is YAML, and the reader would lose it: nobody means it in these files.
_LOST_WORD: Final = rb"""[&!](?!!)(?:[^\s,\[\]{}]*[ \t]+[^\s\[{"'|>#&!*]|[^\s,\[\]{}]+[ \t\r]*$)"""
_LOSES_A_WORD: Final = re.compile(_LOST_WORD)
_LOSING_LINE: Final = re.compile(rb"^[A-Za-z0-9_-]+[ \t]*:[ \t]+(?=" + _LOST_WORD + rb")", re.MULTILINE)
_CHUNK: Final = re.compile(
    rb"^(name|description|when_to_use|metadata)[ \t]*:[ \t]*(.*(?:\n(?:[ \t].*|\r?$))*)", re.MULTILINE
)
_MAX_LINES: Final = 200
_MAX_VALUE: Final = 4_096  # in bytes; what a person writes on one line is shorter


class Advice(NamedTuple):
    """What was mended, as the sentence and the hint of a problem."""

    message: str
    hint: str


_QUOTE_COLON: Final = Advice(
    "A value holds a colon and has no quotes; it was read as one text.",
    "Put quotes around the values that hold a colon.",
)
_QUOTE_SIGN: Final = Advice(
    "A value holds a character with a meaning in YAML and has no quotes; it was read as one text.",
    "Put quotes around the value.",
)
_LINES_ALONE: Final = Advice(
    "The front matter is not valid YAML; only the lines of `name` and `description` were read.",
    "Mend the line that is named here, or remove its key.",
)


def load(front: bytes) -> Document:
    """The front matter of a skill.

    Raises:
        FrontMatterError: it cannot be read as it is.
    """
    return frontmatter.load(front, profile=Profile.TEXT, nested_repeats=True)


def lost_word(front: bytes) -> int | None:
    """Where the first value begins of which a reader of YAML would drop the first word, or null."""
    found = _LOSING_LINE.search(front) if b"&" in front or b"!" in front else None
    return None if found is None else found.end()


def quoted(front: bytes) -> tuple[bytes, Advice]:
    """The front matter with every top-level one-line value quoted that is not YAML where it stands alone.

    A value that goes on in the next line is left as it is.
    """
    lines = front.split(b"\n")
    advice = None
    for index, line in enumerate(lines[:_MAX_LINES]):
        following = lines[index + 1] if index + 1 < len(lines) else b""
        key = _KEY.match(line)
        if key is None or (following[:1] in {b" ", b"\t"} and following.strip()):
            continue
        value = line[key.end() :].rstrip(b" \t\r")
        if (
            len(value) > _MAX_VALUE
            or _QUOTED.fullmatch(value)
            or (not _LOSES_A_WORD.match(value) and _is_yaml(line, value))
        ):
            continue
        advice = advice or (_QUOTE_COLON if _COLON.match(value) else _QUOTE_SIGN)
        lines[index] = key.group() + _in_quotes(value) + line[key.end() + len(value) :]
    return b"\n".join(lines), advice or _QUOTE_SIGN


def legible(front: bytes) -> tuple[bytes, Advice] | None:
    """Only the keys that we read; a text among them that is no YAML is taken as it stands, on one line.

    Null unless `name` and `description` are there, each once.
    """
    kept: dict[bytes, tuple[int, bytes]] = {}
    for found in _CHUNK.finditer(front):
        key, chunk = found[1], found[0]
        if key in kept:
            return None
        mended = next((one for one in (chunk, quoted(chunk)[0]) if _is_yaml(one, b"")), None)
        if mended is None and key != b"metadata":
            words = b" ".join(found[2].split())
            if len(words) <= _MAX_VALUE and not _QUOTED.fullmatch(words):
                mended = key + b": " + _in_quotes(words)
        if mended is not None:
            kept[key] = front.count(b"\n", 0, found.start()), mended
    if not kept.keys() >= {b"name", b"description"}:
        return None
    lines: list[bytes] = []
    for line, chunk in sorted(kept.values()):
        lines += [b""] * (line - len(lines))
        lines += chunk.rstrip(b"\n").split(b"\n")
    return b"\n".join(lines), _LINES_ALONE


def _is_yaml(line: bytes, value: bytes) -> bool:
    """Whether lines can be read alone. An alias is refused as one, unless more than an alias is there."""
    try:
        load(line)
    except FrontMatterError as error:
        refused = error.code is not frontmatter.Code.INVALID_YAML
        return refused and not _ALIAS_AND_MORE.match(value)
    return True


def _in_quotes(value: bytes) -> bytes:
    return b"'" + value.replace(b"'", b"''") + b"'"
