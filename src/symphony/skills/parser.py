"""Judges one SKILL.md by the rules: a skill, or the one error that leaves it out, and any warnings."""

import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from symphony import frontmatter
from symphony.frontmatter import Document, FrontMatterError, Profile, Split
from symphony.skills.model import (
    DEFAULT_PRIORITY,
    Code,
    Problem,
    Scope,
    Severity,
    Skill,
    SkillOptions,
    Validation,
    is_name,
    is_visible,
    problem,
)

# Mends the faults that people make in front matter, without adding or removing a line.


_KEY: Final = re.compile(rb"[A-Za-z0-9_-]+[ \t]*:[ \t]+")
_COLON: Final = re.compile(rb"[^-&*!|>%@`{}\[\]\"',?].*:(?:[ \t]|\Z)", re.DOTALL)
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|' rb"'(?:[^']|'')*'", re.DOTALL)
_ALIAS_AND_MORE: Final = re.compile(rb"\*\S+[ \t]+[^\s#]")
# An anchor or a tag before words is YAML, and the reader would lose it: nobody means it in these files.
_LOST_WORD: Final = rb"""[&!](?!!)(?:[^\s,\[\]{}]*[ \t]+[^\s\[{"'|>#&!*]|[^\s,\[\]{}]+[ \t\r]*$)"""
_LOSES_A_WORD: Final = re.compile(_LOST_WORD)
_LOSING_LINE: Final = re.compile(rb"^[A-Za-z0-9_-]+[ \t]*:[ \t]+(?=" + _LOST_WORD + rb")", re.MULTILINE)
_CHUNK: Final = re.compile(
    rb"^(name|description|when_to_use|metadata)[ \t]*:[ \t]*(.*(?:\n(?:[ \t].*|\r?$))*)", re.MULTILINE
)
_MAX_LINES: Final = 200
_MAX_VALUE: Final = 4_096  # in bytes; what a person writes on one line is shorter


class Advice(NamedTuple):
    """What was mended, as the sentence and the hint of a problem."""

    message: str
    hint: str


_QUOTE_COLON: Final = Advice(
    "A value holds a colon and has no quotes; it was read as one text.",
    "Put quotes around the values that hold a colon.",
)
_QUOTE_SIGN: Final = Advice(
    "A value holds a character with a meaning in YAML and has no quotes; it was read as one text.",
    "Put quotes around the value.",
)
_LINES_ALONE: Final = Advice(
    "The front matter is not valid YAML; only the lines of `name` and `description` were read.",
    "Mend the line that is named here, or remove its key.",
)


def load(front: bytes) -> Document:
    """The front matter of a skill.

    Raises:
        FrontMatterError: it cannot be read as it is.
    """
    return frontmatter.load(front, profile=Profile.TEXT, allow_nested_duplicates=True)


def lost_word(front: bytes) -> int | None:
    """Where the first value begins of which a reader of YAML would drop the first word, or null."""
    found = _LOSING_LINE.search(front) if b"&" in front or b"!" in front else None
    return None if found is None else found.end()


def quoted(front: bytes) -> tuple[bytes, Advice]:
    """The front matter with every top-level one-line value quoted that is not YAML where it stands alone.

    A value that goes on in the next line is left as it is.
    """
    lines = front.split(b"\n")
    advice = None
    for index, line in enumerate(lines[:_MAX_LINES]):
        following = lines[index + 1] if index + 1 < len(lines) else b""
        key = _KEY.match(line)
        if key is None or (following[:1] in {b" ", b"\t"} and following.strip()):
            continue
        value = line[key.end() :].rstrip(b" \t\r")
        if (
            len(value) > _MAX_VALUE
            or _QUOTED.fullmatch(value)
            or (not _LOSES_A_WORD.match(value) and _is_yaml(line, value))
        ):
            continue
        advice = advice or (_QUOTE_COLON if _COLON.match(value) else _QUOTE_SIGN)
        lines[index] = key.group() + _in_quotes(value) + line[key.end() + len(value) :]
    return b"\n".join(lines), advice or _QUOTE_SIGN


def legible(front: bytes) -> tuple[bytes, Advice] | None:
    """Only the keys that we read; a text among them that is no YAML is taken as it stands, on one line.

    Null unless `name` and `description` are there, each once.
    """
    kept: dict[bytes, tuple[int, bytes]] = {}
    for found in _CHUNK.finditer(front):
        key, chunk = found[1], found[0]
        if key in kept:
            return None
        mended = next((one for one in (chunk, quoted(chunk)[0]) if _is_yaml(one, b"")), None)
        if mended is None and key != b"metadata":
            words = b" ".join(found[2].split())
            if len(words) <= _MAX_VALUE and not _QUOTED.fullmatch(words):
                mended = key + b": " + _in_quotes(words)
        if mended is not None:
            kept[key] = front.count(b"\n", 0, found.start()), mended
    if not kept.keys() >= {b"name", b"description"}:
        return None
    lines: list[bytes] = []
    for line, chunk in sorted(kept.values()):
        lines += [b""] * (line - len(lines))
        lines += chunk.rstrip(b"\n").split(b"\n")
    return b"\n".join(lines), _LINES_ALONE


def _is_yaml(line: bytes, value: bytes) -> bool:
    """Whether lines can be read alone. An alias is refused as one, unless more than an alias is there."""
    try:
        load(line)
    except FrontMatterError as error:
        refused = error.code is not frontmatter.Code.INVALID_YAML
        return refused and not _ALIAS_AND_MORE.match(value)
    return True


def _in_quotes(value: bytes) -> bytes:
    return b"'" + value.replace(b"'", b"''") + b"'"


# Reads what the front matter of one file says, wherever the file stands and whatever the rules are.


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


class FrontMatterFields(NamedTuple):
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
        return (None if self.document is None else self.document.position(key)) or TOP


class Parts(NamedTuple):
    """The fences of a file; `glued` says that the body begins on the line of the closing one."""

    fences: Split
    glued: bool = False


def split_file(data: bytes) -> Parts | None:
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


def read_fields(front: bytes, faults: tuple[Fault, ...] = ()) -> FrontMatterFields:
    """The sheet of what stands between two fences, besides `faults` of the fences; raises nothing."""
    strict_error = None
    lost = lost_word(front)
    events = 0
    try:
        if lost is not None:
            front, advice = quoted(front)
            line = 2 + front.count(b"\n", 0, lost)
            column = lost - front.rfind(b"\n", 0, lost)
            faults = (*faults, Fault(Code.REPAIRED_YAML, (line, column), *advice))
        document = load(front)
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
            return FrontMatterFields(error=fault, faults=faults, events=events)
        document, advice, whole = mended
        strict_error = None if whole else fault
        faults = (*faults, Fault(Code.REPAIRED_YAML, place, *advice))
    return _Reader(document, faults).sheet(strict_error, events)


def _mended(front: bytes) -> tuple[Document, Advice, bool] | None:
    """The document that could be made of it, and whether it is whole."""
    for mend in (quoted, legible):
        mended = mend(front)
        with suppress(FrontMatterError):
            if mended is not None:
                return load(mended[0]), mended[1], mend is quoted
    return None


class _Reader:
    """Takes the known fields out of a document; what is odd about them piles up."""

    __slots__ = ("_document", "_faults", "_value")

    def __init__(self, document: Document, faults: tuple[Fault, ...]) -> None:
        self._document = document
        self._value = document.value
        self._faults = [*faults]

    def sheet(self, strict_error: Fault | None, events: int) -> FrontMatterFields:
        value = self._value
        name, description = value.get("name"), value.get("description")
        metadata = value.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        when_to_use = self._text(value, "when_to_use") or self._text(metadata, "metadata", "when_to_use")
        self._keys()
        return FrontMatterFields(
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
        place = self._document.position(key) or TOP
        self._faults.append(Fault(Code.BAD_OPTIONAL_FIELD, place, message, hint))

    def _repeated(self) -> Fault | None:
        """A key given twice matters in what we read, and is a warning anywhere else."""
        for top, place in self._document.duplicates:
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
class ParseOptions:
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


class SkillFile(NamedTuple):
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
    sheet: FrontMatterFields | None = None

    @property
    def bears_its_name(self) -> bool:
        """Whether there is a skill, named as its directory is."""
        return self.skill is not None and self.key == unicodedata.normalize("NFKC", self.directory)


def is_clean_name(name: str) -> bool:
    """Whether every reader of the format takes the name: 1 to 64 of a-z, 0-9 and single hyphens."""
    return len(name) <= _MAX_NAME and _CLEAN_NAME.fullmatch(name) is not None


def parse(found: SkillFile, rules: ParseOptions) -> Parsed:
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


def _sheet(found: SkillFile) -> FrontMatterFields:
    data = found.data
    split = found.parts or split_file(data)
    if split is None:
        code = Code.NOT_UTF8 if data.startswith(_UTF16) else Code.MISSING_FRONT_MATTER
        return FrontMatterFields(error=Fault(code, TOP))
    parts, glued = split
    bom = (Fault(Code.BOM, TOP),) if parts.bom else ()
    if not parts.closed:
        code = Code.UNCLOSED_FRONT_MATTER if found.whole else Code.FRONT_MATTER_TOO_LARGE
        return FrontMatterFields(error=Fault(code, TOP), faults=bom)
    read = _read if len(parts.front) <= _MAX_CACHED_BYTES else read_fields
    sheet = read(parts.front, bom)
    if glued:
        message, hint = "Text follows on the line of the closing `---`.", "Put a line break after the `---`."
        unclosed = Fault(Code.UNCLOSED_FRONT_MATTER, (parts.body_line, 4), message, hint)
        fault = unclosed._replace(code=Code.REPAIRED_YAML)
        sheet = sheet._replace(strict_error=unclosed, faults=(*sheet.faults, fault))
    return sheet


# By content, for all workspaces: a fresh clone has new inodes and times, and the same bytes.
_read = lru_cache(_CACHED)(read_fields)


def clear_cache() -> None:
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

    def __init__(self, found: SkillFile, sheet: FrontMatterFields, rules: ParseOptions) -> None:
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
