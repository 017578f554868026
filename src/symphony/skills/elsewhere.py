"""Folders of a repository with skills that are not loaded, such as those of other agents."""

import os
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from symphony.skills.model import FILE_NAME, SkillOptions, SkillSet, one_line

_FOLDERS: Final = ("skills", "skill")
_NOT_LOOKED_AT: Final = frozenset({".git", ".venv"})
_MAX_ENTRIES: Final = 2_000


class FolderElsewhere(NamedTuple):
    """A folder with skills that are not loaded: its path below the workspace, and their number."""

    path: str
    skills: int


def skills_elsewhere(
    workspace: Path, options: SkillOptions, found: SkillSet, listed: Collection[str] = ()
) -> tuple[FolderElsewhere, ...]:
    """The folders with skills that sessions do not see: `skills`, and that of each hidden directory.

    Blocks on the file system; never raises. A folder whose skills are all loaded, by a link or from another
    folder, is left out; so is one that leads out of the workspace.

    Args:
        workspace: the repository.
        options: those that `found` was loaded with.
        found: the loaded skills.
        listed: folders below the workspace that the agent lists itself.
    """
    base = Path(os.path.realpath(workspace))
    seen = {os.path.realpath(workspace / path) for path in (options.path, *options.extra_paths, *listed)}
    loaded = {os.path.realpath(found.file(skill)) for skill in found.skills}
    folders = []
    for path in _candidates(base):
        real = os.path.realpath(base / path)
        if real in seen or not Path(real).is_relative_to(base):
            continue
        seen.add(real)
        if count := sum(os.path.realpath(file) not in loaded for file in _skills(real)):
            folders.append(FolderElsewhere(path, count))
    return tuple(folders)


def unseen_in(folders: Collection[FolderElsewhere]) -> str:
    """Says in which folders there are skills that sessions do not see."""
    named = (f"{one_line(one.path)} ({one.skills} skill{'' if one.skills == 1 else 's'})" for one in folders)
    return f"sessions do not see the skills in {', '.join(named)}"


def hint_for(options: SkillOptions, folders: Collection[FolderElsewhere]) -> str:
    """Names the setting that shows the folders, besides those that are shown already."""
    paths = ", ".join(one_line(path) for path in (*options.extra_paths, *(one.path for one in folders)))
    return f"show them with agent.skills.extra_paths: [{paths}]"


def _candidates(base: Path) -> Iterator[str]:
    yield _FOLDERS[0]
    hidden = (name for name in _directories(base) if name.startswith(".") and name not in _NOT_LOOKED_AT)
    for name in hidden:
        yield from (f"{name}/{folder}" for folder in _FOLDERS)


def _skills(folder: str) -> Iterator[Path]:
    """The SKILL.md files one level below a folder."""
    files = (Path(folder, name, FILE_NAME) for name in _directories(folder))
    return (file for file in files if os.path.isfile(file))  # noqa: PTH113 - never raises


def _directories(folder: Path | str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, _MAX_ENTRIES) if entry.is_dir())
    except OSError:
        return []
