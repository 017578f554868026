"""Writes problems in the style of a linter, for terminals and for the annotations of GitHub."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from symphony.skills.model import Problem, Scope, Severity, SkillSet
from symphony.skills.text import clean

__all__ = ["github_lines", "is_failure", "summary", "text_lines"]

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def is_failure(problems: Iterable[Problem], *, strict: bool) -> bool:
    """Whether a check fails: an error does, and with `strict` a warning as well."""
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    return any(one.severity in failing for one in problems)


def text_lines(problems: Iterable[Problem], below: str) -> Iterator[str]:
    """`path:line:column: severity code message hint`; `below` is where the workspace is."""
    for one in problems:
        place = f"{one.line or 1}:{one.column or 1}"
        words = f"{one.severity.value} {one.code.value} {one.message} {one.hint}"
        yield clean(f"{_path(one, below)}:{place}: {words}")


def github_lines(problems: Iterable[Problem], below: str) -> Iterator[str]:
    """Workflow commands that GitHub shows beside the lines of a pull request."""
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
    """How many of each, so that nothing found is told from nothing looked at."""
    severities = [one.severity for one in skill_set.problems]
    counts = [len(skill_set.skills), severities.count(Severity.ERROR), severities.count(Severity.WARNING)]
    words = zip(counts, ("skill", "error", "warning"), strict=True)
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in words)


def _path(problem: Problem, below: str) -> str:
    return problem.path if problem.scope is Scope.USER else (PurePosixPath(below) / problem.path).as_posix()


def _escaped(text: str, also: str = "") -> str:
    """A path is untrusted: nothing in it may begin another command."""
    for character in f"%\r\n{also}":
        text = text.replace(character, f"%{ord(character):02X}")
    return clean(text)
