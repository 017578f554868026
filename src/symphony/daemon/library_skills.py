"""The skills of the library in a session: read-only copies outside of the workspace, as those of the user.

A copy is named after the versions that are in it, so that sessions share it and no session sees a change. A
library that cannot be read costs a log line, never a run.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog
from anyio import to_thread

from symphony.daemon.context import RuntimeContext
from symphony.domain import Issue
from symphony.library.model import LibraryError, SkillHead
from symphony.library.store import Library
from symphony.skills import FILE_NAME, SkillOptions
from symphony.workspaces import Layout

_MAX_SKILLS: Final = 1_000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySkills:
    """The skills of the library that a session gets.

    Attributes:
        root: the directory with the copies; `None` if there is none.
        versions: by name.
    """

    root: Path | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    def added_to(self, options: SkillOptions) -> SkillOptions:
        """The options with the copies as the last root of the user: skills of the repository win."""
        if self.root is None:
            return options
        return replace(options, user_path=(*options.user_paths, str(self.root)))


NO_LIBRARY_SKILLS: Final = LibrarySkills()


async def copy_library_skills(context: RuntimeContext, issue: Issue, agent: str) -> LibrarySkills:
    """Copy the skills that the issue gets, unless the copy is there already."""
    library = context.library
    if library is None:
        return NO_LIBRARY_SKILLS
    try:
        return await to_thread.run_sync(_copy, library, Layout(context.settings.workspace.root), issue, agent)
    except (LibraryError, OSError) as error:
        reason = error.failure.message if isinstance(error, LibraryError) else str(error)
        _log.warning("library_unavailable", reason=reason)
        return NO_LIBRARY_SKILLS


def _copy(library: Library, layout: Layout, issue: Issue, agent: str) -> LibrarySkills:
    if not library.path.exists():
        return NO_LIBRARY_SKILLS
    found = library.resolve(issue=issue.identifier, labels=issue.labels, agent=agent, configured=None)
    if found.unknown:
        _log.warning("library_skills_unknown", names=found.unknown)
    heads = found.skills[:_MAX_SKILLS]
    if not heads:
        return NO_LIBRARY_SKILLS
    named = "\n".join([str(library.path), *(f"{head.id} {head.name} {head.version}" for head in heads)])
    root = layout.pins / f"library-{hashlib.sha256(named.encode()).hexdigest()[:40]}"
    if not root.exists():
        _write(library, heads, root, layout.staging)
    return LibrarySkills(root=root, versions={head.name: head.version for head in heads})


def _write(library: Library, heads: tuple[SkillHead, ...], root: Path, staging: Path) -> None:
    """Make the copy complete before it has its name."""
    for directory in (staging, root.parent):
        directory.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=staging))
    try:
        for head in heads:
            file = unfinished / head.name / FILE_NAME
            file.parent.mkdir()
            file.write_bytes(library.version(head.name, head.version).text.file())
            file.chmod(0o444)
            file.parent.chmod(0o555)
        unfinished.chmod(0o755)  # a directory that is read-only cannot be renamed by everybody
        try:
            os.rename(unfinished, root)  # noqa: PTH104 - fails if another session was faster
        except OSError:
            if not root.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
