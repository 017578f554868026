"""Exports files of a commit outside all workspaces: pinned for runs, or for a preview.

    <root>/.symphony/pinned/<commit>-<digest of the paths>/

A pinned directory is read-only, so that no branch can rewrite it. Runs share it. It is renamed into place
when it is complete, and never changes afterwards. Directories that no run has used for a week are deleted
when another one is created.

Git itself writes the files, with the daemon's configuration only: no filter or hook runs, nothing is fetched
over a network, and the amount is bounded.
"""

import os
import posixpath
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

import anyio
import structlog
from msgspec import Struct

from symphony import to_thread
from symphony.domain import Category, branch_name
from symphony.workspaces.directories import discard
from symphony.workspaces.files import is_directory, make_directory, make_read_only, temporary_directory
from symphony.workspaces.git import Git, GitError, repository_config, write_git_dir
from symphony.workspaces.layout import Layout
from symphony.workspaces.mirror import Mirror, RemoteRefs
from symphony.workspaces.model import WorkspaceError, local_repository

_LINK: Final = b"120000"
_SUBMODULE: Final = b"160000"
_MAX_ROUNDS: Final = 40
_MAX_FILES: Final = 20_000
_MAX_BYTES: Final = 64 * 1024 * 1024
REFRESH_TIMEOUT_S: Final = 30.0
_KEEP_S: Final = 7 * 24 * 3_600
_log = structlog.get_logger(__name__)


class TooLargeError(Exception):
    """More files or bytes than an export may have."""


class GitExport:
    """Writes files of commits into `tree`, with its own git directory that borrows objects."""

    def __init__(self, git: Git, git_dir: Path, tree: Path) -> None:
        self._git = git
        self.git_dir = git_dir
        self.tree = tree

    def create(self, commit: str, stores: Sequence[Path]) -> None:
        """Create the git directory, for commits like this one; blocking."""
        borrowed = [store for store in stores if store.is_dir()]
        write_git_dir(self.git_dir, repository_config(commit), borrowed=borrowed)

    async def copy(self, commit: str, paths: Sequence[str]) -> None:
        """Write the files at these paths of a commit, and the targets of links among them inside the tree.

        Links are followed because skills are often stored elsewhere and linked.

        Raises:
            GitError, OSError: the commit cannot be read, or the files cannot be written.
            TooLargeError: there are too many files or bytes.
        """
        await self._run("read-tree", commit)
        wanted = {path for path in map(posixpath.normpath, paths) if _is_inside(path)}
        seen, done = set[str](), dict[str, bytes]()
        for _ in range(_MAX_ROUNDS):
            if not wanted:
                return
            seen |= wanted
            entries = await self._find(wanted)
            new = {name: mode for name, mode in entries.items() if name not in done}
            done |= new
            if len(done) > _MAX_FILES:
                raise TooLargeError
            await self._write(new)
            links = [name for name, mode in done.items() if mode == _LINK]
            wanted = await to_thread.run_sync(self._link_targets, links, frozenset(seen))

    async def _find(self, wanted: set[str]) -> dict[str, bytes]:
        """Name and mode of the entries below the wanted paths and of their parents that are links."""
        parents = {str(parent) for path in wanted for parent in PurePosixPath(path).parents} - {"."}
        listing = await self._run("ls-files", "--stage", "-z", "--", *sorted(wanted | parents))
        found: dict[str, bytes] = {}
        for entry in listing.split(b"\0")[:-1]:
            stage, _, raw = entry.partition(b"\t")
            name = raw.decode("utf-8", "surrogateescape")
            if name in parents or any(path in {".", name} or name.startswith(f"{path}/") for path in wanted):
                found[name] = stage.split(b" ")[0]
        return found

    async def _write(self, entries: Mapping[str, bytes]) -> None:
        names = "".join(f"{name}\0" for name in entries).encode("utf-8", "surrogateescape")
        blobs = "".join(
            f":{name}\n" for name, mode in entries.items() if mode != _SUBMODULE and "\n" not in name
        )
        sizes = await self._run(
            "cat-file", "--batch-check=%(objectsize)", stdin=blobs.encode("utf-8", "surrogateescape")
        )
        if sum(int(size) for size in sizes.split() if size.isdigit()) > _MAX_BYTES:
            raise TooLargeError
        await self._run("checkout-index", "--force", "-z", "--stdin", stdin=names)

    def _link_targets(self, links: Sequence[str], seen: frozenset[str]) -> set[str]:
        """The paths inside the tree that links lead to and that were not seen yet."""
        found = set[str]()
        for link in links:
            target = (self.tree / link).readlink().as_posix()
            below = {path[len(link) :] for path in seen if path.startswith(f"{link}/")}
            for rest in {"", *below}:
                found.add(posixpath.normpath(posixpath.join(posixpath.dirname(link), target + rest)))
        return {path for path in found - seen if _is_inside(path) and path != "."}

    async def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return await self._git.isolated(
            "--literal-pathspecs",
            f"--git-dir={self.git_dir}",
            f"--work-tree={self.tree}",
            "-C",
            self.tree,
            *arguments,
            stdin=stdin,
        )


def _is_inside(path: str) -> bool:
    """Whether a normalised path stays in the tree."""
    return not path.startswith("/") and path != ".." and not path.startswith("../")


# --- Pinned files ---


class PinnedFiles(Struct, frozen=True, kw_only=True):
    """Files of a commit, below `root` at the same paths as in the repository."""

    root: Path
    commit: str


