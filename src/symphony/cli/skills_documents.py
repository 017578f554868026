"""Fills what the `skills` commands print: all skills, one, the block, what a search or a check finds."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import structs

from symphony.cli.documents import (
    FileProblem,
    FoundSkill,
    HiddenSkill,
    ShownSkill,
    SkillBlock,
    SkillDetail,
    SkillHits,
    SkillListing,
    SkillRoot,
    UnlistedSkill,
)
from symphony.skills import Block, SkillSet
from symphony.skills.content import Content, ContentError, read_content
from symphony.skills.digest import digests_of
from symphony.skills.model import Problem, Skill, SkillOptions
from symphony.skills.search import Hit
from symphony.skills.sources import anchored

__all__ = ["block_document", "detail", "hits_document", "listing", "problem_documents"]

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def listing(
    found: SkillSet,
    block: Block,
    options: SkillOptions,
    *,
    uncommitted: Iterable[str],
    digests: Mapping[str, str] = _NONE,
) -> SkillListing:
    """All skills; `digests` are SHA-256 in hex by the paths of files."""
    return SkillListing(
        roots=tuple(SkillRoot(scope=root.scope.value, path=root.path) for root in found.roots),
        skills=tuple(_shown(skill, block, options, digests.get(skill.path)) for skill in found.skills),
        shadowed=tuple(
            HiddenSkill(name=one.name, path=one.path, scope=one.scope.value, by=one.by)
            for one in found.shadowed
        ),
        problems=problem_documents(found.problems),
        uncommitted=tuple(sorted(uncommitted)),
    )


def _shown(skill: Skill, block: Block, options: SkillOptions, sha256: str | None) -> ShownSkill:
    included = not options.include or skill.name in options.include
    return ShownSkill(
        name=skill.name,
        description=skill.description,
        when_to_use=skill.when_to_use,
        path=skill.path,
        scope=skill.scope.value,
        enabled=options.enabled and included and skill.name not in options.disabled_skills,
        listed=skill.name in block.listed,
        sha256=sha256,
        phases=tuple(skill.phases),
        priority=skill.priority,
    )


def block_document(found: SkillSet, block: Block) -> SkillBlock:
    """What goes into a prompt."""
    return SkillBlock(
        block=block.text,
        listed=tuple(block.listed),
        dropped=tuple(UnlistedSkill(name=one.name, reason=one.reason.value) for one in block.dropped),
        shortened=tuple(block.shortened),
        problems=problem_documents(found.problems),
    )


def detail(
    workspace: Path, found: SkillSet, name: str, block: Block, options: SkillOptions
) -> SkillDetail | None:
    """One skill with what it hides, what is wrong with it, and its text; `None` where none has this name."""
    skill = next((one for one in found.skills if one.name == name), None)
    if skill is None:
        return None
    content: Content | None
    try:
        content = read_content(*anchored(skill.scope, skill.path, workspace, options))
    except ContentError:
        content = None
    sha256 = digests_of(workspace, [skill], options).get(skill.path)
    return SkillDetail(
        **structs.asdict(_shown(skill, block, options, sha256)),
        file=str(found.file(skill)),
        shadows=tuple(one.path for one in found.shadowed if one.by == skill.path),
        problems=problem_documents(one for one in found.problems if one.path == skill.path),
        body=None if content is None else content.body,
        cut=content is not None and content.cut,
        files=() if content is None else tuple(content.files),
        more_files=0 if content is None else content.more_files,
    )


def hits_document(
    query: str,
    hits: Iterable[Hit],
    block: Block,
    options: SkillOptions,
    *,
    digests: Mapping[str, str] = _NONE,
) -> SkillHits:
    """What a search finds, the best first."""
    return SkillHits(
        query=query,
        hits=tuple(
            FoundSkill(
                **structs.asdict(_shown(hit.skill, block, options, digests.get(hit.skill.path))),
                score=hit.score,
            )
            for hit in hits
        ),
    )


def problem_documents(problems: Iterable[Problem]) -> tuple[FileProblem, ...]:
    """What is wrong with files."""
    return tuple(
        FileProblem(
            path=one.path,
            severity=one.severity.value,
            code=one.code.value,
            line=one.line,
            column=one.column,
            message=one.message,
            hint=one.hint,
        )
        for one in problems
    )
