"""Skills as tables for people; what their files say is shown as text and nothing else."""

from collections import Counter
from collections.abc import Iterable

import click
from rich.table import Table

from symphony.cli.skills_place import SkillsPlace
from symphony.cli.status_view import console_for, show
from symphony.cli.wording import cell, plural
from symphony.skills import Block, DropReason, Severity, SkillSet
from symphony.skills.lint import text_lines
from symphony.skills.search import Hit

__all__ = ["print_hits", "print_listing"]

_REASONS = {
    DropReason.COUNT: "over the cap",
    DropReason.BUDGET: "over budget",
    DropReason.DISABLED: "disabled",
    DropReason.NOT_INCLUDED: "not included",
}


def print_listing(found: SkillSet, block: Block, place: SkillsPlace) -> None:
    """A line per skill; below, what is wrong with files that are none."""
    if found.skills:
        show(console_for(), _listing(found, block, enabled=place.options.enabled))
    paths = {skill.path for skill in found.skills}
    others = [one for one in found.problems if one.path not in paths and one.severity is not Severity.INFO]
    for line in text_lines(others, place.below):
        click.echo(line)


def _listing(found: SkillSet, block: Block, *, enabled: bool) -> Table:
    dropped = {one.name: _REASONS[one.reason] for one in block.dropped}
    problems = Counter(one.path for one in found.problems if one.severity is not Severity.INFO)
    table = _table("NAME", "SCOPE", "LISTED", "WHEN TO USE", "PROBLEMS")
    for skill in found.skills:
        listed = "yes" if skill.name in block.listed else dropped.get(skill.name, "no") if enabled else "off"
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


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=name not in {"WHEN TO USE", "PATH"}, overflow="fold")
    return table
