"""The steps by which a workspace directory comes and goes on disk; all blocking, run in a thread."""

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from symphony.domain.failures import Category
from symphony.domain.fault_points import Fault, FaultPoint, no_fault
from symphony.domain.ids import branch_name
from symphony.domain.issue import Issue
from symphony.workspaces.files import (
    clear_drafts,
    delete_tree,
    empty_directory,
    is_directory,
    is_empty,
    make_directory,
    move_aside,
)
from symphony.workspaces.layout import Layout, contained, resolve, unreadable
from symphony.workspaces.locks import (
    Tenancy,
    clear_abandoned_locks,
    clear_branch_locks,
    clear_stale_locks,
)
from symphony.workspaces.model import WorkspaceError
from symphony.workspaces.records import Entry, read_entry, write_entry
from symphony.workspaces.seal import seal

__all__ = [
    "Examined",
    "adopt",
    "begin",
    "checked",
    "clear_leftovers",
    "clear_way",
    "complete",
    "discard",
    "examined",
    "foreign",
    "forget",
    "is_whole",
    "launchable",
    "open_root",
    "ours",
    "see_writable",
    "take_back",
    "try_writing",
]

_LEFTOVER_AGE_S: Final = 3_600
_CHECK: Final = ".symphony-check-"

_log = structlog.get_logger(__name__)


def open_root(root: Path) -> Layout:
    """The layout below the resolved root, every directory of it made. Raises `OSError`."""
    make_directory(root)
    layout = Layout(resolve(root))
    for directory in (layout.mirrors, layout.records, layout.staging, layout.trash):
        make_directory(directory)
    return layout


def try_writing(layout: Layout) -> None:
    """Make and remove a directory where workspaces are made. Raises `OSError`."""
    for left in layout.root.glob(f"{_CHECK}*"):
        with suppress(OSError):  # of a daemon that died just here; never one that holds something
            left.rmdir()
    Path(tempfile.mkdtemp(dir=layout.root, prefix=_CHECK)).rmdir()


def see_writable(layout: Layout) -> None:
    """See that workspaces can be made below a root that need not exist yet. Raises `OSError`."""
    place = next(path for path in (layout.root, *layout.root.parents) if os.path.lexists(path))
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    inside = [
        path for path in (layout.records, layout.records.parent) if place == layout.root and path.is_dir()
    ]
    if not all(os.access(path, os.W_OK | os.X_OK) for path in (place, *inside)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))


def clear_leftovers(layout: Layout, repository: Path | None) -> Tenancy | None:
    """What is in the trash is deleted; what another daemon may be using goes only when it is old.

    `repository` is the local one that branches are delivered into, null for none. Returns what tells other
    daemons of us for as long as it is kept; null where files cannot be locked.
    """
    empty_directory(layout.trash, older_than_s=0)
    empty_directory(layout.staging, older_than_s=_LEFTOVER_AGE_S)
    tenancy = Tenancy.at(layout.tenants)
    alone = tenancy is not None and tenancy.alone
    clear_drafts(layout.records, older_than_s=0 if alone else _LEFTOVER_AGE_S)
    for mirror in layout.mirrors.glob("*.git"):
        (clear_abandoned_locks if alone else clear_stale_locks)(mirror)
    if alone and repository is not None:
        clear_branch_locks(repository)
    if tenancy is not None:
        tenancy.settle()
    return tenancy


def checked(layout: Layout, key: str) -> tuple[Path, os.stat_result | None]:
    """The workspace's path after the containment check (WS6), and what is there; null for nothing.

    Right below the root only a link leads out of it, so that nothing else has to be followed.

    Raises:
        WorkspaceError: the key is unsafe, or as `contained`.
    """
    path = layout.workspace(key)
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        there = None
    except OSError as error:
        raise unreadable(path, error) from error
    if not path.is_absolute() or (there is not None and stat.S_ISLNK(there.st_mode)):
        contained(path, layout.root)
    return path, there


def launchable(path: Path, root: Path) -> bool:
    """Whether an agent may be started there: a real directory strictly below the resolved root (WS4).

    Raises:
        WorkspaceError: the containment check failed.
    """
    return contained(path, root) == path and is_directory(path)


def foreign(there: os.stat_result, entry: Entry | None, tenant: str | None = None) -> str | None:
    """Whose place it is if it is somebody else's; None where it is ours.

    Ours is what still belongs to its owner as it was made: a hook of root's may have given it away. With
    `tenant` it is also not the workspace of another workflow file.
    """
    if tenant is not None and entry is not None and entry.tenant not in {None, tenant}:
        return f"it is the workspace of {entry.tenant}"
    expected = os.geteuid() if entry is None or entry.owner is None else entry.owner
    return None if there.st_uid == expected else f"it belongs to another user (uid {there.st_uid})"


