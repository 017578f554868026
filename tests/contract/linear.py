"""Linear in memory: the operations of the adapter, held against Linear's published schema."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from typing_extensions import override

from contract.desk import Desk, Draft
from contract.graphql_schema import check_graphql, graphql_schema
from contract.schemas import SCHEMAS
from contract.vendor import Asked, Clock, Fault, Given, PagingFault, Vendor, zulu
from symphony.domain import Issue
from symphony.trackers import linear

SECRET = "lin_api_0123456789abcdefghij"
SLUG, SLUG_ID = "billing-a1b2c3", "a1b2c3"
ME, SOMEBODY = "user-me", "user-other"
TYPES = {"Todo": "unstarted", "In Progress": "started", "Done": "completed", "Backlog": "backlog"}
OPERATION = "SymphonyIssues"


class NoSuchEntityError(Exception):
    """Linear answers that there is nothing of that id."""


@dataclass(slots=True)
class Comment:
    id: str
    body: str
    user: str | None
    created: str
    by: Mapping[str, Any] = field(default_factory=dict)
    """Who else wrote it, as Linear shows that."""


@dataclass(slots=True)
class Record:
    fields: dict[str, Any]
    project: str = SLUG_ID
    labels: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    comments: dict[str, Comment] = field(default_factory=dict)
    assignee: str | None = None


class LinearVendor(Vendor):
    base = "https://linear.example.test/graphql"
    secret = SECRET

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.schema = graphql_schema(SCHEMAS["linear"])
        self.records: dict[str, Record] = {}
        self.deleted: set[str] = set()
        self.lax = False
        self.moves_are_ignored = False
        self._operations: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "SymphonyNewest": self._newest,
            "SymphonyIssues": self._by_states,
            "SymphonyIssuesById": self._by_ids,
            "SymphonyIssueNamed": self._named,
            "SymphonyUpdates": self._updates,
            "SymphonyBlockers": self._blockers,
            "SymphonyLabels": self._all_labels,
            "SymphonyViewer": lambda _: {"viewer": {"id": ME, "name": "Symphony"}},
            "SymphonyAccount": self._look,
            "SymphonyStates": self._states,
            "SymphonyMove": self._move,
            "SymphonyComments": self._comments,
            "SymphonyComment": self._comment,
            "SymphonyCreateComment": self._create,
            "SymphonyEditComment": self._edit,
            "SymphonyProject": self._project,
            "SymphonyLabelsNamed": self._labels_named,
            "SymphonyCreateIssue": self._add,
        }

    def stamp(self) -> str:
        """A moment later than all before."""
        return zulu(self.moment())

    @property
    @override
    def validates(self) -> bool:
        return self.schema is not None

    # --- Vendor ------------------------------------------------------------------------------------------

    @override
    def is_write(self, asked: Asked) -> bool:
        return "mutation" in str(asked.body.get("query"))

    @override
    def handle(self, asked: Asked) -> Given:
        assert asked.method == "POST"
        assert asked.headers["authorization"] == SECRET, "a personal key stands bare"
        name = asked.body.get("operationName")
        if "issueUpdate" in asked.body["query"] and name is None:
            return Given(body={"data": self._move(asked.body["variables"])})
        if "commentCreate" in asked.body["query"] and name is None:
            return Given(body={"data": self._create(asked.body["variables"])})
        if name is None:
            return Given(body={"data": {"viewer": {"id": ME}}})
        try:
            return Given(body={"data": self._operations[name](asked.body["variables"])})
        except NoSuchEntityError:
            error = {
                "message": "Entity not found",
                "extensions": {"code": "INPUT_ERROR", "type": "invalid input"},
            }
            return Given(body={"errors": [error], "data": None})

    @override
    def check(self, asked: Asked, given: Given) -> None:
        data = None if self.lax or given.body.get("errors") else given.body.get("data")
        check_graphql(self.schema, asked.body["query"], asked.body["variables"], data)

    @override
    def fault(self, fault: Fault) -> Given:
        def error(status: int, code: str, message: str) -> Given:
            return Given(status=status, body={"errors": [{"message": message, "extensions": {"code": code}}]})

        match fault:
            case Fault.UNAUTHORISED:
                return error(400, "AUTHENTICATION_ERROR", "Authentication required, not authenticated")
            case Fault.FORBIDDEN:
                return error(200, "FORBIDDEN", "You do not have access")
            case Fault.NOT_FOUND | Fault.GONE:
                return error(200, "INPUT_ERROR", "Entity not found")
            case _:
                return super().fault(fault)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        body = {"errors": [{"message": "Rate limit exceeded", "extensions": {"code": "RATELIMITED"}}]}
        reset = {"x-ratelimit-requests-remaining": "0", "x-ratelimit-requests-limit": "1500"}
        in_ms = str(self.clock.now + 90_000)
        return {
            "400 with nothing": (Given(status=400, body=body), None),
            "429 with seconds": (Given(status=429, body=body, headers={"retry-after": "30"}), 30_000),
            "200 with a reset in ms": (
                Given(body=body, headers={**reset, "x-ratelimit-requests-reset": in_ms}),
                90_000,
            ),
        }

    # --- reads -------------------------------------------------------------------------------------------

    def _visible(self) -> list[Record]:
        return [record for record in self.records.values() if record.project == SLUG_ID]

    def _newest(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        assert variables["slugs"] == [SLUG, SLUG_ID]
        newest = sorted(self._visible(), key=lambda record: str(record.fields["updatedAt"]))[-1:]
        nodes = [{"id": record.fields["id"], "updatedAt": record.fields["updatedAt"]} for record in newest]
        return {"issues": {"nodes": nodes}}

    def _by_states(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        assert variables["slugs"] == [SLUG, SLUG_ID]
        found = [record for record in self._visible() if _state(record) in variables["states"]]
        return {"issues": self._page([self._shown(record) for record in found], variables)}

    def _by_ids(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        assert len(variables["ids"]) <= variables["first"]
        found = [record for record in self._visible() if record.fields["id"] in variables["ids"]]
        return {"issues": self._page([self._shown(record) for record in found], variables)}

    def _named(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        assert variables["slugs"] == [SLUG, SLUG_ID]
        name = f"{variables['team']}-{variables['number']}"
        found = [each.fields["id"] for each in self._visible() if each.fields["identifier"] == name]
        return {"issues": {"nodes": [{"id": issue_id} for issue_id in found]}}

    def _updates(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        assert len(variables["ids"]) <= variables["first"]
        found = [record.fields for record in self._visible() if record.fields["id"] in variables["ids"]]
        return {
            "issues": self._page(
                [{"id": each["id"], "updatedAt": each["updatedAt"]} for each in found], variables
            )
        }

    def _blockers(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        nodes = []
        for issue_id in variables["ids"]:
            record = self.records.get(issue_id)
            if record is None or not record.blockers:
                continue
            relations = [
                {"type": "blocks", "issue": _blocker(self.records[blocker])} for blocker in record.blockers
            ]
            related = {"nodes": relations, "pageInfo": {"hasNextPage": False}}
            nodes.append({"id": issue_id, "inverseRelations": related})
        return {"issues": self._page(nodes, variables)}

    def _all_labels(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        record = self.records[variables["id"]]
        return {"issue": {"id": variables["id"], "labels": {"nodes": _names(record.labels)}}}

    def _shown(self, record: Record) -> dict[str, Any]:
        assignee = None if record.assignee is None else {"id": record.assignee}
        labels = {"nodes": _names(record.labels[:10]), "pageInfo": {"hasNextPage": len(record.labels) > 10}}
        return {**record.fields, "assignee": assignee, "labels": labels}

    def _page(self, nodes: list[dict[str, Any]], variables: Mapping[str, Any]) -> dict[str, Any]:
        size = min(variables["first"], self.page_cap or variables["first"])
        start = int(variables.get("after") or 0)
        end = start + size
        cursor: str | None = str(min(end, len(nodes)))
        if self.paging_fault is PagingFault.NO_CURSOR:
            cursor = None
        elif self.paging_fault is PagingFault.REPEATED and start:
            return {"nodes": nodes[:size], "pageInfo": {"hasNextPage": True, "endCursor": str(start)}}
        return {"nodes": nodes[start:end], "pageInfo": {"hasNextPage": end < len(nodes), "endCursor": cursor}}

    def _look(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        states = {"nodes": [{"name": name} for name in TYPES]}
        project = {"name": "Billing", "slugId": SLUG_ID, "teams": {"nodes": [{"states": states}]}}
        found = [project] if SLUG_ID in variables["slugs"] else []
        return {"viewer": {"id": ME, "name": "Symphony"}, "projects": {"nodes": found}}

    def _project(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        states = {"nodes": [{"id": f"state-{name}", "name": name} for name in TYPES]}
        project = {"id": "project", "teams": {"nodes": [{"id": "team", "states": states}]}}
        return {"projects": {"nodes": [project] if SLUG_ID in variables["slugs"] else []}}

    def _labels_named(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        nodes = [{"id": f"label-{name}", "name": name, "team": None} for name in variables["names"]]
        return {"issueLabels": {"nodes": [each for each in nodes if each["name"] != "unknown"]}}

    def _add(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        given = variables["input"]
        assert (given["teamId"], given["projectId"]) == ("team", "project")
        assert UUID(given["id"]).version == 4
        if given["id"] in self.records:
            raise NoSuchEntityError
        number = self.new(
            title=given["title"],
            description=given["description"],
            state=given["stateId"].removeprefix("state-"),
            labels=[each.removeprefix("label-") for each in given["labelIds"]],
        )
        record = self.records.pop(f"issue-{number}")
        record.fields["id"] = given["id"]
        self.records[given["id"]] = record
        return {"issueCreate": {"success": True, "issue": {"id": given["id"]}}}

    # --- writes ------------------------------------------------------------------------------------------

    def _issue(self, issue_id: str) -> Record:
        if issue_id not in self.records:
            raise NoSuchEntityError
        return self.records[issue_id]

    def _states(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        record = self._issue(variables["id"])
        nodes = [{"id": f"state-{name}", "name": name} for name in TYPES]
        state = {"name": _state(record)}
        return {"issue": {"id": variables["id"], "state": state, "team": {"states": {"nodes": nodes}}}}

    def _move(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        record = self._issue(variables["id"])
        name = variables["state"].removeprefix("state-")
        if not self.moves_are_ignored:
            record.fields.update(state={"name": name, "type": TYPES[name]}, updatedAt=self.stamp())
        issue = {"id": variables["id"], "state": {"name": _state(record)}}
        return {"issueUpdate": {"success": True, "issue": issue}}

    def _comments(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        record = self._issue(variables["id"])
        newest_first = sorted(record.comments.values(), key=lambda comment: comment.created, reverse=True)
        nodes = [
            {
                "id": c.id,
                "body": c.body,
                "createdAt": c.created,
                "user": None if c.user is None else {"id": c.user, "displayName": c.user, "app": False},
                "botActor": None,
                "externalUser": None,
                **c.by,
            }
            for c in newest_first
        ]
        return {"issue": {"id": variables["id"], "comments": self._page(nodes, variables)}}

    def _find_comment(self, comment_id: str) -> tuple[Record, Comment]:
        for record in self.records.values():
            if comment_id in record.comments:
                return record, record.comments[comment_id]
        raise NoSuchEntityError

    def _comment(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        record, comment = self._find_comment(variables["id"])
        return {"comment": {"id": comment.id, "issueId": record.fields["id"]}}

    def _create(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        given = variables["input"]
        record = self._issue(given["issueId"])
        comment_id = given.get("id") or f"comment-{self.stamp()}"
        taken = {comment for each in self.records.values() for comment in each.comments}
        if comment_id in taken | self.deleted:
            raise NoSuchEntityError
        if "id" in given:
            assert UUID(given["id"]).version == 4
        record.comments[comment_id] = Comment(comment_id, given["body"], ME, self.stamp())
        return {"commentCreate": {"success": True, "comment": {"id": comment_id}}}

    def _edit(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        _, comment = self._find_comment(variables["id"])
        comment.body = variables["body"]
        return {"commentUpdate": {"success": True, "comment": {"id": comment.id}}}


def _state(record: Record) -> Any:
    state = record.fields["state"]
    return state["name"] if isinstance(state, dict) else state


def _names(labels: Iterable[str]) -> list[dict[str, str]]:
    return [{"name": label} for label in labels]


def _blocker(record: Record) -> dict[str, Any]:
    return {key: record.fields[key] for key in ("id", "identifier", "state")}


class LinearDesk(Desk):
    kind = "linear"
    todo, doing, done = "Todo", "In Progress", "Done"
    page, batch = 50, 50
    can = frozenset(
        {
            "creates",
            "knows_states",
            "priority",
            "description",
            "labels",
            "blockers",
            "hold_back",
            "move",
            "own_ids",
            "timestamps",
            "cheap",
        }
    )
    paging_faults = frozenset({PagingFault.REPEATED, PagingFault.NO_CURSOR})
    malformed = ("title", "identifier")
    vendor: LinearVendor

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        return LinearVendor(clock)

    @override
    def provider(self) -> dict[str, Any]:
        return {"endpoint": self.vendor.base, "api_key": "$LINEAR_API_KEY", "project_slug": SLUG}

    @override
    def environment(self) -> Mapping[str, str]:
        return {"LINEAR_API_KEY": SECRET}

    @override
    def write(self, number: int, draft: Draft) -> str:
        issue_id, name, now = f"issue-{number}", draft.state or self.todo, self.vendor.stamp()
        fields: dict[str, Any] = {
            "id": issue_id,
            "identifier": f"BIL-{number}",
            "title": draft.title or f"Title {number}",
            "description": draft.description,
            "priority": 0 if draft.priority is None else draft.priority,
            "branchName": f"ann/bil-{number}",
            "url": f"https://linear.example.test/bil/issue/BIL-{number}",
            "createdAt": now if draft.created_at is None else draft.created_at,
            "updatedAt": now,
            "state": {"name": name, "type": TYPES.get(name, "started")},
            **draft.extra,
        }
        if draft.broken is not None:
            fields[draft.broken] = None
        self.vendor.lax |= draft.is_odd or not isinstance(draft.priority, int | float | None)
        old = self.vendor.records.get(issue_id)
        record = Record(fields=fields, labels=list(draft.labels))
        if old is not None:
            record.comments, record.blockers = old.comments, old.blockers
        self.vendor.records[issue_id] = record
        return issue_id

    @override
    def remove(self, number: int) -> None:
        del self.vendor.records[f"issue-{number}"]

    @override
    def put_out_of_scope(self, number: int) -> str:
        issue_id = self.put(number)
        self.vendor.records[issue_id].project = "another-project"
        return issue_id

    @override
    def block(self, number: int, by: int) -> None:
        record = self.vendor.records[f"issue-{number}"]
        record.blockers.append(f"issue-{by}")
        record.fields["updatedAt"] = self.vendor.stamp()

    @override
    def hold_back(self, number: int) -> str:
        issue_id = self.put(number)
        self.put(number + 1_000, state="Backlog")
        self.block(number, number + 1_000)
        return issue_id

    @override
    def comment(self, number: int, body: str, *, mine: bool = False) -> str:
        comments = self.vendor.records[f"issue-{number}"].comments
        made = Comment(f"written-{len(comments)}", body, ME if mine else SOMEBODY, self.vendor.stamp())
        comments[made.id] = made
        return made.id

    voices = frozenset({"writer", "stranger", "bot"})

    @override
    def say(self, number: int, body: str, voice: str) -> None:
        comment_id = self.comment(number, body)
        said = self.vendor.records[f"issue-{number}"].comments[comment_id]
        if voice == "stranger":
            said.user, said.by = None, {"externalUser": {"displayName": "Mallory in Slack"}}
        elif voice == "bot":
            said.user, said.by = None, {"botActor": {"name": "GitHub"}}

    @override
    def comments(self, number: int) -> list[str]:
        return [comment.body for comment in self.vendor.records[f"issue-{number}"].comments.values()]

    @override
    def delete_comment(self, number: int, comment_id: str) -> None:
        del self.vendor.records[f"issue-{number}"].comments[comment_id]
        self.vendor.deleted.add(comment_id)

    @override
    def forbid_moves(self) -> None:
        self.vendor.moves_are_ignored = True

    @override
    def finish(self, number: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        variables = {"id": f"issue-{number}", "state": f"state-{self.done}"}
        return [("linear_graphql", {"query": linear.MOVE, "variables": variables})]

    @override
    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        variables = {"input": {"issueId": f"issue-{number}", "body": body}}
        return "linear_graphql", {"query": linear.CREATE_COMMENT, "variables": variables}

    @override
    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        del issue
        return "linear_graphql", {"query": "query { viewer { id } }", "variables": {}}
