"""`symphony status`: what runs, what waits and why, and whether the daemon is well."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import click
from click.core import ParameterSource

from symphony.cli.workflow_option import as_json, of_a_workflow, print_json
from symphony.domain.failures import SymphonyError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from symphony.cli.documents import Daemons, Status, Unknown
    from symphony.cli.facts import Facts
    from symphony.domain.issue import Selection

__all__ = ["CODES", "status"]

_LISTED = 20
"""How many waiting issues are shown where nobody can tell how high the screen is."""
CODES = (
    "incomplete",
    "terminal",
    "inactive",
    "not_dispatchable",
    "label_missing",
    "running",
    "retrying",
    "blocked",
    "blocker_running",
    "same_identifier",
    "draining",
    "workflow_invalid",
    "paused",
    "day_budget",
    "agent_limited",
    "no_slot",
    "no_state_slot",
    "starting",
    "deferred",
    "ready",
)
"""`observability.waiting.CODES`, which is slow to load; a test keeps them the same."""
_PROMPT_LINES = 2
"""What a terminal needs for the command and for what is typed next."""

_EPILOG = """\b
Examples:
  symphony status
  symphony status --all-issues      every issue, however many
  symphony status --state Todo --reason no_slot
  symphony status --watch --interval 5
  symphony status --json | jq '.blocked[].issue_identifier'
  symphony status --workflow ../app/WORKFLOW.md
  symphony status --all             every daemon of this user; for root of this host
  symphony status --all --json | jq -r '.daemons[] | select(.status != "running") | .name'

Without a daemon it says so, and tells what the tracker and the files say. --watch goes on over a restart of
the daemon and ends with Ctrl-C. A terminal gets one screen; elsewhere 20 waiting issues are shown. What is
left out is counted. --json has every issue, unless --state or --reason is given.
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
@click.option("--all-issues", is_flag=True, help="Show every issue, also where they are more than a screen.")
@click.option("--state", "states", multiple=True, help="Only issues in this state; may be repeated.")
@click.option(
    "--reason",
    "reasons",
    type=click.Choice(CODES),
    multiple=True,
    metavar="CODE",
    help="Only issues with this code, such as no_slot or blocked; may be repeated.",
)
@click.option("--all", "every", is_flag=True, help="Every daemon of this user; for root of this host.")
@as_json
@of_a_workflow
@click.pass_context
def status(
    ctx: click.Context,
    *,
    watch: bool,
    interval: float,
    all_issues: bool,
    states: tuple[str, ...],
    reasons: tuple[str, ...],
    every: bool,
    as_json: bool,
    workflow: Path,
) -> None:
    """Show what runs and what waits, and why."""
    if every and ctx.get_parameter_source("workflow") is not ParameterSource.DEFAULT:
        raise click.UsageError("--all is about every workflow, and --workflow about one; give one of them")
    if every and (all_issues or states or reasons):
        raise click.UsageError("--all lists daemons; --all-issues, --state and --reason are about issues")
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.facts import Facts
    from symphony.domain.issue import Selection

    only = Selection(states=frozenset(states), codes=frozenset(reasons))
    subject = _Everyone() if every else _One(Facts(workflow, os.environ), only, all_issues=all_issues)
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

    def document(self) -> "Status | Daemons":
        """What there is to tell now; raises `SymphonyError`."""
        ...

    def lasting_document(self) -> "Status | Daemons | Unknown":
        """The same, where trouble is told too, because it may pass."""
        ...

    def view(self, console: "Console", *, keep_free: int) -> "RenderableType":
        """The picture; on a terminal one screen, with so many lines kept free. Raises `SymphonyError`."""
        ...


class _One:
    """The daemon of one workflow."""

    def __init__(self, facts: "Facts", only: "Selection", *, all_issues: bool) -> None:
        self._facts = facts
        self._only = only
        self._all_issues = all_issues

    def document(self) -> "Status":
        return self._facts.state(self._only)

    def lasting_document(self) -> "Status | Unknown":
        from symphony.cli.documents import Trouble, Unknown

        try:
            return self.document()
        except SymphonyError as error:
            failure = error.failure
            told = Trouble(code=failure.category.value, message=failure.message, hint=failure.hint)
            return Unknown(error=told)

    def view(self, console: "Console", *, keep_free: int) -> "RenderableType":
        from symphony.cli.status_screen import status_screen
        from symphony.cli.status_view import status_view
        from symphony.domain.issue import Selection

        listed = console.height if console.is_terminal else _LISTED
        only = self._only if self._all_issues else replace(self._only, most=listed)
        document = self._facts.state(only)
        workflow, selected = str(self._facts.workflow), self._only != Selection()
        if console.is_terminal and not self._all_issues:
            return status_screen(console, document, workflow=workflow, selected=selected, keep_free=keep_free)
        most = None if self._all_issues else {"waiting": _LISTED}
        return status_view(document, workflow=workflow, width=console.width, most=most, selected=selected)


class _Everyone:
    """Every daemon there is; what is wrong with one is told in its row."""

    def document(self) -> "Daemons":
        from symphony.cli.daemons import daemons

        return daemons(os.environ)

    def lasting_document(self) -> "Daemons":
        return self.document()

    def view(self, _: "Console", *, keep_free: int) -> "RenderableType":
        from symphony.cli.daemons_view import daemons_view

        del keep_free
        return daemons_view(self.document(), now=datetime.now(UTC))


def _once(subject: _Subject, *, as_json: bool) -> None:
    if as_json:
        print_json(subject.document())
        return
    from symphony.cli.status_view import console_for, show

    console = console_for()
    show(console, subject.view(console, keep_free=_PROMPT_LINES))


def _watch(subject: _Subject, interval: float) -> None:
    """Redraw a terminal; elsewhere one picture below the other, because nothing there can be redrawn."""
    from rich.live import Live
    from rich.text import Text

    from symphony.cli.status_view import console_for, show

    console = console_for()
    if not console.is_terminal or console.is_dumb_terminal:
        _repeat(lambda: show(console, _picture(subject, console), Text()), interval)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        _repeat(lambda: live.update(_picture(subject, console), refresh=True), interval)


def _picture(subject: _Subject, console: "Console") -> "RenderableType":
    """What there is to see now; trouble is shown too, because it may pass."""
    from symphony.cli.status_view import trouble_view

    try:
        return subject.view(console, keep_free=0)
    except SymphonyError as error:
        return trouble_view(error.failure)


def _repeat(show: Callable[[], None], interval: float) -> NoReturn:
    while True:
        show()
        time.sleep(interval)
