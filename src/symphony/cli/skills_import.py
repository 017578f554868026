"""`symphony skills import`: bring the skills of another folder or repository over as they are."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import CommandError
from symphony.cli.skills_place import SkillsPlace, of_a_place
from symphony.cli.workflow_option import as_json, dry_run, print_json
from symphony.domain.plain import one_line

if TYPE_CHECKING:
    from symphony.cli.skills_moves import Moved
    from symphony.skills.exchange import Incoming

__all__ = ["import_"]

_EPILOG = """\b
Examples:
  symphony skills import ../other-repo --dry-run            what is there, by folder
  symphony skills import ~/.claude/skills --name pdf-tools --name release-notes
  symphony skills import ../collection --from skills/writing --from plugins/review
  symphony skills import https://github.com/example/skills --ref v1.2

The source is a folder or a repository with skills up to five levels deep, one skill, or a flat <name>.md.
Every folder with a SKILL.md is taken unless --from or --name say otherwise. Files come over unchanged; only
one without front matter gets some. Nothing of the source is run, and each skill is checked before it is
written.

Exit codes: 0 done, 1 something was skipped, or nothing was found, 2 usage.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where skills are taken from.

    Attributes:
        anchor: no link may lead out of it.
        starts: the steps from there to each folder or file that was named; one without steps for all of it.
        shown: as people know it.
        commit: of a repository that was fetched; null else.
    """

    anchor: Path
    starts: tuple[tuple[str, ...], ...]
    shown: str
    commit: str | None = None


@click.command(name="import", epilog=_EPILOG, short_help="Copy skills from somewhere else.")
@click.argument("source", metavar="PATH-OR-GIT-URL")
@click.option("--ref", metavar="REF", help="A branch, tag or commit of the repository.  [default: its HEAD]")
@click.option("--from", "folders", multiple=True, metavar="DIR", help="Only below this folder; repeatable.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Only this skill; repeatable.")
@click.option("--user", is_flag=True, help="Your own: in agent.skills.user_path, and not in the repository.")
@click.option("--force", is_flag=True, help="Replace what is there and differs.")
@dry_run
@as_json
@of_a_place
def import_(
    *,
    source: str,
    ref: str | None,
    folders: tuple[str, ...],
    names: tuple[str, ...],
    user: bool,
    force: bool,
    dry_run: bool,
    place: SkillsPlace,
    as_json: bool,
) -> int:
    """Copy skills from elsewhere, unchanged, into this repository."""
    from symphony.cli.skills_moves import exported, outcome_code, print_moves

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
        from symphony.cli.skills_view import print_folders

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
    from symphony.cli.skills_fetch import fetch, is_address

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
        hint = "name a folder, a file, or an address such as https://host/repository"
        raise CommandError.of(f"there is no {one_line(source)}", hint=hint)
    if path.name == "SKILL.md":
        path = path.parent
    if path.is_dir():
        yield _Source(anchor=path, starts=starts, shown=str(path))
    elif folders:
        raise click.UsageError("--from goes with a folder or a repository, and the source is a file")
    else:
        yield _Source(anchor=path.parent, starts=((path.name,),), shown=str(path))


def _steps(folder: str) -> tuple[str, ...]:
    pure = PurePosixPath(folder)
    if pure.is_absolute() or ".." in pure.parts:
        raise click.UsageError("--from: a relative path below the source")
    return pure.parts


def _found(source: _Source, place: SkillsPlace) -> "list[Incoming]":
    """Everything that may be a skill; flat files at the top of a repository are its documents and no skills.

    Raises:
        CommandError: there is nothing, in all of the source or in one of the folders that were named.
    """
    from symphony.skills.exchange import incoming

    is_repository = source.commit is not None or (source.anchor / ".git").exists()
    flat = source.starts != ((),) or not is_repository
    found = incoming(source.anchor, source.starts, place.options, flat=flat)
    for start in source.starts:
        steps = "/".join(start)
        if not any(not steps or f"{one.source}/".startswith(f"{steps}/") for one in found):
            where = one_line(f"{steps} of {source.shown}" if steps else source.shown)
            hint = "a skill is a folder with a SKILL.md, at most five levels below the folder that is named"
            raise CommandError.of(f"there are no skills in {where}", hint=hint)
    return found


def _folders(found: "Sequence[Incoming]") -> list[tuple[str, int, int]]:
    """Each folder that has skills, how many it has, and how many of them cannot be taken."""
    every = Counter(one.folder for one in found)
    bad = Counter(one.folder for one in found if one.bundle is None)
    return [(folder, count, bad[folder]) for folder, count in every.items()]


def _chosen(found: "Sequence[Incoming]", names: tuple[str, ...], source: _Source) -> "list[Incoming]":
    known = {name for one in found for name in (one.name, one.directory)}
    for name in names:
        if name not in known:
            hint = f"it has {', '.join(sorted({one_line(one.name) for one in found})[:20])}"
            message = f"{one_line(source.shown)} has no skill {one_line(name)!r}"
            raise CommandError.of(message, hint=hint)
    return [one for one in found if not names or one.name in names or one.directory in names]


def _moved(
    found: "Sequence[Incoming]", root: Path, place: SkillsPlace, *, force: bool, dry_run: bool
) -> "list[Moved]":
    """One after the other; a name that another directory has, here or in the source, is not given twice."""
    from symphony.cli.skills_moves import Moved
    from symphony.skills.exchange import Outcome, Placed, same_place
    from symphony.skills.exchange import place as put
    from symphony.skills.sources import shown

    there = [skill for skill in place.load().skills if skill.root == root.absolute()]
    owners = {skill.name: skill.directory for skill in there}
    present = {same_place(path.name): path.name for path in root.iterdir()} if root.is_dir() else {}
    moves = []
    for one in found:
        owner = owners.setdefault(one.name, one.directory) if one.bundle else one.directory
        if one.bundle is None:
            done = Placed(Outcome.SKIPPED, one.reason)
        elif owner != one.directory:
            done = Placed(Outcome.SKIPPED, f"its name is already taken by {owner}")
        elif (near := present.get(same_place(one.directory), one.directory)) != one.directory:
            done = Placed(Outcome.SKIPPED, f"{near} is there, and on some file systems the same folder")
        else:
            done = put(one.bundle, root, one.directory, force=force, dry_run=dry_run)
        moves.append(
            Moved(
                name=one.name,
                source=one.source,
                path=shown(str(root / one.directory)),
                outcome=done.outcome,
                reason=done.reason,
                problems=one.problems,
            )
        )
    return moves
