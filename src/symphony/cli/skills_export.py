"""`symphony skills export`: plain copies of the skills for other agents."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from symphony.cli.skills_place import SkillsPlace, of_a_place
from symphony.cli.workflow_option import as_json, dry_run, print_json

if TYPE_CHECKING:
    from symphony.cli.skills_moves import Moved
    from symphony.skills import Skill

__all__ = ["export"]

_EPILOG = """\b
Examples:
  symphony skills export ../shared-skills
  symphony skills export . --to claude      as .claude/skills/<name>/SKILL.md
  symphony skills export . --to agents --dry-run

Exit codes: 0 done, 1 something was skipped, 2 usage.
"""
_TARGETS = {"plain": "", "agents": ".agents/skills", "claude": ".claude/skills"}


@click.command(epilog=_EPILOG, short_help="Copy skills to somewhere else.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--to",
    type=click.Choice([*_TARGETS]),
    default="plain",
    show_default=True,
    help="Directly in DIR, or where these agents look below it.",
)
@click.option("--force", is_flag=True, help="Replace what is there and differs.")
@dry_run
@as_json
@of_a_place
def export(*, directory: Path, to: str, force: bool, dry_run: bool, place: SkillsPlace, as_json: bool) -> int:
    """Copy the skills that are not disabled, unchanged, each as DIR/<name>/SKILL.md."""
    from symphony.cli.skills_moves import exported, outcome_code, print_moves
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


def _copied(place: SkillsPlace, skill: "Skill", target: Path, *, force: bool, dry_run: bool) -> "Moved":
    from symphony.cli.skills_moves import Moved
    from symphony.skills import anchored
    from symphony.skills.exchange import BundleError, Outcome, Placed, read_bundle
    from symphony.skills.exchange import place as put
    from symphony.skills.parse import is_clean_name

    directory = skill.name if is_clean_name(skill.name) else skill.directory
    anchor, path = anchored(skill.scope, skill.path, place.workspace, place.options)
    try:
        bundle = read_bundle(anchor, PurePosixPath(path).parts[:-1])
        done = put(bundle, target, directory, force=force, dry_run=dry_run)
    except BundleError as error:
        done = Placed(Outcome.SKIPPED, str(error))
    return Moved(
        name=skill.name,
        source=skill.path,
        path=str(target / directory),
        outcome=done.outcome,
        reason=done.reason,
    )
