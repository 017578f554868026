"""YAML front matter: reads it with positions, even from hostile files, and quotes values.

Depth, number of values and size are limited while parsing. Tags construct nothing. Every error is a
`FrontMatterError` with a code, line and column.

The reader uses only the parser events of libyaml (or of PyYAML, if libyaml is missing), because PyYAML's
composer and constructor have no limits and crashed or hung on hostile files.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import yaml
import yaml.reader

# --- writing ---------------------------------------------------------------------------------------------

# Unquoted text that every version of YAML reads as text.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ._/()+-]*(?<! )")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_BYTE, _PLANE = 0xFF, 0xFFFF
_MAX_WIDTH = 100_000  # one line per value


def quote(text: str) -> str:
    """`text` as a YAML scalar on one line, in double quotes if it needs them.

    Raises:
        ValueError: the text holds lone surrogates and cannot be written as UTF-8.
    """
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("the text is not valid Unicode")
    if _is_plain(text):
        return text
    return '"' + "".join(_escape(char) for char in text) + '"'


def quote_list(items: Sequence[str]) -> str:
    """The items as a YAML list on one line."""
    return f"[{', '.join(quote(item) for item in items)}]"


class _Dumper(yaml.SafeDumper):
    """Quotes text that another version of YAML, or `load`, would not read as text."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _is_plain(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump(values: Mapping[str, Any]) -> str:
    """Front matter with these values in their order; `load` reads the same values back."""
    return str(yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_MAX_WIDTH))


_REFERENCE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")


class _BlockDumper(_Dumper):
    """Writes text of several lines as a block."""


def _represent_block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if "\n" in text and not text[:1].isspace():
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    if _REFERENCE.fullmatch(text):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text)
    return _represent_text(dumper, text)


_BlockDumper.add_representer(str, _represent_block)


def dump_blocks(values: Mapping[str, Any]) -> str:
    """As `dump`, for people: several lines become a block if YAML allows it, and `$NAME` has no quotes."""
    return str(
        yaml.dump(dict(values), Dumper=_BlockDumper, sort_keys=False, allow_unicode=True, width=_MAX_WIDTH)
    )


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _NOT_TEXT


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code <= _BYTE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _PLANE else f"\\U{code:08x}"


# --- reading ---------------------------------------------------------------------------------------------

MAX_BYTES: Final = 65_536
MAX_EVENTS: Final = 5_000
_MAX_DEPTH: Final = 20
_MAX_NUMBER: Final = 400

Path: TypeAlias = tuple[str | int, ...]
Position: TypeAlias = tuple[int, int]

_BOM: Final = b"\xef\xbb\xbf"
_OPENER: Final = re.compile(rb"---[ \t]*(?:\r?\n|\Z)")
_CLOSER: Final = re.compile(rb"\n---[ \t]*(?:\r?\n|\Z)")
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Profile(StrEnum):
    """How scalars are read.

    TEXT keeps scalars as text, except that an unquoted null is `None`, and refuses aliases.
    CORE reads the core scalars of YAML 1.2 and expands aliases within the event limit.
    Both ignore tags and `<<`.
    """

    TEXT = "text"
    CORE = "core"


class YamlCode(StrEnum):
    """What is wrong with front matter. The first two are for callers of `split`."""

    MISSING_FRONT_MATTER = "missing_front_matter"
    UNCLOSED_FRONT_MATTER = "unclosed_front_matter"
    FRONT_MATTER_TOO_LARGE = "front_matter_too_large"
    NOT_UTF8 = "not_utf8"
    INVALID_YAML = "invalid_yaml"
    TOO_DEEP = "too_deep"
    TOO_MANY_EVENTS = "too_many_events"
    ALIAS_NOT_ALLOWED = "alias_not_allowed"
    DUPLICATE_KEY = "duplicate_key"
    NOT_A_MAPPING = "not_a_mapping"


