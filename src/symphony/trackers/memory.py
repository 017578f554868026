"""A board that lives in this process (kind `memory`), for tests, demos and programs of others."""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from datetime import datetime
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import structlog
from typing_extensions import override

from symphony.config import TrackerSettings
from symphony.domain import (
    Blame,
    Blocker,
    Category,
    Failure,
    Issue,
    ToolResult,
    ToolSpec,
    normalise_labels,
    normalise_state,
)
from symphony.trackers.base import AccountInfo, Comment, ConfigProblem, TrackerConfigError, TrackerError
from symphony.trackers.fields import MalformedRecordError, tidy
from symphony.trackers.registry import States, TrackerContext, TrackerKind

# From a record, which is a map like one of a provider's answers, to an issue (DM1-DM9, TR4). Pure.
#
# Mapping (TR10): every field of an issue has a key of its name. `id`, `title` and `state` are required;
# `identifier` is the id unless it is given. `dispatchable` has no default of true (DM2): a record that does
# not say so is held back. Optional values that cannot be used are null or empty.


Record = Mapping[str, Any]
_HELD_BACK = "the record does not say that it is dispatchable"
_MAX_PRIORITY = 1_000_000
_SHOWN = 80


def issue_of(record: Record) -> Issue:
    """The issue of a record.

    Raises:
        TrackerError: `tracker_response`: the record is malformed; its id is the culprit, where it has one.
    """
    try:
        return _read(record)
    except MalformedRecordError as error:
        issue_id = record.get("id")
        failure = Failure(
            category=Category.TRACKER_RESPONSE,
            blame=Blame.TRACKER,
            message=f"the record {str(issue_id)[:_SHOWN]!r} {error}",
            hint="put a sound record in its place",
        )
        culprits = frozenset({issue_id} if isinstance(issue_id, str) else ())
        raise TrackerError(failure, culprits=culprits) from error


def _read(record: Record) -> Issue:
    issue_id = _required(record, "id")
    dispatchable = record.get("dispatchable") is True
    reason = _text(record.get("not_dispatchable_reason")) or _HELD_BACK
    issue = Issue(
        id=issue_id,
        identifier=_required(record, "identifier") if "identifier" in record else issue_id,
        title=_required(record, "title"),
        state=_required(record, "state"),
        dispatchable=dispatchable,
        not_dispatchable_reason=None if dispatchable else reason,
        native_ref=_json_map(record.get("native_ref")),
        description=_text(record.get("description")),
        priority=_whole(record.get("priority")),
        branch_name=_text(record.get("branch_name")),
        url=_text(record.get("url")),
        assignee_id=_text(record.get("assignee_id")),
        labels=normalise_labels(label for label in _items(record.get("labels")) if isinstance(label, str)),
        blocked_by=tuple(_blockers(record.get("blocked_by"))),
        created_at=_instant(record.get("created_at")),
        updated_at=_instant(record.get("updated_at")),
    )
    return tidy(issue)


def issues_of(provider: Mapping[str, Any]) -> tuple[Record, ...]:
    """The records of `tracker.provider.issues`, all of them sound; none where there is no such key.

    Raises:
        TrackerConfigError: `invalid_tracker_config`, one problem for each record that does not fit.
    """
    given = provider.get("issues", [])
    if not isinstance(given, list):
        raise TrackerConfigError([_problem((), "must be a list of maps")])
    problems: list[ConfigProblem] = []
    seen: dict[str, Record] = {}
    for index, record in enumerate(given):
        if wrong := _wrong(record, seen):
            problems.append(_problem((index,), wrong))
        else:
            seen[record["id"]] = record
    if problems:
        raise TrackerConfigError(problems)
    return tuple(seen.values())


def _wrong(record: object, seen: Mapping[str, Record]) -> str | None:
    if not isinstance(record, Mapping):
        return "must be a map"
    try:
        issue = _read(record)
    except MalformedRecordError as error:
        return str(error)
    return f"has the id {issue.id[:_SHOWN]!r} of another one" if issue.id in seen else None


def _problem(at: tuple[int, ...], problem: str) -> ConfigProblem:
    name = "".join(["tracker.provider.issues", *(f"[{index}]" for index in at)])
    return ConfigProblem(
        location=("tracker", "provider", "issues", *at),
        failure=Failure(
            category=Category.INVALID_TRACKER_CONFIG,
            blame=Blame.CONFIG,
            message=f"{name} {problem}",
            retryable=False,
            hint="an issue is a map with id, title, state and dispatchable: true",
        ),
    )


def _required(record: Record, key: str) -> str:
    value = record.get(key)
    if isinstance(value, str) and value.strip():
        return value.strip()
    problem = f"has no {key}" if value is None else f"needs {key} to be a text that is not empty"
    raise MalformedRecordError(problem)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) <= _MAX_PRIORITY and value == int(value) else None


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else ()


def _blockers(value: object) -> Iterable[Blocker]:
    for entry in _items(value):
        match entry:
            case str() if entry.strip():
                yield Blocker(id=entry.strip(), identifier=entry.strip())
            case Mapping():
                fields = {name: _text(entry.get(name)) for name in ("id", "identifier", "state")}
                if any(fields.values()):
                    yield Blocker(**fields)
            case _:
                continue


def _json_map(value: object) -> Mapping[str, Any] | None:
    """A copy that nobody else holds, or null: what is not JSON cannot be passed on (DM5)."""
    if not isinstance(value, Mapping):
        return None
    try:
        copy = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None
    return copy if isinstance(copy, dict) else None


def _instant(value: object) -> datetime | None:
    """RFC 3339 with an offset, or null (DM8)."""
    if isinstance(value, str) and "T" in value:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, datetime) and value.tzinfo is not None else None


# The tracker of records in memory: the whole contract of `trackers.base`, without a file or a network.


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
        found = [_issue_or_failure(record) for record in self._records.values()]
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

    # --- MovingCapability, AccountCapability ------------------------------------------------------------

    async def move_issue(self, issue_id: str, state: str) -> str:
        """As `move`, for the daemon; returns the state that the record has then. Raises `TrackerError`."""
        await anyio.lowlevel.checkpoint()
        self.move(issue_id, state)
        return str(self._records[issue_id]["state"])

    async def account_info(self) -> AccountInfo:
        """No states are named: any name is one."""
        await anyio.lowlevel.checkpoint()
        return AccountInfo(login=None, scope="this process", states=())

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


def _issue_or_failure(record: Record) -> Issue | Failure:
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


# What the registry is told of the kind `memory`.


class _MemoryKind(TrackerKind):
    provider_keys = PROVIDER_KEYS
    tools = ("memory_move",)

    @override
    def create(self, settings: TrackerSettings, context: TrackerContext) -> MemoryTracker:
        return MemoryTracker(issues_of(settings.provider))

    @override
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        issues_of(settings.provider)
        active, terminal = settings.active_states, settings.terminal_states
        return States(
            active=DEFAULT_ACTIVE if active is None else active,
            terminal=DEFAULT_TERMINAL if terminal is None else terminal,
        )


KIND = _MemoryKind()
