"""Reads what the front matter of one file says, wherever the file stands and whatever the rules are."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from symphony import frontmatter
from symphony.frontmatter import Document, FrontMatterError, Profile
from symphony.skills.model import DEFAULT_PRIORITY, Code
from symphony.skills.repair import repaired

__all__ = ["TOP", "Fault", "Place", "Sheet", "read"]

Place: TypeAlias = tuple[int, int]

TOP: Final[Place] = (1, 1)
_MAX_COMPATIBILITY: Final = 500
_MAX_PHASES: Final = 20
_WORDS: Final = re.compile(r"[^\s,]+")
_PRIORITY: Final = re.compile(r"[-+]?[0-9]{1,9}")
_CODES: Final = {
    frontmatter.Code.DUPLICATE_KEY: Code.INVALID_YAML,
    frontmatter.Code.TOO_MANY_EVENTS: Code.FRONT_MATTER_TOO_LARGE,
}


class Fault(NamedTuple):
    """What is wrong at one place; `message` replaces the fixed sentence of the code."""

    code: Code
    place: Place
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What the front matter says, or the one error that makes it useless.

    Attributes:
        faults: what is odd and does no harm.
        name: null where it is missing, empty where it is no text.
        description, when_to_use: trimmed, empty where missing.
    """

    error: Fault | None = None
    faults: tuple[Fault, ...] = ()
    name: str | None = None
    name_place: Place = TOP
    description: str = ""
    description_place: Place = TOP
    when_to_use: str = ""
    priority: int = DEFAULT_PRIORITY
    phases: tuple[str, ...] = ()


def read(front: bytes, faults: tuple[Fault, ...] = ()) -> Sheet:
    """The sheet of what stands between two fences, besides `faults` of the fences; raises nothing."""
    try:
        document = _load(front)
    except FrontMatterError as error:
        code = _CODES.get(error.code) or Code(error.code.value)
        place = (error.line, error.column)
        fault = Fault(code, place, f"The front matter cannot be used: {error.message}.")
        mended = _mended(front) if error.code is frontmatter.Code.INVALID_YAML else None
        if mended is None:
            return Sheet(error=fault, faults=faults)
        document, faults = mended, (*faults, Fault(Code.REPAIRED_YAML, place))
    return _Reader(document, faults).sheet()


def _mended(front: bytes) -> Document | None:
    try:
        return _load(repaired(front))
    except FrontMatterError:
        return None


def _load(front: bytes) -> Document:
    return frontmatter.load(front, profile=Profile.TEXT)


class _Reader:
    """Takes the known fields out of a document; what is odd about them piles up."""

    __slots__ = ("_faults", "_positions", "_value")

    def __init__(self, document: Document, faults: tuple[Fault, ...]) -> None:
        self._value = document.value
        self._positions = document.positions
        self._faults = [*faults]

    def sheet(self) -> Sheet:
        name, description = self._value.get("name"), self._value.get("description")
        metadata = self._value.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        when_to_use = self._text(self._value, "when_to_use") or self._text(
            metadata, "metadata", "when_to_use"
        )
        priority = self._priority(metadata)
        phases = self._phases(metadata)
        self._optional_fields()
        return Sheet(
            faults=tuple(self._faults),
            name=None if name is None else name.strip() if isinstance(name, str) else "",
            name_place=self._place("name"),
            description=description.strip() if isinstance(description, str) else "",
            description_place=self._place("description"),
            when_to_use=when_to_use,
            priority=priority,
            phases=phases,
        )

    def _place(self, *path: str) -> Place:
        """Where a key stands; the first fence for a key that is not there."""
        return self._positions.get(path, TOP)

    def _odd(self, *path: str, what: str) -> None:
        message = f"`{'.'.join(path)}` {what}."
        self._faults.append(Fault(Code.BAD_OPTIONAL_FIELD, self._place(*path), message))

    def _text(self, fields: dict[str, Any], *path: str) -> str:
        value = fields.get(path[-1])
        if value is None:
            return ""
        if isinstance(value, str):
            return value.strip()
        self._odd(*path, what="is not text")
        return ""

    def _priority(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("symphony-priority")
        if value is None:
            return DEFAULT_PRIORITY
        if isinstance(value, str) and _PRIORITY.fullmatch(value.strip()):
            return int(value)
        self._odd("metadata", "symphony-priority", what="is not a whole number")
        return DEFAULT_PRIORITY

    def _phases(self, metadata: dict[str, Any]) -> tuple[str, ...]:
        value = metadata.get("symphony-phases")
        words = _WORDS.findall(value) if isinstance(value, str) else value
        if words is None:
            return ()
        if (
            isinstance(words, list)
            and len(words) <= _MAX_PHASES
            and all(isinstance(one, str) for one in words)
        ):
            return tuple(words)
        self._odd("metadata", "symphony-phases", what="is not a list of phases")
        return ()

    def _optional_fields(self) -> None:
        for key, is_right in _OPTIONAL.items():
            value = self._value.get(key)
            if value is not None and not is_right(value):
                self._odd(key, what="has an unusual type or length")


_OPTIONAL: Final[dict[str, Callable[[Any], bool]]] = {
    "license": lambda value: isinstance(value, str),
    "compatibility": lambda value: isinstance(value, str) and 0 < len(value.strip()) <= _MAX_COMPATIBILITY,
    "metadata": lambda value: isinstance(value, dict),
    "allowed-tools": lambda value: isinstance(value, str | list),
}
