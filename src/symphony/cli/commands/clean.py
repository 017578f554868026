"""`symphony clean`: what ended runs and issues have left, shown and removed."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.journal import parse_age
from symphony.cli.options import dry_run_option, json_option, print_json, workflow_option
from symphony.domain import one_line

if TYPE_CHECKING:
    from symphony.cli.documents import Cleaned


_EPILOG = """\b
Examples:
  symphony clean --dry-run             what would go, what stays, and why
  symphony clean
  symphony clean --older-than 12h      and not only what is older than retention.max_age_days
  symphony clean --older-than 0 --yes  the whole history of ended runs, without a question

Goes: workspaces of issues in a terminal state, ended runs in the journal, the agents' stderr logs and
journals that were set aside as damaged. Stays: everything of an issue that is not over, and every workspace
with uncommitted work or commits that are nowhere else. Beside a running daemon workspaces and the journal are
left to it; it keeps to `retention` by itself. Where --older-than leaves no ended run in the journal it asks
first.

Exit codes: 0 done, 1 something could not be removed, or the answer was no, 2 usage, or nobody to ask and no
--yes, 3 the workflow is invalid, 5 the daemon does not answer.
"""
_MAX_CHARS = 4_000
_KINDS = {"workspace": "workspace", "log": "log", "damaged_journal": "damaged journal", "runs": "journal"}


@click.command(epilog=_EPILOG)
@dry_run_option
@click.option(
    "--older-than",
    metavar="AGE",
    callback=parse_age,
    help="Only what is older than this: 90m, 12h, 30d, 4w. For history else retention.max_age_days.",
)
@click.option("--yes", is_flag=True, help="Ask nothing.")
@json_option
@workflow_option
def clean(*, dry_run: bool, older_than: float | None, yes: bool, as_json: bool, workflow: Path) -> int:
    """Remove what ended runs and issues have left.

    Work that would be lost is kept, and the reason is told.
    """
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.cleaning import clean_up

    found = clean_up(
        workflow,
        dict(os.environ),
        dry_run=dry_run,
        older_than_s=older_than,
        confirm=(lambda _: None) if yes else _ask,
    )
    if as_json:
        print_json(found)
    else:
        _show(found)
    return ExitCode.FAILURE if any(item.outcome == "failed" for item in found.items) else ExitCode.OK


def _ask(runs: int) -> None:
    what = f"all {runs} ended runs" if runs > 1 else "the only ended run"
    if sys.stdin is None or not sys.stdin.isatty():
        message = f"this would drop {what} of the journal, and there is nobody to ask"
        hint = "--yes drops them without a question, --dry-run shows what would go"
        raise CommandError.of(message, hint=hint, code=ExitCode.USAGE)
    if not click.confirm(f"This drops {what} of the journal. Go on?", err=True):
        raise CommandError.of("nothing was removed", hint="name a greater age with --older-than")


def _show(found: "Cleaned") -> None:
    from symphony.cli.cleaning import GONE

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for item in found.items:
        style = {"kept": None, "failed": "red"}.get(item.outcome, "green")
        mark = click.style(f"{item.outcome.replace('_', ' '):12}", fg=style)
        size = "" if item.size is None else f" ({_size(item.size)})"
        text = one_line(f"{_KINDS[item.kind]} {item.name}{size}: {item.reason}", _MAX_CHARS)
        click.echo(f"{mark}  {text}", color=colour)
    if gone := [item for item in found.items if item.outcome in GONE]:
        would = "would be removed" if found.dry_run else "removed"
        click.echo(f"{len(gone)} {would}, {_size(found.bytes)} of files")
    elif any(item.outcome == "failed" for item in found.items):
        click.echo("Nothing was removed.")
    else:
        click.echo("Nothing has to go.")


def _size(count: int) -> str:
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:  # noqa: PLR2004 - what the next unit is made of
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"
