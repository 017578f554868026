"""The embedded board: one Markdown file per issue in a folder of the repository (kind `markdown`)."""

from symphony.trackers.markdown.board import Board as Board
from symphony.trackers.markdown.board import IssueNumbers as IssueNumbers
from symphony.trackers.markdown.comments import AGENT as AGENT
from symphony.trackers.markdown.comments import RESERVED_AUTHORS as RESERVED_AUTHORS
from symphony.trackers.markdown.comments import CommentStore as CommentStore
from symphony.trackers.markdown.comments import StoredComment as StoredComment
from symphony.trackers.markdown.comments import author_name as author_name
from symphony.trackers.markdown.config import DEFAULT_PATH as DEFAULT_PATH
from symphony.trackers.markdown.config import DEFAULT_PREFIX as DEFAULT_PREFIX
from symphony.trackers.markdown.config import DEFAULT_STATES as DEFAULT_STATES
from symphony.trackers.markdown.config import PARKING_STATES as PARKING_STATES
from symphony.trackers.markdown.config import BoardConfig as BoardConfig
from symphony.trackers.markdown.config import doubtful_states as doubtful_states
from symphony.trackers.markdown.document import IssueDraft as IssueDraft
from symphony.trackers.markdown.errors import printable as printable
from symphony.trackers.markdown.tracker import KIND as KIND
from symphony.trackers.markdown.tracker import MarkdownTracker as MarkdownTracker
