"""Skills of a repository: found, validated, listed for an agent, and reported where they are malformed.

Usable alone; nothing of ours is imported but `symphony.frontmatter`. Bodies of skills are never loaded.

    skill_set = load(workspace, SkillOptions())
    block = render(skill_set, SkillOptions())
    comment = comment_body(skill_set.problems)
"""

from symphony.skills.catalog import Block, Dropped, DropReason, render
from symphony.skills.digest import digests
from symphony.skills.loader import load
from symphony.skills.model import DEFAULT_PATH, Code, Problem, Severity, Skill, SkillOptions, SkillSet
from symphony.skills.report import comment_body, fingerprint

__all__ = [
    "DEFAULT_PATH",
    "Block",
    "Code",
    "DropReason",
    "Dropped",
    "Problem",
    "Severity",
    "Skill",
    "SkillOptions",
    "SkillSet",
    "comment_body",
    "digests",
    "fingerprint",
    "load",
    "render",
]
