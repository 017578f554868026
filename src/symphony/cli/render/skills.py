"""Skills as tables for people; what their files say is shown as text and nothing else."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click
from msgspec import structs
from rich.table import Table

from symphony import skills
from symphony.characters import visible
from symphony.cli.documents import (
    FileProblem,
    FolderElsewhere,
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
from symphony.cli.formatting import cell, console_for, plural, print_blocks, table
from symphony.cli.skill_roots import SkillsContext
from symphony.skills import (
    CatalogBlock,
    ContentError,
    DropReason,
    Hit,
    Problem,
    Severity,
    Skill,
    SkillContent,
    SkillOptions,
    SkillSet,
    clean,
    one_line,
    read_content,
    resolve_anchor,
    skill_digests,
    text_lines,
)

# Fills what the `skills` commands print: all skills, one, the block, what a search or a check finds.


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def listing(
    found: SkillSet,
    block: CatalogBlock,
    options: SkillOptions,
    *,
    uncommitted: Iterable[str],
    elsewhere: Iterable[skills.FolderElsewhere] = (),
    digests: Mapping[str, str] = _NONE,
) -> SkillListing:
    """All skills; `digests` are SHA-256 in hex by the paths of files."""
    return SkillListing(
        roots=tuple(SkillRoot(scope=root.scope.value, path=root.path) for root in found.roots),
        skills=tuple(_shown(skill, block, options, digests.get(skill.path)) for skill in found.skills),
        shadowed=tuple(HiddenSkill.of(one) for one in found.shadowed),
        problems=problem_documents(found.problems),
        uncommitted=tuple(sorted(uncommitted)),
        elsewhere=tuple(FolderElsewhere(path=one.path, skills=one.skills) for one in elsewhere),
    )


def _shown(skill: Skill, block: CatalogBlock, options: SkillOptions, sha256: str | None) -> ShownSkill:
    included = not options.include or skill.name in options.include
    return ShownSkill.of(
        skill,
        enabled=options.enabled
        and included
        and skill.name not in options.disabled_skills
        and not options.hides(skill),
        listed=skill.name in block.listed,
        sha256=sha256,
    )


def block_document(found: SkillSet, block: CatalogBlock) -> SkillBlock:
    """What goes into a prompt."""
    return SkillBlock(
        block=block.text,
        listed=tuple(block.listed),
        dropped=tuple(UnlistedSkill(name=one.name, reason=one.reason.value) for one in block.dropped),
        shortened=tuple(block.shortened),
        problems=problem_documents(found.problems),
    )


def detail(
    workspace: Path, found: SkillSet, name: str, block: CatalogBlock, options: SkillOptions
) -> SkillDetail | None:
    """One skill with what it hides, what is wrong with it, and its text; `None` where none has this name."""
    skill = next((one for one in found.skills if one.name == name), None)
    if skill is None:
        return None
    content: SkillContent | None
    try:
        content = read_content(*resolve_anchor(skill.scope, skill.path, workspace, options))
    except ContentError:
        content = None
    sha256 = skill_digests(workspace, [skill], options).get(skill.path)
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
    block: CatalogBlock,
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
    return tuple(FileProblem.of(one) for one in problems)


_MAX_LINES: Final = 500
_FIELDS: Final = (
    "name",
    "description",
    "when_to_use",
    "path",
    "scope",
    "enabled",
    "listed",
    "sha256",
    "for_people",
    "phases",
    "priority",
    "shadows",
    "files",
)

_REASONS = {
    DropReason.COUNT: "over the cap",
    DropReason.BUDGET: "over budget",
    DropReason.DISABLED: "disabled",
    DropReason.NOT_INCLUDED: "not included",
    DropReason.FOR_PEOPLE: "for people",
    DropReason.PHASE: "other phase",
}


def print_listing(found: SkillSet, block: CatalogBlock, place: SkillsContext) -> None:
    """A line per skill; below, what is wrong with files that are none."""
    if found.skills:
        print_blocks(console_for(), _listing(found, block, place))
    paths = {skill.path for skill in found.skills}
    others = [one for one in found.problems if one.path not in paths and one.severity is not Severity.INFO]
    for line in text_lines(others, place.below):
        click.echo(line)
    kept = [skill for skill in found.skills if place.options.hides(skill)]
    if kept:
        names = ", ".join(f"{one_line(skill.name)} ({one_line(str(skill.for_people))})" for skill in kept)
        click.echo(f"hint: kept for people: {names}; agent.skills.for_people: show lists them", err=True)


def _listing(found: SkillSet, block: CatalogBlock, place: SkillsContext) -> Table:
    unseen = place.uncommitted()
    dropped = {one.name: _REASONS[one.reason] for one in block.dropped}
    problems = Counter(one.path for one in found.problems if one.severity is not Severity.INFO)
    rows = table("NAME", "SCOPE", "LISTED", "PROBLEMS", "WHEN TO USE", cut={"WHEN TO USE"})
    for skill in found.skills:
        if not place.options.enabled:
            listed = "off"
        elif skill.name not in block.listed:
            listed = dropped.get(skill.name, "no")
        else:
            listed = "not committed" if skill.path in unseen else "yes"
        count = problems[skill.path]
        rows.add_row(
            cell(skill.name),
            cell(skill.scope.value),
            cell(listed),
            cell(plural(count, "warning") if count else ""),
            cell(skill.text),
        )
    return rows


def print_hits(hits: Iterable[Hit]) -> None:
    """A line per hit."""
    rows = table("NAME", "PATH", "WHEN TO USE", fold={"PATH"}, cut={"WHEN TO USE"})
    for hit in hits:
        rows.add_row(cell(hit.skill.name), cell(hit.skill.path), cell(hit.skill.text))
    print_blocks(console_for(), rows)


def print_folders(folders: Iterable[tuple[str, int, int]]) -> None:
    """A line per folder of a source: how many skills it has, and how many of them cannot be taken."""
    rows = table("FOLDER", "SKILLS", "NOT USABLE")
    for folder, count, bad in folders:
        rows.add_row(cell(folder), cell(count), cell(bad or ""))
    print_blocks(console_for(), rows)


def detail_lines(skill: SkillDetail, found: SkillSet, below: str) -> Iterator[str]:
    """The fields, the problems, then at most 500 lines of text in which nothing steers a terminal."""
    for name in _FIELDS:
        value = getattr(skill, name)
        if value not in (None, "", ()):
            yield clean(f"{name}: {_plain(value)}")
    yield from text_lines((one for one in found.problems if one.path == skill.path), below)
    if skill.body is None:
        return
    yield ""
    lines = skill.body.split("\n")
    yield from map(visible, lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES or skill.cut:
        yield f"(more in {clean(skill.file)})"


def _plain(value: object) -> str:
    match value:
        case tuple():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
    return str(value)
