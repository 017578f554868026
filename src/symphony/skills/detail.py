"""Everything that is known of one skill, its text included, as a document and as lines for people."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from symphony.skills.catalog import Block
from symphony.skills.content import Content, ContentError, read_content
from symphony.skills.digest import digests_of
from symphony.skills.lint import text_lines
from symphony.skills.model import SkillOptions, SkillSet
from symphony.skills.shapes import detail_shape
from symphony.skills.sources import anchored
from symphony.skills.text import clean

__all__ = ["detail", "detail_lines", "visible"]

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
    "phases",
    "priority",
    "shadows",
    "files",
)


def detail(
    workspace: Path, skill_set: SkillSet, name: str, block: Block, options: SkillOptions
) -> dict[str, Any] | None:
    """The document of one skill, as `shapes.detail_shape`; null where none has this name."""
    skill = next((one for one in skill_set.skills if one.name == name), None)
    if skill is None:
        return None
    content: Content | None
    try:
        content = read_content(*anchored(skill.scope, skill.path, workspace, options))
    except ContentError:
        content = None
    sha256 = digests_of(workspace, [skill], options).get(skill.path)
    return detail_shape(skill, skill_set, block, options, sha256=sha256, content=content)


def detail_lines(document: dict[str, Any], skill_set: SkillSet, below: str) -> Iterator[str]:
    """The fields, the problems, then at most 500 lines of text in which nothing steers a terminal."""
    for key in _FIELDS:
        value = document[key]
        if value not in (None, "", []):
            yield clean(f"{key}: {_plain(value)}")
    yield from text_lines((one for one in skill_set.problems if one.path == document["path"]), below)
    if document["body"] is None:
        return
    yield ""
    lines = document["body"].split("\n")
    yield from map(visible, lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES or document["cut"]:
        yield f"(more in {clean(document['file'])})"


def visible(line: str) -> str:
    """The line with each character that is no text written as its escape."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one == "\t" else _escaped(one) for one in line)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _plain(value: object) -> str:
    match value:
        case list():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
    return str(value)
