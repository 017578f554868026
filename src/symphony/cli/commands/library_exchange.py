"""`symphony library import`, `export`, `promote` and `backup`: skills from elsewhere, and to elsewhere."""

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError, ExitCode, printable, warn
from symphony.cli.library_access import (
    OpenLibrary,
    author,
    complete_skill,
    library_options,
    reason_option,
    skill_argument,
)
from symphony.cli.options import dry_run_option, print_json
from symphony.cli.repository import git
from symphony.cli.skill_roots import repository_top
from symphony.domain import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from symphony.api.interface import LibraryInUse
    from symphony.cli.documents import LibraryImported, LibraryPromoted
    from symphony.library.model import Authorship, LibrarySkill, SkillText
    from symphony.library.store import Library
    from symphony.skills import ImportCandidate

_FILE_NAME: Final = "SKILL.md"

_IMPORT_EPILOG = """\b
Examples:
  symphony library import .symphony/skills
  symphony library import ../shared-skills --reason "The team's"
  symphony library import ../shared-skills --json | jq '.failed[]'

Every folder with a SKILL.md below DIR is taken, and becomes a new skill or the newest version of the one of
its name. A file that is not valid does not stop the others. The library keeps the SKILL.md and no other file.

Exit codes: 0 done, 1 a file could not be taken, or there is none, 2 usage, 3 the workflow is invalid.
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
begins at workspace.base_branch, else at the commit that is checked out. Your files, your index and the branch
that is checked out stay as they are. Once it is merged, the repository's skill counts and that of the library
is shadowed.

Exit codes: 0 done, or it is there already, 1 the branch or another text is there, or git refuses, 2 usage,
3 the workflow is invalid.
"""
_BACKUP_EPILOG = """\b
Examples:
  symphony library backup ~/backups/library-2026-11-26.db

Copies the whole library into a new file, while others use it. To restore it, stop the daemon and copy the
file back over library.db, without library.db-wal and library.db-shm.

Exit codes: 0 done, 1 the file exists or cannot be written, or there is no library yet, 2 usage, 3 the
workflow is invalid.
"""


# --- files -----------------------------------------------------------------------------------------------


