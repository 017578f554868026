"""Where the journal of a workflow is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from symphony.cli.failures import CommandError, ExitCode
from symphony.daemon.state_dir import locate

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
