"""`symphony outbox`: writes to outside services that are not done yet."""

import os
from pathlib import Path

import click

from symphony.cli.client import connect, require_daemon
from symphony.cli.documents import OutboxShown
from symphony.cli.failures import CommandError, printable
from symphony.cli.journal import journal_to_read
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.journal.reader import open_reader

outbox = LazyGroup(
    "outbox",
    help="Show writes that have not arrived yet at trackers, forges, targets and origin, and try them again.",
    short_help="Show writes that have not arrived yet, and try them again.",
    epilog="""\b
Examples:
  symphony outbox list
  symphony outbox retry SYM-1

The daemon also tries again by itself, within a minute after the receiver is back.
""",
)
_KEY = click.argument("key", metavar="KEY|ISSUE")
_CODES = "Exit codes: 0 done, 1 there is no such job, 5 no daemon is running, or it does not answer."


@outbox.command(
    "list",
    epilog="""\b
Examples:
  symphony outbox list
  symphony outbox list --json | jq '.jobs[] | select(.state == "given_up")'

Without a daemon it shows the jobs of the last one. Exit codes: 0 shown, 5 the daemon does not answer.
""",
)
@json_option
@workflow_option
def list_(*, as_json: bool, workflow: Path) -> None:
    """List waiting jobs, and those that were given up."""
    client = connect(workflow, os.environ)
    if client is not None:
        shown = OutboxShown(source="daemon", jobs=client.outbox().jobs)
    elif (journal := journal_to_read(workflow, os.environ)).exists():
        from symphony.api.documents import outbox_document  # noqa: PLC0415 - loads the settings: slow to import

        with open_reader(journal) as reader:
            shown = OutboxShown(source="files", jobs=outbox_document(reader.jobs()).jobs)
    else:
        shown = OutboxShown(source="files", jobs=())
    if as_json:
        print_json(shown)
        return
    if not shown.jobs:
        click.echo("No job waits.")
    for job in shown.jobs:
        when = "given up" if job.due_at is None else f"due {job.due_at}"
        tries = f", tried {job.attempts} times" if job.attempts else ""
        click.echo(printable(f"{job.issue_identifier or '-'}  {job.key}  since {job.since}, {when}{tries}"))
        if job.failure is not None:
            click.echo(printable(f"  {job.failure}"))


@outbox.command(
    epilog=f"""\b
Examples:
  symphony outbox retry SYM-1
  symphony outbox retry comment:42:delivery

{_CODES}
"""
)
@_KEY
@json_option
@workflow_option
def retry(*, key: str, as_json: bool, workflow: Path) -> None:
    """Try jobs now, also those that were given up.

    `symphony outbox list` shows the KEY. ISSUE means all jobs of an issue.
    """
    _change("retry", key, workflow, as_json=as_json)


@outbox.command(
    epilog=f"""\b
Examples:
  symphony outbox drop SYM-1

{_CODES}
"""
)
@_KEY
@json_option
@workflow_option
def drop(*, key: str, as_json: bool, workflow: Path) -> None:
    """Delete jobs: they will not arrive.

    `symphony outbox list` shows the KEY. ISSUE means all jobs of an issue.
    """
    _change("drop", key, workflow, as_json=as_json)


def _change(verb: str, key: str, workflow: Path, *, as_json: bool) -> None:
    client = require_daemon(workflow, os.environ, hint="start one with symphony run: it tries the jobs")
    changed = client.change_outbox(verb, key)
    if changed is None:
        raise CommandError.of(f"there is no job {key!r}", hint="symphony outbox list shows the keys")
    if as_json:
        print_json(OutboxShown(source="daemon", jobs=changed.jobs))
        return
    done = "is tried now" if verb == "retry" else "is dropped"
    for job in changed.jobs:
        click.echo(printable(f"{job.key} {done}"))
