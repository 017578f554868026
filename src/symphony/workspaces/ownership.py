"""Who owns a workspace: the issue named in its record, and the workflow file (tenant) that created it.

    <root>/.symphony/records/<key>.json             one per workspace
    <root>/.symphony/tenants.d/<digest>.json        one per workflow file that uses this root
    <git directory>/symphony/branches/<key>.json    in a local repository: the owner of branch symphony/<key>

A tenant is a workflow file, identified by its real path. Several tenants may share a root if they use
different repositories. A second tenant with the same repository would share its mirror and branches, so it is
refused. No tenant enters, delivers, cleans or removes the workspace of another.

Linked worktrees share the branches of their repository, although each has a root of its own. Therefore a
branch is claimed in the repository before its workspace is made. If the directory or the branch of an issue
belongs to another tenant, the issue gets a key with a digest of its own tenant, as in `SYM-1-1f2e3d4c`.
Claims outlive their branches, because an identifier is never given to a second issue.

Everything here blocks, so callers use a thread.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import structlog
from msgspec import Struct

from symphony.domain import DECODE_ERRORS, Blame, Category, branch_name
from symphony.files import read_present, read_regular, signature, write_atomic
from symphony.workspaces.files import is_directory, make_directory
from symphony.workspaces.git import common_dir, read_ref, without_credentials
from symphony.workspaces.layout import MAX_NAME_BYTES, Layout, check_key, record_name
from symphony.workspaces.model import WorkspaceError, local_repository, split_login

BRANCH_CLAIMS: Final = "symphony/branches"
"""Directory of the branch claims, below the common git directory of a local repository."""

OWN_ROOT_HINT: Final = "set workspace.root to a separate directory, such as `$SYMPHONY_STATE_DIR/workspaces`"

_MAX_RECORD_BYTES: Final = 16 * 1024 * 1024  # with the tags of a large repository
_MAX_TENANT_BYTES: Final = 64 * 1024
_log = structlog.get_logger(__name__)


# --- Records of workspaces ---


class StoredRecord(Struct, frozen=True, kw_only=True):
    """The record of one workspace.

    It is written before its directory is created, so a crash never leaves an incomplete workspace that looks
    complete.

    Attributes:
        ready: whether the workspace was populated and `after_create` succeeded.
        repo: the repository it was populated from; `None` if hooks populate it.
        branch: the issue's branch, if there is a `repo`.
        base_commit: the commit at which the branch began, if known and if there is a `repo`.
        owner: uid of the directory's owner after `after_create`; `None` if unknown.
        tenant: path of the workflow file that owns it; `None` if unknown.
        git_hashes: hashes of the watched files of its `.git` at its creation; `None` if unknown.
        tags: its tags at its creation, if hooks populate it; they do not count as work.
        work: the work in it that is on no branch, as last seen, or another reason to keep it; `None` from the
            start of a run to its end.
        look: the command that shows it.
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
    git_hashes: Mapping[str, str] | None = msgspec.field(default=None, name="sealed")
    tags: Mapping[str, str] | None = None
    work: str | None = None
    look: str | None = None


def read_record(layout: Layout, key: str) -> StoredRecord | None:
    """The record of a key; `None` if there is no readable one. An unreadable record is logged.

    Raises:
        WorkspaceError: the file system ignores case, and the record is about a key in another case.
    """
    path = layout.record(key)
    record = _decode_record(path)
    if record is None or record.key == key:
        return record
    if record.key.lower() == key.lower():
        raise WorkspaceError.of(
            Category.WORKSPACE_UNSAFE_KEY,
            f"workspace {key} would be the one of {record.key}: the file system makes no difference by case",
            hint="rename one of the two issues, or set workspace.root to another file system",
            retryable=False,
        )
    _log_skipped(path, f"it is about {record.key}")
    return None


def read_records(layout: Layout) -> Iterator[StoredRecord]:
    """Every readable record, in order of file names; others are skipped with a warning."""
    for path in sorted(layout.records.glob("*.json")) if is_directory(layout.records) else ():
        if (record := _record_at(layout, path)) is not None:
            yield record


