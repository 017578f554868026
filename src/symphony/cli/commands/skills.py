"""`symphony skills`: look at the skills of a repository, write new ones, exchange them with other places."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio
import click
from msgspec import Struct, structs
from rich.table import Table

from symphony import skills as agent_skills
from symphony.api.models import SkillOutcomes, SkillVersionFigures, wall_text
from symphony.api.skill_outcomes import read_skill_outcomes, skill_uses
from symphony.characters import visible
from symphony.cli import documents
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.formatting import cell, console_for, print_blocks, table
from symphony.cli.journal import journal_to_read
from symphony.cli.library_access import open_library
from symphony.cli.main import LazyGroup
from symphony.cli.options import (
    dry_run_option,
    json_option,
    only_one,
    parse_age,
    phase_option,
    print_json,
    workflow_option,
)
from symphony.cli.skill_roots import SkillsContext, skills_options
from symphony.daemon.state_dir import library_key
from symphony.domain import one_line, plural
from symphony.journal.reader import SkillReport, open_reader
from symphony.processes.local import LocalHost
from symphony.skills import FolderElsewhere as UnseenFolder
from symphony.skills import one_line as skill_line
from symphony.workspaces import Git, GitError, split_login, without_credentials

if TYPE_CHECKING:
    from rich.text import Text

# `symphony skills new`: a skill that passes every check, and nothing overwritten.


_NEW_EPILOG = """\b
Examples:
  symphony skills new release-notes
  symphony skills new migrations --when "A database migration is added or changed."
  symphony skills new house-style --user

With --description and --when the skill passes `symphony skills check --strict`. Without them `check`
reports what you must fill in. Overwrites nothing.
"""


@click.command(epilog=_NEW_EPILOG, short_help="Write a new skill.")
@click.argument("name")
@click.option("--description", metavar="TEXT", help="What the skill does, in a line.")
@click.option("--when", metavar="TEXT", help="When it applies, in a line.")
@click.option("--user", is_flag=True, help="Use agent.skills.user_path instead of the repository.")
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
        print_json(documents.NewSkill(name=name, path=str(path), scope="user" if user else "project"))
        return
    click.echo(f"{name}  {path}")
    if not user:
        click.echo(
            "hint: describe what an agent should do, then commit the file: sessions see only commits",
            err=True,
        )


def _refuse_bad_name(name: str) -> None:
    if not agent_skills.is_clean_name(name):
        near = agent_skills.suggested_name(name)
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
    try:
        data = agent_skills.draft(name, description, when).encode()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    rules = agent_skills.ParseOptions.of(replace(place.options, validation=agent_skills.Validation.STRICT))
    for problem in agent_skills.parse_bytes(data, name, agent_skills.FILE_NAME, rules).problems:
        if problem.severity is not agent_skills.Severity.INFO:
            raise CommandError.of(problem.message, hint=problem.hint, code=ExitCode.USAGE)
    done = agent_skills.install(
        agent_skills.Bundle(files={agent_skills.FILE_NAME: agent_skills.BundledFile(data=data)}),
        root,
        name,
        force=False,
    )
    if done.outcome is not agent_skills.InstallOutcome.CREATED:
        hint = "look at the directory and its permissions"
        raise CommandError.of(f"{root / name}: {done.reason or 'it is there already'}", hint=hint)
    return root / name / agent_skills.FILE_NAME


# The commands of `symphony skills` that only look: list, check, show, prompt, search.


_LIST_EXAMPLES = """\b
Examples:
  symphony skills list
  symphony skills list --json | jq -r '.skills[] | select(.listed) | .name'

Exit codes: 0 done, 1 a skill is malformed (shown below the table), 2 usage.
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

Prints exactly the text of a session, with a line break after it, or nothing if no skill is listed.
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
    place = place.in_phase(phase)
    found = place.load()
    block = place.block(found)
    if as_json:
        digests = agent_skills.skill_digests(place.workspace, found.skills, place.options)
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
        print_listing(found, block, place)
        click.echo(agent_skills.summary(found), err=True)
        place.warn_of_differences()
        place.warn_of_elsewhere(found)
    return ExitCode.FAILURE if agent_skills.is_failure(found.problems, strict=False) else ExitCode.OK


