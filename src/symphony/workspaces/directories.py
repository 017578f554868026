"""The steps by which a workspace directory comes and goes on disk; all blocking, run in a thread."""

import errno
import hashlib
import os
import pwd
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import structlog

from symphony.config import WorkspaceSettings
from symphony.domain import (
    DECODE_ERRORS,
    Blame,
    Category,
    FaultHook,
    FaultPoint,
    Issue,
    branch_name,
    disk_full_hint,
    is_disk_full,
    no_fault,
)
from symphony.workspaces.files import (
    clear_drafts,
    create,
    delete_tree,
    empty_directory,
    is_directory,
    is_empty,
    make_directory,
    move_aside,
    read_present,
    read_regular,
    write_atomic,
)
from symphony.workspaces.git import (
    RootLease,
    clear_abandoned_locks,
    clear_branch_locks,
    clear_stale_locks,
    common_dir,
    hash_watched_files,
    read_ref,
    without_credentials,
)
from symphony.workspaces.layout import (
    Layout,
    check_key,
    key_of,
    record_name,
    resolve,
    resolve_contained,
    unreadable,
)
from symphony.workspaces.model import (
    Workspace,
    WorkspaceError,
    WorkspaceRecord,
    cannot_be_made,
    invalid_cwd,
    split_login,
)

# What is remembered of each workspace beside it: whose it is, how it was made, and whether it is whole.
#
# A record is written before its directory, so that a crash leaves a record without a whole workspace and
# never a half-made workspace that looks whole.


_MAX_RECORD_BYTES = 1024 * 1024
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """One record.

    Attributes:
        issue_id: the dispatch identity.
        identifier: what the key was derived from.
        key: the name of the directory.
        ready: whether it was populated and `after_create` succeeded.
        repo: the repository it was populated from; null where hooks populate it.
        branch: the issue's branch, with `repo`.
        base_commit: where the branch began, with `repo` and if known.
        owner: the user whose directory it became, `after_create` included; null where that was not seen.
        tenant: the workflow file whose workspace it is (`tenants`); None where that is not known.
        sealed: hashes of the watched files of its `.git` as they were made; `None` if unknown.
    """

    issue_id: str
    identifier: str
    key: str
    ready: bool
    repo: str | None = None
    branch: str | None = None
    base_commit: str | None = None
    owner: int | None = None
    tenant: str | None = None
    sealed: Mapping[str, str] | None = None

    def record(self, layout: Layout) -> WorkspaceRecord:
        """What the outside needs of it."""
        path = layout.workspace(self.key)
        return WorkspaceRecord(issue_id=self.issue_id, identifier=self.identifier, key=self.key, path=path)


def read_record(layout: Layout, key: str) -> StoredRecord | None:
    """The record of a key; null where there is none that can be read, which is logged.

    Raises:
        WorkspaceError: the file system knows no case, and the record is that of a key in another case.
    """
    path = layout.record(key)
    entry = _parse(path, content) if (content := _record_bytes(path)) is not None else None
    if entry is None or entry.key == key:
        return entry
    if entry.key.lower() == key.lower():
        raise WorkspaceError.of(
            Category.WORKSPACE_UNSAFE_KEY,
            f"workspace {key} would be the one of {entry.key}: the file system makes no difference by case",
            hint="rename one of the two issues, or set workspace.root to another file system",
            retryable=False,
        )
    return _own(layout, path, entry)


def read_records(layout: Layout) -> tuple[StoredRecord, ...]:
    """Every readable record; the others are skipped with a warning each."""
    paths = sorted(layout.records.glob("*.json")) if is_directory(layout.records) else []
    entries = (
        _own(layout, path, _parse(path, read_regular(path, _MAX_RECORD_BYTES) or b"")) for path in paths
    )
    return tuple(entry for entry in entries if entry is not None)


def write_record(layout: Layout, entry: StoredRecord, *, new: bool = False) -> None:
    """Write a record as a whole; it outlives the machine.

    With `new` there is none yet that could be read, and one that another daemon writes meanwhile stays.

    Raises:
        OSError: it cannot be written, or another daemon was first.
    """
    path, data = layout.record(entry.key), msgspec.json.format(msgspec.json.encode(entry), indent=1)
    try:
        write_atomic(path, data, new=new)
    except FileExistsError:
        if _parse(path, _record_bytes(path) or b"") is not None:
            raise
        write_atomic(path, data)  # it is damaged
    except FileNotFoundError:  # the directory, and there nearly always is one
        make_directory(path.parent)
        write_atomic(path, data)


