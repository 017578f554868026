"""`symphony doctor`: everything that a daemon needs, looked at before it is missed."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symphony.cli.options import json_option, print_json, workflow_argument
from symphony.domain import one_line

if TYPE_CHECKING:
    from symphony.cli.diagnostics import Checkup


_EPILOG = """\b
Examples:
  symphony doctor                   look at all that `symphony run` would need here
  symphony doctor ../app/WORKFLOW.md
  symphony doctor --json | jq '.checks[] | select(.status != "ok")'

Works beside a running daemon and without one; nothing is changed and nothing is left behind. Each check has
20 seconds. The agent is started once and asked for its login and one sandboxed command; no model is called.

Exit codes: 0 no error (warnings may be), 1 errors, 3 the configuration, 4 a login, 5 the daemon is silent;
the highest that applies.
"""
_MAX_CHARS = 4_000
_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_HIDDEN_CURSOR = "\r\x1b[2K"


@click.command(epilog=_EPILOG)
@workflow_argument
@json_option
def doctor(workflow: Path, *, as_json: bool) -> int:
    """Check all that a daemon needs, and say how to mend it."""
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.diagnostics import check_up

    with _progress() as tell:
        found = check_up(workflow, dict(os.environ), tell)
    if as_json:
        print_json(found.document())
    else:
        _show(found)
    return found.code


@contextmanager
def _progress() -> Iterator[Callable[[Sequence[str]], None]]:
    """On a terminal one line that says what is awaited, gone at the end; nothing elsewhere."""
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return

    def tell(waiting: Sequence[str]) -> None:
        text = one_line(f"checking: {', '.join(waiting)}" if waiting else "", 78)
        stream.write(f"{_HIDDEN_CURSOR}{text}")
        stream.flush()

    try:
        yield tell
    finally:
        stream.write(_HIDDEN_CURSOR)
        stream.flush()


def _show(found: "Checkup") -> None:
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = max(len(finding.check) for finding in found.findings)
    for finding in found.findings:
        mark = click.style(f"{finding.status.value:7}", fg=_STYLES[finding.status.value])
        click.echo(f"{mark}  {finding.check:{width}}  {one_line(finding.message, _MAX_CHARS)}", color=colour)
        if finding.hint is not None:
            hint = click.style(f"hint: {one_line(finding.hint, _MAX_CHARS)}", dim=True)
            click.echo(f"{'':7}  {'':{width}}  {hint}", color=colour)
    counts = {
        name: sum(finding.status.value == name for finding in found.findings) for name in ("error", "warning")
    }
    told = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
    click.echo(", ".join(told) or "All is well.")
