"""`symphony schedules`: the issues that are filed again and again."""

import os
from pathlib import Path

import anyio
import click
from msgspec import structs
from rich.text import Text

from symphony.api.models import CreatedIssue, Schedule
from symphony.cli.client import connect
from symphony.cli.documents import IssueCreated, SchedulesShown
from symphony.cli.failures import CommandError, ExitCode, require_person
from symphony.cli.formatting import cell, console_for, print_blocks, table
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.daemon.state_dir import StateDirectory, journal_path, locate
from symphony.domain import one_line


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog="""\b
Examples:
  symphony schedules
  symphony schedules --json | jq -r '.schedules[] | "\\(.name) \\(.next_at)"'
  symphony schedules run dependencies

Without a daemon it asks the tracker for the state of the last issues. Exit codes: 0 shown, 3 the
configuration is invalid, 5 the daemon does not answer.
""",
    short_help="Show recurring issues, and create one now.",
)
@json_option
@workflow_option
@click.pass_context
def schedules(ctx: click.Context, *, as_json: bool, workflow: Path) -> int:
    """Show the schedules of WORKFLOW.md: the time of the next issue, and the last issue with its state."""
    if ctx.invoked_subcommand is not None:
        return ExitCode.OK
    client = connect(workflow, os.environ)
    if client is not None:
        shown = SchedulesShown(source="daemon", schedules=client.schedules().schedules)
    else:
        shown = SchedulesShown(source="files", schedules=_from_files(workflow))
    if as_json:
        print_json(shown)
    elif shown.schedules:
        _print(shown.schedules, live=client is not None)
    else:
        click.echo("WORKFLOW.md has no schedules.", err=True)
    return ExitCode.OK


@schedules.command(
    epilog="""\b
Examples:
  symphony schedules run dependencies
  symphony schedules run dependencies --json | jq -r .issue_identifier

It creates the issue even if the previous one is open. The times of the schedule do not change. Without a
daemon the command creates the issue itself.

Exit codes: 0 created, 1 no such schedule, or the tracker refuses, 3 the configuration is invalid, 4 the
credential is missing or refused, 5 the daemon does not answer.
"""
)
@click.argument("name")
@json_option
@workflow_option
def run(*, name: str, as_json: bool, workflow: Path) -> None:
    """Create an issue of a schedule now."""
    require_person("file issues", hint="say in your last message which issue is missing")
    client = connect(workflow, os.environ)
    created = _file_here(workflow, name) if client is None else client.run_schedule(name)
    if created is None:
        raise CommandError.of(
            f"there is no schedule {one_line(name)!r}", hint="`symphony schedules` lists them"
        )
    print_created(created, as_json=as_json)


def print_created(created: CreatedIssue, *, as_json: bool) -> None:
    """Print an issue that was created just now."""
    if as_json:
        print_json(IssueCreated(**structs.asdict(created)))
    else:
        click.echo(one_line(f"{created.issue_identifier}  {created.issue_url or created.title}"))


def _from_files(workflow: Path) -> tuple[Schedule, ...]:
    from symphony.cli.offline import open_context  # noqa: PLC0415 - everything a daemon needs: slow to import
    from symphony.daemon.schedules import schedules_without_daemon  # noqa: PLC0415 - as above

    context = open_context(workflow, os.environ)
    return anyio.run(schedules_without_daemon, context, journal_path(workflow, os.environ))


def _file_here(workflow: Path, name: str) -> CreatedIssue | None:
    from symphony.cli.offline import open_context  # noqa: PLC0415 - everything a daemon needs: slow to import
    from symphony.daemon.schedules import file_without_daemon  # noqa: PLC0415 - as above

    state_dir = StateDirectory(locate(workflow, os.environ))
    try:
        return file_without_daemon(state_dir, workflow, open_context(workflow, os.environ), name)
    except ValueError as error:
        raise CommandError.of(str(error), hint="correct the schedule in WORKFLOW.md") from error


def _print(rows: tuple[Schedule, ...], *, live: bool) -> None:
    shown = table("NAME", "NEXT", "CRON", "LAST ISSUE", "STATE", fold={"NAME", "CRON", "LAST ISSUE", "STATE"})
    for row in rows:
        now = "now" if live else "at the next start of the daemon"
        shown.add_row(
            cell(row.name),
            cell(now if row.due else row.next_at or "never"),
            cell(f"{row.cron} {row.timezone}"),
            cell(row.issue_identifier or "-"),
            cell(row.issue_state or "-"),
        )
    notes = [Text(one_line(f"{row.name}: {row.failure}", 300), "red") for row in rows if row.failure]
    for row in rows:
        if row.skipped:
            open_one = row.issue_identifier or "the former issue"
            notes.append(
                Text(one_line(f"{row.name}: {row.last_due_at} was left out: {open_one} was open"), "yellow")
            )
    print_blocks(console_for(), shown, *notes)
