"""What is asked of Forgejo, and in which order (TR1, TR2, TR8).

Nothing here has validators, and an issue does not tell what it depends on. So both are known from when an
issue was last changed: a poll begins with what changed since the newest change, and where nothing did, the
list of the last poll is good; dependencies are asked for once after each change, and never for an issue that
nobody touched since it was made. A change that this cannot see (a deleted issue, a renamed label, a
blocker in another repository) is seen by the whole list that every tenth poll makes, and by every refresh.

Pages are asked for by number: the links to them begin with the address that the server takes for its own,
which behind a proxy is another one than ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from symphony.domain.issue import Blocker, Issue, normalise_state
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.base import Comment, Sighting
from symphony.trackers.forgejo import wire
from symphony.trackers.forgejo.config import ForgejoConfig, Source
from symphony.trackers.forgejo.dialect import dialect_of
from symphony.trackers.http import Answer, Dialect, Flow, Request, Trail, malformed, next_link
from symphony.trackers.raw_tools import RestCall, RestTool, within
from symphony.trackers.reading import Listing, listing, mapping, snapshots, text
from symphony.trackers.repository import ISSUE, NUMBER, Comments, login_of, reach_of
from symphony.trackers.status_labels import CLOSED, OPEN
from symphony.trackers.wording import no_such_state, not_found

__all__ = ["ForgejoFlows"]

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
        self.dialect: Dialect = dialect_of(config.brand)
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
        found = {
            number: at for each in records if (number := wire.number_of(each)) and (at := wire.touched(each))
        }
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
            found = wire.number_of(record)
            if found is not None and not wire.is_pull_request(record):
                known = self._known(found, record)
                blockers[found] = known if known == () else (yield from self._ask_blockers(found, record))

        def read(record: Any) -> Issue | None:
            return self._issue(record, blockers)

        return snapshots(self.dialect.service, records, read, wanted=ids)

    def _issue(self, record: Any, blockers: Mapping[str, tuple[Blocker, ...]]) -> Issue | None:
        return wire.issue_of(record, config=self._config, terminal=self._terminal, blockers=blockers)

    def _blockers_of_list(
        self, records: Sequence[Any]
    ) -> Flow[tuple[Mapping[str, tuple[Blocker, ...]], bool]]:
        """What blocks the issues of a list, and whether all that may be blocked were asked about."""
        found: dict[str, tuple[Blocker, ...]] = {}
        asked, complete = 0, True
        listed = {number: record for record in records if (number := wire.number_of(record))}
        self._dependencies = {
            number: known for number, known in self._dependencies.items() if number in listed
        }
        for number, record in listed.items():
            known = self._known(number, record)
            if known == () or (known is None and wire.untouched(record)):
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
        if wire.is_over(record, self._config, self._terminal):
            return ()
        known = self._dependencies.get(number)
        return known.blockers if known is not None and known.at == wire.touched(record) else None

    def _ask_blockers(self, number: str, record: Any) -> Flow[tuple[Blocker, ...]]:
        """The dependencies of an issue; a repository that has them switched off answers 404.

        No header says whether there are more pages, so the last one is that which tells nothing new.
        """
        found: dict[Blocker, None] = {}
        path = f"/issues/{number}/dependencies"
        request = self._request(f"{ISSUE}/dependencies", path, accept=_GONE)
        trail = Trail(self.dialect, request, self._config.access.base)
        page = 1
        while True:
            request = self._request(
                f"{ISSUE}/dependencies", path, query=[("page", str(page)), ("limit", PAGE)], accept=_GONE
            )
            answer = yield request
            records = [] if answer.status != _OK else self._list(answer, request)
            before = len(found)
            found.update(dict.fromkeys(wire.blockers_of(records, self._config, self._terminal)))
            trail.count(len(records))
            if len(found) == before:
                break
            page = int(trail.cursor(page + 1))
        self._dependencies[number] = _Dependencies(at=wire.touched(record), blockers=tuple(found))
        return tuple(found)

    def _request(
        self, endpoint: str, below: str, *, query: _Query = (), accept: frozenset[int] = frozenset()
    ) -> Request:
        return Request(endpoint=endpoint, path=f"{self._config.path}{below}", query=query, accept=accept)

    def _pages(self, endpoint: str, below: str, query: _Query) -> Flow[list[Any]]:
        """All records of a list; there is a next page where `Link` says so."""
        records: list[Any] = []
        trail = Trail(self.dialect, self._request(endpoint, below), self._config.access.base)
        page = 1
        while True:
            request = self._request(endpoint, below, query=[*query, ("limit", PAGE), ("page", str(page))])
            answer = yield request
            found = self._list(answer, request)
            records += found
            trail.count(len(found))
            if next_link(answer.headers) is None:
                return records
            trail.cursor(" ".join(wire.number_of(record) or "-" for record in found))
            page += 1

    def _list(self, answer: Answer, request: Request) -> list[Any]:
        if not isinstance(answer.body, list):
            raise malformed(self.dialect, f"answered no list to {request.endpoint}")
        return answer.body

    def look(self) -> Flow[Sighting]:
        """As `Flows.look`."""
        config = self._config
        yield self._request(_ISSUES, "/issues", query=[("limit", "1")])
        login = yield from self._login()
        named = config.labels.by_state if config.source is Source.LABELS else ()
        return Sighting(login=login, scope=f"{config.owner}/{config.repo}", states=(*named, OPEN, CLOSED))

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
            yield from self._remove_labels(issue_id, wire.label_ids(answer.body), keep=None)

    def _set_label(self, issue_id: str, state: str) -> Flow[None]:
        label = self._config.labels.label(state)
        if label is None or self._config.source is Source.ISSUE:
            raise no_such_state(self.dialect.service, state, (*self._config.labels.by_state, OPEN, CLOSED))
        path = f"{self._config.path}/issues/{issue_id}/labels"
        endpoint = f"{ISSUE}/labels"
        answer = yield Request(endpoint=endpoint, method="POST", path=path, body={"labels": [label]})
        labels = wire.label_ids({"labels": answer.body})
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
