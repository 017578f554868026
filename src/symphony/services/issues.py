"""Issues that are only open or closed: states in labels, and what GitHub and Forgejo share.

A label stands for a state: `status:in-progress` for `In Progress`, unless the settings name another label. An
issue with two such labels contradicts itself and is held back. A closed issue is over, whatever its labels.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator
from typing_extensions import override

from symphony.domain import Blocker, Issue, normalise_state
from symphony.http import Flow, HttpResponse, Page, PageGuard, Query, Request, without_requests
from symphony.http.fields import MalformedRecordError, dig, instant, items, required, text, texts, whole
from symphony.trackers.base import Comment, ConfigProblem, issue_mark
from symphony.trackers.fields import blocked_reason
from symphony.trackers.provider import ProviderSettings, SettingError, matches
from symphony.trackers.raw_tools import ANY, NUMBERED, AllowedWrite, Reach, RestCall, mark_body
from symphony.trackers.remote import Flows

CLOSED = "closed"
PAGE = 100
"""How many records a page of GitHub and GitLab has."""

Label = Annotated[str, AfterValidator(str.strip), matches(r"[^,]+", "be the name of a label, without commas")]
"""The name of a label, without commas, because services separate labels by commas."""
Prefix = Annotated[str, matches(r"(?=.*\S).{1,40}", "be a short text, like status:")]


class StateSource(BaseModel):
    """`tracker.provider.states`: where the state of an issue is kept.

    Attributes:
        sources: the allowed values of `source`.
        source: `issue` for open and closed, or `labels`.
        prefix: the beginning of the label of a state.
        labels: labels of states that do not follow the prefix.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", hide_input_in_errors=True, validate_default=True
    )

    sources: ClassVar[tuple[str, ...]] = ("issue", "labels")

    source: str = "issue"
    prefix: Prefix = "status:"
    labels: dict[str, Label] = {}

    @field_validator("source")
    @classmethod
    def _known_source(cls, value: str) -> str:
        if value not in cls.sources:
            raise SettingError(f"must be one of {', '.join(cls.sources)}")
        return value

    def label_of(self, state: str) -> str:
        """The label of a state."""
        name = normalise_state(state)
        given = {normalise_state(key): label for key, label in self.labels.items()}
        return given.get(name, f"{self.prefix}{name.replace(' ', '-')}")