def _record_bytes(path: Path) -> bytes | None:
    """What a record holds, which is nothing where it is no plain file; null where there is none."""
    try:
        return read_present(path, _MAX_RECORD_BYTES) or b""
    except FileNotFoundError:
        return None
    except OSError:
        return b"" if path.exists() else None


def _parse(path: Path, content: bytes) -> StoredRecord | None:
    try:
        entry = msgspec.json.decode(content, type=StoredRecord)
        check_key(entry.key)
    except (*DECODE_ERRORS, WorkspaceError) as error:
        _log.warning("workspace_record_skipped", path=str(path), error=str(error).splitlines()[0])
        return None
    return entry


def _own(layout: Layout, path: Path, entry: StoredRecord | None) -> StoredRecord | None:
    """The entry, if it stands in the file of its key."""
    if entry is not None and layout.record(entry.key) != path:
        _log.warning("workspace_record_skipped", path=str(path), error=f"it is about {entry.key}")
        return None
    return entry


_LEFTOVER_AGE_S: Final = 3_600
_CHECK: Final = ".symphony-check-"


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


def clear_leftovers(layout: Layout, repository: Path | None) -> RootLease | None:
    """What is in the trash is deleted; what another daemon may be using goes only when it is old.

    `repository` is the local one that branches are delivered into, null for none. Returns what tells other
    daemons of us for as long as it is kept; null where files cannot be locked.
    """
    empty_directory(layout.trash, older_than_s=0)
    empty_directory(layout.staging, older_than_s=_LEFTOVER_AGE_S)
    tenancy = RootLease.at(layout.tenants)
    alone = tenancy is not None and tenancy.alone
    clear_drafts(layout.records, older_than_s=0 if alone else _LEFTOVER_AGE_S)
    for mirror in layout.mirrors.glob("*.git"):
        (clear_abandoned_locks if alone else clear_stale_locks)(mirror)
    if alone and repository is not None:
        clear_branch_locks(repository)
    if tenancy is not None:
        tenancy.settle()
    return tenancy


def check_path(layout: Layout, key: str) -> tuple[Path, os.stat_result | None]:
    """The workspace's path after the containment check (WS6), and what is there; null for nothing.

    Right below the root only a link leads out of it, so that nothing else has to be followed.

    Raises:
        WorkspaceError: the key is unsafe, or as `resolve_contained`.
    """
    path = layout.workspace(key)
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        there = None
    except OSError as error:
        raise unreadable(path, error) from error
    if not path.is_absolute() or (there is not None and stat.S_ISLNK(there.st_mode)):
        resolve_contained(path, layout.root)
    return path, there


def is_launchable(path: Path, root: Path) -> bool:
    """Whether an agent may be started there: a real directory strictly below the resolved root (WS4).

    Raises:
        WorkspaceError: the containment check failed.
    """
    return resolve_contained(path, root) == path and is_directory(path)


def foreign(there: os.stat_result, entry: StoredRecord | None, tenant: str | None = None) -> str | None:
    """Whose place it is if it is somebody else's; None where it is ours.

    Ours is what still belongs to its owner as it was made: a hook of root's may have given it away. With
    `tenant` it is also not the workspace of another workflow file.
    """
    if tenant is not None and entry is not None and entry.tenant not in {None, tenant}:
        return f"it is the workspace of {entry.tenant}"
    expected = os.geteuid() if entry is None or entry.owner is None else entry.owner
    return None if there.st_uid == expected else f"it belongs to another user (uid {there.st_uid})"


def ours(path: Path, there: os.stat_result, entry: StoredRecord | None) -> None:
    """See that a workspace is nobody else's. Raises `WorkspaceError`: it may be given back."""
    if reason := foreign(there, entry):
        raise WorkspaceError.of(
            Category.WORKSPACE_PREPARE_FAILED,
            f"{path} cannot be worked in: {reason}",
            hint=f"give it to this user (chown -R {os.geteuid()} {path}), or move it away for a new one",
        )


