"""`symphony transcript`: what the agent of a run was sent, said and did."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, assert_never

import click
from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from symphony.api.formatting import parse_time, tokens
from symphony.cli.documents import TranscriptLine
from symphony.cli.failures import CommandError, warn
from symphony.cli.formatting import cell, console_for, lines, print_blocks
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
from symphony.daemon.state_dir import library_key
from symphony.domain import one_line, plural, without_codes
from symphony.journal import transcripts
from symphony.journal.reader import open_reader
from symphony.journal.transcripts import (
    TranscriptEntry,
    TranscriptPage,
    latest,
    read_transcript,
    transcript_path,
)
from symphony.library.model import LEARNING_RUN

_NO_RUN: Final = "it has not been worked on yet; `symphony explain` shows why"


@click.command(
    epilog="""\b
Examples:
  symphony transcript SYM-3             the latest run
  symphony transcript SYM-3 -f          follow until the daemon ends or Ctrl-C
  symphony transcript SYM-3 --run 4f2a  one run, by the beginning of its id
  symphony transcript SYM-3 --search "no such file"
  symphony transcript SYM-3 --run learn-  the learning run from the only feedback
  symphony transcript SYM-3 --json | jq -r 'select(.entry.kind == "message").entry.text'

Works with a daemon and without one. Secrets are masked. Missing parts are reported on stderr.

