"""The Markdown board as a tracker: the contract of `trackers.base`, with all file work in worker threads."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import structlog
import watchfiles
from typing_extensions import override

from symphony.config import TrackerSettings
from symphony.domain import (
    Blame,
    Category,
    Failure,
    Issue,
    SymphonyError,
    ToolResult,
    ToolSpec,
    normalise_state,
)
from symphony.trackers.base import AccountInfo, Comment, TrackerError
from symphony.trackers.markdown.board import Board
from symphony.trackers.markdown.comments import MAX_BODY_CHARS, CommentStore, StoredComment
from symphony.trackers.markdown.config import PROVIDER_KEYS, BoardConfig
from symphony.trackers.markdown.document import (
    AGENT,
    RESERVED_AUTHORS,
    author_name,
    is_issue_file,
    is_persons_comment,
    missing,
    timestamp,
)
from symphony.trackers.registry import States, TrackerContext, TrackerKind
from symphony.trackers.tools import MAX_STATE_CHARS, argument_problem, object_schema, text_schema

# A hint whenever an issue file changed: a low-latency wake-up, never a source of truth.
#
# The folder itself is watched, not what is below it. Besides, the caller may name folders of comments:
# there a new comment of a person is news, one of the daemon or of an agent is none. Temporary files are
# filtered out. The folder's parent is watched as well, to notice when the folder is made, removed or
# replaced; while neither is there, the nearest directory that is. A folder that was swapped without telling
# is noticed within half a second.


_DEBOUNCE_MS = 50
_STEP_MS = 25
_RECHECK_MS = 500
_PAUSE_S = 30.0
_LOG = structlog.get_logger(__name__)


def _nowhere() -> frozenset[Path]:
    return frozenset()


async def folder_changes(
    folder: Path, comments: Callable[[], frozenset[Path]] = _nowhere, *, pause_s: float = _PAUSE_S
) -> AsyncGenerator[None, None]:
    """Yield when an issue file changed, and once whenever a watch begins, for what happened before it did.

    `comments` are folders in which a person's comment is news; the watch begins anew when they change.

    Ends only by cancellation. Where the system cannot watch (no more inotify watches, say) it says so once
    in the log and tries again after `pause_s` seconds; polling goes on meanwhile.
    """
    told = False
    while True:
        try:
            async with aclosing(_watched(folder, comments)) as hints:
                async for _ in hints:
                    told = False
                    yield
        except FileNotFoundError:
            await anyio.sleep(_RECHECK_MS / 1_000)
        except (OSError, RuntimeError) as error:
            if not told:
                _LOG.warning("board_watch_failed", board=str(folder), error=str(error))
            told = True
            await anyio.sleep(pause_s)


async def _watched(folder: Path, comments: Callable[[], frozenset[Path]]) -> AsyncGenerator[None, None]:
    """One watch, until the folder, or where comments are news, is another one than when it began."""
    first = await anyio.to_thread.run_sync(_look, folder, comments(), abandon_on_cancel=True)
    begun = False
    async with aclosing(_changes(folder, first)) as batches:
        async for names in batches:
            news = any(name.parent == folder or name.parent in first.comments for name in names)
            if first.place is not None and (news or not begun):
                yield
            begun = True
            now = await anyio.to_thread.run_sync(_look, folder, comments(), abandon_on_cancel=True)
            if folder in names or now != first:
                return


async def _changes(folder: Path, look: "_Look") -> AsyncGenerator[set[Path], None]:
    """Names of issue files, people's comments, the folder and what is beside it; empty when a look is due."""
    watching = watchfiles.awatch(
        *look.paths,
        *look.comments,
        watch_filter=lambda _, name: _is_news(folder, look.comments, Path(name)),
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        rust_timeout=_RECHECK_MS,
        yield_on_timeout=True,
        recursive=False,
    )
    async with aclosing(watching) as batches:
        async for batch in batches:
            yield {Path(name) for _, name in batch}


def _is_news(folder: Path, comments: frozenset[Path], path: Path) -> bool:
    if path.parent == folder:
        return is_issue_file(path.name)
    return path.parent not in comments or is_persons_comment(path.name)


class _Look(NamedTuple):
    """What there is: the folder's device and inode, null where there is no folder; and what to watch then."""

    place: tuple[int, int] | None
    paths: tuple[Path, ...]
    comments: frozenset[Path] = frozenset()


def _look(folder: Path, comments: frozenset[Path]) -> _Look:
    """Look at the disk, in a worker thread: a network file system may take its time."""
    try:
        found = folder.stat()
    except OSError:
        nearest = next((path for path in folder.parents if path.is_dir()), Path("/"))
        return _Look(place=None, paths=(nearest,))
    return _Look(
        place=(found.st_dev, found.st_ino),
        paths=(folder, folder.parent),
        comments=frozenset(path for path in comments if path.is_dir()),
    )


# What a session may do with its own issue: show it, comment on it, move it (AG17, TR9).
#
# The daemon executes these; the issue is the session's and cannot be named by the model. Every answer is a
# `ToolResult`, also for nonsense: `{"error": {"message": ..., "hint": ...}}`.


_SHOWN_COMMENTS = 20
_SHOWN_CHARS = 4_000


