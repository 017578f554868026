"""`symphony library`: the skills that are kept beside the repository, and their versions."""

import getpass
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import click
from msgspec import UNSET

from symphony import to_thread
from symphony.api import library as api_library
from symphony.api.interface import ConflictError, LibraryInUse, UnknownError
from symphony.api.models import (
    LibraryAccept,
    LibraryAssign,
    LibraryReject,
    LibraryRemove,
    LibraryRevert,
    LibrarySave,
)
from symphony.api.routes import Edit
from symphony.cli import options as cli_options
from symphony.cli.commands.skills import Moved, exported, outcome_code, print_moves
from symphony.cli.documents import (
    FailedFile,
    LibraryBackup,
    LibraryHistory,
    LibraryImported,
    LibraryPromoted,
    LibraryPurged,
    LibraryReverted,
    LibrarySynced,
)
from symphony.cli.failures import CommandError, ExitCode, printable, require_person, warn
from symphony.cli.library_access import OpenLibrary, open_library
from symphony.cli.main import LazyGroup
from symphony.cli.offline import open_context
from symphony.cli.render.library import (
    finding_line,
    print_assignments,
    print_diff,
    print_proposal,
    print_proposals,
    print_skills,
    print_versions,
    skill_lines,
    tell_count,
)
from symphony.cli.repository import git
from symphony.cli.skill_roots import repository_top
from symphony.daemon.context import skill_options
from symphony.daemon.state_dir import journal_path
from symphony.domain import SymphonyError, issues_named, one_line, plural
from symphony.journal.reader import past_runs
from symphony.library import model
from symphony.library.gate import REFUSED, gate
from symphony.library.provenance import is_learned, provenance
from symphony.library.store import Library
from symphony.library.sync import sync_skills
from symphony.observability.redaction import masked
from symphony.problem import Problem, Severity
from symphony.skills import POLICY_PATH, Bundle, BundledFile, ImportCandidate, find_importable, install
from symphony.workspaces import Layout, Workspace, local_repository

# --- which library, and changing it ----------------------------------------------------------------------


def library_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` and `--workflow`; the command gets the library as `library`."""

    @wraps(command)
    def run(*args: Any, workflow: Path, **options: Any) -> Any:
        library = open_library(workflow, os.environ)
        if not workflow.exists() and not library.in_use.store.path.exists():
            raise CommandError.of(
                f"there is no {workflow}, and no library of it",
                hint="go to the repository, or name it with -C DIR or --workflow FILE; "
                "`symphony init` makes one",
                code=ExitCode.CONFIGURATION,
            )
        try:
            return command(*args, library=library, **options)
        except (ConflictError, UnknownError) as error:
            hint = error.hint or "`symphony library list` names the skills"
            raise CommandError.of(error.message, hint=hint) from error

    return cli_options.json_option(cli_options.workflow_option(run))


def skill_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument NAME: a skill of the library."""
    return click.argument("name", shell_complete=complete_skill)(command)


def complete_skill(ctx: click.Context, _argument: click.Parameter, incomplete: str) -> list[str]:
    """Names of skills that begin with `incomplete`, for shell completion; never fails, and makes no file."""
    return _completed(ctx, incomplete, lambda library: (one.name for one in library.skills()))


def complete_proposal(ctx: click.Context, _argument: click.Parameter, incomplete: str) -> list[str]:
    """Ids of the proposals that wait for a person; as `complete_skill`."""
    return _completed(ctx, incomplete, lambda library: (str(one.id) for one in library.proposals()))


def _completed(ctx: click.Context, incomplete: str, names: Callable[[Library], Iterable[str]]) -> list[str]:
    workflow = ctx.params.get("workflow") or cli_options.nearest_workflow()
    try:
        library = open_library(Path(workflow), os.environ).in_use.store
        found = list(names(library)) if library.path.exists() else []
    except (SymphonyError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


def reason_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--reason TEXT`."""

    def check(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
        if value is not None and len(value) > model.MAX_REASON_CHARS:
            raise click.BadParameter(f"at most {model.MAX_REASON_CHARS} characters", param=option)
        return value

    return click.option("--reason", metavar="TEXT", callback=check, help="The reason, which is stored.")(
        command
    )


def change_library(library: OpenLibrary, edit: Edit, by: str, *, as_json: bool, name: str = "") -> None:
    """Change the library as the API does, and print what was done.

    Args:
        library: to change.
        edit: what to do.
        by: who does it.
        as_json: print the document.
        name: the skill that a new file is of, if it is no new one.

    Raises:
        ConflictError: the edit was based on another version than the newest one.
        UnknownError: there is no such skill, version or proposal.
        LibraryError: the library refuses it, or cannot be used.
    """
    done = api_library.change(library.in_use, edit, by, name)
    if as_json:
        cli_options.print_json(done)
        return
    for finding in done.findings:
        click.echo(finding_line(finding, coloured=sys.stderr.isatty()), err=True)
    click.echo(one_line(done.message))


def show_both(library: OpenLibrary, name: str, base: int, mine: str) -> None:
    """Show what was changed since a version of a skill, and the change that was based on it, on stderr.

    `base` is 0 for a change that would have made the skill.
    """
    newest = api_library.skill(library.in_use, name).skill.version
    if base:
        click.echo(f"Changed meanwhile, from version {base} to {newest}:", err=True)
        print_diff(api_library.diff(library.in_use, name, base, newest).diff, err=True)
    else:
        click.echo(f"Added meanwhile: {name}, now at version {newest}", err=True)
    click.echo("The change that is refused:", err=True)
    print_diff(mine, err=True)


def author() -> str:
    """Who changes the library: the name of this user.

    Raises:
        CommandError: the command was started by an agent.
    """
    hint = "write the skill into the skills directory of the workspace; a person gets it as a proposal"
    require_person("change the library", hint=hint)
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "operator"


_READ_CODES = "Exit codes: 0 done, 1 there is no such skill or version, 2 usage, 3 the workflow is invalid."
_FILE_NAME: Final = "SKILL.md"
_MAX_CHARS: Final = 320 * 1024


# --- looking ---------------------------------------------------------------------------------------------

_LIST_EPILOG = """\b
Examples:
  symphony library list
  symphony library list database migration      those with all of these words
  symphony library list --learned --json | jq -r '.skills[].name'

