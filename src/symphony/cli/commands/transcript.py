"""`symphony transcript`: what the agent of a run was sent, said and did."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError, warn
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

if TYPE_CHECKING:
    from symphony.journal.transcripts import TranscriptEntry, TranscriptPage

_NO_RUN: Final = "it has not been worked on yet; `symphony explain` shows why"


@click.command(
    epilog="""\b
Examples:
  symphony transcript SYM-3             the latest run
  symphony transcript SYM-3 -f          and what follows, until the daemon ends or Ctrl-C
  symphony transcript SYM-3 --run 4f2a  one run, by the begin of its id
  symphony transcript SYM-3 --run learn-  the learning run from the only feedback
  symphony transcript SYM-3 --json | jq -r 'select(.entry.kind == "message").entry.text'

Works with a daemon and without one. Secrets were masked when it was written. What is missing is stated on
stderr.

Exit codes: 0 shown, 1 the issue is unknown, has no such run, or the journal cannot be read, 130 Ctrl-C before
there was anything to show.
"""
)
@issue_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on as more happens.")
@click.option("--run", "run_prefix", metavar="RUN", help="Another run, named by its id or the begin of it.")
@json_option
@workflow_option
def transcript(*, issue: str, follows: bool, run_prefix: str | None, as_json: bool, workflow: Path) -> None:
    """Show what an agent was sent, said and did."""
    # Imported here: `--help` stays fast.
    from symphony.cli.formatting import console_for, print_blocks
    from symphony.cli.library_access import open_library
    from symphony.cli.queries import Queries
    from symphony.cli.render.transcript import entry_view
    from symphony.journal.reader import open_reader
    from symphony.library.model import LEARNING_RUN

    console = console_for()

    def show(run_id: str, entry: "TranscriptEntry") -> None:
        if as_json:
            from symphony.cli.documents import TranscriptLine

            print_json(TranscriptLine(run_id=run_id, entry=entry), indent=None)
        else:
            print_blocks(console, entry_view(entry, run_id))

    def show_missing(run_id: str, missing: str) -> None:
        if as_json:
            from symphony.cli.documents import TranscriptLine

            print_json(TranscriptLine(run_id=run_id, missing=missing), indent=None)
        else:
            warn(missing)

    journal = journal_to_read(workflow, os.environ)
    daemon_lives = partial(daemon_is_alive, workflow)
    if follows:
        wait_for_issue(issue, journal, daemon_lives=daemon_lives)
    with open_reader(journal) as reader:
        identifier = find_identifier(reader, issue, Queries(workflow, os.environ))
        runs = reader.runs(identifier, limit=ALL_RUNS)
    if run_prefix is None and not runs and not follows:
        raise CommandError.of(f"{identifier} has no run", hint=_NO_RUN)
    known = [run.run_id for run in runs]
    if run_prefix is not None and run_prefix.startswith(LEARNING_RUN):
        from symphony.daemon.state_dir import library_key

        library = open_library(workflow, os.environ).in_use.store
        given = library.feedback(library_key(journal.parent), identifier)
        known = [one.learned.run_id for one in given if one.learned is not None]
    fixed = None if run_prefix is None else find_run(known, run_prefix, identifier)
    reading = Reading(journal, identifier, fixed, show, show_missing)
    try:
        reading.show_new(live=daemon_lives(), folded=not follows and not as_json)
        if follows:
            reading.follow(daemon_lives)
    except KeyboardInterrupt:
        return


class Reading:
    """Shows the entries of a run, each of them once; without a `fixed` run those of the latest one."""

    def __init__(
        self,
        journal: Path,
        identifier: str,
        fixed: str | None,
        show: Callable[[str, "TranscriptEntry"], None],
        show_missing: Callable[[str, str], None],
    ) -> None:
        self._journal = journal
        self._identifier = identifier
        self._fixed = fixed
        self._show = show
        self._show_missing = show_missing
        self._run_id: str | None = None
        self._after = 0

    def follow(self, daemon_lives: Callable[[], bool], sleep: Callable[[float], None] = time.sleep) -> None:
        """Show new entries until no daemon runs that could write more, or the fixed run has ended."""
        alive = True
        while alive:
            alive = daemon_lives()  # before the file is read, so that the last entries are shown
            if self.show_new(live=alive):
                return
            if alive:
                sleep(FOLLOW_S)

    def show_new(self, *, live: bool, folded: bool = False) -> bool:
        """Show what is new; return whether the fixed run has ended.

        Args:
            live: a daemon runs that may still write.
            folded: leave out entries that a later one replaces.
        """
        from symphony.journal.transcripts import latest

        run_id, has_ended = self._run()
        if run_id is None:
            return False
        if run_id != self._run_id:
            self._run_id, self._after = run_id, 0
        ended = has_ended or not live
        pages = self._pages(run_id, live=not ended)
        if folded:
            whole = list(pages)
            entries = latest(entry for page in whole for entry in page.entries)
            pages = iter(whole)
            for entry in entries:
                self._show(run_id, entry)
        for page in pages:
            for entry in () if folded else page.entries:
                self._show(run_id, entry)
            for missing in page.missing:
                self._show_missing(run_id, missing)
        return ended and self._fixed is not None

    def _pages(self, run_id: str, *, live: bool) -> Iterator["TranscriptPage"]:
        from symphony.journal.transcripts import read_transcript, transcript_path

        more = True
        while more:
            path = transcript_path(self._journal.parent, run_id)
            page = read_transcript(path, after=self._after, live=live)
            self._after, more = page.next_after, page.more
            yield page

    def _run(self) -> tuple[str | None, bool]:
        """The fixed run, or the latest one, and whether it has ended or is a learning run."""
        from symphony.journal.reader import open_reader

        with open_reader(self._journal) as reader:
            runs = reader.runs(self._identifier, limit=1 if self._fixed is None else ALL_RUNS)
        run = next((run for run in runs if self._fixed in {None, run.run_id}), None)
        return (self._fixed, True) if run is None else (run.run_id, run.ended_wall_ms is not None)
