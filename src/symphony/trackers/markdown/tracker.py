"""The Markdown board as a tracker: all file work runs in worker threads."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import structlog
import watchfiles
from cachetools import FIFOCache
from typing_extensions import override

from symphony import domain, to_thread
from symphony.config import TrackerSettings
from symphony.trackers.base import AccountInfo, Comment, IssueToCreate, TrackerError
from symphony.trackers.markdown.board import Board, IssueNumbers
from symphony.trackers.markdown.comments import (
    AGENT,
    MAX_BODY_CHARS,
    RESERVED_AUTHORS,
    CommentStore,
    StoredComment,
    author_name,
    is_persons_comment,
)
from symphony.trackers.markdown.config import PROVIDER_KEYS, BoardConfig
from symphony.trackers.markdown.document import IssueDraft, timestamp
from symphony.trackers.markdown.errors import malformed, missing, printable
from symphony.trackers.markdown.layout import is_issue_file
from symphony.trackers.registry import States, TrackerContext, TrackerKind
from symphony.trackers.tools import MAX_STATE_CHARS, argument_problem, object_schema, text_schema

SHOW, COMMENT, MOVE = "board_show", "board_comment", "board_move"
_MAX_SHOWN_COMMENTS = 20
_MAX_SHOWN_CHARS = 4_000
_READ_LIMIT_S = 30.0
_READERS = 4
_WRITERS = 2
_REST_FACTOR = 19
_MAX_REST_S = 5.0
"""The longest pause after a hint.

