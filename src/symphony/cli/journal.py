"""Where the journal of a workflow is, and ages such as `30d` on the command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.daemon.state_dir import locate
from symphony.domain import age_seconds

_FILE_NAME: Final = "journal.db"  # JOURNAL_FILE of daemon.recovery, which is slow to import


def journal_path(workflow: Path, environment: Mapping[str, str]) -> Path:
    """The journal of the daemon that serves, or served, a workflow file; it need not exist."""
    return locate(workflow, environment) / _FILE_NAME


def journal_to_read(workflow: Path, environment: Mapping[str, str]) -> Path:
    """`journal_path` for a command that only reads.

    Raises:
        CommandError: neither the journal nor the workflow file exists.
    """
    journal = journal_path(workflow, environment)
    if not workflow.exists() and not journal.exists():
        raise CommandError.of(
            f"there is no {workflow}, and no journal of it",
            hint="go to the repository, or name it with -C DIR or --workflow FILE; `symphony init` makes one",
            code=ExitCode.CONFIGURATION,
        )
    return journal


def parse_age(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """An option callback: an age such as `30d` in seconds. `0` needs no unit."""
    if value is None:
        return None
    age = age_seconds(value)
    if age is None:
        raise click.BadParameter("must be a number with a unit: 90m, 12h, 30d or 4w")
    return age
