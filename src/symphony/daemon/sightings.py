"""Recognises that a session looked at a skill: by the path of its SKILL.md in what the session gives a tool.

A lower bound and no more: a session that changes into the skill's directory first, or reads all files by a
pattern, names no path. What it gave the tool is looked at and never kept.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import structs

from symphony.daemon.catalog import RunCatalog
from symphony.observability.model import Skills
from symphony.skills import Skill, SkillSet

__all__ = ["Sightings"]

_OCCURRENCE: Final = re.compile(r"([^/\n]+)/SKILL\.md(?![\w-])")
_BETWEEN_WORDS: Final = re.compile(r"""[\s"'`=(]""")
_PART_OF_A_PATH: Final = re.compile(r"[\w./~-]")


class Sightings:
    """The skills that one run has loaded, and which of them were seen; each is told once."""

    def __init__(self, catalog: RunCatalog, workspace: Path) -> None:
        self._told = catalog.skills
        self._unseen: dict[str, Skill] = {}
        self._ways: dict[str, list[tuple[str, Skill]]] = {}
        if catalog.found is not None:
            self._learn(catalog.found, workspace)

    def _learn(self, found: SkillSet, workspace: Path) -> None:
        for skill in found.skills:
            self._unseen[skill.name] = skill
            for way in _ways(skill, found.file(skill), workspace):
                self._ways.setdefault(skill.directory, []).append((way, skill))

    @property
    def skills(self) -> Skills:
        """What people are told, with what was seen so far."""
        listed = tuple(structs.replace(one, seen=one.name not in self._unseen) for one in self._told.listed)
        return structs.replace(self._told, listed=listed)

    def named_in(self, arguments: str) -> tuple[Skill, ...]:
        """The skills that are seen for the first time in the arguments of a tool call."""
        seen = {}
        for occurrence in _OCCURRENCE.finditer(arguments):
            directory = occurrence[1]
            for name in {directory, _BETWEEN_WORDS.split(directory)[-1]}:
                for way, skill in self._ways.get(name, ()):
                    if _ends_with(arguments, way, occurrence.end()):
                        seen[skill.name] = skill
        return tuple(skill for name, skill in seen.items() if self._unseen.pop(name, None))

    def activated(self, name: str) -> tuple[Skill, ...]:
        """The skill of that name, unless it was seen before: the session has asked for it."""
        skill = self._unseen.pop(name, None)
        return () if skill is None else (skill,)


def _ways(skill: Skill, file: Path, workspace: Path) -> Iterator[str]:
    """How the path of a skill's file is written."""
    yield str(file)
    if file.is_relative_to(workspace):
        below = file.relative_to(workspace).as_posix()
        yield from (below, f"./{below}")
    elif skill.path.startswith("~"):
        yield skill.path


def _ends_with(text: str, path: str, end: int) -> bool:
    """Whether the path stands before `end` and is not the tail of a longer one."""
    begin = end - len(path)
    return text.endswith(path, 0, end) and (begin == 0 or not _PART_OF_A_PATH.match(text, begin - 1))
