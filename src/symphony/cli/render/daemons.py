"""`symphony status --all`: one line per daemon, and below what is wrong with it."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.api.models import utc_text
from symphony.cli.documents import DaemonRow, Daemons
from symphony.cli.formatting import arrow, cell, duration, plural, seconds_between, table

_HEALTH: Final = {
    "ok": ("healthy", "green"),
    "starting": ("starting", "cyan"),
    "draining": ("ending", "yellow"),
    "degraded": ("in trouble", "red"),
}


def daemons_view(document: Daemons, *, now: datetime) -> RenderableType:
    """All daemons, and the places that were skipped."""
    found, skipped = document.daemons, document.skipped
    blocks: list[RenderableType] = [_table(found, now) if found else Text("No daemon was found.")]
    if notes := [note for row in found for note in _notes(row)]:
        blocks += [Text(""), *notes]
    if skipped:
        blocks += [Text(""), Text(f"{plural(len(skipped), 'place')} not looked at:", style="dim")]
        blocks += [Text.assemble("  ", cell(f"{each.path}: {each.reason}", "dim")) for each in skipped]
    return Group(*blocks)


def _table(found: Sequence[DaemonRow], now: datetime) -> Table:
    texts, numbers = (
        ("VERSION", "USER", "WORKFLOW"),
        ("RUNNING", "RETRYING", "BLOCKED", "WAITING", "UP", "PID"),
    )
    rows = table("DAEMON", "HEALTH", *numbers, *texts, right=numbers, fold={"DAEMON", *texts})
    for row in found:
        counts = ["-"] * 4
        if row.counts is not None:
            issues = (row.counts.running, row.counts.retrying, row.counts.blocked, row.counts.waiting)
            counts = [str(number) for number in issues]
        up = None if row.status == "dead" else seconds_between(row.started_at, utc_text(now))
        rows.add_row(
            cell(row.name),
            _health(row),
            *counts,
            "-" if up is None else duration(up),
            str(row.pid),
            cell(row.version or "-"),
            cell(row.user),
            cell(row.workflow or row.state_dir),
        )
    return rows


def _health(row: DaemonRow) -> Text:
    if row.status == "dead":
        return Text("dead", style="bold red")
    if row.status == "silent":
        return Text("does not answer", style="red")
    health = row.health or "?"
    return cell(*_HEALTH.get(health, (health, "yellow")))


def _notes(row: DaemonRow) -> Iterator[Text]:
    if row.message:
        yield Text.assemble(cell(row.name), ": ", cell(row.message, "red"))
        if row.hint:
            yield arrow(row.hint)
