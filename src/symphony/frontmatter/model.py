"""What callers of the front matter reader get back: values and one error."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias

__all__ = [
    "MAX_BYTES",
    "Code",
    "Document",
    "FrontMatterError",
    "Path",
    "Place",
    "Profile",
    "Split",
    "check_size",
]

MAX_BYTES: Final = 65_536

Path: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = tuple[int, int]


class Profile(StrEnum):
    """How scalars are read.

    TEXT keeps the text of the file; only an unquoted null is None, and an alias is refused.
    CORE reads the core scalars of YAML 1.2 and expands aliases within the event limit.
    Neither gives tags or `<<` a meaning.
    """

    TEXT = "text"
    CORE = "core"


class Code(StrEnum):
    """What can be wrong with front matter; the first two are for callers of `split` to judge."""

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
        code: a stable `Code` (a str).
        line: 1-based line of the whole file.
        column: 1-based column, in characters.
        message: one sentence that never holds text from the file.
    """

    def __init__(self, code: Code, message: str, *, line: int, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {code.value}: {message}")
        self.code = code
        self.message = message
        self.line = line
        self.column = column

    @classmethod
    def at(cls, place: Place, code: Code, message: str) -> Self:
        """The error at one (line, column)."""
        return cls(code, message, line=place[0], column=place[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where front matter ends and the body begins.

    Attributes:
        front: the bytes between the fences.
        front_line: 1-based line on which `front` starts.
        body_offset: where the body starts, in bytes of the whole input.
        body_line: 1-based line on which the body starts.
        bom: a byte-order mark stood before the first fence.
        closed: there was a closing fence; without one everything after the opener is `front`.
    """

    front: bytes
    front_line: int
    body_offset: int
    body_line: int
    bom: bool
    closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A front matter map.

    Attributes:
        value: keys are text in the order of the file.
        positions: path of keys and indices -> (line, column) of the value's key in the whole file; of
            an item, where the item starts. What an alias repeats keeps the place where it was written.
    """

    value: dict[str, Any]
    positions: Mapping[Path, Place]


def check_size(size: int, limit: int, *, line: int) -> None:
    """Raise FRONT_MATTER_TOO_LARGE when `size` bytes are more than `limit`."""
    if size > limit:
        message = f"the front matter is larger than {limit} bytes"
        raise FrontMatterError(Code.FRONT_MATTER_TOO_LARGE, message, line=line)
