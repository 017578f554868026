"""What is asked of GitHub, and in which order (TR1, TR2, TR8).

Every read of the REST API is conditional: what did not change is confirmed with an empty answer, which is not
counted against the limit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from symphony.domain.issue import Blocker, Issue, normalise_state
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.base import Comment, Sighting
from symphony.trackers.github import projects, wire
from symphony.trackers.github.config import GithubConfig, Source
from symphony.trackers.github.dialect import GITHUB
from symphony.trackers.graphql import graphql, question
from symphony.trackers.http import Answer, Dialect, Flow, Request, Trail, malformed
from symphony.trackers.raw_tools import RestCall, RestTool, marked_query, query_of, within
from symphony.trackers.reading import Listing, listing, mapping, snapshots, text
from symphony.trackers.repository import ISSUE, NUMBER, Comments, login_of, reach_of
from symphony.trackers.status_labels import CLOSED, OPEN
from symphony.trackers.wording import no_such_state, not_found

__all__ = ["GithubFlows"]

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
    dialect: Dialect = GITHUB

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
            in_project = yield from projects.states_of_all(self._config, self._config.project)
        records: list[Any] = []
        for query in self._queries(states, wanted):
            path = f"{self._config.path}/issues"
            order = [("sort", "created"), ("direction", "asc"), ("per_page", PAGE)]
            records += yield from self._pages("/repos/{}/issues", path, [*query, *order])
        board = wire.Board(blockers=(yield from self._blockers(records)), states=in_project)

        def read(record: Any) -> Issue | None:
            issue = wire.issue_of(record, config=self._config, terminal=self._terminal, board=board)
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
            found = [number for number in map(wire.number_of, records) if number]
            in_project = yield from projects.states_of_some(self._config, self._config.project, found)
        board = wire.Board(blockers=(yield from self._blockers(records)), states=in_project)

        def read(record: Any) -> Issue | None:
            return wire.issue_of(record, config=self._config, terminal=self._terminal, board=board)

        return snapshots(self.dialect.service, records, read, wanted=ids)

    def _blockers(self, records: Sequence[Any]) -> Flow[Mapping[str, tuple[Blocker, ...]]]:
        """What blocks the issues whose own record says that something does."""
        found: dict[str, tuple[Blocker, ...]] = {}
        for record in records:
            number = wire.number_of(record)
            if number is None or number in found or wire.is_pull_request(record):
                continue
            if wire.blocked_count(record) > 0:
                path = f"{self._config.path}/issues/{number}/dependencies/blocked_by"
                nodes = yield from self._pages(f"{ISSUE}/dependencies/blocked_by", path, [("per_page", PAGE)])
                found[number] = wire.blockers_of(nodes, self._config, self._terminal)
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
        trail = Trail(self.dialect, request, self._config.access.base)
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

    def look(self) -> Flow[Sighting]:
        """As `Flows.look`."""
        config = self._config
        yield self._request("/repos/{}/issues", "/issues", query=[("per_page", "1")])
        login = yield from self._login()
        states: Sequence[str] = (OPEN, CLOSED)
        if config.project is not None:
            known = yield from projects.options(config, config.project)
            states = (*known.by_name, CLOSED)
        elif config.source is Source.LABELS:
            states = (*config.labels.by_state, OPEN, CLOSED)
        return Sighting(login=login, scope=f"{config.owner}/{config.repo}", states=tuple(states))

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
        return self._comments.read(records, login=me, may_answer=wire.may_answer)

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
            yield from projects.move(self._config, self._config.project, issue_id, state)
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
            yield from self._remove_labels(issue_id, wire.label_names(answer.body))

    def _set_label(self, issue_id: str, state: str) -> Flow[None]:
        """Change the status label in one write: between two, the issue would contradict itself.

        A label that somebody changes between our look and the write is set back: a matter of a moment, and
        GitHub offers no write that tells.
        """
        label = self._config.labels.label(state)
        if label is None or self._config.source is Source.ISSUE:
            raise no_such_state(self.dialect.service, state, (*self._config.labels.by_state, OPEN, CLOSED))
        path = f"{self._config.path}/issues/{issue_id}"
        names = wire.label_names((yield Request(endpoint=ISSUE, path=path)).body)
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
