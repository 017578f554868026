"""`symphony runs`: a table of runs or of sums, and a line with the sum of all."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.api.models import RunRow, Runs, RunSums
from symphony.cli.formatting import cell, duration, parse_time, plural, table, tokens

_WIDE: Final = 100
"""From this width on the model stands beside the agent; below, under it."""
_OUTCOMES: Final = {"succeeded": "green", "running": "cyan", "failed": "red", "timed_out": "red"}
_NUMBERS: Final = ("TURNS", "TOKENS", "USD", "COMMITS", "FILES")
_CENT: Final = 0.01


def runs_view(document: Runs, *, width: int) -> RenderableType:
    """The document for a number of columns."""
    total = document.total
    if not total.runs:
        return Text("No run is known." if document.since is None else "No run has started since then.")
    blocks: list[RenderableType] = [
        _runs(document.runs, wide=width >= _WIDE) if document.by is None else _sums(document)
    ]
    if document.by is None and document.left_out:
        hidden = f"and {document.left_out:,} more; `symphony runs -n 0` lists all"
        blocks.append(Text(hidden, style="dim"))
    return Group(*blocks, Text(""), *_total(total))


def money(usd: float | None, unpriced_tokens: int) -> str:
    """A cost in US dollars: `1.25`, `0.0042`; `1.25+` if tokens without a price come on top."""
    if usd is None:
        return "unpriced" if unpriced_tokens else "-"
    digits = 2 if usd >= _CENT or usd == 0 else 4
    return f"{usd:,.{digits}f}{'+' if unpriced_tokens else ''}"


def _runs(rows: tuple[RunRow, ...], *, wide: bool) -> Table:
    files = ("FILES",) if wide else ()
    columns = ("ISSUE", "STARTED", "TOOK", "OUTCOME", "TURNS", "TOKENS", "USD", "COMMITS", *files, "AGENT")
    shown = table(*columns, right={"TOOK", *_NUMBERS}, fold={"ISSUE", "AGENT"})
    if not wide:
        shown.padding = (0, 1, 0, 0)
    for row in rows:
        started, outcome = parse_time(row.started_at), row.outcome or "running"
        agent = cell(row.agent or "-")
        if row.model:
            agent = Text.assemble(agent, " " if wide else "\n", cell(row.model, "dim"))
        shown.add_row(
            cell(row.issue_identifier),
            "-" if started is None else started.astimezone().strftime("%m-%d %H:%M"),
            duration(row.seconds),
            cell(outcome, _OUTCOMES.get(outcome, "yellow")),
            str(row.turn_count),
            tokens(row.tokens.total_tokens),
            money(row.cost_usd, row.unpriced_tokens),
            str(row.commits),
            *((str(row.files_changed),) if wide else ()),
            agent,
        )
    return shown


def _sums(document: Runs) -> Table:
    heading = (document.by or "").upper()
    columns = (heading, "RUNS", "TURNS", "TIME", "TOKENS", "USD", "COMMITS")
    shown = table(*columns, right={"RUNS", "TIME", *_NUMBERS}, fold={heading})
    for row in document.groups:
        shown.add_row(
            cell(row.key or "-"),
            f"{row.runs:,}",
            f"{row.turns:,}",
            duration(row.seconds),
            tokens(row.tokens.total_tokens),
            money(row.cost_usd, row.unpriced_tokens),
            f"{row.commits:,}",
        )
    return shown


def _total(total: RunSums) -> list[Text]:
    parts = [
        plural(total.runs, "run"),
        plural(total.turns, "turn"),
        duration(total.seconds),
        f"{tokens(total.tokens.total_tokens)} tokens",
        plural(total.commits, "commit"),
    ]
    if total.cost_usd is not None:
        parts.insert(4, f"{money(total.cost_usd, 0)} USD")
    lines = [Text(" · ".join(parts), style="bold")]
    if total.unpriced_tokens:
        unpriced = f"{tokens(total.unpriced_tokens)} tokens have no price; `pricing` in WORKFLOW.md sets one"
        lines.append(Text(unpriced, style="yellow"))
    return lines
