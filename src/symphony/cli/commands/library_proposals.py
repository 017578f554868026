"""`symphony library proposals`, `accept` and `reject`: changes that agents propose and people decide."""

import sys

import click
from msgspec import UNSET

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.library_access import OpenLibrary, author, change_library, library_options, reason_option
from symphony.cli.options import print_json

_PROPOSALS_EPILOG = """\b
Examples:
  symphony library proposals                    those that wait for a person
  symphony library proposals 3                  what it changes, why, and what is dangerous in it
  symphony library proposals --rejected --json | jq -r '.proposals[].reason'

Exit codes: 0 done, 1 there is no such proposal, 2 usage, 3 the workflow is invalid.
"""
_ACCEPT_EPILOG = """\b
Examples:
  symphony library accept 3
  symphony library accept 3 --yes          also what is dangerous, without confirmation

The proposal becomes the newest version of its skill; sessions that start later get it. A proposal with
dangerous lines needs a confirmation: `symphony library proposals 3` shows them.

Exit codes: 0 accepted, 1 the skill has changed since, it is decided already, or the answer was no, 2 usage,
or a confirmation is needed and there is no terminal and no --yes, 3 the workflow is invalid.
"""
_REJECT_EPILOG = """\b
Examples:
  symphony library reject 3 --reason "Only true of the old build"

The same change is not proposed again.

Exit codes: 0 rejected, 1 there is no such proposal, or it is decided already, 2 usage, 3 the workflow is
invalid.
"""
_number = click.argument("number", metavar="N", type=click.IntRange(min=1))


@click.command(epilog=_PROPOSALS_EPILOG, short_help="List the proposals, or show one.")
@click.argument("number", metavar="[N]", type=click.IntRange(min=1), required=False)
@click.option("--accepted", "state", flag_value="accepted", help="Those that were accepted.")
@click.option("--rejected", "state", flag_value="rejected", help="Those that were rejected.")
@library_options
def proposals(*, number: int | None, state: str | None, library: OpenLibrary, as_json: bool) -> None:
    """List the proposals that wait for a person, or show one of them."""
    from symphony.api.library import proposal
    from symphony.api.library import proposals as those_in

    if number is not None and state is not None:
        raise click.UsageError("N names a proposal, whatever its state")
    if number is not None:
        page = proposal(library.in_use, number)
        if as_json:
            print_json(page)
            return
        from symphony.cli.render.library import print_proposal

        print_proposal(page)
        if page.proposal.state == "open":
            click.echo(f"hint: symphony library accept {number}, or reject {number} --reason TEXT", err=True)
        return
    found = those_in(library.in_use, state or "open", None)
    if as_json:
        print_json(found)
        return
    from symphony.cli.render.library import print_proposals, tell_count

    print_proposals(found)
    tell_count(found.total, f"{state or 'open'} proposal")


@click.command(epilog=_ACCEPT_EPILOG, short_help="Make a version of a proposal.")
@_number
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@library_options
def accept(*, number: int, yes: bool, library: OpenLibrary, as_json: bool) -> None:
    """Make the newest version of a skill of a proposal."""
    from symphony.api.models import LibraryAccept

    by = author()
    if not yes:
        _confirm(number, library)
    change_library(library, LibraryAccept(id=number), by, as_json=as_json)


@click.command(epilog=_REJECT_EPILOG, short_help="Reject a proposal.")
@_number
@reason_option
@library_options
def reject(*, number: int, reason: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Reject a proposal."""
    from symphony.api.models import LibraryReject

    change_library(library, LibraryReject(id=number, reason=reason or UNSET), author(), as_json=as_json)


def _confirm(number: int, library: OpenLibrary) -> None:
    """Show what is dangerous in an open proposal, and ask."""
    from symphony.api.library import proposal
    from symphony.cli.render.library import finding_line

    page = proposal(library.in_use, number)
    dangers = [one for one in page.findings if one.severity == "danger"]
    if page.proposal.state != "open" or not dangers:
        return
    for one in dangers:
        click.echo(finding_line(one, coloured=sys.stderr.isatty()), err=True)
    if sys.stdin is None or not sys.stdin.isatty():
        hint = f"look at it: symphony library proposals {number}; --yes accepts it all the same"
        raise CommandError.of(f"proposal {number} has dangerous lines", hint=hint, code=ExitCode.USAGE)
    if not click.confirm("Accept it all the same?", err=True):
        raise CommandError.of("nothing was accepted", hint=f"symphony library reject {number} --reason TEXT")
