"""The Markdown board as a tracker: the contract of `trackers.base`, with all file work in worker threads."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import structlog

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue, normalise_state
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.base import Comment, Sighting, TrackerError
from symphony.trackers.markdown import tools
from symphony.trackers.markdown.board import Board
from symphony.trackers.markdown.config import BoardConfig
from symphony.trackers.markdown.names import RESERVED_AUTHORS, author_name
from symphony.trackers.markdown.notes import Note, Notes
from symphony.trackers.markdown.refusals import missing
from symphony.trackers.markdown.watch import folder_changes

__all__ = ["MarkdownTracker"]

_READ_LIMIT_S = 30.0
_READERS = 4
_REST = 19
_MAX_REST_S = 5.0
"""Reading the board because of hints takes at most a twentieth of the time: so much of it is rest."""
_WRITERS = 2
_MAX_LISTENED = 64
_LOG = structlog.get_logger(__name__)
_T = TypeVar("_T")


class MarkdownTracker:
    """One board folder. Implements `Tracker` and every capability; needs no credentials."""

    def __init__(
        self,
        config: BoardConfig,
        *,
        board: Board | None = None,
        read_limit_s: float = _READ_LIMIT_S,
        rest: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.config = config
        self._board = board or Board(config)
        self._notes = Notes(config.comments, now=self._board.now)
        self._read_limit_s = read_limit_s
        self._told: dict[str, frozenset[str]] = {}
        self._listened: OrderedDict[str, None] = OrderedDict()
        self._skipped: tuple[Failure, ...] = ()
        self._took_s = 0.0
        self._rest = rest
        # Readings that hang on a dead disk hold threads of ours and not everybody's.
        self._readers = anyio.CapacityLimiter(_READERS)
        # Only one writes at a time: a crowd that waits for its turn shall not hold everybody's threads.
        self._writers = anyio.CapacityLimiter(_WRITERS)

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        """Issues in these states, in id order; malformed files are skipped and logged with `path:line`."""
        wanted = {normalise_state(state) for state in states if state.strip()}
        if not wanted:
            return ()
        began_s = anyio.current_time()
        snapshot = await self._reading(self._board.all)
        self._took_s = anyio.current_time() - began_s
        self._skipped = tuple(problem.failure for problem in snapshot.problems.values())
        self._tell("", snapshot.problems.values())
        return tuple(issue for issue in snapshot.issues if normalise_state(issue.state) in wanted)

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        """Current snapshots; a missing file is omitted, a malformed one fails the call and is its culprit."""
        if not ids:
            return ()
        snapshot = await self._reading(lambda: self._board.some(ids))
        if snapshot.problems:
            first = next(iter(snapshot.problems.values()))
            raise TrackerError(first.failure, culprits=frozenset(snapshot.problems))
        return snapshot.issues

    def skipped(self) -> Sequence[Failure]:
        """The malformed files of the last list, in id order."""
        return self._skipped

    def secret_environment_names(self) -> frozenset[str]:
        """None: files need no credentials."""
        return frozenset()

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        """`board_show`, `board_comment` and `board_move`."""
        return tools.specs(self.config.states)

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        """Run one of the tools on the session's own issue; never raises."""
        return await anyio.to_thread.run_sync(
            lambda: tools.execute(self._board, self._notes, name, arguments, issue=issue),
            limiter=self._writers,
        )

    async def changes(self) -> AsyncGenerator[None, None]:
        """A hint soon after an issue file changed, or a person commented on one of the last issues looked at.

        The daemon's and the agents' own comments give none.

        After one there is none for a while, the longer the more there is to read: a large board on which
        agents move their issues all the time shall not be read all the time.
        """
        async with aclosing(folder_changes(self.config.path, self._heard)) as hints:
            async for _ in hints:
                yield
                await self._rest(min(self._took_s * _REST, _MAX_REST_S))

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        """All comments, oldest first; `mine` are those of the daemon, whatever their text says.

        Raises:
            TrackerError: there is no such issue, or the comments cannot be read.
        """
        notes, problems = await self._reading(lambda: self._comments(issue_id))
        self._listen(issue_id)
        self._tell(issue_id, problems)
        return tuple(
            Comment(
                id=note.id,
                body=note.body,
                mine=note.key is not None,
                author=note.author,
                may_answer=author_name(note.author) not in RESERVED_AUTHORS,
            )
            for note in notes
        )

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """Nobody is in doubt: on a board, everybody but agents and the daemon may answer."""
        del issue_id, author_keys
        return frozenset()

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Write the daemon's own comment; a repeated create with one key gives one comment.

        Raises:
            TrackerError: nothing was written.
        """

        def write() -> str:
            self._present(issue_id)
            return self._notes.put(issue_id, body, key=key, note_id=comment_id)

        return await anyio.to_thread.run_sync(write, limiter=self._writers)

    async def move_issue(self, issue_id: str, state: str) -> str:
        """Put an issue into another state and return what its file says then. Raises `TrackerError`."""

        def move() -> str:
            self._board.move(issue_id, state)
            return self._board.find(issue_id).state

        return await anyio.to_thread.run_sync(move, limiter=self._writers)

    async def look(self) -> Sighting:
        """The folder and the states of the board. Raises `TrackerError` where it cannot be read."""
        await self._reading(self._board.store.listing)
        return Sighting(login=None, scope=str(self.config.path), states=self.config.states)

    def _listen(self, issue_id: str) -> None:
        """Have the folder of these comments watched: issues whose comments are read wait for an answer."""
        self._listened[issue_id] = None
        self._listened.move_to_end(issue_id)
        if len(self._listened) > _MAX_LISTENED:
            self._listened.popitem(last=False)

    def _heard(self) -> frozenset[Path]:
        """The folders in which a person's comment would be news."""
        return frozenset(self._notes.place(issue_id) for issue_id in self._listened)

    def _comments(self, issue_id: str) -> tuple[list[Note], list[TrackerError]]:
        self._present(issue_id)
        return self._notes.of(issue_id)

    def _present(self, issue_id: str) -> None:
        if issue_id not in self._board.store.listing().files:
            raise missing(f"there is no issue {issue_id[:80]!r} in {self.config.path}")

    def _tell(self, scope: str, problems: Iterable[TrackerError]) -> None:
        """Log what is malformed, and again only when it has become another problem."""
        lines = {problem.failure.line: problem.failure for problem in problems}
        for line in lines.keys() - self._told.get(scope, frozenset()):
            failure = lines[line]
            _LOG.warning("board_file_skipped", where=failure.where, problem=failure.message)
        self._told[scope] = frozenset(lines)
        if not lines:
            del self._told[scope]

    async def _reading(self, read: Callable[[], _T]) -> _T:
        """Run a reading in a worker thread; a file system that hangs fails the call instead of the daemon."""
        try:
            with anyio.fail_after(self._read_limit_s):
                return await anyio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._readers)
        except TimeoutError as error:
            raise TrackerError(
                Failure(
                    category=Category.TRACKER_REQUEST,
                    blame=Blame.TRACKER,
                    message=f"{self.config.path}: not read within {self._read_limit_s:g} seconds",
                    hint="is the board on a network file system that hangs?",
                )
            ) from error
