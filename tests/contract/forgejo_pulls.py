"""The pull requests of a repository as Forgejo tells them, by the fields that its API description names."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contract.gitlab_shapes import NUMBER, TEXT, answer, body
from contract.openapi import OpenApi
from contract.repository import ME, STRANGER, WRITER, Comment, Pull, Repository, Review, Thread
from contract.vendor import Asked, Given, Route, zulu
from symphony.domain import CheckState, PullState, ReviewState

NOT_FOUND = Given(status=404, body={"message": "The target couldn't be found.", "errors": [], "url": "u"})
_STATUS = {CheckState.PENDING: "pending", CheckState.PASSED: "success", CheckState.FAILED: "failure"}
_REVIEWS = {
    ReviewState.APPROVED: "APPROVED",
    ReviewState.CHANGES_REQUESTED: "REQUEST_CHANGES",
    ReviewState.COMMENTED: "COMMENT",
}
FLAG: dict[str, Any] = {"type": "boolean"}


def _object(**fields: Any) -> dict[str, Any]:
    """An object of these fields and no others."""
    return {"type": "object", "properties": fields, "additionalProperties": False, "required": sorted(fields)}


def _many(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _maybe(of: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [of, {"enum": [None]}]}


_PEOPLE = sorted({ME, WRITER, "carla", STRANGER})
USER = _object(
    id=NUMBER, login=TEXT, login_name=TEXT, source_id=NUMBER, full_name=TEXT, email=TEXT, avatar_url=TEXT,
    html_url=TEXT, is_admin=FLAG, created=TEXT, visibility=TEXT,
)  # fmt: skip
REPO = _object(full_name=TEXT)
SIDE = _object(label=TEXT, ref=TEXT, sha=TEXT, repo_id=NUMBER, repo=_maybe(REPO))
PULL = _object(
    id=NUMBER, number=NUMBER, title=TEXT, body=TEXT, state={"enum": ["open", "closed"]}, html_url=TEXT,
    user=USER, head=SIDE, base=SIDE, merged=FLAG, mergeable=FLAG, draft=FLAG, updated_at=TEXT,
    labels=_many(_object(id=NUMBER, name=TEXT)),
)  # fmt: skip
STATUS = _object(
    id=NUMBER, context=TEXT, status={"enum": ["pending", "success", "error", "failure", "warning"]},
    description=TEXT, target_url=TEXT,
)  # fmt: skip
REVIEW = _object(
    id=NUMBER, user=_maybe(USER), state=TEXT, body=TEXT, commit_id=TEXT, dismissed=FLAG, official=FLAG,
    stale=FLAG, comments_count=NUMBER, submitted_at=TEXT,
)  # fmt: skip
REMARK = _object(
    id=NUMBER, user=USER, body=TEXT, path=TEXT, position=NUMBER, updated_at=TEXT, resolver=_maybe(USER),
    pull_request_review_id=NUMBER,
)  # fmt: skip
FILE = _object(filename=TEXT, changes=NUMBER, previous_filename=TEXT) | {"required": ["changes", "filename"]}
_PAGES = [{"name": name, "in": "query", "schema": NUMBER} for name in ("page", "limit")]


def _get(
    of: dict[str, Any], *, paged: bool = False, query: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    choices = [
        {"name": name, "in": "query", "schema": {"type": "string", "enum": list(values)}}
        for name, values in (query or {}).items()
    ]
    return {"parameters": [*choices, *(_PAGES if paged else [])], "responses": answer(200, of)}


def _write(status: int, of: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    responses = {str(status): {"description": ""}} if of is None else answer(status, of)
    return {"requestBody": body(**fields), "responses": responses} if fields else {"responses": responses}


_REPO = "/repos/{owner}/{repo}"
_ONE = f"{_REPO}/pulls/{{index}}"
_MERGED = {"200": {"description": "merged"}, "201": {"description": "will be"}}
SHAPES = OpenApi(
    {
        "paths": {
            _REPO: {
                "get": _get(
                    _object(
                        full_name=TEXT,
                        archived=FLAG,
                        default_merge_style=TEXT,
                        permissions=_object(admin=FLAG, push=FLAG, pull=FLAG),
                    )
                )
            },
            f"{_REPO}/assignees": {"get": _get(_many(USER))},
            f"{_REPO}/branches/{{branch}}": {
                "get": _get(
                    _object(
                        name=TEXT,
                        enable_status_check=FLAG,
                        status_check_contexts=_many(TEXT),
                        required_approvals=NUMBER,
                    )
                )
            },
            f"{_REPO}/commits/{{ref}}/status": {
                "get": _get(_object(sha=TEXT, statuses=_many(STATUS), total_count=NUMBER), paged=True)
            },
            f"{_REPO}/pulls": {
                "get": _get(
                    _many(PULL),
                    paged=True,
                    query={
                        "state": ["open", "closed", "all"],
                        "sort": ["oldest", "recentupdate", "priority"],
                    },
                ),
                "post": _write(201, PULL, head=TEXT, base=TEXT, title=TEXT, body=TEXT),
            },
            _ONE: {"get": _get(PULL), "patch": _write(201, PULL, title=TEXT, body=TEXT)},
            f"{_ONE}/files": {"get": _get(_many(FILE), paged=True)},
            f"{_ONE}/reviews": {"get": _get(_many(REVIEW), paged=True)},
            f"{_ONE}/reviews/{{id}}/comments": {
                "get": _get(_many(REMARK)),
                "post": _write(200, REMARK, body=TEXT, path=TEXT, new_position=NUMBER),
            },
            f"{_ONE}/merge": {
                "post": {
                    "requestBody": body(Do=TEXT, head_commit_id=TEXT, merge_when_checks_succeed=FLAG),
                    "responses": _MERGED,
                },
                "delete": _write(204, None),
            },
            f"{_ONE}/requested_reviewers": {"post": _write(201, _many(REVIEW), reviewers=_many(TEXT))},
        }
    }
)


def user(login: str) -> dict[str, Any]:
    """A user as the description has it."""
    return {
        "id": _PEOPLE.index(login) + 1 if login in _PEOPLE else len(_PEOPLE) + 1,
        "login": login,
        "login_name": "",
        "source_id": 0,
        "full_name": "",
        "email": f"{login}@example.test",
        "avatar_url": "https://forge.example.test/avatars/1",
        "html_url": f"https://forge.example.test/{login}",
        "is_admin": False,
        "created": "2026-01-01T00:00:00Z",
        "visibility": "public",
    }


class ForgejoPulls:
    """Attributes: `routes`; `page` cuts a list."""

    def __init__(self, repository: Repository, page: Callable[[Asked, list[Any]], Given]) -> None:
        self.repository = repository
        self._page = page
        repository.push_disarms = False
        path = f"/repos/{repository.name}"
        one = rf"{path}/pulls/(\d+)"
        self.routes: tuple[Route, ...] = (
            ("GET", path, lambda _: Given(body=self._shown())),
            ("GET", f"{path}/branches/(.+)", self._branch),
            ("GET", rf"{path}/commits/(\w+)/status", self._statuses),
            ("GET", f"{path}/pulls", self._list),
            ("POST", f"{path}/pulls", self._open),
            ("GET", one, self._show),
            ("PATCH", one, self._update),
            ("GET", f"{one}/files", self._files),
            ("GET", f"{one}/reviews", self._reviews),
            ("GET", rf"{one}/reviews/(\d+)/comments", self._remarks),
            ("POST", rf"{one}/reviews/(\d+)/comments", self._reply),
            ("POST", f"{one}/merge", self._merge),
            ("DELETE", f"{one}/merge", self._disarm),
            ("POST", f"{one}/requested_reviewers", self._request),
        )

    # --- reads -------------------------------------------------------------------------------------------

    def _shown(self) -> dict[str, Any]:
        return {
            "full_name": self.repository.name,
            "archived": self.repository.archived,
            "default_merge_style": "squash",
            "permissions": {"admin": False, "push": self.repository.may_write, "pull": True},
        }

    def _branch(self, _asked: Asked, name: str) -> Given:
        patterns = [re.sub(r"[\[\]?*]", "?", context) for context in self.repository.required()]
        return Given(
            body={
                "name": name,
                "enable_status_check": True,
                "status_check_contexts": patterns,
                "required_approvals": 1,
            }
        )

    def _statuses(self, _asked: Asked, sha: str) -> Given:
        statuses = [
            {
                "id": check.id,
                "context": check.name,
                "status": _STATUS[check.state],
                "description": check.step,
                "target_url": f"/{self.repository.name}/actions/runs/{check.id}",
            }
            for pull in self.repository.pulls.values()
            for check in pull.checks
            if check.sha == sha
        ]
        return Given(body={"sha": sha, "statuses": statuses, "total_count": len(statuses)})

    def _list(self, asked: Asked) -> Given:
        pulls = sorted(self.repository.pulls.values(), key=lambda pull: pull.updated, reverse=True)
        records = [self._record(pull) for pull in pulls]
        state = asked.value("state")
        return self._page(asked, [each for each in records if state in {"all", each["state"]}])

    def _show(self, _asked: Asked, number: str) -> Given:
        pull = self.repository.pulls.get(int(number))
        return NOT_FOUND if pull is None else Given(body=self._record(pull))

    def _record(self, pull: Pull) -> dict[str, Any]:
        head_repo = None if pull.head_deleted else {"full_name": pull.head_repo or self.repository.name}
        base = {"label": pull.base, "ref": pull.base, "sha": self.repository.branches[pull.base]}
        return {
            "id": 900 + pull.number,
            "number": pull.number,
            "title": f"WIP: {pull.title}" if pull.draft else pull.title,
            "body": pull.body,
            "state": "open" if pull.state is PullState.OPEN else "closed",
            "html_url": f"https://forge.example.test/{self.repository.name}/pulls/{pull.number}",
            "user": user(pull.login),
            "head": {
                "label": pull.branch,
                "ref": pull.branch,
                "sha": pull.sha,
                "repo_id": 7,
                "repo": head_repo,
            },
            "base": {**base, "repo_id": 7, "repo": {"full_name": self.repository.name}},
            "merged": pull.state is PullState.MERGED,
            "mergeable": pull.conflicts is False and not pull.draft,
            "draft": pull.draft,
            "updated_at": zulu(pull.updated),
            "labels": [{"id": 1, "name": label} for label in pull.labels],
        }

    def _files(self, asked: Asked, number: str) -> Given:
        pull = self.repository.pulls[int(number)]
        files = [
            {"filename": path, "changes": 4}
            | ({"previous_filename": pull.renamed[path]} if path in pull.renamed else {})
            for path in pull.files
        ]
        return self._page(asked, files)

    def _reviews(self, asked: Asked, number: str) -> Given:
        pull = self.repository.pulls[int(number)]
        remarks = [
            Review(t.id, t.comments[0].login, ReviewState.COMMENTED, "", pull.sha, t.comments[0].at)
            for t in pull.threads
        ]
        threads = {thread.id: len(thread.comments) for thread in pull.threads}
        return self._page(
            asked,
            [
                {
                    "id": each.id,
                    "user": user(each.login),
                    "state": _REVIEWS[each.state],
                    "body": each.body,
                    "commit_id": each.sha,
                    "dismissed": False,
                    "official": each.login in self.repository.writers,
                    "stale": False,
                    "comments_count": threads.get(each.id, 0),
                    "submitted_at": zulu(each.at),
                }
                for each in [*pull.reviews, *remarks]
            ],
        )

    def _remarks(self, _asked: Asked, _number: str, review: str) -> Given:
        found = self.repository.thread(int(review))
        if found is None:
            return NOT_FOUND
        return Given(body=[_remark(found[1], comment) for comment in found[1].comments])

    # --- writes ------------------------------------------------------------------------------------------

    def _open(self, asked: Asked) -> Given:
        given = asked.body
        if given["head"] not in self.repository.branches:
            return NOT_FOUND
        title = given["title"]
        pull = self.repository.open(
            given["head"],
            base=given["base"],
            title=title.removeprefix("WIP: "),
            body=given["body"],
            draft=title.startswith("WIP: "),
        )
        return Given(status=201, body=self._record(pull))

    def _update(self, asked: Asked, number: str) -> Given:
        pull, title = self.repository.pulls[int(number)], asked.body["title"]
        pull.title, pull.draft, pull.body = (
            title.removeprefix("WIP: "),
            title.startswith("WIP: "),
            asked.body["body"],
        )
        pull.updated = self.repository.now()
        return Given(status=201, body=self._record(pull))

    def _reply(self, asked: Asked, _number: str, review: str) -> Given:
        found = self.repository.thread(int(review))
        if found is None:
            return NOT_FOUND
        thread = found[1]
        assert (asked.body["path"], asked.body["new_position"]) == (thread.path, thread.line or 0)
        comment = Comment(next(self.repository.ids), ME, asked.body["body"], self.repository.now())
        thread.comments.append(comment)
        return Given(body=_remark(thread, comment))

    def _request(self, asked: Asked, number: str) -> Given:
        self.repository.pulls[int(number)].reviewers += asked.body["reviewers"]
        return Given(status=201, body=[])

    def _merge(self, asked: Asked, number: str) -> Given:
        pull = self.repository.pulls[int(number)]
        if asked.body["head_commit_id"] != pull.sha:
            return Given(status=409, body={"message": "head out of date", "url": "u"})
        if self.repository.is_ready(pull):
            self.repository.end(pull, PullState.MERGED)
            return Given(status=200)
        pull.armed = True
        return Given(status=201)

    def _disarm(self, _asked: Asked, number: str) -> Given:
        pull = self.repository.pulls[int(number)]
        if not pull.armed:
            return NOT_FOUND
        pull.armed = False
        return Given(status=204)


def comment_shown(comment: Comment) -> dict[str, Any]:
    return {
        "id": comment.id,
        "user": user(comment.login),
        "body": comment.body,
        "updated_at": zulu(comment.at),
    }


def _remark(thread: Thread, comment: Comment) -> dict[str, Any]:
    return {
        **comment_shown(comment),
        "path": thread.path,
        "position": thread.line or 0,
        "resolver": user(ME) if thread.resolved else None,
        "pull_request_review_id": thread.id,
    }
