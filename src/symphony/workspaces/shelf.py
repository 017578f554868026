"""Some files of a commit, written by git itself beside every workspace, with no configuration but ours.

No filter or hook runs, no object is asked for over a network, and the amount is bounded. A link comes along
with what it leads to inside the tree, because skills are often kept elsewhere and linked.
"""

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from anyio import to_thread

from symphony.workspaces.git import Git

__all__ = ["Shelf", "TooLargeError"]

_LINK: Final = b"120000"
_SUBMODULE: Final = b"160000"
_MAX_ROUNDS: Final = 40
_MAX_FILES: Final = 20_000
_MAX_BYTES: Final = 64 * 1024 * 1024
_SHA256_DIGITS: Final = 64


class TooLargeError(Exception):
    """More files or bytes than this is worth."""


class Shelf:
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
