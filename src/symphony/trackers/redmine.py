"""Redmine, version 5.0 and later (kind `redmine`; docs/trackers/redmine.md)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Struct
from typing_extensions import override

from symphony.domain import MASK, Blocker, Issue, normalise_labels, normalise_state
from symphony.http import Flow, HttpResponse, Page, PageGuard, Query, Request, ServiceProfile
from symphony.http.fields import MalformedRecordError, dig, instant, items, required, text, texts, whole
from symphony.trackers import base, provider
from symphony.trackers.fields import Listing, blocked_reason
from symphony.trackers.raw_tools import AllowedWrite, RawToolScope, Reach, RestCall, mark_body
from symphony.trackers.remote import Flows, RemoteKind, batches

# --- settings --------------------------------------------------------------------------------------------


class RedmineSettings(provider.ProviderSettings):
    """One project; `subprojects` adds the issues of its subprojects."""

    kind = "redmine"

    base_url: Annotated[provider.Address, provider.StandInVariable("REDMINE_URL")]
    api_key: Annotated[provider.Credential, provider.StandInVariable("REDMINE_API_KEY")]
    project: Annotated[
        str,
        provider.StandInVariable("REDMINE_PROJECT"),
        provider.matches(r"[a-z0-9_-]{1,100}", "be the identifier in the project's address"),
    ]
    subprojects: bool = False

    @property
    @override
    def access(self) -> provider.ServiceAccess:
        key = self.api_key.reveal()
        return provider.ServiceAccess(base=self.base_url, credential=key, headers={"x-redmine-api-key": key})


# --- service ---------------------------------------------------------------------------------------------

SERVICE = ServiceProfile(
    name="Redmine",
    credential_key="tracker.provider.api_key",
    scope_key="tracker.provider.project",
    has_code_fences=False,  # a server that uses Textile has no fenced code
)


# --- from JSON to issues ---------------------------------------------------------------------------------


class Related(Struct, frozen=True, kw_only=True):
    """What the record of an issue lacks.

    Attributes:
        ranks: ranks of priorities by id.
        blockers: records of blockers by id; invisible ones are missing.
    """

    ranks: Mapping[int, int] = msgspec.field(default_factory=dict)
    blockers: Mapping[str, Any] = msgspec.field(default_factory=dict)


def number_of(node: Any) -> int | None:
    """The id of a map like `{"id": 3, "name": "High"}`."""
    return whole(dig(node, "id"))


def ranks_of(priorities: Iterable[Any]) -> Mapping[int, int]:
    """Ranks of priorities by id, 1 for the most urgent. Redmine lists the least urgent first."""
    ranks: dict[int, int] = {}
    rank = 1
    for priority in reversed(list(priorities)):
        number = number_of(priority)
        if number is not None:
            ranks[number] = rank
            rank += dig(priority, "active") is not False
    return ranks


def blocker_ids(record: Any) -> tuple[str, ...]:
    """The ids of an issue's blockers in its own record; a relation leads from the blocker."""
    own = number_of(record)
    blockers = (
        whole(dig(relation, "issue_id"))
        for relation in items(dig(record, "relations"))
        if dig(relation, "relation_type") == "blocks" and whole(dig(relation, "issue_to_id")) == own
    )
    return tuple(dict.fromkeys(str(number) for number in blockers if number is not None))


def status_of(record: Any) -> str | None:
    """The name of an issue's status."""
    name = text(dig(record, "status", "name"))
    return None if name is None else name.strip()


