"""GitLab issues, on gitlab.com and other servers (kind `gitlab`; docs/trackers/gitlab.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

from typing_extensions import override

from symphony.domain import Blocker, Issue, normalise_labels, normalise_state
from symphony.http import (
    Flow,
    Query,
    Request,
    fields,
    without_requests,
)
from symphony.http.graphql import graphql, operation
from symphony.services import issues
from symphony.services.gitlab import DEVELOPER, SERVICE, is_bot, without_quick_actions
from symphony.trackers.base import AccountInfo, Comment, IssueToCreate, issue_mark, marked_issue_body
from symphony.trackers.fields import Listing
from symphony.trackers.provider import Address, Credential, ServiceAccess, StandInVariable, matches
from symphony.trackers.raw_tools import NUMBERED, AllowedWrite, RawToolScope, Reach, RestCall, mark_body
from symphony.trackers.remote import RemoteKind, batches
from symphony.trackers.webhooks import GITLAB

# --- settings --------------------------------------------------------------------------------------------

_STEP = r"(?!\.{1,2}(?:/|$))[\w.+-]{1,255}"


class GitlabStates(issues.StateSource):
    """Where states are kept. Labels are scoped by default; GitLab keeps one label per scope and issue."""

    prefix: issues.Prefix = "workflow::"


class GitlabSettings(issues.LabelledSettings):
    """One project; `wait_for_blockers` holds back issues that others block."""

    kind = "gitlab"
    open_state = "opened"

    api_key: Annotated[Credential, StandInVariable("GITLAB_PAT")]
    api_url: Address = SERVICE.address
    project_path: Annotated[
        str,
        StandInVariable("GITLAB_PROJECT_PATH"),
        matches(f"{_STEP}(?:/{_STEP}){{1,20}}", "be group/project"),
    ]
    states: GitlabStates = GitlabStates()
    wait_for_blockers: bool = False

    @property
    @override
    def access(self) -> ServiceAccess:
        key = self.api_key.reveal()
        return ServiceAccess(base=self.api_url, credential=key, headers=SERVICE.headers(key))

    @property
    @override
    def path(self) -> str:
        return f"/projects/{quote(self.project_path, safe='')}"

    @property
    def graphql(self) -> str:
        """The address of the GraphQL API."""
        return f"{self.api_url.removesuffix('/v4')}/graphql"


# --- from JSON to issues ---------------------------------------------------------------------------------

Blockers = Mapping[str, tuple[Blocker, ...]]
"""The blockers of issues, by number."""


def iid_of(record: Any) -> str | None:
    """The number of an issue within its project as text."""
    iid = fields.whole(fields.dig(record, "iid"))
    return str(iid) if iid is not None and iid > 0 else None


def issue_of(record: Any, settings: GitlabSettings, blockers: Blockers) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no number, title or state."""
    iid, title, own = (
        fields.required(record, "iid"),
        fields.required(record, "title"),
        settings.own_state_of(record),
    )
    state, unclear = settings.state_of(own, issues.label_names(record))
    blocked_by = blockers.get(iid, ())
    objection = unclear or settings.objection(blocked_by)
    assignee = next(iter(fields.items(record.get("assignees"))), record.get("assignee"))
    return Issue(
        id=iid,
        identifier=f"GL-{iid}",
        title=title,
        state=state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={
            "id": fields.whole(record.get("id")),
            "iid": fields.whole(record.get("iid")),
            "project_id": fields.whole(record.get("project_id")),
            "project_path": settings.project_path,
            "references": {
                key: value
                for key, value in fields.mapping(record.get("references")).items()
                if fields.text(value)
            },
        },
        description=fields.text(record.get("description")),
        url=fields.text(record.get("web_url")),
        assignee_id=fields.text(fields.dig(assignee, "username")),
        labels=normalise_labels(issues.label_names(record)),
        blocked_by=blocked_by,
        created_at=fields.instant(record.get("created_at")),
        updated_at=fields.instant(record.get("updated_at")),
    )


def blocker_of(link: Any, settings: GitlabSettings, project_id: int | None) -> Blocker | None:
    """A linked issue if it blocks.

    An issue of another project is named by its path, and its labels do not count.
    """
    iid, state = iid_of(link), fields.text(fields.dig(link, "state"))
    if fields.dig(link, "link_type") != "is_blocked_by" or iid is None:
        return None
    if fields.whole(link.get("project_id")) != project_id:
        name = fields.text(fields.dig(link, "references", "full")) or fields.text(link.get("web_url"))
        return Blocker(id=name, identifier=name, state=state)
    if state is not None:
        state, _ = settings.state_of(state, issues.label_names(link))
    return Blocker(id=iid, identifier=f"GL-{iid}", state=state)


