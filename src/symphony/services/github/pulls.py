"""Pull requests of GitHub and GitHub Enterprise Server.

Snapshots come from one GraphQL query for all pull requests. Before it, conditional REST requests ask whether
anything changed; after it, they ask which authors may write. An answer that GitHub confirms costs nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from typing_extensions import override

from symphony import domain
from symphony.http import FORBIDDEN, Flow, HttpResponse, Request
from symphony.http.fields import dig, items, texts
from symphony.http.graphql import error_codes, graphql, operation
from symphony.services.github import SERVICE, graphql_address
from symphony.services.pulls import MAX_PAGES, ForgeAccess, Landing, RepositoryForge
from symphony.trackers.webhooks import GITHUB

BATCH = 20
_NOT_FOUND = 404
_NOT_TOLD = frozenset({FORBIDDEN, _NOT_FOUND})

# --- queries ---------------------------------------------------------------------------------------------

_BY = "author { __typename login } authorAssociation viewerDidAuthor"
_COMMENT = f"id {_BY} body updatedAt"
_MORE = "pageInfo { more: hasNextPage cursor: endCursor }"
_EARLIER = "pageInfo { more: hasPreviousPage cursor: startCursor }"
_CONNECTIONS = {
    "comments": _COMMENT,
    "reviews": f"id {_BY} state body submittedAt commit {{ oid }}",
    "reviewThreads": f"id isResolved path line comments(last: 50) {{ nodes {{ {_COMMENT} }} {_EARLIER} }}",
    "files": "path changeType",
}
_NEWEST_FIRST = frozenset({"comments", "reviews", "reviewThreads"})
"""Lists that are read from their end, so that only old entries are cut off."""
_CONTEXT = """__typename
      ... on CheckRun {
        databaseId name status conclusion title url
        isRequired(pullRequestNumber: %d)
        checkSuite { app { slug } }
        steps(first: 50) { nodes { name conclusion } }
      }
      ... on StatusContext { id context state description targetUrl isRequired(pullRequestNumber: %d) }"""
_HEAD = f"""id number url title body state isDraft {_BY}
    headRefName headRefOid headRepository {{ nameWithOwner }} baseRefName
    mergeable reviewDecision autoMergeRequest {{ enabledAt }} isInMergeQueue additions deletions
    labels(first: 100) {{ nodes {{ name }} }}"""

_REQUIRED = "baseRef { refUpdateRule { requiredStatusCheckContexts } }"


def _connection(name: str, *, cursor: str = "") -> str:
    count, side, page = ("last", "before", _EARLIER) if name in _NEWEST_FIRST else ("first", "after", _MORE)
    place = f", {side}: {cursor}" if cursor else ""
    return f"{name}({count}: 100{place}) {{ nodes {{ {_CONNECTIONS[name]} }} {page} }}"


def _checks(number: int, *, cursor: str = "") -> str:
    context = _CONTEXT % (number, number)
    place = f", after: {cursor}" if cursor else ""
    contexts = f"contexts(first: 100{place}) {{ nodes {{ {context} }} {_MORE} }}"
    return f"commits(last: 1) {{ nodes {{ commit {{ oid statusCheckRollup {{ {contexts} }} }} }} }}"


def _in_repository(name: str, more: str, content: str) -> str:
    return f"""query {name}($owner: String!, $name: String!{more}) {{
  repository(owner: $owner, name: $name) {{ {content} }}
}}"""


def observation(numbers: Iterable[int]) -> str:
    """The query for snapshots of these pull requests."""
    lists = " ".join(map(_connection, _CONNECTIONS))
    pulls = (
        f"p{n}: pullRequest(number: {n}) {{ {_HEAD} {_REQUIRED} {lists} {_checks(n)} }}" for n in numbers
    )
    return _in_repository("SymphonyPulls", "", "\n".join(pulls))


def next_page(number: int, name: str) -> str:
    """The query for the next page of one list of a pull request."""
    at = "$cursor"
    content = _checks(number, cursor=at) if name == "checks" else _connection(name, cursor=at)
    return _in_repository(
        "SymphonyMore", ", $cursor: String!", f"pullRequest(number: {number}) {{ {content} }}"
    )


_NEWEST = "orderBy: {field: CREATED_AT, direction: DESC}"
FIND = _in_repository(
    "SymphonyFind",
    ", $branch: String!, $cursor: String",
    f"""nameWithOwner
    pullRequests(headRefName: $branch, first: 50, after: $cursor, {_NEWEST}) {{
      nodes {{ {_HEAD} }} {_MORE}
    }}""",
)
FIND_ONTO = _in_repository(
    "SymphonyFindOnto",
    ", $branch: String!",
    "pullRequests(baseRefName: $branch, states: OPEN, first: 50) { nodes { number } }",
)
ACCESS = """query SymphonyAccess($owner: String!, $name: String!) {
  viewer { login }
  repository(owner: $owner, name: $name) { nameWithOwner isArchived viewerPermission }
}"""
METHOD = _in_repository("SymphonyMergeMethod", "", "viewerDefaultMergeMethod")


def _mutation(name: str, result: str) -> str:
    """A mutation `symphonyX` that calls `x` with its whole input."""
    kind = name[0].upper() + name[1:]
    return f"mutation Symphony{kind}($input: {kind}Input!) {{ {name}(input: $input) {{ {result} }} }}"


REPLY = _mutation("addPullRequestReviewThreadReply", "comment { id }")
RESOLVE = _mutation("resolveReviewThread", "thread { id }")
ARM = _mutation("enablePullRequestAutoMerge", "pullRequest { id }")
DISARM = _mutation("disablePullRequestAutoMerge", "pullRequest { id }")
ENQUEUE = _mutation("enqueuePullRequest", "mergeQueueEntry { id }")
DEQUEUE = _mutation("dequeuePullRequest", "mergeQueueEntry { id }")
MERGE = _mutation("mergePullRequest", "pullRequest { id }")

# --- answers ---------------------------------------------------------------------------------------------


class _Shape(msgspec.Struct, rename="camel"):
    pass


class _Actor(_Shape):
    login: str
    kind: str = msgspec.field(name="__typename")


class _Page(_Shape):
    """Whether there is a next page of a list, and its cursor."""

    more: bool
    cursor: str | None


class _By(_Shape, kw_only=True):
    author: _Actor | None
    author_association: str
    viewer_did_author: bool

    @property
    def login(self) -> str:
        """The login of an app is `name[bot]`, which no person can have."""
        if self.author is None:
            return ""
        return f"{self.author.login}{'[bot]' if self.author.kind == 'Bot' else ''}".lower()

    @property
    def may_be_writer(self) -> bool:
        """Whether the author may have write access; a member or collaborator may have only read access."""
        return self.author_association in {"OWNER", "MEMBER", "COLLABORATOR"}

    def read(self, writers: frozenset[str]) -> domain.Author:
        return domain.Author(
            login=self.login,
            is_bot=self.author is not None and self.author.kind != "User",
            can_write=self.login in writers,
            is_me=self.viewer_did_author,
        )


class _Comment(_By, kw_only=True):
    id: str
    body: str
    updated_at: datetime


class _Comments(_Shape):
    nodes: list[_Comment]
    page_info: _Page


class _Commit(_Shape):
    oid: str


class _Review(_By, kw_only=True):
    id: str
    state: str
    body: str
    submitted_at: datetime | None
    commit: _Commit | None


class _Thread(_Shape):
    id: str
    is_resolved: bool
    path: str
    line: int | None
    comments: _Comments


class _File(_Shape):
    path: str
    change_type: str


class _Named(_Shape):
    name: str
    conclusion: str | None = None


class _Steps(_Shape):
    nodes: list[_Named]


class _App(_Shape):
    slug: str


class _Suite(_Shape):
    app: _App | None


class _Run(_Shape, kw_only=True, tag_field="__typename", tag="CheckRun"):
    database_id: int
    name: str
    status: str
    conclusion: str | None
    title: str | None
    url: str
    is_required: bool
    check_suite: _Suite
    steps: _Steps | None


class _Status(_Shape, kw_only=True, tag_field="__typename", tag="StatusContext"):
    id: str
    context: str
    state: str
    description: str | None
    target_url: str | None
    is_required: bool


class _Repo(_Shape):
    name_with_owner: str


class _Labels(_Shape):
    nodes: list[_Named]


class _Head(_By, kw_only=True):
    id: str
    number: int
    url: str
    title: str
    body: str
    state: str
    is_draft: bool
    head_ref_name: str
    head_ref_oid: str
    head_repository: _Repo | None
    base_ref_name: str
    mergeable: str
    review_decision: str | None
    auto_merge_request: Any
    is_in_merge_queue: bool
    additions: int
    deletions: int
    labels: _Labels | None


_SHAPES: Mapping[str, Any] = {
    "comments": _Comment,
    "reviews": _Review,
    "reviewThreads": _Thread,
    "files": _File,
    "checks": _Run | _Status,
}
_CONFLICTS = {"MERGEABLE": False, "CONFLICTING": True}
_GOOD = frozenset({"SUCCESS", "NEUTRAL", "SKIPPED"})
_STATUSES = {
    "SUCCESS": domain.CheckState.PASSED,
    "ERROR": domain.CheckState.FAILED,
    "FAILURE": domain.CheckState.FAILED,
}
_REVIEWS = frozenset(state.name for state in domain.ReviewState)


def _status(answer: HttpResponse) -> int:
    """The REST status for an answer in which GraphQL hides an error behind 200."""
    codes = error_codes(answer)
    if codes & {"forbidden", "insufficient_scopes"}:
        return FORBIDDEN
    return _NOT_FOUND if codes == {"not_found"} else SERVICE.status(answer)


class GithubForge(RepositoryForge):
    """One repository on GitHub."""

    profile = replace(SERVICE, status=_status)
    webhooks = GITHUB

    def __init__(self, repo: str, token: str, **options: Any) -> None:
        super().__init__(repo, token, **options)
        owner, _, name = repo.partition("/")
        self._names = {"owner": owner, "name": name}
        self._known: dict[int, domain.PullRequest] = {}
        self._is_unread = False

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def find_flow(self, branch: str) -> Flow[Sequence[domain.PullRequest]]:
        """As `Forge.find`. GitHub also lists pull requests of forks, whose branches can have any name."""
        own, cursor = list[domain.PullRequest](), None
        for _ in range(MAX_PAGES):
            request = self._query(FIND, branch=branch, cursor=cursor)
            repository = dig((yield from graphql(self.service, request)), "repository")
            name = str(dig(repository, "nameWithOwner")).lower()
            for node in items(dig(repository, "pullRequests", "nodes")):
                pull = self._pull(node, request, complete=False)
                if (pull.head_repo or "").lower() == name:
                    own.append(pull)
            page = self.read_as(_Page, dig(repository, "pullRequests", "pageInfo"), request)
            if not page.more:
                break
            cursor = page.cursor
        return own

    @override
    def find_onto_flow(self, branch: str) -> Flow[Sequence[int]]:
        request = self._query(FIND_ONTO, branch=branch)
        data = yield from graphql(self.service, request)
        nodes = items(dig(data, "repository", "pullRequests", "nodes"))
        return [self.read_as(int, dig(node, "number"), request) for node in nodes]

    @override
    def observe_flow(self, numbers: Sequence[int], *, fresh: bool) -> Flow[Mapping[int, domain.PullRequest]]:
        # A probe reports a change once. If a later request fails, the next call must not rely on the probe.
        fresh, self._is_unread = fresh or self._is_unread, True
        changed = yield from self._changed(numbers)
        if fresh:
            changed = list(numbers)
        for start in range(0, len(changed), BATCH):
            batch = changed[start : start + BATCH]
            request = replace(self._query(observation(batch)), accept=frozenset({_NOT_FOUND}))
            answer = yield request
            repository = dig(answer.body, "data", "repository")
            failed = bool(items(dig(answer.body, "errors"))) and _status(answer) != _NOT_FOUND
            if repository is None or failed:  # otherwise missing parts would count as deleted
                raise self.service.refused(request, answer, _status(answer))
            for number in batch:
                record = dig(repository, f"p{number}")
                self._known.pop(number, None)
                if record is not None and (
                    pull := (yield from self.sound(number, self._snapshot(number, record, request)))
                ):
                    self._known[number] = pull
        self._is_unread = False
        self._known = {number: pull for number, pull in self._known.items() if number in numbers}
        return dict(self._known)

    def _changed(self, numbers: Sequence[int]) -> Flow[list[int]]:
        """The pull requests that may have changed since their snapshot."""
        query = [("state", "all"), ("sort", "updated"), ("direction", "desc"), ("per_page", "100")]
        same_pulls = (yield replace(self.request("GET", "/pulls"), query=query, conditional=True)).cached
        changed = []
        for number in numbers:
            pull = self._known.get(number)
            same = same_pulls and pull is not None and pull.conflicts is not None
            if pull is not None and pull.state is domain.PullState.OPEN:
                for probe in ("check-runs", "status"):
                    # The service does not find a commit that a force-push removed.
                    request = self.request(
                        "GET", f"/commits/{{}}/{probe}", pull.head_sha, accept=frozenset({_NOT_FOUND, 422})
                    )
                    answer = yield replace(request, query=self.page, conditional=True)
                    same = same and answer.cached
            if not same:
                changed.append(number)
        return changed

    def _snapshot(self, number: int, record: Any, request: Request) -> Flow[domain.PullRequest]:
        lists: dict[str, list[Any]] = {}
        complete = True
        for name, shape in _SHAPES.items():
            nodes, all_read = yield from self._all(number, name, shape, record, request)
            lists[name] = nodes
            complete = complete and all_read
        head = self.read_as(_Head, record, request)
        sha = str(dig(_last_commit(record), "oid"))
        checks = tuple(self._check(each, sha) for each in lists["checks"])
        required = items(dig(record, "baseRef", "refUpdateRule", "requiredStatusCheckContexts"))
        names = {check.name for check in checks if sha == head.head_ref_oid}
        said = [each for thread in lists["reviewThreads"] for each in thread.comments.nodes]
        writers = yield from self._writers([head, *lists["comments"], *lists["reviews"], *said])
        return replace(
            self._pull(record, request, complete=complete),
            author=head.read(writers),
            checks=checks,
            missing_checks=tuple(name for name in map(_name, texts(required)) if name not in names),
            reviews=tuple(
                _review(each, writers)
                for each in lists["reviews"]
                if each.state in _REVIEWS and (each.body or each.state != "COMMENTED")
            ),
            threads=tuple(_thread(each, writers) for each in lists["reviewThreads"]),
            comments=tuple(_comment(each, writers) for each in lists["comments"]),
            files=_changed_files(lists["files"]),
        )

    def _writers(self, said: Sequence[_By]) -> Flow[frozenset[str]]:
        """The authors among these who may write; without those whose rights the token may not see."""
        writers = set[str]()
        for login in sorted({by.login for by in said if by.may_be_writer and not by.viewer_did_author}):
            request = self.request("GET", "/collaborators/{}/permission", quote(login), accept=_NOT_TOLD)
            answer = yield replace(request, conditional=True)
            if dig(answer.body, "permission") in {"admin", "write"}:
                writers.add(login)
        return frozenset(writers)

    def _all(
        self, number: int, name: str, shape: Any, record: Any, request: Request
    ) -> Flow[tuple[list[Any], bool]]:
        """The records of a list of a pull request, oldest first, and whether the list is complete."""
        nodes, complete = list[Any](), True
        for _ in range(MAX_PAGES):
            if name == "checks":
                found = dig(_last_commit(record), "statusCheckRollup", "contexts")
            else:
                found = dig(record, name)
            if found is None:
                return nodes, complete
            read, all_fit = self.read_each(shape, dig(found, "nodes"), request)
            complete = complete and all_fit
            nodes = [*read, *nodes] if name in _NEWEST_FIRST else [*nodes, *read]
            page = self.read_as(_Page, dig(found, "pageInfo"), request)
            if not page.more:
                return nodes, complete and all(
                    not each.comments.page_info.more for each in nodes if isinstance(each, _Thread)
                )
            request = self._query(next_page(number, name), cursor=page.cursor)
            record = dig((yield from graphql(self.service, request)), "repository", "pullRequest")
        return nodes, False

    def _pull(self, record: Any, request: Request, *, complete: bool) -> domain.PullRequest:
        head = self.read_as(_Head, record, request)
        decision = head.review_decision
        return domain.PullRequest(
            id=head.id,
            number=head.number,
            url=head.url,
            title=head.title,
            body=head.body,
            state=self.read_as(domain.PullState, head.state.lower(), request),
            draft=head.is_draft,
            author=head.read(frozenset()),
            head_branch=head.head_ref_name,
            head_repo=None if head.head_repository is None else head.head_repository.name_with_owner,
            head_sha=head.head_ref_oid,
            base_branch=head.base_ref_name,
            conflicts=_CONFLICTS.get(head.mergeable),
            rules_met=None if decision is None else decision == "APPROVED",
            labels=tuple(label.name.lower() for label in head.labels.nodes) if head.labels else (),
            changed_lines=head.additions + head.deletions,
            armed=head.auto_merge_request is not None,
            queued=head.is_in_merge_queue,
            complete=complete,
        )

    def _check(self, check: _Run | _Status, sha: str) -> domain.Check:
        if isinstance(check, _Status):
            return domain.Check(
                id=check.id,
                name=_name(check.context),
                state=_STATUSES.get(check.state, domain.CheckState.PENDING),
                sha=sha,
                required=check.is_required,
                summary=domain.one_line(check.description, 300) if check.description else None,
                url=check.target_url,
            )
        state = domain.CheckState.PENDING
        if check.status == "COMPLETED" and check.conclusion != "STALE":
            state = domain.CheckState.PASSED if check.conclusion in _GOOD else domain.CheckState.FAILED
        steps = check.steps.nodes if check.steps else []
        failed = next((step.name for step in steps if step.conclusion == "FAILURE"), check.title)
        is_action = check.check_suite.app is not None and check.check_suite.app.slug == "github-actions"
        return domain.Check(
            id=str(check.database_id),
            name=_name(check.name),
            state=state,
            sha=sha,
            required=check.is_required,
            summary=domain.one_line(failed, 300) if failed else None,
            url=check.url,
            log=f"{self.path}/actions/jobs/{check.database_id}/logs" if is_action else None,
        )

    @override
    def access_flow(self) -> Flow[ForgeAccess]:
        answer = yield self._query(ACCESS)
        repository = dig(answer.body, "data", "repository")
        self.check_repository(dig(repository, "nameWithOwner"), archived=dig(repository, "isArchived"))
        missing = []
        if dig(repository, "viewerPermission") not in {"WRITE", "MAINTAIN", "ADMIN"}:
            missing.append("write access to the repository")
        scopes = answer.headers.get("x-oauth-scopes")  # only for tokens with scopes
        if scopes and not {"repo", "public_repo"} & {scope.strip() for scope in scopes.split(",")}:
            missing.append("the scope repo")
        return ForgeAccess(login=str(dig(answer.body, "data", "viewer", "login")), missing=tuple(missing))

    def _query(self, document: str, **variables: Any) -> Request:
        return operation(document, {**self._names, **variables}, path=graphql_address(self.base))

    # --- writes ------------------------------------------------------------------------------------------

    async def reply(self, pull: domain.PullRequest, thread_id: str, body: str) -> None:
        """As `Forge.reply`."""
        del pull
        await self.run(self._mutate(REPLY, pullRequestReviewThreadId=thread_id, body=body))

    async def resolve(self, pull: domain.PullRequest, thread_id: str) -> bool:
        """As `Forge.resolve`."""
        del pull
        await self.run(self._mutate(RESOLVE, threadId=thread_id))
        return True

    async def arm(self, pull: domain.PullRequest, landing: Landing) -> Landing:
        """As `Forge.arm`.

        GitHub cannot arm a change that already fulfils all rules: it is merged or queued at once.
        """
        return await self.run(self._arm(pull, landing))

    def _arm(self, pull: domain.PullRequest, landing: Landing) -> Flow[Landing]:
        at_head = {"pullRequestId": pull.id, "expectedHeadOid": pull.head_sha}
        method = dig(
            (yield from graphql(self.service, self._query(METHOD))), "repository", "viewerDefaultMergeMethod"
        )
        try:
            yield from self._mutate(ARM, **at_head, mergeMethod=method)
        except domain.ServiceError as error:
            if not re.search("(clean|unstable) status", error.failure.message):
                raise
        else:
            return landing
        if landing is Landing.QUEUE:
            yield from self._mutate(ENQUEUE, **at_head)
            return landing
        yield from self._mutate(MERGE, **at_head, mergeMethod=method)
        return Landing.MERGED

    async def disarm(self, pull: domain.PullRequest) -> None:
        """As `Forge.disarm`."""
        if pull.queued:
            await self.run(self._mutate(DEQUEUE, id=pull.id))
        if pull.armed:
            await self.run(self._mutate(DISARM, pullRequestId=pull.id))

    def _mutate(self, document: str, **values: Any) -> Flow[Mapping[str, Any]]:
        path = graphql_address(self.base)
        return (yield from graphql(self.service, operation(document, {"input": values}, path=path)))


def _name(name: str) -> str:
    return domain.one_line(name, 200)


def _last_commit(record: Any) -> Any:
    return next((dig(node, "commit") for node in items(dig(record, "commits", "nodes"))), None)


def _changed_files(files: Sequence[_File]) -> tuple[str, ...]:
    """The paths of the files; empty if one was renamed, because GraphQL does not report its old path."""
    if any(each.change_type == "RENAMED" for each in files):
        return ()
    return tuple(each.path for each in files)


def _comment(comment: _Comment, writers: frozenset[str]) -> domain.PullComment:
    return domain.PullComment(
        id=comment.id, author=comment.read(writers), body=comment.body, at=comment.updated_at
    )


def _thread(thread: _Thread, writers: frozenset[str]) -> domain.ReviewThread:
    return domain.ReviewThread(
        id=thread.id,
        resolved=thread.is_resolved,
        path=thread.path,
        line=thread.line,
        comments=tuple(_comment(each, writers) for each in thread.comments.nodes),
    )


def _review(review: _Review, writers: frozenset[str]) -> domain.PullRequestReview:
    return domain.PullRequestReview(
        id=review.id,
        author=review.read(writers),
        state=domain.ReviewState(review.state.lower()),
        sha=review.commit.oid if review.commit else None,
        body=review.body,
        at=review.submitted_at,
    )
