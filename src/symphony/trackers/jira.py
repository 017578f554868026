"""Jira Cloud, and not Jira Server or Data Center (kind `jira`; docs/trackers/jira.md)."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symphony.config import TrackerSettings
from symphony.domain import Blocker, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.trackers import tools
from symphony.trackers.adf import document_of, markdown_of
from symphony.trackers.base import AccountInfo, Comment, TrackerError, no_way, not_found
from symphony.trackers.comments import AGENT_MARK
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
    Answer,
    Flow,
    Pager,
    Request,
    ServiceProfile,
    malformed,
    plain_status,
    refused,
)
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.remote import Access, RemoteKind
from symphony.trackers.tools import NUMBERED, Reach, RestCall, RestTool, Scope, Write, within
from symphony.trackers.webhooks import JIRA

# What `tracker` means for Jira Cloud; the keys of the reference, and `scope` (TR10).


PROVIDER_KEYS = ("base_url", "email", "api_token", "project_key", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"JIRA_API_TOKEN"})
_PROJECT = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_EMAIL = re.compile(r"[^\s:@\x00-\x1f]{1,200}@[^\s:@\x00-\x1f]{1,200}")
_GATEWAY = "/ex/jira/"


@dataclass(frozen=True, slots=True, kw_only=True)
class JiraConfig:
    """One project of a site.

    Attributes:
        project: its key, as it is written.
        pages: where people find issues, by key; null where the address is that of a gateway.
    """

    access: Access
    project: str
    pages: str | None
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> JiraConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("jira", settings.provider, environment)
    token = reader.secret("api_token", variable="JIRA_API_TOKEN")
    email = reader.needed("email", variable="JIRA_EMAIL", rule=_EMAIL, must="be an address of mail")
    base = reader.needed("base_url", variable="JIRA_BASE_URL")
    if base:
        base = reader.address("base_url", base, variable="JIRA_BASE_URL")
    pair = b64encode(f"{email}:{token}".encode()).decode("ascii")
    config = JiraConfig(
        access=Access(base=base, credential=token, headers={"authorization": f"Basic {pair}"}),
        project=reader.needed("project_key", rule=_PROJECT, must="be the key of a project, like PAY"),
        pages=None if _GATEWAY in base else f"{base}/browse/",
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=None),
        terminal=reader.states("terminal_states", settings.terminal_states, default=None),
    )
    reader.done()
    return config


# How Jira says no: in `errorMessages` and `errors`; that a credential is not taken, in a header.


_UNAUTHORISED = 401
_NOT_TAKEN = ("AUTHENTICATED_FAILED", "AUTHENTICATION_DENIED")


def _status(answer: Answer) -> int:
    """401 also where Jira goes on without the account, and shows what everybody may see, or nothing."""
    reason = answer.headers.get("x-seraph-loginreason", "").upper()
    return _UNAUTHORISED if any(word in reason for word in _NOT_TAKEN) else plain_status(answer)


SERVICE = ServiceProfile(
    service="Jira",
    secret="tracker.provider.api_token",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_key",
    status=_status,
)


# From Jira's JSON to issues. Pure.


FIELDS = (
    "summary",
    "description",
    "status",
    "priority",
    "assignee",
    "labels",
    "issuelinks",
    "project",
    "created",
    "updated",
)
"""What is asked of an issue; Jira sends nothing that is not named."""

_WAITING, _OVER = "new", "done"
_WAITING_NAMES = frozenset({"todo", "to do"})
_PRIORITIES = frozenset({"1", "2", "3", "4", "5"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Relation:
    blocker: Blocker
    over: bool


def project_of(record: Any) -> tuple[str | None, str | None]:
    """Id and key of the project that an issue is in."""
    project = mapping(mapping(mapping(record).get("fields")).get("project"))
    return text(project.get("id")), text(project.get("key"))


def issue_of(record: Any, *, terminal: frozenset[str], pages: str | None) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no id, key, summary or status."""
    issue_id, key = required(record, "id"), required(record, "key")
    fields = record.get("fields")
    if not isinstance(fields, Mapping):
        raise MalformedRecordError("has no fields")
    title, status = required(fields, "summary"), mapping(fields.get("status"))
    if not text(status.get("name")):
        raise MalformedRecordError("has no status")
    relations = _relations(fields.get("issuelinks"), terminal)
    objection = _objection(status, relations)
    return Issue(
        id=issue_id,
        identifier=key,
        title=title,
        state=required(status, "name"),
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        description=markdown_of(fields.get("description")),
        priority=_priority(fields.get("priority")),
        url=None if pages is None else f"{pages}{key}",
        assignee_id=text(mapping(fields.get("assignee")).get("accountId")),
        labels=normalise_labels(label for label in items(fields.get("labels")) if isinstance(label, str)),
        blocked_by=tuple(relation.blocker for relation in relations),
        created_at=instant(fields.get("created")),
        updated_at=instant(fields.get("updated")),
    )


