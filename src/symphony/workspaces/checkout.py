"""Populating a new workspace from the mirror (WS14): borrowed objects, one branch, in place only when whole.

The clone is written by hand, file by file, because then its `.git` holds exactly what we know it to hold and
one git process is enough: the checkout itself.
"""

import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from symphony.domain.disk import is_full, make_room
from symphony.domain.failures import Category
from symphony.domain.ids import branch_name
from symphony.workspaces.files import drop
from symphony.workspaces.git import Git, GitError, config_value, without_credentials
from symphony.workspaces.layout import Layout
from symphony.workspaces.mirror import Mirror, Snapshot, base_of
from symphony.workspaces.model import WorkspaceError
from symphony.workspaces.refs import read_ref

__all__ = ["Checkout", "Origin", "begins_at"]

_DEFAULT_IDENTITY = {"name": "Symphony Agent", "email": "symphony@localhost"}
_IDENTITY_LINE = re.compile(r"user\.(name|email) (.+)")
_SHA256_DIGITS = 64
_LITTLE_BYTES = 64 * 1024 * 1024  # as `symphony doctor` judges it


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a new workspace's branch begins, and the commit at which it left the base."""

    branch: str
    start: str
    base_commit: str


async def begins_at(
    delivered: str | None, there: str | None, contains: Callable[[str, str], Awaitable[bool]]
) -> str | None:
    """The commit on which an issue's branch goes on; null where it has none and begins at the base.

    Args:
        delivered: where it was delivered to, in the mirror.
        there: where the repository has it, which counts once it holds what was delivered.
        contains: whether the first commit holds the second one.
    """
    start = delivered or there
    if start is not None and there is not None and start != there and await contains(there, start):
        return there
    return start


def _hint(error: Exception, root: Path) -> str | None:
    """What to do about a checkout that failed; blocking. git does not always say that the disk is full."""
    if is_full(error) or shutil.disk_usage(root).free < _LITTLE_BYTES:
        return make_room(root)
    return None


class Checkout:
    """Makes workspaces from one mirror."""

    def __init__(self, git: Git, layout: Layout, mirror: Mirror, repository: str) -> None:
        self._git = git
        self._staging = layout.staging
        self._mirror = mirror
        self._repository = repository

    async def create(self, key: str, target: Path, base_branch: str | None) -> Origin:
        """Populate `target`, which must not exist or be an empty directory.

        Raises:
            WorkspaceError: `workspace_repository` (unreachable, empty, no such branch) or
                `workspace_prepare_failed` (the checkout itself).
        """
        snapshot = await self._mirror.refresh()
        base_name, base = base_of(snapshot, base_branch, self._repository)
        half = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=self._staging, prefix="clone-")))
        try:
            origin = await self._origin(snapshot, branch_name(key), base)
            config = self._config(origin, await self._identity())
            await to_thread.run_sync(self._write_clone, half / "tree", snapshot, base_name, origin, config)
            await self._fill(half / "tree")
            await to_thread.run_sync((half / "tree").rename, target)
        except (GitError, OSError) as error:
            raise WorkspaceError.of(
                Category.WORKSPACE_PREPARE_FAILED,
                f"workspace {key} cannot be populated: {error}",
                hint=await to_thread.run_sync(_hint, error, target.parent),
            ) from error
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(drop, half)
        return origin

    async def _origin(self, snapshot: Snapshot, branch: str, base: str) -> Origin:
        """Begin at the base, or go on where this branch was delivered before."""
        delivered = await to_thread.run_sync(read_ref, self._mirror.path, f"refs/heads/{branch}")
        there = snapshot.branches.get(branch)
        start = await begins_at(delivered, there, self._contains)
        if start is None:
            return Origin(branch=branch, start=base, base_commit=base)
        return Origin(branch=branch, start=start, base_commit=await self._fork_point(base, start))

    async def _contains(self, commit: str, ancestor: str) -> bool:
        return await self._git.holds("-C", self._mirror.path, "merge-base", "--is-ancestor", ancestor, commit)

    async def _fork_point(self, base: str, start: str) -> str:
        """The base itself where the histories have nothing in common."""
        try:
            found = await self._git.isolated("-C", self._mirror.path, "merge-base", base, start)
        except GitError:
            return base
        return found.decode().strip()

    async def _identity(self) -> Mapping[str, str]:
        """The operator's git identity, ours where there is none.

        It is written into the clone, because an agent need not run under the operator's home.
        """
        try:
            listing = await self._git.trusted(
                "-C", self._mirror.path, "config", "--get-regexp", r"^user\.(name|email)$"
            )
        except GitError:  # git's way to say that there is none
            return _DEFAULT_IDENTITY
        found = _IDENTITY_LINE.findall(listing.decode("utf-8", "replace"))
        return {**_DEFAULT_IDENTITY, **dict(found)}

    def _config(self, origin: Origin, identity: Mapping[str, str]) -> str:
        sha256 = len(origin.start) == _SHA256_DIGITS
        address = config_value(without_credentials(self._repository))
        return (
            f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tfilemode = true\n\tbare = false\n"
            "\tlogallrefupdates = true\n"
            + ("[extensions]\n\tobjectFormat = sha256\n" if sha256 else "")
            + f'[remote "origin"]\n\turl = {address}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
            f'[branch "{origin.branch}"]\n\tremote = origin\n\tmerge = refs/heads/{origin.branch}\n'
            "[user]\n"
            f"\tname = {config_value(identity['name'])}\n\temail = {config_value(identity['email'])}\n"
        )

    def _write_clone(
        self, tree: Path, snapshot: Snapshot, base_name: str | None, origin: Origin, config: str
    ) -> None:
        """A git directory that stands on the branch, with an empty index."""
        own = tree / ".git"
        branch = own / "refs" / "heads" / origin.branch
        tracking = own / "refs" / "remotes" / "origin"
        for directory in (branch.parent, tracking, own / "objects" / "info", own / "objects" / "pack"):
            directory.mkdir(parents=True)
        refs = {f"refs/remotes/origin/{name}": commit for name, commit in snapshot.branches.items()}
        lines = [f"{commit} {name}\n" for name, commit in {**refs, **snapshot.tags}.items()]
        contents = {
            own / "config": config,
            own / "HEAD": f"ref: refs/heads/{origin.branch}\n",
            own / "objects" / "info" / "alternates": f"{self._mirror.objects}\n",
            own / "packed-refs": "".join(lines),
            branch: f"{origin.start}\n",
        }
        if base_name is not None:
            contents[tracking / "HEAD"] = f"ref: refs/remotes/origin/{base_name}\n"
        for path, content in contents.items():
            path.write_text(content, encoding="utf-8", errors="surrogateescape")

    async def _fill(self, tree: Path) -> None:
        await self._git.trusted(
            f"--git-dir={tree / '.git'}", f"--work-tree={tree}", "-C", tree, "read-tree", "-m", "-u", "HEAD"
        )
