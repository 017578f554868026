"""Files of the base branch, read-only and outside of every workspace, so that no branch can rewrite them.

    <root>/.symphony/pinned/<commit>-<digest of the paths>/

A place is named by what it holds: runs share it, and it never changes once it is there. It is put there as a
whole, in one step. What no run has begun with for a week is deleted when another one is made.
"""

import os
import posixpath
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import anyio
import structlog
from anyio import to_thread

from symphony.domain import Category, branch_name
from symphony.workspaces.delivery import local_repository
from symphony.workspaces.directories import discard
from symphony.workspaces.files import drop, is_directory, make_directory, make_read_only
from symphony.workspaces.git import Git, GitError, read_ref
from symphony.workspaces.layout import Layout
from symphony.workspaces.mirror import Mirror, MirrorRefs, RemoteRefs, base_of, begins_at
from symphony.workspaces.model import WorkspaceError

# Some files of a commit, written by git itself beside every workspace, with no configuration but ours.
#
# No filter or hook runs, no object is asked for over a network, and the amount is bounded. A link comes
# along with what it leads to inside the tree, because skills are often kept elsewhere and linked.


_LINK: Final = b"120000"
_SUBMODULE: Final = b"160000"
_MAX_ROUNDS: Final = 40
_MAX_FILES: Final = 20_000
_MAX_BYTES: Final = 64 * 1024 * 1024
_SHA256_DIGITS: Final = 64


class TooLargeError(Exception):
    """More files or bytes than this is worth."""


class GitExport:
    """A git directory of our own in `place` that borrows objects, and a `tree`, which is made as well."""

    def __init__(self, git: Git, place: Path, tree: Path) -> None:
        self._git = git
        self._git_dir = place / "git"
        self.tree = tree

    def create(self, commit: str, stores: Sequence[Path]) -> None:
        """Make both, for commits like this one; blocking."""
        sha256 = len(commit) == _SHA256_DIGITS
        self.tree.mkdir()
        for directory in ("refs/heads", "objects/info"):
            (self._git_dir / directory).mkdir(parents=True)
        (self._git_dir / "HEAD").write_text("ref: refs/heads/none\n")
        (self._git_dir / "config").write_text(
            f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tfilemode = true\n\tbare = false\n"
            + ("[extensions]\n\tobjectFormat = sha256\n" if sha256 else "")
        )
        lines = "".join(f"{store}\n" for store in stores if store.is_dir())
        alternates = self._git_dir / "objects" / "info" / "alternates"
        alternates.write_text(lines, encoding="utf-8", errors="surrogateescape")

    async def contains(self, commit: str, ancestor: str) -> bool:
        """Whether the first commit holds the second one. Raises `GitError`."""
        return await self._git.holds(
            f"--git-dir={self._git_dir}", "merge-base", "--is-ancestor", ancestor, commit
        )

    async def copy(self, commit: str, paths: Sequence[str]) -> None:
        """Write what stands at these paths of a commit, and whatever links in it lead to.

        Raises:
            GitError, OSError: the commit cannot be read, or the files not be written.
            TooLargeError: there is too much of it.
        """
        await self._run("read-tree", commit)
        wanted = {path for path in map(posixpath.normpath, paths) if _inside(path)}
        seen, done = set[str](), dict[str, bytes]()
        for _ in range(_MAX_ROUNDS):
            if not wanted:
                return
            seen |= wanted
            fresh = {name: kind for name, kind in (await self._find(wanted)).items() if name not in done}
            done |= fresh
            if len(done) > _MAX_FILES:
                raise TooLargeError
            await self._write(fresh)
            links = [name for name, kind in done.items() if kind == _LINK]
            wanted = await to_thread.run_sync(self._behind, links, frozenset(seen))

    async def _find(self, wanted: set[str]) -> dict[str, bytes]:
        """The entries below the wanted paths, and those on the way to them: name to kind."""
        ways = {str(above) for path in wanted for above in PurePosixPath(path).parents} - {"."}
        listing = await self._run("ls-files", "--stage", "-z", "--", *sorted(wanted | ways))
        found: dict[str, bytes] = {}
        for entry in listing.split(b"\0")[:-1]:
            facts, _, raw = entry.partition(b"\t")
            name = raw.decode("utf-8", "surrogateescape")
            if name in ways or any(_below(name, path) for path in wanted):
                found[name] = facts.split(b" ")[0]
        return found

    async def _write(self, entries: Mapping[str, bytes]) -> None:
        names = "".join(f"{name}\0" for name in entries).encode("utf-8", "surrogateescape")
        blobs = "".join(
            f":{name}\n" for name, kind in entries.items() if kind != _SUBMODULE and "\n" not in name
        )
        sizes = await self._run(
            "cat-file", "--batch-check=%(objectsize)", stdin=blobs.encode("utf-8", "surrogateescape")
        )
        if sum(int(size) for size in sizes.split() if size.isdigit()) > _MAX_BYTES:
            raise TooLargeError
        await self._run("checkout-index", "--force", "-z", "--stdin", stdin=names)

    def _behind(self, links: Sequence[str], seen: frozenset[str]) -> set[str]:
        """The paths inside the tree that are reached over a link and were not looked at yet."""
        found = set[str]()
        for link in links:
            target = (self.tree / link).readlink().as_posix()
            rests = {path[len(link) :] for path in seen if path.startswith(f"{link}/")}
            for rest in {"", *rests}:
                found.add(posixpath.normpath(posixpath.join(posixpath.dirname(link), target + rest)))
        return {path for path in found - seen if _inside(path) and path != "."}

    async def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return await self._git.isolated(
            "--literal-pathspecs",
            f"--git-dir={self._git_dir}",
            f"--work-tree={self.tree}",
            "-C",
            self.tree,
            *arguments,
            stdin=stdin,
        )


