"""What is said at the end: a table of what happened to each issue, and a line for each that left work."""

from collections.abc import Callable, Iterator

from rich.table import Table
from rich.text import Text

from symphony.cli.wording import plural
from symphony.domain.ids import by_number
from symphony.domain.plain import one_line
from symphony.observability.tally import Tally

__all__ = ["summary_table", "work_lines"]

_FITS_TITLES = 80


def summary_table(tally: Tally, states: dict[str, str] | None = None, *, width: int = _FITS_TITLES) -> Table:
    """One row per issue that was worked on; `states` are final states by identifier where they are known.

    On a terminal of fewer than 80 columns titles and blanks give way.
    """
    table = Table(title=None, header_style="bold", pad_edge=False)
    for column in ("Issue", "Title", "State", "Attempts", "Turns", "Commits", "Branch"):
        counts = column in {"Attempts", "Turns", "Commits"}
        table.add_column(
            column, justify="right" if counts else "left", no_wrap=column != "Title", overflow="ellipsis"
        )
    for entry in sorted(tally.issues.values(), key=lambda item: by_number(item.issue.identifier)):
        issue = entry.issue
        state = (states or {}).get(issue.identifier, issue.state)
        table.add_row(
            _cell(issue.identifier),
            _cell(issue.title),
            Text(f"{one_line(state)} (blocked)", style="red") if entry.blocked else _cell(state),
            str(entry.attempts),
            str(entry.turns),
            str(entry.commits),
            _cell(entry.branch or ""),
        )
    if width < _FITS_TITLES:
        del table.columns[1]
        table.padding = (0, 0)
    return table


def work_lines(tally: Tally, look: Callable[[str, str], str | None]) -> Iterator[str]:
    """Where the work of each issue is that was worked on, if it left any.

    `look` gives the command that shows a branch, for an identifier and the branch, or `None`.
    """
    for entry in sorted(tally.issues.values(), key=lambda item: item.issue.identifier):
        result = entry.result
        if result is None or result.delivered is None:
            continue
        done = result.delivered
        state = "waits for a person" if entry.blocked else f"in {result.issue.state}"
        files, lines = plural(done.files_changed, "file"), f"+{done.insertions} -{done.deletions}"
        told = [f"{plural(done.commits, 'commit')} on {done.branch}", f"{files} {lines}", state]
        if done.push_failure is not None:
            told.append(f"not pushed ({done.push_failure.message})")
        elif done.pushed:
            told.append("pushed")
        command = look(entry.issue.identifier, done.branch)
        words = one_line(f"{entry.issue.identifier}: {', '.join(told)}")
        yield words if command is None else f"{words}: {command}"


def _cell(text: str) -> Text:
    """Text of others as it is: neither markup of ours nor anything that steers the terminal."""
    return Text(one_line(text))
