"""`symphony logs`: what happened to an issue, and what its agent said, from the journal."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.documents import LoggedBegin, LoggedEnd, LoggedEvent, LoggedRun
from symphony.cli.failures import CommandError
from symphony.cli.formatting import duration, plural, tokens
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import mask_credentials, one_line
from symphony.journal.model import RunRecord
from symphony.journal.reader import JournalReader, NumberedEvent

if TYPE_CHECKING:
    from symphony.cli.queries import Queries


# What an agent wrote to stderr, fit to be shown: masked, and without what steers a terminal.


_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_CHARS: Final = 4_000


def stderr_lines(state_dir: Path, run_ids: Sequence[str], *, limit: int | None) -> Iterator[str]:
    """The last lines of the first of these runs that left a log; at most its last 16 MiB are read.

    Raises:
        CommandError: none of them did, or it cannot be read.
    """
    path = next((path for path in _logs(state_dir, run_ids) if path.is_file()), None)
    if path is None:
        raise CommandError.of(
            "there is no stderr of " + (f"run {run_ids[0]}" if len(run_ids) == 1 else "any of its runs"),
            hint="agents that wrote nothing leave none, and old ones are removed (`retention`)",
        )
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _MAX_BYTES, 0))
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise CommandError.of(
            f"{path} cannot be read: {error.strerror}", hint="run this as the user of the daemon"
        ) from error
    for line in deque(text.split("\n")[: -1 if text.endswith("\n") else None], maxlen=limit):
        yield one_line(mask_credentials(line), _MAX_CHARS)


def _logs(state_dir: Path, run_ids: Sequence[str]) -> Iterator[Path]:
    """The logs of runs by their ids, of which none may lead out of the directory."""
    place = StateDirectory(state_dir)
    return (place.stderr_log(run_id) for run_id in run_ids if "/" not in run_id and "\0" not in run_id)


# What the journal tells of one issue, line by line: its events in their order, and each run's begin and
# end.
#
# Events outside of a run stand where they happened and end no run. A run's end is told behind its last
# event.


_RUNS: Final = 1_000
_EVENTS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """From here on events are of this run; `record` is null where the journal has forgotten it."""

    run_id: str
    record: RunRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over."""

    record: RunRecord


Line = NumberedEvent | Begun | Ended


class Follower:
    """Tells the lines of one issue, each of them once, from one look to the next.

    `run_id` leaves out all other runs, and what happened outside of a run.
    """

    def __init__(self, identifier: str, *, run_id: str | None = None) -> None:
        self._identifier = identifier
        self._run_id = run_id
        self._after_id = 0
        self._current: str | None = None
        self._ended: set[str] = set()

    def first(self, reader: JournalReader, *, limit: int | None) -> Iterator[Line]:
        """The last `limit` events, or all of them."""
        if limit is None:
            yield from self.rest(reader)
            return
        latest = reader.latest_events(self._identifier, run_id=self._run_id, limit=limit)
        yield from self._lines(reader, latest)

    def rest(self, reader: JournalReader) -> Iterator[Line]:
        """What came since the last look."""
        while found := reader.events(
            self._identifier, after_id=self._after_id, run_id=self._run_id, limit=_EVENTS
        ):
            yield from self._lines(reader, found, whole=len(found) < _EVENTS)
        if self._current is not None:
            yield from self._end(self._runs(reader))

    def _lines(
        self, reader: JournalReader, found: tuple[NumberedEvent, ...], *, whole: bool = True
    ) -> Iterator[Line]:
        runs = self._runs(reader)
        for numbered in found:
            run_id = numbered.event.run_id
            self._after_id = numbered.id
            if run_id is not None and run_id != self._current:
                yield from self._end(runs)
                self._current = run_id
                yield Begun(run_id=run_id, record=runs.get(run_id))
            elif run_id is None and self._over(runs, numbered.event.at_wall_ms):
                yield from self._end(runs)
            yield numbered
        if whole:
            yield from self._end(runs)

    def _over(self, runs: dict[str, RunRecord], wall_ms: int) -> bool:
        """Whether the present run had ended at a moment."""
        record = runs.get(self._current or "")
        return record is not None and record.ended_wall_ms is not None and record.ended_wall_ms <= wall_ms

    def _end(self, runs: dict[str, RunRecord]) -> Iterator[Line]:
        """The end of the present run, once, if it is over."""
        record = None if self._current is None else runs.get(self._current)
        if record is not None and record.ended_wall_ms is not None and record.run_id not in self._ended:
            self._ended.add(record.run_id)
            yield Ended(record=record)

    def _runs(self, reader: JournalReader) -> dict[str, RunRecord]:
        return {run.run_id: run for run in reader.runs(self._identifier, limit=_RUNS)}


