"""`WorkspaceManager`: the life of a workspace, from making it to letting it go (WS1-WS16)."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import (
    PATTERNS_ONLY,
    Blame,
    Category,
    Failure,
    FaultHook,
    FaultPoint,
    Issue,
    Redaction,
    no_fault,
)
from symphony.processes.base import Host
from symphony.workspaces.delivery import DeliverySource, Publisher, local_repository, push_failure
from symphony.workspaces.directories import (
    OWN_ROOT_HINT,
    Finder,
    StoredRecord,
    Tenant,
    begin,
    check_path,
    clear_leftovers,
    complete,
    discard,
    examined,
    forget,
    is_whole,
    move_in,
    read_record,
    read_records,
    refuse_second,
    see_writable,
    take_back,
    try_writing,
)
from symphony.workspaces.export import (
    NOT_POPULATED,
    PinnedFiles,
    PinnedFilesStore,
    Previewer,
    WorkspacePreview,
)
from symphony.workspaces.files import fingerprint, is_directory, is_missing
from symphony.workspaces.git import (
    MAX_ENTRIES,
    MAX_POINTER_BYTES,
    NETWORK_TIMEOUT_MS,
    Git,
    GitError,
    RefSnapshot,
    Shadow,
    all_refs,
    common_dir,
    copy_lfs_objects,
    is_content_of,
    locked,
    open_shadow,
    read_ref_snapshot,
)
from symphony.workspaces.hooks import Hook, HookCall, HookRunner
from symphony.workspaces.layout import Layout
from symphony.workspaces.mirror import Checkout, Mirror, base_of, without_logins
from symphony.workspaces.model import (
    Delivery,
    ProgressMark,
    Removal,
    Workspace,
    WorkspaceError,
    WorkspaceRecord,
    cannot_be_made,
    split_login,
)

# Whether a workspace may be deleted: never while it holds work that is nowhere else.
#
# In doubt it is kept, and the reason is told.


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Judges workspaces of one root.

    `mirror` is null for workspaces that hooks populated: there only their own tracking refs tell what a
    remote has. Without `keep_dirty` uncommitted work may go; commits that are nowhere else never may.
    """

    git: Git
    layout: Layout
    mirror: Mirror | None
    keep_dirty: bool

    async def reason_to_keep(self, path: Path, sealed: Mapping[str, str] | None) -> str | None:
        """Why the workspace must stay, in one line; null when nothing would be lost."""
        seen = await to_thread.run_sync(read_ref_snapshot, path, None)
        if seen.problem is not None:
            return await to_thread.run_sync(self._unusable, path, seen.problem)
        try:
            async with open_shadow(
                self.git,
                self.layout.staging,
                path,
                seen.head,
                sealed=sealed,
                objects=None if self.mirror is None else self.mirror.objects,
            ) as shadow:
                return await self._dirty(shadow, path) or await self._undelivered(shadow, seen)
        except (GitError, OSError) as error:
            return f"its repository cannot be inspected: {error}"

    def _unusable(self, path: Path, problem: str) -> str | None:
        """A directory that surely never was a repository holds nothing that we know how to keep."""
        if self.mirror is None and is_missing(path / ".git"):
            return None
        return f"{problem}, so it cannot be told whether work would be lost"

    async def _dirty(self, shadow: Shadow, path: Path) -> str | None:
        if not self.keep_dirty:
            return None
        entries = [entry for entry in (await shadow.status()).split(b"\0") if entry]
        in_lfs = bool(entries) and await to_thread.run_sync(is_directory, path / ".git/lfs")
        if in_lfs:
            entries = await self._without_pointers(shadow, path, entries)
        if entries:
            return f"{len(entries)} uncommitted or untracked file(s)"
        if await shadow.submodules():
            return "it has checked-out submodules, whose state cannot be inspected safely"
        return None

    async def _without_pointers(self, shadow: Shadow, path: Path, entries: list[bytes]) -> list[bytes]:
        """The changes without files that are what a pointer of Git LFS says: no filter runs in a shadow."""
        changed = {entry: entry.split(b" ", 8) for entry in entries if entry.startswith(b"1 .M ")}
        pointers = await shadow.small_blobs((fields[7] for fields in changed.values()), MAX_POINTER_BYTES)

        def unchanged(entry: bytes) -> bool:
            fields = changed.get(entry)
            if fields is None or fields[7] not in pointers:
                return False
            return is_content_of(pointers[fields[7]], path / fields[8].decode("utf-8", "surrogateescape"))

        return await to_thread.run_sync(lambda: [entry for entry in entries if not unchanged(entry)])

    async def _undelivered(self, shadow: Shadow, seen: RefSnapshot) -> str | None:
        tips = {**seen.tips, **({"HEAD": seen.head} if seen.head else {})}
        known = await to_thread.run_sync(self._known, seen)
        for name, commit in tips.items():
            if not await self._safe(shadow, commit, known):
                return f"commits on {name.removeprefix('refs/heads/')} that were not delivered"
        return None

    def _known(self, seen: RefSnapshot) -> frozenset[str]:
        """Commits that cannot be lost with the workspace."""
        if self.mirror is None:
            return frozenset(seen.remote_tips.values())
        return frozenset(all_refs(self.mirror.path, "refs/").values())

    async def _safe(self, shadow: Shadow, commit: str, known: frozenset[str]) -> bool:
        return commit in known or await shadow.within(commit, known)


