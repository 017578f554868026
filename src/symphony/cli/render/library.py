"""The library of skills as people read it; texts of skills are untrusted."""

from collections.abc import Iterator

import click
from rich.table import Table

from symphony.api.models import LibraryAssignment, LibrarySkill, LibrarySkillPage, LibrarySkills
from symphony.cli.formatting import cell, console_for, parse_time, plural, print_blocks
from symphony.cli.render.skills import visible
from symphony.domain import one_line

_MAX_DESCRIPTION = 100


def table(*names: str) -> Table:
    """A table with these columns; only the last one is wrapped."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        made.add_column(name, no_wrap=name != names[-1], overflow="fold")
    return made


def moment(at: str) -> str:
    """A time of a document in local time."""
    parsed = parse_time(at)
    return at if parsed is None else parsed.astimezone().strftime("%Y-%m-%d %H:%M")


def print_skills(found: LibrarySkills) -> None:
    """A row for each skill."""
    rows = table("NAME", "VERSION", "ORIGIN", "CHANGED", "DESCRIPTION")
    for one in found.skills:
        description = one_line(one.description, _MAX_DESCRIPTION)
        rows.add_row(*map(cell, (one.name, one.version, one.origin, moment(one.updated_at), description)))
    if found.skills:
        print_blocks(console_for(), rows)


def skill_lines(page: LibrarySkillPage) -> Iterator[str]:
    """What is known of a skill, then its file."""
    skill = page.skill
    shown = "" if page.shown == skill.version else f", shown: {page.shown}"
    yield f"name: {skill.name}"
    yield f"version: {skill.version}{shown}"
    yield f"origin: {skill.origin}"
    yield f"changed: {moment(skill.updated_at)} by {one_line(page.versions[0].author)}"
    yield f"assigned to: {_targets(skill, page.assignments)}"
    yield ""
    yield from map(visible, page.file.removesuffix("\n").split("\n"))


def _targets(skill: LibrarySkill, assignments: tuple[LibraryAssignment, ...]) -> str:
    named = ", ".join(f"{one.kind} {one_line(one.target)}" for one in assignments)
    return named or f"nobody by name; whoever has no assignment gets {skill.name}"


def tell_count(count: int, noun: str) -> None:
    """The count on stderr."""
    click.echo(plural(count, noun), err=True)
