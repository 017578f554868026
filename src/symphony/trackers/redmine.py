"""Redmine, version 5.0 and later (kind `redmine`; docs/trackers/redmine.md)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from symphony.config import TrackerSettings
from symphony.domain import MASK, Blocker, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.trackers import tools
from symphony.trackers.base import AccountInfo, Comment, no_such_state, not_found, not_moved
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
    whole,
)
from symphony.trackers.http import Flow, Pager, Request, ServiceProfile, malformed
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.remote import Access, RemoteKind
from symphony.trackers.tools import (
    Reach,
    RestCall,
    Scope,
    Write,
    beyond,
    marked,
    out_of_scope,
    rest_call,
    rest_flow,
    rest_spec,
)

# What `tracker` means for Redmine (TR10).


PROVIDER_KEYS = ("base_url", "api_key", "project", "subprojects", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"REDMINE_API_KEY"})
_PROJECT = re.compile(r"[a-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedmineConfig:
    """One project; `subprojects` says whether the issues of its subprojects are in scope too."""

    access: Access
    project: str
    subprojects: bool
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> RedmineConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("redmine", settings.provider, environment)
    key = reader.secret("api_key", variable="REDMINE_API_KEY")
    config = RedmineConfig(
        access=Access(base=_address(reader), credential=key, headers={"x-redmine-api-key": key}),
        project=reader.needed(
            "project",
            variable="REDMINE_PROJECT",
            rule=_PROJECT,
            must="be the identifier that stands in the project's address",
        ),
        subprojects=reader.flag("subprojects", default=False),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=reader.states("active_states", settings.active_states, default=None),
        terminal=reader.states("terminal_states", settings.terminal_states, default=None),
    )
    reader.done()
    return config


def _address(reader: ProviderReader) -> str:
    """Where Redmine is; there is no place that would do for everybody."""
    if not reader.needed("base_url", variable="REDMINE_URL"):
        return ""
    return reader.address("base_url", "", variable="REDMINE_URL")


# How Redmine says no: often without a body. It has no limits of its own; a proxy before it may have some.
#
# Where the server formats text as Textile it knows no fences.


REDMINE = ServiceProfile(
    service="Redmine",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project",
    fences=False,
)


# From Redmine's JSON to issues. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What an issue's own record does not say: ranks of priorities, and records of what blocks it, by id."""

    ranks: Mapping[int, int] = field(default_factory=dict)
    blockers: Mapping[str, Any] = field(default_factory=dict)


def identifier(issue_id: str) -> str:
    """The name of an issue for people and branches."""
    return f"RM-{issue_id}"


def number_of(node: Any) -> int | None:
    """The id in a map like `{"id": 3, "name": "High"}`, or null."""
    return whole(mapping(node).get("id"))


def ranks_of(priorities: Iterable[Any]) -> Mapping[int, int]:
    """Ranks by id, 1 for the most urgent: Redmine lists priorities from the least urgent on."""
    ranks: dict[int, int] = {}
    above = 1
    for priority in reversed(list(priorities)):
        number = number_of(priority)
        if number is not None:
            ranks[number] = above
            above += mapping(priority).get("active") is not False
    return ranks


def blocker_ids(record: Any) -> tuple[str, ...]:
    """The issues that block this one, as its own record says; a relation runs from the blocker."""
    own = number_of(record)
    found = (
        whole(mapping(relation).get("issue_id"))
        for relation in items(mapping(record).get("relations"))
        if mapping(relation).get("relation_type") == "blocks"
        and whole(mapping(relation).get("issue_to_id")) == own
    )
    return tuple(dict.fromkeys(str(number) for number in found if number is not None))


