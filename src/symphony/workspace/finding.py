"""Finding the workspace of an issue, and making one that nobody has to populate.

Every session goes this way, most of them while others wait for the interpreter. So what one look at the disk
has told is handed on instead of asked again. All of it blocks; callers run it in a thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from symphony.domain.failures import Blame, Category
from symphony.domain.fault_points import Fault
from symphony.domain.issue import Issue
from symphony.workflow.settings import WorkspaceSettings
from symphony.workspace.files import is_directory
from symphony.workspace.layout import Layout, resolve
from symphony.workspace.looks import Found
from symphony.workspace.model import Workspace, WorkspaceError, cannot_be_made, invalid_cwd
from symphony.workspace.places import adopt, checked, clear_way, launchable, make_empty, open_root, ours
from symphony.workspace.records import read_entry

__all__ = ["Finder"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """Finds workspaces below the root of one set of settings.

    `hooked` says whether a hook has to run in new ones.
    """

    settings: WorkspaceSettings
    hooked: bool
    fault: Fault

    def root(self) -> Layout:
        """The layout below the resolved root, every directory of it made. Raises `WorkspaceError`."""
        return self.on_disk(lambda: open_root(self.settings.root))

    def known_root(self) -> Layout:
        """The layout below the resolved root, which need not exist. Raises `WorkspaceError`."""
        return self.on_disk(lambda: Layout(resolve(self.settings.root)))

    def find(self, issue: Issue, key: str) -> Found:
        """Where the workspace of a key is, its record up to date, and whether it existed as a whole.

        Without a record one still has to be made; where nothing has to be populated that is done here.

        Raises:
            WorkspaceError: the root cannot be written, containment, or the place is taken.
        """
        layout, repo = self._root_in_use(), self.settings.repo
        path, there = checked(layout, key)
        known = read_entry(layout, key)
        try:
            if there is not None:
                ours(path, there, known)
                if clear_way(layout, path, there, known, populated=repo is not None):
                    return Found(layout, path, adopt(layout, issue, key, known, repo), existed=True)
            if repo is None and not self.hooked:
                return Found(layout, path, make_empty(layout, path, issue, self.fault), existed=False)
        except OSError as error:
            raise cannot_be_made(path, error) from error
        return Found(layout, path, None, existed=False)

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
            raise WorkspaceError.of(
                Category.WORKSPACE_PREPARE_FAILED,
                f"workspace.root {self.settings.root} cannot be written: {error.strerror or error}",
                hint="make the directory writable for this user or set workspace.root to another one",
                blame=Blame.CONFIG,
            ) from error

    def _root_in_use(self) -> Layout:
        """`root`, with no more than a look where it was made before: without git only records are needed."""
        if self.settings.repo is None:
            layout = self.known_root()
            if is_directory(layout.records):
                return layout
        return self.root()
