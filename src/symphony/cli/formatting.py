"""Numbers, times and untrusted text as people read them, and the console on which they are printed."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, JustifyMethod, OverflowMethod, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.api.models import Instructions
from symphony.domain import one_line, plain_text

_PIPE_WIDTH: Final = 160


def console_for(*, pipe_width: int = _PIPE_WIDTH, **options: Any) -> Console:
    """A console on stdout that adds no formatting; without a terminal it has `pipe_width` columns."""
    console = Console(highlight=False, emoji=False, markup=False, **options)
    if not console.is_terminal and "width" not in options:
        console.width = pipe_width
    return console


def table(
    *names: str,
    right: Collection[str] = (),
    fold: Collection[str] = (),
    cut: Collection[str] = (),
    style: str = "",
) -> Table:
    """A table without lines, whose bold header has a `style`.

    Of its columns, those in `right` are aligned there, those in `fold` wrap, and those in `cut` end with an
    ellipsis where the line ends.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=f"bold {style}")
    for name in names:
        justify: JustifyMethod = "right" if name in right else "left"
        overflow: OverflowMethod = "ellipsis" if name in cut else "fold"
        made.add_column(name, justify=justify, no_wrap=name not in fold, overflow=overflow)
    return made


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """A line for each row, its columns below each other; a `Table` takes seconds for thousands of rows."""
    rows = [*rows]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(set_cell_size, row, widths)).rstrip() for row in rows]


def print_blocks(console: Console, *blocks: RenderableType) -> None:
    """Print blocks below each other, without blanks at the ends of lines."""
    with console.capture() as captured:
        console.print(*blocks, sep="\n", crop=False)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    console.file.flush()


def cell(text: object, style: str = "") -> Text:
    """Untrusted text as one line, with markup and control characters made harmless."""
    return Text(one_line(_encodable(text)), style=style)


def describe_instructions(instructions: Instructions) -> str:
    """The modules of composed instructions and where they come from, on one line."""
    names = ", ".join(module.name for module in instructions.modules) or "none"
    dropped = f"; no room for {', '.join(instructions.dropped)}" if instructions.dropped else ""
    origin = "" if instructions.origin == "source" else f"; the source failed: {instructions.origin}"
    return f"{names} ({instructions.chars} characters{dropped}{origin})"


def instruction_problems(instructions: Instructions) -> tuple[str, ...]:
    """What is wrong with the source of instructions, each with its place and what was used instead."""
    used = "" if instructions.origin == "source" else f" (used instead: {instructions.origin})"
    return tuple(
        f"{one.path}{'' if one.line is None else f':{one.line}'}: {one.message}{used} → {one.hint}"
        for one in instructions.problems
    )


def lines(text: object, style: str = "") -> Text:
    """As `cell`, with the line breaks of the text."""
    return Text(plain_text(_encodable(text)), style=style)


def unbroken(text: Text) -> Text:
    """The text without line breaks, so that a command in it can be copied; the terminal may wrap it."""
    text.no_wrap, text.overflow = True, "ignore"
    return text


def arrow(hint: object, *, indent: int = 2) -> Text:
    """A line that says what to do."""
    return Text.assemble(" " * indent, ("→ ", "bold"), cell(hint))


def _encodable(text: object) -> str:
    return "" if text is None else str(text).encode("utf-8", "replace").decode("utf-8")
