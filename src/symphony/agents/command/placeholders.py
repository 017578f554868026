"""What `{name}` stands for in a command of WORKFLOW.md, and how it gets there. Pure.

A placeholder becomes the use of a variable, and the variable has the value: never is a text of the tracker
made part of a command, where a shell could take it for one, and none is seen in a list of processes. It is
one word wherever it stands, in double quotes or without; in single quotes the shell would leave the name as
it is, so there it is refused. `${…}` is the shell's own and left alone; `{{` and `}}` are single braces.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["VARIABLES", "Problem", "filled", "problems", "used"]

VARIABLES: Final[Mapping[str, str]] = {
    "prompt_file": "SYMPHONY_PROMPT_FILE",
    "envelope_file": "SYMPHONY_ENVELOPE_FILE",
    "issue": "SYMPHONY_ISSUE_IDENTIFIER",
    "title": "SYMPHONY_ISSUE_TITLE",
    "workspace": "SYMPHONY_WORKSPACE",
    "model": "SYMPHONY_MODEL",
}
"""Placeholders, and the variables that hold their values; where a hook has the same, it has the same name."""

_TOKEN: Final = re.compile(
    r"(?P<escape>\\.)|(?P<double>\{\{|\}\})|(?P<variable>\$\{)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}"
    r"|(?P<brace>[{}])|(?P<open>\$?\()|(?P<close>\))|(?P<mark>[\"'`])",
    re.DOTALL,
)
_DOUBLED: Final = "write {{ and }} for braces that are the shell's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a command cannot be used: a phrase that follows the key's name, and what to do about it."""

    problem: str
    hint: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A placeholder; `inside` is the quote that it stands in, empty for none."""

    name: str
    inside: str


def problems(command: str) -> tuple[Problem, ...]:
    """Everything that is wrong with the placeholders of a command."""
    return tuple(found for part in _parts(command) if (found := _judged(part)) is not None)


def used(command: str) -> frozenset[str]:
    """The placeholders of a command."""
    return frozenset(part.name for part in _parts(command) if isinstance(part, _Place))


def filled(command: str) -> str:
    """The command for the shell; one without problems."""
    return "".join(_use(part) for part in _parts(command) if not isinstance(part, Problem))


def _use(part: str | _Place) -> str:
    if isinstance(part, str):
        return part
    word = f"${{{VARIABLES[part.name]}}}"
    return word if part.inside else f'"{word}"'


def _judged(part: str | _Place | Problem) -> Problem | None:
    if isinstance(part, _Place):
        if part.name not in VARIABLES:
            known = ", ".join(f"{{{name}}}" for name in VARIABLES)
            return Problem(
                problem=f"holds {{{part.name[:60]}}}, which is no placeholder", hint=f"known: {known}"
            )
        if part.inside == "'":
            problem = f"holds {{{part.name}}} in single quotes, where the shell fills nothing in"
            return Problem(problem=problem, hint="take the quotes away: it is one word without")
        return None
    return part if isinstance(part, Problem) else None


def _parts(command: str) -> Iterator[str | _Place | Problem]:
    """Text, placeholders and problems, in order; which quote one stands in is followed on the way."""
    nest = [""]
    position = 0
    while (found := _TOKEN.search(command, position)) is not None:
        yield command[position : found.start()]
        position = found.end()
        kind, text = found.lastgroup, found[0]
        if kind == "escape" and nest[-1] == "'":
            yield "\\"
            position = found.start() + 1
        elif kind == "double":
            yield text[0]
        elif kind == "name":
            yield _Place(found["name"], nest[-1] if nest[-1] in {"'", '"'} else "")
        elif kind == "brace":
            yield Problem(problem=f"holds a single {text}", hint=_DOUBLED)
        elif kind == "variable":
            position = _end_of_variable(command, position)
            whole = command[found.start() : position]
            yield whole if whole.endswith("}") else Problem(problem="holds ${ without its }", hint=_DOUBLED)
        else:
            _follow(nest, text)
            yield text
    yield command[position:]


def _follow(nest: list[str], text: str) -> None:
    """Enter or leave quotes and substitutions; an escape, or a bracket in quotes, is only text."""
    top = nest[-1]
    if (text == top and text) or (text == ")" and top == "("):
        nest.pop()
    elif top == "'":
        return
    elif text in {'"', "`"} or (text == "'" and top != '"'):
        nest.append(text)
    elif text == "$(" or (text == "(" and top != '"'):
        nest.append("(")


def _end_of_variable(command: str, position: int) -> int:
    """Behind the brace that closes `${`, or the end of the command."""
    depth = 1
    while depth and position < len(command):
        depth += {"{": 1, "}": -1}.get(command[position], 0)
        position += 1
    return position
