"""Bringing committed work out of a workspace: into the mirror, the local repository, and `origin`.

The mirror takes what there is, always; it is ours. The repository and `origin` belong to people: there a
branch only moves forward, or from where we ourselves put it.

`origin` is the remote of that name: of the local repository where `workspace.repo` is a path, else
`workspace.repo` itself. A push runs in that repository, so that the operator's settings for the remote hold
(`pushurl`, `insteadOf`, `core.sshCommand`, credential helpers), and runs none of its hooks. Where an address
of `origin` has a login in it, the push goes to the address without it, and git is told the login apart
(`remote`).
"""

import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from symphony.config import WorkspaceSettings
from symphony.domain import Blame, Category, Failure, disk_full_hint, is_disk_full
from symphony.workspaces.files import drop
from symphony.workspaces.git import (
    Git,
    GitError,
    RefSnapshot,
    Shadow,
    open_shadow,
    read_ref,
    read_ref_snapshot,
    without_credentials,
)
from symphony.workspaces.layout import Layout, resolve
from symphony.workspaces.mirror import Mirror
from symphony.workspaces.model import NUMSTAT, Changes, Delivery, Login, parse_numstat, split_login

_PUSH = ("push", "--quiet", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")
_PROBED = "refs/heads/symphony/doctor"  # named in dry runs only
_PROBE_TIMEOUT_MS = 15_000
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git knows it without having it
_log = structlog.get_logger(__name__)
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLocation:
    """Where a person finds a delivered branch.

    `place` is a repository: a path or an address without credentials. `fetch` is the command that brings the
    branch into a clone of one's own, `None` where `place` is the operator's own repository.
    """

    repository: str
    fetch: str | None


def locate_branch(settings: WorkspaceSettings, branch: str, *, pushed: bool) -> BranchLocation | None:
    """Where a branch that was delivered with these settings is; `None` where hooks populate workspaces.

    `pushed` says whether `origin` has it. Looks at no branch, so it can be told of one to come.
    """
    repository = settings.repo
    if repository is None:
        return None
    if local_repository(repository) is not None:
        return BranchLocation(repository=repository, fetch=None)
    if pushed:
        return BranchLocation(
            repository=without_credentials(repository), fetch=f"git fetch origin {shlex.quote(branch)}"
        )
    mirror = str(mirror_path(settings))
    refspec = shlex.quote(f"{branch}:{branch}")
    return BranchLocation(repository=mirror, fetch=f"git fetch {shlex.quote(mirror)} {refspec}")


def mirror_path(settings: WorkspaceSettings) -> Path:
    """The mirror of `workspace.repo`, which must be set; it need not exist yet."""
    try:
        root = resolve(settings.root)
    except OSError:  # whoever uses the root says so
        root = settings.root
    return Layout(root).mirror(settings.repo or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySource:
    """What is known of a workspace whose work is to be delivered."""

    path: Path
    branch: str
    base_commit: str | None
    sealed: Mapping[str, str] | None


class Publisher:
    """Delivers from workspaces of one repository."""

    def __init__(self, git: Git, layout: Layout, mirror: Mirror, repository: str, *, push: bool) -> None:
        self._git = git
        self._staging = layout.staging
        self._mirror = mirror
        self._repository = repository
        self._local = local_repository(repository)
        self._push = push

    async def deliver(self, parcel: DeliverySource) -> Delivery:
        """Deliver what is committed; what an agent or git did wrong is told in the `failure` and not raised.

        The modes of files in a workspace are left as they are: they can be part of the work.
        """
        seen = await to_thread.run_sync(read_ref_snapshot, parcel.path, parcel.sealed)
        warnings = tuple(f".git/{name} is not as it was made; it is not used" for name in seen.changed)
        nothing = Delivery(branch=parcel.branch, head=seen.head, warnings=warnings)
        if seen.problem is not None:
            return replace(nothing, failure=delivery_failure(seen.problem, hint=_repair(parcel.path)))
        if seen.head is None:
            message = ".git/HEAD names no commit"
            return replace(nothing, failure=delivery_failure(message, hint=_repair(parcel.path)))
        try:
            return await self._deliver(parcel, seen, seen.head, nothing)
        except (GitError, OSError) as error:
            room = disk_full_hint(self._mirror.path.parent) if is_disk_full(error) else _repair(parcel.path)
            return replace(nothing, failure=delivery_failure(str(error), hint=room))

    async def _deliver(
        self, parcel: DeliverySource, seen: RefSnapshot, checked_out: str, nothing: Delivery
    ) -> Delivery:
        async with open_shadow(
            self._git,
            self._staging,
            parcel.path,
            checked_out,
            sealed=parcel.sealed,
            objects=self._mirror.objects,
        ) as shadow:
            head, remark = await _choose(shadow, parcel.branch, seen, checked_out)
            delivery = _warned(replace(nothing, head=head), remark)
            if not await self._to_mirror(shadow, parcel, head):
                return replace(delivery, delivered=True)
        delivery = replace(
            delivery,
            delivered=True,
            commits=await self._count(parcel, head),
            changes=await self._changes(parcel, head),
        )
        if self._local is not None:
            delivery = await self._to_repository(self._local, parcel.branch, delivery, head)
        if not self._push:
            return delivery
        failure = await self.push(parcel.branch)
        return replace(delivery, pushed=failure is None, push_failure=failure)

    async def _to_mirror(self, shadow: Shadow, parcel: DeliverySource, head: str) -> bool:
        """Whether there is a branch to deliver; one without a commit of its own is not made."""
        ref = f"refs/heads/{parcel.branch}"
        there = await to_thread.run_sync(read_ref, self._mirror.path, ref)
        if there is None and head == parcel.base_commit:
            return False
        if there != head:
            await shadow.point_at(head)
            await self._git.isolated("-C", self._mirror.path, *_FETCH, shadow.git_dir, f"+{shadow.tip}:{ref}")
        return True

    async def _count(self, parcel: DeliverySource, head: str) -> int:
        """How far the branch is ahead of where it began, or of all that the repository has."""
        since = parcel.base_commit or "--remotes"
        counted = await self._git.isolated(
            "-C", self._mirror.path, "rev-list", "--count", head, "--not", since
        )
        return int(counted)

    async def _changes(self, parcel: DeliverySource, head: str) -> Changes | None:
        """What the branch changes since it began; `None` where that is not known."""
        if parcel.base_commit is None:
            return None
        diff = ("diff", *NUMSTAT, parcel.base_commit, head, "--")
        try:
            return parse_numstat(await self._git.isolated("-C", self._mirror.path, *diff))
        except GitError as error:
            _log.warning("changes_unknown", branch=parcel.branch, reason=str(error))
            return None

    async def _to_repository(self, repository: Path, branch: str, delivery: Delivery, head: str) -> Delivery:
        """Fetch the branch into the operator's own repository (a fetch runs none of its receive hooks)."""
        ref = f"refs/heads/{branch}"
        fetch = ("-C", repository, *_FETCH, self._mirror.path)
        ours = await self._last(branch, "repository")
        if ours == head:
            return delivery
        try:
            try:
                await self._git.trusted(*fetch, f"{ref}:{ref}")
            except GitError:
                if ours is None or await self._tip(repository, ref) != ours:
                    raise
                await self._git.trusted(*fetch, f"+{ref}:{ref}")
        except GitError as error:
            return _warned(delivery, f"{branch} was left alone in {repository}: {error}")
        await self._remember(branch, "repository", head)
        return delivery

    async def push(self, branch: str) -> Failure | None:
        """Push a delivered branch to `origin`; what somebody else put on it there is never overwritten.

        `None` means that `origin` has what the mirror has. Never raises for what git or the remote did.
        """
        try:
            head = await to_thread.run_sync(read_ref, self._mirror.path, f"refs/heads/{branch}")
            if head is None:
                return push_failure(f"there is no delivered branch {branch}", retryable=False)
            return await self._to_origin(branch, head)
        except (GitError, OSError) as error:
            return push_failure(f"{branch} could not be pushed: {error}")

    async def _to_origin(self, branch: str, head: str) -> Failure | None:
        ours = await self._last(branch, "pushed")
        if ours == head:
            return None
        if self._local is not None:
            if not await self._destinations():
                return _no_origin(self._local)
            # The branch may have been left alone there, and a push needs its commits.
            await self._git.trusted("-C", self._local, *_FETCH, self._mirror.path, f"refs/heads/{branch}")
        refspec = f"{head}:refs/heads/{branch}"
        try:
            try:
                await self._push_ref(refspec)
            except GitError as error:
                if ours is None or not _is_rejected(error):
                    raise
                await self._push_ref(refspec, f"--force-with-lease=refs/heads/{branch}:{ours}")
        except GitError as error:
            message = f"{branch} could not be pushed to origin: {error}"
            return push_failure(message, hint=self._push_hint(branch, error))
        await self._remember(branch, "pushed", head)
        return None

    async def probe(self) -> Failure | None:
        """Ask `origin` by a dry run whether it takes branches from us; nothing is changed there.

        `None` means that it does, as far as can be told without pushing.
        """
        try:
            if self._local is not None:
                destinations = await self._destinations()
                for remote, login in destinations:
                    await self._try(self._local, remote, "HEAD", login)
                return None if destinations else _no_origin(self._local)
            scratch = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="symphony-push-")))
            try:
                await self._git.trusted("init", "--quiet", "--bare", "--template=", scratch)
                who = ("-c", "user.name=symphony", "-c", "user.email=symphony@localhost")
                commit = ("commit-tree", "-m", "never pushed", _EMPTY_TREE)
                made = await self._git.trusted("-C", scratch, *who, *commit)
                await self._try(scratch, self._repository, made.decode().strip(), self._git.login)
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(drop, scratch)
        except (GitError, OSError) as error:
            return push_failure(f"origin does not take branches: {error}", hint=self._login_hint())
        return None

    async def _try(self, where: Path, remote: str, commit: str, login: Login | None) -> None:
        await self._git.trusted(
            "-C",
            where,
            "-c",
            "remote.origin.mirror=false",
            *_PUSH,
            "--dry-run",
            "--",
            remote,
            f"+{commit}:{_PROBED}",
            timeout_ms=min(_PROBE_TIMEOUT_MS, self._git.network_timeout_ms),
            login=login,
        )

    async def _destinations(self) -> list[tuple[str, Login | None]]:
        """What to push to, with the login for each; empty where the local repository has no `origin`."""
        if self._local is None:
            return [("origin", self._git.login)]
        try:
            answer = await self._git.trusted(
                "-C", self._local, "remote", "get-url", "--push", "--all", "origin"
            )
        except GitError:
            return []
        found = [split_login(line) for line in answer.decode("utf-8", "surrogateescape").splitlines()]
        return found if any(login for _, login in found) else [("origin", None)]

    def _push_hint(self, branch: str, error: GitError) -> str:
        if _is_rejected(error):
            return f"somebody else changed {branch} on origin: delete or rename it there, or merge it first"
        return self._login_hint()

    def _login_hint(self) -> str:
        where = "origin" if self._local else without_credentials(self._repository)
        inside = f" in {self._local}" if self._local else ""
        return (
            f"see whether this user can push there: `git push --dry-run {where} HEAD:symphony/test`{inside}"
        )

    async def _push_ref(self, refspec: str, *options: str) -> None:
        for remote, login in await self._destinations():
            await self._git.trusted(
                "-C",
                self._local or self._mirror.path,
                "-c",
                "remote.origin.mirror=false",  # a mirror takes no refspec
                *_PUSH,
                *options,
                "--",
                remote,
                refspec,
                timeout_ms=self._git.network_timeout_ms,
                login=login,
            )

    async def _tip(self, repository: Path, ref: str) -> str:
        answer = await self._git.trusted("-C", repository, "rev-parse", "--quiet", "--verify", ref)
        return answer.decode().strip()

    async def _last(self, branch: str, place: str) -> str | None:
        """Where we ourselves put the branch last."""
        return await to_thread.run_sync(read_ref, self._mirror.path, f"refs/symphony/{place}/{branch}")

    async def _remember(self, branch: str, place: str, head: str) -> None:
        ref = f"refs/symphony/{place}/{branch}"
        await self._git.isolated("-C", self._mirror.path, "update-ref", ref, head)