class RecordReader:
    """Reads all records repeatedly, but each file only after it was replaced. Threads may share it.

    A file that is replaced twice within a clock tick may look unchanged. That happens only within a run,
    which leaves the owners as they are.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, StoredRecord]] = {}

    def read(self, layout: Layout) -> list[StoredRecord]:
        """Every readable record, in no order; others are skipped with a warning."""
        current: dict[str, tuple[object, StoredRecord]] = {}
        with suppress(FileNotFoundError), os.scandir(layout.records) as entries:
            for entry in entries:
                if not entry.name.endswith(".json"):
                    continue
                with suppress(FileNotFoundError):
                    seen = signature(entry.stat(follow_symlinks=False))
                    known = self._known.get(entry.path)
                    if known is not None and known[0] == seen:
                        current[entry.path] = known
                    elif (record := _record_at(layout, Path(entry.path))) is not None:
                        current[entry.path] = seen, record
        self._known = current
        return [record for _, record in current.values()]


def write_record(layout: Layout, record: StoredRecord, *, new: bool = False) -> None:
    """Write a record durably. With `new`, a readable record that exists is kept.

    Raises:
        OSError: it cannot be written, or, with `new`, another daemon was first.
    """
    path, data = layout.record(record.key), msgspec.json.format(msgspec.json.encode(record), indent=1)
    make_directory(path.parent)
    try:
        write_atomic(path, data, mode=0o600, durable=True, new=new)
    except FileExistsError:
        if _decode_record(path) is not None:
            raise
        write_atomic(path, data, mode=0o600, durable=True)  # the existing one is damaged


def _record_at(layout: Layout, path: Path) -> StoredRecord | None:
    """The record in a file; `None` if it is unreadable, or if its key does not match the file name."""
    record = _decode_record(path)
    if record is not None and layout.record(record.key) != path:
        _log_skipped(path, f"it is about {record.key}")
        return None
    return record


def _decode_record(path: Path) -> StoredRecord | None:
    try:
        record = msgspec.json.decode(read_present(path, _MAX_RECORD_BYTES) or b"", type=StoredRecord)
        check_key(record.key)
    except FileNotFoundError:
        return None
    except (OSError, *DECODE_ERRORS, WorkspaceError) as error:
        _log_skipped(path, str(error).splitlines()[0])
        return None
    return record


def _log_skipped(path: Path, reason: str) -> None:
    _log.warning("workspace_record_skipped", path=str(path), error=reason)


# --- Tenants of a root ---


class _TenantFile(Struct, frozen=True, kw_only=True):
    """Content of a tenant's file (with its `repository`, if any) or of a branch claim."""

    workflow: str
    repository: str | None = None


class Tenant(Struct, frozen=True, kw_only=True):
    """A workflow file that uses a root.

    Attributes:
        workflow: its real path.
        repository: identity of its repository: the common git directory of a local one, a digest of the
            address of another; `None` if hooks populate workspaces.
        address: `workspace.repo` without a login.
        git_dir: the common git directory of a local repository.
    """

    workflow: str
    repository: str | None
    address: str | None
    git_dir: Path | None

    @classmethod
    def of(cls, workflow: str, address: str | None) -> "Tenant":
        """The tenant of a workflow file, given by its real path, with this `workspace.repo`."""
        git_dir = repository = None
        if address is not None:
            address = split_login(address)[0]
            is_url = address.startswith("file://")
            local = local_repository(unquote(urlsplit(address).path) if is_url else address)
            if local is not None:
                git_dir = common_dir(local)
                repository = str(git_dir or os.path.realpath(local))
            else:
                repository = f"sha256:{_digest(without_credentials(address))}"
        return cls(workflow=workflow, repository=repository, address=address, git_dir=git_dir)

    def owns(self, record: StoredRecord) -> bool:
        """Whether a workspace belongs to this tenant, or to none and comes from the tenant's repository."""
        return record.tenant == self.workflow or (record.tenant is None and record.repo == self.address)

    def key(self, layout: Layout, key: str, *, claim: bool) -> str:
        """The key under which this tenant works on the issue with that key; with `claim`, claims its branch.

        It is the same key, unless the directory or the branch of that name belongs to another tenant.

        Raises:
            WorkspaceError: as `read_record`.
        """
        own_key = with_digest(key, self.workflow)
        if self._is_used(layout, own_key):
            return own_key
        record = read_record(layout, key)
        if record is None:
            return key if self._may_use_branch(key, claim=claim) else own_key
        if self.owns(record):
            self._may_use_branch(key, claim=claim)
            return key
        return own_key

    def _is_used(self, layout: Layout, own_key: str) -> bool:
        """Whether the key with the digest was used before. It stays in use, even if the plain key is free."""
        if os.path.lexists(layout.record(own_key)):
            return True
        if self.git_dir is not None:
            return os.path.lexists(self.git_dir / BRANCH_CLAIMS / record_name(own_key))
        mirror = None if self.address is None else layout.mirror(self.address)
        return mirror is not None and read_ref(mirror, f"refs/heads/{branch_name(own_key)}") is not None

    def _may_use_branch(self, key: str, *, claim: bool) -> bool:
        """Whether the branch of a key in the local repository belongs to this tenant or to none."""
        if self.git_dir is None:
            return True
        path = self.git_dir / BRANCH_CLAIMS / record_name(key)
        owner = _read_tenant_file(path)
        if owner is None and os.path.lexists(path):
            hint = "delete the file to have the branch gone on with"
            _log.warning("branch_claim_unreadable", path=str(path), branch=branch_name(key), hint=hint)
            return False
        if owner is not None and owner.workflow == self.workflow:
            return True
        if owner is not None and not _is_gone(owner.workflow):
            return False
        return self._claim(path, branch_name(key), owner) if claim else True

    def _claim(self, path: Path, branch: str, former: _TenantFile | None) -> bool:
        """Claim a branch; false if another tenant was first.

        A repository that cannot be written accepts no claim, but nothing can be delivered into it either.
        """
        content = _encode_tenant(_TenantFile(workflow=self.workflow))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content, mode=0o600, durable=True, new=former is None)
        except OSError as error:
            if isinstance(error, FileExistsError) and os.path.lexists(path):
                return False
            _log.warning("branch_not_claimed", branch=branch, reason=str(error))
        else:
            if former is not None:
                _log.warning("branch_taken_over", branch=branch, former=former.workflow)
        return True


