"""`symphony skills import`: bring the skills of another folder or repository over as they are."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import CommandError
from symphony.cli.skills_place import SkillsPlace, of_a_place
from symphony.cli.workflow_option import as_json, print_json
from symphony.domain.plain import one_line

if TYPE_CHECKING:
    from symphony.cli.skills_moves import Moved
    from symphony.skills.incoming import Incoming

__all__ = ["import_"]

_EPILOG = """\b
Examples:
  symphony skills import ../other-repo
  symphony skills import ~/.claude/skills --name pdf-tools --dry-run
  symphony skills import https://github.com/example/skills --ref v1.2

SOURCE is a folder of skills, one skill, a flat <name>.md, or a repository that keeps skills in .symphony,
.agents, .claude, .codex, .gemini, .github, .opencode or `skills`. Files come over unchanged; only one without
front matter gets some. Nothing of the source is run, and each skill is checked before it is written.

Exit codes: 0 done, 1 something was skipped, or nothing was found, 2 usage.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where skills are taken from.

    Attributes:
        anchor: no link may lead out of it.
        start: the steps from there to what was named.
        shown: as people know it.
        commit: of a repository that was fetched; null else.
    """

    anchor: Path
    start: tuple[str, ...]
    shown: str
    commit: str | None = None


@click.command(name="import", epilog=_EPILOG, short_help="Copy skills from somewhere else.")
@click.argument("source", metavar="PATH-OR-GIT-URL")
@click.option("--ref", metavar="REF", help="A branch, tag or commit of the repository.  [default: its HEAD]")
@click.option("--from", "below", metavar="DIR", help="Where the skills are, below the source.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--user", is_flag=True, help="Into agent.skills.user_path and not into the repository.")
@click.option("--force", is_flag=True, help="Replace skills that differ.")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@as_json
@of_a_place
def import_(
    *,
    source: str,
    ref: str | None,
    below: str | None,
    names: tuple[str, ...],
    user: bool,
    force: bool,
    dry_run: bool,
    place: SkillsPlace,
    as_json: bool,
) -> int:
    """Copy skills from elsewhere, unchanged, into this repository."""
    from symphony.cli.skills_moves import moves_json, outcome_code, print_moves

    root = place.home(user=user)
    with _opened(source, ref, below) as opened:
        found = _chosen(_found(opened, place), names, opened)
        moves = _moved(found, root, place, force=force, dry_run=dry_run)
    if as_json:
        origin = {"from": opened.shown, "commit": opened.commit}
        print_json({"source": origin, "target": str(root), "dry_run": dry_run, **moves_json(moves)})
    else:
        print_moves(moves, dry_run=dry_run)
        at = f" at {opened.commit}" if opened.commit else ""
        click.echo(
            f"from {one_line(opened.shown)}{at}; read what you imported before you commit it", err=True
        )
    return outcome_code(moves)


@contextmanager
def _opened(source: str, ref: str | None, below: str | None) -> Iterator[_Source]:
    """The source as files here; those of a repository are gone afterwards."""
    from symphony.cli.skills_fetch import fetch, is_address

    steps = _steps(below)
    if is_address(source):
        with tempfile.TemporaryDirectory(prefix="symphony-import-") as directory:
            fetched = fetch(source, ref, Path(directory))
            yield _Source(anchor=fetched.tree, start=steps, shown=fetched.address, commit=fetched.commit)
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
        yield _Source(anchor=path, start=steps, shown=str(path))
    else:
        yield _Source(anchor=path.parent, start=(path.name,), shown=str(path))


def _steps(below: str | None) -> tuple[str, ...]:
    pure = PurePosixPath(below or ".")
    if pure.is_absolute() or ".." in pure.parts:
        raise click.UsageError("--from: a relative path below the source")
    return pure.parts


def _found(source: _Source, place: SkillsPlace) -> "list[Incoming]":
    """What was named itself, if it holds folders of skills; else what the usual places below it hold.

    Flat files at the top of a repository are its documents and no skills.
    """
    from symphony.skills.incoming import PLACES, incoming

    is_repository = source.commit is not None or (source.anchor / ".git").exists()
    flat = bool(source.start) or not is_repository
    here = incoming(source.anchor, source.start, place.options, flat=flat)
    if source.start or any(one.bundle is not None and not one.flat for one in here):
        return here
    found: dict[str, Incoming] = {}
    for name in PLACES:
        for one in incoming(source.anchor, tuple(name.split("/")), place.options, flat=True):
            first = found.setdefault(one.directory, one)
            if first.bundle != one.bundle:  # two places may be links to one, and then it is one skill
                found[one.source] = replace(one, bundle=None, reason=f"{first.source} has this name")
    return [*found.values()] or here


def _chosen(found: "Sequence[Incoming]", names: tuple[str, ...], source: _Source) -> "list[Incoming]":
    if not found:
        hint = "name the folder that holds the skills, for a repository with --from"
        raise CommandError.of(f"there are no skills in {one_line(source.shown)}", hint=hint)
    known = {name for one in found for name in (one.name, one.directory)}
    for name in names:
        if name not in known:
            hint = f"it has {', '.join(sorted({one_line(one.name) for one in found})[:20])}"
            raise CommandError.of(f"the source has no skill {one_line(name)!r}", hint=hint)
    return [one for one in found if not names or one.name in names or one.directory in names]


def _moved(
    found: "Sequence[Incoming]", root: Path, place: SkillsPlace, *, force: bool, dry_run: bool
) -> "list[Moved]":
    """One after the other; a name that another directory has, here or in the source, is not given twice."""
    from symphony.cli.skills_moves import Moved
    from symphony.skills.sources import shown
    from symphony.skills.transfer import Outcome, Placed
    from symphony.skills.transfer import place as put

    there = [skill for skill in place.load().skills if skill.root == root.absolute()]
    owners = {skill.name: skill.directory for skill in there}
    moves = []
    for one in found:
        owner = owners.setdefault(one.name, one.directory) if one.bundle else one.directory
        if one.bundle is None:
            done = Placed(Outcome.SKIPPED, one.reason)
        elif owner != one.directory:
            done = Placed(Outcome.SKIPPED, f"its name is already taken by {owner}")
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
