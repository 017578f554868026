"""Issues on Forgejo and Gitea: one adapter, two kinds (`forgejo` and `gitea`; docs/trackers/forgejo.md)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from symphony.config import TrackerSettings
from symphony.domain import Blocker, Issue, ToolResult, ToolSpec, normalise_labels, normalise_state
from symphony.trackers import tools, webhooks
from symphony.trackers.base import AccountInfo, Comment, no_such_state, not_found
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
from symphony.trackers.http import Answer, Flow, Pager, Request, ServiceProfile, malformed, next_link
from symphony.trackers.provider import INSECURE_HTTP, SCOPE, ProviderReader
from symphony.trackers.remote import Access, RemoteKind
from symphony.trackers.repository import (
    CLOSED,
    ISSUE,
    NUMBER,
    OPEN,
    REPOSITORY,
    Comments,
    LabelState,
    StatusLabels,
    login_of,
    reach_of,
)
from symphony.trackers.tools import RestCall, RestTool, Scope, within

# What `tracker` means for a repository on Forgejo or Gitea (CF3, TR7).


PROVIDER_KEYS = ("url", "repo", "token", "states", SCOPE, INSECURE_HTTP)
API = "/api/v1"
SCOPED_PREFIX = "status/"
"""Labels with a slash can exclude each other, and then the server itself keeps one state per issue."""
_PART_KEYS = frozenset({"source", "prefix", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Brand:
    """One of the names of the adapter; `short` begins the identifiers of its issues."""

    kind: str
    service: str
    short: str
    url_variable: str
    token_variable: str


FORGEJO = Brand(
    kind="forgejo",
    service="Forgejo",
    short="FJ",
    url_variable="FORGEJO_URL",
    token_variable="FORGEJO_TOKEN",  # noqa: S106 - the name of a variable
)
GITEA = Brand(
    kind="gitea",
    service="Gitea",
    short="GT",
    url_variable="GITEA_URL",
    token_variable="GITEA_TOKEN",  # noqa: S106 - as above
)


class Source(StrEnum):
    """Where the state of an issue is read."""

    ISSUE = "issue"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgejoConfig:
    """One repository; `labels` are those that stand for states, where they are the source."""

    brand: Brand
    access: Access
    owner: str
    repo: str
    source: Source
    labels: StatusLabels
    scope: Scope
    active: tuple[str, ...]
    terminal: tuple[str, ...]

    @property
    def path(self) -> str:
        """The repository's path below the base address."""
        return f"/repos/{self.owner}/{self.repo}"


def reader_of(brand: Brand) -> Callable[[TrackerSettings, Mapping[str, str]], ForgejoConfig]:
    """What reads the settings; it raises `TrackerConfigError` with everything that does not fit."""

    def read(settings: TrackerSettings, environment: Mapping[str, str]) -> ForgejoConfig:
        reader = ProviderReader(brand.kind, settings.provider, environment)
        config = _read(reader, brand, settings)
        reader.done()
        return config

    return read


def _read(reader: ProviderReader, brand: Brand, settings: TrackerSettings) -> ForgejoConfig:
    token = reader.secret("token", variable=brand.token_variable)
    repo = reader.needed("repo", rule=REPOSITORY, must="be owner/name")
    owner, _, name = repo.partition("/")
    if {owner, name} & {".", ".."}:
        reader.wrong("repo", "must be owner/name")
    active = reader.states("active_states", settings.active_states, default=None)
    terminal = reader.states("terminal_states", settings.terminal_states, default=None)
    resting = () if settings.on_block is None else (settings.on_block,)
    part = reader.part("states")
    source = _source(reader, part)
    if source is Source.ISSUE:
        _only_own_states(reader, active_states=active, terminal_states=terminal, on_block=resting)
    headers = {"authorization": f"token {token}"}
    return ForgejoConfig(
        brand=brand,
        access=Access(base=_base(reader, brand), credential=token, headers=headers),
        owner=owner,
        repo=name,
        source=source,
        labels=StatusLabels.of(
            reader,
            part,
            (*active, *terminal, *resting),
            default_prefix=SCOPED_PREFIX,
        ),
        scope=Scope(reader.choice(SCOPE, tuple(Scope), default=Scope.TOKEN)),
        active=active,
        terminal=terminal,
    )