def _priority(value: Any) -> int | None:
    """By the ids of the priorities that every site begins with; they keep them whatever they are called."""
    number = text(mapping(value).get("id"))
    return int(number) if number in _PRIORITIES else None


def _category(status: Mapping[str, Any]) -> str | None:
    return text(mapping(status.get("statusCategory")).get("key"))


def _objection(status: Mapping[str, Any], relations: Iterable[_Relation]) -> str | None:
    """Work that has begun is not stopped by a blocker."""
    waiting = _category(status) == _WAITING or normalise_state(str(status.get("name"))) in _WAITING_NAMES
    waits_for = [relation.blocker for relation in relations if not relation.over] if waiting else []
    if not waits_for:
        return None
    names = ", ".join(blocker.identifier or "an unknown issue" for blocker in waits_for)
    return f"it is blocked by {names}"


def _relations(links: Any, terminal: frozenset[str]) -> tuple[_Relation, ...]:
    """What blocks the issue, by links of the type Blocks; one whose status is unknown counts as open."""
    found = []
    for link in items(links):
        other = mapping(mapping(link).get("inwardIssue"))
        if not other or not _is_blocking_link(mapping(mapping(link).get("type"))):
            continue
        status = mapping(mapping(other.get("fields")).get("status"))
        name = text(status.get("name"))
        blocker = Blocker(id=text(other.get("id")), identifier=text(other.get("key")), state=name)
        over = _category(status) == _OVER or (name is not None and normalise_state(name) in terminal)
        found.append(_Relation(blocker=blocker, over=over))
    return tuple(found)


def _is_blocking_link(kind: Mapping[str, Any]) -> bool:
    names = {normalise_state(str(kind.get("name"))), normalise_state(str(kind.get("inward")))}
    return bool(names & {"blocks", "is blocked by"})


def status_names(kinds: Any) -> tuple[str, ...]:
    """The statuses of a project, which Jira tells by type of issue, each once."""
    names = (
        text(mapping(status).get("name"))
        for kind in items(kinds)
        for status in items(mapping(kind).get("statuses"))
    )
    return tuple(dict.fromkeys(name for name in names if name))


# Comments of Jira: rich text has no hidden parts, so the marker of ours is kept in a property beside it.


PROPERTY = "symphony.note"
"""The key of the property."""

_MARKER = "<!-- symphony:"
_END = " -->"


def written(body: str) -> dict[str, Any]:
    """What to write so that a comment says `body`; a text without a marker takes an old one away."""
    first, _, rest = body.partition("\n")
    marker = first if first.startswith(_MARKER) and first.endswith(_END) else ""
    return {
        "body": document_of(rest if marker else body),
        "properties": [{"key": PROPERTY, "value": {"marker": marker}}],
    }


def marked(call: RestCall) -> RestCall | str:
    """Mark what the raw tool writes as a comment of an agent, or say how a comment is to be written."""
    body = mapping(call.body)
    if call.method == "GET" or not body:
        return call
    if "comment" in mapping(body.get("update")):
        return "write a comment by a call of its own: POST /rest/api/3/issue/{id}/comment"
    if "comment" not in call.steps:
        return call
    others = [one for one in items(body.get("properties")) if mapping(one).get("key") != PROPERTY]
    mark = {"key": PROPERTY, "value": {"marker": AGENT_MARK}}
    return replace(call, body={**body, "properties": [*others, mark]})


def marker_of(record: Any) -> str | None:
    """The marker of a listed comment: empty where it has none, null where Jira tells no properties."""
    properties = mapping(record).get("properties")
    if not isinstance(properties, list):
        return None
    values = (mapping(each).get("value") for each in properties if mapping(each).get("key") == PROPERTY)
    return next((marker_in(value) for value in values), "")


def marker_in(value: Any) -> str:
    """The marker in the value of the property, or an empty text."""
    return text(mapping(value).get("marker")) or ""


def body_of(record: Any, marker: str) -> str:
    """The body with its marker as it was given to `written`."""
    body = markdown_of(mapping(record).get("body")) or ""
    return f"{marker}\n{body}" if marker else body


