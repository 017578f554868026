"""The manifest of instructions: its modules, their order and their phases.

    version: "1"
    skills:
      - {name: safety, file: safety.md, priority: 10}
      - {name: review, file: review.md, priority: 60, phases: [REVIEW]}

A module without `phases` belongs to all phases. Lower priorities come first, then names. Every problem is a
value with a code, a place and a hint. No content of a file makes a function raise.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Final

from msgspec import Struct

from symphony import frontmatter
from symphony.frontmatter import FrontMatterError, FrontMatterMap, Profile
from symphony.problem import Problem, Severity
from symphony.skills.model import DEFAULT_PRIORITY, PRIORITY

MANIFEST_FILE: Final = "manifest.yaml"
MAX_MODULES: Final = 200
_VERSION: Final = "1"
_WORD: Final = re.compile(r"\w[\w-]{0,63}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_USUAL_PRIORITY: Final = str(DEFAULT_PRIORITY)
_KEYS: Final = frozenset({"version", "skills"})
_ENTRY_KEYS: Final = frozenset({"name", "file", "priority", "phases"})


class InstructionCode(StrEnum):
    """Stable names of the problems with instructions; `INSTRUCTION_MEANINGS` has their texts."""

    MISSING_MANIFEST = "missing_manifest"
    INVALID_MANIFEST = "invalid_manifest"
    UNSUPPORTED_VERSION = "unsupported_version"
    INVALID_ENTRY = "invalid_entry"
    DUPLICATE_NAME = "duplicate_name"
    OUTSIDE_DIRECTORY = "outside_directory"
    MISSING_FILE = "missing_file"
    NOT_REGULAR_FILE = "not_regular_file"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    UNAVAILABLE = "unavailable"
    DIGEST_MISMATCH = "digest_mismatch"
    UNKNOWN_KEY = "unknown_key"
    UNKNOWN_PHASE = "unknown_phase"
    UNUSED_PHASE = "unused_phase"


INSTRUCTION_MEANINGS: Final[Mapping[InstructionCode, tuple[Severity, str, str]]] = {
    InstructionCode.MISSING_MANIFEST: (
        Severity.ERROR,
        "There is no manifest.",
        "Write one with `symphony instructions init`, or correct `agent.instructions`.",
    ),
    InstructionCode.INVALID_MANIFEST: (
        Severity.ERROR,
        "The manifest cannot be used.",
        'Write `version: "1"` and a list `skills` of `{name, file, priority, phases}`.',
    ),
    InstructionCode.UNSUPPORTED_VERSION: (
        Severity.ERROR,
        "The manifest has a version that is not supported.",
        'Write `version: "1"`.',
    ),
    InstructionCode.INVALID_ENTRY: (
        Severity.ERROR,
        "An entry of the manifest cannot be used.",
        "Write `{name, file, priority, phases}`; `priority` is a whole number, `phases` a list of words.",
    ),
    InstructionCode.DUPLICATE_NAME: (
        Severity.ERROR,
        "Two modules have one name.",
        "Give each module a different name.",
    ),
    InstructionCode.OUTSIDE_DIRECTORY: (
        Severity.ERROR,
        "The file is not inside the directory of the manifest.",
        "Name a file beside the manifest, with a relative path and without `..`.",
    ),
    InstructionCode.MISSING_FILE: (
        Severity.ERROR,
        "The file of a module does not exist.",
        "Create it, or remove its entry from the manifest.",
    ),
    InstructionCode.NOT_REGULAR_FILE: (
        Severity.ERROR,
        "It is not a regular file.",
        "Replace it by a plain file.",
    ),
    InstructionCode.UNREADABLE: (Severity.ERROR, "The file cannot be read.", "Check its permissions."),
    InstructionCode.TOO_LARGE: (
        Severity.ERROR,
        "The file is too large.",
        "Keep a file under 64 KiB, and 200 modules under 1 MiB.",
    ),
    InstructionCode.NOT_UTF8: (Severity.ERROR, "The file is not UTF-8.", "Save it as UTF-8."),
    InstructionCode.UNAVAILABLE: (
        Severity.ERROR,
        "The source did not answer with the instructions.",
        "Open the address in a browser; correct `agent.instructions.url` or the server.",
    ),
    InstructionCode.DIGEST_MISMATCH: (
        Severity.ERROR,
        "The instructions do not match `agent.instructions.sha256`.",
        "Read the change, then write the new digest; `symphony instructions list` shows it.",
    ),
    InstructionCode.UNKNOWN_KEY: (Severity.WARNING, "A key has no meaning here.", "Correct or remove it."),
    InstructionCode.UNKNOWN_PHASE: (
        Severity.WARNING,
        "A module is for a phase that no issue can have.",
        "Correct the phase, or add it to `agent.phases`.",
    ),
    InstructionCode.UNUSED_PHASE: (
        Severity.WARNING,
        "No module is for this phase alone or among others.",
        "Add a module for it, or remove the phase from `agent.phases`.",
    ),
}


def instruction_problem(
    code: InstructionCode,
    path: str,
    line: int | None = None,
    *,
    message: str | None = None,
) -> Problem:
    """A problem with the texts of its code; `message` replaces the message."""
    severity, usual, hint = INSTRUCTION_MEANINGS[code]
    return Problem(
        path=path,
        line=line,
        column=None,
        severity=severity,
        code=code,
        message=message or usual,
        hint=hint,
    )


def is_phase(text: str) -> bool:
    """Whether the text can name a phase: one word of at most 64 letters, digits, `_` and `-`."""
    return _WORD.fullmatch(text) is not None


def has_phase(phases: Collection[str], phase: str | None) -> bool:
    """Whether `phases` contain `phase`, ignoring case.

    Empty `phases` mean every phase, and without a `phase` the answer is true.
    """
    return not phases or phase is None or phase.casefold() in map(str.casefold, phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One module in a manifest.

    Attributes:
        name: unique in the manifest.
        file: relative to the manifest, with `/`, without `..`.
        priority: lower numbers come first.
        phases: the phases that it is for, as written; empty for all.
        line: the 1-based line of the entry.
    """

    name: str
    file: str
    priority: int = DEFAULT_PRIORITY
    phases: tuple[str, ...] = ()
    line: int = 1


