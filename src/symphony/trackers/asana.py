"""Tasks of an Asana project, with its sections as states (kind `asana`; docs/trackers/asana.md)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symphony.config import TrackerSettings
from symphony.domain import Blocker, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.trackers import tools
from symphony.trackers.base import AccountInfo, Comment, TrackerError, no_such_state, not_found
from symphony.trackers.comments import AGENT_MARK
from symphony.trackers.fields import (
    Listing,
    MalformedRecordError,
    instant,
    items,
    listing,
    mapping,
    required,
    snapshots,
    text,
)
from symphony.trackers.http import Answer, Flow, Pager, Request, ServiceProfile, malformed
from symphony.trackers.http.exchange import FORBIDDEN
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.remote import Access, RemoteKind
from symphony.trackers.tools import (
    NUMBERED,
    Reach,
    RestCall,
    Scope,
    Write,
    beyond,
    out_of_scope,
    rest_call,
    rest_flow,
    rest_spec,
)
from symphony.trackers.webhooks import ASANA

# What `tracker` means for a project in Asana (CF3, TR7).


PROVIDER_KEYS = ("endpoint", "api_key", "project_gid", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"ASANA_PAT"})
DEFAULT_ENDPOINT = "https://app.asana.com/api/1.0"
_GID = re.compile(r"[1-9]\d{0,30}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsanaConfig:
    """One project, by its gid."""

    access: Access
    project: str
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> AsanaConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("asana", settings.provider, environment)
    key = reader.secret("api_key", variable="ASANA_PAT")
    headers = {"authorization": f"Bearer {key}"}
    config = AsanaConfig(
        access=Access(base=reader.address("endpoint", DEFAULT_ENDPOINT), credential=key, headers=headers),
        project=reader.needed("project_gid", rule=_GID, must="be the number in the project's address"),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=None),
        terminal=reader.states("terminal_states", settings.terminal_states, default=None),
    )
    reader.done()
    return config


# How Asana says no: by plain statuses. A limit is a 429 with a time; nothing tells what is left of it.
#
# Comments are plain text in which addresses become links, and those of people mentions.


SERVICE = ServiceProfile(
    service="Asana",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_gid",
    fences=False,
)


# From Asana's JSON to issues, and from comments to stories and back. Pure.


_AGENT = AGENT_MARK.removeprefix("<!-- ").removesuffix(" -->")
COMPLETED = "completed"
"""The state of a task that is completed and in a section that is not terminal."""

FIELDS = (
    "name,notes,completed,created_at,modified_at,permalink_url,resource_subtype,is_rendered_as_separator,"
    "assignee,tags.name,dependencies,memberships.project,memberships.section,memberships.section.name"
)
"""What is asked of a task; without it the answer holds little more than its name."""

Blockers = Mapping[str, tuple[Blocker, ...]]
"""What blocks tasks, by their gid."""

_MARKER = re.compile(r"symphony:[a-z0-9-]{1,32} v1 key=[0-9a-f]{32} fp=[0-9a-f]{32}")


def gid_of(record: Any) -> str | None:
    """The gid of whatever the record is, or null."""
    return text(mapping(record).get("gid"))


def dependencies_of(record: Any) -> tuple[str, ...]:
    """The gids of the tasks that this one depends on, as its own record tells them."""
    gids = (gid_of(each) for each in items(mapping(record).get("dependencies")))
    return tuple(dict.fromkeys(gid for gid in gids if gid is not None))


def _section(record: Any, config: AsanaConfig) -> Mapping[str, Any] | None:
    """The task's section in the project; empty where it does not say, null outside of the project."""
    for each in items(mapping(record).get("memberships")):
        if gid_of(mapping(each).get("project")) == config.project:
            return mapping(mapping(each).get("section"))
    return None


def _state(record: Any, section: Mapping[str, Any], terminal: frozenset[str]) -> str | None:
    name = text(section.get("name"))
    if mapping(record).get("completed") is not True:
        return name
    return name if name is not None and normalise_state(name) in terminal else COMPLETED


def is_over(record: Any, config: AsanaConfig, terminal: frozenset[str]) -> bool:
    """Whether the task is in a terminal state, or in none at all."""
    state = _state(record, _section(record, config) or {}, terminal)
    return state is None or normalise_state(state) in terminal


