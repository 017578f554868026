"""`WorkspaceManager`: the life of a workspace, from making it to letting it go (WS1-WS16)."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from anyio import to_thread

from symphony.domain.failures import Category, SymphonyError
from symphony.domain.fault_points import Fault, FaultPoint, no_fault
from symphony.domain.issue import Issue
from symphony.hosts.base import Host
from symphony.workflow.settings import HooksSettings, WorkspaceSettings
from symphony.workspace.checkout import Checkout
from symphony.workspace.delivery import Courier, Parcel, local_repository
from symphony.workspace.files import is_directory, sync
from symphony.workspace.finding import Finder
from symphony.workspace.forecast import NOT_POPULATED, Forecast, Foresight
from symphony.workspace.git import Git, GitError
from symphony.workspace.guard import Guard
from symphony.workspace.hooks import Hook, HookCall, HookRunner
from symphony.workspace.layout import Layout, key_of
from symphony.workspace.looks import Found, left, recorded, seen_and_walked, walked
from symphony.workspace.mirror import Mirror, base_of
from symphony.workspace.model import (
    Delivery,
    ProgressMark,
    Removal,
    Workspace,
    WorkspaceError,
    WorkspaceRecord,
    cannot_be_made,
)
from symphony.workspace.pinned import Pinned, Pins
from symphony.workspace.places import (
    checked,
    clear_leftovers,
    complete,
    discard,
    forget,
    is_whole,
    remove_at_once,
    remove_plain,
    take_back,
    try_writing,
)
from symphony.workspace.records import Entry, read_entries, read_entry, write_entry
from symphony.workspace.shadow import glance, open_shadow

__all__ = ["WorkspaceManager"]

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class WorkspaceManager:
    """Makes, marks, delivers and removes workspaces on one host with one set of settings.

    `environment` is what hooks see (without `secret_names`) and what git's share is taken from.
    After a reload make a new manager; workspaces made by the old one are served by their recorded path.
    """

    def __init__(
        self,
        host: Host,
        settings: WorkspaceSettings,
        hooks: HooksSettings,
        environment: Mapping[str, str],
        secret_names: frozenset[str],
        fault: Fault = no_fault,
    ) -> None:
        self._settings = settings
        self._fault = fault
        self._git = Git(host, environment, secret_names)
        self._hooks = HookRunner(host, hooks, environment, secret_names)
        hooked = self._hooks.has(Hook.AFTER_CREATE)
        self._finder = Finder(settings=settings, hooked=hooked, fault=fault)
        self._mirrors: dict[Path, Mirror] = {}
        self._tenancy: object = None  # kept for as long as this manager may use the root

    async def check_root(self) -> None:
        """Make the root and see that it can be written; clear what a crash left half-made or half-deleted.

        Raises:
            WorkspaceError: `workspace_prepare_failed`, blame `config`, with a hint.
        """
        layout = await to_thread.run_sync(self._finder.root)
        await to_thread.run_sync(self._finder.on_disk, lambda: try_writing(layout))
        repository = local_repository(self._settings.repo or "")
        self._tenancy = await to_thread.run_sync(clear_leftovers, layout, repository)

    async def check_repository(self) -> None:
        """See that `workspace.repo` can be reached and has the base branch; changes nothing.

        Raises:
            WorkspaceError: `workspace_repository`, with a hint.
        """
        if self._settings.repo is None:
            return
        mirror = Mirror(self._git, Layout(root=self._settings.root), self._settings.repo)
        base_of(await mirror.look(), self._settings.base_branch, self._settings.repo)

    async def prepare(self, issue: Issue, attempt: int | None, *, run_id: str | None = None) -> Workspace:
        """The issue's workspace: the existing one as it is, or a new one, populated and after `after_create`.

        Raises:
            WorkspaceError: unsafe key, containment, repository or hook. A new directory is gone then (RT8).
        """
        found = await to_thread.run_sync(self._finder.find, issue, key_of(issue.identifier))
        return await self._made(found, issue, attempt, run_id)

    async def enter(
        self, issue: Issue, attempt: int | None, look: Callable[[Workspace], _T], *, run_id: str | None = None
    ) -> tuple[Workspace, ProgressMark, _T | None]:
        """`prepare` and then `mark`, in one go where there is nothing to populate; and what `look` gives.

        `look` is called in a thread, as the last thing before the launch: so not where `before_run` or
        something else comes in between, nor for what it refuses; null then. Raises as `prepare`.
        """
        find = partial(self._find_marked, issue, key_of(issue.identifier), look)
        found, mark, seen = await to_thread.run_sync(find)
        workspace = await self._made(found, issue, attempt, run_id)
        return workspace, mark or await self.mark(workspace), seen

    async def keep(self, workspace: Workspace) -> None:
        """See that the record of a new workspace is on the disk, before anybody works in it.

        Raises:
            WorkspaceError: `workspace_prepare_failed`.
        """
        if workspace.created_now and workspace.branch is None:
            try:
                await to_thread.run_sync(sync, Layout(workspace.path.parent).record(workspace.key))
            except OSError as error:
                raise cannot_be_made(workspace.path, error) from error

    def verify_blocking(self, workspace: Workspace) -> None:
        """Check right before an agent is launched that the workspace is where it has to be (WS4, WS6).

        For who is in a thread already: it looks at the disk.

        Raises:
            WorkspaceError: `invalid_workspace_cwd` with the sub-reason.
        """
        self._finder.verify(workspace)

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

    async def mark(self, workspace: Workspace) -> ProgressMark:
        """Where the work stands. Never raises: what git cannot tell is told by a walk over the files."""
        layout = Layout(workspace.path.parent)
        entry, seen, tree = await to_thread.run_sync(seen_and_walked, layout, workspace.path)
        if tree is None and entry is not None and entry.repo is not None:
            objects = self._mirror(layout, entry.repo).objects
            try:
                async with open_shadow(
                    self._git, layout.staging, workspace.path, seen.head, sealed=entry.sealed, objects=objects
                ) as shadow:
                    return ProgressMark(head=seen.head, tree=await shadow.tree_mark())
            except (GitError, OSError) as error:
                _log.warning("workspace_status_unknown", key=workspace.key, error=str(error))
        if tree is None:
            tree = await to_thread.run_sync(walked, workspace.path)
        return ProgressMark(head=seen.head, tree=tree)

    async def leave(self, workspace: Workspace) -> tuple[ProgressMark, Delivery]:
        """`mark` and then `deliver`, in one way to a thread where git has no part in it."""
        if workspace.branch is None:
            return await to_thread.run_sync(left, workspace.path)
        return await self.mark(workspace), await self.deliver(workspace)

    async def deliver(self, workspace: Workspace) -> Delivery:
        """Bring the committed work into the mirror, a local repository, and origin if `push` says so.

        Never raises for what went wrong with the work, only tells it in `warnings`.
        """
        layout, entry, nothing = await to_thread.run_sync(recorded, workspace.path)
        return nothing or await self._deliver(layout, entry, workspace.path)

    async def recorded(self) -> tuple[WorkspaceRecord, ...]:
        """Every workspace remembered under the root, which need not exist; unreadable records are skipped."""
        layout = await to_thread.run_sync(self._finder.known_root)
        entries = await to_thread.run_sync(read_entries, layout)
        return tuple(entry.record(layout) for entry in entries)

    async def locate(self, issue_id: str, identifier: str) -> WorkspaceRecord:
        """Where the issue's workspace is under the current root, whether it exists or not (WS13)."""
        layout = await to_thread.run_sync(self._finder.root)
        key = key_of(identifier)
        return WorkspaceRecord(issue_id=issue_id, identifier=identifier, key=key, path=layout.workspace(key))

    @asynccontextmanager
    async def foresee(
        self, identifier: str, paths: Sequence[str], *, base: bool = False
    ) -> AsyncIterator[Foresight]:
        """What an attempt would find in the issue's workspace, without making, fetching or changing anything.

        Of a workspace that is not there yet, `paths` (relative to it) are laid out in a private directory
        that is gone when the context ends. With `base` they are laid out as `pin` would have them.

        Raises:
            WorkspaceError: what would fail an attempt as well: an unsafe key, containment, the repository.
        """
        key, repo = key_of(identifier), self._settings.repo
        layout = await to_thread.run_sync(self._finder.known_root)
        path, there = await to_thread.run_sync(checked, layout, key)
        entry = await to_thread.run_sync(read_entry, layout, key)
        whole = partial(is_whole, path, there, entry, populated=repo is not None)
        if not base and await to_thread.run_sync(self._finder.on_disk, whole):
            yield Foresight(path=path, exists=True, tree=path)
        elif repo is None:
            yield Foresight(path=path, exists=False, tree=None, note=NOT_POPULATED)
        else:
            forecast = Forecast(self._git, self._mirror(layout, repo), repo, self._settings.base_branch)
            pinned = partial(layout.pinned, paths=paths) if base else None
            async with forecast.lay_out(path, paths, pinned=pinned) as foresight:
                yield foresight

    async def pin(self, paths: Sequence[str]) -> Pinned:
        """Files of the base branch in a place of their own (see `pinned`).

        Raises:
            WorkspaceError: `workspace_repository`.
        """
        layout, repo = await to_thread.run_sync(self._finder.root), self._settings.repo
        if repo is None:
            raise WorkspaceError.of(Category.WORKSPACE_REPOSITORY, "there is no workspace.repo")
        return await Pins(
            self._git, layout, self._mirror(layout, repo), repo, self._settings.base_branch
        ).pin(paths)

    def head(self, workspace: Workspace) -> str | None:
        """The commit that a workspace stands on, read off its files, or null; blocking."""
        return glance(workspace.path, None).head

    async def remove(self, record: WorkspaceRecord) -> Removal:
        """Remove a workspace, be it under a former root, unless work would be lost (WS11, WS13).

        It is checked against its own recorded parent. Committed work is delivered first.

        Raises:
            WorkspaceError: the path fails containment.
        """
        hooked = self._hooks.has(Hook.BEFORE_REMOVE)
        remove = partial(remove_at_once, record.path, only_look=hooked, fault=self._fault)
        (layout, path, entry, existed, _), removal = await to_thread.run_sync(remove)
        if removal is not None:
            return removal
        if existed:
            if hooked:
                call = HookCall(issue_id=record.issue_id, identifier=record.identifier, path=path)
                await self._hooks.run_ignoring_failure(Hook.BEFORE_REMOVE, call)
                if plain := await to_thread.run_sync(remove_plain, layout, path, entry, self._fault):
                    return plain
            reason = await self._let_go(layout, entry, path)
            if reason is not None:
                return Removal(removed=False, kept_reason=reason)
        await to_thread.run_sync(forget, layout, path.name)
        return Removal(removed=existed)

    async def _let_go(self, layout: Layout, entry: Entry | None, path: Path) -> str | None:
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

    def _find_marked(
        self, issue: Issue, key: str, look: Callable[[Workspace], _T]
    ) -> tuple[Found, ProgressMark | None, _T | None]:
        found, seen = self._finder.find(issue, key), None
        mark = found.mark()
        if found.entry is not None and mark is not None and not self._hooks.has(Hook.BEFORE_RUN):
            with suppress(SymphonyError):  # whoever looks again hears of it
                seen = look(found.workspace(found.entry))
        return found, mark, seen

    async def _made(self, found: Found, issue: Issue, attempt: int | None, run_id: str | None) -> Workspace:
        entry = found.entry
        if entry is None:
            try:
                entry = await self._create(found.layout, found.path, issue, attempt, run_id)
            except OSError as error:
                raise cannot_be_made(found.path, error) from error
        return found.workspace(entry)

    def _mirror(self, layout: Layout, repository: str) -> Mirror:
        path = layout.mirror(repository)
        if path not in self._mirrors:
            self._mirrors[path] = Mirror(self._git, layout, repository)
        return self._mirrors[path]

    async def _create(
        self, layout: Layout, path: Path, issue: Issue, attempt: int | None, run_id: str | None
    ) -> Entry:
        """Make, populate and prepare a new workspace, or leave nothing of it."""
        begun = Entry(issue_id=issue.id, identifier=issue.identifier, key=path.name, ready=False)
        made = False
        try:
            await to_thread.run_sync(write_entry, layout, begun)
            self._fault(FaultPoint.WORKSPACE_RECORDED)
            populated = await self._populate(layout, path, begun)
            made = True
            self._fault(FaultPoint.WORKSPACE_POPULATED)
            await self._hooks.run(Hook.AFTER_CREATE, HookCall.of(issue, path, attempt, run_id))
            entry = await to_thread.run_sync(complete, layout, path, populated)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(lambda: take_back(layout, path, made=made))
            raise
        return entry

    async def _populate(self, layout: Layout, path: Path, entry: Entry) -> Entry:
        repo = self._settings.repo
        if repo is None:
            await to_thread.run_sync(path.mkdir)
            return entry
        checkout = Checkout(self._git, layout, self._mirror(layout, repo), repo)
        origin = await checkout.create(entry.key, path, self._settings.base_branch)
        return replace(entry, repo=repo, branch=origin.branch, base_commit=origin.base_commit)

    async def _deliver(self, layout: Layout, entry: Entry | None, path: Path) -> Delivery:
        if entry is None or entry.repo is None or entry.branch is None:
            seen = await to_thread.run_sync(glance, path, None)
            return Delivery(branch=None, head=seen.head)
        courier = Courier(
            self._git,
            layout,
            self._mirror(layout, entry.repo),
            entry.repo,
            push=self._settings.push == "origin",
        )
        parcel = Parcel(path=path, branch=entry.branch, base_commit=entry.base_commit, sealed=entry.sealed)
        return await courier.deliver(parcel)

    async def _reason_to_keep(self, layout: Layout, entry: Entry | None, path: Path) -> str | None:
        if entry is not None and not entry.ready:
            return None  # no agent was ever let into it
        await self._deliver(layout, entry, path)
        repo = None if entry is None else entry.repo
        guard = Guard(
            git=self._git,
            layout=layout,
            mirror=None if repo is None else self._mirror(layout, repo),
            keep_dirty=self._settings.keep_dirty,
        )
        return await guard.reason_to_keep(path, None if entry is None else entry.sealed)
