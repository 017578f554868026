"""Puts the roots together: reads every skill, settles names that are given twice, sorts."""

from operator import attrgetter
from pathlib import Path

from symphony.skills.codes import problem
from symphony.skills.discover import Listing, scan
from symphony.skills.memory import SHARED, Memory
from symphony.skills.model import Code, Problem, Root, Scope, Shadowed, Skill, SkillOptions, SkillSet
from symphony.skills.parse import Parsed, Rules
from symphony.skills.sources import Source, sources
from symphony.skills.text import one_line

__all__ = ["load"]


def load(
    workspace: Path, options: SkillOptions, *, root: Path | None = None, memory: Memory = SHARED
) -> SkillSet:
    """The skills of a workspace, and what is wrong with the rest; raises nothing.

    Blocks on the file system, so the caller runs it in a thread under a deadline; several may run at once.
    With `enabled` off the set is empty and the file system is left alone. With `root` the catalog names that
    directory in place of the workspace, for skills that an agent will find elsewhere than they are read.
    """
    if not options.enabled:
        return SkillSet(root=(root or workspace) / options.path)
    shelf = _Shelf(options)
    rules, seen = Rules.of(options), set[tuple[int, int]]()
    for source in sources(workspace, options, root):
        if isinstance(source, Source):
            shelf.add(source, scan(source, rules, memory, seen))
        else:
            shelf.problems.append(source)
    return shelf.finish((root or workspace).absolute())


class _Shelf:
    """Takes roots in the order of precedence; the first skill of a name keeps it."""

    __slots__ = (
        "_directories",
        "_disabled",
        "_options",
        "_project",
        "_roots",
        "_shadowed",
        "_skills",
        "problems",
    )

    def __init__(self, options: SkillOptions) -> None:
        self.problems: list[Problem] = []
        self._options = options
        self._disabled = frozenset(options.disabled_skills)
        self._skills: dict[str, Skill] = {}
        self._shadowed: list[Shadowed] = []
        self._roots: list[Root] = []
        self._directories: set[str] = set()
        self._project: Path | None = None

    def add(self, source: Source, listing: Listing) -> None:
        """Take in what one root gave."""
        if listing.root is not None:
            self._roots.append(listing.root)
        if source.scope is Scope.PROJECT:
            self._project = source.root if listing.root is None else listing.root.directory
        self.problems += listing.problems
        mine: dict[str, Skill] = {}
        disabled, problems = self._disabled, self.problems
        for item in listing.items:
            skill = item.skill
            if skill is None:
                self._directories.add(item.directory)
                if item.directory not in disabled:
                    problems += item.problems
                continue
            first = mine.setdefault(item.key, skill)
            if skill.name not in disabled:
                if first is not skill:
                    problems.append(_taken(item, skill, first))
                problems += item.problems
        self._merge(mine)

    def _merge(self, mine: dict[str, Skill]) -> None:
        for key, skill in mine.items():
            first = self._skills.setdefault(key, skill)
            if first is not skill:
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


def _taken(item: Parsed, skill: Skill, first: Skill) -> Problem:
    message = f"`name` is already taken by {first.path}."
    return problem(Code.DUPLICATE_NAME, skill.path, item.name_place, message=message, scope=skill.scope)
