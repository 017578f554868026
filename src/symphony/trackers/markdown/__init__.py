"""The embedded board: one Markdown file per issue in a folder of the repository (kind `markdown`)."""

from symphony.trackers.markdown.board import Board, IssueNumbers
from symphony.trackers.markdown.comments import (
    AGENT,
    RESERVED_AUTHORS,
    CommentStore,
    StoredComment,
    author_name,
)
from symphony.trackers.markdown.config import (
    DEFAULT_PATH,
    DEFAULT_PREFIX,
    DEFAULT_STATES,
    BoardConfig,
)
from symphony.trackers.markdown.document import Draft
from symphony.trackers.markdown.errors import printable
from symphony.trackers.markdown.tracker import KIND, MarkdownTracker

__all__ = [
    "AGENT",
    "DEFAULT_PATH",
    "DEFAULT_PREFIX",
    "DEFAULT_STATES",
    "KIND",
    "RESERVED_AUTHORS",
    "Board",
    "BoardConfig",
    "CommentStore",
    "Draft",
    "IssueNumbers",
    "MarkdownTracker",
    "StoredComment",
    "author_name",
    "printable",
]
