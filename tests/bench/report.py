"""The table for people, for programs, and for `docs/PERFORMANCE.md`."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import Figure

__all__ = ["BEGIN", "END", "as_json", "as_markdown", "machine", "missed", "show", "write"]

BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"


def missed(figures: Sequence[Figure]) -> int:
    """How many figures miss an aim."""
    return sum(not figure.met for figure in figures)


def machine() -> str:
    """What the figures were taken on, without names and paths."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    git = subprocess.run(["git", "version"], capture_output=True, text=True, check=True).stdout.split()[2]
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {_kernel()}, "
        f"CPython {platform.python_version()}, git {git}"
    )


def _kernel() -> str:
    return ".".join(platform.release().split("-")[0].split(".")[:2])


def number(value: float | None) -> str:
    """Three significant digits, no exponent."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    for bound, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= bound:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def _ratio(figure: Figure) -> str:
    return "" if figure.ratio is None else f"{number(figure.ratio)} x"


def _aims(figure: Figure) -> str:
    return " and ".join(aim.text for aim in figure.aims)


def _verdict(figure: Figure) -> str:
    if not figure.aims:
        return ""
    return "met" if figure.met else "MISSED"


def _cells(figure: Figure) -> tuple[str, ...]:
    title = f"{figure.title}, {figure.unit}" if figure.unit else figure.title
    return (
        title, number(figure.floor), number(figure.ours), _ratio(figure), _aims(figure), _verdict(figure)
    )  # fmt: skip


_HEADINGS = ("Figure", "Floor", "Symphony", "Ratio", "Aim", "")


def show(figures: Sequence[Figure], console: Console) -> None:
    """Print the table; what is missed stands out."""
    table = Table(title="Symphony beside a bare spawn-and-pump program", caption=machine())
    for place, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="right" if place in {1, 2, 3} else "left")
    for figure in figures:
        *cells, verdict = _cells(figure)
        style = {"MISSED": "bold red", "met": "green"}.get(verdict, "")
        table.add_row(*cells, f"[{style}]{verdict}[/]" if style else verdict)
    console.print(table)
    count = missed(figures)
    console.print(
        f"{count} of {sum(bool(figure.aims) for figure in figures)} aims MISSED" if count else "All aims met"
    )


def as_json(figures: Sequence[Figure]) -> str:
    """The same, for programs."""
    rows: list[dict[str, Any]] = [
        {
            "key": figure.key,
            "title": figure.title,
            "unit": figure.unit,
            "floor": figure.floor,
            "ours": figure.ours,
            "ratio": figure.ratio,
            "aims": [{"text": aim.text, "met": aim.met} for aim in figure.aims],
            "met": figure.met,
        }
        for figure in figures
    ]
    return json.dumps({"machine": machine(), "missed": missed(figures), "figures": rows}, indent=2)


def as_markdown(figures: Sequence[Figure]) -> str:
    """The table as it stands in the docs, between its two marks."""
    lines = [f"Taken on: {machine()}.", "", f"| {' | '.join(_HEADINGS)} |", "|---|---:|---:|---:|---|---|"]
    for figure in figures:
        *cells, verdict = _cells(figure)
        strong = f"**{verdict}**" if verdict == "MISSED" else verdict
        lines.append(f"| {' | '.join([*cells, strong])} |")
    count = missed(figures)
    lines += ["", f"Missed: {count}." if count else "Every aim is met."]
    return "\n".join([BEGIN, *lines, END])


def write(figures: Sequence[Figure], page: Path) -> None:
    """Put the table into the page, in the place of the former one; the prose around it stays."""
    text = page.read_text("utf-8")
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{page} has no place for the table between {BEGIN} and {END}")
    page.write_text(f"{before}{as_markdown(figures)}{after}", "utf-8")