class Manifest(Struct, frozen=True, kw_only=True):
    """A parsed manifest.

    Attributes:
        entries: the valid ones, sorted by (priority, name).
        problems: in the order of lines.
    """

    entries: tuple[ManifestEntry, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The manifest and the files of the modules, each once, sorted."""
        return tuple(sorted({MANIFEST_FILE, *(entry.file for entry in self.entries)}))

    @classmethod
    def parse(cls, data: bytes, path: str = MANIFEST_FILE) -> "Manifest":
        """Parse a manifest; `path` is the name of the file in problems. Never raises."""
        try:
            document = frontmatter.load(data, profile=Profile.TEXT, first_line=1)
        except FrontMatterError as error:
            code = InstructionCode.INVALID_MANIFEST
            message = f"The manifest cannot be read: {error.message}."
            return cls(problems=(instruction_problem(code, path, error.line, message=message),))
        reader = _Reader(document, path)
        entries = tuple(sorted(reader.entries(), key=lambda entry: (entry.priority, entry.name)))
        return cls(entries=entries, problems=tuple(reader.problems))


class _Reader:
    """Reads the entries of a document and collects problems."""

    def __init__(self, document: FrontMatterMap, path: str) -> None:
        self._document = document
        self._path = path
        self.problems: list[Problem] = []

    def entries(self) -> Iterator[ManifestEntry]:
        value = self._document.value
        self._report_unknown(value, _KEYS, ())
        if value.get("version") != _VERSION:
            self._report(InstructionCode.UNSUPPORTED_VERSION, ("version",))
            return
        skills = value.get("skills")
        if not isinstance(skills, list) or not skills:
            message = "`skills` is not a list of modules."
            self._report(InstructionCode.INVALID_MANIFEST, ("skills",), message)
            return
        if len(skills) > MAX_MODULES:
            self._report(
                InstructionCode.TOO_LARGE, ("skills",), f"There are more than {MAX_MODULES} modules."
            )
            return
        names = set[str]()
        for index, item in enumerate(skills):
            entry = self._entry(item, ("skills", index))
            if entry is None:
                continue
            if entry.name.casefold() in names:
                self._report(InstructionCode.DUPLICATE_NAME, ("skills", index))
                continue
            names.add(entry.name.casefold())
            yield entry

    def _entry(self, item: Any, at: tuple[str | int, ...]) -> ManifestEntry | None:
        """The entry, or `None` with a problem."""
        if not isinstance(item, dict):
            self._report(InstructionCode.INVALID_ENTRY, at, "The entry is not a map.")
            return None
        self._report_unknown(item, _ENTRY_KEYS, at)
        name, file, phases = item.get("name"), item.get("file"), item.get("phases") or []
        priority = _USUAL_PRIORITY if item.get("priority") is None else item["priority"]
        phases = phases.replace(",", " ").split() if isinstance(phases, str) else phases
        code, message = InstructionCode.INVALID_ENTRY, None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            key, message = "name", "`name` is not 1 to 64 letters, digits, `_`, `.` and `-`."
        elif not isinstance(file, str) or not file.isprintable():
            key, message = "file", "`file` is not the path of a file."
        elif not _is_inside(PurePosixPath(file)):
            key, code = "file", InstructionCode.OUTSIDE_DIRECTORY
        elif not isinstance(priority, str) or not PRIORITY.fullmatch(priority):
            key, message = "priority", "`priority` is not a whole number."
        elif not isinstance(phases, list) or not all(
            isinstance(one, str) and is_phase(one) for one in phases
        ):
            key, message = "phases", "`phases` is not a list of words."
        else:
            return ManifestEntry(
                name=name,
                file=PurePosixPath(file).as_posix(),
                priority=int(priority),
                phases=tuple(phases),
                line=self._line(at),
            )
        self._report(code, (*at, key), message)
        return None

    def _report_unknown(
        self, value: Mapping[str, Any], known: Collection[str], at: tuple[str | int, ...]
    ) -> None:
        for key in value:
            if key not in known:
                self._report(InstructionCode.UNKNOWN_KEY, (*at, key))

    def _report(self, code: InstructionCode, at: tuple[str | int, ...], message: str | None = None) -> None:
        self.problems.append(instruction_problem(code, self._path, self._line(at), message=message))

    def _line(self, at: tuple[str | int, ...]) -> int:
        """The line of a value, or of the nearest enclosing one."""
        positions = self._document.positions
        return next((positions[at[:end]][0] for end in range(len(at), 0, -1) if at[:end] in positions), 1)


def _is_inside(path: PurePosixPath) -> bool:
    return bool(path.parts) and not path.is_absolute() and {"..", ".git"}.isdisjoint(path.parts)
