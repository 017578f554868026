"""GitLab issues, on gitlab.com and on servers of one's own (kind `gitlab`; docs/trackers/gitlab.md)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from symphony.config import TrackerSettings
from symphony.domain import Blocker, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.trackers import tools
from symphony.trackers.base import AccountInfo, Comment, no_such_state, not_found
from symphony.trackers.comments import lines_and_code
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
from symphony.trackers.http import Answer, Flow, Pager, Request, ServiceProfile, malformed
from symphony.trackers.http.graphql import graphql, question
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.remote import Access, RemoteKind
from symphony.trackers.repository import CLOSED, LabelState, StatusLabels
from symphony.trackers.tools import NUMBERED, Reach, RestCall, RestTool, Scope, Write, marked, within
from symphony.trackers.webhooks import GITLAB

# What `tracker` means for GitLab; the keys of the reference, and some of ours (TR10).


PROVIDER_KEYS = ("project_path", "api_key", "api_url", "states", "wait_for_blockers", SCOPE, INSECURE_HTTP)
SECRET_NAMES = frozenset({"GITLAB_PAT", "GITLAB_ACCESS_TOKEN"})
DEFAULT_API_URL = "https://gitlab.com/api/v4"
DEFAULT_PREFIX = "workflow::"
OPENED = "opened"
_STATE_KEYS = ("labels", "prefix", "source")
_PROJECT = re.compile(r"[\w.+-]{1,255}(?:/[\w.+-]{1,255}){1,20}")


class Source(StrEnum):
    """Where the state of an issue is read."""

    ISSUE = "issue"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitlabConfig:
    """One project.

    Attributes:
        project: its full path, groups included.
        graphql: the address of the GraphQL API, on the host of the REST API.
        labels: the labels that stand for states, where they are the source.
        wait_for_blockers: an issue that others block is held back.
    """

    access: Access
    project: str
    graphql: str
    source: Source
    labels: StatusLabels
    wait_for_blockers: bool
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]

    @property
    def path(self) -> str:
        """The project's path below the base address."""
        return f"/projects/{quote(self.project, safe='')}"


def read_config(settings: TrackerSettings, environment: Mapping[str, str]) -> GitlabConfig:
    """Read the settings. Raises `TrackerConfigError` with everything that does not fit."""
    reader = ProviderReader("gitlab", settings.provider, environment)
    token = reader.secret("api_key", variable="GITLAB_PAT")
    base = reader.address("api_url", DEFAULT_API_URL)
    project = reader.needed(
        "project_path", variable="GITLAB_PROJECT_PATH", rule=_PROJECT, must="be group/project"
    )
    if {".", ".."} & set(project.split("/")):
        reader.wrong("project_path", "must be group/project")
    active = reader.states("active_states", settings.active_states, default=None)
    terminal = reader.states("terminal_states", settings.terminal_states, default=None)
    resting = () if settings.on_block is None else (settings.on_block,)
    states = reader.part("states")
    source = _source(reader, states)
    if source is Source.ISSUE:
        _only_own_states(reader, active_states=active, terminal_states=terminal, on_block=resting)
    config = GitlabConfig(
        access=Access(base=base, credential=token, headers={"authorization": f"Bearer {token}"}),
        project=project,
        graphql=f"{base.removesuffix('/v4')}/graphql",
        source=source,
        labels=_labels(reader, states, (*active, *terminal, *resting)),
        wait_for_blockers=reader.flag("wait_for_blockers", default=False),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=active,
        terminal=terminal,
    )
    reader.done()
    return config


def _source(reader: ProviderReader, states: Mapping[str, Any]) -> Source:
    for key in sorted(str(key) for key in states if key not in _STATE_KEYS):
        reader.wrong("states", f"has an unknown key {key[:80]!r}", hint=f"keys: {', '.join(_STATE_KEYS)}")
    value = states.get("source", Source.ISSUE)
    if value in tuple(Source):
        return Source(value)
    reader.wrong("states", f"needs a source: {', '.join(Source)}")
    return Source.LABELS


