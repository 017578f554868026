"""`symphony logs`: what happened to an issue, and what its agent said, from the journal."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError
from symphony.cli.issue_argument import of_an_issue
from symphony.cli.workflow_option import as_json, of_a_workflow, print_json
from symphony.domain.plain import one_line

if TYPE_CHECKING:
    from symphony.cli.facts import Facts
    from symphony.cli.issue_log import Follower, Line
    from symphony.journal.model import RunRecord
    from symphony.journal.reader import JournalReader

__all__ = ["follow", "logs", "wait_for_the_first"]

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
@of_an_issue
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
@as_json
@of_a_workflow
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
    from symphony.cli.facts import Facts
    from symphony.cli.issue_log import Follower
    from symphony.cli.journal_place import journal_to_read
    from symphony.journal.reader import open_reader

    journal = journal_to_read(workflow, os.environ)
    limit = lines or None
    if follows:
        wait_for_the_first(issue, journal, lives=lambda: _daemon_lives(workflow, os.environ))
    with open_reader(journal) as reader:
        identifier = _identifier(reader, issue, Facts(workflow, os.environ))
        chosen = None if run_id is None else _run(reader, identifier, run_id)
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
    from symphony.cli.control import UnreachableError, find_daemon

    try:
        return find_daemon(workflow, environment) is not None
    except UnreachableError:
        return True


def _text_line(line: "Line") -> None:
    from symphony.cli.issue_log import as_text

    click.echo(as_text(line))


def _json_line(line: "Line") -> None:
    from symphony.cli.issue_log import as_json

    print_json(as_json(line), indent=None)


def _identifier(reader: "JournalReader", issue: str, facts: "Facts | None") -> str:
    """The issue as the journal names it: exactly, else the only one that differs by case.

    Of one that the journal does not know, the tracker may; it is asked where there are `facts`.
    """
    from symphony.cli.unknown import answer_for

    def ask(identifier: str) -> str | None:
        return identifier if reader.latest(identifier, limit=1) or reader.runs(identifier, limit=1) else None

    def known() -> list[str]:
        runs = (run.issue_identifier for run in reader.runs(limit=_ALL_RUNS))
        return list(dict.fromkeys([*runs, *(claim.issue.identifier for claim in reader.claims())]))

    try:
        return answer_for(issue, ask, known)
    except CommandError as error:
        if facts is not None and (told := facts.elsewhere(issue)) is not None:
            raise told from error
        names = known()
        hint = (error.failure.hint or "") if names else "nothing was worked on yet"
        hint = hint.replace("the tracker lists", "it knows of")
        raise CommandError.of(f"the journal knows nothing of an issue {issue!r}", hint=hint) from error


def _run(reader: "JournalReader", identifier: str, begin: str) -> str:
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
    from symphony.cli.agent_stderr import stderr_lines

    runs: tuple[RunRecord, ...] = reader.runs(identifier, limit=_ALL_RUNS)
    names = [chosen] if chosen is not None else [run.run_id for run in runs]
    for line in stderr_lines(state_dir, names, limit=limit):
        click.echo(line)
