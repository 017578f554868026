"""Jira Cloud in memory: writes and comments by the published description, the two reads by shapes of ours."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from contract.desk import Desk, Draft
from contract.jira_shapes import SHAPES, is_by_hand
from contract.openapi import openapi
from contract.schemas import SCHEMAS
from contract.vendor import Asked, Clock, Given, PagingFault, Route, Vendor, routed
from symphony.domain import Issue
from symphony.trackers.adf import document_of, markdown_of
from symphony.trackers.jira import FIELDS

EMAIL, TOKEN = "symphony-bot@example.test", "ATATT3xFfGF0123456789abcdef"
SECRET = b64encode(f"{EMAIL}:{TOKEN}".encode()).decode("ascii")
PROJECT, PROJECT_ID = "PAY", "10100"
ME, SOMEBODY = "5b10a2844c20165700ede21g", "5b10ac8d82e05b22cc7d4ef5"
API = "/rest/api/3"
CATEGORIES = {"To Do": "new", "In Progress": "indeterminate", "Done": "done", "Backlog": "new"}
IDS = {name: str(11 + 10 * number) for number, name in enumerate(CATEGORIES)}
GONE = {"errorMessages": ["Issue does not exist or you do not have permission to see it."], "errors": {}}
NOT_FOUND = Given(status=404, raw=Given(body=GONE).content)


def status(name: str) -> dict[str, Any]:
    """A status as Jira shows it."""
    category = {"id": 2, "key": CATEGORIES[name], "name": name}
    return {"id": f"1{IDS[name]}", "name": name, "statusCategory": category}


def user(account: str, kind: str = "atlassian") -> dict[str, Any]:
    """A user as Jira shows it."""
    return {"accountId": account, "displayName": account[-4:], "active": True, "accountType": kind}


@dataclass(slots=True)
class Record:
    key: str
    fields: dict[str, Any]
    blockers: list[int] = field(default_factory=list)
    comments: dict[str, dict[str, Any]] = field(default_factory=dict)
    properties: dict[str, dict[str, Any]] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    """The properties of the issue itself."""


class JiraVendor(Vendor):
    base = "https://team.atlassian.example.test"
    secret = SECRET

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.document = openapi(SCHEMAS["jira"])
        self.records: dict[int, Record] = {}
        self.lax = False
        self.moves_are_ignored = False
        self.expands_properties = True
        issue = rf"{API}/issue/(\d+)"
        self._routes: tuple[Route, ...] = (
            ("GET", rf"{API}/myself", lambda _: Given(body=user(ME))),
            ("POST", rf"{API}/search/jql", self._search),
            ("POST", rf"{API}/issue/bulkfetch", self._fetch),
            ("GET", rf"{API}/project/{PROJECT}", lambda _: Given(body=_PROJECT)),
            ("POST", rf"{API}/issue", self._add),
            ("GET", rf"{API}/project/{PROJECT}/statuses", self._statuses),
            ("GET", issue, self._show),
            ("GET", rf"{issue}/transitions", self._transitions),
            ("POST", rf"{issue}/transitions", self._transit),
            ("GET", rf"{issue}/comment", self._comments),
            ("POST", rf"{issue}/comment", self._create),
            ("PUT", rf"{issue}/comment/(\d+)", self._edit),
            ("GET", rf"{API}/comment/(\d+)/properties/(.+)", self._property),
        )

    def stamp(self) -> str:
        """A moment later than all before, in Jira's own form."""
        moment = self.moment()
        return moment.strftime("%Y-%m-%dT%H:%M:%S.000+0000")

    # --- Vendor ------------------------------------------------------------------------------------------

    @property
    @override
    def validates(self) -> bool:
        return self.document is not None

    @override
    def is_write(self, asked: Asked) -> bool:
        return asked.method != "GET" and (not is_by_hand(asked.path) or asked.path == f"{API}/issue")

    @override
    def handle(self, asked: Asked) -> Given:
        assert asked.headers["authorization"] == f"Basic {SECRET}"
        assert TOKEN not in str(asked.body)
        return routed(self._routes, asked) or NOT_FOUND

    @override
    def check(self, asked: Asked, given: Given) -> None:
        document = SHAPES if is_by_hand(asked.path) else self.document
        if document is not None:
            document.check(asked, Given(status=given.status) if self.lax else given)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        body = {"errorMessages": ["Rate limit exceeded."], "errors": {}}
        reason = {"ratelimit-reason": "jira-burst-based"}
        at = {
            "x-ratelimit-limit": "100",
            "x-ratelimit-remaining": "0",
            "date": "Fri, 27 Nov 2026 17:20:00 GMT",
        }
        return {
            "429, seconds": (Given(status=429, body=body, headers={"retry-after": "7", **reason}), 7_000),
            "429, ISO 8601": (
                Given(status=429, body=body, headers={**at, "x-ratelimit-reset": "2026-11-27T17:22Z"}),
                120_000,
            ),
            "429, no time, plain text": (Given(status=429, raw=b"Rate limit exceeded."), None),
            "503, seconds": (Given(status=503, body=body, headers={"retry-after": "5"}), 5_000),
        }

    # --- issues ------------------------------------------------------------------------------------------

    def number_of(self, issue_id: str) -> int:
        return int(issue_id) - 10_000

    def _known(self, issue_id: str) -> Record | None:
        return self.records.get(self.number_of(issue_id))

    def _shown(self, number: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        record = self.records[number]
        links = [
            {"id": "1", "type": _BLOCKS, "inwardIssue": self._linked(blocker)} for blocker in record.blockers
        ]
        links += [{"id": "2", "type": _BLOCKS, "outwardIssue": self._linked(number)}]
        links += [{"id": "3", "type": {**_BLOCKS, **_RELATES}, "inwardIssue": self._linked(number)}]
        fields = {"issuelinks": links, **record.fields}
        if names is not None:
            fields = {name: value for name, value in fields.items() if name in names or name not in KNOWN}
        return {"id": str(10_000 + number), "key": record.key, "fields": fields}

    def _linked(self, number: int) -> dict[str, Any]:
        record = self.records[number]
        fields = {"summary": "x", "status": record.fields["status"]}
        return {"id": str(10_000 + number), "key": record.key, "fields": fields}

    def _search(self, asked: Asked) -> Given:
        body = asked.body
        if "currentUser" in body["jql"]:
            return self._search_own(body)
        found = re.fullmatch(r'project = "(\w+)" AND status in \((.+)\) ORDER BY created ASC', body["jql"])
        assert found, body["jql"]
        names = [name.lower() for name in re.findall(r'"((?:[^"\\]|\\.)*)"', found[2])]
        for name in names:
            if name not in {known.lower() for known in CATEGORIES}:
                said = f"The value '{name}' does not exist for the field 'status'."
                return Given(status=400, body={"errorMessages": [said], "errors": {}})
        every = [
            self._shown(number, body["fields"])
            for number, record in sorted(self.records.items())
            if (record.fields["project"]["key"] == found[1])
            and ((record.fields["status"] or {}).get("name", names[0]).lower() in names)
        ]
        start = int(body.get("nextPageToken", "at-0").removeprefix("at-"))
        end = start + min(body["maxResults"], self.page_cap or 100)
        answer: dict[str, Any] = {"issues": every[start:end], "isLast": end >= len(every)}
        if end < len(every):
            answer["nextPageToken"] = f"at-{end}"
        if self.paging_fault is PagingFault.REPEATED:
            answer |= {"isLast": False, "nextPageToken": "at-0"}
        elif self.paging_fault is PagingFault.NO_CURSOR:
            answer = {"issues": every[start:end], "isLast": False}
        return Given(body=answer)

    def _search_own(self, body: Mapping[str, Any]) -> Given:
        found = re.fullmatch(
            r'project = "(\w+)" AND creator = currentUser\(\) AND created >= "(.+)" ORDER BY created DESC',
            body["jql"],
        )
        assert found, body["jql"]
        (key,) = body["properties"]
        every = [
            {
                **self._shown(number, body["fields"]),
                "properties": {key: record.own[key]} if key in record.own else {},
            }
            for number, record in sorted(self.records.items(), reverse=True)
            if record.fields["creator"] == user(ME) and record.fields["created"] >= found[2]
        ]
        return Given(body={"issues": every, "isLast": True})

    def _add(self, asked: Asked) -> Given:
        fields = asked.body["fields"]
        assert (fields["project"], fields["issuetype"]) == ({"key": PROJECT}, {"id": "7"})
        assert not any(" " in label for label in fields["labels"]), "Jira refuses blanks"
        _check_document(fields["description"])
        number = self.new(title=fields["summary"], labels=fields["labels"])
        record = self.records[number]
        record.fields.update(creator=user(ME), description=fields["description"])
        record.own = {each["key"]: each["value"] for each in asked.body["properties"]}
        return Given(status=201, body={"id": str(10_000 + number), "key": record.key, "self": self.base})

    def _fetch(self, asked: Asked) -> Given:
        keys = {record.key: number for number, record in self.records.items()}
        numbers = sorted(
            self.number_of(name) if name.isdecimal() else keys.get(name, 0)
            for name in asked.body["issueIdsOrKeys"]
        )
        found = [self._shown(number, asked.body["fields"]) for number in numbers if number in self.records]
        return Given(body={"issues": found, "issueErrors": []})

    def _statuses(self, asked: Asked) -> Given:
        del asked
        statuses = [status(name) for name in CATEGORIES]
        kinds = ("Task", "Bug")
        return Given(
            body=[{"id": "1", "name": kind, "subtask": False, "statuses": statuses} for kind in kinds]
        )

    def _show(self, asked: Asked, issue_id: str) -> Given:
        del asked
        return Given(body=self._shown(self.number_of(issue_id))) if self._known(issue_id) else NOT_FOUND

    def _transitions(self, asked: Asked, issue_id: str) -> Given:
        del asked
        if self._known(issue_id) is None:
            return NOT_FOUND
        ways = [
            {
                "id": IDS[name],
                "name": f"To {name}",
                "to": status(name),
                "hasScreen": False,
                "isAvailable": True,
            }
            for name in CATEGORIES
        ]
        return Given(body={"transitions": ways})

    def _transit(self, asked: Asked, issue_id: str) -> Given:
        record = self._known(issue_id)
        if record is None:
            return NOT_FOUND
        if not self.moves_are_ignored:
            (name,) = [name for name, known in IDS.items() if known == asked.body["transition"]["id"]]
            record.fields.update(status=status(name), updated=self.stamp())
        return Given(status=204)

    # --- comments ----------------------------------------------------------------------------------------

    def write(
        self, number: int, body: Mapping[str, Any], account: str, kind: str = "atlassian"
    ) -> dict[str, Any]:
        """A new comment."""
        now, name = self.stamp(), str(self.ticks)
        page = f"{self.base}{API}/issue/{10_000 + number}/comment/{name}"
        comment = {
            "self": page,
            "id": name,
            "author": user(account, kind),
            "updateAuthor": user(account, kind),
            "body": body["body"],
            "created": now,
            "updated": now,
            "jsdPublic": True,
        }
        record = self.records[number]
        record.comments[name] = comment
        self._keep(record, name, body)
        return comment

    def _keep(self, record: Record, name: str, body: Mapping[str, Any]) -> None:
        values = record.properties.setdefault(name, {})
        values.update({each["key"]: each["value"] for each in body.get("properties", ())})

    def _comments(self, asked: Asked, issue_id: str) -> Given:
        record = self._known(issue_id)
        if record is None:
            return NOT_FOUND
        every = [dict(comment) for comment in record.comments.values()]
        if self.expands_properties and asked.value("expand") == "properties":
            for comment in every:
                values = record.properties[comment["id"]]
                comment["properties"] = [{"key": key, "value": value} for key, value in values.items()]
        start, size = int(asked.value("startAt", "0")), min(int(asked.value("maxResults", "50")), 100)
        size = min(size, self.page_cap or size)
        page = every[start : start + size]
        return Given(body={"startAt": start, "maxResults": size, "total": len(every), "comments": page})

    def _create(self, asked: Asked, issue_id: str) -> Given:
        if self._known(issue_id) is None:
            return NOT_FOUND
        _check_document(asked.body["body"])
        return Given(status=201, body=self.write(self.number_of(issue_id), asked.body, ME))

    def _edit(self, asked: Asked, issue_id: str, name: str) -> Given:
        record = self._known(issue_id)
        if record is None or name not in record.comments:
            return NOT_FOUND
        _check_document(asked.body["body"])
        record.comments[name]["body"] = asked.body["body"]
        self._keep(record, name, asked.body)
        return Given(body=record.comments[name])

    def _property(self, asked: Asked, name: str, key: str) -> Given:
        del asked
        for record in self.records.values():
            if key in record.properties.get(name, {}):
                return Given(body={"key": key, "value": record.properties[name][key]})
        return NOT_FOUND


_PROJECT = {
    "id": PROJECT_ID,
    "key": PROJECT,
    "issueTypes": [
        {"id": "5", "name": "Sub-task", "subtask": True},
        {"id": "6", "name": "Bug", "subtask": False},
        {"id": "7", "name": "Task", "subtask": False},
    ],
}


def _check_document(node: Any) -> None:
    """What Jira refuses in rich text."""
    assert node["type"] in {
        "doc", "paragraph", "heading", "bulletList", "listItem", "codeBlock", "text", "hardBreak",
    }  # fmt: skip
    assert node["type"] != "text" or node["text"], "an empty text"
    assert node["type"] != "doc" or node["version"] == 1
    for each in node.get("content", ()):
        _check_document(each)


_BLOCKS = {"id": "10000", "name": "Blocks", "inward": "is blocked by", "outward": "blocks"}
_RELATES = {"name": "Relates", "inward": "relates to", "outward": "relates to"}
KNOWN = frozenset({*FIELDS, "creator"})


class JiraDesk(Desk):
    kind = "jira"
    todo, doing, done = "To Do", "In Progress", "Done"
    page, batch = 100, 100
    can = frozenset({"creates", "description", "labels", "blockers", "hold_back", "move", "timestamps"})
    paging_faults = frozenset({PagingFault.REPEATED, PagingFault.NO_CURSOR})
    malformed = ("title", "status")
    vendor: JiraVendor

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        return JiraVendor(clock)

    @override
    def provider(self) -> dict[str, Any]:
        return {
            "base_url": self.vendor.base,
            "email": EMAIL,
            "api_token": "$JIRA_API_TOKEN",
            "project_key": PROJECT,
        }

    @override
    def environment(self) -> Mapping[str, str]:
        return {"JIRA_API_TOKEN": TOKEN}

    @override
    def write(self, number: int, draft: Draft) -> str:
        now = self.vendor.stamp()
        fields: dict[str, Any] = {
            "summary": draft.title or f"Title {number}",
            "description": None if draft.description is None else document_of(draft.description),
            "status": status(draft.state or self.todo),
            "priority": draft.priority,
            "assignee": None,
            "creator": user(SOMEBODY),
            "reporter": user("qm:reporter", "customer"),
            "labels": list(draft.labels),
            "project": {"id": PROJECT_ID, "key": PROJECT, "name": "Payments"},
            "created": now if draft.created_at is None else draft.created_at,
            "updated": now,
            **draft.extra,
        }
        if draft.broken is not None:
            fields["summary" if draft.broken == "title" else draft.broken] = None
        self.vendor.lax |= draft.is_odd
        record = Record(key=f"{PROJECT}-{number}", fields=fields)
        old = self.vendor.records.get(number)
        if old is not None:
            record.comments, record.blockers = old.comments, old.blockers
            record.properties = old.properties
        self.vendor.records[number] = record
        return str(10_000 + number)

    @override
    def remove(self, number: int) -> None:
        del self.vendor.records[number]

    @override
    def put_out_of_scope(self, number: int) -> str:
        name = self.put(number, extra={"project": {"id": "10200", "key": "OTHER"}})
        self.vendor.records[number].key = f"OTHER-{number}"
        return name

    @override
    def block(self, number: int, by: int) -> None:
        self.vendor.records[number].blockers.append(by)

    @override
    def hold_back(self, number: int) -> str:
        name = self.put(number)
        self.put(number + 1_000, state="Backlog")
        self.block(number, number + 1_000)
        return name

    @override
    def comment(self, number: int, body: str, *, mine: bool = False) -> str:
        """Of somebody else the marker is text that was pasted; of ours it is the property."""
        marker, _, rest = body.partition("\n")
        value: dict[str, Any] = {"body": document_of(body)}
        if mine and marker.startswith("<!--"):
            properties = [{"key": "symphony.note", "value": {"marker": marker}}]
            value = {"body": document_of(rest), "properties": properties}
        return str(self.vendor.write(number, value, ME if mine else SOMEBODY)["id"])

    @override
    def say(self, number: int, body: str, voice: str) -> None:
        who = {
            "writer": (SOMEBODY, "atlassian"),
            "author": ("qm:reporter", "customer"),
            "stranger": ("qm:another", "customer"),
            "bot": ("557058:app", "app"),
        }
        self.vendor.write(number, {"body": document_of(body)}, *who[voice])

    @override
    def comments(self, number: int) -> list[str]:
        record = self.vendor.records[number]
        markers = {
            name: values.get("symphony.note", {}).get("marker") for name, values in record.properties.items()
        }
        bodies = {name: markdown_of(comment["body"]) or "" for name, comment in record.comments.items()}
        return [f"{markers[name]}\n{body}" if markers[name] else body for name, body in bodies.items()]

    @override
    def delete_comment(self, number: int, comment_id: str) -> None:
        del self.vendor.records[number].comments[comment_id]

    @override
    def forbid_moves(self) -> None:
        self.vendor.moves_are_ignored = True

    @override
    def finish(self, number: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        path, body = f"{API}/issue/{10_000 + number}/transitions", {"transition": {"id": IDS[self.done]}}
        return [("jira_rest", {"method": "POST", "path": path, "body": body})]

    @override
    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        path = f"{API}/issue/{10_000 + number}/comment"
        return "jira_rest", {"method": "POST", "path": path, "body": {"body": document_of(body)}}

    @override
    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        return "jira_rest", {"method": "GET", "path": f"{API}/issue/{issue.id}"}


class JiraPlainDesk(JiraDesk):
    """A site that lists comments without their properties, whatever it is asked for."""

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        vendor = JiraVendor(clock)
        vendor.expands_properties = False
        return vendor
