"""Builds the value and its positions from parser events, in one bounded loop."""

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from symphony.frontmatter.events import Places, events
from symphony.frontmatter.model import Code, Document, FrontMatterError, Path, Place, Profile

__all__ = ["build"]

_MAX_DEPTH: Final = 20
_MAX_EVENTS: Final = 5_000
_MAX_NUMBER: Final = 400
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ENDS: Final = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


@dataclass(slots=True)
class _Frame:
    """One open map or list; `key` is the key that waits for its value."""

    container: dict[str, Any] | list[Any]
    path: Path
    key: str | None = None
    place: Place = (0, 0)


def build(places: Places, profile: Profile) -> Document:
    """The one document of the text, under the limits; a loop, so depth costs no stack.

    Raises:
        FrontMatterError: as soon as a limit or a rule is broken.
    """
    builder = _Builder(places, profile)
    for seen, event in enumerate(events(places, profile), start=1):
        if seen > _MAX_EVENTS:
            message = f"more than {_MAX_EVENTS} keys and values"
            raise FrontMatterError.at(places.of(event), Code.TOO_MANY_EVENTS, message)
        if type(event) in _ENDS:
            builder.close()
        elif builder.top is None:
            builder.start(event)
        elif builder.wants_key:
            builder.take_key(event)
        else:
            builder.take_value(event)
    return Document(value=builder.root, positions=builder.positions)


class _Builder:
    """What is built so far: `top` is the map or list that is open, and all around it are in `_outer`."""

    __slots__ = ("_outer", "_places", "_profile", "positions", "root", "top", "wants_key")

    def __init__(self, places: Places, profile: Profile) -> None:
        self.root: dict[str, Any] = {}
        self.positions: dict[Path, Place] = {}
        self.top: _Frame | None = None
        self.wants_key = False
        self._places = places
        self._profile = profile
        self._outer: list[_Frame | None] = []

    def start(self, event: yaml.Event) -> None:
        """Take in what the document consists of: a map, or nothing at all."""
        if type(event) is yaml.MappingStartEvent:
            self._open(_Frame(self.root, ()), event)
        elif type(event) is not yaml.ScalarEvent or event.style or event.value not in _NULL:
            message = "the front matter is not a map of keys and values"
            raise FrontMatterError.at(self._places.of(event), Code.NOT_A_MAPPING, message)

    def take_key(self, event: yaml.Event) -> None:
        """Remember a key until its value comes."""
        frame, place = self._frame(), self._places.of(event)
        if type(event) is not yaml.ScalarEvent:
            raise FrontMatterError.at(place, Code.INVALID_YAML, "a key must be a single word or text")
        key = self._checked(event)
        if key in frame.container:
            raise FrontMatterError.at(place, Code.DUPLICATE_KEY, "this key is given twice")
        frame.key, frame.place = key, place
        self.wants_key = False

    def take_value(self, event: yaml.Event) -> None:
        """Put a value where it belongs, and go into it if it is a map or a list."""
        frame, value = self._frame(), self._value(event)
        if type(frame.container) is list:
            path, place = (*frame.path, len(frame.container)), self._places.of(event)
            frame.container.append(value)
        else:
            path, place = (*frame.path, str(frame.key)), frame.place
            frame.container[str(frame.key)] = value  # type: ignore[call-overload]  # a map, as it is no list
            frame.key = None
            self.wants_key = True
        self.positions[path] = place
        if type(event) is not yaml.ScalarEvent:
            self._open(_Frame(value, path), event)

    def close(self) -> None:
        """The open map or list is complete."""
        self.top = self._outer.pop()
        self.wants_key = self.top is not None and type(self.top.container) is dict

    def _frame(self) -> _Frame:
        assert self.top is not None  # noqa: S101 - the loop asks only inside of a map or list
        return self.top

    def _open(self, frame: _Frame, event: yaml.Event) -> None:
        if len(self._outer) >= _MAX_DEPTH:
            message = f"nested more than {_MAX_DEPTH} levels deep"
            raise FrontMatterError.at(self._places.of(event), Code.TOO_DEEP, message)
        self._outer.append(self.top)
        self.top = frame
        self.wants_key = type(frame.container) is dict

    def _value(self, event: yaml.Event) -> Any:
        if type(event) is not yaml.ScalarEvent:
            return {} if type(event) is yaml.MappingStartEvent else []
        text = self._checked(event)
        if event.style:  # libyaml says '' of a plain scalar, the other parser None
            return text
        if text in _NULL:
            return None
        return text if self._profile is Profile.TEXT else _core(text)

    def _checked(self, event: yaml.ScalarEvent) -> str:
        """The text of a scalar; PyYAML's own parser lets half a surrogate pair pass."""
        text: str = event.value
        if not text.isascii() and _SURROGATE.search(text):
            message = "half of a surrogate pair"
            raise FrontMatterError.at(self._places.of(event), Code.INVALID_YAML, message)
        return text


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
