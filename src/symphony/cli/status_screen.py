"""`symphony status` on a terminal: what of a status fits one screen.

All of it where it fits. Else each text gets one line; and where that is too much as well, every kind of issue
shows as many rows as there is room for and says how many it leaves out. Issues that need a person are the
last to go; the head counts even those of which nothing is shown.
"""

from collections.abc import Mapping
from typing import Final

from rich.console import Console, RenderableType

from symphony.cli.documents import Status
from symphony.cli.status_view import KINDS, head_view, left_out, lines_per_row, rows, status_view

__all__ = ["status_screen"]

_BY_IMPORTANCE: Final = ("blocked", "retrying", "running", "ready", "waiting")
_BLOCK_LINES: Final = 2
"""A blank line and a heading."""
_REST_LINES: Final = 1
"""How many are left out."""


def status_screen(
    console: Console,
    document: Status,
    *,
    workflow: str,
    selected: bool = False,
    keep_free: int = 0,
) -> RenderableType:
    """The picture for a console that is so high and wide, with so many lines kept free."""
    width, height = console.width, console.height - keep_free
    counts = {kind: len(rows(document, kind)) for kind in KINDS}
    beyond = {kind: left_out(document, kind) for kind in KINDS}
    if sum(counts.values()) + sum(beyond.values()) <= height:
        whole = status_view(document, workflow=workflow, width=width, selected=selected)
        if _height(console, whole) <= height:
            return whole
    room = height - _height(console, head_view(document, workflow=workflow, brief=True))
    most = _shared_out(counts, beyond, room, width)
    return status_view(document, workflow=workflow, width=width, most=most, brief=True, selected=selected)


def _shared_out(
    counts: Mapping[str, int], beyond: Mapping[str, int], room: int, width: int
) -> dict[str, int]:
    """How many issues of each kind, by importance: one of each that fits, and then as many as there are.

    `beyond` are those that are not at hand, so that a line says at least how many they are.
    """
    all_lines = sum(
        _BLOCK_LINES + counts[kind] * lines_per_row(kind, width) + (_REST_LINES if beyond[kind] else 0)
        for kind in KINDS
        if counts[kind]
    )
    if all_lines <= room:
        return dict(counts)
    most = dict.fromkeys(counts, 0)
    for kind in _BY_IMPORTANCE:
        least = (
            _BLOCK_LINES
            + lines_per_row(kind, width)
            + (_REST_LINES if counts[kind] + beyond[kind] > 1 else 0)
        )
        if counts[kind] and room >= least:
            most[kind] = 1
            room -= least
    for kind in _BY_IMPORTANCE:
        if most[kind]:
            more = min(counts[kind] - 1, room // lines_per_row(kind, width))
            most[kind] += more
            room -= more * lines_per_row(kind, width)
    return most


def _height(console: Console, picture: RenderableType) -> int:
    return len(console.render_lines(picture, pad=False))