class LabelledSettings(ProviderSettings):
    """Settings of a tracker whose issues are only open or closed.

    Attributes:
        open_state: the service's name for an open issue.
        states: where the state of an issue is kept.
    """

    closed_states = (CLOSED,)
    open_state: ClassVar[str] = "open"

    states: StateSource = StateSource()

    @classmethod
    @override
    def check(cls, sound: Mapping[str, Any]) -> Iterator[ConfigProblem]:
        """Check that labels are unambiguous, and that only states of the service are used without labels."""
        states: StateSource | None = sound.get("states")
        if states is None:
            return
        on_block = sound.get("on_block")
        named = {
            "active_states": sound.get("active_states", ()),
            "terminal_states": sound.get("terminal_states", ()),
            "on_block": () if on_block is None else (on_block,),
        }
        own = {cls.open_state, CLOSED}
        if states.source == "issue":
            others = " or ".join(f"{{source: {source}}}" for source in states.sources[1:])
            for key, names in named.items():
                for name in names:
                    if normalise_state(name) not in own:
                        mistake = f"names {name!r}, and an issue is {cls.open_state} or {CLOSED}"
                        hint = f"set tracker.provider.states to {others}"
                        yield cls.problem(key, SettingError(mistake, hint=hint))
        labels = [label.lower() for label in cls._labels_of(states, *named.values()).values()]
        if len(set(labels)) < len(labels):
            yield cls.problem("states", SettingError("has one label for two states"))
        if any("," in label for label in labels):
            yield cls.problem("states", SettingError("has a label with a comma, which separates labels"))

    @classmethod
    def _labels_of(cls, states: StateSource, *named: Iterable[str]) -> dict[str, str]:
        """The label of each state that a setting names, in the order and spelling of the settings."""
        spelled: dict[str, str] = {}
        for state in (*(name for names in named for name in names), *states.labels):
            spelled.setdefault(normalise_state(state), state.strip())
        own = {"", cls.open_state, CLOSED}
        return {state: states.label_of(state) for name, state in spelled.items() if name not in own}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The label of each state that is not the service's own."""
        on_block = () if self.on_block is None else (self.on_block,)
        return self._labels_of(self.states, self.active_states, self.terminal_states, on_block)

    @property
    @abstractmethod
    def path(self) -> str:
        """The path of the repository or project below the base address."""

    @property
    def own_states(self) -> tuple[str, str]:
        """The states of the service itself."""
        return self.open_state, CLOSED

    @property
    def all_states(self) -> tuple[str, ...]:
        """The states that an issue can be moved to."""
        return (*self.labels, *self.own_states) if self.states.source == "labels" else self.own_states

    def label_of(self, state: str) -> str | None:
        """The label of a state; `None` for unknown states and for those of the service itself."""
        wanted = normalise_state(state)
        return next((label for name, label in self.labels.items() if normalise_state(name) == wanted), None)

    def status_labels(self, names: Iterable[str]) -> list[str]:
        """The labels of an issue that stand for states, known or not."""
        known = {label.lower() for label in self.labels.values()}
        prefix = self.states.prefix.strip().lower()
        return [
            name
            for name in dict.fromkeys(name.strip() for name in names)
            if name.lower() in known or name.lower().startswith(prefix)
        ]

    def state_of(self, own: str, names: Iterable[str]) -> tuple[str, str | None]:
        """The state of an issue with this state of the service and these labels.

        Returns:
            the state, and why it is unclear, if it is.
        """
        if self.states.source == "issue":
            return own, None
        found = {label.lower(): label for label in self.status_labels(names)}
        states = [self._state_of_label(label) for label in found.values()]
        if own == CLOSED:
            return next((state for state in states if self.is_terminal(state)), CLOSED), None
        if not states:
            return self.open_state, None
        if len(states) == 1:
            return states[0], None
        shown = " and ".join(f"`{label}`" for label in self.status_labels(names))
        state = next((state for state in states if not self.is_terminal(state)), states[0])
        return state, f"its labels contradict each other: {shown}"

    def own_state_of(self, record: Any) -> str:
        """The state of the service itself. Raises `MalformedRecordError`."""
        own = required(record, "state")
        if own not in self.own_states:
            problem = f"has the state {own[:40]!r}, which is neither {self.open_state} nor {CLOSED}"
            raise MalformedRecordError(problem)
        return own

    def objection(self, blocked_by: Iterable[Blocker]) -> str | None:
        """Why an issue with these blockers is held back; `None` if all of them are over."""
        return blocked_reason(blocker for blocker in blocked_by if not self.is_terminal(blocker.state))

    def _state_of_label(self, label: str) -> str:
        for state, known in self.labels.items():
            if known.lower() == label.lower():
                return state
        return label[len(self.states.prefix.strip()) :].strip() or label

    def queries(self, states: Sequence[str]) -> Iterator[Query]:
        """The filters of lists that together contain all issues in these states; one list if possible.

        On some services a label that does not exist filters nothing.
        """
        wanted = set(map(normalise_state, states))
        if self.states.source == "issue":
            own = wanted & set(self.own_states)
            if own:
                yield [("state", "all" if len(own) > 1 else next(iter(own)))]
        elif self.open_state in wanted or self.states.source != "labels":
            yield [("state", "all" if wanted & self.over else self.open_state)]
        else:
            if CLOSED in wanted:
                yield [("state", CLOSED)]
            for state in states:
                label = self.label_of(state)
                if label is not None:
                    yield [
                        ("state", "all" if self.is_terminal(state) else self.open_state),
                        ("labels", label),
                    ]


L = TypeVar("L", bound=LabelledSettings)


class LabelledFlows(Flows[L]):
    """The flows of a tracker whose issues are numbered within a repository or project."""

    id_pattern = re.compile(r"[1-9]\d{0,17}")

    def request(self, path: str, *variables: object, **options: Any) -> Request:
        """`Request.below` the repository."""
        return Request.below(self.settings.path, path, *variables, **options)

    def of_issue(self, issue_id: str, path: str = "", *variables: object, **options: Any) -> Request:
        """A request below an issue. Raises `ServiceError` for an id that is not a number."""
        return self.request(f"/issues/{{}}{path}", self.check_id(issue_id), *variables, **options)

    def state_labels(self, state: str) -> list[str]:
        """The labels that a new issue needs for a state. Raises `TrackerError`: there is no such state."""
        settings = self.settings
        label = settings.label_of(state) if settings.states.source == "labels" else None
        is_known = label is not None or normalise_state(state) in settings.own_states
        if not is_known and settings.states.source in {"issue", "labels"}:
            raise self.service.no_such_state(state, settings.all_states)
        return [] if label is None else [label]

    def created_number(self, answer: HttpResponse, name: str) -> str:
        """The number in the answer to a create."""
        number = whole(dig(answer.body, name))
        if number is None:
            raise self.service.malformed("answered no issue to a new issue")
        return str(number)

    def linked(self, first: Request) -> Flow[list[Any]]:
        """All records of a list. Follows `Link`, or `x-next-page` if a proxy removes that header."""
        first = replace(first, query=[*first.query, ("per_page", str(PAGE))], conditional=True)

        def read(answer: HttpResponse, pager: PageGuard) -> Page:
            records = self.service.list_of(answer.body, first)
            link, number = pager.link(answer), answer.headers.get("x-next-page", "").strip()
            if link is not None:
                return records, replace(first, path=link, query=())
            if number and "link" not in answer.headers:
                return records, replace(first, query=[*first.query, ("page", pager.cursor(number))])
            return records, None

        return self.pages(first, read)


# --- repositories of GitHub and Forgejo ------------------------------------------------------------------

