"""Decides whether a workspace may be deleted: never while it holds work that exists nowhere else.

In doubt it is kept, and the reason is reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from symphony.config import WorkspaceSettings
from symphony.processes.base import Host
from symphony.workspaces.directories import examine
from symphony.workspaces.files import is_directory, is_missing
from symphony.workspaces.git import Git, GitError, all_refs
from symphony.workspaces.layout import Layout
from symphony.workspaces.mirror import Mirror
from symphony.workspaces.shadow import (
    MAX_POINTER_BYTES,
    RefSnapshot,
    Shadow,
    is_content_of,
    open_shadow,
    read_ref_snapshot,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalCheck:
    """Checks workspaces below one root.

    Attributes:
        git: runs git.
        layout: of the root.
        mirror: of the repository; `None` where hooks populate workspaces. There only the workspace's own
            remote-tracking refs show what a remote has.
        keep_dirty: keep workspaces with uncommitted work. Commits that exist nowhere else are always kept.
    """

    git: Git
    layout: Layout
    mirror: Mirror | None
    keep_dirty: bool

    async def reason_to_keep(self, path: Path, git_hashes: Mapping[str, str] | None) -> str | None:
        """One line on why the workspace must stay; `None` if nothing would be lost."""
        seen = await to_thread.run_sync(read_ref_snapshot, path)
        if seen.problem is not None:
            if self.mirror is None and await to_thread.run_sync(is_missing, path / ".git"):
                return None  # it never was a repository
            return f"{seen.problem}, so work might be lost"
        objects = None if self.mirror is None else self.mirror.objects
        try:
            async with open_shadow(
                self.git, self.layout.staging, path, seen.head, git_hashes=git_hashes, objects=objects
            ) as shadow:
                return await self._uncommitted(shadow, path) or await self._undelivered(shadow, seen)
        except (GitError, OSError) as error:
            return f"its repository cannot be inspected: {error}"

    async def _uncommitted(self, shadow: Shadow, path: Path) -> str | None:
        if not self.keep_dirty:
            return None
        entries = await shadow.status()
        has_lfs = bool(entries) and await to_thread.run_sync(is_directory, path / ".git/lfs")
        if has_lfs:
            entries = await self._without_lfs_files(shadow, path, entries)
        if entries:
            return f"{len(entries)} uncommitted or untracked file(s)"
        if await shadow.has_submodules():
            return "it has checked-out submodules, whose state cannot be inspected safely"
        return None

    async def _without_lfs_files(self, shadow: Shadow, path: Path, entries: list[bytes]) -> list[bytes]:
        """The changes without files that match their Git LFS pointer, as no filter runs in a shadow."""
        changed = {entry: entry.split(b" ", 8) for entry in entries if entry.startswith(b"1 .M ")}
        pointers = await shadow.small_blobs((fields[7] for fields in changed.values()), MAX_POINTER_BYTES)

        def matches_pointer(entry: bytes) -> bool:
            fields = changed.get(entry)
            if fields is None or fields[7] not in pointers:
                return False
            return is_content_of(pointers[fields[7]], path / fields[8].decode("utf-8", "surrogateescape"))

        return await to_thread.run_sync(lambda: [entry for entry in entries if not matches_pointer(entry)])

    async def _undelivered(self, shadow: Shadow, seen: RefSnapshot) -> str | None:
        if self.mirror is None:
            safe = frozenset(seen.remote_tips.values())
        else:
            safe = frozenset((await to_thread.run_sync(all_refs, self.mirror.path, "refs/")).values())
        tips = {**seen.tips, **({"HEAD": seen.head} if seen.head else {})}
        for name, commit in tips.items():
            if commit not in safe and not await shadow.is_within(commit, safe):
                return f"commits on {name.removeprefix('refs/heads/')} that were not delivered"
        return None


async def reason_to_keep(
    path: Path,
    *,
    host: Host,
    settings: WorkspaceSettings,
    environment: Mapping[str, str],
    secret_names: frozenset[str],
) -> str | None:
    """Why `WorkspaceManager.remove` would keep a workspace; `None` if nothing would be lost. Changes nothing.

    A removal delivers committed work first, so a workspace that is kept for that here may be removed then.

    Raises:
        WorkspaceError: the path fails the containment check.
    """
    layout, path, record, exists, foreign_owner = await to_thread.run_sync(examine, path)
    if foreign_owner:
        return foreign_owner
    if not exists or (record is not None and not record.ready):
        return None
    git = Git(host, environment, secret_names)
    mirror = None if record is None or record.repo is None else Mirror(git, layout, record.repo)
    check = RemovalCheck(git=git, layout=layout, mirror=mirror, keep_dirty=settings.keep_dirty)
    return await check.reason_to_keep(path, None if record is None else record.git_hashes)
