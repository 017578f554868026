"""Delivers committed work from a workspace to the mirror, the operator's local repository, and `origin`.

The mirror belongs to the daemon and accepts everything. The local repository and `origin` belong to people:
there a branch only moves forward, or away from the commit that the daemon itself put there.

`origin` is the remote of that name in the local repository if `workspace.repo` is a path, else
`workspace.repo` itself. A push runs in the local repository, so that the operator's settings for the remote
apply (`pushurl`, `insteadOf`, `core.sshCommand`, credential helpers), but without its hooks. A login in the
address of `origin` is given to git separately (`split_login`).
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog
from anyio import to_thread

from symphony.config import WorkspaceSettings
from symphony.domain import Blame, Category, Failure, disk_full_hint, is_disk_full
from symphony.workspaces.files import temporary_directory
from symphony.workspaces.git import GitError, read_ref, without_credentials
from symphony.workspaces.layout import Layout, resolve
from symphony.workspaces.mirror import FETCH, Mirror
from symphony.workspaces.model import (
    NUMSTAT,
    Changes,
    Delivery,
    Login,
    Removal,
    local_repository,
    parse_numstat,
    split_login,
)
from symphony.workspaces.shadow import RefSnapshot, Shadow, open_shadow, read_ref_snapshot

_FETCH: Final = (*FETCH, "--no-tags")
_PUSH: Final = (
    *("-c", "remote.origin.mirror=false"),  # git refuses refspecs for a mirror
    *("push", "--quiet", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no"),
)
FETCHED_BASES: Final = "refs/symphony/fetched/"
"""Below it are the branches that `Publisher.fetch_base` fetched into the mirror."""

_PROBE_REF: Final = "refs/heads/symphony/doctor"  # used in dry runs only
_PROBE_TIMEOUT_MS: Final = 15_000
_EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # exists in every repository
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLocation:
    """Where people find a delivered branch.

    Attributes:
        repository: a path, or an address without credentials.
        fetch: the command that fetches the branch into another clone; `None` if `repository` is the
            operator's own.
    """

    repository: str
    fetch: str | None


def locate_branch(settings: WorkspaceSettings, branch: str, *, pushed: bool) -> BranchLocation | None:
    """Where a branch is, or will be, after its delivery; `None` where hooks populate workspaces.

    `pushed` says whether `origin` has it. Reads no repository.
    """
    repository = settings.repo
    if repository is None:
        return None
    if local_repository(repository) is not None:
        return BranchLocation(repository=repository, fetch=None)
    if pushed:
        fetch = f"git fetch origin {shlex.quote(branch)}"
        return BranchLocation(repository=without_credentials(repository), fetch=fetch)
    mirror = str(mirror_path(settings))
    fetch = f"git fetch {shlex.quote(mirror)} {shlex.quote(f'{branch}:{branch}')}"
    return BranchLocation(repository=mirror, fetch=fetch)


def mirror_path(settings: WorkspaceSettings) -> Path:
    """The mirror of `workspace.repo`, which must be set; the mirror need not exist."""
    try:
        root = resolve(settings.root)
    except OSError:  # reported where the root is used
        root = settings.root
    return Layout(root).mirror(settings.repo or "")


def delivery_failure(message: str, *, hint: str | None = None) -> Failure:
    """The failure for work that stays in the workspace; the next run or removal tries again."""
    return Failure(
        category=Category.DELIVERY_FAILED,
        blame=Blame.WORKSPACE,
        message=f"the work could not be delivered and is kept in the workspace: {message}",
        hint=hint,
    )


def push_failure(message: str, *, hint: str | None = None, retryable: bool = True) -> Failure:
    """The failure for a branch that is not on `origin`."""
    return Failure(
        category=Category.PUSH_FAILED, blame=Blame.WORKSPACE, message=message, hint=hint, retryable=retryable
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySource:
    """A workspace whose work is to be delivered; the attributes are as in `StoredRecord`."""

    path: Path
    branch: str
    base_commit: str | None
    git_hashes: Mapping[str, str] | None


class Publisher:
    """Delivers work of one repository; with `push` also to `origin`."""

    def __init__(self, mirror: Mirror, *, push: bool) -> None:
        self._git = mirror.git
        self._mirror = mirror
        self._local = local_repository(mirror.repository)
        self._push = push

    async def deliver(self, source: DeliverySource) -> Delivery:
        """Deliver the committed work of a workspace.

        Never raises for what the agent or git did wrong: that is in the result's `failure`. File modes in the
        workspace are not changed, because they can be part of the work.
        """
        seen = await to_thread.run_sync(read_ref_snapshot, source.path, source.git_hashes)
        warnings = tuple(f".git/{name} is not as it was made; it is not used" for name in seen.changed)
        delivery = Delivery(branch=source.branch, head=seen.head, warnings=warnings)
        path = shlex.quote(str(source.path))
        repair = f"see what the agent did to {source.path} (`chmod -R u+rwX {path}` gives rights back)"
        if seen.head is None:
            problem = seen.problem or ".git/HEAD names no commit"
            return replace(delivery, failure=delivery_failure(problem, hint=repair))
        try:
            return await self._deliver(source, seen, seen.head, delivery)
        except (GitError, OSError) as error:
            hint = disk_full_hint(self._mirror.path.parent) if is_disk_full(error) else repair
            return replace(delivery, failure=delivery_failure(str(error), hint=hint))

    async def _deliver(
        self, source: DeliverySource, seen: RefSnapshot, checked_out: str, delivery: Delivery
    ) -> Delivery:
        ref = f"refs/heads/{source.branch}"
        async with open_shadow(
            self._git,
            self._mirror.layout.staging,
            source.path,
            checked_out,
            git_hashes=source.git_hashes,
            objects=self._mirror.objects,
        ) as shadow:
            head, warning = await self._choose_head(shadow, source.branch, seen, checked_out)
            delivery = _with_warning(replace(delivery, head=head, delivered=True), warning)
            in_mirror = await to_thread.run_sync(read_ref, self._mirror.path, ref)
            if in_mirror is None and head == source.base_commit:
                return delivery  # no commit, so no branch
            if in_mirror != head:
                await shadow.point_at(head)
                await self._git.isolated(
                    "-C", self._mirror.path, *_FETCH, shadow.git_dir, f"+{shadow.tip}:{ref}"
                )
        return await self.publish(delivery, source.branch, head, source.base_commit)

    async def publish(self, delivery: Delivery, branch: str, head: str, base_commit: str | None) -> Delivery:
        """Bring a branch that is in the mirror to the local repository and to `origin`.

        Raises:
            GitError, OSError: the mirror cannot be read.
        """
        # How far the branch is ahead of its start, or of everything that the repository has.
        since = base_commit or "--remotes"
        count = await self._git.isolated("-C", self._mirror.path, "rev-list", "--count", head, "--not", since)
        changes = await self._diff(base_commit, head)
        delivery = replace(delivery, delivered=True, commits=int(count), changes=changes)
        if self._local is not None:
            warning = await self._update_local(self._local, branch, head)
            delivery = _with_warning(delivery, warning)
        if not self._push:
            return delivery
        failure = await self.push(branch)
        return replace(delivery, pushed=failure is None, push_failure=failure)

    async def _choose_head(
        self, shadow: Shadow, branch: str, seen: RefSnapshot, head: str
    ) -> tuple[str, str | None]:
        """The commit to deliver, and a warning about the choice.

        Agents create branches of their own. `HEAD` is the work as long as it continues the issue's branch.
        """
        own = seen.tips.get(f"refs/heads/{branch}")
        where = seen.head_branch or "a detached HEAD"
        if own == head:
            return head, None
        if own is None or await self._git.is_ancestor(shadow.git_dir, own, head):
            return head, f"the work was on {where}; delivered as {branch}"
        return own, f"{where} does not go on from {branch}; only {branch} was delivered"

    async def _diff(self, base_commit: str | None, head: str) -> Changes | None:
        if base_commit is None:
            return None
        diff = ("diff", *NUMSTAT, base_commit, head, "--")
        try:
            return parse_numstat(await self._git.isolated("-C", self._mirror.path, *diff))
        except GitError as error:
            _log.warning("changes_unknown", head=head, reason=str(error))
            return None

    async def _update_local(self, repository: Path, branch: str, head: str) -> str | None:
        """Fetch the branch into the operator's repository, which runs no receive hook; returns a warning."""
        ref = f"refs/heads/{branch}"
        fetch = ("-C", repository, *_FETCH, self._mirror.path)
        last = await self._last_head(branch, "repository")
        if last == head or await self._is_merged(branch, head):
            return None
        try:
            try:
                await self._git.trusted(*fetch, f"{ref}:{ref}")
            except GitError:
                verify = ("rev-parse", "--quiet", "--verify", ref)
                if last is None or await self._git.trusted("-C", repository, *verify) != f"{last}\n".encode():
                    raise
                await self._git.trusted(*fetch, f"+{ref}:{ref}")
        except GitError as error:
            return f"{branch} was left alone in {repository}: {error}"
        await self._remember_head(branch, "repository", head)
        return None

    async def push(self, branch: str) -> Failure | None:
        """Push a delivered branch to `origin`; commits of other people on it are never overwritten.

        Returns:
            `None` if `origin` has what the mirror has. Never raises for what git or the remote did.
        """
        try:
            head = await to_thread.run_sync(read_ref, self._mirror.path, f"refs/heads/{branch}")
            if head is None:
                return push_failure(f"there is no delivered branch {branch}", retryable=False)
            last = await self._last_head(branch, "pushed")
            if last == head or await self._is_merged(branch, head):
                return None
            destinations = await self._destinations()
            if not destinations:
                return self._no_origin()
            if self._local is not None:  # a push needs the commits, and the local branch may lack them
                await self._git.trusted("-C", self._local, *_FETCH, self._mirror.path, f"refs/heads/{branch}")
            where, refspec = self._local or self._mirror.path, f"{head}:refs/heads/{branch}"
            try:
                await self._push_refspec(where, destinations, refspec)
            except GitError as error:
                if last is None or not _is_rejected(error):
                    raise
                lease = f"--force-with-lease=refs/heads/{branch}:{last}"
                await self._push_refspec(where, destinations, refspec, lease)
            await self._remember_head(branch, "pushed", head)
        except (GitError, OSError) as error:
            hint = self._login_hint()
            if isinstance(error, GitError) and _is_rejected(error):
                hint = f"someone else changed {branch} on origin: delete or rename it there, or merge it"
            return push_failure(f"{branch} could not be pushed to origin: {error}", hint=hint)
        return None

    async def fetch_base(self, branch: str) -> str:
        """Fetch a branch of `origin` into the mirror, whose objects every workspace has; its commit.

        A local repository may be behind `origin`: it gets it as `git fetch origin BRANCH` would bring it.

        Raises:
            GitError, OSError: it could not be fetched.
        """
        options = ("--no-tags", "--refmap=", "--recurse-submodules=no")
        source, kept = f"refs/heads/{branch}", f"{FETCHED_BASES}{branch}"
        network = self._git.network_timeout_ms
        if self._local is None:
            fetch = ("-C", self._mirror.path, *FETCH, *options, "origin", f"+{source}:{kept}")
            await self._git.trusted(*fetch, timeout_ms=network, login=self._git.login)
        else:
            url = await self._git.trusted("-C", self._local, "remote", "get-url", "origin")
            address, login = split_login(url.decode("utf-8", "surrogateescape").strip())
            remote = "origin" if login is None else address
            tracking = f"refs/remotes/origin/{branch}"
            fetch = ("-C", self._local, *FETCH, *options, remote, f"+{source}:{tracking}")
            await self._git.trusted(*fetch, timeout_ms=network, login=login)
            await self._git.trusted(
                "-C", self._mirror.path, *FETCH, *options, self._local, f"+{tracking}:{kept}"
            )
        commit = await to_thread.run_sync(read_ref, self._mirror.path, kept)
        if commit is None:
            raise GitError(f"{branch} was fetched and is not there")
        return commit

    async def delete(self, branch: str, head: str) -> Removal:
        """Delete a branch that is merged from `origin` and from the local repository.

        Each loses it only where the daemon put it at `head` and it is still there. What is gone already, as a
        forge may delete it itself, is no failure, so a repetition changes nothing. The mirror keeps it, and
        that it is merged: new work on the issue begins at the base.

        Raises:
            GitError, OSError: it is not known whether it is deleted.
        """
        reasons, removed = list[str](), False
        for place in ("pushed", "repository"):
            last = await self._last_head(branch, place)
            if last is None:
                continue
            reason = None
            if last != head:
                reason = f"the daemon put another commit on {branch} than was merged"
            else:
                await self._remember_head(branch, "merged", head)
                if place == "pushed":
                    reason = await self._delete_pushed(branch, head)
                elif self._local is not None:
                    reason = await self._delete_local(self._local, branch, head)
            if reason is None:
                ref = f"refs/symphony/{place}/{branch}"
                await self._git.isolated("-C", self._mirror.path, "update-ref", "-d", ref)
                removed = True
            else:
                reasons.append(reason)
        return Removal(removed=removed, kept_reason="; ".join(dict.fromkeys(reasons)) or None)

    async def _delete_pushed(self, branch: str, head: str) -> str | None:
        """Delete the branch from `origin`; returns why it was kept."""
        where, ref = self._local or self._mirror.path, f"refs/heads/{branch}"
        for remote, login in await self._destinations():
            look = ("ls-remote", "--", remote, ref)
            timeout_ms = self._git.network_timeout_ms
            shown = await self._git.trusted("-C", where, *look, timeout_ms=timeout_ms, login=login)
            if not shown:
                continue
            try:
                lease = f"--force-with-lease={ref}:{head}"
                await self._push_refspec(where, [(remote, login)], f":{ref}", lease)
            except GitError as error:
                if _is_rejected(error):
                    return f"somebody pushed to {branch} on origin"
                if "! [remote rejected]" in str(error):
                    return f"origin does not let {branch} be deleted: {error}"
                raise
        return None

    async def _delete_local(self, repository: Path, branch: str, head: str) -> str | None:
        """Delete the branch from the operator's repository; returns why it was kept."""
        ref = f"refs/heads/{branch}"
        show = ("for-each-ref", "--format=%(objectname) %(worktreepath)", ref)
        shown = await self._git.trusted("-C", repository, *show)
        found, _, worktree = shown.decode("utf-8", "surrogateescape").strip().partition(" ")
        if worktree:
            return f"{branch} is checked out in {worktree}"
        if found not in {"", head}:
            return f"somebody changed {branch} in {repository}"
        if found:
            await self._git.trusted("-C", repository, "update-ref", "--no-deref", "-d", ref, head)
        return None

    async def probe(self) -> Failure | None:
        """Check by a dry run whether `origin` accepts branches; changes nothing.

        Returns:
            `None` if it does, as far as can be known without pushing.
        """
        try:
            destinations = await self._destinations()
            if not destinations:
                return self._no_origin()
            if self._local is not None:
                await self._dry_run(self._local, destinations, "HEAD")
                return None
            async with temporary_directory(None, "symphony-push-") as scratch:
                await self._git.trusted("init", "--quiet", "--bare", "--template=", scratch)
                identity = ("-c", "user.name=symphony", "-c", "user.email=symphony@localhost")
                commit = ("commit-tree", "-m", "never pushed", _EMPTY_TREE)
                made = await self._git.trusted("-C", scratch, *identity, *commit)
                remote = [(self._mirror.repository, self._git.login)]
                await self._dry_run(scratch, remote, made.decode().strip())
        except (GitError, OSError) as error:
            return push_failure(f"origin does not take branches: {error}", hint=self._login_hint())
        return None

    async def _destinations(self) -> list[tuple[str, Login | None]]:
        """The remotes to push to, each with its login; empty if the local repository has no `origin`."""
        if self._local is None:
            return [("origin", self._git.login)]
        try:
            urls = await self._git.trusted(
                "-C", self._local, "remote", "get-url", "--push", "--all", "origin"
            )
        except GitError:
            return []
        found = [split_login(line) for line in urls.decode("utf-8", "surrogateescape").splitlines()]
        return found if any(login for _, login in found) else [("origin", None)]

    async def _push_refspec(
        self,
        where: Path,
        destinations: list[tuple[str, Login | None]],
        refspec: str,
        *options: str,
        timeout_ms: int | None = None,
    ) -> None:
        timeout_ms = timeout_ms or self._git.network_timeout_ms
        for remote, login in destinations:
            push = (*_PUSH, *options, "--", remote, refspec)
            await self._git.trusted("-C", where, *push, timeout_ms=timeout_ms, login=login)

    async def _dry_run(self, where: Path, destinations: list[tuple[str, Login | None]], commit: str) -> None:
        timeout_ms = min(_PROBE_TIMEOUT_MS, self._git.network_timeout_ms)
        refspec = f"+{commit}:{_PROBE_REF}"
        await self._push_refspec(where, destinations, refspec, "--dry-run", timeout_ms=timeout_ms)

    async def _last_head(self, branch: str, place: str) -> str | None:
        """The commit that the daemon itself put on the branch in the local repository or on `origin`."""
        return await to_thread.run_sync(read_ref, self._mirror.path, f"refs/symphony/{place}/{branch}")

    async def _remember_head(self, branch: str, place: str, head: str) -> None:
        ref = f"refs/symphony/{place}/{branch}"
        await self._git.isolated("-C", self._mirror.path, "update-ref", ref, head)

    async def _is_merged(self, branch: str, head: str) -> bool:
        """Whether the branch is merged and deleted: the delivery before a removal does not bring it back."""
        return await self._last_head(branch, "merged") == head

    def _no_origin(self) -> Failure:
        return push_failure(
            f"{self._local} has no remote `origin` to push to",
            hint="add one with `git remote add origin URL`, or set workspace.push: never",
        )

    def _login_hint(self) -> str:
        where = "origin" if self._local else shlex.quote(without_credentials(self._mirror.repository))
        inside = f" in {self._local}" if self._local else ""
        return (
            f"see whether this user can push there: `git push --dry-run {where} HEAD:symphony/test`{inside}"
        )


def _is_rejected(error: GitError) -> bool:
    """Whether git refused to overwrite the remote branch. A refusal by the remote has another text."""
    return "! [rejected]" in str(error)


def _with_warning(delivery: Delivery, warning: str | None) -> Delivery:
    return delivery if warning is None else replace(delivery, warnings=(*delivery.warnings, warning))
