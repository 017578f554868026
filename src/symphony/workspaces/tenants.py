"""Which workflow files share a workspace root, and which of them a workspace or a branch belongs to.

    <root>/.symphony/tenants.d/<digest>.json        one for each workflow file that works at this root
    <git directory>/symphony/branches/<key>.json    in a local repository: whose symphony/<key> is

A tenant is a workflow file, known by its real path. Several may share a root as long as they work on
different repositories: a second one for the same repository would share its mirror and branches, and is
refused. The record of a workspace names its tenant (`records`), and no other one enters, delivers, cleans or
removes it.

Linked worktrees share the branches of their repository although each has a root of its own. So the branch of
an issue is claimed in the repository, before the workspace is made. Where a directory or a branch is taken,
the issue gets a key of its own: `SYM-1-1f2e3d4c`, with a digest of the tenant. Claims are kept when a branch
is deleted, because an identifier is never given to a second issue.

All of it blocks; callers run it in a thread.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import structlog

from symphony.domain.decoding import UNREADABLE
from symphony.domain.failures import Blame, Category
from symphony.domain.ids import branch_name
from symphony.workspaces.files import create, make_directory, read_regular, write_atomic
from symphony.workspaces.git import without_credentials
from symphony.workspaces.layout import Layout, record_name
from symphony.workspaces.model import WorkspaceError
from symphony.workspaces.records import Entry, read_entries, read_entry, write_entry
from symphony.workspaces.refs import common_dir, read_ref
from symphony.workspaces.remote import apart

__all__ = ["CLAIMS", "OWN_ROOT_HINT", "Tenant", "move_in", "refuse_second"]

CLAIMS: Final = "symphony/branches"
"""Where the claims of branches are, below the common git directory of a local repository."""

OWN_ROOT_HINT: Final = "set workspace.root to a place of its own, as with `$SYMPHONY_STATE_DIR/workspaces`"
_MAX_BYTES: Final = 64 * 1024
_MAX_KEY_BYTES: Final = 255
_log = structlog.get_logger(__name__)


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
        address = None if address is None else apart(address)[0]
        git_dir = None if (local := _local(address)) is None else common_dir(local)
        repository: str | None = None
        if local is not None:
            repository = str(git_dir or os.path.realpath(local))
        elif address is not None:
            repository = f"sha256:{_digest(without_credentials(address))}"
        return cls(
            workflow=os.path.realpath(workflow), repository=repository, address=address, git_dir=git_dir
        )

    def owns(self, entry: Entry) -> bool:
        """Whether a workspace is ours; one that names nobody is, if it was made of our repository."""
        return entry.tenant == self.workflow or (entry.tenant is None and entry.repo == self.address)

    def key(self, layout: Layout, key: str, *, take: bool) -> str:
        """Under which key this tenant works on the issue with that key; with `take` its branch is claimed.

        It is the key of the issue, unless the directory or the branch of that name belongs to another tenant.

        Raises:
            WorkspaceError: as `read_entry`.
        """
        own = _with_digest(key, self.workflow)
        if self._knows(layout, own):
            return own
        entry = read_entry(layout, key)
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
            return os.path.lexists(self.git_dir / CLAIMS / record_name(own))
        mirror = None if self.address is None else layout.mirror(self.address)
        return mirror is not None and read_ref(mirror, f"refs/heads/{branch_name(own)}") is not None

    def _may_have_branch(self, key: str, *, take: bool) -> bool:
        """Whether a local repository's branch of a key is ours or nobody's; with `take` it is ours then."""
        if self.git_dir is None:
            return True
        path = self.git_dir / CLAIMS / record_name(key)
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
        content = _content(_Told(workflow=self.workflow))
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
        _content(_Told(workflow=tenant.workflow, repository=tenant.repository)),
    )
    former = {told.workflow for _, told in replaced}
    for entry in read_entries(layout) if former else ():
        if entry.tenant in former:
            write_entry(layout, replace(entry, tenant=tenant.workflow))
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
        return msgspec.json.decode(read_regular(path, _MAX_BYTES) or b"", type=_Told)
    except UNREADABLE:
        return None


def _content(told: _Told) -> bytes:
    return msgspec.json.encode(told) + b"\n"


def _file(layout: Layout, workflow: str) -> Path:
    return layout.tenant_files / f"{_digest(workflow)}.json"


def _with_digest(key: str, workflow: str) -> str:
    digest = _digest(workflow)[:8]
    return f"{key}-{digest}" if len(key) + 9 <= _MAX_KEY_BYTES else f"{_digest(key)}-{digest}"


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:24]
