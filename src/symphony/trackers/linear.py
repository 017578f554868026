"""Linear, by its GraphQL API (kind `linear`; docs/trackers/linear.md)."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from symphony.config import TrackerSettings
from symphony.domain import Blocker, Category, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.trackers import tools
from symphony.trackers.base import AccountInfo, Comment, TrackerError, no_such_state, not_found
from symphony.trackers.fields import (
    Listing,
    MalformedRecordError,
    instant,
    items,
    listing,
    mapping,
    required,
    snapshots,
    text,
    whole,
)
from symphony.trackers.http import (
    THROTTLED,
    Answer,
    Bucket,
    Flow,
    Pager,
    Request,
    ServiceProfile,
    malformed,
    plain_status,
)
from symphony.trackers.http.exchange import FORBIDDEN, UNAUTHORISED
from symphony.trackers.http.graphql import error_codes, error_message, graphql, page_of, question
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.remote import Access, RemoteKind
from symphony.trackers.tools import Scope, graphql_spec, marked_query, query_of, shown, writes_comment
from symphony.trackers.webhooks import LINEAR

# What `tracker` means for Linear; the keys of the reference, and `scope` (TR10).


PROVIDER_KEYS = ("endpoint", "api_key", "project_slug", "assignee", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"LINEAR_API_KEY"})
DEFAULT_ENDPOINT = "https://api.linear.app/graphql"
DEFAULT_ACTIVE = ("Todo", "In Progress")
DEFAULT_TERMINAL = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
_OAUTH = "lin_oauth_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearConfig:
    """One project of Linear.

    Attributes:
        project_slug: the last part of the project's address, or the id at its end.
        assignee: only issues of this user are dispatched: an id, or `me` for who the key belongs to.
        scope: what `linear_graphql` may reach; it cannot be narrowed, only left out.
    """

    access: Access
    project_slug: str
    assignee: str | None
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> LinearConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("linear", settings.provider, environment)
    key = reader.secret("api_key", variable="LINEAR_API_KEY")
    config = LinearConfig(
        access=Access(
            base=reader.address("endpoint", DEFAULT_ENDPOINT),
            credential=key,
            headers={"authorization": f"Bearer {key}" if key.startswith(_OAUTH) else key},
        ),
        project_slug=reader.needed("project_slug"),
        assignee=reader.text("assignee", variable="LINEAR_ASSIGNEE"),
        scope=Scope(reader.choice(SCOPE, (Scope.TOKEN, Scope.OFF), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=DEFAULT_ACTIVE),
        terminal=reader.states("terminal_states", settings.terminal_states, default=DEFAULT_TERMINAL),
    )
    reader.done()
    return config


# How Linear says no: by codes inside the answer, with a 200, a 400 or a 429 around it.


_MEANING = {
    "ratelimited": THROTTLED,
    "rate_limited": THROTTLED,
    "authentication_error": 401,
    "authentication error": 401,
    "unauthenticated": 401,
    "forbidden": 403,
}


def _status(answer: Answer) -> int:
    """The codes before the status: a limit has been seen with a 400."""
    meanings = [_MEANING[code] for code in error_codes(answer) if code in _MEANING]
    return max(meanings, default=plain_status(answer))


# Linear tells of limits of single operations too. They are left out: an agent that uses up the one of a
# search shall not stop polls.
SERVICE = ServiceProfile(
    service="Linear",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_slug",
    status=_status,
    message=error_message,
    buckets=(
        Bucket.of("requests", "x-ratelimit-requests"),
        Bucket.of("complexity points", "x-ratelimit-complexity"),
    ),
)


# The operations, as constants, so that tests can hold each against Linear's own schema.
#
# A page of issues names no relations: Linear charges for what a query could return, and most issues are
# blocked by nothing. Blockers are asked for where a filter says that there are some.


_FIELDS = """
    nodes {
      id identifier title description priority branchName url createdAt updatedAt
      state { name type }
      assignee { id }
      labels(first: 10) { nodes { name } pageInfo { hasNextPage } }
    }
    pageInfo { hasNextPage endCursor }