def as_text(line: Line) -> str:
    """The line for people, with local time; nothing in it steers a terminal."""
    match line:
        case Begun(run_id=run_id, record=record):
            return _rule(f"run {run_id}{_beginning(record)}")
        case Ended(record=record):
            return _rule(f"run {record.run_id} {_outcome(record)}")
        case NumberedEvent(event=event):
            words = f"{one_line(event.event):20} {one_line(event.message, _MAX_CHARS)}"
            return f"{_local(event.at_wall_ms)}  {words.rstrip()}"


def _beginning(record: RunRecord | None) -> str:
    if record is None:
        return ""
    number = (record.attempt or 0) + 1 if record.attempt_number is None else record.attempt_number
    limit = "" if record.attempt_limit is None else f" of {record.attempt_limit}"
    agent = "" if record.agent_name is None else f", by {record.agent_name}"
    return f", attempt {number}{limit}{agent}, since {_local(record.started_wall_ms)}"


def _rule(text: str) -> str:
    return f"── {one_line(text, _MAX_CHARS)} ──"


def _outcome(record: RunRecord) -> str:
    ended = record.started_wall_ms if record.ended_wall_ms is None else record.ended_wall_ms
    took = duration((ended - record.started_wall_ms) / 1000)
    facts = [plural(record.turns, "turn"), plural(record.commits, "commit")]
    if record.total_tokens:
        facts.append(f"{tokens(record.total_tokens)} tokens")
    reason = "" if record.reason is None else f" ({record.reason})"
    return f"{record.outcome or 'ended'} after {took}{reason}: {', '.join(facts)}"