class FrontMatterError(ValueError):
    """Front matter that cannot be used.

    Attributes:
        code: a stable `YamlCode` (a str).
        line: 1-based line of the whole file.
        column: 1-based column, in characters.
        message: one sentence without text from the file.
    """

    def __init__(self, code: YamlCode, message: str, *, line: int, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {code.value}: {message}")
        self.code = code
        self.message = message
        self.line = line
        self.column = column


class Split(NamedTuple):
    """Where front matter ends and the body begins.

    Attributes:
        front: the bytes between the fences.
        front_line: 1-based line on which `front` starts.
        body_offset: where the body starts, in bytes of the whole input.
        body_line: 1-based line on which the body starts.
        bom: whether there is a byte-order mark before the first fence.
        closed: whether there is a closing fence; otherwise everything after the opener is `front`.
    """

    front: bytes
    front_line: int
    body_offset: int
    body_line: int
    bom: bool
    closed: bool


# The character offset of each value by key or index, and the marks of the values inside it.
_Marks: TypeAlias = "dict[str | int, tuple[int, _Marks]]"
_NOTHING_INSIDE: Final[_Marks] = {}


@dataclass(frozen=True, kw_only=True)
class FrontMatterMap:
    """A front matter map.

    Attributes:
        value: the map; keys are text in the order of the file.
        events: the number of keys, values, starts and ends, as a measure of cost.
        duplicates: the position of each repeated key below the top level, with the top-level key above it, if
            the caller allows them.
    """

    value: dict[str, Any]
    events: int
    duplicates: tuple[tuple[str, Position], ...] = ()
    _text: str = field(repr=False)
    _first_line: int = field(repr=False)
    _marks: _Marks = field(repr=False)

    @cached_property
    def positions(self) -> Mapping[Path, Position]:
        """Line and column in the whole file of each value, by its path of keys and indices.

        The position of a map value is that of its key. A value from an alias keeps its original position.
        """
        return {path: _position(self._text, self._first_line, at) for path, at in _flat(self._marks)}

    def position(self, key: str) -> Position | None:
        """The line and column of a top-level key, or `None` if it is absent."""
        mark = self._marks.get(key)
        return None if mark is None else _position(self._text, self._first_line, mark[0])


def split(data: bytes, *, limit: int = MAX_BYTES) -> Split | None:
    """Find the fences of a file; `None` if its first line is not a fence.

    A fence is `---` at column 0, then only blanks until LF, CRLF or the end of the input.

    Raises:
        FrontMatterError: FRONT_MATTER_TOO_LARGE, more than `limit` bytes of front matter.
    """
    bom = data.startswith(_BOM)
    opener = _OPENER.match(data, len(_BOM) if bom else 0)
    if opener is None:
        return None
    start = opener.end()
    closer = _CLOSER.search(data, start - 1) if data[start - 1 : start] == b"\n" else None
    end = len(data) if closer is None else closer.start() + 1
    _check_size(end - start, limit, line=2)
    offset = len(data) if closer is None else closer.end()
    return Split(
        front=data[start:end],
        front_line=2,
        body_offset=offset,
        body_line=1 + data.count(b"\n", 0, offset),
        bom=bom,
        closed=closer is not None,
    )


def load(
    front: bytes,
    *,
    profile: Profile,
    first_line: int = 2,
    max_bytes: int = MAX_BYTES,
    allow_nested_duplicates: bool = False,
) -> FrontMatterMap:
    """Read front matter; empty front matter is an empty map.

    Args:
        front: the bytes between the fences.
        profile: how scalars are read.
        first_line: the line of the file on which `front` starts.
        max_bytes: larger front matter is refused unread.
        allow_nested_duplicates: accept a key that is given twice below the top level. The last value
            holds, and `FrontMatterMap.duplicates` lists the key.

    Raises:
        FrontMatterError: with the code, line and column of the first error.
    """
    _check_size(len(front), max_bytes, line=first_line)
    try:
        text = front.decode()
    except UnicodeDecodeError as error:
        good = front[: error.start].decode()
        line, column = _position(good, first_line, len(good))
        message = "the front matter is not UTF-8"
        raise FrontMatterError(YamlCode.NOT_UTF8, message, line=line, column=column) from None
    reader = _Reader(text, first_line, profile, allow_nested_duplicates=allow_nested_duplicates)
    try:
        return reader.read()
    except FrontMatterError:
        raise
    except (yaml.YAMLError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
        message = "not valid YAML here; unquoted colons, indentation and open quotes are the usual causes"
        line, column = _position(text, first_line, _offset(error, text))
        raise FrontMatterError(YamlCode.INVALID_YAML, message, line=line, column=column) from None


class _Anchored(NamedTuple):
    """An anchored value; `key` is its text if it is a scalar, because scalars can be used as keys."""

    value: Any
    inside: _Marks
    events: int
    key: str | None


class _Open(NamedTuple):
    """The map or list that encloses the one being read, with the anchor and first event of the inner one."""

    container: Any
    marks: _Marks
    anchor: str | None
    first_event: int


class _Reader:
    """Reads one document in a loop, so that depth needs no stack."""

    def __init__(
        self, text: str, first_line: int, profile: Profile, *, allow_nested_duplicates: bool
    ) -> None:
        self._text = text
        self._first_line = first_line
        self._plain = profile is Profile.TEXT
        self._allow_nested_duplicates = allow_nested_duplicates
        self._duplicates: list[tuple[str, Position]] = []
        self._anchors: dict[str, _Anchored] = {}
        self._outer: list[_Open] = []

    def read(self) -> FrontMatterMap:  # noqa: C901, PLR0912, PLR0915 - one loop, a branch for each kind of event
        root: dict[str, Any] = {}
        root_marks: _Marks = {}
        container: Any = None  # the map or list that is being read
        marks: _Marks = root_marks
        key: str | None = None
        key_at = seen = documents = 0
        outer, plain = self._outer, self._plain
        parser = (yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader)(self._text)
        next_event: Callable[[], Any] = parser.get_event
        while (kind := type(event := next_event())) is not yaml.StreamEndEvent:
            if kind is yaml.ScalarEvent or kind is yaml.AliasEvent:
                at = event.start_mark.index
                inside = _NOTHING_INSIDE
                if kind is yaml.ScalarEvent:
                    seen += 1
                    scalar: str = event.value
                    text: str | None = scalar
                    if not scalar.isascii() and _SURROGATE.search(scalar):
                        self._fail(at, YamlCode.INVALID_YAML, "half of a surrogate pair")
                    if event.style:  # libyaml reports '' for a plain scalar, the other parser None
                        value: Any = scalar
                    else:
                        value = None if scalar in _NULL else scalar if plain else _core(scalar)
                    if event.anchor is not None:
                        self._anchors[event.anchor] = _Anchored(value, inside, 1, text)
                else:
                    value, inside, events, text = self._expand_alias(event.anchor, at)
                    seen += events
                if seen > MAX_EVENTS:
                    self._fail(at, YamlCode.TOO_MANY_EVENTS, f"more than {MAX_EVENTS} keys and values")
                if key is not None:
                    container[key] = value
                    marks[key] = (key_at, inside)
                    key = None
                elif type(container) is dict:
                    if text is None:
                        self._fail(at, YamlCode.INVALID_YAML, "a key must be a single word or text")
                    if text in container:
                        self._on_duplicate(text, marks, at)
                    key, key_at = text, at
                elif container is not None:
                    marks[len(container)] = (at, inside)
                    container.append(value)
                elif value is not None:
                    self._fail(at, YamlCode.NOT_A_MAPPING, "the front matter is not a map of keys and values")
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                at = event.start_mark.index
                seen += 1
                if seen > MAX_EVENTS:
                    self._fail(at, YamlCode.TOO_MANY_EVENTS, f"more than {MAX_EVENTS} keys and values")
                if type(container) is dict and key is None:
                    self._fail(at, YamlCode.INVALID_YAML, "a key must be a single word or text")
                if len(outer) >= _MAX_DEPTH:
                    self._fail(at, YamlCode.TOO_DEEP, f"nested more than {_MAX_DEPTH} levels deep")
                inner: dict[str, Any] | list[Any] = {} if kind is yaml.MappingStartEvent else []
                inner_marks: _Marks = {}
                outer.append(_Open(container, marks, event.anchor, seen))
                if event.anchor is not None:
                    self._anchors.pop(event.anchor, None)
                if key is not None:
                    container[key] = inner
                    marks[key] = (key_at, inner_marks)
                    key = None
                elif container is not None:
                    marks[len(container)] = (at, inner_marks)
                    container.append(inner)
                elif type(inner) is dict:
                    root, root_marks = inner, inner_marks
                else:
                    self._fail(at, YamlCode.NOT_A_MAPPING, "the front matter is not a map of keys and values")
                container, marks = inner, inner_marks
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                seen += 1
                around = outer.pop()
                if around.anchor is not None:
                    events = seen - around.first_event + 1
                    self._anchors[around.anchor] = _Anchored(container, marks, events, None)
                container, marks = around.container, around.marks
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    at = event.start_mark.index
                    self._fail(at, YamlCode.INVALID_YAML, "a second document starts here")
        return FrontMatterMap(
            value=root,
            events=seen,
            duplicates=tuple(self._duplicates),
            _text=self._text,
            _first_line=self._first_line,
            _marks=root_marks,
        )

    def _expand_alias(self, anchor: str, at: int) -> _Anchored:
        """A copy of the anchored value; the caller counts its events."""
        if self._plain:
            self._fail(at, YamlCode.ALIAS_NOT_ALLOWED, "aliases are not allowed here")
        found = self._anchors.get(anchor)
        if found is None:
            message = "this alias names nothing that is complete before it"
            self._fail(at, YamlCode.ALIAS_NOT_ALLOWED, message)
        if len(self._outer) + _depth(found.value) > _MAX_DEPTH:
            self._fail(at, YamlCode.TOO_DEEP, f"nested more than {_MAX_DEPTH} levels deep")
        return found._replace(value=copy.deepcopy(found.value))

    def _on_duplicate(self, key: str, marks: _Marks, at: int) -> None:
        if self._allow_nested_duplicates and len(self._outer) > 1:
            top = next(reversed(self._outer[1].marks))
            self._duplicates.append((str(top), _position(self._text, self._first_line, at)))
            return
        first, _ = _position(self._text, self._first_line, marks[key][0])
        line, _ = _position(self._text, self._first_line, at)
        message = f"this key is given twice: in line {first} and in line {line}"
        self._fail(at, YamlCode.DUPLICATE_KEY, message)

    def _fail(self, at: int, code: YamlCode, message: str) -> NoReturn:
        line, column = _position(self._text, self._first_line, at)
        raise FrontMatterError(code, message, line=line, column=column)


def _depth(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
        case list():
            return 1 + max(map(_depth, value), default=0)
    return 0


def _core(text: str) -> bool | int | float | str:
    """A plain scalar by the core schema of YAML 1.2; a number of more than 400 characters stays text."""
    if text in _BOOL:
        return _BOOL[text]
    if len(text) > _MAX_NUMBER:
        return text
    if _INT.fullmatch(text):
        return int(text, 0 if text.startswith("0") and text[1:2] in {"o", "x"} else 10)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _SPECIAL_FLOAT.fullmatch(text) else text


def _position(text: str, first_line: int, index: int) -> Position:
    """Line and column of a character, where only LF ends a line."""
    return first_line + text.count("\n", 0, index), index - text.rfind("\n", 0, index)


def _flat(marks: _Marks, above: Path = ()) -> Iterator[tuple[Path, int]]:
    for key, (at, inside) in marks.items():
        yield (*above, key), at
        yield from _flat(inside, (*above, key))


def _offset(error: Exception, text: str) -> int:
    match error:
        case yaml.MarkedYAMLError():
            # Report where an open quote or bracket begins, not the end of the file.
            is_open = error.context is not None and ("quoted" in error.context or "flow" in error.context)
            marks = (error.problem_mark, error.context_mark)
            mark = next(filter(None, reversed(marks) if is_open else marks), None)
            return 0 if mark is None else mark.index
        case yaml.reader.ReaderError(encoding="unicode"):
            return int(error.position)
        case yaml.reader.ReaderError():  # libyaml counts bytes
            return len(text.encode()[: error.position].decode(errors="ignore"))
    return 0


def _check_size(size: int, limit: int, *, line: int) -> None:
    if size > limit:
        message = f"the front matter is larger than {limit} bytes"
        raise FrontMatterError(YamlCode.FRONT_MATTER_TOO_LARGE, message, line=line)
