"""`symphony library evaluate`: work on past issues again, without a proposal and with it."""

from pathlib import Path

import click

from symphony.cli.failures import printable
from symphony.cli.options import json_option, print_json, workflow_option


@click.command(
    epilog="""\b
Examples:
  symphony library evaluate 7
  symphony library evaluate 7 --issues 1
  symphony library evaluate 7 --json | jq .evaluation.recommended

Each of the newest past issues is worked on twice by its agent, from the commit where its branch began:
without the change and with it. `agent.library.check` in WORKFLOW.md judges. The table is stored with the
proposal. Tokens are used as by runs; nothing is delivered, commented or moved.

Exit codes: 0 recommended, 1 not recommended or not possible, 2 wrong usage, 3 the configuration is invalid,
4 a credential is missing or refused, 130 interrupted; nothing is left of it.
""",
)
@click.argument("proposal", type=click.IntRange(min=1), metavar="PROPOSAL")
@click.option(
    "--issues",
    "count",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    metavar="K",
    help="How many past issues at most.",
)
@json_option
@workflow_option
def evaluate(*, proposal: int, count: int, as_json: bool, workflow: Path) -> int:
    """Judge a proposal by past issues."""
    # Imported here: `--help` stays fast.
    from symphony.cli.evaluating import evaluate_proposal

    page = evaluate_proposal(
        workflow, proposal, count, say=lambda line: click.echo(printable(line), err=True)
    )
    found = page.evaluation
    if as_json:
        print_json(page)
    elif found is not None:
        from symphony.cli.render.library import print_evaluation

        print_evaluation(found)
    return 0 if found is not None and found.recommended else 1
