"""Looking at a workspace's repository without obeying it.

An agent owns its `.git`: configuration, hooks, attributes, alternates and redirects there may start programs
or point anywhere. So git never runs with it. Instead a *shadow* is made for the moment: a git directory of
our own with our own configuration, whose refs are copies of the tips we read ourselves, whose index is a
copy, and whose objects are links to the workspace's packs and loose objects. `objects/info` is not linked,
because an alternates file or a commit graph in it is the agent's word.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from symphony.workspaces.files import (
    copy_regular,
    drop,
    entries_below,
    fingerprint,
    is_directory,
    read_regular,
    stat_line,
)
from symphony.workspaces.git import Git
from symphony.workspaces.refs import all_refs, branch_of_head, packed_refs, read_ref
from symphony.workspaces.seal import ALTERNATES, changed

__all__ = ["MAX_ENTRIES", "Glance", "Shadow", "glance", "open_shadow"]

MAX_ENTRIES: Final = 20_000

_TIP = "refs/heads/tip"
_SHA256_DIGITS = 64
_HEX = frozenset("0123456789abcdef")
_NO_REPOSITORY: Final = ".git is no directory with a repository"
_MAX_INDEX_BYTES = 256 * 1024 * 1024
_MAX_TEXT_BYTES = 1024 * 1024
_FIELDS_BEFORE_PATH = {b"1": 8, b"u": 10, b"?": 1}
_STATUS = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What is told by files alone.

    Attributes:
        problem: why nothing else is known, one line: `.git` is no real directory with real objects, or cannot
            be read; null where it can.
        head: the commit that is checked out.
        head_branch: the short name of the branch that `HEAD` is on; null when detached.
        tips: every local branch and the stash, by full ref name.
        remote_tips: the tracking refs, which are the agent's word.
        changed: watched files that are not as they were made (`seal`).
    """

    problem: str | None = None
    head: str | None = None
    head_branch: str | None = None
    tips: Mapping[str, str] = field(default_factory=dict)
    remote_tips: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()


def glance(workspace: Path, sealed: Mapping[str, str] | None) -> Glance:
    """Read the refs of a workspace; blocking, never raises. Without a seal no change is told."""
    git_dir = workspace / ".git"
    try:
        if not all(stat.S_ISDIR(os.lstat(place).st_mode) for place in (git_dir, git_dir / "objects")):
            return Glance(problem=_NO_REPOSITORY)
        packed = packed_refs(git_dir)
        stash = read_ref(git_dir, "refs/stash", packed)
        return Glance(
            head=read_ref(git_dir, "HEAD", packed),
            head_branch=branch_of_head(git_dir),
            tips=all_refs(git_dir, "refs/heads/", packed) | ({"refs/stash": stash} if stash else {}),
            remote_tips=all_refs(git_dir, "refs/remotes/", packed),
            changed=() if sealed is None else changed(git_dir, sealed),
        )
    except (FileNotFoundError, NotADirectoryError):
        return Glance(problem=_NO_REPOSITORY)
    except OSError as error:
        return Glance(problem=f".git cannot be read: {error.strerror}: {error.filename}")


