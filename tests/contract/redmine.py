"""Redmine in memory, as version 5.0.4 was seen to answer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from contract.desk import Desk, Draft
from contract.redmine_shapes import check_shape
from contract.vendor import Asked, Clock, Fault, Given, PagingFault, Route, Vendor, conditional, routed, zulu
from symphony.domain import Issue

SECRET = "0123456789abcdef0123456789abcdef01234567"
OTHER_KEY = "fedcba9876543210fedcba9876543210fedcba98"
PROJECT = "billing"
ME, SOMEBODY, CARLA, MALLORY = 5, 6, 8, 9
NAMES = {ME: "Symphony Bot", SOMEBODY: "Ann", CARLA: "Carla", MALLORY: "Mallory"}
STATUSES = {1: "New", 2: "In Progress", 3: "Resolved", 4: "Feedback", 5: "Closed", 6: "Rejected"}
CLOSED = {5, 6}
PRIORITIES = {1: "Low", 2: "Normal", 3: "High", 4: "Urgent", 5: "Immediate"}
EMPTY = Given(status=204)
NOT_FOUND = Given(status=404)


@dataclass(slots=True)
class Record:
    fields: dict[str, Any]
    project: str = PROJECT
    blocked_by: list[int] = field(default_factory=list)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)


def status(number: int) -> dict[str, Any]:
    """A status as issues and lists show it."""
    return {"id": number, "name": STATUSES[number], "is_closed": number in CLOSED}


class RedmineVendor(Vendor):
    base = "https://redmine.example.test/pm"
    secret = SECRET

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.records: dict[int, Record] = {}
        self.lax = False
        self.moves_are_ignored = False
        self.notes_are_dropped = False
        below = rf"/projects/{PROJECT}"
        self._routes: tuple[Route, ...] = (
            ("GET", r"/users/current\.json", lambda _: Given(body={"user": self._user()})),
            ("GET", r"/users/7\.json", lambda _: Given(body={"user": {"id": 7, "api_key": OTHER_KEY}})),
            ("GET", r"/users/([689])\.json", self._member),
            ("GET", r"/issue_statuses\.json", self._statuses),
            ("GET", r"/enumerations/issue_priorities\.json", self._priorities),
            ("GET", rf"{below}\.json", self._project),
            ("GET", rf"{below}/issues\.json", self._list),
            ("GET", r"/issues\.json", self._list),
            ("POST", r"/issues\.json", self._add),
            ("GET", r"/issues/(\d+)\.json", self._show),
            ("PUT", r"/issues/(\d+)\.json", self._change),
            ("PUT", r"/journals/(\d+)\.json", self._edit),
        )

    def stamp(self) -> str:
        """A moment later than all before."""
        return zulu(self.moment())

    # --- Vendor ------------------------------------------------------------------------------------------

    @override
    def handle(self, asked: Asked) -> Given:
        assert asked.headers["x-redmine-api-key"] == SECRET
        return conditional(asked, routed(self._routes, asked) or NOT_FOUND)

    @override
    def check(self, asked: Asked, given: Given) -> None:
        if not self.lax and not re.match(r"/users/\d", asked.path):
            check_shape(asked.method, asked.path, given.status, given.body)

    @override
    def fault(self, fault: Fault) -> Given:
        match fault:
            case Fault.UNAUTHORISED:
                return Given(status=401, headers={"www-authenticate": 'Basic realm="Redmine API"'})
            case Fault.FORBIDDEN:
                return Given(status=403)
            case Fault.NOT_FOUND:
                return NOT_FOUND
            case _:
                return super().fault(fault)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        page = b"<html><body>Too Many Requests</body></html>"
        return {
            "a proxy's 429": (Given(status=429, raw=page), None),
            "a proxy's 429, seconds": (Given(status=429, raw=page, headers={"retry-after": "20"}), 20_000),
            "503, seconds": (Given(status=503, raw=page, headers={"retry-after": "5"}), 5_000),
        }

    # --- reads -------------------------------------------------------------------------------------------

    def _user(self) -> dict[str, Any]:
        then = "2026-01-01T00:00:00Z"
        names = {"login": "symphony", "firstname": "Symphony", "lastname": "Bot"}
        times = {"created_on": then, "updated_on": then, "last_login_on": None, "passwd_changed_on": None}
        return {"id": ME, **names, "admin": False, **times, "twofa_scheme": None, "api_key": SECRET}

    def _statuses(self, asked: Asked) -> Given:
        del asked
        return Given(body={"issue_statuses": [status(number) for number in STATUSES]})

    def _priorities(self, asked: Asked) -> Given:
        del asked
        found = [
            {"id": number, "name": name, "is_default": number == 2, "active": True}
            for number, name in PRIORITIES.items()
        ]
        return Given(body={"issue_priorities": found})

    def _project(self, asked: Asked) -> Given:
        project: dict[str, Any] = {
            "id": 1,
            "name": "Billing",
            "identifier": PROJECT,
            "description": None,
            "status": 1,
        }
        if asked.value("include"):
            assert asked.value("include") == "trackers,issue_categories"
            project |= {
                "trackers": [{"id": 1, "name": "Bug"}],
                "issue_categories": [{"id": 3, "name": "Chore"}],
            }
        return Given(body={"project": project})

    def _list(self, asked: Asked) -> Given:
        found = sorted(self.records.items())
        if asked.path.startswith("/projects/"):
            assert asked.value("subproject_id") == "!*"
            found = [(number, record) for number, record in found if record.project == PROJECT]
        if asked.value("issue_id"):
            numbers = {int(number) for number in asked.value("issue_id").split(",")}
            found = [(number, record) for number, record in found if number in numbers]
        if asked.value("status_id") != "*":
            wanted = {int(number) for number in asked.value("status_id").split("|")}
            found = [each for each in found if self._status(each[1]) in wanted | {None}]
        if asked.value("author_id"):
            since = asked.value("created_on").removeprefix(">=")
            found = [
                (number, record)
                for number, record in found
                if record.fields["author"]["id"] == int(asked.value("author_id"))
                and record.fields["created_on"] >= since
            ]
        included = asked.value("include")
        return self._page(asked, [self._shown(number, included) for number, _ in found])

    def _status(self, record: Record) -> int | None:
        shown = record.fields["status"]
        return None if shown is None else shown["id"]

    def _page(self, asked: Asked, records: list[Any]) -> Given:
        size = min(int(asked.value("limit", "25")), self.page_cap or 100)
        offset = int(asked.value("offset", "0"))
        if self.paging_fault is PagingFault.REPEATED:
            offset = 0
        page = {"total_count": len(records), "offset": offset, "limit": size}
        if self.paging_fault is PagingFault.NO_CURSOR and offset:
            return Given(body={"issues": [], **page})
        return Given(body={"issues": records[offset : offset + size], **page})

    def _shown(self, number: int, included: str = "") -> dict[str, Any]:
        record = self.records[number]
        shown = dict(record.fields)
        if included == "relations":
            shown["relations"] = self._relations(number)
        if included == "journals":
            shown["journals"] = list(record.notes.values())
        if included == "allowed_statuses":
            shown["allowed_statuses"] = [status(1), status(4)]
        return shown

    def _relations(self, number: int) -> list[dict[str, Any]]:
        pairs = [(blocker, to) for to, record in self.records.items() for blocker in record.blocked_by]
        relations = [
            {"id": at, "issue_id": one, "issue_to_id": to, "relation_type": "blocks", "delay": None}
            for at, (one, to) in enumerate(pairs, 1)
        ]
        kin = {"id": 99, "issue_id": number, "issue_to_id": 7, "relation_type": "relates", "delay": None}
        return [each for each in relations if number in {each["issue_id"], each["issue_to_id"]}] + [kin]

    def _member(self, asked: Asked, number: str) -> Given:
        assert asked.value("include") == "memberships"
        project = next(iter(self.records.values())).fields["project"]
        member = {"id": 1, "project": project, "roles": [{"id": 4, "name": "Developer"}]}
        memberships = [member] if int(number) == CARLA else []
        return Given(body={"user": {"id": int(number), "memberships": memberships}})

    def _show(self, asked: Asked, number: str) -> Given:
        if int(number) not in self.records:
            return NOT_FOUND
        return Given(body={"issue": self._shown(int(number), asked.value("include"))})

    # --- writes ------------------------------------------------------------------------------------------

    def _add(self, asked: Asked) -> Given:
        given = asked.body["issue"]
        assert given["project_id"] == PROJECT
        state = STATUSES[given["status_id"]]
        number = self.new(title=given["subject"], description=given["description"], state=state)
        fields = self.records[number].fields
        fields["author"] = {"id": ME, "name": NAMES[ME]}
        if "category_id" in given:
            fields["category"] = {"id": given["category_id"], "name": "Chore"}
        return Given(status=201, body={"issue": self._shown(number)})

    # --- changes -----------------------------------------------------------------------------------------

    def _change(self, asked: Asked, number: str) -> Given:
        if int(number) not in self.records:
            return NOT_FOUND
        record, given = self.records[int(number)], asked.body["issue"]
        if "status_id" in given and not self.moves_are_ignored:
            record.fields.update(status=status(given["status_id"]), updated_on=self.stamp())
        if "notes" in given and not self.notes_are_dropped:
            self.write(int(number), given["notes"], ME)
        return EMPTY

    def write(self, number: int, text: str | None, user: int) -> int:
        """A new entry of an issue's history."""
        now = self.stamp()
        self.records[number].notes[self.ticks] = {
            "id": self.ticks,
            "user": {"id": user, "name": NAMES[user]},
            "notes": text,
            "created_on": now,
            "private_notes": False,
            "details": [],
        }
        return self.ticks

    def _edit(self, asked: Asked, journal: str) -> Given:
        for record in self.records.values():
            if int(journal) in record.notes:
                record.notes[int(journal)]["notes"] = asked.body["journal"]["notes"]
                return EMPTY
        return NOT_FOUND


