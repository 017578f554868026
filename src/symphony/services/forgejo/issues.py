"""Issues on Forgejo and Gitea: one adapter, two kinds (`forgejo` and `gitea`; docs/trackers/forgejo.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from msgspec import Struct
from typing_extensions import override

from symphony.domain import Blocker, Issue, normalise_labels, normalise_state
from symphony.http import Flow, HttpResponse, Page, PageGuard, Query, Request, next_link
from symphony.http.fields import MalformedRecordError, dig, instant, items, required, text, whole
from symphony.services import issues
from symphony.services.forgejo import SERVICE, api_address
from symphony.trackers import webhooks
from symphony.trackers.base import AccountInfo, Comment, IssueToCreate, marked_issue_body
from symphony.trackers.fields import Listing
from symphony.trackers.provider import Address, Credential, ServiceAccess, StandInVariable
from symphony.trackers.remote import ListingCache, RemoteKind

# --- settings --------------------------------------------------------------------------------------------


class ForgejoStates(issues.StateSource):
    """Where states are kept. Labels with a slash can be exclusive; the server then keeps one per issue."""

    prefix: issues.Prefix = "status/"


class ForgejoSettings(issues.RepositorySettings):
    """One repository; `url` is the address of the site or of its API."""

    kind = "forgejo"
    service_name: ClassVar[str] = SERVICE.name
    short_name: ClassVar[str] = "FJ"

    url: Annotated[Address, StandInVariable("FORGEJO_URL")]
    repo: Annotated[str, issues.REPO_RULE]
    token: Annotated[Credential, StandInVariable("FORGEJO_TOKEN")]
    states: ForgejoStates = ForgejoStates()

    @property
    @override
    def access(self) -> ServiceAccess:
        token = self.token.reveal()
        return ServiceAccess(base=api_address(self.url), credential=token, headers=SERVICE.headers(token))


class GiteaSettings(ForgejoSettings):
    """As `ForgejoSettings` for Gitea, with its own variables."""

    kind = "gitea"
    service_name = "Gitea"
    short_name = "GT"

    url: Annotated[Address, StandInVariable("GITEA_URL")]
    token: Annotated[Credential, StandInVariable("GITEA_TOKEN")]


# --- from JSON to issues ---------------------------------------------------------------------------------

Blockers = Mapping[str, tuple[Blocker, ...]]
"""The blockers of issues, by number."""


def label_ids(labels: Any) -> dict[str, int]:
    """The ids of labels by name."""
    return {
        name.strip(): label_id
        for label in items(labels)
        if (name := text(dig(label, "name"))) and (label_id := whole(dig(label, "id"))) is not None
    }


def _state_of(record: Any, settings: ForgejoSettings) -> tuple[str, str | None]:
    """The state, and why it is not clear. Raises `MalformedRecordError`."""
    return settings.state_of(settings.own_state_of(record), issues.label_names(record))


def updated_at(record: Any) -> datetime | None:
    """When an issue was last changed, to the second."""
    return instant(dig(record, "updated_at"))


def issue_of(record: Any, settings: ForgejoSettings, blockers: Blockers) -> Issue | None:
    """One issue; `None` for a pull request.

    Raises:
        MalformedRecordError: it has no number, title or state.
    """
    number, title = required(record, "number"), required(record, "title")
    state, unclear = _state_of(record, settings)
    if issues.is_pull_request(record):
        return None
    blocked_by = blockers.get(number, ())
    objection = unclear or settings.objection(blocked_by)
    return Issue(
        id=number,
        identifier=f"{settings.short_name}-{number}",
        title=title,
        state=state,
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={
            "id": whole(record.get("id")),
            "number": whole(record.get("number")),
            "repo": settings.repo,
        },
        description=text(record.get("body")),
        url=text(record.get("html_url")),
        assignee_id=text(dig(record, "assignee", "login")),
        labels=normalise_labels(issues.label_names(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=updated_at(record),
    )


def blocker_of(record: Any, settings: ForgejoSettings) -> Blocker:
    """A dependency: empty if the token may not see it; named with its repository if that is another one."""
    number = issues.number_of(record)
    if number is None:
        return Blocker()
    repo = text(dig(record, "repository", "full_name")) or settings.repo
    if repo.lower() != settings.repo.lower():
        name = f"{repo}#{number}"
        return Blocker(id=name, identifier=name, state=text(dig(record, "state")))
    try:
        state, _ = _state_of(record, settings)
    except MalformedRecordError:
        return Blocker(id=number, identifier=f"{settings.short_name}-{number}")
    return Blocker(id=number, identifier=f"{settings.short_name}-{number}", state=state)


# --- flows -----------------------------------------------------------------------------------------------
# The API has no validators, and an issue does not list its dependencies. The time of the last change replaces
# both. A poll first asks for issues changed since the newest known change; if there are none, it reuses the
# list of the last poll. The dependencies of an issue are requested once after each of its changes, and never
# for an issue that was not changed since its creation. Every tenth poll reads the full list, which shows
# other changes (a deleted issue, a renamed label, a blocker in another repository); a refresh shows them too.
# Pages are requested by number, because behind a proxy the server's links have another address.

PAGE = 50
"""The largest page of a server with default settings."""
FULL_EVERY = 10
DEPENDENCIES_PER_LIST = 50
"""For how many issues one list requests dependencies. A refresh completes them before a dispatch."""
_OK = 200
_GONE = frozenset({404, 410})
_NOT_TOLD = frozenset({403, 404})


class _Dependencies(Struct, frozen=True, kw_only=True):
    """The blockers of an issue that was last changed at `at`."""

    at: datetime | None
    blockers: tuple[Blocker, ...]


class ForgejoFlows(issues.RepositoryFlows[ForgejoSettings]):
    """The flows of one repository."""

    tool_name = "forgejo_api"
    label_scope = "/"

    def __init__(self, settings: ForgejoSettings) -> None:
        super().__init__(settings)
        self.service = replace(SERVICE, name=settings.service_name)
        self._login: str | None = None
        self._listings = ListingCache(FULL_EVERY)
        self._newest: Mapping[str, datetime] = {}
        self._dependencies: dict[str, _Dependencies] = {}

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def by_states(self, states: Sequence[str]) -> Flow[Listing]:
        unchanged = yield from self._unchanged()
        cached = self._listings.reuse(states, unchanged=unchanged)
        if cached is not None:
            return cached
        records: list[Any] = []
        for query in self.settings.queries(states):
            records += yield from self._list([*query, ("type", "issues"), ("sort", "oldest")])
        blockers, complete = yield from self._blockers_of_list(records)
        found = yield from self.listing(
            records, lambda record: issue_of(record, self.settings, blockers), states
        )
        if complete:
            self._listings.keep(states, found)
        return found

    def _unchanged(self) -> Flow[bool]:
        """Whether no issue was changed since the last poll."""
        query = [("state", "all"), ("type", "issues"), ("sort", "recentupdate"), ("limit", str(PAGE))]
        last = max(self._newest.values(), default=None)
        if last is not None:
            query.append(("since", last.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        request = self.request("/issues", query=query)
        answer = yield request
        found = {
            number: at
            for record in self.service.list_of(answer.body, request)
            if (number := issues.number_of(record)) and (at := updated_at(record))
        }
        unchanged = last is not None and found == self._newest and next_link(answer.headers) is None
        if found:
            newest = max(found.values())
            self._newest = {number: at for number, at in found.items() if at == newest}
        return unchanged

    @override
    def by_ids(self, ids: Sequence[str]) -> Flow[Sequence[Issue]]:
        """Makes one request for each issue, because there is no list by number."""
        numbers = self.valid_ids(ids)
        records = []
        for number in numbers:
            answer = yield self.of_issue(number, accept=_GONE)
            if answer.status == _OK:
                records.append(answer.body)
        if len(records) < len(numbers):  # fails if the whole repository is gone
            yield self.request("/issues", query=[("limit", "1")])
        blockers = {}
        for record in records:
            number_found = issues.number_of(record)
            if number_found is not None and not issues.is_pull_request(record):
                known = self._known_blockers(number_found, record)
                blockers[number_found] = (
                    known if known == () else (yield from self._request_blockers(number_found, record))
                )
        return self.snapshots(records, lambda record: issue_of(record, self.settings, blockers), ids)

    def _list(self, query: Query) -> Flow[list[Any]]:
        first = self.request("/issues", query=[*query, ("limit", str(PAGE)), ("page", "1")])
        page = 1

        def read(answer: HttpResponse, pager: PageGuard) -> Page:
            nonlocal page
            records = self.service.list_of(answer.body, first)
            if next_link(answer.headers) is None:
                return records, None
            pager.cursor(" ".join(issues.number_of(record) or "-" for record in records))
            page += 1
            paging = [("limit", str(PAGE)), ("page", str(page))]
            return records, replace(first, query=[*query, *paging])

        return self.pages(first, read)

    @override
    def account_info(self) -> Flow[AccountInfo]:
        yield self.request("/issues", query=[("limit", "1")])
        login = yield from self._account()
        return AccountInfo(login=login, scope=self.settings.repo, states=self.settings.all_states)

    def _account(self) -> Flow[str]:
        if self._login is None:
            answer = yield Request(endpoint="/user", path="/user")
            self._login = text(dig(answer.body, "login"))
        if self._login is None:
            raise self.service.malformed("does not show the account of this token")
        return self._login

    # --- dependencies ------------------------------------------------------------------------------------

    def _blockers_of_list(self, records: Sequence[Any]) -> Flow[tuple[Blockers, bool]]:
        """The blockers of the issues of a list, and whether they are complete."""
        found: dict[str, tuple[Blocker, ...]] = {}
        requested, complete = 0, True
        listed = {number: record for record in records if (number := issues.number_of(record))}
        self._dependencies = {
            number: known for number, known in self._dependencies.items() if number in listed
        }
        for number, record in listed.items():
            known = self._known_blockers(number, record)
            created = instant(dig(record, "created_at"))
            if known == () or (known is None and created is not None and created == updated_at(record)):
                continue  # a new dependency would have changed the issue
            if requested == DEPENDENCIES_PER_LIST:
                complete = False
                found[number] = known or ()
                continue
            requested += 1
            found[number] = yield from self._request_blockers(number, record)
        return found, complete

    def _known_blockers(self, number: str, record: Any) -> tuple[Blocker, ...] | None:
        """The blockers of the issue after its last change; `()` for an issue that is over or malformed."""
        try:
            if self.settings.is_terminal(_state_of(record, self.settings)[0]):
                return ()
        except MalformedRecordError:
            return ()
        known = self._dependencies.get(number)
        return known.blockers if known is not None and known.at == updated_at(record) else None

    def _request_blockers(self, number: str, record: Any) -> Flow[tuple[Blocker, ...]]:
        """The dependencies of an issue; none if the repository has them switched off (404).

        No header announces another page, so the last page is the one without a new dependency.
        """
        found: dict[Blocker, None] = {}
        page = 1

        def request() -> Request:
            query = [("page", str(page)), ("limit", str(PAGE))]
            return self.of_issue(number, "/dependencies", query=query, accept=_GONE)

        def read(answer: HttpResponse, pager: PageGuard) -> Page:
            nonlocal page
            records = self.service.list_of(answer.body, request()) if answer.status == _OK else []
            before = len(found)
            found.update(dict.fromkeys(blocker_of(each, self.settings) for each in records))
            if len(found) == before:
                return records, None
            page = int(pager.cursor(page + 1))
            return records, request()

        yield from self.pages(request(), read)
        self._dependencies[number] = _Dependencies(at=updated_at(record), blockers=tuple(found))
        return tuple(found)

    # --- comments ----------------------------------------------------------------------------------------

    @override
    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """All comments are on one page."""
        login = yield from self._account()
        request = self.of_issue(issue_id, "/comments")
        records = self.service.list_of((yield request).body, request)
        return self.comments_of(records, login=login, may_answer=lambda _: None)

    @override
    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """The author of the issue, and the assignable accounts, which may write to the repository.

        A token without `read:repository` cannot list the latter.
        """
        wanted = frozenset(author_keys) - {""}
        answer = yield self.of_issue(issue_id)
        found = wanted & {issues.login_of(answer.body)}
        if found == wanted:
            return found
        answer = yield self.request("/assignees", accept=_NOT_TOLD)
        writers = items(answer.body) if answer.status == _OK else ()
        return found | wanted & {(text(dig(writer, "login")) or "").lower() for writer in writers}

    # --- new issues --------------------------------------------------------------------------------------

    @override
    def find_created(self, key: str, since: datetime) -> Flow[str | None]:
        login = yield from self._account()
        moment = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        query = [("state", "all"), ("type", "issues"), ("created_by", login), ("since", moment)]
        return self.marked_of((yield from self._list(query)), key, login)

    @override
    def create_issue(self, new: IssueToCreate, *, key: str) -> Flow[str]:
        """Create an issue with the label of its state. Labels must exist, because the API takes their ids."""
        wanted = list(dict.fromkeys([*new.labels, *self.state_labels(new.state)]))
        known = (yield from self._known_labels()) if wanted else {}
        body = {
            "title": new.title,
            "body": marked_issue_body(new, key),
            "labels": [self._label_id(name, known) for name in wanted],
        }
        answer = yield self.request("/issues", method="POST", body=body)
        return self.created_number(answer, "number")

    def _label_id(self, name: str, known: Mapping[str, int]) -> int:
        for label, label_id in known.items():
            if label.lower() == name.strip().lower():
                return label_id
        raise self.service.not_found(
            f"label {name!r}", hint="create it in the repository or its organisation"
        )

    def _known_labels(self) -> Flow[dict[str, int]]:
        """The labels of the organisation, if there is one, and of the repository."""
        owner, found = self.settings.repo.partition("/")[0], dict[str, int]()
        for endpoint, path in (
            ("/orgs/{}/labels", f"/orgs/{owner}/labels"),
            ("/repos/{}/labels", f"{self.settings.path}/labels"),
        ):
            page = 1
            while True:
                query = [("page", str(page)), ("limit", str(PAGE))]
                answer = yield Request(endpoint=endpoint, path=path, query=query, accept=_NOT_TOLD)
                labels = label_ids(answer.body) if answer.status == _OK else {}
                if labels.keys() <= found.keys():
                    break  # no header announces another page
                found |= labels
                page += 1
        return found

    # --- moves and labels ---------------------------------------------------------------------------------

    @override
    def names_of_label(self, label_id: str) -> Flow[Sequence[str] | None]:
        """The label's names in the repository or its organisation."""
        owner = self.settings.repo.partition("/")[0]
        for endpoint, path in (
            ("/repos/{}/labels/{}", f"{self.settings.path}/labels/{label_id}"),
            ("/orgs/{}/labels/{}", f"/orgs/{owner}/labels/{label_id}"),
        ):
            answer = yield Request(endpoint=endpoint, path=path, accept=_NOT_TOLD)
            if (name := text(dig(answer.body, "name"))) is not None and answer.status == _OK:
                return [name]
        return None

    @override
    def move(self, issue_id: str, state: str) -> Flow[str]:
        wanted = normalise_state(state)
        before = yield from self.issue(issue_id)
        if normalise_state(before.state) == wanted and before.dispatchable:
            return before.state
        if wanted not in self.settings.own_states:
            yield from self._set_label(issue_id, state)
        else:
            answer = yield self.of_issue(issue_id, method="PATCH", body={"state": wanted})
            if wanted == self.settings.open_state and self.settings.states.source == "labels":
                yield from self._remove_labels(issue_id, label_ids(dig(answer.body, "labels")), keep="")
        return (yield from self.issue(issue_id)).state

    def _set_label(self, issue_id: str, state: str) -> Flow[None]:
        label = self.settings.label_of(state)
        if label is None or self.settings.states.source != "labels":
            raise self.service.no_such_state(state, self.settings.all_states)
        answer = yield self.of_issue(issue_id, "/labels", method="POST", body={"labels": [label]})
        labels = label_ids(answer.body)
        if label.lower() not in map(str.lower, labels):
            raise self.service.not_found(
                f"label {label!r}",
                hint="create it in the repository or its organisation, best as an exclusive one",
            )
        yield from self._remove_labels(issue_id, labels, keep=label)

    def _remove_labels(self, issue_id: str, labels: Mapping[str, int], *, keep: str) -> Flow[None]:
        """Remove all other status labels; the server has already removed exclusive ones."""
        for label in self.settings.status_labels(labels):
            if label.lower() != keep.lower():
                path, label_id = "/labels/{}", labels[label]
                yield self.of_issue(issue_id, path, label_id, method="DELETE", accept=_GONE)


KIND = RemoteKind(ForgejoSettings, ForgejoFlows, webhooks=webhooks.FORGEJO)
GITEA_KIND = RemoteKind(GiteaSettings, ForgejoFlows, webhooks=webhooks.FORGEJO)
