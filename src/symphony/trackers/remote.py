"""Trackers over HTTP: what an adapter implements (`Flows`), and the tracker that runs it (`RemoteTracker`).

An adapter is pure: its flows say which requests to make and how to read the answers. `RemoteTracker` runs
them, each with its urgency, and remembers the last listing for when the rate limits forbid another one.
"""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import anyio
import structlog
from msgspec import Struct
from typing_extensions import override

from symphony.config import TrackerSettings
from symphony.domain import Failure, Issue, ToolResult, ToolSpec, normalise_state
from symphony.http import (
    PAUSE,
    SHARED,
    Flow,
    Http,
    HttpResponse,
    Page,
    PageGuard,
    Purpose,
    QuotaRemaining,
    RateLimiters,
    Request,
    ServiceProfile,
    Transport,
    all_pages,
    wall_ms,
    without_requests,
)
from symphony.trackers import raw_tools, tools
from symphony.trackers.base import AccountInfo, Comment, IssueToCreate, TrackerError, not_moved
from symphony.trackers.comments import agent_comment, agent_comment_key, without_markup
from symphony.trackers.deciding_labels import DecidingLabels, label_write, refusal
from symphony.trackers.fields import Listing, ReadIssue, listing, snapshots
from symphony.trackers.provider import ProviderSettings
from symphony.trackers.registry import States, TrackerContext, TrackerKind
from symphony.trackers.webhooks import WebhookScheme

_LOG = structlog.get_logger(__name__)
T = TypeVar("T")
S = TypeVar("S", bound=ProviderSettings)


# --- what an adapter implements --------------------------------------------------------------------------


