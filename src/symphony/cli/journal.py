"""Issues and runs that the journal knows, for commands that show what happened."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from symphony.cli.endpoint import UnreachableError, find_daemon
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.queries import Queries, resolve_issue
from symphony.daemon.state_dir import journal_path
from symphony.domain import one_line
from symphony.journal.model import UnusableError
from symphony.journal.reader import JournalReader, open_reader


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


ALL_RUNS: Final = 100_000
FOLLOW_S: Final = 0.5
"""How often a command that follows looks for more."""
_SHOWN_RUNS: Final = 5


def daemon_is_alive(workflow: Path) -> bool:
    """Whether a daemon serves the workflow, or is starting."""
    try:
        return find_daemon(workflow, os.environ) is not None
    except UnreachableError:
        return True


def find_identifier(reader: JournalReader, issue: str, queries: Queries | None) -> str:
    """The issue as the journal names it: exactly, or uniquely but for upper and lower case.

    With `queries`, the tracker is asked for the reason why the journal does not know an issue.

    Raises:
        CommandError: the journal does not know it.
    """

    def ask(identifier: str) -> str | None:
        known = reader.latest_events(identifier, limit=1) or reader.runs(identifier, limit=1)
        return identifier if known else None

    def identifiers() -> list[str]:
        runs = (run.issue_identifier for run in reader.runs(limit=ALL_RUNS))
        return list(dict.fromkeys([*runs, *(one.claim.issue.identifier for one in reader.claims())]))

    try:
        return resolve_issue(issue, ask, identifiers)
    except CommandError as error:
        if queries is not None and (reason := queries.inactive_error(issue)) is not None:
            raise reason from error
        hint = (error.failure.hint or "").replace("the tracker lists", "it knows of")
        if not identifiers():
            hint = "nothing was worked on yet"
        raise CommandError.of(f"the journal knows nothing of an issue {issue!r}", hint=hint) from error


def find_run(runs: Sequence[str], prefix: str, identifier: str) -> str:
    """The only one of the runs whose id begins so."""
    found = [run for run in runs if run == prefix] or [run for run in runs if run.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} runs of {identifier} begin with" if found else f"{identifier} has no run"
    shown = ", ".join((found or runs)[:_SHOWN_RUNS]) or "none"
    raise CommandError.of(f"{what} {prefix!r}", hint=f"there are {shown}")


def wait_for_issue(
    issue: str,
    journal: Path,
    *,
    daemon_lives: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the journal knows the issue; meanwhile name the reason for waiting on stderr.

    Raises:
        UnusableError: the journal cannot be read, and no daemon runs that could be creating it.
    """
    shown = None
    while True:
        alive, suggestion = daemon_lives(), ""
        try:
            if os.path.lexists(journal):
                with open_reader(journal) as reader:
                    find_identifier(reader, issue, None)
                return
        except CommandError as error:
            suggestion = f" ({error.failure.hint})"
        except UnusableError:
            if not alive:
                raise
        message = f"waiting for the first event of {one_line(issue)}{suggestion}"
        if not alive:
            message += "; no daemon is running: symphony run starts one"
        if message != shown:
            click.echo(f"{message}; Ctrl-C ends it" if shown is None else message, err=True)
            shown = message
        sleep(FOLLOW_S)
