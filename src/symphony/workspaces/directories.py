"""Finds, checks and deletes workspace directories. Everything blocks, so callers use a thread."""

import errno
import os
import pwd
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from symphony import domain
from symphony.config import WorkspaceSettings
from symphony.files import DRAFT_PREFIX
from symphony.workspaces import files, ownership
from symphony.workspaces.layout import Layout, key_of, resolve, resolve_contained, unreadable_path
from symphony.workspaces.locks import RootLease, clear_abandoned_locks, clear_branch_locks, clear_stale_locks
from symphony.workspaces.model import Workspace, WorkspaceError, prepare_error, split_login

_LEFTOVER_AGE_S: Final = 3_600
_CHECK_PREFIX: Final = ".symphony-check-"
_log = structlog.get_logger(__name__)


# --- The root ---


@contextmanager
def root_errors(root: Path) -> Iterator[None]:
    """Turn an `OSError` into a `WorkspaceError` with blame `config` that names the owner of the root."""
    try:
        yield
    except OSError as error:
        usual = f"make the directory writable for this user, or {ownership.OWN_ROOT_HINT}"
        raise WorkspaceError.of(
            domain.Category.WORKSPACE_PREPARE_FAILED,
            f"workspace.root {root} cannot be written: {error.strerror or error}{_foreign_owner_of(root)}",
            hint=domain.disk_full_hint(root) if domain.is_disk_full(error) else usual,
            blame=domain.Blame.CONFIG,
        ) from error


def _foreign_owner_of(root: Path) -> str:
    """End of a sentence: the owner of a root, or of its nearest existing parent, if it is another user."""
    nearest = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    try:
        owner = nearest.stat().st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"uid {owner}"
    return f"; {nearest} belongs to {name}"


def open_root(root: Path) -> Layout:
    """The layout below the resolved root, with all directories created. Raises `OSError`."""
    files.make_directory(root)
    layout = Layout(resolve(root))
    for directory in (layout.mirrors, layout.records, layout.staging, layout.trash):
        files.make_directory(directory)
    return layout


def try_writing(layout: Layout) -> None:
    """Create and remove a directory where workspaces are created. Raises `OSError`."""
    for left in layout.root.glob(f"{_CHECK_PREFIX}*"):
        with suppress(OSError):  # left by a crash; a directory with content is kept
            left.rmdir()
    made = Path(tempfile.mkdtemp(dir=layout.root, prefix=_CHECK_PREFIX))
    with suppress(FileNotFoundError):  # another starting daemon has removed it as a leftover
        made.rmdir()


def check_writable(layout: Layout) -> None:
    """Check, without writing, that workspaces can be created below a root that may not exist yet.

    Raises `OSError`.
    """
    nearest = next(path for path in (layout.root, *layout.root.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
    own = (layout.records, layout.records.parent) if nearest == layout.root else ()
    for path in (nearest, *(one for one in own if one.is_dir())):
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))


def clear_leftovers(layout: Layout, repository: Path | None) -> RootLease | None:
    """Delete what a crash left. Files that another daemon may be using are deleted only if they are old.

    Args:
        layout: the layout of the root.
        repository: the local repository that branches are delivered to, if any.

    Returns:
        the lease that shows other daemons that this one uses the root; `None` if files cannot be locked.
    """
    files.delete_old_entries(layout.trash, older_than_s=0)
    files.delete_old_entries(layout.staging, older_than_s=_LEFTOVER_AGE_S)
    lease = RootLease.at(layout.tenants)
    alone = lease is not None and lease.alone
    draft_age_s = 0 if alone else _LEFTOVER_AGE_S
    files.delete_old_entries(layout.records, older_than_s=draft_age_s, prefix=DRAFT_PREFIX)
    for mirror in layout.mirrors.glob("*.git"):
        (clear_abandoned_locks if alone else clear_stale_locks)(mirror)
    if alone and repository is not None:
        clear_branch_locks(repository)
    if lease is not None:
        lease.share()
    return lease


# --- One workspace ---


def check_path(layout: Layout, key: str) -> tuple[Path, os.stat_result | None]:
    """The path of a workspace after the containment check, and its stat result, `None` if it is missing.

    Directly below the root only a link can lead out, so nothing else is resolved.

    Raises:
        WorkspaceError: the key is unsafe, or as `resolve_contained`.
    """
    path = layout.workspace(key)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise unreadable_path(path, error) from error
    if not path.is_absolute() or (found is not None and stat.S_ISLNK(found.st_mode)):
        resolve_contained(path, layout.root)
    return path, found


