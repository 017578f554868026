"""The vocabulary of skills: what a skill is, what can be wrong with one, and what a caller chooses."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

__all__ = [
    "ACTIVATE_TOOL",
    "DEFAULT_PATH",
    "DEFAULT_PRIORITY",
    "DEFAULT_USER_PATH",
    "FILE_NAME",
    "SEARCH_TOOL",
    "ActivationMode",
    "Code",
    "Format",
    "Incomplete",
    "Problem",
    "Root",
    "Scope",
    "Severity",
    "Shadowed",
    "Skill",
    "SkillOptions",
    "SkillSet",
    "Validation",
]

DEFAULT_PATH: Final = ".symphony/skills"
DEFAULT_USER_PATH: Final = "~/.symphony/skills"
DEFAULT_PRIORITY: Final = 50
FILE_NAME: Final = "SKILL.md"
ACTIVATE_TOOL: Final = "activate_skill"
SEARCH_TOOL: Final = "skill_search"


class Scope(StrEnum):
    """Where a skill comes from; of two with one name the earlier scope wins."""

    PROJECT = "project"
    USER = "user"
    EXTRA = "extra"


class Validation(StrEnum):
    """How much a file may differ from the Agent Skills format and still be loaded."""

    LENIENT = "lenient"
    STRICT = "strict"


class Format(StrEnum):
    """How the catalog is written: name and one text, everything in a list, or everything as XML."""

    COMPACT = "compact"
    FULL = "full"
    XML = "xml"


class ActivationMode(StrEnum):
    """How a session gets at a skill's body: its own file tool, or the tool `activate_skill`."""

    READ = "read"
    TOOL = "tool"


class Severity(StrEnum):
    """How much a problem matters: an error leaves the skill out, a warning and an info do not."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Incomplete(StrEnum):
    """Why some skills were not read: there are too many, they are too large together, or time was up."""

    COUNT = "count"
    SIZE = "size"
    TIME = "time"


class Code(StrEnum):
    """Every problem by its stable name; `symphony.skills.codes` says what each one means."""

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


class Problem(Struct, frozen=True, kw_only=True):
    """Something a person should know about one file; holds no text of that file.

    Attributes:
        path: relative to the workspace, with `/`; of the user's scope, below `user_path` as it is configured.
            It is untrusted text.
        line: 1-based, or null where the problem is not inside the file; likewise `column`.
        hint: what to do next.
        scope: whose file it is; those of the user are nothing for a comment on an issue.
    """

    path: str
    severity: Severity
    code: Code
    line: int | None
    column: int | None
    message: str
    hint: str
    scope: Scope = Scope.PROJECT


class Skill(Struct, frozen=True, kw_only=True):
    """One usable skill; its body is never loaded.

    Attributes:
        name, description, when_to_use: untrusted text of the file, trimmed; one of the last two may be empty.
        directory: the name of the directory that holds the file.
        path: of the SKILL.md, as `Problem.path`.
        priority: a lower one is listed earlier.
        phases: of the work, for which the skill is meant, as the file writes them; empty for all of them.
        root: absolute, the directory of skill directories; null where it is that of the set.
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

    @property
    def text(self) -> str:
        """What the catalog says about the skill: `when_to_use`, or the description where that is blank."""
        return self.when_to_use if self.when_to_use.strip() else self.description


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """One directory of skills that was there.

    Attributes:
        path: as it is configured.
        directory: absolute, that of the skill directories, as the catalog names it.
    """

    scope: Scope
    path: str
    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadowed:
    """A usable skill that stands back, because an earlier root has one of its name.

    Attributes:
        by: the path of the skill that is listed instead.
    """

    name: str
    path: str
    scope: Scope
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSet:
    """The skills of a workspace, of all its roots.

    Attributes:
        root: absolute, that of the project's own scope.
        skills: sorted by (priority, name, directory); also those that the options leave out of the catalog.
        problems: in the order of roots and directories, of one file in the order of its lines.
        roots: those that exist, in the order of precedence.
        shadowed: in the order of roots and directories.
        incomplete: why there may be more skills than these; null where everything was looked at.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillOptions:
    """What the operator chooses, `agent.skills` of WORKFLOW.md.

    Attributes:
        path: relative to the workspace; a directory of skills, or one skill.
        max_skills_in_prompt: how many entries the catalog has at most.
        enabled: off means that nothing is listed, opened or rendered.
        user_path: roots outside of the workspace, absolute or below `~`, in the order of precedence.
        extra_paths: further roots, relative to the workspace, in the order of precedence.
        max_prompt_chars: how many characters the catalog has at most.
        name_fallback: a missing name is that of the directory.
        reserved_words: words that no name may contain, in whatever case.
        include: exact names to keep; empty for all.
        disabled_skills: exact names to leave out; their problems are nobody's concern.
        activation: how a session gets at the body of a skill.
        search_above: with more skills than this the catalog lists none, and the session searches; null never.
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

    @property
    def user_paths(self) -> tuple[str, ...]:
        """`user_path` as a list, whether it is one, a single path or none."""
        if self.user_path is None:
            return ()
        return (self.user_path,) if isinstance(self.user_path, str) else self.user_path
