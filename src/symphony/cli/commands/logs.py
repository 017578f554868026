"""`symphony logs`: what happened to an issue, and what its agent said, from the journal."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import click

from symphony.api.formatting import duration, event_words, parse_time, seconds_between, tokens
from symphony.api.runs import past_run
from symphony.cli.documents import LoggedBegin, LoggedEnd, LoggedEvent
from symphony.cli.failures import CommandError
from symphony.cli.journal import (
    ALL_RUNS,
    FOLLOW_S,
    daemon_is_alive,
    find_identifier,
    find_run,
    journal_to_read,
    wait_for_issue,
)
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.cli.queries import Queries
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import mask_credentials, one_line, plural, without_codes
from symphony.journal.model import RunRecord, UnusableError
from symphony.journal.reader import JournalReader, NumberedEvent, open_reader

# --- the log of an issue ---------------------------------------------------------------------------------
# Its events in order, with the beginning and the end of each run. Events outside of a run keep their place
# and do not end a run. The end of a run follows its last event.

LoggedLine = LoggedEvent | LoggedBegin | LoggedEnd

_MAX_RUNS: Final = 1_000
_BATCH: Final = 1_000
_MAX_CHARS: Final = 4_000


class IssueLog:
    """Reads the lines of one issue, each of them once, however often it is asked.

    With `run_id`, other runs and events outside of a run are left out.
    """

    def __init__(self, identifier: str, *, run_id: str | None = None) -> None:
        self._identifier = identifier
        self._run_id = run_id
        self._last_id = 0
        self._current_run: str | None = None
        self._ended: set[str] = set()

    def first_lines(self, reader: JournalReader, *, limit: int | None) -> Iterator[LoggedLine]:
        """The last `limit` events; `None` for all."""
        if limit is None:
            yield from self.new_lines(reader)
        else:
            events = reader.latest_events(self._identifier, run_id=self._run_id, limit=limit)
            yield from self._lines(events, self._runs(reader), complete=True)

    def new_lines(self, reader: JournalReader) -> Iterator[LoggedLine]:
        """What came since the last call."""
        while events := reader.events(
            self._identifier, after_id=self._last_id, run_id=self._run_id, limit=_BATCH
        ):
            yield from self._lines(events, self._runs(reader), complete=len(events) < _BATCH)
        if self._current_run is not None:
            yield from self._end_of_run(self._runs(reader))

    def _lines(
        self, events: Sequence[NumberedEvent], runs: Mapping[str, RunRecord], *, complete: bool
    ) -> Iterator[LoggedLine]:
        for numbered in events:
            event = numbered.event
            self._last_id = numbered.id
            if event.run_id is not None and event.run_id != self._current_run:
                yield from self._end_of_run(runs)
                self._current_run = event.run_id
                run = runs.get(event.run_id)
                yield LoggedBegin(run_id=event.run_id, run=None if run is None else past_run(run))
            elif event.run_id is None:
                yield from self._end_of_run(runs, before_ms=event.at_wall_ms)
            yield LoggedEvent.of(event, id=numbered.id, at=_utc(event.at_wall_ms))
        if complete:
            yield from self._end_of_run(runs)

    def _end_of_run(
        self, runs: Mapping[str, RunRecord], *, before_ms: int | None = None
    ) -> Iterator[LoggedEnd]:
        """The end of the current run, once, if it has ended (until a time)."""
        run = runs.get(self._current_run or "")
        if run is None or run.ended_wall_ms is None or run.run_id in self._ended:
            return
        if before_ms is None or run.ended_wall_ms <= before_ms:
            self._ended.add(run.run_id)
            yield LoggedEnd(run_id=run.run_id, run=past_run(run))

    def _runs(self, reader: JournalReader) -> Mapping[str, RunRecord]:
        return {run.run_id: run for run in reader.runs(self._identifier, limit=_MAX_RUNS)}


def log_text(line: LoggedLine) -> str:
    """The line for people, in local time and without control characters."""
    if isinstance(line, LoggedEvent):
        message = without_codes(one_line(line.message, _MAX_CHARS))
        text = f"{one_line(event_words(line.event)):20} {message}"
        return f"{_local(line.at)}  {text.rstrip()}"
    run, text = line.run, f"run {line.run_id}"
    if run is not None and isinstance(line, LoggedBegin):
        number = (run.attempt or 0) + 1 if run.attempt_number is None else run.attempt_number
        limit = "" if run.attempt_limit is None else f" of {run.attempt_limit}"
        agent = "" if run.agent is None else f", by {run.agent}"
        text += f", attempt {number}{limit}{agent}, since {_local(run.started_at)}"
    elif run is not None:
        took = duration(seconds_between(run.started_at, run.ended_at))
        reason = "" if run.reason is None else f" ({without_codes(run.reason)})"
        work = [plural(run.turn_count, "turn"), plural(run.work.commits, "commit")]
        if run.tokens.total_tokens:
            work.append(f"{tokens(run.tokens.total_tokens)} tokens")
        text += f" {run.outcome or 'ended'} after {took}{reason}: {', '.join(work)}"
    return f"── {one_line(text, _MAX_CHARS)} ──"


def _utc(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _local(instant: str) -> str:
    moment = parse_time(instant)
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


# --- the command -----------------------------------------------------------------------------------------

_MAX_STDERR_BYTES: Final = 16 * 1024 * 1024
_MAX_LINE_CHARS: Final = 4_000


@click.command(
    epilog="""\b
Examples:
  symphony logs SYM-3                 the last 200 events, run by run
  symphony logs SYM-3 -f              follow until the daemon ends or Ctrl-C
  symphony logs SYM-3 -n 0            all events
  symphony logs SYM-3 --run 4f2a      one run, by the beginning of its id
  symphony logs SYM-3 --stderr        the stderr of the latest run's agent
  symphony logs SYM-3 --json | jq -r '.message // empty'

Works with a daemon and without one. Secrets are masked.

Exit codes: 0 shown, 1 the issue is unknown, or the journal cannot be read, 130 Ctrl-C before the first
line.
"""
)
@issue_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="Continue with new entries.")
@click.option("--run", "run_prefix", metavar="RUN", help="Only one run, by its id or the beginning of it.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    metavar="N",
    help="Start with the last N events, or lines of stderr; 0 for all.",
)
@click.option("--stderr", is_flag=True, help="Show the stderr of a run's agent instead.")
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
        raise click.UsageError("--stderr cannot be used with --follow or --json")

    def show(line: LoggedLine) -> None:
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
    log: IssueLog,
    journal: Path,
    show: Callable[[LoggedLine], None],
    *,
    daemon_lives: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show new lines until no daemon runs that could write more."""
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
