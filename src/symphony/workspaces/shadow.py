"""Reads a workspace's repository without trusting it.

An agent controls the `.git` of its workspace: configuration, hooks, attributes, alternates and redirects in
it may start programs or point anywhere. Therefore git never runs with it. Instead, `open_shadow` makes a
temporary git directory with the daemon's configuration, refs that were read as files, a copy of the index,
and links to the workspace's packs and loose objects. `objects/info` is not linked, because the agent may have
written the alternates and commit graphs in it.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from symphony import to_thread
from symphony.files import open_regular, read_regular
from symphony.workspaces import files
from symphony.workspaces.git import (
    Git,
    all_refs,
    branch_of_head,
    is_sha256,
    packed_refs,
    read_ref,
    repository_config,
    write_git_dir,
)

MAX_FINGERPRINT_ENTRIES: Final = 20_000


# --- Integrity of `.git` ---

_ALTERNATES: Final = "objects/info/alternates"
_WATCHED: Final = ("config", "config.worktree", "commondir", "info/attributes", _ALTERNATES)
_MAX_WATCHED_BYTES: Final = 1024 * 1024
_MAX_HOOKS: Final = 200


def hash_watched_files(git_dir: Path) -> dict[str, str]:
    """Hashes of the files that could make git run programs or read elsewhere, by their paths in `.git`.

    The daemon never uses these files, changed or not; a change is only reported.
    """
    if files.is_missing(git_dir):
        return {}
    names = [name for name in _WATCHED if os.path.lexists(git_dir / name)]
    try:
        hooks = sorted(
            name for _, name in islice(files.entries_below(git_dir / "hooks", into=""), _MAX_HOOKS)
        )
    except OSError:
        names.append("hooks")  # its content is unknown
    else:
        names += (f"hooks/{name}" for name in hooks if not name.endswith(".sample"))
        if (git_dir / "hooks").is_symlink():
            names.append("hooks")
    hashes = {}
    for name in names:
        content = read_regular(git_dir / name, _MAX_WATCHED_BYTES)
        hashes[name] = "not a regular file" if content is None else hashlib.sha256(content).hexdigest()
    return hashes


def changed_files(git_dir: Path, hashes: Mapping[str, str]) -> tuple[str, ...]:
    """The watched files that were changed, added or removed since they were hashed, sorted."""
    now = hash_watched_files(git_dir)
    return tuple(sorted(name for name in {*now, *hashes} if now.get(name) != hashes.get(name)))


# --- Refs of a workspace ---

_NO_REPOSITORY: Final = ".git is no directory with a repository"


class RefSnapshot(Struct, frozen=True, kw_only=True):
    """The refs of a workspace, read from files.

    Attributes:
        problem: one line; why `.git` is unusable and nothing else is known, or `None`.
        head: the checked out commit.
        head_branch: the short name of the branch of `HEAD`; `None` if it is detached.
        tips: every local branch and the stash, by full ref name.
        changed: watched files that differ from their first state (`changed_files`).
    """

    problem: str | None = None
    head: str | None = None
    head_branch: str | None = None
    tips: Mapping[str, str] = msgspec.field(default_factory=dict)
    changed: tuple[str, ...] = ()


def read_ref_snapshot(workspace: Path, git_hashes: Mapping[str, str] | None = None) -> RefSnapshot:
    """Read the refs of a workspace; blocking, never raises. Without hashes, `changed` is empty."""
    git_dir = workspace / ".git"
    try:
        if not all(stat.S_ISDIR(os.lstat(path).st_mode) for path in (git_dir, git_dir / "objects")):
            return RefSnapshot(problem=_NO_REPOSITORY)
        packed = packed_refs(git_dir)
        stash = read_ref(git_dir, "refs/stash", packed)
        return RefSnapshot(
            head=read_ref(git_dir, "HEAD", packed),
            head_branch=branch_of_head(git_dir),
            tips=all_refs(git_dir, "refs/heads/", packed) | ({"refs/stash": stash} if stash else {}),
            changed=() if git_hashes is None else changed_files(git_dir, git_hashes),
        )
    except (FileNotFoundError, NotADirectoryError):
        return RefSnapshot(problem=_NO_REPOSITORY)
    except OSError as error:
        return RefSnapshot(problem=f".git cannot be read: {error.strerror}: {error.filename}")


# --- The shadow ---

_TIP = "refs/heads/tip"
_HEX = frozenset("0123456789abcdef")
_MAX_INDEX_BYTES = 256 * 1024 * 1024
_MAX_TEXT_BYTES = 1024 * 1024
_MAX_STORES = 20
_EMPTY_BLOB = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_EMPTY_BLOB_SHA256 = b"473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"
_FIELDS_BEFORE_PATH = {b"1": 8, b"u": 10, b"?": 1}


_INDEX_ENTRY: Final = re.compile(
    rb"([^\0]*)\0  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: (\d+)\n"
    rb"  uid: \d+\tgid: \d+\n  size: (\d+)\tflags: \w+\n"
)


class Shadow:
    """A temporary git directory for a workspace; made by `open_shadow`.

    All methods raise `GitError` or `OSError`.
    """

    tip: Final = _TIP

    def __init__(self, git: Git, git_dir: Path, workspace: Path, index: Path, exclude: Path) -> None:
        self._git = git
        self._workspace = workspace
        self._index = index
        self._exclude = exclude
        self.git_dir = git_dir

    async def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return await self._git.isolated(f"--git-dir={self.git_dir}", *arguments, stdin=stdin)

    async def point_at(self, commit: str) -> None:
        """Make the branch `tip` at a commit, for a fetch from the shadow."""
        await to_thread.run_sync((self.git_dir / _TIP).write_text, f"{commit}\n")

    async def status(self, *, options: Iterable[str] = (), excludes: bytes = b"") -> list[bytes]:
        """Entries of `git status --porcelain=v2` for uncommitted changes and untracked files.

        `options` are options of git, and `excludes` are patterns of files that the user ignores.

        Submodules are compared only by their checked-out commit. To find edits in them, git would run with
        their configuration, which the agent controls too.
        """

        def copy_index() -> None:
            self._copy_index()
            files.copy_regular(self._exclude, self.git_dir / "info/exclude", _MAX_TEXT_BYTES)
            if excludes:
                exclude = self.git_dir / "info/exclude"
                exclude.write_bytes(excludes + b"\n" + (read_regular(exclude, _MAX_TEXT_BYTES) or b""))

        await to_thread.run_sync(copy_index)
        form = ("--porcelain=v2", "-z", "--no-renames", "--untracked-files=all")
        output = await self._run(
            *options,
            f"--work-tree={self._workspace}",
            "-C",
            str(self._workspace),
            "status",
            *form,
            "--ignore-submodules=dirty",
        )
        return [entry for entry in output.split(b"\0") if entry]

    def _copy_index(self) -> None:
        """Copy the index, and the files that a split index shares; blocking."""
        files.copy_regular(self._index, self.git_dir / "index", _MAX_INDEX_BYTES)
        for shared in islice(self._index.parent.glob("sharedindex.*"), _MAX_STORES):
            files.copy_regular(shared, self.git_dir / shared.name, _MAX_INDEX_BYTES)

    async def tracked(self, directory: str) -> frozenset[str]:
        """The paths in a directory of the workspace that are in its index."""
        await to_thread.run_sync(self._copy_index)
        output = await self._run("ls-files", "-z", "--", f":(top,literal){directory}")
        return frozenset(path.decode("utf-8", "surrogateescape") for path in output.split(b"\0") if path)

    async def differences(self, base: str, form: Iterable[str], *, max_bytes: int) -> bytes:
        """How the files of the workspace differ from a commit, new files included: output of `git diff`.

        New files are added to the shadow's index without their content, so no object is needed.
        """
        untracked = [entry[2:] for entry in await self.status() if entry.startswith(b"? ")]
        empty = _EMPTY_BLOB_SHA256 if is_sha256(base) else _EMPTY_BLOB
        added = (b"100644 %b 0\t%b\0" % (empty, name) for name in untracked[:MAX_FINGERPRINT_ENTRIES])
        await self._run("update-index", "-z", "--index-info", stdin=b"".join(added))
        return await self._git.isolated(
            *("-c", f"core.bigFileThreshold={_MAX_TEXT_BYTES}"),  # git compares no lines of larger files
            f"--git-dir={self.git_dir}",
            f"--work-tree={self._workspace}",
            *("-C", str(self._workspace), "diff", *form, "--ignore-submodules=dirty", base, "--"),
            max_output_bytes=max_bytes,
        )

    async def filtered(self, paths: Iterable[bytes]) -> frozenset[bytes]:
        """The paths among these to which attributes assign a filter."""
        stdin = b"".join(path + b"\0" for path in paths)
        tree = (f"--work-tree={self._workspace}", "-C", str(self._workspace))
        output = await self._run(*tree, "check-attr", "-z", "--stdin", "filter", stdin=stdin)
        fields = output.split(b"\0")
        found = zip(fields[::3], fields[2::3], strict=False)
        return frozenset(path for path, value in found if value not in {b"unspecified", b"unset"})

    async def unchanged(self, paths: Collection[bytes]) -> frozenset[bytes]:
        """The paths among these whose size, inode and times equal those in the index, to the nanosecond.

        Git itself compares seconds, and compares the content of files written in the same second as the
        index.
        """
        await to_thread.run_sync(self._copy_index)
        output = await self._run("ls-files", "-z", "--debug")

        def match() -> frozenset[bytes]:
            return frozenset(
                found[1]
                for found in _INDEX_ENTRY.finditer(output)
                if found[1] in paths and self._stat_of(found[1]) == tuple(map(int, found.groups()[1:]))
            )

        return await to_thread.run_sync(match)

    def _stat_of(self, path: bytes) -> tuple[int, ...]:
        """Times, inode and size of a file in the form of an index; empty if it is gone. Blocking."""
        try:
            info = (self._workspace / os.fsdecode(path)).lstat()
        except OSError:
            return ()
        times = (*divmod(info.st_ctime_ns, 10**9), *divmod(info.st_mtime_ns, 10**9))
        return (*times, info.st_ino & 0xFFFF_FFFF, info.st_size & 0xFFFF_FFFF)

    async def tree_mark(self) -> tuple[str, list[bytes]]:
        """A hash that changes with the uncommitted state of the tree, and the uncommitted paths.

        The hash covers the status, and the stats of its files.
        """
        entries = await self.status()
        names = [entry.split(b" ", _FIELDS_BEFORE_PATH.get(entry[:1], 1))[-1] for entry in entries]

        def digest() -> str:
            digest = hashlib.sha256(b"\0".join(entries))
            for name in names[:MAX_FINGERPRINT_ENTRIES]:
                path = self._workspace / name.decode("utf-8", "surrogateescape")
                digest.update(files.stat_line(path, name))
                if name.endswith(b"/") and files.is_directory(path):
                    digest.update(files.fingerprint(path, max_entries=MAX_FINGERPRINT_ENTRIES).encode())
            return digest.hexdigest()

        return await to_thread.run_sync(digest), names

    async def changed_since(self, base: str, head: str) -> list[bytes]:
        """The paths that differ between two commits."""
        output = await self._run("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, head, "--")
        return [path for path in output.split(b"\0") if path]

    async def small_blobs(self, ids: Iterable[bytes], limit: int) -> dict[bytes, bytes]:
        """The content of the given objects that are blobs of at most `limit` bytes."""
        stdin = b"".join(one + b"\n" for one in dict.fromkeys(ids))
        listing = await self._run("cat-file", "--batch-check", stdin=stdin)
        found = [line.split(b" ") for line in listing.splitlines()]
        small = [line[0] for line in found if line[1] == b"blob" and int(line[2]) <= limit]
        return {one: await self._run("cat-file", "blob", one.decode()) for one in small}

    async def count_since(self, base: str, head: str) -> int:
        """How many commits `head` is ahead of `base`."""
        return int(await self._run("rev-list", "--count", head, f"^{base}", "--"))

    async def are_within(self, commits: Collection[str], known: Collection[str]) -> bool:
        """Whether the known commits contain all of the commits."""
        stdin = "\n".join([*commits, *(f"^{one}" for one in known), ""]).encode()
        return not await self._run("rev-list", "--max-count=1", "--stdin", stdin=stdin)


@asynccontextmanager
async def open_shadow(
    git: Git,
    staging: Path,
    workspace: Path,
    tip: str | None,
    *,
    git_hashes: Mapping[str, str] | None,
    objects: Path | None = None,
    git_dir: Path | None = None,
    common: Path | None = None,
    within: Path | None = None,
) -> AsyncIterator[Shadow]:
    """A shadow whose `HEAD` is `tip`; it is deleted at the end of the context.

    Args:
        git: runs git.
        staging: where the shadow is made.
        workspace: the checked-out files.
        tip: the commit.
        git_hashes: hashes of the first state; the workspace's own alternates file is used only while it is
            unchanged.
        objects: the object store from which the workspace borrows.
        git_dir: the directory with the index; `.git` in the workspace if `None`.
        common: the directory with the objects, if they are not in `git_dir`.
        within: objects may also be borrowed from stores in this directory, as nested repositories do.
    """
    index_dir = git_dir or workspace / ".git"
    own = common or index_dir
    async with files.temporary_directory(staging, "shadow-") as made:
        await to_thread.run_sync(_build, made, own, tip, git_hashes, objects, within)
        yield Shadow(git, made, workspace, index_dir / "index", own / "info/exclude")


def _build(
    git_dir: Path,
    own: Path,
    tip: str | None,
    git_hashes: Mapping[str, str] | None,
    lender: Path | None,
    within: Path | None,
) -> None:
    stores = [] if lender is None else [str(lender)]
    if git_hashes and _ALTERNATES in git_hashes and _ALTERNATES not in changed_files(own, git_hashes):
        text = (read_regular(own / _ALTERNATES, _MAX_TEXT_BYTES) or b"").decode("utf-8", "surrogateescape")
        stores += [str(own / "objects" / line) for line in text.splitlines() if line and line[0] not in '#"']
    lent = _stores_within(own / "objects", within) if within else ()
    stores += [str(git_dir / f"store-{number}") for number, _ in enumerate(lent)]
    stores = list(dict.fromkeys(stores))
    head = tip or "ref: refs/heads/unborn"
    write_git_dir(git_dir, repository_config(tip), head=head, borrowed=stores)
    (git_dir / "info").mkdir()
    objects = git_dir / "objects"
    for number, store in enumerate(lent):
        (git_dir / f"store-{number}").mkdir()
        _link_objects(store, git_dir / f"store-{number}")
    _link_objects(own / "objects", objects)
    files.copy_regular(own / "shallow", git_dir / "shallow", _MAX_TEXT_BYTES)


def _link_objects(source: Path, target: Path) -> None:
    """Link packs, and loose objects in directories named by the first two digits of their ids."""
    for _, name in files.entries_below(source, into=""):
        is_loose = len(name) == len("00") and set(name) <= _HEX
        if (is_loose or name == "pack") and files.is_directory(source / name):
            (target / name).symlink_to(source / name)


def _stores_within(objects: Path, top: Path) -> list[Path]:
    """The object stores inside a directory from which a store borrows, also indirectly."""
    found, pending = list[Path](), [objects]
    while pending and len(found) <= _MAX_STORES:
        store = pending.pop()
        text = (read_regular(store / "info/alternates", _MAX_TEXT_BYTES) or b"").decode(
            "utf-8", "surrogateescape"
        )
        for line in text.splitlines():
            lent = Path(os.path.realpath(store / line)) if line and "\0" not in line else top
            if lent.is_relative_to(top) and lent not in {*found, top} and files.is_directory(lent):
                found.append(lent)
                pending.append(lent)
    return found


# --- Git LFS ---
# A fetch from a workspace brings only the pointers of Git LFS objects. The objects are copied to the store of
# the local repository or of the mirror, so that later workspaces need no download. The name of an object is
# the SHA-256 of its content. It is verified, because the agent controls the store of its workspace.

MAX_POINTER_BYTES: Final = 1_024
"""Size limit of a pointer file."""

_LFS_OBJECTS: Final = "lfs/objects"
_POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
_LFS_OBJECT: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}")


def copy_lfs_objects(own: Path, git_dir: Path) -> str | None:
    """Copy the LFS objects of a workspace's git directory that another one lacks; blocking.

    Returns:
        one line on objects that may exist only in the workspace; `None` if all were copied.
    """
    failed = 0
    try:
        for directory, path in _lfs_objects(own / _LFS_OBJECTS):
            target = git_dir / _LFS_OBJECTS / path
            if not target.exists():
                failed += not _copy_lfs_object(directory, target)
    except OSError as error:
        return f"Git LFS objects could not be copied to {git_dir / _LFS_OBJECTS}: {error.strerror or error}"
    return f"{failed} Git LFS objects do not match their names" if failed else None


def is_content_of(pointer: bytes, path: Path) -> bool:
    """Whether a file is the content of a pointer; blocking. Raises `OSError`."""
    found = _POINTER.fullmatch(pointer)
    file = None if found is None else open_regular(path)
    if found is None or file is None:
        return False
    with file:
        is_same_size = os.fstat(file.fileno()).st_size == int(found[2])
        return is_same_size and hashlib.file_digest(file, "sha256").hexdigest() == found[1].decode()


def _lfs_objects(store: Path) -> Iterator[tuple[int, str]]:
    """The objects of a store (`ab/cd/abcd...`), as `entries_below` yields them."""
    for directory, path in files.entries_below(store) if files.is_directory(store.parent) else ():
        if _LFS_OBJECT.fullmatch(path):
            info = os.stat(path.rpartition("/")[2], dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(info.st_mode):
                yield directory, path


def _copy_lfs_object(directory: int, target: Path) -> bool:
    """Copy the object with the target's name from an open directory; false if its hash differs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source = open_regular(target.name, directory)
    if source is None:
        return False
    with source, tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as copy:
        draft = Path(copy.name)
        try:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
            copy.seek(0)
            if hashlib.file_digest(copy, "sha256").hexdigest() != target.name:
                return False
            draft.chmod(0o644)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    return True
