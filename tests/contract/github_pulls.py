"""The pull requests of a repository as GitHub tells them, and its GraphQL."""

from collections.abc import Callable, Mapping
from typing import Any

from graphql import parse
from graphql.language import FieldNode, InlineFragmentNode, OperationDefinitionNode, SelectionSetNode
from graphql.utilities import value_from_ast_untyped

from contract.repository import ME, READER, Check, Comment, Pull, Repository
from contract.vendor import Asked, Given, Route, zulu
from symphony.domain import CheckState, PullState, ReviewState

LOGS = "https://logs.example.test"
"""The host with the logs of CI."""
_STATE = {
    CheckState.PENDING: ("IN_PROGRESS", None),
    CheckState.PASSED: ("COMPLETED", "SUCCESS"),
    CheckState.FAILED: ("COMPLETED", "FAILURE"),
}


class _RefusedError(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class GithubPulls:
    """Some of it is in REST and some in GraphQL, in which others may have more to say (`graphql`)."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        path = rf"/repos/{repository.name}"
        self.routes: tuple[Route, ...] = (
            ("GET", f"{path}/pulls", self._list),
            ("POST", f"{path}/pulls", self._open),
            ("PATCH", rf"{path}/pulls/(\d+)", self._update),
            ("POST", rf"{path}/pulls/(\d+)/requested_reviewers", self._request),
            ("POST", rf"{path}/issues/(\d+)/labels", self._label),
            ("GET", rf"{path}/commits/(\w+)/check-runs", self._runs),
            (
                "GET",
                rf"{path}/commits/(\w+)/status",
                lambda *_: Given(body={"state": "pending", "statuses": []}),
            ),
            ("GET", rf"{path}/collaborators/(\S+)/permission", self._permission),
            ("GET", rf"{path}/actions/jobs/(\d+)/logs", self._log),
        )

    # --- REST --------------------------------------------------------------------------------------------

    def _list(self, asked: Asked) -> Given:
        assert asked.value("sort") == "updated"
        assert asked.value("direction") == "desc"
        pulls = sorted(self.repository.pulls.values(), key=lambda pull: pull.updated, reverse=True)
        return Given(
            body=[{"number": p.number, "updated_at": zulu(p.updated), "head": p.sha} for p in pulls[:100]]
        )

    def _open(self, asked: Asked) -> Given:
        body = asked.body
        if body["head"] not in self.repository.branches:
            return Given(
                status=422,
                body={"message": "Validation Failed", "errors": [{"field": "head", "code": "invalid"}]},
            )
        pull = self.repository.open(
            body["head"], base=body["base"], title=body["title"], body=body["body"], draft=body["draft"]
        )
        return Given(status=201, body={"number": pull.number})

    def _update(self, asked: Asked, number: str) -> Given:
        pull = self.repository.pulls[int(number)]
        pull.title, pull.body, pull.updated = asked.body["title"], asked.body["body"], self.repository.now()
        return Given(body={"number": pull.number})

    def _request(self, asked: Asked, number: str) -> Given:
        self.repository.pulls[int(number)].reviewers += asked.body["reviewers"]
        return Given(status=201, body={})

    def _label(self, asked: Asked, number: str) -> Given:
        self.repository.pulls[int(number)].labels += asked.body["labels"]
        return Given(body=[])

    def _runs(self, _asked: Asked, sha: str) -> Given:
        checks = [c for pull in self.repository.pulls.values() for c in pull.checks if c.sha == sha]
        return Given(body={"check_runs": [{"id": c.id, "state": c.state} for c in checks]})

    def _permission(self, _asked: Asked, login: str) -> Given:
        return Given(body={"permission": "write" if login in self.repository.writers else "read"})

    def _log(self, _asked: Asked, check_id: str) -> Given:
        return Given(status=302, headers={"location": f"{LOGS}/{check_id}?sig=signature"})

    # --- GraphQL -----------------------------------------------------------------------------------------

    def graphql(
        self, asked: Asked, root: Mapping[str, Any], issue: Callable[..., dict[str, Any] | None]
    ) -> Given:
        """Answer a query, of which `root` and `issue` are what is known beside pull requests."""
        document = parse(asked.body["query"])
        operation = document.definitions[0]
        assert isinstance(operation, OperationDefinitionNode)
        errors: list[dict[str, Any]] = []
        fields = {
            **root,
            "viewer": {"login": ME},
            "repository": lambda owner, name: self._repository(f"{owner}/{name}", issue, errors),
            "addPullRequestReviewThreadReply": with_input(self._reply),
            "resolveReviewThread": with_input(self._resolve),
            "enablePullRequestAutoMerge": with_input(self._arm),
            "disablePullRequestAutoMerge": with_input(self._disarm),
            "enqueuePullRequest": with_input(self._enqueue),
            "dequeuePullRequest": with_input(self._dequeue),
            "mergePullRequest": with_input(self._merge),
        }
        headers = {} if self.repository.scopes is None else {"x-oauth-scopes": self.repository.scopes}
        if self.repository.archived and operation.operation.value == "mutation":
            error = {"type": "UNPROCESSABLE", "message": "Repository was archived so is read-only."}
            return Given(body={"data": None, "errors": [error]})
        try:
            data = _selected(operation.selection_set, fields, asked.body["variables"])
        except _RefusedError as error:
            return Given(
                body={"data": None, "errors": [{"type": error.kind, "message": str(error)}]}, headers=headers
            )
        body = {"data": data, "errors": errors} if errors else {"data": data}
        return Given(body=body, headers=headers)

    def _repository(
        self, name: str, issue: Callable[..., dict[str, Any] | None], errors: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        repository = self.repository
        if name not in {repository.name, "octo-team/website"}:  # an old name leads to the new one
            errors.append(
                {"type": "NOT_FOUND", "message": f"Could not resolve to a Repository with the name '{name}'."}
            )
            return None

        def pull_request(number: int) -> dict[str, Any] | None:
            if number in repository.pulls:
                return self._pull(repository.pulls[number])
            errors.append(
                {
                    "type": "NOT_FOUND",
                    "message": f"Could not resolve to a PullRequest with the number of {number}.",
                }
            )
            return None

        def pull_requests(
            *,
            first: int,
            after: str | None = None,
            headRefName: str | None = None,  # noqa: N803 - GitHub's name
            baseRefName: str | None = None,  # noqa: N803 - GitHub's name
            states: str | None = None,
            **_: Any,
        ) -> dict[str, Any]:
            found = [
                pull
                for pull in repository.pulls.values()
                if headRefName in {None, pull.branch}
                and baseRefName in {None, pull.base}
                and states in {None, pull.state.name}
            ]
            page: dict[str, Any] = pages([self._pull(pull) for pull in reversed(found)])(
                first=first, after=after
            )
            return page

        return {
            "nameWithOwner": repository.name,
            "isArchived": repository.archived,
            "viewerPermission": "WRITE" if repository.may_write else "READ",
            "viewerDefaultMergeMethod": "SQUASH",
            "issue": issue,
            "pullRequest": pull_request,
            "pullRequests": pull_requests,
        }

    def _pull(self, pull: Pull) -> dict[str, Any]:
        head_repo = None if pull.head_deleted else {"nameWithOwner": pull.head_repo or self.repository.name}
        mergeable = {None: "UNKNOWN", True: "CONFLICTING", False: "MERGEABLE"}[pull.conflicts]
        approved = any(review.state is ReviewState.APPROVED for review in pull.reviews)
        return {
            **self._by(pull.login),
            "id": f"PR_{pull.number}",
            "number": pull.number,
            "url": f"https://github.example.test/{self.repository.name}/pull/{pull.number}",
            "title": pull.title,
            "body": pull.body,
            "state": pull.state.name,
            "isDraft": pull.draft,
            "headRefName": pull.branch,
            "headRefOid": pull.sha,
            "headRepository": head_repo,
            "baseRefName": pull.base,
            "baseRef": {"refUpdateRule": {"requiredStatusCheckContexts": self.repository.required()}},
            "mergeable": mergeable,
            "reviewDecision": "APPROVED" if approved else "REVIEW_REQUIRED",
            "autoMergeRequest": {"enabledAt": zulu(pull.updated)} if pull.armed else None,
            "isInMergeQueue": pull.queued,
            "additions": 3,
            "deletions": 1,
            "labels": pages([{"name": label} for label in pull.labels]),
            "comments": pages([self._comment(each) for each in pull.comments]),
            "reviews": pages(
                [
                    {
                        **self._by(each.login),
                        "id": f"R_{each.id}",
                        "state": each.state.name,
                        "body": each.body,
                        "submittedAt": zulu(each.at),
                        "commit": {"oid": each.sha},
                    }
                    for each in pull.reviews
                ]
            ),
            "reviewThreads": pages(
                [
                    {
                        "id": f"T_{each.id}",
                        "isResolved": each.resolved,
                        "path": each.path,
                        "line": each.line,
                        "comments": pages([self._comment(comment) for comment in each.comments]),
                    }
                    for each in pull.threads
                ]
            ),
            "files": pages(
                [
                    {"path": path, "changeType": "RENAMED" if path in pull.renamed else "MODIFIED"}
                    for path in pull.files
                ]
            ),
            "commits": lambda **_: {"nodes": [{"commit": self._commit(pull)}]},
        }

    def _commit(self, pull: Pull) -> dict[str, Any]:
        """GitHub's last commit may lag behind the head for a moment after a push."""
        sha = pull.checks[-1].sha if pull.checks else pull.sha
        checks = [self._check(check) for check in pull.checks if check.sha == sha]
        return {"oid": sha, "statusCheckRollup": {"contexts": pages(checks)} if checks else None}

    def _check(self, check: Check) -> dict[str, Any]:
        status, conclusion = _STATE[check.state]
        return {
            "__typename": "CheckRun",
            "databaseId": check.id,
            "name": check.name,
            "status": status,
            "conclusion": conclusion,
            "title": None,
            "url": f"https://github.example.test/runs/{check.id}",
            "isRequired": lambda **_: check.required,
            "checkSuite": {"app": {"slug": "github-actions"}},
            "steps": pages([{"name": check.step, "conclusion": conclusion}]),
        }

    def _comment(self, comment: Comment) -> dict[str, Any]:
        return {
            **self._by(comment.login),
            "id": f"C_{comment.id}",
            "body": comment.body,
            "updatedAt": zulu(comment.at),
        }

    def _by(self, login: str) -> dict[str, Any]:
        return {
            "author": {"__typename": "Bot" if login in self.repository.bots else "User", "login": login},
            "authorAssociation": "MEMBER" if login in self.repository.writers | {READER} else "NONE",
            "viewerDidAuthor": login == ME,
        }

    # --- mutations ---------------------------------------------------------------------------------------

    def _reply(self, given: dict[str, Any]) -> dict[str, Any]:
        pull, thread = self._thread(given["pullRequestReviewThreadId"])
        comment = Comment(next(self.repository.ids), ME, given["body"], self.repository.now())
        thread.comments.append(comment)
        pull.updated = comment.at
        return {"comment": {"id": f"C_{comment.id}"}}

    def _resolve(self, given: dict[str, Any]) -> dict[str, Any]:
        _, thread = self._thread(given["threadId"])
        thread.resolved = True
        return {"thread": {"id": given["threadId"]}}

    def _thread(self, thread_id: str) -> Any:
        found = self.repository.thread(int(thread_id.removeprefix("T_")))
        if found is None:
            raise _RefusedError(
                "NOT_FOUND", f"Could not resolve to a node with the global id of '{thread_id}'"
            )
        return found

    def _at_head(self, given: dict[str, Any]) -> Pull:
        pull = self.repository.pulls[int(given["pullRequestId"].removeprefix("PR_"))]
        if given["expectedHeadOid"] != pull.sha:
            raise _RefusedError("UNPROCESSABLE", "Head branch was modified. Review and try the merge again.")
        if not self.repository.may_write:
            raise _RefusedError("FORBIDDEN", "Resource not accessible by personal access token")
        return pull

    def _arm(self, given: dict[str, Any]) -> dict[str, Any]:
        pull = self._at_head(given)
        if self.repository.is_ready(pull):
            good = all(check.state is CheckState.PASSED for check in pull.checks if check.sha == pull.sha)
            status = "clean" if good else "unstable"
            raise _RefusedError("UNPROCESSABLE", f"Pull request Pull request is in {status} status")
        pull.armed = True
        return {"pullRequest": {"id": given["pullRequestId"]}}

    def _disarm(self, given: dict[str, Any]) -> dict[str, Any]:
        self.repository.pulls[int(given["pullRequestId"].removeprefix("PR_"))].armed = False
        return {"pullRequest": {"id": given["pullRequestId"]}}

    def _enqueue(self, given: dict[str, Any]) -> dict[str, Any]:
        self._at_head(given).queued = True
        return {"mergeQueueEntry": {"id": "Q_1"}}

    def _dequeue(self, given: dict[str, Any]) -> dict[str, Any]:
        self.repository.pulls[int(given["id"].removeprefix("PR_"))].queued = False
        return {"mergeQueueEntry": {"id": "Q_1"}}

    def _merge(self, given: dict[str, Any]) -> dict[str, Any]:
        self.repository.end(self._at_head(given), PullState.MERGED)
        return {"pullRequest": {"id": given["pullRequestId"]}}


def with_input(do: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return lambda **arguments: do(arguments["input"])


def pages(nodes: list[dict[str, Any]]) -> Any:
    """A connection: the page after or before a cursor, which is a position."""

    def page(
        *, first: int = 0, after: str | None = None, last: int = 0, before: str | None = None
    ) -> dict[str, Any]:
        end = len(nodes) if before is None else int(before)
        start = max(end - last, 0) if last else int(after or 0)
        end = end if last else min(start + first, end)
        return {
            "nodes": nodes[start:end],
            "pageInfo": {
                "hasNextPage": end < len(nodes),
                "endCursor": str(end),
                "hasPreviousPage": start > 0,
                "startCursor": str(start),
            },
        }

    return page


def _selected(selections: SelectionSetNode, value: Any, variables: Mapping[str, Any]) -> Any:
    """The part of a value that a query asks for; functions get the arguments."""
    if isinstance(value, list):
        return [_selected(selections, each, variables) for each in value]
    if value is None:
        return None
    found: dict[str, Any] = {}
    for node in selections.selections:
        if isinstance(node, InlineFragmentNode):
            assert node.type_condition is not None
            if node.type_condition.name.value == value.get("__typename"):
                found |= _selected(node.selection_set, value, variables)
            continue
        assert isinstance(node, FieldNode)
        inner = value[node.name.value]
        if callable(inner):
            inner = inner(
                **{
                    a.name.value: value_from_ast_untyped(a.value, dict(variables))
                    for a in node.arguments or ()
                }
            )
        key = node.alias.value if node.alias else node.name.value
        found[key] = _selected(node.selection_set, inner, variables) if node.selection_set else inner
    return found
