"""The table at the end: what happened to each issue."""

from rich.table import Table
from rich.text import Text

from symphony.domain.redaction import printable
from symphony.observability.tally import Tally

__all__ = ["summary_table"]


def summary_table(tally: Tally, states: dict[str, str] | None = None) -> Table:
    """One row per issue that was worked on; `states` are final states by identifier where they are known."""
    table = Table(title=None, header_style="bold", pad_edge=False)
    for column in ("Issue", "Title", "State", "Attempts", "Turns", "Commits", "Branch"):
        counts = column in {"Attempts", "Turns", "Commits"}
        table.add_column(
            column, justify="right" if counts else "left", no_wrap=column != "Title", overflow="ellipsis"
        )
    for entry in sorted(tally.issues.values(), key=lambda item: item.issue.identifier):
        issue = entry.issue
        state = (states or {}).get(issue.identifier, issue.state)
        cells = (
            issue.identifier,
            issue.title,
            f"{state} (blocked)" if entry.blocked else state,
            str(entry.attempts),
            str(entry.turns),
            str(entry.commits),
            entry.branch or "",
        )
        # As `Text`: what a board says is neither markup nor may it drive the terminal.
        row = [Text(printable(cell)) for cell in cells]
        row[2].stylize("red" if entry.blocked else "")
        table.add_row(*row)
    return table
