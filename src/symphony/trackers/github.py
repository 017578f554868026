"""GitHub Issues, on github.com and on GitHub Enterprise Server (kind `github`; docs/trackers/github.md)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from symphony.config import TrackerSettings
from symphony.domain import Blocker, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.trackers import tools
from symphony.trackers.base import AccountInfo, Comment, no_such_state, not_found
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
    STANDARD,
    THROTTLED,
    Answer,
    Flow,
    Pager,
    Request,
    ServiceProfile,
    malformed,
    plain_message,
    plain_status,
)
from symphony.trackers.http.graphql import error_codes, graphql, page_of, question
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.remote import Access, RemoteKind
from symphony.trackers.repository import (
    CLOSED,
    ISSUE,
    NUMBER,
    OPEN,
    REPOSITORY,
    Comments,
    LabelState,
    StatusLabels,
    login_of,
    reach_of,
)
from symphony.trackers.tools import RestCall, RestTool, Scope, marked_query, query_of, within
from symphony.trackers.webhooks import GITHUB

# What `tracker` means for GitHub; the keys of the reference, `states` and `scope` (TR10).


PROVIDER_KEYS = ("repo", "token", "api_url", "states", "wait_for_sub_issues", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"GITHUB_TOKEN"})
DEFAULT_API_URL = "https://api.github.com"
DEFAULT_FIELD = "Status"
_API_VERSION = "2022-11-28"
_OWN_STATES = frozenset({"open", "closed"})


class Source(StrEnum):
    """Where the state of an issue is read."""

    ISSUE = "issue"
    LABELS = "labels"
    PROJECT = "project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project (of the second version) whose field holds the state: whose, which number, which field."""

    owner: str
    number: int
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GithubConfig:
    """One repository.

    Attributes:
        graphql: the address of the GraphQL API, on the host of the REST API.
        labels: the labels that stand for states, where they are the source.
        wait_for_sub_issues: an issue with open sub-issues is held back.
    """

    access: Access
    owner: str
    repo: str
    graphql: str
    source: Source
    labels: StatusLabels
    project: Project | None
    wait_for_sub_issues: bool
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]

    @property
    def path(self) -> str:
        """The repository's path below the base address."""
        return f"/repos/{self.owner}/{self.repo}"


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> GithubConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("github", settings.provider, environment)
    token = reader.secret("token", variable="GITHUB_TOKEN")
    base = reader.address("api_url", DEFAULT_API_URL)
    repo = reader.needed("repo", variable="GITHUB_REPO", rule=REPOSITORY, must="be owner/name")
    owner, _, name = repo.partition("/")
    if {owner, name} & {".", ".."}:
        reader.wrong("repo", "must be owner/name")
    active = reader.states("active_states", settings.active_states, default=None)
    terminal = reader.states("terminal_states", settings.terminal_states, default=None)
    resting = () if settings.on_block is None else (settings.on_block,)
    states = reader.part("states")
    source = _source(reader, states)
    if source is Source.ISSUE:
        _only_own_states(reader, active_states=active, terminal_states=terminal, on_block=resting)
    project = _project(reader, states, owner) if source is Source.PROJECT else None
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/vnd.github+json",
        "x-github-api-version": _API_VERSION,
    }
    config = GithubConfig(
        access=Access(base=base, credential=token, headers=headers),
        owner=owner,
        repo=name,
        graphql=_graphql(base),
        source=source,
        labels=StatusLabels.of(reader, states, (*active, *terminal, *resting)),
        project=project,
        wait_for_sub_issues=reader.flag("wait_for_sub_issues", default=False),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=active,
        terminal=terminal,
    )
    reader.done()
    return config


def _source(reader: ProviderReader, states: Mapping[str, Any]) -> Source:
    known = {"source", "prefix", "labels", "project", "owner", "field"}
    for key in sorted(str(key) for key in states if key not in known):
        reader.wrong("states", f"has an unknown key {key[:80]!r}", hint=f"keys: {', '.join(sorted(known))}")
    value = states.get("source", Source.ISSUE)
    if value in tuple(Source):
        return Source(value)
    reader.wrong("states", f"needs a source: {', '.join(Source)}")
    return Source.LABELS


