"""`symphony skills new`: a skill that passes every check, and nothing overwritten."""

from pathlib import Path

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.skills_place import SkillsPlace, of_a_place
from symphony.cli.workflow_option import as_json, print_json
from symphony.domain.plain import one_line

__all__ = ["new"]

_EPILOG = """\b
Examples:
  symphony skills new release-notes
  symphony skills new migrations --when "A database migration is added or changed."
  symphony skills new house-style --user

With --description and --when the skill passes `symphony skills check --strict` as it is; without them `check`
tells what is left to be filled in. Nothing that exists is overwritten.
"""


@click.command(epilog=_EPILOG, short_help="Write a new skill.")
@click.argument("name")
@click.option("--description", metavar="TEXT", help="What the skill does, in a line.")
@click.option("--when", metavar="TEXT", help="When it applies, in a line.")
@click.option("--user", is_flag=True, help="Your own: in agent.skills.user_path, and not in the repository.")
@as_json
@of_a_place
def new(
    *, name: str, description: str | None, when: str | None, user: bool, place: SkillsPlace, as_json: bool
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
    from symphony.skills.draft import suggested_name
    from symphony.skills.parse import is_clean_name

    if not is_clean_name(name):
        near = suggested_name(name)
        hint = "a name has lower-case letters, digits and single hyphens, at most 64"
        shown = f"{hint}; for instance {near}" if near else hint
        message = f"{one_line(name)!r} cannot be the name of a skill"
        raise CommandError.of(message, hint=shown, code=ExitCode.USAGE)


def _refuse_taken(name: str, root: Path, place: SkillsPlace) -> None:
    there = root / name
    taken = next((skill.path for skill in place.load().skills if skill.name == name), None)
    if taken is None and (there.exists() or there.is_symlink()):
        taken = str(there)
    if taken is not None:
        hint = f"choose another name, or look at it: symphony skills show {name}"
        raise CommandError.of(f"there is a skill of this name: {one_line(taken)}", hint=hint)


def _written(place: SkillsPlace, root: Path, name: str, description: str | None, when: str | None) -> Path:
    """Judged by the strict rules before anything is written."""
    from dataclasses import replace

    from symphony.skills import Validation
    from symphony.skills.draft import draft
    from symphony.skills.exchange import Bundle, BundledFile, Outcome, judge_file
    from symphony.skills.exchange import place as put
    from symphony.skills.model import FILE_NAME, Severity
    from symphony.skills.parse import Rules

    try:
        data = draft(name, description, when).encode()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    rules = Rules.of(replace(place.options, validation=Validation.STRICT))
    for problem in judge_file(data, name, FILE_NAME, rules).problems:
        if problem.severity is not Severity.INFO:
            raise CommandError.of(problem.message, hint=problem.hint, code=ExitCode.USAGE)
    done = put(Bundle(files={FILE_NAME: BundledFile(data=data)}), root, name, force=False)
    if done.outcome is not Outcome.CREATED:
        hint = "look at the directory and its permissions"
        raise CommandError.of(f"{root / name}: {done.reason or 'it is there already'}", hint=hint)
    return root / name / FILE_NAME
