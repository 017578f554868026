"""Writes docs/CONFORMANCE.md from the matrix, the choices and what the tests claim. Results are not in it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from conformance.choices import CHOICES, Choice, Group
from conformance.matrix import AREAS, KINDS, ROWS, Row

PAGE = Path("docs") / "CONFORMANCE.md"
REFRESH = "make conformance-report"

_HEAD = """\
# Conformance

Every rule that a conforming implementation of the Symphony service specification has to show, with the tests
that show it, and every choice that the specification leaves open, with ours. `{refresh}` writes this
page from the marks of the tests. `make conformance` runs those tests and prints the results; it fails where a
rule has no test or this page is out of date. [CONTRIBUTING](../CONTRIBUTING.md) tells how to add to it.

Below a rule stand the ids that docstrings of the code cite, the kinds of its tests, and what they need beyond
Python. The kinds are {kinds}.

{counts}
"""


def render(
    claimed: Mapping[str, Iterable[str]], *, rows: Iterable[Row] = ROWS, choices: Iterable[Choice] = CHOICES
) -> str:
    """The page, for the tests that each id is claimed by; the same input gives the same text."""
    rows, choices = tuple(rows), tuple(choices)
    parts = [_head(rows, claimed)]
    for letter, name in AREAS.items():
        of_area = [row for row in rows if row.area == letter]
        if of_area:
            parts.append(f"## {name}\n")
            parts += ["\n".join(_row(row, claimed.get(row.id, ()))) for row in of_area]
    parts.append("## Choices\n")
    for group in Group:
        parts.append(f"### {group.value}\n")
        parts += ["\n".join(_choice(choice)) for choice in choices if choice.group is group]
    return "\n".join(parts)


def _head(rows: tuple[Row, ...], claimed: Mapping[str, Iterable[str]]) -> str:
    pending = [row for row in rows if row.pending]
    missing = [row.id for row in rows if not row.pending and row.id not in claimed]
    counts = f"Of {len(rows)} rules {len(rows) - len(pending) - len(missing)} are shown by tests"
    counts += f" and {len(pending)} not yet: {', '.join(row.id for row in pending)}."
    if missing:
        counts += f" Without a test: {', '.join(missing)}."
    kinds = ", ".join(f"{letter} ({text})" for letter, text in KINDS.items())
    return _HEAD.format(refresh=REFRESH, kinds=kinds, counts=counts)


def _row(row: Row, tests: Iterable[str]) -> Iterator[str]:
    yield f"### {row.id}\n"
    yield f"{row.rule}\n"
    yield f"*{row.covers}; {row.kinds}; environment: {row.environment}*\n"
    if row.pending:
        yield f"pending: {row.pending}\n"
    else:
        yield from _tests(tests)


def _choice(choice: Choice) -> Iterator[str]:
    yield f"#### {choice.id}\n"
    yield f"{choice.question} **{choice.ours}**\n"
    yield f"Where: {', '.join(f'[{place}](../{place})' for place in choice.places)}\n"
    yield from _tests(choice.tests)


def _tests(tests: Iterable[str]) -> Iterator[str]:
    """The tests, by file."""
    of_file: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests):
        file, _, name = test.partition("::")
        of_file[file].append(name)
    for file, names in of_file.items():
        yield f"- [{file}](../{file}): {', '.join(f'`{name}`' for name in names)}"
    yield "" if of_file else "No test yet.\n"
