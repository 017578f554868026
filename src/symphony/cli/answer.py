"""`symphony answer`: tell an agent what it asked, so that it goes on."""

import sys
from pathlib import Path
from typing import Final

import click

from symphony.cli.issue_argument import of_an_issue
from symphony.cli.lean import lean_imports
from symphony.cli.workflow_option import as_json, of_a_workflow
from symphony.web.port import MAX_ANSWER_CHARS

__all__ = ["answer"]

_BYTES_PER_CHAR: Final = 4
_MAX_BYTES: Final = MAX_ANSWER_CHARS * _BYTES_PER_CHAR
_EPILOG = """\b
Examples:
  symphony answer SYM-7 "Take the blue one"
  symphony answer SYM-7 - < answer.md
  symphony answer SYM-7 --file answer.md
  symphony explain SYM-7                       shows the question

The answer goes to the agent, and nowhere else: it is no comment on the issue.

Exit codes: 0 done, 1 refused or no such issue, 2 no text, or too much of it, 5 no daemon is running, or it
does not answer.
"""


@click.command(epilog=_EPILOG)
@of_an_issue
@click.argument("text", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, readable=True),
    metavar="FILE",
    help="Read the answer from a file.",
)
@as_json
@of_a_workflow
def answer(*, issue: str, text: str | None, file: Path | None, as_json: bool, workflow: Path) -> None:
    """Answer the question of an issue's agent.

    TEXT is the answer, or - for what comes on standard input.
    """
    words = _words(text, file)
    # Imported here: `--help` of any command stays fast.
    with lean_imports():
        from symphony.cli.orders import order_on, tell

    tell(order_on(workflow, "answer", issue, text=words), as_json=as_json)


def _words(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise click.UsageError("give the answer as TEXT or by --file, one of them")
    if file is not None:
        with file.open("rb") as source:
            raw = source.read(_MAX_BYTES + 1)
    elif text == "-":
        raw = sys.stdin.buffer.read(_MAX_BYTES + 1)
    else:
        raw = str(text).encode("utf-8", "surrogateescape")
    try:
        words = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        # What was cut off at the limit may end in the middle of a character.
        whole = len(raw) > _MAX_BYTES
        raise click.UsageError(_TOO_LONG if whole else "the answer is not UTF-8 text") from error
    if not words.strip():
        raise click.UsageError("the answer is empty")
    if len(words) > MAX_ANSWER_CHARS:
        raise click.UsageError(_TOO_LONG)
    return words


_TOO_LONG: Final = f"an answer has at most {MAX_ANSWER_CHARS} characters"
