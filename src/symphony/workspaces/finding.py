"""Finding the workspace of an issue. All of it blocks; callers run it in a thread."""

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog

from symphony.config.settings import WorkspaceSettings
from symphony.domain.disk import is_full, make_room
from symphony.domain.failures import Blame, Category
from symphony.domain.issue import Issue
from symphony.workspaces.layout import Layout, key_of, resolve
from symphony.workspaces.model import Workspace, WorkspaceError, cannot_be_made, invalid_cwd
from symphony.workspaces.places import adopt, checked, clear_way, launchable, open_root, ours
from symphony.workspaces.records import Entry, read_entry
from symphony.workspaces.tenants import OWN_ROOT_HINT, Tenant

__all__ = ["Finder", "Found"]

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


class Found(NamedTuple):
    """A workspace that is there, with its record up to date; without a record it has to be made."""

    layout: Layout
    path: Path
    entry: Entry | None


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
        path, there = checked(layout, key)
        known = read_entry(layout, key)
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
            real = launchable(workspace.path, layout.root)
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
                hint=make_room(self.settings.root) if is_full(error) else usual,
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
