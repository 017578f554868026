"""What one session may ask for by its tools: the skills that its block lists, or those that it may find."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from symphony.skills.activate import Activations, sources_of
from symphony.skills.catalog import Block, render_found
from symphony.skills.model import SkillOptions, SkillSet
from symphony.skills.search import search

__all__ = ["MAX_FOUND", "Offer"]

MAX_FOUND: Final = 20
_NOTHING: Final = "No skill fits these words. Try other ones, or go on without a skill."


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The skills of one session.

    Attributes:
        skill_set: those that are offered, and no others.
        workspace: the directory that they were loaded from.
        options: the ones that they were loaded and rendered with.
        searched: none of them is listed, so that the session has to search.
    """

    skill_set: SkillSet
    workspace: Path
    options: SkillOptions
    searched: bool = False

    @classmethod
    def of(
        cls, skill_set: SkillSet, block: Block, *, workspace: Path, options: SkillOptions
    ) -> "Offer | None":
        """The offer that a block makes; null where it makes none."""
        if not block.offered:
            return None
        kept = _only(skill_set, frozenset(block.offered))
        return cls(skill_set=kept, workspace=workspace, options=options, searched=block.searched)

    def activations(self) -> Activations:
        """A fresh record for one session."""
        names = [skill.name for skill in self.skill_set.skills]
        sources = sources_of(self.skill_set, names, self.workspace, self.options)
        return Activations(sources, closed=not self.searched)

    def find(self, query: str, *, limit: int = 10) -> str:
        """What fits the words, the best first, in the form of the block; at most `MAX_FOUND` skills."""
        hits = search(self.skill_set.skills, query, limit=min(limit, MAX_FOUND))
        return render_found(self.skill_set, [hit.skill for hit in hits], self.options) or _NOTHING


def _only(skill_set: SkillSet, names: Collection[str]) -> SkillSet:
    return replace(skill_set, skills=tuple(skill for skill in skill_set.skills if skill.name in names))
