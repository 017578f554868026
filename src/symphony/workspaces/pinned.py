"""Files of the base branch, read-only and outside of every workspace, so that no branch can rewrite them.

    <root>/.symphony/pinned/<commit>-<digest of the paths>/

A place is named by what it holds: runs share it, and it never changes once it is there. It is put there as a
whole, in one step. What no run has begun with for a week is deleted when another one is made.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio import to_thread

from symphony.domain.failures import Category
from symphony.workspaces.files import drop, is_directory, make_directory, make_read_only
from symphony.workspaces.git import Git, GitError
from symphony.workspaces.layout import Layout
from symphony.workspaces.mirror import Advertised, Mirror, Snapshot, base_of
from symphony.workspaces.model import WorkspaceError
from symphony.workspaces.places import discard
from symphony.workspaces.shelf import Shelf, TooLargeError

__all__ = ["Pinned", "Pins"]

REFRESH_S: Final = 30.0
_KEEP_S: Final = 7 * 24 * 3_600

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Files of a commit; their paths below `root` are those in the repository."""

    root: Path
    commit: str


class Pins:
    """Pins files of one repository's base branch."""

    def __init__(
        self, git: Git, layout: Layout, mirror: Mirror, repository: str, base_branch: str | None
    ) -> None:
        self._git = git
        self._layout = layout
        self._mirror = mirror
        self._repository = repository
        self._base_branch = base_branch

    async def pin(self, paths: Sequence[str]) -> Pinned:
        """The files at these paths of the base branch as it is now, or as it was when last fetched.

        Raises:
            WorkspaceError: `workspace_repository`: no such branch, never fetched, or git failed; or there is
                too much of it.
        """
        _, commit = base_of(await self._offer(), self._base_branch, self._repository)
        target = self._layout.pinned(commit, paths)
        try:
            if not await to_thread.run_sync(_taken, target):
                await self._make(commit, paths, target)
        except TooLargeError as error:
            raise WorkspaceError.of(
                Category.WORKSPACE_REPOSITORY,
                "the skills of the base branch are too many or too large",
                hint="let agent.skills.path and extra_paths name directories that hold skills only",
            ) from error
        except (GitError, OSError) as error:
            raise self._mirror.unreadable(error) from error
        return Pinned(root=target, commit=commit)

    async def _offer(self) -> Advertised | Snapshot:
        try:
            with anyio.fail_after(REFRESH_S):
                return await self._mirror.refresh()
        except (WorkspaceError, TimeoutError) as error:
            known = await self._mirror.remembered()
            if known is None:
                raise self._mirror.unreadable(error) from error
            reason = error.failure.line if isinstance(error, WorkspaceError) else "no answer in time"
            _log.warning("base_branch_not_fetched", reason=reason)
            return known

    async def _make(self, commit: str, paths: Sequence[str], target: Path) -> None:
        staging, pins = self._layout.staging, self._layout.pins
        place = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=staging, prefix="pin-")))
        # Beside the target: a directory that cannot be written cannot be moved into another one.
        shelf = Shelf(self._git, place, pins / f".new-{place.name}")
        try:
            await to_thread.run_sync(make_directory, pins)
            await to_thread.run_sync(shelf.create, commit, (self._mirror.objects,))
            await shelf.copy(commit, paths)
            await to_thread.run_sync(_put, shelf.tree, target)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(_clear, (place, shelf.tree))
        await to_thread.run_sync(_sweep, self._layout, target)


def _taken(target: Path) -> bool:
    """Whether the place is there; that it is used again is noted, so that it stays."""
    if not is_directory(target):
        return False
    os.utime(target)
    return True


def _put(tree: Path, target: Path) -> None:
    make_read_only(tree)
    try:
        tree.rename(target)
    except OSError:
        if not is_directory(target):  # else another run was faster, and has put the same there
            raise


def _clear(leftovers: Sequence[Path]) -> None:
    for path in leftovers:
        drop(path)


def _sweep(layout: Layout, keep: Path) -> None:
    """Delete what is old, as far as possible."""
    limit = time.time() - _KEEP_S
    for path in layout.pins.iterdir():
        with suppress(OSError):
            if path != keep and path.lstat().st_mtime < limit:
                discard(layout, path)
