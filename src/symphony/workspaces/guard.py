"""Whether a workspace may be deleted: never while it holds work that is nowhere else.

In doubt it is kept, and the reason is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from symphony.workspaces.files import is_directory, is_missing
from symphony.workspaces.git import Git, GitError
from symphony.workspaces.layout import Layout
from symphony.workspaces.lfs import MAX_POINTER_BYTES, is_content_of
from symphony.workspaces.mirror import Mirror
from symphony.workspaces.refs import all_refs
from symphony.workspaces.shadow import Glance, Shadow, glance, open_shadow

__all__ = ["Guard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Judges workspaces of one root.

    `mirror` is null for workspaces that hooks populated: there only their own tracking refs tell what a
    remote has. Without `keep_dirty` uncommitted work may go; commits that are nowhere else never may.
    """

    git: Git
    layout: Layout
    mirror: Mirror | None
    keep_dirty: bool

    async def reason_to_keep(self, path: Path, sealed: Mapping[str, str] | None) -> str | None:
        """Why the workspace must stay, in one line; null when nothing would be lost."""
        seen = await to_thread.run_sync(glance, path, None)
        if seen.problem is not None:
            return await to_thread.run_sync(self._unusable, path, seen.problem)
        try:
            async with open_shadow(
                self.git,
                self.layout.staging,
                path,
                seen.head,
                sealed=sealed,
                objects=None if self.mirror is None else self.mirror.objects,
            ) as shadow:
                return await self._dirty(shadow, path) or await self._undelivered(shadow, seen)
        except (GitError, OSError) as error:
            return f"its repository cannot be inspected: {error}"

    def _unusable(self, path: Path, problem: str) -> str | None:
        """A directory that surely never was a repository holds nothing that we know how to keep."""
        if self.mirror is None and is_missing(path / ".git"):
            return None
        return f"{problem}, so it cannot be told whether work would be lost"

    async def _dirty(self, shadow: Shadow, path: Path) -> str | None:
        if not self.keep_dirty:
            return None
        entries = [entry for entry in (await shadow.status()).split(b"\0") if entry]
        in_lfs = bool(entries) and await to_thread.run_sync(is_directory, path / ".git/lfs")
        if in_lfs:
            entries = await self._without_pointers(shadow, path, entries)
        if entries:
            return f"{len(entries)} uncommitted or untracked file(s)"
        if await shadow.submodules():
            return "it has checked-out submodules, whose state cannot be inspected safely"
        return None

    async def _without_pointers(self, shadow: Shadow, path: Path, entries: list[bytes]) -> list[bytes]:
        """The changes without files that are what a pointer of Git LFS says: no filter runs in a shadow."""
        changed = {entry: entry.split(b" ", 8) for entry in entries if entry.startswith(b"1 .M ")}
        pointers = await shadow.small_blobs((fields[7] for fields in changed.values()), MAX_POINTER_BYTES)

        def unchanged(entry: bytes) -> bool:
            fields = changed.get(entry)
            if fields is None or fields[7] not in pointers:
                return False
            return is_content_of(pointers[fields[7]], path / fields[8].decode("utf-8", "surrogateescape"))

        return await to_thread.run_sync(lambda: [entry for entry in entries if not unchanged(entry)])

    async def _undelivered(self, shadow: Shadow, seen: Glance) -> str | None:
        tips = {**seen.tips, **({"HEAD": seen.head} if seen.head else {})}
        known = await to_thread.run_sync(self._known, seen)
        for name, commit in tips.items():
            if not await self._safe(shadow, commit, known):
                return f"commits on {name.removeprefix('refs/heads/')} that were not delivered"
        return None

    def _known(self, seen: Glance) -> frozenset[str]:
        """Commits that cannot be lost with the workspace."""
        if self.mirror is None:
            return frozenset(seen.remote_tips.values())
        return frozenset(all_refs(self.mirror.path, "refs/").values())

    async def _safe(self, shadow: Shadow, commit: str, known: frozenset[str]) -> bool:
        return commit in known or await shadow.within(commit, known)
