"""What Forgejo, Gitea and GitHub have alike: the comments of a repository's issues, and what a number is."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from symphony.trackers.base import Comment
from symphony.trackers.http import Answer, Dialect, Flow, Request, malformed
from symphony.trackers.reading import mapping, text, whole
from symphony.trackers.wording import not_found

__all__ = ["ISSUE", "NUMBER", "REPOSITORY", "Comments"]

ISSUE = "/repos/{}/issues/{}"
"""The path of an issue, as it is counted and logged."""
NUMBER = re.compile(r"[1-9]\d{0,17}")
REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
"""What is set as `repo`."""


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

    def read(self, records: Iterable[Any], *, login: str) -> tuple[Comment, ...]:
        """The comments of a list; those of `login` are ours."""
        return tuple(
            Comment(
                id=str(record["id"]),
                body=text(record.get("body")) or "",
                mine=(text(mapping(record.get("user")).get("login")) or "").lower() == login.lower(),
            )
            for record in records
            if whole(mapping(record).get("id")) is not None
        )

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
