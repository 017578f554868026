"""The tracker of records in memory: the whole contract of `trackers.base`, without a file or a network."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import structlog

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue, normalise_state
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.base import Comment, Sighting, TrackerError
from symphony.trackers.memory.records import Record, issue_of

__all__ = ["DEFAULT_ACTIVE", "DEFAULT_TERMINAL", "PROVIDER_KEYS", "MemoryTracker"]

PROVIDER_KEYS = ("issues",)
DEFAULT_ACTIVE = ("Todo", "In Progress")
DEFAULT_TERMINAL = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
"""Linear's states, as the specification's test double has them (CF12)."""

_MAX_STATE_CHARS = 200
_MOVE = "memory_move"
_LOG = structlog.get_logger(__name__)


class MemoryTracker:
    """Issues and comments of this process, in the order in which they came.

    Implements `Tracker` and every capability. What calls it from code changes the board with `put`,
    `move`, `remove` and `comment`, and who listens to `changes` is told.
    """

    def __init__(self, issues: Iterable[Issue | Record] = ()) -> None:
        self._records: dict[str, Record] = {}
        self._comments: dict[str, dict[str, Comment]] = {}
        self._created: dict[tuple[str, str], str] = {}
        self._skipped: tuple[Failure, ...] = ()
        self._numbers = count(1)
        self._changed = anyio.Event()
        for issue in issues:
            self.put(issue)

    # --- from code ---------------------------------------------------------------------------------------

    def put(self, issue: Issue | Record) -> None:
        """Add an issue or replace the one with its id. A record may be malformed, as a provider's may."""
        record = asdict(issue) if isinstance(issue, Issue) else deepcopy(dict(issue))
        self._records[str(record.get("id"))] = record
        self._tell()

    def move(self, issue_id: str, state: str) -> str:
        """Give an issue another state and return the old one. Raises `TrackerError` without such an issue."""
        record = self._present(issue_id)
        self._records[issue_id] = {**record, "state": state}
        self._tell()
        return str(record.get("state"))

    def remove(self, issue_id: str) -> None:
        """Take an issue and its comments away; nothing happens where there is none."""
        self._records.pop(issue_id, None)
        self._comments.pop(issue_id, None)
        self._created = {made: name for made, name in self._created.items() if made[0] != issue_id}
        self._tell()

    def comment(
        self, issue_id: str, body: str, *, author: str = "somebody", may_answer: bool | None = True
    ) -> str:
        """Add somebody else's comment and return its id. Raises `TrackerError` where there is no issue.

        With `may_answer` `None` the author is a stranger, whose words are shown and not obeyed.
        """
        self._present(issue_id)
        name = self._write(issue_id, body, comment_id=None, mine=False)
        self._comments[issue_id][name] = replace(
            self._comments[issue_id][name], author=author, author_key=author, may_answer=may_answer
        )
        self._tell()
        return name

    # --- Tracker -----------------------------------------------------------------------------------------

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        """Issues in these states, in the order in which they came; malformed ones are skipped and logged."""
        wanted = {normalise_state(state) for state in states if state.strip()}
        await anyio.lowlevel.checkpoint()
        if not wanted:
            return ()
        found = [_read(record) for record in self._records.values()]
        self._skipped = tuple(each for each in found if isinstance(each, Failure))
        issues = (each for each in found if isinstance(each, Issue))
        return tuple(issue for issue in issues if normalise_state(issue.state) in wanted)

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        """Current snapshots; an id that is not there is omitted, a malformed record fails the call."""
        await anyio.lowlevel.checkpoint()
        return tuple(issue_of(self._records[issue_id]) for issue_id in self._records if issue_id in set(ids))

    def skipped(self) -> Sequence[Failure]:
        """The malformed records of the last list, in the order in which they came."""
        return self._skipped

    def secret_environment_names(self) -> frozenset[str]:
        """None: there is nothing to log in to."""
        return frozenset()

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        """`memory_move`, without which a session could never finish."""
        state = {"type": "string", "minLength": 1, "maxLength": _MAX_STATE_CHARS}
        return (
            ToolSpec(
                name=_MOVE,
                description="Move the issue you are working on to another state.",
                input_schema={
                    "type": "object",
                    "properties": {"state": state},
                    "required": ["state"],
                    "additionalProperties": False,
                },
            ),
        )

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        """Run the tool on the session's own issue; never raises."""
        await anyio.lowlevel.checkpoint()
        if name != _MOVE:
            return ToolResult.error(f"there is no tool {name[:80]!r}", supportedTools=[_MOVE])
        given: object = arguments
        state = given["state"] if isinstance(given, Mapping) and set(given) == {"state"} else None
        if not isinstance(state, str) or not state.strip() or len(state) > _MAX_STATE_CHARS:
            return ToolResult.error(f"the argument is `state`, a text of 1 to {_MAX_STATE_CHARS} characters")
        try:
            before = self.move(issue.id, state.strip())
        except TrackerError as error:
            return ToolResult.error(error.failure.message)
        return ToolResult.of({"issue": issue.identifier, "before": before, "state": state.strip()})

    async def changes(self) -> AsyncIterator[None]:
        """A hint after each change; ends only by cancellation."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            yield

    # --- CommentCapability -------------------------------------------------------------------------------

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        """All comments, oldest first. Raises `TrackerError` where there is no such issue."""
        await anyio.lowlevel.checkpoint()
        self._present(issue_id)
        return tuple(self._comments.get(issue_id, {}).values())

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """Nobody: who may answer is said with each comment."""
        del issue_id, author_keys
        await anyio.lowlevel.checkpoint()
        return frozenset()

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Write a comment of the daemon's own; a repeated create with one key gives one comment.

        Raises:
            TrackerError: there is no such issue, or the comment is not one of ours.
        """
        await anyio.lowlevel.checkpoint()
        self._present(issue_id)
        target = comment_id or self._created.get((issue_id, key))
        old = None if target is None else self._comments.get(issue_id, {}).get(target)
        if comment_id is not None and (old is None or not old.mine):
            raise _missing(f"there is no comment {comment_id[:80]!r} of ours on {issue_id[:80]!r}")
        name = self._write(issue_id, body, comment_id=None if old is None else old.id, mine=True)
        self._created[issue_id, key] = name
        return name

    # --- MovingCapability, CheckingCapability ------------------------------------------------------------

    async def move_issue(self, issue_id: str, state: str) -> str:
        """As `move`, for the daemon; returns the state that the record has then. Raises `TrackerError`."""
        await anyio.lowlevel.checkpoint()
        self.move(issue_id, state)
        return str(self._records[issue_id]["state"])

    async def look(self) -> Sighting:
        """No states are named: any name is one."""
        await anyio.lowlevel.checkpoint()
        return Sighting(login=None, scope="this process", states=())

    # --- within ------------------------------------------------------------------------------------------

    def _present(self, issue_id: str) -> Record:
        try:
            return self._records[issue_id]
        except KeyError as error:
            raise _missing(f"there is no issue {issue_id[:80]!r}") from error

    def _write(self, issue_id: str, body: str, *, comment_id: str | None, mine: bool) -> str:
        name = comment_id or f"c{next(self._numbers)}"
        self._comments.setdefault(issue_id, {})[name] = Comment(id=name, body=body, mine=mine)
        return name

    def _tell(self) -> None:
        self._changed.set()


def _read(record: Record) -> Issue | Failure:
    try:
        return issue_of(record)
    except TrackerError as error:
        _LOG.warning(
            "memory_record_skipped", record=str(record.get("id"))[:80], problem=error.failure.message
        )
        return error.failure


def _missing(message: str) -> TrackerError:
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=message,
            retryable=False,
            hint="the board of kind memory begins anew with every start and reload",
        )
    )
