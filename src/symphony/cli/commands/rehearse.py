"""`symphony rehearse`: which finished branches merge together, and which conflict."""

import os
from pathlib import Path
from typing import Final

import click
from rich.console import RenderableType
from rich.text import Text

from symphony.cli.documents import RehearsalShown
from symphony.cli.failures import ExitCode
from symphony.cli.formatting import cell, console_for, print_blocks, table
from symphony.cli.options import complete_issue, json_option, print_json, workflow_option
from symphony.cli.queries import Queries

_STYLES: Final = {"merges": "green", "conflicts": "red", "merged": "dim"}


@click.command(
    epilog="""\b
Examples:
  symphony rehearse
  symphony rehearse SYM-3 SYM-5
  symphony rehearse --json | jq -r '.branches[] | select(.outcome == "conflicts").issue_identifier'

Merges the branches onto the present base branch, one after the other in the order of the board, as git
would, and changes no branch and no checkout. A branch that conflicts is left out, and the next one is merged.
Without ISSUE it takes all that are ready for review. Needs git 2.39 or newer. Without a daemon it asks the
tracker.

Exit codes: 0 all go together, 1 some conflict, or there is nothing to merge, 3 the workflow is invalid, 5 the
daemon does not answer.
"""
)
@click.argument("issues", metavar="[ISSUE]...", nargs=-1, shell_complete=complete_issue)
@json_option
@workflow_option
def rehearse(*, issues: tuple[str, ...], as_json: bool, workflow: Path) -> None:
    """Show which finished branches merge together, and which conflict."""
    found = Queries(workflow, os.environ).rehearse(issues)
    if as_json:
        print_json(found)
    else:
        print_blocks(console_for(), *_view(found))
    if found.conflicting:
        raise SystemExit(ExitCode.FAILURE)


def _view(found: RehearsalShown) -> list[RenderableType]:
    shown = table("ISSUE", "OUTCOME", "BRANCH", "WHY", fold={"ISSUE", "BRANCH", "WHY"})
    for row in found.branches:
        outcome = cell(row.outcome, _STYLES.get(row.outcome, "yellow"))
        shown.add_row(cell(row.issue_identifier), outcome, cell(row.branch), cell(row.message))
    base = cell(f"onto {found.base or 'HEAD'} {found.base_commit[:12]}")
    total = f"{found.merging:,} of {len(found.branches):,} merge together, {found.conflicting:,} conflict; "
    blocks: list[RenderableType] = [shown, Text(""), Text.assemble((total, "bold"), base)]
    if found.moved:
        blocks.append(Text("The base moved meanwhile: this is the result of a second rehearsal.", "yellow"))
    if found.pairs_left_out:
        left_out = f"{found.pairs_left_out:,} pairs of branches with the same changed file were not compared."
        blocks.append(Text(left_out, "yellow"))
    return blocks