@click.command(epilog=_CHECK_EXAMPLES, short_help="Report mistakes in the skills.")
@click.option("--strict", is_flag=True, help="Use the strict profile, and fail on warnings, too.")
@click.option("--github", is_flag=True, help="Print the annotations of a GitHub workflow.")
@click.option("--info", is_flag=True, help="Show advice, too.")
@json_option
@skills_options
def check(*, place: SkillsContext, strict: bool, github: bool, info: bool, as_json: bool) -> int:
    """Report all mistakes in the skills."""
    only_one(json=as_json, github=github)
    if strict:
        place = replace(place, options=replace(place.options, validation=agent_skills.Validation.STRICT))
    found = place.load()
    if as_json:
        print_json(documents.SkillProblems(problems=found.problems))
    else:
        problems = [one for one in found.problems if info or one.severity is not agent_skills.Severity.INFO]
        lines = agent_skills.github_lines if github else agent_skills.text_lines
        for line in lines(problems, place.below):
            click.echo(line)
        click.echo(agent_skills.summary(found), err=True)
        place.warn_of_elsewhere(found)
    return ExitCode.FAILURE if agent_skills.is_failure(found.problems, strict=strict) else ExitCode.OK


@click.command(epilog=_SHOW_EXAMPLES, short_help="Show one skill.")
@click.argument("name")
@json_option
@skills_options
def show(*, name: str, place: SkillsContext, as_json: bool) -> None:
    """Show one skill: its fields, its problems, and its text."""
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
    if form is not None:
        place = replace(place, options=replace(place.options, format=agent_skills.Format(form)))
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
    help="Show at most N skills.",
)
@json_option
@skills_options
def search(*, words: tuple[str, ...], limit: int, place: SkillsContext, as_json: bool) -> None:
    """Find skills by words of their names and descriptions, the best first."""
    query = " ".join(words)
    found = place.load()
    hits = agent_skills.search_skills(found.skills, query, limit=limit)
    if as_json:
        digests = agent_skills.skill_digests(place.workspace, [hit.skill for hit in hits], place.options)
        print_json(hits_document(query, hits, place.block(found), place.options, digests=digests))
    elif hits:
        print_hits(hits)
    else:
        click.echo("no skill has any of these words", err=True)


def _unknown(name: str, found: agent_skills.SkillSet) -> CommandError:
    for one in found.problems:
        if one.severity is agent_skills.Severity.ERROR and name in one.path.split("/"):
            message = f"{one.path}:{one.line or 1}: {one.message} ({one.code})"
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