def _inside(path: str) -> bool:
    """Whether a normalised path stays in the tree."""
    return not path.startswith("/") and path != ".." and not path.startswith("../")


def _below(name: str, path: str) -> bool:
    return path in {".", name} or name.startswith(f"{path}/")


REFRESH_S: Final = 30.0
_KEEP_S: Final = 7 * 24 * 3_600

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFiles:
    """Files of a commit; their paths below `root` are those in the repository."""

    root: Path
    commit: str


class PinnedFilesStore:
    """Pins files of one repository's base branch."""

    def __init__(
        self, git: Git, layout: Layout, mirror: Mirror, repository: str, base_branch: str | None
    ) -> None:
        self._git = git
        self._layout = layout
        self._mirror = mirror
        self._repository = repository
        self._base_branch = base_branch

    async def pin(self, paths: Sequence[str]) -> PinnedFiles:
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
        return PinnedFiles(root=target, commit=commit)

    async def _offer(self) -> RemoteRefs | MirrorRefs:
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
        shelf = GitExport(self._git, place, pins / f".new-{place.name}")
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


# What a workspace that is not made yet will hold, told without making it or touching any repository.
#
# The commit is chosen by the rule of `checkout`, from what the repository (where it is a local path) or the
# mirror has now; nothing is fetched. The files asked for are laid out on a `shelf` in a private directory.


_UNKNOWN: Final = "the workspace does not exist yet, so its skills are not known"
NOT_POPULATED: Final = f"{_UNKNOWN}: hooks will fill it"
_NOT_FETCHED: Final = f"{_UNKNOWN}: its repository was never fetched"
_TOO_LARGE: Final = f"{_UNKNOWN}: they are too many or too large for a look ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacePreview:
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


class Previewer:
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
    ) -> AsyncIterator[WorkspacePreview]:
        """The files of a workspace to be; gone when the context ends.

        With `pinned` it is those of the base branch, and that function says where a run has them (`pinned`).

        Raises:
            WorkspaceError: `workspace_repository`: no repository, no such branch, or git failed.
        """
        place = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="symphony-preview-")))
        shelf = GitExport(self._git, place, place / "tree")
        try:
            commit, note = await self._fill(shelf, workspace.name if pinned is None else None, paths)
            yield WorkspacePreview(
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
        self, shelf: GitExport, key: str | None, paths: Sequence[str]
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

    async def _start(self, shelf: GitExport, offer: RemoteRefs, branch: str) -> str | None:
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
