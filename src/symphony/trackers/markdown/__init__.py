"""The embedded board: one Markdown file per issue in a folder of the repository (kind `markdown`)."""

from symphony.trackers.markdown.board import Board, Moved, Snapshot
from symphony.trackers.markdown.config import (
    DEFAULT_ACTIVE,
    DEFAULT_PATH,
    DEFAULT_STATES,
    DEFAULT_TERMINAL,
    PROVIDER_KEYS,
    BoardConfig,
)
from symphony.trackers.markdown.document import Draft
from symphony.trackers.markdown.names import author_name, by_number
from symphony.trackers.markdown.notes import RESERVED_AUTHORS, Note, Notes
from symphony.trackers.markdown.refusals import printable
from symphony.trackers.markdown.tracker import MarkdownTracker

__all__ = [
    "DEFAULT_ACTIVE",
    "DEFAULT_PATH",
    "DEFAULT_STATES",
    "DEFAULT_TERMINAL",
    "PROVIDER_KEYS",
    "RESERVED_AUTHORS",
    "Board",
    "BoardConfig",
    "Draft",
    "MarkdownTracker",
    "Moved",
    "Note",
    "Notes",
    "Snapshot",
    "author_name",
    "by_number",
    "printable",
]