def _local(wall_ms: int) -> str:
    """A moment as the clock on the wall shows it here."""
    return datetime.fromtimestamp(wall_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def logged_document(line: Line) -> LoggedEvent | LoggedBegin | LoggedEnd:
    """The line as it is printed with `--json`; times are UTC, to the millisecond."""
    match line:
        case Begun(run_id=run_id, record=record):
            return LoggedBegin(run_id=run_id, run=None if record is None else _logged_run(record))
        case Ended(record=record):
            return LoggedEnd(run_id=record.run_id, run=_logged_run(record))
        case NumberedEvent(id=number, event=event):
            return LoggedEvent(
                id=number,
                at=_utc(event.at_wall_ms),
                issue_id=event.issue_id,
                issue_identifier=event.issue_identifier,
                run_id=event.run_id,
                event=event.event,
                message=event.message,
            )


def _logged_run(record: RunRecord) -> LoggedRun:
    return LoggedRun(
        attempt=record.attempt,
        attempt_number=record.attempt_number,
        attempt_limit=record.attempt_limit,
        started_at=_utc(record.started_wall_ms),
        ended_at=None if record.ended_wall_ms is None else _utc(record.ended_wall_ms),
        outcome=record.outcome,
        reason=record.reason,
        progress=record.progress,
        turns=record.turns,
        commits=record.commits,
        total_tokens=record.total_tokens,
        session_id=record.session_id,
        thread_id=record.thread_id,
        branch=record.branch,
        agent=record.agent_name,
        agent_reason=record.agent_reason,
    )


def _utc(wall_ms: int) -> str:
    return (
        datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


_EPILOG = """\b
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
_INTERVAL_S: Final = 0.5
_ALL_RUNS: Final = 100_000


@click.command(epilog=_EPILOG)
@issue_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on as more happens.")
@click.option("--run", "run_id", metavar="RUN", help="One run only, named by its id or the begin of it.")
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
    run_id: str | None,
    lines: int,
    stderr: bool,
    as_json: bool,
    workflow: Path,
) -> None:
    """Show what happened to an issue, and what its agent said."""
    if stderr and (follows or as_json):
        raise click.UsageError("--stderr goes with neither --follow nor --json")
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.journal import journal_to_read
    from symphony.cli.queries import Queries
    from symphony.journal.reader import open_reader

    journal = journal_to_read(workflow, os.environ)
    limit = lines or None
    if follows:
        wait_for_the_first(issue, journal, lives=lambda: _daemon_lives(workflow, os.environ))
    with open_reader(journal) as reader:
        identifier = _identifier(reader, issue, Queries(workflow, os.environ))
        chosen = None if run_id is None else _the_run(reader, identifier, run_id)
        if stderr:
            _stderr(reader, identifier, chosen, limit, journal.parent)
            return
        follower = Follower(identifier, run_id=chosen)
        tell = _json_line if as_json else _text_line
        for line in follower.first(reader, limit=limit):
            tell(line)
    if follows:
        try:
            follow(follower, journal, tell, lives=lambda: _daemon_lives(workflow, os.environ))
        except KeyboardInterrupt:
            return


def wait_for_the_first(
    issue: str, journal: Path, *, lives: Callable[[], bool], wait: Callable[[float], None] = time.sleep
) -> None:
    """Return when the journal knows the issue; until then say on stderr what is waited for.

    Raises:
        UnusableError: the journal cannot be read, and no daemon runs that could be making it.
    """
    from symphony.journal.model import UnusableError
    from symphony.journal.reader import open_reader

    said = None
    while True:
        alive, known = lives(), ""
        try:
            if os.path.lexists(journal):
                with open_reader(journal) as reader:
                    _identifier(reader, issue, None)
                return
        except CommandError as error:
            known = f" ({error.failure.hint})"
        except UnusableError:
            if not alive:
                raise
        words = f"waiting for the first event of {one_line(issue)}{known}"
        if not alive:
            words += "; no daemon is running: symphony run starts one"
        if words != said:
            click.echo(f"{words}; Ctrl-C ends it" if said is None else words, err=True)
            said = words
        wait(_INTERVAL_S)


def follow(
    follower: "Follower",
    journal: Path,
    tell: Callable[["Line"], None],
    *,
    lives: Callable[[], bool],
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Tell what comes, until there is no daemon that could write more."""
    from symphony.journal.model import UnusableError
    from symphony.journal.reader import open_reader

    alive = True
    while alive:
        alive = lives()  # before the look: what a daemon wrote last is told too
        try:
            with open_reader(journal) as reader:
                for line in follower.rest(reader):
                    tell(line)
        except UnusableError:
            if not alive:
                return  # taken away or set aside meanwhile; the next daemon begins a new one
        if alive:
            wait(_INTERVAL_S)


def _daemon_lives(workflow: Path, environment: Mapping[str, str]) -> bool:
    """Whether a daemon serves the workflow, or is about to."""
    from symphony.cli.endpoint import UnreachableError, find_daemon

    try:
        return find_daemon(workflow, environment) is not None
    except UnreachableError:
        return True


def _text_line(line: "Line") -> None:

    click.echo(as_text(line))


def _json_line(line: "Line") -> None:

    print_json(logged_document(line), indent=None)


def _identifier(reader: "JournalReader", issue: str, facts: "Queries | None") -> str:
    """The issue as the journal names it: exactly, else the only one that differs by case.

    Of one that the journal does not know, the tracker may; it is asked where there are `facts`.
    """
    from symphony.cli.queries import resolve_issue

    def ask(identifier: str) -> str | None:
        return (
            identifier
            if reader.latest_events(identifier, limit=1) or reader.runs(identifier, limit=1)
            else None
        )

    def known() -> list[str]:
        runs = (run.issue_identifier for run in reader.runs(limit=_ALL_RUNS))
        return list(dict.fromkeys([*runs, *(claim.issue.identifier for claim in reader.claims())]))

    try:
        return resolve_issue(issue, ask, known)
    except CommandError as error:
        if facts is not None and (told := facts.inactive_error(issue)) is not None:
            raise told from error
        names = known()
        hint = (error.failure.hint or "") if names else "nothing was worked on yet"
        hint = hint.replace("the tracker lists", "it knows of")
        raise CommandError.of(f"the journal knows nothing of an issue {issue!r}", hint=hint) from error


def _the_run(reader: "JournalReader", identifier: str, begin: str) -> str:
    """The one run of the issue whose id begins so."""
    runs = [run.run_id for run in reader.runs(identifier, limit=_ALL_RUNS)]
    found = [run for run in runs if run == begin] or [run for run in runs if run.startswith(begin)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} runs of {identifier} begin with" if found else f"{identifier} has no run"
    shown = ", ".join((found or runs)[:5]) or "none"
    raise CommandError.of(f"{what} {begin!r}", hint=f"there are {shown}")


def _stderr(
    reader: "JournalReader", identifier: str, chosen: str | None, limit: int | None, state_dir: Path
) -> None:

    runs: tuple[RunRecord, ...] = reader.runs(identifier, limit=_ALL_RUNS)
    names = [chosen] if chosen is not None else [run.run_id for run in runs]
    for line in stderr_lines(state_dir, names, limit=limit):
        click.echo(line)