Skills that agents wrote come last.

Exit codes: 0 done, 1 the library cannot be read, 2 usage, 3 the workflow is invalid.
"""
_SHOW_EPILOG = f"""\b
Examples:
  symphony library show release-notes
  symphony library show release-notes 2         an earlier version
  symphony library show release-notes --json | jq -r .file

{_READ_CODES}
"""
_HISTORY_EPILOG = f"""\b
Examples:
  symphony library history release-notes
  symphony library history release-notes --json | jq -r '.versions[0].author'

{_READ_CODES}
"""
_DIFF_EPILOG = f"""\b
Examples:
  symphony library diff release-notes           what the newest version changed
  symphony library diff release-notes 2         from version 2 to the newest
  symphony library diff release-notes 2 3

{_READ_CODES}
"""


@click.command(name="list", epilog=_LIST_EPILOG, short_help="List the skills.")
@click.argument("words", nargs=-1)
@click.option("--learned", is_flag=True, help="Only skills that agents wrote.")
@library_options
def list_(*, words: tuple[str, ...], learned: bool, library: OpenLibrary, as_json: bool) -> None:
    """List the skills of the library, or those with all of the words."""
    found = api_library.skills(library.in_use, " ".join(words), None, learned=learned)
    if as_json:
        cli_options.print_json(found)
        return
    print_skills(found)
    tell_count(found.total, "skill")
    if not found.total and not words and not learned:
        click.echo("hint: `symphony library add FOLDER` adds one", err=True)


@click.command(epilog=_SHOW_EPILOG, short_help="Show a skill.")
@skill_argument
@click.argument("version", type=click.IntRange(min=1), required=False)
@library_options
def show(*, name: str, version: int | None, library: OpenLibrary, as_json: bool) -> None:
    """Show a skill and its file. VERSION is an earlier version."""
    page = api_library.skill(library.in_use, name, version)
    if as_json:
        cli_options.print_json(page)
        return
    for line in skill_lines(page):
        click.echo(line)


@click.command(epilog=_HISTORY_EPILOG, short_help="List the versions of a skill.")
@skill_argument
@library_options
def history(*, name: str, library: OpenLibrary, as_json: bool) -> None:
    """List the versions of a skill, the newest first: who wrote each, when and why."""
    page = api_library.skill(library.in_use, name)
    if as_json:
        cli_options.print_json(LibraryHistory(name=page.skill.name, versions=page.versions))
        return
    print_versions(page.versions)


@click.command(name="diff", epilog=_DIFF_EPILOG, short_help="Show what a version changed.")
@skill_argument
@click.argument("old", type=click.IntRange(min=1), required=False)
@click.argument("new", type=click.IntRange(min=1), required=False)
@library_options
def diff_(*, name: str, old: int | None, new: int | None, library: OpenLibrary, as_json: bool) -> None:
    """Show the difference between two versions: the newest, and OLD or the one before it."""
    newest = api_library.skill(library.in_use, name).skill.version
    found = api_library.diff(library.in_use, name, old or max(newest - 1, 1), new or newest)
    if as_json:
        cli_options.print_json(found)
        return
    print_diff(found.diff)
    if not found.diff:
        click.echo(f"versions {found.old} and {found.new} of {name} say the same", err=True)


# --- changing --------------------------------------------------------------------------------------------

_ADD_EPILOG = """\b
Examples:
  symphony library add .symphony/skills/release-notes
  symphony library add notes/SKILL.md --reason "From the last retrospective"
  symphony library add - < release-notes.md

SOURCE is the folder of a skill, its file, or - for standard input. The library keeps the SKILL.md and no
other file of the folder.

Exit codes: 0 added, 1 there is a skill of this name, or it is not valid, 2 usage, 3 the workflow is invalid.
"""
_EDIT_EPILOG = """\b
Examples:
  symphony library edit release-notes
  EDITOR="code --wait" symphony library edit release-notes --reason "Name the tag"
  symphony library edit release-notes --file new.md

Opens $VISUAL, else $EDITOR, and stores your text as a new version. If another person changed the skill
meanwhile, the command shows both changes, changes nothing, and keeps your text in a file.

Exit codes: 0 changed, or nothing to change, 1 refused, 2 usage, 3 the workflow is invalid.
"""
_REMOVE_EPILOG = """\b
Examples:
  symphony library remove release-notes --reason "The release is automatic now"

Sessions that start later do not get it. Its versions stay in the file, and a new skill may have its name.

Exit codes: 0 removed, 1 there is no such skill, 2 usage, 3 the workflow is invalid.
"""
_REVERT_EPILOG = """\b
Examples:
  symphony library revert release-notes 2

The text of version 2 becomes the newest version; no version is lost.