def _only_own_states(reader: ProviderReader, **named: tuple[str, ...]) -> None:
    for key, names in named.items():
        for name in names:
            if name.lower() not in _OWN_STATES:
                reader.wrong_at(
                    ("tracker", key),
                    f"names {name!r}, and an issue is open or closed",
                    hint="set tracker.provider.states to {source: labels} or {source: project}",
                )


def _project(reader: ProviderReader, states: Mapping[str, Any], owner: str) -> Project | None:
    number = states.get("project")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        reader.wrong("states", "needs `project`, the number in the project's address")
        return None
    return Project(
        owner=_named(reader, states, "owner", owner),
        number=number,
        field=_named(reader, states, "field", DEFAULT_FIELD),
    )


def _named(reader: ProviderReader, states: Mapping[str, Any], key: str, default: str) -> str:
    value = states.get(key, default)
    if isinstance(value, str) and value.strip():
        return value.strip()
    reader.wrong("states", f"needs `{key}` to be a text")
    return default


def _graphql(base: str) -> str:
    """`/graphql` beside the REST API: GitHub Enterprise Server has `/api/v3` and `/api/graphql`."""
    parts = urlsplit(base)
    path = parts.path.removesuffix("/v3") if parts.path.endswith("/api/v3") else parts.path
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/graphql", "", ""))


# How GitHub says no: a limit is a 403 or a 429, and any other 403 is a matter of rights.


_FORBIDDEN = 403
_WRITE_GAP_MS = 1_000


def _status(answer: Answer) -> int:
    """429 for a secondary limit too, which may name no time and tells itself only in words."""
    if error_codes(answer) & {"rate_limited", "rate_limit"}:
        return THROTTLED
    if answer.status == _FORBIDDEN and "rate limit" in plain_message(answer.body).lower():
        return THROTTLED
    return plain_status(answer)


SERVICE = ServiceProfile(
    service="GitHub",
    secret="tracker.provider.token",  # noqa: S106 - the name of a setting
    scope="tracker.provider.repo",
    status=_status,
    buckets=STANDARD,
    resource="x-ratelimit-resource",
    write_gap_ms=_WRITE_GAP_MS,
)


# From GitHub's JSON to issues. Pure.


_INSIDERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What was asked for besides the issues: blockers, and states of a project, by number of the issue."""

    blockers: Mapping[str, tuple[Blocker, ...]]
    states: Mapping[str, str]


def number_of(record: Any) -> str | None:
    """The number of an issue as text, or null."""
    number = whole(mapping(record).get("number"))
    return str(number) if number is not None and number > 0 else None


def is_pull_request(record: Any) -> bool:
    """Whether the record is a pull request, which GitHub lists among issues."""
    return mapping(record).get("pull_request") is not None


def blocked_count(record: Any) -> int:
    """How many open issues block this one, as its own record says; no request is needed to know of none."""
    return whole(mapping(mapping(record).get("issue_dependencies_summary")).get("blocked_by")) or 0


def may_answer(comment: Any) -> bool | None:
    """Whether the words of who wrote a comment answer a question; `None` where only the issue's author may.

    An account that is gone and an app are nobody. GitHub tells with each comment how its author stands to the
    repository: its owner, a member of the organisation that owns it, or a collaborator.
    """
    user, record = mapping(mapping(comment).get("user")), mapping(comment)
    if user.get("type") != "User" or record.get("performed_via_github_app") is not None:
        return False
    return True if record.get("author_association") in _INSIDERS else None


def label_names(record: Any) -> list[str]:
    """The names of a record's labels, which may be texts or maps."""
    names = (
        label if isinstance(label, str) else mapping(label).get("name")
        for label in items(mapping(record).get("labels"))
    )
    return [name for name in names if isinstance(name, str) and name.strip()]


