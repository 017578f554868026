"""Judges one SKILL.md by the rules: a skill, or the one error that leaves it out, and any warnings."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from symphony import frontmatter
from symphony.skills import sheet as sheets
from symphony.skills.codes import problem
from symphony.skills.model import Code, Problem, Scope, Severity, Skill, SkillOptions, Validation
from symphony.skills.sheet import TOP, Fault, Place, Sheet

__all__ = ["Found", "Parsed", "Rules", "Sheet", "Sheets", "is_clean_name", "parse", "settles"]

_CLEAN_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NO_WORD: Final = re.compile(r"[\W_]+")
_MAX_NAME: Final = 64
_MAX_ANY_NAME: Final = 128
_MAX_DESCRIPTION: Final = 1_024
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff", b"-\0-\0-\0", b"\0-\0-\0-")
_UNFIT: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Those of the options that decide what a file gives."""

    validation: Validation = Validation.LENIENT
    name_fallback: bool = False
    reserved_words: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: SkillOptions) -> Self:
        """The rules among the options."""
        return cls(
            validation=options.validation,
            name_fallback=options.name_fallback,
            reserved_words=options.reserved_words,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The beginning of one SKILL.md.

    Attributes:
        path: as `Skill.path`, fit for showing.
        directory: its directory's name, fit for showing.
        data: whole lines only, unless `whole`.
        whole: `data` is the complete file.
        root: as `Skill.root`.
    """

    path: str
    directory: str
    data: bytes
    whole: bool
    scope: Scope = Scope.PROJECT
    root: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What one file gave: a skill, or null and exactly one error; in both cases any number of warnings.

    Attributes:
        directory: its directory's name, fit for showing.
        key: what two skills must not have in common: the name in its compatible composed form.
        name_place: line and column of the name, for a caller that finds it taken.
    """

    skill: Skill | None
    problems: tuple[Problem, ...]
    directory: str
    key: str = ""
    name_place: Place = TOP


class Sheets(Protocol):
    """Remembers sheets by the bytes they were read from; `size` is about what one costs, in bytes."""

    def get(self, key: bytes, /) -> Sheet | None:
        """The sheet of these bytes, if it is still known."""
        ...

    def put(self, key: bytes, value: Sheet, size: int, /) -> None:
        """Remember a sheet."""
        ...


def is_clean_name(name: str) -> bool:
    """Whether every reader of the format takes the name: 1 to 64 of a-z, 0-9 and single hyphens."""
    return len(name) <= _MAX_NAME and _CLEAN_NAME.fullmatch(name) is not None


def settles(lines: bytes) -> bool:
    """Whether these first whole lines of a file hold all of its front matter, or show that it has none."""
    found = frontmatter.split(lines)
    return found is None or found.closed


def parse(found: Found, rules: Rules, known: Sheets) -> Parsed:
    """Validate one file; raises nothing."""
    sheet = _sheet(found, known)
    judge = _Judge(found, sheet, rules)
    try:
        skill = judge.skill()
    except _Rejected as rejected:
        error = judge.problem(rejected.fault, Severity.ERROR)
        return Parsed(skill=None, problems=(error, *judge.warnings()), directory=found.directory)
    return Parsed(
        skill=skill,
        problems=judge.warnings(),
        directory=found.directory,
        key=skill.name if skill.name.isascii() else unicodedata.normalize("NFKC", skill.name),
        name_place=sheet.name_place,
    )


def _sheet(found: Found, known: Sheets) -> Sheet:
    data = found.data
    parts = frontmatter.split(data)
    if parts is None:
        code = Code.NOT_UTF8 if data.startswith(_UTF16) else Code.MISSING_FRONT_MATTER
        return Sheet(error=Fault(code, TOP))
    bom = (Fault(Code.BOM, TOP),) if parts.bom else ()
    if not parts.closed:
        code = Code.UNCLOSED_FRONT_MATTER if found.whole else Code.FRONT_MATTER_TOO_LARGE
        return Sheet(error=Fault(code, TOP), faults=bom)
    front = data[: parts.body_offset]
    sheet = known.get(front)
    if sheet is None:
        sheet = sheets.read(parts.front, bom)
        known.put(front, sheet, _cost(sheet, front))
    return sheet


def _cost(sheet: Sheet, front: bytes) -> int:
    """In bytes: the key, as much again in texts of up to four bytes a character, and the objects."""
    return 1_000 + 5 * len(front) + 300 * len(sheet.faults)


class _Rejected(Exception):  # noqa: N818 - unwinds to `parse`, never leaves the module
    """The one error of a file."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.code)
        self.fault = fault


class _Judge:
    """Looks at one sheet from top to bottom; warnings pile up, the first error unwinds."""

    __slots__ = ("_faults", "_found", "_rules", "_sheet", "_strict")

    def __init__(self, found: Found, sheet: Sheet, rules: Rules) -> None:
        self._found = found
        self._sheet = sheet
        self._rules = rules
        self._strict = rules.validation is Validation.STRICT
        self._faults: list[Fault] = [*sheet.faults]

    def skill(self) -> Skill:
        sheet, found = self._sheet, self._found
        if sheet.error is not None:
            raise _Rejected(sheet.error)
        name = self._name()
        self._texts()
        return Skill(
            name=name,
            description=sheet.description,
            when_to_use=sheet.when_to_use,
            directory=found.directory,
            path=found.path,
            priority=sheet.priority,
            phases=sheet.phases,
            scope=found.scope,
            root=found.root,
        )

    def problem(self, fault: Fault, severity: Severity | None = None) -> Problem:
        code, place, message = fault
        found = self._found
        return problem(code, found.path, place, severity=severity, message=message, scope=found.scope)

    def warnings(self) -> tuple[Problem, ...]:
        """What does no harm, in the order of the lines."""
        faults = self._faults if len(self._faults) < 2 else sorted(self._faults, key=lambda one: one.place)  # noqa: PLR2004 - nothing to sort
        lenient = {Code.MISSING_DESCRIPTION: Severity.WARNING}
        return tuple([self.problem(one, lenient.get(one.code)) for one in faults])

    def _odd(self, code: Code, place: Place) -> None:
        """A warning, or in the strict profile the end."""
        fault = Fault(code, place)
        if self._strict:
            raise _Rejected(fault)
        self._faults.append(fault)

    def _name(self) -> str:
        place, directory = self._sheet.name_place, self._found.directory
        name = self._sheet.name
        if name is None and self._rules.name_fallback:
            name = directory
        if name is None:
            raise _Rejected(Fault(Code.MISSING_NAME, place))
        clean = _CLEAN_NAME.fullmatch(name) is not None
        if len(name) > _MAX_ANY_NAME or not (clean or _is_fit(name)):
            raise _Rejected(Fault(Code.INVALID_NAME, place))
        self._reserved(name, place)
        if len(name) > _MAX_NAME:
            self._odd(Code.NAME_TOO_LONG, place)
        if not clean:
            self._odd(Code.NAME_CHARSET, place)
        if name != directory and not _same(name, directory):
            self._odd(Code.NAME_DIR_MISMATCH, place)
        return name

    def _reserved(self, name: str, place: Place) -> None:
        if self._rules.reserved_words:
            words = _words(name)
            if any(_words(word) in words for word in self._rules.reserved_words):
                raise _Rejected(Fault(Code.INVALID_NAME, place, "`name` contains a reserved word."))

    def _texts(self) -> None:
        sheet = self._sheet
        place = sheet.description_place
        if not (sheet.description or sheet.when_to_use):
            raise _Rejected(Fault(Code.MISSING_DESCRIPTION, place))
        if not sheet.description:
            self._odd(Code.MISSING_DESCRIPTION, place)
        if len(sheet.description) > _MAX_DESCRIPTION:
            self._odd(Code.DESCRIPTION_TOO_LONG, place)
        if not sheet.when_to_use:
            self._faults.append(Fault(Code.MISSING_WHEN_TO_USE, TOP))


def _is_fit(name: str) -> bool:
    """Whether text can be a name at all: not a path, and nothing that steers the display."""
    return name.strip() not in {"", ".", ".."} and not any(
        one in "/\\" or unicodedata.category(one) in _UNFIT for one in name
    )


def _same(name: str, directory: str) -> bool:
    return unicodedata.normalize("NFKC", name) == unicodedata.normalize("NFKC", directory)


def _words(text: str) -> str:
    """The words of a name between blanks, so that only whole ones are found in it."""
    return f" {_NO_WORD.sub(' ', text).strip().casefold()} "
