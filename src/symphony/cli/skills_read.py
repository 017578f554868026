"""The commands of `symphony skills` that only look: list, check, show, prompt, search."""

import sys
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.skills_place import SkillsPlace, of_a_place
from symphony.cli.workflow_option import as_json, print_json

if TYPE_CHECKING:
    from symphony.skills import SkillSet

__all__ = ["check", "list_", "prompt", "search", "show"]

_LIST_EXAMPLES = """\b
Examples:
  symphony skills list
  symphony skills list --json | jq -r '.skills[] | select(.listed) | .name'

Exit codes: 0 done, 1 a skill is malformed (it stands below the table), 2 usage.
"""
_CHECK_EXAMPLES = """\b
Examples:
  symphony skills check
  symphony skills check --strict
  symphony skills check --path .agents/skills
  symphony skills check --github          as the annotations of a GitHub workflow

Exit codes: 0 nothing wrong, 1 errors (with --strict also warnings), 2 usage.
"""
_SHOW_EXAMPLES = """\b
Examples:
  symphony skills show release-notes
  symphony skills show release-notes --json | jq -r .body
"""
_PROMPT_EXAMPLES = """\b
Examples:
  symphony skills prompt
  symphony skills prompt --format xml
  symphony skills prompt --json | jq .dropped

Byte for byte what a session is told, with a line break after it; nothing where nothing is listed.
"""
_SEARCH_EXAMPLES = """\b
Examples:
  symphony skills search database migration
  symphony skills search release -n 3 --json
"""


@click.command(name="list", epilog=_LIST_EXAMPLES, short_help="List the skills and who is told of them.")
@as_json
@of_a_place
def list_(*, place: SkillsPlace, as_json: bool) -> int:
    """List the skills: where each comes from, and whether a session is told of it."""
    from symphony.cli.skills_documents import listing
    from symphony.skills import digests_of
    from symphony.skills.lint import is_failure, summary

    found = place.load()
    block = place.block(found)
    if as_json:
        digests = digests_of(place.workspace, found.skills, place.options)
        print_json(listing(found, block, place.options, uncommitted=place.uncommitted(), digests=digests))
    else:
        from symphony.cli.skills_view import print_listing

        print_listing(found, block, place)
        click.echo(summary(found), err=True)
        place.warn_of_differences()
    return ExitCode.FAILURE if is_failure(found.problems, strict=False) else ExitCode.OK


@click.command(epilog=_CHECK_EXAMPLES, short_help="Tell what is wrong with the skills.")
@click.option("--strict", is_flag=True, help="The strict profile; a warning is a failure, too.")
@click.option("--github", is_flag=True, help="Print the annotations of a GitHub workflow.")
@click.option("--info", is_flag=True, help="Also what is merely worth knowing.")
@as_json
@of_a_place
def check(*, place: SkillsPlace, strict: bool, github: bool, info: bool, as_json: bool) -> int:
    """Tell everything that is wrong with the skills."""
    if as_json and github:
        raise click.UsageError("--json and --github exclude each other")
    from dataclasses import replace

    from symphony.cli.documents import SkillProblems
    from symphony.cli.skills_documents import problem_documents
    from symphony.skills import Severity, Validation
    from symphony.skills.lint import github_lines, is_failure, summary, text_lines

    if strict:
        place = replace(place, options=replace(place.options, validation=Validation.STRICT))
    found = place.load()
    if as_json:
        print_json(SkillProblems(problems=problem_documents(found.problems)))
    else:
        problems = [one for one in found.problems if info or one.severity is not Severity.INFO]
        lines = github_lines if github else text_lines
        for line in lines(problems, place.below):
            click.echo(line)
        click.echo(summary(found), err=True)
    return ExitCode.FAILURE if is_failure(found.problems, strict=strict) else ExitCode.OK


@click.command(epilog=_SHOW_EXAMPLES, short_help="Show one skill.")
@click.argument("name")
@as_json
@of_a_place
def show(*, name: str, place: SkillsPlace, as_json: bool) -> None:
    """Show one skill: what is known of it, what is wrong with it, and its text."""
    from symphony.cli.skills_documents import detail
    from symphony.cli.skills_view import detail_lines

    found = place.load()
    document = detail(place.workspace, found, name, place.block(found), place.options)
    if document is None:
        raise _unknown(name, found)
    if as_json:
        print_json(document)
        return
    for line in detail_lines(document, found, place.below):
        click.echo(line)


@click.command(epilog=_PROMPT_EXAMPLES, short_help="Print what a session is told.")
@click.option("--format", "form", type=click.Choice(["compact", "full", "xml"]), help="Another format.")
@as_json
@of_a_place
def prompt(*, place: SkillsPlace, form: str | None, as_json: bool) -> None:
    """Print exactly the block that a session is told."""
    from dataclasses import replace

    from symphony.cli.skills_documents import block_document
    from symphony.skills import Format

    if form is not None:
        place = replace(place, options=replace(place.options, format=Format(form)))
    found = place.load()
    block = place.block(found)
    if as_json:
        print_json(block_document(found, block))
        return
    place.warn_of_differences()
    if block.text is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(f"{block.text}\n".encode())
        sys.stdout.buffer.flush()


@click.command(epilog=_SEARCH_EXAMPLES, short_help="Find skills by words.")
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    metavar="N",
    help="So many at most.",
)
@as_json
@of_a_place
def search(*, words: tuple[str, ...], limit: int, place: SkillsPlace, as_json: bool) -> None:
    """Find skills by words of their names and descriptions, the best first."""
    from symphony.cli.skills_documents import hits_document
    from symphony.skills import digests_of
    from symphony.skills.search import search as ranked

    query = " ".join(words)
    found = place.load()
    hits = ranked(found.skills, query, limit=limit)
    if as_json:
        digests = digests_of(place.workspace, [hit.skill for hit in hits], place.options)
        print_json(hits_document(query, hits, place.block(found), place.options, digests=digests))
    elif hits:
        from symphony.cli.skills_view import print_hits

        print_hits(hits)
    else:
        click.echo("no skill has any of these words", err=True)


def _unknown(name: str, found: "SkillSet") -> CommandError:
    from difflib import get_close_matches

    from symphony.domain.plain import one_line
    from symphony.skills import Severity

    for one in found.problems:
        if one.severity is Severity.ERROR and name in one.path.split("/"):
            message = f"{one.path}:{one.line or 1}: {one.message} ({one.code.value})"
            return CommandError.of(message, hint=one.hint)
    known = [one_line(skill.name) for skill in found.skills]
    near = get_close_matches(name, known)
    hint = f"did you mean {', '.join(near)}?" if near else "`symphony skills list` names them"
    return CommandError.of(f"there is no skill {one_line(name)!r}", hint=hint)
