"""What a workspace that is not made yet will hold, told without making it or touching any repository.

The commit is chosen by the rule of `checkout`, from what the repository (where it is a local path) or the
mirror has now; nothing is fetched. The files asked for are written by git itself into a private directory,
under no configuration but ours, so that no filter or hook runs and no object is asked for over a network. A
link comes along with what it leads to inside the tree, because skills are often kept elsewhere and linked.
"""

import posixpath
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import anyio
from anyio import to_thread

from symphony.domain.ids import branch_name
from symphony.workspace.checkout import begins_at
from symphony.workspace.delivery import local_repository
from symphony.workspace.files import drop
from symphony.workspace.git import Git, GitError
from symphony.workspace.mirror import Advertised, Mirror, base_of
from symphony.workspace.refs import read_ref

__all__ = ["NOT_POPULATED", "Forecast", "Foresight"]

_UNKNOWN: Final = "the workspace does not exist yet, so its skills are not known"
NOT_POPULATED: Final = f"{_UNKNOWN}: hooks will fill it"
_NOT_FETCHED: Final = f"{_UNKNOWN}: its repository was never fetched"
_TOO_LARGE: Final = f"{_UNKNOWN}: they are too many or too large for a look ahead"
_LINK: Final = b"120000"
_SUBMODULE: Final = b"160000"
_MAX_ROUNDS: Final = 40
_MAX_FILES: Final = 20_000
_MAX_BYTES: Final = 64 * 1024 * 1024
_SHA256_DIGITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """What an attempt would find.

    Attributes:
        path: where the workspace is or will be, absolute and resolved.
        exists: whether it is there.
        tree: where its files can be read now; null where they are not known.
        note: why they are not, one line for people.
    """

    path: Path
    exists: bool
    tree: Path | None
    note: str | None = None


class _TooLargeError(Exception):
    """More than a look ahead is worth."""


class Forecast:
    """Looks ahead for one repository."""

    def __init__(self, git: Git, mirror: Mirror, repository: str, base_branch: str | None) -> None:
        self._git = git
        self._mirror = mirror
        self._repository = repository
        self._local = local_repository(repository)
        self._base_branch = base_branch

    @asynccontextmanager
    async def lay_out(self, workspace: Path, paths: Sequence[str]) -> AsyncIterator[Foresight]:
        """The files of a workspace to be; gone when the context ends.

        Raises:
            WorkspaceError: `workspace_repository`: no repository, no such branch, or git failed.
        """
        place = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="symphony-preview-")))
        try:
            tree, note = await self._tree(place, workspace.name, paths)
            yield Foresight(path=workspace, exists=False, tree=tree, note=note)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(drop, place)

    async def _tree(self, place: Path, key: str, paths: Sequence[str]) -> tuple[Path | None, str | None]:
        try:
            offer = await (self._mirror.remembered() if self._local is None else self._mirror.look())
            if offer is None:
                return None, _NOT_FETCHED
            _, base = base_of(offer, self._base_branch, self._repository)
            shelf = _Shelf(self._git, place)
            await to_thread.run_sync(shelf.create, base, await self._stores())
            start = await self._start(shelf, offer, branch_name(key)) or base
            await shelf.copy(start, paths)
        except _TooLargeError:
            return None, _TOO_LARGE
        except (GitError, OSError) as error:
            raise self._mirror.unreadable(error) from error
        return shelf.tree, None

    async def _start(self, shelf: "_Shelf", offer: Advertised, branch: str) -> str | None:
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


class _Shelf:
    """A git directory of our own that borrows objects, and a tree beside it."""

    def __init__(self, git: Git, place: Path) -> None:
        self._git = git
        self._git_dir = place / "git"
        self.tree = place / "tree"

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
            _TooLargeError: there is too much of it.
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
                raise _TooLargeError
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
            raise _TooLargeError
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
