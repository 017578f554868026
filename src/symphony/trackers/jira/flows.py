"""What is asked of Jira, and in which order (TR1, TR2, TR8).

A search may lag some seconds behind a write; questions by id do not. Nothing here depends on the difference:
what a list shows is asked for by id before it is dispatched, and a move is read back by id.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from symphony.domain.issue import Issue, normalise_state
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.base import Comment, Sighting, TrackerError
from symphony.trackers.http import Answer, Dialect, Flow, Request, Trail, malformed, refused
from symphony.trackers.jira import notes, wire
from symphony.trackers.jira.config import JiraConfig
from symphony.trackers.jira.dialect import JIRA
from symphony.trackers.raw_tools import NUMBERED, Reach, RestCall, RestTool, Write, within
from symphony.trackers.reading import Listing, items, listing, mapping, snapshots, text, whole
from symphony.trackers.wording import no_way, not_found

__all__ = ["PAGE", "JiraFlows"]

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
    dialect: Dialect = JIRA

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
            mark=notes.marked,
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
        trail = Trail(self.dialect, request, self._config.access.base)
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
        body = {"jql": jql, "fields": list(wire.FIELDS), "maxResults": PAGE}
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
        body = {"issueIdsOrKeys": list(ids), "fields": list(wire.FIELDS)}
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
        others = [record for record in records if (wire.project_of(record)[1] or here).lower() != here]
        if others and self._project_id is None:
            path = f"{_API}/project/{self._config.project}"
            answer = yield Request(endpoint=f"{_API}/project/{{}}", path=path)
            self._project_id = text(mapping(answer.body).get("id"))
        gone = {id(record) for record in others if wire.project_of(record)[0] != self._project_id}
        return [record for record in records if id(record) not in gone]

    def _read(self, record: Any) -> Issue:
        return wire.issue_of(record, terminal=self._terminal, pages=self._config.pages)

    def look(self) -> Flow[Sighting]:
        """As `Flows.look`."""
        project = self._config.project
        path = f"{_API}/project/{project}/statuses"
        answer = yield Request(endpoint=f"{_API}/project/{{}}/statuses", path=path)
        _, name = yield from self._account()
        return Sighting(login=name, scope=project, states=wire.status_names(answer.body))

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
                    body=notes.body_of(record, marker),
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
        trail = Trail(self.dialect, request, self._config.access.base)
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
        told = notes.marker_of(record)
        if told is not None:
            return told
        answer = yield Request(
            endpoint=f"{_API}/comment/{{}}/properties/{{}}",
            path=f"{_API}/comment/{self._id(comment_id)}/properties/{notes.PROPERTY}",
            accept=frozenset({_NOT_FOUND}),
        )
        return notes.marker_in(mapping(answer.body).get("value"))

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; Jira gives the id."""
        del key
        path = f"{_API}/issue/{self._id(issue_id)}/comment"
        answer = yield Request(
            endpoint=f"{_ISSUE}/comment", method="POST", path=path, body=notes.written(body)
        )
        return self._written(answer)

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`; nobody is notified."""
        answer = yield Request(
            endpoint=f"{_ISSUE}/comment/{{}}",
            method="PUT",
            path=f"{_API}/issue/{self._id(issue_id)}/comment/{self._id(comment_id)}",
            query=[("notifyUsers", "false")],
            body=notes.written(body),
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