_NAME = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_.-]{1,100}"
REPO_RULE = matches(f"{_NAME}/{_NAME}", "be owner/name")
_EDITED = "title body state state_reason labels assignee assignees milestone due_date unset_due_date type"
_NAMED = "title body labels assignee assignees milestone due_date type"
_PULL = "title body base draft maintainer_can_modify labels assignee assignees milestone"


class RepositorySettings(LabelledSettings):
    """Settings of a tracker that is a repository."""

    repo: str

    @property
    @override
    def path(self) -> str:
        return f"/repos/{self.repo}"


def number_of(record: Any) -> str | None:
    """The number of an issue as text."""
    number = whole(dig(record, "number"))
    return str(number) if number is not None and number > 0 else None


def label_names(record: Any) -> list[str]:
    """The names of a record's labels, which may be texts or maps."""
    labels = items(dig(record, "labels"))
    return texts(label if isinstance(label, str) else dig(label, "name") for label in labels)


def is_pull_request(record: Any) -> bool:
    """Whether a record is a pull request; pull requests and issues share their numbers."""
    return dig(record, "pull_request") is not None


def login_of(record: Any) -> str:
    """The author of an issue or a comment in lower case; empty if the account was deleted."""
    return (text(dig(record, "user", "login")) or "").lower()


R = TypeVar("R", bound=RepositorySettings)


class RepositoryFlows(LabelledFlows[R]):
    """The flows that GitHub and Forgejo share."""

    tool_methods = ("GET", "POST", "PATCH", "PUT", "DELETE")

    @override
    def tool_note(self) -> str:
        return f"The repository is {self.settings.repo}."

    def comments_of(
        self, records: Iterable[Any], *, login: str, may_answer: Callable[[Any], bool | None]
    ) -> tuple[Comment, ...]:
        """The comments of a list; `login` is the daemon's account."""
        return tuple(
            Comment(
                id=str(record["id"]),
                body=text(record.get("body")) or "",
                mine=login_of(record) == login.lower(),
                author=text(dig(record, "user", "login")) or "",
                author_key=login_of(record),
                may_answer=may_answer(record),
                created_at=instant(dig(record, "created_at")),
            )
            for record in records
            if whole(dig(record, "id")) is not None
        )

    def marked_of(self, records: Iterable[Any], key: str, login: str) -> str | None:
        """The number of the issue in a list that this account created with the key."""
        mark = issue_mark(key)
        numbers = (
            number_of(record)
            for record in records
            if mark in (text(dig(record, "body")) or "") and login_of(record) == login.lower()
        )
        return next(numbers, None)

    @override
    def create_comment(self, issue_id: str, body: str, *, key: str) -> Flow[str]:
        return self._written((yield self.of_issue(issue_id, "/comments", method="POST", body={"body": body})))

    @override
    def edit_comment(self, issue_id: str, comment_id: str, body: str) -> Flow[None]:
        path, change = "/issues/comments/{}", {"body": body}
        request = self.request(path, self.check_id(comment_id), method="PATCH", body=change)
        self._written((yield request))

    def _written(self, answer: HttpResponse) -> str:
        comment_id = whole(dig(answer.body, "id"))
        if comment_id is None:
            raise self.service.malformed("answered no comment to a comment")
        return str(comment_id)

    @override
    def mark_comment(self, call: RestCall) -> RestCall | str:
        writes = call.method in {"POST", "PATCH", "PUT"} and "comments" in call.steps
        return mark_body(call, "body") if writes else call

    @override
    def reach(self, call: RestCall, issue: Issue) -> Flow[Reach]:
        """The issue, or the repository without settings, files and merges.

        Requests that name another issue (dependencies, blocks, sub-issues) or another repository are
        excluded.
        """
        del call
        here = ("repos", *self.settings.repo.split("/"))
        one = (*here, "issues", issue.id if self.settings.scope == "issue" else NUMBERED)
        writes = [
            AllowedWrite("PATCH", one, _EDITED),
            AllowedWrite("POST", (*one, "comments"), "body"),
            AllowedWrite("POST PUT", (*one, "labels"), "labels"),
            AllowedWrite("DELETE", (*one, "labels")),
            AllowedWrite("DELETE", (*one, "labels", ANY)),
            AllowedWrite("POST DELETE", (*one, "assignees"), "assignees"),
        ]
        if self.settings.scope == "issue":
            return without_requests(Reach(reads=(one,), writes=tuple(writes)))
        writes += [
            AllowedWrite("POST", (*here, "issues"), _NAMED),
            AllowedWrite("PATCH", (*here, "issues", "comments", NUMBERED), "body"),
            AllowedWrite("DELETE", (*here, "issues", "comments", NUMBERED)),
            AllowedWrite("POST", (*here, "labels"), "name color description"),
            AllowedWrite("POST", (*here, "pulls"), f"{_PULL} head"),
            AllowedWrite("PATCH", (*here, "pulls", NUMBERED), f"{_PULL} state"),
        ]
        return without_requests(Reach(reads=(here,), writes=tuple(writes)))
