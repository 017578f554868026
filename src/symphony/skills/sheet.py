"""Reads what the front matter of one file says, wherever the file stands and whatever the rules are."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from symphony import frontmatter
from symphony.frontmatter import Document, FrontMatterError, Split
from symphony.skills import repair
from symphony.skills.model import DEFAULT_PRIORITY, Code
from symphony.skills.text import is_visible

__all__ = ["TOP", "Fault", "Parts", "Place", "Sheet", "read", "split"]

Place: TypeAlias = tuple[int, int]

TOP: Final[Place] = (1, 1)
_MAX_COMPATIBILITY: Final = 500
_MAX_PHASES: Final = 20
_WORDS: Final = re.compile(r"[^\s,]+")
_PRIORITY: Final = re.compile(r"[-+]?[0-9]{1,9}")
_GLUED: Final = re.compile(rb"^---(?=#)", re.MULTILINE)
_MISSPELT: Final = frozenset({"when-to-use", "whenToUse", "whentouse", "when to use", "When_to_use"})
_CODES: Final = {
    frontmatter.Code.DUPLICATE_KEY: Code.INVALID_YAML,
    frontmatter.Code.TOO_MANY_EVENTS: Code.FRONT_MATTER_TOO_LARGE,
}
_MENDABLE: Final = {frontmatter.Code.INVALID_YAML, frontmatter.Code.ALIAS_NOT_ALLOWED}


class Fault(NamedTuple):
    """What is wrong at one place; `message` and `hint` replace the fixed sentences of the code."""

    code: Code
    place: Place
    message: str | None = None
    hint: str | None = None


class Sheet(NamedTuple):
    """What the front matter says, or the one error that makes it useless.

    Attributes:
        strict_error: the one error that it is in the strict profile.
        faults: what is odd and does no harm.
        events: how many keys and values the parser found; what the reading cost, about.
        name: null where it is missing, empty where it is no text. Blanks in it are single ones.
        description, when_to_use: trimmed, empty where missing and where nothing of it can be seen.
        not_text: what stands in place of a description that is no text.
        document: where its keys stand; `None` where there is none.
    """

    error: Fault | None = None
    strict_error: Fault | None = None
    faults: tuple[Fault, ...] = ()
    events: int = 0
    not_text: str | None = None
    name: str | None = None
    description: str = ""
    when_to_use: str = ""
    priority: int = DEFAULT_PRIORITY
    phases: tuple[str, ...] = ()
    document: Document | None = None

    def place(self, key: str) -> Place:
        """Line and column of a key of the top level; the top of the file where it is not there."""
        return (None if self.document is None else self.document.place(key)) or TOP


class Parts(NamedTuple):
    """The fences of a file; `glued` says that the body begins on the line of the closing one."""

    fences: Split
    glued: bool = False


def split(data: bytes) -> Parts | None:
    """As `frontmatter.split`, but that `---# Title` closes front matter which nothing else closes."""
    found = frontmatter.split(data)
    if found is None:
        return None
    glued = None if found.closed else _GLUED.search(found.front)
    if glued is None:
        return Parts(found)
    offset = len(data) - len(found.front) + glued.end()
    line = 1 + data.count(b"\n", 0, offset)
    front = found.front[: glued.start()]
    return Parts(found._replace(front=front, body_offset=offset, body_line=line, closed=True), glued=True)


def read(front: bytes, faults: tuple[Fault, ...] = ()) -> Sheet:
    """The sheet of what stands between two fences, besides `faults` of the fences; raises nothing."""
    strict_error = None
    lost = repair.lost_word(front)
    events = 0
    try:
        if lost is not None:
            front, advice = repair.quoted(front)
            line = 2 + front.count(b"\n", 0, lost)
            column = lost - front.rfind(b"\n", 0, lost)
            faults = (*faults, Fault(Code.REPAIRED_YAML, (line, column), *advice))
        document = repair.load(front)
    except FrontMatterError as error:
        events = min(frontmatter.MAX_EVENTS, len(front) // 2)
        place = (error.line, error.column)
        fault = Fault(
            _CODES.get(error.code) or Code(error.code.value),
            place,
            f"The front matter cannot be used: {error.message}.",
        )
        mended = _mended(front) if error.code in _MENDABLE else None
        if mended is None:
            return Sheet(error=fault, faults=faults, events=events)
        document, advice, whole = mended
        strict_error = None if whole else fault
        faults = (*faults, Fault(Code.REPAIRED_YAML, place, *advice))
    return _Reader(document, faults).sheet(strict_error, events)


def _mended(front: bytes) -> tuple[Document, repair.Advice, bool] | None:
    """The document that could be made of it, and whether it is whole."""
    for mend in (repair.quoted, repair.legible):
        mended = mend(front)
        with suppress(FrontMatterError):
            if mended is not None:
                return repair.load(mended[0]), mended[1], mend is repair.quoted
    return None


class _Reader:
    """Takes the known fields out of a document; what is odd about them piles up."""

    __slots__ = ("_document", "_faults", "_value")

    def __init__(self, document: Document, faults: tuple[Fault, ...]) -> None:
        self._document = document
        self._value = document.value
        self._faults = [*faults]

    def sheet(self, strict_error: Fault | None, events: int) -> Sheet:
        value = self._value
        name, description = value.get("name"), value.get("description")
        metadata = value.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        when_to_use = self._text(value, "when_to_use") or self._text(metadata, "metadata", "when_to_use")
        self._keys()
        return Sheet(
            error=self._repeated(),
            strict_error=strict_error,
            events=events + self._document.events,
            name=None if name is None else name if isinstance(name, str) else "",
            description=description.strip()
            if isinstance(description, str) and is_visible(description)
            else "",
            not_text=next((words for kind, words in _KINDS if isinstance(description, kind)), None),
            when_to_use=when_to_use,
            priority=self._priority(metadata) if metadata else DEFAULT_PRIORITY,
            phases=self._phases(metadata) if metadata else (),
            faults=tuple(self._faults),
            document=self._document,
        )

    def _odd(self, *path: str, what: str, hint: str | None = None) -> None:
        place = self._document.positions.get(path, TOP)
        message = f"`{'.'.join(path)}` {what}."
        self._faults.append(Fault(Code.BAD_OPTIONAL_FIELD, place, message, hint))

    def _text(self, fields: dict[str, Any], *path: str) -> str:
        value = fields.get(path[-1])
        if value is None:
            return ""
        if isinstance(value, str):
            return value.strip() if is_visible(value) else ""
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

    def _keys(self) -> None:
        """Optional fields of an unusual type, and keys that look like a mistake."""
        for key, value in self._value.items():
            if key in _OPTIONAL:
                if value is not None and not _OPTIONAL[key](value):
                    self._odd(key, what="has an unusual type or length")
            elif key in _MISSPELT:
                self._stray_key(key, "A key like `when_to_use` is not read.", "Write it as `when_to_use`.")
            elif " " in key:
                message = "A line with a colon became a key of its own, which is not read."
                self._stray_key(key, message, "If it goes on with the value above, indent it or use quotes.")

    def _stray_key(self, key: str, message: str, hint: str) -> None:
        place = self._document.place(key) or TOP
        self._faults.append(Fault(Code.BAD_OPTIONAL_FIELD, place, message, hint))

    def _repeated(self) -> Fault | None:
        """A key given twice matters in what we read, and is a warning anywhere else."""
        for top, place in self._document.repeated:
            message = "A key is given twice."
            if top == "metadata":
                return Fault(Code.INVALID_YAML, place, message, "Give each key once.")
            self._faults.append(Fault(Code.BAD_OPTIONAL_FIELD, place, message, "Give each key once."))
        return None


_KINDS: Final = ((list, "a list"), (dict, "a map"))
_OPTIONAL: Final[dict[str, Callable[[Any], bool]]] = {
    "license": lambda value: isinstance(value, str),
    "compatibility": lambda value: isinstance(value, str) and 0 < len(value.strip()) <= _MAX_COMPATIBILITY,
    "metadata": lambda value: isinstance(value, dict),
    "allowed-tools": lambda value: isinstance(value, str | list),
}
