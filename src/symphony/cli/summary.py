"""The table at the end: what happened to each issue."""

from rich.table import Table
from rich.text import Text

from symphony.domain.plain import one_line
from symphony.observability.tally import Tally

__all__ = ["summary_table"]

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
    for entry in sorted(tally.issues.values(), key=lambda item: item.issue.identifier):
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


def _cell(text: str) -> Text:
    """Text of others as it is: neither markup of ours nor anything that steers the terminal."""
    return Text(one_line(text))
