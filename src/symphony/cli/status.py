"""`symphony status`: what runs, what waits and why, and whether the daemon is well."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from symphony.cli.lean import lean_imports
from symphony.cli.workflow_option import as_json, of_a_workflow, print_json
from symphony.domain.failures import SymphonyError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from symphony.cli.facts import Facts

__all__ = ["status"]

_EPILOG = """\b
Examples:
  symphony status
  symphony status --watch --interval 5
  symphony status --json | jq '.blocked[].issue_identifier'
  symphony status --workflow ../app/WORKFLOW.md

Without a daemon it says so, and tells what the tracker and the files say. --watch goes on over a restart of
the daemon and ends with Ctrl-C.
"""


@click.command(epilog=_EPILOG)
@click.option("--watch", is_flag=True, help="Show it again and again; with --json one object per line.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often, with --watch.",
)
@as_json
@of_a_workflow
def status(*, watch: bool, interval: float, as_json: bool, workflow: Path) -> None:
    """Show what runs and what waits, and why."""
    # Imported here: `--help` of any command stays fast.
    with lean_imports():
        from symphony.cli.facts import Facts

    facts = Facts(workflow, os.environ)
    if not watch:
        _once(facts, as_json=as_json)
        return
    try:
        if as_json:
            _watch_json(facts, interval)
        else:
            _watch(facts, interval)
    except KeyboardInterrupt:
        sys.exit(0)


def _once(facts: "Facts", *, as_json: bool) -> None:
    document = facts.state()
    if as_json:
        print_json(document)
        return
    from symphony.cli.status_view import console_for, show, status_view

    console = console_for()
    show(console, status_view(document, workflow=str(facts.workflow), width=console.width))


def _watch(facts: "Facts", interval: float) -> None:
    """Redraw a terminal; elsewhere one picture below the other, because nothing there can be redrawn."""
    from rich.live import Live
    from rich.text import Text

    from symphony.cli.status_view import console_for, show

    console = console_for()
    if not console.is_terminal or console.is_dumb_terminal:
        _repeat(lambda: show(console, _picture(facts, console, endless=True), Text()), interval)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        _repeat(lambda: live.update(_picture(facts, console, endless=False), refresh=True), interval)


def _picture(facts: "Facts", console: "Console", *, endless: bool) -> "RenderableType":
    """What there is to see now; trouble is shown too, because it may pass."""
    from symphony.cli.status_screen import status_screen
    from symphony.cli.status_view import status_view, trouble_view

    try:
        document = facts.state()
    except SymphonyError as error:
        return trouble_view(error.failure)
    workflow = str(facts.workflow)
    if endless:
        return status_view(document, workflow=workflow, width=console.width)
    return status_screen(console, document, workflow=workflow)


def _watch_json(facts: "Facts", interval: float) -> None:
    def show() -> None:
        document: dict[str, Any]
        try:
            document = facts.state()
        except SymphonyError as error:
            failure = error.failure
            told = {"code": failure.category.value, "message": failure.message, "hint": failure.hint}
            document = {"source": None, "daemon": None, "error": told}
        print_json(document, indent=None)

    _repeat(show, interval)


def _repeat(show: Callable[[], None], interval: float) -> NoReturn:
    while True:
        show()
        time.sleep(interval)
