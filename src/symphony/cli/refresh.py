"""`symphony refresh`: have the daemon ask the tracker now instead of at the next poll."""

import os
from pathlib import Path

import click

from symphony.cli.workflow_option import as_json, of_a_workflow, print_json

__all__ = ["refresh"]

_EPILOG = """\b
Examples:
  symphony refresh
  symphony refresh --json | jq .coalesced

Exit codes: 0 asked for, 5 no daemon is running, or it does not answer.
"""


@click.command(epilog=_EPILOG)
@as_json
@of_a_workflow
def refresh(*, as_json: bool, workflow: Path) -> None:
    """Have the daemon poll the tracker now."""
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.client import needed_daemon

    with needed_daemon(workflow, os.environ, hint="start one: symphony run; it polls at once") as client:
        answer = client.refresh()
    if as_json:
        print_json(answer)
    elif answer.coalesced:
        click.echo("A poll is under way or due already; this refresh goes with it.")
    else:
        click.echo("The tracker is polled now.")
