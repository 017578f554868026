"""`symphony doctor`: checks everything that a daemon needs."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import printable
from symphony.cli.options import json_option, print_json, use_colour, workflow_argument
from symphony.domain import one_line, plural

if TYPE_CHECKING:
    from symphony.cli.documents import Doctor


_EPILOG = """\b
Examples:
  symphony doctor                   check everything that `symphony run` would need here
  symphony doctor ../app/WORKFLOW.md
  symphony doctor --json | jq '.checks[] | select(.status != "ok")'

Works with and without a running daemon, and changes nothing. Each check has 20 seconds. The agent is started
once and asked for its login and one sandboxed command; no model is called.

Exit codes: 0 no error (there may be warnings), 1 errors, 3 the configuration, 4 a login, 5 the daemon does
not answer; the highest that applies.
"""
_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_CLEAR_LINE = "\r\x1b[2K"


@click.command(epilog=_EPILOG)
@workflow_argument
@json_option
def doctor(workflow: Path, *, as_json: bool) -> int:
    """Check everything a daemon needs, and suggest repairs."""
    from symphony.cli.diagnostics import diagnose

    with _progress_line() as on_progress:
        report = diagnose(workflow, dict(os.environ), on_progress)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    return report.exit_code


@contextmanager
def _progress_line() -> Iterator[Callable[[Sequence[str]], None]]:
    """Show the names of unfinished checks in one line of a terminal, which is cleared at the end."""
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return

    def show(unfinished: Sequence[str]) -> None:
        text = one_line(f"checking: {', '.join(unfinished)}" if unfinished else "", 78)
        stream.write(f"{_CLEAR_LINE}{text}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write(_CLEAR_LINE)
        stream.flush()


def _print_report(report: "Doctor") -> None:
    colour = use_colour()
    width = max(len(check.name) for check in report.checks)
    for check in report.checks:
        status = click.style(f"{check.status:7}", fg=_COLOURS[check.status])
        click.echo(f"{status}  {check.name:{width}}  {printable(check.message)}", color=colour)
        if check.hint is not None:
            hint = click.style(f"hint: {printable(check.hint)}", dim=True)
            click.echo(f"{'':7}  {'':{width}}  {hint}", color=colour)
    counts = Counter(check.status for check in report.checks)
    problems = [plural(counts[status], status) for status in ("error", "warning") if counts[status]]
    click.echo(", ".join(problems) or "Everything is fine.")
