"""Skills, problems and options, and functions that make untrusted text safe to show."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

from symphony.characters import SHAPING, SILENT
from symphony.problem import Problem, Severity

# --- Text of a repository, made safe for one line of a prompt ---

MAX_FIELD: Final = 1_024

# Control characters other than white space; invisible characters that only affect the display (bidirectional
# marks, fillers, tags, soft hyphen, zero-width space); surrogates and non-characters. The joiners of Indic
# and Arabic scripts and of emoji are part of the text and stay, as do visible format characters.
_SILENT: Final = re.compile(
    f"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f{SILENT}\ud800-\udfff\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]+"
)
# One joiner or variation selector (in emoji two) changes the character before it; longer runs hide words.
_SHAPING_RUN: Final = re.compile(f"([{SHAPING}]{{2}})[{SHAPING}]+")
_BLANKS: Final = re.compile(r"\s+")
_TAG: Final = re.compile(r"<(?=[^\W\d_]|[/!])")

# Kept in texts, but invisible alone: joiners, selectors, the Braille blank, a headless note.
_UNSEEN: Final = re.compile(f"[{SHAPING}\u2800\U0001d159]")
_LOOKS_LIKE_CATALOG: Final = re.compile(r" — |\((?:directory|file): |&lt;")
# Starts a Markdown block in a list item: heading, quotation, table, fence, list, rule or link definition.
_OPENS_A_BLOCK: Final = re.compile(
    r"[#>|]|```|~~~|[-+*](?:\s|\Z)|\d{1,9}[.)](?:\s|\Z)|(?:[-*_]\s*){3,}\Z|\[[^\]]*\]:"
)
_XML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})


def one_line(text: str) -> str:
    """At most 1,024 characters on one line, without tags and characters that only affect the display.

    Text of every script stays intact. A longer text ends in an ellipsis. It is shortened before `<` is
    escaped, so that no escape is cut.
    """
    return escape(shorten(clean(text), MAX_FIELD))


def clean(text: str) -> str:
    """The text on one line, without characters that only affect the display."""
    if text.isascii() and text.isprintable():  # the common case; only spaces can be superfluous
        return " ".join(text.split())
    return _BLANKS.sub(" ", without_invisible(text)).strip()


def without_invisible(text: str) -> str:
    """The text with its lines, without control characters and those that only affect the display."""
    return _SHAPING_RUN.sub(r"\1", _SILENT.sub("", text))


def shorten(line: str, limit: int) -> str:
    """The line; one of more than `limit` characters is cut and ends in an ellipsis."""
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def escape(line: str) -> str:
    """The line with every `<` that could start a tag escaped."""
    return _TAG.sub("&lt;", line) if "<" in line else line


def escape_xml(line: str) -> str:
    """The line as the content of an XML element or attribute."""
    return line.translate(_XML)


def is_visible(text: str) -> bool:
    """Whether the text has a visible character."""
    if text.isascii() and text.isprintable():  # the common case
        return bool(text.strip())
    return any(unicodedata.category(one)[0] in "LNPS" for one in _UNSEEN.sub("", _SILENT.sub("", text)))


def is_plain(text: str) -> bool:
    """Whether the catalog can show the text unambiguously and, except for `<`, unchanged."""
    return (
        clean(text) == text
        and is_visible(text)
        and not _UNSEEN.search(text)
        and not _LOOKS_LIKE_CATALOG.search(text)
    )


def name_fault(text: str) -> str | None:
    """Why the text cannot be a name in the catalog, as a phrase; `None` if it can."""
    if not text.strip():
        return "is empty, or is no text"
    if any(one in text for one in "/\\") or text in {".", ".."}:
        return "is a path"
    if (found := _LOOKS_LIKE_CATALOG.search(text)) is not None:
        return f"holds `{found[0].strip()}`, with which the list of skills separates a name from what follows"
    if _OPENS_A_BLOCK.match(text):
        return "begins like a heading, a list or another block of Markdown"
    return None if is_plain(text) else "has characters that are not seen"


DEFAULT_PATH: Final = ".symphony/skills"
DEFAULT_USER_PATH: Final = "~/.symphony/skills"
DEFAULT_PRIORITY: Final = 50
PRIORITY: Final = re.compile(r"[-+]?[0-9]{1,9}")
FILE_NAME: Final = "SKILL.md"
ACTIVATE_TOOL: Final = "activate_skill"
SEARCH_TOOL: Final = "skill_search"


class Scope(StrEnum):
    """Where a skill comes from. If two skills have one name, the one of the earlier scope wins."""

    PROJECT = "project"
    USER = "user"
    EXTRA = "extra"
    LIBRARY = "library"


class Validation(StrEnum):
    """How much a file may differ from the Agent Skills format and still be loaded."""

    LENIENT = "lenient"
    STRICT = "strict"


class Format(StrEnum):
    """Format of the catalog: names with one text each, a list with all fields, or XML with all fields."""

    COMPACT = "compact"
    FULL = "full"
    XML = "xml"


class ActivationMode(StrEnum):
    """How a session reads a skill's body: with its own file tool, or with the tool `activate_skill`."""

    READ = "read"
    TOOL = "tool"