def issue_of(record: Any, *, config: GithubConfig, terminal: frozenset[str], board: Board) -> Issue | None:
    """One issue; null for a pull request, and where states are in a project, for what is not in it.

    Raises:
        MalformedRecordError: it has no number, title or state.
    """
    number, title, own = required(record, "number"), required(record, "title"), required(record, "state")
    if own not in {"open", "closed"}:
        raise MalformedRecordError(f"has the state {own[:40]!r}, which is neither open nor closed")
    if is_pull_request(record):
        return None
    state = _state(record, own, config, terminal, board)
    if state is None:
        return None
    blockers = board.blockers.get(number, ())
    objection = state.objection or _objection(record, blockers, config, terminal)
    return Issue(
        id=number,
        identifier=f"GH-{number}",
        title=title,
        state=state.state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref=_native_ref(record, config),
        description=text(record.get("body")),
        url=text(record.get("html_url")),
        assignee_id=text(mapping(record.get("assignee")).get("login")),
        labels=normalise_labels(label_names(record)),
        blocked_by=blockers,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def _state(
    record: Mapping[str, Any], own: str, config: GithubConfig, terminal: frozenset[str], board: Board
) -> LabelState | None:
    match config.source:
        case Source.ISSUE:
            return LabelState(state=own)
        case Source.LABELS:
            return config.labels.read(label_names(record), closed=own == "closed", terminal=terminal)
        case Source.PROJECT:
            state = board.states.get(str(record["number"]))
            if own == "closed" and (state is None or normalise_state(state) not in terminal):
                return LabelState(state="closed")
            return None if state is None else LabelState(state=state)


def _objection(
    record: Mapping[str, Any], blockers: Sequence[Blocker], config: GithubConfig, terminal: frozenset[str]
) -> str | None:
    going_on = [blocker for blocker in blockers if normalise_state(blocker.state or "") not in terminal]
    waits_for = [blocker.identifier or "an unknown issue" for blocker in going_on]
    if waits_for:
        return f"it is blocked by {', '.join(waits_for)}"
    total, done = _sub_issues(record)
    if config.wait_for_sub_issues and done < total:
        return f"{total - done} of its {total} sub-issues are open"
    return None


def _sub_issues(record: Mapping[str, Any]) -> tuple[int, int]:
    summary = mapping(record.get("sub_issues_summary"))
    return whole(summary.get("total")) or 0, whole(summary.get("completed")) or 0


def _native_ref(record: Mapping[str, Any], config: GithubConfig) -> Mapping[str, Any]:
    ref: dict[str, Any] = {
        "id": whole(record.get("id")),
        "node_id": text(record.get("node_id")),
        "number": whole(record.get("number")),
        "repo": f"{config.owner}/{config.repo}",
    }
    total, done = _sub_issues(record)
    return {**ref, "sub_issues": {"total": total, "completed": done}} if total else ref


def blockers_of(
    records: Sequence[Any], config: GithubConfig, terminal: frozenset[str]
) -> tuple[Blocker, ...]:
    """The issues that block another one; those of other repositories are named with theirs.

    Their state is that of their labels where states are in labels, else open or closed.
    """
    found = []
    for record in records:
        number = number_of(record)
        if number is None:
            continue
        repo = "/".join((text(mapping(record).get("repository_url")) or "").split("/")[-2:])
        here = not repo or repo.lower() == f"{config.owner}/{config.repo}".lower()
        found.append(
            Blocker(
                id=number if here else f"{repo}#{number}",
                identifier=f"GH-{number}" if here else f"{repo}#{number}",
                state=_state_of_blocker(mapping(record), config, terminal),
            )
        )
    return tuple(found)


def _state_of_blocker(
    record: Mapping[str, Any], config: GithubConfig, terminal: frozenset[str]
) -> str | None:
    own = text(record.get("state"))
    if config.source is not Source.LABELS or own is None:
        return own
    return config.labels.read(label_names(record), closed=own == "closed", terminal=terminal).state


# States that are kept in a project: GitHub has them in GraphQL only, beside the issues and not in them.


PROJECT_PAGE = 100
BATCH = 50

ITEMS = """query SymphonyItems(
  $owner: String!, $number: Int!, $field: String!, $first: Int!, $after: String
) {
  repositoryOwner(login: $owner) {
    ... on ProjectV2Owner {
      projectV2(number: $number) {
        items(first: $first, after: $after) {
          nodes {
            isArchived
            fieldValueByName(name: $field) { ... on ProjectV2ItemFieldSingleSelectValue { name } }
            content { ... on Issue { number repository { nameWithOwner } } }
          }
          pageInfo { hasNextPage endCursor }
        }
      }
    }
  }
}"""

LOOK = """query SymphonyProject($owner: String!, $number: Int!, $field: String!) {
  repositoryOwner(login: $owner) {
    ... on ProjectV2Owner {
      projectV2(number: $number) {
        id
        title
        field(name: $field) { ... on ProjectV2SingleSelectField { id options { id name } } }
      }
    }
  }
}"""

_ITEM = """projectItems(first: 20) {
      nodes {
        id
        isArchived
        project { number owner { ... on Organization { login } ... on User { login } } }
        fieldValueByName(name: $field) { ... on ProjectV2ItemFieldSingleSelectValue { name } }
      }
    }"""

OF_ISSUE = f"""query SymphonyItem($owner: String!, $repo: String!, $number: Int!, $field: String!) {{
  repository(owner: $owner, name: $repo) {{
    issue(number: $number) {{
      {_ITEM}
    }}
  }}
}}"""

MOVE = """mutation SymphonyMoveItem($project: ID!, $item: ID!, $field: ID!, $option: String!) {
  updateProjectV2ItemFieldValue(
    input: {projectId: $project, itemId: $item, fieldId: $field, value: {singleSelectOptionId: $option}}
  ) { projectV2Item { id } }
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A project's field: its states in their order, and the ids by which one is set."""

    project_id: str
    title: str
    field_id: str
    by_name: Mapping[str, str]


def states_of_all(config: GithubConfig, project: Project) -> Flow[Mapping[str, str]]:
    """The state of every issue of the repository in the project, by number; archived items left out."""
    variables = {
        "owner": project.owner,
        "number": project.number,
        "field": project.field,
        "first": PROJECT_PAGE,
    }
    request = question("SymphonyItems", ITEMS, variables, path=config.graphql)
    trail = Pager(SERVICE, request, config.access.base)
    states: dict[str, str] = {}
    while True:
        data = yield from graphql(SERVICE, request)
        found = mapping(mapping(data.get("repositoryOwner")).get("projectV2"))
        if not found:
            raise _no_project(project)
        nodes, cursor, more = page_of(SERVICE, request, found.get("items"))
        states.update(_states(nodes, config))
        trail.count(len(nodes))
        if not more:
            return states
        after = {**variables, "after": trail.cursor(cursor)}
        request = question("SymphonyItems", ITEMS, after, path=config.graphql)


def _states(nodes: Iterable[Any], config: GithubConfig) -> Iterable[tuple[str, str]]:
    for node in nodes:
        content, state = mapping(mapping(node).get("content")), _project_state(node)
        repo = text(mapping(content.get("repository")).get("nameWithOwner")) or ""
        number = number_of(content)
        if number and state and repo.lower() == f"{config.owner}/{config.repo}".lower():
            yield number, state


def _project_state(node: Any) -> str | None:
    if mapping(node).get("isArchived") is True:
        return None
    return text(mapping(mapping(node).get("fieldValueByName")).get("name"))


def states_of_some(config: GithubConfig, project: Project, numbers: Sequence[str]) -> Flow[Mapping[str, str]]:
    """The states of these issues, by number; those that are not in the project are left out."""
    states: dict[str, str] = {}
    for start in range(0, len(numbers), BATCH):
        batch = numbers[start : start + BATCH]
        issues = "\n    ".join(f"i{number}: issue(number: {number}) {{ {_ITEM} }}" for number in batch)
        query = f"""query SymphonyItemsOf($owner: String!, $repo: String!, $field: String!) {{
  repository(owner: $owner, name: $repo) {{
    {issues}
  }}
}}"""
        variables = {"owner": config.owner, "repo": config.repo, "field": project.field}
        request = question("SymphonyItemsOf", query, variables, path=config.graphql)
        data = yield from graphql(SERVICE, request)
        for number in batch:
            item = _item(mapping(data.get("repository")).get(f"i{number}"), project)
            if item is not None and (state := _project_state(item)):
                states[number] = state
    return states


def _item(issue: Any, project: Project) -> Any:
    """The issue's row in the project, or null."""
    for node in items(mapping(mapping(issue).get("projectItems")).get("nodes")):
        found = mapping(mapping(node).get("project"))
        owner = text(mapping(found.get("owner")).get("login")) or ""
        if found.get("number") == project.number and owner.lower() == project.owner.lower():
            return node
    return None


def options(config: GithubConfig, project: Project) -> Flow[Options]:
    """The states of the project. Raises `TrackerError` where there is no such project or field."""
    variables = {"owner": project.owner, "number": project.number, "field": project.field}
    request = question("SymphonyProject", LOOK, variables, path=config.graphql)
    data = yield from graphql(SERVICE, request)
    found = mapping(mapping(data.get("repositoryOwner")).get("projectV2"))
    if not found:
        raise _no_project(project)
    field = mapping(found.get("field"))
    project_id, field_id = text(found.get("id")), text(field.get("id"))
    if project_id is None or field_id is None:
        hint = "tracker.provider.states.field is a single select field of the project"
        raise not_found(SERVICE.service, f"field {project.field!r} in project {project.number}", hint=hint)
    by_name = {
        option["name"]: option["id"]
        for option in items(field.get("options"))
        if text(mapping(option).get("name")) and text(option.get("id"))
    }
    return Options(
        project_id=project_id, title=text(found.get("title")) or "", field_id=field_id, by_name=by_name
    )


def move(config: GithubConfig, project: Project, number: str, state: str) -> Flow[None]:
    """Set the field of an issue's row. Raises `TrackerError` where there is no such state or row."""
    known = yield from options(config, project)
    option = next(
        (key for name, key in known.by_name.items() if normalise_state(name) == normalise_state(state)), None
    )
    if option is None:
        raise no_such_state(SERVICE.service, state, tuple(known.by_name))
    variables = {
        "owner": config.owner,
        "repo": config.repo,
        "number": int(number),
        "field": project.field,
    }
    data = yield from graphql(SERVICE, question("SymphonyItem", OF_ISSUE, variables, path=config.graphql))
    item = text(mapping(_item(mapping(data.get("repository")).get("issue"), project)).get("id"))
    if item is None:
        raise not_found(SERVICE.service, f"issue {number} in project {project.number}")
    ids = {"project": known.project_id, "item": item, "field": known.field_id, "option": option}
    request = question("SymphonyMoveItem", MOVE, ids, path=config.graphql, writes=True)
    data = yield from graphql(SERVICE, request)
    if not mapping(data.get("updateProjectV2ItemFieldValue")):
        raise malformed(SERVICE, "did not carry out SymphonyMoveItem")


def _no_project(project: Project) -> Exception:
    hint = "check tracker.provider.states, and whether the token may read projects"
    return not_found(SERVICE.service, f"project {project.number} of {project.owner}", hint=hint)


# What is asked of GitHub, and in which order (TR1, TR2, TR8).
#
# Every read of the REST API is conditional: what did not change is confirmed with an empty answer, which is
# not counted against the limit.


PAGE = "100"
_METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
_GONE = frozenset({301, 404, 410})
_REFUSED = frozenset({403, 404})
_OK = 200
_COMMENTING = re.compile(r"\b(?:addComment|updateIssueComment)\b")
_VIEWER = "query SymphonyViewer { viewer { login } }"


class GithubFlows:
    """Implements `remote.Flows` for one repository. Knows between flows who we are."""

    kind = "github"
    dialect: ServiceProfile = SERVICE

    def __init__(self, config: GithubConfig) -> None:
        self._config = config
        self._terminal = frozenset(normalise_state(state) for state in (*config.terminal, CLOSED))
        self._me: str | None = None
        self._comments = Comments(dialect=self.dialect, path=config.path)
        self._tool = RestTool(
            name="github_api",
            service=self.dialect.service,
            methods=_METHODS,
            scope=config.scope,
            mark=self._mark,
            note=f"The repository is {config.owner}/{config.repo}.",
        )

    # --- reads -------------------------------------------------------------------------------------------

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """As `Flows.by_states`."""
        wanted = frozenset(normalise_state(state) for state in states)
        in_project: Mapping[str, str] = {}
        if self._config.project is not None:
            in_project = yield from states_of_all(self._config, self._config.project)
        records: list[Any] = []
        for query in self._queries(states, wanted):
            path = f"{self._config.path}/issues"
            order = [("sort", "created"), ("direction", "asc"), ("per_page", PAGE)]
            records += yield from self._pages("/repos/{}/issues", path, [*query, *order])
        board = Board(blockers=(yield from self._blockers(records)), states=in_project)

        def read(record: Any) -> Issue | None:
            issue = issue_of(record, config=self._config, terminal=self._terminal, board=board)
            return issue if issue is not None and normalise_state(issue.state) in wanted else None

        return listing(self.dialect.service, records, read)

    def _queries(self, states: Sequence[str], wanted: frozenset[str]) -> Iterator[list[tuple[str, str]]]:
        """What to list so that nothing in the states is missed; one listing where that is no more."""
        if self._config.source is Source.ISSUE:
            own = wanted & {OPEN, CLOSED}
            if own:
                yield [("state", "all" if len(own) > 1 else next(iter(own)))]
        elif self._config.source is Source.PROJECT or OPEN in wanted:
            yield [("state", "all" if wanted & self._terminal else OPEN)]
        else:
            if CLOSED in wanted:
                yield [("state", CLOSED)]
            for state in states:
                label = self._config.labels.label(state)
                over = normalise_state(state) in self._terminal
                if label is not None:
                    yield [("state", "all" if over else OPEN), ("labels", label)]

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """As `Flows.by_ids`: one by one, since GitHub has no list by number; 404, 410 and 301 mean gone."""
        numbers = [number for number in ids if NUMBER.fullmatch(number)]
        records = []
        for number in numbers:
            request = self._request(ISSUE, f"/issues/{number}", accept=_GONE)
            answer = yield request
            if answer.status == _OK:
                records.append(answer.body)
        if len(records) < len(numbers):  # is it the issue that is gone, or the whole repository?
            yield self._request("/repos/{}/issues", "/issues", query=[("per_page", "1")])
        in_project: Mapping[str, str] = {}
        if self._config.project is not None and records:
            found = [number for number in map(number_of, records) if number]
            in_project = yield from states_of_some(self._config, self._config.project, found)
        board = Board(blockers=(yield from self._blockers(records)), states=in_project)

        def read(record: Any) -> Issue | None:
            return issue_of(record, config=self._config, terminal=self._terminal, board=board)

        return snapshots(self.dialect.service, records, read, wanted=ids)

    def _blockers(self, records: Sequence[Any]) -> Flow[Mapping[str, tuple[Blocker, ...]]]:
        """What blocks the issues whose own record says that something does."""
        found: dict[str, tuple[Blocker, ...]] = {}
        for record in records:
            number = number_of(record)
            if number is None or number in found or is_pull_request(record):
                continue
            if blocked_count(record) > 0:
                path = f"{self._config.path}/issues/{number}/dependencies/blocked_by"
                nodes = yield from self._pages(f"{ISSUE}/dependencies/blocked_by", path, [("per_page", PAGE)])
                found[number] = blockers_of(nodes, self._config, self._terminal)
        return found

    def _request(
        self,
        endpoint: str,
        below: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        accept: frozenset[int] = frozenset(),
    ) -> Request:
        return Request(
            endpoint=endpoint,
            path=f"{self._config.path}{below}",
            query=query,
            conditional=True,
            accept=accept,
        )

    def _pages(self, endpoint: str, path: str, query: Sequence[tuple[str, str]]) -> Flow[list[Any]]:
        request = Request(endpoint=endpoint, path=path, query=query, conditional=True)
        trail = Pager(self.dialect, request, self._config.access.base)
        records: list[Any] = []
        while True:
            answer: Answer = yield request
            if not isinstance(answer.body, list):
                raise malformed(self.dialect, f"answered no list to {request.endpoint}")
            records += answer.body
            trail.count(len(answer.body))
            following = trail.link(answer)
            if following is None:
                return records
            request = Request(endpoint=endpoint, path=following, conditional=True)

    def account_info(self) -> Flow[AccountInfo]:
        """As `Flows.account_info`."""
        config = self._config
        yield self._request("/repos/{}/issues", "/issues", query=[("per_page", "1")])
        login = yield from self._login()
        states: Sequence[str] = (OPEN, CLOSED)
        if config.project is not None:
            known = yield from options(config, config.project)
            states = (*known.by_name, CLOSED)
        elif config.source is Source.LABELS:
            states = (*config.labels.by_state, OPEN, CLOSED)
        return AccountInfo(login=login, scope=f"{config.owner}/{config.repo}", states=tuple(states))

    def _login(self) -> Flow[str]:
        """Whose token this is; an installation of an app has no `/user`, and is asked otherwise."""
        if self._me is not None:
            return self._me
        answer = yield Request(endpoint="/user", path="/user", conditional=True, accept=_REFUSED)
        login = text(mapping(answer.body).get("login"))
        if login is None or answer.status in _REFUSED:
            request = question("SymphonyViewer", _VIEWER, {}, path=self._config.graphql)
            data = yield from graphql(self.dialect, request)
            login = text(mapping(data.get("viewer")).get("login"))
        if login is None:
            raise malformed(self.dialect, "does not tell whose token this is")
        self._me = login
        return login

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`."""
        me = yield from self._login()
        path = f"{self._config.path}/issues/{self._comments.number(issue_id)}/comments"
        records = yield from self._pages(f"{ISSUE}/comments", path, [("per_page", PAGE)])
        return self._comments.read(records, login=me, may_answer=may_answer)

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: the author of the issue; each comment tells who else may."""
        number = self._comments.number(issue_id)
        answer = yield self._request(ISSUE, f"/issues/{number}")
        return frozenset(author_keys) & {login_of(answer.body)}

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; GitHub gives the id."""
        del key
        return (yield from self._comments.create(issue_id, body))

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`."""
        del issue_id
        yield from self._comments.edit(comment_id, body)

    # --- moves and tools ---------------------------------------------------------------------------------

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`."""
        before = yield from self._one(issue_id)
        if normalise_state(before.state) == normalise_state(state) and before.dispatchable:
            return before.state
        if normalise_state(state) in {OPEN, CLOSED} and self._config.project is None:
            yield from self._set_own(issue_id, normalise_state(state))
        elif self._config.project is not None:
            yield from move(self._config, self._config.project, issue_id, state)
        else:
            yield from self._set_label(before.id, state)
        return (yield from self._one(issue_id)).state

    def _one(self, issue_id: str) -> Flow[Issue]:
        found = yield from self.by_ids([self._comments.number(issue_id)])
        if not found:
            raise not_found(self.dialect.service, f"issue {issue_id}")
        return found[0]

    def _set_own(self, issue_id: str, state: str) -> Flow[None]:
        path = f"{self._config.path}/issues/{issue_id}"
        answer = yield Request(endpoint=ISSUE, method="PATCH", path=path, body={"state": state})
        if state == OPEN:
            yield from self._remove_labels(issue_id, label_names(answer.body))

    def _set_label(self, issue_id: str, state: str) -> Flow[None]:
        """Change the status label in one write: between two, the issue would contradict itself.

        A label that somebody changes between our look and the write is set back: a matter of a moment, and
        GitHub offers no write that tells.
        """
        label = self._config.labels.label(state)
        if label is None or self._config.source is Source.ISSUE:
            raise no_such_state(self.dialect.service, state, (*self._config.labels.by_state, OPEN, CLOSED))
        path = f"{self._config.path}/issues/{issue_id}"
        names = label_names((yield Request(endpoint=ISSUE, path=path)).body)
        of_status = {name.lower() for name in self._config.labels.of_status(names)}
        kept = [name for name in names if name.lower() not in of_status]
        yield Request(
            endpoint=f"{ISSUE}/labels", method="PUT", path=f"{path}/labels", body={"labels": [*kept, label]}
        )

    def _remove_labels(self, issue_id: str, labels: Sequence[str]) -> Flow[None]:
        """Take the status labels away, one by one, so that nobody else's labels are touched."""
        for label in self._config.labels.of_status(labels):
            yield Request(
                endpoint=f"{ISSUE}/labels/{{}}",
                method="DELETE",
                path=f"{self._config.path}/issues/{issue_id}/labels/{quote(label, safe='')}",
                accept=frozenset({404}),
            )

    def tools(self) -> tuple[ToolSpec, ...]:
        """`github_api`, unless `scope` is `off`."""
        return self._tool.specs()

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw request; a refusal of GitHub is an answer to the model."""
        del name
        return (yield from self._tool.call(arguments, lambda call: self._beyond(call, issue)))

    def _mark(self, call: RestCall) -> RestCall | str:
        """Mark the comments that an agent writes, by REST or by GraphQL."""
        if call.steps[-1] != "graphql":
            return self._comments.mark(call)
        given = query_of(call.body)
        if isinstance(given, str):
            return given
        found = marked_query(*given, _COMMENTING)
        if isinstance(found, str):
            return found
        return replace(call, body={"query": found[0], "variables": found[1]})

    def _beyond(self, call: RestCall, issue: Issue) -> str | None:
        owner, repo = self._config.owner, self._config.repo
        return within(
            call,
            self._config.scope,
            issue=reach_of(owner, repo, issue.id),
            project=reach_of(owner, repo, None),
        )


KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*tools.NAMES, "github_api"),
    configure=read_config,
    flows=GithubFlows,
    webhooks=GITHUB,
)
