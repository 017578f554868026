"""Puts the roots together: reads every skill, settles names that are given twice, sorts."""

import math
from operator import attrgetter
from pathlib import Path

from symphony.skills.codes import problem
from symphony.skills.discover import Listing, scan
from symphony.skills.model import (
    Code,
    Incomplete,
    Problem,
    Root,
    Scope,
    Shadowed,
    Skill,
    SkillOptions,
    SkillSet,
)
from symphony.skills.parse import Parsed, Rules
from symphony.skills.sheet import TOP
from symphony.skills.sources import Source, sources
from symphony.skills.text import one_line

__all__ = ["load"]


def load(
    workspace: Path, options: SkillOptions, *, root: Path | None = None, until: float = math.inf
) -> SkillSet:
    """The skills of a workspace, and what is wrong with the rest; raises nothing.

    Blocks on the file system, so the caller runs it in a thread; several may run at once. What is not read
    when `time.monotonic()` comes to `until` is left out, and the set says so. With `enabled` off the set is
    empty and the file system is left alone. With `root` the catalog names that directory in place of the
    workspace, for skills that an agent will find elsewhere than they are read.
    """
    if not options.enabled:
        return SkillSet(root=(root or workspace) / options.path)
    shelf = _Shelf(options)
    rules, seen = Rules.of(options), set[tuple[int, int]]()
    for source in sources(workspace, options, root):
        if isinstance(source, Source):
            listing = scan(source, rules, seen, until)
            shelf.add(source, listing)
            if listing.root is not None and not (source.optional or listing.items or listing.problems):
                shelf.problems.append(problem(Code.NO_SKILLS, source.path(), scope=source.scope))
        else:
            shelf.problems.append(source)
    return shelf.finish((root or workspace).absolute())


class _Shelf:
    """Takes roots in the order of precedence; the first skill of a name keeps it."""

    def __init__(self, options: SkillOptions) -> None:
        self.problems: list[Problem] = []
        self._options = options
        self._disabled = frozenset(options.disabled_skills)
        self._skills: dict[str, Skill] = {}
        self._shadowed: list[Shadowed] = []
        self._roots: list[Root] = []
        self._directories: set[str] = set()
        self._project: Path | None = None
        self._incomplete: Incomplete | None = None

    def add(self, source: Source, listing: Listing) -> None:
        """Take in what one root gave."""
        if listing.root is not None:
            self._roots.append(listing.root)
        if source.scope is Scope.PROJECT:
            self._project = source.root if listing.root is None else listing.root.directory
        self._incomplete = self._incomplete or listing.incomplete
        self.problems += listing.problems
        mine = _kept(listing.items)
        for item in listing.items:
            if item.skill is None:
                self._directories.add(item.directory)
            if (item.directory if item.skill is None else item.skill.name) in self._disabled:
                continue
            if item.skill is not None and (kept := mine[item.key].skill) and kept is not item.skill:
                self.problems.append(_taken(item, item.skill, kept))
            self.problems += item.problems
        for key, item in mine.items():
            assert item.skill is not None  # noqa: S101 - as it was put there
            first = self._skills.setdefault(key, item.skill)
            if first is not item.skill:
                skill = item.skill
                hidden = Shadowed(name=skill.name, path=skill.path, scope=skill.scope, by=first.path)
                self._shadowed.append(hidden)

    def finish(self, workspace: Path) -> SkillSet:
        """The set, with a word on every name among the options that nothing has."""
        skills = tuple(sorted(self._skills.values(), key=attrgetter("priority", "name", "directory")))
        return SkillSet(
            root=self._project or workspace,
            skills=skills,
            problems=(*self.problems, *self._unknown(skills)),
            roots=tuple(self._roots),
            shadowed=tuple(self._shadowed),
            incomplete=self._incomplete,
        )

    def _unknown(self, skills: tuple[Skill, ...]) -> list[Problem]:
        """A malformed file is known by its directory: its error says enough."""
        choices = {"disabled_skills": self._options.disabled_skills, "include": self._options.include}
        if not any(choices.values()):
            return []
        known = {skill.name for skill in skills} | self._directories
        return [
            problem(
                Code.UNKNOWN_SKILL,
                ".",
                message=f"`agent.skills.{key}` names `{one_line(name)}`, which is not there.",
            )
            for key, names in choices.items()
            for name in names
            if name not in known
        ]


def _kept(items: tuple[Parsed, ...]) -> dict[str, Parsed]:
    """The skills of one root by their keys; of several with one name the directory that bears it has it."""
    kept: dict[str, Parsed] = {}
    for item in items:
        if item.skill is not None:
            first = kept.setdefault(item.key, item)
            if item.bears_its_name and not first.bears_its_name:
                kept[item.key] = item
    return kept


def _taken(item: Parsed, skill: Skill, first: Skill) -> Problem:
    message = f"`name` is already taken by {first.path}."
    place = TOP if item.sheet is None else item.sheet.place("name")
    return problem(Code.DUPLICATE_NAME, skill.path, place, message=message, scope=skill.scope)
