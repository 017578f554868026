"""`symphony status`: what runs, what waits and why, and whether the daemon is well."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import click
from click.core import ParameterSource
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.api.models import utc_text
from symphony.cli.documents import DaemonRow, Daemons
from symphony.cli.formatting import cell, lasting, plural, seconds_between
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.domain import SymphonyError

if TYPE_CHECKING:
    from rich.console import Console

    from symphony.cli.documents import Status, StatusUnavailable
    from symphony.cli.queries import Queries
    from symphony.domain import Selection


# `symphony status --all` for people: one line for each daemon, and below what is wrong with which.


_HEALTH: Final = {
    "ok": ("healthy", "green"),
    "starting": ("starting", "cyan"),
    "draining": ("ending", "yellow"),
    "degraded": ("in trouble", "red"),
}
_SILENT: Final = ("does not answer", "red")
_DEAD: Final = ("dead", "bold red")


def daemons_table(document: Daemons, *, now: datetime) -> RenderableType:
    """The whole picture of `daemons.daemons`."""
    found = document.daemons
    blocks: list[RenderableType] = [_table(found, utc_text(now))] if found else [Text("No daemon was found.")]
    notes = [line for row in found if row.message for line in _note(row)]
    if notes:
        blocks += [Text(""), *notes]
    if skipped := document.skipped:
        blocks += [Text(""), Text(f"{plural(len(skipped), 'place')} not looked at:", style="dim")]
        blocks += [Text.assemble("  ", cell(f"{each.path}: {each.reason}", "dim")) for each in skipped]
    return Group(*blocks)


def _table(found: Sequence[DaemonRow], now: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("DAEMON", overflow="fold")
    table.add_column("HEALTH", no_wrap=True)
    for kind in ("RUNNING", "RETRYING", "BLOCKED", "WAITING"):
        table.add_column(kind, justify="right")
    for name in ("UP", "PID"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("VERSION", "USER", "WORKFLOW"):
        table.add_column(name, overflow="fold")
    for row in found:
        table.add_row(*_cells(row, now))
    return table


def _cells(row: DaemonRow, now: str) -> list[Text]:
    up = None if row.status == "dead" else seconds_between(row.started_at, now)
    counts = [Text("-")] * 4
    if (told := row.counts) is not None:
        counts = [Text(str(one)) for one in (told.running, told.retrying, told.blocked, told.waiting)]
    return [
        cell(row.name),
        _health(row),
        *counts,
        Text("-" if up is None else lasting(up)),
        Text(str(row.pid)),
        cell(row.version or "-"),
        cell(row.user),
        cell(row.workflow or row.state_dir),
    ]


def _health(row: DaemonRow) -> Text:
    match row.status:
        case "dead":
            words, style = _DEAD
        case "silent":
            words, style = _SILENT
        case _:
            words, style = _HEALTH.get(row.health or "", (row.health or "?", "yellow"))
    return cell(words, style)


def _note(row: DaemonRow) -> list[Text]:
    hint = [Text.assemble("  ", ("→ ", "bold"), cell(row.hint))] if row.hint else []
    return [Text.assemble(cell(row.name), ": ", cell(row.message, "red")), *hint]


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
"""`api.documents.REASON_CODES`, which is slow to load; a test keeps them the same."""
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
@json_option
@workflow_option
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
    from symphony.cli.queries import Queries
    from symphony.domain import Selection

    only = Selection(states=frozenset(states), codes=frozenset(reasons))
    subject = (
        _AllDaemons() if every else _OneDaemon(Queries(workflow, os.environ), only, all_issues=all_issues)
    )
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

    def lasting_document(self) -> "Status | Daemons | StatusUnavailable":
        """The same, where trouble is told too, because it may pass."""
        ...

    def view(self, console: "Console", *, keep_free: int) -> "RenderableType":
        """The picture; on a terminal one screen, with so many lines kept free. Raises `SymphonyError`."""
        ...


class _OneDaemon:
    """The daemon of one workflow."""

    def __init__(self, facts: "Queries", only: "Selection", *, all_issues: bool) -> None:
        self._facts = facts
        self._only = only
        self._all_issues = all_issues

    def document(self) -> "Status":
        return self._facts.state(self._only)

    def lasting_document(self) -> "Status | StatusUnavailable":
        from symphony.cli.documents import StatusUnavailable, UnavailableReason

        try:
            return self.document()
        except SymphonyError as error:
            failure = error.failure
            told = UnavailableReason(code=failure.category.value, message=failure.message, hint=failure.hint)
            return StatusUnavailable(error=told)

    def view(self, console: "Console", *, keep_free: int) -> "RenderableType":
        from symphony.cli.render.status import status_screen, status_view
        from symphony.domain import Selection

        listed = console.height if console.is_terminal else _LISTED
        only = self._only if self._all_issues else replace(self._only, limit=listed)
        document = self._facts.state(only)
        workflow, selected = str(self._facts.workflow), self._only != Selection()
        if console.is_terminal and not self._all_issues:
            return status_screen(console, document, workflow=workflow, selected=selected, keep_free=keep_free)
        most = None if self._all_issues else {"waiting": _LISTED}
        return status_view(document, workflow=workflow, width=console.width, most=most, selected=selected)


class _AllDaemons:
    """Every daemon there is; what is wrong with one is told in its row."""

    def document(self) -> "Daemons":
        from symphony.cli.discovery import list_daemons

        return list_daemons(os.environ)

    def lasting_document(self) -> "Daemons":
        return self.document()

    def view(self, _: "Console", *, keep_free: int) -> "RenderableType":

        del keep_free
        return daemons_table(self.document(), now=datetime.now(UTC))


def _once(subject: _Subject, *, as_json: bool) -> None:
    if as_json:
        print_json(subject.document())
        return
    from symphony.cli.render.status import console_for, print_blocks

    console = console_for()
    print_blocks(console, subject.view(console, keep_free=_PROMPT_LINES))


def _watch(subject: _Subject, interval: float) -> None:
    """Redraw a terminal; elsewhere one picture below the other, because nothing there can be redrawn."""
    from rich.live import Live
    from rich.text import Text

    from symphony.cli.render.status import console_for, print_blocks

    console = console_for()
    if not console.is_terminal or console.is_dumb_terminal:
        _repeat(lambda: print_blocks(console, _picture(subject, console), Text()), interval)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        _repeat(lambda: live.update(_picture(subject, console), refresh=True), interval)


def _picture(subject: _Subject, console: "Console") -> "RenderableType":
    """What there is to see now; trouble is shown too, because it may pass."""
    from symphony.cli.render.status import trouble_view

    try:
        return subject.view(console, keep_free=0)
    except SymphonyError as error:
        return trouble_view(error.failure)


def _repeat(show: Callable[[], None], interval: float) -> NoReturn:
    while True:
        show()
        time.sleep(interval)
