"""What is asked of Redmine, and in which order (TR1, TR2, TR8).

Three habits of Redmine shape this. A key that is not taken makes us anonymous instead of refused, wherever a
project is public; so a poll, and whoever misses an issue, first asks who we are. A forbidden move is taken
and not made; so it is read back. A note that was written has no id in the answer; so it is looked for.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from symphony.domain.issue import Issue, normalise_state
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.base import Comment, Sighting
from symphony.trackers.http import Dialect, Flow, Request, Trail, malformed
from symphony.trackers.raw_tools import Scope
from symphony.trackers.reading import Listing, items, listing, mapping, snapshots, text, whole
from symphony.trackers.redmine import tools, wire
from symphony.trackers.redmine.config import RedmineConfig
from symphony.trackers.redmine.dialect import REDMINE
from symphony.trackers.wording import no_such_state, not_found, not_moved

__all__ = ["RedmineFlows"]

PAGE = BATCH = 100
_UNTOLD = frozenset({403, 404})
_NUMBER = re.compile(r"[1-9]\d{0,8}")
_ISSUE = "/issues/{}.json"
_ISSUES = "/projects/{}/issues.json"


class RedmineFlows:
    """Implements `remote.Flows` for one project. Knows between flows who we are, and ranks of priorities."""

    kind = "redmine"
    dialect: Dialect = REDMINE

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
            issue = wire.issue_of(record, config=self._config, terminal=self._terminal, around=around)
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
            return wire.issue_of(record, config=self._config, terminal=self._terminal, around=around)

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
        trail: Trail | None = None
        while True:
            at = [("limit", str(PAGE)), ("offset", str(len(records)))]
            request = Request(endpoint=endpoint, path=path, query=[*query, *at], conditional=True)
            trail = trail or Trail(self.dialect, request, self._config.access.base)
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

    def _around(self, records: Sequence[Any]) -> Flow[wire.Around]:
        """What is to be known besides the records; nothing is asked where they name nothing new."""
        used = {wire.number_of(mapping(record).get("priority")) for record in records}
        if used - {None, *self._ranks}:
            priorities = yield from self._items("/enumerations/issue_priorities.json", "issue_priorities")
            self._ranks = wire.ranks_of(priorities)
        here = {str(wire.number_of(record)): record for record in records}
        names = dict.fromkeys(name for record in records for name in wire.blocker_ids(record))
        elsewhere = [name for name in names if name not in here]
        others = yield from self._some("/issues.json", "/issues.json", elsewhere)
        found = {str(wire.number_of(record)): record for record in others}
        return wire.Around(ranks=self._ranks, blockers={**here, **found})

    def _items(self, path: str, key: str) -> Flow[list[Any]]:
        body = mapping((yield Request(endpoint=path, path=path, conditional=True)).body)
        found = body.get(key)
        if not isinstance(found, list):
            raise malformed(self.dialect, f"answered no list to {path}")
        return found

    def _statuses(self) -> Flow[Mapping[str, str]]:
        """Ids of the states by name, in the order of Redmine."""
        found = yield from self._items("/issue_statuses.json", "issue_statuses")
        numbers = {text(mapping(status).get("name")): wire.number_of(status) for status in found}
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
        number, login = wire.number_of(user), text(user.get("login"))
        if number is None or login is None:
            raise malformed(self.dialect, "does not tell whose key this is")
        self._me = str(number), login
        return self._me

    def look(self) -> Flow[Sighting]:
        """As `Flows.look`."""
        _, login = yield from self._who()
        path = f"/projects/{self._config.project}.json"
        body = mapping((yield Request(endpoint="/projects/{}.json", path=path)).body)
        name = text(mapping(body.get("project")).get("name")) or self._config.project
        known = yield from self._statuses()
        return Sighting(login=login, scope=name, states=tuple(known))

    # --- comments ----------------------------------------------------------------------------------------

    def comments(self, issue_id: str) -> Flow[Sequence[Comment]]:
        """As `Flows.comments`: the notes in the history of the issue, which comes whole."""
        number, _ = self._me or (yield from self._who())
        path = f"/issues/{self._number(issue_id)}.json"
        request = Request(endpoint=_ISSUE, path=path, query=[("include", "journals")], conditional=True)
        record = mapping((yield request).body).get("issue")
        if not isinstance(mapping(record).get("journals"), list):
            raise malformed(self.dialect, f"answered no history to {_ISSUE}")
        return wire.comments_of(record, me=number)

    def who_may_answer(self, issue_id: str, author_keys: Sequence[str]) -> Flow[frozenset[str]]:
        """As `Flows.who_may_answer`: the author of the issue, and the members of its project."""
        path = f"/issues/{self._number(issue_id)}.json"
        record = mapping(mapping((yield Request(endpoint=_ISSUE, path=path)).body).get("issue"))
        author, project = str(wire.number_of(record.get("author"))), wire.number_of(record.get("project"))
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
            projects = {wire.number_of(mapping(one).get("project")) for one in memberships}
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
        return () if self._config.scope is Scope.OFF else (tools.spec(self._config),)

    def call(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> Flow[ToolResult]:
        """One raw request."""
        del name
        return (yield from tools.call_flow(arguments, self._config, issue, self._is_ours))

    def _is_ours(self, issue_id: str) -> Flow[bool]:
        return bool((yield from self.by_ids([issue_id])))


def _first(body: str) -> str:
    """The first line, where the marker of a comment of ours stands."""
    return body.strip().partition("\n")[0].strip()