def ours(path: Path, there: os.stat_result, entry: Entry | None) -> None:
    """See that a workspace is nobody else's. Raises `WorkspaceError`: it may be given back."""
    if reason := foreign(there, entry):
        raise WorkspaceError.of(
            Category.WORKSPACE_PREPARE_FAILED,
            f"{path} cannot be worked in: {reason}",
            hint=f"give it to this user (chown -R {os.geteuid()} {path}), or move it away for a new one",
        )


def clear_way(
    layout: Layout, path: Path, there: os.stat_result, entry: Entry | None, *, populated: bool
) -> bool:
    """Whether what is there is a workspace; room is made for one otherwise (WS3).

    A plain file and a half-made workspace, in which no agent has ever been, are replaced. An empty directory
    counts as a workspace only where the daemon does not populate it.

    Raises:
        WorkspaceError: `workspace_path_not_directory`.
    """
    is_file = stat.S_ISREG(there.st_mode)
    if not is_file and not stat.S_ISDIR(there.st_mode):
        raise WorkspaceError.of(
            Category.WORKSPACE_PATH_NOT_DIRECTORY,
            f"{path} is neither a directory nor a plain file",
            hint="move it out of the workspace root",
            retryable=False,
        )
    if is_whole(path, there, entry, populated=populated):
        return True
    if is_file:
        path.unlink()
    elif entry is not None and not entry.ready:
        discard(layout, path)
    return False


def is_whole(path: Path, there: os.stat_result | None, entry: Entry | None, *, populated: bool) -> bool:
    """Whether a workspace is there that an attempt would go on in. Raises `OSError`."""
    if not _is_directory(there) or (entry is not None and not entry.ready):
        return False
    return not populated or not is_empty(path)


class Examined(NamedTuple):
    """Of a workspace under any root: the layout there, the checked path, the record, and whether it exists.

    `foreign` says whose one that exists is, if it is somebody else's.
    """

    layout: Layout
    path: Path
    entry: Entry | None
    existed: bool
    foreign: str | None


def examined(recorded: Path, tenant: str | None = None) -> Examined:
    """Look at a workspace once; `tenant` as for `foreign`.

    Raises:
        WorkspaceError: the path fails containment.
    """
    layout = Layout(recorded.parent)
    path, there = checked(layout, recorded.name)
    entry = read_entry(layout, path.name)
    existed = _is_directory(there)
    whose = foreign(there, entry, tenant) if there is not None and existed else None
    return Examined(layout, path, entry, existed, whose)


def discard(layout: Layout, path: Path, fault: Fault = no_fault) -> None:
    """Take a workspace away in one step, then delete it; a rest stays in the trash for the next start.

    Raises:
        OSError: it could not be taken away, and is still there as it was.
    """
    moved = move_aside(path, layout.trash)
    holder = moved.parent
    fault(FaultPoint.MOVED_ASIDE)
    try:
        delete_tree(moved)
        holder.rmdir()
    except OSError as error:
        _log.warning("trash_not_emptied", path=str(holder), error=str(error))


def begin(layout: Layout, entry: Entry, owner: Callable[[], str | None]) -> Entry:
    """The record of a workspace that is about to be made, written.

    Raises:
        OSError: it cannot be written, or another daemon was first.
    """
    begun = replace(entry, tenant=owner())
    write_entry(layout, begun, new=read_entry(layout, entry.key) is None)
    return begun


def complete(layout: Layout, path: Path, populated: Entry) -> Entry:
    """The record of a workspace that is whole, written. Raises `OSError`."""
    entry = replace(populated, ready=True, owner=path.lstat().st_uid, sealed=seal(path / ".git"))
    write_entry(layout, entry)
    return entry


def take_back(layout: Layout, path: Path, *, made: bool) -> None:
    """Take back a creation; a directory that somebody else put there meanwhile is not ours to delete."""
    if made and is_directory(path):
        discard(layout, path)
    forget(layout, path.name)


def forget(layout: Layout, key: str) -> None:
    """Drop the record of a workspace."""
    layout.record(key).unlink(missing_ok=True)


def adopt(
    layout: Layout,
    issue: Issue,
    key: str,
    entry: Entry | None,
    repo: str | None,
    tenant: str | None = None,
) -> Entry:
    """The record of an existing workspace, brought up to date; made up for one that has none.

    No run lives in it, so git's locks there are those of an agent that was ended in the middle of a command.
    """
    known = entry or Entry(
        issue_id=issue.id,
        identifier=issue.identifier,
        key=key,
        ready=True,
        repo=repo,
        branch=None if repo is None else branch_name(key),
    )
    clear_abandoned_locks(layout.workspace(key) / ".git")
    current = replace(known, issue_id=issue.id, identifier=issue.identifier, tenant=tenant or known.tenant)
    if current != entry:
        write_entry(layout, current)
    return current


def _is_directory(there: os.stat_result | None) -> bool:
    return there is not None and stat.S_ISDIR(there.st_mode)
