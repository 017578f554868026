"""Settles what an agent lists itself: no skill twice in one context, and nobody's skill hidden.

An agent that scans directories of its own may find the very files that the catalog lists, through a link or
because a root of ours is one of its own. Files are compared by their real paths, never by names: two files
with one name are two skills, and the agent may need both. An agent that finds a file may still refuse it: one
that can be asked says so itself, and of another it is assumed wherever the file is not faultless.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from symphony.skills.model import FILE_NAME, Scope, Severity, Skill, SkillSet

__all__ = ["Native", "settle"]

_MAX_DEPTH: Final = 6
_MAX_DIRECTORIES: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """What becomes of an agent's own listing.

    Attributes:
        listing: it stays on. Off only where every skill that it would show is ours to show.
        duplicates: names of ours that it shows as well, so that they are left out of the catalog.
        shared: by name, the real paths of those of ours that it finds and may show.
    """

    listing: bool = True
    duplicates: frozenset[str] = frozenset()
    shared: Mapping[str, Path] = field(default_factory=dict)

    def told(self, listed: Collection[Path]) -> "Native":
        """The same once the agent has said which files it lists, whatever way their paths lead."""
        real = frozenset(_real(path) for path in listed)
        return replace(self, duplicates=frozenset(name for name, file in self.shared.items() if file in real))


def settle(skill_set: SkillSet, workspace: Path, roots: Sequence[Path]) -> Native:
    """Compare a set with what the agent finds below its own `roots`; raises nothing, blocks on the disk.

    Args:
        skill_set: of ours; one without skills changes nothing for the agent.
        workspace: where the agent, and this comparison, finds the files of the workspace.
        roots: absolute directories that the agent scans, links to directories included.
    """
    if not skill_set.skills:
        return Native()
    shown = frozenset(real for root in roots for real in _shown_below(root))
    if not shown:
        return Native()
    ours = {skill: _file(skill_set, skill, workspace) for skill in skill_set.skills}
    files, directories = frozenset(ours.values()), _roots(skill_set, workspace)
    if all(_is_ours(one, files, directories) for one in shown):
        return Native(listing=False)
    shared = {skill: real for skill, real in ours.items() if real in shown}
    odd = {one.path for one in skill_set.problems if one.severity is not Severity.INFO}
    return Native(
        duplicates=frozenset(skill.name for skill in shared if skill.path not in odd),
        shared={skill.name: real for skill, real in shared.items()},
    )


def _is_ours(real: Path, files: Collection[Path], roots: Collection[Path]) -> bool:
    """Also a malformed one in a root of ours: it is reported and not to be followed."""
    return real in files or real.parent.parent in roots


def _file(skill_set: SkillSet, skill: Skill, workspace: Path) -> Path:
    """The real path of a skill's file, in the workspace that the agent works in."""
    return _real(skill_set.file(skill) if skill.scope is Scope.USER else workspace / skill.path)


def _roots(skill_set: SkillSet, workspace: Path) -> frozenset[Path]:
    return frozenset(
        _real(root.directory if root.scope is Scope.USER else workspace / root.path)
        for root in skill_set.roots
    )


def _real(path: Path | str) -> Path:
    return Path(os.path.realpath(path))


def _shown_below(root: Path) -> Iterator[Path]:
    """The real paths of what an agent finds: level by level, hidden directories and linked files left out."""
    if not os.path.isdir(root):  # noqa: PTH112 - raises nothing; most are not there, and one question says so
        return
    level, seen = [_real(root)], set[Path]()
    for _ in range(_MAX_DEPTH + 1):
        below: list[Path] = []
        for directory in level:
            if directory in seen or len(seen) >= _MAX_DIRECTORIES:
                continue
            seen.add(directory)
            found, inner = _look(directory)
            if found:
                yield directory / FILE_NAME
            below += inner
        level = below


def _look(directory: Path) -> tuple[bool, list[Path]]:
    """Whether it holds a skill file, and the real paths of what may be a directory in it; its own is real."""
    found, inner = False, []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name == FILE_NAME:
                    found = entry.is_file(follow_symlinks=False)
                elif entry.name.startswith("."):
                    continue
                elif entry.is_symlink():
                    inner.append(_real(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    inner.append(directory / entry.name)
    except OSError:
        return False, []
    return found, inner
