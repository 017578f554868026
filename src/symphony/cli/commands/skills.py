"""`symphony skills`: look at the skills of a repository, write new ones, exchange them with other places."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.journal import journal_to_read
from symphony.cli.library_access import open_library
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, parse_age, phase_option, print_json, workflow_option
from symphony.cli.skill_roots import SkillsContext, skills_options
from symphony.domain import one_line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from symphony.api.models import SkillOutcomes, SkillVersionFigures
    from symphony.journal.reader import SkillReport
    from symphony.skills import SkillSet


# `symphony skills new`: a skill that passes every check, and nothing overwritten.


_NEW_EPILOG = """\b
Examples:
  symphony skills new release-notes
  symphony skills new migrations --when "A database migration is added or changed."
  symphony skills new house-style --user

With --description and --when the skill passes `symphony skills check --strict` as it is; without them `check`
tells what is left to be filled in. Nothing that exists is overwritten.
"""


@click.command(epilog=_NEW_EPILOG, short_help="Write a new skill.")
@click.argument("name")
@click.option("--description", metavar="TEXT", help="What the skill does, in a line.")
@click.option("--when", metavar="TEXT", help="When it applies, in a line.")
@click.option("--user", is_flag=True, help="Your own: in agent.skills.user_path, and not in the repository.")
@json_option
@skills_options
def new(
    *, name: str, description: str | None, when: str | None, user: bool, place: SkillsContext, as_json: bool
) -> None:
    """Write a new skill; print its file."""
    root = place.home(user=user)
    _refuse_bad_name(name)
    _refuse_taken(name, root, place)
    path = _written(place, root, name, description or None, when)
    if as_json:
        from symphony.cli.documents import NewSkill

        print_json(NewSkill(name=name, path=str(path), scope="user" if user else "project"))
        return
    click.echo(f"{name}  {path}")
    if not user:
        click.echo("hint: write down what an agent should do, then commit it: sessions see commits", err=True)


def _refuse_bad_name(name: str) -> None:
    from symphony.skills import is_clean_name, suggested_name

    if not is_clean_name(name):
        near = suggested_name(name)
        hint = "a name has lower-case letters, digits and single hyphens, at most 64"
        shown = f"{hint}; for instance {near}" if near else hint
        message = f"{one_line(name)!r} cannot be the name of a skill"
        raise CommandError.of(message, hint=shown, code=ExitCode.USAGE)


def _refuse_taken(name: str, root: Path, place: SkillsContext) -> None:
    there = root / name
    taken = next((skill.path for skill in place.load().skills if skill.name == name), None)
    if taken is None and (there.exists() or there.is_symlink()):
        taken = str(there)
    if taken is not None:
        hint = f"choose another name, or look at it: symphony skills show {name}"
        raise CommandError.of(f"there is a skill of this name: {one_line(taken)}", hint=hint)


def _written(place: SkillsContext, root: Path, name: str, description: str | None, when: str | None) -> Path:
    """Judged by the strict rules before anything is written."""
    from dataclasses import replace

    from symphony.skills import (
        FILE_NAME,
        Bundle,
        BundledFile,
        InstallOutcome,
        ParseOptions,
        Severity,
        Validation,
        draft,
        install,
        parse_bytes,
    )

    try:
        data = draft(name, description, when).encode()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    rules = ParseOptions.of(replace(place.options, validation=Validation.STRICT))
    for problem in parse_bytes(data, name, FILE_NAME, rules).problems:
        if problem.severity is not Severity.INFO:
            raise CommandError.of(problem.message, hint=problem.hint, code=ExitCode.USAGE)
    done = install(Bundle(files={FILE_NAME: BundledFile(data=data)}), root, name, force=False)
    if done.outcome is not InstallOutcome.CREATED:
        hint = "look at the directory and its permissions"
        raise CommandError.of(f"{root / name}: {done.reason or 'it is there already'}", hint=hint)
    return root / name / FILE_NAME


# The commands of `symphony skills` that only look: list, check, show, prompt, search.


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

Byte for byte what a session gets, with a line break after it; nothing if nothing is listed.
"""
_SEARCH_EXAMPLES = """\b
Examples:
  symphony skills search database migration
  symphony skills search release -n 3 --json
"""


@click.command(
    name="list", epilog=_LIST_EXAMPLES, short_help="List the skills, and which of them sessions see."
)
@phase_option
@json_option
@skills_options
def list_(*, place: SkillsContext, phase: str | None, as_json: bool) -> int:
    """List the skills: where each comes from, and whether sessions see it."""
    from symphony.cli.render.skills import listing
    from symphony.skills import is_failure, skill_digests, summary

    place = place.in_phase(phase)
    found = place.load()
    block = place.block(found)
    if as_json:
        digests = skill_digests(place.workspace, found.skills, place.options)
        print_json(
            listing(
                found,
                block,
                place.options,
                uncommitted=place.uncommitted(),
                elsewhere=place.elsewhere(found),
                digests=digests,
            )
        )
    else:
        from symphony.cli.render.skills import print_listing

        print_listing(found, block, place)
        click.echo(summary(found), err=True)
        place.warn_of_differences()
        place.warn_of_elsewhere(found)
    return ExitCode.FAILURE if is_failure(found.problems, strict=False) else ExitCode.OK


