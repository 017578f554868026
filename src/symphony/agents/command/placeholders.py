"""Placeholders such as `{title}` in a shell command of WORKFLOW.md. No I/O.

A placeholder becomes the use of a shell variable, and the variable gets the value. So a text of the tracker
is never part of a command, where the shell could execute it, and never visible in a process list. It is one
word with or without double quotes. In single quotes the shell expands nothing, so it is refused there.
`${…}` belongs to the shell and is left alone; `{{` and `}}` are single braces.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

VARIABLES: Final[Mapping[str, str]] = {
    "prompt_file": "SYMPHONY_PROMPT_FILE",
    "envelope_file": "SYMPHONY_ENVELOPE_FILE",
    "issue": "SYMPHONY_ISSUE_IDENTIFIER",
    "title": "SYMPHONY_ISSUE_TITLE",
    "workspace": "SYMPHONY_WORKSPACE",
    "model": "SYMPHONY_MODEL",
}
"""Placeholders and their variables, which have the same names for hooks."""

_TOKEN: Final = re.compile(
    r"(?P<escape>\\.)|(?P<double>\{\{|\}\})|(?P<variable>\$\{)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}"
    r"|(?P<brace>[{}])|(?P<open>\$?\()|(?P<close>\))|(?P<mark>[\"'`])",
    re.DOTALL,
)
_BRACES_HINT: Final = "write {{ and }} for braces that are the shell's"


class PlaceholderProblem(Struct, frozen=True, kw_only=True):
    """Why a command cannot be used: a phrase that follows the key's name, and what to do."""

    problem: str
    hint: str


class _Placeholder(Struct, frozen=True):
    """A known placeholder; `quoted` if it is in double quotes."""

    name: str
    quoted: bool


def placeholder_problems(command: str) -> tuple[PlaceholderProblem, ...]:
    """Return everything that is wrong with the placeholders of a command."""
    return tuple(part for part in _parts(command) if isinstance(part, PlaceholderProblem))


def used_placeholders(command: str) -> frozenset[str]:
    """Return the names of the placeholders of a command."""
    return frozenset(part.name for part in _parts(command) if isinstance(part, _Placeholder))


def shell_command(command: str) -> str:
    """Return the command for the shell, in which placeholders are variables; it must have no problems."""
    words = []
    for part in _parts(command):
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, _Placeholder):
            variable = f"${{{VARIABLES[part.name]}}}"
            words.append(variable if part.quoted else f'"{variable}"')
    return "".join(words)


def _parts(command: str) -> Iterator[str | _Placeholder | PlaceholderProblem]:
    """Yield text, placeholders and problems in order; `nest` holds the open quotes and brackets."""
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
            yield _placeholder(found["name"], nest[-1])
        elif kind == "brace":
            yield PlaceholderProblem(problem=f"holds a single {text}", hint=_BRACES_HINT)
        elif kind == "variable":
            position = _end_of_variable(command, position)
            variable = command[found.start() : position]
            closed = variable.endswith("}")
            yield (
                variable
                if closed
                else PlaceholderProblem(problem="holds ${ without its }", hint=_BRACES_HINT)
            )
        else:
            _track_nesting(nest, text)
            yield text
    yield command[position:]


def _placeholder(name: str, quote: str) -> _Placeholder | PlaceholderProblem:
    if name not in VARIABLES:
        known = ", ".join(f"{{{each}}}" for each in VARIABLES)
        problem = f"holds {{{name[:60]}}}, which is no placeholder"
        return PlaceholderProblem(problem=problem, hint=f"known: {known}")
    if quote == "'":
        problem = f"holds {{{name}}} in single quotes, where the shell fills nothing in"
        return PlaceholderProblem(problem=problem, hint="take the quotes away: it is one word without")
    return _Placeholder(name, quoted=quote == '"')


def _track_nesting(nest: list[str], text: str) -> None:
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
    """Return the position behind the brace that closes `${`, or the end of the command."""
    depth = 1
    while depth and position < len(command):
        depth += {"{": 1, "}": -1}.get(command[position], 0)
        position += 1
    return position
