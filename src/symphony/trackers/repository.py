"""What Forgejo, Gitea and GitHub have alike: the comments of a repository's issues, and what a number is."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symphony.domain import normalise_state
from symphony.trackers.base import Comment, not_found
from symphony.trackers.fields import mapping, text, whole
from symphony.trackers.http import Answer, Flow, Request, ServiceProfile, malformed
from symphony.trackers.provider import ProviderReader
from symphony.trackers.tools import ANY, NUMBERED, Reach, RestCall, Write, marked

# Workflow states that are kept in labels, on trackers whose issues are only open or closed.
#
# A label stands for a state: `status:in-progress` for `In Progress`, unless the settings name another one.
# An issue with two of them contradicts itself, and is held back instead of guessed at. A closed issue is
# over, whatever its labels say.


OPEN, CLOSED = "open", "closed"
DEFAULT_PREFIX = "status:"
_MAX_PREFIX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelState:
    """The state that labels give an issue; `objection` says why they do not give it a clear one."""

    state: str
    objection: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusLabels:
    """Which label stands for which state.

    `by_state` is in the order of the settings; `opened` is what the service calls an open issue.
    """

    prefix: str = DEFAULT_PREFIX
    by_state: Mapping[str, str] = field(default_factory=dict)
    opened: str = OPEN

    @classmethod
    def of(
        cls,
        reader: ProviderReader,
        part: Mapping[str, Any],
        states: Sequence[str],
        *,
        default_prefix: str = DEFAULT_PREFIX,
        opened: str = OPEN,
    ) -> "StatusLabels":
        """Read `prefix` and `labels` below `tracker.provider.states`; the reader is told mistakes.

        `states` are those that other settings name. What `labels` names besides is a state too: people and
        agents can move an issue there, and nothing more is known of it.
        """
        prefix = part.get("prefix", default_prefix)
        if not isinstance(prefix, str) or not prefix.strip() or len(prefix) > _MAX_PREFIX:
            reader.wrong("states", f"needs `prefix` to be a short text, like {default_prefix}")
            prefix = default_prefix
        named = part.get("labels", {})
        if not isinstance(named, Mapping) or not all(_is_name(name) for name in named.values()):
            reader.wrong("states", "needs `labels` to be a map from states to labels")
            named = {}
        given = {normalise_state(str(state)): str(label).strip() for state, label in named.items()}
        spelled: dict[str, str] = {}
        for state in (*states, *map(str, named)):
            spelled.setdefault(normalise_state(state), state.strip())
        by_state = {
            state: given.get(name, f"{prefix}{name.replace(' ', '-')}")
            for name, state in spelled.items()
            if name not in {"", opened, CLOSED}
        }
        if len({label.lower() for label in by_state.values()}) < len(by_state):
            reader.wrong("states", "has one label for two states")
        return cls(prefix=prefix.strip().lower(), by_state=by_state, opened=opened)

    def label(self, state: str) -> str | None:
        """The label of a state, or null for the service's own states and what is not configured."""
        wanted = normalise_state(state)
        return next((label for name, label in self.by_state.items() if normalise_state(name) == wanted), None)

    def of_status(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Those of an issue's labels that stand for states, known or not."""
        ours = {label.lower() for label in self.by_state.values()}
        return tuple(
            label
            for label in dict.fromkeys(label.strip() for label in labels)
            if label.lower() in ours or label.lower().startswith(self.prefix)
        )

    def read(self, labels: Iterable[str], *, closed: bool, terminal: frozenset[str]) -> LabelState:
        """The state of an issue with these labels; `terminal` are normalised names of what is over."""
        found = {label.lower(): self._state(label) for label in self.of_status(labels)}
        states = tuple(found.values())
        if closed:
            over = [state for state in states if normalise_state(state) in terminal]
            return LabelState(state=over[0] if over else CLOSED)
        if not states:
            return LabelState(state=self.opened)
        if len(states) == 1:
            return LabelState(state=states[0])
        going_on = [state for state in states if normalise_state(state) not in terminal]
        names = " and ".join(f"`{label}`" for label in self.of_status(labels))
        return LabelState(
            state=(going_on or list(states))[0], objection=f"its labels contradict each other: {names}"
        )

    def _state(self, label: str) -> str:
        for state, name in self.by_state.items():
            if name.lower() == label.lower():
                return state
        return label[len(self.prefix) :].strip() or label


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "," not in value  # which separates labels


_WRITES = frozenset({"POST", "PATCH", "PUT"})
ISSUE = "/repos/{}/issues/{}"
"""The path of an issue, as it is counted and logged."""
NUMBER = re.compile(r"[1-9]\d{0,17}")
REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
"""What is set as `repo`."""


_EDITED = "title body state state_reason labels assignee assignees milestone due_date unset_due_date type"
_NAMED = "title body labels assignee assignees milestone due_date type"
_PULL = "title body base draft maintainer_can_modify labels assignee assignees milestone"


def reach_of(owner: str, repo: str, issue: str | None) -> Reach:
    """What a narrowed scope lets the raw tool at: one issue, or with `None` the repository.

    Not among it: what names another issue (dependencies, blocks, sub-issues), another repository (transfer,
    forks), settings, files and merges.
    """
    here = ("repos", owner, repo)
    one = (*here, "issues", issue or NUMBERED)
    writes = (
        Write("PATCH", one, _EDITED),
        Write("POST", (*one, "comments"), "body"),
        Write("POST PUT", (*one, "labels"), "labels"),
        Write("DELETE", (*one, "labels")),
        Write("DELETE", (*one, "labels", ANY)),
        Write("POST DELETE", (*one, "assignees"), "assignees"),
    )
    if issue is not None:
        return Reach(reads=(one,), writes=writes)
    others = (
        Write("POST", (*here, "issues"), _NAMED),
        Write("PATCH", (*here, "issues", "comments", NUMBERED), "body"),
        Write("DELETE", (*here, "issues", "comments", NUMBERED)),
        Write("POST", (*here, "labels"), "name color description"),
        Write("POST", (*here, "pulls"), f"{_PULL} head"),
        Write("PATCH", (*here, "pulls", NUMBERED), f"{_PULL} state"),
    )
    return Reach(reads=(here,), writes=(*writes, *others))


def login_of(record: Any) -> str:
    """The account that wrote an issue or a comment, in lower case; empty where it is gone."""
    return (text(mapping(mapping(record).get("user")).get("login")) or "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comments:
    """The comments of one repository; `path` is the repository's."""

    dialect: ServiceProfile
    path: str

    def number(self, value: str) -> str:
        """The number of an issue or comment. Raises `TrackerError` for what can be none."""
        if not NUMBER.fullmatch(value):
            raise not_found(self.dialect.service, f"issue or comment {value!r}")
        return value

    def read(
        self, records: Iterable[Any], *, login: str, may_answer: Callable[[Any], bool | None]
    ) -> tuple[Comment, ...]:
        """The comments of a list; those of `login` are ours, and `may_answer` is told each record."""
        return tuple(
            Comment(
                id=str(record["id"]),
                body=text(record.get("body")) or "",
                mine=login_of(record) == login.lower(),
                author=text(mapping(record.get("user")).get("login")) or "",
                author_key=login_of(record),
                may_answer=may_answer(record),
            )
            for record in records
            if whole(mapping(record).get("id")) is not None
        )

    @staticmethod
    def mark(call: RestCall) -> RestCall | str:
        """Marks what the raw tool writes as a comment of an agent."""
        if call.method in _WRITES and "comments" in call.steps:
            return marked(call, "body")
        return call

    def create(self, issue_id: str, body: str) -> Flow[str]:
        """Write a comment; the server gives the id."""
        path = f"{self.path}/issues/{self.number(issue_id)}/comments"
        answer = yield Request(endpoint=f"{ISSUE}/comments", method="POST", path=path, body={"body": body})
        return self._written(answer)

    def edit(self, comment_id: str, body: str) -> Flow[None]:
        """Write a comment anew."""
        path = f"{self.path}/issues/comments/{self.number(comment_id)}"
        answer = yield Request(
            endpoint="/repos/{}/issues/comments/{}", method="PATCH", path=path, body={"body": body}
        )
        self._written(answer)

    def _written(self, answer: Answer) -> str:
        comment_id = whole(mapping(answer.body).get("id"))
        if comment_id is None:
            raise malformed(self.dialect, "answered no comment to a comment")
        return str(comment_id)
