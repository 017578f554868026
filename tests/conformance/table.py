"""The results for people at a terminal and for programs."""

import json
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.verdict import Status, Verdict

_STYLES = {
    Status.GREEN: "green",
    Status.RED: "bold red",
    Status.SKIPPED: "yellow",
    Status.PENDING: "cyan",
    Status.MISSING: "bold red",
    Status.UNKNOWN: "bold red",
}


def show(verdicts: Iterable[Verdict], faults: Sequence[str], console: Console) -> None:
    """One line per id that is not green, how many there are of each, then what is wrong."""
    verdicts = tuple(verdicts)
    table = Table("id", "result", "tests", "rule", box=None, pad_edge=False)
    for verdict in verdicts:
        if verdict.status is Status.GREEN:
            continue
        result = Text(verdict.status.value, style=_STYLES[verdict.status])
        told = f"pending: {verdict.pending}" if verdict.status is Status.PENDING else verdict.title
        table.add_row(
            verdict.id, result, str(len(verdict.tests)), Text(told, overflow="ellipsis", no_wrap=True)
        )
    console.print(table)
    for status in Status:
        if count := sum(verdict.status is status for verdict in verdicts):
            console.print(Text(f"{count} {status.value}", style=_STYLES[status]), end="  ")
    console.print()
    for fault in faults:
        console.print(Text(f"error: {fault}", style="bold red"), soft_wrap=True)


def as_json(verdicts: Iterable[Verdict], faults: Sequence[str]) -> str:
    """`{"ids": [{"id", "status", "title", "pending", "tests"}], "faults": [line]}`."""
    ids = [
        {
            "id": verdict.id,
            "status": verdict.status.value,
            "title": verdict.title,
            "pending": verdict.pending,
            "tests": verdict.tests,
        }
        for verdict in verdicts
    ]
    return json.dumps({"ids": ids, "faults": list(faults)}, indent=2, ensure_ascii=False)