Exit codes: 0 shown, 1 the issue is unknown, has no such run, or the journal cannot be read, 130 Ctrl-C
before the first line.
"""
)
@issue_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="Continue with new entries.")
@click.option("--run", "run_prefix", metavar="RUN", help="Another run, by its id or the beginning of it.")
@click.option(
    "--search",
    "text",
    metavar="TEXT",
    default="",
    help="Only entries with this text, in upper or lower case.",
)
@json_option
@workflow_option
def transcript(
    *, issue: str, follows: bool, run_prefix: str | None, text: str, as_json: bool, workflow: Path
) -> None:
    """Show what an agent got, said and did."""
    console = console_for()

    def show(run_id: str, entry: TranscriptEntry) -> None:
        if as_json:
            print_json(TranscriptLine(run_id=run_id, entry=entry), indent=None)
        else:
            print_blocks(console, entry_view(entry, run_id))

    def show_missing(run_id: str, missing: str) -> None:
        if as_json:
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
        from symphony.cli.library_access import open_library  # noqa: PLC0415 - loads the settings: slow to import

        library = open_library(workflow, os.environ).in_use.store
        given = library.feedback(library_key(journal.parent), identifier)
        known = [one.learned.run_id for one in given if one.learned is not None]
    fixed = None if run_prefix is None else find_run(known, run_prefix, identifier)
    reading = Reading(journal, identifier, fixed, show, show_missing, text=text)
    try:
        reading.show_new(live=daemon_lives(), folded=not follows and not as_json)
        if follows:
            reading.follow(daemon_lives)
    except KeyboardInterrupt:
        return


class Reading:
    """Shows the entries of a run with a text, each once; without a `fixed` run, of the latest one."""

    def __init__(
        self,
        journal: Path,
        identifier: str,
        fixed: str | None,
        show: Callable[[str, TranscriptEntry], None],
        show_missing: Callable[[str, str], None],
        *,
        text: str = "",
    ) -> None:
        self._journal = journal
        self._identifier = identifier
        self._fixed = fixed
        self._show = show
        self._show_missing = show_missing
        self._text = text
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
        """Show new entries; return whether the fixed run has ended.

        Args:
            live: whether a daemon runs that may still write.
            folded: leave out entries that a later one replaces.
        """
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

    def _pages(self, run_id: str, *, live: bool) -> Iterator[TranscriptPage]:
        more = True
        while more:
            path = transcript_path(self._journal.parent, run_id)
            page = read_transcript(path, after=self._after, live=live, text=self._text)
            self._after, more = page.next_after, page.more
            yield page

    def _run(self) -> tuple[str | None, bool]:
        """The fixed run, or the latest one, and whether it has ended or is a learning run."""
        with open_reader(self._journal) as reader:
            runs = reader.runs(self._identifier, limit=1 if self._fixed is None else ALL_RUNS)
        run = next((run for run in runs if self._fixed in {None, run.run_id}), None)
        return (self._fixed, True) if run is None else (run.run_id, run.ended_wall_ms is not None)


# --- an entry for people ---------------------------------------------------------------------------------
#
# Messages are whole, everything else is short.

_PROMPT_LINES: Final = 6
_OUTPUT_LINES: Final = 5
_MAX_CHARS: Final = 300
_DECISIONS: Final = {"accept": "allowed", "decline": "declined", "required": "a person must decide"}
_BAD: Final = frozenset({"failed", "declined", "unfinished"})


def entry_view(entry: transcripts.TranscriptEntry, run_id: str) -> RenderableType:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    """One entry, on a few lines."""
    match entry:
        case transcripts.TurnEntry():
            return _turn(entry, run_id)
        case transcripts.MessageEntry():
            mark = "" if entry.status == "complete" else f" ({entry.status})"
            who = "agent" if entry.reviewer is None else "reviewer"
            return _row(entry, who, lines(entry.text + mark), "bold")
        case transcripts.ReasoningEntry():
            return _row(entry, "thinks", lines(entry.text, "dim"), "dim")
        case transcripts.PlanEntry():
            steps = [f"[{step.status}] {step.text}" for step in entry.steps]
            return _row(entry, "plan", lines("\n".join(text for text in [entry.text, *steps] if text)))
        case transcripts.CommandEntry():
            return _row(entry, "runs", _command(entry))
        case transcripts.CheckEntry():
            style = "green" if entry.passed else "red"
            return _row(entry, "check", _short(f"{entry.name} {entry.result}", style), style)
        case transcripts.EditEntry():
            names = [f"{file.path} +{file.added} -{file.removed}" for file in entry.files]
            return _row(entry, "edits", _with_status(", ".join(names) or "files", entry.status))
        case transcripts.ToolEntry():
            return _row(entry, "tool", _with_status(f"{entry.name} {entry.arguments}".strip(), entry.status))
        case transcripts.ApprovalEntry():
            decision = _DECISIONS.get(entry.decision, entry.decision)
            return _row(
                entry, "asks", Text.assemble(_short(entry.subject), f": {one_line(decision)}"), "yellow"
            )
        case transcripts.QuestionEntry():
            return _row(entry, "question", lines(entry.text), "yellow")
        case transcripts.AnswerEntry():
            who = "" if entry.by is None else f" by {one_line(entry.by)}"
            said = lines(entry.text) if entry.decided is None else cell(f"{one_line(entry.decided)}{who}")
            return _row(entry, "answer", said, "green")
        case transcripts.UsageEntry():
            split = f"{tokens(entry.input_tokens)} in, {tokens(entry.output_tokens)} out"
            return _row(entry, "tokens", cell(f"{tokens(entry.total_tokens)} so far: {split}", "dim"), "dim")
        case transcripts.NoteEntry():
            style = {"warning": "yellow", "error": "red"}.get(entry.level, "dim")
            return _row(entry, "note", _short(entry.text, style), style)
        case _:
            assert_never(entry)


def _turn(entry: transcripts.TurnEntry, run_id: str) -> RenderableType:
    if entry.status == "started":
        who = f"turn {entry.turn}" if entry.reviewer is None else f"reviewer {one_line(entry.reviewer)}"
        title = f"run {run_id}, {who}, {_time(entry.at, '%Y-%m-%d %H:%M:%S')}"
        grid = Table.grid()
        grid.add_row(Rule(cell(title), align="left", style="dim"))
        for label, text in (("envelope", entry.envelope), ("prompt", entry.prompt)):
            if text:
                grid.add_row(_row(entry, label, _first_lines(text, _PROMPT_LINES), "cyan"))
        return grid
    cost = "" if entry.cost_usd is None else f" for {entry.cost_usd:.4f} USD"
    reason = "" if entry.reason is None else f": {without_codes(entry.reason)}"
    who = f"turn {entry.turn}" if entry.reviewer is None else "review"
    text = f"{who} {entry.status}{cost}{reason}"
    return _row(entry, "", cell(text, "" if entry.status == "completed" else "red"))


def _command(entry: transcripts.CommandEntry) -> Text:
    code = "" if entry.exit_code is None else f", exit {entry.exit_code}"
    text = _with_status(entry.command, f"{entry.status}{code}", bad=bool(entry.exit_code))
    shown = [line for line in entry.output.splitlines() if line.strip()][-_OUTPUT_LINES:]
    for line in shown:
        text.append("\n").append_text(cell(f"│ {one_line(line, _MAX_CHARS)}", "dim"))
    return text


def _with_status(text: str, status: str, *, bad: bool = False) -> Text:
    style = "red" if bad or status.partition(",")[0] in _BAD else "dim"
    return Text.assemble(_short(text), " ", cell(f"→ {status}", style))


def _first_lines(text: str, most: int) -> Text:
    every = text.strip().splitlines()
    more = len(every) - most
    shown = lines("\n".join(one_line(line, _MAX_CHARS) for line in every[:most]), "dim")
    if more > 0:
        shown.append(f"\n… and {plural(more, 'line')} more: --json has them", style="dim")
    return shown


def _short(text: str, style: str = "") -> Text:
    return cell(one_line(text, _MAX_CHARS), style)


def _row(entry: transcripts.TranscriptEntry, label: str, text: Text, style: str = "") -> Table:
    if entry.left_out:
        text.append(f" (and {entry.left_out:,} characters that were not stored)", style="dim")
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(width=8)
    row.add_column(width=8)
    row.add_column(ratio=1, overflow="fold")
    row.add_row(Text(_time(entry.at, "%H:%M:%S"), style="dim"), Text(label, style=style), text)
    return row


def _time(at: str, form: str) -> str:
    """A time of the file in local time."""
    moment = parse_time(at)
    return "?" if moment is None else moment.astimezone().strftime(form)
