"""A board in memory (kind `memory`), for tests, demos and other programs."""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import structlog
from typing_extensions import override

from symphony import domain
from symphony.config import TrackerSettings
from symphony.http.fields import MalformedRecordError, dig, instant, items, required, text, texts, whole
from symphony.trackers import base
from symphony.trackers.fields import tidy
from symphony.trackers.registry import States, TrackerContext, TrackerKind
from symphony.trackers.tools import MAX_STATE_CHARS, argument_problem, object_schema, text_schema

Record = Mapping[str, Any]
"""An issue as a map, with a key for each field of `Issue`."""

DEFAULT_ACTIVE = ("Todo", "In Progress")
DEFAULT_TERMINAL = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
"""Linear's states, as in the specification's test double."""

_MOVE = "memory_move"
_MAX_NAME = 80
_LOG = structlog.get_logger(__name__)


# --- from records to issues ------------------------------------------------------------------------------


def issue_of(record: domain.Issue | Record) -> domain.Issue:
    """The issue of a record. `id`, `title` and `state` are required; `identifier` is the id by default.

    A record that does not say `dispatchable: true` is held back. Optional values that cannot be used are
    `None` or empty.

    Raises:
        TrackerError: `tracker_response`: the record is malformed.
    """
    try:
        return tidy(record if isinstance(record, domain.Issue) else _read(record))
    except MalformedRecordError as error:
        issue_id = record.id if isinstance(record, domain.Issue) else record.get("id")
        failure = domain.Failure(
            category=domain.Category.TRACKER_RESPONSE,
            blame=domain.Blame.TRACKER,
            message=f"the record {str(issue_id)[:_MAX_NAME]!r} {error}",
            hint="replace it by a sound record",
        )
        raise base.TrackerError(failure, culprits=frozenset({str(issue_id)})) from error


