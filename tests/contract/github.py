"""GitHub in memory, held against its published description and the schema of its GraphQL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import override

from contract.desk import Desk, Draft
from contract.github_pulls import GithubPulls, pages, with_input
from contract.graphql_schema import check_graphql, graphql_schema
from contract.openapi import openapi
from contract.repository import Repository
from contract.schemas import GITHUB_GRAPHQL, SCHEMAS
from contract.vendor import (
    ELSEWHERE,
    Asked,
    Clock,
    Fault,
    Given,
    PagingFault,
    Route,
    Vendor,
    conditional,
    routed,
    zulu,
)
from symphony.domain import Issue

SECRET = "ghp_0123456789abcdefghijklmnop"
OWNER, REPO = "octo-team", "website"
ME, SOMEBODY = "symphony-bot", "ann"
NUMBERS = {ME: 1, SOMEBODY: 2}
_PROJECT = 5
NOT_FOUND = Given(status=404, body={"message": "Not Found", "documentation_url": "https://docs.example.test"})
_HERE = f"/repos/{OWNER}/{REPO}"
_ISSUES = f"{_HERE}/issues"
_UNPUBLISHED = tuple(f"{_HERE}/{what}" for what in ("pulls", "commits", "collaborators", "actions"))
"""What the slice of the description leaves out."""


def user(login: str) -> dict[str, Any]:
    """A user as the description has it."""
    page = f"https://github.example.test/users/{login}"
    links = (
        "avatar_url", "events_url", "followers_url", "following_url", "gists_url", "html_url",
        "organizations_url", "received_events_url", "repos_url", "starred_url", "subscriptions_url", "url",
    )  # fmt: skip
    return {
        **dict.fromkeys(links, page),
        "gravatar_id": "",
        "id": NUMBERS.get(login, 3),
        "node_id": f"U_{login}",
        "login": login,
        "site_admin": False,
        "type": "User",
    }


def me() -> dict[str, Any]:
    """What `/user` answers."""
    nothing: dict[str, Any] = dict.fromkeys(("name", "company", "location", "email", "hireable", "bio"))
    counts = dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0)
    times = dict.fromkeys(("created_at", "updated_at"), "2026-01-01T00:00:00Z")
    return {**user(ME), **nothing, **counts, **times, "blog": None}


@dataclass(slots=True)
class Record:
    fields: dict[str, Any]
    labels: list[str] = field(default_factory=list)
    blockers: list[int] = field(default_factory=list)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    status: str | None = None
    """The state in the project, where it has a row there."""


class GithubVendor(Vendor):
    base = "https://github.example.test/api/v3"
    secret = SECRET

    def __init__(self, clock: Clock, repository: Repository | None = None) -> None:
        super().__init__(clock)
        self.document = openapi(SCHEMAS["github"])
        self.schema = graphql_schema(GITHUB_GRAPHQL)
        self.repository = repository or Repository()
        self.records: dict[int, Record] = {}
        self.has_project = False
        self.lax = False
        self.moves_are_ignored = False
        self._pulls = GithubPulls(self.repository)
        self._routes: tuple[Route, ...] = (
            ("GET", r"/user", lambda _: Given(body=me())),
            ("GET", _ISSUES, self._list),
            ("POST", _ISSUES, self._add),
            ("GET", rf"{_ISSUES}/(\d+)", self._show),
            ("PATCH", rf"{_ISSUES}/(\d+)", self._patch),
            ("GET", rf"{_ISSUES}/(\d+)/dependencies/blocked_by", self._blocked_by),
            ("GET", rf"{_ISSUES}/(\d+)/comments", self._comments),
            ("POST", rf"{_ISSUES}/(\d+)/comments", self._create),
            ("PATCH", rf"{_ISSUES}/comments/(\d+)", self._edit),
            ("PUT", rf"{_ISSUES}/(\d+)/labels", self._label),
            ("DELETE", rf"{_ISSUES}/(\d+)/labels/(.+)", self._unlabel),
            *self._pulls.routes,
        )

    def stamp(self) -> str:
        """A moment later than all before."""
        return zulu(self.moment())

    # --- Vendor ------------------------------------------------------------------------------------------

    @property
    @override
    def validates(self) -> bool:
        return self.document is not None

    @override
    def is_write(self, asked: Asked) -> bool:
        query = asked.body.get("query", "mutation") if isinstance(asked.body, dict) else "mutation"
        return asked.method != "GET" and "mutation" in query

    @override
    def handle(self, asked: Asked) -> Given:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        assert asked.headers["x-github-api-version"]
        assert "user-agent" in asked.headers or asked.path.endswith("/logs")  # there httpx adds its own
        if asked.address == "https://github.example.test/api/graphql":
            return self._graphql(asked)
        if self.repository.archived and self.is_write(asked):
            return Given(status=403, body={"message": "Repository was archived so is read-only."})
        return conditional(asked, routed(self._routes, asked) or NOT_FOUND)

    @override
    def check(self, asked: Asked, given: Given) -> None:
        if "graphql" in asked.address:
            # A row of a project may be of several types, and which one is not asked for.
            data = None if "project" in asked.body["query"] else given.body.get("data")
            check_graphql(self.schema, asked.body["query"], asked.body["variables"], data)
            return
        if self.document is None or asked.path.startswith(_UNPUBLISHED):
            return
        shown = Given(status=given.status) if self.lax else given
        path = asked.path if asked.path.startswith("/repos/") else "/user"
        self.document.check(replace(asked, path=path), shown)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        in_s = str(self.clock.now // 1000 + 120)
        spent = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "0", "x-ratelimit-resource": "core"}
        body = {"message": "API rate limit exceeded"}
        second = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}
        date = "Fri, 27 Nov 2026 17:20:00 GMT"
        return {
            "403, nothing left, Unix time": (
                Given(status=403, body=body, headers={**spent, "x-ratelimit-reset": in_s}),
                120_000,
            ),
            "429, seconds": (Given(status=429, body=body, headers={"retry-after": "7"}), 7_000),
            "429, a date": (
                Given(
                    status=429,
                    body=body,
                    headers={"retry-after": "Fri, 27 Nov 2026 17:20:40 GMT", "date": date},
                ),
                40_000,
            ),
            "403, in words only": (Given(status=403, body=second), None),
            "403, seconds": (Given(status=403, body=second, headers={"retry-after": "60"}), 60_000),
            "503, seconds": (Given(status=503, body=body, headers={"retry-after": "5"}), 5_000),
        }

    # --- issues ------------------------------------------------------------------------------------------

    def _shown(self, number: int) -> dict[str, Any]:
        record = self.records[number]
        going_on = [blocker for blocker in record.blockers if self._state(blocker) == "open"]
        summary = {
            "blocked_by": len(going_on),
            "blocking": 0,
            "total_blocked_by": len(record.blockers),
            "total_blocking": 0,
        }
        labels = [{"name": label, "id": 1, "color": "ededed", "default": False} for label in record.labels]
        return {"issue_dependencies_summary": summary, **record.fields, "labels": labels}

    def _state(self, number: int) -> Any:
        return self.records[number].fields["state"]

    def _list(self, asked: Asked) -> Given:
        state, labels = asked.value("state", "open"), asked.value("labels").lower()
        assert state in {"open", "closed", "all"}
        found = [
            self._shown(number)
            for number, record in sorted(self.records.items())
            if (state == "all" or record.fields["state"] in {state, None})
            and (not labels or labels in [label.lower() for label in record.labels])
            and asked.value("creator") in {"", record.fields["user"]["login"]}
            and (not asked.value("since") or record.fields["updated_at"] >= asked.value("since"))
        ]
        return self._page(asked, found)

    def _add(self, asked: Asked) -> Given:
        number = self.new(title=asked.body["title"], description=asked.body["body"])
        record = self.records[number]
        record.fields.update(user=user(ME), updated_at=record.fields["created_at"])
        record.labels, record.status = list(asked.body["labels"]), None
        return Given(status=201, body=self._shown(number))

    def _page(self, asked: Asked, records: list[Any]) -> Given:
        size = min(int(asked.value("per_page", "30")), 100, self.page_cap or 100)
        page = int(asked.value("page", "1"))
        following = asked.address.split("&page=")[0] + f"&page={page + 1}"
        if self.paging_fault is PagingFault.REPEATED:
            following = asked.address.split("&page=")[0] + "&page=2"
        elif self.paging_fault is PagingFault.ELSEWHERE:
            following = ELSEWHERE
        end = page * size
        link = {"link": f'<{asked.address}>; rel="first", <{following}>; rel="next"'}
        more = end < len(records) or self.paging_fault is PagingFault.REPEATED
        return Given(body=records[end - size : end], headers=link if more else {})

    def _show(self, asked: Asked, number: str) -> Given:
        del asked
        if int(number) not in self.records:
            return NOT_FOUND
        return Given(body=self._shown(int(number)))

    def _patch(self, asked: Asked, number: str) -> Given:
        if int(number) not in self.records:
            return NOT_FOUND
        if not self.moves_are_ignored:
            self.records[int(number)].fields.update(state=asked.body["state"], updated_at=self.stamp())
        return Given(body=self._shown(int(number)))

    def _blocked_by(self, asked: Asked, number: str) -> Given:
        return self._page(asked, [self._shown(blocker) for blocker in self.records[int(number)].blockers])

    def _label(self, asked: Asked, number: str) -> Given:
        record = self.records[int(number)]
        if not self.moves_are_ignored:
            record.labels = list(dict.fromkeys(asked.body["labels"]))
        return Given(body=self._labels(record))

    def _unlabel(self, asked: Asked, number: str, label: str) -> Given:
        del asked
        record = self.records[int(number)]
        if not self.moves_are_ignored:
            record.labels.remove(label)
        return Given(body=self._labels(record))

    def _labels(self, record: Record) -> list[dict[str, Any]]:
        return [
            {
                "id": 1,
                "node_id": "L",
                "url": "https://github.example.test/l",
                "name": label,
                "description": None,
                "color": "ededed",
                "default": False,
            }
            for label in record.labels
        ]

    # --- comments ----------------------------------------------------------------------------------------

    def write(
        self, number: int, body: str, login: str, *, association: str = "NONE", kind: str = "User"
    ) -> dict[str, Any]:
        """A new comment."""
        now, name = self.stamp(), self.ticks
        page = f"https://github.example.test/c/{name}"
        comment = {
            "id": name,
            "node_id": f"IC_{name}",
            "html_url": page,
            "issue_url": page,
            "url": page,
            "user": {**user(login), "type": kind},
            "created_at": now,
            "updated_at": now,
            "author_association": association,
            "body": body,
        }
        self.records[number].comments[name] = comment
        return comment

    def _comments(self, asked: Asked, number: str) -> Given:
        if int(number) not in self.records:
            return NOT_FOUND
        return self._page(asked, list(self.records[int(number)].comments.values()))

    def _create(self, asked: Asked, number: str) -> Given:
        if int(number) not in self.records:
            return NOT_FOUND
        return Given(status=201, body=self.write(int(number), asked.body["body"], ME))

    def _edit(self, asked: Asked, comment: str) -> Given:
        for record in self.records.values():
            if int(comment) in record.comments:
                found = record.comments[int(comment)]
                found["body"] = asked.body["body"]
                return Given(body=found)
        # The description knows no 404 here, and the service answers it.
        return Given(status=404, raw=NOT_FOUND.content)

    # --- the project -------------------------------------------------------------------------------------

    def _graphql(self, asked: Asked) -> Given:
        root = {
            "repositoryOwner": lambda login: {
                "__typename": "ProjectV2Owner",
                "projectV2": self._project(login),
            },
            "updateProjectV2ItemFieldValue": with_input(self._move),
            "addProjectV2ItemById": with_input(self._add_row),
        }
        return self._pulls.graphql(asked, root, self._issue)

    def _project(self, owner: str) -> Callable[..., dict[str, Any] | None]:
        assert self.has_project, "GraphQL is for projects only"
        options = [{"id": f"o-{each}", "name": each} for each in ("Todo", "In Progress", "Done", "Backlog")]
        states = {"__typename": "ProjectV2SingleSelectField", "id": "field", "options": options}
        project = {
            "id": "project",
            "title": "Plan",
            "field": lambda name: states if name == "Status" else None,
            "items": pages([self._row(number) for number in sorted(self.records)]),
        }
        return lambda number: project if (owner, number) == (OWNER, _PROJECT) else None

    def _row(self, number: int) -> dict[str, Any]:
        content = {
            "__typename": "Issue",
            "number": number,
            "repository": {"nameWithOwner": f"{OWNER}/{REPO}"},
        }
        return {
            "id": f"item-{number}",
            "isArchived": False,
            "project": {"number": _PROJECT, "owner": {"__typename": "Organization", "login": OWNER}},
            "fieldValueByName": lambda name: {
                "__typename": "ProjectV2ItemFieldSingleSelectValue",
                "name": self.records[number].status if name == "Status" else None,
            },
            "content": content,
        }

    def _issue(self, number: int) -> dict[str, Any] | None:
        assert self.has_project, "GraphQL is for projects only"
        return {"projectItems": pages([self._row(number)])} if number in self.records else None

    def _add_row(self, given: dict[str, Any]) -> dict[str, Any]:
        assert given["projectId"] == "project"
        return {"item": {"id": f"item-{given['contentId'].removeprefix('I_')}"}}

    def _move(self, given: dict[str, Any]) -> dict[str, Any]:
        assert (given["projectId"], given["fieldId"]) == ("project", "field")
        if not self.moves_are_ignored:
            option = given["value"]["singleSelectOptionId"]
            self.records[int(given["itemId"].removeprefix("item-"))].status = option.removeprefix("o-")
        return {"projectV2Item": {"id": given["itemId"]}}


class GithubDesk(Desk):
    """States by labels, the way of most teams."""

    kind = "github"
    todo, doing, done = "Todo", "In Progress", "Done"
    page, batch = 100, 1
    can = frozenset(
        {
            "creates",
            "knows_states",
            "description",
            "labels",
            "blockers",
            "hold_back",
            "move",
            "timestamps",
            "conditional",
            "one_state",
        }
    )
    paging_faults = frozenset({PagingFault.REPEATED, PagingFault.ELSEWHERE})
    gone = frozenset({Fault.NOT_FOUND, Fault.GONE})
    vendor: GithubVendor

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        return GithubVendor(clock)

    @override
    def provider(self) -> dict[str, Any]:
        return {
            "api_url": self.vendor.base,
            "token": "$GITHUB_TOKEN",
            "repo": f"{OWNER}/{REPO}",
            "states": {"source": "labels"},
        }

    @override
    def environment(self) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": SECRET}

    def keep_state(self, record: Record, state: str) -> None:
        """Write the state where this desk keeps states."""
        record.labels.insert(0, f"status:{state.lower().replace(' ', '-')}")

    @override
    def write(self, number: int, draft: Draft) -> str:
        now = self.vendor.stamp()
        page = f"https://github.example.test/{OWNER}/{REPO}/issues/{number}"
        links = ("url", "repository_url", "labels_url", "comments_url", "events_url", "html_url")
        fields: dict[str, Any] = {
            **dict.fromkeys(links, page),
            "repository_url": f"{self.vendor.base}/repos/{OWNER}/{REPO}",
            "id": 10_000 + number,
            "node_id": f"I_{number}",
            "number": number,
            "title": draft.title or f"Title {number}",
            "state": "open",
            "body": draft.description,
            "user": user(SOMEBODY),
            "assignee": None,
            "milestone": None,
            "locked": False,
            "comments": 0,
            "closed_at": None,
            "created_at": now if draft.created_at is None else draft.created_at,
            "updated_at": now,
            "author_association": "NONE",
            **draft.extra,
        }
        if draft.broken is not None:
            fields[draft.broken] = None
        self.vendor.lax |= draft.is_odd
        record = Record(fields=fields, labels=list(draft.labels))
        self.keep_state(record, draft.state or self.todo)
        old = self.vendor.records.get(number)
        if old is not None:
            record.comments, record.blockers = old.comments, old.blockers
        self.vendor.records[number] = record
        return str(number)

    @override
    def remove(self, number: int) -> None:
        del self.vendor.records[number]

    @override
    def put_out_of_scope(self, number: int) -> str:
        self.put(number, extra={"pull_request": {"url": "https://github.example.test/p"}})
        return str(number)

    @override
    def block(self, number: int, by: int) -> None:
        self.vendor.records[number].blockers.append(by)

    @override
    def hold_back(self, number: int) -> str:
        self.put(number)
        self.put(number + 1_000, state="Backlog")
        self.block(number, number + 1_000)
        return str(number)

    @override
    def comment(self, number: int, body: str, *, mine: bool = False) -> str:
        return str(self.vendor.write(number, body, ME if mine else SOMEBODY)["id"])

    @override
    def say(self, number: int, body: str, voice: str) -> None:
        login = {"writer": "carla", "author": SOMEBODY, "stranger": "mallory", "bot": "ci"}[voice]
        association = "MEMBER" if voice in {"writer", "bot"} else "NONE"
        self.vendor.write(
            number, body, login, association=association, kind="Bot" if voice == "bot" else "User"
        )

    def comment_by(self, login: str, number: int, body: str, *, association: str) -> dict[str, Any]:
        """Somebody comments who stands so to the repository; what the webhook tells of it."""
        comment = self.vendor.write(number, body, login, association=association)
        return {"action": "created", "issue": {"number": number}, "comment": comment}

    @override
    def comments(self, number: int) -> list[str]:
        return [comment["body"] for comment in self.vendor.records[number].comments.values()]

    @override
    def delete_comment(self, number: int, comment_id: str) -> None:
        del self.vendor.records[number].comments[int(comment_id)]

    @override
    def forbid_moves(self) -> None:
        self.vendor.moves_are_ignored = True

    @override
    def finish(self, number: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        call = {"method": "PATCH", "path": f"{_ISSUES}/{number}", "body": {"state": "closed"}}
        return [("github_api", call)]

    @override
    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        path = f"{_ISSUES}/{number}/comments"
        return "github_api", {"method": "POST", "path": path, "body": {"body": body}}

    @override
    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        path = f"{_ISSUES}/{issue.id}"
        return "github_api", {"method": "GET", "path": path}


class GithubProjectDesk(GithubDesk):
    """States by the field of a project."""

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        vendor = GithubVendor(clock)
        vendor.has_project = True
        return vendor

    @override
    def provider(self) -> dict[str, Any]:
        return {**super().provider(), "states": {"source": "project", "project": _PROJECT}}

    @override
    def keep_state(self, record: Record, state: str) -> None:
        record.status = state
