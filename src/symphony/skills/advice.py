"""Tells of what people meant to be a skill and no run takes for one: looked for by checks, not by a run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from symphony.skills.codes import problem
from symphony.skills.draft import is_unfilled
from symphony.skills.exchange import places_of_skills
from symphony.skills.model import FILE_NAME, Code, Problem, SkillOptions, SkillSet
from symphony.skills.sources import Source, sources

__all__ = ["with_advice"]

_NO_SKILLS: Final = frozenset({"readme.md", "index.md"})


def with_advice(workspace: Path, options: SkillOptions, skill_set: SkillSet) -> SkillSet:
    """The set as it was loaded, with more problems: flat files, nested skills, texts left to be filled in.

    Blocks on the file system, at most as long as an import looks for skills. Raises nothing.
    """
    more: list[Problem] = []
    known = {one.path for one in skill_set.problems} | {one.path for one in skill_set.shadowed}
    known |= {one.path for one in skill_set.skills}
    for source in sources(workspace, options, None):
        if isinstance(source, Source):
            more += (one for one in _misplaced(source) if one.path not in known)
    more += (
        problem(Code.UNFILLED, skill.path, scope=skill.scope)
        for skill in skill_set.skills
        if is_unfilled(skill.name, skill.description, skill.when_to_use)
        and skill.name not in options.disabled_skills
    )
    return replace(skill_set, problems=(*skill_set.problems, *more))


def _misplaced(source: Source) -> Iterator[Problem]:
    for parts, flat in places_of_skills(source.base, source.parts):
        below = parts[len(source.parts) :]
        if any(part.startswith(".") for part in below):
            continue
        if flat and len(below) == 1 and below[0].lower() not in _NO_SKILLS:
            yield problem(Code.FLAT_FILE, source.path(*below), scope=source.scope)
        elif not flat and len(below) > 1:
            yield problem(Code.NESTED_TOO_DEEP, source.path(*below, FILE_NAME), scope=source.scope)