@click.command(epilog=_CHECK_EXAMPLES, short_help="Tell what is wrong with the skills.")
@click.option("--strict", is_flag=True, help="The strict profile; a warning is a failure, too.")
@click.option("--github", is_flag=True, help="Print the annotations of a GitHub workflow.")
@click.option("--info", is_flag=True, help="Also what is merely worth knowing.")
@json_option
@skills_options
def check(*, place: SkillsContext, strict: bool, github: bool, info: bool, as_json: bool) -> int:
    """Tell everything that is wrong with the skills."""
    if as_json and github:
        raise click.UsageError("--json and --github exclude each other")
    from dataclasses import replace

    from symphony.cli.documents import SkillProblems
    from symphony.cli.render.skills import problem_documents
    from symphony.skills import Severity, Validation, github_lines, is_failure, summary, text_lines

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
        place.warn_of_elsewhere(found)
    return ExitCode.FAILURE if is_failure(found.problems, strict=strict) else ExitCode.OK


@click.command(epilog=_SHOW_EXAMPLES, short_help="Show one skill.")
@click.argument("name")
@json_option
@skills_options
def show(*, name: str, place: SkillsContext, as_json: bool) -> None:
    """Show one skill: what is known of it, what is wrong with it, and its text."""
    from symphony.cli.render.skills import detail, detail_lines

    found = place.load()
    document = detail(place.workspace, found, name, place.block(found), place.options)
    if document is None:
        raise _unknown(name, found)
    if as_json:
        print_json(document)
        return
    for line in detail_lines(document, found, place.below):
        click.echo(line)


@click.command(epilog=_PROMPT_EXAMPLES, short_help="Print the block that a session gets.")
@click.option("--format", "form", type=click.Choice(["compact", "full", "xml"]), help="Another format.")
@phase_option
@json_option
@skills_options
def prompt(*, place: SkillsContext, form: str | None, phase: str | None, as_json: bool) -> None:
    """Print exactly the block that a session gets."""
    from dataclasses import replace

    from symphony.cli.render.skills import block_document
    from symphony.skills import Format

    if form is not None:
        place = replace(place, options=replace(place.options, format=Format(form)))
    place = place.in_phase(phase)
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
@json_option
@skills_options
def search(*, words: tuple[str, ...], limit: int, place: SkillsContext, as_json: bool) -> None:
    """Find skills by words of their names and descriptions, the best first."""
    from symphony.cli.render.skills import hits_document
    from symphony.skills import search_skills, skill_digests

    query = " ".join(words)
    found = place.load()
    hits = search_skills(found.skills, query, limit=limit)
    if as_json:
        digests = skill_digests(place.workspace, [hit.skill for hit in hits], place.options)
        print_json(hits_document(query, hits, place.block(found), place.options, digests=digests))
    elif hits:
        from symphony.cli.render.skills import print_hits

        print_hits(hits)
    else:
        click.echo("no skill has any of these words", err=True)


def _unknown(name: str, found: "SkillSet") -> CommandError:
    from difflib import get_close_matches

    from symphony.domain import one_line
    from symphony.skills import Severity

    for one in found.problems:
        if one.severity is Severity.ERROR and name in one.path.split("/"):
            message = f"{one.path}:{one.line or 1}: {one.message} ({one.code.value})"
            return CommandError.of(message, hint=one.hint)
    known = [one_line(skill.name) for skill in found.skills]
    near = get_close_matches(name, known)
    hint = f"did you mean {', '.join(near)}?" if near else "`symphony skills list` names them"
    return CommandError.of(f"there is no skill {one_line(name)!r}", hint=hint)


# `symphony skills report`: which skills runs listed and read, and how those runs ended.


_REPORT_EPILOG = """\b
Examples:
  symphony skills report
  symphony skills report --since 7d
  symphony skills report --json | jq '.skills[] | select(.seen == 0) | .name'

From the journal of the daemon of WORKFLOW.md; it works with and without one running. Runs that a skill was
dropped from do not count for it.

Exit codes: 0 shown, 1 there is no journal yet, or it cannot be read.
"""
_SUCCEEDED: Final = "succeeded"
_NUMBERS: Final = (
    *("LISTED", "SEEN", "SUCCEEDED", "VERSIONS", "RUNS", "OPENED", "ISSUES", "DELIVERED", "READY", "BLOCKED"),
    *("STARS", "TURNS", "TOKENS"),
)