async def pin_files(
    mirror: Mirror, base_branch: str | None, paths: Sequence[str], *, refresh_timeout_s: float
) -> PinnedFiles:
    """The files at these paths of the base branch, at its present or last fetched state.

    Raises:
        WorkspaceError: `workspace_repository`: there is no such branch, it was never fetched, git failed, or
            the files are too large.
    """
    layout = mirror.layout
    _, commit = mirror.base(await _current_refs(mirror, refresh_timeout_s), base_branch)
    target = layout.pinned(commit, paths)
    try:
        if await to_thread.run_sync(is_directory, target):
            await to_thread.run_sync(os.utime, target)  # directories in use are kept
        else:
            await to_thread.run_sync(make_directory, layout.pins)
            # The tree is beside its target: without write permission a directory cannot change its parent.
            async with (
                temporary_directory(layout.staging, "pin-") as staging,
                temporary_directory(layout.pins, ".new-") as tree,
            ):
                export = GitExport(mirror.git, staging / "git", tree)
                await to_thread.run_sync(export.create, commit, (mirror.objects,))
                await export.copy(commit, paths)
                await to_thread.run_sync(_put_in_place, tree, target)
            await to_thread.run_sync(_delete_unused, layout, target)
    except TooLargeError as error:
        raise WorkspaceError.of(
            Category.WORKSPACE_REPOSITORY,
            "the skills or instructions of the base branch are too many or too large",
            hint="let agent.skills and agent.instructions name directories with nothing else in them",
        ) from error
    except (GitError, OSError) as error:
        raise mirror.unreadable(error) from error
    return PinnedFiles(root=target, commit=commit)


async def _current_refs(mirror: Mirror, timeout_s: float) -> RemoteRefs:
    try:
        with anyio.fail_after(timeout_s):
            return await mirror.refresh()
    except (WorkspaceError, TimeoutError) as error:
        known = await mirror.remembered()
        if known is None:
            raise mirror.unreadable(error) from error
        reason = error.failure.line if isinstance(error, WorkspaceError) else "no answer in time"
        _log.warning("base_branch_not_fetched", reason=reason)
        return known


def _put_in_place(tree: Path, target: Path) -> None:
    make_read_only(tree)
    try:
        tree.rename(target)
    except OSError:
        if not is_directory(target):  # otherwise another run has created the same directory meanwhile
            raise


def _delete_unused(layout: Layout, keep: Path) -> None:
    """Delete directories that were not used lately, as far as possible."""
    limit = time.time() - _KEEP_S
    for path in layout.pins.iterdir():
        with suppress(OSError):
            if path != keep and path.lstat().st_mtime < limit:
                discard(layout, path)


# --- Previews ---

_UNKNOWN: Final = "the workspace does not exist yet, so its skills are not known"
NOT_POPULATED: Final = f"{_UNKNOWN}: hooks will fill it"
_NOT_FETCHED: Final = f"{_UNKNOWN}: its repository was never fetched"
_TOO_LARGE: Final = f"{_UNKNOWN}: they are too many or too large for a look ahead"


class WorkspacePreview(Struct, frozen=True, kw_only=True):
    """The files that a run would find.

    Attributes:
        path: the absolute and resolved place of the files for a run: in the workspace, or pinned.
        exists: whether the workspace exists; then the files are read there.
        tree: where the files can be read now; `None` if they are unknown.
        note: one line on why they are unknown.
        commit: the commit of the files; `None` if they are unknown or the workspace exists.
    """

    path: Path
    exists: bool
    tree: Path | None
    note: str | None = None
    commit: str | None = None


@asynccontextmanager
async def preview_files(
    mirror: Mirror,
    base_branch: str | None,
    workspace: Path,
    paths: Sequence[str],
    *,
    pinned: Callable[[str], Path] | None,
) -> AsyncIterator[WorkspacePreview]:
    """Files of a workspace that does not exist yet, in a private directory until the context ends.

    The commit is chosen as for a real workspace, but nothing is fetched: only a local repository or the
    present mirror is read. With `pinned`, a function from commit to directory, the files are those of the
    base branch.

    Raises:
        WorkspaceError: `workspace_repository`: no repository, no such branch, or git failed.
    """
    async with temporary_directory(None, "symphony-preview-") as place:
        export = GitExport(mirror.git, place / "git", place / "tree")
        try:
            branch = branch_name(workspace.name) if pinned is None else None
            commit, note = await _export_start(export, mirror, base_branch, branch, paths)
        except TooLargeError:
            commit, note = None, _TOO_LARGE
        except (GitError, OSError) as error:
            raise mirror.unreadable(error) from error
        yield WorkspacePreview(
            path=workspace if pinned is None or commit is None else pinned(commit),
            exists=False,
            tree=None if commit is None else export.tree,
            note=note,
            commit=commit,
        )


async def _export_start(
    export: GitExport, mirror: Mirror, base_branch: str | None, branch: str | None, paths: Sequence[str]
) -> tuple[str | None, str | None]:
    """Export the commit at which a branch starts, or the base; returns it, or a note on why there is none."""
    git, local = mirror.git, local_repository(mirror.repository)
    refs = await (mirror.remembered() if local is None else mirror.look())
    if refs is None:
        return None, _NOT_FETCHED
    _, commit = mirror.base(refs, base_branch)
    stores = [mirror.objects]
    if local is not None:  # it may have commits that are not fetched yet
        found = await git.trusted("-C", local, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        stores.insert(0, Path(found.decode("utf-8", "surrogateescape").rstrip("\n")))
    await to_thread.run_sync(export.tree.mkdir)
    await to_thread.run_sync(export.create, commit, stores)
    if branch is not None:
        commit = await mirror.branch_start(branch, refs.branches.get(branch), export.git_dir) or commit
    await export.copy(commit, paths)
    return commit, None
