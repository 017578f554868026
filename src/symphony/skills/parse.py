"""Turns the beginning of one SKILL.md into a skill, or into the one error that leaves it out."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from symphony import frontmatter
from symphony.frontmatter import Document, FrontMatterError, Profile, Split
from symphony.skills.codes import problem
from symphony.skills.discover import Found
from symphony.skills.model import Code, Problem, Severity, Skill
from symphony.skills.repair import repaired

__all__ = ["Parsed", "parse", "settles"]

_CLEAN_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME: Final = 64
_MAX_ANY_NAME: Final = 128
_MAX_DESCRIPTION: Final = 1_024
_MAX_COMPATIBILITY: Final = 500
_TOP: Final = (1, 1)
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff", b"-\0-\0-\0", b"\0-\0-\0-")
_UNFIT: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_CODES: Final = {
    frontmatter.Code.DUPLICATE_KEY: Code.INVALID_YAML,
    frontmatter.Code.TOO_MANY_EVENTS: Code.FRONT_MATTER_TOO_LARGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What one file gave: a skill, or null and exactly one error; in both cases any number of warnings.

    Attributes:
        name_place: line and column of the name, for a caller that finds it taken.
    """

    skill: Skill | None
    problems: tuple[Problem, ...]
    name_place: tuple[int, int] = _TOP


def settles(lines: bytes) -> bool:
    """Whether these first whole lines of a file hold all of its front matter, or show that it has none."""
    found = frontmatter.split(lines)
    return found is None or found.closed


def parse(found: Found) -> Parsed:
    """Validate one file by the lenient rules; raises nothing."""
    reader = _Reader(found)
    try:
        skill = reader.skill()
    except _Rejected as rejected:
        return Parsed(skill=None, problems=(rejected.problem, *reader.problems))
    return Parsed(skill=skill, problems=tuple(reader.problems), name_place=reader.place("name"))


class _Rejected(Exception):  # noqa: N818 - unwinds to `parse`, never leaves the module
    """The one error of a file."""

    def __init__(self, error: Problem) -> None:
        super().__init__(error.code)
        self.problem = error


class _Reader:
    """Reads one file from top to bottom; warnings pile up, the first error unwinds."""

    __slots__ = ("_document", "_found", "problems")

    def __init__(self, found: Found) -> None:
        self.problems: list[Problem] = []
        self._found = found
        self._document = Document(value={}, positions={})

    def skill(self) -> Skill:
        self._document = self._front_matter(self._split())
        name = self._name()
        when_to_use = self._when_to_use()
        description = self._description(instead=when_to_use)
        self._optional_fields()
        return Skill(
            name=name,
            description=description,
            when_to_use=when_to_use,
            directory=self._found.directory,
            path=self._found.path,
        )

    def place(self, *path: str) -> tuple[int, int]:
        """Where a key stands; the first fence for a key that is not there."""
        return self._document.positions.get(path, _TOP)

    def _reject(self, code: Code, place: tuple[int, int] = _TOP, message: str | None = None) -> _Rejected:
        return _Rejected(problem(code, self._found.path, place, message=message))

    def _warn(self, code: Code, *path: str, message: str | None = None) -> None:
        self.problems.append(problem(code, self._found.path, self.place(*path), message=message))

    def _split(self) -> Split:
        data = self._found.data
        found = frontmatter.split(data)
        if found is None:
            raise self._reject(Code.NOT_UTF8 if data.startswith(_UTF16) else Code.MISSING_FRONT_MATTER)
        if found.bom:
            self._warn(Code.BOM)
        if not found.closed:
            whole = self._found.whole
            raise self._reject(Code.UNCLOSED_FRONT_MATTER if whole else Code.FRONT_MATTER_TOO_LARGE)
        return found

    def _front_matter(self, found: Split) -> Document:
        try:
            return _load(found.front)
        except FrontMatterError as error:
            code = _CODES.get(error.code) or Code(error.code.value)
            rejected = self._reject(
                code, (error.line, error.column), f"The front matter cannot be used: {error.message}."
            )
            if error.code is not frontmatter.Code.INVALID_YAML:
                raise rejected from None
        try:
            document = _load(repaired(found.front))
        except FrontMatterError:
            raise rejected from None
        line, column = rejected.problem.line, rejected.problem.column
        self.problems.append(problem(Code.REPAIRED_YAML, self._found.path, (line or 1, column or 1)))
        return document

    def _name(self) -> str:
        value = self._document.value.get("name")
        place = self.place("name")
        if value is None:
            raise self._reject(Code.MISSING_NAME, place)
        name = value.strip() if isinstance(value, str) else ""
        if not name or len(name) > _MAX_ANY_NAME or name in {".", ".."} or any(map(_is_unfit, name)):
            raise self._reject(Code.INVALID_NAME, place)
        if len(name) > _MAX_NAME:
            self._warn(Code.NAME_TOO_LONG, "name")
        if not _CLEAN_NAME.fullmatch(name):
            self._warn(Code.NAME_CHARSET, "name")
        if unicodedata.normalize("NFKC", name) != unicodedata.normalize("NFKC", self._found.directory):
            self._warn(Code.NAME_DIR_MISMATCH, "name")
        return name

    def _when_to_use(self) -> str:
        top = self._optional_text("when_to_use")
        nested = self._optional_text("metadata", "when_to_use")
        if not (top or nested):
            self._warn(Code.MISSING_WHEN_TO_USE)
        return top or nested

    def _optional_text(self, *path: str) -> str:
        value: Any = self._document.value
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or isinstance(value, str):
            return (value or "").strip()
        self._warn(Code.BAD_OPTIONAL_FIELD, *path, message=f"`{'.'.join(path)}` is not text.")
        return ""

    def _description(self, *, instead: str) -> str:
        value = self._document.value.get("description")
        text = value.strip() if isinstance(value, str) else ""
        place = self.place("description")
        if not (text or instead):
            raise self._reject(Code.MISSING_DESCRIPTION, place)
        if not text:
            code, severity = Code.MISSING_DESCRIPTION, Severity.WARNING
            self.problems.append(problem(code, self._found.path, place, severity=severity))
        if len(text) > _MAX_DESCRIPTION:
            self._warn(Code.DESCRIPTION_TOO_LONG, "description")
        return text

    def _optional_fields(self) -> None:
        for key, is_right in _OPTIONAL.items():
            value = self._document.value.get(key)
            if value is not None and not is_right(value):
                message = f"`{key}` has an unusual type or length."
                self._warn(Code.BAD_OPTIONAL_FIELD, key, message=message)


def _load(front: bytes) -> Document:
    return frontmatter.load(front, profile=Profile.TEXT)


def _is_unfit(character: str) -> bool:
    return character in "/\\" or unicodedata.category(character) in _UNFIT


_OPTIONAL: Final[dict[str, Callable[[Any], bool]]] = {
    "license": lambda value: isinstance(value, str),
    "compatibility": lambda value: isinstance(value, str) and 0 < len(value.strip()) <= _MAX_COMPATIBILITY,
    "metadata": lambda value: isinstance(value, dict),
    "allowed-tools": lambda value: isinstance(value, str | list),
}
