"""Writes the beginning of a SKILL.md: every value is serialised, none is pasted, whatever it holds."""

import re
from collections.abc import Mapping
from typing import Final

from symphony import frontmatter
from symphony.frontmatter import Document, FrontMatterError, Profile, Split
from symphony.frontmatter.scalars import quote
from symphony.skills.text import MAX_FIELD, clean, shorten

__all__ = ["draft", "is_unfilled", "suggested_name", "with_front_matter", "with_metadata"]

_MAX_NAME: Final = 64
_BOM: Final = b"\xef\xbb\xbf"
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_NO_TEXT: Final = re.compile(r"#|<!--|```|~~~|---")
_HEADING: Final = re.compile(r"#{1,6}\s+(.+)")
_DESCRIPTION: Final = "What {name} does, in one line."
_WHEN_TO_USE: Final = "When {name} applies, in the words of a task."
_BODY: Final = """\
# {name}

1. What to do first, as a command that can be run as it stands.
2. How to tell that it worked.
"""


def draft(name: str, description: str | None, when_to_use: str | None) -> str:
    """The text of a new skill, with a body to be filled in; `name` should be a clean one.

    A text that is not given is one to be filled in as well, which `is_unfilled` knows again.

    Raises:
        ValueError: a text holds lone surrogates and cannot be written as UTF-8.
    """
    description = _DESCRIPTION.format(name=name) if description is None else description
    when_to_use = _WHEN_TO_USE.format(name=name) if when_to_use is None else when_to_use
    return _front(name=name, description=description, when_to_use=when_to_use) + _BODY.format(name=name)


def is_unfilled(name: str, description: str, when_to_use: str) -> bool:
    """Whether a skill still says what `draft` wrote for want of something better."""
    return description == _DESCRIPTION.format(name=name) or when_to_use == _WHEN_TO_USE.format(name=name)


def with_front_matter(data: bytes, name: str) -> bytes | None:
    """A bare file with front matter before its own bytes; the description is its first paragraph.

    Null where the file is not bare, is not UTF-8, or says nothing that could be a description.
    """
    data = data.removeprefix(_BOM)
    try:
        bare = frontmatter.split(data.lstrip()) is None
        description = _gist(data.decode()) if bare else ""
    except (frontmatter.FrontMatterError, UnicodeDecodeError):
        return None
    if not description:
        return None
    return _front(name=name, description=description).encode() + data


def with_metadata(data: bytes, values: Mapping[str, str]) -> bytes | None:
    """The file with those keys in its `metadata` that it has not itself, and nothing else changed.

    None where the front matter has no room for them: it is malformed, or `metadata` is no plain block.
    """
    try:
        found = frontmatter.split(data)
        if found is None or not found.closed:
            return None
        before = frontmatter.load(found.front, profile=Profile.TEXT)
        metadata = before.value.get("metadata") or {}
        missing = {key: value for key, value in values.items() if key not in metadata}
        if not missing:
            return data
        changed = _inserted(found, before, missing)
        after = frontmatter.load(changed, profile=Profile.TEXT).value
    except (FrontMatterError, TypeError, ValueError):  # the latter two: `metadata` is no map
        return None
    if after != {**before.value, "metadata": {**missing, **metadata}}:
        return None
    start = data.index(b"\n") + 1
    return data[:start] + changed + data[start + len(found.front) :]


def suggested_name(text: str) -> str:
    """A clean name that resembles the text; empty where nothing of it is left."""
    return _NO_NAME.sub("-", text.lower()).strip("-")[:_MAX_NAME].strip("-")


def _inserted(found: Split, before: Document, missing: Mapping[str, str]) -> bytes:
    """The front matter with more lines in its `metadata`, or with a `metadata` at its end."""
    end = b"\r\n" if found.front.endswith(b"\r\n") else b"\n"
    lines = found.front.split(b"\n")
    children = [place for path, place in before.positions.items() if path[:1] == ("metadata",) and path[1:]]
    new: list[bytes] = []
    if children:
        at, column = min(children)
        index, indent = at - found.front_line, column - 1
    elif "metadata" in before.value:
        index, indent = before.positions[("metadata",)][0] - found.front_line + 1, 2
    else:
        index, indent = len(lines) - 1, 2
        new.append(b"metadata:")
    new += [f"{' ' * indent}{key}: {quote(value)}".encode() for key, value in missing.items()]
    return b"\n".join([*lines[:index], *(line + end[:-1] for line in new), *lines[index:]])


def _front(**values: str) -> str:
    lines = [f"{key}: {quote(value)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---", ""])


def _gist(text: str) -> str:
    """The first paragraph, or else the first heading, on one line."""
    for block in re.split(r"\n[ \t\r]*\n", text):
        lines = [line for line in block.splitlines() if not _HEADING.match(line)]
        paragraph = clean(" ".join(lines))
        if paragraph and not _NO_TEXT.match(paragraph):
            return shorten(paragraph, MAX_FIELD)
    heading = next((found[1] for line in text.splitlines() if (found := _HEADING.match(line))), "")
    return shorten(clean(heading), MAX_FIELD)