def _labels(reader: ProviderReader, states: Mapping[str, Any], names: tuple[str, ...]) -> StatusLabels:
    labels = StatusLabels.of(reader, states, names, default_prefix=DEFAULT_PREFIX, opened=OPENED)
    if any("," in label for label in labels.by_state.values()):
        reader.wrong("states", "has a label with a comma, which GitLab takes for two labels")
    return labels


def _only_own_states(reader: ProviderReader, **named: tuple[str, ...]) -> None:
    for key, names in named.items():
        for name in names:
            if name.lower() not in {OPENED, CLOSED}:
                reader.wrong_at(
                    ("tracker", key),
                    f"names {name!r}, and an issue is opened or closed",
                    hint="set tracker.provider.states to {source: labels}",
                )


# How GitLab says no: in `message`, a text or a map, or in `error`; a limit is a 429.


SERVICE = ServiceProfile(
    service="GitLab",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_path",
)


# From GitLab's JSON to issues. Pure.


def iid_of(record: Any) -> str | None:
    """The number of an issue within its project as text, or null."""
    iid = whole(mapping(record).get("iid"))
    return str(iid) if iid is not None and iid > 0 else None


def is_opened(record: Any) -> bool:
    """Whether the issue is open."""
    return bool(mapping(record).get("state") == OPENED)


def label_names(record: Any) -> list[str]:
    """The names of a record's labels."""
    return [label for label in items(mapping(record).get("labels")) if text(label)]


