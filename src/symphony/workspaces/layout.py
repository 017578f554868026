"""Names of everything below `workspace.root`, and the check that a path stays inside the root.

    <root>/<key>/                 one workspace per issue
    <root>/.symphony/mirrors/     one bare repository per `workspace.repo`
    <root>/.symphony/records/     one record per workspace (`StoredRecord`)
    <root>/.symphony/library/     one record per workspace of the library's skills in it
    <root>/.symphony/tenants.d/   the workflow files that use this root (`Tenant`)
    <root>/.symphony/pinned/      files of base commits, read-only
    <root>/.symphony/baselines/   what the commands of `verify` say of base commits
    <root>/.symphony/staging/     unfinished things
    <root>/.symphony/trash/       things that are being deleted

`Layout` computes names without file system access; `resolve` and `resolve_contained` read the file system.
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from symphony.domain import Category, UnsafeKeyError, workspace_key
from symphony.workspaces.model import WorkspaceError, split_login

MAX_NAME_BYTES = 255
_METADATA = ".symphony"
# A directory `.git` would make the root itself look like a repository to every git command below it.
_RESERVED = frozenset({"", ".", "..", ".git", _METADATA})
_KEY = re.compile(r"[A-Za-z0-9._-]*")
_SUFFIX_ROOM = 55
_MAX_LINKS = 40


class Layout(Struct, frozen=True):
    """The paths below one absolute root."""

    root: Path

    @property
    def mirrors(self) -> Path:
        """Directory of the bare repositories."""
        return self.root / f"{_METADATA}/mirrors"

    @property
    def records(self) -> Path:
        """Directory of the workspace records."""
        return self.root / f"{_METADATA}/records"

    @property
    def staging(self) -> Path:
        """Directory for unfinished things, which are moved into place when they are complete."""
        return self.root / f"{_METADATA}/staging"

    @property
    def trash(self) -> Path:
        """Directory for things that are moved away before they are deleted."""
        return self.root / f"{_METADATA}/trash"

    @property
    def tenants(self) -> Path:
        """The file that every daemon at this root holds a lock on."""
        return self.root / f"{_METADATA}/tenants"

    @property
    def tenant_files(self) -> Path:
        """Directory with one file per workflow file that uses this root."""
        return self.root / f"{_METADATA}/tenants.d"

    @property
    def tenants_lock(self) -> Path:
        """The lock for reading and writing `tenant_files`."""
        return self.root / f"{_METADATA}/tenants.lock"

    @property
    def pins(self) -> Path:
        """Directory for files of base commits: one directory per commit and selection of paths."""
        return self.root / f"{_METADATA}/pinned"

    def pinned(self, commit: str, paths: Iterable[str]) -> Path:
        """Directory for these files of a commit; the order of the paths does not matter."""
        return self.pins / f"{commit}-{_digest(chr(0).join(sorted(set(paths))))[:12]}"

    def workspace(self, key: str) -> Path:
        """The workspace of a key. Raises `WorkspaceError` for an unsafe key."""
        return self.root / check_key(key)

    def record(self, key: str) -> Path:
        """The record of a key. Raises `WorkspaceError` for an unsafe key."""
        return self.records / record_name(check_key(key))

    def written_skills(self, key: str) -> Path:
        """The record of the library's skills in a workspace. Raises `WorkspaceError` for an unsafe key."""
        return self.root / _METADATA / "library" / record_name(check_key(key))

    def activated_skills(self, key: str) -> Path:
        """The record of skills that a workspace's conversation got.

        Raises `WorkspaceError` for an unsafe key.
        """
        return self.root / _METADATA / "activated" / record_name(check_key(key))

    def baseline(self, commit: str, script: str) -> Path:
        """The file that says whether a command of `verify` passes on a base commit."""
        return self.root / _METADATA / "baselines" / f"{commit}-{_digest(script)[:12]}"

    def mirror(self, repository: str) -> Path:
        """The bare mirror of a repository, named by a hash of the address without its login."""
        return self.mirrors / f"{_digest(split_login(repository)[0])}.git"


def record_name(key: str) -> str:
    """File name of a key with a suffix; a hash replaces a key that is too long for it."""
    return f"{_digest(key) if len(key) > MAX_NAME_BYTES - _SUFFIX_ROOM else key}.json"


def key_of(identifier: str) -> str:
    """The workspace key of an issue (specification section 4.2). Raises `WorkspaceError` if it is unsafe."""
    try:
        return check_key(workspace_key(identifier))
    except UnsafeKeyError as error:
        raise _unsafe_key(identifier) from error


def check_key(key: str) -> str:
    """The key itself. Raises `WorkspaceError` if it is not a safe directory name (specification 9.5)."""
    if not _KEY.fullmatch(key) or len(key) > MAX_NAME_BYTES or key.lower() in _RESERVED:
        raise _unsafe_key(key)
    return key


def resolve_contained(path: Path, root: Path) -> Path:
    """The resolved path, proven to lie strictly below the resolved root (specification section 9.5).

    Raises:
        WorkspaceError: `workspace_equals_root`, `workspace_symlink_escape`, `workspace_outside_root` or
            `workspace_path_unreadable`.
    """
    for one in (path, root):
        if not one.is_absolute():
            raise _refused(Category.WORKSPACE_OUTSIDE_ROOT, f"{one} is not an absolute path")
    try:
        real_path, real_root = resolve(path), resolve(root)
    except OSError as error:
        raise unreadable_path(path, error) from error
    if real_path == real_root:
        raise _refused(Category.WORKSPACE_EQUALS_ROOT, f"{path} is the workspace root itself")
    if real_path.is_relative_to(real_root):
        return real_path
    if path.is_relative_to(root) and ".." not in path.parts:
        raise _refused(Category.WORKSPACE_SYMLINK_ESCAPE, f"{path} is a symlink out of {root}: {real_path}")
    raise _refused(Category.WORKSPACE_OUTSIDE_ROOT, f"{path} is not below the workspace root {root}")


def resolve(path: Path) -> Path:
    """An absolute path with every symlink followed, segment by segment; missing segments are kept.

    Unlike `Path.resolve`, a loop or an unreadable segment raises `OSError`.
    """
    done, pending, links = "", _segments(os.fspath(path)), 0
    while pending:
        segment = pending.pop()
        if segment == "..":
            done = done.rpartition("/")[0]
            continue
        target = _link_target(f"{done}/{segment}")
        if target is None:
            done = f"{done}/{segment}"
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        done = "" if target.startswith("/") else done
        pending += _segments(target)
    return Path(done or "/")


def _segments(path: str) -> list[str]:
    """The segments of a path, last one first."""
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


def _link_target(path: str) -> str | None:
    """The target of a symlink; `None` if the path is something else or does not exist."""
    try:
        return os.readlink(path)  # noqa: PTH115 - called for every segment of every path
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def unreadable_path(path: Path, error: OSError) -> WorkspaceError:
    """The error for a path that cannot be resolved."""
    return _refused(Category.WORKSPACE_PATH_UNREADABLE, f"{path} cannot be resolved: {error.strerror}")


def _refused(category: Category, message: str) -> WorkspaceError:
    return WorkspaceError.of(category, message, retryable=False)


def _unsafe_key(name: str) -> WorkspaceError:
    return WorkspaceError.of(
        Category.WORKSPACE_UNSAFE_KEY,
        f"{name[:80]!r} cannot name a workspace directory",
        hint="rename the issue's identifier in the tracker",
        retryable=False,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:40]
