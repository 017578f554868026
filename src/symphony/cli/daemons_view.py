"""`symphony status --all` for people: one line for each daemon, and below what is wrong with which."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.cli.documents import DaemonRow, Daemons
from symphony.cli.wording import cell, lasting, plural, seconds_between
from symphony.observability.moments import utc_text

__all__ = ["daemons_view"]

_HEALTH: Final = {
    "ok": ("healthy", "green"),
    "starting": ("starting", "cyan"),
    "draining": ("ending", "yellow"),
    "degraded": ("in trouble", "red"),
}
_SILENT: Final = ("does not answer", "red")
_DEAD: Final = ("dead", "bold red")


def daemons_view(document: Daemons, *, now: datetime) -> RenderableType:
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
