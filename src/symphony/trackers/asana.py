"""Tasks of an Asana project, with its sections as states (kind `asana`; docs/trackers/asana.md)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from typing_extensions import override

from symphony.domain import Blocker, Issue, normalise_labels, normalise_state
from symphony.http import FORBIDDEN, Flow, HttpResponse, Page, PageGuard, Query, Request, ServiceProfile
from symphony.http.fields import MalformedRecordError, dig, instant, items, mapping, required, text, texts
from symphony.http.service import bearer
from symphony.trackers import provider
from symphony.trackers.base import AccountInfo, Comment, TrackerError
from symphony.trackers.comments import AGENT_MARK
from symphony.trackers.fields import Listing, blocked_reason
from symphony.trackers.raw_tools import NUMBERED, AllowedWrite, RawToolScope, Reach, RestCall, scope_problem
from symphony.trackers.remote import Flows, ListingCache, RemoteKind
from symphony.trackers.webhooks import ASANA

# --- settings --------------------------------------------------------------------------------------------

COMPLETED = "completed"
"""The state of a completed task in a section that is not terminal."""


class AsanaSettings(provider.ProviderSettings):
    """One project, by its gid."""

    kind = "asana"
    closed_states = (COMPLETED,)

    endpoint: provider.Address = "https://app.asana.com/api/1.0"
    api_key: Annotated[provider.Credential, provider.StandInVariable("ASANA_PAT")]
    project_gid: Annotated[str, provider.matches(r"[1-9]\d{0,30}", "be the number in the project's address")]

    @property
    @override
    def access(self) -> provider.ServiceAccess:
        key = self.api_key.reveal()
        return provider.ServiceAccess(base=self.endpoint, credential=key, headers=bearer(key))


# --- service ---------------------------------------------------------------------------------------------

SERVICE = ServiceProfile(
    name="Asana",
    credential_key="tracker.provider.api_key",
    scope_key="tracker.provider.project_gid",
    has_code_fences=False,  # comments are plain text, and Asana turns addresses into links and mentions
)


# --- from JSON to issues ---------------------------------------------------------------------------------

FIELDS = (
    "name,notes,completed,created_at,modified_at,permalink_url,resource_subtype,is_rendered_as_separator,"
    "assignee,tags.name,dependencies,memberships.project,memberships.section,memberships.section.name"
)
"""The fields of a task to request; by default Asana sends little more than its name."""

Blockers = Mapping[str, tuple[Blocker, ...]]
"""What blocks tasks, by gid."""


def gid_of(record: Any) -> str | None:
    """The gid of any record."""
    return text(dig(record, "gid"))


def dependencies_of(record: Any) -> tuple[str, ...]:
    """The gids of the tasks that a task depends on."""
    return tuple(dict.fromkeys(texts(dig(each, "gid") for each in items(dig(record, "dependencies")))))


def section_of(record: Any, settings: AsanaSettings) -> Mapping[str, Any] | None:
    """The section of a task in the project; empty if the answer lacks it, `None` outside the project."""
    for membership in items(dig(record, "memberships")):
        if gid_of(dig(membership, "project")) == settings.project_gid:
            return mapping(membership.get("section"))
    return None


def state_of(record: Any, settings: AsanaSettings) -> str | None:
    """The state of a task; `None` if its section is not known and it is not completed."""
    name = text((section_of(record, settings) or {}).get("name"))
    if dig(record, "completed") is not True:
        return name
    return name if name is not None and settings.is_terminal(name) else COMPLETED


def is_over(record: Any, settings: AsanaSettings) -> bool:
    """Whether a task is in a terminal state, or in none."""
    state = state_of(record, settings)
    return state is None or settings.is_terminal(state)


def issue_of(record: Any, settings: AsanaSettings, blockers: Blockers) -> Issue | None:
    """One issue; `None` for a task that is not in the project.

    Raises:
        MalformedRecordError: it has no gid, name or section, or does not say whether it is completed.
    """
    gid, title = required(record, "gid"), required(record, "name")
    section = section_of(record, settings)
    if section is None:
        return None
    if not isinstance(record.get("completed"), bool):
        raise MalformedRecordError("does not say whether it is completed")
    state = state_of(record, settings)
    if state is None:
        raise MalformedRecordError("has no section")
    blocked_by = blockers.get(gid, ())
    if record.get("resource_subtype") == "section" or record.get("is_rendered_as_separator") is True:
        objection: str | None = "it is a line between tasks, and no task"
    elif record["completed"]:
        objection = "it is completed"
    else:
        objection = blocked_reason(
            blocker for blocker in blocked_by if not settings.is_terminal(blocker.state)
        )
    return Issue(
        id=gid,
        identifier=f"ASANA-{gid}",
        title=title,
        state=state.strip(),
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={"task_gid": gid, "project_gid": settings.project_gid, "section_gid": gid_of(section)},
        description=text(record.get("notes")),
        url=text(record.get("permalink_url")),
        assignee_id=gid_of(record.get("assignee")),
        labels=normalise_labels(texts(dig(tag, "name") for tag in items(record.get("tags")))),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("modified_at")),
    )


def blocker_of(record: Any, settings: AsanaSettings) -> Blocker:
    """A task that another one depends on; in another project it has no state until it is completed."""
    gid = gid_of(record)
    return Blocker(id=gid, identifier=f"ASANA-{gid}", state=state_of(record, settings))


# --- comments --------------------------------------------------------------------------------------------
#
# They are plain text, in which people see the marker, so it is the last line.

_MARKER = re.compile(r"symphony:[a-z0-9-]{1,32} v1 key=[0-9a-f]{32} fp=[0-9a-f]{32}")
_AGENT_MARKER = AGENT_MARK.removeprefix("<!-- ").removesuffix(" -->")


def to_story(body: str) -> str:
    """The text of a comment as Asana stores it: a marker moves from the first line to the last."""
    first, _, rest = body.partition("\n")
    marker = first.removeprefix("<!-- ").removesuffix(" -->")
    return f"{rest}\n\n{marker}" if marker != first and _MARKER.fullmatch(marker) else body


def from_story(story: str) -> str:
    """The inverse of `to_story`."""
    rest, _, last = story.rstrip().rpartition("\n")
    if last == _AGENT_MARKER or _MARKER.fullmatch(last):
        return f"<!-- {last} -->\n{rest.rstrip()}"
    return story


# --- flows -----------------------------------------------------------------------------------------------
# A poll asks the event feed whether anything happened in the project; if not, it reuses the list of the last
# poll. The feed may miss an event, so every tenth poll reads the full list.
#
# A task names its dependencies, but not their states. Some of those tasks are in the list. The others are
# requested, and remembered once they are completed.

PAGE = 100
FULL_EVERY = 10
DEPENDENCIES_PER_LIST = 50
"""For how many tasks one list requests dependencies; unknown dependencies hold a task back."""
_OK = 200
_GONE = frozenset({404, 410})
_NO_FEED = frozenset({400, 402, 403, 404, 412})
_COPIES = frozenset({"batch", "duplicate", "instantiatetask", "instantiateproject"})
_TASK = "/tasks/{}"
_EDITED = (
    "data.name data.notes data.html_notes data.completed data.assignee data.due_on "
    "data.due_at data.start_on data.start_at data.custom_fields"
)


class AsanaFlows(Flows[AsanaSettings]):
    """The flows of one project."""

    service = SERVICE
    id_pattern = re.compile(r"[1-9]\d{0,30}")
    tool_name = "asana_api"
    label_words = re.compile(r"tags?|addTag|removeTag", re.IGNORECASE)
    issue_step = "tasks"
    creates = False

    def __init__(self, settings: AsanaSettings) -> None:
        super().__init__(settings)
        self._user_gid: str | None = None
        self._feed_token: str | None = None
        self._listings = ListingCache(FULL_EVERY)
        self._completed: dict[str, Blocker] = {}

    @property
    def _project(self) -> str:
        return f"/projects/{self.settings.project_gid}"

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        if self._listings.is_empty:  # the feed does not report a wrong project or credential
            yield from self._sections()
        unchanged = yield from self._unchanged()
        cached = self._listings.reuse(states, unchanged=unchanged)
        if cached is not None:
            return cached
        query = [("opt_fields", FIELDS)]
        if not any(map(self.settings.is_terminal, states)):
            query.append(("completed_since", "now"))
        records = yield from self._list("/projects/{}/tasks", f"{self._project}/tasks", query)
        blockers, complete = yield from self._blockers_of_list(records)
        found = yield from self.listing(
            records, lambda record: issue_of(record, self.settings, blockers), states
        )
        if complete:
            self._listings.keep(states, found)
        return found

    def _unchanged(self) -> Flow[bool]:
        """Whether the feed has no event since the last request; false if there is no feed."""
        query = [("resource", self.settings.project_gid)]
        if self._feed_token is not None:
            query.append(("sync", self._feed_token))
        answer = yield Request(endpoint="/events", path="/events", query=query, accept=_NO_FEED)
        body = mapping(answer.body)
        self._feed_token = text(body.get("sync"))
        return answer.status == _OK and body.get("data") == [] and body.get("has_more") is not True

    @override
    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """Makes one request for each task, because there is no list by gid."""
        gids = self.valid_ids(ids)
        records = []
        for gid in gids:
            request = Request(
                endpoint=_TASK, path=f"/tasks/{gid}", query=[("opt_fields", FIELDS)], accept=_GONE
            )
            try:
                answer = yield request
            except TrackerError as error:
                culprits = {gid} if error.failure.status == FORBIDDEN else error.culprits
                raise TrackerError(error.failure, culprits=frozenset(culprits)) from error
            if answer.status == _OK:
                records.append(dig(answer.body, "data"))
        if len(records) < len(gids):  # fails if the whole project is gone
            path = f"{self._project}/tasks"
            yield Request(endpoint="/projects/{}/tasks", path=path, query=[("limit", "1")])
        blockers: dict[str, tuple[Blocker, ...]] = {}
        for record in records:
            found = gid_of(record)
            if found and dependencies_of(record) and not is_over(record, self.settings):
                blockers[found] = yield from self._request_blockers(found)
        return self.snapshots(records, lambda record: issue_of(record, self.settings, blockers), ids)

    def _list(self, endpoint: str, path: str, query: Query = ()) -> Flow[list[Any]]:
        query = [*query, ("limit", str(PAGE))]
        first = Request(endpoint=endpoint, path=path, query=query)

        def read(answer: HttpResponse, pager: PageGuard) -> Page:
            records = self.service.list_of(dig(answer.body, "data"), first)
            following = answer.body.get("next_page")
            if following is None:
                return records, None
            offset = pager.cursor(dig(following, "offset"))
            return records, replace(first, query=[*query, ("offset", offset)])

        return self.pages(first, read)

    def _sections(self) -> Flow[dict[str, str]]:
        """The gids of the project's sections by name, in order."""
        sections: dict[str, str] = {}
        for record in (yield from self._list("/projects/{}/sections", f"{self._project}/sections")):
            gid, name = gid_of(record), text(dig(record, "name"))
            if gid is not None and name is not None:
                sections.setdefault(name.strip(), gid)
        return sections

    @override
    def account_info(self) -> Flow[AccountInfo]:
        sections = yield from self._sections()
        answer = yield Request(endpoint="/users/me", path="/users/me")
        return AccountInfo(
            login=text(dig(answer.body, "data", "name")),
            scope=f"project {self.settings.project_gid}",
            states=(*sections, COMPLETED),
        )

    def _account(self) -> Flow[str]:
        if self._user_gid is None:
            answer = yield Request(endpoint="/users/me", path="/users/me")
            self._user_gid = gid_of(dig(answer.body, "data"))
        if self._user_gid is None:
            raise self.service.malformed("does not show the account of this credential")
        return self._user_gid

    # --- dependencies ------------------------------------------------------------------------------------

    def _blockers_of_list(self, records: Sequence[Any]) -> Flow[tuple[Blockers, bool]]:
        """The blockers of the tasks of a list, and whether they are complete."""
        listed = {gid: blocker_of(record, self.settings) for record in records if (gid := gid_of(record))}
        waiting = {
            gid: dependencies
            for record in records
            if (gid := gid_of(record)) and (dependencies := dependencies_of(record))
            if not is_over(record, self.settings)
        }
        needed = {dependency for dependencies in waiting.values() for dependency in dependencies}
        self._completed = {
            gid: blocker for gid, blocker in self._completed.items() if gid in needed and gid not in listed
        }
        found: dict[str, tuple[Blocker, ...]] = {}
        requested, complete = 0, True
        for gid, dependencies in waiting.items():
            known = {each: listed.get(each) or self._completed.get(each) for each in dependencies}
            if None in known.values() and requested < DEPENDENCIES_PER_LIST:
                requested += 1
                found[gid] = yield from self._request_blockers(gid)
                continue
            complete = complete and None not in known.values()
            found[gid] = tuple(
                blocker or Blocker(id=each, identifier=f"ASANA-{each}") for each, blocker in known.items()
            )
        return found, complete

    def _request_blockers(self, gid: str) -> Flow[tuple[Blocker, ...]]:
        """What a task depends on, in its current state."""
        records = yield from self._list(
            "/tasks/{}/dependencies",
            f"/tasks/{gid}/dependencies",
            [("opt_fields", "completed,memberships.project,memberships.section.name")],
        )
        found = tuple(blocker_of(record, self.settings) for record in records if gid_of(record))
        for blocker in found:
            self._completed.pop(str(blocker.id), None)
            if self.settings.is_terminal(blocker.state):
                self._completed[str(blocker.id)] = blocker
        return found

    # --- comments ----------------------------------------------------------------------------------------

    @override
    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """The stories that are comments. Only people who were invited to the task can comment."""
        me = yield from self._account()
        path = f"/tasks/{self.check_id(issue_id)}/stories"
        query = [("opt_fields", "resource_subtype,text,created_at,created_by,created_by.name")]
        records = yield from self._list("/tasks/{}/stories", path, query)
        return tuple(
            Comment(
                id=str(gid_of(record)),
                body=from_story(text(dig(record, "text")) or ""),
                mine=gid_of(dig(record, "created_by")) == me,
                author=text(dig(record, "created_by", "name")) or "",
                may_answer=dig(record, "created_by", "resource_type") == "user",
                created_at=instant(dig(record, "created_at")),
            )
            for record in records
            if gid_of(record) and dig(record, "resource_subtype") == "comment_added"
        )

    @override
    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        return self._write("/tasks/{}/stories", "POST", f"/tasks/{self.check_id(issue_id)}/stories", body)

    @override
    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        yield from self._write("/stories/{}", "PUT", f"/stories/{self.check_id(comment_id)}", body)

    def _write(self, endpoint: str, method: str, path: str, body: str) -> Flow[str]:
        data = {"data": {"text": to_story(body)}}
        answer = yield Request(endpoint=endpoint, method=method, path=path, body=data)
        gid = gid_of(dig(answer.body, "data"))
        if gid is None:
            raise self.service.malformed("answered no comment to a comment")
        return gid

    # --- moves and the raw tool --------------------------------------------------------------------------

    @override
    def move(self, issue_id: str, state: str) -> Flow[str]:
        wanted = normalise_state(state)
        before = yield from self.issue(issue_id)
        if normalise_state(before.state) == wanted:
            return before.state
        if wanted == COMPLETED:
            body = {"data": {"completed": True}}
            yield Request(endpoint=_TASK, method="PUT", path=f"/tasks/{before.id}", body=body)
        else:
            sections = yield from self._sections()
            gid = next((gid for name, gid in sections.items() if normalise_state(name) == wanted), None)
            if gid is None:
                raise self.service.no_such_state(state, (*sections, COMPLETED))
            yield Request(
                endpoint="/sections/{}/addTask",
                method="POST",
                path=f"/sections/{gid}/addTask",
                body={"data": {"task": before.id}},
            )
        return (yield from self.issue(issue_id)).state

    @override
    def tool_note(self) -> str:
        return f"The project is {self.settings.project_gid}. Bodies and answers are below `data`."

    @override
    def names_of_label(self, label_id: str) -> Flow[Sequence[str] | None]:
        answer = yield Request(endpoint="/tags/{}", path=f"/tags/{label_id}", accept=_GONE | {FORBIDDEN})
        name = text(dig(answer.body, "data", "name"))
        return None if name is None else [name]

    @override
    def label_problem(self, call: RestCall, issue: Issue) -> Flow[str | None]:
        """Refuses batches, whose requests are not checked, and copies of tasks, which may copy tags."""
        if call.method != "GET" and not _COPIES.isdisjoint(map(str.lower, call.steps)):
            return f"{call.steps[-1][:80]!r} may set tags that are not named"
        return (yield from super().label_problem(call, issue))

    @override
    def mark_comment(self, call: RestCall) -> RestCall | str:
        data = mapping(dig(call.body, "data"))
        if call.method == "GET" or "stories" not in call.steps or not data:
            return call
        marked = {**data}
        if isinstance(plain := data.get("text"), str):
            marked["text"] = f"{plain}\n\n{_AGENT_MARKER}"
        if isinstance(html := data.get("html_text"), str):
            marked["html_text"] = html.replace("</body>", f"\n\n{_AGENT_MARKER}</body>")
        return replace(call, body={**call.body, "data": marked})

    @override
    def reach(self, call: RestCall, issue: Issue) -> Flow[Reach]:
        """The session's own task, and the project. The path of another task does not tell its project.

        The session's own task may move to the sections of the project. Requests that name another task
        (dependencies, subtasks, parent), another project or people (followers) are excluded.
        """
        own, project = ("tasks", issue.id), ("projects", self.settings.project_gid)
        writes = [
            AllowedWrite("PUT", own, _EDITED),
            AllowedWrite("POST", (*own, "stories"), "data.text data.html_text data.is_pinned"),
            AllowedWrite("POST", (*own, "addTag"), "data.tag"),
            AllowedWrite("POST", (*own, "removeTag"), "data.tag"),
        ]
        keys = "data.task data.insert_before data.insert_after"
        move = AllowedWrite("POST", ("sections", NUMBERED, "addTask"), keys)
        allowed = scope_problem(call, Reach(reads=(), writes=(move,)), self.settings.scope) is None
        if allowed and dig(call.body, "data", "task") == issue.id:
            sections = yield from self._sections()
            if call.steps[1] in sections.values():
                writes.append(move)
        if self.settings.scope is RawToolScope.ISSUE:
            return Reach(reads=(own,), writes=tuple(writes))
        writes.append(AllowedWrite("POST", (*project, "sections"), "data.name"))
        return Reach(reads=(own, project), writes=tuple(writes))


KIND = RemoteKind(AsanaSettings, AsanaFlows, webhooks=ASANA)