def issue_of(record: Any, settings: RedmineSettings, related: Related) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no id, subject or status."""
    issue_id, title = required(record, "id"), required(record, "subject")
    state = status_of(record)
    if state is None:
        raise MalformedRecordError("has no status")
    blocked_by, open_blockers = [], []
    for name in blocker_ids(record):
        known = related.blockers.get(name)
        blocker = Blocker(id=name, identifier=f"RM-{name}", state=status_of(known))
        blocked_by.append(blocker)
        if dig(known, "status", "is_closed") is not True and not settings.is_terminal(blocker.state):
            open_blockers.append(blocker)
    objection = blocked_reason(open_blockers)
    keys = ("project", "tracker", "status", "priority", "fixed_version", "parent")
    ids = {f"{key}_id": number_of(record.get(key)) for key in keys}
    assignee = number_of(record.get("assigned_to"))
    return Issue(
        id=issue_id,
        identifier=f"RM-{issue_id}",
        title=title,
        state=state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={key: value for key, value in ids.items() if value is not None},
        description=text(record.get("description")),
        priority=related.ranks.get(number_of(record.get("priority")) or 0),
        url=f"{settings.base_url}/issues/{issue_id}",
        assignee_id=None if assignee is None else str(assignee),
        # Redmine has no labels; it sorts issues by tracker and category.
        labels=normalise_labels(texts(dig(record, key, "name") for key in ("tracker", "category"))),
        blocked_by=tuple(blocked_by),
        created_at=instant(record.get("created_on")),
        updated_at=instant(record.get("updated_on")),
    )


def comments_of(record: Any, *, me: str) -> tuple[base.Comment, ...]:
    """The notes in the history of an issue, oldest first, without entries that only record changes."""
    return tuple(
        base.Comment(
            id=str(number_of(entry)),
            body=entry["notes"],
            mine=str(number_of(entry.get("user"))) == me,
            author=text(dig(entry, "user", "name")) or "",
            author_key=str(number_of(entry.get("user")) or ""),
            may_answer=None,
            created_at=instant(dig(entry, "created_on")),
        )
        for entry in items(dig(record, "journals"))
        if number_of(entry) is not None and text(dig(entry, "notes"))
    )


# --- flows -----------------------------------------------------------------------------------------------
# Three properties of Redmine shape the flows. In a public project, Redmine treats a request with a rejected
# key as anonymous. So a poll, and a refresh that misses an issue, asks for the account. Redmine accepts a
# forbidden move without carrying it out. So the state is read back. The answer to a new note has no id. So
# the note is looked up.

PAGE = BATCH = 100
_ISSUE, _ISSUES = "/issues/{}.json", "/projects/{}/issues.json"
_NOT_TOLD = frozenset({403, 404})
_LISTS = ("issue_statuses", "trackers", "enumerations")
"""Lists of the whole server that are needed to write an issue; reading them is always allowed."""
_EDITABLE = (
    "subject", "description", "status_id", "tracker_id", "priority_id", "assigned_to_id", "category_id",
    "fixed_version_id", "done_ratio", "estimated_hours", "start_date", "due_date", "is_private", "notes",
    "private_notes", "custom_fields", "lock_version",
)  # fmt: skip
_EDITED = " ".join(f"issue.{name}" for name in _EDITABLE)


class RedmineFlows(Flows[RedmineSettings]):
    """The flows of one project."""

    service = SERVICE
    id_pattern = re.compile(r"[1-9]\d{0,8}")
    tool_name = "redmine_api"
    tool_suffix = ".json"
    label_words = re.compile(r"tracker|category|trackers|issue_categories", re.IGNORECASE)

    def __init__(self, settings: RedmineSettings) -> None:
        super().__init__(settings)
        self._user: tuple[str, str] | None = None
        self._ranks: Mapping[int, int] = {}

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """A state that does not exist is a failure, because it was renamed."""
        yield from self._account()
        known = yield from self._statuses()
        ids = "|".join(self._status_id(state, known) for state in states)
        records = yield from self._list_project([("status_id", ids), ("sort", "id")])
        related = yield from self._related(records)
        return (
            yield from self.listing(records, lambda record: issue_of(record, self.settings, related), states)
        )

    @override
    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        numbers = self.valid_ids(ids)
        records: list[Any] = []
        for batch in batches(numbers, BATCH):
            records += yield from self._list_project(_any_status(batch))
        if len(records) < len(numbers):  # fails if the key is not valid any more
            yield from self._account()
        related = yield from self._related(records)
        return self.snapshots(records, lambda record: issue_of(record, self.settings, related), ids)

    def _list_project(self, query: Query) -> Flow[list[Any]]:
        scope = [] if self.settings.subprojects else [("subproject_id", "!*")]
        path = f"/projects/{self.settings.project}/issues.json"
        return self._list(_ISSUES, path, [*query, ("include", "relations"), *scope])

    def _list(self, endpoint: str, path: str, query: Query) -> Flow[list[Any]]:
        """All records. Each page states its offset, which must be where the previous page ended."""
        count = 0

        def request() -> Request:
            paging = [("limit", str(PAGE)), ("offset", str(count))]
            return Request(endpoint=endpoint, path=path, query=[*query, *paging], conditional=True)

        def read(answer: HttpResponse, pager: PageGuard) -> Page:
            nonlocal count
            records = self.service.list_of(dig(answer.body, "issues"), request())
            total = whole(answer.body.get("total_count"))
            if total is None:
                raise self.service.malformed(f"answered no total_count to {endpoint}")
            pager.cursor(whole(answer.body.get("offset")))
            count += len(records)
            if count >= total:
                return records, None
            if not records:
                pager.cursor(None)
            return records, request()

        return self.pages(request(), read)

    def _related(self, records: Sequence[Any]) -> Flow[Related]:
        """What the records lack; requests only what they name and what is not known yet."""
        used = {number_of(dig(record, "priority")) for record in records}
        if used - {None, *self._ranks}:
            priorities = yield from self._items("/enumerations/issue_priorities.json", "issue_priorities")
            self._ranks = ranks_of(priorities)
        listed = {str(number_of(record)): record for record in records}
        blockers = dict.fromkeys(name for record in records for name in blocker_ids(record))
        for batch in batches([name for name in blockers if name not in listed], BATCH):
            found = yield from self._list("/issues.json", "/issues.json", _any_status(batch))
            listed |= {str(number_of(record)): record for record in found}
        return Related(ranks=self._ranks, blockers=listed)

    def _items(self, path: str, key: str) -> Flow[list[Any]]:
        request = Request(endpoint=path, path=path, conditional=True)
        return self.service.list_of(dig((yield request).body, key), request)

    def _statuses(self) -> Flow[dict[str, str]]:
        """The ids of the statuses by name, in order."""
        found = yield from self._items("/issue_statuses.json", "issue_statuses")
        ids = {text(dig(status, "name")): number_of(status) for status in found}
        return {name.strip(): str(number) for name, number in ids.items() if name and number}

    def _status_id(self, state: str, known: Mapping[str, str]) -> str:
        for name, number in known.items():
            if normalise_state(name) == normalise_state(state):
                return number
        raise self.service.no_such_state(state, tuple(known))

    def _account(self) -> Flow[tuple[str, str]]:
        """Id and login of the key's account; Redmine answers 401 without one."""
        path = "/users/current.json"
        user = dig((yield Request(endpoint=path, path=path, conditional=True)).body, "user")
        number, login = number_of(user), text(dig(user, "login"))
        if number is None or login is None:
            raise self.service.malformed("does not show the account of this key")
        self._user = str(number), login
        return self._user

    @override
    def account_info(self) -> Flow[base.AccountInfo]:
        _, login = yield from self._account()
        path = f"/projects/{self.settings.project}.json"
        body = (yield Request(endpoint="/projects/{}.json", path=path)).body
        known = yield from self._statuses()
        name = text(dig(body, "project", "name")) or self.settings.project
        return base.AccountInfo(login=login, scope=name, states=tuple(known))

    def _issue_path(self, issue_id: str) -> str:
        return f"/issues/{self.check_id(issue_id)}.json"

    # --- comments ----------------------------------------------------------------------------------------

    @override
    def comments(self, issue_id: str) -> Flow[Sequence[base.Comment]]:
        """The notes in the history of an issue, which is on one page."""
        me, _ = self._user or (yield from self._account())
        query = [("include", "journals")]
        request = Request(endpoint=_ISSUE, path=self._issue_path(issue_id), query=query, conditional=True)
        record = dig((yield request).body, "issue")
        self.service.list_of(dig(record, "journals"), request)
        return comments_of(record, me=me)

    @override
    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """The author of the issue, and the members of its project."""
        issue = dig((yield Request(endpoint=_ISSUE, path=self._issue_path(issue_id))).body, "issue")
        author, project = str(number_of(dig(issue, "author"))), number_of(dig(issue, "project"))
        found = set(author_keys) & {author}
        for key in sorted(set(author_keys) - {author, ""}):
            answer = yield Request(
                endpoint="/users/{}.json",
                path=f"/users/{self.check_id(key)}.json",
                query=[("include", "memberships")],
                conditional=True,
                accept=_NOT_TOLD,
            )
            memberships = items(dig(answer.body, "user", "memberships"))
            if project is not None and project in {number_of(dig(each, "project")) for each in memberships}:
                found.add(key)
        return frozenset(found)

    @override
    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """Create a note.

        Its id is that of the newest note of the daemon's account with the same first line, the marker.
        """
        yield self._put(_ISSUE, self._issue_path(issue_id), {"issue": {"notes": body}})
        comments = yield from self.comments(issue_id)
        written = [each.id for each in comments if each.mine and _first_line(each.body) == _first_line(body)]
        if not written:
            hint = "may the account of the key add notes to issues of this project?"
            raise self.service.malformed("took a note and did not keep it", hint=hint)
        return written[-1]

    @override
    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        path = f"/journals/{self.check_id(comment_id)}.json"
        yield self._put("/journals/{}.json", path, {"journal": {"notes": body}})

    def _put(self, endpoint: str, path: str, body: Any) -> Request:
        return Request(endpoint=endpoint, method="PUT", path=path, body=body)

    # --- new issues --------------------------------------------------------------------------------------

    @override
    def find_created(self, key: str, since: datetime) -> Flow[str | None]:
        me, _ = yield from self._account()
        day = (since - timedelta(days=1)).strftime("%Y-%m-%d")  # in the time zone of the server
        query = [("author_id", me), ("status_id", "*"), ("created_on", f">={day}"), ("sort", "id")]
        mark = base.issue_mark(key)
        for record in (yield from self._list_project(query)):
            if mark in (text(dig(record, "description")) or ""):
                return str(number_of(record))
        return None

    @override
    def create_issue(self, new: base.IssueToCreate, *, key: str) -> Flow[str]:
        """Create an issue; a label names a tracker or a category of the project."""
        known = yield from self._statuses()
        issue: dict[str, Any] = {
            "project_id": self.settings.project,
            "subject": new.title,
            "description": base.marked_issue_body(new, key),
            "status_id": int(self._status_id(new.state, known)),
        }
        if new.labels:
            path = f"/projects/{self.settings.project}.json"
            query = [("include", "trackers,issue_categories")]
            answer = yield Request(endpoint="/projects/{}.json", path=path, query=query)
            for label in new.labels:
                issue |= self._label_field(label, dig(answer.body, "project"))
        body = {"issue": issue}
        answer = yield Request(endpoint="/issues.json", method="POST", path="/issues.json", body=body)
        number = number_of(dig(answer.body, "issue"))
        if number is None:
            raise self.service.malformed("answered no issue to a new issue")
        return str(number)

    def _label_field(self, label: str, project: Any) -> dict[str, int]:
        for name, field_name in (("trackers", "tracker_id"), ("issue_categories", "category_id")):
            for each in items(dig(project, name)):
                number = number_of(each)
                if number is not None and (text(dig(each, "name")) or "").lower() == label.lower():
                    return {field_name: number}
        raise self.service.not_found(
            f"tracker or category {label!r} in the project", hint="Redmine has no other labels"
        )

    # --- moves and the raw tool --------------------------------------------------------------------------

    @override
    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`. The error for a failed move lists the states that Redmine allows."""
        wanted = normalise_state(state)
        before = yield from self.issue(issue_id)
        if normalise_state(before.state) == wanted:
            return before.state
        status_id = self._status_id(state, (yield from self._statuses()))
        path = self._issue_path(issue_id)
        yield self._put(_ISSUE, path, {"issue": {"status_id": int(status_id)}})
        after = yield from self.issue(issue_id)
        if normalise_state(after.state) != wanted:
            answer = yield Request(endpoint=_ISSUE, path=path, query=[("include", "allowed_statuses")])
            allowed = texts(
                dig(each, "name") for each in items(dig(answer.body, "issue", "allowed_statuses"))
            )
            hint = f"the workflow of Redmine allows this account: {', '.join(allowed)}" if allowed else None
            raise base.not_moved(
                self.service.name, after.identifier, wanted=state, found=after.state, hint=hint
            )
        return after.state

    @override
    def tool_note(self) -> str:
        return f"Paths end in {self.tool_suffix}. The project is {self.settings.project}."

    @override
    def mask_answer(self, body: Any) -> Any:
        """Masks API keys: Redmine shows a key to its owner, and all keys to administrators."""
        match body:
            case dict():
                return {
                    key: MASK if key == "api_key" else self.mask_answer(each) for key, each in body.items()
                }
            case list():
                return [self.mask_answer(each) for each in body]
            case _:
                return body

    @override
    def names_of_label(self, label_id: str) -> Flow[Sequence[str] | None]:
        """The names of the tracker and the category with this id: the id alone is ambiguous."""
        answer = yield Request(endpoint="/trackers.json", path="/trackers.json")
        trackers = [each for each in items(dig(answer.body, "trackers")) if str(number_of(each)) == label_id]
        path = f"/issue_categories/{label_id}.json"
        answer = yield Request(endpoint="/issue_categories/{}.json", path=path, accept=_NOT_TOLD)
        category = dig(answer.body, "issue_category")
        return texts(dig(each, "name") for each in (*trackers, category)) or None

    @override
    def mark_comment(self, call: RestCall) -> RestCall | str:
        if call.method == "GET":
            return call
        if "notes" in call.path.partition("?")[2] or any("notes" in key for key, _ in call.query):
            return "give a note in `body`"
        marked: RestCall | str = call
        for keys in (("issue", "notes"), ("journal", "notes"), ("notes",)):
            if dig(call.body, *keys) is not None and not isinstance(marked, str):
                marked = mark_body(marked, *keys)
        return marked

    @override
    def reach(self, call: RestCall, issue: Issue) -> Flow[Reach]:
        """The issue, or the project.

        The path of an issue does not contain its project, so the service is asked. Relations, parents,
        watchers, uploads, time entries, and moves to another project are excluded.
        """
        issues = [issue.id]
        reads: list[tuple[str, ...]] = [(name,) for name in _LISTS]
        if self.settings.scope is RawToolScope.PROJECT:
            reads.append(("projects", self.settings.project))
            match call.steps:
                case (name, number, *_) if name.lower() == "issues" and (yield from self.by_ids([number])):
                    issues.append(number)
        paths = [("issues", each) for each in issues]
        return Reach(
            reads=(*reads, *paths), writes=tuple(AllowedWrite("PUT", path, _EDITED) for path in paths)
        )


def _any_status(ids: Sequence[str]) -> Query:
    return [("issue_id", ",".join(ids)), ("status_id", "*"), ("sort", "id")]


def _first_line(body: str) -> str:
    return body.strip().partition("\n")[0].strip()


KIND = RemoteKind(RedmineSettings, RedmineFlows)
