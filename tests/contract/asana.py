"""Asana in memory: the REST calls of the adapter by Asana's published description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from contract.desk import Desk, Draft
from contract.openapi import openapi
from contract.schemas import SCHEMAS
from contract.vendor import Asked, Clock, Fault, Given, PagingFault, Route, Vendor, routed
from symphony.domain import Issue
from symphony.trackers.asana import from_story

SECRET = "2/1201234567890/1201234567891:0123456789abcdef0123456789abcdef"
PROJECT, OTHER = "1201234567890", "1209999999999"
ME, SOMEBODY = "11", "12"
SECTIONS = {"Ready": "501", "Doing": "502", "Shipped": "503", "Later": "504"}
FIRST_GID = 1_300_000_000_000


def refusal(status: int, message: str) -> Given:
    """A failure in the words of Asana."""
    return Given(status=status, body={"errors": [{"message": message, "help": "For more information …"}]})


NOT_FOUND = refusal(404, "task: Unknown object: 1")


def gid_of(number: int) -> str:
    """The gid of a task."""
    return str(FIRST_GID + number)


@dataclass(slots=True)
class Record:
    fields: dict[str, Any]
    dependencies: list[str] = field(default_factory=list)
    stories: dict[str, dict[str, Any]] = field(default_factory=dict)


class AsanaVendor(Vendor):
    """`feed` says whether there is a feed of events."""

    base = "https://asana.example.test/api/1.0"
    secret = SECRET

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.document = openapi(SCHEMAS["asana"])
        self.records: dict[str, Record] = {}
        self.events: list[dict[str, Any]] = []
        self.sections = dict(SECTIONS)
        self.feed = True
        self.lax = False
        self.moves_are_ignored = False
        self._routes: tuple[Route, ...] = (
            ("GET", r"/users/me", lambda _: Given(body={"data": self.user(ME)})),
            ("GET", r"/events", self._events),
            ("GET", rf"/projects/{PROJECT}/tasks", self._list),
            ("GET", rf"/projects/{PROJECT}/sections", self._sections),
            ("GET", r"/tasks/(\d+)", self._show),
            ("PUT", r"/tasks/(\d+)", self._update),
            ("GET", r"/tasks/(\d+)/dependencies", self._dependencies),
            ("GET", r"/tasks/(\d+)/stories", self._stories),
            ("POST", r"/tasks/(\d+)/stories", self._create),
            ("PUT", r"/stories/(\d+)", self._edit),
            ("POST", r"/sections/(\d+)/addTask", self._add_task),
        )

    def user(self, gid: str) -> dict[str, Any]:
        """A user as the description has it."""
        return {"gid": gid, "resource_type": "user", "name": "Symphony" if gid == ME else "Ann"}

    def stamp(self, gid: str = "") -> str:
        """A moment later than all before; something happened to a task."""
        moment = self.moment()
        at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        resource = {"gid": gid, "resource_type": "task", "name": "T"}
        event = {"user": None, "resource": resource, "type": "task", "action": "changed", "created_at": at}
        self.events.append({key: value for key, value in event.items() if value is not None})
        if gid in self.records:
            self.records[gid].fields["modified_at"] = at
        return at

    # --- Vendor ------------------------------------------------------------------------------------------

    @property
    @override
    def validates(self) -> bool:
        return self.document is not None

    @override
    def handle(self, asked: Asked) -> Given:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        return routed(self._routes, asked) or NOT_FOUND

    @override
    def check(self, asked: Asked, given: Given) -> None:
        if self.document is not None:
            self.document.check(asked, Given(status=given.status) if self.lax else given)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        limited = refusal(429, "You have made too many requests recently. Please, be chill.")
        return {
            "429, seconds": (
                Given(status=429, body=limited.body, headers={"retry-after": "30"}),
                30_000,
            ),
            "429, nothing": (limited, None),
        }

    @override
    def fault(self, fault: Fault) -> Given:
        match fault:
            case Fault.UNAUTHORISED:
                return refusal(401, "Not Authorized")
            case Fault.FORBIDDEN:
                return refusal(403, "Forbidden")
            case Fault.NOT_FOUND:
                return NOT_FOUND
            case _:
                return super().fault(fault)

    # --- tasks -------------------------------------------------------------------------------------------

    def shown(self, gid: str, fields: str) -> dict[str, Any]:
        """A task with what was asked for, which is next to nothing without `opt_fields`."""
        record = self.records[gid]
        related = [{"gid": each, "resource_type": "task"} for each in record.dependencies]
        whole = {**record.fields, "dependencies": related}
        wanted = {field.partition(".")[0] for field in fields.split(",")} | {"gid", "resource_type"}
        return {name: value for name, value in whole.items() if name in wanted or name == "newField"}

    def _page(self, asked: Asked, records: list[Any]) -> Given:
        size = min(int(asked.value("limit", "100")), self.page_cap or 100)
        start = int(asked.value("offset", "0").removeprefix("at-"))
        end = start + size
        following = None
        if end < len(records) or (self.paging_fault is PagingFault.REPEATED and records):
            offset = "at-1" if self.paging_fault is PagingFault.REPEATED else f"at-{end}"
            following = {"offset": offset, "path": "/x", "uri": f"{self.base}/x?offset={offset}"}
            if self.paging_fault is PagingFault.NO_CURSOR:
                del following["offset"]
        return Given(body={"data": records[start:end], "next_page": following})

    def _list(self, asked: Asked) -> Given:
        assert asked.value("completed_since") in {"", "now"}
        found = [
            self.shown(gid, asked.value("opt_fields"))
            for gid, record in self.records.items()
            if any(each["project"]["gid"] == PROJECT for each in record.fields["memberships"])
            and not (asked.value("completed_since") and record.fields["completed"])
        ]
        return self._page(asked, found)

    def _sections(self, asked: Asked) -> Given:
        rows = [{"gid": gid, "resource_type": "section", "name": name} for name, gid in self.sections.items()]
        return self._page(asked, rows)

    def _show(self, asked: Asked, gid: str) -> Given:
        if gid not in self.records:
            return NOT_FOUND
        return Given(body={"data": self.shown(gid, asked.value("opt_fields"))})

    def _update(self, asked: Asked, gid: str) -> Given:
        if gid not in self.records:
            return NOT_FOUND
        if not self.moves_are_ignored:
            self.records[gid].fields.update(asked.body["data"])
            self.stamp(gid)
        return Given(body={"data": self.shown(gid, "name,completed")})

    def _dependencies(self, asked: Asked, gid: str) -> Given:
        found = [self.shown(each, asked.value("opt_fields")) for each in self.records[gid].dependencies]
        return self._page(asked, found)

    def membership(self, section: str, project: str = PROJECT) -> dict[str, Any]:
        """That a task is in a section of a project."""
        place = {"gid": project, "resource_type": "project", "name": "P"}
        where = {"gid": self.sections.get(section, "599"), "resource_type": "section", "name": section}
        return {"project": place, "section": where}

    def _add_task(self, asked: Asked, section: str) -> Given:
        gid = asked.body["data"]["task"]
        name = next(name for name, each in self.sections.items() if each == section)
        if not self.moves_are_ignored:
            self.records[gid].fields["memberships"] = [self.membership(name)]
            self.stamp(gid)
        return Given(body={"data": {}})

    def _events(self, asked: Asked) -> Given:
        assert asked.value("resource") == PROJECT
        if not self.feed:
            return refusal(403, "Forbidden")
        sync = asked.value("sync")
        now = f"sync-{len(self.events)}"
        if not sync:
            errors = refusal(412, "Sync token invalid or too old.").body
            return Given(status=412, body={**errors, "sync": now})
        start = int(sync.removeprefix("sync-"))
        some = self.events[start : start + 100]
        more = start + 100 < len(self.events)
        following = f"sync-{start + len(some)}"
        return Given(body={"data": some, "sync": following, "has_more": more})

    # --- comments ----------------------------------------------------------------------------------------

    def write(self, gid: str, text: str, user: str, *, subtype: str = "comment_added") -> dict[str, Any]:
        """A new story."""
        at = self.stamp(gid)
        story = {
            "gid": str(9_000 + self.ticks),
            "resource_type": "story",
            "resource_subtype": subtype,
            "created_at": at,
            "created_by": self.user(user),
            "text": text,
            "type": "comment" if subtype == "comment_added" else "system",
        }
        self.records[gid].stories[str(story["gid"])] = story
        return story

    def _stories(self, asked: Asked, gid: str) -> Given:
        if gid not in self.records:
            return NOT_FOUND
        return self._page(asked, list(self.records[gid].stories.values()))

    def _create(self, asked: Asked, gid: str) -> Given:
        if gid not in self.records:
            return NOT_FOUND
        return Given(status=201, body={"data": self.write(gid, asked.body["data"]["text"], ME)})

    def _edit(self, asked: Asked, story: str) -> Given:
        for record in self.records.values():
            if story in record.stories:
                record.stories[story]["text"] = asked.body["data"]["text"]
                return Given(body={"data": record.stories[story]})
        return NOT_FOUND


class AsanaDesk(Desk):
    """States by the sections of a project."""

    kind = "asana"
    todo, doing, done = "Ready", "Doing", "Shipped"
    page, batch = 100, 1
    can = frozenset(
        {"description", "labels", "blockers", "hold_back", "move", "timestamps", "cheap", "one_state"}
    )
    paging_faults = frozenset({PagingFault.REPEATED, PagingFault.NO_CURSOR})
    gone = frozenset({Fault.NOT_FOUND, Fault.GONE})
    malformed = ("title", "memberships", "completed")
    vendor: AsanaVendor

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        return AsanaVendor(clock)

    @override
    def provider(self) -> dict[str, Any]:
        return {"endpoint": self.vendor.base, "api_key": "$ASANA_PAT", "project_gid": PROJECT}

    @override
    def environment(self) -> Mapping[str, str]:
        return {"ASANA_PAT": SECRET}

    @override
    def write(self, number: int, draft: Draft) -> str:
        gid = gid_of(number)
        now = self.vendor.stamp(gid)
        fields: dict[str, Any] = {
            "gid": gid,
            "resource_type": "task",
            "resource_subtype": "default_task",
            "name": draft.title or f"Title {number}",
            "notes": draft.description or "",
            "completed": False,
            "is_rendered_as_separator": False,
            "created_at": now if draft.created_at is None else draft.created_at,
            "modified_at": now,
            "permalink_url": f"https://asana.example.test/0/{PROJECT}/{gid}",
            "assignee": None,
            "tags": [{"gid": "77", "resource_type": "tag", "name": name} for name in draft.labels],
            "memberships": [
                self.vendor.membership("Elsewhere", OTHER),
                self.vendor.membership(draft.state or self.todo),
            ],
            **draft.extra,
        }
        if draft.broken == "memberships":
            fields[draft.broken][1]["section"]["name"] = None
        elif draft.broken is not None:
            fields["name" if draft.broken == "title" else draft.broken] = None
        self.vendor.lax |= draft.is_odd
        record = Record(fields=fields)
        old = self.vendor.records.get(gid)
        if old is not None:
            record.stories, record.dependencies = old.stories, old.dependencies
        self.vendor.records[gid] = record
        return gid

    @override
    def remove(self, number: int) -> None:
        self.vendor.stamp(gid_of(number))
        del self.vendor.records[gid_of(number)]

    @override
    def put_out_of_scope(self, number: int) -> str:
        return self.put(number, extra={"memberships": [self.vendor.membership(self.todo, OTHER)]})

    @override
    def block(self, number: int, by: int) -> None:
        self.vendor.records[gid_of(number)].dependencies.append(gid_of(by))
        self.vendor.stamp(gid_of(number))

    @override
    def hold_back(self, number: int) -> str:
        return self.put(number, extra={"is_rendered_as_separator": True})

    @override
    def comment(self, number: int, body: str, *, mine: bool = False) -> str:
        return str(self.vendor.write(gid_of(number), body, ME if mine else SOMEBODY)["gid"])

    voices = frozenset({"writer", "bot"})

    @override
    def say(self, number: int, body: str, voice: str) -> None:
        story = self.vendor.write(gid_of(number), body, SOMEBODY)
        if voice == "bot":
            story["created_by"] = {**story["created_by"], "resource_type": "app"}

    @override
    def comments(self, number: int) -> list[str]:
        stories = self.vendor.records[gid_of(number)].stories.values()
        return [
            from_story(story["text"]) for story in stories if story["resource_subtype"] == "comment_added"
        ]

    @override
    def delete_comment(self, number: int, comment_id: str) -> None:
        del self.vendor.records[gid_of(number)].stories[comment_id]

    @override
    def forbid_moves(self) -> None:
        self.vendor.moves_are_ignored = True

    @override
    def finish(self, number: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        body = {"data": {"task": gid_of(number)}}
        path = f"/sections/{SECTIONS[self.done]}/addTask"
        return [("asana_api", {"method": "POST", "path": path, "body": body})]

    @override
    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        path = f"/tasks/{gid_of(number)}/stories"
        return "asana_api", {"method": "POST", "path": path, "body": {"data": {"text": body}}}

    @override
    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        return "asana_api", {"method": "GET", "path": f"/tasks/{issue.id}"}