class Flows(ABC, Generic[S]):
    """The requests of one adapter. Pure: no clock and no network; each method begins a new flow.

    Attributes:
        service: the profile of the service.
        id_pattern: matches the ids of issues and comments; no other id is ever sent.
        tool_name: the tool for raw API requests.
        tool_methods: the HTTP methods that the tool accepts.
        tool_prefix: the beginning of its paths.
        tool_suffix: the end of its paths.
        label_words: matches path steps and parts of keys that are about labels.
        label_scope: as `DecidingLabels.scope`.
        issue_step: the path step that an issue follows.
        deciding_labels: labels that the tool must not set or remove.
        creates: whether `create_issue` and `find_created` are implemented.
    """

    service: ServiceProfile
    id_pattern: ClassVar[re.Pattern[str]] = re.compile(r".+")
    tool_name: ClassVar[str]
    tool_methods: ClassVar[tuple[str, ...]] = ("GET", "POST", "PUT", "DELETE")
    tool_prefix: ClassVar[str] = "/"
    tool_suffix: ClassVar[str] = ""
    label_words: ClassVar[re.Pattern[str]] = re.compile(r"labels?", re.IGNORECASE)
    issue_step: ClassVar[str] = "issues"
    label_scope: ClassVar[str] = ""
    deciding_labels = DecidingLabels()
    creates: ClassVar[bool] = True

    def __init__(self, settings: S) -> None:
        self.settings = settings

    # --- reads

    @abstractmethod
    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """All issues in scope that are in one of the states; `states` is not empty."""

    @abstractmethod
    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """Current snapshots of these ids, each once; `ids` is not empty."""

    def id_of(self, identifier: str) -> Flow[str | None]:
        """The id of the issue with this identifier, if there is one.

        By default the identifier ends in the id.
        """
        return without_requests(identifier.rpartition("-")[2])

    @abstractmethod
    def account_info(self) -> Flow[AccountInfo]:
        """Account, scope and states, for `symphony tracker check`."""

    # --- comments

    @abstractmethod
    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """All comments of an issue, oldest first."""

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """The authors who may answer a question. By default none: the comments themselves say so."""
        del issue_id, author_keys
        return without_requests(frozenset[str]())

    @abstractmethod
    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """Write a comment and return its id. A service that accepts ids gets one made from `key`."""

    @abstractmethod
    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """Replace the text of a comment of the daemon's account."""

    # --- new issues

    def find_created(self, key: str, since: datetime) -> Flow[str | None]:
        """The id of the issue that the daemon created with this key after `since`, if there is one."""
        del key, since
        return without_requests(None)

    def create_issue(self, new: IssueToCreate, *, key: str) -> Flow[str]:
        """Create an issue with the key's mark, in its state if the service accepts one; return its id."""
        del new, key
        raise self.service.not_found("way to create issues here")

    def is_unplaced(self, issue: Issue) -> bool:
        """Whether an issue that was found by its key still waits for the move to its state.

        By default no issue does, because the service takes the state with a new issue. People and agents may
        already work on the issue, so in case of doubt it stays in its state.
        """
        del issue
        return False

    def place(self, issue_id: str, state: str) -> Flow[str]:
        """Move a new issue to its state, and return the state that was read back."""
        return self.move(issue_id, state)

    # --- moves and the raw tool

    @abstractmethod
    def move(self, issue_id: str, state: str) -> Flow[str]:
        """Move an issue, and return the state that was read back."""

    def tool_note(self) -> str:
        """What the model must know about the raw tool."""
        return ""

    def tools(self) -> tuple[ToolSpec, ...]:
        """The tool for raw API requests, unless `scope` is `off`."""
        if self.settings.scope is raw_tools.RawToolScope.OFF:
            return ()
        return (
            raw_tools.rest_spec(self.tool_name, self.service.name, self.tool_methods, note=self.tool_note()),
        )

    def call_tool(self, arguments: Mapping[str, Any], issue: Issue) -> Flow[ToolResult]:
        """Make a raw API request for the session of an issue; a refusal is an answer to the model."""
        call = raw_tools.rest_call(
            arguments, self.tool_methods, prefix=self.tool_prefix, suffix=self.tool_suffix
        )
        if isinstance(call, str):
            return ToolResult.error(call)
        if self.settings.scope is not raw_tools.RawToolScope.TOKEN:
            reach = yield from self.reach(call, issue)
            problem = raw_tools.scope_problem(call, reach, self.settings.scope)
            if problem is not None:
                return ToolResult.error(problem, category="out_of_scope", setting="tracker.provider.scope")
        if problem := (yield from self.label_problem(call, issue)):
            return refusal(problem)
        marked = self.mark_comment(call)
        if isinstance(marked, str):
            return ToolResult.error(marked)
        return (yield from raw_tools.rest_flow(marked, self.tool_name, mask=self.mask_answer))

    def reach(self, call: raw_tools.RestCall, issue: Issue) -> Flow[raw_tools.Reach]:
        """What a narrowed scope allows to the session of an issue; may ask the service about `call`."""
        del call, issue
        return without_requests(raw_tools.Reach(reads=()))

    def label_problem(self, call: raw_tools.RestCall, issue: Issue) -> Flow[str | None]:
        """Why the request may change a deciding label; asks the service for the names of ids."""
        write = label_write(call, self.label_words)
        if write is None:
            return None
        names = list(write.names)
        for label_id in dict.fromkeys(write.ids):
            found = yield from self.names_of_label(label_id)
            if found is None:
                return f"the name of label {label_id[:80]!r} is unknown"
            names += found
        named, target = self.deciding_labels.among(names), self._target(call, issue)
        if write.replaces and target is not None:
            present = self.deciding_labels.among((yield from self.issue(target)).labels)
            changed = named ^ present  # labels that stay are neither set nor removed
        elif write.replaces and call.method != "POST":
            return "the labels that it would remove are unknown"
        else:
            changed = named
        return f"only people set or remove {min(changed)[:80]!r}" if changed else None

    def names_of_label(self, label_id: str) -> Flow[Sequence[str] | None]:
        """The possible names of the label with this id; `None` if they are unknown."""
        del label_id
        return without_requests(None)

    def _target(self, call: raw_tools.RestCall, issue: Issue) -> str | None:
        """The id of the issue that a path leads to."""
        steps = iter(step.lower() for step in call.steps)
        found = next((next(steps, "") for step in steps if step == self.issue_step), "")
        return issue.id if found == issue.identifier.lower() else found or None

    def mark_comment(self, call: raw_tools.RestCall) -> raw_tools.RestCall | str:
        """The request with its comment marked as an agent's, or why that is not possible."""
        return call

    def mask_answer(self, body: Any) -> Any:
        """The body of an answer as the model may see it."""
        return body

    # --- for adapters

    def check_id(self, value: str) -> str:
        """Check an id that becomes part of a path. Raises `TrackerError` for any other text."""
        if not self.id_pattern.fullmatch(value):
            raise self.service.not_found(f"issue or comment {value!r}")
        return value

    def valid_ids(self, ids: Iterable[str]) -> list[str]:
        """The ids that can exist."""
        return [issue_id for issue_id in ids if self.id_pattern.fullmatch(issue_id)]

    def issue(self, issue_id: str) -> Flow[Issue]:
        """One issue. Raises `TrackerError` if it does not exist."""
        found = yield from self.by_ids([self.check_id(issue_id)])
        if not found:
            raise self.service.not_found(f"issue {issue_id}")
        return found[0]

    def listing(self, records: Sequence[Any], read: ReadIssue, states: Collection[str]) -> Flow[Listing]:
        """`fields.listing` of this service, with pauses, because a large board takes long to read."""
        issues: dict[str, Issue] = {}
        skipped: dict[str, Failure] = {}
        for some in batches(records, READ_AT_ONCE):
            found = listing(self.service.name, some, read, states=states)
            for issue in found.issues:
                issues.setdefault(issue.id, issue)
            skipped |= {failure.message: failure for failure in found.skipped}
            yield PAUSE
        return Listing(issues=tuple(issues.values()), skipped=tuple(skipped.values()))

    def snapshots(self, records: Iterable[Any], read: ReadIssue, ids: Iterable[str]) -> tuple[Issue, ...]:
        """`fields.snapshots` of this service."""
        return snapshots(self.service.name, records, read, wanted=ids)

    def pages(self, first: Request, read: Callable[[HttpResponse, PageGuard], Page]) -> Flow[list[Any]]:
        """`http.all_pages` of this service."""
        return all_pages(self.service, self.settings.access.base, first, read)