class RedmineDesk(Desk):
    kind = "redmine"
    todo, doing, done = "New", "In Progress", "Closed"
    page, batch = 100, 100
    can = frozenset(
        {
            "creates",
            "knows_states",
            "description",
            "blockers",
            "hold_back",
            "move",
            "timestamps",
            "conditional",
        }
    )
    paging_faults = frozenset({PagingFault.REPEATED, PagingFault.NO_CURSOR})
    malformed = ("title", "status")
    vendor: RedmineVendor

    @override
    def make_vendor(self, clock: Clock) -> Vendor:
        return RedmineVendor(clock)

    @override
    def provider(self) -> dict[str, Any]:
        return {"base_url": self.vendor.base, "api_key": "$REDMINE_API_KEY", "project": PROJECT}

    @override
    def environment(self) -> Mapping[str, str]:
        return {"REDMINE_API_KEY": SECRET}

    @override
    def write(self, number: int, draft: Draft) -> str:
        now = self.vendor.stamp()
        in_state = next(at for at, name in STATUSES.items() if name == (draft.state or self.todo))
        rank = draft.priority or 2
        fields: dict[str, Any] = {
            "id": number,
            "project": {"id": 1, "name": "Billing"},
            "tracker": {"id": 1, "name": "Bug"},
            "status": status(in_state),
            # A project without priorities; cases of their own hold the ranks.
            "priority": {"id": rank, "name": PRIORITIES[rank]} if draft.priority else {"id": 0, "name": ""},
            "author": {"id": SOMEBODY, "name": NAMES[SOMEBODY]},
            "subject": draft.title or f"Title {number}",
            "description": draft.description,
            "start_date": None,
            "due_date": None,
            "done_ratio": 0,
            "is_private": False,
            "estimated_hours": None,
            "total_estimated_hours": None,
            "created_on": now if draft.created_at is None else draft.created_at,
            "updated_on": now,
            "closed_on": None,
            **draft.extra,
        }
        if draft.broken is not None:
            fields[{"title": "subject"}.get(draft.broken, draft.broken)] = None
        self.vendor.lax |= draft.is_odd
        old = self.vendor.records.get(number)
        record = Record(fields=fields)
        if old is not None:
            record.notes, record.blocked_by = old.notes, old.blocked_by
        self.vendor.records[number] = record
        return str(number)

    @override
    def remove(self, number: int) -> None:
        del self.vendor.records[number]

    @override
    def put_out_of_scope(self, number: int) -> str:
        self.put(number)
        self.vendor.records[number].project = "other"
        return str(number)

    @override
    def block(self, number: int, by: int) -> None:
        self.vendor.records[number].blocked_by.append(by)

    @override
    def hold_back(self, number: int) -> str:
        self.put(number)
        self.put(number + 1_000, state="Feedback")
        self.block(number, number + 1_000)
        return str(number)

    @override
    def comment(self, number: int, body: str, *, mine: bool = False) -> str:
        self.vendor.write(number, None, SOMEBODY)
        return str(self.vendor.write(number, body, ME if mine else SOMEBODY))

    voices = frozenset({"writer", "author", "stranger"})

    @override
    def say(self, number: int, body: str, voice: str) -> None:
        self.vendor.write(number, body, {"writer": CARLA, "author": SOMEBODY, "stranger": MALLORY}[voice])

    @override
    def comments(self, number: int) -> list[str]:
        return [note["notes"] for note in self.vendor.records[number].notes.values() if note["notes"]]

    @override
    def delete_comment(self, number: int, comment_id: str) -> None:
        del self.vendor.records[number].notes[int(comment_id)]

    @override
    def forbid_moves(self) -> None:
        self.vendor.moves_are_ignored = True

    @override
    def finish(self, number: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        call = {"method": "PUT", "path": f"/issues/{number}.json", "body": {"issue": {"status_id": 5}}}
        return [("redmine_api", call)]

    @override
    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        body_of_call = {"issue": {"notes": body}}
        return "redmine_api", {"method": "PUT", "path": f"/issues/{number}.json", "body": body_of_call}

    @override
    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        return "redmine_api", {"method": "GET", "path": f"/issues/{issue.id}.json"}