def clear_way(
    layout: Layout, path: Path, there: os.stat_result, entry: StoredRecord | None, *, populated: bool
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


def is_whole(
    path: Path, there: os.stat_result | None, entry: StoredRecord | None, *, populated: bool
) -> bool:
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
    entry: StoredRecord | None
    existed: bool
    foreign: str | None


def examined(recorded: Path, tenant: str | None = None) -> Examined:
    """Look at a workspace once; `tenant` as for `foreign`.

    Raises:
        WorkspaceError: the path fails containment.
    """
    layout = Layout(recorded.parent)
    path, there = check_path(layout, recorded.name)
    entry = read_record(layout, path.name)
    existed = _is_directory(there)
    whose = foreign(there, entry, tenant) if there is not None and existed else None
    return Examined(layout, path, entry, existed, whose)


def discard(layout: Layout, path: Path, fault: FaultHook = no_fault) -> None:
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


def begin(layout: Layout, entry: StoredRecord, owner: Callable[[], str | None]) -> StoredRecord:
    """The record of a workspace that is about to be made, written.

    Raises:
        OSError: it cannot be written, or another daemon was first.
    """
    begun = replace(entry, tenant=owner())
    write_record(layout, begun, new=read_record(layout, entry.key) is None)
    return begun


def complete(layout: Layout, path: Path, populated: StoredRecord) -> StoredRecord:
    """The record of a workspace that is whole, written. Raises `OSError`."""
    entry = replace(
        populated, ready=True, owner=path.lstat().st_uid, sealed=hash_watched_files(path / ".git")
    )
    write_record(layout, entry)
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
    entry: StoredRecord | None,
    repo: str | None,
    tenant: str | None = None,
) -> StoredRecord:
    """The record of an existing workspace, brought up to date; made up for one that has none.

    No run lives in it, so git's locks there are those of an agent that was ended in the middle of a command.
    """
    known = entry or StoredRecord(
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
        write_record(layout, current)
    return current


def _is_directory(there: os.stat_result | None) -> bool:
    return there is not None and stat.S_ISDIR(there.st_mode)


# Which workflow files share a workspace root, and which of them a workspace or a branch belongs to.
#
#     <root>/.symphony/tenants.d/<digest>.json        one for each workflow file that works at this root
#     <git directory>/symphony/branches/<key>.json    in a local repository: whose symphony/<key> is
#
# A tenant is a workflow file, known by its real path. Several may share a root as long as they work on
# different repositories: a second one for the same repository would share its mirror and branches, and is
# refused. The record of a workspace names its tenant (`records`), and no other one enters, delivers, cleans
# or removes it.
#
# Linked worktrees share the branches of their repository although each has a root of its own. So the branch
# of an issue is claimed in the repository, before the workspace is made. Where a directory or a branch is
# taken, the issue gets a key of its own: `SYM-1-1f2e3d4c`, with a digest of the tenant. Claims are kept
# when a branch is deleted, because an identifier is never given to a second issue.
#
# All of it blocks; callers run it in a thread.


BRANCH_CLAIMS: Final = "symphony/branches"
"""Where the claims of branches are, below the common git directory of a local repository."""

OWN_ROOT_HINT: Final = "set workspace.root to a place of its own, as with `$SYMPHONY_STATE_DIR/workspaces`"
_MAX_TENANT_BYTES: Final = 64 * 1024
_MAX_KEY_BYTES: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a file tells of a tenant; `repository` is None for a claim, and where hooks fill workspaces."""

    workflow: str
    repository: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A workflow file that works at a root.

    Attributes:
        workflow: its real path.
        repository: what tells its repository from others: of a local one the common git directory, of others
            a digest of the address; None where hooks fill workspaces.
        address: `workspace.repo` without a login.
        git_dir: the common git directory of a local repository.
    """

    workflow: str
    repository: str | None
    address: str | None
    git_dir: Path | None

    @classmethod
    def of(cls, workflow: Path, address: str | None) -> "Tenant":
        """The tenant of a workflow file with this `workspace.repo`."""
        address = None if address is None else split_login(address)[0]
        git_dir = None if (local := _local(address)) is None else common_dir(local)
        repository: str | None = None
        if local is not None:
            repository = str(git_dir or os.path.realpath(local))
        elif address is not None:
            repository = f"sha256:{_digest(without_credentials(address))}"
        return cls(
            workflow=os.path.realpath(workflow), repository=repository, address=address, git_dir=git_dir
        )

    def owns(self, entry: StoredRecord) -> bool:
        """Whether a workspace is ours; one that names nobody is, if it was made of our repository."""
        return entry.tenant == self.workflow or (entry.tenant is None and entry.repo == self.address)

    def key(self, layout: Layout, key: str, *, take: bool) -> str:
        """Under which key this tenant works on the issue with that key; with `take` its branch is claimed.

        It is the key of the issue, unless the directory or the branch of that name belongs to another tenant.

        Raises:
            WorkspaceError: as `read_record`.
        """
        own = _with_digest(key, self.workflow)
        if self._knows(layout, own):
            return own
        entry = read_record(layout, key)
        if entry is None:
            return key if self._may_have_branch(key, take=take) else own
        if self.owns(entry):
            self._may_have_branch(key, take=take)
            return key
        return own

    def _knows(self, layout: Layout, own: str) -> bool:
        """Whether the key with our digest was used before; it is used again, even if the other is free."""
        if os.path.lexists(layout.record(own)):
            return True
        if self.git_dir is not None:
            return os.path.lexists(self.git_dir / BRANCH_CLAIMS / record_name(own))
        mirror = None if self.address is None else layout.mirror(self.address)
        return mirror is not None and read_ref(mirror, f"refs/heads/{branch_name(own)}") is not None

    def _may_have_branch(self, key: str, *, take: bool) -> bool:
        """Whether a local repository's branch of a key is ours or nobody's; with `take` it is ours then."""
        if self.git_dir is None:
            return True
        path = self.git_dir / BRANCH_CLAIMS / record_name(key)
        claimed = os.path.lexists(path)
        owner = _read(path) if claimed else None
        if claimed and owner is None:
            hint = "delete the file to have the branch gone on with"
            _log.warning("branch_claim_unreadable", path=str(path), branch=branch_name(key), hint=hint)
            return False
        if owner is not None and owner.workflow != self.workflow and not _is_gone(owner.workflow):
            return False
        if take and (owner is None or owner.workflow != self.workflow):
            return self._claim(path, branch_name(key), owner)
        return True

    def _claim(self, path: Path, branch: str, former: _Told | None) -> bool:
        """Claim a branch, and say whether nobody else was first.

        A repository that cannot be written takes no claim; nothing can be delivered into it either.
        """
        content = _tenant_bytes(_Told(workflow=self.workflow))
        try:
            if former is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                return create(path, content)
            write_atomic(path, content)
        except OSError as error:
            _log.warning("branch_not_claimed", branch=branch, reason=str(error))
        else:
            _log.warning("branch_taken_over", branch=branch, former=former.workflow)
        return True


def refuse_second(layout: Layout, tenant: Tenant) -> None:
    """See that no other workflow file works on the same repository at this root; changes nothing.

    Raises:
        WorkspaceError: one does, or the file of one cannot be read; blame `config`.
    """
    for _ in _replaceable(layout, tenant):
        pass


def move_in(layout: Layout, tenant: Tenant) -> None:
    """Write down that a workflow file works at this root; hold the lock of `Layout.tenants_lock` meanwhile.

    What a workflow file left here that exists no more is ours now if it worked on the same repository.

    Raises:
        WorkspaceError: as `refuse_second`.
        OSError: the root cannot be written.
    """
    replaced = list(_replaceable(layout, tenant))
    make_directory(layout.tenant_files)
    write_atomic(
        _file(layout, tenant.workflow),
        _tenant_bytes(_Told(workflow=tenant.workflow, repository=tenant.repository)),
    )
    former = {told.workflow for _, told in replaced}
    for entry in read_records(layout) if former else ():
        if entry.tenant in former:
            write_record(layout, replace(entry, tenant=tenant.workflow))
    for path, told in replaced:
        _log.warning("tenant_replaced", root=str(layout.root), former=told.workflow, tenant=tenant.workflow)
        path.unlink(missing_ok=True)


def _replaceable(layout: Layout, tenant: Tenant) -> Iterator[tuple[Path, _Told]]:
    """The files of tenants of our repository whose workflow file is gone. Raises as `refuse_second`."""
    own = _file(layout, tenant.workflow)
    for path in sorted(layout.tenant_files.glob("*.json")):
        if path == own:
            continue
        told = _read(path)
        if told is None:
            raise _damaged(path, layout)
        if told.repository is None or told.repository != tenant.repository:
            continue
        if not _is_gone(told.workflow):
            raise WorkspaceError.of(
                Category.WORKSPACE_ROOT_TAKEN,
                f"{told.workflow} works on the same repository in the same workspace.root {layout.root}",
                hint=f"{OWN_ROOT_HINT}; or serve only one of the two",
                blame=Blame.CONFIG,
                retryable=False,
            )
        yield path, told


def _damaged(path: Path, layout: Layout) -> WorkspaceError:
    return WorkspaceError.of(
        Category.WORKSPACE_ROOT_TAKEN,
        f"{path} is damaged, and it says which workflow file works in {layout.root}",
        hint="delete it once no other daemon has this workspace.root: each writes its own at its next start",
        blame=Blame.CONFIG,
        retryable=False,
    )


def _local(address: str | None) -> Path | None:
    """The path of a repository on this machine."""
    if address is not None and address.startswith("file://"):
        address = unquote(urlsplit(address).path)
    return Path(address) if address is not None and address.startswith("/") else None


def _is_gone(workflow: str) -> bool:
    """Whether there is no such file: one that merely cannot be looked at may be somebody else's."""
    try:
        Path(workflow).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _read(path: Path) -> _Told | None:
    try:
        return msgspec.json.decode(read_regular(path, _MAX_TENANT_BYTES) or b"", type=_Told)
    except DECODE_ERRORS:
        return None


def _tenant_bytes(told: _Told) -> bytes:
    return msgspec.json.encode(told) + b"\n"


def _file(layout: Layout, workflow: str) -> Path:
    return layout.tenant_files / f"{_digest(workflow)}.json"


def _with_digest(key: str, workflow: str) -> str:
    digest = _digest(workflow)[:8]
    return f"{key}-{digest}" if len(key) + 9 <= _MAX_KEY_BYTES else f"{_digest(key)}-{digest}"


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:24]


