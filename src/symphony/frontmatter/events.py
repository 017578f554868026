"""What the foreign parser says of a text, event by event: one document, aliases refused or replaced.

libyaml is read (PyYAML's own parser where it is missing), so nothing is ever composed or constructed, and the
consumer can stop before a hostile document costs anything.
"""

import bisect
import copy
import re
from collections.abc import Iterator
from typing import Final

import yaml
import yaml.reader

from symphony.frontmatter.model import Code, FrontMatterError, Place, Profile

__all__ = ["Places", "events"]

_SILENT: Final = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)


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

    def of(self, event: yaml.Event) -> Place:
        """Where an event begins."""
        return self.at(0 if event.start_mark is None else event.start_mark.index)


def events(places: Places, profile: Profile) -> Iterator[yaml.Event]:
    """The scalars, starts and ends of the one document; the consumer limits their number and depth."""
    documents = 0
    tape = None if profile is Profile.TEXT else _Tape()
    for event in _parsed(places):
        kind = type(event)
        if kind in _SILENT:
            continue
        if kind is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1:
                raise FrontMatterError.at(
                    places.of(event), Code.INVALID_YAML, "a second document starts here"
                )
        elif isinstance(event, yaml.AliasEvent):
            if tape is None:
                message = "aliases are not allowed here"
                raise FrontMatterError.at(places.of(event), Code.ALIAS_NOT_ALLOWED, message)
            yield from tape.replay(event, places)
        else:
            if tape is not None:
                tape.record(event)
            yield event


def _parsed(places: Places) -> Iterator[yaml.Event]:
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
    """Remembers events, so that an alias is replaced by those of its anchor; the consumer counts them all."""

    __slots__ = ("_anchors", "_events", "_open")

    def __init__(self) -> None:
        self._events: list[yaml.Event] = []
        self._anchors: dict[str, tuple[int, int] | None] = {}
        self._open: list[tuple[str | None, int]] = []

    def record(self, event: yaml.Event) -> None:
        start = len(self._events)
        self._events.append(event)
        if isinstance(event, yaml.NodeEvent):
            scalar = isinstance(event, yaml.ScalarEvent)
            self._name(event.anchor, (start, start + 1) if scalar else None)
            if not scalar:
                self._open.append((event.anchor, start))
        else:
            anchor, start = self._open.pop()
            self._name(anchor, (start, len(self._events)))

    def _name(self, anchor: str | None, span: tuple[int, int] | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = span

    def replay(self, alias: yaml.AliasEvent, places: Places) -> list[yaml.Event]:
        span = self._anchors.get(str(alias.anchor))
        if span is None:
            message = "this alias names nothing that is complete before it"
            raise FrontMatterError.at(places.of(alias), Code.ALIAS_NOT_ALLOWED, message)
        first, *rest = self._events[slice(*span)]
        first = copy.copy(first)
        first.start_mark = alias.start_mark  # it stands where the alias stands
        again = [first, *rest]
        self._events += again
        return again