def may_answer(note: Any) -> bool | None:
    """Whether the author may answer: false for tokens, service accounts, and accounts of the server."""
    name = fields.text(fields.dig(note, "author", "username"))
    return False if name is None or is_bot(name) else None


def _disarmed(value: Any) -> Any:
    """A body of a request, with its texts for people without quick actions."""
    match value:
        case Mapping():
            return {
                key: without_quick_actions(inner)
                if isinstance(inner, str) and str(key).lower() in _TEXTS
                else _disarmed(inner)
                for key, inner in value.items()
            }
        case list():
            return [_disarmed(inner) for inner in value]
        case _:
            return value


# --- flows -----------------------------------------------------------------------------------------------

_TEXTS = frozenset({"body", "description", "note"})
_NO_MEMBER = frozenset({403, 404})

BLOCKED = """query SymphonyBlocked($path: ID!, $iids: [String!], $first: Int!) {
  project(fullPath: $path) { issues(iids: $iids, first: $first) { nodes { iid blocked } } }
}"""
"""Asks which issues are blocked; the REST API only lists the blockers of one issue."""

_NAMED = (
    "title description labels assignee_id assignee_ids milestone_id due_date weight confidential issue_type"
)
_EDITED = f"{_NAMED} add_labels remove_labels state_event discussion_locked"
_REQUEST = (
    "title description labels assignee_id assignee_ids reviewer_ids milestone_id target_branch squash "
    "remove_source_branch"
)


