"""A tracker that is asked over HTTP: the contract once, for every adapter that says what to ask (TR1-TR9).

An adapter is pure: its `Flows` say which requests to make and how to read the answers. `RemoteTracker` runs
them, with the urgency that each has, and knows what was last seen.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import anyio
import structlog
from typing_extensions import override

from symphony.config import TrackerSettings
from symphony.domain import Failure, Issue, ToolResult, ToolSpec, normalise_state
from symphony.trackers import tools
from symphony.trackers.base import AccountInfo, Comment, TrackerError, not_moved
from symphony.trackers.comments import agent_comment, agent_comment_key, defused
from symphony.trackers.fields import Listing
from symphony.trackers.http import (
    SHARED,
    Flow,
    Http,
    Purpose,
    RateLimiters,
    ServiceProfile,
    Traffic,
    Transport,
    wall_ms,
)
from symphony.trackers.registry import States, TrackerContext, TrackerKind
from symphony.trackers.webhooks import WebhookScheme

_LOG = structlog.get_logger(__name__)
_C = TypeVar("_C", bound="RemoteConfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a service is reached: base address, credential, and the headers that carry it."""

    base: str
    credential: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


class RemoteConfig(Protocol):
    """What an adapter makes of `tracker`."""

    @property
    def active(self) -> tuple[str, ...]:
        """States in which an issue is worked on."""
        ...

    @property
    def terminal(self) -> tuple[str, ...]:
        """States in which an issue is over."""
        ...

    @property
    def access(self) -> Access:
        """How the service is reached."""
        ...


