"""`symphony library purge`: take out what agents wrote since a date."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.library_access import OpenLibrary, author, library_options
from symphony.cli.options import print_json
from symphony.domain import plural

if TYPE_CHECKING:
    from symphony.library.model import Purged

_EPILOG = """\b
Examples:
  symphony library purge --learned-since 2026-08-01 --dry-run
  symphony library purge --learned-since 2026-08-01T14:30:00 --yes

A skill goes back to its newest text that has nothing in it of what agents wrote since then, as a new version.
A skill without such a text is removed. Proposals that were made since then and wait are rejected. The history
stays: `symphony library history NAME` shows it. A version counts from when it was accepted. What is in
workspaces now changes when their next session starts.

Exit codes: 0 done, 1 the library cannot be changed, or the answer was no, 2 usage, or a confirmation is
needed and there is no terminal and no --yes, 3 the workflow is invalid.
"""
_FORMATS: Final = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z")


@click.command(epilog=_EPILOG, short_help="Take out what agents wrote since a date.")
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
    """Take all texts out of the library that agents wrote since a date, at once."""
    from symphony.cli.documents import LibraryPurged, LibraryReverted
    from symphony.library.model import Authorship

    store, since_ms = library.in_use.store, max(round(since.timestamp() * 1_000), 0)
    reason = f"purge of what was learned since {since.isoformat()}"
    change = Authorship(author="" if dry_run else author(), reason=reason)
    done = store.purge(since_ms, change, dry_run=True)
    found = len(done.removed) + len(done.reverted) + len(done.rejected)
    if found and not dry_run:
        if not yes:
            _confirm(done)
        done = store.purge(since_ms, change)
    if as_json:
        reverted = tuple(LibraryReverted.of(one) for one in done.reverted)
        print_json(
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


def _confirm(found: "Purged") -> None:
    what = (
        f"remove {plural(len(found.removed), 'skill')}, take back {len(found.reverted)} "
        f"and reject {plural(len(found.rejected), 'proposal')}"
    )
    if sys.stdin is None or not sys.stdin.isatty():
        hint = "--yes confirms it, --dry-run shows what would be done"
        raise CommandError.of(f"this would {what}, and needs a confirmation", hint=hint, code=ExitCode.USAGE)
    if not click.confirm(f"This will {what}. Go on?", err=True):
        raise CommandError.of("nothing was changed", hint="--dry-run shows what would be done")
