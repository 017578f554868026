"""Forgejo and Gitea in memory: the REST calls of the adapter by Forgejo's published description."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from contract.desk import Desk, Draft
from contract.forgejo_pulls import NOT_FOUND, SHAPES, ForgejoPulls, comment_shown, user
from contract.repository import ME, Repository
from contract.schemas import SCHEMAS
from contract.swagger import swagger
from contract.vendor import Asked, Clock, Fault, Given, PagingFault, Route, Vendor, routed, zulu
from symphony.domain import Issue

SECRET = "0123456789abcdef0123456789abcdef01234567"
OWNER, REPO = "octo-team", "website"
SOMEBODY = "ann"
LABELS = ("status/todo", "status/in-progress", "status/done", "status/backlog")
_REPO = f"/repos/{OWNER}/{REPO}"
_ISSUES = f"{_REPO}/issues"
_PUBLISHED = (_ISSUES, f"{_REPO}/labels", "/user")
"""What the slice of the description has; the rest is written down by hand."""
_DEPENDENCIES = rf"{_ISSUES}/(\d+)/dependencies"


@dataclass(slots=True)
class Record:
    fields: dict[str, Any]
    labels: list[str] = field(default_factory=list)
    blockers: list[int] = field(default_factory=list)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)


class ForgejoVendor(Vendor):
    """Attributes: `dependencies` says whether the repository has any; `exclusive`, if its labels are."""

    base = "https://forge.example.test/git/api/v1"
    secret = SECRET

    def __init__(self, clock: Clock, repository: Repository | None = None) -> None:
        super().__init__(clock)
        self.repository = repository or Repository()
        self.assignees: Given | None = None
        self.document = swagger(SCHEMAS["forgejo"])
        self.records: dict[int, Record] = {}
        self.known_labels = list(LABELS)
        self.lax = False
        self.moves_are_ignored = False
        self.dependencies = True
        self.exclusive = False
        self.sorts = True
        self.own_address = self.base
        self._routes: tuple[Route, ...] = (
            ("GET", r"/user", lambda _: Given(body=user(ME))),
            ("GET", rf"{_REPO}/assignees", self._assignees),
            ("GET", _ISSUES, self._list),
            ("POST", _ISSUES, self._add),
            ("GET", rf"{_REPO}/labels", self._every_label),
            ("GET", rf"{_ISSUES}/(\d+)", self._show),
            ("PATCH", rf"{_ISSUES}/(\d+)", self._patch),
            ("GET", _DEPENDENCIES, self._blocked_by),
            ("GET", rf"{_ISSUES}/(\d+)/comments", self._comments),
            ("POST", rf"{_ISSUES}/(\d+)/comments", self._create),
            ("PATCH", rf"{_ISSUES}/comments/(\d+)", self._edit),
            ("POST", rf"{_ISSUES}/(\d+)/labels", self._label),
            ("DELETE", rf"{_ISSUES}/(\d+)/labels/(\d+)", self._unlabel),
            *ForgejoPulls(self.repository, self._page).routes,
        )

    def stamp(self) -> str:
        """A moment later than all before, to the second."""
        return zulu(self.moment())

    def touch(self, number: int) -> None:
        """Note that the issue was changed."""
        self.records[number].fields["updated_at"] = self.stamp()

    # --- Vendor ------------------------------------------------------------------------------------------

    @property
    @override
    def validates(self) -> bool:
        return self.document is not None

    @override
    def handle(self, asked: Asked) -> Given:
        assert asked.headers["authorization"] == f"token {SECRET}"
        if self.repository.archived and self.is_write(asked):
            return Given(status=423, body={"message": "Repo is archived", "url": "u"})
        return routed(self._routes, asked) or NOT_FOUND

    @override
    def check(self, asked: Asked, given: Given) -> None:
        shown = Given(status=given.status) if self.lax or given.status not in range(200, 300) else given
        if asked.path.startswith("/orgs/"):
            return  # the slice of the description leaves organisations out
        if asked.path.startswith(_PUBLISHED):
            if self.document is not None:
                self.document.check(asked, shown)
        else:
            SHAPES.check(asked, shown)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        return {
            "429, seconds": (
                Given(status=429, raw=b"Too Many Requests", headers={"retry-after": "7"}),
                7_000,
            ),
            "429, nothing": (Given(status=429, raw=b"<html>slow down</html>"), None),
            "503, seconds": (Given(status=503, raw=b"busy", headers={"retry-after": "30"}), 30_000),
        }

    @override
    def fault(self, fault: Fault) -> Given:
        if fault is Fault.UNAUTHORISED:
            return Given(status=401, body={"message": "invalid username, password or token", "url": "u"})
        if fault is Fault.FORBIDDEN:
            message = "token does not have at least one of required scope(s): [write:issue]"
            return Given(status=403, body={"message": message, "url": "u"})
        return NOT_FOUND if fault is Fault.NOT_FOUND else super().fault(fault)

    # --- issues ------------------------------------------------------------------------------------------

    def shown(self, number: int) -> dict[str, Any]:
        """An issue as the API shows it."""
        record = self.records[number]
        return {**record.fields, "comments": len(record.comments), "labels": self._labels(record.labels)}

    def _labels(self, names: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "id": self._id(name),
                "name": name,
                "color": "ededed",
                "description": "",
                "url": "",
                "exclusive": False,
            }
            for name in names
        ]

    def _id(self, name: str) -> int:
        if name not in self.known_labels:
            self.known_labels.append(name)
        return self.known_labels.index(name) + 1

    def _list(self, asked: Asked) -> Given:
        state, label, since = asked.value("state", "open"), asked.value("labels"), asked.value("since")
        label = label if label in self.known_labels else ""
        found = [
            self.shown(number)
            for number, record in sorted(self.records.items())
            if (state == "all" or record.fields["state"] in {state, None})
            and (asked.value("type") != "issues" or "pull_request" not in record.fields)
            and (not label or label in record.labels)
            and (not since or str(record.fields["updated_at"]) >= since)
            and asked.value("created_by") in {"", record.fields["user"]["login"]}
        ]
        if asked.value("sort") == "recentupdate" and self.sorts:
            found.sort(key=lambda each: str(each["updated_at"]), reverse=True)
        elif asked.value("sort") != "oldest" or not self.sorts:
            found.reverse()
        return self._page(asked, found)

    def _add(self, asked: Asked) -> Given:
        number = self.new(title=asked.body["title"], description=asked.body["body"])
        record = self.records[number]
        record.fields["user"] = user(ME)
        record.labels = [self.known_labels[label - 1] for label in asked.body["labels"]]
        return Given(status=201, body=self.shown(number))

    def _every_label(self, asked: Asked) -> Given:
        return self._page(asked, self._labels(self.known_labels), links=False)

    def _page(self, asked: Asked, records: list[Any], *, links: bool = True) -> Given:
        size = min(int(asked.value("limit", "30")), 50, self.page_cap or 50)
        page = int(asked.value("page", "1"))
        if self.paging_fault is PagingFault.REPEATED:
            page = min(page, 2)
        end = page * size
        total = {"x-total-count": str(len(records))}
        more = links and (end < len(records) or self.paging_fault is PagingFault.REPEATED)
        address = re.sub(r"&page=\d+", "", asked.address).replace(self.base, self.own_address)
        following = f'<{address}&page={page + 1}>; rel="next"'
        return Given(body=records[end - size : end], headers={**total, "link": following} if more else total)

    def _assignees(self, _asked: Asked) -> Given:
        return self.assignees or Given(body=list(map(user, sorted(self.repository.writers))))

    def _show(self, asked: Asked, number: str) -> Given:
        del asked
        return Given(body=self.shown(int(number))) if int(number) in self.records else NOT_FOUND

    def _patch(self, asked: Asked, number: str) -> Given:
        if int(number) not in self.records:
            return NOT_FOUND
        if not self.moves_are_ignored:
            self.records[int(number)].fields["state"] = asked.body["state"]
            self.touch(int(number))
        return Given(status=201, body=self.shown(int(number)))

    def _blocked_by(self, asked: Asked, number: str) -> Given:
        if not self.dependencies:
            return NOT_FOUND
        found = [
            self.shown(blocker) if blocker else {**self.shown(int(number)), "number": 0, "title": "HIDDEN"}
            for blocker in self.records[int(number)].blockers
        ]
        return self._page(asked, found, links=False)

    def _label(self, asked: Asked, number: str) -> Given:
        if (pull := self.repository.pulls.get(int(number))) is not None:
            pull.labels += asked.body["labels"]
            return Given(body=self._labels(pull.labels))
        record = self.records[int(number)]
        for name in asked.body["labels"]:
            if self.moves_are_ignored or name not in self.known_labels:
                continue
            if self.exclusive:
                record.labels = [each for each in record.labels if not each.startswith("status/")]
            record.labels.append(name)
            self.touch(int(number))
        return Given(body=self._labels(record.labels))

    def _unlabel(self, asked: Asked, number: str, label: str) -> Given:
        del asked
        labels, known = self.records[int(number)].labels, self.known_labels
        name = known[int(label) - 1] if 0 < int(label) <= len(known) else None
        if name not in labels:
            return NOT_FOUND
        labels.remove(name)
        self.touch(int(number))
        return Given(status=204)

    # --- comments ----------------------------------------------------------------------------------------

    def write(self, number: int, body: str, login: str) -> dict[str, Any]:
        """A new comment."""
        self.touch(number)
        now, name = self.records[number].fields["updated_at"], self.ticks
        comment = {
            "id": name,
            "html_url": f"https://forge.example.test/c/{name}",
            "issue_url": "",
            "pull_request_url": "",
            "user": user(login),
            "original_author": "",
            "original_author_id": 0,
            "assets": [],
            "created_at": now,
            "updated_at": now,
            "body": body,
        }
        self.records[number].comments[name] = comment
        return comment

    def _comments(self, asked: Asked, number: str) -> Given:
        del asked
        if (pull := self.repository.pulls.get(int(number))) is not None:
            return Given(body=list(map(comment_shown, pull.comments)))
        if int(number) not in self.records:
            return NOT_FOUND
        return Given(body=list(self.records[int(number)].comments.values()))

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
        return NOT_FOUND


def _empty() -> Repository:
    """Of those who may write to it the author of issues is none."""
    repository = Repository()
    repository.writers = {ME, "carla"}
    return repository


class ForgejoDesk(Desk):
    """States by scoped labels."""

    kind = "forgejo"
    token = "FORGEJO_TOKEN"
    todo, doing, done = "Todo", "In Progress", "Done"
    page, batch = 50, 1
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
            "cheap",
            "one_state",
        }
    )
    paging_faults = frozenset({PagingFault.REPEATED})
    gone = frozenset({Fault.NOT_FOUND, Fault.GONE})
    malformed = ("title", "state", "number")
    vendor: ForgejoVendor

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        return ForgejoVendor(clock, _empty())

    @override
    def provider(self) -> dict[str, Any]:
        return {
            "url": "https://forge.example.test/git",
            "token": f"${self.token}",
            "repo": f"{OWNER}/{REPO}",
            "states": {"source": "labels"},
        }

    @override
    def environment(self) -> Mapping[str, str]:
        return {self.token: SECRET}

    def keep_state(self, record: Record, state: str) -> None:
        """Write the state where this desk keeps states."""
        record.labels.insert(0, f"status/{state.lower().replace(' ', '-')}")

    @override
    def write(self, number: int, draft: Draft) -> str:
        now = self.vendor.stamp()
        page = f"https://forge.example.test/git/{OWNER}/{REPO}/issues/{number}"
        fields: dict[str, Any] = {
            "id": 10_000 + number,
            "number": number,
            "title": draft.title or f"Title {number}",
            "state": "open",
            "body": draft.description or "",
            "user": user(SOMEBODY),
            "original_author": "",
            "original_author_id": 0,
            "assignee": None,
            "assignees": None,
            "milestone": None,
            "is_locked": False,
            "pin_order": 0,
            "ref": "",
            "assets": [],
            "due_date": None,
            "closed_at": None,
            "url": page,
            "html_url": page,
            "created_at": now if draft.created_at is None else draft.created_at,
            "updated_at": now,
            "repository": {"id": 7, "name": REPO, "owner": OWNER, "full_name": f"{OWNER}/{REPO}"},
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
            if draft.created_at is None:
                fields["created_at"] = old.fields["created_at"]
        self.vendor.records[number] = record
        return str(number)

    @override
    def remove(self, number: int) -> None:
        del self.vendor.records[number]

    @override
    def put_out_of_scope(self, number: int) -> str:
        return self.put(number, extra={"pull_request": {"merged": False, "draft": False}})

    @override
    def block(self, number: int, by: int) -> None:
        self.vendor.records[number].blockers.append(by)
        for each in {number, by} - {0}:
            self.vendor.touch(each)

    @override
    def hold_back(self, number: int) -> str:
        self.put(number)
        self.put(number + 1_000, state="Backlog")
        self.block(number, number + 1_000)
        return str(number)

    @override
    def comment(self, number: int, body: str, *, mine: bool = False) -> str:
        return str(self.vendor.write(number, body, ME if mine else SOMEBODY)["id"])

    voices = frozenset({"writer", "author", "stranger"})

    @override
    def say(self, number: int, body: str, voice: str) -> None:
        who = {"writer": "carla", "author": SOMEBODY, "stranger": "mallory"}
        self.vendor.write(number, body, who[voice])

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
        return [("forgejo_api", call)]

    @override
    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        path = f"{_ISSUES}/{number}/comments"
        return "forgejo_api", {"method": "POST", "path": path, "body": {"body": body}}

    @override
    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        return "forgejo_api", {"method": "GET", "path": f"{_ISSUES}/{issue.id}"}


class GiteaDesk(ForgejoDesk):
    """The other name: a server that knows no order of lists."""

    kind = "gitea"
    token = "GITEA_TOKEN"

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        vendor = ForgejoVendor(clock, _empty())
        vendor.sorts = False
        return vendor
