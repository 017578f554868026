"""`symphony explain`: why is this issue running, or why is it not?"""

import os
from pathlib import Path

import click

from symphony.cli.issue_argument import of_an_issue
from symphony.cli.workflow_option import as_json, of_a_workflow, print_json

__all__ = ["explain"]

_EPILOG = """\b
Examples:
  symphony explain SYM-3
  symphony explain SYM-3 --json | jq -r .explanation.code

Works without a daemon too: then the tracker and the journal are read, and judged as a
daemon would.

Exit codes: 0 explained, 1 there is no such issue, 3 the workflow is invalid, 5 the daemon does not answer.
"""


@click.command(epilog=_EPILOG)
@of_an_issue
@as_json
@of_a_workflow
def explain(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Tell why an issue is running, or is not.

    And what happens next, and what you can do about it.
    """
    # Imported here: `--help` of any command stays fast.
    from msgspec import structs

    from symphony.cli.documents import Explained
    from symphony.cli.explanation import explained
    from symphony.cli.facts import Facts
    from symphony.cli.unknown import answer_for
    from symphony.daemon.state_place import locate

    facts = Facts(workflow, os.environ)
    found = answer_for(issue, facts.issue, facts.identifiers)
    explanation = explained(found)
    if as_json:
        print_json(Explained(**structs.asdict(found), explanation=explanation))
        return
    from symphony.cli.explain_view import explain_view
    from symphony.cli.status_view import console_for, show

    show(console_for(), explain_view(found, explanation, state_dir=locate(workflow, os.environ)))
