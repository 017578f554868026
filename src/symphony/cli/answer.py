"""`symphony answer`: tell an agent what it asked, so that it goes on."""

from pathlib import Path

import click

from symphony.api.port import MAX_ANSWER_CHARS
from symphony.cli.issue_argument import of_an_issue
from symphony.cli.text_input import from_a_file, given_text
from symphony.cli.workflow_option import as_json, of_a_workflow

__all__ = ["answer"]

_EPILOG = """\b
Examples:
  symphony answer SYM-7 "Take the blue one"
  symphony answer SYM-7 - < answer.md
  symphony answer SYM-7 --file answer.md
  symphony explain SYM-7                       shows the question

The answer goes to the agent, and nowhere else: it is no comment on the issue. A comment that a person writes
on the issue is an answer, too.

Exit codes: 0 done, 1 refused or no such issue, 2 no text, or too much of it, 5 no daemon is running, or it
does not answer.
"""


@click.command(epilog=_EPILOG)
@of_an_issue
@click.argument("text", required=False)
@from_a_file
@as_json
@of_a_workflow
def answer(*, issue: str, text: str | None, file: str | None, as_json: bool, workflow: Path) -> None:
    """Answer the question of an issue's agent.

    TEXT is the answer, or - for what comes on standard input.
    """
    words = given_text(text, file, what="answer", most=MAX_ANSWER_CHARS)
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.orders import order_on, tell

    tell(order_on(workflow, "answer", issue, text=words), as_json=as_json)