class Incomplete(StrEnum):
    """The limit that ended loading: the number of skills, their total size, or the time."""

    COUNT = "count"
    SIZE = "size"
    TIME = "time"


class Code(StrEnum):
    """Stable names of all problems; `MEANINGS` has their texts."""

    NOT_REGULAR_FILE = "not_regular_file"
    OUTSIDE_WORKSPACE = "outside_workspace"
    UNREADABLE = "unreadable"
    NOT_UTF8 = "not_utf8"
    MISSING_FRONT_MATTER = "missing_front_matter"
    UNCLOSED_FRONT_MATTER = "unclosed_front_matter"
    FRONT_MATTER_TOO_LARGE = "front_matter_too_large"
    INVALID_YAML = "invalid_yaml"
    TOO_DEEP = "too_deep"
    ALIAS_NOT_ALLOWED = "alias_not_allowed"
    NOT_A_MAPPING = "not_a_mapping"
    MISSING_NAME = "missing_name"
    INVALID_NAME = "invalid_name"
    INVALID_DIRECTORY = "invalid_directory"
    MISSING_DESCRIPTION = "missing_description"
    DUPLICATE_NAME = "duplicate_name"
    LIMIT_EXCEEDED = "limit_exceeded"
    STRAY_FILE = "stray_file"
    DANGLING_LINK = "dangling_link"
    NAME_DIR_MISMATCH = "name_dir_mismatch"
    NAME_CHARSET = "name_charset"
    NAME_TOO_LONG = "name_too_long"
    DESCRIPTION_TOO_LONG = "description_too_long"
    REPAIRED_YAML = "repaired_yaml"
    BOM = "bom"
    BAD_OPTIONAL_FIELD = "bad_optional_field"
    LOWERCASE_FILENAME = "lowercase_filename"
    MISSING_DIRECTORY = "missing_directory"
    NOT_A_DIRECTORY = "not_a_directory"
    NO_SKILLS = "no_skills"
    NESTED_TOO_DEEP = "nested_too_deep"
    FLAT_FILE = "flat_file"
    UNFILLED = "unfilled"
    UNKNOWN_SKILL = "unknown_skill"
    MISSING_WHEN_TO_USE = "missing_when_to_use"


class Skill(Struct, frozen=True, kw_only=True):
    """One usable skill, without its body.

    Attributes:
        name, description, when_to_use: untrusted text of the file, trimmed; one of the last two may be empty.
        directory: the name of the directory with the file.
        path: the path of the SKILL.md, as `Problem.path`.
        priority: lower numbers are listed first.
        phases: phases of the work that the skill is for, as in the file; empty for all.
        root: the absolute directory of the skill directories; `None` if it is `SkillSet.root`.
        learned: an agent wrote it, so that it is listed last.
        for_people: the key that reserves it for people, with the file of the key if it is not the SKILL.md;
            `None` if agents may use it by themselves.
    """

    name: str
    description: str
    when_to_use: str
    directory: str
    path: str
    priority: int = DEFAULT_PRIORITY
    phases: tuple[str, ...] = ()
    scope: Scope = Scope.PROJECT
    root: Path | None = None
    learned: bool = False
    for_people: str | None = None

    def is_for(self, phase: str | None) -> bool:
        """Whether the skill is for this phase, in any case of letters; `None` is every phase."""
        return phase is None or not self.phases or phase.lower() in map(str.lower, self.phases)

    @property
    def text(self) -> str:
        """The text for the catalog: `when_to_use`, or the description if that is blank."""
        return self.when_to_use if self.when_to_use.strip() else self.description


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """One existing directory of skills.

    Attributes:
        path: as configured.
        directory: the absolute directory of the skill directories, as the catalog names it.
    """

    scope: Scope
    path: str
    directory: Path


