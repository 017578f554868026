"""What a look at a workspace tells, each in one go: all blocking, run in a thread."""

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from symphony.workspace.files import fingerprint
from symphony.workspace.layout import Layout
from symphony.workspace.model import Delivery, ProgressMark, Workspace
from symphony.workspace.records import Entry, read_entry
from symphony.workspace.shadow import MAX_ENTRIES, Glance, glance

__all__ = ["Found", "left", "recorded", "seen_and_walked", "walked"]

_UNTOUCHED: Final = ProgressMark(head=None, tree=hashlib.sha256().hexdigest())
"""The mark of an empty directory."""


class Found(NamedTuple):
    """A workspace that is there or can be made; without a record it still has to be."""

    layout: Layout
    path: Path
    entry: Entry | None
    existed: bool

    def workspace(self, entry: Entry) -> Workspace:
        """What the outside is told of it."""
        return Workspace(
            key=self.path.name,
            path=self.path,
            branch=entry.branch,
            base_commit=entry.base_commit,
            created_now=not self.existed,
        )

    def mark(self) -> ProgressMark | None:
        """Where the work stands; null where it has to be made first, or git has to be asked."""
        if self.entry is None:
            return None
        return _plain_mark(self.entry, self.path) if self.existed else _UNTOUCHED


def recorded(path: Path) -> tuple[Layout, Entry | None, Delivery | None]:
    """The layout and the record of a workspace; what there is to tell where nothing can be delivered."""
    layout = Layout(path.parent)
    entry = read_entry(layout, path.name)
    if _is_delivered(entry):
        return layout, entry, None
    return layout, entry, Delivery(branch=None, head=glance(path, None).head)


def seen_and_walked(layout: Layout, path: Path) -> tuple[Entry | None, Glance, str | None]:
    """What is recorded and what files tell; the walk over them too, where git will not be asked."""
    entry = read_entry(layout, path.name)
    return entry, *_seen(entry, path)


def left(path: Path) -> tuple[ProgressMark, Delivery]:
    """Where the work stands at the end of an attempt, and its delivery, of a workspace without a branch."""
    head = glance(path, None).head
    return ProgressMark(head=head, tree=walked(path)), Delivery(branch=None, head=head)


def walked(path: Path) -> str:
    """What stands for the files of a workspace, as far as a walk over them tells."""
    return fingerprint(path, max_entries=MAX_ENTRIES)


def _plain_mark(entry: Entry, path: Path) -> ProgressMark | None:
    seen, tree = _seen(entry, path)
    return None if tree is None else ProgressMark(head=seen.head, tree=tree)


def _seen(entry: Entry | None, path: Path) -> tuple[Glance, str | None]:
    seen = glance(path, None)
    git_knows = entry is not None and entry.repo is not None and seen.usable
    return seen, None if git_knows else walked(path)


def _is_delivered(entry: Entry | None) -> bool:
    return entry is not None and entry.repo is not None and entry.branch is not None
