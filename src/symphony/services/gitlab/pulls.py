"""Merge requests of GitLab, on gitlab.com and other servers.

Text of others in a description or comment could contain a quick action, such as a line `/merge`. Such lines
are escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from typing_extensions import override

from symphony import domain
from symphony.http import Flow, Query, Request
from symphony.http.fields import dig, items, texts
from symphony.services.gitlab import DEVELOPER, SERVICE, is_bot, without_quick_actions
from symphony.services.pulls import ForgeAccess, Landing, RemoteForge
from symphony.trackers.webhooks import GITLAB

_MAX_PARENTS = 1_000
_APPROVED = "approved this merge request"
_NOT_FOUND = frozenset({404})
_NO_TOKEN_API = frozenset({400, 401, 403, 404})
_ONE = "/merge_requests/{}"


class _User(msgspec.Struct):
    id: int
    username: str


class _Pipeline(msgspec.Struct):
    id: int
    sha: str
    status: str
    ref: str = ""
    web_url: str | None = None


class _Commit(msgspec.Struct):
    parent_ids: list[str] = []


class _Merge(msgspec.Struct, kw_only=True):
    """A merge request; lists of them have no `head_pipeline`."""

    iid: int
    title: str
    description: str | None
    state: str
    draft: bool
    sha: str | None
    web_url: str
    source_branch: str
    target_branch: str
    source_project_id: int | None
    target_project_id: int
    author: _User
    labels: list[str]
    has_conflicts: bool
    detailed_merge_status: str
    merge_when_pipeline_succeeds: bool
    reviewers: list[_User] = []
    head_pipeline: _Pipeline | None = None


class _Job(msgspec.Struct, kw_only=True):
    id: int
    name: str
    stage: str
    status: str
    allow_failure: bool
    web_url: str
    failure_reason: str | None = None


class _Position(msgspec.Struct, kw_only=True):
    new_path: str | None = None
    new_line: int | None = None
    old_path: str | None = None


class _Note(msgspec.Struct, kw_only=True):
    id: int
    body: str
    author: _User
    system: bool
    resolvable: bool
    created_at: datetime
    updated_at: datetime
    resolved: bool = False
    position: _Position | None = None


class _Discussion(msgspec.Struct):
    id: str
    notes: list[_Note]


class _Diff(msgspec.Struct, kw_only=True):
    new_path: str
    old_path: str
    diff: str
    too_large: bool | None = False
    collapsed: bool | None = False


class _Approval(msgspec.Struct):
    user: _User


class _Approvals(msgspec.Struct, kw_only=True):
    approved_by: list[Any]
    approvals_required: int = 0
    approvals_left: int = 0


class _Version(msgspec.Struct):
    """The version that a push created."""

    head_commit_sha: str
    created_at: datetime


class _Reviewer(msgspec.Struct):
    user: _User
    state: str


class _Member(_User):
    access_level: int


_STATES = {
    "opened": domain.PullState.OPEN,
    "locked": domain.PullState.OPEN,
    "merged": domain.PullState.MERGED,
}
_CHECKS = {
    "success": domain.CheckState.PASSED,
    "skipped": domain.CheckState.PASSED,
    "failed": domain.CheckState.FAILED,
    "canceled": domain.CheckState.FAILED,
}
_NOT_COMPUTED = frozenset({"unchecked", "checking", "preparing"})


class GitlabForge(RemoteForge):
    """One project on GitLab. A change in a merge train counts as `armed`."""

    profile = SERVICE
    webhooks = GITLAB
    root = "/projects"
    draft_prefix = "Draft: "

    def __init__(self, repo: str, token: str, **options: Any) -> None:
        super().__init__(repo, token, **options)
        self.path = f"{self.root}/{quote(repo, safe='')}"
        self._known: dict[int, domain.PullRequest] = {}
        self._parents: dict[str, frozenset[str]] = {}

    # --- reads -------------------------------------------------------------------------------------------

    @override
    def find_flow(self, branch: str) -> Flow[Sequence[domain.PullRequest]]:
        me = yield from self.login("username")
        query = [("source_branch", branch), ("state", "all"), ("order_by", "created_at"), ("sort", "desc")]
        found = yield from self._merges(query)
        return [
            self._pull(merge, me) for merge in found if merge.source_project_id == merge.target_project_id
        ]

    @override
    def find_onto_flow(self, branch: str) -> Flow[Sequence[int]]:
        query = [("target_branch", branch), ("state", "opened")]
        return [merge.iid for merge in (yield from self._merges(query))]

    def _merges(self, query: Query) -> Flow[list[_Merge]]:
        """The merge requests of one branch; raises if one of them is malformed."""
        records, _ = yield from self.listed(Any, "/merge_requests", query=query)
        return self.read_as(list[_Merge], records, self.request("GET", "/merge_requests"))

    @override
    def observe_flow(self, numbers: Sequence[int], *, fresh: bool) -> Flow[Mapping[int, domain.PullRequest]]:
        """As `Forge.observe`.

        GitLab has no request for several merge requests, and needs one for each kind of part.
        """
        me = yield from self.login("username")
        found: dict[int, domain.PullRequest] = {}
        if len(self._parents) > _MAX_PARENTS:
            self._parents.clear()
        for number in numbers:
            request = replace(self.request("GET", _ONE, number, accept=_NOT_FOUND), conditional=True)
            answer = yield request
            if answer.status in _NOT_FOUND:
                continue
            known = self._known.get(number)
            if known is None or fresh or not answer.cached or _is_moving(known):
                # A change is reported once: if this fails, it must be read again.
                self._known.pop(number, None)
                if pull := (yield from self.sound(number, self._snapshot(answer.body, request, me))):
                    found[number] = pull
            else:
                found[number] = known
        if len(found) < len(numbers):  # fails if the whole project is gone
            yield self.request("GET", "")
        self._known = found
        return found

    def _snapshot(self, record: Any, request: Request, me: str) -> Flow[domain.PullRequest]:
        merge = self.read_as(_Merge, record, request)
        path = f"{_ONE}/discussions"
        discussions, all_said = yield from self.listed(_Discussion, path, merge.iid, newest=True)
        diffs, all_files = yield from self.listed(_Diff, f"{_ONE}/diffs", merge.iid)
        reviewers, all_reviewers = yield from self.listed(_Reviewer, f"{_ONE}/reviewers", merge.iid)
        request = replace(self.request("GET", f"{_ONE}/approvals", merge.iid), conditional=True)
        approvals = self.read_as(_Approvals, (yield request).body, request)
        approved, all_approved = self.read_each(_Approval, approvals.approved_by, request)
        checks, all_checks = yield from self._checks(merge)
        approved_commits: dict[int, str] = {}
        if approved:
            versions, _ = yield from self.listed(_Version, f"{_ONE}/versions", merge.iid)
            approved_commits = _approved_commits(discussions, versions)
        voters = [(each.user, domain.ReviewState.APPROVED) for each in approved]
        voters += [
            (each.user, domain.ReviewState.CHANGES_REQUESTED)
            for each in reviewers
            if each.state == "requested_changes"
        ]
        people = {note.author.id for each in discussions for note in each.notes if not note.system}
        writers = yield from self._writers(people | {merge.author.id} | {user.id for user, _ in voters})

        def author(user: _User) -> domain.Author:
            return self._author(user, me, can_write=user.id in writers)

        def comment(note: _Note) -> domain.PullComment:
            return domain.PullComment(
                id=str(note.id), author=author(note.author), body=note.body, at=note.updated_at
            )

        said = [(each.id, [note for note in each.notes if not note.system]) for each in discussions]
        complete = all_said and all_files and all_approved and all_reviewers and all_checks
        return replace(
            self._pull(merge, me, complete=complete),
            author=author(merge.author),
            rules_met=approvals.approvals_left == 0 if approvals.approvals_required else None,
            checks=checks,
            reviews=tuple(
                domain.PullRequestReview(
                    id=f"{state}-{user.id}",
                    author=author(user),
                    state=state,
                    sha=approved_commits.get(user.id) if state is domain.ReviewState.APPROVED else None,
                    body="",
                    at=None,
                )
                for user, state in voters
            ),
            threads=tuple(
                domain.ReviewThread(
                    id=discussion_id,
                    resolved=all(note.resolved for note in notes if note.resolvable),
                    comments=tuple(map(comment, notes)),
                    path=place.new_path or place.old_path,
                    line=place.new_line,
                )
                for discussion_id, notes in said
                if notes and notes[0].resolvable
                for place in [notes[0].position or _Position()]
            ),
            comments=tuple(comment(note) for _, notes in said for note in notes if not notes[0].resolvable),
            files=tuple(dict.fromkeys(path for each in diffs for path in (each.old_path, each.new_path))),
            changed_lines=_changed_lines(diffs) if all_files else None,
        )

    def _checks(self, merge: _Merge) -> Flow[tuple[tuple[domain.Check, ...], bool]]:
        """The jobs of the last pipeline, maybe of an earlier commit, and whether the list is complete.

        The pipeline itself is another check if its state differs from its jobs: its file may be wrong.
        """
        pipeline = merge.head_pipeline
        if pipeline is None:
            return (), True
        sha = yield from self._judged_commit(merge, pipeline)
        jobs, complete = yield from self.listed(_Job, "/pipelines/{}/jobs", pipeline.id)
        checks = [
            domain.Check(
                id=str(job.id),
                name=domain.one_line(job.name, 200),
                state=_state(job.status, optional=job.allow_failure),
                sha=sha,
                required=not job.allow_failure,
                summary=domain.one_line(f"stage {job.stage}: {job.failure_reason or job.status}", 300),
                url=job.web_url,
                log=f"{self.path}/jobs/{job.id}/trace",
            )
            for job in jobs
        ]
        state = _state(pipeline.status)
        if state not in {check.state for check in checks if check.required}:
            checks.append(
                domain.Check(
                    id=f"pipeline-{pipeline.id}",
                    name="pipeline",
                    state=state,
                    sha=sha,
                    required=True,
                    url=pipeline.web_url,
                )
            )
        return tuple(checks), complete

    def _judged_commit(self, merge: _Merge, pipeline: _Pipeline) -> Flow[str]:
        """The commit of the branch that a pipeline checks.

        A pipeline for merged results or a merge train runs on GitLab's own commit, which merges that commit
        into the target. It counts for the commit, although the target may have moved since.
        """
        own = {f"refs/merge-requests/{merge.iid}/{kind}" for kind in ("merge", "train")}
        if merge.sha is None or pipeline.sha == merge.sha or pipeline.ref not in own:
            return pipeline.sha
        if pipeline.sha not in self._parents:
            request = self.request("GET", "/repository/commits/{}", pipeline.sha, accept=_NOT_FOUND)
            answer = yield request
            found = _Commit() if answer.status in _NOT_FOUND else self.read_as(_Commit, answer.body, request)
            self._parents[pipeline.sha] = frozenset(found.parent_ids)
        return merge.sha if merge.sha in self._parents[pipeline.sha] else pipeline.sha

    def _writers(self, ids: set[int]) -> Flow[frozenset[int]]:
        """Which of these accounts may write to the project."""
        asked, members = sorted(ids), list[_Member]()
        for start in range(0, len(asked), 100):
            query = [("user_ids[]", str(user_id)) for user_id in asked[start : start + 100]]
            found, _ = yield from self.listed(_Member, "/members/all", query=query)
            members += found
        return frozenset(member.id for member in members if member.access_level >= DEVELOPER)

    def _author(self, user: _User, me: str, *, can_write: bool = False) -> domain.Author:
        login = user.username.lower()
        return domain.Author(login=login, is_bot=is_bot(login), can_write=can_write, is_me=login == me)

    def _pull(self, merge: _Merge, me: str, *, complete: bool = False) -> domain.PullRequest:
        same = merge.source_project_id == merge.target_project_id
        fork = None if merge.source_project_id is None else f"project {merge.source_project_id}"
        return domain.PullRequest(
            id=str(merge.iid),
            number=merge.iid,
            url=merge.web_url,
            title=merge.title.removeprefix(self.draft_prefix),
            body=merge.description or "",
            state=_STATES.get(merge.state, domain.PullState.CLOSED),
            draft=merge.draft,
            author=self._author(merge.author, me),
            head_branch=merge.source_branch,
            head_repo=self.repo if same else fork,
            head_sha=merge.sha or "",
            base_branch=merge.target_branch,
            conflicts=None if merge.detailed_merge_status in _NOT_COMPUTED else merge.has_conflicts,
            labels=tuple(label.lower() for label in merge.labels),
            armed=merge.merge_when_pipeline_succeeds,
            complete=complete,
        )

    @override
    def access_flow(self) -> Flow[ForgeAccess]:
        project = (yield self.request("GET", "")).body
        self.check_repository(dig(project, "path_with_namespace"), archived=dig(project, "archived"))
        login = yield from self.login("username")
        levels = [
            dig(project, "permissions", kind, "access_level") for kind in ("project_access", "group_access")
        ]
        missing = []
        if max((level for level in levels if isinstance(level, int)), default=0) < DEVELOPER:
            missing.append("the role of a developer in the project")
        answer = yield Request(
            endpoint="/personal_access_tokens/self", path="/personal_access_tokens/self", accept=_NO_TOKEN_API
        )
        scopes = texts(items(dig(answer.body, "scopes")))
        if scopes and "api" not in scopes:
            missing.append("the scope api")
        return ForgeAccess(login=login, missing=tuple(missing))

    # --- writes ------------------------------------------------------------------------------------------

    async def open(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> int:
        """As `Forge.open`."""
        content = {
            "source_branch": branch,
            "target_branch": base,
            "title": self.titled(title, draft=draft),
            "description": without_quick_actions(body),
        }
        request = self.request("POST", "/merge_requests", body=content)
        return await self.run(self.number_of_new(request, "iid"))

    async def update(self, pull: domain.PullRequest, *, title: str, body: str) -> None:
        """As `Forge.update`."""
        title, text = self.titled(title, draft=pull.draft), without_quick_actions(body)
        content = {"title": title, "description": text}
        await self.send(self.request("PUT", _ONE, pull.number, body=content))

    async def reply(self, pull: domain.PullRequest, thread_id: str, body: str) -> None:
        """As `Forge.reply`."""
        path, content = f"{_ONE}/discussions/{{}}/notes", {"body": without_quick_actions(body)}
        await self.send(self.request("POST", path, pull.number, quote(thread_id, safe=""), body=content))

    async def resolve(self, pull: domain.PullRequest, thread_id: str) -> bool:
        """As `Forge.resolve`."""
        path, content = f"{_ONE}/discussions/{{}}", {"resolved": True}
        await self.send(self.request("PUT", path, pull.number, quote(thread_id, safe=""), body=content))
        return True

    async def add_labels(self, pull: domain.PullRequest, labels: Sequence[str]) -> None:
        """As `Forge.add_labels`; GitLab makes labels that do not exist."""
        await self.send(self.request("PUT", _ONE, pull.number, body={"add_labels": ",".join(labels)}))

    async def request_reviews(self, pull: domain.PullRequest, logins: Sequence[str]) -> None:
        """As `Forge.request_reviews`; without a paid plan GitLab keeps one reviewer."""
        await self.run(self._request_reviews(pull, logins))

    def _request_reviews(self, pull: domain.PullRequest, logins: Sequence[str]) -> Flow[None]:
        request = self.request("GET", _ONE, pull.number)
        ids = [user.id for user in self.read_as(_Merge, (yield request).body, request).reviewers]
        for login in logins:
            request = Request(endpoint="/users", path="/users", query=[("username", login)])
            users = self.read_as(list[_User], (yield request).body, request)
            if not users:
                raise self.service.not_found(f"user {login}", hint="correct forge.reviewers")
            ids.append(users[0].id)
        yield self.request("PUT", _ONE, pull.number, body={"reviewer_ids": list(dict.fromkeys(ids))})

    async def arm(self, pull: domain.PullRequest, landing: Landing) -> Landing:
        """As `Forge.arm`."""
        at_head = {"sha": pull.head_sha, "auto_merge": True}
        if landing is Landing.QUEUE:
            request = self.request("POST", "/merge_trains/merge_requests/{}", pull.number, body=at_head)
        else:
            content = {**at_head, "merge_when_pipeline_succeeds": True}  # its name before GitLab 17.11
            request = self.request("PUT", f"{_ONE}/merge", pull.number, body=content)
        answer = await self.send(request)
        return Landing.MERGED if dig(answer.body, "state") == "merged" else landing

    async def disarm(self, pull: domain.PullRequest) -> None:
        """As `Forge.disarm`."""
        await self.send(self.request("POST", f"{_ONE}/cancel_merge_when_pipeline_succeeds", pull.number))


def _state(status: str, *, optional: bool = False) -> domain.CheckState:
    """The state of a job or pipeline. A manual job waits for a person, unless it is optional."""
    if status == "manual" and optional:
        return domain.CheckState.PASSED
    return _CHECKS.get(status, domain.CheckState.PENDING)


def _is_moving(pull: domain.PullRequest) -> bool:
    """Whether parts may change that the merge request itself does not show."""
    return pull.conflicts is None or any(check.state is domain.CheckState.PENDING for check in pull.checks)


def _approved_commits(discussions: Sequence[_Discussion], versions: Sequence[_Version]) -> dict[int, str]:
    """The commit that each user approved last, by id, from the times of approvals and pushes."""
    notes = [note for each in discussions for note in each.notes if note.system and note.body == _APPROVED]
    found: dict[int, str] = {}
    for note in sorted(notes, key=lambda note: note.created_at):
        before = [each for each in versions if each.created_at < note.created_at]
        if before:
            found[note.author.id] = max(before, key=lambda each: each.created_at).head_commit_sha
    return found


def _changed_lines(diffs: Sequence[_Diff]) -> int | None:
    """How many lines change; `None` if GitLab leaves out a part."""
    if any(each.too_large or each.collapsed for each in diffs):
        return None
    return sum(line.startswith(("+", "-")) for each in diffs for line in each.diff.splitlines())
