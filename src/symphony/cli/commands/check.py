"""`symphony check`: everything that is wrong with a workflow file, at once, as a linter tells it."""

import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symphony.cli.failures import ExitCode
from symphony.cli.options import json_option, print_json, workflow_argument
from symphony.domain import SymphonyError, one_line

if TYPE_CHECKING:
    from symphony.cli.documents import CheckedWorkflow, WorkflowProblem


_EPILOG = """\b
Examples:
  symphony check                    judge the nearest WORKFLOW.md as `symphony run` would
  symphony check ../app/WORKFLOW.md
  symphony check --json | jq -r '.problems[].message'
  symphony check --keys             every setting there is: type, default, when a change takes effect

Nothing is started and nothing is changed. Exit codes: 0 usable (also with warnings), 2 usage, 3 errors.
"""
_COLOURS = {"error": "red", "warning": "yellow"}
_MAX_CHARS = 4_000


@click.command(epilog=_EPILOG)
@workflow_argument
@json_option
@click.option("--keys", is_flag=True, help="List the settings that a file can have, and judge none.")
def check(workflow: Path, *, as_json: bool, keys: bool) -> int:
    """Tell everything that is wrong with a WORKFLOW.md."""
    if keys:
        _show_keys(as_json=as_json)
        return ExitCode.OK
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.checking import examine

    report = examine(workflow, dict(os.environ))
    if as_json:
        print_json(report)
    else:
        _show(report)
    return ExitCode.OK if report.valid else ExitCode.CONFIGURATION


def _show(report: "CheckedWorkflow") -> None:
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for problem in report.problems:
        click.echo(_line(problem), color=colour)
        if problem.hint is not None:
            click.echo(click.style(f"  hint: {one_line(problem.hint, _MAX_CHARS)}", dim=True), color=colour)
    click.echo(_summary(report), color=colour)


def _line(problem: "WorkflowProblem") -> str:
    """`path:line: error: message [code]`."""
    numbers = [str(number) for number in (problem.line, problem.column) if number is not None]
    place = click.style(one_line(":".join([problem.path, *numbers]), _MAX_CHARS), bold=True)
    severity = click.style(problem.severity, fg=_COLOURS[problem.severity], bold=True)
    return f"{place}: {severity}: {one_line(problem.message, _MAX_CHARS)} [{problem.code}]"


def _summary(report: "CheckedWorkflow") -> str:
    counts = {
        severity: sum(problem.severity == severity for problem in report.problems) for severity in _COLOURS
    }
    told = ", ".join(
        f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counts.items() if count
    )
    verdict = "usable" if report.valid else "not usable"
    return f"{one_line(report.path, _MAX_CHARS)}: {verdict}" + (f" ({told})" if told else "")


def _show_keys(*, as_json: bool) -> None:
    """One line per key: name, type, default, reload class."""
    from symphony.agents.registry import SECTIONS
    from symphony.config import KEYS, keys_of

    keys = list(KEYS.values())
    for kind in SECTIONS.keys() - {key.name.partition(".")[0] for key in keys}:
        with suppress(SymphonyError):  # a package that is broken is told where it is used
            keys += keys_of(SECTIONS[kind], f"{kind}.")
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
