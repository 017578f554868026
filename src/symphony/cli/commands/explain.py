"""`symphony explain`: why is this issue running, or why is it not?"""

import os
from pathlib import Path

import click
from msgspec import structs

from symphony.cli.documents import Explained
from symphony.cli.formatting import console_for, print_blocks
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.cli.queries import Queries, resolve_issue
from symphony.cli.render.explain import explain_issue, explain_view
from symphony.daemon.state_dir import locate


@click.command(
    epilog="""\b
Examples:
  symphony explain SYM-3
  symphony explain SYM-3 --json | jq -r .explanation.code

Works without a daemon too: it then reads the tracker and the journal, and decides as a daemon would.

Exit codes: 0 explained, 1 there is no such issue, 3 the workflow is invalid, 5 the daemon does not answer.
"""
)
@issue_argument
@json_option
@workflow_option
def explain(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Show why an issue runs or waits.

    It also shows what happens next, and what you can do.
    """
    queries = Queries(workflow, os.environ)
    known = resolve_issue(issue, queries.issue, queries.identifiers)
    explanation = explain_issue(known)
    new = () if explanation.running else queries.new_comments(known.issue_identifier)
    if as_json:
        print_json(Explained(**structs.asdict(known), explanation=explanation, new_comments=new))
    else:
        state_dir = locate(workflow, os.environ)
        print_blocks(console_for(), explain_view(known, explanation, state_dir=state_dir, new_comments=new))
