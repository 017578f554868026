"""Skills of a repository: found, validated, listed for an agent, and reported where they are malformed.

Usable alone; nothing of ours is imported but `symphony.frontmatter`. Bodies of skills are never loaded, and
nothing in here raises because of what a file holds.

    skill_set = load(workspace, SkillOptions())
    block = render(skill_set, SkillOptions())
    comment = comment_body(skill_set.problems)
"""

from symphony.skills.catalog import Block, Dropped, DropReason, render
from symphony.skills.digest import digests, digests_of
from symphony.skills.loader import load
from symphony.skills.memory import Memory
from symphony.skills.model import (
    DEFAULT_PATH,
    Code,
    Format,
    Problem,
    Root,
    Scope,
    Severity,
    Shadowed,
    Skill,
    SkillOptions,
    SkillSet,
    Validation,
)
from symphony.skills.report import comment_body, fingerprint

__all__ = [
    "DEFAULT_PATH",
    "Block",
    "Code",
    "DropReason",
    "Dropped",
    "Format",
    "Memory",
    "Problem",
    "Root",
    "Scope",
    "Severity",
    "Shadowed",
    "Skill",
    "SkillOptions",
    "SkillSet",
    "Validation",
    "comment_body",
    "digests",
    "digests_of",
    "fingerprint",
    "load",
    "render",
]
