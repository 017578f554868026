"""The vocabulary of skills: what a skill is, what can be wrong with one, and what a caller chooses."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

__all__ = ["DEFAULT_PATH", "FILE_NAME", "Code", "Problem", "Severity", "Skill", "SkillOptions", "SkillSet"]

DEFAULT_PATH: Final = ".symphony/skills"
FILE_NAME: Final = "SKILL.md"


class Severity(StrEnum):
    """How much a problem matters: an error leaves the skill out, a warning and an info do not."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


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
    MISSING_DESCRIPTION = "missing_description"
    DUPLICATE_NAME = "duplicate_name"
    LIMIT_EXCEEDED = "limit_exceeded"
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
    MISSING_WHEN_TO_USE = "missing_when_to_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something a person should know about one file; holds no text of that file.

    Attributes:
        path: relative to the workspace, with `/`. It is untrusted text.
        line: 1-based, or null where the problem is not inside the file; likewise `column`.
        hint: what to do next.
    """

    path: str
    severity: Severity
    code: Code
    line: int | None
    column: int | None
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One usable skill; its body is never loaded.

    Attributes:
        name, description, when_to_use: untrusted text of the file, trimmed; one of the last two may be empty.
        directory: the name of the directory that holds the file.
        path: of the SKILL.md, relative to the workspace, with `/`.
        priority: a lower one is listed earlier.
    """

    name: str
    description: str
    when_to_use: str
    directory: str
    path: str
    priority: int = 50

    @property
    def text(self) -> str:
        """What the catalog says about the skill: `when_to_use`, or the description where that is blank."""
        return self.when_to_use if self.when_to_use.strip() else self.description


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSet:
    """The skills of one root.

    Attributes:
        root: absolute; a skill's file is `<root>/<directory>/SKILL.md`.
        skills: sorted by (priority, name, directory).
        problems: in the order of the directories.
    """

    root: Path
    skills: tuple[Skill, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillOptions:
    """What the operator chooses, `agent.skills` of WORKFLOW.md.

    Attributes:
        path: relative to the workspace; a directory of skills, or one skill.
        max_skills_in_prompt: how many entries the catalog has at most.
        enabled: off means that nothing is listed, opened or rendered.
    """

    path: str = DEFAULT_PATH
    max_skills_in_prompt: int = 50
    enabled: bool = True
