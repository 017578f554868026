"""Shows what happens while the demo runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from symphony.api.documents import waiting_issues
from symphony.cli.formatting import plural
from symphony.daemon.core import StepObserver
from symphony.domain import Issue, natural_order, one_line
from symphony.scheduler import (
    Blocked,
    Command,
    ContinueRun,
    Event,
    OutcomeKind,
    RunEnded,
    StartRun,
    State,
    retry_text,
)

_PAUSED = "paused: nothing new starts before `symphony resume`"
_COLOURS = {"running": "green", "retrying": "yellow", "blocked": "red", "waiting": "dim", "ended": "cyan"}


@contextmanager
def show_progress(console: Console) -> Iterator[StepObserver]:
    """An observer that shows progress: a live table on a terminal, else a line per milestone."""
    if console.is_terminal and not console.is_dumb_terminal:  # a dumb terminal cannot redraw
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield ProgressTable(live)
    else:
        yield ProgressLines(console)


class ProgressTable:
    """Redraws one table in place; issues that ended stay in it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rows: dict[str, IssueRow] = {}

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Redraw after a step."""
        del before, fact, commands
        active = {row.issue.id: row for row in issue_rows(after)}
        self._rows |= active
        caption = Text(_PAUSED, style="yellow") if after.paused else None
        table = Table(header_style="bold", pad_edge=False, expand=True, caption=caption)
        table.add_column("Issue", no_wrap=True, width=8)
        table.add_column("Title", no_wrap=True, ratio=2)
        table.add_column("Status", no_wrap=True, width=9)
        table.add_column("Turn", no_wrap=True, width=4, justify="right")
        table.add_column("What is happening", no_wrap=True, ratio=3)
        for row in sorted(self._rows.values(), key=lambda item: natural_order(item.issue.identifier)):
            ended = row.issue.id not in active
            status = "ended" if ended else row.status
            table.add_row(
                Text(one_line(row.issue.identifier)),
                Text(one_line(row.issue.title)),
                Text(status, style=_COLOURS[status]),
                str(row.turn) if row.turn else "",
                Text("no longer active" if ended else one_line(row.detail)),
            )
        self._live.update(table)


class ProgressLines:
    """Prints one line per milestone, for pipes, logs and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Print what a step did, if it was a milestone."""
        for command in commands:
            match command:
                case StartRun(issue=issue):
                    self._print(issue.identifier, f"started: {issue.title}")
                case ContinueRun(issue=issue, turn=turn):
                    self._print(issue.identifier, f"turn {turn}")
        if isinstance(fact, RunEnded):
            run = next((run for run in before.running.values() if run.run_id == fact.run_id), None)
            if run is not None:
                outcome = fact.outcome
                result = "finished" if outcome.kind is OutcomeKind.SUCCEEDED else outcome.kind.value
                reason = f" ({outcome.failure.message})" if outcome.failure else ""
                commits = plural(run.report.facts.commits, "commit")
                self._print(run.issue.identifier, f"{result}{reason}, {commits} on its branch")
        for issue_id in after.blocked.keys() - before.blocked.keys():
            blocked = after.blocked[issue_id]
            self._print(blocked.issue.identifier, f"blocked: {describe_blocked(blocked)}")
        if after.paused is not before.paused:
            self._print("", _PAUSED if after.paused else "resumed: issues are started again")

    def _print(self, identifier: str, text: str) -> None:
        self._console.print(
            f"{one_line(identifier):8} {one_line(text)}", markup=False, highlight=False, soft_wrap=True
        )


class IssueRow(NamedTuple):
    """An issue in the table; `status` is `running`, `retrying`, `blocked` or `waiting`."""

    issue: Issue
    status: str
    detail: str
    turn: int = 0


def issue_rows(state: State) -> Iterator[IssueRow]:
    """All known issues."""
    for run in state.running.values():
        stage = run.report.stage.value.replace("_", " ")
        yield IssueRow(run.issue, "running", run.report.last_message or stage, run.turn)
    for retry in state.retrying.values():
        yield IssueRow(retry.issue, "retrying", retry_text(retry, state.settings))
    for blocked in state.blocked.values():
        yield IssueRow(blocked.issue, "blocked", describe_blocked(blocked))
    for issue, reason in waiting_issues(state):
        yield IssueRow(issue, "waiting", reason.message)


def describe_blocked(blocked: Blocked) -> str:
    """Why an issue is blocked, what its agent asks, and what to do, on one line."""
    failure, question = blocked.failure, blocked.question
    asks = "" if question is None or question in failure.message else f", which asks: {question}"
    return f"{failure.message}{asks}{'' if failure.hint is None else f' → {failure.hint}'}"