Exit codes: 0 done, 1 there is no such skill or version, 2 usage, 3 the workflow is invalid.
"""


@click.command(epilog=_ADD_EPILOG, short_help="Add a skill.")
@click.argument("source", metavar="SOURCE")
@reason_option
@library_options
def add(*, source: str, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Add a skill from a folder, a file, or standard input."""
    by, path = author(), Path(source)
    file, directory = source, "" if source == "-" else path.stem
    if path.is_dir():
        file, directory = str(path / _FILE_NAME), path.resolve().name
        if not Path(file).exists():
            hint = f"symphony library import {shlex.quote(source)} takes the skills below it"
            raise CommandError.of(f"{source} has no {_FILE_NAME}", hint=hint, code=ExitCode.USAGE)
    elif path.name == _FILE_NAME:
        directory = path.resolve().parent.name
    text = model.SkillText.of_file(_read(file).encode(), directory)
    policy = Path(file).parent / POLICY_PATH
    if source != "-" and policy.is_file():
        text = text.with_policy(policy.read_bytes())
    edit = LibrarySave(file=text.file().decode(), base_version=0, reason=reason or UNSET)
    change_library(library, edit, by, as_json=as_json)
    if path.is_dir() and any(one.name != _FILE_NAME for one in path.iterdir()):
        warn(f"the library keeps {_FILE_NAME} only, and no other file of {source}")