def is_launchable(path: Path, layout: Layout) -> bool:
    """Whether an agent may be started there: a real directory directly below the resolved root.

    Raises:
        WorkspaceError: the key is unsafe, or the containment check failed.
    """
    if path.parent != layout.root:
        resolve_contained(path, layout.root)  # raises if it is not below the root
        return False
    _, found = check_path(layout, path.name)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_complete(
    path: Path, found: os.stat_result | None, record: ownership.StoredRecord | None, *, populated: bool
) -> bool:
    """Whether the workspace exists and the next attempt continues in it. Raises `OSError`.

    An empty directory counts only if the daemon does not populate workspaces.
    """
    if found is None or not stat.S_ISDIR(found.st_mode) or (record is not None and not record.ready):
        return False
    return not populated or not files.is_empty(path)


def foreign_owner(
    found: os.stat_result, record: ownership.StoredRecord | None, tenant: str | None = None
) -> str | None:
    """The owner of a workspace if that is another user, or another tenant if one is given.

    A workspace's own user is the owner at its creation, because a hook that ran as root may have changed the
    owner.
    """
    if tenant is not None and record is not None and record.tenant not in {None, tenant}:
        return f"it is the workspace of {record.tenant}"
    expected = os.geteuid() if record is None or record.owner is None else record.owner
    return None if found.st_uid == expected else f"it belongs to another user (uid {found.st_uid})"


def _refuse_unusable(path: Path, found: os.stat_result, record: ownership.StoredRecord | None) -> None:
    """Raise `WorkspaceError` if what is at a path can be neither used nor replaced."""
    if owner := foreign_owner(found, record):
        command = f"chown -R {os.geteuid()} {shlex.quote(str(path))}"
        raise WorkspaceError.of(
            domain.Category.WORKSPACE_PREPARE_FAILED,
            f"{path} cannot be worked in: {owner}",
            hint=f"give it to this user ({command}), or move it away for a new one",
        )
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise WorkspaceError.of(
            domain.Category.WORKSPACE_PATH_NOT_DIRECTORY,
            f"{path} is neither a directory nor a plain file",
            hint="move it out of the workspace root",
            retryable=False,
        )


class ExaminedWorkspace(NamedTuple):
    """A workspace below any root; `foreign_owner` is as from the function, if the workspace exists."""

    layout: Layout
    path: Path
    record: ownership.StoredRecord | None
    exists: bool
    foreign_owner: str | None


def examine(path: Path, tenant: str | None = None) -> ExaminedWorkspace:
    """Check a recorded workspace against its own parent directory.

    Raises:
        WorkspaceError: the path fails the containment check.
    """
    layout = Layout(path.parent)
    path, found = check_path(layout, path.name)
    record = ownership.read_record(layout, path.name)
    if found is None or not stat.S_ISDIR(found.st_mode):
        return ExaminedWorkspace(layout, path, record, exists=False, foreign_owner=None)
    owner = foreign_owner(found, record, tenant)
    return ExaminedWorkspace(layout, path, record, exists=True, foreign_owner=owner)


def discard(layout: Layout, path: Path, fault: domain.FaultHook = domain.no_fault) -> None:
    """Move a workspace to the trash in one step, then delete it; the next start deletes the rest.

    Raises:
        OSError: it could not be moved, and is unchanged.
    """
    moved = files.move_aside(path, layout.trash)
    fault(domain.FaultPoint.MOVED_ASIDE)
    try:
        files.delete_tree(moved)
        moved.parent.rmdir()
    except OSError as error:
        _log.warning("trash_not_emptied", path=str(moved.parent), error=str(error))


def delete(layout: Layout, path: Path, fault: domain.FaultHook = domain.no_fault) -> None:
    """Discard a workspace and delete its record. Raises `OSError`."""
    discard(layout, path, fault)
    forget(layout, path.name)


def undo_creation(layout: Layout, path: Path, *, created: bool) -> None:
    """Delete a new workspace and its record; a directory that another process created stays."""
    if created and files.is_directory(path):
        discard(layout, path)
    forget(layout, path.name)


def forget(layout: Layout, key: str) -> None:
    """Delete the record of a workspace."""
    layout.record(key).unlink(missing_ok=True)


class FoundWorkspace(NamedTuple):
    """Where the workspace of an issue is; if its record is not `ready`, it does not exist yet."""

    layout: Layout
    path: Path
    record: ownership.StoredRecord