class Shadowed(Struct, frozen=True, kw_only=True):
    """A usable skill hidden by a skill of the same name in an earlier root.

    Attributes:
        by: the path of the skill that hides it.
    """

    name: str
    path: str
    scope: Scope
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSet:
    """The skills of a workspace, of all its roots.

    Attributes:
        root: the absolute root of the scope `project`.
        skills: sorted by (learned, priority, name, directory), including those that the options hide from the
            catalog.
        problems: in the order of roots, directories and lines.
        roots: the existing ones, in the order of precedence.
        shadowed: in the order of roots and directories.
        incomplete: the limit that ended loading; `None` if everything was read.
    """

    root: Path
    skills: tuple[Skill, ...] = ()
    problems: tuple[Problem, ...] = ()
    roots: tuple[Root, ...] = ()
    shadowed: tuple[Shadowed, ...] = ()
    incomplete: Incomplete | None = None

    def file(self, skill: Skill) -> Path:
        """The absolute path of a skill's SKILL.md, as the catalog names it."""
        return (skill.root or self.root) / skill.directory / FILE_NAME


class LibraryFiles(Struct, frozen=True, kw_only=True):
    """The skills of the library in a workspace.

    Attributes:
        base: the workspace; no link may lead out of it.
        path: the directory with the skills, relative to it.
        names: the skills; everything else in the directory belongs to the repository.
        learned: the skills that an agent wrote.
        named: named in the catalog instead of `base`, if the agent will see the files there.
    """

    base: Path
    path: str
    names: frozenset[str]
    learned: frozenset[str] = frozenset()
    named: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillOptions:
    """The settings `agent.skills` of WORKFLOW.md.

    Attributes:
        path: relative to the workspace; a directory of skills, or one skill.
        max_skills_in_prompt: maximum number of entries in the catalog.
        enabled: if false, nothing is read or listed.
        user_path: roots outside the workspace, absolute or below `~`, in the order of precedence.
        extra_paths: further roots, relative to the workspace, in the order of precedence.
        max_prompt_chars: maximum length of the catalog.
        name_fallback: use the name of the directory if `name` is missing.
        reserved_words: words that no name may contain, in any case.
        include: exact names to list; empty for all.
        disabled_skills: exact names to hide; their problems are not reported.
        activation: how a session reads the body of a skill.
        search_above: with more skills than this, the catalog lists none and the session searches.
        library: the skills of the library, which have the last place in the order of precedence.
        phase: the phase of the work; the catalog leaves out skills for other phases; `None` for all.
        for_people: also offer skills that are reserved for people.
        labelled: names, in lower case, of skills that labels of the issue call for; they are always offered.
    """

    path: str = DEFAULT_PATH
    max_skills_in_prompt: int = 50
    enabled: bool = True
    user_path: str | tuple[str, ...] | None = None
    extra_paths: tuple[str, ...] = ()
    max_prompt_chars: int = 8_000
    format: Format = Format.COMPACT
    validation: Validation = Validation.LENIENT
    name_fallback: bool = False
    reserved_words: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    disabled_skills: tuple[str, ...] = ()
    activation: ActivationMode = ActivationMode.READ
    search_above: int | None = None
    library: LibraryFiles | None = None
    phase: str | None = None
    for_people: bool = False
    labelled: frozenset[str] = frozenset()

    def hides(self, skill: Skill) -> bool:
        """Whether the skill is reserved for people and no person called for it."""
        return (
            skill.for_people is not None and not self.for_people and skill.name.lower() not in self.labelled
        )

    @property
    def user_paths(self) -> tuple[str, ...]:
        """`user_path` as a tuple."""
        if self.user_path is None:
            return ()
        return (self.user_path,) if isinstance(self.user_path, str) else self.user_path


# --- Severity, message and hint of each code ---


class Meaning(NamedTuple):
    """The texts of a code; short, because one comment contains up to twenty of them."""

    severity: Severity
    message: str
    hint: str


_FIRST_LINE: Final = "Start the file with a `---` line; nothing may stand before it, not even a blank line."
_NAME_IT: Final = (
    "Add `name:` with the name of the directory. Codex uses that name by itself; with"
    " `agent.skills.name_fallback: true` Symphony does too."
)
_RENAME: Final = "Use lower-case letters, digits and single hyphens, 64 characters at most."