"""

NEWEST = """query SymphonyNewest($slugs: [String!]!) {
  issues(filter: {project: {slugId: {in: $slugs}}}, first: 1, orderBy: updatedAt) {
    nodes { id updatedAt }
  }
}"""

BY_STATES = f"""query SymphonyIssues($slugs: [String!]!, $states: [String!]!, $first: Int!, $after: String) {{
  issues(
    filter: {{project: {{slugId: {{in: $slugs}}}}, state: {{name: {{in: $states}}}}}}
    first: $first
    after: $after
  ) {{{_FIELDS}  }}
}}"""

BY_IDS = f"""query SymphonyIssuesById($slugs: [String!]!, $ids: [ID!]!, $first: Int!) {{
  issues(filter: {{project: {{slugId: {{in: $slugs}}}}, id: {{in: $ids}}}}, first: $first) {{{_FIELDS}  }}
}}"""

BLOCKERS = """query SymphonyBlockers($ids: [ID!]!, $first: Int!, $after: String) {
  issues(filter: {id: {in: $ids}, hasBlockedByRelations: {eq: true}}, first: $first, after: $after) {
    nodes {
      id
      inverseRelations(first: 20) {
        nodes { type issue { id identifier state { name type } } }
        pageInfo { hasNextPage }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}"""

LABELS = """query SymphonyLabels($id: String!, $first: Int!) {
  issue(id: $id) { id labels(first: $first) { nodes { name } } }
}"""

VIEWER = """query SymphonyViewer { viewer { id name } }"""

LOOK = """query SymphonyLook($slugs: [String!]!) {
  viewer { id name }
  projects(filter: {slugId: {in: $slugs}}, first: 1) {
    nodes { name slugId teams(first: 5) { nodes { states(first: 50) { nodes { name } } } } }
  }
}"""

STATES = """query SymphonyStates($id: String!) {
  issue(id: $id) { id state { name } team { states(first: 100) { nodes { id name } } } }
}"""

MOVE = """mutation SymphonyMove($id: String!, $state: String!) {
  issueUpdate(id: $id, input: {stateId: $state}) { success issue { id state { name } } }
}"""

COMMENTS = """query SymphonyComments($id: String!, $first: Int!, $after: String) {
  issue(id: $id) {
    id
    comments(first: $first, after: $after) {
      nodes {
        id body createdAt
        user { id displayName app } botActor { name } externalUser { displayName }
      }
      pageInfo { hasNextPage endCursor }
    }
  }
}"""

COMMENT = """query SymphonyComment($id: String!) { comment(id: $id) { id issueId } }"""

CREATE_COMMENT = """mutation SymphonyCreateComment($input: CommentCreateInput!) {
  commentCreate(input: $input) { success comment { id } }
}"""

EDIT_COMMENT = """mutation SymphonyEditComment($id: String!, $body: String!) {
  commentUpdate(id: $id, input: {body: $body}) { success comment { id } }
}"""

OPERATIONS = {
    "SymphonyNewest": NEWEST,
    "SymphonyIssues": BY_STATES,
    "SymphonyIssuesById": BY_IDS,
    "SymphonyBlockers": BLOCKERS,
    "SymphonyLabels": LABELS,
    "SymphonyViewer": VIEWER,
    "SymphonyLook": LOOK,
    "SymphonyStates": STATES,
    "SymphonyMove": MOVE,
    "SymphonyComments": COMMENTS,
    "SymphonyComment": COMMENT,
    "SymphonyCreateComment": CREATE_COMMENT,
    "SymphonyEditComment": EDIT_COMMENT,
}
"""By name."""


# From Linear's JSON to issues. Pure.


_WAITING = frozenset({"triage", "backlog", "unstarted"})
_OVER = frozenset({"completed", "canceled", "duplicate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An issue that stands in the way; `over` says that its state is terminal."""

    blocker: Blocker
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What decides whether an issue may be dispatched (TR6): whose it must be, and which states are over."""

    assignee: str | None
    terminal: frozenset[str]

    def objection(self, record: Mapping[str, Any], relations: Sequence[Relation]) -> str | None:
        """Why the issue is held back, or null. Work that has begun is not stopped by a blocker."""
        if self.assignee is not None and _assignee(record) != self.assignee:
            return "it is assigned to somebody else, or to nobody"
        state = mapping(record.get("state"))
        waiting = normalise_state(str(state.get("name"))) == "todo" or state.get("type") in _WAITING
        waits_for = [relation.blocker for relation in relations if not relation.over] if waiting else []
        if not waits_for:
            return None
        names = ", ".join(blocker.identifier or blocker.id or "an unknown issue" for blocker in waits_for)
        return f"it is blocked by {names}"


def issue_of(record: Any, *, judge: Judge, labels: Sequence[str], relations: Sequence[Relation]) -> Issue:
    """One issue. Raises `MalformedRecordError`."""
    issue_id, identifier = required(record, "id"), required(record, "identifier")
    title = required(record, "title")
    state = record.get("state")
    if not isinstance(state, Mapping) or not text(state.get("name")):
        raise MalformedRecordError("has no state")
    objection = judge.objection(record, relations)
    return Issue(
        id=issue_id,
        identifier=identifier,
        title=title,
        state=required(state, "name"),
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        description=text(record.get("description")),
        priority=_priority(record.get("priority")),
        branch_name=text(record.get("branchName")),
        url=text(record.get("url")),
        assignee_id=_assignee(record),
        labels=normalise_labels(labels),
        blocked_by=tuple(relation.blocker for relation in relations),
        created_at=instant(record.get("createdAt")),
        updated_at=instant(record.get("updatedAt")),
    )


def _assignee(record: Mapping[str, Any]) -> str | None:
    return text(mapping(record.get("assignee")).get("id"))


def _priority(value: Any) -> int | None:
    """Linear's 0 is "none"."""
    return whole(value) or None


def label_names(record: Any) -> list[str]:
    """The names of a record's labels."""
    labels = (
        mapping(node).get("name") for node in items(mapping(mapping(record).get("labels")).get("nodes"))
    )
    return [label for label in labels if isinstance(label, str)]


def relations_of(record: Any, terminal: Iterable[str]) -> tuple[Relation, ...]:
    """What blocks the issue; a blocker whose state is not told counts as open."""
    over = frozenset(terminal)
    found = []
    for node in items(mapping(mapping(record).get("inverseRelations")).get("nodes")):
        issue = mapping(mapping(node).get("issue"))
        if mapping(node).get("type") != "blocks" or not issue:
            continue
        state = mapping(issue.get("state"))
        name = text(state.get("name"))
        blocker = Blocker(id=text(issue.get("id")), identifier=text(issue.get("identifier")), state=name)
        done = state.get("type") in _OVER or (name is not None and normalise_state(name) in over)
        found.append(Relation(blocker=blocker, over=done))
    return tuple(found)


def author_of(comment: Any) -> str:
    """The name of who wrote a comment; empty where Linear tells none."""
    who = (("user", "displayName"), ("externalUser", "displayName"), ("botActor", "name"))
    record = mapping(comment)
    names = (text(mapping(record.get(key)).get(name)) for key, name in who)
    return next((name for name in names if name), "")


def may_answer(comment: Any) -> bool | None:
    """Whether the words of who wrote a comment answer a question: of a person who is in the workspace.

    What a bot, an app or an agent wrote does not. People outside, whose words an integration brought, are
    told by `None`.
    """
    record = mapping(comment)
    if record.get("botActor") is not None:
        return False
    if record.get("externalUser") is not None:
        return None
    return mapping(record.get("user")).get("app") is False


def comment_id_of(issue_id: str, key: str) -> str:
    """The id that we give to a comment, a UUID v4 by its form, so that a repeated create makes no second."""
    digest = hashlib.sha256(f"symphony-comment\n{issue_id}\n{key}".encode()).digest()[:16]
    return str(UUID(bytes=digest, version=4))


# What is asked of Linear, and in which order (TR1, TR2, TR8).
#
# A poll begins with the time of the newest change in the project, which costs next to nothing; where that
# is what it was, the list of the last poll is good. A change it cannot see (an issue that left the project,
# a blocker in another one) is seen by the whole list that every twelfth poll makes.


PAGE = 50
BLOCKED_PAGE = 10
FULL_EVERY = 12
_MANY = 250
_TOOL = "linear_graphql"
_COMMENTING = re.compile(r"\bcomment(?:Create|Update)\b")


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The last whole list, and the newest change at its time."""

    states: frozenset[str]
    newest: Any
    listing: Listing
    uses: int = 0


class LinearFlows:
    """Implements `remote.Flows` for one project. Knows between flows: who we are, and the last list."""

    kind = "linear"
    dialect: ServiceProfile = SERVICE

    def __init__(self, config: LinearConfig) -> None:
        self._config = config
        self._terminal = frozenset(normalise_state(state) for state in config.terminal)
        self._me: str | None = None
        self._project_seen = False
        self._seen: _Seen | None = None

    # --- reads -------------------------------------------------------------------------------------------

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """As `Flows.by_states`."""
        newest = yield from self._newest()
        wanted = frozenset(normalise_state(state) for state in states)
        seen = self._seen
        if seen and seen.states == wanted and seen.newest == newest and seen.uses < FULL_EVERY:
            seen.uses += 1
            return seen.listing
        variables = {"slugs": self._slugs, "states": list(states)}
        records = yield from self._pages("SymphonyIssues", variables, field="issues", first=PAGE)
        if not records and not self._project_seen:
            yield from self.account_info()
        self._project_seen = True
        read = yield from self._reader(records)
        found = listing(self.dialect.service, records, read)
        self._seen = _Seen(states=wanted, newest=newest, listing=found, uses=1)
        return found

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """As `Flows.by_ids`."""
        records: list[Any] = []
        for batch in _batches(ids):
            variables = {"slugs": self._slugs, "ids": batch, "first": PAGE}
            request = _ask("SymphonyIssuesById", variables)
            data = yield from graphql(self.dialect, request)
            nodes, _, more = page_of(self.dialect, request, data.get("issues"))
            if more:
                raise malformed(self.dialect, f"has more issues than the {len(batch)} that were asked for")
            records += nodes
        read = yield from self._reader(records)
        return snapshots(self.dialect.service, records, read, wanted=ids)

    @property
    def _slugs(self) -> list[str]:
        """What the project may be called: its slug, or the id at its end, which outlives a new name."""
        slug = self._config.project_slug
        end = slug.rpartition("-")[2]
        return [slug, end] if end and end != slug else [slug]

    def _newest(self) -> Flow[Any]:
        data = yield from graphql(self.dialect, _ask("SymphonyNewest", {"slugs": self._slugs}))
        return mapping(data.get("issues")).get("nodes")

    def _pages(
        self, name: str, variables: Mapping[str, Any], *, field: str, first: int, inside: str | None = None
    ) -> Flow[list[Any]]:
        """All nodes of a connection, page by page; `inside` is the field that holds it, null for the root."""
        request = _ask(name, {**variables, "first": first})
        trail = Pager(self.dialect, request, self._config.access.base)
        records: list[Any] = []
        while True:
            data = yield from graphql(self.dialect, request)
            holder = data if inside is None else data.get(inside)
            if inside is not None and not isinstance(holder, Mapping):
                raise not_found(self.dialect.service, f"{inside} {variables.get('id')!s}")
            nodes, cursor, more = page_of(self.dialect, request, mapping(holder).get(field))
            records += nodes
            trail.count(len(nodes))
            if not more:
                return records
            request = _ask(name, {**variables, "first": first, "after": trail.cursor(cursor)})

    def _reader(self, records: Sequence[Any]) -> Flow["_Reader"]:
        """What turns these records into issues: their blockers, labels beyond the first, who we are."""
        ids = [issue_id for record in records if (issue_id := text(mapping(record).get("id")))]
        assignee = self._config.assignee
        if assignee == "me":
            assignee = (yield from self._viewer()) if ids else None
        blocked: dict[str, tuple[Relation, ...]] = {}
        for batch in _batches(ids):
            nodes = yield from self._pages(
                "SymphonyBlockers", {"ids": batch}, field="issues", first=BLOCKED_PAGE
            )
            for node in nodes:
                blocked[str(mapping(node).get("id"))] = relations_of(node, self._terminal)
        labels: dict[str, list[str]] = {}
        for record in records:
            info = mapping(mapping(mapping(record).get("labels")).get("pageInfo"))
            if info.get("hasNextPage") is True and text(mapping(record).get("id")):
                labels[record["id"]] = yield from self._labels(record["id"])
        return _Reader(
            judge=Judge(assignee=assignee, terminal=self._terminal), blocked=blocked, labels=labels
        )

    def _labels(self, issue_id: str) -> Flow[list[str]]:
        request = _ask("SymphonyLabels", {"id": issue_id, "first": _MANY})
        data = yield from graphql(self.dialect, request)
        return label_names(data.get("issue"))

    def _viewer(self) -> Flow[str]:
        if self._me is None:
            data = yield from graphql(self.dialect, _ask("SymphonyViewer", {}))
            me = text(mapping(data.get("viewer")).get("id"))
            if me is None:
                raise malformed(self.dialect, "does not tell whose credential this is")
            self._me = me
        return self._me

    def account_info(self) -> Flow[AccountInfo]:
        """As `Flows.account_info`. Raises `TrackerError` where there is no such project."""
        data = yield from graphql(self.dialect, _ask("SymphonyLook", {"slugs": self._slugs}))
        projects = items(mapping(data.get("projects")).get("nodes"))
        if not projects:
            hint = "tracker.provider.project_slug is the last part of the project's address"
            raise not_found(
                self.dialect.service,
                f"project {self._config.project_slug!r} that this credential may see",
                hint=hint,
            )
        states = [
            mapping(state).get("name")
            for team in items(mapping(mapping(projects[0]).get("teams")).get("nodes"))
            for state in items(mapping(mapping(team).get("states")).get("nodes"))
        ]
        return AccountInfo(
            login=text(mapping(data.get("viewer")).get("name")),
            scope=text(mapping(projects[0]).get("name")) or self._config.project_slug,
            states=tuple(dict.fromkeys(state for state in states if isinstance(state, str))),
        )

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`."""
        me = yield from self._viewer()
        nodes = yield from self._pages(
            "SymphonyComments", {"id": issue_id}, field="comments", first=PAGE, inside="issue"
        )
        nodes = [node for node in nodes if text(mapping(node).get("id"))]
        nodes.sort(key=lambda node: str(node.get("createdAt")))
        return tuple(
            Comment(
                id=node["id"],
                body=text(node.get("body")) or "",
                mine=mapping(node.get("user")).get("id") == me,
                author=author_of(node),
                may_answer=may_answer(node),
            )
            for node in nodes
        )

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: nobody of those in doubt, who are people outside of the workspace."""
        del issue_id, author_keys
        yield from ()
        return frozenset()

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; the id is ours, so a repeated create finds the first."""
        comment_id = comment_id_of(issue_id, key)
        made = {"issueId": issue_id, "body": body, "doNotSubscribeToIssue": True}
        try:
            return (yield from self._create({**made, "id": comment_id}))
        except TrackerError as error:
            if not _may_stand_already(error):
                raise
            there = yield from self._is_there(comment_id, issue_id)
            if there is None:
                raise
        if there:
            yield from self.edit_comment(issue_id, comment_id, body)
            return comment_id
        return (yield from self._create(made))  # our id belongs to one that was deleted

    def _create(self, given: Mapping[str, Any]) -> Flow[str]:
        request = _ask("SymphonyCreateComment", {"input": dict(given)}, writes=True)
        data = yield from graphql(self.dialect, request)
        return _written(self.dialect, request, data.get("commentCreate"))

    def _is_there(self, comment_id: str, issue_id: str) -> Flow[bool | None]:
        """Whether our comment stands; null where the issue itself cannot be seen."""
        try:
            data = yield from graphql(self.dialect, _ask("SymphonyComment", {"id": comment_id}))
        except TrackerError as error:
            if error.failure.category is not Category.TRACKER_STATUS:
                raise
            request = _ask("SymphonyStates", {"id": issue_id})
            try:
                found = yield from graphql(self.dialect, request)
            except TrackerError:
                return None
            return False if isinstance(found.get("issue"), Mapping) else None
        return mapping(data.get("comment")).get("id") == comment_id

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`."""
        del issue_id
        request = _ask("SymphonyEditComment", {"id": comment_id, "body": body}, writes=True)
        data = yield from graphql(self.dialect, request)
        _written(self.dialect, request, data.get("commentUpdate"))

    # --- moves and tools ---------------------------------------------------------------------------------

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`."""
        service = self.dialect.service
        data = yield from graphql(self.dialect, _ask("SymphonyStates", {"id": issue_id}))
        issue = mapping(data.get("issue"))
        if not issue:
            raise not_found(service, f"issue {issue_id}")
        known = {
            normalise_state(node["name"]): node
            for node in items(mapping(mapping(issue.get("team")).get("states")).get("nodes"))
            if text(mapping(node).get("name")) and text(node.get("id"))
        }
        target = known.get(normalise_state(state))
        if target is None:
            raise no_such_state(service, state, [node["name"] for node in known.values()])
        if normalise_state(str(mapping(issue.get("state")).get("name"))) == normalise_state(state):
            return str(target["name"])
        request = _ask("SymphonyMove", {"id": issue_id, "state": target["id"]}, writes=True)
        data = yield from graphql(self.dialect, request)
        moved = mapping(mapping(mapping(data.get("issueUpdate")).get("issue")).get("state"))
        return text(moved.get("name")) or "an unknown state"

    def tools(self) -> tuple[ToolSpec, ...]:
        """`linear_graphql`, unless `scope` is `off`."""
        return () if self._config.scope is Scope.OFF else (graphql_spec(_TOOL, self.dialect.service),)

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw query or mutation; errors of Linear are answers to the model."""
        del name, issue
        given = query_of(arguments)
        if isinstance(given, str):
            return ToolResult.error(given)
        found = marked_query(*given, _COMMENTING)
        if isinstance(found, str):
            return ToolResult.error(found)
        query, variables = found
        answer = yield Request(
            endpoint=_TOOL,
            method="POST",
            body={"query": query, "variables": dict(variables)},
            accept=frozenset({400}),
        )
        failed = bool(items(mapping(answer.body).get("errors"))) or not isinstance(answer.body, Mapping)
        told = shown(answer, success=not failed, read_only="mutation" not in query)
        return replace(told, commented=told.success and writes_comment(query))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Makes an issue of a record, with what was asked for besides."""

    judge: Judge
    blocked: Mapping[str, tuple[Relation, ...]]
    labels: Mapping[str, Sequence[str]]

    def __call__(self, record: Any) -> Issue:
        issue_id = required(record, "id")
        labels = self.labels.get(issue_id)
        return issue_of(
            record,
            judge=self.judge,
            labels=label_names(record) if labels is None else labels,
            relations=self.blocked.get(issue_id, ()),
        )


def _ask(name: str, variables: Mapping[str, Any], *, writes: bool = False) -> Request:
    return question(name, OPERATIONS[name], variables, writes=writes)


def _batches(ids: Sequence[str]) -> Iterable[list[str]]:
    return (list(ids[start : start + PAGE]) for start in range(0, len(ids), PAGE))


def _may_stand_already(error: TrackerError) -> bool:
    """Linear may have refused because the id is taken; a limit or a bad credential says nothing of that."""
    return error.failure.category is Category.TRACKER_STATUS and error.failure.status not in {
        UNAUTHORISED,
        FORBIDDEN,
    }


def _written(dialect: ServiceProfile, request: Request, payload: Any) -> str:
    comment_id = text(mapping(mapping(payload).get("comment")).get("id"))
    if mapping(payload).get("success") is not True or comment_id is None:
        raise malformed(dialect, f"did not carry out {request.endpoint}")
    return comment_id


KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*tools.NAMES, "linear_graphql"),
    configure=read_config,
    flows=LinearFlows,
    webhooks=LINEAR,
)
