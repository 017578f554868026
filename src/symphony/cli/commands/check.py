"""`symphony check`: every problem of a workflow file, as a linter shows it."""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import ExitCode, printable
from symphony.cli.options import json_option, print_json, use_colour, workflow_argument
from symphony.domain import SymphonyError, plural

if TYPE_CHECKING:
    from symphony.cli.documents import CheckedWorkflow


_EPILOG = """\b
Examples:
  symphony check                    validate the nearest WORKFLOW.md as `symphony run` would
  symphony check ../app/WORKFLOW.md
  symphony check --json | jq -r '.problems[].message'
  symphony check --keys             list every setting: type, default, when a change takes effect

Starts and changes nothing. Exit codes: 0 usable (there may be warnings), 2 usage, 3 errors.
"""
_COLOURS = {"error": "red", "warning": "yellow"}


@click.command(epilog=_EPILOG)
@workflow_argument
@json_option
@click.option("--keys", is_flag=True, help="List all possible settings; check no file.")
def check(workflow: Path, *, as_json: bool, keys: bool) -> int:
    """Validate a WORKFLOW.md and list every problem."""
    if keys:
        _print_keys(as_json=as_json)
        return ExitCode.OK
    from symphony.cli.checking import check_workflow

    report = check_workflow(workflow, dict(os.environ))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    return ExitCode.OK if report.valid else ExitCode.CONFIGURATION


def _print_report(report: "CheckedWorkflow") -> None:
    colour = use_colour()
    for problem in report.problems:
        numbers = [str(number) for number in (problem.line, problem.column) if number is not None]
        place = click.style(printable(":".join([problem.path, *numbers])), bold=True)
        severity = click.style(problem.severity, fg=_COLOURS[problem.severity], bold=True)
        click.echo(f"{place}: {severity}: {printable(problem.message)} [{problem.code}]", color=colour)
        if problem.hint is not None:
            click.echo(click.style(f"  hint: {printable(problem.hint)}", dim=True), color=colour)
    severities = Counter(problem.severity for problem in report.problems)
    counts = [plural(severities[name], name) for name in ("error", "warning") if severities[name]]
    verdict = "usable" if report.valid else "not usable"
    details = f" ({', '.join(counts)})" if counts else ""
    click.echo(f"{printable(report.path)}: {verdict}{details}", color=colour)


def _print_keys(*, as_json: bool) -> None:
    from symphony.agents.registry import SECTIONS
    from symphony.config import KEYS, keys_of
    from symphony.daemon.carriers import CARRIERS, carrier_class

    keys = list(KEYS.values())
    for kind in SECTIONS.keys() - {key.name.partition(".")[0] for key in keys}:
        with suppress(SymphonyError):  # an adapter package that cannot be loaded is reported where it is used
            keys += keys_of(SECTIONS[kind], f"{kind}.")
    for kind in CARRIERS.names:
        with suppress(SymphonyError):
            found = keys_of(carrier_class(kind).settings_type, f"worker.{kind}.")
            keys += [key for key in found if key.name not in KEYS]
    if as_json:
        print_json([asdict(key) for key in keys])
        return
    rows = [("KEY", "TYPE", "DEFAULT", "RELOAD")]
    for key in keys:
        default = "required" if key.required else key.default or "not set"
        rows.append((key.name, key.shape.replace("`", ""), default, key.reload.value))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())
