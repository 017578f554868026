"""Jira Cloud, not Jira Server or Data Center (kind `jira`; docs/trackers/jira.md)."""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from typing_extensions import override

from symphony import http
from symphony.domain import Blocker, Issue, normalise_labels, normalise_state, plural
from symphony.http.fields import (
    MalformedRecordError,
    dig,
    instant,
    items,
    mapping,
    required,
    text,
    texts,
    whole,
)
from symphony.trackers import provider
from symphony.trackers.adf import document_of, markdown_of
from symphony.trackers.base import AccountInfo, Comment, IssueToCreate, TrackerError
from symphony.trackers.comments import AGENT_MARK
from symphony.trackers.fields import Listing, blocked_reason
from symphony.trackers.raw_tools import NUMBERED, AllowedWrite, RawToolScope, Reach, RestCall
from symphony.trackers.remote import Flows, RemoteKind, batches
from symphony.trackers.webhooks import JIRA

# --- settings --------------------------------------------------------------------------------------------

_EMAIL = r"[^\s:@\x00-\x1f]{1,200}@[^\s:@\x00-\x1f]{1,200}"


class JiraSettings(provider.ProviderSettings):
    """One project of a site, by its key."""

    kind = "jira"

    base_url: Annotated[provider.Address, provider.StandInVariable("JIRA_BASE_URL")]
    email: Annotated[
        str, provider.StandInVariable("JIRA_EMAIL"), provider.matches(_EMAIL, "be an email address")
    ]
    api_token: Annotated[provider.Credential, provider.StandInVariable("JIRA_API_TOKEN")]
    project_key: Annotated[
        str, provider.matches(r"[A-Za-z][A-Za-z0-9_]{0,99}", "be the key of a project, like PAY")
    ]

    @property
    @override
    def access(self) -> provider.ServiceAccess:
        token = self.api_token.reveal()
        pair = b64encode(f"{self.email}:{token}".encode()).decode("ascii")
        return provider.ServiceAccess(
            base=self.base_url, credential=token, headers={"authorization": f"Basic {pair}"}
        )

    def page_of(self, key: str) -> str | None:
        """The page of an issue; `None` behind Atlassian's gateway."""
        return None if "/ex/jira/" in self.base_url else f"{self.base_url}/browse/{key}"


# --- service ---------------------------------------------------------------------------------------------


def _status(answer: http.HttpResponse) -> int:
    """The status; also 401 if Jira ignores a wrong credential and answers with public data."""
    reason = answer.headers.get("x-seraph-loginreason", "").upper()
    rejected = "AUTHENTICATED_FAILED" in reason or "AUTHENTICATION_DENIED" in reason
    return http.UNAUTHORISED if rejected else http.plain_status(answer)


SERVICE = http.ServiceProfile(
    name="Jira",
    credential_key="tracker.provider.api_token",
    scope_key="tracker.provider.project_key",
    status=_status,
)


# --- from JSON to issues ---------------------------------------------------------------------------------

FIELDS = (
    "summary", "description", "status", "priority", "assignee", "labels", "issuelinks", "project", "created",
    "updated",
)  # fmt: skip
"""The fields to request; Jira sends no others."""
_PRIORITIES = frozenset({"1", "2", "3", "4", "5"})
"""The ids of the default priorities of every site; they survive a rename."""


