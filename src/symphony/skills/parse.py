"""Judges one SKILL.md by the rules: a skill, or the one error that leaves it out, and any warnings."""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Self

from symphony.skills import sheet as sheets
from symphony.skills.codes import problem
from symphony.skills.model import Code, Problem, Scope, Severity, Skill, SkillOptions, Validation
from symphony.skills.sheet import TOP, Fault, Parts, Sheet
from symphony.skills.text import is_name

__all__ = ["Found", "Parsed", "Rules", "forget", "is_clean_name", "parse"]

_CLEAN_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NO_WORD: Final = re.compile(r"[\W_]+")
_MAX_NAME: Final = 64
_MAX_ANY_NAME: Final = 128
_MAX_DESCRIPTION: Final = 1_024
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff", b"-\0-\0-\0", b"\0-\0-\0-")
_BLANKS: Final = re.compile("[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_PATH_AS_NAME: Final = "A name is no path: use the last part of it. Codex would take the whole as the name."
_CACHED: Final = 2_048  # sheets, whose front matter has at most so many bytes:
_MAX_CACHED_BYTES: Final = 4_096
_NO_WHEN_TO_USE: Final = Fault(Code.MISSING_WHEN_TO_USE, TOP)
_LENIENT: Final = {Code.MISSING_DESCRIPTION: Severity.WARNING}


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


class Found(NamedTuple):
    """The beginning of one SKILL.md.

    Attributes:
        path: as `Skill.path`, fit for showing.
        directory: its directory's name, fit for showing.
        data: whole lines only, unless `whole`.
        whole: `data` is the complete file.
        parts: what `sheet.split` makes of `data`, where the caller has it already.
        root: as `Skill.root`.
    """

    path: str
    directory: str
    data: bytes
    whole: bool
    parts: Parts | None = None
    scope: Scope = Scope.PROJECT
    root: Path | None = None


class Parsed(NamedTuple):
    """What one file gave: a skill, or null and exactly one error; in both cases any number of warnings.

    Attributes:
        directory: its directory's name, fit for showing.
        events: about what reading the front matter cost, in keys and values.
        key: what two skills must not have in common: the name in its compatible composed form.
        sheet: what the file says, for a caller that finds the name taken.
    """

    skill: Skill | None
    problems: tuple[Problem, ...]
    directory: str
    events: int = 0
    key: str = ""
    sheet: Sheet | None = None

    @property
    def bears_its_name(self) -> bool:
        """Whether there is a skill, named as its directory is."""
        return self.skill is not None and self.key == unicodedata.normalize("NFKC", self.directory)


def is_clean_name(name: str) -> bool:
    """Whether every reader of the format takes the name: 1 to 64 of a-z, 0-9 and single hyphens."""
    return len(name) <= _MAX_NAME and _CLEAN_NAME.fullmatch(name) is not None


def parse(found: Found, rules: Rules) -> Parsed:
    """Validate one file; raises nothing."""
    sheet = _sheet(found)
    judge = _Judge(found, sheet, rules)
    try:
        skill = judge.skill()
    except _Rejected as rejected:
        error = judge.problem(rejected.fault, Severity.ERROR)
        problems = (error, *judge.warnings())
        return Parsed(skill=None, problems=problems, directory=found.directory, events=sheet.events)
    return Parsed(
        skill=skill,
        problems=judge.warnings(),
        directory=found.directory,
        events=sheet.events,
        key=skill.name if skill.name.isascii() else unicodedata.normalize("NFKC", skill.name),
        sheet=sheet,
    )


def _sheet(found: Found) -> Sheet:
    data = found.data
    split = found.parts or sheets.split(data)
    if split is None:
        code = Code.NOT_UTF8 if data.startswith(_UTF16) else Code.MISSING_FRONT_MATTER
        return Sheet(error=Fault(code, TOP))
    parts, glued = split
    bom = (Fault(Code.BOM, TOP),) if parts.bom else ()
    if not parts.closed:
        code = Code.UNCLOSED_FRONT_MATTER if found.whole else Code.FRONT_MATTER_TOO_LARGE
        return Sheet(error=Fault(code, TOP), faults=bom)
    read = _read if len(parts.front) <= _MAX_CACHED_BYTES else sheets.read
    sheet = read(parts.front, bom)
    if glued:
        message, hint = "Text follows on the line of the closing `---`.", "Put a line break after the `---`."
        unclosed = Fault(Code.UNCLOSED_FRONT_MATTER, (parts.body_line, 4), message, hint)
        fault = unclosed._replace(code=Code.REPAIRED_YAML)
        sheet = sheet._replace(strict_error=unclosed, faults=(*sheet.faults, fault))
    return sheet


# By content, for all workspaces: a fresh clone has new inodes and times, and the same bytes.
_read = lru_cache(_CACHED)(sheets.read)


def forget() -> None:
    """Remember no file that was read so far."""
    _read.cache_clear()


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
        if self._strict and sheet.strict_error is not None:  # then nothing counts as mended
            self._faults = [one for one in self._faults if one.code is not Code.REPAIRED_YAML]
            raise _Rejected(sheet.strict_error)
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
        code, place, message, hint = fault
        found = self._found
        return problem(
            code, found.path, place, severity=severity, message=message, hint=hint, scope=found.scope
        )

    def warnings(self) -> tuple[Problem, ...]:
        """What does no harm, in the order of the lines."""
        faults = self._faults if len(self._faults) < 2 else sorted(self._faults, key=lambda one: one.place)  # noqa: PLR2004 - nothing to sort
        return tuple([self.problem(one, _LENIENT.get(one.code)) for one in faults])

    def _odd(self, fault: Fault) -> None:
        """A warning, or in the strict profile the end."""
        if self._strict:
            raise _Rejected(fault)
        self._faults.append(fault)

    def _name(self) -> str:
        sheet, directory = self._sheet, self._found.directory
        name = sheet.name
        if name is None and self._rules.name_fallback:
            name = directory
        if name is None:
            raise _Rejected(Fault(Code.MISSING_NAME, sheet.place("name")))
        clean = _CLEAN_NAME.fullmatch(name) is not None
        if not clean:
            name = _BLANKS.sub(" ", name.strip())
        if len(name) > _MAX_ANY_NAME or not (clean or is_name(name)):
            hint = _PATH_AS_NAME if "/" in name else None
            raise _Rejected(Fault(Code.INVALID_NAME, sheet.place("name"), hint=hint))
        self._reserved(name)
        if len(name) > _MAX_NAME:
            self._odd(Fault(Code.NAME_TOO_LONG, sheet.place("name")))
        if not clean:
            self._odd(Fault(Code.NAME_CHARSET, sheet.place("name")))
        if name != directory and not _same(name, directory):
            self._odd(Fault(Code.NAME_DIR_MISMATCH, sheet.place("name")))
        return name

    def _reserved(self, name: str) -> None:
        if self._rules.reserved_words:
            words = _words(name)
            if any(_words(word) in words for word in self._rules.reserved_words):
                place, message = self._sheet.place("name"), "`name` contains a reserved word."
                raise _Rejected(Fault(Code.INVALID_NAME, place, message))

    def _texts(self) -> None:
        sheet = self._sheet
        if not sheet.description:
            missing = Fault(Code.MISSING_DESCRIPTION, sheet.place("description"))
            if sheet.not_text:
                message = f"`description` is {sheet.not_text}, not text."
                missing = missing._replace(message=message, hint="Write it as one text.")
            if not sheet.when_to_use:
                raise _Rejected(missing)
            self._odd(missing)
        if len(sheet.description) > _MAX_DESCRIPTION:
            self._odd(Fault(Code.DESCRIPTION_TOO_LONG, sheet.place("description")))
        if not sheet.when_to_use:
            self._faults.append(_NO_WHEN_TO_USE)


def _same(name: str, directory: str) -> bool:
    return unicodedata.normalize("NFKC", name) == unicodedata.normalize("NFKC", directory)


def _words(text: str) -> str:
    """The words of a name between blanks, so that only whole ones are found in it."""
    return f" {_NO_WORD.sub(' ', text).strip().casefold()} "
