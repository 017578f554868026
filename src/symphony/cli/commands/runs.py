"""`symphony runs`: past and live runs with their tokens and costs, from the journal."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.options import json_option, parse_age, print_json, workflow_option

if TYPE_CHECKING:
    from symphony.journal.model import RunRecord

_ALL: Final = 1_000_000
SUMS: Final = ("day", "agent", "issue", "state")
"""`api.interface.RUN_SUMS`, which is slow to import, likewise `OUTCOMES`; a test keeps them the same."""
OUTCOMES: Final = (
    *("running", "succeeded", "no_progress", "failed", "timed_out", "input_required", "canceled"),
    "interrupted",
)


@click.command(
    epilog="""\b
Examples:
  symphony runs                          the last 50 runs, the newest first
  symphony runs --since 12h              what was done last night
  symphony runs --since 30d --by day     what each day cost
  symphony runs --by issue               the most expensive issues first
  symphony runs --issue SYM-3 --issue SYM-4
  symphony runs --outcome failed --agent codex -n 0
  symphony runs --json | jq .total.cost_usd

Works with a daemon and without one. Days are in UTC, and a run counts for the day on which it started.
Tokens without a price are shown as such and are in no sum of money: see docs/costs.md.

Exit codes: 0 shown, 1 the journal cannot be read.
"""
)
@click.option(
    "--since",
    metavar="AGE",
    callback=parse_age,
    help="Only runs that started within AGE, such as 12h or 30d.",
)
@click.option("--by", type=click.Choice(SUMS), help="Show sums instead of runs.")
@click.option("--issue", "issues", multiple=True, help="Only runs of this issue; may be repeated.")
@click.option("--agent", "agents", multiple=True, help="Only runs of this agent; may be repeated.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(OUTCOMES),
    multiple=True,
    metavar="OUTCOME",
    help="Only runs that ended so, such as failed; may be repeated.",
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
    # Imported here: `--help` stays fast.
    from symphony.api.interface import RunQuery
    from symphony.api.runs import runs_document, since_wall_ms
    from symphony.cli.formatting import console_for, print_blocks
    from symphony.cli.journal import journal_to_read
    from symphony.cli.render.runs import runs_view
    from symphony.domain import mask_credentials
    from symphony.journal.reader import open_reader
    from symphony.observability.redaction import masked

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
