"""`symphony status`: what runs, what waits and why, and whether the daemon is well."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import click
from click.core import ParameterSource

from symphony.cli.options import json_option, print_json, workflow_option
from symphony.domain import ALL_ISSUES, Selection, SymphonyError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from symphony.cli.documents import Daemons, Status, StatusUnavailable
    from symphony.cli.queries import Queries
    from symphony.cli.watch import View

_PIPE_LIMIT: Final = 20
"""How many waiting issues are shown without a terminal; on a terminal its height decides."""
_PROMPT_LINES: Final = 2
"""What a terminal needs for the command and for what is typed next."""
CODES: Final = (
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
    "no_host_slot",
    "starting",
    "deferred",
    "ready",
)
"""`api.documents.CODES`, which is slow to import; a test keeps them the same."""


@click.command(
    epilog="""\b
Examples:
  symphony status
  symphony status --all-issues      every issue, however many
  symphony status --state Todo --reason no_slot
  symphony status --watch --interval 5
  symphony status --json | jq '.blocked[].issue_identifier'
  symphony status --workflow ../app/WORKFLOW.md
  symphony status --all             every daemon of this user; for root of this host
  symphony status --all --json | jq -r '.daemons[] | select(.status != "running") | .name'

Without a daemon it says so, and shows what the tracker and the files say. --watch goes on over a restart of
the daemon and ends with q or Ctrl-C; ? lists its keys. A terminal gets one screen; elsewhere 20 waiting
issues are shown. What is left out is counted. --json has every issue, unless --state or --reason is given.
"""
)
@click.option("--watch", is_flag=True, help="Show it again and again; with --json one object per line.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often, with --watch.",
)
@click.option("--render-interval", type=click.FloatRange(min=0), default=0.016, hidden=True)
@click.option("--parent", type=int, hidden=True, help="End with this process, whose terminal the view uses.")
@click.option("--all-issues", is_flag=True, help="Show every issue, even if they fill more than a screen.")
@click.option("--state", "states", multiple=True, help="Only issues in this state; may be repeated.")
@click.option(
    "--reason",
    "reasons",
    type=click.Choice(CODES),
    multiple=True,
    metavar="CODE",
    help="Only issues with this code, such as no_slot or blocked; may be repeated.",
)
@click.option("--all", "all_daemons", is_flag=True, help="Every daemon of this user; for root of this host.")
@json_option
@workflow_option
@click.pass_context
def status(
    ctx: click.Context,
    *,
    watch: bool,
    interval: float,
    render_interval: float,
    parent: int | None,
    all_issues: bool,
    states: tuple[str, ...],
    reasons: tuple[str, ...],
    all_daemons: bool,
    as_json: bool,
    workflow: Path,
) -> None:
    """Show what runs and what waits, and why."""
    if all_daemons and ctx.get_parameter_source("workflow") is not ParameterSource.DEFAULT:
        raise click.UsageError("--all is about every workflow, and --workflow about one; give one of them")
    if all_daemons and (all_issues or states or reasons):
        raise click.UsageError("--all lists daemons; --all-issues, --state and --reason are about issues")
    # Imported here and below: `--help` stays fast.
    from symphony.cli.formatting import console_for, print_blocks
    from symphony.cli.queries import Queries

    source: _Source
    if all_daemons:
        source = _AllDaemons()
    else:
        only = Selection(states=frozenset(states), codes=frozenset(reasons))
        source = _OneDaemon(Queries(workflow, os.environ), only, all_issues=all_issues, parent=parent)
    try:
        if watch and as_json:
            _repeat(lambda: print_json(_document_or_error(source), indent=None), interval)
        elif watch:
            _watch(source, interval, render_interval)
            return
    except KeyboardInterrupt:
        sys.exit(0)
    if as_json:
        print_json(source.document())
    else:
        console = console_for()
        print_blocks(console, source.view(console, keep_free=_PROMPT_LINES))


class _Source(Protocol):
    """What is shown. `document` and `view` raise `SymphonyError`."""

    def document(self) -> "Status | Daemons": ...

    def view(self, console: "Console", *, keep_free: int) -> "RenderableType":
        """The picture for a console; on a terminal one screen, with a number of lines kept free."""
        ...

    def live(self, console: "Console") -> "View":
        """What is shown on a terminal again and again."""
        ...


class _OneDaemon:
    """The daemon of one workflow."""

    def __init__(self, queries: "Queries", only: Selection, *, all_issues: bool, parent: int | None) -> None:
        self._parent = parent
        self._queries = queries
        self._only = only
        self._all_issues = all_issues

    def document(self) -> "Status":
        return self._queries.state(self._only)

    def view(self, console: "Console", *, keep_free: int) -> "RenderableType":
        from symphony.cli.render.status import status_screen, status_view

        limit = console.height if console.is_terminal else _PIPE_LIMIT
        only = self._only if self._all_issues else replace(self._only, limit=limit)
        document = self._queries.state(only)
        workflow, selected = str(self._queries.workflow), self._only != ALL_ISSUES
        if console.is_terminal and not self._all_issues:
            return status_screen(
                console, document, workflow=workflow, selected=selected, keep_free=keep_free
            ).picture
        limits = None if self._all_issues else {"waiting": _PIPE_LIMIT}
        return status_view(document, workflow=workflow, width=console.width, limits=limits, selected=selected)

    def live(self, console: "Console") -> "View":
        from symphony.cli.watch import StatusView
        from symphony.daemon.state_dir import locate

        state_dir = locate(self._queries.workflow, os.environ)
        return StatusView(self._queries, self._only, console, state_dir=state_dir, parent=self._parent)


class _AllDaemons:
    """Every daemon; what is wrong with one is in its row."""

    def document(self) -> "Daemons":
        from symphony.cli.discovery import list_daemons

        return list_daemons(os.environ)

    def view(self, console: "Console", *, keep_free: int) -> "RenderableType":
        from symphony.cli.render.daemons import daemons_view

        del console, keep_free
        return daemons_view(self.document(), now=datetime.now(UTC))

    def live(self, console: "Console") -> "View":
        from symphony.cli.watch import DaemonsView

        del console
        return DaemonsView()


def _document_or_error(source: _Source) -> "Status | Daemons | StatusUnavailable":
    """The document, or the failure as a document: a daemon that is watched may come back."""
    from symphony.cli.documents import StatusUnavailable, UnavailableReason

    try:
        return source.document()
    except SymphonyError as error:
        failure = error.failure
        reason = UnavailableReason(code=failure.category.value, message=failure.message, hint=failure.hint)
        return StatusUnavailable(error=reason)


def _watch(source: _Source, interval_s: float, render_interval_s: float) -> None:
    """Show a live view; without a terminal that can be redrawn, print one picture below the other."""
    from rich.text import Text

    from symphony.cli.formatting import console_for, print_blocks
    from symphony.cli.render.status import unavailable_view
    from symphony.cli.watch import watch

    console = console_for()
    if console.is_terminal and not console.is_dumb_terminal:
        watch(source.live(console), console, interval_s=interval_s, render_interval_s=render_interval_s)
        return

    def show() -> None:
        try:
            picture = source.view(console, keep_free=0)
        except SymphonyError as error:
            picture = unavailable_view(error.failure)
        print_blocks(console, picture, Text())

    _repeat(show, interval_s)


def _repeat(show: Callable[[], None], interval: float) -> NoReturn:
    while True:
        show()
        time.sleep(interval)
