"""The merge requests of a project as GitLab tells them."""

import re
from collections.abc import Callable
from typing import Any

from contract.repository import BOT, ME, STRANGER, WRITER, Check, Comment, Pull, Repository
from contract.vendor import Asked, Given, Route, zulu
from symphony.domain import CheckState, PullState, ReviewState

PROJECT_ID = 7
NUMBERS = {
    ME: 1,
    WRITER: 2,
    "carla": 3,
    STRANGER: 4,
    BOT: 5,
    "guest": 6,
    **{f"dev{n}": 10 + n for n in range(150)},
}
NOT_FOUND = Given(status=404, body={"message": "404 Not found"})
_STATUS = {CheckState.PENDING: "running", CheckState.PASSED: "success", CheckState.FAILED: "failed"}
_STATES = {PullState.OPEN: "opened", PullState.CLOSED: "closed", PullState.MERGED: "merged"}


def user(login: str) -> dict[str, Any]:
    """A user as GitLab shows it."""
    page = f"https://gitlab.example.test/{login}"
    return {"id": NUMBERS[login], "username": login, "name": login, "state": "active", "web_url": page}


class GitlabPulls:
    """Attributes: `routes` below `project`; `page` cuts a list."""

    def __init__(
        self, repository: Repository, project: str, page: Callable[[Asked, list[Any]], Given]
    ) -> None:
        self.repository = repository
        self._page = page
        path = f"/projects/{project}"
        one = rf"{path}/merge_requests/(\d+)"
        self.routes: tuple[Route, ...] = (
            ("GET", "/users", lambda asked: Given(body=[user(asked.value("username"))])),
            ("GET", "/personal_access_tokens/self", lambda _: Given(body={"scopes": self._scopes()})),
            ("GET", path, lambda _: Given(body=self._project())),
            ("GET", f"{path}/members/all", self._members),
            ("GET", f"{path}/merge_requests", self._list),
            ("POST", f"{path}/merge_requests", self._open),
            ("GET", one, lambda _, iid: self._one(iid)),
            ("PUT", one, self._update),
            ("GET", f"{one}/discussions", self._discussions),
            ("PUT", rf"{one}/discussions/(\w+)", self._resolve),
            ("POST", rf"{one}/discussions/(\w+)/notes", self._reply),
            ("GET", f"{one}/diffs", self._diffs),
            ("GET", f"{one}/reviewers", self._reviewers),
            ("GET", f"{one}/approvals", self._approvals),
            ("GET", f"{one}/versions", self._versions),
            ("PUT", f"{one}/merge", self._merge),
            ("POST", f"{one}/cancel_merge_when_pipeline_succeeds", self._cancel),
            ("POST", rf"{path}/merge_trains/merge_requests/(\d+)", self._train),
            ("GET", rf"{path}/pipelines/(\w+)/jobs", self._jobs),
            ("GET", rf"{path}/jobs/(\d+)/trace", self._trace),
            ("GET", rf"{path}/repository/commits/(\w+)", self._commit),
        )

    # --- reads -------------------------------------------------------------------------------------------

    def _scopes(self) -> list[str]:
        return (self.repository.scopes or "api").split(",")

    def _project(self) -> dict[str, Any]:
        level = 30 if self.repository.may_write else 20
        return {
            "path_with_namespace": self.repository.name,
            "archived": self.repository.archived,
            "permissions": {"project_access": None, "group_access": {"access_level": level}},
        }

    def _members(self, asked: Asked) -> Given:
        wanted = set(asked.values("user_ids[]"))
        members = [
            {**user(login), "access_level": 30 if login in self.repository.writers else 10}
            for login, user_id in NUMBERS.items()
            if str(user_id) in wanted
        ]
        return self._page(asked, members)

    def _list(self, asked: Asked) -> Given:
        head, base, state = (asked.value(key) for key in ("source_branch", "target_branch", "state"))
        found = [
            pull
            for pull in reversed(self.repository.pulls.values())
            if head in {"", pull.branch} and base in {"", pull.base} and state in {"all", _STATES[pull.state]}
        ]
        return self._page(asked, [self._record(pull) for pull in found])

    def _one(self, iid: str) -> Given:
        pull = self.repository.pulls.get(int(iid))
        if pull is None:
            return NOT_FOUND
        sha = pull.checks[-1].sha if pull.checks else ""
        states = {check.state for check in pull.checks if check.sha == sha and check.required}
        worst = next(
            (state for state in (CheckState.FAILED, CheckState.PENDING) if state in states), CheckState.PASSED
        )
        kind = "merge" if pull.merged_results else "head"
        pipeline = {
            "id": int(sha[:7] or "0", 16),
            "sha": pull.merged_results or sha,
            "ref": f"refs/merge-requests/{iid}/{kind}",
            "status": _STATUS[worst],
        }
        return Given(body={**self._record(pull), "head_pipeline": pipeline if sha else None})

    def _record(self, pull: Pull) -> dict[str, Any]:
        status = {None: "checking", True: "conflict", False: "mergeable"}[pull.conflicts]
        return {
            "id": 900 + pull.number,
            "iid": pull.number,
            "title": f"Draft: {pull.title}" if pull.draft else pull.title,
            "description": pull.body,
            "state": _STATES[pull.state],
            "draft": pull.draft,
            "sha": pull.sha,
            "web_url": f"https://gitlab.example.test/{self.repository.name}/-/merge_requests/{pull.number}",
            "source_branch": pull.branch,
            "target_branch": pull.base,
            "source_project_id": None
            if pull.head_deleted
            else PROJECT_ID + 1
            if pull.head_repo
            else PROJECT_ID,
            "target_project_id": PROJECT_ID,
            "author": user(pull.login),
            "labels": pull.labels,
            "has_conflicts": bool(pull.conflicts),
            "detailed_merge_status": status,
            "merge_when_pipeline_succeeds": pull.armed,
            "reviewers": [user(login) for login in pull.reviewers],
            "updated_at": zulu(pull.updated),
        }

    def _discussions(self, asked: Asked, iid: str) -> Given:
        pull = self.repository.pulls[int(iid)]
        alone = [{"id": f"c{each.id}", "notes": [_note(each)]} for each in pull.comments]
        threads = [
            {
                "id": f"t{each.id}",
                "notes": [
                    {
                        **_note(comment),
                        "resolvable": True,
                        "resolved": each.resolved,
                        "position": {"new_path": each.path, "new_line": each.line},
                    }
                    for comment in each.comments
                ],
            }
            for each in pull.threads
        ]
        system = {**_note(Comment(1, WRITER, "added 1 commit", pull.updated)), "system": True}
        approvals = [
            {
                "id": f"s{each.id}",
                "notes": [
                    {
                        **_note(Comment(each.id, each.login, "approved this merge request", each.at)),
                        "system": True,
                    }
                ],
            }
            for each in pull.reviews
            if each.state is ReviewState.APPROVED
        ]
        return self._page(asked, [{"id": "s1", "notes": [system]}, *approvals, *alone, *threads])

    def _diffs(self, asked: Asked, iid: str) -> Given:
        pull = self.repository.pulls[int(iid)]
        diff = "@@ -1 +1,3 @@\n-a\n+b\n+c\n+d\n"
        files = [
            {"old_path": pull.renamed.get(path, path), "new_path": path, "diff": diff} for path in pull.files
        ]
        return self._page(asked, files)

    def _reviewers(self, asked: Asked, iid: str) -> Given:
        reviews = self.repository.pulls[int(iid)].reviews
        states = {each.login: each.state for each in reviews}
        return self._page(
            asked,
            [
                {
                    "user": user(login),
                    "state": "requested_changes" if state is ReviewState.CHANGES_REQUESTED else "reviewed",
                }
                for login, state in states.items()
            ],
        )

    def _approvals(self, _asked: Asked, iid: str) -> Given:
        reviews = self.repository.pulls[int(iid)].reviews
        approved = [{"user": user(each.login)} for each in reviews if each.state is ReviewState.APPROVED]
        return Given(
            body={"approved_by": approved, "approvals_required": 1, "approvals_left": 0 if approved else 1}
        )

    def _versions(self, asked: Asked, iid: str) -> Given:
        pushes = self.repository.pulls[int(iid)].pushes
        versions = [
            {"id": number, "head_commit_sha": sha, "created_at": zulu(at)}
            for number, (sha, at) in enumerate(pushes, start=1)
        ]
        return self._page(asked, versions[::-1])

    def _jobs(self, asked: Asked, pipeline: str) -> Given:
        checks = [
            check
            for pull in self.repository.pulls.values()
            for check in pull.checks
            if int(check.sha[:7], 16) == int(pipeline)
        ]
        return self._page(asked, [_job(check) for check in checks])

    def _commit(self, _asked: Asked, sha: str) -> Given:
        """Of pipelines of merged results only: GitLab's merge of the head that it was made for."""
        for pull in self.repository.pulls.values():
            if pull.merged_results == sha:
                parents = [self.repository.branches[pull.base], pull.checks[-1].sha]
                return Given(body={"id": sha, "parent_ids": parents})
        return NOT_FOUND

    def _trace(self, _asked: Asked, job: str) -> Given:
        log = self.repository.log(int(job))
        return NOT_FOUND if log is None else Given(raw=log)

    # --- writes ------------------------------------------------------------------------------------------

    def _open(self, asked: Asked) -> Given:
        given = asked.body
        if given["source_branch"] not in self.repository.branches:
            return Given(status=422, body={"message": {"source_branch": ["does not exist"]}})
        title = given["title"]
        pull = self.repository.open(
            given["source_branch"],
            base=given["target_branch"],
            title=title.removeprefix("Draft: "),
            body=_carried_out(given["description"]),
            draft=title.startswith("Draft: "),
        )
        return Given(status=201, body=self._record(pull))

    def _update(self, asked: Asked, iid: str) -> Given:
        pull, given = self.repository.pulls[int(iid)], asked.body
        if "title" in given:
            pull.title, pull.draft = (
                given["title"].removeprefix("Draft: "),
                given["title"].startswith("Draft: "),
            )
            pull.body = _carried_out(given["description"])
        pull.labels += given["add_labels"].split(",") if "add_labels" in given else []
        logins = {user_id: login for login, user_id in NUMBERS.items()}
        if "reviewer_ids" in given:
            pull.reviewers = [logins[user_id] for user_id in given["reviewer_ids"]]
        pull.updated = self.repository.now()
        return Given(body=self._record(pull))

    def _reply(self, asked: Asked, _iid: str, thread_id: str) -> Given:
        found = self.repository.thread(int(thread_id[1:]))
        if found is None:
            return NOT_FOUND
        comment = Comment(
            next(self.repository.ids), ME, _carried_out(asked.body["body"]), self.repository.now()
        )
        found[1].comments.append(comment)
        return Given(status=201, body=_note(comment))

    def _resolve(self, asked: Asked, _iid: str, thread_id: str) -> Given:
        found = self.repository.thread(int(thread_id[1:]))
        if found is None:
            return NOT_FOUND
        found[1].resolved = asked.body["resolved"]
        return Given(body={"id": thread_id})

    def _merge(self, asked: Asked, iid: str) -> Given:
        pull = self.repository.pulls[int(iid)]
        if asked.body["sha"] != pull.sha:
            return Given(status=409, body={"message": "SHA does not match HEAD of source branch"})
        if self.repository.is_ready(pull):
            self.repository.end(pull, PullState.MERGED)
        else:
            pull.armed, pull.updated = True, self.repository.now()
        return Given(body=self._record(pull))

    def _train(self, asked: Asked, iid: str) -> Given:
        pull = self.repository.pulls[int(iid)]
        if asked.body["sha"] != pull.sha:
            return Given(status=409, body={"message": "SHA does not match HEAD of source branch"})
        pull.armed = pull.queued = True
        return Given(status=201, body=[])

    def _cancel(self, _asked: Asked, iid: str) -> Given:
        pull = self.repository.pulls[int(iid)]
        pull.armed = pull.queued = False
        return Given(status=201, body=self._record(pull))


def _note(comment: Comment) -> dict[str, Any]:
    return {
        "id": comment.id,
        "body": comment.body,
        "author": user(comment.login),
        "system": False,
        "resolvable": False,
        "created_at": zulu(comment.at),
        "updated_at": zulu(comment.at),
    }


def _job(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": check.name,
        "stage": "test",
        "status": _STATUS[check.state],
        "allow_failure": not check.required,
        "web_url": f"https://gitlab.example.test/-/jobs/{check.id}",
    }


def _carried_out(text: str) -> str:
    """What GitLab keeps of a text: it carries out lines that begin with a slash."""
    assert not re.search(r"^\s*/\w", text, re.MULTILINE), "a quick action of others"
    return text