# Finding the workspace of an issue. All of it blocks; callers run it in a thread.


_T = TypeVar("_T")


class Found(NamedTuple):
    """A workspace that is there, with its record up to date; without a record it has to be made."""

    layout: Layout
    path: Path
    entry: StoredRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """Finds workspaces below the root of one set of settings.

    `workflow` is the file whose they are, None where nobody else can be at the root.
    """

    settings: WorkspaceSettings
    workflow: Path | None = None

    def root(self) -> Layout:
        """The layout below the resolved root, every directory of it made. Raises `WorkspaceError`."""
        return self.on_disk(lambda: open_root(self.settings.root))

    def known_root(self) -> Layout:
        """The layout below the resolved root, which need not exist. Raises `WorkspaceError`."""
        return self.on_disk(lambda: Layout(resolve(self.settings.root)))

    def key(self, layout: Layout, identifier: str, *, take: bool = False) -> str:
        """Under which key an issue is worked on, see `Tenant.key`. Raises `WorkspaceError`."""
        key, tenant = key_of(identifier), self.tenant()
        return key if tenant is None else tenant.key(layout, key, take=take)

    def owner(self) -> str | None:
        """What the records of these workspaces name as their tenant."""
        return None if self.workflow is None else os.path.realpath(self.workflow)

    def tenant(self) -> Tenant | None:
        """Whose workspaces these are; None where nobody else can be at the root."""
        return None if self.workflow is None else Tenant.of(self.workflow, self.settings.repo)

    def find(self, issue: Issue) -> Found:
        """Where the workspace of an issue is, and its record where it exists as a whole.

        Raises:
            WorkspaceError: the root cannot be written, containment, or the place is taken.
        """
        key_of(issue.identifier)
        layout, repo = self.root(), self.settings.repo
        key = self.key(layout, issue.identifier, take=True)
        path, there = check_path(layout, key)
        known = read_record(layout, key)
        try:
            if there is not None:
                ours(path, there, known)
                if clear_way(layout, path, there, known, populated=repo is not None):
                    return Found(layout, path, adopt(layout, issue, key, known, repo, self.owner()))
            elif known is not None and known.ready:
                _log.warning("workspace_made_anew", path=str(path))
        except OSError as error:
            raise cannot_be_made(path, error) from error
        return Found(layout, path, None)

    def verify(self, workspace: Workspace) -> None:
        """See that an agent may be launched in the workspace (WS4).

        Raises:
            WorkspaceError: `invalid_workspace_cwd` with the sub-reason.
        """
        layout = self.known_root()
        try:
            real = is_launchable(workspace.path, layout.root)
        except WorkspaceError as error:
            raise invalid_cwd(workspace.path, error.failure.category.value) from error
        if not real:
            raise invalid_cwd(workspace.path, "it is no directory")

    def on_disk(self, step: Callable[[], _T]) -> _T:
        """A step that needs a writable root. Raises `WorkspaceError`, blame `config`."""
        try:
            return step()
        except OSError as error:
            usual = f"make the directory writable for this user, or {OWN_ROOT_HINT}"
            raise WorkspaceError.of(
                Category.WORKSPACE_PREPARE_FAILED,
                f"workspace.root {self.settings.root} cannot be written: {error.strerror or error}"
                f"{_whose(self.settings.root)}",
                hint=disk_full_hint(self.settings.root) if is_disk_full(error) else usual,
                blame=Blame.CONFIG,
            ) from error


def _whose(root: Path) -> str:
    """The end of a sentence about a root: whose it is, or the nearest directory above it, if not ours."""
    place = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    try:
        owner = place.stat().st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"uid {owner}"
    return f"; {place} belongs to {name}"
