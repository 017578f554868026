"""Finds skills that are not loaded, and formats problems for terminals and as GitHub annotations."""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from symphony.problem import Problem, Severity
from symphony.skills.exchange import is_unfilled, places_of_skills
from symphony.skills.loader import RootReader, sources
from symphony.skills.model import (
    FILE_NAME,
    Code,
    Scope,
    SkillOptions,
    SkillSet,
    clean,
    one_line,
    problem,
)

_FOLDERS: Final = ("skills", "skill")
_NOT_LOOKED_AT: Final = frozenset({".git", ".venv"})
_MAX_ENTRIES: Final = 2_000


class FolderElsewhere(NamedTuple):
    """A folder with skills that are not loaded: its path below the workspace, and their number."""

    path: str
    skills: int


def skills_elsewhere(
    workspace: Path, options: SkillOptions, found: SkillSet, listed: Collection[str] = ()
) -> tuple[FolderElsewhere, ...]:
    """The folders with skills that sessions do not see: `skills`, and `skills` in each hidden directory.

    Blocks on the file system; never raises. Left out are folders whose skills are all loaded (through a link
    or from another folder) and folders that lead out of the workspace.

    Args:
        workspace: the repository.
        options: the options with which `found` was loaded.
        found: the loaded skills.
        listed: folders below the workspace that the agent lists itself.
    """
    base = Path(os.path.realpath(workspace))
    seen = {os.path.realpath(workspace / path) for path in (options.path, *options.extra_paths, *listed)}
    loaded = {os.path.realpath(found.file(skill)) for skill in found.skills}
    folders = []
    for path in _candidates(base):
        real = os.path.realpath(base / path)
        if real in seen or not Path(real).is_relative_to(base):
            continue
        seen.add(real)
        if count := sum(os.path.realpath(file) not in loaded for file in _skills(real)):
            folders.append(FolderElsewhere(path, count))
    return tuple(folders)


def unseen_in(folders: Collection[FolderElsewhere]) -> str:
    """Says in which folders there are skills that sessions do not see."""
    named = (f"{one_line(one.path)} ({one.skills} skill{'' if one.skills == 1 else 's'})" for one in folders)
    return f"sessions do not see the skills in {', '.join(named)}"


def hint_for(options: SkillOptions, folders: Collection[FolderElsewhere]) -> str:
    """Names the setting that adds the folders to those that sessions see already."""
    paths = ", ".join(one_line(path) for path in (*options.extra_paths, *(one.path for one in folders)))
    return f"show them with agent.skills.extra_paths: [{paths}]"


def _candidates(base: Path) -> Iterator[str]:
    yield _FOLDERS[0]
    hidden = (name for name in _directories(base) if name.startswith(".") and name not in _NOT_LOOKED_AT)
    for name in hidden:
        yield from (f"{name}/{folder}" for folder in _FOLDERS)


def _skills(folder: str) -> Iterator[Path]:
    """The SKILL.md files one level below a folder."""
    files = (Path(folder, name, FILE_NAME) for name in _directories(folder))
    return (file for file in files if os.path.isfile(file))  # noqa: PTH113 - never raises


def _directories(folder: Path | str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, _MAX_ENTRIES) if entry.is_dir())
    except OSError:
        return []


# --- Files that look like skills but are not loaded; only checks look for them ---

_NO_SKILLS: Final = frozenset({"readme.md", "index.md"})


def with_advice(workspace: Path, options: SkillOptions, skill_set: SkillSet) -> SkillSet:
    """The set with more problems: flat files, nested skills, and unfilled texts of `symphony skills new`.

    A default directory that is a dangling link is reported too; loading ignores it.

    Blocks on the file system, at most as long as an import looks for skills. Never raises.
    """
    more: list[Problem] = []
    known = {one.path for one in skill_set.problems} | {one.path for one in skill_set.shadowed}
    known |= {one.path for one in skill_set.skills}
    for source in sources(workspace, options, None):
        if isinstance(source, RootReader):
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


def _misplaced(source: RootReader) -> Iterator[Problem]:
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
        words = f"{one.severity.value} {one.code} {one.message} {one.hint}"
        yield clean(f"{_path(one, below)}:{place}: {words}")


def github_lines(problems: Iterable[Problem], below: str) -> Iterator[str]:
    """GitHub workflow commands, which become annotations of a pull request."""
    for one in problems:
        facts = {
            "file": _path(one, below),
            "line": str(one.line or 1),
            "col": str(one.column or 1),
            "title": one.code,
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
    return problem.path if problem.scope == Scope.USER else (PurePosixPath(below) / problem.path).as_posix()


def _escaped(text: str, also: str = "") -> str:
    """Escape untrusted text, so that it cannot start another workflow command."""
    for character in f"%\r\n{also}":
        text = text.replace(character, f"%{ord(character):02X}")
    return clean(text)