@click.command(name="edit", epilog=_EDIT_EPILOG, short_help="Change a skill in your editor.")
@skill_argument
@cli_options.text_file_option
@reason_option
@library_options
def edit_(*, name: str, file: str | None, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Change a skill in your editor, or to the text of a file."""
    by, present = author(), library.in_use.store.skill(name)
    if file is not None:
        _save(library, present, _read(file), by, reason, as_json=as_json)
        return
    if not (sys.stdin and sys.stdin.isatty()) and not (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        hint = "set EDITOR, or give the text with --file"
        raise CommandError.of("there is no terminal for an editor", hint=hint, code=ExitCode.USAGE)
    before = present.text.file()
    descriptor, draft = tempfile.mkstemp(prefix=f"{name}-", suffix=".md")
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(before)
    try:
        click.edit(filename=draft)
        _save(library, present, _read(draft), by, reason, as_json=as_json)
    except (SymphonyError, ConflictError, click.ClickException):
        if Path(draft).read_bytes() != before:
            warn(f"your text is stored; symphony library edit {name} --file {shlex.quote(draft)} takes it")
            raise
        Path(draft).unlink()
        raise
    Path(draft).unlink()


@click.command(epilog=_REMOVE_EPILOG, short_help="Remove a skill.")
@skill_argument
@reason_option
@library_options
def remove(*, name: str, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Remove a skill."""
    change_library(library, LibraryRemove(name=name, reason=reason or UNSET), author(), as_json=as_json)


@click.command(epilog=_REVERT_EPILOG, short_help="Make an earlier version the newest one.")
@skill_argument
@click.argument("version", type=click.IntRange(min=1))
@reason_option
@library_options
def revert(*, name: str, version: int, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Make the text of an earlier version the newest one."""
    edit = LibraryRevert(name=name, version=version, reason=reason or UNSET)
    change_library(library, edit, author(), as_json=as_json)


def _read(file: str) -> str:
    return cli_options.read_text_argument(None, file, what="skill", most=_MAX_CHARS)


def _save(
    library: OpenLibrary,
    present: model.LibrarySkill,
    text: str,
    by: str,
    reason: str | None,
    *,
    as_json: bool,
) -> None:
    """Make the next version of a skill; if it was changed meanwhile, show both changes."""
    edit = LibrarySave(file=text, base_version=present.version, reason=reason or UNSET)
    try:
        change_library(library, edit, by, name=present.name, as_json=as_json)
    except ConflictError:
        mine = library.in_use.mask(api_library.unified(present.text.file().decode(), text))
        show_both(library, present.name, present.version, mine)
        raise


# --- skills from elsewhere, and to elsewhere -------------------------------------------------------------


_IMPORT_EPILOG = """\b
Examples:
  symphony library import .symphony/skills
  symphony library import ../shared-skills --reason "The team's"
  symphony library import ../shared-skills --json | jq '.failed[]'

Each folder with a SKILL.md below DIR becomes a new skill, or the newest version of the skill with its name.
An invalid file does not stop the others. The library keeps only the SKILL.md.

Exit codes: 0 done, 1 a file could not be added, or there is none, 2 usage, 3 the workflow is invalid.
"""
_EXPORT_EPILOG = """\b
Examples:
  symphony library export ../shared-skills
  symphony library export .claude/skills release-notes style
  symphony library export ../shared-skills --force --dry-run

Exit codes: 0 done, 1 something that differs was skipped, or there is no such skill, 2 usage, 3 the workflow
is invalid.
"""
_PROMOTE_EPILOG = """\b
Examples:
  symphony library promote release-notes
  symphony library promote release-notes --branch skills/release-notes

Commits the newest version as .symphony/skills/NAME/SKILL.md on a new branch of the repository. The branch
begins at workspace.base_branch, else at the commit that is checked out. Your files, your index and the
checked-out branch do not change. Once the branch is merged, the repository's skill counts, and the
library's skill is shadowed.

Exit codes: 0 done, or it is there already, 1 the branch or another text is there, or git refuses, 2 usage,
3 the workflow is invalid.
"""
_BACKUP_EPILOG = """\b
Examples:
  symphony library backup ~/backups/library-2026-11-26.db

Works while other programs use the library. To restore it, stop the daemon and copy the
file back over library.db, without library.db-wal and library.db-shm.

Exit codes: 0 done, 1 the file exists or cannot be written, or there is no library yet, 2 usage, 3 the
workflow is invalid.
"""


# --- files -----------------------------------------------------------------------------------------------


@click.command(name="import", epilog=_IMPORT_EPILOG, short_help="Add the skills of a folder.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@reason_option
@library_options
def import_(*, directory: Path, reason: str | None, library: OpenLibrary, as_json: bool) -> int:
    """Add all skills below a folder to the library."""
    change = model.Authorship(author=author(), reason=reason or f"imported from {directory.resolve().name}")
    options = skill_options(library.settings.skills)
    found = find_importable(directory.absolute(), ((),), options)
    if not found:
        hint = f"a skill is a folder with a {_FILE_NAME}, at most five levels below"
        raise CommandError.of(f"there are no skills in {directory}", hint=hint)
    done = _import(str(directory), found, library.in_use, change)
    if as_json:
        cli_options.print_json(done)
    else:
        _print_imported(done)
    return ExitCode.FAILURE if done.failed else ExitCode.OK


def _import(
    source: str, found: Sequence[ImportCandidate], library: LibraryInUse, change: model.Authorship
) -> LibraryImported:
    outcomes: dict[str, list[str]] = {"created": [], "updated": [], "unchanged": []}
    failed: list[FailedFile] = []
    problems: list[Problem] = []
    for one in found:
        if one.bundle is None:
            failed.append(FailedFile(path=one.source, message=one.reason or "it is no skill", hint=None))
            continue
        try:
            files = one.bundle.files
            text = model.SkillText.of_file(files[_FILE_NAME].data, one.directory)
            if (policy := files.get(POLICY_PATH)) is not None:
                text = text.with_policy(policy.data)
            findings = api_library.admitted(library, text)
            outcomes[_imported(library.store, text, change)].append(text.name)
        except model.LibraryError as error:
            failed.append(FailedFile(path=one.source, message=error.failure.message, hint=error.failure.hint))
            continue
        problems += (
            Problem(
                path=f"{one.source}/{_FILE_NAME}",
                severity=Severity.WARNING,
                code=each.code,
                line=each.line,
                column=None,
                message=library.mask(each.message),
                hint=each.hint or "",
            )
            for each in findings
        )
        if len(one.bundle.files) > 1:
            warn(f"the library keeps {_FILE_NAME} only, and no other file of {one.source}")
    names = {outcome: tuple(sorted(those)) for outcome, those in outcomes.items()}
    return LibraryImported(source=source, findings=tuple(problems), failed=tuple(failed), **names)


def _print_imported(done: LibraryImported) -> None:
    outcomes = {"created": done.created, "updated": done.updated, "unchanged": done.unchanged}
    for outcome, names in outcomes.items():
        for name in names:
            click.echo(f"{outcome:9} {name}")
    for one in done.findings:
        warn(f"{one.path}:{one.line or 1}: {one.message} {one.hint} ({one.code})")
    for file in done.failed:
        click.echo(f"{'failed':9} {printable(f'{file.path}: {file.message}')}")
        if file.hint is not None:
            click.echo(f"  hint: {printable(file.hint)}")
    counts = [f"{len(names)} {outcome}" for outcome, names in outcomes.items()]
    click.echo(", ".join((*counts, f"{len(done.failed)} failed")), err=True)


def _imported(store: Library, text: model.SkillText, change: model.Authorship) -> str:
    """Add a skill or its next version; return what was done.

    Raises:
        LibraryError: the library refuses it, or another person is changing the skill.
    """
    try:
        present = store.skill(text.name)
    except model.NotInLibraryError:
        store.add(text, change, origin=model.Origin.LEARNED if is_learned(text) else model.Origin.IMPORTED)
        return "created"
    if present.text == text:
        return "unchanged"
    store.edit(text, change, base_version=present.version)
    return "updated"


@click.command(epilog=_EXPORT_EPILOG, short_help="Write skills into a folder.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=complete_skill)
@click.option("--force", is_flag=True, help="Replace existing files that differ.")
@cli_options.dry_run_option
@library_options
def export(
    *,
    directory: Path,
    names: tuple[str, ...],
    force: bool,
    dry_run: bool,
    library: OpenLibrary,
    as_json: bool,
) -> int:
    """Write all skills, or the named ones, as DIR/NAME/SKILL.md."""
    store, target = library.in_use.store, directory.absolute()
    wanted = names or tuple(one.name for one in store.skills())
    moves = []
    for skill in [store.skill(name) for name in wanted]:
        bundle = Bundle(files={_FILE_NAME: BundledFile(data=skill.text.file())})
        done = install(bundle, target, skill.name, force=force, dry_run=dry_run)
        moves.append(
            Moved(
                name=skill.name,
                source=f"version {skill.version}",
                path=str(target / skill.name),
                outcome=done.outcome,
                reason=done.reason,
            )
        )
    if as_json:
        cli_options.print_json(exported(moves, target, dry_run=dry_run))
    else:
        print_moves(moves, dry_run=dry_run)
    return outcome_code(moves)


@click.command(epilog=_BACKUP_EPILOG, short_help="Copy the library into a new file.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@library_options
def backup(*, file: Path, library: OpenLibrary, as_json: bool) -> None:
    """Copy the whole library, with all versions, feedback and proposals, into a new file."""
    store = library.in_use.store
    if not store.path.exists():
        hint = "`symphony library add FOLDER` begins one"
        raise CommandError.of(f"there is no library yet: {store.path}", hint=hint)
    store.backup(file)
    done = LibraryBackup(path=str(file.absolute()), bytes=file.stat().st_size)
    if as_json:
        cli_options.print_json(done)
    else:
        click.echo(f"{done.path}  {done.bytes:,} bytes")


# --- a branch of the repository --------------------------------------------------------------------------


@click.command(epilog=_PROMOTE_EPILOG, short_help="Commit a skill on a branch, for review.")
@skill_argument
@click.option("--branch", metavar="NAME", help="The new branch.  [default: skill/NAME-vVERSION]")
@click.option("--force", is_flag=True, help="Replace existing files that differ.")
@library_options
def promote(*, name: str, branch: str | None, force: bool, library: OpenLibrary, as_json: bool) -> None:
    """Commit a skill on a new branch of the repository, for review."""
    author()
    skill = library.in_use.store.skill(name)
    if any(one.code == "secret" for one in gate(None, skill.text, library.in_use.mask)):
        hint = f"take it out: symphony library edit {name}"
        raise CommandError.of(f"{name} has a secret, and a commit would show it", hint=hint)
    repository, base_branch = _repository(library)
    path = f"{library.settings.skills.path}/{skill.name}/{_FILE_NAME}"
    branch = branch or f"skill/{skill.name}-v{skill.version}"
    done = _promoted(_Repository(repository), skill, path, branch, base_branch, force=force)
    if as_json:
        cli_options.print_json(done)
    elif done.commit is None:
        click.echo(f"{done.base} has version {done.version} of {name} already: {done.path}")
    else:
        click.echo(f"{name} version {done.version} is {done.path} on the branch {done.branch}")
        click.echo(f"look at it:  git diff {shlex.quote(f'{done.base}...{branch}')}")
        click.echo(f"review it:   git push origin {shlex.quote(branch)}, then open a pull request")


def _repository(library: OpenLibrary) -> tuple[Path, str | None]:
    """The local repository of the sessions, else that of WORKFLOW.md; and the base branch, if it is set."""
    workspace = library.workspace
    if workspace is None:
        return repository_top(library.workflow.absolute().parent), None
    local = local_repository(workspace.repo or "")
    return local or repository_top(library.workflow.absolute().parent), workspace.base_branch


class _Repository:
    """git in a repository of the user. Only objects and one new branch are written."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def run(self, *arguments: str, data: bytes = b"", index: Path | None = None) -> str:
        """Standard output without the last line break. Raises `CommandError`."""
        variables = {} if index is None else {"GIT_INDEX_FILE": str(index)}
        done = git(self.top, *arguments, data=data, variables=variables)
        if done.returncode != 0:
            reason = one_line(done.stderr.strip().rpartition("\n")[2]) or f"exit code {done.returncode}"
            hint = f"look with git in {self.top}; no branch was made"
            if arguments[0] == "commit-tree":
                hint = "set user.name and user.email with `git config`, then promote again"
            raise CommandError.of(f"git {arguments[0]} fails: {reason}", hint=hint)
        return done.stdout.removesuffix("\n")

    def commit(self, revision: str) -> str | None:
        """The commit of a revision; `None` if there is none."""
        done = git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return done.stdout.strip() if done.returncode == 0 else None

    def file(self, commit: str, path: str) -> bytes | None:
        """A file of a commit; `None` if it has none there."""
        done = git(self.top, "cat-file", "blob", f"{commit}:{path}")
        return os.fsencode(done.stdout) if done.returncode == 0 else None


def _promoted(
    repository: _Repository,
    skill: model.LibrarySkill,
    path: str,
    branch: str,
    base_branch: str | None,
    *,
    force: bool,
) -> LibraryPromoted:
    """Commit the file on a new branch.

    Raises:
        CommandError: there is no repository or no commit, another text or branch is there, or git fails.
    """
    head = repository.commit("HEAD")
    if head is None:
        hint = "promote commits into the git repository of WORKFLOW.md; commit something there first"
        raise CommandError.of(f"{repository.top} is no git repository with a commit", hint=hint)
    checked_out = git(repository.top, "symbolic-ref", "--quiet", "--short", "HEAD").stdout.strip() or head
    start = None if base_branch is None else repository.commit(base_branch)
    base = checked_out if start is None or base_branch is None else base_branch
    start, data = start or head, skill.text.file()
    there = repository.file(start, path)
    if there == data:
        return LibraryPromoted(
            name=skill.name, version=skill.version, path=path, base=base, branch=None, commit=None
        )
    if there is not None and not force:
        hint = f"git show {shlex.quote(f'{base}:{path}')} shows it; --force replaces it on the new branch"
        raise CommandError.of(f"{base} has another {path}", hint=hint)
    repository.run("check-ref-format", "--branch", branch)
    if (tip := repository.commit(f"refs/heads/{branch}")) is not None:
        if repository.file(tip, path) != data:
            hint = "name another one with --branch, or delete it"
            raise CommandError.of(f"there is a branch {branch}", hint=hint)
    else:
        verb = "Add" if there is None else "Change"
        message = f"{verb} the skill {skill.name}\n\nVersion {skill.version} of the library of skills."
        tip = _committed(repository, start, path, data, message)
        repository.run("update-ref", f"refs/heads/{branch}", tip, "")  # fails if it is there by now
    return LibraryPromoted(
        name=skill.name, version=skill.version, path=path, base=base, branch=branch, commit=tip
    )


def _committed(repository: _Repository, base: str, path: str, data: bytes, message: str) -> str:
    """A commit on top of `base` with one added or changed file, made with a separate index."""
    with tempfile.TemporaryDirectory(prefix="symphony-promote-") as directory:
        index = Path(directory, "index")
        blob = repository.run("hash-object", "-w", "--stdin", data=data)
        repository.run("read-tree", base, index=index)
        repository.run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", index=index)
        tree = repository.run("write-tree", index=index)
    return repository.run("commit-tree", tree, "-p", base, "-m", message)


# --- which skills an issue or an agent gets --------------------------------------------------------------

_ASSIGN_EPILOG = """\b
Examples:
  symphony library assign --issue SYM-7 release-notes style
  symphony library assign --agent codex style
  symphony library assign --issue SYM-8 --none          no skill of the library at all

Sessions get the skills of the issue (assignments and labels `skill:<name>`), else those of the agent, else
`agents.<name>.library` of WORKFLOW.md, else all skills. An assignment applies to sessions that start later.

Exit codes: 0 assigned, 1 the library has no such skill, 2 usage, 3 the workflow is invalid.
"""
_UNASSIGN_EPILOG = """\b
Examples:
  symphony library unassign --issue SYM-7

Then the next rule applies: see `symphony library assign --help`.

Exit codes: 0 done, or there was no assignment, 1 the library cannot be written, 2 usage, 3 the workflow is
invalid.
"""
_ASSIGNMENTS_EPILOG = """\b
Examples:
  symphony library assignments
  symphony library assignments --json | jq '.assignments[] | select(.kind == "issue")'

Labels of issues and `agents.<name>.library` of WORKFLOW.md are not listed.

Exit codes: 0 done, 1 the library cannot be read, 2 usage, 3 the workflow is invalid.
"""


def _target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--issue` and `--agent`, of which one must be given."""
    for option in (
        click.option("--agent", metavar="NAME", help="An agent of `agents` in WORKFLOW.md."),
        click.option("--issue", metavar="ISSUE", shell_complete=cli_options.complete_issue, help="An issue."),
    ):
        command = option(command)
    return command


@click.command(epilog=_ASSIGN_EPILOG, short_help="Let an issue or an agent have these skills only.")
@click.argument("skills", metavar="SKILL...", nargs=-1, shell_complete=complete_skill)
@_target_options
@click.option("--none", "nothing", is_flag=True, help="No skill of the library.")
@library_options
def assign(
    *,
    skills: tuple[str, ...],
    issue: str | None,
    agent: str | None,
    nothing: bool,
    library: OpenLibrary,
    as_json: bool,
) -> None:
    """Let an issue or an agent have exactly these skills of the library."""
    if nothing == bool(skills):
        raise click.UsageError("name skills, or give --none")
    _assign(library, issue, agent, skills, as_json=as_json)


@click.command(epilog=_UNASSIGN_EPILOG, short_help="Drop an assignment.")
@_target_options
@library_options
def unassign(*, issue: str | None, agent: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Drop the assignment of an issue or an agent."""
    _assign(library, issue, agent, None, as_json=as_json)


@click.command(epilog=_ASSIGNMENTS_EPILOG, short_help="List the assignments.")
@library_options
def assignments(*, library: OpenLibrary, as_json: bool) -> None:
    """List the assignments, and warn of names that the library does not have."""
    found = api_library.assignments(library.in_use)
    known = {one.name for one in library.in_use.store.skills()}
    for one in found.assignments:
        if missing := sorted(set(one.skills) - known):
            warn(f"{one.kind} {one.target}: the library has no {', '.join(missing)}")
    if as_json:
        cli_options.print_json(found)
        return
    print_assignments(found)
    tell_count(len(found.assignments), "assignment")


def _assign(
    library: OpenLibrary,
    issue: str | None,
    agent: str | None,
    skills: tuple[str, ...] | None,
    *,
    as_json: bool,
) -> None:
    kind: Literal["issue", "agent"] = "agent" if issue is None else "issue"
    target = issue or agent
    if target is None or (issue and agent):
        raise click.UsageError("give either --issue or --agent")
    if agent and library.agents and agent not in library.agents:
        warn(f"WORKFLOW.md has no agent {one_line(agent)}: its agents are {', '.join(library.agents)}")
    if (
        issue is not None
        and len(meant := issues_named(issue, cli_options.known_issues(library.workflow))) == 1
    ):
        (target,) = meant
    change_library(library, LibraryAssign(kind=kind, target=target, skills=skills), author(), as_json=as_json)


# --- proposals of agents and decisions of people ---------------------------------------------------------

_PROPOSALS_EPILOG = """\b
Examples:
  symphony library proposals                    those that wait for a person
  symphony library proposals 3                  its change, reason and dangerous lines
  symphony library proposals --rejected --json | jq -r '.proposals[].reason'

Exit codes: 0 done, 1 there is no such proposal, 2 usage, 3 the workflow is invalid.
"""
_ACCEPT_EPILOG = """\b
Examples:
  symphony library accept 3
  symphony library accept 3 --yes          also dangerous lines, without confirmation

Sessions that start later get the new version. A proposal with
dangerous lines needs a confirmation: `symphony library proposals 3` shows them.

Exit codes: 0 accepted, 1 the skill has changed since, the proposal is decided already, or the answer was
no, 2 usage, or a confirmation is needed without a terminal and --yes, 3 the workflow is invalid.
"""
_REJECT_EPILOG = """\b
Examples:
  symphony library reject 3 --reason "Only true of the old build"

The same change is not proposed again.

Exit codes: 0 rejected, 1 there is no such proposal, or it is decided already, 2 usage, 3 the workflow is
invalid.
"""
_SYNC_EPILOG = """\b
Examples:
  symphony library sync SYM-7
  symphony library sync SYM-7 --json | jq -r '.proposals[]'

Finds changes since the skills were written into the workspace, as the daemon does after a session. It
always makes proposals, with any setting of agent.library.sync, and proposes nothing twice.

Exit codes: 0 compared, 1 there is no workspace, or it has no skill of the library, 2 usage, 3 the workflow
is invalid.
"""
_number = click.argument("number", metavar="N", type=click.IntRange(min=1), shell_complete=complete_proposal)


@click.command(epilog=_PROPOSALS_EPILOG, short_help="List the proposals, or show one.")
@click.argument(
    "number", metavar="[N]", type=click.IntRange(min=1), required=False, shell_complete=complete_proposal
)
@click.option("--accepted", is_flag=True, help="Those that were accepted.")
@click.option("--rejected", is_flag=True, help="Those that were rejected.")
@library_options
def proposals(
    *, number: int | None, accepted: bool, rejected: bool, library: OpenLibrary, as_json: bool
) -> None:
    """List the proposals that wait for a person, or show one of them."""
    state = cli_options.only_one(accepted=accepted, rejected=rejected)
    if number is not None and state is not None:
        raise click.UsageError("N names a proposal, whatever its state")
    if number is not None:
        page = api_library.proposal(library.in_use, number)
        if as_json:
            cli_options.print_json(page)
            return
        print_proposal(page)
        if page.proposal.state == "open":
            click.echo(f"hint: symphony library accept {number}, or reject {number} --reason TEXT", err=True)
        return
    found = api_library.proposals(library.in_use, state or "open", None)
    if as_json:
        cli_options.print_json(found)
        return
    print_proposals(found)
    tell_count(found.total, f"{state or 'open'} proposal")


@click.command(epilog=_ACCEPT_EPILOG, short_help="Accept a proposal as a new version.")
@_number
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@library_options
def accept(*, number: int, yes: bool, library: OpenLibrary, as_json: bool) -> None:
    """Accept a proposal as the newest version of its skill."""
    by = author()
    if not yes:
        _confirm_dangers(number, library)
    try:
        change_library(library, LibraryAccept(id=number), by, as_json=as_json)
    except ConflictError:
        page = api_library.proposal(library.in_use, number)
        show_both(library, page.proposal.name, page.proposal.base_version, page.diff)
        raise


@click.command(epilog=_REJECT_EPILOG, short_help="Reject a proposal.")
@_number
@reason_option
@library_options
def reject(*, number: int, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Reject a proposal."""
    change_library(library, LibraryReject(id=number, reason=reason or UNSET), author(), as_json=as_json)


def _confirm_dangers(number: int, library: OpenLibrary) -> None:
    """Show the dangers of an open proposal, and ask."""
    page = api_library.proposal(library.in_use, number)
    dangers = [one for one in page.findings if one.severity == "danger"]
    if page.proposal.state != "open" or not dangers or any(one.code in REFUSED for one in dangers):
        return  # there is nothing to confirm
    for one in dangers:
        click.echo(finding_line(one, coloured=sys.stderr.isatty()), err=True)
    if sys.stdin is None or not sys.stdin.isatty():
        hint = f"look at it: symphony library proposals {number}; --yes accepts it all the same"
        raise CommandError.of(f"proposal {number} has dangerous lines", hint=hint, code=ExitCode.USAGE)
    if not click.confirm("Accept it all the same?", err=True):
        raise CommandError.of("nothing was accepted", hint=f"symphony library reject {number} --reason TEXT")


@click.command(epilog=_SYNC_EPILOG, short_help="Propose what an agent changed in a workspace.")
@cli_options.issue_argument
@library_options
def sync(*, issue: str, library: OpenLibrary, as_json: bool) -> None:
    """Compare the skills in the workspace of an issue with the library, and propose the changes."""
    author()
    done = anyio.run(_sync, issue, library)
    if as_json:
        cli_options.print_json(done)
        return
    for outcome, names in (
        ("created", done.created),
        ("updated", done.updated),
        ("unchanged", done.unchanged),
    ):
        for name in names:
            click.echo(f"{outcome:9} {name}")
    for problem in done.problems:
        warn(problem)
    if done.proposals:
        numbers = ", ".join(map(str, done.proposals))
        click.echo(f"hint: symphony library proposals {done.proposals[0]}  (new: {numbers})", err=True)
    elif done.created or done.updated:
        click.echo("nothing new: it was proposed before", err=True)


async def _sync(issue: str, library: OpenLibrary) -> LibrarySynced:
    """Turn the skills in the workspace of an issue into proposals.

    Raises:
        SymphonyError: the workflow is unusable, or there is nothing to compare.
    """
    context = open_context(library.workflow, os.environ)
    records = await context.workspaces.records()
    meant = issues_named(issue, [one.identifier for one in records])
    found = next((one for one in records if [*meant] == [one.identifier]), None)
    if found is None or not found.path.is_dir():
        hint = "a run makes one; `symphony library edit NAME` changes a skill here"
        raise CommandError.of(f"{one_line(issue)} has no workspace", hint=hint)
    workspace = Workspace(key=found.key, path=found.path, branch=None, base_commit=None, created_now=False)
    runs = past_runs(journal_path(library.workflow, os.environ), found.identifier, found.issue_id)
    run_id = runs[0].run_id if runs else None
    synced = await to_thread.run_sync(
        partial(
            sync_skills,
            library.in_use.store,
            workspace.path,
            Layout(workspace.path.parent).written_skills(workspace.key),
            tracked=await context.workspaces.tracked(workspace, library.settings.library.directory),
            evidence=model.Evidence(
                run_id=run_id, issue_id=found.issue_id, issue_identifier=found.identifier
            ),
            metadata=provenance(
                run_id=run_id or "unknown",
                agent=(runs[0].agent_name if runs else None) or "unknown",
                model=runs[0].facts.model if runs else None,
            ),
        )
    )
    if synced is None:
        hint = "a run with skills of the library writes them to agent.library.directory"
        raise CommandError.of(f"the workspace of {found.identifier} got no skill of the library", hint=hint)
    document = LibrarySynced.of(synced, issue_identifier=found.identifier)
    shown: LibrarySynced = masked(document, library.in_use.mask)
    return shown


# --- removing texts of agents ------------------------------------------------------------------------

_PURGE_EPILOG = """\b
Examples:
  symphony library purge --learned-since 2026-08-01 --dry-run
  symphony library purge --learned-since 2026-08-01T14:30:00 --yes

The newest text of a skill without any text of agents since then becomes a new version. A skill without such
a text is removed. Waiting proposals since then are rejected. The history stays: `symphony library history
NAME` shows it. The time of a version is when it was accepted. Workspaces change when their next session
starts.

Exit codes: 0 done, 1 the library cannot be changed, or the answer was no, 2 usage, or a confirmation is
needed and there is no terminal and no --yes, 3 the workflow is invalid.
"""
_FORMATS: Final = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z")


@click.command(epilog=_PURGE_EPILOG, short_help="Remove texts that agents wrote since a date.")
@click.option(
    "--learned-since",
    "since",
    type=click.DateTime(_FORMATS),
    required=True,
    metavar="DATE",
    help="YYYY-MM-DD, or YYYY-MM-DDThh:mm:ss, in local time unless +hh:mm follows.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@library_options
def purge(*, since: datetime, dry_run: bool, yes: bool, library: OpenLibrary, as_json: bool) -> None:
    """Remove all texts from the library that agents wrote since a date."""
    store, since_ms = library.in_use.store, max(round(since.timestamp() * 1_000), 0)
    reason = f"purge of what was learned since {since.isoformat()}"
    change = model.Authorship(author="" if dry_run else author(), reason=reason)
    done = store.purge(since_ms, change, dry_run=True)
    found = len(done.removed) + len(done.reverted) + len(done.rejected)
    if found and not dry_run:
        if not yes:
            _confirm_purge(done)
        done = store.purge(since_ms, change)
    if as_json:
        reverted = tuple(LibraryReverted.of(one) for one in done.reverted)
        cli_options.print_json(
            LibraryPurged(dry_run=dry_run, removed=done.removed, reverted=reverted, rejected=done.rejected)
        )
        return
    for name in done.removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {name}")
    for one in done.reverted:
        verb = "would take back" if dry_run else "took back"
        click.echo(f"{verb} {one.name}: version {one.version} has the text of version {one.text_of}")
    for number in done.rejected:
        click.echo(f"{'would reject' if dry_run else 'rejected'} proposal {number}")
    if not found:
        click.echo("agents wrote nothing since then that is in use", err=True)


def _confirm_purge(found: model.Purged) -> None:
    what = (
        f"remove {plural(len(found.removed), 'skill')}, take back {len(found.reverted)} "
        f"and reject {plural(len(found.rejected), 'proposal')}"
    )
    if sys.stdin is None or not sys.stdin.isatty():
        hint = "--yes confirms it, --dry-run shows what would be done"
        raise CommandError.of(f"this would {what}, and needs a confirmation", hint=hint, code=ExitCode.USAGE)
    if not click.confirm(f"This will {what}. Go on?", err=True):
        raise CommandError.of("nothing was changed", hint="--dry-run shows what would be done")


# --- the group -------------------------------------------------------------------------------------------

_EPILOG = """\b
Examples:
  symphony library add .symphony/skills/release-notes
  symphony library list
  symphony library assign --issue SYM-7 release-notes
  symphony library proposals                   what agents want to change, and why
  symphony library accept 3
  symphony library promote release-notes       on a branch of the repository, for review

Works on the library of WORKFLOW.md, with or without a running daemon.
"""
_SECTIONS = {
    "Skills": {
        "list": ("library:list_", "List the skills."),
        "show": ("library:show", "Show a skill."),
        "add": ("library:add", "Add a skill."),
        "edit": ("library:edit_", "Change a skill in your editor."),
        "remove": ("library:remove", "Remove a skill."),
    },
    "Versions": {
        "history": ("library:history", "List the versions of a skill."),
        "diff": ("library:diff_", "Show what a version changed."),
        "revert": ("library:revert", "Make an earlier version the newest one."),
    },
    "In and out": {
        "import": ("library:import_", "Add the skills of a folder."),
        "export": ("library:export", "Write skills into a folder."),
        "promote": ("library:promote", "Commit a skill on a branch, for review."),
        "backup": ("library:backup", "Copy the library into a new file."),
    },
    "Who gets them": {
        "assign": ("library:assign", "Let an issue or an agent have these skills only."),
        "unassign": ("library:unassign", "Drop an assignment."),
        "assignments": ("library:assignments", "List the assignments."),
    },
    "Proposals": {
        "proposals": ("library:proposals", "List the proposals, or show one."),
        "accept": ("library:accept", "Accept a proposal as a new version."),
        "reject": ("library:reject", "Reject a proposal."),
        "evaluate": ("library_evaluate:evaluate", "Test a proposal on past issues."),
        "sync": ("library:sync", "Propose what an agent changed in a workspace."),
    },
    "Undo": {
        "purge": ("library:purge", "Remove texts that agents wrote since a date."),
    },
}


library = LazyGroup(
    "library",
    sections=_SECTIONS,
    help="Work with the library: skills outside the repository, with their versions.",
    short_help="Manage the library of skills.",
    epilog=_EPILOG,
)