def specs(states: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    """The three tools; `states` are listed to the model as the legal targets of a move."""
    return (
        ToolSpec(
            name="board_show",
            description="Show the issue you are working on as it is on the board, with its newest comments.",
            input_schema=object_schema({}),
        ),
        ToolSpec(
            name="board_comment",
            description="Add a comment in Markdown to the issue you are working on.",
            input_schema=object_schema({"body": text_schema(MAX_BODY_CHARS)}),
        ),
        ToolSpec(
            name="board_move",
            description="Move the issue you are working on to another state.",
            input_schema=object_schema({"state": {"type": "string", "enum": list(states)}}),
        ),
    )


def execute(
    board: Board, notes: CommentStore, name: str, arguments: Mapping[str, Any], *, issue: Issue
) -> ToolResult:
    """Run one tool, synchronously; never raises."""
    try:
        return _run(board, notes, name, arguments, issue)
    except SymphonyError as error:
        return ToolResult.error(error.failure.message, hint=error.failure.hint)
    except Exception as error:  # noqa: BLE001 - a call that is not answered would stall the session (AG18)
        return ToolResult.error(f"the tool failed: {type(error).__name__}")


def _run(
    board: Board, notes: CommentStore, name: str, arguments: Mapping[str, Any], issue: Issue
) -> ToolResult:
    match name:
        case "board_show":
            problem = argument_problem(arguments)
            return ToolResult.error(problem) if problem else _show(board, notes, issue)
        case "board_comment":
            problem = argument_problem(arguments, body=MAX_BODY_CHARS)
            return ToolResult.error(problem) if problem else _comment(board, notes, issue, arguments["body"])
        case "board_move":
            problem = argument_problem(arguments, state=MAX_STATE_CHARS)
            if problem:
                return ToolResult.error(problem, hint=f"states: {', '.join(board.config.states)}")
            moved = board.move(issue.id, arguments["state"])
            return ToolResult.of({"issue": moved.issue_id, "before": moved.before, "state": moved.after})
        case _:
            return ToolResult.error(f"there is no tool {name[:80]!r}")


def _comment(board: Board, notes: CommentStore, issue: Issue, body: str) -> ToolResult:
    found = board.find(issue.id)
    written = ToolResult.of({"issue": found.id, "comment": notes.add(found.id, body, author=AGENT)})
    return replace(written, commented=True)


def _show(board: Board, notes: CommentStore, issue: Issue) -> ToolResult:
    now = board.find(issue.id)
    written = notes.read(now.id)[0]
    return ToolResult.of(
        {
            "id": now.id,
            "title": now.title,
            "state": now.state,
            "states": list(board.config.states),
            "labels": list(now.labels),
            "priority": now.priority,
            "blocked_by": [{"id": blocker.id, "state": blocker.state} for blocker in now.blocked_by],
            "description": _cut(now.description or "", MAX_BODY_CHARS),
            "comments": [_shown(note) for note in written[-_SHOWN_COMMENTS:]],
            "comments_left_out": max(0, len(written) - _SHOWN_COMMENTS),
        },
        read_only=True,
    )


def _shown(note: StoredComment) -> Mapping[str, Any]:
    created = None if note.created is None else timestamp(note.created)
    return {"author": note.author, "created": created, "body": _cut(note.body, _SHOWN_CHARS)}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} (cut at {limit} characters)"


_READ_LIMIT_S = 30.0
_READERS = 4
_REST = 19
_MAX_REST_S = 5.0
"""Reading the board because of hints takes at most a twentieth of the time: so much of it is rest."""
_WRITERS = 2
_MAX_LISTENED = 64
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
        self._notes = CommentStore(config.comments, now=self._board.now)
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
        return specs(self.config.states)

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        """Run one of the tools on the session's own issue; never raises."""
        return await anyio.to_thread.run_sync(
            lambda: execute(self._board, self._notes, name, arguments, issue=issue),
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

    async def account_info(self) -> AccountInfo:
        """The folder and the states of the board. Raises `TrackerError` where it cannot be read."""
        await self._reading(self._board.store.listing)
        return AccountInfo(login=None, scope=str(self.config.path), states=self.config.states)

    def _listen(self, issue_id: str) -> None:
        """Have the folder of these comments watched: issues whose comments are read wait for an answer."""
        self._listened[issue_id] = None
        self._listened.move_to_end(issue_id)
        if len(self._listened) > _MAX_LISTENED:
            self._listened.popitem(last=False)

    def _heard(self) -> frozenset[Path]:
        """The folders in which a person's comment would be news."""
        return frozenset(self._notes.place(issue_id) for issue_id in self._listened)

    def _comments(self, issue_id: str) -> tuple[list[StoredComment], list[TrackerError]]:
        self._present(issue_id)
        return self._notes.read(issue_id)

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


# What the registry is told of the kind `markdown`.


class _MarkdownKind(TrackerKind):
    provider_keys = PROVIDER_KEYS
    tools = ("board_show", "board_comment", "board_move")

    @override
    def create(self, settings: TrackerSettings, context: TrackerContext) -> MarkdownTracker:
        return MarkdownTracker(_config(settings, context))

    @override
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        config = _config(settings, context)
        return States(active=config.active, terminal=config.terminal)


def _config(settings: TrackerSettings, context: TrackerContext) -> BoardConfig:
    return BoardConfig.of(
        settings.provider,
        base_dir=context.base_dir,
        active=settings.active_states,
        terminal=settings.terminal_states,
    )


KIND = _MarkdownKind()
