"""`symphony library`: the skills that are kept beside the repository, with their versions."""

import click

from symphony.cli.library_access import OpenLibrary, library_options
from symphony.cli.main import LazyGroup
from symphony.cli.options import print_json

_LIST_EPILOG = """\b
Examples:
  symphony library list
  symphony library list database migration      those with all of these words
  symphony library list --learned --json | jq -r '.skills[].name'

Skills that agents wrote come last.

Exit codes: 0 done, 1 the library cannot be read, 2 usage, 3 the workflow is invalid.
"""
_SHOW_EPILOG = """\b
Examples:
  symphony library show release-notes
  symphony library show release-notes 2         an earlier version
  symphony library show release-notes --json | jq -r .file

Exit codes: 0 done, 1 there is no such skill or version, 2 usage, 3 the workflow is invalid.
"""


@click.command(name="list", epilog=_LIST_EPILOG, short_help="List the skills.")
@click.argument("words", nargs=-1)
@click.option("--learned", is_flag=True, help="Only skills that agents wrote.")
@library_options
def list_(*, words: tuple[str, ...], learned: bool, library: OpenLibrary, as_json: bool) -> None:
    """List the skills of the library, or those with all of the words."""
    from symphony.api.library import skills

    found = skills(library.in_use, " ".join(words), None, learned=learned)
    if as_json:
        print_json(found)
        return
    from symphony.cli.render.library import print_skills, tell_count

    print_skills(found)
    tell_count(found.total, "skill")


@click.command(epilog=_SHOW_EPILOG, short_help="Show a skill.")
@click.argument("name")
@click.argument("version", type=click.IntRange(min=1), required=False)
@library_options
def show(*, name: str, version: int | None, library: OpenLibrary, as_json: bool) -> None:
    """Show what is known of a skill, and its file; VERSION is an earlier one."""
    from symphony.api.library import skill

    page = skill(library.in_use, name, version)
    if as_json:
        print_json(page)
        return
    from symphony.cli.render.library import skill_lines

    for line in skill_lines(page):
        click.echo(line)


_EPILOG = """\b
Examples:
  symphony library list                        all skills, with their versions
  symphony library show release-notes          one of them

Works on the library of WORKFLOW.md, beside a running daemon or without one.
"""
_HERE = "symphony.cli.commands.library"
_SECTIONS = {
    "Look": {
        "list": (f"{_HERE}:list_", "List the skills."),
        "show": (f"{_HERE}:show", "Show a skill."),
    },
    "Undo": {
        "purge": ("symphony.cli.commands.library_purge:purge", "Take out what agents wrote since a date."),
    },
}


@click.group(
    cls=LazyGroup,
    sections=_SECTIONS,
    invoke_without_command=True,
    epilog=_EPILOG,
    short_help="Manage the library of skills.",
)
@click.pass_context
def library(ctx: click.Context) -> None:
    """Work with the library: skills that are kept beside the repository, with their versions."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
