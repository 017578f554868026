"""`WorkspaceManager`: creates, checks, delivers and removes workspaces."""

import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
import structlog

from symphony import domain, to_thread
from symphony.characters import visible
from symphony.config import HooksSettings, WorkspaceSettings
from symphony.processes.base import Host
from symphony.workspaces import changes, directories, export, git
from symphony.workspaces.delivery import DeliverySource, Publisher, push_failure
from symphony.workspaces.files import fingerprint, is_directory, make_directory, temporary_directory
from symphony.workspaces.hooks import Hook, HookCall, HookRunner
from symphony.workspaces.layout import Layout
from symphony.workspaces.locks import RootLease, locked
from symphony.workspaces.merging import Merged, MergeRefusal, MergeRefusedError, check_merge, merge
from symphony.workspaces.mirror import BranchOrigin, Mirror, check_out, create_clone, remove_stored_logins
from symphony.workspaces.model import (
    MAX_CHANGED,
    PATCH,
    Delivery,
    KeptWorkspace,
    Patch,
    ProgressMark,
    Removal,
    Work,
    Workspace,
    WorkspaceError,
    WorkspaceRecord,
    local_repository,
    prepare_error,
    split_login,
)
from symphony.workspaces.ownership import (
    OWN_ROOT_HINT,
    StoredRecord,
    read_record,
    read_records,
    refuse_second_tenant,
    register_tenant,
    write_record,
)
from symphony.workspaces.rehearsal import Combination, Rehearsal, combine, rehearse
from symphony.workspaces.remote import REMOTE_BASES, Courier
from symphony.workspaces.repository import MissingFilter, RepositoryTrial, missing_filters, unusual_traits
from symphony.workspaces.shadow import (
    MAX_FINGERPRINT_ENTRIES,
    RefSnapshot,
    Shadow,
    copy_lfs_objects,
    hash_watched_files,
    open_shadow,
    read_ref_snapshot,
)
from symphony.workspaces.work import WorkCheck

SUBMODULES_HINT: Final = (
    "workspaces get their submodules by a hook: "
    "hooks.after_create: git submodule update --init --recursive (docs/workflow-file.md)"
)
_LOCK_WAIT_S: Final = 10.0
_TRIAL: Final = "trial"
_SIGNING_TIMEOUT_MS: Final = 15_000
_SMALL_FILES_ONLY: Final = ("-c", f"core.bigFileThreshold={changes.MAX_LINE_BYTES}")
_log = structlog.get_logger(__name__)