class Flows(Protocol):
    """What to ask of one service. Pure: no clock, no network; each method begins a new flow."""

    @property
    def kind(self) -> str:
        """The kind of the tracker (`github`)."""
        ...

    @property
    def dialect(self) -> ServiceProfile:
        """What is particular to the service."""
        ...

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """Every issue in scope in one of the states; never called without a state."""
        ...

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """Current snapshots of these ids, each given once; never called without an id."""
        ...

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """All comments, from all pages, oldest first."""
        ...

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """Which of these authors may answer a question; never called without one."""
        ...

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """Write a comment; where the service takes an id of our own, make it from `key`. Returns its id."""
        ...

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """Replace the text of a comment of ours."""
        ...

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """Give an issue another state, and return the state that was read back."""
        ...

    def account_info(self) -> Flow[AccountInfo]:
        """Who we are there, what is in scope, and which states there are; for `symphony tracker check`."""
        ...

    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools for agents that only this adapter has; those of `issue_tools` come on top."""
        ...

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """Run one of `tools`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteKind(TrackerKind, Generic[_C]):
    """One kind of tracker that is asked over HTTP.

    Attributes:
        configure: reads the settings. Raises `TrackerConfigError`.
        flows: makes the pure part.
    """

    provider_keys: tuple[str, ...]
    secret_names: frozenset[str]
    tools: tuple[str, ...]
    configure: Callable[[TrackerSettings, Mapping[str, str]], _C]
    flows: Callable[[_C], Flows]
    webhooks: WebhookScheme | None = None

    @override
    def create(self, settings: TrackerSettings, context: TrackerContext) -> "RemoteTracker":
        return self.connect(settings, context.environment)

    @override
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        config = self.configure(settings, context.environment)
        return States(active=config.active, terminal=config.terminal)

    def connect(
        self,
        settings: TrackerSettings,
        environment: Mapping[str, str],
        *,
        transport: Transport | None = None,
        governors: RateLimiters = SHARED,
        now_ms: Callable[[], int] = wall_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> "RemoteTracker":
        """Make the tracker, on a transport and with a clock of one's own. Raises `TrackerConfigError`."""
        config = self.configure(settings, environment)
        flows = self.flows(config)
        http = Http(
            base=config.access.base,
            dialect=flows.dialect,
            credential=config.access.credential,
            headers=config.access.headers,
            transport=transport,
            governors=governors,
            now_ms=now_ms,
            sleep=sleep,
        )
        return RemoteTracker(flows, http, secret_names=self.secret_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The last list, for when the limits forbid to ask again so soon."""

    states: frozenset[str]
    issues: tuple[Issue, ...]
    at_ms: int
    spent: Mapping[str, int]


class RemoteTracker:
    """Implements `Tracker` and the capabilities of `trackers.base` on the flows of one adapter."""

    def __init__(self, flows: Flows, http: Http, *, secret_names: frozenset[str]) -> None:
        self.flows, self.http = flows, http
        self._secret_names = secret_names
        self._skipped: tuple[Failure, ...] = ()
        self._told: frozenset[str] = frozenset()
        self._seen: _Seen | None = None
        self._created: dict[tuple[str, str], str] = {}
        self._unanswered: dict[str, tuple[str, str]] = {}

    # --- Tracker -----------------------------------------------------------------------------------------

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        """Every issue in scope in these states; the last list again where the limits ask for longer gaps."""
        wanted = {normalise_state(state): state.strip() for state in states if state.strip()}
        if not wanted:
            return ()
        known = self._still_good(frozenset(wanted))
        if known is not None:
            return known
        before = {left.name: left.remaining for left in self.http.governor.left()}
        listing = await self.http.run(self.flows.by_states(tuple(wanted.values())), purpose=Purpose.POLL)
        after = {left.name: left.remaining for left in self.http.governor.left()}
        self._tell(listing.skipped)
        self._seen = _Seen(
            states=frozenset(wanted),
            issues=listing.issues,
            at_ms=self.http.governor.now_ms(),
            spent={
                name: before[name] - left for name, left in after.items() if left < before.get(name, left)
            },
        )
        return listing.issues

    def _still_good(self, states: frozenset[str]) -> tuple[Issue, ...] | None:
        governor, seen = self.http.governor, self._seen
        if seen is None or seen.states != states:
            return None
        age_ms = governor.now_ms() - seen.at_ms
        return seen.issues if 0 <= age_ms < governor.poll_gap_ms(seen.spent) else None

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        """Current snapshots of these ids, each at most once."""
        wanted = tuple(dict.fromkeys(ids))
        if not wanted:
            return ()
        return await self.http.run(self.flows.by_ids(wanted), purpose=Purpose.REFRESH)

    def skipped(self) -> Sequence[Failure]:
        """The malformed records of the last list."""
        return self._skipped

    def secret_environment_names(self) -> frozenset[str]:
        """The variables that may hold the credential."""
        return self._secret_names

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        """`issue_move` and `issue_comment`, then the tools of the adapter."""
        return (*tools.SPECS, *self.flows.tools())

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        """Run one tool with the daemon's credential; never raises."""
        known = [spec.name for spec in self.agent_tool_specs()]
        if name not in known:
            return ToolResult.error(f"there is no tool {name[:80]!r}", supportedTools=known)
        try:
            match name:
                case tools.MOVE:
                    return await self._agent_moves(arguments, issue)
                case tools.COMMENT:
                    return await self._agent_comments(arguments, issue)
                case _:
                    flow = self.flows.call(name, arguments, issue=issue)
                    return await self.http.run(flow, purpose=Purpose.TOOL)
        except TrackerError as error:
            return _told(error)
        except Exception as error:  # noqa: BLE001 - a call that is not answered would stall the session (AG18)
            return ToolResult.error(f"the tool failed: {type(error).__name__}")

    async def _agent_moves(self, arguments: Mapping[str, Any], issue: Issue) -> ToolResult:
        problem = tools.argument_problem(arguments, state=tools.MAX_STATE_CHARS)
        if problem is not None:
            return ToolResult.error(problem)
        state = await self._moved(issue.id, arguments["state"].strip(), purpose=Purpose.TOOL)
        return ToolResult.of({"issue": issue.identifier, "state": state})

    async def _agent_comments(self, arguments: Mapping[str, Any], issue: Issue) -> ToolResult:
        """Write a new comment, unless it is the one whose writing was not answered and it stands there."""
        problem = tools.argument_problem(arguments, body=tools.MAX_COMMENT_CHARS)
        if problem is not None:
            return ToolResult.error(problem)
        body = arguments["body"]
        unanswered, key = self._unanswered.pop(issue.id, ("", ""))
        try:
            if unanswered != body:
                key = secrets.token_hex(16)
            else:
                comments = await self.http.run(self.flows.comments(issue.id), purpose=Purpose.TOOL)
                for comment in comments:
                    if agent_comment_key(comment) == key:
                        return ToolResult.of(
                            {"issue": issue.identifier, "comment": comment.id}, commented=True
                        )
            made = self.flows.create_comment(issue.id, agent_comment(body, key=key), key=key)
            comment_id = await self.http.run(made, purpose=Purpose.TOOL)
        except TrackerError:
            self._unanswered[issue.id] = (body, key)
            raise
        return ToolResult.of({"issue": issue.identifier, "comment": comment_id}, commented=True)

    async def changes(self) -> AsyncIterator[None]:
        """No hints: a service that is polled tells nothing by itself."""
        await anyio.sleep_forever()
        yield  # pragma: no cover - what makes this an iterator

    # --- CommentCapability -------------------------------------------------------------------------------

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        """All comments of an issue, oldest first. Raises `TrackerError`."""
        return await self.http.run(self.flows.comments(issue_id), purpose=Purpose.NOTE)

    async def who_may_answer(self, issue_id: str, author_keys: Collection[str]) -> frozenset[str]:
        """Which of these authors may answer a question. Raises `TrackerError`."""
        wanted = tuple(dict.fromkeys(author_keys))
        if not wanted:
            return frozenset()
        return await self.http.run(self.flows.who_may_answer(issue_id, wanted), purpose=Purpose.NOTE)

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Create or replace a comment; a repeated create with one key edits the first.

        Raises:
            TrackerError: it is not known to have been written; list again before the next attempt.
        """
        target = comment_id or self._created.get((issue_id, key))
        if not self.flows.dialect.fences:
            body = defused(body)
        if target is None:
            made = self.flows.create_comment(issue_id, body, key=key)
            target = await self.http.run(made, purpose=Purpose.NOTE)
            self._created[issue_id, key] = target
            return target
        try:
            await self.http.run(self.flows.edit_comment(issue_id, target, body), purpose=Purpose.NOTE)
        except TrackerError:
            self._created.pop((issue_id, key), None)  # it may be gone: the next attempt looks anew
            raise
        return target

    # --- MovingCapability, AccountCapability, TrafficCapability -----------------------------------------

    async def move_issue(self, issue_id: str, state: str) -> str:
        """Give an issue another state; returns what the service says it has then.

        Raises:
            TrackerError: it failed, or the service took the move and did not make it.
        """
        return await self._moved(issue_id, state, purpose=Purpose.REFRESH)

    async def _moved(self, issue_id: str, state: str, *, purpose: Purpose) -> str:
        found = await self.http.run(self.flows.move(issue_id, state), purpose=purpose)
        if normalise_state(found) != normalise_state(state):
            raise not_moved(self.flows.dialect.service, issue_id, wanted=state, found=found)
        return found

    async def account_info(self) -> AccountInfo:
        """Who we are there and what there is. Raises `TrackerError`."""
        return await self.http.run(self.flows.account_info(), purpose=Purpose.REFRESH)

    def traffic(self) -> Traffic:
        """What was spent so far and what is left."""
        return self.http.traffic()

    def _tell(self, skipped: Sequence[Failure]) -> None:
        """Log what is malformed, and again only when it has become another problem."""
        self._skipped = tuple(skipped)
        for failure in skipped:
            if failure.message not in self._told:
                _LOG.warning("tracker_record_skipped", tracker=self.flows.kind, problem=failure.message)
        self._told = frozenset(failure.message for failure in skipped)


def _told(error: TrackerError) -> ToolResult:
    failure = error.failure
    details = {
        "category": failure.category.value,
        "hint": failure.hint,
        "status": failure.status,
        "retry_after_ms": failure.retry_after_ms,
    }
    return ToolResult.error(failure.message, **{key: value for key, value in details.items() if value})