def issue_of(
    record: Any,
    *,
    config: GitlabConfig,
    terminal: frozenset[str],
    blockers: Mapping[str, tuple[Blocker, ...]],
) -> Issue:
    """One issue. Raises `MalformedRecordError`: it has no iid, title or state."""
    iid, title, own = required(record, "iid"), required(record, "title"), required(record, "state")
    if own not in {OPENED, CLOSED}:
        raise MalformedRecordError(f"has the state {own[:40]!r}, which is neither opened nor closed")
    state = _state(record, own, config, terminal)
    blocked_by = blockers.get(iid, ())
    objection = state.objection or _objection(blocked_by, terminal)
    return Issue(
        id=iid,
        identifier=f"GL-{iid}",
        title=title,
        state=state.state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref=_native_ref(record, config),
        description=text(record.get("description")),
        url=text(record.get("web_url")),
        assignee_id=_assignee(record),
        labels=normalise_labels(label_names(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def _state(record: Mapping[str, Any], own: str, config: GitlabConfig, terminal: frozenset[str]) -> LabelState:
    if config.source is Source.ISSUE:
        return LabelState(state=own)
    return config.labels.read(label_names(record), closed=own == CLOSED, terminal=terminal)


def _objection(blockers: Iterable[Blocker], terminal: frozenset[str]) -> str | None:
    waits_for = [
        blocker.identifier or "an unknown issue"
        for blocker in blockers
        if normalise_state(blocker.state or "") not in terminal
    ]
    return f"it is blocked by {', '.join(waits_for)}" if waits_for else None


def _assignee(record: Mapping[str, Any]) -> str | None:
    first = next(iter(items(record.get("assignees"))), record.get("assignee"))
    return text(mapping(first).get("username"))


def _native_ref(record: Mapping[str, Any], config: GitlabConfig) -> Mapping[str, Any]:
    references = {key: text(value) for key, value in mapping(record.get("references")).items() if text(value)}
    return {
        "id": whole(record.get("id")),
        "iid": whole(record.get("iid")),
        "project_id": whole(record.get("project_id")),
        "project_path": config.project,
        "references": references,
    }


def blocked_iids(nodes: Sequence[Any]) -> frozenset[str]:
    """Of the issues that GraphQL told of, those that something blocks."""
    found = (text(mapping(node).get("iid")) for node in nodes if mapping(node).get("blocked") is True)
    return frozenset(iid for iid in found if iid)


def blockers_of(
    links: Sequence[Any], *, project_id: int | None, config: GitlabConfig, terminal: frozenset[str]
) -> tuple[Blocker, ...]:
    """The issues that block another one, of all that are linked with it; of other projects by their path.

    Their state is that of their labels where states are in labels and they are of this project, else their
    own.
    """
    found = []
    for link in links:
        iid, own = iid_of(link), text(mapping(link).get("state"))
        if mapping(link).get("link_type") != "is_blocked_by" or iid is None:
            continue
        here = whole(link.get("project_id")) == project_id
        elsewhere = text(mapping(link.get("references")).get("full")) or text(link.get("web_url"))
        state = _state(link, own, config, terminal).state if own is not None and here else own
        found.append(
            Blocker(id=iid if here else elsewhere, identifier=f"GL-{iid}" if here else elsewhere, state=state)
        )
    return tuple(found)


# Keeps text from being obeyed: GitLab carries out lines of a comment such as `/close` (quick actions).


def disarmed(body: str) -> str:
    """The text with no line that begins with a slash, and looking the same.

    Outside of code a backslash is put before the slash, which Markdown does not show; inside, a blank,
    because servers do not agree with Markdown on where a block of code ends.
    """
    return "\n".join(_disarmed(line, in_code=in_code) for line, in_code in lines_and_code(body))


def _disarmed(line: str, *, in_code: bool) -> str:
    bare = line.lstrip()
    if not bare.startswith("/"):
        return line
    return f" {line}" if in_code else f"{line[: len(line) - len(bare)]}\\{bare}"


# What is asked of GitLab, and in which order (TR1, TR2, TR8).


PAGE = 100
_METHODS = ("GET", "POST", "PUT", "DELETE")
_ISSUES = "/projects/{}/issues"
_ISSUE = "/projects/{}/issues/{}"
_DEVELOPER = 30
_NO_MEMBER = frozenset({403, 404})
_BOT = re.compile(r"(project|group)_\d+_bot(_[0-9a-f]+|\d*)|service_account_.+|ghost|support-bot|alert-bot")
_IID = re.compile(r"[1-9]\d{0,17}")
_ORDER = (("scope", "all"), ("order_by", "created_at"), ("sort", "asc"), ("per_page", str(PAGE)))


def _is_bot(author: Any) -> bool:
    """The account of an access token of a project or group, a service account, or one of the server's own."""
    name = text(mapping(author).get("username"))
    return name is None or _BOT.fullmatch(name) is not None


def _marked(call: RestCall) -> RestCall | str:
    """Mark what the raw tool writes as a comment of an agent."""
    writes = call.method != "GET" and not {"notes", "discussions"}.isdisjoint(call.steps)
    return marked(call, "body") if writes and call.method != "DELETE" else call


_OBEYED = frozenset({"body", "description"})
"""What GitLab looks for quick actions in."""
_NAMED = (
    "title description labels assignee_id assignee_ids milestone_id due_date weight confidential issue_type"
)
_EDITED = f"{_NAMED} add_labels remove_labels state_event discussion_locked"
_REQUEST = (
    "title description labels assignee_id assignee_ids reviewer_ids milestone_id target_branch squash "
    "remove_source_branch"
)


BLOCKED = """query SymphonyBlocked($path: ID!, $iids: [String!], $first: Int!) {
  project(fullPath: $path) { issues(iids: $iids, first: $first) { nodes { iid blocked } } }
}"""
"""The REST API tells of no issue whether it is blocked, but by asking for the links of each."""


class GitlabFlows:
    """Implements `remote.Flows` for one project. Knows between flows who we are."""

    kind = "gitlab"
    dialect: ServiceProfile = SERVICE

    def __init__(self, config: GitlabConfig) -> None:
        self._config = config
        self._terminal = frozenset(normalise_state(state) for state in (*config.terminal, CLOSED))
        self._me: tuple[int, str] | None = None
        self._tool = RestTool(
            name="gitlab_api",
            service=self.dialect.service,
            methods=_METHODS,
            scope=config.scope,
            mark=self._mark,
            note=f"The project is {config.project}: its paths begin with {config.path}/.",
        )

    # --- reads -------------------------------------------------------------------------------------------

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """As `Flows.by_states`."""
        wanted = frozenset(normalise_state(state) for state in states)
        records: list[Any] = []
        for query in self._queries(states, wanted):
            records += yield from self._pages(_ISSUES, "/issues", [*query, *_ORDER])
        blockers = yield from self._blockers(records)

        def read(record: Any) -> Issue | None:
            issue = issue_of(record, config=self._config, terminal=self._terminal, blockers=blockers)
            return issue if normalise_state(issue.state) in wanted else None

        return listing(self.dialect.service, records, read)

    def _queries(self, states: Sequence[str], wanted: frozenset[str]) -> Iterator[list[tuple[str, str]]]:
        """What to list so that nothing in the states is missed; one listing where that is no more."""
        if self._config.source is Source.ISSUE:
            own = wanted & {OPENED, CLOSED}
            if own:
                yield [("state", "all" if len(own) > 1 else next(iter(own)))]
        elif OPENED in wanted:
            yield [("state", "all" if wanted & self._terminal else OPENED)]
        else:
            if CLOSED in wanted:
                yield [("state", CLOSED)]
            for state in states:
                label = self._config.labels.label(state)
                if label is not None:
                    over = normalise_state(state) in self._terminal
                    yield [("state", "all" if over else OPENED), ("labels", label)]

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """As `Flows.by_ids`: a list of the numbers, in which what is gone or moved away is left out."""
        numbers = [iid for iid in ids if _IID.fullmatch(iid)]
        records: list[Any] = []
        for batch in _batches(numbers):
            query = [("iids[]", iid) for iid in batch]
            records += yield from self._pages(_ISSUES, "/issues", [*query, *_ORDER])
        blockers = yield from self._blockers(records)

        def read(record: Any) -> Issue | None:
            return issue_of(record, config=self._config, terminal=self._terminal, blockers=blockers)

        return snapshots(self.dialect.service, records, read, wanted=ids)

    def _blockers(self, records: Sequence[Any]) -> Flow[Mapping[str, tuple[Blocker, ...]]]:
        """What blocks the open issues; one question for a hundred tells which are blocked at all."""
        if not self._config.wait_for_blockers:
            return {}
        opened = {iid: record for record in records if is_opened(record) and (iid := iid_of(record))}
        blocked: set[str] = set()
        for batch in _batches(list(opened)):
            blocked |= yield from self._blocked(batch)
        found: dict[str, tuple[Blocker, ...]] = {}
        for iid, record in opened.items():
            if iid in blocked:
                links = yield from self._pages(
                    f"{_ISSUE}/links", f"/issues/{iid}/links", [("per_page", str(PAGE))]
                )
                found[iid] = blockers_of(
                    links,
                    project_id=whole(record.get("project_id")),
                    config=self._config,
                    terminal=self._terminal,
                )
        return found

    def _blocked(self, iids: Sequence[str]) -> Flow[frozenset[str]]:
        variables = {"path": self._config.project, "iids": list(iids), "first": PAGE}
        request = question("SymphonyBlocked", BLOCKED, variables, path=self._config.graphql)
        data = yield from graphql(self.dialect, request)
        nodes = mapping(mapping(data.get("project")).get("issues")).get("nodes")
        if not isinstance(nodes, list):
            raise not_found(
                self.dialect.service,
                f"project {self._config.project} in GraphQL",
                hint="check tracker.provider.project_path; wait_for_blockers needs GraphQL",
            )
        return blocked_iids(nodes)

    def _pages(self, endpoint: str, below: str, query: Sequence[tuple[str, str]]) -> Flow[list[Any]]:
        """All pages, along `Link`; where a proxy keeps that header back, by the number in `x-next-page`."""
        path = f"{self._config.path}{below}"
        request = Request(endpoint=endpoint, path=path, query=query, conditional=True)
        trail = Pager(self.dialect, request, self._config.access.base)
        records: list[Any] = []
        while True:
            answer: Answer = yield request
            if not isinstance(answer.body, list):
                raise malformed(self.dialect, f"answered no list to {request.endpoint}")
            records += answer.body
            trail.count(len(answer.body))
            following = trail.link(answer)
            number = answer.headers.get("x-next-page", "").strip()
            if following is not None:
                request = Request(endpoint=endpoint, path=following, conditional=True)
            elif number and "link" not in answer.headers:
                query_on = [*query, ("page", trail.cursor(number))]
                request = Request(endpoint=endpoint, path=path, query=query_on, conditional=True)
            else:
                return records

    def account_info(self) -> Flow[AccountInfo]:
        """As `Flows.account_info`."""
        config = self._config
        yield Request(endpoint=_ISSUES, path=f"{config.path}/issues", query=[("per_page", "1")])
        _, login = yield from self._account()
        own = (OPENED, CLOSED)
        states = own if config.source is Source.ISSUE else (*config.labels.by_state, *own)
        return AccountInfo(login=login, scope=config.project, states=states)

    def _account(self) -> Flow[tuple[int, str]]:
        """Whose token this is; tokens of projects and groups have an account too."""
        if self._me is None:
            answer = yield Request(endpoint="/user", path="/user", conditional=True)
            number, login = whole(mapping(answer.body).get("id")), text(mapping(answer.body).get("username"))
            if number is None or login is None:
                raise malformed(self.dialect, "does not tell whose token this is")
            self._me = (number, login)
        return self._me

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`; what the server itself noted on the issue is none."""
        me, _ = yield from self._account()
        query = [("sort", "asc"), ("order_by", "created_at"), ("per_page", str(PAGE))]
        records = yield from self._pages(f"{_ISSUE}/notes", f"/issues/{self._iid(issue_id)}/notes", query)
        return tuple(
            Comment(
                id=str(record["id"]),
                body=text(record.get("body")) or "",
                mine=whole(mapping(record.get("author")).get("id")) == me,
                author=text(mapping(record.get("author")).get("username")) or "",
                author_key=str(whole(mapping(record.get("author")).get("id")) or ""),
                may_answer=False if _is_bot(record.get("author")) else None,
            )
            for record in records
            if whole(mapping(record).get("id")) is not None and record.get("system") is not True
        )

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: the author of the issue, and members who are developers or more."""
        found = set()
        path = f"{self._config.path}/issues/{self._iid(issue_id)}"
        issue = mapping((yield Request(endpoint=_ISSUE, path=path, conditional=True)).body)
        author = str(whole(mapping(issue.get("author")).get("id")) or "")
        for key in author_keys:
            if key == author:
                found.add(key)
            elif key:
                answer = yield Request(
                    endpoint="/projects/{}/members/all/{}",
                    path=f"{self._config.path}/members/all/{key}",
                    conditional=True,
                    accept=_NO_MEMBER,
                )
                if (whole(mapping(answer.body).get("access_level")) or 0) >= _DEVELOPER:
                    found.add(key)
        return frozenset(found)

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; GitLab gives the id."""
        del key
        path = f"{self._config.path}/issues/{self._iid(issue_id)}/notes"
        answer = yield Request(
            endpoint=f"{_ISSUE}/notes", method="POST", path=path, body={"body": disarmed(body)}
        )
        return self._written(answer)

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`."""
        path = f"{self._config.path}/issues/{self._iid(issue_id)}/notes/{self._iid(comment_id)}"
        answer = yield Request(
            endpoint=f"{_ISSUE}/notes/{{}}", method="PUT", path=path, body={"body": disarmed(body)}
        )
        self._written(answer)

    def _written(self, answer: Answer) -> str:
        comment_id = whole(mapping(answer.body).get("id"))
        if comment_id is None:
            raise malformed(self.dialect, "answered no note to a note")
        return str(comment_id)

    def _iid(self, value: str) -> str:
        if not _IID.fullmatch(value):
            raise not_found(self.dialect.service, f"issue or note {value!r}")
        return value

    # --- moves and tools ---------------------------------------------------------------------------------

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`: one write changes labels and opens or closes."""
        record, before = yield from self._one(issue_id)
        change = self._change(record, state)
        if not change or (normalise_state(before.state) == normalise_state(state) and before.dispatchable):
            return before.state
        yield Request(
            endpoint=_ISSUE, method="PUT", path=f"{self._config.path}/issues/{issue_id}", body=change
        )
        _, after = yield from self._one(issue_id)
        return after.state

    def _one(self, issue_id: str) -> Flow[tuple[Any, Issue]]:
        path = f"{self._config.path}/issues/{self._iid(issue_id)}"
        answer = yield Request(endpoint=_ISSUE, path=path)

        def read(record: Any) -> Issue:
            return issue_of(record, config=self._config, terminal=self._terminal, blockers={})

        found = snapshots(self.dialect.service, [answer.body], read, wanted=[issue_id])
        if not found:
            raise malformed(self.dialect, "answered another issue than the one asked for")
        return answer.body, found[0]

    def _change(self, record: Any, state: str) -> dict[str, str]:
        """What to write so that the issue is in the state; GitLab's own states need no label."""
        wanted, opened = normalise_state(state), is_opened(record)
        label = self._config.labels.label(state)
        if (label is None or self._config.source is Source.ISSUE) and wanted not in {OPENED, CLOSED}:
            raise no_such_state(self.dialect.service, state, (*self._config.labels.by_state, OPENED, CLOSED))
        change = {}
        if wanted == CLOSED and opened:
            change["state_event"] = "close"
        elif wanted not in self._terminal and not opened:
            change["state_event"] = "reopen"
        if self._config.source is Source.LABELS:
            change |= self._relabelled(label_names(record), label)
        return change

    def _relabelled(self, names: Sequence[str], label: str | None) -> dict[str, str]:
        """Set one label of a state, or none, and touch nobody else's labels."""
        keep = "" if label is None else label.lower()
        others = [each for each in self._config.labels.of_status(names) if each.lower() != keep]
        change = {"add_labels": label, "remove_labels": ",".join(others)}
        return {key: value for key, value in change.items() if value}

    def tools(self) -> tuple[ToolSpec, ...]:
        """`gitlab_api`, unless `scope` is `off`."""
        return self._tool.specs()

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw request; a refusal of GitLab is an answer to the model."""
        del name
        return (yield from self._tool.call(arguments, lambda call: self._beyond(call, issue)))

    def _beyond(self, call: RestCall, issue: Issue) -> str | None:
        """The project may be named by its path or by its number."""
        number = whole(mapping(issue.native_ref).get("project_id"))
        names = [self._config.project, *([str(number)] if number is not None else [])]
        return within(call, self._config.scope, issue=_reach(names, issue.id), project=_reach(names, None))

    def _mark(self, call: RestCall) -> RestCall | str:
        """Mark an agent's comment; a narrowed scope disarms quick actions, which could move the issue."""
        found = _marked(call)
        if self._config.scope is Scope.TOKEN or isinstance(found, str) or not isinstance(found.body, Mapping):
            return found
        body = {
            key: disarmed(value) if key in _OBEYED and isinstance(value, str) else value
            for key, value in found.body.items()
        }
        return replace(found, body=body)


def _reach(projects: Sequence[str], issue: str | None) -> Reach:
    """What a narrowed scope lets the raw tool at: one issue, or with `None` the project."""
    reads: list[tuple[str, ...]] = []
    writes: list[Write] = []
    for project in projects:
        here = ("projects", project)
        one = (*here, "issues", issue or NUMBERED)
        reads.append(here if issue is None else one)
        writes += [Write("PUT", one, _EDITED), *_discussed(one)]
        if issue is None:
            request = (*here, "merge_requests", NUMBERED)
            writes += [
                Write("POST", (*here, "issues"), _NAMED),
                Write("POST", (*here, "labels"), "name color description priority"),
                Write("POST", (*here, "merge_requests"), f"{_REQUEST} source_branch"),
                Write("PUT", request, f"{_REQUEST} add_labels remove_labels state_event discussion_locked"),
                *_discussed(request),
            ]
    return Reach(reads=tuple(reads), writes=tuple(writes))


def _discussed(place: tuple[str, ...]) -> tuple[Write, ...]:
    """The comments of an issue or a merge request, alone or in threads."""
    thread = (*place, "discussions", NUMBERED)
    return (
        Write("POST", (*place, "notes"), "body internal confidential"),
        Write("PUT", (*place, "notes", NUMBERED), "body"),
        Write("DELETE", (*place, "notes", NUMBERED)),
        Write("POST", (*place, "discussions"), "body"),
        Write("PUT", thread, "resolved"),
        Write("POST", (*thread, "notes"), "body"),
        Write("PUT", (*thread, "notes", NUMBERED), "body resolved"),
    )


def _batches(iids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (iids[start : start + PAGE] for start in range(0, len(iids), PAGE))


KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*tools.NAMES, "gitlab_api"),
    configure=read_config,
    flows=GitlabFlows,
    webhooks=GITLAB,
)