class WorkspaceManager:
    """Manages the workspaces of one workflow file on one host, with one version of the settings.

    After a reload, a new manager replaces it and finds the existing workspaces by their recorded paths. There
    are more than eight arguments because tests set limits and a point of failure.

    Args:
        host: runs git and hooks.
        settings: `workspace` of the workflow file.
        hooks: `hooks` of the workflow file.
        environment: the variables that hooks and git inherit.
        secret_names: variables that they never inherit.
        fault: called at the points where tests simulate a crash.
        network_timeout_ms: the timeout of git commands that use the network.
        lock_wait_s: how long to wait for another daemon that starts at the same root.
        workflow: the file that owns the workspaces; without one, nothing else may use the root.
        redaction: masks the output of hooks and git.
    """

    def __init__(
        self,
        host: Host,
        settings: WorkspaceSettings,
        hooks: HooksSettings,
        environment: Mapping[str, str],
        secret_names: frozenset[str],
        fault: domain.FaultHook = domain.no_fault,
        *,
        network_timeout_ms: int = git.NETWORK_TIMEOUT_MS,
        lock_wait_s: float = _LOCK_WAIT_S,
        workflow: Path | None = None,
        redaction: domain.Redaction = domain.PATTERNS_ONLY,
    ) -> None:
        self._settings = settings
        address, login = split_login(settings.repo or "")
        self._repo = address or None
        self._fault = fault
        self._redaction = redaction
        self._git = git.Git(
            host,
            environment,
            secret_names,
            network_timeout_ms=network_timeout_ms,
            fetch_stall_ms=settings.fetch_stall_timeout_ms,
            redaction=redaction,
            login=login,
        )
        self._after_create = hooks.after_create
        self._hooks = HookRunner(host, hooks, environment, secret_names, redaction)
        self._finder = directories.WorkspaceFinder(settings=settings, workflow=workflow)
        self._lock_wait_s = lock_wait_s
        self._mirrors: dict[Path, Mirror] = {}
        self.baselines = anyio.Lock()
        """The lock for trying commands on a base commit, so that each is tried once."""
        self._lease: RootLease | None = None  # held as long as this manager may use the root

    async def check_root(self) -> None:
        """Create the root, check that it is writable, and clear what a crash left.

        Raises:
            WorkspaceError: `workspace_prepare_failed` or `workspace_root_taken`, with a hint; blame `config`.
        """

        def open_root() -> Layout:
            layout = self._finder.open_root()
            with directories.root_errors(self._settings.root):
                directories.try_writing(layout)
            return layout

        layout = await to_thread.run_sync(open_root)
        await self._register(layout)

        def clear() -> RootLease | None:
            with directories.root_errors(self._settings.root):
                remove_stored_logins(layout)
            return directories.clear_leftovers(layout, local_repository(self._repo or ""))

        self._lease = await to_thread.run_sync(clear)

    async def _register(self, layout: Layout) -> None:
        """Register the workflow file as a tenant of the root."""
        tenant = await to_thread.run_sync(self._finder.tenant)
        if tenant is None:
            return

        def register() -> None:
            with directories.root_errors(self._settings.root):
                register_tenant(layout, tenant)

        try:
            async with locked(layout.tenants_lock, self._lock_wait_s):
                await to_thread.run_sync(register)
        except (git.GitError, OSError) as error:
            raise WorkspaceError.of(
                domain.Category.WORKSPACE_ROOT_TAKEN,
                f"the other users of workspace.root {layout.root} are unknown: {error}",
                hint=f"see which other daemons are there, or {OWN_ROOT_HINT}",
                blame=domain.Blame.CONFIG,
            ) from error

    async def inspect_root(self) -> None:
        """As `check_root`, as far as possible without creating or changing anything.

        Raises:
            WorkspaceError: as `check_root`.
        """

        def inspect() -> None:
            layout = self._finder.resolve_root()
            with directories.root_errors(self._settings.root):
                directories.check_writable(layout)
            tenant = self._finder.tenant()
            if tenant is not None:
                refuse_second_tenant(layout, tenant)

        await to_thread.run_sync(inspect)

    async def check_repository(self) -> None:
        """Check that `workspace.repo` is reachable and has the base branch; changes nothing.

        Raises:
            WorkspaceError: `workspace_repository`, with a hint.
        """
        if self._repo is not None:
            mirror = Mirror(self._git, Layout(self._settings.root), self._repo)
            mirror.base(await mirror.look(), self._settings.base_branch)

    async def try_repository(self, place: Path) -> RepositoryTrial:
        """Fetch and check out `workspace.repo` as a run does, in an empty directory; changes nothing else.

        It takes as long as a fetch, so callers limit it.

        Raises:
            WorkspaceError: as `prepare`.
        """
        mirror, origin = await self._clone_into(place)
        local = local_repository(mirror.repository)
        return RepositoryTrial(
            missing=await self._missing_filters(mirror, origin.start),
            unusual=() if local is None else await unusual_traits(self._git, local),
        )

    async def clone_base(self, place: Path) -> tuple[Path, str]:
        """A clone of `workspace.repo` as a run gets it, in an empty directory, and its base commit.

        It takes as long as a fetch.

        Raises:
            WorkspaceError: as `prepare`.
        """
        _, origin = await self._clone_into(place)
        return Layout(place).workspace(_TRIAL), origin.start

    async def _clone_into(self, place: Path) -> tuple[Mirror, BranchOrigin]:
        layout, trial = Layout(self._settings.root), Layout(place)
        for directory in (trial.mirrors, trial.staging):
            await to_thread.run_sync(make_directory, directory)
        borrowed = layout.mirror(self._repo or "") / "objects"
        known = borrowed if await to_thread.run_sync(is_directory, borrowed) else None
        mirror = Mirror(self._git, trial, self._repo or "", borrowed=known)
        return mirror, await create_clone(mirror, _TRIAL, trial.workspace(_TRIAL), self._settings.base_branch)

    async def _missing_filters(self, mirror: Mirror, commit: str) -> tuple[MissingFilter, ...]:
        source = local_repository(mirror.repository)
        return await missing_filters(self._git, mirror.path, commit, source=source, hook=self._after_create)

    async def base_branch(self) -> str | None:
        """The name of the branch that new branches start from; asks the repository unless it is set.

        Returns:
            `None` for a detached `HEAD`, or without `workspace.repo`.

        Raises:
            WorkspaceError: `workspace_repository`, with a hint.
        """
        if self._repo is None or self._settings.base_branch is not None:
            return self._settings.base_branch
        return (await Mirror(self._git, Layout(self._settings.root), self._repo).look()).head_branch

    async def check_push(self) -> domain.Failure | None:
        """Check by a dry run whether `origin` would accept a branch; changes nothing.

        Returns:
            `None` if it would, or if pushing is off.
        """
        if self._repo is None or self._settings.push != "origin":
            return None
        return await self._publisher(Layout(self._settings.root), self._repo).probe()

    async def check_signing(self) -> domain.Failure | None:
        """Try a signature if git is configured to sign commits; changes nothing.

        Returns:
            `None` if a commit can be signed, or if signing is off.
        """
        local = local_repository(self._repo or "")
        where = () if local is None else ("-C", local)
        try:
            wanted = await self._git.trusted(*where, "config", "--type=bool", "--get", "commit.gpgSign")
        except git.GitError:  # this is how git reports that it is not set
            return None
        if wanted.strip() != b"true":
            return None
        identity = ("-c", "user.name=symphony", "-c", "user.email=symphony@localhost")
        try:
            async with temporary_directory(None, "symphony-sign-") as scratch:
                await self._git.trusted("init", "--quiet", "--bare", "--template=", scratch)
                listing = () if local is None else await self._signing_settings(local)
                tree = (await self._git.trusted("-C", scratch, "mktree", "--missing")).decode().strip()
                sign = ("commit-tree", "-S", "-m", "never kept", tree)
                await self._git.trusted(
                    *identity, *listing, "-C", scratch, *sign, timeout_ms=_SIGNING_TIMEOUT_MS
                )
        except (git.GitError, OSError) as error:
            return domain.Failure(
                category=domain.Category.DELIVERY_FAILED,
                blame=domain.Blame.CONFIG,
                message=f"commits are to be signed (commit.gpgSign), and a signature fails: {error}",
                hint="let the key be used without a question, or set commit.gpgSign to false for this user",
            )
        return None

    async def _signing_settings(self, local: Path) -> tuple[str, ...]:
        """Options for git with the settings of a repository about signatures."""
        keys = r"^(gpg\..*|user\.(signingkey|name|email))$"
        try:
            listing = await self._git.trusted("-C", local, "config", "-z", "--get-regexp", keys)
        except git.GitError:
            return ()
        pairs = (each.partition("\n") for each in listing.decode("utf-8", "surrogateescape").split("\0"))
        return tuple(word for key, _, value in pairs if key for word in ("-c", f"{key}={value}"))

    async def prepare(
        self, issue: domain.Issue, attempt: int | None, *, run_id: str | None = None
    ) -> Workspace:
        """The issue's workspace: the existing one, or a new and populated one after the hook `after_create`.

        Raises:
            WorkspaceError: unsafe key, containment, repository or hook. A new directory is deleted again.
        """
        found = await to_thread.run_sync(self._finder.find, issue)
        record = found.record
        if not record.ready:
            try:
                record = await self._create(found, HookCall.of(issue, found.path, attempt, run_id))
            except OSError as error:
                raise prepare_error(found.path, error) from error
        return Workspace(
            key=found.path.name,
            path=found.path,
            branch=record.branch,
            base_commit=record.base_commit,
            created_now=not found.record.ready,
        )

    async def _create(self, found: directories.FoundWorkspace, hook_call: HookCall) -> StoredRecord:
        """Create, populate and prepare a new workspace, or leave nothing of it. Raises `OSError`."""
        layout, path, begun = found

        def complete(populated: StoredRecord) -> StoredRecord:
            owner, hashes = path.lstat().st_uid, hash_watched_files(path / ".git")
            seen = read_ref_snapshot(path)
            record = msgspec.structs.replace(populated, ready=True, owner=owner, git_hashes=hashes)
            if record.repo is None and seen.problem is None:
                tags = git.all_refs(path / ".git", "refs/tags/")
                record = msgspec.structs.replace(record, base_commit=seen.head, tags=tags)
            write_record(layout, record)
            return record

        created = False
        try:
            self._fault(domain.FaultPoint.WORKSPACE_RECORDED)
            populated = await self._populate(layout, path, begun)
            created = True
            self._fault(domain.FaultPoint.WORKSPACE_POPULATED)
            looks = self._repo is not None and not self._hooks.has(Hook.AFTER_CREATE)
            if looks and await to_thread.run_sync((path / ".gitmodules").exists):
                _log.warning("submodules_not_populated", key=path.name, hint=SUBMODULES_HINT)
            await self._hooks.run(Hook.AFTER_CREATE, hook_call)
            return await to_thread.run_sync(complete, populated)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(partial(directories.undo_creation, layout, path, created=created))
            raise

    async def _populate(self, layout: Layout, path: Path, record: StoredRecord) -> StoredRecord:
        if self._repo is None:
            await to_thread.run_sync(path.mkdir)
            return record
        mirror = self._mirror(layout, self._repo)
        origin = await create_clone(mirror, record.key, path, self._settings.base_branch)
        for missing in await self._missing_filters(mirror, origin.start):
            _log.warning("filter_not_set_up", key=record.key, filter=missing.name, hint=missing.hint)
        return msgspec.structs.replace(
            record, repo=self._repo, branch=origin.branch, base_commit=origin.base_commit
        )

    async def exists(self, workspace: Workspace) -> bool:
        """Whether anything is at the path of the workspace."""
        return await to_thread.run_sync(os.path.lexists, workspace.path)

    async def verify(self, workspace: Workspace) -> None:
        """Check, right before an agent is started, that the workspace is where it must be.

        Raises:
            WorkspaceError: `invalid_workspace_cwd`.
        """
        await to_thread.run_sync(self._finder.verify, workspace)

    async def before_run(
        self, workspace: Workspace, issue: domain.Issue, attempt: int | None, *, run_id: str | None = None
    ) -> None:
        """Run the hook `before_run`; its failure is fatal to the attempt. Raises `WorkspaceError`."""
        await self._hooks.run(Hook.BEFORE_RUN, HookCall.of(issue, workspace.path, attempt, run_id))

    async def after_run(
        self, workspace: Workspace, issue: domain.Issue, attempt: int | None, *, run_id: str | None = None
    ) -> None:
        """Run the hook `after_run`; a failure is only logged.

        The caller must shield the call from cancellation.
        """
        call = HookCall.of(issue, workspace.path, attempt, run_id)
        await self._hooks.run_ignoring_failure(Hook.AFTER_RUN, call)

    def head_commit(self, workspace: Workspace) -> str | None:
        """The commit that is checked out in a workspace, if known; blocking."""
        return read_ref_snapshot(workspace.path).head

    async def progress(self, workspace: Workspace) -> ProgressMark:
        """The present state of the work. Never raises: if git fails, the stats of the files are used."""
        path = workspace.path

        def look() -> tuple[RefSnapshot, StoredRecord | None, ProgressMark]:
            seen, clone = _clone_at(path)
            gone = seen.problem is not None and not os.path.lexists(path)
            return (
                seen,
                clone,
                ProgressMark(head=seen.head, tree="" if clone else _fingerprint(path), gone=gone),
            )

        seen, clone, mark = await to_thread.run_sync(look)
        if clone is None:
            return mark
        try:
            async with self._shadow(path, seen, clone) as shadow:
                tree, changed = await shadow.tree_mark()
                mark = replace(mark, tree=tree, clean=not changed)
                if seen.head and workspace.base_commit and seen.head != workspace.base_commit:
                    changed = [*changed, *await shadow.changed_since(workspace.base_commit, seen.head)]
                return replace(mark, changed=_shown_paths(changed))
        except (git.GitError, OSError) as error:
            _log.warning("workspace_status_unknown", key=workspace.key, error=str(error))
        return replace(mark, tree=await to_thread.run_sync(_fingerprint, path))

    async def tracked(self, workspace: Workspace, directory: str) -> frozenset[str]:
        """The paths in a directory of the workspace that git tracks; none without a clone.

        Raises:
            GitError, OSError: they cannot be read.
        """
        seen, clone = await to_thread.run_sync(_clone_at, workspace.path)
        if clone is None:
            return frozenset()
        async with self._shadow(workspace.path, seen, clone) as shadow:
            return await shadow.tracked(directory)

    async def working_patch(
        self, identifier: str, form: Sequence[str] = PATCH, *, max_bytes: int
    ) -> Patch | None:
        """How the workspace of an issue now differs from its start: commits, edits and new files.

        At most `max_bytes` of the output of `git diff` with the options `form`. `None` without a clone here.

        Raises:
            WorkspaceError: the key of the issue or the root is not usable, or git failed.
        """
        layout = await to_thread.run_sync(self._finder.resolve_root)
        path = layout.workspace(await to_thread.run_sync(self._finder.key, layout, identifier))
        seen, clone = await to_thread.run_sync(_clone_at, path)
        if clone is None or clone.base_commit is None:
            return None
        try:
            async with self._shadow(path, seen, clone) as shadow:
                content = await shadow.differences(clone.base_commit, form, max_bytes=max_bytes)
        except (git.GitError, OSError) as error:
            message = f"the workspace {path} cannot be compared: {error}"
            raise WorkspaceError.of(domain.Category.WORKSPACE_REPOSITORY, message) from error
        return Patch(branch=clone.branch or domain.branch_name(path.name), content=content)

    def _shadow(
        self, path: Path, seen: RefSnapshot, clone: StoredRecord
    ) -> AbstractAsyncContextManager[Shadow]:
        """A shadow of a workspace that is a clone."""
        layout = Layout(path.parent)
        assert clone.repo is not None  # noqa: S101 - a clone has one
        return open_shadow(
            self._git,
            layout.staging,
            path,
            seen.head,
            git_hashes=clone.git_hashes,
            objects=self._mirror(layout, clone.repo).objects,
        )

    async def deliver(
        self, workspace: Workspace | WorkspaceRecord, *, git_said: str | None = None, clean: bool = False
    ) -> Delivery:
        """Deliver the committed work to the mirror and a local repository; `push` copies it to `origin`.

        Never raises for problems of the work; the result has them. `git_said` is why the last commit of the
        agent failed; it is recorded with the remaining work. With `clean`, all files are committed or
        ignored, as a `ProgressMark` of just now says.
        """
        layout = Layout(workspace.path.parent)

        def look() -> tuple[RefSnapshot, StoredRecord | None]:
            return read_ref_snapshot(workspace.path), read_record(layout, workspace.path.name)

        seen, record = await to_thread.run_sync(look)
        delivery = await self._deliver(layout, record, workspace.path, seen)
        try:
            left = await self._find_work(layout, record, workspace.path, clean=clean)
        except OSError as error:
            left = Work(
                reason=f"it cannot be looked through: {error}",
                look=shlex.join(["ls", "-la", str(workspace.path)]),
            )
        if left is not None and git_said is not None:
            left = replace(left, reason=f"{left.reason}; the last commit failed: {git_said}")
        await self._remember(layout, record, left)
        return replace(delivery, left=left)

    async def _deliver(
        self, layout: Layout, record: StoredRecord | None, path: Path, seen: RefSnapshot
    ) -> Delivery:
        if record is None or record.repo is None or record.branch is None:
            count = await self._count(layout, record, path, seen)
            return Delivery(head=seen.head, work=domain.WorkSize(commits=count))
        source = DeliverySource(
            path=path, branch=record.branch, base_commit=record.base_commit, git_hashes=record.git_hashes
        )
        warning = await to_thread.run_sync(self._copy_lfs_objects, layout, record.repo, path)
        delivery = await self._publisher(layout, record.repo).deliver(source)
        return delivery if warning is None else replace(delivery, warnings=(*delivery.warnings, warning))

    async def _count(self, layout: Layout, record: StoredRecord | None, path: Path, seen: RefSnapshot) -> int:
        """The commits of a workspace that a hook filled; 0 if unknown."""
        if record is None or record.base_commit is None or seen.head is None:
            return 0
        hashes = record.git_hashes
        try:
            async with open_shadow(self._git, layout.staging, path, seen.head, git_hashes=hashes) as shadow:
                return await shadow.count_since(record.base_commit, seen.head)
        except (git.GitError, OSError, ValueError) as error:
            _log.warning("commits_unknown", key=record.key, reason=str(error))
            return 0

    def _copy_lfs_objects(self, layout: Layout, repo: str, path: Path) -> str | None:
        """Copy Git LFS objects to where the branch is delivered; returns a warning. Blocking."""
        local = local_repository(repo)
        return copy_lfs_objects(path / ".git", (local and git.common_dir(local)) or layout.mirror(repo))

    @asynccontextmanager
    async def checkout(self, workspace: Workspace, commit: str) -> AsyncIterator[Path]:
        """A clean checkout of a delivered commit, or of the commit at which the workspace began.

        It is removed at the end of the context.

        Raises:
            WorkspaceError: `workspace_prepare_failed`.
        """
        layout = Layout(workspace.path.parent)
        record = await to_thread.run_sync(read_record, layout, workspace.path.name)
        if record is None or record.repo is None or record.branch is None:
            raise WorkspaceError.of(
                domain.Category.WORKSPACE_PREPARE_FAILED,
                "a workspace that hooks populate has no other checkout",
            )
        mirror = self._mirror(layout, record.repo)
        async with temporary_directory(layout.staging, "checkout-") as staging:
            tree = staging / workspace.key
            try:
                await check_out(mirror, tree, record.branch, commit)
            except (git.GitError, OSError) as error:
                raise WorkspaceError.of(
                    domain.Category.WORKSPACE_PREPARE_FAILED,
                    f"{commit[:12]} cannot be checked out: {error}",
                    hint=git.hint_of(error, layout.root),
                ) from error
            yield tree

    async def differs_from(self, path: Path, commit: str, *, objects: Path | None = None) -> str | None:
        """How the tracked files of a checkout differ from a commit, in one line; `None` if they do not.

        Args:
            path: the checkout.
            commit: the commit of the checkout.
            objects: the store with the commit, if it is not the mirror's.

        Raises:
            GitError, OSError: they cannot be compared.
        """
        seen = await to_thread.run_sync(read_ref_snapshot, path)
        if seen.head != commit:
            return f"HEAD is {(seen.head or 'gone')[:12]}"
        layout = await to_thread.run_sync(self._finder.resolve_root)
        if objects is None and self._repo is not None:
            objects = self._mirror(layout, self._repo).objects
        async with open_shadow(
            self._git, layout.staging, path, commit, git_hashes=None, objects=objects
        ) as shadow:
            changed = [entry for entry in await shadow.status() if not entry.startswith(b"? ")]
        names = sorted(entry.rsplit(b" ", 1)[-1].decode("utf-8", "backslashreplace") for entry in changed)
        return (
            f"{domain.plural(len(names), 'tracked file')} changed: {', '.join(names[:3])}" if names else None
        )

    async def push(self, branch: str) -> domain.Failure | None:
        """Push a delivered branch to `origin`; its workspace need not exist any more.

        Returns:
            `None` if `origin` has the mirror's commit. Never raises for an error of git or of the remote.
        """
        if self._repo is None or self._settings.push != "origin":
            return push_failure("workspace.push is not `origin`", retryable=False)
        try:
            layout = await to_thread.run_sync(self._finder.resolve_root)
        except WorkspaceError as error:
            return error.failure
        return await self._publisher(layout, self._repo).push(branch)

    async def place(self, branch: str) -> domain.Failure | None:
        """Copy a delivered branch to a local repository; otherwise as `push`."""
        if self._repo is None:
            return None
        try:
            layout = await to_thread.run_sync(self._finder.resolve_root)
        except WorkspaceError as error:
            return error.failure
        return await self._publisher(layout, self._repo).place(branch)

    async def fetch_base(self, branch: str) -> str | None:
        """The present commit of a branch of `origin`; afterwards every workspace on this machine has it.

        Returns:
            `None` if hooks populate workspaces.

        Raises:
            WorkspaceError: it could not be fetched.
        """
        if self._repo is None:
            return None
        layout = await to_thread.run_sync(self._finder.resolve_root)
        try:
            return await self._publisher(layout, self._repo).fetch_base(branch)
        except (git.GitError, OSError) as error:
            raise WorkspaceError.of(
                domain.Category.WORKSPACE_REPOSITORY,
                f"{branch} cannot be fetched from origin: {error}",
                hint=git.hint_of(error, layout.root),
            ) from error

    async def delete_branch(self, branch: str, head: str) -> Removal:
        """Delete a merged branch from `origin` and from a local repository if it is still at `head`.

        Raises:
            WorkspaceError: git or the remote failed; a repetition changes nothing more.
        """
        if self._repo is None:
            return Removal(removed=False)
        layout = await to_thread.run_sync(self._finder.resolve_root)
        try:
            return await self._publisher(layout, self._repo).delete(branch, head)
        except (git.GitError, OSError) as error:
            hint = git.hint_of(error, layout.root)
            raise WorkspaceError(
                push_failure(f"{branch} could not be deleted: {error}", hint=hint)
            ) from error

    async def patch(self, identifier: str, *, max_bytes: int) -> Patch | None:
        """The patch of an issue's delivered branch since its start, at most `max_bytes` of it.

        Reads only the mirror. `None` if nothing was delivered, or the workspace is removed.

        Raises:
            WorkspaceError: the key of the issue or the root is not usable, or git failed.
        """
        found = await self._delivered(identifier)
        if found is None:
            return None
        mirror, branch, start, head = found
        diff = (*_SMALL_FILES_ONLY, "-C", mirror.path, "diff", *PATCH, start, head, "--")
        try:
            content = await self._git.isolated(*diff, max_output_bytes=max_bytes)
        except git.GitError as error:
            raise mirror.unreadable(error) from error
        return Patch(branch=branch, content=content)

    async def change(
        self,
        identifier: str,
        *,
        since: str | None = None,
        until: str | None = None,
        known: changes.BranchChange | None = None,
    ) -> changes.BranchChange | None:
        """The change of an issue's delivered branch since its start, or between earlier heads of it.

        Returns `known` if it is still true. Reads only the mirror. `None` if nothing was delivered, the
        workspace is removed, or the mirror does not have the commit `since` or `until`.

        Raises:
            WorkspaceError: the key of the issue or the root is not usable, or git failed.
        """
        found = await self._delivered(identifier)
        if found is None:
            return None
        mirror, branch, start, last = found
        since, until = since or start, until or last
        if known is not None and known.between == (start, since, until, last):
            return known
        try:
            ask = ("-C", mirror.path, "cat-file", "--batch-check=%(objecttype)")
            kinds = await self._git.isolated(*ask, stdin=f"{since}\n{until}\n".encode())
            if kinds.split() != [b"commit", b"commit"]:
                return None
            return await changes.read_change(
                self._git, mirror.path, branch=branch, start=start, since=since, head=until, last=last
            )
        except git.GitError as error:
            raise mirror.unreadable(error) from error

    async def patches(
        self,
        identifier: str,
        change: changes.BranchChange,
        files: Sequence[changes.ComparedFile],
        *,
        context: int,
        max_bytes: int,
    ) -> Mapping[changes.ComparedFile, bytes]:
        """The patches of some files of a change: see `changes.read_patches`. Raises `WorkspaceError`."""
        found = await self._delivered(identifier)
        if found is None:
            return {}
        try:
            return await changes.read_patches(
                self._git, found[0].path, change, files, context=context, max_bytes=max_bytes
            )
        except git.GitError as error:
            raise found[0].unreadable(error) from error

    async def content(self, identifier: str, object_id: str, *, max_bytes: int) -> bytes:
        """The first bytes of a file of a change by its object id. Raises `WorkspaceError`."""
        found = await self._delivered(identifier)
        if found is None:
            return b""
        try:
            return await changes.read_content(self._git, found[0].path, object_id, max_bytes=max_bytes)
        except git.GitError as error:
            raise found[0].unreadable(error) from error

    async def _delivered(self, identifier: str) -> tuple[Mirror, str, str, str] | None:
        """The mirror with the delivered branch of an issue, the branch, its start and its head."""
        layout = await to_thread.run_sync(self._finder.resolve_root)
        key = await to_thread.run_sync(self._finder.key, layout, identifier)
        record = await to_thread.run_sync(read_record, layout, key)
        repo, branch = self._repo, domain.branch_name(key)
        base: str | None = None
        if record is not None:
            repo, branch, base = record.repo, record.branch or branch, record.base_commit
        if repo is None:
            return None
        mirror = self._mirror(layout, repo)
        if record is None:  # the workspace is on a host or was removed
            base = await to_thread.run_sync(git.read_ref, mirror.path, f"{REMOTE_BASES}{branch}")
        head = await to_thread.run_sync(git.read_ref, mirror.path, f"refs/heads/{branch}")
        return None if head is None or base is None else (mirror, branch, base, head)

    async def merge(self, branch: str, head: str, message: str) -> Merged:
        """Merge a delivered commit into the base branch of a local repository: see `merging.merge`.

        Raises:
            MergeRefusedError: nothing was changed, because a person has to decide.
            WorkspaceError: git failed; a repetition finishes the merge.
        """
        repo, local = self._local_repository()
        layout = await to_thread.run_sync(self._finder.resolve_root)
        mirror = self._mirror(layout, repo)
        name, _ = mirror.base(await mirror.look(), self._settings.base_branch)
        return await merge(mirror, local, name, branch=branch, head=head, message=message)

    async def check_merge(self, branch: str, head: str) -> Merged | None:
        """Check whether a delivered commit can be merged: `None` if it can, or the existing merge.

        Raises:
            MergeRefusedError, WorkspaceError: as `merge`.
        """
        repo, local = self._local_repository()
        layout = await to_thread.run_sync(self._finder.open_root)
        mirror = self._mirror(layout, repo)
        wanted = self._settings.base_branch
        name, _ = mirror.base(await mirror.look(), wanted)
        return await check_merge(mirror, layout.staging, local, name, wanted, branch=branch, head=head)

    def _local_repository(self) -> tuple[str, Path]:
        local = None if self._repo is None else local_repository(self._repo)
        if self._repo is None or local is None:
            raise MergeRefusedError.of_code(
                MergeRefusal.NO_REPOSITORY,
                "workspace.repo is not a repository on this machine",
                hint="merge the branch where it is pushed, or set `forge`",
            )
        return self._repo, local

    async def rehearse(self, branches: Mapping[str, str]) -> Rehearsal | None:
        """Merge delivered branches in this order onto the present base, without a checkout.

        Args:
            branches: the branch names, by the names that the result uses.

        Returns:
            `None` if hooks populate workspaces.

        Raises:
            WorkspaceError: the root, the repository or its base is not usable, or git is too old.
        """
        if self._repo is None:
            return None
        layout = await to_thread.run_sync(self._finder.open_root)
        mirror = self._mirror(layout, self._repo)
        return await rehearse(mirror, layout.staging, branches, self._settings.base_branch)

    @asynccontextmanager
    async def combination(self, base: str, heads: Sequence[str]) -> AsyncIterator[Combination]:
        """Compatible delivered commits, merged onto a commit of the base branch in this order.

        Raises:
            WorkspaceError: the root or the repository is not usable.
        """
        assert self._repo is not None  # noqa: S101 - something was rehearsed
        layout = await to_thread.run_sync(self._finder.open_root)
        mirror = self._mirror(layout, self._repo)
        async with combine(mirror, layout.staging, base, heads) as combination:
            yield combination

    async def look_at_base(self) -> tuple[str | None, str] | None:
        """Present name and commit of the repository's base branch; `None` without a repository.

        Raises:
            WorkspaceError: as `rehearse`.
        """
        if self._repo is None:
            return None
        layout = await to_thread.run_sync(self._finder.resolve_root)
        mirror = self._mirror(layout, self._repo)
        return mirror.base(await mirror.look(), self._settings.base_branch)

    # --- hosts -------------------------------------------------------------------------------------------

    async def courier(self, identifier: str) -> tuple[Courier, str] | None:
        """The courier to hosts, and the branch of an issue; `None` without a repository.

        Raises:
            WorkspaceError: the key of the issue or the root is not usable.
        """
        if self._repo is None:
            return None
        layout = await to_thread.run_sync(self._finder.open_root)
        key = await to_thread.run_sync(self._finder.key, layout, identifier)
        mirror, publisher = self._mirror(layout, self._repo), self._publisher(layout, self._repo)
        return Courier(mirror, publisher, base_branch=self._settings.base_branch), domain.branch_name(key)

    async def renew(self, issue: domain.Issue, delivered: str) -> None:
        """Remove the issue's workspace if its work does not continue the commit that was delivered elsewhere.

        Raises:
            WorkspaceError: it has undelivered work.
        """
        record = await self.locate(issue.id, issue.identifier)
        if not await to_thread.run_sync(is_directory, record.path):
            return
        seen, clone = await to_thread.run_sync(_clone_at, record.path)
        if seen.head == delivered:
            return
        if clone is None or seen.head is None:
            return
        try:
            async with self._shadow(record.path, seen, clone) as shadow:
                if await self._git.is_ancestor(shadow.git_dir, delivered, seen.head):
                    return
        except (git.GitError, OSError):
            pass  # the commit is unknown here
        removal = await self.remove(record)
        if removal.kept_reason is not None:
            raise WorkspaceError.of(
                domain.Category.WORKSPACE_PREPARE_FAILED,
                f"the work went on elsewhere, and the workspace {record.path} cannot be removed: "
                f"{removal.kept_reason}",
                hint="save its content, and remove it there",
            )
        _log.info("workspace_renewed", path=str(record.path), commit=delivered)

    async def records(self) -> tuple[WorkspaceRecord, ...]:
        """The recorded workspaces of this workflow file below the root."""

        def read() -> tuple[WorkspaceRecord, ...]:
            layout, tenant = self._finder.resolve_root(), self._finder.tenant()
            return tuple(
                WorkspaceRecord(
                    issue_id=record.issue_id,
                    identifier=record.identifier,
                    key=record.key,
                    path=layout.workspace(record.key),
                )
                for record in read_records(layout)
                if tenant is None or tenant.owns(record)
            )

        return await to_thread.run_sync(read)

    async def locate(self, issue_id: str, identifier: str) -> WorkspaceRecord:
        """Where the issue's workspace is below the present root, whether it exists or not."""

        def locate() -> WorkspaceRecord:
            layout = self._finder.open_root()
            key = self._finder.key(layout, identifier, issue_id=issue_id)
            return WorkspaceRecord(
                issue_id=issue_id, identifier=identifier, key=key, path=layout.workspace(key)
            )

        return await to_thread.run_sync(locate)

    @asynccontextmanager
    async def preview(
        self, identifier: str, paths: Sequence[str], *, base: bool = False
    ) -> AsyncIterator[export.WorkspacePreview]:
        """The files that an attempt would find in the issue's workspace; changes nothing.

        If the workspace does not exist, the files at `paths` (relative to it) are written to a private
        directory that is deleted at the end of the context. With `base`, it has the files of `pin`.

        Raises:
            WorkspaceError: an attempt would fail too: unsafe key, containment, repository.
        """
        repo = self._repo

        def look() -> tuple[Layout, Path, bool]:
            layout = self._finder.resolve_root()
            path, found = directories.check_path(layout, self._finder.key(layout, identifier))
            record = read_record(layout, path.name)
            with directories.root_errors(self._settings.root):
                return layout, path, directories.is_complete(path, found, record, populated=repo is not None)

        layout, path, complete = await to_thread.run_sync(look)
        if complete and not base:
            yield export.WorkspacePreview(path=path, exists=True, tree=path)
        elif repo is None:
            yield export.WorkspacePreview(path=path, exists=False, tree=None, note=export.NOT_POPULATED)
        else:
            pinned = partial(layout.pinned, paths=paths) if base else None
            mirror, branch = self._mirror(layout, repo), self._settings.base_branch
            async with export.preview_files(mirror, branch, path, paths, pinned=pinned) as preview:
                yield preview

    async def pin(
        self, paths: Sequence[str], *, refresh_timeout_s: float = export.REFRESH_TIMEOUT_S
    ) -> export.PinnedFiles:
        """Files of the base branch in a read-only directory (`pin_files`).

        Raises:
            WorkspaceError: `workspace_repository`.
        """
        layout = await to_thread.run_sync(self._finder.open_root)
        if self._repo is None:
            raise WorkspaceError.of(domain.Category.WORKSPACE_REPOSITORY, "there is no workspace.repo")
        mirror, base_branch = self._mirror(layout, self._repo), self._settings.base_branch
        return await export.pin_files(mirror, base_branch, paths, refresh_timeout_s=refresh_timeout_s)

    async def remove(self, record: WorkspaceRecord) -> Removal:
        """Remove a workspace, even below a former root, unless work would be lost.

        The path is checked against its own parent directory. Committed work is delivered first.

        Raises:
            WorkspaceError: the path fails the containment check.
        """

        def examine() -> tuple[directories.ExaminedWorkspace, RefSnapshot | None]:
            found = directories.examine(record.path, self._finder.tenant_name)
            return found, read_ref_snapshot(found.path) if found.exists else None

        (layout, path, stored, exists, foreign_owner), seen = await to_thread.run_sync(examine)
        if foreign_owner:
            return await self._keep(
                layout, stored, Work(reason=foreign_owner, look=shlex.join(["ls", "-ld", str(path)]))
            )
        if exists and self._hooks.has(Hook.BEFORE_REMOVE):
            call = HookCall(issue_id=record.issue_id, identifier=record.identifier, path=path)
            await self._hooks.run_ignoring_failure(Hook.BEFORE_REMOVE, call)
            seen = await to_thread.run_sync(lambda: read_ref_snapshot(path) if is_directory(path) else None)
        if seen is None:  # it is missing, or the hook has removed it
            await to_thread.run_sync(directories.forget, layout, path.name)
            return Removal(removed=exists)
        delivery = work = None
        if stored is None or stored.ready:  # otherwise no agent has used it
            delivery = await self._deliver(layout, stored, path, seen)
            work = await self._find_undelivered(layout, stored, path)
        try:
            if work is None:
                await to_thread.run_sync(directories.delete, layout, path, self._fault)
                return Removal(removed=True, delivery=delivery)
        except OSError as error:
            work = Work(reason=f"it cannot be deleted: {error}", look=shlex.join(["ls", "-la", str(path)]))
        return replace(await self._keep(layout, stored, work), delivery=delivery)

    async def _keep(self, layout: Layout, record: StoredRecord | None, work: Work) -> Removal:
        await self._remember(layout, record, work)
        return Removal(removed=False, kept_reason=work.reason, look=work.look)

    async def _remember(self, layout: Layout, record: StoredRecord | None, work: Work | None) -> None:
        """Record the work that is on no branch, so that it can be shown."""
        if record is None or record.tenant not in {None, self._finder.tenant_name}:
            return
        reason, look = (None, None) if work is None else (self._redaction.text(work.reason), work.look)
        seen = msgspec.structs.replace(record, work=reason, look=look)
        if seen != record:
            try:
                await to_thread.run_sync(write_record, layout, seen)
            except OSError as error:
                _log.warning("workspace_record_not_written", key=record.key, error=str(error))

    def kept(self) -> tuple[KeptWorkspace, ...]:
        """The workspaces with work that is on no branch, of issues with or without a run; blocking.

        Raises:
            WorkspaceError: the root cannot be read.
        """
        layout, tenant = self._finder.resolve_root(), self._finder.tenant()
        return tuple(
            KeptWorkspace(
                issue_id=record.issue_id,
                identifier=record.identifier,
                path=layout.workspace(record.key),
                reason=record.work,
                look=record.look,
            )
            for record in read_records(layout)
            if record.work is not None
            and (tenant is None or tenant.owns(record))
            and is_directory(layout.workspace(record.key))
        )

    async def _find_undelivered(self, layout: Layout, record: StoredRecord | None, path: Path) -> Work | None:
        """The work that a removal would lose although the workspace was delivered before."""
        if record is not None and record.repo is not None:
            warning = await to_thread.run_sync(self._copy_lfs_objects, layout, record.repo, path)
            if warning is not None:
                return Work(reason=warning, look=shlex.join(["git", "-C", str(path), "lfs", "ls-files"]))
        return await self._find_work(layout, record, path)

    async def _find_work(
        self, layout: Layout, record: StoredRecord | None, path: Path, *, clean: bool = False
    ) -> Work | None:
        mirror = None
        if record is not None and record.repo is not None:
            mirror = self._mirror(layout, record.repo)
        keep_dirty = self._settings.keep_dirty
        check = WorkCheck(git=self._git, layout=layout, mirror=mirror, keep_dirty=keep_dirty)
        hashes, tags = (None, None) if record is None else (record.git_hashes, record.tags)
        return await check.find(path, hashes, tags, clean=clean)

    def _mirror(self, layout: Layout, repository: str) -> Mirror:
        path = layout.mirror(repository)
        if path not in self._mirrors:
            self._mirrors[path] = Mirror(self._git, layout, repository)
        return self._mirrors[path]

    def _publisher(self, layout: Layout, repository: str) -> Publisher:
        settings = self._settings
        return Publisher(
            self._mirror(layout, repository),
            push=settings.push == "origin",
            stall_ms=settings.push_stall_timeout_ms,
        )


def _clone_at(path: Path) -> tuple[RefSnapshot, StoredRecord | None]:
    """The refs of a workspace, and its record if it is a usable clone made on this machine; blocking."""
    seen = read_ref_snapshot(path)
    record = read_record(Layout(path.parent), path.name) if seen.problem is None else None
    return seen, None if record is None or record.repo is None else record


def _shown_paths(paths: Sequence[bytes]) -> tuple[str, ...]:
    """Changed paths in the form of `ProgressMark`."""
    texts = (visible(path.decode("utf-8", "backslashreplace")) for path in dict.fromkeys(paths))
    shown = tuple(text.replace("\n", "\\n").replace("\t", "\\t") for text in texts)
    return shown if len(shown) <= MAX_CHANGED else ()


def _fingerprint(path: Path) -> str:
    return fingerprint(path, max_entries=MAX_FINGERPRINT_ENTRIES)