# What is asked of Jira, and in which order (TR1, TR2, TR8).
#
# A search may lag some seconds behind a write; questions by id do not. Nothing here depends on the
# difference: what a list shows is asked for by id before it is dispatched, and a move is read back by id.


PAGE = 100
_METHODS = ("GET", "POST", "PUT", "DELETE")
_API = "/rest/api/3"
_ISSUE = f"{_API}/issue/{{}}"
_ID = re.compile(r"[1-9]\d{0,17}")
_BAD_REQUEST, _NOT_FOUND = 400, 404
_MAY_ANSWER = {"atlassian": True, "app": False}
"""By the type of an account; customers of a service desk are outsiders."""
_FIELDS = (
    "summary", "description", "labels", "priority", "assignee", "duedate", "components", "fixVersions",
    "versions", "environment",
)  # fmt: skip
_EDITED = " ".join(f"{part}.{field}" for part in ("fields", "update") for field in _FIELDS)


class JiraFlows:
    """Implements `remote.Flows` for one project. Knows between flows who we are and the id of the project."""

    kind = "jira"
    dialect: ServiceProfile = SERVICE

    def __init__(self, config: JiraConfig) -> None:
        self._config = config
        self._terminal = frozenset(normalise_state(state) for state in config.terminal)
        self._me: tuple[str, str] | None = None
        self._project_id: str | None = None
        self._tool = RestTool(
            name="jira_rest",
            service=self.dialect.service,
            methods=_METHODS,
            scope=config.scope,
            mark=marked,
            note=f"The project is {config.project}; paths begin with {_API}/, and rich text is ADF.",
            below=f"{_API}/",
        )

    # --- reads -------------------------------------------------------------------------------------------

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """As `Flows.by_states`."""
        named = ", ".join(map(_quoted, states))
        jql = f"project = {_quoted(self._config.project)} AND status in ({named}) ORDER BY created ASC"
        records = yield from self._search(jql)
        wanted = frozenset(normalise_state(state) for state in states)

        def read(record: Any) -> Issue | None:
            issue = self._read(record)
            return issue if normalise_state(issue.state) in wanted else None

        return listing(self.dialect.service, records, read)

    def _search(self, jql: str) -> Flow[list[Any]]:
        request = self._page(jql, None)
        trail = Pager(self.dialect, request, self._config.access.base)
        records: list[Any] = []
        while True:
            answer: Answer = yield request
            if answer.status == _BAD_REQUEST:
                raise self._unfit(request, answer)
            page = mapping(answer.body).get("issues")
            if not isinstance(page, list):
                raise malformed(self.dialect, f"answered no issues to {request.endpoint}")
            records += page
            trail.count(len(page))
            cursor, last = answer.body.get("nextPageToken"), answer.body.get("isLast")
            if last is True or (last is not False and cursor is None):
                return records
            request = self._page(jql, trail.cursor(cursor))

    def _page(self, jql: str, cursor: str | None) -> Request:
        body = {"jql": jql, "fields": list(FIELDS), "maxResults": PAGE}
        path = f"{_API}/search/jql"
        return Request(
            endpoint=path,
            method="POST",
            path=path,
            body=body if cursor is None else {**body, "nextPageToken": cursor},
            reads=True,
            accept=frozenset({_BAD_REQUEST}),
        )

    def _unfit(self, request: Request, answer: Answer) -> TrackerError:
        """Jira refuses to look for a project or a status that is not there, or that we may not see."""
        failure = refused(self.dialect, request, answer, _BAD_REQUEST).failure
        hint = f"check {self.dialect.scope}, tracker.active_states and tracker.terminal_states"
        return TrackerError(replace(failure, hint=hint))

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """As `Flows.by_ids`; what is gone is left out by Jira, what is in another project by us."""
        numbers = [issue_id for issue_id in ids if _ID.fullmatch(issue_id)]
        records: list[Any] = []
        for start in range(0, len(numbers), PAGE):
            records += yield from self._fetched(numbers[start : start + PAGE])
        records = yield from self._in_scope(records)
        return snapshots(self.dialect.service, records, self._read, wanted=ids)

    def _fetched(self, ids: Sequence[str]) -> Flow[Sequence[Any]]:
        path = f"{_API}/issue/bulkfetch"
        body = {"issueIdsOrKeys": list(ids), "fields": list(FIELDS)}
        answer = yield Request(endpoint=path, method="POST", path=path, body=body, reads=True)
        found, wrong = mapping(answer.body).get("issues"), items(mapping(answer.body).get("issueErrors"))
        if not isinstance(found, list):
            raise malformed(self.dialect, f"answered no issues to {path}")
        if wrong:
            names = frozenset(name for each in wrong if (name := text(mapping(each).get("id"))))
            said = text(mapping(wrong[0]).get("errorMessage")) or "no reason"
            raise malformed(
                self.dialect,
                f"could not show {len(wrong)} issues: {said}",
                hint="it is asked again",
                culprits=names,
            )
        return found

    def _in_scope(self, records: Sequence[Any]) -> Flow[list[Any]]:
        """Those of our project, which may have got another key: its id is asked for once, and only then."""
        here = self._config.project.lower()
        others = [record for record in records if (project_of(record)[1] or here).lower() != here]
        if others and self._project_id is None:
            path = f"{_API}/project/{self._config.project}"
            answer = yield Request(endpoint=f"{_API}/project/{{}}", path=path)
            self._project_id = text(mapping(answer.body).get("id"))
        gone = {id(record) for record in others if project_of(record)[0] != self._project_id}
        return [record for record in records if id(record) not in gone]

    def _read(self, record: Any) -> Issue:
        return issue_of(record, terminal=self._terminal, pages=self._config.pages)

    def account_info(self) -> Flow[AccountInfo]:
        """As `Flows.account_info`."""
        project = self._config.project
        path = f"{_API}/project/{project}/statuses"
        answer = yield Request(endpoint=f"{_API}/project/{{}}/statuses", path=path)
        _, name = yield from self._account()
        return AccountInfo(login=name, scope=project, states=status_names(answer.body))

    def _account(self) -> Flow[tuple[str, str]]:
        """Id and name of whose token this is."""
        if self._me is None:
            path = f"{_API}/myself"
            answer = yield Request(endpoint=path, path=path)
            account = text(mapping(answer.body).get("accountId"))
            if account is None:
                raise malformed(self.dialect, "does not tell whose token this is")
            self._me = (account, text(mapping(answer.body).get("displayName")) or account)
        return self._me

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`; for those of ours whose properties the list does not tell, each is asked."""
        me, _ = yield from self._account()
        found = []
        for record in (yield from self._listed(issue_id)):
            name = text(mapping(record).get("id"))
            if name is None:
                continue
            mine = text(mapping(record.get("author")).get("accountId")) == me
            marker = (yield from self._marker(name, record)) if mine else ""
            author = mapping(record.get("author"))
            found.append(
                Comment(
                    id=name,
                    body=body_of(record, marker),
                    mine=mine,
                    author=text(author.get("displayName")) or "",
                    author_key=text(author.get("accountId")) or "",
                    may_answer=_MAY_ANSWER.get(str(author.get("accountType"))),
                )
            )
        return tuple(found)

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: the reporter of the issue, also from outside of the site."""
        answer = yield Request(
            endpoint=_ISSUE, path=f"{_API}/issue/{self._id(issue_id)}", query=[("fields", "reporter")]
        )
        reporter = mapping(mapping(mapping(answer.body).get("fields")).get("reporter"))
        return frozenset(author_keys) & {text(reporter.get("accountId")) or ""} - {""}

    def _listed(self, issue_id: str) -> Flow[list[Any]]:
        path = f"{_API}/issue/{self._id(issue_id)}/comment"
        order = [("orderBy", "created"), ("expand", "properties"), ("maxResults", str(PAGE))]
        request = Request(endpoint=f"{_ISSUE}/comment", path=path, query=order)
        trail = Pager(self.dialect, request, self._config.access.base)
        records: list[Any] = []
        while True:
            answer: Answer = yield request
            page, total = mapping(answer.body).get("comments"), whole(mapping(answer.body).get("total"))
            if not isinstance(page, list) or total is None:
                raise malformed(self.dialect, f"answered no comments to {request.endpoint}")
            records += page
            trail.count(len(page))
            if not page or len(records) >= total:  # comments that we may not see are counted on some sites
                return records
            query = [*order, ("startAt", trail.cursor(len(records)))]
            request = Request(endpoint=request.endpoint, path=path, query=query)

    def _marker(self, comment_id: str, record: Any) -> Flow[str]:
        told = marker_of(record)
        if told is not None:
            return told
        answer = yield Request(
            endpoint=f"{_API}/comment/{{}}/properties/{{}}",
            path=f"{_API}/comment/{self._id(comment_id)}/properties/{PROPERTY}",
            accept=frozenset({_NOT_FOUND}),
        )
        return marker_in(mapping(answer.body).get("value"))

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; Jira gives the id."""
        del key
        path = f"{_API}/issue/{self._id(issue_id)}/comment"
        answer = yield Request(endpoint=f"{_ISSUE}/comment", method="POST", path=path, body=written(body))
        return self._written(answer)

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`; nobody is notified."""
        answer = yield Request(
            endpoint=f"{_ISSUE}/comment/{{}}",
            method="PUT",
            path=f"{_API}/issue/{self._id(issue_id)}/comment/{self._id(comment_id)}",
            query=[("notifyUsers", "false")],
            body=written(body),
        )
        self._written(answer)

    def _written(self, answer: Answer) -> str:
        comment_id = text(mapping(answer.body).get("id"))
        if comment_id is None:
            raise malformed(self.dialect, "answered no comment to a comment")
        return comment_id

    def _id(self, value: str) -> str:
        if not _ID.fullmatch(value):
            raise not_found(self.dialect.service, f"issue or comment {value!r}")
        return value

    # --- moves and tools ---------------------------------------------------------------------------------

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`: by a transition of the project's workflow that leads there."""
        before = yield from self._one(issue_id)
        if normalise_state(before.state) == normalise_state(state):
            return before.state
        path, endpoint = f"{_API}/issue/{issue_id}/transitions", f"{_ISSUE}/transitions"
        answer = yield Request(endpoint=endpoint, path=path)
        ways = _ways(mapping(answer.body).get("transitions"))
        chosen = next(
            (name for target, name in ways if normalise_state(target) == normalise_state(state)), None
        )
        if chosen is None:
            known = tuple(dict.fromkeys(target for target, _ in ways))
            raise no_way(
                self.dialect.service, before.identifier, wanted=state, found=before.state, known=known
            )
        yield Request(endpoint=endpoint, method="POST", path=path, body={"transition": {"id": chosen}})
        return (yield from self._one(issue_id)).state

    def _one(self, issue_id: str) -> Flow[Issue]:
        found = yield from self.by_ids([self._id(issue_id)])
        if not found:
            raise not_found(self.dialect.service, f"issue {issue_id}")
        return found[0]

    def tools(self) -> tuple[ToolSpec, ...]:
        """`jira_rest`, unless `scope` is `off`."""
        return self._tool.specs()

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw request; a refusal of Jira is an answer to the model."""
        del name
        return (yield from self._tool.call(arguments, lambda call: self._beyond(call, issue)))

    def _beyond(self, call: RestCall, issue: Issue) -> str | None:
        """An issue of the project is known by its key; what only its number names is not, but our own.

        Not within reach: links, parents, watchers, votes, work logs, properties, and fields of a site's own.
        """
        api = tuple(_API.strip("/").split("/"))
        own = [(*api, "issue", issue.id), (*api, "issue", issue.identifier)]
        project, named = self._config.project, call.steps[len(api) + 1 : len(api) + 2]
        known = named and re.fullmatch(rf"{project}-\d{{1,18}}", named[0], re.IGNORECASE)
        others = [(*api, "issue", named[0])] if known else []
        return within(
            call,
            self._config.scope,
            issue=Reach(reads=tuple(own), writes=_writes(own)),
            project=Reach(reads=(*own, *others, (*api, "project", project)), writes=_writes([*own, *others])),
        )


def _writes(issues: Iterable[tuple[str, ...]]) -> tuple[Write, ...]:
    """What a narrowed scope lets through of these issues."""
    return tuple(
        write
        for issue in issues
        for write in (
            Write("PUT", issue, _EDITED),
            Write("PUT", (*issue, "assignee"), "accountId"),
            Write("POST", (*issue, "transitions"), f"transition {_EDITED}"),
            Write("POST", (*issue, "comment"), "body visibility"),
            Write("PUT", (*issue, "comment", NUMBERED), "body visibility"),
            Write("DELETE", (*issue, "comment", NUMBERED)),
        )
    )


def _quoted(value: str) -> str:
    """A text of JQL."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ways(transitions: Any) -> list[tuple[str, str]]:
    """Where the transitions lead, and their ids; those that ask for nothing come first."""
    usable = [each for each in items(transitions) if mapping(each).get("isAvailable") is not False]
    ways = [
        (target, name, mapping(each).get("hasScreen") is True)
        for each in usable
        if (target := text(mapping(mapping(each).get("to")).get("name")))
        and (name := text(mapping(each).get("id")))
    ]
    return [(target, name) for target, name, _ in sorted(ways, key=lambda way: way[2])]


KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*tools.NAMES, "jira_rest"),
    configure=read_config,
    flows=JiraFlows,
    webhooks=JIRA,
)
