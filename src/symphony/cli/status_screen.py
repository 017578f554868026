"""`symphony status --watch`: what of a status to show on a screen that cannot be scrolled.

All of it where it fits. Else each text gets one line; and where that is too much as well, every kind of issue
shows as many rows as there is room for and says how many it leaves out. Issues that need a person are the
last to go; the head counts even those of which nothing is shown.
"""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console, RenderableType

from symphony.cli.status_view import KINDS, head_view, lines_per_row, rows, status_view

__all__ = ["status_screen"]

_BY_IMPORTANCE: Final = ("blocked", "retrying", "running", "waiting")
_BLOCK_LINES: Final = 2
"""A blank line and a heading."""
_REST_LINES: Final = 1
"""How many are left out."""


def status_screen(console: Console, document: Mapping[str, Any], *, workflow: str) -> RenderableType:
    """The picture for a console that is so high and wide."""
    width, height = console.width, console.height
    counts = {kind: len(rows(document, kind)) for kind in KINDS}
    if sum(counts.values()) <= height:
        whole = status_view(document, workflow=workflow, width=width)
        if _height(console, whole) <= height:
            return whole
    room = height - _height(console, head_view(document, workflow=workflow, brief=True))
    return status_view(document, workflow=workflow, width=width, most=_shared_out(counts, room, width))


def _shared_out(counts: Mapping[str, int], room: int, width: int) -> dict[str, int]:
    """How many issues of each kind, by importance: one of each that fits, and then as many as there are."""
    if (
        sum(_BLOCK_LINES + counts[kind] * lines_per_row(kind, width) for kind in KINDS if counts[kind])
        <= room
    ):
        return dict(counts)
    most = dict.fromkeys(counts, 0)
    for kind in _BY_IMPORTANCE:
        least = _BLOCK_LINES + lines_per_row(kind, width) + (_REST_LINES if counts[kind] > 1 else 0)
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
