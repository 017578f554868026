"""`symphony clean`: lists and removes what ended runs and issues have left."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import CommandError, ExitCode, printable
from symphony.cli.options import (
    dry_run_option,
    json_option,
    parse_age,
    print_json,
    use_colour,
    workflow_option,
)

if TYPE_CHECKING:
    from symphony.cli.documents import Cleaned


_EPILOG = """\b
Examples:
  symphony clean --dry-run             what would be removed, what stays, and why
  symphony clean
  symphony clean --older-than 12h      not only what is older than retention.max_age_days
  symphony clean --older-than 0 --yes  the whole history of ended runs, without confirmation

Removes workspaces of issues in a terminal state, on this machine and on the hosts of worker.ssh_hosts, ended
runs in the journal, stderr logs of agents and damaged journals that were set aside. Keeps everything of an
issue that is not over, and every workspace with uncommitted work or with commits that exist nowhere else. A
running daemon looks after its workspaces and its journal by itself; they are left alone. Asks for
confirmation if --older-than would leave no ended run in the journal.

Exit codes: 0 done, 1 something could not be removed, or the answer was no, 2 usage, or a confirmation is
needed and there is no terminal and no --yes, 3 the workflow is invalid, 5 the daemon does not answer.
"""
_KIB = 1024
_KINDS = {
    "workspace": "workspace",
    "host": "host",
    "log": "log",
    "damaged_journal": "damaged journal",
    "runs": "journal",
}


@click.command(epilog=_EPILOG)
@dry_run_option
@click.option(
    "--older-than",
    metavar="AGE",
    callback=parse_age,
    help="Only what is older than this: 90m, 12h, 30d, 4w. Replaces retention.max_age_days for history.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@workflow_option
def clean(*, dry_run: bool, older_than: float | None, yes: bool, as_json: bool, workflow: Path) -> int:
    """Remove the leftovers of ended runs and issues.

    Work that would be lost is kept, and the reason is shown.
    """
    from symphony.cli.cleaning import clean_up

    result = clean_up(
        workflow,
        dict(os.environ),
        dry_run=dry_run,
        older_than_s=older_than,
        confirm=(lambda _: None) if yes else _confirm,
    )
    if as_json:
        print_json(result)
    else:
        _print_result(result)
    return ExitCode.FAILURE if any(item.outcome == "failed" for item in result.items) else ExitCode.OK


def _confirm(runs: int) -> None:
    what = f"all {runs} ended runs" if runs > 1 else "the only ended run"
    if sys.stdin is None or not sys.stdin.isatty():
        message = f"this would remove {what} from the journal, and needs a confirmation"
        hint = "--yes confirms it, --dry-run shows what would be removed"
        raise CommandError.of(message, hint=hint, code=ExitCode.USAGE)
    if not click.confirm(f"This removes {what} from the journal. Go on?", err=True):
        raise CommandError.of("nothing was removed", hint="give --older-than a greater age")


def _print_result(result: "Cleaned") -> None:
    from symphony.cli.cleaning import REMOVED

    colour = use_colour()
    for item in result.items:
        style = {"kept": None, "failed": "red"}.get(item.outcome, "green")
        outcome = click.style(f"{item.outcome.replace('_', ' '):12}", fg=style)
        size = "" if item.size is None else f" ({_size(item.size)})"
        where = f" on {item.host}" if item.kind == "workspace" and item.host is not None else ""
        text = printable(f"{_KINDS[item.kind]} {item.name}{where}{size}: {item.reason}")
        click.echo(f"{outcome}  {text}", color=colour)
    if removed := sum(item.outcome in REMOVED for item in result.items):
        verb = "would be removed" if result.dry_run else "removed"
        click.echo(f"{removed} {verb}, {_size(result.bytes)} of files")
    elif any(item.outcome == "failed" for item in result.items):
        click.echo("Nothing was removed.")
    else:
        click.echo("There is nothing to remove.")


def _size(count: int) -> str:
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= _KIB and len(units) > 1:
        value /= _KIB
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"
