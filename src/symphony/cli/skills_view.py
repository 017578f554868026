"""Skills as tables for people; what their files say is shown as text and nothing else."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import click
from rich.table import Table

from symphony.cli.documents import SkillDetail
from symphony.cli.skills_place import SkillsPlace
from symphony.cli.status_view import console_for, show
from symphony.cli.wording import cell, plural
from symphony.skills import Block, DropReason, Severity, SkillSet
from symphony.skills.lint import text_lines
from symphony.skills.search import Hit
from symphony.skills.text import clean

__all__ = ["detail_lines", "print_folders", "print_hits", "print_listing", "visible"]

_MAX_LINES: Final = 500
_FIELDS: Final = (
    "name",
    "description",
    "when_to_use",
    "path",
    "scope",
    "enabled",
    "listed",
    "sha256",
    "phases",
    "priority",
    "shadows",
    "files",
)

_REASONS = {
    DropReason.COUNT: "over the cap",
    DropReason.BUDGET: "over budget",
    DropReason.DISABLED: "disabled",
    DropReason.NOT_INCLUDED: "not included",
}


def print_listing(found: SkillSet, block: Block, place: SkillsPlace) -> None:
    """A line per skill; below, what is wrong with files that are none."""
    if found.skills:
        show(console_for(), _listing(found, block, place))
    paths = {skill.path for skill in found.skills}
    others = [one for one in found.problems if one.path not in paths and one.severity is not Severity.INFO]
    for line in text_lines(others, place.below):
        click.echo(line)


def _listing(found: SkillSet, block: Block, place: SkillsPlace) -> Table:
    unseen = place.uncommitted()
    dropped = {one.name: _REASONS[one.reason] for one in block.dropped}
    problems = Counter(one.path for one in found.problems if one.severity is not Severity.INFO)
    table = _table("NAME", "SCOPE", "LISTED", "WHEN TO USE", "PROBLEMS")
    for skill in found.skills:
        if not place.options.enabled:
            listed = "off"
        elif skill.name not in block.listed:
            listed = dropped.get(skill.name, "no")
        else:
            listed = "not committed" if skill.path in unseen else "yes"
        count = problems[skill.path]
        table.add_row(
            cell(skill.name),
            cell(skill.scope.value),
            cell(listed),
            cell(skill.text),
            cell(plural(count, "warning") if count else ""),
        )
    return table


def print_hits(hits: Iterable[Hit]) -> None:
    """A line per hit."""
    table = _table("NAME", "WHEN TO USE", "PATH")
    for hit in hits:
        table.add_row(cell(hit.skill.name), cell(hit.skill.text), cell(hit.skill.path))
    show(console_for(), table)


def print_folders(folders: Iterable[tuple[str, int, int]]) -> None:
    """A line per folder of a source: how many skills it has, and how many of them cannot be taken."""
    table = _table("FOLDER", "SKILLS", "NOT USABLE")
    for folder, count, bad in folders:
        table.add_row(cell(folder), cell(count), cell(bad or ""))
    show(console_for(), table)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=name not in {"WHEN TO USE", "PATH"}, overflow="fold")
    return table


def detail_lines(skill: SkillDetail, found: SkillSet, below: str) -> Iterator[str]:
    """The fields, the problems, then at most 500 lines of text in which nothing steers a terminal."""
    for name in _FIELDS:
        value = getattr(skill, name)
        if value not in (None, "", ()):
            yield clean(f"{name}: {_plain(value)}")
    yield from text_lines((one for one in found.problems if one.path == skill.path), below)
    if skill.body is None:
        return
    yield ""
    lines = skill.body.split("\n")
    yield from map(visible, lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES or skill.cut:
        yield f"(more in {clean(skill.file)})"


def visible(line: str) -> str:
    """The line with each character that is no text written as its escape."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one == "\t" else _escaped(one) for one in line)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _plain(value: object) -> str:
    match value:
        case tuple():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
    return str(value)