# Why a workspace would have to stay, asked without removing or delivering anything.


async def reason_to_keep(
    path: Path,
    *,
    host: Host,
    settings: WorkspaceSettings,
    environment: Mapping[str, str],
    secret_names: frozenset[str],
) -> str | None:
    """The line that `WorkspaceManager.remove` would give for keeping it; null when nothing would be lost.

    A removal delivers committed work first, so what is kept here for that may go then.

    Raises:
        WorkspaceError: the path fails containment.
    """
    layout, path, entry, existed, foreign = await to_thread.run_sync(examined, path)
    if foreign:
        return foreign
    if not existed or (entry is not None and not entry.ready):
        return None
    git = Git(host, environment, secret_names)
    repo = None if entry is None else entry.repo
    guard = Guard(
        git=git,
        layout=layout,
        mirror=None if repo is None else Mirror(git, layout, repo),
        keep_dirty=settings.keep_dirty,
    )
    return await guard.reason_to_keep(path, None if entry is None else entry.sealed)


SUBMODULES_HINT = (
    "workspaces get their submodules by a hook: "
    "hooks.after_create: git submodule update --init --recursive (docs/workflow-file.md)"
)

_log = structlog.get_logger(__name__)
_LOCK_WAIT_S = 10.0


class WorkspaceManager:
    """Makes, marks, delivers and removes workspaces on one host with one set of settings.

    `environment` is what hooks see (without `secret_names`) and what git's share is taken from. `workflow` is
    the file whose workspaces they are (`tenants`); without it nobody else may use the root. `redaction` masks
    what hooks and git say.
    After a reload make a new manager; workspaces made by the old one are served by their recorded path.
    """

    def __init__(
        self,
        host: Host,
        settings: WorkspaceSettings,
        hooks: HooksSettings,
        environment: Mapping[str, str],
        secret_names: frozenset[str],
        fault: FaultHook = no_fault,
        *,
        network_timeout_ms: int = NETWORK_TIMEOUT_MS,
        workflow: Path | None = None,
        redaction: Redaction = PATTERNS_ONLY,
    ) -> None:
        self._settings = settings
        address, login = split_login(settings.repo or "")
        self._repo = address or None
        self._fault = fault
        self._git = Git(
            host,
            environment,
            secret_names,
            network_timeout_ms=network_timeout_ms,
            redaction=redaction,
            login=login,
        )
        self._hooks = HookRunner(host, hooks, environment, secret_names, redaction)
        self._finder = Finder(settings=settings, workflow=workflow)
        self._mirrors: dict[Path, Mirror] = {}
        self._tenancy: object = None  # kept for as long as this manager may use the root

    async def check_root(self) -> None:
        """Make the root and see that it can be written; clear what a crash left half-made or half-deleted.

        Raises:
            WorkspaceError: `workspace_prepare_failed` or `workspace_root_taken`, blame `config`, with a hint.
        """
        layout = await to_thread.run_sync(self._finder.root)
        await to_thread.run_sync(self._finder.on_disk, lambda: try_writing(layout))
        tenant = await to_thread.run_sync(self._finder.tenant)
        if tenant is not None:
            await self._move_in(layout, tenant)
        await to_thread.run_sync(self._finder.on_disk, lambda: without_logins(layout))
        repository = local_repository(self._repo or "")
        self._tenancy = await to_thread.run_sync(clear_leftovers, layout, repository)

    async def inspect_root(self) -> None:
        """As `check_root`, as far as that can be told without making or changing anything.

        Raises:
            WorkspaceError: as `check_root`.
        """
        layout = await to_thread.run_sync(self._finder.known_root)
        await to_thread.run_sync(self._finder.on_disk, lambda: see_writable(layout))
        tenant = await to_thread.run_sync(self._finder.tenant)
        if tenant is not None:
            await to_thread.run_sync(refuse_second, layout, tenant)

    async def _move_in(self, layout: Layout, tenant: Tenant) -> None:
        try:
            async with locked(layout.tenants_lock, _LOCK_WAIT_S):
                await to_thread.run_sync(self._finder.on_disk, lambda: move_in(layout, tenant))
        except (GitError, OSError) as error:
            raise WorkspaceError.of(
                Category.WORKSPACE_ROOT_TAKEN,
                f"it cannot be told who else works in workspace.root {layout.root}: {error}",
                hint=f"see which other daemons are there, or {OWN_ROOT_HINT}",
                blame=Blame.CONFIG,
            ) from error

    async def check_repository(self) -> None:
        """See that `workspace.repo` can be reached and has the base branch; changes nothing.

        Raises:
            WorkspaceError: `workspace_repository`, with a hint.
        """
        if self._repo is None:
            return
        mirror = Mirror(self._git, Layout(root=self._settings.root), self._repo)
        base_of(await mirror.look(), self._settings.base_branch, self._repo)

    async def check_push(self) -> Failure | None:
        """See whether `origin` would take a branch, by a dry run with the credentials there are.

        `None` means that it would, or that nothing is to be pushed. Nothing is changed, also on this machine.
        """
        if self._repo is None or self._settings.push != "origin":
            return None
        return await self._courier(Layout(root=self._settings.root), self._repo).probe()

    async def prepare(self, issue: Issue, attempt: int | None, *, run_id: str | None = None) -> Workspace:
        """The issue's workspace: the existing one as it is, or a new one, populated and after `after_create`.

        Raises:
            WorkspaceError: unsafe key, containment, repository or hook. A new directory is gone then (RT8).
        """
        found = await to_thread.run_sync(self._finder.find, issue)
        entry = found.entry
        if entry is None:
            try:
                entry = await self._create(found.layout, found.path, issue, attempt, run_id)
            except OSError as error:
                raise cannot_be_made(found.path, error) from error
        return Workspace(
            key=found.path.name,
            path=found.path,
            branch=entry.branch,
            base_commit=entry.base_commit,
            created_now=found.entry is None,
        )

    async def exists(self, workspace: Workspace) -> bool:
        """Whether nobody took the workspace away; what stands in its place is for others to judge."""
        return await to_thread.run_sync(os.path.lexists, workspace.path)

    async def verify(self, workspace: Workspace) -> None:
        """Check right before an agent is launched that the workspace is where it has to be (WS4, WS6).

        Raises:
            WorkspaceError: `invalid_workspace_cwd` with the sub-reason.
        """
        await to_thread.run_sync(self._finder.verify, workspace)

    async def before_run(
        self, workspace: Workspace, issue: Issue, attempt: int | None, *, run_id: str | None = None
    ) -> None:
        """Run the hook `before_run`; its failure is fatal to the attempt (WS9). Raises `WorkspaceError`."""
        await self._hooks.run(Hook.BEFORE_RUN, HookCall.of(issue, workspace.path, attempt, run_id))

    async def after_run(
        self, workspace: Workspace, issue: Issue, attempt: int | None, *, run_id: str | None = None
    ) -> None:
        """Run the hook `after_run`; failures are only logged. Shield the call when cancelled (WS10)."""
        await self._hooks.run_ignoring_failure(
            Hook.AFTER_RUN, HookCall.of(issue, workspace.path, attempt, run_id)
        )

    async def progress(self, workspace: Workspace) -> ProgressMark:
        """Where the work stands. Never raises: what git cannot tell is told by a walk over the files."""
        layout = Layout(workspace.path.parent)
        entry = await to_thread.run_sync(read_record, layout, workspace.path.name)
        seen = await to_thread.run_sync(read_ref_snapshot, workspace.path, None)
        if entry is not None and entry.repo is not None and seen.problem is None:
            objects = self._mirror(layout, entry.repo).objects
            try:
                async with open_shadow(
                    self._git, layout.staging, workspace.path, seen.head, sealed=entry.sealed, objects=objects
                ) as shadow:
                    return ProgressMark(head=seen.head, tree=await shadow.tree_mark())
            except (GitError, OSError) as error:
                _log.warning("workspace_status_unknown", key=workspace.key, error=str(error))
        walk = partial(fingerprint, workspace.path, max_entries=MAX_ENTRIES)
        return ProgressMark(head=seen.head, tree=await to_thread.run_sync(walk))

    async def deliver(self, workspace: Workspace) -> Delivery:
        """Bring the committed work into the mirror, a local repository, and origin if `push` says so.

        Never raises for what went wrong with the work, only tells it in `warnings`.
        """
        layout = Layout(workspace.path.parent)
        entry = await to_thread.run_sync(read_record, layout, workspace.path.name)
        return await self._deliver(layout, entry, workspace.path)

    async def push(self, branch: str) -> Failure | None:
        """Push a branch that was delivered before to `origin`; its workspace need not exist any more.

        `None` means that the remote has what the mirror has. Never raises for what git or the remote did.
        """
        if self._repo is None or self._settings.push != "origin":
            return push_failure("workspace.push is not `origin`", retryable=False)
        try:
            layout = await to_thread.run_sync(self._finder.known_root)
        except WorkspaceError as error:
            return error.failure
        return await self._courier(layout, self._repo).push(branch)

    async def records(self) -> tuple[WorkspaceRecord, ...]:
        """Every workspace of ours remembered under the root; unreadable records are skipped."""

        def ours() -> tuple[WorkspaceRecord, ...]:
            layout, tenant = self._finder.known_root(), self._finder.tenant()
            entries = (one for one in read_records(layout) if tenant is None or tenant.owns(one))
            return tuple(entry.record(layout) for entry in entries)

        return await to_thread.run_sync(ours)

    async def locate(self, issue_id: str, identifier: str) -> WorkspaceRecord:
        """Where the issue's workspace is under the current root, whether it exists or not (WS13)."""
        layout = await to_thread.run_sync(self._finder.root)
        key = await to_thread.run_sync(self._finder.key, layout, identifier)
        return WorkspaceRecord(issue_id=issue_id, identifier=identifier, key=key, path=layout.workspace(key))

    @asynccontextmanager
    async def preview(
        self, identifier: str, paths: Sequence[str], *, base: bool = False
    ) -> AsyncIterator[WorkspacePreview]:
        """What an attempt would find in the issue's workspace, without making, fetching or changing anything.

        Of a workspace that is not there yet, `paths` (relative to it) are laid out in a private directory
        that is gone when the context ends. With `base` they are laid out as `pin` would have them.

        Raises:
            WorkspaceError: what would fail an attempt as well: an unsafe key, containment, the repository.
        """
        repo = self._repo
        layout = await to_thread.run_sync(self._finder.known_root)
        key = await to_thread.run_sync(self._finder.key, layout, identifier)
        path, there = await to_thread.run_sync(check_path, layout, key)
        entry = await to_thread.run_sync(read_record, layout, key)
        whole = partial(is_whole, path, there, entry, populated=repo is not None)
        if not base and await to_thread.run_sync(self._finder.on_disk, whole):
            yield WorkspacePreview(path=path, exists=True, tree=path)
        elif repo is None:
            yield WorkspacePreview(path=path, exists=False, tree=None, note=NOT_POPULATED)
        else:
            forecast = Previewer(self._git, self._mirror(layout, repo), repo, self._settings.base_branch)
            pinned = partial(layout.pinned, paths=paths) if base else None
            async with forecast.lay_out(path, paths, pinned=pinned) as foresight:
                yield foresight

    async def pin(self, paths: Sequence[str]) -> PinnedFiles:
        """Files of the base branch in a place of their own (see `pinned`).

        Raises:
            WorkspaceError: `workspace_repository`.
        """
        layout, repo = await to_thread.run_sync(self._finder.root), self._repo
        if repo is None:
            raise WorkspaceError.of(Category.WORKSPACE_REPOSITORY, "there is no workspace.repo")
        return await PinnedFilesStore(
            self._git, layout, self._mirror(layout, repo), repo, self._settings.base_branch
        ).pin(paths)

    def head_commit(self, workspace: Workspace) -> str | None:
        """The commit that a workspace stands on, read off its files, or null; blocking."""
        return read_ref_snapshot(workspace.path, None).head

    async def remove(self, record: WorkspaceRecord) -> Removal:
        """Remove a workspace, be it under a former root, unless work would be lost (WS11, WS13).

        It is checked against its own recorded parent. Committed work is delivered first.

        Raises:
            WorkspaceError: the path fails containment.
        """
        layout, path, entry, existed, foreign = await to_thread.run_sync(
            examined, record.path, self._finder.owner()
        )
        if foreign:
            return Removal(removed=False, kept_reason=foreign)
        if existed:
            call = HookCall(issue_id=record.issue_id, identifier=record.identifier, path=path)
            await self._hooks.run_ignoring_failure(Hook.BEFORE_REMOVE, call)
            reason = await self._let_go(layout, entry, path)
            if reason is not None:
                return Removal(removed=False, kept_reason=reason)
        await to_thread.run_sync(forget, layout, path.name)
        return Removal(removed=existed)

    async def _let_go(self, layout: Layout, entry: StoredRecord | None, path: Path) -> str | None:
        """Delete the directory, which the hook may have done already; or the reason why it stays."""
        if not await to_thread.run_sync(is_directory, path):
            return None
        reason = await self._reason_to_keep(layout, entry, path)
        if reason is None:
            try:
                await to_thread.run_sync(discard, layout, path, self._fault)
            except OSError as error:
                return f"it cannot be deleted: {error}"
        return reason

    def _mirror(self, layout: Layout, repository: str) -> Mirror:
        path = layout.mirror(repository)
        if path not in self._mirrors:
            self._mirrors[path] = Mirror(self._git, layout, repository)
        return self._mirrors[path]

    async def _create(
        self, layout: Layout, path: Path, issue: Issue, attempt: int | None, run_id: str | None
    ) -> StoredRecord:
        """Make, populate and prepare a new workspace, or leave nothing of it."""
        begun = StoredRecord(
            issue_id=issue.id,
            identifier=issue.identifier,
            key=path.name,
            ready=False,
        )
        made = False
        begun = await to_thread.run_sync(begin, layout, begun, self._finder.owner)
        try:
            self._fault(FaultPoint.WORKSPACE_RECORDED)
            populated = await self._populate(layout, path, begun)
            made = True
            self._fault(FaultPoint.WORKSPACE_POPULATED)
            if not self._hooks.has(Hook.AFTER_CREATE) and await anyio.Path(path, ".gitmodules").exists():
                _log.warning("submodules_not_populated", key=path.name, hint=SUBMODULES_HINT)
            await self._hooks.run(Hook.AFTER_CREATE, HookCall.of(issue, path, attempt, run_id))
            entry = await to_thread.run_sync(complete, layout, path, populated)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(lambda: take_back(layout, path, made=made))
            raise
        return entry

    async def _populate(self, layout: Layout, path: Path, entry: StoredRecord) -> StoredRecord:
        repo = self._repo
        if repo is None:
            await to_thread.run_sync(path.mkdir)
            return entry
        checkout = Checkout(self._git, layout, self._mirror(layout, repo), repo)
        origin = await checkout.create(entry.key, path, self._settings.base_branch)
        return replace(entry, repo=repo, branch=origin.branch, base_commit=origin.base_commit)

    async def _deliver(self, layout: Layout, entry: StoredRecord | None, path: Path) -> Delivery:
        if entry is None or entry.repo is None or entry.branch is None:
            seen = await to_thread.run_sync(read_ref_snapshot, path, None)
            return Delivery(branch=None, head=seen.head)
        courier = self._courier(layout, entry.repo)
        parcel = DeliverySource(
            path=path, branch=entry.branch, base_commit=entry.base_commit, sealed=entry.sealed
        )
        left = await to_thread.run_sync(self._carry, layout, entry.repo, path)
        delivery = await courier.deliver(parcel)
        return delivery if left is None else replace(delivery, warnings=(*delivery.warnings, left))

    def _carry(self, layout: Layout, repo: str, path: Path) -> str | None:
        """Copy what Git LFS keeps beside the commits; what is left in the workspace only. Blocking."""
        local = local_repository(repo)
        return copy_lfs_objects(path / ".git", (local and common_dir(local)) or layout.mirror(repo))

    def _courier(self, layout: Layout, repo: str) -> Publisher:
        push = self._settings.push == "origin"
        return Publisher(self._git, layout, self._mirror(layout, repo), repo, push=push)

    async def _reason_to_keep(self, layout: Layout, entry: StoredRecord | None, path: Path) -> str | None:
        if entry is not None and not entry.ready:
            return None  # no agent was ever let into it
        await self._deliver(layout, entry, path)
        repo = None if entry is None else entry.repo
        if repo is not None and (left := await to_thread.run_sync(self._carry, layout, repo, path)):
            return left
        guard = Guard(
            git=self._git,
            layout=layout,
            mirror=None if repo is None else self._mirror(layout, repo),
            keep_dirty=self._settings.keep_dirty,
        )
        return await guard.reason_to_keep(path, None if entry is None else entry.sealed)
