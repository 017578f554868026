"""Turns text into a bounded stream of tokens: what the foreign parser says, aliases replaced.

libyaml is read event by event (PyYAML's own parser where it is missing), so nothing is ever composed or
constructed, and the consumer can stop before a hostile document costs anything.
"""

import bisect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import yaml
import yaml.reader

from symphony.frontmatter.model import Code, FrontMatterError, Place, Profile

__all__ = ["Kind", "Places", "Token", "tokens"]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Places:
    """Turns character offsets into lines and columns as an editor counts them (only LF ends a line)."""

    __slots__ = ("_first_line", "_starts", "text")

    def __init__(self, text: str, first_line: int) -> None:
        self.text = text
        self._first_line = first_line
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, index: int) -> Place:
        """The place of one character."""
        row = bisect.bisect_right(self._starts, index) - 1
        return self._first_line + row, index - self._starts[row] + 1


class Kind(Enum):
    """What a token is; END closes the map or list that was opened last."""

    SCALAR = "scalar"
    MAP = "map"
    LIST = "list"
    END = "end"


class Token(NamedTuple):
    """One step of a document: the only thing the builder knows about YAML."""

    kind: Kind
    place: Place
    text: str = ""
    plain: bool = False


def tokens(places: Places, profile: Profile) -> Iterator[Token]:
    """The tokens of the one document of the text; the consumer limits their number and depth."""
    tape = _Tape()
    documents = 0
    for event in _events(places):
        place = places.at(0 if event.start_mark is None else event.start_mark.index)
        match event:
            case yaml.AliasEvent() if profile is Profile.TEXT:
                raise FrontMatterError.at(place, Code.ALIAS_NOT_ALLOWED, "aliases are not allowed here")
            case yaml.AliasEvent():
                yield from tape.replay(str(event.anchor), place)
            case yaml.NodeEvent():
                yield tape.record(_token(event, place), event.anchor)
            case yaml.CollectionEndEvent():
                yield tape.record(Token(Kind.END, place), None)
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise FrontMatterError.at(place, Code.INVALID_YAML, "a second document starts here")
            case _:
                continue


def _token(event: yaml.NodeEvent, place: Place) -> Token:
    match event:
        case yaml.ScalarEvent(value=text, style=style):
            if _SURROGATE.search(text):  # PyYAML's own parser lets half a pair pass
                raise FrontMatterError.at(place, Code.INVALID_YAML, "half of a surrogate pair")
            return Token(Kind.SCALAR, place, text, plain=not style)
        case yaml.MappingStartEvent():
            return Token(Kind.MAP, place)
    return Token(Kind.LIST, place)


def _events(places: Places) -> Iterator[yaml.Event]:
    """What the foreign parser says; each of its ways to fail becomes INVALID_YAML."""
    loader = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
    try:
        yield from yaml.parse(places.text, Loader=loader)
    except (yaml.YAMLError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
        message = "not valid YAML here; unquoted colons, indentation and open quotes are the usual causes"
        place = places.at(_offset(error, places.text))
        raise FrontMatterError.at(place, Code.INVALID_YAML, message) from None


def _offset(error: Exception, text: str) -> int:
    match error:
        case yaml.MarkedYAMLError():
            mark = error.problem_mark or error.context_mark
            return 0 if mark is None else mark.index
        case yaml.reader.ReaderError(encoding="unicode"):
            return int(error.position)
        case yaml.reader.ReaderError():  # libyaml counts bytes
            return len(text.encode()[: error.position].decode(errors="ignore"))
    return 0


class _Tape:
    """Remembers tokens, so that an alias is replaced by those of its anchor; the builder counts them all."""

    __slots__ = ("_anchors", "_open", "_tokens")

    def __init__(self) -> None:
        self._tokens: list[Token] = []
        self._anchors: dict[str, tuple[int, int] | None] = {}
        self._open: list[tuple[str | None, int]] = []

    def record(self, token: Token, anchor: str | None) -> Token:
        start = len(self._tokens)
        self._tokens.append(token)
        if token.kind is Kind.SCALAR:
            self._name(anchor, (start, start + 1))
        elif token.kind is Kind.END:
            anchor, start = self._open.pop()
            self._name(anchor, (start, len(self._tokens)))
        else:
            self._open.append((anchor, start))
            self._name(anchor, None)
        return token

    def _name(self, anchor: str | None, span: tuple[int, int] | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = span

    def replay(self, anchor: str, place: Place) -> list[Token]:
        span = self._anchors.get(anchor)
        if span is None:
            message = "this alias names nothing that is complete before it"
            raise FrontMatterError.at(place, Code.ALIAS_NOT_ALLOWED, message)
        first, *rest = self._tokens[slice(*span)]
        copy = [first._replace(place=place), *rest]
        self._tokens += copy
        return copy
