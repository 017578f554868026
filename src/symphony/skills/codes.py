"""What each code means: one fixed sentence, one fixed hint, and its severity unless a rule says otherwise."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from symphony.skills.model import Code, Problem, Scope, Severity

__all__ = ["MEANINGS", "Meaning", "problem"]


class Meaning(NamedTuple):
    """The fixed words of a code; short, because twenty of them share one comment."""

    severity: Severity
    message: str
    hint: str


_FIRST_LINE: Final = "Start the file with a `---` line; nothing may stand before it, not even a blank line."
_NAME_IT: Final = (
    "Add `name:` with the name of the directory. Codex takes that of the directory; so do we with"
    " `name_fallback: true`."
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
        "Quote values that hold a colon, indent with blanks, give each key once.",
    ),
    Code.TOO_DEEP: ("The front matter is nested too deeply.", "Keep it under 20 levels."),
    Code.ALIAS_NOT_ALLOWED: ("The front matter uses a YAML alias.", "Write the value out."),
    Code.NOT_A_MAPPING: ("The front matter is not a map.", "Write `name:` and `description:` lines."),
    Code.MISSING_NAME: ("`name` is missing.", _NAME_IT),
    Code.INVALID_NAME: ("`name` cannot be used as a name.", _RENAME),
    Code.INVALID_DIRECTORY: (
        "The directory's name cannot be shown so that the file is found.",
        "Rename it to the skill's name.",
    ),
    Code.MISSING_DESCRIPTION: ("`description` is missing or empty.", "Say in a line what the skill is for."),
    Code.DUPLICATE_NAME: (
        "`name` is already taken by another directory.",
        "Give each skill a name of its own.",
    ),
    Code.LIMIT_EXCEEDED: ("There are too many entries.", "Keep at most 2,000 skills in one directory."),
    Code.STRAY_FILE: (
        "SKILL.md lies beside the directories of skills and is not loaded.",
        "Move it into a directory of its own, or delete it.",
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
        "Put quotes around the value, or mend the line that is named here.",
    ),
    Code.BOM: ("The file starts with a byte-order mark.", "Save it without one."),
    Code.BAD_OPTIONAL_FIELD: ("An optional field has an unusual type or length.", "Correct or remove it."),
    Code.LOWERCASE_FILENAME: ("The file is not loaded because of its name.", "Rename it to SKILL.md."),
    Code.MISSING_DIRECTORY: ("The configured skills path does not exist.", "Create it, or correct the path."),
    Code.NOT_A_DIRECTORY: ("The skills path is not a directory.", "Name a directory of skills."),
    Code.NO_SKILLS: (
        "The configured skills path holds no skill.",
        "Put directories with a SKILL.md there, or correct the path.",
    ),
    Code.NESTED_TOO_DEEP: (
        "The skill is nested too deeply and is not loaded.",
        "Move its directory directly below the skills path, or name the one above it in `extra_paths`.",
    ),
    Code.FLAT_FILE: (
        "A file that lies beside the directories of skills is not loaded.",
        "Move it to SKILL.md in a directory of its name; `symphony skills import` does so.",
    ),
    Code.UNFILLED: (
        "A text that `symphony skills new` wrote still has to be filled in.",
        "Say in `description` what the skill does, and in `when_to_use` when it applies.",
    ),
    Code.UNKNOWN_SKILL: ("The configuration names a skill that is not there.", "Correct or remove the name."),
}
_INFOS: Final = {
    Code.MISSING_WHEN_TO_USE: (
        "`when_to_use` is missing; the description stands in.",
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
    """A problem with the fixed words of its code; `message` and `hint` replace them where more is known."""
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
