"""Linear, by its GraphQL API (kind `linear`; docs/trackers/linear.md)."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct
from typing_extensions import override

from symphony import http
from symphony.domain import Blocker, Category, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.http.fields import MalformedRecordError, dig, instant, items, required, text, texts, whole
from symphony.http.graphql import all_nodes, error_codes, error_message, graphql, operation
from symphony.trackers import provider
from symphony.trackers.base import AccountInfo, Comment, IssueToCreate, TrackerError
from symphony.trackers.deciding_labels import graphql_label_request, refusal
from symphony.trackers.fields import Listing, blocked_reason
from symphony.trackers.raw_tools import RawToolScope, graphql_call, graphql_spec, show, writes_comment
from symphony.trackers.remote import Flows, ListingCache, RemoteKind, batches
from symphony.trackers.webhooks import LINEAR

# --- settings --------------------------------------------------------------------------------------------


class LinearSettings(provider.ProviderSettings):
    """One project.

    Attributes:
        project_slug: the last part of the project's address, or the id at its end.
        assignee: only issues of this user are dispatched: an id, or `me` for the owner of the key.
        scopes: the GraphQL tool cannot be narrowed, only left out.
    """

    kind = "linear"
    scopes = (RawToolScope.TOKEN, RawToolScope.OFF)

    endpoint: provider.Address = "https://api.linear.app/graphql"
    api_key: Annotated[provider.Credential, provider.StandInVariable("LINEAR_API_KEY")]
    project_slug: str
    assignee: Annotated[str, provider.StandInVariable("LINEAR_ASSIGNEE")] = ""
    active_states: provider.States = ("Todo", "In Progress")
    terminal_states: provider.States = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")

    @property
    @override
    def access(self) -> provider.ServiceAccess:
        key = self.api_key.reveal()
        header = f"Bearer {key}" if key.startswith("lin_oauth_") else key
        return provider.ServiceAccess(base=self.endpoint, credential=key, headers={"authorization": header})

    @property
    def slugs(self) -> list[str]:
        """The names of the project: its slug, or the id at its end, which survives a rename."""
        end = self.project_slug.rpartition("-")[2]
        return [self.project_slug, end] if end and end != self.project_slug else [self.project_slug]


# --- service ---------------------------------------------------------------------------------------------

_STATUS_OF_CODE = {
    "ratelimited": http.THROTTLED,
    "rate_limited": http.THROTTLED,
    "authentication_error": http.UNAUTHORISED,
    "authentication error": http.UNAUTHORISED,
    "unauthenticated": http.UNAUTHORISED,
    "forbidden": http.FORBIDDEN,
}


def _status(answer: http.HttpResponse) -> int:
    """The status, by error codes first: Linear has answered a rate limit with a 400."""
    statuses = [_STATUS_OF_CODE[code] for code in error_codes(answer) if code in _STATUS_OF_CODE]
    return max(statuses, default=http.plain_status(answer))


SERVICE = http.ServiceProfile(
    name="Linear",
    credential_key="tracker.provider.api_key",
    scope_key="tracker.provider.project_slug",
    status=_status,
    message=error_message,
    buckets=(  # without limits of single operations: an agent that uses one up must not stop polls
        http.Bucket.of("requests", "x-ratelimit-requests"),
        http.Bucket.of("complexity points", "x-ratelimit-complexity"),
    ),
)


# --- operations ------------------------------------------------------------------------------------------
# The query for a page of issues includes no relations, because Linear charges for what a query could return,
# and most issues have no blockers. A second query asks for the blockers of issues that have some.

_ISSUE_FIELDS = """
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
  ) {{{_ISSUE_FIELDS}  }}
}}"""

BY_IDS = f"""query SymphonyIssuesById($slugs: [String!]!, $ids: [ID!]!, $first: Int!) {{
  issues(
    filter: {{project: {{slugId: {{in: $slugs}}}}, id: {{in: $ids}}}}
    first: $first
  ) {{{_ISSUE_FIELDS}  }}
}}"""

ID_OF = """query SymphonyIssueNamed($slugs: [String!]!, $team: String!, $number: Float!) {
  issues(
    filter: {project: {slugId: {in: $slugs}}, team: {key: {eq: $team}}, number: {eq: $number}}
    first: 1
  ) { nodes { id } }
}"""

UPDATES = """query SymphonyUpdates($slugs: [String!]!, $ids: [ID!]!, $first: Int!) {
  issues(filter: {project: {slugId: {in: $slugs}}, id: {in: $ids}}, first: $first) {
    nodes { id updatedAt }
    pageInfo { hasNextPage endCursor }
  }
}"""

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

LABEL_NAMES = """query SymphonyLabelNames($ids: [ID!]!, $first: Int!) {
  issueLabels(filter: {id: {in: $ids}}, first: $first, includeArchived: true) { nodes { id name } }
}"""

VIEWER = """query SymphonyViewer { viewer { id name } }"""

ACCOUNT = """query SymphonyAccount($slugs: [String!]!) {
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

PROJECT = """query SymphonyProject($slugs: [String!]!) {
  projects(filter: {slugId: {in: $slugs}}, first: 1) {
    nodes { id teams(first: 5) { nodes { id states(first: 50) { nodes { id name } } } } }
  }
}"""

LABELS_NAMED = """query SymphonyLabelsNamed($names: [String!]!, $first: Int!) {
  issueLabels(filter: {name: {in: $names}}, first: $first) { nodes { id name team { id } } }
}"""

CREATE_ISSUE = """mutation SymphonyCreateIssue($input: IssueCreateInput!) {
  issueCreate(input: $input) { success issue { id } }
}"""

EDIT_COMMENT = """mutation SymphonyEditComment($id: String!, $body: String!) {
  commentUpdate(id: $id, input: {body: $body}) { success comment { id } }
}"""


# --- from JSON to issues ---------------------------------------------------------------------------------

_WAITING_TYPES = frozenset({"triage", "backlog", "unstarted"})
_OVER_TYPES = frozenset({"completed", "canceled", "duplicate"})


class Relation(Struct, frozen=True, kw_only=True):
    """An issue that blocks another one; `over` says that its state is terminal."""

    blocker: Blocker
    over: bool


def label_names(record: Any) -> list[str]:
    """The names of a record's labels."""
    return texts(dig(node, "name") for node in items(dig(record, "labels", "nodes")))


def relations_of(record: Any, settings: LinearSettings) -> tuple[Relation, ...]:
    """The blockers of an issue. A blocker without a state counts as open."""
    found = []
    for node in items(dig(record, "inverseRelations", "nodes")):
        issue = dig(node, "issue")
        if dig(node, "type") == "blocks" and issue:
            state = text(dig(issue, "state", "name"))
            blocker = Blocker(
                id=text(dig(issue, "id")), identifier=text(dig(issue, "identifier")), state=state
            )
            over = dig(issue, "state", "type") in _OVER_TYPES or settings.is_terminal(state)
            found.append(Relation(blocker=blocker, over=over))
    return tuple(found)


class IssueReader(Struct, frozen=True, kw_only=True):
    """Makes issues of records.

    Attributes:
        assignee: the only user whose issues are dispatched; empty for any.
        relations: the blockers of issues, by id.
        labels: all labels, by id, of issues with more labels than a page of issues shows.
    """

    assignee: str
    relations: Mapping[str, tuple[Relation, ...]]
    labels: Mapping[str, Sequence[str]]

    def __call__(self, record: Any) -> Issue:
        """One issue. Raises `MalformedRecordError`."""
        issue_id, identifier = required(record, "id"), required(record, "identifier")
        title, state = required(record, "title"), record.get("state")
        if not text(dig(state, "name")):
            raise MalformedRecordError("has no state")
        relations = self.relations.get(issue_id, ())
        objection = self._objection(record, relations)
        return Issue(
            id=issue_id,
            identifier=identifier,
            title=title,
            state=required(state, "name"),
            dispatchable=objection is None,
            not_dispatchable_reason=objection,
            description=text(record.get("description")),
            priority=whole(record.get("priority")) or None,  # 0 is "no priority"
            branch_name=text(record.get("branchName")),
            url=text(record.get("url")),
            assignee_id=text(dig(record, "assignee", "id")),
            labels=normalise_labels(self.labels.get(issue_id) or label_names(record)),
            blocked_by=tuple(relation.blocker for relation in relations),
            created_at=instant(record.get("createdAt")),
            updated_at=instant(record.get("updatedAt")),
        )

    def _objection(self, record: Any, relations: Sequence[Relation]) -> str | None:
        """Why an issue is held back. A blocker does not stop work that has begun."""
        if self.assignee and text(dig(record, "assignee", "id")) != self.assignee:
            return "it is not assigned to this account"
        state = record["state"]
        if normalise_state(str(state.get("name"))) != "todo" and state.get("type") not in _WAITING_TYPES:
            return None
        return blocked_reason(relation.blocker for relation in relations if not relation.over)


def author_of(comment: Any) -> str:
    """The name of the author of a comment; empty if Linear reports none."""
    names = (
        dig(comment, "user", "displayName"),
        dig(comment, "externalUser", "displayName"),
        dig(comment, "botActor", "name"),
    )
    return next(iter(texts(names)), "")


def may_answer(comment: Any) -> bool | None:
    """Whether the author may answer questions: people of the workspace, not bots, apps or agents.

    `None` for people outside the workspace, whose comments come through an integration.
    """
    if dig(comment, "botActor") is not None:
        return False
    if dig(comment, "externalUser") is not None:
        return None
    return dig(comment, "user", "app") is False


def comment_id_of(issue_id: str, key: str) -> str:
    """The id that the daemon chooses for a comment, a UUID v4, so that a repeated create is recognised."""
    digest = hashlib.sha256(f"symphony-comment\n{issue_id}\n{key}".encode()).digest()[:16]
    return str(UUID(bytes=digest, version=4))


def issue_id_of(key: str) -> str:
    """The id that the daemon chooses for a new issue, as `comment_id_of`."""
    digest = hashlib.sha256(f"symphony-issue\n{key}".encode()).digest()[:16]
    return str(UUID(bytes=digest, version=4))


# --- flows -----------------------------------------------------------------------------------------------
# A poll asks for the newest change in the project, which costs next to nothing. If that is unchanged since
# the last poll, so is the list. Every twelfth poll reads the full list, which shows other changes (an issue
# that left the project, a blocker in another one).

# Issues that are requested by id again and again, as those of running sessions, are treated alike: only
# changed issues are requested in full. Their blockers are requested each time, because they are not part of
# the issue.

PAGE = 50
BLOCKED_PAGE = 10
LABELS_PAGE = 250
FULL_EVERY = 12
MAX_KNOWN = 250
"""How many issues that were requested by id are remembered."""
_SINGLE_LABELS = ("issueAddLabel", "issueRemoveLabel", "issueCreate")
_IDENTIFIER = re.compile(r"(?P<team>[A-Za-z0-9]{1,20})-(?P<number>[1-9][0-9]{0,8})")
_WRITES_COMMENT = re.compile(r"\bcomment(?:Create|Update)\b")


class LinearFlows(Flows[LinearSettings]):
    """The flows of one project."""

    service = SERVICE
    tool_name = "linear_graphql"

    def __init__(self, settings: LinearSettings) -> None:
        super().__init__(settings)
        self._viewer_id: str | None = None
        self._project_exists = False
        self._newest: Any = None
        self._listings = ListingCache(FULL_EVERY)
        self._known: dict[str, tuple[Any, int]] = {}  # records by id, and how often each was used

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def by_states(self, states: Sequence[str]) -> http.Flow[Listing]:
        data = yield from self._ask(NEWEST, {"slugs": self.settings.slugs})
        newest = dig(data, "issues", "nodes")
        cached = self._listings.reuse(states, unchanged=newest == self._newest)
        if cached is not None:
            return cached
        variables = {"slugs": self.settings.slugs, "states": list(states)}
        records = yield from self._nodes(BY_STATES, variables, "issues", page=PAGE)
        if not records and not self._project_exists:
            yield from self.account_info()
        self._project_exists = True
        read = yield from self._reader(records)
        found = yield from self.listing(records, read, states)
        self._newest = newest
        self._listings.keep(states, found)
        return found

    @override
    def id_of(self, identifier: str) -> http.Flow[str | None]:
        if (named := _IDENTIFIER.fullmatch(identifier)) is None:
            return None
        variables = {"slugs": self.settings.slugs, "team": named["team"], "number": int(named["number"])}
        data = yield from self._ask(ID_OF, variables)
        return next(iter(texts(dig(node, "id") for node in items(dig(data, "issues", "nodes")))), None)

    @override
    def by_ids(self, ids: Sequence[str]) -> http.Flow[Sequence[Issue]]:
        known = {issue_id: self._known.pop(issue_id) for issue_id in ids if issue_id in self._known}
        updates = yield from self._nodes_of(UPDATES, list(known))
        unchanged = {
            str(dig(node, "id")): (record, uses + 1)
            for node in updates
            for record, uses in [known.get(str(dig(node, "id")), (None, FULL_EVERY))]
            if uses < FULL_EVERY and dig(record, "updatedAt") == dig(node, "updatedAt")
        }
        records = yield from self._nodes_of(BY_IDS, [each for each in ids if each not in unchanged])
        records += [record for record, _ in unchanged.values()]
        read = yield from self._reader(records)
        found = self.snapshots(records, read, ids)
        self._known |= {str(dig(record, "id")): (record, 1) for record in records} | unchanged
        for oldest in list(self._known)[:-MAX_KNOWN]:
            del self._known[oldest]
        return found

    def _nodes_of(self, query: str, ids: Sequence[str]) -> http.Flow[list[Any]]:
        """The nodes that a query returns for these issues."""
        nodes: list[Any] = []
        for batch in batches(ids, PAGE):
            variables = {"slugs": self.settings.slugs, "ids": batch}
            nodes += yield from self._nodes(query, variables, "issues", page=PAGE)
        return nodes

    def _reader(self, records: Sequence[Any]) -> http.Flow[IssueReader]:
        """Request what the records lack: blockers, more labels, and the owner of the key."""
        ids = texts(dig(record, "id") for record in records)
        assignee = self.settings.assignee
        if assignee == "me":
            assignee = (yield from self._viewer()) if ids else ""
        relations: dict[str, tuple[Relation, ...]] = {}
        for batch in batches(ids, PAGE):
            nodes = yield from self._nodes(BLOCKERS, {"ids": batch}, "issues", page=BLOCKED_PAGE)
            relations |= {str(dig(node, "id")): relations_of(node, self.settings) for node in nodes}
        labels: dict[str, Sequence[str]] = {}
        for record in records:
            issue_id = text(dig(record, "id"))
            if issue_id and dig(record, "labels", "pageInfo", "hasNextPage") is True:
                data = yield from self._ask(LABELS, {"id": issue_id, "first": LABELS_PAGE})
                labels[issue_id] = label_names(data.get("issue"))
        return IssueReader(assignee=assignee, relations=relations, labels=labels)

    @override
    def account_info(self) -> http.Flow[AccountInfo]:
        data = yield from self._ask(ACCOUNT, {"slugs": self.settings.slugs})
        project = next(iter(items(dig(data, "projects", "nodes"))), None)
        if project is None:
            raise self.service.not_found(
                f"project {self.settings.project_slug!r} that this credential may see",
                hint="tracker.provider.project_slug is the last part of the project's address",
            )
        teams = items(dig(project, "teams", "nodes"))
        states = texts(dig(state, "name") for team in teams for state in items(dig(team, "states", "nodes")))
        return AccountInfo(
            login=text(dig(data, "viewer", "name")),
            scope=text(dig(project, "name")) or self.settings.project_slug,
            states=tuple(dict.fromkeys(states)),
        )

    def _viewer(self) -> http.Flow[str]:
        if self._viewer_id is None:
            data = yield from self._ask(VIEWER, {})
            self._viewer_id = text(dig(data, "viewer", "id"))
        if self._viewer_id is None:
            raise self.service.malformed("does not show the account of this credential")
        return self._viewer_id

    def _ask(self, document: str, variables: Mapping[str, Any]) -> http.Flow[Mapping[str, Any]]:
        return graphql(self.service, operation(document, variables))

    def _nodes(
        self, query: str, variables: Mapping[str, Any], field: str, *, page: int, of_issue: bool = False
    ) -> http.Flow[list[Any]]:
        """All nodes of the connection `field` of the root or of an issue."""

        def ask(after: str | None) -> http.Request:
            paging = {"first": page} if after is None else {"first": page, "after": after}
            return operation(query, {**variables, **paging})

        def find(data: Mapping[str, Any]) -> Any:
            if of_issue and not isinstance(data.get("issue"), Mapping):
                raise self.service.not_found(f"issue {variables['id']}")
            return dig(data, "issue", field) if of_issue else data.get(field)

        return all_nodes(self.service, self.settings.endpoint, ask, find)

    # --- comments ----------------------------------------------------------------------------------------

    @override
    def comments(self, issue_id: str) -> http.Flow[Sequence[Comment]]:
        me = yield from self._viewer()
        nodes = yield from self._nodes(COMMENTS, {"id": issue_id}, "comments", page=PAGE, of_issue=True)
        nodes = [node for node in nodes if text(dig(node, "id"))]
        nodes.sort(key=lambda node: str(node.get("createdAt")))
        return tuple(
            Comment(
                id=node["id"],
                body=text(node.get("body")) or "",
                mine=dig(node, "user", "id") == me,
                author=author_of(node),
                may_answer=may_answer(node),
                created_at=instant(node.get("createdAt")),
            )
            for node in nodes
        )

    @override
    def create_comment(self, issue_id: str, body: str, *, key: str) -> http.Flow[str]:
        """Create a comment with a chosen id. If Linear refuses a repeated create, edit the first comment."""
        comment_id = comment_id_of(issue_id, key)
        made = {"issueId": issue_id, "body": body, "doNotSubscribeToIssue": True}
        try:
            return (yield from self._create({**made, "id": comment_id}))
        except TrackerError as error:
            failure = error.failure
            if failure.category is not Category.TRACKER_STATUS or failure.status in {
                http.UNAUTHORISED,
                http.FORBIDDEN,
            }:
                raise
            exists = yield from self._exists(comment_id, issue_id)
            if exists is None:
                raise
        if exists:
            yield from self.edit_comment(issue_id, comment_id, body)
            return comment_id
        return (yield from self._create(made))  # a comment with the chosen id was deleted

    def _create(self, comment: Mapping[str, Any]) -> http.Flow[str]:
        data = yield from self._ask(CREATE_COMMENT, {"input": comment})
        return self._written(data.get("commentCreate"))

    def _exists(self, comment_id: str, issue_id: str) -> http.Flow[bool | None]:
        """Whether the comment exists; `None` if the issue itself cannot be seen."""
        try:
            data = yield from self._ask(COMMENT, {"id": comment_id})
        except TrackerError as error:
            if error.failure.category is not Category.TRACKER_STATUS:
                raise
            try:
                data = yield from self._ask(STATES, {"id": issue_id})
            except TrackerError:
                return None
            return False if isinstance(data.get("issue"), Mapping) else None
        return bool(dig(data, "comment", "id") == comment_id)

    @override
    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> http.Flow[None]:
        data = yield from self._ask(EDIT_COMMENT, {"id": comment_id, "body": body})
        self._written(data.get("commentUpdate"))

    def _written(self, payload: Any) -> str:
        comment_id = text(dig(payload, "comment", "id"))
        if dig(payload, "success") is not True or comment_id is None:
            raise self.service.malformed("did not write a comment")
        return comment_id

    # --- new issues --------------------------------------------------------------------------------------

    @override
    def find_created(self, key: str, since: datetime) -> http.Flow[str | None]:
        """The id is derived from the key."""
        issue_id = issue_id_of(key)
        found = yield from self._nodes_of(UPDATES, [issue_id])
        return issue_id if any(dig(node, "id") == issue_id for node in found) else None

    @override
    def create_issue(self, new: IssueToCreate, *, key: str) -> http.Flow[str]:
        """Create an issue in the project, for its first team that has the state."""
        data = yield from self._ask(PROJECT, {"slugs": self.settings.slugs})
        project = next(iter(items(dig(data, "projects", "nodes"))), None)
        teams = items(dig(project, "teams", "nodes"))
        states = [
            (text(dig(team, "id")), text(dig(state, "id")), text(dig(state, "name")) or "")
            for team in teams
            for state in items(dig(team, "states", "nodes"))
        ]
        wanted = normalise_state(new.state)
        chosen = next((each for each in states if normalise_state(each[2]) == wanted), None)
        if chosen is None:
            raise self.service.no_such_state(new.state, tuple(dict.fromkeys(name for *_, name in states)))
        team_id, state_id, _ = chosen
        made = {
            "id": issue_id_of(key),
            "title": new.title,
            "description": new.body,
            "teamId": team_id,
            "projectId": text(dig(project, "id")),
            "stateId": state_id,
            "labelIds": (yield from self._label_ids(new.labels, str(team_id))),
        }
        data = yield from self._ask(CREATE_ISSUE, {"input": made})
        issue_id = text(dig(data, "issueCreate", "issue", "id"))
        if dig(data, "issueCreate", "success") is not True or issue_id is None:
            raise self.service.malformed("did not create an issue")
        return issue_id

    def _label_ids(self, names: Sequence[str], team_id: str) -> http.Flow[list[str]]:
        """The ids of labels of the workspace or the team."""
        if not names:
            return []
        data = yield from self._ask(LABELS_NAMED, {"names": list(names), "first": LABELS_PAGE})
        found = {
            str(dig(node, "name")).lower(): str(dig(node, "id"))
            for node in items(dig(data, "issueLabels", "nodes"))
            if dig(node, "team", "id") in {None, team_id}
        }
        for name in names:
            if name.lower() not in found:
                raise self.service.not_found(f"label {name!r}", hint="create it in the team or the workspace")
        return [found[name.lower()] for name in names]

    # --- moves and the raw tool --------------------------------------------------------------------------

    @override
    def move(self, issue_id: str, state: str) -> http.Flow[str]:
        data = yield from self._ask(STATES, {"id": issue_id})
        issue = data.get("issue")
        if not issue:
            raise self.service.not_found(f"issue {issue_id}")
        nodes = items(dig(issue, "team", "states", "nodes"))
        known = {
            normalise_state(node["name"]): node
            for node in nodes
            if text(dig(node, "name")) and text(dig(node, "id"))
        }
        target = known.get(normalise_state(state))
        if target is None:
            raise self.service.no_such_state(state, [node["name"] for node in known.values()])
        if normalise_state(str(dig(issue, "state", "name"))) == normalise_state(state):
            return str(target["name"])
        data = yield from self._ask(MOVE, {"id": issue_id, "state": target["id"]})
        return text(dig(data, "issueUpdate", "issue", "state", "name")) or "an unknown state"

    @override
    def tools(self) -> tuple[ToolSpec, ...]:
        off = self.settings.scope is RawToolScope.OFF
        return () if off else (graphql_spec(self.tool_name, self.service.name),)

    @override
    def call_tool(self, arguments: Mapping[str, Any], issue: Issue) -> http.Flow[ToolResult]:
        call = graphql_call(arguments, _WRITES_COMMENT)
        if isinstance(call, str):
            return ToolResult.error(call)
        query, variables = call
        if problem := (yield from self._label_problem(query, variables)):
            return refusal(problem)
        answer = yield http.Request(
            endpoint=self.tool_name,
            method="POST",
            body={"query": query, "variables": dict(variables)},
            accept=frozenset({400}),
        )
        success = isinstance(answer.body, Mapping) and not items(answer.body.get("errors"))
        result = show(answer, success=success, read_only="mutation" not in query)
        return replace(result, commented=success and writes_comment(query))

    def _label_problem(self, query: str, variables: Mapping[str, Any]) -> http.Flow[str | None]:
        """Why the request may change a deciding label."""
        found = graphql_label_request(
            query, variables, single_changes=_SINGLE_LABELS, create="issueLabelCreate"
        )
        if found is None or isinstance(found, str):
            return found
        names: list[str] = []
        for batch in batches([each for each in map(_uuid, dict.fromkeys(found.texts)) if each], PAGE):
            data = yield from self._ask(LABEL_NAMES, {"ids": batch, "first": PAGE})
            names += texts(dig(node, "name") for node in items(dig(data, "issueLabels", "nodes")))
        return self.deciding_labels.problem(found, names)


def _uuid(value: str) -> str | None:
    """The canonical form of an id, which can be written in several ways."""
    try:
        return str(UUID(value))
    except ValueError:
        return None


KIND = RemoteKind(LinearSettings, LinearFlows, webhooks=LINEAR)
