"""What Forgejo, Gitea and GitHub have alike: the comments of a repository's issues, and what a number is."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from symphony.trackers.base import Comment
from symphony.trackers.http import Answer, Dialect, Flow, Request, malformed
from symphony.trackers.raw_tools import ANY, NUMBERED, Reach, RestCall, Write, marked
from symphony.trackers.reading import mapping, text, whole
from symphony.trackers.wording import not_found

__all__ = ["ISSUE", "NUMBER", "REPOSITORY", "Comments", "login_of", "reach_of"]

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

    dialect: Dialect
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
