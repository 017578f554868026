"""`symphony skills report`: which skills runs were told of and looked at, and how those runs ended."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.journal_place import journal_to_read, seconds_of
from symphony.cli.workflow_option import as_json, of_a_workflow, print_json

if TYPE_CHECKING:
    from symphony.cli.documents import SkillUse
    from symphony.journal.reader import SkillReport

__all__ = ["report"]

_EPILOG = """\b
Examples:
  symphony skills report
  symphony skills report --since 7d
  symphony skills report --json | jq '.skills[] | select(.seen == 0) | .name'

From the journal of the daemon of WORKFLOW.md; it works with and without one running. Runs that a skill was
dropped from do not count for it.

Exit codes: 0 shown, 1 there is no journal yet, or it cannot be read.
"""
_SUCCEEDED: Final = "succeeded"


@click.command(epilog=_EPILOG)
@click.option(
    "--since",
    default="30d",
    show_default=True,
    metavar="AGE",
    callback=seconds_of,
    help="Only runs that began within this time: 12h, 30d, 4w.",
)
@as_json
@of_a_workflow
def report(*, since: float, as_json: bool, workflow: Path) -> None:
    """Show how often skills were listed and read, and how those runs ended."""
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.documents import SkillsReport
    from symphony.journal.reader import open_reader

    since_ms = time.time_ns() // 1_000_000 - round(since * 1000)
    with open_reader(journal_to_read(workflow, os.environ)) as reader:
        found = [
            one for one in reader.skills_report(since_wall_ms=max(since_ms, 0)) if one.listed or one.seen
        ]
    if as_json:
        print_json(SkillsReport(since=_utc(max(since_ms, 0)), skills=tuple(_use(one) for one in found)))
    elif found:
        _show(found)
    else:
        click.echo("No run was told of a skill in this time.")


def _use(one: "SkillReport") -> "SkillUse":
    from symphony.cli.documents import SkillUse

    return SkillUse(
        name=one.name,
        listed=one.listed,
        seen=one.seen,
        outcomes=dict(one.outcomes),
        seen_outcomes=dict(one.seen_outcomes),
        versions=one.versions,
        last_used_at=_utc(one.last_used_wall_ms),
    )


def _show(found: Sequence["SkillReport"]) -> None:
    from rich.table import Table

    from symphony.cli.status_view import console_for, show
    from symphony.cli.wording import cell

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("NAME", "LISTED", "SEEN", "SUCCEEDED", "OTHERWISE", "VERSIONS", "LAST USED"):
        table.add_column(
            name, justify="left" if name in {"NAME", "LAST USED", "OTHERWISE"} else "right", no_wrap=True
        )
    for one in sorted(found, key=lambda report: (-report.listed, report.name)):
        table.add_row(
            cell(one.name),
            str(one.listed),
            str(one.seen),
            str(one.outcomes.get(_SUCCEEDED, 0)),
            cell(_otherwise(one.outcomes)),
            str(one.versions),
            datetime.fromtimestamp(one.last_used_wall_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M"),
        )
    show(console_for(), table)


def _otherwise(outcomes: Mapping[str, int]) -> str:
    others = [f"{number} {outcome}" for outcome, number in outcomes.items() if outcome != _SUCCEEDED]
    return ", ".join(others)


def _utc(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
