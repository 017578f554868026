"""Pull requests of Forgejo and Gitea.

Their API has no conditional requests, shows no CI logs, cannot resolve a thread, and does not report whether
a merge is armed. A push does not disarm a merge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

import msgspec
from typing_extensions import override

from symphony import domain
from symphony.http import Flow, Query, Request
from symphony.http.fields import dig, items
from symphony.services.forgejo import SERVICE, api_address
from symphony.services.pulls import ForgeAccess, Landing, RepositoryForge
from symphony.trackers.webhooks import FORGEJO

_LIMITS = (
    "its API has no logs of checks: agents get only the description of a check",
    "its API cannot resolve a thread: a person does, on the page",
    "it has no merge queue",
)
_NOT_FOUND = frozenset({404})
_NOT_TOLD = frozenset({403, 404})


class _User(msgspec.Struct):
    login: str


class _Repo(msgspec.Struct):
    full_name: str


class _Side(msgspec.Struct):
    ref: str
    sha: str
    repo: _Repo | None = None


class _Label(msgspec.Struct):
    name: str


class _Pull(msgspec.Struct, kw_only=True):
    number: int
    title: str
    body: str
    state: domain.PullState
    html_url: str
    user: _User
    head: _Side
    base: _Side
    merged: bool
    mergeable: bool
    labels: list[_Label]
    draft: bool = False


class _Status(msgspec.Struct, kw_only=True):
    id: int
    context: str
    status: str
    description: str = ""
    target_url: str = ""


class _Combined(msgspec.Struct):
    statuses: list[Any] | None = None
    total_count: int = 0


class _Branch(msgspec.Struct):
    enable_status_check: bool = False
    status_check_contexts: list[str] | None = None
    required_approvals: int = 0


class _Review(msgspec.Struct, kw_only=True):
    id: int
    user: _User | None
    state: str
    body: str = ""
    commit_id: str = ""
    dismissed: bool = False
    official: bool = False
    stale: bool = False
    comments_count: int = 0
    submitted_at: datetime | None = None


class _Remark(msgspec.Struct, kw_only=True):
    id: int
    user: _User | None
    body: str
    path: str
    position: int
    updated_at: datetime
    resolver: _User | None = None


class _Comment(msgspec.Struct, kw_only=True):
    id: int
    user: _User | None
    body: str
    updated_at: datetime


class _File(msgspec.Struct):
    filename: str
    changes: int = 0
    previous_filename: str = ""


_REVIEWS = {
    "APPROVED": domain.ReviewState.APPROVED,
    "REQUEST_CHANGES": domain.ReviewState.CHANGES_REQUESTED,
    "COMMENT": domain.ReviewState.COMMENTED,
}
_CHECKS = {
    "success": domain.CheckState.PASSED,
    "warning": domain.CheckState.PASSED,
    "failure": domain.CheckState.FAILED,
    "error": domain.CheckState.FAILED,
}


class ForgejoForge(RepositoryForge):
    """One repository on Forgejo or Gitea; `url` is the address of the site or of its API."""

    profile = SERVICE
    webhooks = FORGEJO
    page = (("limit", "50"),)
    draft_prefix = "WIP: "

    def __init__(self, repo: str, token: str, *, url: str | None = None, **options: Any) -> None:
        super().__init__(repo, token, url=url and api_address(url), **options)
        self._known: dict[int, tuple[Any, domain.PullRequest]] = {}
        self._unmergeable: dict[int, tuple[str, str]] = {}

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def find_flow(self, branch: str) -> Flow[Sequence[domain.PullRequest]]:
        """As `Forge.find`, among the 500 last changed pull requests, because there is no filter by branch."""
        me = yield from self.login("login")
        query = [("state", "all"), ("sort", "recentupdate")]
        found = [self._pull(pull, me) for pull in (yield from self._pulls(query, "head", branch))]
        own = [pull for pull in found if (pull.head_repo or "").lower() == self.repo.lower()]
        return sorted(own, key=lambda pull: -pull.number)

    @override
    def find_onto_flow(self, branch: str) -> Flow[Sequence[int]]:
        """As `Forge.find_onto`, among the 500 last changed open pull requests."""
        query = [("state", "open"), ("sort", "recentupdate")]
        return [pull.number for pull in (yield from self._pulls(query, "base", branch))]

    def _pulls(self, query: Query, side: str, branch: str) -> Flow[list[_Pull]]:
        """The pull requests with this branch as `side`; raises if one of them is malformed."""
        records, _ = yield from self.listed(Any, "/pulls", query=query)
        return [
            self.read_as(_Pull, record, self.request("GET", "/pulls"))
            for record in records
            if dig(record, side, "ref") == branch
        ]

    @override
    def observe_flow(self, numbers: Sequence[int], *, fresh: bool) -> Flow[Mapping[int, domain.PullRequest]]:
        """As `Forge.observe`. If record and commit statuses are unchanged, the rest is not read again."""
        me = yield from self.login("login")
        seen: dict[int, tuple[Any, domain.PullRequest]] = {}
        for number in numbers:
            request = self.request("GET", "/pulls/{}", number, accept=_NOT_FOUND)
            answer = yield request
            if answer.status in _NOT_FOUND:
                continue
            reading = self._observed(number, answer.body, request, me, fresh=fresh)
            if observed := (yield from self.sound(number, reading)):
                seen[number] = observed
        if len(seen) < len(numbers):  # fails if the whole repository is gone
            yield self.request("GET", "")
        self._known = seen
        self._unmergeable = {number: at for number, at in self._unmergeable.items() if number in seen}
        return {number: pull for number, (_, pull) in seen.items()}

    def _observed(
        self, number: int, body: Any, request: Request, me: str, *, fresh: bool
    ) -> Flow[tuple[Any, domain.PullRequest]]:
        """The record of a pull request, and its snapshot."""
        pull = self.read_as(_Pull, body, request)
        statuses = yield from self._statuses(pull.head.sha)
        shown, known = (body, statuses), self._known.get(number)
        is_moving = known is not None and known[1].conflicts is None and not pull.draft
        if known is None or fresh or known[0] != shown or is_moving:
            return shown, (yield from self._snapshot(pull, statuses, me))
        return known

    def _statuses(self, sha: str) -> Flow[_Combined]:
        request = self.request("GET", "/commits/{}/status", sha, accept=_NOT_FOUND)
        answer = yield replace(request, query=self.page)
        return (
            self.read_as(_Combined, answer.body, request) if answer.status not in _NOT_FOUND else _Combined()
        )

    def _snapshot(self, pull: _Pull, combined: _Combined, me: str) -> Flow[domain.PullRequest]:
        writers = yield from self._writers()
        branch = yield from self._branch(pull.base.ref)
        reviews, all_reviews = yield from self.listed(_Review, "/pulls/{}/reviews", pull.number)
        request = self.request("GET", "/issues/{}/comments", pull.number)
        comments, all_comments = self.read_each(_Comment, (yield request).body, request)
        files, all_files = yield from self.listed(_File, "/pulls/{}/files", pull.number)
        threads: dict[tuple[str, int], tuple[int, list[_Remark]]] = {}
        for review in reviews:
            if review.comments_count == 0:
                continue
            request = self.request("GET", "/pulls/{}/reviews/{}/comments", pull.number, review.id)
            remarks, all_remarks = self.read_each(_Remark, (yield request).body, request)
            all_comments = all_comments and all_remarks
            for remark in remarks:
                threads.setdefault((remark.path, remark.position), (review.id, []))[1].append(remark)

        def comment(each: _Comment | _Remark) -> domain.PullComment:
            return domain.PullComment(
                id=str(each.id), author=_author(each.user, me, writers), body=each.body, at=each.updated_at
            )

        statuses, all_fit = self.read_each(_Status, combined.statuses or [], request)
        all_checks = all_fit and len(statuses) >= combined.total_count
        contexts = (branch.status_check_contexts or []) if branch.enable_status_check else []
        votes = [
            each
            for each in reviews
            if each.state in _REVIEWS and not each.dismissed and (each.body or each.state != "COMMENT")
        ]
        approvals = {
            each.user.login
            for each in votes
            if each.user and each.official and not each.stale and each.state == "APPROVED"
        }
        return replace(
            self._pull(pull, me, complete=all_reviews and all_comments and all_files and all_checks),
            author=_author(pull.user, me, writers),
            conflicts=self._conflicts(pull),
            rules_met=len(approvals) >= branch.required_approvals if branch.required_approvals else None,
            checks=tuple(
                domain.Check(
                    id=str(status.id),
                    name=domain.one_line(status.context, 200),
                    state=_CHECKS.get(status.status, domain.CheckState.PENDING),
                    sha=pull.head.sha,
                    required=any(fnmatchcase(status.context, pattern) for pattern in contexts),
                    summary=domain.one_line(status.description, 300) or None,
                    url=status.target_url or None,
                )
                for status in statuses
            ),
            missing_checks=tuple(
                domain.one_line(pattern, 200)
                for pattern in contexts
                if not any(fnmatchcase(status.context, pattern) for status in statuses)
            ),
            reviews=tuple(
                domain.PullRequestReview(
                    id=str(each.id),
                    author=_author(each.user, me, writers),
                    state=_REVIEWS[each.state],
                    sha=each.commit_id or None,
                    body=each.body,
                    at=each.submitted_at,
                )
                for each in votes
            ),
            threads=tuple(
                domain.ReviewThread(
                    id=str(review_id),
                    resolved=remarks[0].resolver is not None,
                    comments=tuple(map(comment, sorted(remarks, key=lambda remark: remark.id))),
                    path=place,
                    line=line or None,
                )
                for (place, line), (review_id, remarks) in threads.items()
            ),
            comments=tuple(map(comment, comments)),
            files=tuple(name for each in files for name in (each.previous_filename, each.filename) if name),
            changed_lines=sum(each.changes for each in files) if all_files else None,
        )

    def _conflicts(self, pull: _Pull) -> bool | None:
        """Whether it conflicts.

        "Not mergeable" may also mean a draft or a check in progress, so it counts only the second time.
        """
        if pull.mergeable or pull.draft:
            self._unmergeable.pop(pull.number, None)
            return False if pull.mergeable else None
        at = (pull.head.sha, pull.base.sha)
        seen_before = self._unmergeable.get(pull.number) == at
        self._unmergeable[pull.number] = at
        return True if seen_before else None

    def _writers(self) -> Flow[frozenset[str]]:
        """The accounts that may write: those that can be assigned. Empty if the token may not list them."""
        answer = yield self.request("GET", "/assignees", accept=_NOT_TOLD)
        people = items(answer.body) if answer.status not in _NOT_TOLD else ()
        return frozenset(str(dig(each, "login")).lower() for each in people)

    def _branch(self, name: str) -> Flow[_Branch]:
        request = self.request("GET", "/branches/{}", quote(name), accept=_NOT_TOLD)
        answer = yield request
        return _Branch() if answer.status in _NOT_TOLD else self.read_as(_Branch, answer.body, request)

    def _pull(self, pull: _Pull, me: str, *, complete: bool = False) -> domain.PullRequest:
        return domain.PullRequest(
            id=str(pull.number),
            number=pull.number,
            url=pull.html_url,
            title=pull.title.removeprefix(self.draft_prefix),
            body=pull.body,
            state=domain.PullState.MERGED if pull.merged else pull.state,
            draft=pull.draft,
            author=_author(pull.user, me, frozenset()),
            head_branch=pull.head.ref,
            head_repo=None if pull.head.repo is None else pull.head.repo.full_name,
            head_sha=pull.head.sha,
            base_branch=pull.base.ref,
            labels=tuple(label.name.lower() for label in pull.labels),
            armed=None,
            complete=complete,
        )

    @override
    def access_flow(self) -> Flow[ForgeAccess]:
        repository = (yield self.request("GET", "")).body
        self.check_repository(dig(repository, "full_name"), archived=dig(repository, "archived"))
        login = yield from self.login("login")
        may_push = dig(repository, "permissions", "push") is True
        missing = () if may_push else ("write access to the repository",)
        return ForgeAccess(login=login, missing=missing, limits=_LIMITS)

    # --- writes ------------------------------------------------------------------------------------------

    async def reply(self, pull: domain.PullRequest, thread_id: str, body: str) -> None:
        """As `Forge.reply`."""
        thread = next((each for each in pull.threads if each.id == thread_id), None)
        if thread is None:
            raise self.cannot("has no such thread", hint="it may have been deleted")
        content = {"body": body, "path": thread.path, "new_position": thread.line or 0}
        path = "/pulls/{}/reviews/{}/comments"
        await self.send(self.request("POST", path, pull.number, thread_id, body=content))

    async def resolve(self, pull: domain.PullRequest, thread_id: str) -> bool:
        """Always false: only people can resolve a thread, on the page."""
        del pull, thread_id
        return False

    async def arm(self, pull: domain.PullRequest, landing: Landing) -> Landing:
        """As `Forge.arm`; Forgejo has no merge queues."""
        if landing is Landing.QUEUE:
            raise self.cannot("has no merge queue", hint="set forge.land to auto")
        repository = await self.send(self.request("GET", ""))
        content = {
            "Do": dig(repository.body, "default_merge_style") or "merge",
            "head_commit_id": pull.head_sha,
            "merge_when_checks_succeed": True,
        }
        answer = await self.send(self.request("POST", "/pulls/{}/merge", pull.number, body=content))
        return Landing.MERGED if answer.status == 200 else landing  # noqa: PLR2004 - 201: it will be

    async def disarm(self, pull: domain.PullRequest) -> None:
        """As `Forge.disarm`."""
        await self.send(self.request("DELETE", "/pulls/{}/merge", pull.number, accept=_NOT_FOUND))


def _author(user: _User | None, me: str, writers: frozenset[str]) -> domain.Author:
    login = user.login.lower() if user else ""
    return domain.Author(login=login, can_write=login in writers, is_me=login == me)