def issue_of(record: Any, settings: JiraSettings) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no id, key, summary or status."""
    issue_id, key = required(record, "id"), required(record, "key")
    fields = record.get("fields")
    title, status = required(fields, "summary"), dig(fields, "status")
    if not text(dig(status, "name")):
        raise MalformedRecordError("has no status")
    state, priority = required(status, "name"), dig(fields, "priority", "id")
    links = [link for link in items(dig(fields, "issuelinks")) if _blocks(link)]
    is_waiting = _category(status) == "new" or normalise_state(state) in {"todo", "to do"}
    objection = None
    if is_waiting:  # a blocker does not stop work that has begun
        objection = blocked_reason(_blocker_of(link) for link in links if not _is_over(link, settings))
    return Issue(
        id=issue_id,
        identifier=key,
        title=title,
        state=state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        description=markdown_of(fields.get("description")),
        priority=int(priority) if isinstance(priority, str) and priority in _PRIORITIES else None,
        url=settings.page_of(key),
        assignee_id=text(dig(fields, "assignee", "accountId")),
        labels=normalise_labels(texts(items(fields.get("labels")))),
        blocked_by=tuple(map(_blocker_of, links)),
        created_at=instant(fields.get("created")),
        updated_at=instant(fields.get("updated")),
    )


def _category(status: Any) -> Any:
    return dig(status, "statusCategory", "key")


def _blocks(link: Any) -> bool:
    """Whether a link names an issue that blocks this one; the name of the link type may be translated."""
    names = {normalise_state(str(dig(link, "type", key))) for key in ("name", "inward")}
    return bool(dig(link, "inwardIssue")) and not names.isdisjoint({"blocks", "is blocked by"})


def _blocker_of(link: Any) -> Blocker:
    issue = dig(link, "inwardIssue")
    return Blocker(
        id=text(dig(issue, "id")),
        identifier=text(dig(issue, "key")),
        state=text(dig(issue, "fields", "status", "name")),
    )


def _is_over(link: Any, settings: JiraSettings) -> bool:
    """Whether a blocker is finished; one without a status is not."""
    status = dig(link, "inwardIssue", "fields", "status")
    return _category(status) == "done" or settings.is_terminal(text(dig(status, "name")))


# --- comments --------------------------------------------------------------------------------------------
#
# Rich text has no hidden parts, so the marker of a comment is kept in a property beside it.

PROPERTY = "symphony.note"
"""The key of the property."""
ISSUE_PROPERTY = "symphony.issue"
"""The key of the property of an issue that the daemon created."""


def comment_document(body: str) -> dict[str, Any]:
    """The request body of a comment. A text without a marker removes an older marker."""
    first, _, rest = body.partition("\n")
    marker = first if first.startswith("<!-- symphony:") and first.endswith(" -->") else ""
    return {
        "body": document_of(rest if marker else body),
        "properties": [{"key": PROPERTY, "value": {"marker": marker}}],
    }


def marker_of(record: Any) -> str | None:
    """The marker of a listed comment, empty without one; `None` if Jira lists no properties."""
    properties = dig(record, "properties")
    if not isinstance(properties, list):
        return None
    markers = [dig(each, "value", "marker") for each in properties if dig(each, "key") == PROPERTY]
    return next(iter(texts(markers)), "")


# --- flows -----------------------------------------------------------------------------------------------
#
# A search may lag some seconds behind a write, requests by id do not. That does not matter: a listed issue is
# requested by id before it is dispatched, and a move is read back by id.

PAGE = 100
_API = "/rest/api/3"
_AT_ONCE = timedelta(seconds=2)
_ISSUE = f"{_API}/issue/{{}}"
_FETCH = f"{_API}/issue/bulkfetch"
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}-[1-9][0-9]{0,17}")
_BAD_REQUEST, _NOT_FOUND = 400, 404
_MAY_ANSWER = {"atlassian": True, "app": False}
"""Whether an account of a type may answer; customers of a service desk are neither."""
_EDITABLE = (
    "summary", "description", "labels", "priority", "assignee", "duedate", "components", "fixVersions",
    "versions", "environment",
)  # fmt: skip
_EDITED = " ".join(f"{part}.{field}" for part in ("fields", "update") for field in _EDITABLE)


def _fetch(names: Sequence[str], fields: Sequence[str]) -> http.Request:
    """Requests the issues with these ids or keys."""
    body = {"issueIdsOrKeys": list(names), "fields": list(fields)}
    return http.Request(endpoint=_FETCH, method="POST", path=_FETCH, body=body, reads=True)


class JiraFlows(Flows[JiraSettings]):
    """The flows of one project."""

    service = SERVICE
    id_pattern = re.compile(r"[1-9]\d{0,17}")
    tool_name = "jira_rest"
    tool_prefix = f"{_API}/"
    issue_step = "issue"

    def __init__(self, settings: JiraSettings) -> None:
        super().__init__(settings)
        self._user: tuple[str, str] | None = None
        self._project_id: str | None = None

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def by_states(self, states: Sequence[str]) -> http.Flow[Listing]:
        statuses = ", ".join(map(_quoted, states))
        jql = (
            f"project = {_quoted(self.settings.project_key)} AND status in ({statuses}) ORDER BY created ASC"
        )
        records = yield from self._search(jql)
        return (yield from self.listing(records, lambda record: issue_of(record, self.settings), states))

    def _search(self, jql: str, **more: Any) -> http.Flow[list[Any]]:
        body = {"jql": jql, "fields": list(FIELDS), "maxResults": PAGE, **more}
        path = f"{_API}/search/jql"
        first = http.Request(
            endpoint=path,
            method="POST",
            path=path,
            body=body,
            reads=True,
            accept=frozenset({_BAD_REQUEST}),
        )

        def read(answer: http.HttpResponse, pager: http.PageGuard) -> http.Page:
            if answer.status == _BAD_REQUEST:  # a project or status that does not exist or may not be seen
                failure = self.service.refused(first, answer, _BAD_REQUEST).failure
                keys = "tracker.active_states and tracker.terminal_states"
                raise TrackerError(replace(failure, hint=f"check {self.service.scope_key}, {keys}"))
            records = self.service.list_of(dig(answer.body, "issues"), first)
            cursor, last = answer.body.get("nextPageToken"), answer.body.get("isLast")
            if last is True or (last is not False and cursor is None):
                return records, None
            return records, replace(first, body={**body, "nextPageToken": pager.cursor(cursor)})

        return self.pages(first, read)

    @override
    def id_of(self, identifier: str) -> http.Flow[str | None]:
        if _KEY.fullmatch(identifier) is None:
            return None
        request = _fetch([identifier], ["project"])
        answer = yield request
        records = self.service.list_of(dig(answer.body, "issues"), request)
        return next((text(dig(record, "id")) for record in records), None)

    @override
    def by_ids(self, ids: Sequence[str]) -> http.Flow[Sequence[Issue]]:
        """Jira omits deleted issues; this method omits issues of other projects."""
        records: list[Any] = []
        for batch in batches(self.valid_ids(ids), PAGE):
            request = _fetch(batch, FIELDS)
            answer = yield request
            records += self.service.list_of(dig(answer.body, "issues"), request)
            if errors := items(answer.body.get("issueErrors")):
                reason = text(dig(errors[0], "errorMessage")) or "no reason"
                raise self.service.malformed(
                    f"could not show {plural(len(errors), 'issue')}: {reason}",
                    hint="the request is repeated later",
                    culprits=frozenset(texts(dig(error, "id") for error in errors)),
                )
        in_scope = []
        for record in records:
            key = text(dig(record, "fields", "project", "key"))
            if key is None or key.lower() == self.settings.project_key.lower():
                in_scope.append(record)
            elif text(dig(record, "fields", "project", "id")) == (yield from self._id_of_project()):
                in_scope.append(record)  # the key of the project was changed
        return self.snapshots(in_scope, lambda record: issue_of(record, self.settings), ids)

    def _id_of_project(self) -> http.Flow[str | None]:
        if self._project_id is None:
            path = f"{_API}/project/{self.settings.project_key}"
            answer = yield http.Request(endpoint=f"{_API}/project/{{}}", path=path)
            self._project_id = text(dig(answer.body, "id"))
        return self._project_id

    @override
    def account_info(self) -> http.Flow[AccountInfo]:
        """Jira lists the statuses of a project by type of issue."""
        path = f"{_API}/project/{self.settings.project_key}/statuses"
        answer = yield http.Request(endpoint=f"{_API}/project/{{}}/statuses", path=path)
        _, name = yield from self._account()
        states = texts(
            dig(status, "name") for kind in items(answer.body) for status in items(dig(kind, "statuses"))
        )
        return AccountInfo(login=name, scope=self.settings.project_key, states=tuple(dict.fromkeys(states)))

    def _account(self) -> http.Flow[tuple[str, str]]:
        """Id and name of the token's account."""
        if self._user is None:
            path = f"{_API}/myself"
            answer = yield http.Request(endpoint=path, path=path)
            account = text(dig(answer.body, "accountId"))
            if account is None:
                raise self.service.malformed("does not show the account of this token")
            self._user = (account, text(dig(answer.body, "displayName")) or account)
        return self._user

    def _issue_path(self, issue_id: str) -> str:
        return f"{_API}/issue/{self.check_id(issue_id)}"

    # --- comments ----------------------------------------------------------------------------------------

    @override
    def comments(self, issue_id: str) -> http.Flow[Sequence[Comment]]:
        """All comments; on some sites each comment of the daemon's account needs a request for its marker."""
        me, _ = yield from self._account()
        found = []
        for record in (yield from self._list_comments(issue_id)):
            comment_id, author = text(dig(record, "id")), dig(record, "author")
            if comment_id is None:
                continue
            mine = text(dig(author, "accountId")) == me
            marker = marker_of(record) if mine else ""
            if marker is None:
                answer = yield http.Request(
                    endpoint=f"{_API}/comment/{{}}/properties/{{}}",
                    path=f"{_API}/comment/{self.check_id(comment_id)}/properties/{PROPERTY}",
                    accept=frozenset({_NOT_FOUND}),
                )
                marker = text(dig(answer.body, "value", "marker")) or ""
            body = markdown_of(dig(record, "body")) or ""
            found.append(
                Comment(
                    id=comment_id,
                    body=f"{marker}\n{body}" if marker else body,
                    mine=mine,
                    author=text(dig(author, "displayName")) or "",
                    author_key=text(dig(author, "accountId")) or "",
                    may_answer=_MAY_ANSWER.get(str(dig(author, "accountType"))),
                    created_at=instant(dig(record, "created")),
                )
            )
        return tuple(found)

    def _list_comments(self, issue_id: str) -> http.Flow[list[Any]]:
        query = [("orderBy", "created"), ("expand", "properties"), ("maxResults", str(PAGE))]
        first = http.Request(
            endpoint=f"{_ISSUE}/comment", path=f"{self._issue_path(issue_id)}/comment", query=query
        )
        count = 0

        def read(answer: http.HttpResponse, pager: http.PageGuard) -> http.Page:
            nonlocal count
            records = self.service.list_of(dig(answer.body, "comments"), first)
            total = whole(dig(answer.body, "total"))
            if total is None:
                raise self.service.malformed(f"answered no total to {first.endpoint}")
            count += len(records)
            if not records or count >= total:  # some sites count comments that the token may not see
                return records, None
            return records, replace(first, query=[*query, ("startAt", pager.cursor(count))])

        return self.pages(first, read)

    @override
    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> http.Flow[frozenset[str]]:
        """The reporter of the issue, even from outside the site."""
        answer = yield http.Request(
            endpoint=_ISSUE, path=self._issue_path(issue_id), query=[("fields", "reporter")]
        )
        reporter = text(dig(answer.body, "fields", "reporter", "accountId"))
        return frozenset(author_keys) & {reporter or ""} - {""}

    @override
    def create_comment(self, issue_id: str, body: str, *, key: str) -> http.Flow[str]:
        path = f"{self._issue_path(issue_id)}/comment"
        answer = yield http.Request(
            endpoint=f"{_ISSUE}/comment", method="POST", path=path, body=comment_document(body)
        )
        return self._written(answer)

    @override
    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> http.Flow[None]:
        """Edit without notifications."""
        answer = yield http.Request(
            endpoint=f"{_ISSUE}/comment/{{}}",
            method="PUT",
            path=f"{self._issue_path(issue_id)}/comment/{self.check_id(comment_id)}",
            query=[("notifyUsers", "false")],
            body=comment_document(body),
        )
        self._written(answer)

    def _written(self, answer: http.HttpResponse) -> str:
        comment_id = text(dig(answer.body, "id"))
        if comment_id is None:
            raise self.service.malformed("answered no comment to a comment")
        return comment_id

    # --- new issues --------------------------------------------------------------------------------------

    @override
    def find_created(self, key: str, since: datetime) -> http.Flow[str | None]:
        """Finds the issue by a property; a search may miss issues created some seconds ago."""
        day = (since - timedelta(days=1)).strftime("%Y-%m-%d")  # in the time zone of the account
        jql = (
            f"project = {_quoted(self.settings.project_key)} AND creator = currentUser()"
            f" AND created >= {_quoted(day)} ORDER BY created DESC"
        )
        records = yield from self._search(jql, properties=[ISSUE_PROPERTY])
        marked = (
            text(dig(record, "id"))
            for record in records
            if dig(record, "properties", ISSUE_PROPERTY, "key") == key
        )
        return next(marked, None)

    @override
    def create_issue(self, new: IssueToCreate, *, key: str) -> http.Flow[str]:
        """Create a task, or an issue of the project's first type; blanks in labels become dashes."""
        path = f"{_API}/project/{self.settings.project_key}"
        answer = yield http.Request(endpoint=f"{_API}/project/{{}}", path=path)
        types = [
            (text(dig(each, "id")), text(dig(each, "name")) or "")
            for each in items(dig(answer.body, "issueTypes"))
            if dig(each, "subtask") is not True
        ]
        types.sort(key=lambda each: each[1].lower() != "task")
        fields: dict[str, Any] = {
            "project": {"key": self.settings.project_key},
            "issuetype": {"id": types[0][0]} if types else {"name": "Task"},
            "summary": new.title,
            "labels": ["-".join(label.split()) for label in new.labels],
        }
        if new.body.strip():
            fields["description"] = document_of(new.body)
        body = {"fields": fields, "properties": [{"key": ISSUE_PROPERTY, "value": {"key": key}}]}
        answer = yield http.Request(endpoint=f"{_API}/issue", method="POST", path=f"{_API}/issue", body=body)
        issue_id = text(dig(answer.body, "id"))
        if issue_id is None:
            raise self.service.malformed("answered no issue to a new issue")
        return issue_id

    @override
    def is_unplaced(self, issue: Issue) -> bool:
        """Whether the issue is unchanged since its creation; Jira chooses the first state itself."""
        created, updated = issue.created_at, issue.updated_at
        return created is not None and updated is not None and updated - created <= _AT_ONCE

    # --- moves and the raw tool --------------------------------------------------------------------------

    @override
    def move(self, issue_id: str, state: str) -> http.Flow[str]:
        """Uses a transition of the project's workflow, preferably one without a screen."""
        wanted = normalise_state(state)
        before = yield from self.issue(issue_id)
        if normalise_state(before.state) == wanted:
            return before.state
        endpoint, path = f"{_ISSUE}/transitions", f"{self._issue_path(issue_id)}/transitions"
        answer = yield http.Request(endpoint=endpoint, path=path)
        transitions = [
            each
            for each in items(dig(answer.body, "transitions"))
            if text(dig(each, "to", "name"))
            and text(dig(each, "id"))
            and each.get("isAvailable") is not False
        ]
        transitions.sort(key=lambda each: each.get("hasScreen") is True)
        chosen = next((each for each in transitions if normalise_state(each["to"]["name"]) == wanted), None)
        if chosen is None:
            known = tuple(dict.fromkeys(each["to"]["name"] for each in transitions))
            raise self.service.no_transition(before.identifier, wanted=state, found=before.state, known=known)
        yield http.Request(
            endpoint=endpoint, method="POST", path=path, body={"transition": {"id": chosen["id"]}}
        )
        return (yield from self.issue(issue_id)).state

    @override
    def tool_note(self) -> str:
        return f"The project is {self.settings.project_key}; paths begin with {_API}/, and rich text is ADF."

    @override
    def mark_comment(self, call: RestCall) -> RestCall | str:
        body = mapping(call.body)
        if call.method == "GET" or not body:
            return call
        if "comment" in mapping(body.get("update")):
            return "write a comment with a separate call: POST /rest/api/3/issue/{id}/comment"
        if "comment" not in call.steps:
            return call
        others = [each for each in items(body.get("properties")) if dig(each, "key") != PROPERTY]
        mark = {"key": PROPERTY, "value": {"marker": AGENT_MARK}}
        return replace(call, body={**body, "properties": [*others, mark]})

    @override
    def reach(self, call: RestCall, issue: Issue) -> http.Flow[Reach]:
        """The issue, or the project, whose issues have its key; an id may name only the session's issue.

        Links, parents, watchers, votes, work logs, properties, and fields of the site are excluded.
        """
        api = tuple(_API.strip("/").split("/"))
        issues = [(*api, "issue", issue.id), (*api, "issue", issue.identifier)]
        if self.settings.scope is RawToolScope.ISSUE:
            return http.without_requests(Reach(reads=tuple(issues), writes=_writes(issues)))
        project = self.settings.project_key
        key = "".join(call.steps[len(api) + 1 : len(api) + 2])
        if re.fullmatch(rf"{project}-\d{{1,18}}", key, re.IGNORECASE):
            issues.append((*api, "issue", key))
        return http.without_requests(
            Reach(reads=(*issues, (*api, "project", project)), writes=_writes(issues))
        )


def _writes(issues: Iterable[tuple[str, ...]]) -> tuple[AllowedWrite, ...]:
    """The writes that a narrowed scope allows on these issues."""
    return tuple(
        write
        for issue in issues
        for write in (
            AllowedWrite("PUT", issue, _EDITED),
            AllowedWrite("PUT", (*issue, "assignee"), "accountId"),
            AllowedWrite("POST", (*issue, "transitions"), f"transition {_EDITED}"),
            AllowedWrite("POST", (*issue, "comment"), "body visibility"),
            AllowedWrite("PUT", (*issue, "comment", NUMBERED), "body visibility"),
            AllowedWrite("DELETE", (*issue, "comment", NUMBERED)),
        )
    )


def _quoted(value: str) -> str:
    """A text in JQL."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


KIND = RemoteKind(JiraSettings, JiraFlows, webhooks=JIRA)
