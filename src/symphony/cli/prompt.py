"""`symphony prompt`: exactly what a session of this issue would be told, without starting one."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from symphony.cli.failures import warn
from symphony.cli.issue_argument import of_an_issue
from symphony.cli.lean import lean_imports
from symphony.cli.workflow_option import as_json, of_a_workflow, print_json

__all__ = ["SEPARATOR", "prompt"]

SEPARATOR = "----- prompt -----"
_SHAPE = ("issue_identifier", "source", "envelope", "prompt", "skills", "agent")
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
@of_an_issue
@click.option("--envelope-only", "only", flag_value="envelope", help="The system-level text alone.")
@click.option("--prompt-only", "only", flag_value="prompt", help="The prompt alone.")
@as_json
@of_a_workflow
def prompt(*, issue: str, only: str | None, as_json: bool, workflow: Path) -> None:
    """Print what a dispatch of an issue would send."""
    if as_json and only:
        raise click.UsageError("--json and --envelope-only or --prompt-only exclude each other")
    # Imported here: `--help` of any command stays fast.
    with lean_imports():
        from symphony.cli.facts import Facts
        from symphony.cli.unknown import answer_for

    facts = Facts(workflow, os.environ)
    document = answer_for(issue, facts.prompt, facts.identifiers)
    if note := document.get("note"):
        warn(str(note))
    if as_json:
        print_json({name: document.get(name) for name in _SHAPE})
    elif only:
        _write(document.get(only) or "")
    elif sys.stdout.isatty():
        _show(document)
    else:
        envelope = document.get("envelope")
        head = "" if envelope is None else f"{envelope}\n"
        _write(f"{head}{SEPARATOR}\n{document['prompt']}\n")


def _write(text: str) -> None:
    """The bytes that the agent gets, whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def _show(document: Mapping[str, Any]) -> None:
    """Both texts for a person: what could steer the terminal is left out."""
    from rich.rule import Rule
    from rich.text import Text

    from symphony.cli.status_view import console_for
    from symphony.cli.wording import cell, lines

    console = console_for()
    console.print(Rule(Text("Envelope: the system-level text", style="bold"), align="left"))
    envelope = document.get("envelope")
    console.print(Text("(none)", style="dim") if envelope is None else lines(envelope))
    console.print()
    console.print(Rule(Text("Prompt of the first turn", style="bold"), align="left"))
    console.print(lines(document.get("prompt")))
    skills = document.get("skills")
    if isinstance(skills, Mapping):
        console.print()
        console.print(Rule(align="left"))
        console.print(cell(_skill_line(skills), "dim"))


def _skill_line(skills: Mapping[str, Any]) -> str:
    listed, dropped, problems = (skills.get(name) or [] for name in ("listed", "dropped", "problems"))
    errors = sum(1 for one in problems if one.get("severity") == "error")
    searched = sum(1 for one in dropped if one.get("reason") == "search")
    found = f"{searched} to be searched, " if searched else ""
    return f"skills: {len(listed)} listed, {found}{len(dropped) - searched} dropped, {errors} malformed"
