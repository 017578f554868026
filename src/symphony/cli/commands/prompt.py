"""`symphony prompt`: exactly what a session of this issue would be told, without starting one."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import warn
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option

if TYPE_CHECKING:
    from symphony.api.models import Prompt, Skills


SEPARATOR = "----- prompt -----"
_EPILOG = f"""\b
Examples:
  symphony prompt SYM-3
  symphony prompt SYM-3 --envelope-only    the system-level text: which skills are listed
  symphony prompt SYM-3 --prompt-only | wc -c
  symphony prompt SYM-3 --json | jq .skills.dropped

Nothing is started, made or fetched. On a terminal both texts have a heading. Into a pipe they go byte for
byte: the envelope, if there is one, then a line `{SEPARATOR}`, then the prompt, with a line break added
after each. With --envelope-only or --prompt-only there is that text and nothing else, not even a line break.
"""


@click.command(epilog=_EPILOG)
@issue_argument
@click.option("--envelope-only", "only", flag_value="envelope", help="The system-level text alone.")
@click.option("--prompt-only", "only", flag_value="prompt", help="The prompt alone.")
@json_option
@workflow_option
def prompt(*, issue: str, only: str | None, as_json: bool, workflow: Path) -> None:
    """Print what a dispatch of an issue would send."""
    if as_json and only:
        raise click.UsageError("--json and --envelope-only or --prompt-only exclude each other")
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.documents import PrintedPrompt
    from symphony.cli.queries import Queries, resolve_issue

    facts = Queries(workflow, os.environ)
    document = resolve_issue(issue, facts.prompt, facts.identifiers)
    if document.note:
        warn(document.note)
    if as_json:
        print_json(PrintedPrompt.of(document))
    elif only:
        _write((document.envelope if only == "envelope" else document.prompt) or "")
    elif sys.stdout.isatty():
        _show(document)
    else:
        head = "" if document.envelope is None else f"{document.envelope}\n"
        _write(f"{head}{SEPARATOR}\n{document.prompt}\n")


def _write(text: str) -> None:
    """The bytes that the agent gets, whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def _show(document: "Prompt") -> None:
    """Both texts for a person: what could steer the terminal is left out."""
    from rich.rule import Rule
    from rich.text import Text

    from symphony.cli.formatting import cell, console_for, lines

    console = console_for()
    console.print(Rule(Text("Envelope: the system-level text", style="bold"), align="left"))
    envelope = document.envelope
    console.print(Text("(none)", style="dim") if envelope is None else lines(envelope))
    console.print()
    console.print(Rule(Text("Prompt of the first turn", style="bold"), align="left"))
    console.print(lines(document.prompt))
    console.print()
    console.print(Rule(align="left"))
    console.print(cell(_skill_line(document.skills), "dim"))


def _skill_line(skills: "Skills") -> str:
    errors = sum(one.severity == "error" for one in skills.problems)
    searched = sum(one.reason == "search" for one in skills.dropped)
    found = f"{searched} to be searched, " if searched else ""
    dropped = len(skills.dropped) - searched
    return f"skills: {len(skills.listed)} listed, {found}{dropped} dropped, {errors} malformed"
