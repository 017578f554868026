"""`symphony prompt`: exactly what a session of an issue would be sent, without starting one."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.rule import Rule
from rich.text import Text

from symphony.api.models import Prompt
from symphony.cli import options
from symphony.cli.failures import warn
from symphony.cli.formatting import cell, console_for, describe_instructions, lines
from symphony.cli.queries import Queries, resolve_issue

SEPARATOR: Final = "----- prompt -----"


@click.command(
    epilog=f"""\b
Examples:
  symphony prompt SYM-3
  symphony prompt SYM-3 --envelope-only    the system-level text: which skills are listed
  symphony prompt SYM-3 --phase REVIEW     for this phase of the work
  symphony prompt SYM-3 --prompt-only | wc -c
  symphony prompt SYM-3 --json | jq .skills.dropped

Starts, creates and fetches nothing. On a terminal both texts have a heading. A pipe gets the exact texts:
the envelope, if there is one, then a line `{SEPARATOR}`, then the prompt, each with a line break after
it. With --envelope-only or --prompt-only there is only that text, without a line break.
"""
)
@options.issue_argument
@click.option("--envelope-only", is_flag=True, help="Print only the system-level text.")
@click.option("--prompt-only", is_flag=True, help="Print only the prompt.")
@options.phase_option
@options.json_option
@options.workflow_option
def prompt(
    *, issue: str, envelope_only: bool, prompt_only: bool, phase: str | None, as_json: bool, workflow: Path
) -> None:
    """Print what a dispatch of an issue would send."""
    only = options.only_one(json=as_json, envelope_only=envelope_only, prompt_only=prompt_only)
    queries = Queries(workflow, os.environ)
    document = resolve_issue(issue, partial(queries.prompt, phase=phase), queries.identifiers)
    if document.note:
        warn(document.note)
    if as_json:
        options.print_json(document)
    elif only:
        _write((document.envelope if envelope_only else document.prompt) or "")
    elif sys.stdout.isatty():
        _print_for_terminal(document)
    else:
        envelope = "" if document.envelope is None else f"{document.envelope}\n"
        _write(f"{envelope}{SEPARATOR}\n{document.prompt}\n")


def _write(text: str) -> None:
    """Write the bytes that the agent gets, in any locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def _print_for_terminal(document: Prompt) -> None:
    """Print both texts with headings and without control characters, then a count of the skills."""
    console = console_for()
    console.print(Rule(Text("Envelope: the system-level text", style="bold"), align="left"))
    envelope = document.envelope
    console.print(Text("(none)", style="dim") if envelope is None else lines(envelope))
    console.print()
    console.print(Rule(Text("Prompt of the first turn", style="bold"), align="left"))
    console.print(lines(document.prompt))
    console.print()
    console.print(Rule(align="left"))
    skills = document.skills
    errors = sum(problem.severity == "error" for problem in skills.problems)
    searchable = sum(skill.reason == "search" for skill in skills.dropped)
    counts = [f"{len(skills.listed)} listed"]
    if searchable:
        counts.append(f"{searchable} to be searched")
    counts += [f"{len(skills.dropped) - searchable} dropped", f"{errors} malformed"]
    if document.phase is not None:
        console.print(cell(f"phase: {document.phase.name}: {document.phase.reason}", "dim"))
    if document.instructions is not None:
        console.print(cell(f"instructions: {describe_instructions(document.instructions)}", "dim"))
    console.print(cell(f"skills: {', '.join(counts)}", "dim"))
