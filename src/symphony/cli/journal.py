"""Where the journal of a workflow is, and ages as people write them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.daemon.state_dir import locate

_NAME: Final = "journal.db"  # as runtime.memory names it, which is slow to import
_AGE = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def journal_path(workflow: Path, environment: Mapping[str, str]) -> Path:
    """The journal of the daemon that serves, or served, this workflow file; it need not exist."""
    return locate(workflow, environment) / _NAME


def journal_to_read(workflow: Path, environment: Mapping[str, str]) -> Path:
    """The same, for a command that only reads it.

    Raises:
        CommandError: there is neither a journal nor such a workflow file.
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
    """The seconds of an age such as `30d`, for an option; `0` needs no unit, null is for none."""
    if value is None:
        return None
    if value.strip() == "0":
        return 0.0
    found = _AGE.fullmatch(value.strip().lower())
    if found is None:
        raise click.BadParameter("must be a number with a unit: 90m, 12h, 30d or 4w")
    return float(int(found[1]) * _UNITS_S[found[2]])