Reads the journal of WORKFLOW.md, with or without a running daemon. A run that dropped a skill does not
count for it.

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
    """Show how often skills were listed and read, and the results of those runs."""
    since_ms = max(time.time_ns() // 1_000_000 - round(since * 1000), 0)
    journal = journal_to_read(workflow, os.environ)
    with open_reader(journal) as reader:
        found = [one for one in reader.skills_report(since_wall_ms=since_ms) if one.listed or one.seen]
        library = open_library(workflow, os.environ).in_use.store
        outcomes = read_skill_outcomes(reader, library, library_key(journal.parent), since_wall_ms=since_ms)
    if as_json:
        skills = tuple(map(skill_uses, found))
        print_json(documents.SkillsReport(since=wall_text(since_ms), skills=skills, outcomes=outcomes))
    elif found:
        _show(found, outcomes)
    else:
        click.echo("No run listed a skill in this time.")


def _show(found: Sequence[SkillReport], outcomes: SkillOutcomes) -> None:
    columns = ("NAME", "LISTED", "SEEN", "SUCCEEDED", "OTHERWISE", "VERSIONS", "LAST USED")
    rows = table(*columns, right=_NUMBERS)
    for one in sorted(found, key=lambda report: (-report.listed, report.name)):
        rows.add_row(
            cell(one.name),
            str(one.listed),
            str(one.seen),
            str(one.outcomes.get(_SUCCEEDED, 0)),
            cell(", ".join(f"{number} {end}" for end, number in one.outcomes.items() if end != _SUCCEEDED)),
            str(one.versions),
            datetime.fromtimestamp(one.last_used_wall_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M"),
        )
    blocks: list[Table | Text | str] = [rows]
    if outcomes.versions:
        blocks += ["", _versions_table(outcomes.versions)]
    print_blocks(console_for(), *blocks)


def _versions_table(versions: Sequence[SkillVersionFigures]) -> Table:
    """The counts and medians of each version."""
    columns = (
        "NAME",
        "VERSION",
        "RUNS",
        "OPENED",
        "DELIVERED",
        "VERIFIED",
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
            str(one.delivered),
            f"{one.verified}{f' ({one.verify_failed} failed)' if one.verify_failed else ''}",
            *map(str, (one.ready, one.blocked)),
            "-" if one.stars is None else f"{one.stars:.1f} ({one.rated})",
            f"{one.turns:g}",
            f"{one.tokens:,.0f}",
        )
    return rows


_EPILOG = """\b
Examples:
  symphony skills list                    which skills a session would see
  symphony skills check --strict          reports mistakes, like a linter
  symphony skills new release-notes --when "A version is being prepared."
  symphony skills import ../other-repo

Needs no daemon and no tracker. The options are those of `agent.skills` in WORKFLOW.md, if there is one.
"""
_COMMANDS = {
    "list": ("skills:list_", "List the skills, and which of them sessions see."),
    "show": ("skills:show", "Show one skill."),
    "search": ("skills:search", "Find skills by words."),
    "check": ("skills:check", "Report mistakes in the skills."),
    "prompt": ("skills:prompt", "Print the block that a session gets."),
    "report": ("skills:report", "Show how often skills were used."),
    "new": ("skills:new", "Write a new skill."),
    "import": ("skills:import_", "Copy skills from another place."),
    "export": ("skills:export", "Copy skills to another place."),
}


skills = LazyGroup(
    "skills",
    sections={"Commands": _COMMANDS},
    help="Work with the skills of a repository: folders with a SKILL.md, in .symphony/skills.",
    short_help="Manage the skills of a repository.",
    epilog=_EPILOG,
)


# What became of skills that were copied: one shape and one way to print it, for both directions.


class Moved(Struct, frozen=True, kw_only=True):
    """One skill and its outcome.

    Attributes:
        source: its folder or file, as named by the source.
        path: where it is now, or would be.
        reason: why it was skipped, or null.
        problems: the problems that the loader reports.
    """

    name: str
    source: str
    path: str
    outcome: agent_skills.InstallOutcome
    reason: str | None = None
    problems: tuple[agent_skills.Problem, ...] = ()


def exported(moves: Sequence[Moved], target: Path, *, dry_run: bool) -> documents.SkillsExported:
    """What became of the skills, each outcome in the order of the source."""

    def those(outcome: agent_skills.InstallOutcome) -> tuple[documents.MovedSkill, ...]:
        return tuple(documents.MovedSkill.of(one) for one in moves if one.outcome is outcome)

    return documents.SkillsExported(
        target=str(target),
        dry_run=dry_run,
        created=those(agent_skills.InstallOutcome.CREATED),
        updated=those(agent_skills.InstallOutcome.UPDATED),
        unchanged=those(agent_skills.InstallOutcome.UNCHANGED),
        skipped=those(agent_skills.InstallOutcome.SKIPPED),
    )


def print_moves(moves: Sequence[Moved], *, dry_run: bool) -> None:
    """A line per skill, warnings below it; the counts on stderr."""
    for one in moves:
        for line in _lines(one):
            click.echo(line)
    counts = [
        (sum(one.outcome is outcome for one in moves), outcome) for outcome in agent_skills.InstallOutcome
    ]
    told = ", ".join(f"{count} {outcome.value}" for count, outcome in counts)
    click.echo(f"{told} (nothing was written)" if dry_run else told, err=True)


def _lines(moved: Moved) -> Iterator[str]:
    """Names and paths are untrusted text."""
    head = f"{moved.outcome.value:9} {one_line(moved.name)}"
    if moved.reason is not None:
        yield f"{head}  {one_line(f'{moved.source}: {moved.reason}')}"
        yield from (f"  hint: {one_line(one.hint)}" for one in moved.problems[:1])
        return
    yield f"{head}  {one_line(moved.path)}"
    for problem in moved.problems:
        yield f"  {problem.severity.value}: {one_line(f'{problem.message} {problem.hint}')}"


def outcome_code(moves: Iterable[Moved]) -> ExitCode:
    """A failure where something was left behind, so that a script notices."""
    skipped = any(one.outcome is agent_skills.InstallOutcome.SKIPPED for one in moves)
    return ExitCode.FAILURE if skipped else ExitCode.OK


# Brings the files of a foreign repository here without running anything of it. The fetch sees the user's own
# git configuration, or a private repository could not be reached. The checkout sees none, so that no filter
# runs, whatever the repository's attributes ask for; hooks are off in both. Git's data about the source, such
# as its address, is removed before any file is read.

_TIMEOUT_MS = 120_000
_MAX_FILES = 50_000
_MAX_BYTES = 512 * 1024 * 1024
_ADDRESS = re.compile(r"(?:https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
_REF = re.compile(r"[\w][\w./@+-]*")


class Fetched(Struct, frozen=True, kw_only=True):
    """A repository's files, without its `.git`, and their origin; `address` has no credentials."""

    tree: Path
    address: str
    commit: str


def is_address(source: str) -> bool:
    """Whether the text is the address of a repository and not a path."""
    return _ADDRESS.fullmatch(source) is not None


def fetch(address: str, ref: str | None, into: Path) -> Fetched:
    """The files of one commit, in a new directory of the repository's name below `into`.

    Raises:
        CommandError: the reference is none, or git could not bring it; the message holds no credentials.
    """
    if ref is not None and (_REF.fullmatch(ref) is None or ".." in ref):
        hint = "name a branch, a tag or a whole commit id"
        raise CommandError.of(f"{one_line(ref)!r} is no reference", hint=hint, code=ExitCode.USAGE)
    tree = into / (_name(address) or "repository")
    shown = one_line(without_credentials(address))
    try:
        commit = anyio.run(_fetch, address, ref or "HEAD", tree)
    except GitError as error:
        hint = "check the address and the reference, and that `git ls-remote` reaches it"
        raise CommandError.of(f"{shown} cannot be fetched: {error}", hint=hint) from error
    shutil.rmtree(tree / ".git")
    return Fetched(tree=tree, address=shown, commit=commit)


def _name(address: str) -> str:
    """What `git clone` would call the directory, as far as it is a plain word."""
    last = PurePosixPath(re.split(r"[/:]", address.rstrip("/"))[-1]).name.removesuffix(".git")
    return last if re.fullmatch(r"\w[\w.-]*", last) else ""


async def _fetch(address: str, ref: str, tree: Path) -> str:
    git, (address, login) = Git(LocalHost(), os.environ, frozenset()), split_login(address)
    await git.trusted("init", "--quiet", "--template=", "--", tree)
    await git.trusted(
        "-C",
        tree,
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--no-auto-maintenance",
        "--",
        address,
        ref,
        timeout_ms=_TIMEOUT_MS,
        login=login,
    )
    commit = (await git.isolated("-C", tree, "rev-parse", "FETCH_HEAD^{commit}")).decode().strip()
    _refuse_giant(await git.isolated("-C", tree, "ls-tree", "-r", "-l", "-z", commit))
    await git.isolated("-C", tree, "checkout", "--quiet", "--detach", commit)
    return commit


def _refuse_giant(listing: bytes) -> None:
    """Before anything is written: `mode type id size<TAB>path`, the size of a submodule being a dash."""
    sizes = [entry.split(None, 4)[3] for entry in listing.split(b"\0") if entry]
    if len(sizes) > _MAX_FILES or sum(int(size) for size in sizes if size.isdigit()) > _MAX_BYTES:
        raise GitError(f"it has more than {_MAX_FILES} files or {_MAX_BYTES // 1024**2} MiB")


# `symphony skills export`: plain copies of the skills for other agents.


_EXPORT_EPILOG = """\b
Examples:
  symphony skills export ../shared-skills
  symphony skills export . --to claude      as .claude/skills/<name>/SKILL.md
  symphony skills export . --to agents --dry-run

Exit codes: 0 done, 1 something was skipped, 2 usage.
"""
_TARGETS = {"plain": "", "agents": ".agents/skills", "claude": ".claude/skills"}


@click.command(epilog=_EXPORT_EPILOG, short_help="Copy skills to another place.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--to",
    type=click.Choice([*_TARGETS]),
    default="plain",
    show_default=True,
    help="Directly in DIR, or in the folder of these agents below it.",
)
@click.option("--force", is_flag=True, help="Replace existing files that differ.")
@dry_run_option
@json_option
@skills_options
def export(
    *, directory: Path, to: str, force: bool, dry_run: bool, place: SkillsContext, as_json: bool
) -> int:
    """Copy the skills that are not disabled, unchanged, each as DIR/<name>/SKILL.md."""
    found = place.load()
    left_out = {
        one.name
        for one in place.block(found).dropped
        if one.reason in {agent_skills.DropReason.DISABLED, agent_skills.DropReason.NOT_INCLUDED}
    }
    target = directory.absolute() / _TARGETS[to]
    moves = [
        _copied(place, skill, target, force=force, dry_run=dry_run)
        for skill in found.skills
        if skill.name not in left_out
    ]
    if as_json:
        print_json(exported(moves, target, dry_run=dry_run))
    else:
        print_moves(moves, dry_run=dry_run)
    return outcome_code(moves)


def _copied(
    place: SkillsContext, skill: agent_skills.Skill, target: Path, *, force: bool, dry_run: bool
) -> Moved:
    directory = skill.name if agent_skills.is_clean_name(skill.name) else skill.directory
    anchor, path = agent_skills.resolve_anchor(skill.scope, skill.path, place.workspace, place.options)
    try:
        bundle = agent_skills.read_bundle(anchor, PurePosixPath(path).parts[:-1])
        done = agent_skills.install(bundle, target, directory, force=force, dry_run=dry_run)
    except agent_skills.BundleError as error:
        done = agent_skills.Installed(agent_skills.InstallOutcome.SKIPPED, str(error))
    return Moved(
        name=skill.name,
        source=skill.path,
        path=str(target / directory),
        outcome=done.outcome,
        reason=done.reason,
    )


_IMPORT_EPILOG = """\b
Examples:
  symphony skills import ../other-repo --dry-run            list the skills by folder
  symphony skills import ~/.claude/skills --name pdf-tools --name release-notes
  symphony skills import ../collection --from skills/writing --from plugins/review
  symphony skills import https://github.com/example/skills --ref v1.2

The source is a folder or a repository with skills up to five levels deep, or one skill. It copies every
folder with a SKILL.md, or those that --from and --name select. It changes no file, runs nothing of the
source, and checks each skill before it writes it.

Exit codes: 0 done, 1 something was skipped, or nothing was found, 2 usage.
"""


class _Source(Struct, frozen=True, kw_only=True):
    """Where skills are taken from.

    Attributes:
        anchor: no link may lead out of it.
        starts: the steps from there to each folder that was named; one without steps for all of it.
        shown: as people know it.
        commit: of a repository that was fetched, or null.
    """

    anchor: Path
    starts: tuple[tuple[str, ...], ...]
    shown: str
    commit: str | None = None


@click.command(name="import", epilog=_IMPORT_EPILOG, short_help="Copy skills from another place.")
@click.argument("source", metavar="PATH-OR-GIT-URL")
@click.option("--ref", metavar="REF", help="A branch, tag or commit of the repository.  [default: its HEAD]")
@click.option("--from", "folders", multiple=True, metavar="DIR", help="Only below this folder; repeatable.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Only this skill; repeatable.")
@click.option("--user", is_flag=True, help="Use agent.skills.user_path instead of the repository.")
@click.option("--force", is_flag=True, help="Replace existing files that differ.")
@dry_run_option
@json_option
@skills_options
def import_(
    *,
    source: str,
    ref: str | None,
    folders: tuple[str, ...],
    names: tuple[str, ...],
    user: bool,
    force: bool,
    dry_run: bool,
    place: SkillsContext,
    as_json: bool,
) -> int:
    """Copy skills into this repository, unchanged."""
    root = place.home(user=user)
    with _opened(source, ref, folders) as opened:
        found = _found(opened, place)
        moves = _moved(_chosen(found, names, opened), root, place, force=force, dry_run=dry_run)
    if as_json:
        folders_found = tuple(
            documents.SkillFolder(folder=folder, found=count, skipped=bad)
            for folder, count, bad in _folders(found)
        )
        print_json(
            documents.SkillsImported(
                **structs.asdict(exported(moves, root, dry_run=dry_run)),
                source=documents.SkillSource(from_=opened.shown, commit=opened.commit),
                folders=folders_found,
            )
        )
    else:
        print_folders(_folders(found))
        print_moves(moves, dry_run=dry_run)
        at = f" at {opened.commit}" if opened.commit else ""
        click.echo(
            f"from {one_line(opened.shown)}{at}; read what you imported before you commit it", err=True
        )
    return outcome_code(moves)


@contextmanager
def _opened(source: str, ref: str | None, folders: tuple[str, ...]) -> Iterator[_Source]:
    """The source as files here; those of a repository are gone afterwards."""
    starts = tuple(map(_steps, folders)) or ((),)
    if is_address(source):
        with tempfile.TemporaryDirectory(prefix="symphony-import-") as directory:
            fetched = fetch(source, ref, Path(directory))
            yield _Source(anchor=fetched.tree, starts=starts, shown=fetched.address, commit=fetched.commit)
        return
    if ref is not None:
        raise click.UsageError("--ref needs the address of a repository, such as file:///...")
    path = Path(os.path.normpath(Path(source).expanduser().absolute()))
    if not path.exists():
        hint = "name a folder, or an address such as https://host/repository"
        raise CommandError.of(f"there is no {one_line(source)}", hint=hint)
    if path.name == "SKILL.md":
        path = path.parent
    if not path.is_dir():
        hint = f"make {one_line(path.stem)}/SKILL.md of it, with name and description, and name that folder"
        raise CommandError.of(f"{one_line(source)} is no folder with a SKILL.md", hint=hint)
    yield _Source(anchor=path, starts=starts, shown=str(path))


def _steps(folder: str) -> tuple[str, ...]:
    pure = PurePosixPath(folder)
    if pure.is_absolute() or ".." in pure.parts:
        raise click.UsageError("--from: a relative path below the source")
    return pure.parts


def _found(source: _Source, place: SkillsContext) -> list[agent_skills.ImportCandidate]:
    """Everything that may be a skill.

    Raises:
        CommandError: there is nothing, in all of the source or in one of the folders that were named.
    """
    found = agent_skills.find_importable(source.anchor, source.starts, place.options)
    for start in source.starts:
        steps = "/".join(start)
        if not any(not steps or f"{one.source}/".startswith(f"{steps}/") for one in found):
            where = one_line(f"{steps} of {source.shown}" if steps else source.shown)
            hint = "a skill is a folder with a SKILL.md, at most five levels below the folder that is named"
            raise CommandError.of(f"there are no skills in {where}", hint=hint)
    return found


def _folders(found: Sequence[agent_skills.ImportCandidate]) -> list[tuple[str, int, int]]:
    """Each folder that has skills, how many it has, and how many of them cannot be taken."""
    every = Counter(one.folder for one in found)
    bad = Counter(one.folder for one in found if one.bundle is None)
    return [(folder, count, bad[folder]) for folder, count in every.items()]


def _chosen(
    found: Sequence[agent_skills.ImportCandidate], names: tuple[str, ...], source: _Source
) -> list[agent_skills.ImportCandidate]:
    known = {name for one in found for name in (one.name, one.directory)}
    for name in names:
        if name not in known:
            hint = f"it has {', '.join(sorted({one_line(one.name) for one in found})[:20])}"
            message = f"{one_line(source.shown)} has no skill {one_line(name)!r}"
            raise CommandError.of(message, hint=hint)
    return [one for one in found if not names or one.name in names or one.directory in names]


def _moved(
    found: Sequence[agent_skills.ImportCandidate],
    root: Path,
    place: SkillsContext,
    *,
    force: bool,
    dry_run: bool,
) -> list[Moved]:
    """One after the other; a name that another directory has, here or in the source, is not given twice."""
    there = [skill for skill in place.load().skills if skill.root == root.absolute()]
    owners = {skill.name: skill.directory for skill in there}
    present = (
        {agent_skills.directory_key(path.name): path.name for path in root.iterdir()} if root.is_dir() else {}
    )
    moves = []
    for one in found:
        owner = owners.setdefault(one.name, one.directory) if one.bundle else one.directory
        if one.bundle is None:
            done = agent_skills.Installed(agent_skills.InstallOutcome.SKIPPED, one.reason)
        elif owner != one.directory:
            done = agent_skills.Installed(
                agent_skills.InstallOutcome.SKIPPED, f"its name is already taken by {owner}"
            )
        elif (near := present.get(agent_skills.directory_key(one.directory), one.directory)) != one.directory:
            done = agent_skills.Installed(
                agent_skills.InstallOutcome.SKIPPED,
                f"{near} is there, and on some file systems the same folder",
            )
        else:
            done = agent_skills.install(one.bundle, root, one.directory, force=force, dry_run=dry_run)
        moves.append(
            Moved(
                name=one.name,
                source=one.source,
                path=agent_skills.path_text(str(root / one.directory)),
                outcome=done.outcome,
                reason=done.reason,
                problems=one.problems,
            )
        )
    return moves


# --- skills for people -----------------------------------------------------------------------------------
#
# What their files say is shown as text and nothing else.


# Fills what the `skills` commands print: all skills, one, the block, what a search or a check finds.


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def listing(
    found: agent_skills.SkillSet,
    block: agent_skills.CatalogBlock,
    options: agent_skills.SkillOptions,
    *,
    uncommitted: Iterable[str],
    elsewhere: Iterable[UnseenFolder] = (),
    digests: Mapping[str, str] = _NONE,
) -> documents.SkillListing:
    """All skills; `digests` are SHA-256 in hex by the paths of files."""
    return documents.SkillListing(
        roots=tuple(documents.SkillRoot(scope=root.scope.value, path=root.path) for root in found.roots),
        skills=tuple(_shown(skill, block, options, digests.get(skill.path)) for skill in found.skills),
        shadowed=tuple(documents.HiddenSkill.of(one) for one in found.shadowed),
        problems=found.problems,
        uncommitted=tuple(sorted(uncommitted)),
        elsewhere=tuple(documents.FolderElsewhere(path=one.path, skills=one.skills) for one in elsewhere),
    )


def _shown(
    skill: agent_skills.Skill,
    block: agent_skills.CatalogBlock,
    options: agent_skills.SkillOptions,
    sha256: str | None,
) -> documents.ShownSkill:
    included = not options.include or skill.name in options.include
    return documents.ShownSkill.of(
        skill,
        enabled=options.enabled
        and included
        and skill.name not in options.disabled_skills
        and not options.hides(skill),
        listed=skill.name in block.listed,
        sha256=sha256,
    )


def block_document(found: agent_skills.SkillSet, block: agent_skills.CatalogBlock) -> documents.SkillBlock:
    """What goes into a prompt."""
    return documents.SkillBlock(
        block=block.text,
        listed=tuple(block.listed),
        dropped=tuple(
            documents.UnlistedSkill(name=one.name, reason=one.reason.value) for one in block.dropped
        ),
        shortened=tuple(block.shortened),
        problems=found.problems,
    )


def detail(
    workspace: Path,
    found: agent_skills.SkillSet,
    name: str,
    block: agent_skills.CatalogBlock,
    options: agent_skills.SkillOptions,
) -> documents.SkillDetail | None:
    """One skill with the skills that it hides, its problems and its text; `None` if it does not exist."""
    skill = next((one for one in found.skills if one.name == name), None)
    if skill is None:
        return None
    content: agent_skills.SkillContent | None
    try:
        content = agent_skills.read_content(
            *agent_skills.resolve_anchor(skill.scope, skill.path, workspace, options)
        )
    except agent_skills.ContentError:
        content = None
    sha256 = agent_skills.skill_digests(workspace, [skill], options).get(skill.path)
    return documents.SkillDetail(
        **structs.asdict(_shown(skill, block, options, sha256)),
        file=str(found.file(skill)),
        shadows=tuple(one.path for one in found.shadowed if one.by == skill.path),
        problems=tuple(one for one in found.problems if one.path == skill.path),
        body=None if content is None else content.body,
        cut=content is not None and content.cut,
        files=() if content is None else tuple(content.files),
        more_files=0 if content is None else content.more_files,
    )


def hits_document(
    query: str,
    hits: Iterable[agent_skills.Hit],
    block: agent_skills.CatalogBlock,
    options: agent_skills.SkillOptions,
    *,
    digests: Mapping[str, str] = _NONE,
) -> documents.SkillHits:
    """What a search finds, the best first."""
    return documents.SkillHits(
        query=query,
        hits=tuple(
            documents.FoundSkill(
                **structs.asdict(_shown(hit.skill, block, options, digests.get(hit.skill.path))),
                score=hit.score,
            )
            for hit in hits
        ),
    )


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
    "for_people",
    "phases",
    "priority",
    "shadows",
    "files",
)

_REASONS = {
    agent_skills.DropReason.COUNT: "over the cap",
    agent_skills.DropReason.BUDGET: "over budget",
    agent_skills.DropReason.DISABLED: "disabled",
    agent_skills.DropReason.NOT_INCLUDED: "not included",
    agent_skills.DropReason.FOR_PEOPLE: "for people",
    agent_skills.DropReason.PHASE: "other phase",
}


def print_listing(
    found: agent_skills.SkillSet, block: agent_skills.CatalogBlock, place: SkillsContext
) -> None:
    """A line per skill; below, the problems of files that are not skills."""
    if found.skills:
        print_blocks(console_for(), _listing(found, block, place))
    paths = {skill.path for skill in found.skills}
    others = [
        one
        for one in found.problems
        if one.path not in paths and one.severity is not agent_skills.Severity.INFO
    ]
    for line in agent_skills.text_lines(others, place.below):
        click.echo(line)
    kept = [skill for skill in found.skills if place.options.hides(skill)]
    if kept:
        names = ", ".join(f"{skill_line(skill.name)} ({skill_line(str(skill.for_people))})" for skill in kept)
        click.echo(f"hint: kept for people: {names}; agent.skills.for_people: show lists them", err=True)


def _listing(found: agent_skills.SkillSet, block: agent_skills.CatalogBlock, place: SkillsContext) -> Table:
    unseen = place.uncommitted()
    dropped = {one.name: _REASONS[one.reason] for one in block.dropped}
    problems = Counter(one.path for one in found.problems if one.severity is not agent_skills.Severity.INFO)
    rows = table("NAME", "SCOPE", "LISTED", "PROBLEMS", "WHEN TO USE", cut={"WHEN TO USE"})
    for skill in found.skills:
        if not place.options.enabled:
            listed = "off"
        elif skill.name not in block.listed:
            listed = dropped.get(skill.name, "no")
        else:
            listed = "not committed" if skill.path in unseen else "yes"
        count = problems[skill.path]
        rows.add_row(
            cell(skill.name),
            cell(skill.scope.value),
            cell(listed),
            cell(plural(count, "warning") if count else ""),
            cell(skill.text),
        )
    return rows


def print_hits(hits: Iterable[agent_skills.Hit]) -> None:
    """A line per hit."""
    rows = table("NAME", "PATH", "WHEN TO USE", fold={"PATH"}, cut={"WHEN TO USE"})
    for hit in hits:
        rows.add_row(cell(hit.skill.name), cell(hit.skill.path), cell(hit.skill.text))
    print_blocks(console_for(), rows)


def print_folders(folders: Iterable[tuple[str, int, int]]) -> None:
    """A line per folder of a source: how many skills it has, and how many of them cannot be taken."""
    rows = table("FOLDER", "SKILLS", "NOT USABLE")
    for folder, count, bad in folders:
        rows.add_row(cell(folder), cell(count), cell(bad or ""))
    print_blocks(console_for(), rows)


def detail_lines(skill: documents.SkillDetail, found: agent_skills.SkillSet, below: str) -> Iterator[str]:
    """The fields, the problems, then at most 500 lines of text in which nothing steers a terminal."""
    for name in _FIELDS:
        value = getattr(skill, name)
        if value not in (None, "", ()):
            yield agent_skills.clean(f"{name}: {_plain(value)}")
    yield from agent_skills.text_lines((one for one in found.problems if one.path == skill.path), below)
    if skill.body is None:
        return
    yield ""
    lines = skill.body.split("\n")
    yield from map(visible, lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES or skill.cut:
        yield f"(more in {agent_skills.clean(skill.file)})"


def _plain(value: object) -> str:
    match value:
        case tuple():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
    return str(value)