@click.command(epilog=_REPORT_EPILOG)
@click.option(
    "--since",
    default="30d",
    show_default=True,
    metavar="AGE",
    callback=parse_age,
    help="Only runs that began within this time: 12h, 30d, 4w.",
)
@json_option
@workflow_option
def report(*, since: float, as_json: bool, workflow: Path) -> None:
    """Show how often skills were listed and read, how those runs ended, and what became of their work."""
    # Imported here: `--help` of any command stays fast.
    from symphony.api.models import wall_text
    from symphony.api.skill_outcomes import read_skill_outcomes, skill_uses
    from symphony.cli.documents import SkillsReport
    from symphony.daemon.state_dir import library_key
    from symphony.journal.reader import open_reader

    since_ms = max(time.time_ns() // 1_000_000 - round(since * 1000), 0)
    journal = journal_to_read(workflow, os.environ)
    with open_reader(journal) as reader:
        found = [one for one in reader.skills_report(since_wall_ms=since_ms) if one.listed or one.seen]
        library = open_library(workflow, os.environ).in_use.store
        outcomes = read_skill_outcomes(reader, library, library_key(journal.parent), since_wall_ms=since_ms)
    if as_json:
        skills = tuple(map(skill_uses, found))
        print_json(SkillsReport(since=wall_text(since_ms), skills=skills, outcomes=outcomes))
    elif found:
        _show(found, outcomes)
    else:
        click.echo("No run listed a skill in this time.")


def _show(found: Sequence["SkillReport"], outcomes: "SkillOutcomes") -> None:
    from symphony.cli.formatting import cell, console_for, print_blocks, table

    columns = ("NAME", "LISTED", "SEEN", "SUCCEEDED", "OTHERWISE", "VERSIONS", "LAST USED")
    rows = table(*columns, right=_NUMBERS)
    for one in sorted(found, key=lambda report: (-report.listed, report.name)):
        rows.add_row(
            cell(one.name),
            str(one.listed),
            str(one.seen),
            str(one.outcomes.get(_SUCCEEDED, 0)),
            cell(_otherwise(one.outcomes)),
            str(one.versions),
            datetime.fromtimestamp(one.last_used_wall_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M"),
        )
    blocks: list[Table | Text | str] = [rows]
    if outcomes.versions:
        blocks += ["", _versions_table(outcomes.versions)]
    print_blocks(console_for(), *blocks)


def _versions_table(versions: Sequence["SkillVersionFigures"]) -> "Table":
    """The counts and medians of each version."""
    from symphony.cli.formatting import cell, table

    columns = (
        "NAME",
        "VERSION",
        "RUNS",
        "OPENED",
        "DELIVERED",
        "READY",
        "BLOCKED",
        "STARS",
        "TURNS",
        "TOKENS",
    )
    rows = table(*columns, right=_NUMBERS)
    for one in versions:
        version = (one.sha256 or "?")[:8] if one.library_version is None else f"v{one.library_version}"
        rows.add_row(
            cell(one.name),
            version,
            str(one.runs),
            str(one.opened),
            *map(str, (one.delivered, one.ready, one.blocked)),
            "-" if one.stars is None else f"{one.stars:.1f} ({one.rated})",
            f"{one.turns:g}",
            f"{one.tokens:,.0f}",
        )
    return rows


def _otherwise(outcomes: Mapping[str, int]) -> str:
    others = [f"{number} {outcome}" for outcome, number in outcomes.items() if outcome != _SUCCEEDED]
    return ", ".join(others)


_EPILOG = """\b
Examples:
  symphony skills list                    which skills a session would see
  symphony skills check --strict          what is wrong with them, as a linter tells it
  symphony skills new release-notes --when "A version is being prepared."
  symphony skills import ../other-repo

Needs no daemon and no tracker. The options are those of `agent.skills` in WORKFLOW.md, if there is one.
"""
_COMMANDS = {
    "list": ("skills:list_", "List the skills, and which of them sessions see."),
    "show": ("skills:show", "Show one skill."),
    "search": ("skills:search", "Find skills by words."),
    "check": ("skills:check", "Tell what is wrong with the skills."),
    "prompt": ("skills:prompt", "Print the block that a session gets."),
    "report": ("skills:report", "Show how often skills were used."),
    "new": ("skills:new", "Write a new skill."),
    "import": ("skills_exchange:import_", "Copy skills from somewhere else."),
    "export": ("skills_exchange:export", "Copy skills to somewhere else."),
}


skills = LazyGroup(
    "skills",
    sections={"Commands": _COMMANDS},
    help="Work with the skills of a repository: folders with a SKILL.md, in .symphony/skills.",
    short_help="Manage the skills of a repository.",
    epilog=_EPILOG,
)