@click.command(name="import", epilog=_IMPORT_EPILOG, short_help="Take the skills of a folder.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@reason_option
@library_options
def import_(*, directory: Path, reason: str | None, library: OpenLibrary, as_json: bool) -> int:
    """Take all skills below a folder into the library."""
    from symphony.daemon.context import skill_options
    from symphony.library.model import Authorship
    from symphony.skills import find_importable

    change = Authorship(author=author(), reason=reason or f"imported from {directory.resolve().name}")
    options = skill_options(library.settings.skills)
    found = find_importable(directory.absolute(), ((),), options)
    if not found:
        hint = f"a skill is a folder with a {_FILE_NAME}, at most five levels below"
        raise CommandError.of(f"there are no skills in {directory}", hint=hint)
    done = _import(str(directory), found, library.in_use, change)
    if as_json:
        print_json(done)
    else:
        _print_imported(done)
    return ExitCode.FAILURE if done.failed else ExitCode.OK


def _import(
    source: str, found: "Sequence[ImportCandidate]", library: "LibraryInUse", change: "Authorship"
) -> "LibraryImported":
    from symphony.api.library import admitted
    from symphony.cli.documents import FailedFile, FileProblem, LibraryImported
    from symphony.library.model import LibraryError, SkillText
    from symphony.skills import POLICY_PATH

    outcomes: dict[str, list[str]] = {"created": [], "updated": [], "unchanged": []}
    failed: list[FailedFile] = []
    problems: list[FileProblem] = []
    for one in found:
        if one.bundle is None:
            failed.append(FailedFile(path=one.source, message=one.reason or "it is no skill", hint=None))
            continue
        try:
            files = one.bundle.files
            text = SkillText.of_file(files[_FILE_NAME].data, one.directory)
            if (policy := files.get(POLICY_PATH)) is not None:
                text = text.with_policy(policy.data)
            findings = admitted(library, text)
            outcomes[_imported(library.store, text, change)].append(text.name)
        except LibraryError as error:
            failed.append(FailedFile(path=one.source, message=error.failure.message, hint=error.failure.hint))
            continue
        problems += (
            FileProblem(
                path=f"{one.source}/{_FILE_NAME}",
                severity="warning",
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


def _print_imported(done: "LibraryImported") -> None:
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


def _imported(store: "Library", text: "SkillText", change: "Authorship") -> str:
    """Add a skill or make its next version; what it did.

    Raises:
        LibraryError: the library refuses it, or another person changed the skill in this moment.
    """
    from symphony.library.model import NotInLibraryError, Origin
    from symphony.library.provenance import is_learned

    try:
        present = store.skill(text.name)
    except NotInLibraryError:
        store.add(text, change, origin=Origin.LEARNED if is_learned(text) else Origin.IMPORTED)
        return "created"
    if present.text == text:
        return "unchanged"
    store.edit(text, change, base_version=present.version)
    return "updated"


@click.command(epilog=_EXPORT_EPILOG, short_help="Write skills into a folder.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=complete_skill)
@click.option("--force", is_flag=True, help="Replace what is there and differs.")
@dry_run_option
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
    """Write all skills, or those that are named, as DIR/NAME/SKILL.md."""
    from symphony.cli.commands.skills_exchange import Moved, exported, outcome_code, print_moves
    from symphony.skills import Bundle, BundledFile, install

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
        print_json(exported(moves, target, dry_run=dry_run))
    else:
        print_moves(moves, dry_run=dry_run)
    return outcome_code(moves)


@click.command(epilog=_BACKUP_EPILOG, short_help="Copy the library into a new file.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@library_options
def backup(*, file: Path, library: OpenLibrary, as_json: bool) -> None:
    """Copy the whole library, with all versions, feedback and proposals, into a new file."""
    from symphony.cli.documents import LibraryBackup

    store = library.in_use.store
    if not store.path.exists():
        hint = "`symphony library add FOLDER` begins one"
        raise CommandError.of(f"there is no library yet: {store.path}", hint=hint)
    store.backup(file)
    done = LibraryBackup(path=str(file.absolute()), bytes=file.stat().st_size)
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done.path}  {done.bytes:,} bytes")


# --- a branch of the repository --------------------------------------------------------------------------


@click.command(epilog=_PROMOTE_EPILOG, short_help="Commit a skill on a branch, for review.")
@skill_argument
@click.option("--branch", metavar="NAME", help="The new branch.  [default: skill/NAME-vVERSION]")
@click.option("--force", is_flag=True, help="Replace what is there and differs.")
@library_options
def promote(*, name: str, branch: str | None, force: bool, library: OpenLibrary, as_json: bool) -> None:
    """Commit a skill on a new branch of the repository, so that it can be reviewed there."""
    author()
    skill = library.in_use.store.skill(name)
    _refuse_secrets(skill, library)
    repository, base_branch = _repository(library)
    path = f"{library.settings.skills.path}/{skill.name}/{_FILE_NAME}"
    branch = branch or f"skill/{skill.name}-v{skill.version}"
    done = _promoted(_Repository(repository), skill, path, branch, base_branch, force=force)
    if as_json:
        print_json(done)
    elif done.commit is None:
        click.echo(f"{done.base} has version {done.version} of {name} already: {done.path}")
    else:
        click.echo(f"{name} version {done.version} is {done.path} on the branch {done.branch}")
        click.echo(f"look at it:  git diff {shlex.quote(f'{done.base}...{branch}')}")
        click.echo(f"review it:   git push origin {shlex.quote(branch)}, then open a pull request")


def _repository(library: OpenLibrary) -> tuple[Path, str | None]:
    """The local repository of the sessions, else that of WORKFLOW.md; and the base branch, if it is set."""
    from symphony.workspaces import local_repository

    workspace = library.workspace
    if workspace is None:
        return repository_top(library.workflow.absolute().parent), None
    local = local_repository(workspace.repo or "")
    return local or repository_top(library.workflow.absolute().parent), workspace.base_branch


def _refuse_secrets(skill: "LibrarySkill", library: OpenLibrary) -> None:
    from symphony.library.gate import gate

    if any(one.code == "secret" for one in gate(None, skill.text, library.in_use.mask)):
        hint = f"take it out: symphony library edit {skill.name}"
        raise CommandError.of(f"{skill.name} has a secret, and a commit would show it", hint=hint)


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
    skill: "LibrarySkill",
    path: str,
    branch: str,
    base_branch: str | None,
    *,
    force: bool,
) -> "LibraryPromoted":
    """Commit the file on a new branch.

    Raises:
        CommandError: there is no repository or no commit, another text or branch is there, or git fails.
    """
    from symphony.cli.documents import LibraryPromoted

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
        verb = "Add" if there is None else "Authorship"
        message = f"{verb} the skill {skill.name}\n\nVersion {skill.version} of the library of skills."
        tip = _committed(repository, start, path, data, message)
        repository.run("update-ref", f"refs/heads/{branch}", tip, "")  # fails if it is there by now
    return LibraryPromoted(
        name=skill.name, version=skill.version, path=path, base=base, branch=branch, commit=tip
    )


def _committed(repository: _Repository, base: str, path: str, data: bytes, message: str) -> str:
    """A commit on top of `base` with one more or other file; made with an index of its own."""
    with tempfile.TemporaryDirectory(prefix="symphony-promote-") as directory:
        index = Path(directory, "index")
        blob = repository.run("hash-object", "-w", "--stdin", data=data)
        repository.run("read-tree", base, index=index)
        repository.run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", index=index)
        tree = repository.run("write-tree", index=index)
    return repository.run("commit-tree", tree, "-p", base, "-m", message)
