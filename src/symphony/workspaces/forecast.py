"""What a workspace that is not made yet will hold, told without making it or touching any repository.

The commit is chosen by the rule of `checkout`, from what the repository (where it is a local path) or the
mirror has now; nothing is fetched. The files asked for are laid out on a `shelf` in a private directory.
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from symphony.domain.ids import branch_name
from symphony.workspaces.checkout import begins_at
from symphony.workspaces.delivery import local_repository
from symphony.workspaces.files import drop
from symphony.workspaces.git import Git, GitError
from symphony.workspaces.mirror import Advertised, Mirror, base_of
from symphony.workspaces.refs import read_ref
from symphony.workspaces.shelf import Shelf, TooLargeError

__all__ = ["NOT_POPULATED", "Forecast", "Foresight"]

_UNKNOWN: Final = "the workspace does not exist yet, so its skills are not known"
NOT_POPULATED: Final = f"{_UNKNOWN}: hooks will fill it"
_NOT_FETCHED: Final = f"{_UNKNOWN}: its repository was never fetched"
_TOO_LARGE: Final = f"{_UNKNOWN}: they are too many or too large for a look ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """What an attempt would find.

    Attributes:
        path: where the files are or will be, absolute and resolved: in the workspace, or pinned.
        exists: whether the workspace is there, and the files are read in it.
        tree: where the files can be read now; null where they are not known.
        note: why they are not, one line for people.
        commit: that they are of; null where they are not known, or a workspace that exists is looked at.
    """

    path: Path
    exists: bool
    tree: Path | None
    note: str | None = None
    commit: str | None = None


class Forecast:
    """Looks ahead for one repository."""

    def __init__(self, git: Git, mirror: Mirror, repository: str, base_branch: str | None) -> None:
        self._git = git
        self._mirror = mirror
        self._repository = repository
        self._local = local_repository(repository)
        self._base_branch = base_branch

    @asynccontextmanager
    async def lay_out(
        self, workspace: Path, paths: Sequence[str], *, pinned: Callable[[str], Path] | None = None
    ) -> AsyncIterator[Foresight]:
        """The files of a workspace to be; gone when the context ends.

        With `pinned` it is those of the base branch, and that function says where a run has them (`pinned`).

        Raises:
            WorkspaceError: `workspace_repository`: no repository, no such branch, or git failed.
        """
        place = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="symphony-preview-")))
        shelf = Shelf(self._git, place, place / "tree")
        try:
            commit, note = await self._fill(shelf, workspace.name if pinned is None else None, paths)
            yield Foresight(
                path=workspace if pinned is None or commit is None else pinned(commit),
                exists=False,
                tree=None if commit is None else shelf.tree,
                note=note,
                commit=commit,
            )
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(drop, place)

    async def _fill(
        self, shelf: Shelf, key: str | None, paths: Sequence[str]
    ) -> tuple[str | None, str | None]:
        """The commit that was laid out, or why there is none; of the base where there is no key."""
        try:
            offer = await (self._mirror.remembered() if self._local is None else self._mirror.look())
            if offer is None:
                return None, _NOT_FETCHED
            _, base = base_of(offer, self._base_branch, self._repository)
            await to_thread.run_sync(shelf.create, base, await self._stores())
            start = None if key is None else await self._start(shelf, offer, branch_name(key))
            await shelf.copy(start or base, paths)
        except TooLargeError:
            return None, _TOO_LARGE
        except (GitError, OSError) as error:
            raise self._mirror.unreadable(error) from error
        return start or base, None

    async def _start(self, shelf: Shelf, offer: Advertised, branch: str) -> str | None:
        delivered = await to_thread.run_sync(read_ref, self._mirror.path, f"refs/heads/{branch}")
        return await begins_at(delivered, offer.branches.get(branch), shelf.contains)

    async def _stores(self) -> tuple[Path, ...]:
        """The mirror has what was delivered, a local repository what was not fetched yet."""
        if self._local is None:
            return (self._mirror.objects,)
        found = await self._git.trusted(
            "-C", self._local, "rev-parse", "--path-format=absolute", "--git-path", "objects"
        )
        return (Path(found.decode("utf-8", "surrogateescape").rstrip("\n")), self._mirror.objects)