def issue_of(record: Any, *, config: RedmineConfig, terminal: frozenset[str], around: Around) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no id, subject or status."""
    issue_id, title = required(record, "id"), required(record, "subject")
    state = _status(record)
    if state is None:
        raise MalformedRecordError("has no status")
    names = blocker_ids(record)
    waits_for = [identifier(name) for name in names if not _is_over(around.blockers.get(name), terminal)]
    objection = f"it is blocked by {', '.join(waits_for)}" if waits_for else None
    return Issue(
        id=issue_id,
        identifier=identifier(issue_id),
        title=title,
        state=state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref=_native_ref(record),
        description=text(record.get("description")),
        priority=around.ranks.get(number_of(record.get("priority")) or 0),
        url=f"{config.access.base}/issues/{issue_id}",
        assignee_id=_name(number_of(record.get("assigned_to"))),
        labels=normalise_labels(_labels(record)),
        blocked_by=tuple(
            Blocker(id=name, identifier=identifier(name), state=_status(around.blockers.get(name)))
            for name in names
        ),
        created_at=instant(record.get("created_on")),
        updated_at=instant(record.get("updated_on")),
    )


def comments_of(record: Any, *, me: str) -> tuple[Comment, ...]:
    """The notes of an issue, oldest first; entries of its history that only tell of changes are none."""
    return tuple(
        Comment(
            id=str(number_of(entry)),
            body=entry["notes"],
            mine=_name(number_of(entry.get("user"))) == me,
            author=text(mapping(entry.get("user")).get("name")) or "",
            author_key=_name(number_of(entry.get("user"))) or "",
            may_answer=None,
        )
        for entry in items(mapping(record).get("journals"))
        if number_of(entry) is not None and text(entry.get("notes"))
    )


def _status(record: Any) -> str | None:
    name = text(mapping(mapping(record).get("status")).get("name"))
    return None if name is None else name.strip()


def _is_over(record: Any, terminal: frozenset[str]) -> bool:
    """Whether a blocker is closed, or terminal for us; one that may not be seen is not."""
    closed = mapping(mapping(record).get("status")).get("is_closed") is True
    return closed or normalise_state(_status(record) or "") in terminal


def _labels(record: Mapping[str, Any]) -> Sequence[str]:
    """Redmine has no labels; what it sorts issues by are their tracker and their category."""
    names = (text(mapping(record.get(key)).get("name")) for key in ("tracker", "category"))
    return [name for name in names if name]


def _native_ref(record: Mapping[str, Any]) -> Mapping[str, Any]:
    keys = ("project", "tracker", "status", "priority", "fixed_version", "parent")
    found = {f"{key}_id": number_of(record.get(key)) for key in keys}
    return {name: value for name, value in found.items() if value is not None}


def _name(number: int | None) -> str | None:
    return None if number is None else str(number)


# The raw tool of Redmine and its guard.
#
# The path of an issue does not say which project it is in, so `scope: project` asks. Redmine shows a key to
# whom it belongs to, and all keys to administrators: no answer leaves here with one.


TOOL = "redmine_api"
_METHODS = ("GET", "POST", "PUT", "DELETE")
_SUFFIX = ".json"
_LISTS = ("issue_statuses", "trackers", "enumerations")
"""What holds for the whole Redmine and has to be known to write an issue; reading it is always allowed."""

_FIELDS = (
    "subject", "description", "status_id", "tracker_id", "priority_id", "assigned_to_id", "category_id",
    "fixed_version_id", "done_ratio", "estimated_hours", "start_date", "due_date", "is_private", "notes",
    "private_notes", "custom_fields", "lock_version",
)  # fmt: skip
_EDITED = " ".join(f"issue.{field}" for field in _FIELDS)

IsOurs = Callable[[str], Flow[bool]]
"""Whether an issue is in scope; asks the service."""


def spec(config: RedmineConfig) -> ToolSpec:
    """The tool as it is advertised."""
    note = f"Paths end in {_SUFFIX}. The project is {config.project}."
    return rest_spec(TOOL, "Redmine", _METHODS, note=note)


def call_flow(
    arguments: Mapping[str, Any], config: RedmineConfig, issue: Issue, is_ours: IsOurs
) -> Flow[ToolResult]:
    """One raw request; a refusal of Redmine is an answer to the model."""
    call = rest_call(arguments, _METHODS)
    if isinstance(call, str):
        return ToolResult.error(call)
    if not call.steps[-1].endswith(_SUFFIX):
        return ToolResult.error(f"`path` must end in {_SUFFIX}")
    problem = yield from _beyond(call, config, issue, is_ours)
    if problem is not None:
        return out_of_scope(problem)
    said = _marked(call)
    if isinstance(said, str):
        return ToolResult.error(said)
    return (yield from rest_flow(said, TOOL, show=_masked))


def _beyond(call: RestCall, config: RedmineConfig, issue: Issue, is_ours: IsOurs) -> Flow[str | None]:
    """Why the scope forbids the call, or null.

    Not within reach: relations, parents, watchers, uploads, time entries, and what moves to another project.
    """
    scope = config.scope
    steps = [step.removesuffix(_SUFFIX) for step in call.steps]
    if scope is Scope.TOKEN:
        return None
    query = f"?{call.path.partition('?')[2]}" if "?" in call.path else ""
    bare = replace(call, path=f"/{'/'.join(quote(step, safe='') for step in steps)}{query}")
    own, project = ("issues", issue.id), ("projects", config.project)
    issues = [own]
    reads: list[tuple[str, ...]] = [(name,) for name in _LISTS]
    if scope is Scope.PROJECT:
        reads.append(project)
        if steps[0].lower() == "issues" and len(steps) > 1 and (yield from is_ours(steps[1])):
            issues.append(("issues", steps[1]))
    reach = Reach(reads=(*reads, *issues), writes=tuple(Write("PUT", each, _EDITED) for each in issues))
    return beyond(bare, reach, scope=scope)


def _marked(call: RestCall) -> RestCall | str:
    """Mark what the call writes as a note of an agent."""
    if call.method == "GET":
        return call
    if "notes" in call.path.partition("?")[2] or any("notes" in key for key, _ in call.query):
        return "give a note in `body`"
    found: RestCall | str = call
    for place in (("issue", "notes"), ("journal", "notes"), ("notes",)):
        within = mapping(call.body) if len(place) == 1 else mapping(mapping(call.body).get(place[0]))
        if place[-1] in within and not isinstance(found, str):
            found = marked(found, *place)
    return found


def _masked(body: Any) -> Any:
    match body:
        case dict():
            return {key: MASK if key == "api_key" else _masked(value) for key, value in body.items()}
        case list():
            return [_masked(entry) for entry in body]
        case _:
            return body


# What is asked of Redmine, and in which order (TR1, TR2, TR8).
#
# Three habits of Redmine shape this. A key that is not taken makes us anonymous instead of refused,
# wherever a project is public; so a poll, and whoever misses an issue, first asks who we are. A forbidden
# move is taken and not made; so it is read back. A note that was written has no id in the answer; so it is
# looked for.


PAGE = BATCH = 100
_UNTOLD = frozenset({403, 404})
_NUMBER = re.compile(r"[1-9]\d{0,8}")
_ISSUE = "/issues/{}.json"
_ISSUES = "/projects/{}/issues.json"


class RedmineFlows:
    """Implements `remote.Flows` for one project. Knows between flows who we are, and ranks of priorities."""

    kind = "redmine"
    dialect: ServiceProfile = REDMINE

    def __init__(self, config: RedmineConfig) -> None:
        self._config = config
        self._terminal = frozenset(normalise_state(state) for state in config.terminal)
        self._me: tuple[str, str] | None = None
        self._ranks: Mapping[int, int] = {}

    # --- reads -------------------------------------------------------------------------------------------

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """As `Flows.by_states`; a state that Redmine does not have is a failure, for it was renamed."""
        yield from self._who()
        known = yield from self._statuses()
        numbers = [self._number_of_state(state, known) for state in states]
        query = [("status_id", "|".join(numbers)), ("sort", "id"), *self._scope()]
        records = yield from self._pages(_ISSUES, self._path, query)
        around = yield from self._around(records)
        wanted = frozenset(normalise_state(state) for state in states)

        def read(record: Any) -> Issue | None:
            issue = issue_of(record, config=self._config, terminal=self._terminal, around=around)
            return issue if normalise_state(issue.state) in wanted else None

        return listing(self.dialect.service, records, read)

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """As `Flows.by_ids`."""
        numbers = [number for number in ids if _NUMBER.fullmatch(number)]
        records = yield from self._some(_ISSUES, self._path, numbers, self._scope())
        if len(records) < len(numbers):  # are they gone, or are we nobody by now?
            yield from self._who()
        around = yield from self._around(records)

        def read(record: Any) -> Issue | None:
            return issue_of(record, config=self._config, terminal=self._terminal, around=around)

        return snapshots(self.dialect.service, records, read, wanted=ids)

    @property
    def _path(self) -> str:
        return f"/projects/{self._config.project}/issues.json"

    def _scope(self) -> Sequence[tuple[str, str]]:
        return [("include", "relations"), *([] if self._config.subprojects else [("subproject_id", "!*")])]

    def _some(
        self, endpoint: str, path: str, numbers: Sequence[str], query: Sequence[tuple[str, str]] = ()
    ) -> Flow[list[Any]]:
        """The records of these ids, whatever their status, in batches."""
        records: list[Any] = []
        for start in range(0, len(numbers), BATCH):
            batch = ",".join(numbers[start : start + BATCH])
            wanted = [("issue_id", batch), ("status_id", "*"), ("sort", "id"), *query]
            records += yield from self._pages(endpoint, path, wanted)
        return records

    def _pages(self, endpoint: str, path: str, query: Sequence[tuple[str, str]]) -> Flow[list[Any]]:
        """All records; each page says where in the list it begins, which has to be where we are."""
        records: list[Any] = []
        trail: Pager | None = None
        while True:
            at = [("limit", str(PAGE)), ("offset", str(len(records)))]
            request = Request(endpoint=endpoint, path=path, query=[*query, *at], conditional=True)
            trail = trail or Pager(self.dialect, request, self._config.access.base)
            body = mapping((yield request).body)
            found, total = body.get("issues"), whole(body.get("total_count"))
            if not isinstance(found, list) or total is None:
                raise malformed(self.dialect, f"answered no list to {endpoint}")
            trail.cursor(whole(body.get("offset")))
            trail.count(len(found))
            records += found
            if len(records) >= total:
                return records
            if not found:
                trail.cursor(None)

    def _around(self, records: Sequence[Any]) -> Flow[Around]:
        """What is to be known besides the records; nothing is asked where they name nothing new."""
        used = {number_of(mapping(record).get("priority")) for record in records}
        if used - {None, *self._ranks}:
            priorities = yield from self._items("/enumerations/issue_priorities.json", "issue_priorities")
            self._ranks = ranks_of(priorities)
        here = {str(number_of(record)): record for record in records}
        names = dict.fromkeys(name for record in records for name in blocker_ids(record))
        elsewhere = [name for name in names if name not in here]
        others = yield from self._some("/issues.json", "/issues.json", elsewhere)
        found = {str(number_of(record)): record for record in others}
        return Around(ranks=self._ranks, blockers={**here, **found})

    def _items(self, path: str, key: str) -> Flow[list[Any]]:
        body = mapping((yield Request(endpoint=path, path=path, conditional=True)).body)
        found = body.get(key)
        if not isinstance(found, list):
            raise malformed(self.dialect, f"answered no list to {path}")
        return found

    def _statuses(self) -> Flow[Mapping[str, str]]:
        """Ids of the states by name, in the order of Redmine."""
        found = yield from self._items("/issue_statuses.json", "issue_statuses")
        numbers = {text(mapping(status).get("name")): number_of(status) for status in found}
        return {name.strip(): str(number) for name, number in numbers.items() if name and number}

    def _number_of_state(self, state: str, known: Mapping[str, str]) -> str:
        for name, number in known.items():
            if normalise_state(name) == normalise_state(state):
                return number
        raise no_such_state(self.dialect.service, state, tuple(known))

    def _who(self) -> Flow[tuple[str, str]]:
        """Id and login of the key's account; 401 where it has none."""
        path = "/users/current.json"
        user = mapping(mapping((yield Request(endpoint=path, path=path, conditional=True)).body).get("user"))
        number, login = number_of(user), text(user.get("login"))
        if number is None or login is None:
            raise malformed(self.dialect, "does not tell whose key this is")
        self._me = str(number), login
        return self._me

    def account_info(self) -> Flow[AccountInfo]:
        """As `Flows.account_info`."""
        _, login = yield from self._who()
        path = f"/projects/{self._config.project}.json"
        body = mapping((yield Request(endpoint="/projects/{}.json", path=path)).body)
        name = text(mapping(body.get("project")).get("name")) or self._config.project
        known = yield from self._statuses()
        return AccountInfo(login=login, scope=name, states=tuple(known))

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`: the notes in the history of the issue, which comes whole."""
        number, _ = self._me or (yield from self._who())
        path = f"/issues/{self._number(issue_id)}.json"
        request = Request(endpoint=_ISSUE, path=path, query=[("include", "journals")], conditional=True)
        record = mapping((yield request).body).get("issue")
        if not isinstance(mapping(record).get("journals"), list):
            raise malformed(self.dialect, f"answered no history to {_ISSUE}")
        return comments_of(record, me=number)

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: the author of the issue, and the members of its project."""
        path = f"/issues/{self._number(issue_id)}.json"
        record = mapping(mapping((yield Request(endpoint=_ISSUE, path=path)).body).get("issue"))
        author, project = str(number_of(record.get("author"))), number_of(record.get("project"))
        found = frozenset(author_keys) & {author}
        for key in sorted(frozenset(author_keys) - {author, ""}):
            answer = yield Request(
                endpoint="/users/{}.json",
                path=f"/users/{self._number(key)}.json",
                query=[("include", "memberships")],
                conditional=True,
                accept=_UNTOLD,
            )
            memberships = items(mapping(mapping(answer.body).get("user")).get("memberships"))
            projects = {number_of(mapping(one).get("project")) for one in memberships}
            if project is not None and project in projects:
                found |= {key}
        return found

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; its id is that of our newest note with the same first line."""
        del key
        yield self._put(_ISSUE, f"/issues/{self._number(issue_id)}.json", {"issue": {"notes": body}})
        written = yield from self.comments(issue_id)
        ours = [comment.id for comment in written if comment.mine and _first(comment.body) == _first(body)]
        if not ours:
            hint = "may the account of the key add notes to issues of this project?"
            raise malformed(self.dialect, "took a note and did not keep it", hint=hint)
        return ours[-1]

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`."""
        del issue_id
        path = f"/journals/{self._number(comment_id)}.json"
        yield self._put("/journals/{}.json", path, {"journal": {"notes": body}})

    def _put(self, endpoint: str, path: str, body: Any) -> Request:
        return Request(endpoint=endpoint, method="PUT", path=path, body=body)

    def _number(self, value: str) -> str:
        if not _NUMBER.fullmatch(value):
            raise not_found(self.dialect.service, f"issue or note {value!r}")
        return value

    # --- moves and tools ---------------------------------------------------------------------------------

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`; where it was not made, the states that Redmine would allow are told."""
        before = yield from self._one(issue_id)
        if normalise_state(before.state) == normalise_state(state):
            return before.state
        number = self._number_of_state(state, (yield from self._statuses()))
        yield self._put(_ISSUE, f"/issues/{before.id}.json", {"issue": {"status_id": int(number)}})
        after = yield from self._one(issue_id)
        if normalise_state(after.state) != normalise_state(state):
            allowed = yield from self._allowed(before.id)
            hint = f"the workflow of Redmine allows this account: {', '.join(allowed)}" if allowed else None
            raise not_moved(
                self.dialect.service, after.identifier, wanted=state, found=after.state, hint=hint
            )
        return after.state

    def _one(self, issue_id: str) -> Flow[Issue]:
        found = yield from self.by_ids([self._number(issue_id)])
        if not found:
            raise not_found(self.dialect.service, f"issue {issue_id}")
        return found[0]

    def _allowed(self, issue_id: str) -> Flow[Sequence[str]]:
        query = [("include", "allowed_statuses")]
        answer = yield Request(endpoint=_ISSUE, path=f"/issues/{issue_id}.json", query=query)
        found = mapping(mapping(answer.body).get("issue")).get("allowed_statuses")
        names = [text(mapping(status).get("name")) for status in found] if isinstance(found, list) else []
        return [name for name in names if name]

    def tools(self) -> tuple[ToolSpec, ...]:
        """`redmine_api`, unless `scope` is `off`."""
        return () if self._config.scope is Scope.OFF else (spec(self._config),)

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw request."""
        del name
        return (yield from call_flow(arguments, self._config, issue, self._is_ours))

    def _is_ours(self, issue_id: str) -> Flow[bool]:
        return bool((yield from self.by_ids([issue_id])))


def _first(body: str) -> str:
    """The first line, where the marker of a comment of ours stands."""
    return body.strip().partition("\n")[0].strip()


KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*tools.NAMES, "redmine_api"),
    configure=read_config,
    flows=RedmineFlows,
)
