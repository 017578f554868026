"""`symphony status`: what runs, what waits and why, and whether the daemon is well."""

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import click
from click.core import ParameterSource

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
  symphony status --all             every daemon of this user; for root of this host
  symphony status --all --json | jq -r '.daemons[] | select(.status != "running") | .name'

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
@click.option("--all", "every", is_flag=True, help="Every daemon of this user; for root of this host.")
@as_json
@of_a_workflow
@click.pass_context
def status(
    ctx: click.Context, *, watch: bool, interval: float, every: bool, as_json: bool, workflow: Path
) -> None:
    """Show what runs and what waits, and why."""
    if every and ctx.get_parameter_source("workflow") is not ParameterSource.DEFAULT:
        raise click.UsageError("--all is about every workflow, and --workflow about one; give one of them")
    # Imported here: `--help` of any command stays fast.
    with lean_imports():
        from symphony.cli.facts import Facts

    subject = _Everyone() if every else _One(Facts(workflow, os.environ))
    if not watch:
        _once(subject, as_json=as_json)
        return
    try:
        if as_json:
            _repeat(lambda: print_json(subject.lasting_document(), indent=None), interval)
        else:
            _watch(subject, interval)
    except KeyboardInterrupt:
        sys.exit(0)


class _Subject(Protocol):
    """What is shown: a document, and pictures of it."""

    def document(self) -> dict[str, Any]:
        """What there is to tell now; raises `SymphonyError`."""
        ...

    def lasting_document(self) -> dict[str, Any]:
        """The same, where trouble is told too, because it may pass."""
        ...

    def view(self, document: dict[str, Any], console: "Console") -> "RenderableType":
        """All of it, however long."""
        ...

    def screen(self, document: dict[str, Any], console: "Console") -> "RenderableType":
        """What fits a screen."""
        ...


class _One:
    """The daemon of one workflow."""

    def __init__(self, facts: "Facts") -> None:
        self._facts = facts

    def document(self) -> dict[str, Any]:
        return self._facts.state()

    def lasting_document(self) -> dict[str, Any]:
        try:
            return self._facts.state()
        except SymphonyError as error:
            failure = error.failure
            told = {"code": failure.category.value, "message": failure.message, "hint": failure.hint}
            return {"source": None, "daemon": None, "error": told}

    def view(self, document: dict[str, Any], console: "Console") -> "RenderableType":
        from symphony.cli.status_view import status_view

        return status_view(document, workflow=str(self._facts.workflow), width=console.width)

    def screen(self, document: dict[str, Any], console: "Console") -> "RenderableType":
        from symphony.cli.status_screen import status_screen

        return status_screen(console, document, workflow=str(self._facts.workflow))


class _Everyone:
    """Every daemon there is; what is wrong with one is told in its row."""

    def document(self) -> dict[str, Any]:
        from symphony.cli.daemons import daemons

        return daemons(os.environ)

    def lasting_document(self) -> dict[str, Any]:
        return self.document()

    def view(self, document: dict[str, Any], _: "Console") -> "RenderableType":
        from symphony.cli.daemons_view import daemons_view

        return daemons_view(document, now=datetime.now(UTC))

    def screen(self, document: dict[str, Any], console: "Console") -> "RenderableType":
        return self.view(document, console)


def _once(subject: _Subject, *, as_json: bool) -> None:
    document = subject.document()
    if as_json:
        print_json(document)
        return
    from symphony.cli.status_view import console_for, show

    console = console_for()
    show(console, subject.view(document, console))


def _watch(subject: _Subject, interval: float) -> None:
    """Redraw a terminal; elsewhere one picture below the other, because nothing there can be redrawn."""
    from rich.live import Live
    from rich.text import Text

    from symphony.cli.status_view import console_for, show

    console = console_for()
    if not console.is_terminal or console.is_dumb_terminal:
        _repeat(lambda: show(console, _picture(subject, console, endless=True), Text()), interval)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        _repeat(lambda: live.update(_picture(subject, console, endless=False), refresh=True), interval)


def _picture(subject: _Subject, console: "Console", *, endless: bool) -> "RenderableType":
    """What there is to see now; trouble is shown too, because it may pass."""
    from symphony.cli.status_view import trouble_view

    try:
        document = subject.document()
    except SymphonyError as error:
        return trouble_view(error.failure)
    return subject.view(document, console) if endless else subject.screen(document, console)


def _repeat(show: Callable[[], None], interval: float) -> NoReturn:
    while True:
        show()
        time.sleep(interval)
