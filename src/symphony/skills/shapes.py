"""The JSON shapes in which skills, problems and the block are shown; each has one definition, here."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from symphony.skills.catalog import Block
from symphony.skills.content import Content
from symphony.skills.model import Problem, Skill, SkillOptions, SkillSet
from symphony.skills.search import Hit

__all__ = [
    "block_shape",
    "detail_shape",
    "hits_shape",
    "listing_shape",
    "problem_shape",
    "problems_shape",
    "skill_shape",
]

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def listing_shape(
    skill_set: SkillSet, block: Block, options: SkillOptions, *, digests: Mapping[str, str] = _NONE
) -> dict[str, Any]:
    """`{"roots", "skills", "shadowed", "problems"}`; `digests` are SHA-256 in hex by the paths of files."""
    listed = frozenset(block.listed)
    return {
        "roots": [{"scope": root.scope.value, "path": root.path} for root in skill_set.roots],
        "skills": [
            skill_shape(skill, listed=skill.name in listed, options=options, sha256=digests.get(skill.path))
            for skill in skill_set.skills
        ],
        "shadowed": [
            {"name": one.name, "path": one.path, "scope": one.scope.value, "by": one.by}
            for one in skill_set.shadowed
        ],
        **problems_shape(skill_set.problems),
    }


def skill_shape(skill: Skill, *, listed: bool, options: SkillOptions, sha256: str | None) -> dict[str, Any]:
    """One skill; `enabled` is what the options say of its name, `listed` whether it is in the block."""
    included = not options.include or skill.name in options.include
    return {
        "name": skill.name,
        "description": skill.description,
        "when_to_use": skill.when_to_use,
        "path": skill.path,
        "scope": skill.scope.value,
        "enabled": options.enabled and included and skill.name not in options.disabled_skills,
        "listed": listed,
        "sha256": sha256,
        "phases": list(skill.phases),
        "priority": skill.priority,
    }


def block_shape(skill_set: SkillSet, block: Block) -> dict[str, Any]:
    """`{"block", "listed", "dropped", "shortened", "problems"}` of what goes into a prompt."""
    return {
        "block": block.text,
        "listed": list(block.listed),
        "dropped": [{"name": one.name, "reason": one.reason.value} for one in block.dropped],
        "shortened": list(block.shortened),
        **problems_shape(skill_set.problems),
    }


def detail_shape(
    skill: Skill,
    skill_set: SkillSet,
    block: Block,
    options: SkillOptions,
    *,
    sha256: str | None,
    content: Content | None,
) -> dict[str, Any]:
    """One skill with what it hides, what is wrong with it, and its text; without `content` that is null."""
    return {
        **skill_shape(skill, listed=skill.name in block.listed, options=options, sha256=sha256),
        "file": str(skill_set.file(skill)),
        "shadows": [one.path for one in skill_set.shadowed if one.by == skill.path],
        **problems_shape(one for one in skill_set.problems if one.path == skill.path),
        "body": None if content is None else content.body,
        "cut": content is not None and content.cut,
        "files": [] if content is None else list(content.files),
        "more_files": 0 if content is None else content.more_files,
    }


def hits_shape(
    query: str,
    hits: Iterable[Hit],
    block: Block,
    options: SkillOptions,
    *,
    digests: Mapping[str, str] = _NONE,
) -> dict[str, Any]:
    """`{"query", "hits"}`, the best first; a hit is a skill with its `score`."""
    return {
        "query": query,
        "hits": [
            {
                **skill_shape(
                    hit.skill,
                    listed=hit.skill.name in block.listed,
                    options=options,
                    sha256=digests.get(hit.skill.path),
                ),
                "score": hit.score,
            }
            for hit in hits
        ],
    }


def problems_shape(problems: Iterable[Problem]) -> dict[str, Any]:
    """`{"problems"}` of a check."""
    return {"problems": [problem_shape(one) for one in problems]}


def problem_shape(problem: Problem) -> dict[str, Any]:
    """One problem."""
    return {
        "path": problem.path,
        "severity": problem.severity.value,
        "code": problem.code.value,
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "hint": problem.hint,
    }
