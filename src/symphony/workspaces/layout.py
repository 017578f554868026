"""Where everything lies below `workspace.root`, and the proof that a path stays inside it (WS1, WS4, WS5).

    <root>/<key>/                 one workspace per issue
    <root>/.symphony/mirrors/     one bare repository per `workspace.repo`
    <root>/.symphony/records/     whose workspace each directory is
    <root>/.symphony/tenants.d/   the workflow files that work at this root (`tenants`)
    <root>/.symphony/pinned/      files of base commits, read-only
    <root>/.symphony/staging/     what is not finished yet
    <root>/.symphony/trash/       what is being deleted

Names are computed without the file system; only `resolve` and what builds on it look at it.
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from symphony.domain import Category, UnsafeKeyError, workspace_key
from symphony.workspaces.model import WorkspaceError, split_login

_METADATA = ".symphony"
# `.git` would make the root itself look like a repository to every git command below it.
_RESERVED = frozenset({"", ".", "..", ".git", _METADATA})
_KEY = re.compile(r"[A-Za-z0-9._-]*")
_MAX_NAME_BYTES = 255
_SUFFIX_ROOM = 55
_MAX_LINKS = 40


@dataclass(frozen=True, slots=True)
class Layout:
    """The names below one root; the root is absolute."""

    root: Path

    @property
    def mirrors(self) -> Path:
        """The bare repositories."""
        return self.root / f"{_METADATA}/mirrors"

    @property
    def records(self) -> Path:
        """The records, one file each."""
        return self.root / f"{_METADATA}/records"

    @property
    def staging(self) -> Path:
        """Half-made things, which never are where a finished one is looked for."""
        return self.root / f"{_METADATA}/staging"

    @property
    def trash(self) -> Path:
        """Things already taken away, waiting to be deleted."""
        return self.root / f"{_METADATA}/trash"

    @property
    def tenants(self) -> Path:
        """The file that every daemon at this root holds a lock on."""
        return self.root / f"{_METADATA}/tenants"

    @property
    def tenant_files(self) -> Path:
        """The files of the workflow files that work at this root."""
        return self.root / f"{_METADATA}/tenants.d"

    @property
    def tenants_lock(self) -> Path:
        """What is locked while those are read and written."""
        return self.root / f"{_METADATA}/tenants.lock"

    @property
    def pins(self) -> Path:
        """The files of base commits, one directory per commit and choice of paths."""
        return self.root / f"{_METADATA}/pinned"

    def pinned(self, commit: str, paths: Iterable[str]) -> Path:
        """Where these files of a commit are, the same for whoever asks."""
        return self.pins / f"{commit}-{_digest(chr(0).join(sorted(set(paths))))[:12]}"

    def workspace(self, key: str) -> Path:
        """The workspace of a key (WS1). Raises `WorkspaceError` for an unsafe key (DM12)."""
        return self.root / check_key(key)

    def record(self, key: str) -> Path:
        """The record of a key. Raises `WorkspaceError` for an unsafe key."""
        return self.root / f"{_METADATA}/records/{record_name(check_key(key))}"

    def mirror(self, repository: str) -> Path:
        """The bare mirror of a repository, named by a hash of its address, whoever logs in there."""
        return self.mirrors / f"{_digest(split_login(repository)[0])}.git"


def record_name(key: str) -> str:
    """The file name of what is recorded of a key; a hash stands in for a key too long to bear a suffix."""
    return f"{_digest(key) if len(key) > _MAX_NAME_BYTES - _SUFFIX_ROOM else key}.json"


def key_of(identifier: str) -> str:
    """The workspace key of an issue (DM10). Raises `WorkspaceError` for an unsafe one (DM12)."""
    try:
        return check_key(workspace_key(identifier))
    except UnsafeKeyError as error:
        raise _unsafe(identifier) from error


def check_key(key: str) -> str:
    """The key itself when it is a safe directory name (DM12, WS4); else raises `WorkspaceError`."""
    legal = _KEY.fullmatch(key) and len(key) <= _MAX_NAME_BYTES
    if not legal or key.lower() in _RESERVED:
        raise _unsafe(key)
    return key


def resolve_contained(path: Path, root: Path) -> Path:
    """The resolved path, proven to lie strictly below the resolved root (WS4, WS5).

    Raises:
        WorkspaceError: `workspace_equals_root`, `workspace_symlink_escape`, `workspace_outside_root` or
            `workspace_path_unreadable`.
    """
    real_path, real_root = _resolved(path), _resolved(root)
    if real_path == real_root:
        raise _refused(Category.WORKSPACE_EQUALS_ROOT, f"{path} is the workspace root itself")
    if real_path.is_relative_to(real_root):
        return real_path
    if path.is_relative_to(root) and ".." not in path.parts:
        raise _refused(Category.WORKSPACE_SYMLINK_ESCAPE, f"{path} is a symlink out of {root}: {real_path}")
    raise _refused(Category.WORKSPACE_OUTSIDE_ROOT, f"{path} is not below the workspace root {root}")


def unreadable(path: Path, error: OSError) -> WorkspaceError:
    """The error of a path that cannot be followed to its end."""
    return _refused(Category.WORKSPACE_PATH_UNREADABLE, f"{path} cannot be resolved: {error.strerror}")


def resolve(path: Path) -> Path:
    """An absolute path with every symlink followed, segment by segment; what does not exist stays as it is.

    Unlike `Path.resolve` it hides no error: a loop or an unreadable segment raises `OSError`.
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
    """The segments, last one first."""
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


def _link_target(path: str) -> str | None:
    """Where a symlink points; null for what is none or does not exist."""
    try:
        return os.readlink(path)  # noqa: PTH115 - asked for every segment of every path
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _resolved(path: Path) -> Path:
    if not path.is_absolute():
        raise _refused(Category.WORKSPACE_OUTSIDE_ROOT, f"{path} is not an absolute path")
    try:
        return resolve(path)
    except OSError as error:
        raise unreadable(path, error) from error


def _refused(category: Category, message: str) -> WorkspaceError:
    return WorkspaceError.of(category, message, retryable=False)


def _unsafe(name: str) -> WorkspaceError:
    return WorkspaceError.of(
        Category.WORKSPACE_UNSAFE_KEY,
        f"{name[:80]!r} cannot name a workspace directory",
        hint="rename the issue's identifier in the tracker",
        retryable=False,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:40]
