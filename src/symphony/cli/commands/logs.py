"""`symphony logs`: what happened to an issue, and what its agent said, from the journal."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError
from symphony.cli.journal import journal_to_read
from symphony.cli.journaled import (
    ALL_RUNS,
    FOLLOW_S,
    daemon_is_alive,
    find_identifier,
    find_run,
    wait_for_issue,
)
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.domain import mask_credentials, one_line

if TYPE_CHECKING:
    from symphony.cli.issue_log import IssueLog, LoggedLine

_MAX_STDERR_BYTES: Final = 16 * 1024 * 1024
_MAX_LINE_CHARS: Final = 4_000


@click.command(
    epilog="""\b
Examples:
  symphony logs SYM-3                 the last 200 events, run by run
  symphony logs SYM-3 -f              and those to come, until the daemon ends or Ctrl-C; waits for the first
  symphony logs SYM-3 -n 0            everything that is remembered
  symphony logs SYM-3 --run 4f2a      one run, by the begin of its id
  symphony logs SYM-3 --stderr        what the agent of the latest run wrote to stderr
  symphony logs SYM-3 --json | jq -r '.message // empty'

Works with a daemon and without one. Secrets were masked when it was written.

Exit codes: 0 shown, 1 nothing is known of the issue, or the journal cannot be read, 130 Ctrl-C before
there was anything to show.
"""
)
@issue_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on as more happens.")
@click.option("--run", "run_prefix", metavar="RUN", help="One run only, named by its id or the begin of it.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    metavar="N",
    help="Begin with the last N events, or lines of stderr; 0 for all.",
)
@click.option("--stderr", is_flag=True, help="Show what the agent of a run wrote to stderr instead.")
@json_option
@workflow_option
def logs(
    *,
    issue: str,
    follows: bool,
    run_prefix: str | None,
    lines: int,
    stderr: bool,
    as_json: bool,
    workflow: Path,
) -> None:
    """Show what happened to an issue, and what its agent said."""
    if stderr and (follows or as_json):
        raise click.UsageError("--stderr goes with neither --follow nor --json")
    # Imported here and below: `--help` stays fast.
    from symphony.cli.issue_log import IssueLog, log_text
    from symphony.cli.queries import Queries
    from symphony.journal.reader import open_reader

    def show(line: "LoggedLine") -> None:
        if as_json:
            print_json(line, indent=None)
        else:
            click.echo(log_text(line))

    journal = journal_to_read(workflow, os.environ)
    daemon_lives = partial(daemon_is_alive, workflow)
    if follows:
        wait_for_issue(issue, journal, daemon_lives=daemon_lives)
    with open_reader(journal) as reader:
        identifier = find_identifier(reader, issue, Queries(workflow, os.environ))
        runs = [run.run_id for run in reader.runs(identifier, limit=ALL_RUNS)]
        run_id = None if run_prefix is None else find_run(runs, run_prefix, identifier)
        if stderr:
            for text in stderr_lines(journal.parent, [run_id] if run_id else runs, limit=lines or None):
                click.echo(text)
            return
        log = IssueLog(identifier, run_id=run_id)
        for line in log.first_lines(reader, limit=lines or None):
            show(line)
    if follows:
        try:
            follow(log, journal, show, daemon_lives=daemon_lives)
        except KeyboardInterrupt:
            return


def follow(
    log: "IssueLog",
    journal: Path,
    show: Callable[["LoggedLine"], None],
    *,
    daemon_lives: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show new lines until no daemon runs that could write more."""
    from symphony.journal.model import UnusableError
    from symphony.journal.reader import open_reader

    alive = True
    while alive:
        alive = daemon_lives()  # before the journal is read, so that the daemon's last lines are shown
        try:
            with open_reader(journal) as reader:
                for line in log.new_lines(reader):
                    show(line)
        except UnusableError:
            if not alive:
                return  # removed or set aside meanwhile; the next daemon creates a new one
        if alive:
            sleep(FOLLOW_S)


def stderr_lines(state_dir: Path, run_ids: Sequence[str], *, limit: int | None) -> Iterator[str]:
    """The last lines of the first of these runs that has a stderr log, masked; at most its last 16 MiB.

    Raises:
        CommandError: none of them has one, or it cannot be read.
    """
    from symphony.daemon.state_dir import StateDirectory

    directory = StateDirectory(state_dir)
    safe_ids = (run_id for run_id in run_ids if "/" not in run_id and "\0" not in run_id)
    path = next((path for path in map(directory.stderr_log, safe_ids) if path.is_file()), None)
    if path is None:
        which = f"run {run_ids[0]}" if len(run_ids) == 1 else "any of its runs"
        hint = "agents that wrote nothing leave none, and old ones are removed (`retention`)"
        raise CommandError.of(f"there is no stderr of {which}", hint=hint)
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES, 0))
            text = file.read(_MAX_STDERR_BYTES).decode("utf-8", "replace")
    except OSError as error:
        hint = "run this as the user of the daemon"
        raise CommandError.of(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    for line in deque(text.removesuffix("\n").split("\n"), maxlen=limit):
        yield one_line(mask_credentials(line), _MAX_LINE_CHARS)
