"""Live progress for people: a table that redraws on a terminal, one line per milestone elsewhere."""

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from symphony.domain.ids import by_number
from symphony.domain.plain import one_line
from symphony.observability.snapshot import Row, blocked_words, rows
from symphony.scheduler.commands import Command, ContinueRun, StartRun
from symphony.scheduler.inputs import Input, OutcomeKind, RunEnded
from symphony.scheduler.state import Running, State

__all__ = ["LineProgress", "Progress", "TableProgress", "progress_on"]

_PAUSED = "paused: nothing new starts before `symphony resume`"
_COLOURS = {"running": "green", "retrying": "yellow", "blocked": "red", "waiting": "dim", "ended": "cyan"}


class Progress(Protocol):
    """An observer that is entered before the daemon starts."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """One step of the scheduler."""
        ...


def progress_on(console: Console) -> Progress:
    """What this console can show; a dumb terminal cannot redraw and would stay empty until the end."""
    live = console.is_terminal and not console.is_dumb_terminal
    return TableProgress(console) if live else LineProgress(console)


class TableProgress:
    """Redraws one table in place; issues that ended stay in it."""

    def __init__(self, console: Console) -> None:
        self._known: dict[str, Row] = {}
        self._ended: set[str] = set()
        self._paused = False
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """Redraw after a step."""
        del before, fact, commands
        self._paused = after.paused
        current = {row.issue_id: row for row in rows(after)}
        self._ended = self._known.keys() - current.keys()
        self._known |= current
        self._live.update(self.picture())

    def picture(self) -> Table:
        """The table as it stands."""
        caption = Text(_PAUSED, style="yellow") if self._paused else None
        table = Table(header_style="bold", pad_edge=False, expand=True, caption=caption)
        for column, options in (
            ("Issue", {"width": 8}),
            ("Title", {"ratio": 2}),
            ("Status", {"width": 9}),
            ("Turn", {"width": 4, "justify": "right"}),
            ("What is happening", {"ratio": 3}),
        ):
            table.add_column(column, no_wrap=True, **options)
        for row in sorted(self._known.values(), key=lambda item: by_number(item.issue_identifier)):
            status = "ended" if row.issue_id in self._ended else row.status
            detail = "no longer active" if status == "ended" else row.detail
            turn = str(row.turn) if row.turn else ""
            colour = Text(status, style=_COLOURS[status])
            words = [Text(one_line(text)) for text in (row.issue_identifier, row.title, detail)]
            table.add_row(words[0], words[1], colour, turn, words[2])
        return table


class LineProgress:
    """Prints one line per milestone; for pipes, logs and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """Say what a step did, if it was a milestone."""
        for command in commands:
            match command:
                case StartRun(issue=issue):
                    self._say(issue.identifier, f"started: {issue.title}")
                case ContinueRun(issue=issue, turn=turn):
                    self._say(issue.identifier, f"turn {turn}")
        if isinstance(fact, RunEnded) and (run := _run(before, fact.run_id)):
            words = "finished" if fact.outcome.kind is OutcomeKind.SUCCEEDED else fact.outcome.kind.value
            why = f" ({fact.outcome.failure.line})" if fact.outcome.failure else ""
            commits = fact.outcome.commits
            self._say(
                run.issue.identifier,
                f"{words}{why}, {commits} commit{'' if commits == 1 else 's'} on its branch",
            )
        for issue_id in after.blocked.keys() - before.blocked.keys():
            blocked = after.blocked[issue_id]
            self._say(blocked.issue.identifier, f"blocked: {blocked_words(blocked)}")
        if after.paused is not before.paused:
            self._say("", _PAUSED if after.paused else "resumed: issues are started again")

    def _say(self, identifier: str, text: str) -> None:
        self._console.print(
            f"{one_line(identifier):8} {one_line(text)}", markup=False, highlight=False, soft_wrap=True
        )


def _run(state: State, run_id: str) -> Running | None:
    return next((run for run in state.running.values() if run.run_id == run_id), None)
