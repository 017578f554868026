"""`symphony runs`: past and live runs with their tokens and costs, from the journal."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.api.formatting import duration, outcome_words, parse_time, run_words, tokens
from symphony.api.interface import RUN_OUTCOMES, RUN_SUMS, RunQuery
from symphony.api.models import RunRow, Runs, RunSums
from symphony.api.runs import runs_document, since_wall_ms
from symphony.cli.formatting import cell, console_for, print_blocks, table
from symphony.cli.journal import journal_to_read
from symphony.cli.options import json_option, parse_age, print_json, workflow_option
from symphony.domain import mask_credentials, one_line, plural
from symphony.journal.reader import open_reader
from symphony.observability.redaction import masked

if TYPE_CHECKING:
    from symphony.journal.model import RunRecord

_ALL: Final = 1_000_000


@click.command(
    epilog="""\b
Examples:
  symphony runs                          the last 50 runs, the newest first
  symphony runs --since 12h              the work of last night
  symphony runs --since 30d --by day     what each day cost
  symphony runs --by issue               the most expensive issues first
  symphony runs --issue SYM-3 --issue SYM-4
  symphony runs --outcome failed --agent codex -n 0
  symphony runs --json | jq .total.cost_usd

Works with a daemon and without one. Days are in UTC, and a run counts for the day on which it started.
Tokens without a price are marked, and no cost includes them: see docs/costs.md.

Exit codes: 0 shown, 1 the journal cannot be read.
"""
)
@click.option(
    "--since",
    metavar="AGE",
    callback=parse_age,
    help="Only runs that started within AGE, such as 12h or 30d.",
)
@click.option("--by", type=click.Choice(RUN_SUMS), help="Show sums instead of runs.")
@click.option("--issue", "issues", multiple=True, help="Only runs of this issue; may be repeated.")
@click.option("--agent", "agents", multiple=True, help="Only runs of this agent; may be repeated.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(RUN_OUTCOMES),
    multiple=True,
    metavar="OUTCOME",
    help="Only runs with this outcome, such as failed; may be repeated.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Show at most N runs; 0 for all. Sums count all of them.",
)
@json_option
@workflow_option
def runs(
    *,
    since: float | None,
    by: str | None,
    issues: tuple[str, ...],
    agents: tuple[str, ...],
    outcomes: tuple[str, ...],
    limit: int,
    as_json: bool,
    workflow: Path,
) -> None:
    """List runs with their outcome, tokens and cost."""
    query = RunQuery(
        since_s=since,
        by=by,
        issues=frozenset(issues),
        agents=frozenset(agents),
        outcomes=frozenset(outcomes),
        limit=limit or _ALL,
    )
    journal, now = journal_to_read(workflow, os.environ), datetime.now(UTC)
    records: tuple[RunRecord, ...] = ()
    if os.path.lexists(journal):  # else nothing was run so far
        with open_reader(journal) as reader:
            records = reader.runs_since(since_wall_ms(query, now))
    document = masked(runs_document(records, query, now=now), mask_credentials)
    if as_json:
        print_json(document)
    else:
        console = console_for()
        print_blocks(console, runs_view(document, width=console.width))


# --- a table of runs or of sums, and the sum of all ------------------------------------------------------

_WIDE: Final = 100
"""From this width on the model is shown beside the agent, and a run's end has its reason."""
_MAX_SENTENCE: Final = 120
_OUTCOMES: Final = {"succeeded": "green", "running": "cyan", "failed": "red", "timed_out": "red"}
_VERIFIED: Final = {
    "passed": ("yes", "green"),
    "failed": ("no", "red"),
    "base_failed": ("base", "yellow"),
}
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
    verified = ("VERIFIED",) if any(row.verified for row in rows) else ()
    counts = ("TURNS", "TOKENS", "USD", "COMMITS", *files)
    columns = ("ISSUE", "STARTED", "TOOK", "OUTCOME", *verified, *counts, "AGENT")
    shown = table(*columns, right={"TOOK", *_NUMBERS}, fold={"ISSUE", "OUTCOME", "AGENT"})
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
            cell(
                one_line(run_words(row), _MAX_SENTENCE) if wide else outcome_words(row.outcome),
                _OUTCOMES.get(outcome, "yellow"),
            ),
            *((cell(*_VERIFIED.get(row.verified or "", ("-", ""))),) if verified else ()),
            str(row.turn_count),
            tokens(row.tokens.total_tokens),
            money(row.cost_usd, row.unpriced_tokens),
            str(row.work.commits),
            *((str(row.work.files_changed),) if wide else ()),
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