def _base(reader: ProviderReader, brand: Brand) -> str:
    """The address of the API: what people paste is that of the site."""
    if reader.text("url", variable=brand.url_variable) is None:
        hint = f"the address of the site, like https://git.example.org; or the variable {brand.url_variable}"
        reader.wrong("url", "is required", hint=hint)
        return f"https://localhost{API}"
    return reader.address("url", "https://localhost", variable=brand.url_variable).removesuffix(API) + API


def _source(reader: ProviderReader, part: Mapping[str, Any]) -> Source:
    for key in sorted(str(key) for key in part if key not in _PART_KEYS):
        reader.wrong(
            "states", f"has an unknown key {key[:80]!r}", hint=f"keys: {', '.join(sorted(_PART_KEYS))}"
        )
    value = part.get("source", Source.ISSUE)
    if value in tuple(Source):
        return Source(value)
    reader.wrong("states", f"needs a source: {', '.join(Source)}")
    return Source.LABELS


def _only_own_states(reader: ProviderReader, **named: tuple[str, ...]) -> None:
    for key, names in named.items():
        for name in names:
            if normalise_state(name) not in {OPEN, CLOSED}:
                reader.wrong_at(
                    ("tracker", key),
                    f"names {name!r}, and an issue is open or closed",
                    hint="set tracker.provider.states to {source: labels}",
                )


# How Forgejo and Gitea say no: by plain statuses. No limits are their own; a proxy may have some.


def dialect_of(brand: Brand) -> ServiceProfile:
    """The dialect under the name that people know the service by."""
    return ServiceProfile(
        service=brand.service,
        secret="tracker.provider.token",  # noqa: S106 - the name of a setting
        scope="tracker.provider.repo",
    )


# From Forgejo's JSON to issues. Pure.


def number_of(record: Any) -> str | None:
    """The number of an issue as text, or null."""
    number = whole(mapping(record).get("number"))
    return str(number) if number is not None and number > 0 else None


def touched(record: Any) -> datetime | None:
    """When the issue was last changed, to the second; null where it does not say."""
    return instant(mapping(record).get("updated_at"))


def untouched(record: Any) -> bool:
    """Whether nothing was done to the issue since it was made: a dependency is a change like others."""
    changed = touched(record)
    return changed is not None and changed == instant(mapping(record).get("created_at"))


def is_pull_request(record: Any) -> bool:
    """Whether the record is a pull request, which has a number of the same row."""
    return mapping(record).get("pull_request") is not None


def label_ids(record: Any) -> Mapping[str, int]:
    """The ids of a record's labels by name."""
    found = ((mapping(each).get("name"), whole(mapping(each).get("id"))) for each in _labels(record))
    return {name.strip(): number for name, number in found if isinstance(name, str) and number is not None}


def label_names(record: Any) -> list[str]:
    """The names of a record's labels."""
    names = (mapping(each).get("name") for each in _labels(record))
    return [name for name in names if isinstance(name, str) and name.strip()]


def _labels(record: Any) -> Sequence[Any]:
    return items(mapping(record).get("labels"))


def _state(record: Any, config: ForgejoConfig, terminal: frozenset[str]) -> LabelState:
    own = required(record, "state")
    if own not in {OPEN, CLOSED}:
        raise MalformedRecordError(f"has the state {own[:40]!r}, which is neither open nor closed")
    if config.source is Source.ISSUE:
        return LabelState(state=own)
    return config.labels.read(label_names(record), closed=own == CLOSED, terminal=terminal)


def is_over(record: Any, config: ForgejoConfig, terminal: frozenset[str]) -> bool:
    """Whether the issue is in a terminal state, or in none that can be read."""
    try:
        return normalise_state(_state(record, config, terminal).state) in terminal
    except MalformedRecordError:
        return True


