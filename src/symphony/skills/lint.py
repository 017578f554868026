"""Formats problems for terminals and as GitHub annotations, and finds skills that are not loaded."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from symphony.skills.exchange import is_unfilled, places_of_skills
from symphony.skills.loader import SkillRoot, sources
from symphony.skills.model import (
    FILE_NAME,
    Code,
    Problem,
    Scope,
    Severity,
    SkillOptions,
    SkillSet,
    clean,
    problem,
)

# --- Files that look like skills but are not loaded; only checks look for them ---

_NO_SKILLS: Final = frozenset({"readme.md", "index.md"})


def with_advice(workspace: Path, options: SkillOptions, skill_set: SkillSet) -> SkillSet:
    """The set with more problems: flat files, nested skills, and unfilled texts of `symphony skills new`.

    A default directory that is a link to nothing is told too; loading does not look at it twice.

    Blocks on the file system, at most as long as an import looks for skills. Never raises.
    """
    more: list[Problem] = []
    known = {one.path for one in skill_set.problems} | {one.path for one in skill_set.shadowed}
    known |= {one.path for one in skill_set.skills}
    for source in sources(workspace, options, None):
        if isinstance(source, SkillRoot):
            if source.optional and source.is_dangling():
                more.append(problem(Code.DANGLING_LINK, source.path(), scope=source.scope))
            more += (one for one in _misplaced(source) if one.path not in known)
    more += (
        problem(Code.UNFILLED, skill.path, scope=skill.scope)
        for skill in skill_set.skills
        if is_unfilled(skill.name, skill.description, skill.when_to_use)
        and skill.name not in options.disabled_skills
    )
    return replace(skill_set, problems=(*skill_set.problems, *more))


def _misplaced(source: SkillRoot) -> Iterator[Problem]:
    for parts, flat in places_of_skills(source.base, source.parts):
        below = parts[len(source.parts) :]
        if any(part.startswith(".") for part in below):
            continue
        if flat and len(below) == 1 and below[0].lower() not in _NO_SKILLS:
            yield problem(Code.FLAT_FILE, source.path(*below), scope=source.scope)
        elif not flat and len(below) > 1:
            yield problem(Code.NESTED_TOO_DEEP, source.path(*below, FILE_NAME), scope=source.scope)


# --- Output ---

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def is_failure(problems: Iterable[Problem], *, strict: bool) -> bool:
    """Whether a check fails: an error does, and with `strict` a warning as well."""
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    return any(one.severity in failing for one in problems)


def text_lines(problems: Iterable[Problem], below: str) -> Iterator[str]:
    """`path:line:column: severity code message hint`; `below` is the path of the workspace."""
    for one in problems:
        place = f"{one.line or 1}:{one.column or 1}"
        words = f"{one.severity.value} {one.code.value} {one.message} {one.hint}"
        yield clean(f"{_path(one, below)}:{place}: {words}")


def github_lines(problems: Iterable[Problem], below: str) -> Iterator[str]:
    """GitHub workflow commands, which become annotations of a pull request."""
    for one in problems:
        facts = {
            "file": _path(one, below),
            "line": str(one.line or 1),
            "col": str(one.column or 1),
            "title": one.code.value,
        }
        properties = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in facts.items())
        yield f"::{_LEVELS[one.severity]} {properties}::{_escaped(f'{one.message} {one.hint}')}"


def summary(skill_set: SkillSet) -> str:
    """The numbers of skills, errors and warnings."""
    severities = [one.severity for one in skill_set.problems]
    counts = [len(skill_set.skills), severities.count(Severity.ERROR), severities.count(Severity.WARNING)]
    words = zip(counts, ("skill", "error", "warning"), strict=True)
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in words)


def _path(problem: Problem, below: str) -> str:
    return problem.path if problem.scope is Scope.USER else (PurePosixPath(below) / problem.path).as_posix()


def _escaped(text: str, also: str = "") -> str:
    """Escape untrusted text, so that it cannot start another workflow command."""
    for character in f"%\r\n{also}":
        text = text.replace(character, f"%{ord(character):02X}")
    return clean(text)
