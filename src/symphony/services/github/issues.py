"""GitHub Issues, on github.com and GitHub Enterprise Server (kind `github`; docs/trackers/github.md)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Struct
from pydantic import Field, model_validator
from typing_extensions import override

from symphony import http
from symphony.domain import Blocker, Issue, normalise_labels, normalise_state
from symphony.http.fields import dig, instant, items, required, text, texts, whole
from symphony.http.graphql import all_nodes, graphql, operation
from symphony.services.github import SERVICE, graphql_address
from symphony.services.issues import (
    CLOSED,
    PAGE,
    REPO_RULE,
    RepositoryFlows,
    RepositorySettings,
    StateSource,
    is_pull_request,
    label_names,
    login_of,
    number_of,
)
from symphony.trackers import provider
from symphony.trackers.base import AccountInfo, Comment, IssueToCreate, marked_issue_body
from symphony.trackers.deciding_labels import graphql_label_request
from symphony.trackers.fields import Listing
from symphony.trackers.raw_tools import RestCall, graphql_call
from symphony.trackers.remote import RemoteKind, batches
from symphony.trackers.webhooks import GITHUB

# --- settings --------------------------------------------------------------------------------------------

Name = Annotated[str, provider.matches(r".*\S.*", "be a text")]


class GithubStates(StateSource):
    """Where states are kept; also in a field of a project, named by owner, number and field."""

    sources = ("issue", "labels", "project")

    project: Annotated[int, Field(gt=0)] | None = None
    owner: Name | None = None
    field: Name = "Status"

    @model_validator(mode="after")
    def _has_project(self) -> "GithubStates":
        if self.source == "project" and self.project is None:
            raise provider.SettingError("needs `project`, the number in the project's address")
        return self


class GithubSettings(RepositorySettings):
    """One repository; `wait_for_sub_issues` holds back an issue with open sub-issues."""

    kind = "github"

    repo: Annotated[str, provider.StandInVariable("GITHUB_REPO"), REPO_RULE]
    token: Annotated[provider.Credential, provider.StandInVariable("GITHUB_TOKEN")]
    api_url: provider.Address = SERVICE.address
    states: GithubStates = GithubStates()
    wait_for_sub_issues: bool = False

    @property
    @override
    def access(self) -> provider.ServiceAccess:
        token = self.token.reveal()
        return provider.ServiceAccess(base=self.api_url, credential=token, headers=SERVICE.headers(token))

    @property
    def graphql(self) -> str:
        """The address of the GraphQL API."""
        return graphql_address(self.api_url)

    @property
    def uses_project(self) -> bool:
        """Whether a project holds the states."""
        return self.states.source == "project"

    @property
    def project_owner(self) -> str:
        """The account that owns the project."""
        return self.states.owner or self.repo.partition("/")[0]


# --- from JSON to issues ---------------------------------------------------------------------------------

Blockers = Mapping[str, tuple[Blocker, ...]]
"""The blockers of issues, by number."""


def issue_of(
    record: Any, settings: GithubSettings, blockers: Blockers, in_project: Mapping[str, str]
) -> Issue | None:
    """One issue; `None` for a pull request, and for an issue outside the project that has the states.

    Args:
        record: an issue of the REST API.
        settings: the settings of the repository.
        blockers: the blockers of issues.
        in_project: the states of issues in the project, by number.

    Raises:
        MalformedRecordError: it has no number, title or state.
    """
    number, title, own = required(record, "number"), required(record, "title"), settings.own_state_of(record)
    if is_pull_request(record):
        return None
    if not settings.uses_project:
        state, unclear = settings.state_of(own, label_names(record))
    elif own == CLOSED:
        found = in_project.get(number)
        state, unclear = found if found and settings.is_terminal(found) else CLOSED, None
    elif number in in_project:
        state, unclear = in_project[number], None
    else:
        return None
    blocked_by = blockers.get(number, ())
    total, completed = (whole(dig(record, "sub_issues_summary", key)) or 0 for key in ("total", "completed"))
    objection = unclear or settings.objection(blocked_by)
    if objection is None and settings.wait_for_sub_issues and completed < total:
        objection = f"{total - completed} of its {total} sub-issues are open"
    native_ref: dict[str, Any] = {
        "id": whole(record.get("id")),
        "node_id": text(record.get("node_id")),
        "number": whole(record.get("number")),
        "repo": settings.repo,
    }
    if total:
        native_ref["sub_issues"] = {"total": total, "completed": completed}
    return Issue(
        id=number,
        identifier=f"GH-{number}",
        title=title,
        state=state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref=native_ref,
        description=text(record.get("body")),
        url=text(record.get("html_url")),
        assignee_id=text(dig(record, "assignee", "login")),
        labels=normalise_labels(label_names(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def blocker_of(record: Any, settings: GithubSettings) -> Blocker | None:
    """An issue that blocks another one; named with its repository if that is another one."""
    number, state = number_of(record), text(dig(record, "state"))
    if number is None:
        return None
    if settings.states.source == "labels" and state is not None:
        state, _ = settings.state_of(state, label_names(record))
    repo = "/".join((text(dig(record, "repository_url")) or "").split("/")[-2:])
    if repo and repo.lower() != settings.repo.lower():
        return Blocker(id=f"{repo}#{number}", identifier=f"{repo}#{number}", state=state)
    return Blocker(id=number, identifier=f"GH-{number}", state=state)


def may_answer(comment: Any) -> bool | None:
    """Whether the author may answer questions; `None` if only the author of the issue may.

    Apps and deleted accounts may not. GitHub reports with each comment whether the author owns the
    repository, belongs to the owning organisation, or is a collaborator.
    """
    if dig(comment, "user", "type") != "User" or dig(comment, "performed_via_github_app") is not None:
        return False
    return True if dig(comment, "author_association") in {"OWNER", "MEMBER", "COLLABORATOR"} else None


# --- states in a project: only in GraphQL, beside the issues ---------------------------------------------

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

OPTIONS = """query SymphonyProject($owner: String!, $number: Int!, $field: String!) {
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

_ROW = """projectItems(first: 20) {
      nodes {
        id
        isArchived
        project { number owner { ... on Organization { login } ... on User { login } } }
        fieldValueByName(name: $field) { ... on ProjectV2ItemFieldSingleSelectValue { name } }
      }
    }"""

ITEM = f"""query SymphonyItem($owner: String!, $repo: String!, $number: Int!, $field: String!) {{
  repository(owner: $owner, name: $repo) {{
    issue(number: $number) {{
      {_ROW}
    }}
  }}
}}"""

SET_OPTION = """mutation SymphonyMoveItem($project: ID!, $item: ID!, $field: ID!, $option: String!) {
  updateProjectV2ItemFieldValue(
    input: {projectId: $project, itemId: $item, fieldId: $field, value: {singleSelectOptionId: $option}}
  ) { projectV2Item { id } }
}"""


ADD_ITEM = """mutation SymphonyAddItem($project: ID!, $issue: ID!) {
  addProjectV2ItemById(input: {projectId: $project, contentId: $issue}) { item { id } }
}"""


LABEL_NAMES = """query SymphonyLabelNames($ids: [ID!]!) {
  nodes(ids: $ids) { ... on Label { name } }
}"""


class Options(Struct, frozen=True, kw_only=True):
    """The states in the field of a project, in order, with the ids that set them."""

    project_id: str
    field_id: str
    by_name: Mapping[str, str]


# --- flows -----------------------------------------------------------------------------------------------
# Every REST read is conditional: GitHub confirms an unchanged list with an empty answer, which does not count
# against the rate limit.

BATCH = 50
_OK = 200
_GONE = frozenset({301, 404, 410})
_NO_USER = frozenset({403, 404})
_SINGLE_LABELS = ("addLabelsToLabelable", "removeLabelsFromLabelable", "createIssue")
_NODE_ID = re.compile(r"[\w+/=-]{8,200}", re.ASCII)
_WRITES_COMMENT = re.compile(r"\b(?:addComment|updateIssueComment)\b")


class GithubFlows(RepositoryFlows[GithubSettings]):
    """The flows of one repository."""

    service = SERVICE
    tool_name = "github_api"

    def __init__(self, settings: GithubSettings) -> None:
        super().__init__(settings)
        self._login: str | None = None

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def by_states(self, states: Sequence[str]) -> http.Flow[Listing]:
        in_project = (yield from self._states_in_project()) if self.settings.uses_project else {}
        records: list[Any] = []
        for query in self.settings.queries(states):
            order = [("sort", "created"), ("direction", "asc")]
            records += yield from self.linked(self.request("/issues", query=[*query, *order]))
        blockers = yield from self._blockers(records)
        return (
            yield from self.listing(
                records, lambda record: issue_of(record, self.settings, blockers, in_project), states
            )
        )

    @override
    def by_ids(self, ids: Sequence[str]) -> http.Flow[Sequence[Issue]]:
        """Makes one request for each issue, because GitHub has no list by number."""
        numbers = self.valid_ids(ids)
        records = []
        for number in numbers:
            answer = yield self.of_issue(number, conditional=True, accept=_GONE)
            if answer.status == _OK:
                records.append(answer.body)
        if len(records) < len(numbers):  # fails if the whole repository is gone
            yield self._first_issue()
        in_project: Mapping[str, str] = {}
        if self.settings.uses_project and records:
            found = [number for number in map(number_of, records) if number]
            in_project = yield from self._states_of(found)
        blockers = yield from self._blockers(records)
        return self.snapshots(
            records, lambda record: issue_of(record, self.settings, blockers, in_project), ids
        )

    def _blockers(self, records: Sequence[Any]) -> http.Flow[Blockers]:
        """The blockers of issues whose own record says that they have some."""
        found: dict[str, tuple[Blocker, ...]] = {}
        for record in records:
            number = number_of(record)
            count = whole(dig(record, "issue_dependencies_summary", "blocked_by")) or 0
            if number and number not in found and count > 0 and not is_pull_request(record):
                blocking = yield from self.linked(self.of_issue(number, "/dependencies/blocked_by"))
                known = (blocker_of(each, self.settings) for each in blocking)
                found[number] = tuple(blocker for blocker in known if blocker is not None)
        return found

    def _first_issue(self) -> http.Request:
        return self.request("/issues", query=[("per_page", "1")], conditional=True)

    @override
    def account_info(self) -> http.Flow[AccountInfo]:
        yield self._first_issue()
        login = yield from self._account()
        states: Sequence[str] = self.settings.all_states
        if self.settings.uses_project:
            options = yield from self._options()
            states = (*options.by_name, CLOSED)
        return AccountInfo(login=login, scope=self.settings.repo, states=tuple(states))

    def _account(self) -> http.Flow[str]:
        """The login of the token. An app installation has no `/user`, so GraphQL is asked."""
        if self._login is None:
            answer = yield http.Request(endpoint="/user", path="/user", conditional=True, accept=_NO_USER)
            self._login = text(dig(answer.body, "login")) if answer.status == _OK else None
        if self._login is None:
            data = yield from self._graphql("query SymphonyViewer { viewer { login } }", {})
            self._login = text(dig(data, "viewer", "login"))
        if self._login is None:
            raise self.service.malformed("does not show the account of this token")
        return self._login

    # --- states in a project -----------------------------------------------------------------------------

    def _graphql(self, document: str, variables: Mapping[str, Any]) -> http.Flow[Mapping[str, Any]]:
        return graphql(self.service, operation(document, variables, path=self.settings.graphql))

    @property
    def _project(self) -> dict[str, Any]:
        states = self.settings.states
        return {"owner": self.settings.project_owner, "number": states.project, "field": states.field}

    @property
    def _repository(self) -> dict[str, Any]:
        owner, _, repo = self.settings.repo.partition("/")
        return {"owner": owner, "repo": repo, "field": self.settings.states.field}

    def _found_project(self, data: Mapping[str, Any]) -> Any:
        project = dig(data, "repositoryOwner", "projectV2")
        if not project:
            raise self.service.not_found(
                f"project {self.settings.states.project} of {self.settings.project_owner}",
                hint="check tracker.provider.states, and whether the token may read projects",
            )
        return project

    def _states_in_project(self) -> http.Flow[Mapping[str, str]]:
        """The state of every issue of the repository in the project, by number."""

        def ask(after: str | None) -> http.Request:
            paging = {"first": PAGE} if after is None else {"first": PAGE, "after": after}
            return operation(ITEMS, {**self._project, **paging}, path=self.settings.graphql)

        nodes = yield from all_nodes(
            self.service, self.settings.api_url, ask, lambda data: dig(self._found_project(data), "items")
        )
        states: dict[str, str] = {}
        for node in nodes:
            number, state = number_of(dig(node, "content")), _state_of_row(node)
            repo = text(dig(node, "content", "repository", "nameWithOwner")) or ""
            if number and state and repo.lower() == self.settings.repo.lower():
                states[number] = state
        return states

    def _states_of(self, numbers: Sequence[str]) -> http.Flow[Mapping[str, str]]:
        """The states of these issues in the project, by number."""
        states: dict[str, str] = {}
        for batch in batches(numbers, BATCH):
            issues = "\n    ".join(f"i{number}: issue(number: {number}) {{ {_ROW} }}" for number in batch)
            query = f"""query SymphonyItemsOf($owner: String!, $repo: String!, $field: String!) {{
  repository(owner: $owner, name: $repo) {{
    {issues}
  }}
}}"""
            data = yield from self._graphql(query, self._repository)
            for number in batch:
                state = _state_of_row(self._row(dig(data, "repository", f"i{number}")))
                if state:
                    states[number] = state
        return states

    def _row(self, issue: Any) -> Any:
        """The row of an issue in the project."""
        for node in items(dig(issue, "projectItems", "nodes")):
            owner = text(dig(node, "project", "owner", "login")) or ""
            same_owner = owner.lower() == self.settings.project_owner.lower()
            if same_owner and dig(node, "project", "number") == self.settings.states.project:
                return node
        return None

    def _options(self) -> http.Flow[Options]:
        data = yield from self._graphql(OPTIONS, self._project)
        project, states = self._found_project(data), self.settings.states
        project_id, field_id = text(dig(project, "id")), text(dig(project, "field", "id"))
        if project_id is None or field_id is None:
            raise self.service.not_found(
                f"field {states.field!r} in project {states.project}",
                hint="tracker.provider.states.field is a single select field of the project",
            )
        by_name = {
            option["name"]: option["id"]
            for option in items(dig(project, "field", "options"))
            if text(dig(option, "name")) and text(dig(option, "id"))
        }
        return Options(project_id=project_id, field_id=field_id, by_name=by_name)

    def _set_option(self, number: str, state: str) -> http.Flow[None]:
        options = yield from self._options()
        option = next(
            (
                option_id
                for name, option_id in options.by_name.items()
                if normalise_state(name) == normalise_state(state)
            ),
            None,
        )
        if option is None:
            raise self.service.no_such_state(state, tuple(options.by_name))
        data = yield from self._graphql(ITEM, {**self._repository, "number": int(number)})
        item = text(dig(self._row(dig(data, "repository", "issue")), "id"))
        if item is None:
            raise self.service.not_found(f"issue {number} in project {self.settings.states.project}")
        ids = {"project": options.project_id, "item": item, "field": options.field_id, "option": option}
        data = yield from self._graphql(SET_OPTION, ids)
        if not dig(data, "updateProjectV2ItemFieldValue"):
            raise self.service.malformed("did not carry out SymphonyMoveItem")

    # --- comments ----------------------------------------------------------------------------------------

    @override
    def comments(self, issue_id: str) -> http.Flow[Sequence[Comment]]:
        login = yield from self._account()
        records = yield from self.linked(self.of_issue(issue_id, "/comments"))
        return self.comments_of(records, login=login, may_answer=may_answer)

    @override
    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> http.Flow[frozenset[str]]:
        """The author of the issue; each comment says whether its author may answer."""
        answer = yield self.of_issue(issue_id, conditional=True)
        return frozenset(author_keys) & {login_of(answer.body)}

    # --- new issues --------------------------------------------------------------------------------------

    @override
    def find_created(self, key: str, since: datetime) -> http.Flow[str | None]:
        login = yield from self._account()
        query = [
            ("state", "all"),
            ("creator", login),
            ("since", since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")),
        ]
        records = yield from self.linked(self.request("/issues", query=query))
        return self.marked_of(records, key, login)

    @override
    def create_issue(self, new: IssueToCreate, *, key: str) -> http.Flow[str]:
        """Create an issue with the label of its state; GitHub makes labels that are missing."""
        labels = list(dict.fromkeys([*new.labels, *self.state_labels(new.state)]))
        body = {"title": new.title, "body": marked_issue_body(new, key), "labels": labels}
        answer = yield self.request("/issues", method="POST", body=body)
        return self.created_number(answer, "number")

    @override
    def place(self, issue_id: str, state: str) -> http.Flow[str]:
        """As `Flows.place`.

        The issue is first added to the project, because it has no state outside it; adding it again has no
        effect.
        """
        if not self.settings.uses_project:
            return (yield from self.move(issue_id, state))
        options = yield from self._options()
        node = text(dig((yield self.of_issue(issue_id)).body, "node_id")) or ""
        data = yield from self._graphql(ADD_ITEM, {"project": options.project_id, "issue": node})
        if text(dig(data, "addProjectV2ItemById", "item", "id")) is None:
            raise self.service.malformed("did not carry out SymphonyAddItem")
        yield from self._set_option(issue_id, state)
        return (yield from self.issue(issue_id)).state

    # --- moves and the raw tool --------------------------------------------------------------------------

    @override
    def move(self, issue_id: str, state: str) -> http.Flow[str]:
        before = yield from self.issue(issue_id)
        if normalise_state(before.state) == normalise_state(state) and before.dispatchable:
            return before.state
        if self.settings.uses_project:
            yield from self._set_option(issue_id, state)
        elif normalise_state(state) in self.settings.own_states:
            yield from self._set_own_state(issue_id, normalise_state(state))
        else:
            yield from self._set_label(issue_id, state)
        return (yield from self.issue(issue_id)).state

    def _set_own_state(self, issue_id: str, state: str) -> http.Flow[None]:
        """Open or close an issue. Opening removes the status labels one by one, to keep all others."""
        answer = yield self.of_issue(issue_id, method="PATCH", body={"state": state})
        for label in self.settings.status_labels(label_names(answer.body)) if state != CLOSED else ():
            name = quote(label, safe="")
            yield self.of_issue(issue_id, "/labels/{}", name, method="DELETE", accept=frozenset({404}))

    def _set_label(self, issue_id: str, state: str) -> http.Flow[None]:
        """Change the status label in one write, because between two writes the issue would contradict itself.

        A label that changes between the read and the write is reverted: GitHub has no conditional write that
        would prevent this.
        """
        label = self.settings.label_of(state)
        if label is None or self.settings.states.source != "labels":
            raise self.service.no_such_state(state, self.settings.all_states)
        names = label_names((yield self.of_issue(issue_id)).body)
        status = set(self.settings.status_labels(names))
        kept = [name for name in names if name.strip() not in status]
        yield self.of_issue(issue_id, "/labels", method="PUT", body={"labels": [*kept, label]})

    @override
    def label_problem(self, call: RestCall, issue: Issue) -> http.Flow[str | None]:
        if call.steps[-1].lower() != "graphql":
            return (yield from super().label_problem(call, issue))
        if call.query or "?" in call.path:
            return "GraphQL is given in `body`"
        query, variables = text(dig(call.body, "query")) or "", dig(call.body, "variables")
        found = graphql_label_request(query, variables, single_changes=_SINGLE_LABELS, create="createLabel")
        if found is None or isinstance(found, str):
            return found
        ids = [each for each in dict.fromkeys(found.texts) if _NODE_ID.fullmatch(each)]
        names: list[str] = []
        for batch in batches(ids, BATCH):
            request = operation(LABEL_NAMES, {"ids": batch}, path=self.settings.graphql)
            nodes = dig((yield request).body, "data", "nodes")  # with errors for invalid ids
            if not isinstance(nodes, list):
                return "the names of its labels are unknown"
            names += texts(dig(node, "name") for node in nodes)
        return self.deciding_labels.problem(found, names)

    @override
    def mark_comment(self, call: RestCall) -> RestCall | str:
        if call.steps[-1].lower() != "graphql":
            return super().mark_comment(call)
        found = graphql_call(call.body, _WRITES_COMMENT)
        if isinstance(found, str):
            return found
        query, variables = found
        return replace(call, body={"query": query, "variables": variables})


def _state_of_row(row: Any) -> str | None:
    return None if dig(row, "isArchived") is True else text(dig(row, "fieldValueByName", "name"))


KIND = RemoteKind(GithubSettings, GithubFlows, webhooks=GITHUB)