def issue_of(
    record: Any,
    *,
    config: ForgejoConfig,
    terminal: frozenset[str],
    blockers: Mapping[str, tuple[Blocker, ...]],
) -> Issue | None:
    """One issue; null for a pull request.

    Raises:
        MalformedRecordError: it has no number, title or state.
    """
    number, title = required(record, "number"), required(record, "title")
    state = _state(record, config, terminal)
    if is_pull_request(record):
        return None
    blocked_by = blockers.get(number, ())
    objection = state.objection or _objection(blocked_by, terminal)
    return Issue(
        id=number,
        identifier=f"{config.brand.short}-{number}",
        title=title,
        state=state.state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={
            "id": whole(record.get("id")),
            "number": whole(record.get("number")),
            "repo": f"{config.owner}/{config.repo}",
        },
        description=text(record.get("body")),
        url=text(record.get("html_url")),
        assignee_id=text(mapping(record.get("assignee")).get("login")),
        labels=normalise_labels(label_names(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("updated_at")),
    )


def _objection(blockers: Sequence[Blocker], terminal: frozenset[str]) -> str | None:
    going_on = [blocker for blocker in blockers if normalise_state(blocker.state or "") not in terminal]
    waits_for = [blocker.identifier or "an issue that the token may not see" for blocker in going_on]
    return f"it is blocked by {', '.join(waits_for)}" if waits_for else None


def blockers_of(
    records: Sequence[Any], config: ForgejoConfig, terminal: frozenset[str]
) -> tuple[Blocker, ...]:
    """The issues that another one depends on; those of other repositories are named with theirs.

    What the token may not see comes as a record without a number.
    """
    return tuple(dict.fromkeys(_blocker(record, config, terminal) for record in records))


def _blocker(record: Any, config: ForgejoConfig, terminal: frozenset[str]) -> Blocker:
    number = number_of(record)
    if number is None:
        return Blocker()
    here = f"{config.owner}/{config.repo}"
    repo = text(mapping(mapping(record).get("repository")).get("full_name")) or here
    if repo.lower() != here.lower():
        own = text(mapping(record).get("state"))
        return Blocker(id=f"{repo}#{number}", identifier=f"{repo}#{number}", state=own)
    try:
        state = _state(record, config, terminal).state
    except MalformedRecordError:
        state = None
    return Blocker(id=number, identifier=f"{config.brand.short}-{number}", state=state)


# What is asked of Forgejo, and in which order (TR1, TR2, TR8).
#
# Nothing here has validators, and an issue does not tell what it depends on. So both are known from when an
# issue was last changed: a poll begins with what changed since the newest change, and where nothing did,
# the list of the last poll is good; dependencies are asked for once after each change, and never for an
# issue that nobody touched since it was made. A change that this cannot see (a deleted issue, a renamed
# label, a blocker in another repository) is seen by the whole list that every tenth poll makes, and by
# every refresh.
#
# Pages are asked for by number: the links to them begin with the address that the server takes for its own,
# which behind a proxy is another one than ours.


PAGE = "50"
"""What servers give at most, unless they are configured otherwise."""
FULL_EVERY = 10
ASKED_AT_ONCE = 50
"""How many issues one list asks the dependencies of; a refresh knows better before anything is dispatched."""
_METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
_ISSUES = "/repos/{}/issues"
_GONE = frozenset({404, 410})
_OK = 200
_UNTOLD = frozenset({403, 404})
_Query = Sequence[tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The last whole list of these states."""

    states: frozenset[str]
    listing: Listing
    uses: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dependencies:
    """What blocked an issue when it had last been changed at `at`."""

    at: datetime | None
    blockers: tuple[Blocker, ...]


class ForgejoFlows:
    """Implements `remote.Flows` for one repository. Knows between flows who we are and what was last seen."""

    def __init__(self, config: ForgejoConfig) -> None:
        self._config = config
        self.kind = config.brand.kind
        self.dialect: ServiceProfile = dialect_of(config.brand)
        self._terminal = frozenset(normalise_state(state) for state in (*config.terminal, CLOSED))
        self._me: str | None = None
        self._seen: _Seen | None = None
        self._newest: datetime | None = None
        self._at_newest: Mapping[str, datetime] = {}
        self._dependencies: dict[str, _Dependencies] = {}
        self._comments = Comments(dialect=self.dialect, path=config.path)
        self._tool = RestTool(
            name="forgejo_api",
            service=self.dialect.service,
            methods=_METHODS,
            scope=config.scope,
            mark=self._comments.mark,
            note=f"The repository is {config.owner}/{config.repo}.",
        )

    # --- reads -------------------------------------------------------------------------------------------

    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        """As `Flows.by_states`."""
        unchanged = yield from self._unchanged()
        wanted = frozenset(normalise_state(state) for state in states)
        seen, self._seen = self._seen, None
        if unchanged and seen and seen.states == wanted and seen.uses < FULL_EVERY:
            seen.uses += 1
            self._seen = seen
            return seen.listing
        records: list[Any] = []
        for query in self._queries(states, wanted):
            order = [("type", "issues"), ("sort", "oldest")]
            records += yield from self._pages(_ISSUES, "/issues", [*query, *order])
        blockers, complete = yield from self._blockers_of_list(records)

        def read(record: Any) -> Issue | None:
            issue = self._issue(record, blockers)
            return issue if issue is not None and normalise_state(issue.state) in wanted else None

        found = listing(self.dialect.service, records, read)
        if complete:
            self._seen = _Seen(states=wanted, listing=found)
        return found

    def _unchanged(self) -> Flow[bool]:
        """Whether nothing is newer than what was newest the last time."""
        query = [("state", "all"), ("type", "issues"), ("sort", "recentupdate"), ("limit", PAGE)]
        since = self._newest
        if since is not None:
            query.append(("since", since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        request = self._request(_ISSUES, "/issues", query=query)
        answer = yield request
        records = self._list(answer, request)
        found = {number: at for each in records if (number := number_of(each)) and (at := touched(each))}
        same = since is not None and found == self._at_newest and next_link(answer.headers) is None
        if found:
            self._newest = max(found.values())
            self._at_newest = {number: at for number, at in found.items() if at >= self._newest}
        return same

    def _queries(self, states: Sequence[str], wanted: frozenset[str]) -> Iterator[_Query]:
        """What to list so that nothing in the states is missed. A label that is not there filters nothing."""
        if self._config.source is Source.ISSUE:
            own = wanted & {OPEN, CLOSED}
            if own:
                yield [("state", "all" if len(own) > 1 else next(iter(own)))]
            return
        if OPEN in wanted:
            yield [("state", "all" if wanted & self._terminal else OPEN)]
            return
        if CLOSED in wanted:
            yield [("state", CLOSED)]
        for state in states:
            label = self._config.labels.label(state)
            over = normalise_state(state) in self._terminal
            if label is not None:
                yield [("state", "all" if over else OPEN), ("labels", label)]

    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """As `Flows.by_ids`: one by one, since there is no list by number; 404 means gone."""
        numbers = [number for number in ids if NUMBER.fullmatch(number)]
        records = []
        for number in numbers:
            answer = yield self._request(ISSUE, f"/issues/{number}", accept=_GONE)
            if answer.status == _OK:
                records.append(answer.body)
        if len(records) < len(numbers):  # is it the issue that is gone, or the whole repository?
            yield self._request(_ISSUES, "/issues", query=[("limit", "1")])
        blockers = {}
        for record in records:
            found = number_of(record)
            if found is not None and not is_pull_request(record):
                known = self._known(found, record)
                blockers[found] = known if known == () else (yield from self._ask_blockers(found, record))

        def read(record: Any) -> Issue | None:
            return self._issue(record, blockers)

        return snapshots(self.dialect.service, records, read, wanted=ids)

    def _issue(self, record: Any, blockers: Mapping[str, tuple[Blocker, ...]]) -> Issue | None:
        return issue_of(record, config=self._config, terminal=self._terminal, blockers=blockers)

    def _blockers_of_list(
        self, records: Sequence[Any]
    ) -> Flow[tuple[Mapping[str, tuple[Blocker, ...]], bool]]:
        """What blocks the issues of a list, and whether all that may be blocked were asked about."""
        found: dict[str, tuple[Blocker, ...]] = {}
        asked, complete = 0, True
        listed = {number: record for record in records if (number := number_of(record))}
        self._dependencies = {
            number: known for number, known in self._dependencies.items() if number in listed
        }
        for number, record in listed.items():
            known = self._known(number, record)
            if known == () or (known is None and untouched(record)):
                continue
            if asked == ASKED_AT_ONCE:
                complete = False
                found[number] = known or ()
                continue
            asked += 1
            found[number] = yield from self._ask_blockers(number, record)
        return found, complete

    def _known(self, number: str, record: Any) -> tuple[Blocker, ...] | None:
        """What blocked the issue after its last change, or null; an issue that is over is not blocked."""
        if is_over(record, self._config, self._terminal):
            return ()
        known = self._dependencies.get(number)
        return known.blockers if known is not None and known.at == touched(record) else None

    def _ask_blockers(self, number: str, record: Any) -> Flow[tuple[Blocker, ...]]:
        """The dependencies of an issue; a repository that has them switched off answers 404.

        No header says whether there are more pages, so the last one is that which tells nothing new.
        """
        found: dict[Blocker, None] = {}
        path = f"/issues/{number}/dependencies"
        request = self._request(f"{ISSUE}/dependencies", path, accept=_GONE)
        trail = Pager(self.dialect, request, self._config.access.base)
        page = 1
        while True:
            request = self._request(
                f"{ISSUE}/dependencies", path, query=[("page", str(page)), ("limit", PAGE)], accept=_GONE
            )
            answer = yield request
            records = [] if answer.status != _OK else self._list(answer, request)
            before = len(found)
            found.update(dict.fromkeys(blockers_of(records, self._config, self._terminal)))
            trail.count(len(records))
            if len(found) == before:
                break
            page = int(trail.cursor(page + 1))
        self._dependencies[number] = _Dependencies(at=touched(record), blockers=tuple(found))
        return tuple(found)

    def _request(
        self, endpoint: str, below: str, *, query: _Query = (), accept: frozenset[int] = frozenset()
    ) -> Request:
        return Request(endpoint=endpoint, path=f"{self._config.path}{below}", query=query, accept=accept)

    def _pages(self, endpoint: str, below: str, query: _Query) -> Flow[list[Any]]:
        """All records of a list; there is a next page where `Link` says so."""
        records: list[Any] = []
        trail = Pager(self.dialect, self._request(endpoint, below), self._config.access.base)
        page = 1
        while True:
            request = self._request(endpoint, below, query=[*query, ("limit", PAGE), ("page", str(page))])
            answer = yield request
            found = self._list(answer, request)
            records += found
            trail.count(len(found))
            if next_link(answer.headers) is None:
                return records
            trail.cursor(" ".join(number_of(record) or "-" for record in found))
            page += 1

    def _list(self, answer: Answer, request: Request) -> list[Any]:
        if not isinstance(answer.body, list):
            raise malformed(self.dialect, f"answered no list to {request.endpoint}")
        return answer.body

    def account_info(self) -> Flow[AccountInfo]:
        """As `Flows.account_info`."""
        config = self._config
        yield self._request(_ISSUES, "/issues", query=[("limit", "1")])
        login = yield from self._login()
        named = config.labels.by_state if config.source is Source.LABELS else ()
        return AccountInfo(login=login, scope=f"{config.owner}/{config.repo}", states=(*named, OPEN, CLOSED))

    def _login(self) -> Flow[str]:
        if self._me is None:
            answer = yield Request(endpoint="/user", path="/user")
            self._me = text(mapping(answer.body).get("login"))
        if self._me is None:
            raise malformed(self.dialect, "does not tell whose token this is")
        return self._me

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`; they come on one page, whatever their number."""
        me = yield from self._login()
        request = self._request(f"{ISSUE}/comments", f"/issues/{self._comments.number(issue_id)}/comments")
        answer = yield request
        return self._comments.read(self._list(answer, request), login=me, may_answer=lambda _: None)

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: the author of the issue, and who may be assigned to issues.

        The latter are those who may write to the repository; a token without `read:repository` is not told.
        """
        wanted = frozenset(author_keys) - {""}
        answer = yield self._request(ISSUE, f"/issues/{self._comments.number(issue_id)}")
        found = wanted & {login_of(answer.body)}
        if found == wanted:
            return found
        answer = yield self._request("/repos/{}/assignees", "/assignees", accept=_UNTOLD)
        writers = answer.body if answer.status == _OK and isinstance(answer.body, list) else []
        return found | wanted & {(text(mapping(one).get("login")) or "").lower() for one in writers}

    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        """As `Flows.create_comment`; the server gives the id."""
        del key
        return (yield from self._comments.create(issue_id, body))

    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        """As `Flows.edit_comment`."""
        del issue_id
        yield from self._comments.edit(comment_id, body)

    # --- moves and tools ---------------------------------------------------------------------------------

    def move(self, issue_id: str, state: str) -> Flow[str]:
        """As `Flows.move`."""
        before = yield from self._one(issue_id)
        if normalise_state(before.state) == normalise_state(state) and before.dispatchable:
            return before.state
        if normalise_state(state) in {OPEN, CLOSED}:
            yield from self._set_own(before.id, normalise_state(state))
        else:
            yield from self._set_label(before.id, state)
        return (yield from self._one(issue_id)).state

    def _one(self, issue_id: str) -> Flow[Issue]:
        found = yield from self.by_ids([self._comments.number(issue_id)])
        if not found:
            raise not_found(self.dialect.service, f"issue {issue_id}")
        return found[0]

    def _set_own(self, issue_id: str, state: str) -> Flow[None]:
        path = f"{self._config.path}/issues/{issue_id}"
        answer = yield Request(endpoint=ISSUE, method="PATCH", path=path, body={"state": state})
        if state == OPEN and self._config.source is Source.LABELS:
            yield from self._remove_labels(issue_id, label_ids(answer.body), keep=None)

    def _set_label(self, issue_id: str, state: str) -> Flow[None]:
        label = self._config.labels.label(state)
        if label is None or self._config.source is Source.ISSUE:
            raise no_such_state(self.dialect.service, state, (*self._config.labels.by_state, OPEN, CLOSED))
        path = f"{self._config.path}/issues/{issue_id}/labels"
        endpoint = f"{ISSUE}/labels"
        answer = yield Request(endpoint=endpoint, method="POST", path=path, body={"labels": [label]})
        labels = label_ids({"labels": answer.body})
        if label.lower() not in {name.lower() for name in labels}:
            hint = "create it in the repository or its organisation, best as an exclusive one"
            raise not_found(self.dialect.service, f"label {label!r}", hint=hint)
        yield from self._remove_labels(issue_id, labels, keep=label)

    def _remove_labels(self, issue_id: str, labels: Mapping[str, int], *, keep: str | None) -> Flow[None]:
        """Take the other status labels away, which exclusive ones have gone by themselves."""
        for label in self._config.labels.of_status(labels):
            if keep is None or label.lower() != keep.lower():
                yield Request(
                    endpoint=f"{ISSUE}/labels/{{}}",
                    method="DELETE",
                    path=f"{self._config.path}/issues/{issue_id}/labels/{labels[label]}",
                    accept=_GONE,
                )

    def tools(self) -> tuple[ToolSpec, ...]:
        """`forgejo_api`, unless `scope` is `off`."""
        return self._tool.specs()

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw request; a refusal of the server is an answer to the model."""
        del name
        return (yield from self._tool.call(arguments, lambda call: self._beyond(call, issue)))

    def _beyond(self, call: RestCall, issue: Issue) -> str | None:
        owner, repo = self._config.owner, self._config.repo
        return within(
            call,
            self._config.scope,
            issue=reach_of(owner, repo, issue.id),
            project=reach_of(owner, repo, None),
        )


KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=frozenset({FORGEJO.token_variable}),
    tools=(*tools.NAMES, "forgejo_api"),
    configure=reader_of(FORGEJO),
    flows=ForgejoFlows,
    webhooks=webhooks.FORGEJO,
)
"""What `tracker` means for Forgejo (TR10)."""


# The same adapter under the name of Gitea, with variables of its own.


GITEA_KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=frozenset({GITEA.token_variable}),
    tools=(*tools.NAMES, "forgejo_api"),
    configure=reader_of(GITEA),
    flows=ForgejoFlows,
    webhooks=webhooks.FORGEJO,
)
"""What `tracker` means for Gitea (TR10)."""