class Shadow:
    """A momentary git directory over a workspace; made by `open_shadow`."""

    def __init__(self, git: Git, git_dir: Path, workspace: Path) -> None:
        self._git = git
        self._workspace = workspace
        self.git_dir = git_dir
        self.tip = _TIP

    async def point_at(self, commit: str) -> None:
        """Put the shadow's one branch on another commit."""
        await to_thread.run_sync((self.git_dir / _TIP).write_text, f"{commit}\n")

    async def status(self) -> bytes:
        """Uncommitted changes and untracked files; empty when there are none. Raises `GitError`, `OSError`.

        The index is copied for it here, as a delivery needs none. Submodules are compared by the commit that
        is checked out in them. git would look for edits in them by running itself under their configuration,
        which is the agent's too.
        """
        await to_thread.run_sync(_copy_index, self._workspace / ".git", self.git_dir)
        return await self._git.isolated(
            f"--git-dir={self.git_dir}",
            f"--work-tree={self._workspace}",
            "-C",
            self._workspace,
            *_STATUS,
            "--ignore-submodules=dirty",
        )

    async def tree_mark(self) -> str:
        """A hash that changes with the uncommitted state of the tree. Raises `GitError`, `OSError`."""
        status = await self.status()
        return await to_thread.run_sync(_mark_of, self._workspace, status)

    async def submodules(self) -> tuple[Path, ...]:
        """Checked-out repositories that the index knows as submodules, after `status`. Raises `GitError`."""
        listing = await self._git.isolated(f"--git-dir={self.git_dir}", "ls-files", "--stage", "-z")
        links = (entry.partition(b"\t")[2] for entry in listing.split(b"\0") if entry.startswith(b"160000 "))
        paths = [self._workspace / link.decode("utf-8", "surrogateescape") for link in links]
        return await to_thread.run_sync(_checked_out, paths)

    async def small_blobs(self, ids: Iterable[bytes], limit: int) -> dict[bytes, bytes]:
        """The content of those objects that are blobs of at most `limit` bytes. Raises `GitError`."""
        cat = (f"--git-dir={self.git_dir}", "cat-file")
        asked = b"".join(one + b"\n" for one in dict.fromkeys(ids))
        listing = await self._git.isolated(*cat, "--batch-check", stdin=asked)
        told = [line.split(b" ") for line in listing.splitlines()]
        small = [line[0] for line in told if line[1] == b"blob" and int(line[2]) <= limit]
        return {one: await self._git.isolated(*cat, "blob", one.decode()) for one in small}

    async def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether one commit is contained in the other. Raises `GitError`."""
        return await self._git.holds(
            f"--git-dir={self.git_dir}", "merge-base", "--is-ancestor", ancestor, descendant
        )

    async def within(self, commit: str, known: Collection[str]) -> bool:
        """Whether the commit is contained in one of those that are known. Raises `GitError`."""
        beyond = await self._git.isolated(
            f"--git-dir={self.git_dir}",
            "rev-list",
            "--max-count=1",
            "--stdin",
            stdin="\n".join([commit, *(f"^{one}" for one in known), ""]).encode(),
        )
        return not beyond


@asynccontextmanager
async def open_shadow(
    git: Git,
    staging: Path,
    workspace: Path,
    tip: str | None,
    *,
    sealed: Mapping[str, str] | None,
    objects: Path | None = None,
) -> AsyncIterator[Shadow]:
    """A shadow whose `HEAD` is `tip`; gone when the context ends.

    `objects` is the object store that the workspace was made to borrow. The workspace's own alternates file
    is followed only while it is as it was sealed.
    """
    git_dir = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=staging, prefix="shadow-")))
    try:
        await to_thread.run_sync(_build, git_dir, workspace / ".git", tip, sealed, objects)
        yield Shadow(git, git_dir, workspace)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(drop, git_dir)


def _borrowed(own: Path, sealed: Mapping[str, str] | None, objects: Path | None) -> list[str]:
    lines = [] if objects is None else [str(objects)]
    if sealed and ALTERNATES in sealed and ALTERNATES not in changed(own, sealed):
        text = (read_regular(own / ALTERNATES, _MAX_TEXT_BYTES) or b"").decode("utf-8", "surrogateescape")
        lines += [str(own / "objects" / line) for line in text.splitlines() if line and line[0] not in '#"']
    return list(dict.fromkeys(lines))


def _build(
    git_dir: Path, own: Path, tip: str | None, sealed: Mapping[str, str] | None, lender: Path | None
) -> None:
    objects = git_dir / "objects"
    for directory in (git_dir / "refs" / "heads", git_dir / "info", objects / "info"):
        directory.mkdir(parents=True)
    (git_dir / "config").write_text(_config(tip))
    (git_dir / "HEAD").write_text(f"{tip or 'ref: refs/heads/unborn'}\n")
    if tip is not None:
        (git_dir / _TIP).write_text(f"{tip}\n")
    for store in _stores(own / "objects"):
        (objects / store.name).symlink_to(store)
    (objects / "info" / "alternates").write_bytes(
        b"".join(line.encode("utf-8", "surrogateescape") + b"\n" for line in _borrowed(own, sealed, lender))
    )


def _copy_index(own: Path, git_dir: Path) -> None:
    copy_regular(own / "index", git_dir / "index", _MAX_INDEX_BYTES)
    copy_regular(own / "info" / "exclude", git_dir / "info" / "exclude", _MAX_TEXT_BYTES)


def _config(tip: str | None) -> str:
    sha256 = tip is not None and len(tip) == _SHA256_DIGITS
    return f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tfilemode = true\n\tbare = false\n" + (
        "[extensions]\n\tobjectFormat = sha256\n" if sha256 else ""
    )


def _stores(objects: Path) -> Iterator[Path]:
    """The directories that hold objects: packs, and loose ones by the first two digits of their ids."""
    for _, name in entries_below(objects, into=""):
        loose = len(name) == len("00") and set(name) <= _HEX
        if (loose or name == "pack") and is_directory(objects / name):
            yield objects / name


def _checked_out(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if (path / ".git").exists())


def _mark_of(workspace: Path, status: bytes) -> str:
    """The status itself, and for each file in it what stands for its content."""
    digest = hashlib.sha256(status)
    for entry in [entry for entry in status.split(b"\0") if entry][:MAX_ENTRIES]:
        name = entry.split(b" ", _FIELDS_BEFORE_PATH.get(entry[:1], 1))[-1]
        path = workspace / name.decode("utf-8", "surrogateescape")
        digest.update(stat_line(path, name))
        if name.endswith(b"/") and is_directory(path):
            digest.update(fingerprint(path, max_entries=MAX_ENTRIES).encode())
    return digest.hexdigest()
