"""`symphony skills import`: bring the skills of another folder or repository over as they are."""

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import anyio
import click

from symphony.cli.documents import MovedSkill, SkillsExported
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.options import dry_run_option, json_option, print_json
from symphony.cli.render.skills import problem_documents
from symphony.cli.skill_roots import SkillsContext, skills_options
from symphony.domain import one_line
from symphony.processes.local import LocalHost
from symphony.skills import InstallOutcome, Problem
from symphony.workspaces import Git, GitError, split_login, without_credentials

if TYPE_CHECKING:
    from symphony.skills import ImportCandidate, Skill


# What became of skills that were copied: one shape and one way to print it, for both directions.


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One skill and what became of it.

    Attributes:
        source: its folder or file, as the source names it.
        path: where it is now, or would be.
        reason: why it was skipped, or null.
        problems: what the loader says about it.
    """

    name: str
    source: str
    path: str
    outcome: InstallOutcome
    reason: str | None = None
    problems: tuple[Problem, ...] = ()


def exported(moves: Sequence[Moved], target: Path, *, dry_run: bool) -> SkillsExported:
    """What became of the skills, each outcome in the order of the source."""

    def those(outcome: InstallOutcome) -> tuple[MovedSkill, ...]:
        return tuple(
            MovedSkill.of(one, problems=problem_documents(one.problems))
            for one in moves
            if one.outcome is outcome
        )

    return SkillsExported(
        target=str(target),
        dry_run=dry_run,
        created=those(InstallOutcome.CREATED),
        updated=those(InstallOutcome.UPDATED),
        unchanged=those(InstallOutcome.UNCHANGED),
        skipped=those(InstallOutcome.SKIPPED),
    )


def print_moves(moves: Sequence[Moved], *, dry_run: bool) -> None:
    """A line per skill, warnings below it; the counts on stderr."""
    for one in moves:
        for line in _lines(one):
            click.echo(line)
    counts = [(sum(one.outcome is outcome for one in moves), outcome) for outcome in InstallOutcome]
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
    skipped = any(one.outcome is InstallOutcome.SKIPPED for one in moves)
    return ExitCode.FAILURE if skipped else ExitCode.OK


# Brings the files of a foreign repository here without running anything of it.
#
# The fetch sees the user's own git configuration, or a private repository could not be reached. The
# checkout sees none, so that no filter runs, whatever the repository's attributes ask for; hooks are off in
# both. What git kept about the source, its address above all, is gone before anybody reads a file.


_TIMEOUT_MS = 120_000
_MAX_FILES = 50_000
_MAX_BYTES = 512 * 1024 * 1024
_ADDRESS = re.compile(r"(?:https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
_REF = re.compile(r"[\w][\w./@+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A repository's files, without its `.git`, and where they are from; `address` has no credentials."""

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