def _read(record: Record) -> domain.Issue:
    issue_id = required(record, "id")
    dispatchable = record.get("dispatchable") is True
    reason = text(record.get("not_dispatchable_reason")) or "the record does not say that it is dispatchable"
    return domain.Issue(
        id=issue_id,
        identifier=required(record, "identifier") if "identifier" in record else issue_id,
        title=required(record, "title"),
        state=required(record, "state"),
        dispatchable=dispatchable,
        not_dispatchable_reason=None if dispatchable else reason,
        native_ref=_json_map(record.get("native_ref")),
        description=text(record.get("description")),
        priority=whole(record.get("priority")),
        branch_name=text(record.get("branch_name")),
        url=text(record.get("url")),
        assignee_id=text(record.get("assignee_id")),
        labels=domain.normalise_labels(texts(items(record.get("labels")))),
        blocked_by=tuple(filter(None, map(_blocker, items(record.get("blocked_by"))))),
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def _blocker(entry: object) -> domain.Blocker | None:
    """A blocker, by its name or as a map."""
    if isinstance(entry, str) and entry.strip():
        return domain.Blocker(id=entry.strip(), identifier=entry.strip())
    fields = {key: text(dig(entry, key)) for key in ("id", "identifier", "state")}
    return domain.Blocker(**fields) if any(fields.values()) else None


def _json_map(value: object) -> Mapping[str, Any] | None:
    """A copy of a map, or `None` for a value that is not JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False)) if isinstance(value, Mapping) else None
    except (TypeError, ValueError, RecursionError):
        return None


def read_issues(provider: Mapping[str, Any]) -> tuple[domain.Issue, ...]:
    """The issues of `tracker.provider.issues`.

    Raises:
        TrackerConfigError: with one problem for each invalid record.
    """
    records = provider.get("issues", [])
    if not isinstance(records, list):
        raise base.TrackerConfigError([_problem((), "must be a list of maps")])
    problems: list[base.ConfigProblem] = []
    found: dict[str, domain.Issue] = {}
    for index, record in enumerate(records):
        if not isinstance(record, Mapping):
            problems.append(_problem((index,), "must be a map"))
            continue
        try:
            issue = tidy(_read(record))
        except MalformedRecordError as error:
            problems.append(_problem((index,), str(error)))
            continue
        if issue.id in found:
            problems.append(_problem((index,), f"has the id {issue.id[:_MAX_NAME]!r} of another one"))
        found[issue.id] = issue
    if problems:
        raise base.TrackerConfigError(problems)
    return tuple(found.values())


def _problem(at: tuple[int, ...], problem: str) -> base.ConfigProblem:
    name = "".join(["tracker.provider.issues", *(f"[{index}]" for index in at)])
    return base.ConfigProblem(
        location=("tracker", "provider", "issues", *at),
        failure=domain.Failure(
            category=domain.Category.INVALID_TRACKER_CONFIG,
            blame=domain.Blame.CONFIG,
            message=f"{name} {problem}",
            retryable=False,
            hint="an issue is a map with id, title, state and dispatchable: true",
        ),
    )


# --- the tracker -----------------------------------------------------------------------------------------


class MemoryTracker:
    """Issues and comments of this process, in the order in which they were added.

    Implements `Tracker` and every capability. Code changes the board with `put`, `move`, `remove` and
    `comment`; each change makes `changes` yield.
    """

    def __init__(self, issues: Iterable[domain.Issue | Record] = ()) -> None:
        self._records: dict[str, domain.Issue | Record] = {}
        self._comments: dict[str, dict[str, base.Comment]] = {}
        self._created: dict[tuple[str, str], str] = {}
        self._issues_by_key: dict[str, str] = {}
        self._skipped: tuple[domain.Failure, ...] = ()
        self._numbers = count(1)
        self._changed = anyio.Event()
        for issue in issues:
            self.put(issue)

    # --- from code ---------------------------------------------------------------------------------------

    def put(self, issue: domain.Issue | Record) -> None:
        """Add an issue or replace the one with its id. A record may be malformed."""
        if isinstance(issue, domain.Issue):
            self._records[issue.id] = issue
        else:
            self._records[str(issue.get("id"))] = deepcopy(dict(issue))
        self._changed.set()

    def move(self, issue_id: str, state: str) -> str:
        """Move an issue and return its old state. Raises `TrackerError` if there is no such issue."""
        record = self._require(issue_id)
        if isinstance(record, domain.Issue):
            before, self._records[issue_id] = record.state, replace(record, state=state)
        else:
            before, self._records[issue_id] = str(record.get("state")), {**record, "state": state}
        self._changed.set()
        return before

    def remove(self, issue_id: str) -> None:
        """Remove an issue and its comments, if it exists."""
        self._records.pop(issue_id, None)
        self._comments.pop(issue_id, None)
        self._created = {made: name for made, name in self._created.items() if made[0] != issue_id}
        self._changed.set()

    def comment(
        self, issue_id: str, body: str, *, author: str = "unknown author", may_answer: bool | None = True
    ) -> str:
        """Add a comment that is not the daemon's, and return its id. Raises `TrackerError`.

        If `may_answer` is `None`, the author is a stranger, who may not answer questions.
        """
        self._require(issue_id)
        comment_id = f"c{next(self._numbers)}"
        self._comments.setdefault(issue_id, {})[comment_id] = base.Comment(
            id=comment_id,
            body=body,
            mine=False,
            author=author,
            author_key=author,
            may_answer=may_answer,
            created_at=datetime.now(UTC),
        )
        self._changed.set()
        return comment_id

    # --- Tracker -----------------------------------------------------------------------------------------

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[domain.Issue]:
        """The issues in these states, in the order in which they were added."""
        wanted = {domain.normalise_state(state) for state in states if state.strip()}
        await anyio.lowlevel.checkpoint()
        if not wanted:
            return ()
        issues: list[domain.Issue] = []
        skipped: list[domain.Failure] = []
        for issue_id, record in self._records.items():
            try:
                issues.append(issue_of(record))
            except base.TrackerError as error:
                problem = error.failure.message
                _LOG.warning("memory_record_skipped", record=issue_id[:_MAX_NAME], problem=problem)
                skipped.append(error.failure)
        self._skipped = tuple(skipped)
        return tuple(issue for issue in issues if domain.normalise_state(issue.state) in wanted)

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[domain.Issue]:
        """Current snapshots; unknown ids are omitted, a malformed record fails the call."""
        await anyio.lowlevel.checkpoint()
        wanted = set(ids)
        return tuple(issue_of(record) for issue_id, record in self._records.items() if issue_id in wanted)

    async def find_issue(self, identifier: str) -> domain.Issue | None:
        """The issue with this identifier. Raises `TrackerError` if its record is malformed."""
        found = await self.fetch_issues_by_ids(
            [
                issue_id
                for issue_id, record in self._records.items()
                if identifier
                == (
                    record.identifier
                    if isinstance(record, domain.Issue)
                    else record.get("identifier", issue_id)
                )
            ]
        )
        return next(iter(found), None)

    def skipped(self) -> Sequence[domain.Failure]:
        """The malformed records of the last listing."""
        return self._skipped

    def secret_environment_names(self) -> frozenset[str]:
        """Empty: there are no credentials."""
        return frozenset()

    def agent_tool_specs(self) -> tuple[domain.ToolSpec, ...]:
        """`memory_move`, so that a session can finish its issue."""
        return (
            domain.ToolSpec(
                name=_MOVE,
                description="Move the issue you are working on to another state.",
                input_schema=object_schema({"state": text_schema(MAX_STATE_CHARS)}),
            ),
        )

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: domain.Issue
    ) -> domain.ToolResult:
        """Run the tool on the session's own issue. Never raises."""
        await anyio.lowlevel.checkpoint()
        if name != _MOVE:
            return domain.ToolResult.error(f"there is no tool {name[:_MAX_NAME]!r}", supportedTools=[_MOVE])
        if problem := argument_problem(arguments, state=MAX_STATE_CHARS):
            return domain.ToolResult.error(problem)
        state = arguments["state"].strip()
        try:
            before = self.move(issue.id, state)
        except base.TrackerError as error:
            return domain.ToolResult.error(error.failure.message)
        return domain.ToolResult.of({"issue": issue.identifier, "before": before, "state": state})

    async def changes(self) -> AsyncIterator[None]:
        """A hint after each change; ends only by cancellation."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            yield

    # --- capabilities ------------------------------------------------------------------------------------

    async def list_comments(self, issue_id: str) -> Sequence[base.Comment]:
        """All comments, oldest first. Raises `TrackerError` if there is no such issue."""
        await anyio.lowlevel.checkpoint()
        self._require(issue_id)
        return tuple(self._comments.get(issue_id, {}).values())

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """Always empty: `may_answer` of each comment already decides it."""
        del issue_id, author_keys
        await anyio.lowlevel.checkpoint()
        return frozenset()

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Write a comment of the daemon; repeated creates with one key give one comment.

        Raises:
            TrackerError: there is no such issue, or the comment is not the daemon's.
        """
        await anyio.lowlevel.checkpoint()
        self._require(issue_id)
        comments = self._comments.setdefault(issue_id, {})
        if comment_id is None:
            comment_id = self._created.get((issue_id, key), "")
            if comment_id not in comments:
                comment_id = f"c{next(self._numbers)}"
        elif comment_id not in comments or not comments[comment_id].mine:
            raise _missing(
                f"there is no comment {comment_id[:_MAX_NAME]!r} of the daemon on {issue_id[:_MAX_NAME]!r}"
            )
        comments[comment_id] = base.Comment(id=comment_id, body=body, mine=True)
        self._created[issue_id, key] = comment_id
        return comment_id

    async def move_issue(self, issue_id: str, state: str) -> str:
        """Move an issue and return its new state. Raises `TrackerError`."""
        await anyio.lowlevel.checkpoint()
        self.move(issue_id, state)
        return state

    def creation_problem(self) -> str | None:
        """`None`: issues can be created, but are lost at a restart."""
        return None

    async def create_issue(self, new: base.IssueToCreate, *, key: str, since: datetime) -> domain.Issue:
        """Add an issue, once for each key."""
        del since
        await anyio.lowlevel.checkpoint()
        issue_id = self._issues_by_key.get(key)
        if issue_id not in self._records:
            issue_id = next(
                name for number in self._numbers if (name := f"MEM-{number}") not in self._records
            )
            self._issues_by_key[key] = issue_id
            self.put(
                domain.Issue(
                    id=issue_id,
                    identifier=issue_id,
                    title=new.title,
                    state=new.state,
                    dispatchable=True,
                    description=new.body,
                    labels=domain.normalise_labels(new.labels),
                    created_at=datetime.now(UTC),
                )
            )
        return issue_of(self._records[issue_id])

    async def account_info(self) -> base.AccountInfo:
        """No account; any state is legal."""
        await anyio.lowlevel.checkpoint()
        return base.AccountInfo(login=None, scope="this process", states=())

    def _require(self, issue_id: str) -> domain.Issue | Record:
        try:
            return self._records[issue_id]
        except KeyError as error:
            raise _missing(f"there is no issue {issue_id[:_MAX_NAME]!r}") from error


def _missing(message: str) -> base.TrackerError:
    return base.TrackerError(
        domain.Failure(
            category=domain.Category.TRACKER_STATUS,
            blame=domain.Blame.TRACKER,
            message=message,
            retryable=False,
            hint="a board of kind memory starts again with every start and reload",
        )
    )


# --- the kind --------------------------------------------------------------------------------------------


class _MemoryKind(TrackerKind):
    provider_keys = ("issues",)
    tools = (_MOVE,)

    @override
    def create(self, settings: TrackerSettings, context: TrackerContext) -> MemoryTracker:
        return MemoryTracker(read_issues(settings.provider))

    @override
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        read_issues(settings.provider)
        active, terminal = settings.active_states, settings.terminal_states
        return States(
            active=DEFAULT_ACTIVE if active is None else active,
            terminal=DEFAULT_TERMINAL if terminal is None else terminal,
        )


KIND = _MemoryKind()
