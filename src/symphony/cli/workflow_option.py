"""Which workflow a command is about, and how it prints; the same options on all of them.

Without an option it is the nearest WORKFLOW.md, looked for as git looks for `.git`: in the current directory
and in those above it, up to the top of the git repository. Outside of a repository only the current directory
counts. A file above the current directory has to belong to this user, to root or to the owner of the current
directory: its hooks are commands, and anybody may write into a directory such as /tmp.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

__all__ = [
    "NAME",
    "WORKFLOW_HELP",
    "as_json",
    "current_directory",
    "directories_upwards",
    "dry_run",
    "nearest_workflow",
    "of_a_workflow",
    "print_json",
    "workflow_to_use",
]

NAME: Final = "WORKFLOW.md"
_NAMED: Final = "symphony.config"
WORKFLOW_HELP: Final = "The WORKFLOW.md that is meant.  [default: the nearest one upwards in the repository]"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def directories_upwards(start: Path) -> Iterator[Path]:
    """The directory, and those above it up to the top of its git repository; itself alone outside of one."""
    above = (start, *start.parents)
    tops = (number for number, directory in enumerate(above) if os.path.lexists(directory / ".git"))
    yield from above[: next(tops, 0) + 1]


def current_directory() -> Path:
    """Where the command was started, or `-C` led.

    Raises:
        UsageError: it is gone.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise click.UsageError(f"the current directory cannot be used: {error.strerror}") from error


def nearest_workflow() -> Path:
    """The file that is meant where nobody named one; that of the current directory where there is none.

    Raises:
        UsageError: the current directory is gone.
    """
    here = current_directory()
    owners = {0, os.geteuid(), _owner(here)}
    for directory in directories_upwards(here):
        if directory == here:
            if os.path.lexists(NAME):
                break
        elif (owner := _owner(directory / NAME)) is not None and owner in owners:
            return directory / NAME
    return Path(NAME)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def of_a_workflow(command: _Command) -> _Command:
    """Add `--workflow FILE`; the nearest WORKFLOW.md else."""
    option = click.option(
        "--workflow",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=WORKFLOW_HELP,
        callback=lambda _ctx, _option, value: nearest_workflow() if value is None else value,
    )
    return option(command)


def workflow_to_use(command: _Command) -> _Command:
    """Add the argument WORKFLOW, and `--workflow FILE` for those who know it from the other commands."""
    argument = click.argument(
        "workflow", required=False, type=click.Path(path_type=Path), callback=_not_twice
    )
    option = click.option(
        "--workflow",
        "named",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        help=WORKFLOW_HELP,
        callback=_remember,
    )
    return option(argument(command))


def _remember(context: click.Context, _option: click.Parameter, value: Path | None) -> None:
    context.meta[_NAMED] = value


def _not_twice(context: click.Context, argument: click.Parameter, value: Path | None) -> Path:
    named: Path | None = context.meta.get(_NAMED)
    if named is None:
        return nearest_workflow() if value is None else value
    if context.get_parameter_source(str(argument.name)) is not ParameterSource.DEFAULT:
        raise click.UsageError("WORKFLOW and --workflow name the same thing; give one of them")
    return named


def as_json(command: _Command) -> _Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def dry_run(command: _Command) -> _Command:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(command)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on stdout; text that cannot be encoded goes out escaped."""
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(value), indent=indent))