def refuse_second_tenant(layout: Layout, tenant: Tenant) -> dict[Path, str]:
    """Check that no other workflow file uses the same repository at this root; changes nothing.

    Returns:
        the tenant files of the same repository whose workflow file no longer exists, with its path.

    Raises:
        WorkspaceError: another workflow file does, or a tenant file is unreadable; blame `config`.
    """
    gone = {}
    for path in sorted(layout.tenant_files.glob("*.json")):
        if path == _tenant_path(layout, tenant.workflow):
            continue
        other = _read_tenant_file(path)
        if other is None:
            raise WorkspaceError.of(
                Category.WORKSPACE_ROOT_TAKEN,
                f"{path} is damaged; it names the workflow file that works in {layout.root}",
                hint="delete it once no other daemon has this workspace.root: each writes its own at its next"
                " start",
                blame=Blame.CONFIG,
                retryable=False,
            )
        if other.repository is None or other.repository != tenant.repository:
            continue
        if not _is_gone(other.workflow):
            raise WorkspaceError.of(
                Category.WORKSPACE_ROOT_TAKEN,
                f"{other.workflow} works on the same repository in the same workspace.root {layout.root}",
                hint=f"{OWN_ROOT_HINT}; or serve only one of the two",
                blame=Blame.CONFIG,
                retryable=False,
            )
        gone[path] = other.workflow
    return gone


def register_tenant(layout: Layout, tenant: Tenant) -> None:
    """Record that a workflow file uses this root; the caller holds the lock `Layout.tenants_lock`.

    The tenant takes over the workspaces of a workflow file with the same repository that no longer exists.

    Raises:
        WorkspaceError: as `refuse_second_tenant`.
        OSError: the root cannot be written.
    """
    replaced = refuse_second_tenant(layout, tenant)
    make_directory(layout.tenant_files)
    content = _TenantFile(workflow=tenant.workflow, repository=tenant.repository)
    write_atomic(_tenant_path(layout, tenant.workflow), _encode_tenant(content), mode=0o600, durable=True)
    for record in read_records(layout) if replaced else ():
        if record.tenant in replaced.values():
            write_record(layout, msgspec.structs.replace(record, tenant=tenant.workflow))
    for path, former in replaced.items():
        _log.warning("tenant_replaced", root=str(layout.root), former=former, tenant=tenant.workflow)
        path.unlink(missing_ok=True)


def _is_gone(workflow: str) -> bool:
    """Whether the workflow file certainly does not exist."""
    try:
        Path(workflow).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _read_tenant_file(path: Path) -> _TenantFile | None:
    try:
        return msgspec.json.decode(read_regular(path, _MAX_TENANT_BYTES) or b"", type=_TenantFile)
    except DECODE_ERRORS:
        return None


def _encode_tenant(content: _TenantFile) -> bytes:
    return msgspec.json.encode(content) + b"\n"


def _tenant_path(layout: Layout, workflow: str) -> Path:
    return layout.tenant_files / f"{_digest(workflow)}.json"


def with_digest(key: str, owner: str) -> str:
    """A key with a digest of its owner: a workflow file, or an issue whose key is taken."""
    digest = _digest(owner)[:8]
    return f"{key}-{digest}" if len(key) + 9 <= MAX_NAME_BYTES else f"{_digest(key)}-{digest}"


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:24]