The pause is 19 times as long as the last read, so that reads take at most a twentieth of the time.
"""
_MAX_WATCHED_ISSUES = 64
_MAX_LOGGED = 1_000
_LOG = structlog.get_logger(__name__)
T = TypeVar("T")


class MarkdownTracker:
    """One board folder. Implements `Tracker` and every capability; needs no credentials.

    Attributes:
        numbers: the numbers used so far; without it only the board's folder counts.
    """

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
        self._store = CommentStore(config.comments, now=self._board.now)
        self._read_limit_s = read_limit_s
        self._rest = rest
        self._read_s = 0.0
        self._skipped: tuple[domain.Failure, ...] = ()
        self._logged: dict[str, frozenset[str]] = {}
        self._watched_issues: FIFOCache[str, None] = FIFOCache(_MAX_WATCHED_ISSUES)
        # Separate limiters: reads that hang on a dead disk and writes that wait for a lock must not use up
        # all worker threads of the program.
        self._readers = anyio.CapacityLimiter(_READERS)
        self._writers = anyio.CapacityLimiter(_WRITERS)
        self.numbers: Callable[[], IssueNumbers] | None = None

    # --- Tracker -----------------------------------------------------------------------------------------

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[domain.Issue]:
        """Issues in these states, in the order of their ids; malformed files are skipped and logged.

        Issues in states that no setting names are reported with them, because nothing else would show them.
        """
        wanted = {domain.normalise_state(state) for state in states if state.strip()}
        if not wanted:
            return ()
        started_s = anyio.current_time()
        snapshot = await self._read(self._board.all)
        self._read_s = anyio.current_time() - started_s
        found = {issue.state for issue in snapshot.issues}  # few compared with thousands of issues
        unnamed = {state for state in found if not self.config.names(state)}
        asked = {state for state in found if domain.normalise_state(state) in wanted}
        self._skipped = (
            *(problem.failure for problem in snapshot.problems.values()),
            *(
                malformed(
                    self._board.store.path(issue.id),
                    1,
                    f"{issue.id} is in {printable(issue.state)!r}, a state that no setting names",
                    hint="correct the state of the issue, or tracker.active_states and terminal_states",
                ).failure
                for issue in snapshot.issues
                if issue.state in unnamed
            ),
        )
        self._log_problems("", self._skipped)
        return tuple(issue for issue in snapshot.issues if issue.state in asked)

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[domain.Issue]:
        """Current snapshots; a missing file is omitted, a malformed one fails the call."""
        if not ids:
            return ()
        snapshot = await self._read(lambda: self._board.some(ids))
        for problem in snapshot.problems.values():
            raise TrackerError(problem.failure, culprits=frozenset(snapshot.problems))
        return snapshot.issues

    def skipped(self) -> Sequence[domain.Failure]:
        """The malformed files of the last listing, then the issues in states that no setting names."""
        return self._skipped

    def secret_environment_names(self) -> frozenset[str]:
        """Empty: files need no credentials."""
        return frozenset()

    def agent_tool_specs(self) -> tuple[domain.ToolSpec, ...]:
        """`board_show`, `board_comment` and `board_move`, for the session's own issue."""
        states = {"type": "string", "enum": list(self.config.states)}
        return (
            domain.ToolSpec(
                name=SHOW,
                description=(
                    "Show the issue you are working on as it is on the board, with its newest comments."
                ),
                input_schema=object_schema({}),
            ),
            domain.ToolSpec(
                name=COMMENT,
                description="Add a comment in Markdown to the issue you are working on.",
                input_schema=object_schema({"body": text_schema(MAX_BODY_CHARS)}),
            ),
            domain.ToolSpec(
                name=MOVE,
                description="Move the issue you are working on to another state.",
                input_schema=object_schema({"state": states}),
            ),
        )

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: domain.Issue
    ) -> domain.ToolResult:
        """Run one of the tools on the session's own issue. Never raises."""

        def run() -> domain.ToolResult:
            try:
                return self._run_tool(name, arguments, issue)
            except domain.SymphonyError as error:
                return domain.ToolResult.error(error.failure.message, hint=error.failure.hint)
            except Exception as error:  # noqa: BLE001 - an unanswered call would stall the session
                return domain.ToolResult.error(f"the tool failed: {type(error).__name__}")

        return await to_thread.run_sync(run, limiter=self._writers)

    def _run_tool(self, name: str, arguments: Mapping[str, Any], issue: domain.Issue) -> domain.ToolResult:
        limits = {SHOW: {}, COMMENT: {"body": MAX_BODY_CHARS}, MOVE: {"state": MAX_STATE_CHARS}}
        if name not in limits:
            return domain.ToolResult.error(f"there is no tool {name[:80]!r}")
        if problem := argument_problem(arguments, **limits[name]):
            hint = f"states: {', '.join(self.config.states)}" if name == MOVE else None
            return domain.ToolResult.error(problem, hint=hint)
        if name == MOVE:
            moved = self._board.move(issue.id, arguments["state"])
            return domain.ToolResult.of(
                {"issue": moved.issue_id, "before": moved.before, "state": moved.after}
            )
        found = self._board.find(issue.id)
        if name == COMMENT:
            comment_id = self._store.add(found.id, arguments["body"], author=AGENT)
            return domain.ToolResult.of({"issue": found.id, "comment": comment_id}, commented=True)
        return self._show(found)

    def _show(self, issue: domain.Issue) -> domain.ToolResult:
        comments = self._store.read(issue.id)[0]
        return domain.ToolResult.of(
            {
                "id": issue.id,
                "title": issue.title,
                "state": issue.state,
                "states": list(self.config.states),
                "labels": list(issue.labels),
                "priority": issue.priority,
                "blocked_by": [{"id": blocker.id, "state": blocker.state} for blocker in issue.blocked_by],
                "description": _cut(issue.description or "", MAX_BODY_CHARS),
                "comments": [
                    {
                        "author": comment.author,
                        "created": None if comment.created is None else timestamp(comment.created),
                        "body": _cut(comment.body, _MAX_SHOWN_CHARS),
                    }
                    for comment in comments[-_MAX_SHOWN_COMMENTS:]
                ],
                "comments_left_out": max(0, len(comments) - _MAX_SHOWN_COMMENTS),
            },
            read_only=True,
        )

    async def changes(self) -> AsyncGenerator[None, None]:
        """A hint soon after an issue file changed, or after a person commented on an issue that waits for it.

        After a hint there is a pause, longer for a larger board, so that agents that move issues all the time
        do not make the daemon read the board all the time.
        """

        def comment_folders() -> frozenset[Path]:
            return frozenset(map(self._store.path, self._watched_issues))

        async with aclosing(folder_changes(self.config.path, comment_folders)) as hints:
            async for _ in hints:
                yield
                await self._rest(min(self._read_s * _REST_FACTOR, _MAX_REST_S))

    # --- capabilities ------------------------------------------------------------------------------------

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        """All comments, oldest first. From now on a person's comment on the issue causes a hint.

        Raises:
            TrackerError: there is no such issue, or the comments cannot be read.
        """

        def read() -> tuple[list[StoredComment], list[TrackerError]]:
            self._require(issue_id)
            return self._store.read(issue_id)

        comments, problems = await self._read(read)
        self._watched_issues[issue_id] = None
        self._log_problems(issue_id, [problem.failure for problem in problems])
        return tuple(
            Comment(
                id=comment.id,
                body=comment.body,
                mine=comment.key is not None,
                author=comment.author,
                may_answer=author_name(comment.author) not in RESERVED_AUTHORS,
                created_at=comment.created,
            )
            for comment in comments
        )

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """Always empty: `may_answer` of each comment already decides it."""
        del issue_id, author_keys
        return frozenset()

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Write a comment of the daemon; repeated creates with one key give one comment.

        Raises:
            TrackerError: nothing was written.
        """

        def write() -> str:
            self._require(issue_id)
            return self._store.put(issue_id, body, key=key, comment_id=comment_id)

        return await to_thread.run_sync(write, limiter=self._writers)

    async def move_issue(self, issue_id: str, state: str) -> str:
        """Move an issue and return the state in its file. Raises `TrackerError`."""

        def move() -> str:
            self._board.move(issue_id, state)
            return self._board.find(issue_id).state

        return await to_thread.run_sync(move, limiter=self._writers)

    def creation_problem(self) -> str | None:
        """A problem on a board of Backlog.md, which creates its own tasks."""
        return (
            None if self.config.layout.can_create else f"{self.config.path} is the board of another program"
        )

    async def create_issue(self, new: IssueToCreate, *, key: str, since: datetime) -> domain.Issue:
        """Write a file with the key in its front matter, unless a file with the key exists.

        Raises `TrackerError`.
        """
        del since  # all files are searched
        draft = IssueDraft(title=new.title, state=new.state, description=new.body, labels=new.labels, key=key)

        def create() -> domain.Issue:
            return self._board.create(draft, None if self.numbers is None else self.numbers())

        return await to_thread.run_sync(create, limiter=self._writers)

    async def account_info(self) -> AccountInfo:
        """The folder and the states of the board. Raises `TrackerError` if the folder cannot be read."""
        await self._read(self._board.store.listing)
        return AccountInfo(login=None, scope=str(self.config.path), states=self.config.states)

    def _require(self, issue_id: str) -> None:
        if issue_id not in self._board.store.listing_of([issue_id]).files:
            raise missing(f"there is no issue {issue_id[:80]!r} in {self.config.path}")

    def _log_problems(self, issue_id: str, failures: Iterable[domain.Failure]) -> None:
        """Log malformed files, each problem once until it changes; `issue_id` is the issue of comments."""
        by_line = {failure.line: failure for failure in failures}
        for line in by_line.keys() - self._logged.pop(issue_id, frozenset()):
            failure = by_line[line]
            _LOG.warning("board_file_skipped", where=failure.where, problem=failure.message)
        if by_line:
            self._logged[issue_id] = frozenset(by_line)
            if len(self._logged) > _MAX_LOGGED:
                del self._logged[next(iter(self._logged))]

    async def _read(self, read: Callable[[], T]) -> T:
        """Run a read in a worker thread. A file system that hangs fails the call, not the daemon."""
        try:
            with anyio.fail_after(self._read_limit_s):
                return await to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._readers)
        except TimeoutError as error:
            raise TrackerError(
                domain.Failure(
                    category=domain.Category.TRACKER_REQUEST,
                    blame=domain.Blame.TRACKER,
                    message=f"{self.config.path}: not read within {self._read_limit_s:g} seconds",
                    hint="is the board on a network file system that hangs?",
                )
            ) from error


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} (cut at {limit} characters)"


class _MarkdownKind(TrackerKind):
    provider_keys = PROVIDER_KEYS
    tools = (SHOW, COMMENT, MOVE)

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

# --- changes of the folder -------------------------------------------------------------------------------
# Hints that the board changed: a wake-up with little delay, not a source of truth. The folder of the issues
# is watched, not recursively, and so are the comment folders that the caller names. In these only a new
# comment of a person counts. Temporary files are ignored. The parent of the folder, or else the nearest
# existing directory, is watched to notice when the folder is created, removed or replaced. A replaced folder
# that causes no event is noticed within half a second.

_DEBOUNCE_MS = 50
_STEP_MS = 25
_RECHECK_MS = 500
_PAUSE_S = 30.0
_LOG = structlog.get_logger(__name__)


class _Watched(NamedTuple):
    """What to watch; `folder_id` is device and inode of the folder, `None` without a folder."""

    folder_id: tuple[int, int] | None
    paths: tuple[Path, ...]
    comments: frozenset[Path] = frozenset()


async def folder_changes(
    folder: Path,
    comments: Callable[[], frozenset[Path]] = frozenset,
    *,
    pause_s: float = _PAUSE_S,
) -> AsyncGenerator[None, None]:
    """Yield when an issue file changed, and whenever a watch begins, because of earlier changes.

    Ends only by cancellation. If the system cannot watch (as without free inotify watches), logs it once and
    tries again after a pause; polling goes on meanwhile.

    Args:
        folder: the folder of the issues.
        comments: the folders in which a person's comment counts; a change restarts the watch.
        pause_s: the pause after a failure.
    """
    logged = False
    while True:
        try:
            async with aclosing(_watch(folder, comments)) as hints:
                async for _ in hints:
                    logged = False
                    yield
        except FileNotFoundError:
            await anyio.sleep(_RECHECK_MS / 1_000)
        except (OSError, RuntimeError) as error:
            if not logged:
                _LOG.warning("board_watch_failed", board=str(folder), error=str(error))
            logged = True
            await anyio.sleep(pause_s)


async def _watch(folder: Path, comments: Callable[[], frozenset[Path]]) -> AsyncGenerator[None, None]:
    """One watch, until the folder or the set of comment folders changes."""

    async def look() -> _Watched:
        return await to_thread.run_sync(_to_watch, folder, comments(), abandon_on_cancel=True)

    watched = await look()

    def counts(_: watchfiles.Change, name: str) -> bool:
        path = Path(name)
        if path.parent == folder:
            return is_issue_file(path.name)
        return path.parent not in watched.comments or is_persons_comment(path.name)

    to_thread.require()
    batches = watchfiles.awatch(
        *watched.paths,
        *watched.comments,
        watch_filter=counts,
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        rust_timeout=_RECHECK_MS,
        yield_on_timeout=True,
        recursive=False,
    )
    begun = False
    async with aclosing(batches):
        async for batch in batches:
            paths = {Path(name) for _, name in batch}
            news = any(path.parent == folder or path.parent in watched.comments for path in paths)
            if watched.folder_id is not None and (news or not begun):
                yield
            begun = True
            if folder in paths or await look() != watched:
                return


def _to_watch(folder: Path, comments: frozenset[Path]) -> _Watched:
    """Look at the disk, in a worker thread: a network file system may be slow."""
    try:
        info = folder.stat()
    except OSError:
        nearest = next((path for path in folder.parents if path.is_dir()), Path("/"))
        return _Watched(folder_id=None, paths=(nearest,))
    return _Watched(
        folder_id=(info.st_dev, info.st_ino),
        paths=(folder, folder.parent),
        comments=frozenset(path for path in comments if path.is_dir()),
    )