@click.command(epilog=_EXPORT_EPILOG, short_help="Copy skills to somewhere else.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--to",
    type=click.Choice([*_TARGETS]),
    default="plain",
    show_default=True,
    help="Directly in DIR, or where these agents look below it.",
)
@click.option("--force", is_flag=True, help="Replace what is there and differs.")
@dry_run_option
@json_option
@skills_options
def export(
    *, directory: Path, to: str, force: bool, dry_run: bool, place: SkillsContext, as_json: bool
) -> int:
    """Copy the skills that are not disabled, unchanged, each as DIR/<name>/SKILL.md."""
    from symphony.skills import DropReason

    found = place.load()
    left_out = {
        one.name
        for one in place.block(found).dropped
        if one.reason in {DropReason.DISABLED, DropReason.NOT_INCLUDED}
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


def _copied(place: SkillsContext, skill: "Skill", target: Path, *, force: bool, dry_run: bool) -> "Moved":
    from symphony.skills import (
        BundleError,
        Installed,
        InstallOutcome,
        install,
        is_clean_name,
        read_bundle,
        resolve_anchor,
    )

    directory = skill.name if is_clean_name(skill.name) else skill.directory
    anchor, path = resolve_anchor(skill.scope, skill.path, place.workspace, place.options)
    try:
        bundle = read_bundle(anchor, PurePosixPath(path).parts[:-1])
        done = install(bundle, target, directory, force=force, dry_run=dry_run)
    except BundleError as error:
        done = Installed(InstallOutcome.SKIPPED, str(error))
    return Moved(
        name=skill.name,
        source=skill.path,
        path=str(target / directory),
        outcome=done.outcome,
        reason=done.reason,
    )


_IMPORT_EPILOG = """\b
Examples:
  symphony skills import ../other-repo --dry-run            what is there, by folder
  symphony skills import ~/.claude/skills --name pdf-tools --name release-notes
  symphony skills import ../collection --from skills/writing --from plugins/review
  symphony skills import https://github.com/example/skills --ref v1.2

The source is a folder or a repository with skills up to five levels deep, or one skill. Every folder with a
SKILL.md is taken unless --from or --name say otherwise. Files come over unchanged. Nothing of the source is
run, and each skill is checked before it is written.

Exit codes: 0 done, 1 something was skipped, or nothing was found, 2 usage.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
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


@click.command(name="import", epilog=_IMPORT_EPILOG, short_help="Copy skills from somewhere else.")
@click.argument("source", metavar="PATH-OR-GIT-URL")
@click.option("--ref", metavar="REF", help="A branch, tag or commit of the repository.  [default: its HEAD]")
@click.option("--from", "folders", multiple=True, metavar="DIR", help="Only below this folder; repeatable.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Only this skill; repeatable.")
@click.option("--user", is_flag=True, help="Your own: in agent.skills.user_path, and not in the repository.")
@click.option("--force", is_flag=True, help="Replace what is there and differs.")
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
    """Copy skills from elsewhere, unchanged, into this repository."""
    root = place.home(user=user)
    with _opened(source, ref, folders) as opened:
        found = _found(opened, place)
        moves = _moved(_chosen(found, names, opened), root, place, force=force, dry_run=dry_run)
    if as_json:
        from msgspec import structs

        from symphony.cli.documents import SkillFolder, SkillsImported, SkillSource

        folders_found = tuple(
            SkillFolder(folder=folder, found=count, skipped=bad) for folder, count, bad in _folders(found)
        )
        print_json(
            SkillsImported(
                **structs.asdict(exported(moves, root, dry_run=dry_run)),
                source=SkillSource(from_=opened.shown, commit=opened.commit),
                folders=folders_found,
            )
        )
    else:
        from symphony.cli.render.skills import print_folders

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
        raise click.UsageError("--ref goes with the address of a repository; file:///... is one as well")
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


def _found(source: _Source, place: SkillsContext) -> "list[ImportCandidate]":
    """Everything that may be a skill.

    Raises:
        CommandError: there is nothing, in all of the source or in one of the folders that were named.
    """
    from symphony.skills import find_importable

    found = find_importable(source.anchor, source.starts, place.options)
    for start in source.starts:
        steps = "/".join(start)
        if not any(not steps or f"{one.source}/".startswith(f"{steps}/") for one in found):
            where = one_line(f"{steps} of {source.shown}" if steps else source.shown)
            hint = "a skill is a folder with a SKILL.md, at most five levels below the folder that is named"
            raise CommandError.of(f"there are no skills in {where}", hint=hint)
    return found


def _folders(found: "Sequence[ImportCandidate]") -> list[tuple[str, int, int]]:
    """Each folder that has skills, how many it has, and how many of them cannot be taken."""
    every = Counter(one.folder for one in found)
    bad = Counter(one.folder for one in found if one.bundle is None)
    return [(folder, count, bad[folder]) for folder, count in every.items()]


def _chosen(
    found: "Sequence[ImportCandidate]", names: tuple[str, ...], source: _Source
) -> "list[ImportCandidate]":
    known = {name for one in found for name in (one.name, one.directory)}
    for name in names:
        if name not in known:
            hint = f"it has {', '.join(sorted({one_line(one.name) for one in found})[:20])}"
            message = f"{one_line(source.shown)} has no skill {one_line(name)!r}"
            raise CommandError.of(message, hint=hint)
    return [one for one in found if not names or one.name in names or one.directory in names]


def _moved(
    found: "Sequence[ImportCandidate]", root: Path, place: SkillsContext, *, force: bool, dry_run: bool
) -> "list[Moved]":
    """One after the other; a name that another directory has, here or in the source, is not given twice."""
    from symphony.skills import Installed, InstallOutcome, directory_key, install, path_text

    there = [skill for skill in place.load().skills if skill.root == root.absolute()]
    owners = {skill.name: skill.directory for skill in there}
    present = {directory_key(path.name): path.name for path in root.iterdir()} if root.is_dir() else {}
    moves = []
    for one in found:
        owner = owners.setdefault(one.name, one.directory) if one.bundle else one.directory
        if one.bundle is None:
            done = Installed(InstallOutcome.SKIPPED, one.reason)
        elif owner != one.directory:
            done = Installed(InstallOutcome.SKIPPED, f"its name is already taken by {owner}")
        elif (near := present.get(directory_key(one.directory), one.directory)) != one.directory:
            done = Installed(
                InstallOutcome.SKIPPED, f"{near} is there, and on some file systems the same folder"
            )
        else:
            done = install(one.bundle, root, one.directory, force=force, dry_run=dry_run)
        moves.append(
            Moved(
                name=one.name,
                source=one.source,
                path=path_text(str(root / one.directory)),
                outcome=done.outcome,
                reason=done.reason,
                problems=one.problems,
            )
        )
    return moves
