"""Writes the comment about malformed skills: fixed texts, positions and escaped paths, no file content."""

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import quote

from symphony.problem import Problem, Severity
from symphony.skills.model import MEANINGS, Code, Scope, SkillSet

NamedProblem = tuple[str, str]
"""A problem as the comment names it: its escaped path, and its code."""

_MAX_ENTRIES: Final = 20
_MAX_BYTES: Final = 4_000
_MAX_PATH: Final = 160
_ERRORS: Final = (
    "**Some skills of this repository could not be loaded**\n\n"
    "The work continues with the others. Please correct:\n"
)
_WARNINGS: Final = (
    "**There are warnings about skills of this repository**\n\nThe work continues. Please correct:\n"
)
_ALSO_WARNINGS: Final = "\nThese are warnings:\n"
_FIXED: Final = "**The skills that were named here are fixed**"
_OVER: Final = "**No skill is reported here any more**"
_NOT_REPORTED: Final = (
    "No longer reported, because the file is gone, switched off, or below `comment_on` in WORKFLOW.md:"
)
_RANKS: Final = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


def comment_body(problems: Iterable[Problem], *, at_least: Severity = Severity.ERROR) -> str | None:
    """The comment in Markdown, at most 20 entries and 4 kB; `None` if no problem is reported.

    Args:
        problems: what the loader found.
        at_least: the lowest severity that is reported.
    """
    worth = _reported(problems, at_least)
    shown = _that_fit(worth)
    if not shown:
        return None
    errors = [entry for problem, entry in shown if problem.severity is Severity.ERROR]
    milder = [entry for problem, entry in shown if problem.severity is not Severity.ERROR]
    lines = [_ERRORS, *errors] if errors else []
    if milder:
        lines += [_ALSO_WARNINGS if errors else _WARNINGS, *milder]
    rest = len(worth) - len(shown)
    return "\n".join([*lines, *([f"- and {rest} more"] if rest else [])])


def named_problems(
    problems: Iterable[Problem], *, at_least: Severity | None = Severity.ERROR
) -> tuple[NamedProblem, ...]:
    """The problems that `comment_body` reports, in its order; none if `at_least` is `None`."""
    worth = [] if at_least is None else _reported(problems, at_least)
    return tuple((_escaped(problem.path), problem.code) for problem, _ in _that_fit(worth))


def resolved_body(
    named: Collection[NamedProblem], found: SkillSet, *, switched_off: Collection[str] = ()
) -> str:
    """The comment once there is nothing left to report; it lists the fixed files.

    A file is fixed if it can be loaded now, without the problem that was reported.

    Args:
        named: the problems that the comment reported.
        found: the present skills.
        switched_off: names of skills whose problems are not reported (`disabled_skills`).
    """
    loaded = {_escaped(one.path) for one in found.skills if one.name not in switched_off}
    loaded |= {_escaped(one.path) for one in found.shadowed if one.name not in switched_off}
    left = {_escaped(problem.path) for problem in found.problems if problem.severity is Severity.ERROR}
    left |= {path for path, _ in {(_escaped(one.path), one.code) for one in found.problems} & {*named}}
    paths = dict.fromkeys(path for path, _ in named)
    fixed = [f"- `{path}`" for path in paths if path in loaded - left]
    others = [f"- `{path}`" for path in paths if path not in loaded - left]
    if fixed and not others:
        return "\n".join([_FIXED, "", *fixed])
    lines = [_OVER]
    if fixed:
        lines += ["", "Fixed:", "", *fixed]
    if others:
        lines += ["", _NOT_REPORTED, "", *others]
    return "\n".join(lines)


def _reported(problems: Iterable[Problem], at_least: Severity) -> list[Problem]:
    """Problems of at least this severity, errors first, without the files of the user."""
    in_repository = (problem for problem in problems if problem.scope not in {Scope.USER, Scope.LIBRARY})
    named = [problem for problem in in_repository if _RANKS[problem.severity] >= _RANKS[at_least]]
    return sorted(named, key=lambda problem: -_RANKS[problem.severity])


def _that_fit(problems: list[Problem]) -> list[tuple[Problem, str]]:
    room = _MAX_BYTES - len(f"{_ERRORS}{_ALSO_WARNINGS}\n\n- and {len(problems)} more".encode())
    shown: list[tuple[Problem, str]] = []
    for problem in problems[:_MAX_ENTRIES]:
        entry = _entry(problem)
        room -= len(entry.encode()) + 1
        if room < 0:
            break
        shown.append((problem, entry))
    return shown


def _entry(problem: Problem) -> str:
    place = "" if problem.line is None else f" at {problem.line}:{problem.column}"
    meaning = MEANINGS[Code(problem.code)]
    return f"- `{_escaped(problem.path)}` `{problem.code}`{place}: {meaning.message} {meaning.hint}"


def _escaped(path: str) -> str:
    """The path with every character percent-encoded that a tracker could interpret."""
    safe = "".join(one if one.isalnum() else quote(one, safe="/ ._-", errors="replace") for one in path)
    safe = safe.replace("~", "%7E")  # `quote` does not encode it
    return safe if len(safe) <= _MAX_PATH else f"{safe[: _MAX_PATH // 2]}…{safe[-_MAX_PATH // 2 :]}"
