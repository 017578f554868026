"""`symphony rehearse`: which finished branches merge together, which conflict, and which break the checks."""

import os
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import RenderableType
from rich.text import Text

from symphony.api.models import VerifiedMerge
from symphony.cli.documents import RehearsalShown
from symphony.cli.failures import ExitCode
from symphony.cli.formatting import cell, console_for, print_blocks, table
from symphony.cli.options import complete_issue, json_option, print_json, workflow_option
from symphony.cli.queries import Queries
from symphony.domain import one_line

_STYLES: Final = {"merges": "green", "conflicts": "red", "breaks": "red", "merged": "dim"}
_SHOWN_LINES: Final = 15


@click.command(
    epilog="""\b
Examples:
  symphony rehearse
  symphony rehearse SYM-3 SYM-5
  symphony rehearse --verify
  symphony rehearse --json | jq -r '.branches[] | select(.outcome == "conflicts").issue_identifier'

Merges the branches onto the present base branch, in the order of the board, and changes no branch and no
checkout. It skips a branch that conflicts, and goes on with the next one. Without ISSUE it uses all
branches that are ready for review. Needs git 2.39 or newer. Without a daemon it asks the tracker.

With --verify this command also runs verify.commands on the merged branches, in a separate checkout, like
commands of an agent. If they fail and pass on the base, it searches for the first branch that makes them
fail: it runs them again on half of the branches, and so on, for at most rehearse.timeout_ms.

Exit codes: 0 all merge, 1 some conflict, --verify has no complete pass, or there is nothing to merge, 3 the
workflow is invalid, 5 the daemon does not answer.
"""
)
@click.argument("issues", metavar="[ISSUE]...", nargs=-1, shell_complete=complete_issue)
@click.option(
    "--verify",
    is_flag=True,
    help="Run verify.commands on the merged branches, and find the branch that breaks them.",
)
@json_option
@workflow_option
def rehearse(*, issues: tuple[str, ...], verify: bool, as_json: bool, workflow: Path) -> None:
    """Show which finished branches merge, and which conflict."""
    queries = Queries(workflow, os.environ)
    found = queries.rehearse(issues)
    if verify and found.verified is None:
        say = _silent if as_json else partial(click.echo, err=True)
        found = queries.verify_together(
            found,
            on_try=lambda count: say(f"verifying {found.base or 'HEAD'} and branches: {count}"),
            on_check=lambda check: say(f"  {one_line(check.name)} {check.ended}"),
        )
    if as_json:
        print_json(found)
    else:
        print_blocks(console_for(), *_view(found))
    is_unverified = verify and (found.verified is None or found.verified.status != "passed")
    if found.conflicting or is_unverified:
        raise SystemExit(ExitCode.FAILURE)


def _view(found: RehearsalShown) -> list[RenderableType]:
    shown = table("ISSUE", "OUTCOME", "BRANCH", "WHY", fold={"ISSUE", "BRANCH", "WHY"})
    for row in found.branches:
        outcome = cell(row.outcome, _STYLES.get(row.outcome, "yellow"))
        shown.add_row(cell(row.issue_identifier), outcome, cell(row.branch), cell(row.message))
    base = cell(f"onto {found.base or 'HEAD'} {found.base_commit[:12]}")
    total = f"{found.merging:,} of {len(found.branches):,} merge together, {found.conflicting:,} conflict; "
    blocks: list[RenderableType] = [shown, Text(""), Text.assemble((total, "bold"), base)]
    if found.verified is not None:
        blocks += _verified(found.verified)
    if found.moved:
        blocks.append(Text("The base moved meanwhile: this is the result of a second rehearsal.", "yellow"))
    if found.pairs_left_out:
        left_out = f"{found.pairs_left_out:,} pairs of branches with the same changed file were not compared."
        blocks.append(Text(left_out, "yellow"))
    return blocks


def _verified(verified: VerifiedMerge) -> list[RenderableType]:
    """The results of the commands, and the end of the output of failed ones."""
    style = "green" if verified.status == "passed" else "red"
    blocks: list[RenderableType] = [cell(f"verify: {verified.message}", style)]
    for check in verified.checks:
        if not check.passed and check.output_tail.strip():
            tail = check.output_tail.rstrip().splitlines()[-_SHOWN_LINES:]
            blocks += [Text(""), cell(f"{check.name}:", "bold"), *(cell(f"  {line}") for line in tail)]
    return blocks


def _silent(_: str) -> None:
    """With --json, only the document is written."""
