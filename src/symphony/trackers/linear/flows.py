"""What is asked of Linear, and in which order (TR1, TR2, TR8).

A poll begins with the time of the newest change in the project, which costs next to nothing; where that is
what it was, the list of the last poll is good. A change it cannot see (an issue that left the project, a
blocker in another one) is seen by the whole list that every twelfth poll makes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symphony.domain.failures import Category
from symphony.domain.issue import Issue, normalise_state
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.base import Comment, Sighting, TrackerError
from symphony.trackers.graphql import graphql, page_of, question
from symphony.trackers.http import Dialect, Flow, Request, Trail, malformed
from symphony.trackers.http.failures import FORBIDDEN, UNAUTHORISED
from symphony.trackers.linear import queries, wire
from symphony.trackers.linear.config import LinearConfig
from symphony.trackers.linear.dialect import LINEAR
from symphony.trackers.raw_tools import (
    Scope,
    graphql_spec,
    marked_query,
    query_of,
    shown,
    writes_comment,
)
from symphony.trackers.reading import Listing, items, listing, mapping, required, snapshots, text
from symphony.trackers.wording import no_such_state, not_found

__all__ = ["LinearFlows"]

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
    dialect: Dialect = LINEAR

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
            yield from self.look()
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
        trail = Trail(self.dialect, request, self._config.access.base)
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
        blocked: dict[str, tuple[wire.Relation, ...]] = {}
        for batch in _batches(ids):
            nodes = yield from self._pages(
                "SymphonyBlockers", {"ids": batch}, field="issues", first=BLOCKED_PAGE
            )
            for node in nodes:
                blocked[str(mapping(node).get("id"))] = wire.relations_of(node, self._terminal)
        labels: dict[str, list[str]] = {}
        for record in records:
            info = mapping(mapping(mapping(record).get("labels")).get("pageInfo"))
            if info.get("hasNextPage") is True and text(mapping(record).get("id")):
                labels[record["id"]] = yield from self._labels(record["id"])
        return _Reader(
            judge=wire.Judge(assignee=assignee, terminal=self._terminal), blocked=blocked, labels=labels
        )

    def _labels(self, issue_id: str) -> Flow[list[str]]:
        request = _ask("SymphonyLabels", {"id": issue_id, "first": _MANY})
        data = yield from graphql(self.dialect, request)
        return wire.label_names(data.get("issue"))

    def _viewer(self) -> Flow[str]:
        if self._me is None:
            data = yield from graphql(self.dialect, _ask("SymphonyViewer", {}))
            me = text(mapping(data.get("viewer")).get("id"))
            if me is None:
                raise malformed(self.dialect, "does not tell whose credential this is")
            self._me = me
        return self._me

    def look(self) -> Flow[Sighting]:
        """As `Flows.look`. Raises `TrackerError` where there is no such project."""
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
        return Sighting(
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
                author=wire.author_of(node),
                may_answer=wire.may_answer(node),
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
        comment_id = wire.comment_id_of(issue_id, key)
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

    judge: wire.Judge
    blocked: Mapping[str, tuple[wire.Relation, ...]]
    labels: Mapping[str, Sequence[str]]

    def __call__(self, record: Any) -> Issue:
        issue_id = required(record, "id")
        labels = self.labels.get(issue_id)
        return wire.issue_of(
            record,
            judge=self.judge,
            labels=wire.label_names(record) if labels is None else labels,
            relations=self.blocked.get(issue_id, ()),
        )


def _ask(name: str, variables: Mapping[str, Any], *, writes: bool = False) -> Request:
    return question(name, queries.OPERATIONS[name], variables, writes=writes)


def _batches(ids: Sequence[str]) -> Iterable[list[str]]:
    return (list(ids[start : start + PAGE]) for start in range(0, len(ids), PAGE))


def _may_stand_already(error: TrackerError) -> bool:
    """Linear may have refused because the id is taken; a limit or a bad credential says nothing of that."""
    return error.failure.category is Category.TRACKER_STATUS and error.failure.status not in {
        UNAUTHORISED,
        FORBIDDEN,
    }


def _written(dialect: Dialect, request: Request, payload: Any) -> str:
    comment_id = text(mapping(mapping(payload).get("comment")).get("id"))
    if mapping(payload).get("success") is not True or comment_id is None:
        raise malformed(dialect, f"did not carry out {request.endpoint}")
    return comment_id
