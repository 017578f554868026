"""Whether a workspace may be deleted: never while it holds work that is nowhere else.

In doubt it is kept, and the reason is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from symphony.workspace.git import Git, GitError
from symphony.workspace.layout import Layout
from symphony.workspace.mirror import Mirror
from symphony.workspace.refs import all_refs
from symphony.workspace.shadow import Glance, Shadow, glance, open_shadow

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
        if not seen.usable:
            return await to_thread.run_sync(self._unusable, path)
        try:
            async with open_shadow(
                self.git,
                self.layout.staging,
                path,
                seen.head,
                sealed=sealed,
                objects=None if self.mirror is None else self.mirror.objects,
            ) as shadow:
                return await self._dirty(shadow) or await self._undelivered(shadow, seen)
        except (GitError, OSError) as error:
            return f"its repository cannot be inspected: {error}"

    def _unusable(self, path: Path) -> str | None:
        """A directory that never was a repository holds nothing that we know how to keep."""
        present = (path / ".git").is_symlink() or (path / ".git").exists()
        if present or self.mirror is not None:
            return (
                "its .git is no directory with a repository, so it cannot be told whether work would be lost"
            )
        return None

    async def _dirty(self, shadow: Shadow) -> str | None:
        if not self.keep_dirty:
            return None
        entries = [entry for entry in (await shadow.status()).split(b"\0") if entry]
        if entries:
            return f"{len(entries)} uncommitted or untracked file(s)"
        if await shadow.submodules():
            return "it has checked-out submodules, whose state cannot be inspected safely"
        return None

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