class ListingCache:
    """Keeps the last complete listing while the service reports no change, for `limit` polls at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._last: tuple[frozenset[str], Listing] | None = None
        self._uses = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no listing."""
        return self._last is None

    def reuse(self, states: Iterable[str], *, unchanged: bool) -> Listing | None:
        """The last listing of these states if nothing changed; otherwise drop it."""
        if unchanged and self._last and self._last[0] == _normalised(states) and self._uses < self._limit:
            self._uses += 1
            return self._last[1]
        self._last = None
        return None

    def keep(self, states: Iterable[str], listing: Listing) -> None:
        """Keep a complete listing of these states."""
        self._last, self._uses = (_normalised(states), listing), 1


def _normalised(states: Iterable[str]) -> frozenset[str]:
    return frozenset(map(normalise_state, states))


def batches(all_of_them: Sequence[T], size: int) -> Iterator[list[T]]:
    """Ids or records in lists of at most `size`."""
    return (list(all_of_them[start : start + size]) for start in range(0, len(all_of_them), size))


# --- the tracker -----------------------------------------------------------------------------------------


READ_AT_ONCE: Final = 100
"""How many records of a list are read before a pause: a few milliseconds of work."""
MAX_COMMENTS: Final = 1_000
"""How many comments are remembered: ids of written ones, and writes without an answer."""


class _LastPoll(Struct, frozen=True, kw_only=True):
    """The last listing, and what it spent of each limit."""

    states: frozenset[str]
    issues: tuple[Issue, ...]
    at_ms: int
    spent: Mapping[str, int]