def _is_rejected(error: GitError) -> bool:
    """Whether git refused to overwrite the remote branch (a remote's own refusal reads otherwise)."""
    return "! [rejected]" in str(error)


def _no_origin(repository: Path) -> Failure:
    return push_failure(
        f"{repository} has no remote `origin` to push to",
        hint="add one with `git remote add origin URL`, or set workspace.push: never",
    )


def _repair(path: Path) -> str:
    return f"see what the agent did to {path} (`chmod -R u+rwX {shlex.quote(str(path))}` gives rights back)"


def delivery_failure(message: str, *, hint: str | None = None) -> Failure:
    """Work that is in the workspace only; the next end of a run, or a removal, tries again."""
    return Failure(
        category=Category.DELIVERY_FAILED,
        blame=Blame.WORKSPACE,
        message=f"the work could not be delivered and is kept in the workspace: {message}",
        hint=hint,
    )


def push_failure(message: str, *, hint: str | None = None, retryable: bool = True) -> Failure:
    """A branch that `origin` does not have; by default worth another try, as people mend remotes."""
    return Failure(
        category=Category.PUSH_FAILED,
        blame=Blame.WORKSPACE,
        message=message,
        hint=hint,
        retryable=retryable,
    )


def local_repository(repository: str) -> Path | None:
    """The path of a repository on this machine; null for an address."""
    path = Path(repository)
    return path if path.is_absolute() else None


async def _choose(shadow: Shadow, branch: str, seen: RefSnapshot, head: str) -> tuple[str, str | None]:
    """The commit that stands for the work, and what to tell people about the choice.

    Agents make branches of their own. As long as `HEAD` goes on from the issue's branch, it is the work.
    """
    own = seen.tips.get(f"refs/heads/{branch}")
    where = seen.head_branch or "a detached HEAD"
    if own == head:
        return head, None
    if own is None or await shadow.is_ancestor(own, head):
        return head, f"the work was on {where}; delivered as {branch}"
    return own, f"{where} does not go on from {branch}; only {branch} was delivered"


def _warned(delivery: Delivery, remark: str | None) -> Delivery:
    return delivery if remark is None else replace(delivery, warnings=(*delivery.warnings, remark))