class GitlabFlows(issues.LabelledFlows[GitlabSettings]):
    """The flows of one project."""

    service = SERVICE
    tool_name = "gitlab_api"
    label_scope = "::"

    def __init__(self, settings: GitlabSettings) -> None:
        super().__init__(settings)
        self._user: tuple[int, str] | None = None

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        records: list[Any] = []
        for query in self.settings.queries(states):
            records += yield from self._list_issues(query)
        blockers = yield from self._blockers(records)
        return (
            yield from self.listing(records, lambda record: issue_of(record, self.settings, blockers), states)
        )

    @override
    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        records: list[Any] = []
        for batch in batches(self.valid_ids(ids), issues.PAGE):
            records += yield from self._list_issues([("iids[]", iid) for iid in batch])
        blockers = yield from self._blockers(records)
        return self.snapshots(records, lambda record: issue_of(record, self.settings, blockers), ids)

    def _list_issues(self, query: Query) -> Flow[list[Any]]:
        order = [("scope", "all"), ("order_by", "created_at"), ("sort", "asc")]
        return self.linked(self.request("/issues", query=[*query, *order]))

    def _blockers(self, records: Sequence[Any]) -> Flow[Blockers]:
        """The blockers of open issues; one request per hundred issues finds those that are blocked."""
        found: dict[str, tuple[Blocker, ...]] = {}
        if not self.settings.wait_for_blockers:
            return found
        is_open = {
            iid: record
            for record in records
            if fields.dig(record, "state") == self.settings.open_state and (iid := iid_of(record))
        }
        for batch in batches(list(is_open), issues.PAGE):
            variables = {"path": self.settings.project_path, "iids": batch, "first": issues.PAGE}
            request = operation(BLOCKED, variables, path=self.settings.graphql)
            data = yield from graphql(self.service, request)
            nodes = fields.dig(data, "project", "issues", "nodes")
            if not isinstance(nodes, list):
                raise self.service.not_found(
                    f"project {self.settings.project_path} in GraphQL",
                    hint="check tracker.provider.project_path; wait_for_blockers needs GraphQL",
                )
            blocked = fields.texts(
                fields.dig(node, "iid") for node in nodes if fields.dig(node, "blocked") is True
            )
            for iid in (iid for iid in batch if iid in blocked):
                links = yield from self.linked(self.of_issue(iid, "/links"))
                project_id = fields.whole(is_open[iid].get("project_id"))
                known = (blocker_of(link, self.settings, project_id) for link in links)
                found[iid] = tuple(blocker for blocker in known if blocker is not None)
        return found

    @override
    def account_info(self) -> Flow[AccountInfo]:
        yield self.request("/issues", query=[("per_page", "1")])
        _, login = yield from self._account()
        return AccountInfo(login=login, scope=self.settings.project_path, states=self.settings.all_states)

    def _account(self) -> Flow[tuple[int, str]]:
        """Id and name of the token's account; tokens of projects and groups have one too."""
        if self._user is None:
            body = (yield Request(endpoint="/user", path="/user", conditional=True)).body
            user_id, name = fields.whole(fields.dig(body, "id")), fields.text(fields.dig(body, "username"))
            if user_id is None or name is None:
                raise self.service.malformed("does not show the account of this token")
            self._user = (user_id, name)
        return self._user

    # --- comments ----------------------------------------------------------------------------------------

    @override
    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """The notes of an issue, without those that the server itself wrote."""
        me, _ = yield from self._account()
        order = [("sort", "asc"), ("order_by", "created_at")]
        records = yield from self.linked(self.of_issue(issue_id, "/notes", query=order))
        return tuple(
            Comment(
                id=str(record["id"]),
                body=fields.text(record.get("body")) or "",
                mine=fields.whole(fields.dig(record, "author", "id")) == me,
                author=fields.text(fields.dig(record, "author", "username")) or "",
                author_key=str(fields.whole(fields.dig(record, "author", "id")) or ""),
                may_answer=may_answer(record),
                created_at=fields.instant(record.get("created_at")),
            )
            for record in records
            if fields.whole(fields.dig(record, "id")) is not None and record.get("system") is not True
        )

    @override
    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """The author of the issue, and members who are developers or more."""
        answer = yield self.of_issue(issue_id, conditional=True)
        author = str(fields.whole(fields.dig(answer.body, "author", "id")) or "")
        found = set(author_keys) & {author} - {""}
        for key in author_keys:
            if key and key != author:
                path, member = "/members/all/{}", self.check_id(key)
                answer = yield self.request(path, member, conditional=True, accept=_NO_MEMBER)
                if (fields.whole(fields.dig(answer.body, "access_level")) or 0) >= DEVELOPER:
                    found.add(key)
        return frozenset(found)

    @override
    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        return self._write(self.of_issue(issue_id, "/notes", method="POST"), body)

    @override
    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        request = self.of_issue(issue_id, "/notes/{}", self.check_id(comment_id), method="PUT")
        yield from self._write(request, body)

    def _write(self, request: Request, body: str) -> Flow[str]:
        answer = yield replace(request, body={"body": without_quick_actions(body)})
        comment_id = fields.whole(fields.dig(answer.body, "id"))
        if comment_id is None:
            raise self.service.malformed("answered no note to a note")
        return str(comment_id)

    # --- new issues --------------------------------------------------------------------------------------

    @override
    def find_created(self, key: str, since: datetime) -> Flow[str | None]:
        me, _ = yield from self._account()
        query = [("author_id", str(me)), ("created_after", since.isoformat())]
        records = yield from self._list_issues(query)
        mark = issue_mark(key)
        marked = (
            iid_of(record) for record in records if mark in (fields.text(record.get("description")) or "")
        )
        return next(marked, None)

    @override
    def create_issue(self, new: IssueToCreate, *, key: str) -> Flow[str]:
        """Create an issue with the label of its state; GitLab makes labels that are missing."""
        labels = [label.replace(",", " ") for label in (*new.labels, *self.state_labels(new.state))]
        body = {
            "title": new.title,
            "description": without_quick_actions(marked_issue_body(new, key)),
            "labels": ",".join(dict.fromkeys(labels)),
        }
        answer = yield self.request("/issues", method="POST", body=body)
        return self.created_number(answer, "iid")

    # --- moves and the raw tool --------------------------------------------------------------------------

    @override
    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`. One write changes labels and opens or closes the issue."""
        record, before = yield from self._one(issue_id)
        change = self._change(record, state)
        if not change or (normalise_state(before.state) == normalise_state(state) and before.dispatchable):
            return before.state
        yield self.of_issue(issue_id, method="PUT", body=change)
        _, after = yield from self._one(issue_id)
        return after.state

    def _one(self, issue_id: str) -> Flow[tuple[Any, Issue]]:
        """The record of an issue, and the issue."""
        answer = yield self.of_issue(issue_id)
        found = self.snapshots([answer.body], lambda record: issue_of(record, self.settings, {}), [issue_id])
        if not found:
            raise self.service.malformed("answered another issue than the one asked for")
        return answer.body, found[0]

    def _change(self, record: Any, state: str) -> dict[str, str]:
        """The write that moves the issue to the state without a change of other labels."""
        settings, wanted = self.settings, normalise_state(state)
        uses_labels = settings.states.source == "labels"
        label = settings.label_of(state) if uses_labels else None
        if label is None and wanted not in settings.own_states:
            raise self.service.no_such_state(state, settings.all_states)
        change = {}
        is_open = fields.dig(record, "state") == settings.open_state
        if wanted == issues.CLOSED and is_open:
            change["state_event"] = "close"
        elif wanted not in settings.over and not is_open:
            change["state_event"] = "reopen"
        if uses_labels:
            kept = (label or "").lower()
            names = settings.status_labels(issues.label_names(record))
            if label is not None:
                change["add_labels"] = label
            if others := [name for name in names if name.lower() != kept]:
                change["remove_labels"] = ",".join(others)
        return change

    @override
    def tool_note(self) -> str:
        return f"The project is {self.settings.project_path}: its paths begin with {self.settings.path}/."

    @override
    def names_of_label(self, label_id: str) -> Flow[Sequence[str] | None]:
        answer = yield self.request("/labels/{}", label_id, accept=_NO_MEMBER)
        name = fields.text(fields.dig(answer.body, "name"))
        return None if name is None else [name]

    @override
    def label_problem(self, call: RestCall, issue: Issue) -> Flow[str | None]:
        """As `Flows.label_problem`; also checks texts in the query, where quick actions are not disarmed."""
        in_path = parse_qsl(call.path.partition("?")[2])
        if call.method != "GET" and any(
            without_quick_actions(value) != value for _, value in (*call.query, *in_path)
        ):
            return "a line of a text in the query begins with a slash: give the text in `body`"
        return (yield from super().label_problem(call, issue))

    @override
    def mark_comment(self, call: RestCall) -> RestCall | str:
        """As `Flows.mark_comment`; also disarms quick actions, which could label or move the issue."""
        if call.method in {"POST", "PUT"} and not {"notes", "discussions"}.isdisjoint(call.steps):
            marked = mark_body(call, "body")
            if isinstance(marked, str):
                return marked
            call = marked
        return call if call.method == "GET" else replace(call, body=_disarmed(call.body))

    @override
    def reach(self, call: RestCall, issue: Issue) -> Flow[Reach]:
        """The issue, or the project. Paths name the project by its path or by its number."""
        number = fields.whole(fields.dig(issue.native_ref, "project_id"))
        only_issue = self.settings.scope is RawToolScope.ISSUE
        reads: list[tuple[str, ...]] = []
        writes: list[AllowedWrite] = []
        for name in (self.settings.project_path, *([str(number)] if number is not None else [])):
            project = ("projects", name)
            one = (*project, "issues", issue.id if only_issue else NUMBERED)
            reads.append(one if only_issue else project)
            writes += [AllowedWrite("PUT", one, _EDITED), *_discussions(one)]
            if not only_issue:
                request = (*project, "merge_requests", NUMBERED)
                writes += [
                    AllowedWrite("POST", (*project, "issues"), _NAMED),
                    AllowedWrite("POST", (*project, "labels"), "name color description priority"),
                    AllowedWrite("POST", (*project, "merge_requests"), f"{_REQUEST} source_branch"),
                    AllowedWrite(
                        "PUT", request, f"{_REQUEST} add_labels remove_labels state_event discussion_locked"
                    ),
                    *_discussions(request),
                ]
        return without_requests(Reach(reads=tuple(reads), writes=tuple(writes)))


def _discussions(of: tuple[str, ...]) -> tuple[AllowedWrite, ...]:
    """Comments of an issue or a merge request, single or in threads."""
    thread = (*of, "discussions", NUMBERED)
    return (
        AllowedWrite("POST", (*of, "notes"), "body internal confidential"),
        AllowedWrite("PUT", (*of, "notes", NUMBERED), "body"),
        AllowedWrite("DELETE", (*of, "notes", NUMBERED)),
        AllowedWrite("POST", (*of, "discussions"), "body"),
        AllowedWrite("PUT", thread, "resolved"),
        AllowedWrite("POST", (*thread, "notes"), "body"),
        AllowedWrite("PUT", (*thread, "notes", NUMBERED), "body resolved"),
    )


KIND = RemoteKind(GitlabSettings, GitlabFlows, webhooks=GITLAB)