@dataclass(frozen=True, kw_only=True)
class WorkspaceFinder:
    """Finds workspaces below the root of the settings.

    `workflow` is the workflow file that owns them; `None` if the root has no other users.
    """

    settings: WorkspaceSettings
    workflow: Path | None = None
    _records: ownership.RecordReader = field(default_factory=ownership.RecordReader)

    @cached_property
    def tenant_name(self) -> str | None:
        """The tenant in the records of these workspaces."""
        return None if self.workflow is None else os.path.realpath(self.workflow)

    def tenant(self) -> ownership.Tenant | None:
        """The owner of these workspaces."""
        return None if self.tenant_name is None else ownership.Tenant.of(self.tenant_name, self.settings.repo)

    def open_root(self) -> Layout:
        """The layout below the resolved root, with all directories created. Raises `WorkspaceError`."""
        with root_errors(self.settings.root):
            return open_root(self.settings.root)

    def resolve_root(self) -> Layout:
        """The layout below the resolved root, which need not exist. Raises `WorkspaceError`."""
        with root_errors(self.settings.root):
            return Layout(resolve(self.settings.root))

    def key(
        self, layout: Layout, identifier: str, *, issue_id: str | None = None, claim: bool = False
    ) -> str:
        """The key under which an issue is worked on, see `Tenant.key`.

        A tracker may give an issue another identifier, as when it moves to another project. Its workspace is
        then found by the issue's id, or by the identifier in its record, and keeps its key and its branch. An
        issue that later gets the former identifier has a key with a digest of its own id.

        Raises:
            WorkspaceError: as `Tenant.key`.
        """
        key, tenant = key_of(identifier), self.tenant()
        records = [one for one in self._records.read(layout) if tenant is None or tenant.owns(one)]
        usual = {key} if tenant is None else {key, ownership.with_digest(key, tenant.workflow)}
        for record in records:
            is_same = record.issue_id == issue_id if issue_id else record.identifier == identifier
            if is_same and record.key not in usual and files.is_directory(layout.workspace(record.key)):
                return record.key
        taken = any(
            record.key == key and record.identifier != identifier and issue_id != record.issue_id
            for record in records
        )
        if taken and issue_id is not None:
            key = ownership.with_digest(key, issue_id)
        return key if tenant is None else tenant.key(layout, key, claim=claim)

    def find(self, issue: domain.Issue) -> FoundWorkspace:
        """Find the workspace of an issue, or make room and a record for a new one (specification 9.2).

        A plain file and an incomplete workspace, which no agent has used, are replaced.

        Raises:
            WorkspaceError: the root cannot be written, the path fails the containment check or is taken.
        """
        key_of(issue.identifier)  # before anything is created
        layout = self.open_root()
        key = self.key(layout, issue.identifier, issue_id=issue.id, claim=True)
        path, found = check_path(layout, key)
        record = ownership.read_record(layout, key)
        if found is not None:
            _refuse_unusable(path, found, record)
        try:
            if is_complete(path, found, record, populated=self.settings.repo is not None):
                return FoundWorkspace(layout, path, self._update_record(layout, issue, key, record))
            if found is None and record is not None and record.ready:
                _log.warning("workspace_made_anew", path=str(path))
            elif found is not None and stat.S_ISREG(found.st_mode):
                path.unlink()
            elif found is not None and record is not None and not record.ready:
                discard(layout, path)
            begun = ownership.StoredRecord(
                issue_id=issue.id,
                identifier=issue.identifier,
                key=key,
                ready=False,
                tenant=self.tenant_name,
            )
            ownership.write_record(layout, begun, new=record is None)
        except OSError as error:
            raise prepare_error(path, error) from error
        return FoundWorkspace(layout, path, begun)

    def _update_record(
        self, layout: Layout, issue: domain.Issue, key: str, record: ownership.StoredRecord | None
    ) -> ownership.StoredRecord:
        """Update the record of an existing workspace, or make one.

        No run uses the workspace now, so git's lock files in it belong to an agent that was interrupted.
        """
        clear_abandoned_locks(layout.workspace(key) / ".git")
        repo = None if self.settings.repo is None else split_login(self.settings.repo)[0]
        known = record or ownership.StoredRecord(
            issue_id=issue.id,
            identifier=issue.identifier,
            key=key,
            ready=True,
            repo=repo,
            branch=None if repo is None else domain.branch_name(key),
        )
        tenant = self.tenant_name or known.tenant
        current = replace(
            known, issue_id=issue.id, identifier=issue.identifier, tenant=tenant, work=None, look=None
        )
        if current != record:
            ownership.write_record(layout, current)
        return current

    def verify(self, workspace: Workspace) -> None:
        """Check that an agent may be started in the workspace (specification section 9.5).

        Raises:
            WorkspaceError: `invalid_workspace_cwd`.
        """
        layout = self.resolve_root()
        try:
            reason = None if is_launchable(workspace.path, layout) else "it is no directory"
        except WorkspaceError as error:
            reason = error.failure.category.value
        if reason is not None:
            raise WorkspaceError.of(
                domain.Category.INVALID_WORKSPACE_CWD,
                f"no agent may be started in {workspace.path}: {reason}",
                blame=domain.Blame.AGENT,
                retryable=False,
            )