_ERRORS: Final = {
    Code.NOT_REGULAR_FILE: ("SKILL.md is not a regular file.", "Replace it by a plain file."),
    Code.OUTSIDE_WORKSPACE: (
        "The path leads out of the workspace.",
        "Keep skills, and what links point to, inside the repository.",
    ),
    Code.UNREADABLE: ("The file or directory cannot be read.", "Check its permissions."),
    Code.NOT_UTF8: ("The front matter is not UTF-8.", "Save the file as UTF-8."),
    Code.MISSING_FRONT_MATTER: ("There is no front matter.", _FIRST_LINE),
    Code.UNCLOSED_FRONT_MATTER: ("The front matter is not closed.", "End it with a `---` line."),
    Code.FRONT_MATTER_TOO_LARGE: (
        "The front matter is too large.",
        "Keep it under 64 KiB and 2,000 values; long text belongs below it.",
    ),
    Code.INVALID_YAML: (
        "The front matter is not valid YAML.",
        "Quote values that contain a colon, indent with spaces, and write each key once.",
    ),
    Code.TOO_DEEP: ("The front matter is nested too deeply.", "Keep it under 20 levels."),
    Code.ALIAS_NOT_ALLOWED: ("The front matter uses a YAML alias.", "Write the value out."),
    Code.NOT_A_MAPPING: ("The front matter is not a map.", "Write `name:` and `description:` lines."),
    Code.MISSING_NAME: ("`name` is missing.", _NAME_IT),
    Code.INVALID_NAME: ("`name` cannot be used as a name.", _RENAME),
    Code.INVALID_DIRECTORY: (
        "The directory's name cannot be shown in a way that leads to the file.",
        "Rename it to the skill's name.",
    ),
    Code.MISSING_DESCRIPTION: (
        "`description` is missing or empty.",
        "Write one line that says what the skill is for.",
    ),
    Code.DUPLICATE_NAME: (
        "`name` is already taken by another directory.",
        "Give each skill a different name.",
    ),
    Code.LIMIT_EXCEEDED: ("There are too many entries.", "Keep at most 2,000 skills in one directory."),
    Code.STRAY_FILE: (
        "SKILL.md is beside the directories of skills and is not loaded.",
        "Move it into its own directory, or delete it.",
    ),
}
_WARNINGS: Final = {
    Code.NAME_DIR_MISMATCH: ("`name` differs from the directory's name.", "Make them equal."),
    Code.NAME_CHARSET: ("`name` has unusual characters.", _RENAME),
    Code.NAME_TOO_LONG: ("`name` is longer than 64 characters.", _RENAME),
    Code.DESCRIPTION_TOO_LONG: (
        "`description` is longer than 1,024 characters.",
        "Shorten it; details belong below the front matter.",
    ),
    Code.REPAIRED_YAML: (
        "The front matter was not valid YAML; it could be repaired.",
        "Put quotes around the value, or fix the line that is named here.",
    ),
    Code.BOM: ("The file starts with a byte-order mark.", "Save it without one."),
    Code.BAD_OPTIONAL_FIELD: ("An optional field has an unusual type or length.", "Correct or remove it."),
    Code.LOWERCASE_FILENAME: ("The file is not loaded because of its name.", "Rename it to SKILL.md."),
    Code.DANGLING_LINK: (
        "A link leads to nothing here, so no skill is loaded.",
        "Correct or remove it. Its target must be committed as well.",
    ),
    Code.MISSING_DIRECTORY: ("The configured skills path does not exist.", "Create it, or correct the path."),
    Code.NOT_A_DIRECTORY: ("The skills path is not a directory.", "Name a directory of skills."),
    Code.NO_SKILLS: (
        "The configured skills path has no skill.",
        "Put directories with a SKILL.md there, or correct the path.",
    ),
    Code.NESTED_TOO_DEEP: (
        "The skill is nested too deeply and is not loaded.",
        "Move its directory directly below the skills path, or name the one above it in `extra_paths`.",
    ),
    Code.FLAT_FILE: (
        "A file beside the directories of skills is not loaded.",
        "Move it to SKILL.md in a directory of its name.",
    ),
    Code.UNFILLED: (
        "A text that `symphony skills new` wrote still has to be filled in.",
        "Describe in `description` what the skill does, and in `when_to_use` when it applies.",
    ),
    Code.UNKNOWN_SKILL: (
        "The configuration names a skill that does not exist.",
        "Correct or remove the name.",
    ),
}
_INFOS: Final = {
    Code.MISSING_WHEN_TO_USE: (
        "`when_to_use` is missing; the description is used instead.",
        "Add one line that says when the skill applies.",
    ),
}

MEANINGS: Final[Mapping[Code, Meaning]] = MappingProxyType(
    {
        code: Meaning(severity, *words)
        for severity, table in (
            (Severity.ERROR, _ERRORS),
            (Severity.WARNING, _WARNINGS),
            (Severity.INFO, _INFOS),
        )
        for code, words in table.items()
    }
)


def problem(
    code: Code,
    path: str,
    place: tuple[int, int] | None = None,
    *,
    severity: Severity | None = None,
    message: str | None = None,
    hint: str | None = None,
    scope: Scope = Scope.PROJECT,
) -> Problem:
    """A problem with the texts of its code, unless `message` or `hint` replaces them."""
    meaning = MEANINGS[code]
    line, column = (None, None) if place is None else place
    return Problem(
        path=path,
        severity=severity or meaning.severity,
        code=code,
        line=line,
        column=column,
        message=message or meaning.message,
        hint=hint or meaning.hint,
        scope=scope,
    )
