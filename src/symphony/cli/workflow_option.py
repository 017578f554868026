"""Which workflow a command is about, and how it prints; the same options on all of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

__all__ = ["as_json", "of_a_workflow", "print_json", "workflow_to_use"]

_DEFAULT: Final = "WORKFLOW.md"
_NAMED: Final = "symphony.workflow"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def of_a_workflow(command: _Command) -> _Command:
    """Add `--workflow FILE`; WORKFLOW.md of the current directory else."""
    option = click.option(
        "--workflow",
        type=click.Path(path_type=Path, dir_okay=False),
        default=_DEFAULT,
        show_default=True,
        metavar="FILE",
        help="The WORKFLOW.md that is meant.",
    )
    return option(command)


def workflow_to_use(command: _Command) -> _Command:
    """Add the argument WORKFLOW, and `--workflow FILE` for those who know it from the other commands."""
    argument = click.argument(
        "workflow", default=_DEFAULT, type=click.Path(path_type=Path), callback=_not_twice
    )
    option = click.option(
        "--workflow",
        "named",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        help="The same as WORKFLOW.",
        callback=_remember,
    )
    return option(argument(command))


def _remember(context: click.Context, _option: click.Parameter, value: Path | None) -> None:
    context.meta[_NAMED] = value


def _not_twice(context: click.Context, argument: click.Parameter, value: Path) -> Path:
    named: Path | None = context.meta.get(_NAMED)
    if named is None:
        return value
    if context.get_parameter_source(str(argument.name)) is not ParameterSource.DEFAULT:
        raise click.UsageError("WORKFLOW and --workflow name the same thing; give one of them")
    return named


def as_json(command: _Command) -> _Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on stdout; text that cannot be encoded goes out escaped."""
    click.echo(json.dumps(value, indent=indent))
