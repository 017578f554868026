"""Skills of a repository: found, validated, listed for an agent, and reported where they are malformed.

Usable alone; nothing of ours is imported but `symphony.frontmatter`. A body is read only when a session asks
for it, and nothing in here raises because of what a file holds.

    skill_set = load(workspace, SkillOptions())
    block = render(skill_set, SkillOptions())
    comment = comment_body(skill_set.problems)
"""

from symphony.skills.activate import (
    MAX_FOUND,
    Activation,
    Activations,
    ActivationStatus,
    Offer,
    Source,
    sources_of,
)
from symphony.skills.catalog import Block, Dropped, DropReason, Native, render, render_found, settle
from symphony.skills.digest import digests, digests_of
from symphony.skills.loader import anchored, load
from symphony.skills.model import (
    ACTIVATE_TOOL,
    DEFAULT_PATH,
    SEARCH_TOOL,
    ActivationMode,
    Code,
    Format,
    Incomplete,
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
from symphony.skills.report import Named, comment_body, named_problems, resolved_body
from symphony.skills.search import Hit, search

__all__ = [
    "ACTIVATE_TOOL",
    "DEFAULT_PATH",
    "MAX_FOUND",
    "SEARCH_TOOL",
    "Activation",
    "ActivationMode",
    "ActivationStatus",
    "Activations",
    "Block",
    "Code",
    "DropReason",
    "Dropped",
    "Format",
    "Hit",
    "Incomplete",
    "Named",
    "Native",
    "Offer",
    "Problem",
    "Root",
    "Scope",
    "Severity",
    "Shadowed",
    "Skill",
    "SkillOptions",
    "SkillSet",
    "Source",
    "Validation",
    "anchored",
    "comment_body",
    "digests",
    "digests_of",
    "load",
    "named_problems",
    "render",
    "render_found",
    "resolved_body",
    "search",
    "settle",
    "sources_of",
]
