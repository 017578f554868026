"""Which workflow a reading command is about, and how it prints; the same options on all of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["as_json", "of_a_workflow", "print_json"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def of_a_workflow(command: _Command) -> _Command:
    """Add `--workflow FILE`; WORKFLOW.md of the current directory else."""
    option = click.option(
        "--workflow",
        type=click.Path(path_type=Path, dir_okay=False),
        default="WORKFLOW.md",
        show_default=True,
        metavar="FILE",
        help="The WORKFLOW.md that is meant.",
    )
    return option(command)


def as_json(command: _Command) -> _Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on stdout; text that cannot be encoded goes out escaped."""
    click.echo(json.dumps(value, indent=indent))
