"""`symphony library proposals`, `accept`, `reject` and `sync`: what agents propose and people decide."""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import UNSET

from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.cli.library_access import (
    OpenLibrary,
    author,
    change_library,
    complete_proposal,
    library_options,
    reason_option,
    show_both,
)
from symphony.cli.options import issue_argument, print_json
from symphony.domain import issues_named, one_line

if TYPE_CHECKING:
    from symphony.cli.documents import LibrarySynced

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
_SYNC_EPILOG = """\b
Examples:
  symphony library sync SYM-7
  symphony library sync SYM-7 --json | jq -r '.proposals[]'

Compares the workspace with what was written into it, as the daemon does after a session. It makes proposals,
whatever agent.library.sync says; what was proposed before is not proposed again.

Exit codes: 0 compared, 1 there is no workspace, or no skill of the library was written into it, 2 usage,
3 the workflow is invalid.
"""
_number = click.argument("number", metavar="N", type=click.IntRange(min=1), shell_complete=complete_proposal)


@click.command(epilog=_PROPOSALS_EPILOG, short_help="List the proposals, or show one.")
@click.argument(
    "number", metavar="[N]", type=click.IntRange(min=1), required=False, shell_complete=complete_proposal
)
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
    from symphony.api.interface import ConflictError
    from symphony.api.library import proposal
    from symphony.api.models import LibraryAccept

    by = author()
    if not yes:
        _confirm(number, library)
    try:
        change_library(library, LibraryAccept(id=number), by, as_json=as_json)
    except ConflictError:
        page = proposal(library.in_use, number)
        show_both(library, page.proposal.name, page.proposal.base_version, page.diff)
        raise


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
    from symphony.library.gate import REFUSED

    page = proposal(library.in_use, number)
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
@issue_argument
@library_options
def sync(*, issue: str, library: OpenLibrary, as_json: bool) -> None:
    """Compare the skills in the workspace of an issue with the library, and propose what is new."""
    author()
    import anyio

    done = anyio.run(_sync, issue, library)
    if as_json:
        print_json(done)
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


async def _sync(issue: str, library: OpenLibrary) -> "LibrarySynced":
    """Make proposals of what is in the workspace of an issue.

    Raises:
        SymphonyError: the workflow is not usable, or there is nothing to compare.
    """
    from symphony import to_thread
    from symphony.cli.documents import LibrarySynced
    from symphony.cli.journal import journal_path
    from symphony.cli.offline import open_context
    from symphony.journal.reader import past_runs
    from symphony.library.model import Evidence
    from symphony.library.provenance import provenance
    from symphony.library.sync import sync_skills
    from symphony.observability.redaction import masked
    from symphony.workspaces import Layout, Workspace

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
            evidence=Evidence(run_id=run_id, issue_id=found.issue_id, issue_identifier=found.identifier),
            metadata=provenance(
                run_id=run_id or "unknown",
                agent=(runs[0].agent_name if runs else None) or "unknown",
                model=runs[0].model if runs else None,
            ),
        )
    )
    if synced is None:
        hint = "a run with skills of the library writes them; agent.library.directory says where"
        raise CommandError.of(f"the workspace of {found.identifier} got no skill of the library", hint=hint)
    document = LibrarySynced.of(synced, issue_identifier=found.identifier)
    shown: LibrarySynced = masked(document, library.in_use.mask)
    return shown