def issue_of(
    record: Any, *, config: AsanaConfig, terminal: frozenset[str], blockers: Blockers
) -> Issue | None:
    """One issue; null for a task that is not in the project.

    Raises:
        MalformedRecordError: it has no gid, name or section, or does not say whether it is completed.
    """
    gid, title = required(record, "gid"), required(record, "name")
    section = _section(record, config)
    if section is None:
        return None
    if not isinstance(record.get("completed"), bool):
        raise MalformedRecordError("does not say whether it is completed")
    state = _state(record, section, terminal)
    if state is None:
        raise MalformedRecordError("has no section")
    blocked_by = blockers.get(gid, ())
    objection = _objection(record, blocked_by, terminal)
    return Issue(
        id=gid,
        identifier=f"ASANA-{gid}",
        title=title,
        state=state.strip(),
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={"task_gid": gid, "project_gid": config.project, "section_gid": gid_of(section)},
        description=text(record.get("notes")),
        url=text(record.get("permalink_url")),
        assignee_id=gid_of(record.get("assignee")),
        labels=normalise_labels(_tags(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("modified_at")),
    )


def _tags(record: Mapping[str, Any]) -> Sequence[str]:
    names = (text(mapping(tag).get("name")) for tag in items(record.get("tags")))
    return [name for name in names if name is not None]


def _objection(
    record: Mapping[str, Any], blockers: Sequence[Blocker], terminal: frozenset[str]
) -> str | None:
    if record.get("resource_subtype") == "section" or record.get("is_rendered_as_separator") is True:
        return "it is a line between tasks, and no task"
    if record["completed"]:
        return "it is completed"
    going_on = [each for each in blockers if normalise_state(each.state or "") not in terminal]
    return f"it is blocked by {', '.join(str(each.identifier) for each in going_on)}" if going_on else None


def blocker_of(record: Any, config: AsanaConfig, terminal: frozenset[str]) -> Blocker:
    """A task that another one depends on; its state is null in another project, until it is completed."""
    gid = gid_of(record)
    state = _state(record, _section(record, config) or {}, terminal)
    return Blocker(id=gid, identifier=f"ASANA-{gid}", state=state)


# --- comments, which are plain text: a marker can be seen, so it stands at the end ---


def text_of(body: str) -> str:
    """A comment as it is written: a marker in its first line becomes its last."""
    first, _, rest = body.partition("\n")
    marker = first.removeprefix("<!-- ").removesuffix(" -->")
    return f"{rest}\n\n{marker}" if marker != first and _MARKER.fullmatch(marker) else body


def marked(call: RestCall) -> RestCall:
    """Mark what the raw tool writes as a comment of an agent, in its last line."""
    data = mapping(mapping(call.body).get("data"))
    if call.method == "GET" or "stories" not in call.steps or not data:
        return call
    said, html = data.get("text"), data.get("html_text")
    changed = {**data}
    if isinstance(said, str):
        changed["text"] = f"{said}\n\n{_AGENT}"
    if isinstance(html, str):
        changed["html_text"] = html.replace("</body>", f"\n\n{_AGENT}</body>")
    return replace(call, body={**call.body, "data": changed})


def body_of(written: str) -> str:
    """The other way round."""
    rest, _, last = written.rstrip().rpartition("\n")
    if last == _AGENT:
        return f"{AGENT_MARK}\n{rest.rstrip()}"
    return f"<!-- {last} -->\n{rest.rstrip()}" if _MARKER.fullmatch(last) else written


# What is asked of Asana, and in which order (TR1, TR2, TR8).
#
# A poll asks the feed of events what happened in the project; where that is nothing, the list of the last
# poll is good. The feed may miss an event, so every tenth poll makes the whole list.
#
# A task tells what it depends on, though not in which state that is. Tasks of the list know; others are
# asked for, and remembered once they are completed.


PAGE = "100"
FULL_EVERY = 10
ASKED_AT_ONCE = 50
"""How many tasks one list asks the dependencies of; what is not known yet holds back."""
_TOOL = "asana_api"
_METHODS = ("GET", "POST", "PUT", "DELETE")
_GONE = frozenset({404, 410})
_NO_FEED = frozenset({400, 402, 403, 404, 412})
_OK = 200
_EDITED = (
    "data.name data.notes data.html_notes data.completed data.assignee data.due_on "
    "data.due_at data.start_on data.start_at data.custom_fields"
)
_Query = Sequence[tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The last whole list of these states."""

    states: frozenset[str]
    listing: Listing
    uses: int = 1


class AsanaFlows:
    """Implements `remote.Flows` for one project. Knows between flows who we are and what was last seen."""

    kind = "asana"
    dialect: ServiceProfile = SERVICE

    def __init__(self, config: AsanaConfig) -> None:
        self._config = config
        self._terminal = frozenset(normalise_state(state) for state in (*config.terminal, COMPLETED))
        self._me: str | None = None
        self._seen: _Seen | None = None
        self._sync: str | None = None
        self._over: dict[str, Blocker] = {}

    # --- reads -------------------------------------------------------------------------------------------

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """As `Flows.by_states`."""
        wanted = frozenset(normalise_state(state) for state in states)
        seen, self._seen = self._seen, None
        if seen is None:  # are project and credential right? the feed would not tell
            yield from self._sections()
        quiet = yield from self._quiet()
        if quiet and seen and seen.states == wanted and seen.uses < FULL_EVERY:
            seen.uses += 1
            self._seen = seen
            return seen.listing
        query = [("opt_fields", FIELDS)]
        if not wanted & self._terminal:
            query.append(("completed_since", "now"))
        path = f"/projects/{self._config.project}/tasks"
        records = yield from self._pages("/projects/{}/tasks", path, query)
        blockers, complete = yield from self._blockers_of_list(records)

        def read(record: Any) -> Issue | None:
            issue = self._issue(record, blockers)
            return issue if issue is not None and normalise_state(issue.state) in wanted else None

        found = listing(self.dialect.service, records, read)
        if complete:
            self._seen = _Seen(states=wanted, listing=found)
        return found

    def _quiet(self) -> Flow[bool]:
        """Whether nothing happened in the project since this was last asked; false where nobody knows."""
        query = [("resource", self._config.project)]
        if self._sync is not None:
            query.append(("sync", self._sync))
        answer = yield Request(endpoint="/events", path="/events", query=query, accept=_NO_FEED)
        body = mapping(answer.body)
        self._sync = text(body.get("sync"))
        return answer.status == _OK and body.get("data") == [] and body.get("has_more") is not True

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """As `Flows.by_ids`: one by one, since there is no list by gid; 404 and 410 mean gone."""
        gids = [gid for gid in ids if _GID.fullmatch(gid)]
        records = []
        for gid in gids:
            answer = yield from self._task(gid)
            if answer.status == _OK:
                records.append(mapping(answer.body).get("data"))
        if len(records) < len(gids):  # is it the task that is gone, or the whole project?
            path = f"/projects/{self._config.project}/tasks"
            yield Request(endpoint="/projects/{}/tasks", path=path, query=[("limit", "1")])
        blockers: dict[str, tuple[Blocker, ...]] = {}
        for record in records:
            found = gid_of(record)
            if found and dependencies_of(record) and not self._is_over(record):
                blockers[found] = yield from self._dependencies(found)

        def read(record: Any) -> Issue | None:
            return self._issue(record, blockers)

        return snapshots(self.dialect.service, records, read, wanted=ids)

    def _task(self, gid: str) -> Flow[Answer]:
        """One task; where only this one may not be seen, it is the culprit."""
        query = [("opt_fields", FIELDS)]
        try:
            return (yield Request(endpoint="/tasks/{}", path=f"/tasks/{gid}", query=query, accept=_GONE))
        except TrackerError as error:
            if error.failure.status != FORBIDDEN:
                raise
            raise TrackerError(error.failure, culprits=frozenset({gid})) from error

    def _issue(self, record: Any, blockers: Blockers) -> Issue | None:
        return issue_of(record, config=self._config, terminal=self._terminal, blockers=blockers)

    def _is_over(self, record: Any) -> bool:
        return is_over(record, self._config, self._terminal)

    def _blocker(self, record: Any) -> Blocker:
        return blocker_of(record, self._config, self._terminal)

    def _blockers_of_list(self, records: Sequence[Any]) -> Flow[tuple[Blockers, bool]]:
        """What blocks the tasks of a list, and whether nothing is left to be asked."""
        known = {gid: self._blocker(record) for record in records if (gid := gid_of(record))}
        blocked = {
            gid: dependencies
            for record in records
            if (gid := gid_of(record)) and (dependencies := dependencies_of(record))
            if not self._is_over(record)
        }
        needed = {dependency for dependencies in blocked.values() for dependency in dependencies}
        self._over = {gid: over for gid, over in self._over.items() if gid in needed and gid not in known}
        found: dict[str, tuple[Blocker, ...]] = {}
        asked, complete = 0, True
        for gid, dependencies in blocked.items():
            told = {each: known.get(each) or self._over.get(each) for each in dependencies}
            if None in told.values() and asked < ASKED_AT_ONCE:
                asked += 1
                found[gid] = yield from self._dependencies(gid)
                continue
            complete = complete and None not in told.values()
            found[gid] = tuple(
                blocker or Blocker(id=each, identifier=f"ASANA-{each}") for each, blocker in told.items()
            )
        return found, complete

    def _dependencies(self, gid: str) -> Flow[tuple[Blocker, ...]]:
        """What a task depends on, in its current state."""
        records = yield from self._pages(
            "/tasks/{}/dependencies",
            f"/tasks/{gid}/dependencies",
            [("opt_fields", "completed,memberships.project,memberships.section.name")],
        )
        found = tuple(self._blocker(record) for record in records if gid_of(record))
        for each in found:
            self._over.pop(str(each.id), None)
            if normalise_state(each.state or "") in self._terminal:
                self._over[str(each.id)] = each
        return found

    def _pages(self, endpoint: str, path: str, query: _Query = ()) -> Flow[list[Any]]:
        """All records of a list; a page tells the offset of the next one."""
        request = Request(endpoint=endpoint, path=path, query=[*query, ("limit", PAGE)])
        trail = Pager(self.dialect, request, self._config.access.base)
        records: list[Any] = []
        while True:
            answer = yield request
            found = mapping(answer.body).get("data")
            if not isinstance(found, list):
                raise malformed(self.dialect, f"answered no list to {endpoint}")
            records += found
            trail.count(len(found))
            following = mapping(answer.body).get("next_page")
            if following is None:
                return records
            offset = trail.cursor(mapping(following).get("offset"))
            request = Request(
                endpoint=endpoint, path=path, query=[*query, ("limit", PAGE), ("offset", offset)]
            )

    def _sections(self) -> Flow[Mapping[str, str]]:
        """The gids of the project's sections by their names, in their order."""
        path = f"/projects/{self._config.project}/sections"
        records = yield from self._pages("/projects/{}/sections", path)
        found: dict[str, str] = {}
        for record in records:
            gid, name = gid_of(record), text(mapping(record).get("name"))
            if gid is not None and name is not None:
                found.setdefault(name.strip(), gid)
        return found

    def account_info(self) -> Flow[AccountInfo]:
        """As `Flows.account_info`."""
        sections = yield from self._sections()
        answer = yield Request(endpoint="/users/me", path="/users/me")
        login = text(mapping(mapping(answer.body).get("data")).get("name"))
        return AccountInfo(
            login=login, scope=f"project {self._config.project}", states=(*sections, COMPLETED)
        )

    def _account(self) -> Flow[str]:
        if self._me is None:
            answer = yield Request(endpoint="/users/me", path="/users/me")
            self._me = gid_of(mapping(answer.body).get("data"))
        if self._me is None:
            raise malformed(self.dialect, "does not tell whose credential this is")
        return self._me

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`: those stories of a task that somebody wrote."""
        me = yield from self._account()
        path = f"/tasks/{self._gid(issue_id)}/stories"
        fields = ("opt_fields", "resource_subtype,text,created_by,created_by.name")
        records = yield from self._pages("/tasks/{}/stories", path, [fields])
        return tuple(
            Comment(
                id=str(gid_of(record)),
                body=body_of(text(mapping(record).get("text")) or ""),
                mine=gid_of(mapping(record).get("created_by")) == me,
                author=text(mapping(mapping(record).get("created_by")).get("name")) or "",
                may_answer=mapping(mapping(record).get("created_by")).get("resource_type") == "user",
            )
            for record in records
            if gid_of(record) and mapping(record).get("resource_subtype") == "comment_added"
        )

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: nobody is in doubt, as who comments was invited to the task."""
        del issue_id, author_keys
        yield from ()
        return frozenset()

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; Asana gives the id."""
        del key
        path = f"/tasks/{self._gid(issue_id)}/stories"
        return (yield from self._write("/tasks/{}/stories", "POST", path, body))

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`."""
        del issue_id
        yield from self._write("/stories/{}", "PUT", f"/stories/{self._gid(comment_id)}", body)

    def _write(self, endpoint: str, method: str, path: str, body: str) -> Flow[str]:
        data = {"data": {"text": text_of(body)}}
        answer = yield Request(endpoint=endpoint, method=method, path=path, body=data)
        gid = gid_of(mapping(answer.body).get("data"))
        if gid is None:
            raise malformed(self.dialect, "answered no comment to a comment")
        return gid

    def _gid(self, value: str) -> str:
        if not _GID.fullmatch(value):
            raise not_found(self.dialect.service, f"task or comment {value!r}")
        return value

    # --- moves and tools ---------------------------------------------------------------------------------

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`."""
        before = yield from self._one(issue_id)
        wanted = normalise_state(state)
        if normalise_state(before.state) == wanted:
            return before.state
        if wanted == COMPLETED:
            body = {"data": {"completed": True}}
            yield Request(endpoint="/tasks/{}", method="PUT", path=f"/tasks/{before.id}", body=body)
        else:
            sections = yield from self._sections()
            gid = next((gid for name, gid in sections.items() if normalise_state(name) == wanted), None)
            if gid is None:
                raise no_such_state(self.dialect.service, state, (*sections, COMPLETED))
            yield Request(
                endpoint="/sections/{}/addTask",
                method="POST",
                path=f"/sections/{gid}/addTask",
                body={"data": {"task": before.id}},
            )
        return (yield from self._one(issue_id)).state

    def _one(self, issue_id: str) -> Flow[Issue]:
        found = yield from self.by_ids([self._gid(issue_id)])
        if not found:
            raise not_found(self.dialect.service, f"task {issue_id}")
        return found[0]

    def tools(self) -> tuple[ToolSpec, ...]:
        """`asana_api`, unless `scope` is `off`."""
        if self._config.scope is Scope.OFF:
            return ()
        note = f"The project is {self._config.project}. Bodies and answers are below `data`."
        return (rest_spec(_TOOL, self.dialect.service, _METHODS, note=note),)

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw request; a refusal of Asana is an answer to the model."""
        del name
        call = rest_call(arguments, _METHODS)
        if isinstance(call, str):
            return ToolResult.error(call)
        problem = yield from self._beyond(call, issue)
        if problem is not None:
            return out_of_scope(problem)
        return (yield from rest_flow(marked(call), _TOOL))

    def _beyond(self, call: RestCall, issue: Issue) -> Flow[str | None]:
        """Paths of tasks do not tell the project, so of them only that of the session's own is in it.

        Not within reach: what names another task (dependencies, subtasks, parent), another project or people
        outside (followers).
        """
        scope = self._config.scope
        if scope is Scope.TOKEN or (yield from self._moves_within(call, issue)):
            return None
        own, project = ("tasks", issue.id), ("projects", self._config.project)
        writes = [
            Write("PUT", own, _EDITED),
            Write("POST", (*own, "stories"), "data.text data.html_text data.is_pinned"),
            Write("POST", (*own, "addTag"), "data.tag"),
            Write("POST", (*own, "removeTag"), "data.tag"),
        ]
        if scope is Scope.PROJECT:
            writes.append(Write("POST", (*project, "sections"), "data.name"))
        reach = Reach(reads=(own,) if scope is Scope.ISSUE else (own, project), writes=tuple(writes))
        return beyond(call, reach, scope=scope)

    def _moves_within(self, call: RestCall, issue: Issue) -> Flow[bool]:
        """Whether the call moves the session's own task to a section of the project."""
        keys = "data.task data.insert_before data.insert_after"
        move = Write("POST", ("sections", NUMBERED, "addTask"), keys)
        if beyond(call, Reach(reads=(), writes=(move,)), scope=self._config.scope) is not None:
            return False
        section = call.steps[1]
        task = mapping(mapping(call.body).get("data")).get("task")
        return task == issue.id and section in (yield from self._sections()).values()


KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*tools.NAMES, "asana_api"),
    configure=read_config,
    flows=AsanaFlows,
    webhooks=ASANA,
)
"""What `tracker` means for Asana; the keys of the reference, and `scope` (TR10)."""
