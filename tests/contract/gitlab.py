"""GitLab in memory. It publishes no schema that is ours to use, so the shapes here are written by hand."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import override

from contract.desk import Desk, Draft
from contract.gitlab_pulls import NOT_FOUND, NUMBERS, PROJECT_ID, GitlabPulls, user
from contract.gitlab_shapes import SHAPES
from contract.repository import BOT, ME, Repository
from contract.vendor import (
    ELSEWHERE,
    Asked,
    Clock,
    Given,
    PagingFault,
    Route,
    Vendor,
    conditional,
    routed,
    zulu,
)
from symphony.domain import Issue
from symphony.services.gitlab.issues import BLOCKED

SECRET = "glpat-0123456789abcdefghij"
PROJECT = "platform/tools/deployer"
SOMEBODY = "ann"
LEVELS = {3: 30, 6: 10}


@dataclass(slots=True)
class Record:
    fields: dict[str, Any]
    labels: list[str] = field(default_factory=list)
    blockers: list[int] = field(default_factory=list)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)


class GitlabVendor(Vendor):
    base = "https://gitlab.example.test/api/v4"
    secret = SECRET

    def __init__(self, clock: Clock, repository: Repository | None = None) -> None:
        super().__init__(clock)
        self.repository = repository or Repository(PROJECT)
        self._project = self.repository.name
        here = f"/projects/{self._project}"
        pulls = GitlabPulls(self.repository, self._project, self._page)
        self.records: dict[int, Record] = {}
        self.lax = False
        self.moves_are_ignored = False
        self.shows_links = True
        self._routes: tuple[Route, ...] = (
            ("GET", "/user", lambda _: Given(body=user(ME))),
            ("GET", rf"{here}/issues", self._list),
            ("POST", rf"{here}/issues", self._add),
            ("GET", rf"{here}/issues/(\d+)", self._show),
            ("PUT", rf"{here}/issues/(\d+)", self._change),
            ("GET", rf"{here}/issues/(\d+)/links", self._links),
            ("GET", rf"{here}/members/all/(\d+)", self._member),
            ("GET", rf"{here}/issues/(\d+)/notes", self._notes),
            ("POST", rf"{here}/issues/(\d+)/notes", self._create),
            ("PUT", rf"{here}/issues/(\d+)/notes/(\d+)", self._edit),
            *pulls.routes,
        )

    def stamp(self) -> str:
        """A moment later than all before."""
        return zulu(self.moment())

    # --- Vendor ------------------------------------------------------------------------------------------

    @property
    @override
    def validates(self) -> bool:
        return True

    @override
    def is_write(self, asked: Asked) -> bool:
        return asked.method != "GET" and "graphql" not in asked.address

    @override
    def handle(self, asked: Asked) -> Given:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        if asked.address == "https://gitlab.example.test/api/graphql":
            return self._blocked(asked)
        if self.repository.archived and self.is_write(asked):
            return Given(status=403, body={"message": "403 Forbidden"})
        return conditional(asked, routed(self._routes, asked) or NOT_FOUND)

    @override
    def check(self, asked: Asked, given: Given) -> None:
        if "graphql" in asked.address or asked.path.endswith("/trace"):
            return
        shown = Given(status=given.status) if self.lax or given.status not in range(200, 300) else given
        SHAPES.check(replace(asked, path=asked.path.replace(self._project, "1")), shown)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        in_s = str(self.clock.now // 1000 + 60)
        body = {"message": "This endpoint has been requested too many times. Try again later."}
        spent = {"ratelimit-limit": "2000", "ratelimit-remaining": "0", "ratelimit-reset": in_s}
        date = "Fri, 27 Nov 2026 17:20:00 GMT"
        return {
            "429, seconds": (Given(status=429, body=body, headers={"retry-after": "7"}), 7_000),
            "429, plain text": (
                Given(status=429, raw=b"Retry later\n", headers={"retry-after": "60", **spent}),
                60_000,
            ),
            "429, nothing left, Unix time": (Given(status=429, body=body, headers=spent), 60_000),
            "429, a date": (
                Given(
                    status=429,
                    body=body,
                    headers={"retry-after": "Fri, 27 Nov 2026 17:20:40 GMT", "date": date},
                ),
                40_000,
            ),
            "429, no time": (Given(status=429, body=body), None),
            "503, seconds": (Given(status=503, body=body, headers={"retry-after": "5"}), 5_000),
        }

    # --- issues ------------------------------------------------------------------------------------------

    def _shown(self, number: int) -> dict[str, Any]:
        record = self.records[number]
        return {**record.fields, "labels": list(record.labels)}

    def _here(self) -> list[int]:
        """The issues of the project."""
        return [
            number
            for number, record in sorted(self.records.items())
            if record.fields["project_id"] == PROJECT_ID
        ]

    def _list(self, asked: Asked) -> Given:
        state, labels, iids = asked.value("state", "all"), asked.value("labels"), asked.values("iids[]")
        found = [
            self._shown(number)
            for number in self._here()
            if (state == "all" or self.records[number].fields["state"] in {state, None})
            and (not labels or labels in self.records[number].labels)
            and (not iids or str(number) in iids)
            and asked.value("author_id") in {"", str(self.records[number].fields["author"]["id"])}
            and str(self.records[number].fields["created_at"]) >= asked.value("created_after")
        ]
        return self._page(asked, found)

    def _add(self, asked: Asked) -> Given:
        number = self.new(title=asked.body["title"], description=asked.body["description"])
        assert not re.search(r"^/\w", asked.body["description"], re.MULTILINE)
        record = self.records[number]
        record.fields["author"] = user(ME)
        record.labels = [each for each in asked.body["labels"].split(",") if each]
        return Given(status=201, body=self._shown(number))

    def _page(self, asked: Asked, records: list[Any]) -> Given:
        size = min(int(asked.value("per_page", "20")), 100, self.page_cap or 100)
        page = int(asked.value("page", "1"))
        end = page * size
        more = end < len(records)
        headers = {
            "x-page": str(page),
            "x-next-page": str(page + 1) if more else "",
            "x-total-pages": str(-(-len(records) // size)),
        }
        first = re.sub(r"&page=\d+", "", asked.address)
        following = f"{first}&page={page + 1}"
        if self.paging_fault is PagingFault.REPEATED:
            following, more = f"{first}&page=2", True
        elif self.paging_fault is PagingFault.ELSEWHERE:
            following = ELSEWHERE
        if self.shows_links:
            link = f'<{asked.address}>; rel="first"'
            headers["link"] = f'<{following}>; rel="next", {link}' if more else link
        elif self.paging_fault is PagingFault.REPEATED:
            headers["x-next-page"] = "2"
        return Given(body=records[end - size : end], headers=headers)

    def _show(self, asked: Asked, number: str) -> Given:
        del asked
        return Given(body=self._shown(int(number))) if int(number) in self._here() else NOT_FOUND

    def _change(self, asked: Asked, number: str) -> Given:
        if int(number) not in self._here():
            return NOT_FOUND
        record, body = self.records[int(number)], asked.body
        if not self.moves_are_ignored:
            if "state_event" in body:
                record.fields["state"] = {"close": "closed", "reopen": "opened"}[body["state_event"]]
            gone = [each.strip() for each in body.get("remove_labels", "").split(",")]
            kept = [label for label in record.labels if label not in gone]
            added = [each.strip() for each in body.get("add_labels", "").split(",") if each.strip()]
            record.labels = list(dict.fromkeys([*kept, *added]))
            record.fields["updated_at"] = self.stamp()
        return Given(body=self._shown(int(number)))

    def _links(self, asked: Asked, number: str) -> Given:
        record = self.records[int(number)]
        links = [
            {**self._shown(blocker), "link_type": "is_blocked_by", "issue_link_id": blocker}
            for blocker in record.blockers
        ]
        links += [
            {**self._shown(other), "link_type": "relates_to", "issue_link_id": 1_000 + other}
            for other in self._here()[:1]
        ]
        return self._page(asked, links)

    def _blocked(self, asked: Asked) -> Given:
        assert asked.body["query"] == BLOCKED
        variables = asked.body["variables"]
        assert set(variables) == {"path", "iids", "first"}
        assert all(isinstance(iid, str) for iid in variables["iids"])
        assert len(variables["iids"]) <= variables["first"] <= 100
        if variables["path"] != PROJECT:
            return Given(body={"data": {"project": None}})
        nodes = [
            {"iid": str(number), "blocked": bool(self.records[number].blockers)}
            for number in self._here()
            if str(number) in variables["iids"]
        ]
        return Given(body={"data": {"project": {"issues": {"nodes": nodes}}}})

    # --- notes -------------------------------------------------------------------------------------------

    def write(self, number: int, body: str, login: str, *, system: bool = False) -> dict[str, Any]:
        """A new note."""
        now, name = self.stamp(), self.ticks
        note = {
            "id": name,
            "body": body,
            "author": user(login),
            "created_at": now,
            "updated_at": now,
            "system": system,
            "noteable_type": "Issue",
            "noteable_iid": number,
        }
        self.records[number].notes[name] = note
        return note

    def _notes(self, asked: Asked, number: str) -> Given:
        if int(number) not in self._here():
            return NOT_FOUND
        return self._page(asked, list(self.records[int(number)].notes.values()))

    def _member(self, _: Asked, number: str) -> Given:
        if int(number) not in LEVELS:
            return NOT_FOUND
        (login,) = (name for name, known in NUMBERS.items() if known == int(number))
        return Given(body={**user(login), "access_level": LEVELS[int(number)]})

    def _create(self, asked: Asked, number: str) -> Given:
        if int(number) not in self._here():
            return NOT_FOUND
        return Given(status=201, body=self.write(int(number), self._text(asked), ME))

    def _edit(self, asked: Asked, number: str, note: str) -> Given:
        found = self.records[int(number)].notes.get(int(note))
        if found is None:
            return NOT_FOUND
        found["body"] = self._text(asked)
        return Given(body=found)

    def _text(self, asked: Asked) -> str:
        body = str(asked.body["body"])
        assert not re.search(r"^/\w", body, re.MULTILINE), "a line that the server would carry out"
        return body


class GitlabDesk(Desk):
    """States by labels, the way of most teams, and blockers, which are for those who pay."""

    kind = "gitlab"
    todo, doing, done = "Todo", "In Progress", "Done"
    page, batch = 100, 100
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
        }
    )
    paging_faults = frozenset({PagingFault.REPEATED, PagingFault.ELSEWHERE})
    vendor: GitlabVendor

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        return GitlabVendor(clock)

    @override
    def provider(self) -> dict[str, Any]:
        return {
            "api_url": self.vendor.base,
            "api_key": "$GITLAB_PAT",
            "project_path": PROJECT,
            "states": {"source": "labels"},
            "wait_for_blockers": True,
        }

    @override
    def environment(self) -> Mapping[str, str]:
        return {"GITLAB_PAT": SECRET}

    @override
    def write(self, number: int, draft: Draft) -> str:
        now = self.vendor.stamp()
        page = f"https://gitlab.example.test/{PROJECT}/-/issues/{number}"
        fields: dict[str, Any] = {
            "id": 10_000 + number,
            "iid": number,
            "project_id": PROJECT_ID,
            "title": draft.title or f"Title {number}",
            "state": "opened",
            "description": draft.description,
            "author": user(SOMEBODY),
            "assignees": [],
            "assignee": None,
            "weight": draft.priority,
            "web_url": page,
            "references": {"short": f"#{number}", "relative": f"#{number}", "full": f"{PROJECT}#{number}"},
            "closed_at": None,
            "created_at": now if draft.created_at is None else draft.created_at,
            "updated_at": now,
            **draft.extra,
        }
        if draft.broken is not None:
            fields[draft.broken] = None
        self.vendor.lax |= draft.is_odd
        status = f"workflow::{(draft.state or self.todo).lower().replace(' ', '-')}"
        record = Record(fields=fields, labels=[status, *draft.labels])
        old = self.vendor.records.get(number)
        if old is not None:
            record.notes, record.blockers = old.notes, old.blockers
        self.vendor.records[number] = record
        return str(number)

    @override
    def remove(self, number: int) -> None:
        del self.vendor.records[number]

    @override
    def put_out_of_scope(self, number: int) -> str:
        """Of another project, where the number is one of its own."""
        return self.put(number, extra={"project_id": PROJECT_ID + 1})

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
        who = {"writer": "carla", "author": SOMEBODY, "stranger": "mallory", "bot": BOT}
        self.vendor.write(number, body, who[voice])

    @override
    def comments(self, number: int) -> list[str]:
        return [note["body"] for note in self.vendor.records[number].notes.values() if not note["system"]]

    @override
    def delete_comment(self, number: int, comment_id: str) -> None:
        del self.vendor.records[number].notes[int(comment_id)]

    @override
    def forbid_moves(self) -> None:
        self.vendor.moves_are_ignored = True

    @override
    def finish(self, number: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        path = f"/projects/{PROJECT.replace('/', '%2F')}/issues/{number}"
        return [("gitlab_api", {"method": "PUT", "path": path, "body": {"state_event": "close"}})]

    @override
    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        path = f"/projects/{PROJECT.replace('/', '%2F')}/issues/{number}/notes"
        return "gitlab_api", {"method": "POST", "path": path, "body": {"body": body}}

    @override
    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        path = f"/projects/{PROJECT.replace('/', '%2F')}/issues/{issue.id}"
        return "gitlab_api", {"method": "GET", "path": path}


class GitlabOwnStatesDesk(GitlabDesk):
    """States by opened and closed, as files of the reference have it; behind a proxy that shows no `Link`."""

    todo, doing, done = "opened", "opened", "closed"
    can = frozenset({"creates", "knows_states", "description", "labels", "timestamps", "conditional"})
    paging_faults = frozenset({PagingFault.REPEATED})

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        vendor = GitlabVendor(clock)
        vendor.shows_links = False
        return vendor

    @override
    def provider(self) -> dict[str, Any]:
        every = super().provider()
        return {key: every[key] for key in ("api_url", "api_key", "project_path")}

    @override
    def put(self, number: int, *, state: str | None = None, **fields: Any) -> str:
        name = super().put(number, **fields)
        record = self.vendor.records[number]
        record.labels.pop(0)
        record.fields["state"] = record.fields["state"] and (state or self.todo)
        return name
