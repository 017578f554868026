"""Parses and validates one SKILL.md. Gives a skill or one error, and any number of warnings."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from symphony import frontmatter
from symphony.frontmatter import FrontMatterError, FrontMatterMap, Profile, Split
from symphony.problem import Problem, Severity
from symphony.skills import model

# --- Repair of front matter ---
#
# Common mistakes are repaired. The number of lines stays the same, so that positions stay right.

_KEY: Final = re.compile(rb"[A-Za-z0-9_-]+[ \t]*:[ \t]+")
_COLON: Final = re.compile(rb"[^-&*!|>%@`{}\[\]\"',?].*:(?:[ \t]|\Z)", re.DOTALL)
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|' rb"'(?:[^']|'')*'", re.DOTALL)
_ALIAS_AND_MORE: Final = re.compile(rb"\*\S+[ \t]+[^\s#]")
# YAML takes a first word with `&` or `!` for an anchor or a tag and drops it. In a skill it is always text.
_LOST_WORD: Final = rb"""[&!](?!!)(?:[^\s,\[\]{}]*[ \t]+[^\s\[{"'|>#&!*]|[^\s,\[\]{}]+[ \t\r]*$)"""
_LOSES_A_WORD: Final = re.compile(_LOST_WORD)
_LOSING_LINE: Final = re.compile(rb"^[A-Za-z0-9_-]+[ \t]*:[ \t]+(?=" + _LOST_WORD + rb")", re.MULTILINE)
_LINE_FOR_PEOPLE: Final = re.compile(
    rb"""^[ \t]*["']?((?:disable[-_ ]?model|allow[-_ ]?implicit)[-_ ]?invocation)["']?[ \t]*:(.*)$""",
    re.MULTILINE | re.IGNORECASE,
)
_CHUNK: Final = re.compile(
    rb"^(name|description|when_to_use|metadata)[ \t]*:[ \t]*(.*(?:\n(?:[ \t].*|\r?$))*)", re.MULTILINE
)
_MAX_LINES: Final = 200
_MAX_VALUE: Final = 4_096  # in bytes; longer values are not repaired


class Advice(NamedTuple):
    """Message and hint of the problem that reports a repair."""

    message: str
    hint: str


_QUOTE_COLON: Final = Advice(
    "A value has a colon but no quotes; it was read as one text.",
    "Put quotes around values with a colon.",
)
_QUOTE_SIGN: Final = Advice(
    "A value has a character with a meaning in YAML but no quotes; it was read as one text.",
    "Put quotes around the value.",
)
_LINES_ALONE: Final = Advice(
    "The front matter is not valid YAML; only the lines of `name` and `description` were read.",
    "Fix the line that is named here, or remove its key.",
)


def load(front: bytes) -> FrontMatterMap:
    """Parse the front matter of a skill.

    Raises:
        FrontMatterError: it is invalid and was not repaired.
    """
    return frontmatter.load(front, profile=Profile.TEXT, allow_nested_duplicates=True)


def lost_word(front: bytes) -> int | None:
    """Offset of the first value whose first word YAML would drop; `None` if there is no such value."""
    found = _LOSING_LINE.search(front) if b"&" in front or b"!" in front else None
    return None if found is None else found.end()


def quoted(front: bytes) -> tuple[bytes, Advice]:
    """Quote every top-level one-line value that is not valid YAML on its own.

    A value that continues on the next line is not changed.
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
    """Keep only the keys that are used. A text among them that is not valid YAML is quoted, on one line.

    Returns `None` if `name` or `description` is missing, or a key occurs twice.
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
    """Whether lines are valid YAML on their own. A lone alias counts as valid: it is refused as an alias."""
    try:
        load(line)
    except FrontMatterError as error:
        refused = error.code is not frontmatter.YamlCode.INVALID_YAML
        return refused and not _ALIAS_AND_MORE.match(value)
    return True


def _in_quotes(value: bytes) -> bytes:
    return b"'" + value.replace(b"'", b"''") + b"'"


# --- Skills for people ---
# A file may forbid a model to start the skill by itself: `disable-model-invocation: true` (Claude Code,
# agentskills.io), or `allow_implicit_invocation: false`, which Codex reads below `policy` of
# agents/openai.yaml. Any spelling of key and value counts, and so does a value that is neither true nor
# false.

POLICY_FILE: Final = "openai.yaml"
POLICY_DIRECTORY: Final = "agents"
POLICY_PATH: Final = f"{POLICY_DIRECTORY}/{POLICY_FILE}"
_INVOCATION: Final = {"disablemodelinvocation": True, "allowimplicitinvocation": False}
_NESTED: Final = ("metadata", "policy")
_TRUTH: Final = {
    **dict.fromkeys(("true", "yes", "on", "y", "t", "1"), True),
    **dict.fromkeys(("false", "no", "off", "n", "f", "0"), False),
}


class ForPeople(NamedTuple):
    """The key that reserves a skill for people; `clear` is false if its value is neither true nor false."""

    key: str
    path: tuple[str, ...]
    clear: bool = True


def kept_for_people(value: Mapping[str, Any], *above: str) -> ForPeople | None:
    """The first key of a map, or of its `metadata` or `policy`, that reserves the skill for people."""
    for key, said in value.items():
        if not above and key in _NESTED and isinstance(said, dict):
            if (found := kept_for_people(said, key)) is not None:
                return found
            continue
        keeps = _INVOCATION.get(re.sub(r"[-_ ]", "", key).lower()) if "nvocation" in key.lower() else None
        if keeps is None or said is None:
            continue
        truth = _TRUTH.get(said.strip(" \t\"'").lower()) if isinstance(said, str) else None
        if truth is None or truth is keeps:
            return ForPeople(key, (*above, key), clear=truth is not None)
    return None


def line_for_people(text: bytes) -> ForPeople | None:
    """As `kept_for_people`, for a text that is not valid YAML: every line with such a key counts."""
    for key, value in _LINE_FOR_PEOPLE.findall(text):
        said = value.split(b" #", 1)[0].decode(errors="replace")
        if (found := kept_for_people({key.decode(): said})) is not None:
            return found
    return None


def policy_for_people(data: bytes) -> ForPeople | None:
    """As `kept_for_people`, for the content of an agents/openai.yaml."""
    try:
        document = frontmatter.load(data, profile=Profile.TEXT, first_line=1, allow_nested_duplicates=True)
    except FrontMatterError:
        return line_for_people(data)
    return kept_for_people(document.value)


# --- Reading the fields ---
#
# The result depends on the bytes only, not on the path or the options, so that it can be cached.

Place: TypeAlias = tuple[int, int]

TOP: Final[Place] = (1, 1)
_MAX_COMPATIBILITY: Final = 500
_MAX_PHASES: Final = 20
_WORDS: Final = re.compile(r"[^\s,]+")
_GLUED: Final = re.compile(rb"^---(?=#)", re.MULTILINE)
_MISSPELT: Final = frozenset({"when-to-use", "whenToUse", "whentouse", "when to use", "When_to_use"})
_CODES: Final = {
    frontmatter.YamlCode.DUPLICATE_KEY: model.Code.INVALID_YAML,
    frontmatter.YamlCode.TOO_MANY_EVENTS: model.Code.FRONT_MATTER_TOO_LARGE,
}
_REPAIRABLE: Final = {frontmatter.YamlCode.INVALID_YAML, frontmatter.YamlCode.ALIAS_NOT_ALLOWED}


class Fault(NamedTuple):
    """A problem at one position; `message` and `hint` replace the fixed texts of the code."""

    code: model.Code
    place: Place
    message: str | None = None
    hint: str | None = None


class FrontMatterFields(NamedTuple):
    """The fields of the front matter, or the error that makes it unusable.

    Attributes:
        error: why it is unusable in every profile.
        strict_error: why it is unusable in the strict profile.
        faults: problems that are warnings.
        events: number of keys and values that the parser found, as a measure of its cost.
        name: `None` if it is missing, empty if it is not text.
        description, when_to_use: trimmed; empty if missing or invisible.
        not_text: what the description is, if it is not text.
        for_people: the key that reserves the skill for people.
        document: the parsed map with the positions of its keys; `None` if parsing failed.
    """

    error: Fault | None = None
    strict_error: Fault | None = None
    faults: tuple[Fault, ...] = ()
    events: int = 0
    not_text: str | None = None
    name: str | None = None
    description: str = ""
    when_to_use: str = ""
    priority: int = model.DEFAULT_PRIORITY
    phases: tuple[str, ...] = ()
    for_people: ForPeople | None = None
    document: FrontMatterMap | None = None

    def place(self, key: str) -> Place:
        """Line and column of a top-level key; the top of the file if it is missing."""
        return (None if self.document is None else self.document.position(key)) or TOP


class SkillFileParts(NamedTuple):
    """The fences of a file; `glued` says that the body begins on the line of the closing fence."""

    fences: Split
    glued: bool = False


def split_file(data: bytes) -> SkillFileParts | None:
    """As `frontmatter.split`, but `---# Title` closes front matter that has no other closing fence."""
    found = frontmatter.split(data)
    if found is None:
        return None
    glued = None if found.closed else _GLUED.search(found.front)
    if glued is None:
        return SkillFileParts(found)
    offset = len(data) - len(found.front) + glued.end()
    line = 1 + data.count(b"\n", 0, offset)
    front = found.front[: glued.start()]
    return SkillFileParts(
        found._replace(front=front, body_offset=offset, body_line=line, closed=True), glued=True
    )


def read_fields(front: bytes, faults: tuple[Fault, ...] = ()) -> FrontMatterFields:
    """Read the text between two fences; never raises. `faults` are the faults of the fences."""
    strict_error, for_people = None, None
    lost = lost_word(front)
    events = 0
    try:
        if lost is not None:
            front, advice = quoted(front)
            line = 2 + front.count(b"\n", 0, lost)
            column = lost - front.rfind(b"\n", 0, lost)
            faults = (*faults, Fault(model.Code.REPAIRED_YAML, (line, column), *advice))
        document = load(front)
    except FrontMatterError as error:
        events = min(frontmatter.MAX_EVENTS, len(front) // 2)
        place = (error.line, error.column)
        fault = Fault(
            _CODES.get(error.code) or model.Code(error.code.value),
            place,
            f"The front matter cannot be used: {error.message}.",
        )
        mended = _repaired(front) if error.code in _REPAIRABLE else None
        if mended is None:
            return FrontMatterFields(error=fault, faults=faults, events=events)
        document, advice, whole = mended
        if not whole:
            strict_error, for_people = fault, line_for_people(front)
        faults = (*faults, Fault(model.Code.REPAIRED_YAML, place, *advice))
    return _Reader(document, faults).fields(strict_error, events, for_people)


def _repaired(front: bytes) -> tuple[FrontMatterMap, Advice, bool] | None:
    """The repaired document, what was repaired, and whether all keys were kept."""
    for mend in (quoted, legible):
        mended = mend(front)
        with suppress(FrontMatterError):
            if mended is not None:
                return load(mended[0]), mended[1], mend is quoted
    return None


_UNCLEAR: Final = "is neither true nor false, so the skill is for people only"


class _Reader:
    """Takes the known fields out of a document and collects warnings about them."""

    __slots__ = ("_document", "_faults", "_value")

    def __init__(self, document: FrontMatterMap, faults: tuple[Fault, ...]) -> None:
        self._document = document
        self._value = document.value
        self._faults = [*faults]

    def fields(
        self, strict_error: Fault | None, events: int, for_people: ForPeople | None
    ) -> FrontMatterFields:
        value = self._value
        name, description = value.get("name"), value.get("description")
        metadata = value.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        when_to_use = self._text(value, "when_to_use") or self._text(metadata, "metadata", "when_to_use")
        self._keys()
        for_people = for_people or kept_for_people(value)
        if for_people is not None and not for_people.clear:
            self._warn(*for_people.path, what=_UNCLEAR)
        return FrontMatterFields(
            error=self._repeated(),
            strict_error=strict_error,
            events=events + self._document.events,
            name=None if name is None else name if isinstance(name, str) else "",
            description=description.strip()
            if isinstance(description, str) and model.is_visible(description)
            else "",
            not_text=next((words for kind, words in _KINDS if isinstance(description, kind)), None),
            when_to_use=when_to_use,
            priority=self._priority(metadata) if metadata else model.DEFAULT_PRIORITY,
            phases=self._phases(metadata) if metadata else (),
            for_people=for_people,
            faults=tuple(self._faults),
            document=self._document,
        )

    def _warn(self, *path: str, what: str, hint: str | None = None) -> None:
        place = self._document.positions.get(path, TOP)
        message = f"`{'.'.join(path)}` {what}."
        self._faults.append(Fault(model.Code.BAD_OPTIONAL_FIELD, place, message, hint))

    def _text(self, fields: dict[str, Any], *path: str) -> str:
        value = fields.get(path[-1])
        if value is None:
            return ""
        if isinstance(value, str):
            return value.strip() if model.is_visible(value) else ""
        self._warn(*path, what="is not text")
        return ""

    def _priority(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("symphony-priority")
        if value is None:
            return model.DEFAULT_PRIORITY
        if isinstance(value, str) and model.PRIORITY.fullmatch(value.strip()):
            return int(value)
        self._warn("metadata", "symphony-priority", what="is not a whole number")
        return model.DEFAULT_PRIORITY

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
        self._warn("metadata", "symphony-phases", what="is not a list of phases")
        return ()

    def _keys(self) -> None:
        """Warn about optional fields of an unusual type and keys that look like a mistake."""
        for key, value in self._value.items():
            if key in _OPTIONAL:
                if value is not None and not _OPTIONAL[key](value):
                    self._warn(key, what="has an unusual type or length")
            elif key in _MISSPELT:
                self._stray_key(key, "A key like `when_to_use` is not read.", "Write it as `when_to_use`.")
            elif " " in key:
                message = "A line with a colon became a separate key, which is not read."
                self._stray_key(key, message, "If it continues the value above, indent it or use quotes.")

    def _stray_key(self, key: str, message: str, hint: str) -> None:
        place = self._document.position(key) or TOP
        self._faults.append(Fault(model.Code.BAD_OPTIONAL_FIELD, place, message, hint))

    def _repeated(self) -> Fault | None:
        """The fault of a repeated key: an error in `metadata`, which is read, else a warning."""
        for top, place in self._document.duplicates:
            message = "A key is given twice."
            if top == "metadata":
                return Fault(model.Code.INVALID_YAML, place, message, "Give each key once.")
            self._faults.append(Fault(model.Code.BAD_OPTIONAL_FIELD, place, message, "Give each key once."))
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
_CACHED: Final = 2_048
_MAX_CACHED_BYTES: Final = 4_096  # larger front matter is not cached
_NO_WHEN_TO_USE: Final = Fault(model.Code.MISSING_WHEN_TO_USE, TOP)
_LENIENT: Final = {model.Code.MISSING_DESCRIPTION: Severity.WARNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseOptions:
    """Options that affect parsing."""

    validation: model.Validation = model.Validation.LENIENT
    name_fallback: bool = False
    reserved_words: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: model.SkillOptions) -> Self:
        """The options that affect parsing."""
        return cls(
            validation=options.validation,
            name_fallback=options.name_fallback,
            reserved_words=options.reserved_words,
        )


class SkillFile(NamedTuple):
    """The beginning of one SKILL.md.

    Attributes:
        path: as `Skill.path`, printable.
        directory: the name of its directory, printable.
        data: complete lines, unless `whole`.
        whole: whether `data` is the complete file.
        parts: the result of `split_file(data)`, if the caller has it already.
        root: as `Skill.root`.
    """

    path: str
    directory: str
    data: bytes
    whole: bool
    parts: SkillFileParts | None = None
    scope: model.Scope = model.Scope.PROJECT
    root: Path | None = None


class Parsed(NamedTuple):
    """The result for one file.

    Attributes:
        skill: `None` if there is an error.
        problems: exactly one error if there is no skill, and any number of warnings.
        directory: the name of its directory, printable.
        events: as `FrontMatterFields.events`.
        key: the name in Unicode form NFKC, which must be unique among the skills.
        fields: the fields of the file; `None` if there is an error.
    """

    skill: model.Skill | None
    problems: tuple[Problem, ...]
    directory: str
    events: int = 0
    key: str = ""
    fields: FrontMatterFields | None = None

    @property
    def has_directory_name(self) -> bool:
        """Whether there is a skill and its name is that of its directory."""
        return self.skill is not None and self.key == unicodedata.normalize("NFKC", self.directory)


def is_clean_name(name: str) -> bool:
    """Whether the name meets the Agent Skills format: 1 to 64 of a-z, 0-9 and single hyphens."""
    return len(name) <= _MAX_NAME and _CLEAN_NAME.fullmatch(name) is not None


def parse(found: SkillFile, rules: ParseOptions) -> Parsed:
    """Parse and validate one file; never raises."""
    fields = _fields_of(found)
    validator = _Validator(found, fields, rules)
    try:
        skill = validator.skill()
    except _RejectedError as rejected:
        error = validator.problem(rejected.fault, Severity.ERROR)
        problems = (error, *validator.warnings())
        return Parsed(skill=None, problems=problems, directory=found.directory, events=fields.events)
    return Parsed(
        skill=skill,
        problems=validator.warnings(),
        directory=found.directory,
        events=fields.events,
        key=skill.name if skill.name.isascii() else unicodedata.normalize("NFKC", skill.name),
        fields=fields,
    )


def _fields_of(found: SkillFile) -> FrontMatterFields:
    data = found.data
    split = found.parts or split_file(data)
    if split is None:
        code = model.Code.NOT_UTF8 if data.startswith(_UTF16) else model.Code.MISSING_FRONT_MATTER
        return FrontMatterFields(error=Fault(code, TOP))
    parts, glued = split
    bom = (Fault(model.Code.BOM, TOP),) if parts.bom else ()
    if not parts.closed:
        code = model.Code.UNCLOSED_FRONT_MATTER if found.whole else model.Code.FRONT_MATTER_TOO_LARGE
        return FrontMatterFields(error=Fault(code, TOP), faults=bom)
    read = _read if len(parts.front) <= _MAX_CACHED_BYTES else read_fields
    fields = read(parts.front, bom)
    if glued:
        message, hint = "Text follows on the line of the closing `---`.", "Put a line break after the `---`."
        unclosed = Fault(model.Code.UNCLOSED_FRONT_MATTER, (parts.body_line, 4), message, hint)
        fault = unclosed._replace(code=model.Code.REPAIRED_YAML)
        fields = fields._replace(strict_error=unclosed, faults=(*fields.faults, fault))
    return fields


# Keyed by content, because fresh clones of a repository have the same bytes.
_read = lru_cache(_CACHED)(read_fields)


def clear_cache() -> None:
    """Clear the cache of parsed front matter."""
    _read.cache_clear()


class _RejectedError(Exception):
    """Carries the one error of a file."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.code)
        self.fault = fault


class _Validator:
    """Validates the fields of one file: collects warnings and raises `_RejectedError` at the first error."""

    __slots__ = ("_faults", "_fields", "_found", "_rules", "_strict")

    def __init__(self, found: SkillFile, fields: FrontMatterFields, rules: ParseOptions) -> None:
        self._found = found
        self._fields = fields
        self._rules = rules
        self._strict = rules.validation is model.Validation.STRICT
        self._faults: list[Fault] = [*fields.faults]

    def skill(self) -> model.Skill:
        fields, found = self._fields, self._found
        if fields.error is not None:
            raise _RejectedError(fields.error)
        if self._strict and fields.strict_error is not None:  # then no repair is reported
            self._faults = [one for one in self._faults if one.code is not model.Code.REPAIRED_YAML]
            raise _RejectedError(fields.strict_error)
        name = self._name()
        self._texts()
        return model.Skill(
            name=name,
            description=fields.description,
            when_to_use=fields.when_to_use,
            directory=found.directory,
            path=found.path,
            priority=fields.priority,
            phases=fields.phases,
            scope=found.scope,
            root=found.root,
            for_people=None if fields.for_people is None else fields.for_people.key,
        )

    def problem(self, fault: Fault, severity: Severity | None = None) -> Problem:
        code, place, message, hint = fault
        found = self._found
        return model.problem(
            code, found.path, place, severity=severity, message=message, hint=hint, scope=found.scope
        )

    def warnings(self) -> tuple[Problem, ...]:
        """The warnings, in the order of the lines."""
        faults = sorted(self._faults, key=lambda one: one.place)
        return tuple([self.problem(one, _LENIENT.get(one.code)) for one in faults])

    def _warn(self, fault: Fault) -> None:
        """Add a warning; in the strict profile it is an error."""
        if self._strict:
            raise _RejectedError(fault)
        self._faults.append(fault)

    def _name(self) -> str:
        fields, directory = self._fields, self._found.directory
        name = fields.name
        if name is None and self._rules.name_fallback:
            name = directory
        if name is None:
            raise _RejectedError(Fault(model.Code.MISSING_NAME, fields.place("name")))
        clean = _CLEAN_NAME.fullmatch(name) is not None
        if not clean:
            name = _BLANKS.sub(" ", name.strip())
        fault = None if clean else model.name_fault(name)
        if len(name) > _MAX_ANY_NAME:
            fault = f"is longer than {_MAX_ANY_NAME} characters"
        if fault is not None:
            hint = _PATH_AS_NAME if "/" in name else None
            raise _RejectedError(
                Fault(model.Code.INVALID_NAME, fields.place("name"), f"`name` {fault}.", hint)
            )
        self._reserved(name)
        if len(name) > _MAX_NAME:
            self._warn(Fault(model.Code.NAME_TOO_LONG, fields.place("name")))
        if not clean:
            self._warn(Fault(model.Code.NAME_CHARSET, fields.place("name")))
        if name != directory and not _same(name, directory):
            self._warn(Fault(model.Code.NAME_DIR_MISMATCH, fields.place("name")))
        return name

    def _reserved(self, name: str) -> None:
        if self._rules.reserved_words:
            words = _words(name)
            if any(_words(word) in words for word in self._rules.reserved_words):
                place, message = self._fields.place("name"), "`name` contains a reserved word."
                raise _RejectedError(Fault(model.Code.INVALID_NAME, place, message))

    def _texts(self) -> None:
        fields = self._fields
        if not fields.description:
            missing = Fault(model.Code.MISSING_DESCRIPTION, fields.place("description"))
            if fields.not_text:
                message = f"`description` is {fields.not_text}, not text."
                missing = missing._replace(message=message, hint="Write it as one text.")
            if not fields.when_to_use:
                raise _RejectedError(missing)
            self._warn(missing)
        if len(fields.description) > _MAX_DESCRIPTION:
            self._warn(Fault(model.Code.DESCRIPTION_TOO_LONG, fields.place("description")))
        if not fields.when_to_use:
            self._faults.append(_NO_WHEN_TO_USE)


def _same(name: str, directory: str) -> bool:
    return unicodedata.normalize("NFKC", name) == unicodedata.normalize("NFKC", directory)


def _words(text: str) -> str:
    """The words of a name, each with a blank on both sides, so that a search finds whole words only."""
    return f" {_NO_WORD.sub(' ', text).strip().casefold()} "
