"""The embedded board: one Markdown file per issue in a folder of the repository (kind `markdown`)."""

from symphony.trackers.markdown.board import Board, Moved, Snapshot
from symphony.trackers.markdown.config import (
    DEFAULT_ACTIVE,
    DEFAULT_PATH,
    DEFAULT_PREFIX,
    DEFAULT_STATES,
    DEFAULT_TERMINAL,
    PROVIDER_KEYS,
    BoardConfig,
)
from symphony.trackers.markdown.document import Draft
from symphony.trackers.markdown.kind import KIND
from symphony.trackers.markdown.names import AGENT, RESERVED_AUTHORS, author_name
from symphony.trackers.markdown.notes import Note, Notes
from symphony.trackers.markdown.numbers import Numbers
from symphony.trackers.markdown.refusals import printable
from symphony.trackers.markdown.tracker import MarkdownTracker

__all__ = [
    "AGENT",
    "DEFAULT_ACTIVE",
    "DEFAULT_PATH",
    "DEFAULT_PREFIX",
    "DEFAULT_STATES",
    "DEFAULT_TERMINAL",
    "KIND",
    "PROVIDER_KEYS",
    "RESERVED_AUTHORS",
    "Board",
    "BoardConfig",
    "Draft",
    "MarkdownTracker",
    "Moved",
    "Note",
    "Notes",
    "Numbers",
    "Snapshot",
    "author_name",
    "printable",
]
