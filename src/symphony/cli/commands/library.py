"""`symphony library`: the skills that are kept beside the repository, and their versions."""

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import UNSET

from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.cli.library_access import (
    OpenLibrary,
    author,
    change_library,
    library_options,
    reason_option,
    show_both,
    skill_argument,
)
from symphony.cli.main import LazyGroup
from symphony.cli.options import print_json, read_text_argument, text_file_option
from symphony.domain import SymphonyError

if TYPE_CHECKING:
    from symphony.library.model import LibrarySkill

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
    from symphony.api.library import skills

    found = skills(library.in_use, " ".join(words), None, learned=learned)
    if as_json:
        print_json(found)
        return
    from symphony.cli.render.library import print_skills, tell_count

    print_skills(found)
    tell_count(found.total, "skill")
    if not found.total and not words and not learned:
        click.echo("hint: `symphony library add FOLDER` adds one", err=True)


@click.command(epilog=_SHOW_EPILOG, short_help="Show a skill.")
@skill_argument
@click.argument("version", type=click.IntRange(min=1), required=False)
@library_options
def show(*, name: str, version: int | None, library: OpenLibrary, as_json: bool) -> None:
    """Show what is known of a skill, and its file; VERSION is an earlier one."""
    from symphony.api.library import skill

    page = skill(library.in_use, name, version)
    if as_json:
        print_json(page)
        return
    from symphony.cli.render.library import skill_lines

    for line in skill_lines(page):
        click.echo(line)


@click.command(epilog=_HISTORY_EPILOG, short_help="List the versions of a skill.")
@skill_argument
@library_options
def history(*, name: str, library: OpenLibrary, as_json: bool) -> None:
    """List the versions of a skill, the newest first: who wrote each, when and why."""
    from symphony.api.library import skill

    page = skill(library.in_use, name)
    if as_json:
        from symphony.cli.documents import LibraryHistory

        print_json(LibraryHistory(name=page.skill.name, versions=page.versions))
        return
    from symphony.cli.render.library import print_versions

    print_versions(page.versions)


@click.command(name="diff", epilog=_DIFF_EPILOG, short_help="Show what a version changed.")
@skill_argument
@click.argument("old", type=click.IntRange(min=1), required=False)
@click.argument("new", type=click.IntRange(min=1), required=False)
@library_options
def diff_(*, name: str, old: int | None, new: int | None, library: OpenLibrary, as_json: bool) -> None:
    """Show the difference between two versions: the newest, and OLD or the one before it."""
    from symphony.api.library import diff, skill

    newest = skill(library.in_use, name).skill.version
    found = diff(library.in_use, name, old or max(newest - 1, 1), new or newest)
    if as_json:
        print_json(found)
        return
    from symphony.cli.render.library import print_diff

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

Opens $VISUAL, else $EDITOR, and makes a new version of what was written. If another person changed the skill
meanwhile, both changes are shown, nothing is changed, and your text stays in a file.

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
    from symphony.api.models import LibrarySave
    from symphony.library.model import SkillText
    from symphony.skills import POLICY_PATH

    by, path = author(), Path(source)
    file, directory = source, "" if source == "-" else path.stem
    if path.is_dir():
        file, directory = str(path / _FILE_NAME), path.resolve().name
        if not Path(file).exists():
            hint = f"symphony library import {shlex.quote(source)} takes the skills below it"
            raise CommandError.of(f"{source} has no {_FILE_NAME}", hint=hint, code=ExitCode.USAGE)
    elif path.name == _FILE_NAME:
        directory = path.resolve().parent.name
    text = SkillText.of_file(_read(file).encode(), directory)
    policy = Path(file).parent / POLICY_PATH
    if source != "-" and policy.is_file():
        text = text.with_policy(policy.read_bytes())
    edit = LibrarySave(file=text.file().decode(), base_version=0, reason=reason or UNSET)
    change_library(library, edit, by, as_json=as_json)
    if path.is_dir() and any(one.name != _FILE_NAME for one in path.iterdir()):
        warn(f"the library keeps {_FILE_NAME} only, and no other file of {source}")


@click.command(name="edit", epilog=_EDIT_EPILOG, short_help="Change a skill in your editor.")
@skill_argument
@text_file_option
@reason_option
@library_options
def edit_(*, name: str, file: str | None, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Change a skill in your editor, or to the text of a file."""
    from symphony.api.interface import ConflictError

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
            warn(f"your text is kept; symphony library edit {name} --file {shlex.quote(draft)} takes it")
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
    from symphony.api.models import LibraryRemove

    change_library(library, LibraryRemove(name=name, reason=reason or UNSET), author(), as_json=as_json)


@click.command(epilog=_REVERT_EPILOG, short_help="Make an earlier version the newest one.")
@skill_argument
@click.argument("version", type=click.IntRange(min=1))
@reason_option
@library_options
def revert(*, name: str, version: int, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Make the text of an earlier version the newest one."""
    from symphony.api.models import LibraryRevert

    edit = LibraryRevert(name=name, version=version, reason=reason or UNSET)
    change_library(library, edit, author(), as_json=as_json)


def _read(file: str) -> str:
    return read_text_argument(None, file, what="skill", most=_MAX_CHARS)


def _save(
    library: OpenLibrary, present: "LibrarySkill", text: str, by: str, reason: str | None, *, as_json: bool
) -> None:
    """Make the next version of a skill; if it was changed meanwhile, show both changes."""
    from symphony.api.interface import ConflictError
    from symphony.api.library import unified
    from symphony.api.models import LibrarySave

    edit = LibrarySave(file=text, base_version=present.version, reason=reason or UNSET)
    try:
        change_library(library, edit, by, name=present.name, as_json=as_json)
    except ConflictError:
        mine = library.in_use.mask(unified(present.text.file().decode(), text))
        show_both(library, present.name, present.version, mine)
        raise


# --- the group -------------------------------------------------------------------------------------------

_EPILOG = """\b
Examples:
  symphony library add .symphony/skills/release-notes
  symphony library list
  symphony library assign --issue SYM-7 release-notes
  symphony library proposals                   what agents want to change, and why
  symphony library accept 3
  symphony library promote release-notes       on a branch of the repository, for review

Works on the library of WORKFLOW.md, beside a running daemon or without one.
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
        "import": ("library_exchange:import_", "Take the skills of a folder."),
        "export": ("library_exchange:export", "Write skills into a folder."),
        "promote": ("library_exchange:promote", "Commit a skill on a branch, for review."),
        "backup": ("library_exchange:backup", "Copy the library into a new file."),
    },
    "Who gets them": {
        "assign": ("library_assignments:assign", "Let an issue or an agent have these skills only."),
        "unassign": ("library_assignments:unassign", "Drop an assignment."),
        "assignments": ("library_assignments:assignments", "List the assignments."),
    },
    "Proposals": {
        "proposals": ("library_proposals:proposals", "List the proposals, or show one."),
        "accept": ("library_proposals:accept", "Make a version of a proposal."),
        "reject": ("library_proposals:reject", "Reject a proposal."),
        "evaluate": ("library_evaluate:evaluate", "Judge a proposal by past issues."),
        "sync": ("library_proposals:sync", "Propose what an agent changed in a workspace."),
    },
    "Undo": {
        "purge": ("library_purge:purge", "Take out what agents wrote since a date."),
    },
}


library = LazyGroup(
    "library",
    sections=_SECTIONS,
    help="Work with the library: skills that are kept beside the repository, with their versions.",
    short_help="Manage the library of skills.",
    epilog=_EPILOG,
)
