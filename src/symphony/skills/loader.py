"""Puts one root together: reads every skill, settles names that are given twice, sorts."""

import unicodedata
from pathlib import Path

from symphony.skills.codes import problem
from symphony.skills.discover import Found, discover
from symphony.skills.model import Code, Problem, Skill, SkillOptions, SkillSet
from symphony.skills.parse import Parsed, parse, settles

__all__ = ["load"]


def load(workspace: Path, options: SkillOptions) -> SkillSet:
    """The skills of a workspace, and what is wrong with the rest; raises nothing.

    Blocks on the file system, so the caller runs it in a thread under a deadline. With `enabled` off the set
    is empty and the file system is left alone.
    """
    if not options.enabled:
        return SkillSet(root=workspace / options.path)
    listing = discover(workspace, options.path, settles)
    shelf = _Shelf()
    for item in listing.items:
        if isinstance(item, Found):
            shelf.add(parse(item))
        else:
            shelf.problems.append(item)
    return SkillSet(root=listing.root, skills=shelf.sorted(), problems=tuple(shelf.problems))


class _Shelf:
    """Takes skills in the order of their directories; the first one of a name keeps it."""

    __slots__ = ("_skills", "problems")

    def __init__(self) -> None:
        self._skills: dict[str, Skill] = {}
        self.problems: list[Problem] = []

    def add(self, parsed: Parsed) -> None:
        skill = parsed.skill
        if skill is not None:
            first = self._skills.setdefault(unicodedata.normalize("NFKC", skill.name), skill)
            if first is not skill:
                message = f"`name` is already taken by {first.path}."
                taken = problem(Code.DUPLICATE_NAME, skill.path, parsed.name_place, message=message)
                self.problems.append(taken)
        self.problems += parsed.problems

    def sorted(self) -> tuple[Skill, ...]:
        key = lambda skill: (skill.priority, skill.name, skill.directory)  # noqa: E731 - used once, here
        return tuple(sorted(self._skills.values(), key=key))
