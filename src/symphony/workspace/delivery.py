"""Bringing committed work out of a workspace: into the mirror, the local repository, and `origin`.

The mirror takes what there is, always; it is ours. The repository and `origin` belong to people: there a
branch only moves forward, or from where we ourselves put it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread

from symphony.workspace.git import NETWORK_TIMEOUT_MS, Git, GitError
from symphony.workspace.layout import Layout
from symphony.workspace.mirror import Mirror
from symphony.workspace.model import Delivery
from symphony.workspace.refs import read_ref
from symphony.workspace.shadow import Glance, Shadow, glance, open_shadow

__all__ = ["Courier", "Parcel", "local_repository"]

_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What is known of a workspace whose work is to be delivered."""

    path: Path
    branch: str
    base_commit: str | None
    sealed: Mapping[str, str] | None


class Courier:
    """Delivers from workspaces of one repository."""

    def __init__(self, git: Git, layout: Layout, mirror: Mirror, repository: str, *, push: bool) -> None:
        self._git = git
        self._staging = layout.staging
        self._mirror = mirror
        self._local = local_repository(repository)
        self._push = push

    async def deliver(self, parcel: Parcel) -> Delivery:
        """Deliver what is committed; never raises for anything that an agent, a remote or git did wrong."""
        seen = await to_thread.run_sync(glance, parcel.path, parcel.sealed)
        warnings = tuple(f".git/{name} is not as it was made; it is not used" for name in seen.changed)
        nothing = Delivery(branch=parcel.branch, head=seen.head, warnings=warnings)
        if not seen.usable:
            return _warned(nothing, ".git is no directory any more; nothing can be delivered from it")
        if seen.head is None:
            return _warned(nothing, ".git/HEAD names no commit; nothing can be delivered")
        try:
            return await self._deliver(parcel, seen, seen.head, nothing)
        except (GitError, OSError) as error:
            return _warned(nothing, f"the work could not be delivered: {error}")

    async def _deliver(self, parcel: Parcel, seen: Glance, checked_out: str, nothing: Delivery) -> Delivery:
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
        delivery = replace(delivery, delivered=True, commits=await self._count(parcel, head))
        if self._local is not None:
            return await self._to_repository(self._local, delivery, head)
        return await self._to_origin(delivery, head) if self._push else delivery

    async def _to_mirror(self, shadow: Shadow, parcel: Parcel, head: str) -> bool:
        """Whether there is a branch to deliver; one without a commit of its own is not made."""
        ref = f"refs/heads/{parcel.branch}"
        there = await to_thread.run_sync(read_ref, self._mirror.path, ref)
        if there is None and head == parcel.base_commit:
            return False
        if there != head:
            await shadow.point_at(head)
            await self._git.isolated("-C", self._mirror.path, *_FETCH, shadow.git_dir, f"+{shadow.tip}:{ref}")
        return True

    async def _count(self, parcel: Parcel, head: str) -> int:
        """How far the branch is ahead of where it began, or of all that the repository has."""
        since = parcel.base_commit or "--remotes"
        counted = await self._git.isolated(
            "-C", self._mirror.path, "rev-list", "--count", head, "--not", since
        )
        return int(counted)

    async def _to_repository(self, repository: Path, delivery: Delivery, head: str) -> Delivery:
        """Fetch the branch into the operator's own repository (a fetch runs none of its receive hooks)."""
        ref = f"refs/heads/{delivery.branch}"
        fetch = ("-C", repository, *_FETCH, self._mirror.path)
        done = replace(delivery, pushed=self._push)
        ours = await self._last(delivery, "repository")
        if ours == head:
            return done
        try:
            try:
                await self._git.trusted(*fetch, f"{ref}:{ref}")
            except GitError:
                if ours is None or await self._tip(repository, ref) != ours:
                    raise
                await self._git.trusted(*fetch, f"+{ref}:{ref}")
        except GitError as error:
            return _warned(delivery, f"{delivery.branch} was left alone in {repository}: {error}")
        await self._remember(delivery, "repository", head)
        return done

    async def _to_origin(self, delivery: Delivery, head: str) -> Delivery:
        """Push the branch; what somebody else put on it is never overwritten."""
        ref = f"refs/heads/{delivery.branch}"
        ours = await self._last(delivery, "pushed")
        if ours == head:
            return replace(delivery, pushed=True)
        try:
            try:
                await self._push_ref(f"{ref}:{ref}")
            except GitError:
                if ours is None:
                    raise
                await self._push_ref(f"{ref}:{ref}", f"--force-with-lease={ref}:{ours}")
        except GitError as error:
            return _warned(delivery, f"{delivery.branch} could not be pushed to origin: {error}")
        await self._remember(delivery, "pushed", head)
        return replace(delivery, pushed=True)

    async def _push_ref(self, refspec: str, *options: str) -> None:
        await self._git.trusted(
            "-C",
            self._mirror.path,
            "push",
            "--quiet",
            "--no-verify",
            "--no-follow-tags",
            *options,
            "origin",
            refspec,
            timeout_ms=NETWORK_TIMEOUT_MS,
        )

    async def _tip(self, repository: Path, ref: str) -> str:
        answer = await self._git.trusted("-C", repository, "rev-parse", "--quiet", "--verify", ref)
        return answer.decode().strip()

    async def _last(self, delivery: Delivery, place: str) -> str | None:
        """Where we ourselves put the branch last."""
        return await to_thread.run_sync(
            read_ref, self._mirror.path, f"refs/symphony/{place}/{delivery.branch}"
        )

    async def _remember(self, delivery: Delivery, place: str, head: str) -> None:
        ref = f"refs/symphony/{place}/{delivery.branch}"
        await self._git.isolated("-C", self._mirror.path, "update-ref", ref, head)


def local_repository(repository: str) -> Path | None:
    """The path of a repository on this machine; null for an address."""
    path = Path(repository)
    return path if path.is_absolute() else None


async def _choose(shadow: Shadow, branch: str, seen: Glance, head: str) -> tuple[str, str | None]:
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