class RemoteTracker:
    """Implements `Tracker` and the capabilities of `trackers.base` on the flows of one adapter."""

    def __init__(self, flows: Flows[Any], http: Http) -> None:
        self.flows, self.http = flows, http
        self._last_poll: _LastPoll | None = None
        self._skipped: tuple[Failure, ...] = ()
        self._created: dict[tuple[str, str], str] = {}
        self._unanswered: dict[str, tuple[str, str]] = {}

    # --- Tracker -----------------------------------------------------------------------------------------

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        """All issues in scope in these states; while the limits forbid a new listing, the last one."""
        wanted = {normalise_state(state): state.strip() for state in states if state.strip()}
        if not wanted:
            return ()
        limiter, last = self.http.rate_limiter, self._last_poll
        if last is not None and last.states == frozenset(wanted):
            age_ms = limiter.now_ms() - last.at_ms
            if 0 <= age_ms < limiter.poll_gap_ms(last.spent):
                return last.issues
        before = {quota.name: quota.remaining for quota in limiter.quota()}
        found = await self.http.run(self.flows.by_states(tuple(wanted.values())), purpose=Purpose.POLL)
        spent = {
            quota.name: before[quota.name] - quota.remaining
            for quota in limiter.quota()
            if quota.remaining < before.get(quota.name, 0)
        }
        self._last_poll = _LastPoll(
            states=frozenset(wanted), issues=found.issues, at_ms=limiter.now_ms(), spent=spent
        )
        logged = {failure.message for failure in self._skipped}
        for failure in found.skipped:
            if failure.message not in logged:
                _LOG.warning(
                    "tracker_record_skipped", tracker=self.flows.settings.kind, problem=failure.message
                )
        self._skipped = found.skipped
        return found.issues

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        """Current snapshots of these ids, each once."""
        wanted = tuple(dict.fromkeys(ids))
        if not wanted:
            return ()
        return await self.http.run(self.flows.by_ids(wanted), purpose=Purpose.REFRESH)

    async def find_issue(self, identifier: str) -> Issue | None:
        """The issue with this identifier; `None` if there is none in scope. Raises `TrackerError`."""
        issue_id = await self.http.run(self.flows.id_of(identifier), purpose=Purpose.REFRESH)
        found = await self.fetch_issues_by_ids([issue_id] if issue_id else [])
        return next((issue for issue in found if issue.identifier == identifier), None)

    def skipped(self) -> Sequence[Failure]:
        """The malformed records of the last listing."""
        return self._skipped

    def secret_environment_names(self) -> frozenset[str]:
        """The variables that may hold the credential."""
        settings: ProviderSettings = self.flows.settings
        return settings.secret_names()

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        """`issue_move`, `issue_comment`, `issue_comments`, and the raw tool of the adapter."""
        return (*tools.SPECS, *self.flows.tools())

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        """Run a tool with the daemon's credential. Never raises."""
        known = [spec.name for spec in self.agent_tool_specs()]
        if name not in known:
            return ToolResult.error(f"there is no tool {name[:80]!r}", supportedTools=known)
        try:
            match name:
                case tools.MOVE:
                    run = self._run_move_tool(arguments, issue)
                case tools.COMMENT:
                    run = self._run_comment_tool(arguments, issue)
                case tools.COMMENTS:
                    run = self._run_comments_tool(arguments, issue)
                case _:
                    run = self.http.run(self.flows.call_tool(arguments, issue), purpose=Purpose.TOOL)
            return await run
        except TrackerError as error:
            failure = error.failure
            details = {
                "category": failure.category.value,
                "hint": failure.hint,
                "status": failure.status,
                "retry_after_ms": failure.retry_after_ms,
            }
            return ToolResult.error(
                failure.message, **{key: value for key, value in details.items() if value}
            )
        except Exception as error:  # noqa: BLE001 - an unanswered call would stall the session
            return ToolResult.error(f"the tool failed: {type(error).__name__}")

    async def _run_move_tool(self, arguments: Mapping[str, Any], issue: Issue) -> ToolResult:
        if problem := tools.argument_problem(arguments, state=tools.MAX_STATE_CHARS):
            return ToolResult.error(problem)
        state = await self._move(issue.id, arguments["state"].strip(), purpose=Purpose.TOOL)
        return ToolResult.of({"issue": issue.identifier, "state": state})

    async def _run_comment_tool(self, arguments: Mapping[str, Any], issue: Issue) -> ToolResult:
        """Write a comment. If its last write got no answer, first check whether it exists."""
        if problem := tools.argument_problem(arguments, body=tools.MAX_COMMENT_CHARS):
            return ToolResult.error(problem)
        body = arguments["body"]
        unanswered, key = self._unanswered.pop(issue.id, ("", ""))
        comment_id = None
        try:
            if unanswered == body:
                comments = await self.http.run(self.flows.comments(issue.id), purpose=Purpose.TOOL)
                comment_id = next((each.id for each in comments if agent_comment_key(each) == key), None)
            else:
                key = secrets.token_hex(16)
            if comment_id is None:
                create = self.flows.create_comment(issue.id, agent_comment(body, key=key), key=key)
                comment_id = await self.http.run(create, purpose=Purpose.TOOL)
        except TrackerError:
            self._unanswered[issue.id] = (body, key)
            _drop_oldest(self._unanswered)
            raise
        return ToolResult.of({"issue": issue.identifier, "comment": comment_id}, commented=True)

    async def _run_comments_tool(self, arguments: Mapping[str, Any], issue: Issue) -> ToolResult:
        if problem := tools.argument_problem(arguments):
            return ToolResult.error(problem)
        comments = await self.http.run(self.flows.comments(issue.id), purpose=Purpose.TOOL)
        newest = comments[-tools.MAX_SHOWN_COMMENTS :]
        shown = [
            {
                "author": comment.author,
                "created_at": None if comment.created_at is None else comment.created_at.isoformat(),
                "body": comment.body[: tools.MAX_SHOWN_CHARS],
                "cut": len(comment.body) > tools.MAX_SHOWN_CHARS,
            }
            for comment in newest
        ]
        left_out = len(comments) - len(newest)
        return ToolResult.of({"issue": issue.identifier, "comments": shown, "left_out": left_out})

    async def changes(self) -> AsyncIterator[None]:
        """Never yields: the service is polled."""
        await anyio.sleep_forever()
        yield  # pragma: no cover - makes this an iterator

    # --- CommentCapability, AnswerCapability -------------------------------------------------------------

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        """All comments of an issue, oldest first. Raises `TrackerError`."""
        return await self.http.run(self.flows.comments(issue_id), purpose=Purpose.COMMENT)

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """The authors who may answer a question. Raises `TrackerError`."""
        wanted = tuple(dict.fromkeys(author_keys))
        if not wanted:
            return frozenset()
        return await self.http.run(self.flows.who_may_answer(issue_id, wanted), purpose=Purpose.COMMENT)

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Create or replace a comment; a repeated create with one key edits the first comment.

        Raises:
            TrackerError: the comment may not have been written; list the comments before the next attempt.
        """
        target = comment_id or self._created.get((issue_id, key))
        if not self.flows.service.has_code_fences:
            body = without_markup(body)
        if target is None:
            create = self.flows.create_comment(issue_id, body, key=key)
            target = await self.http.run(create, purpose=Purpose.COMMENT)
            self._created[issue_id, key] = target
            _drop_oldest(self._created)
            return target
        try:
            edit = self.flows.edit_comment(issue_id, target, body)
            await self.http.run(edit, purpose=Purpose.COMMENT)
        except TrackerError:
            self._created.pop((issue_id, key), None)  # it may have been deleted: the next attempt creates one
            raise
        return target

    # --- MovingCapability, AccountCapability -------------------------------------------------------------

    async def move_issue(self, issue_id: str, state: str) -> str:
        """Move an issue, and return the state that the service then reports.

        Raises:
            TrackerError: it failed, or the service accepted the move without carrying it out.
        """
        return await self._move(issue_id, state, purpose=Purpose.REFRESH)

    async def _move(self, issue_id: str, state: str, *, purpose: Purpose) -> str:
        found = await self.http.run(self.flows.move(issue_id, state), purpose=purpose)
        if normalise_state(found) != normalise_state(state):
            raise not_moved(self.flows.service.name, issue_id, wanted=state, found=found)
        return found

    def creation_problem(self) -> str | None:
        """Why no issues can be created."""
        return None if self.flows.creates else f"issues cannot be created at {self.flows.service.name} yet"

    async def create_issue(self, new: IssueToCreate, *, key: str, since: datetime) -> Issue:
        """Create an issue in its state, unless one with this key exists. Raises `TrackerError`."""
        run = partial(self.http.run, purpose=Purpose.COMMENT)
        if not self.flows.service.has_code_fences:
            new = replace(new, body=without_markup(new.body))
        issue_id = await run(self.flows.find_created(key, since))
        was_there = issue_id is not None
        if issue_id is None:
            issue_id = await run(self.flows.create_issue(new, key=key))
        found = await run(self.flows.by_ids([issue_id]))
        if found and normalise_state(found[0].state) == normalise_state(new.state):
            return found[0]
        if found and was_there and not self.flows.is_unplaced(found[0]):
            return found[0]
        state = await run(self.flows.place(issue_id, new.state))
        if normalise_state(state) != normalise_state(new.state):
            raise not_moved(self.flows.service.name, issue_id, wanted=new.state, found=state)
        return await run(self.flows.issue(issue_id))

    async def account_info(self) -> AccountInfo:
        """Account, scope and states. Raises `TrackerError`."""
        return await self.http.run(self.flows.account_info(), purpose=Purpose.REFRESH)

    def quota(self) -> tuple[QuotaRemaining, ...]:
        """What is left of the limits that the service reports."""
        return self.http.rate_limiter.quota()


def _drop_oldest(remembered: dict[Any, Any]) -> None:
    if len(remembered) > MAX_COMMENTS:
        del remembered[next(iter(remembered))]


# --- the kind --------------------------------------------------------------------------------------------


class RemoteKind(TrackerKind, Generic[S]):
    """A kind of tracker over HTTP, made of its settings and its flows.

    Attributes:
        settings_type: the model of `tracker.provider`.
        flows_type: the pure part of the adapter.
    """

    def __init__(
        self, settings: type[S], flows: type[Flows[S]], *, webhooks: WebhookScheme | None = None
    ) -> None:
        self.settings_type, self.flows_type = settings, flows
        self.provider_keys = settings.provider_keys()
        self.secret_names = settings.secret_names()
        self.tools = (*tools.NAMES, flows.tool_name)
        self.webhooks = webhooks

    @override
    def create(self, settings: TrackerSettings, context: TrackerContext) -> RemoteTracker:
        return self.connect(settings, context.environment, deciding_labels=context.deciding_labels)

    @override
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        read = self.settings_type.read(settings, context.environment)
        return States(active=read.active_states, terminal=read.terminal_states)

    def connect(
        self,
        settings: TrackerSettings,
        environment: Mapping[str, str],
        *,
        deciding_labels: frozenset[str] = frozenset(),
        transport: Transport | None = None,
        rate_limiters: RateLimiters = SHARED,
        now_ms: Callable[[], int] = wall_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> RemoteTracker:
        """Make the tracker, on any transport and clock. Raises `TrackerConfigError`."""
        flows = self.flows_type(self.settings_type.read(settings, environment))
        flows.deciding_labels = DecidingLabels(deciding_labels, flows.label_scope)
        access = flows.settings.access
        http = Http(
            base=access.base,
            service=flows.service,
            credential=access.credential,
            headers=access.headers,
            transport=transport,
            rate_limiters=rate_limiters,
            now_ms=now_ms,
            sleep=sleep,
        )
        return RemoteTracker(flows, http)
