"""Builds the value and its positions from tokens, under the limits on depth and number."""

import re
from dataclasses import dataclass
from typing import Any, Final

from symphony.frontmatter.events import Kind, Token
from symphony.frontmatter.model import Code, FrontMatterError, Path, Place, Profile

__all__ = ["Builder"]

_MAX_DEPTH: Final = 20
_MAX_EVENTS: Final = 5_000
_MAX_NUMBER: Final = 400
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


@dataclass(slots=True)
class _Frame:
    """One open map or list; `key` is the key that waits for its value."""

    container: dict[str, Any] | list[Any]
    path: Path
    key: str | None = None
    place: Place = (0, 0)


class Builder:
    """Makes the value from tokens, under the limits; a loop, so depth costs no stack."""

    __slots__ = ("_fed", "_frames", "_profile", "positions", "root")

    def __init__(self, profile: Profile) -> None:
        self.root: dict[str, Any] = {}
        self.positions: dict[Path, Place] = {}
        self._profile = profile
        self._frames: list[_Frame] = []
        self._fed = 0

    def feed(self, token: Token) -> None:
        """Take the next token in; raises as soon as a limit or a rule is broken."""
        self._fed += 1
        if self._fed > _MAX_EVENTS:
            raise FrontMatterError.at(
                token.place, Code.TOO_MANY_EVENTS, f"more than {_MAX_EVENTS} keys and values"
            )
        if token.kind is Kind.END:
            self._frames.pop()
        elif not self._frames:
            self._start(token)
        elif isinstance(self._frames[-1].container, dict) and self._frames[-1].key is None:
            self._take_key(self._frames[-1], token)
        else:
            self._take_value(self._frames[-1], token)

    def _start(self, token: Token) -> None:
        if token.kind is Kind.MAP:
            self._frames.append(_Frame(self.root, ()))
        elif not _is_null(token):
            raise FrontMatterError.at(
                token.place, Code.NOT_A_MAPPING, "the front matter is not a map of keys and values"
            )

    def _take_key(self, frame: _Frame, token: Token) -> None:
        if token.kind is not Kind.SCALAR:
            raise FrontMatterError.at(token.place, Code.INVALID_YAML, "a key must be a single word or text")
        if token.text in frame.container:
            raise FrontMatterError.at(token.place, Code.DUPLICATE_KEY, "this key is given twice")
        frame.key, frame.place = token.text, token.place

    def _take_value(self, frame: _Frame, token: Token) -> None:
        value = self._value(token)
        if isinstance(frame.container, list):
            path, place = (*frame.path, len(frame.container)), token.place
            frame.container.append(value)
        else:
            key = str(frame.key)
            path, place = (*frame.path, key), frame.place
            frame.container[key] = value
            frame.key = None
        self.positions[path] = place
        if token.kind is not Kind.SCALAR:
            self._open(_Frame(value, path), token)

    def _open(self, frame: _Frame, token: Token) -> None:
        if len(self._frames) >= _MAX_DEPTH:
            raise FrontMatterError.at(
                token.place, Code.TOO_DEEP, f"nested more than {_MAX_DEPTH} levels deep"
            )
        self._frames.append(frame)

    def _value(self, token: Token) -> Any:
        if token.kind is not Kind.SCALAR:
            return {} if token.kind is Kind.MAP else []
        if _is_null(token):
            return None
        return _core(token.text) if self._profile is Profile.CORE and token.plain else token.text


def _is_null(token: Token) -> bool:
    return token.kind is Kind.SCALAR and token.plain and token.text in _NULL


def _core(text: str) -> bool | int | float | str:
    """A plain scalar by the core schema of YAML 1.2; a number of absurd length stays text."""
    if text in _BOOL:
        return _BOOL[text]
    if len(text) > _MAX_NUMBER:
        return text
    if _INT.fullmatch(text):
        return int(text, 0 if text.startswith("0") and text[1:2] in {"o", "x"} else 10)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _SPECIAL_FLOAT.fullmatch(text) else text
